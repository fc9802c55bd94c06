//! Credentials that a message carries in some of its members: which values they are, and the line with these values masked.
//!
//! A value is a credential by the name of its member (`bearer_token`), or by its place: whatever stands below `env` or
//! `http_headers` is one, whatever it is called. Names may be paths with dots, as in `config["mcp_servers.x.env"]`.
//!
//! The line is walked as it was written. A value is overwritten with as many bytes, inside its quotation marks, and every
//! other byte stays. Nothing here touches the bytes that are forwarded.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::commands::given_in_lists;
use super::masking::{JsonString, mask_signs, other_digits, unescaped};
use super::names::{SecretFields, is_secret_name};
use super::{merged, secret_spans, touches};
use crate::protocol::{EVENT_MEMBER, Method, answers_with_credentials};
use crate::wire::{Members, Token, TokenKind, tokens};

/// Deepest nesting that is walked; a line that is nested deeper is left out of the record.
const DEPTH_MAX: usize = 1_000;

/// Bytes of the values of one request that are remembered until its answer.
const VALUES_BYTES_MAX: usize = 64 << 10;

/// Longest text of an error that is searched, in bytes; a longer one is masked as a whole.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Shortest value that is masked anywhere in an error, in bytes; a shorter one only if it is a word of its own there.
const VALUE_BYTES_MIN: usize = 4;

/// The members of a message in which credentials are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    /// `config` in the parameters.
    Config,
    /// Any member of the parameters or of the result.
    AnyMember,
    /// `rate_limits` in an event: all but the numbers of its windows, which name the account's plan and credits.
    Limits,
    /// The fields of a form, in the `content` of the result.
    Form(Arc<SecretFields>),
    /// The texts of an error: these values, which its request has carried.
    Error(Arc<Values>),
}

/// The credentials that a request has carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Values {
    /// More than are remembered: every text is masked.
    Any,
    These(Vec<String>),
}

/// A line is nested too deep to be walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooDeep;

impl Carrier {
    /// That of a request's or a notification's parameters.
    pub fn of_params(method: &str) -> Carrier {
        match Method::of(method) {
            Some(Method::TokenCount) => Carrier::Limits,
            Some(method) if method.has_config() => Carrier::Config,
            Some(_) | None => Carrier::AnyMember,
        }
    }

    /// That of the result of a request; `None` if its results carry no credentials.
    pub fn of_result(method: &str) -> Option<Carrier> {
        (Method::of(method) == Some(Method::ThreadStart) || answers_with_credentials(method))
            .then_some(Carrier::AnyMember)
    }

    /// That of the answer to a form with these parameters.
    pub fn of_form(params: &str) -> Carrier {
        Carrier::Form(Arc::new(SecretFields::of(params)))
    }

    /// The line with its credentials masked; `None` if it has no credentials.
    pub fn masked(&self, line: &str) -> Result<Option<String>, TooDeep> {
        let found = self.found(line)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut bytes = line.as_bytes().to_vec();
        for Token { kind, range } in found {
            let written = &mut bytes[range.clone()];
            match kind {
                TokenKind::Number => written.copy_from_slice(other_digits(&line[range]).as_bytes()),
                TokenKind::Name | TokenKind::Text => {
                    written.iter_mut().zip(mask_signs(&range)).for_each(|(byte, sign)| *byte = sign);
                }
            }
        }
        // Whole characters were overwritten with ASCII.
        Ok(String::from_utf8(bytes).ok())
    }

    /// The credentials in the line of a request, to be known again in an error that answers it; `None` if there are none.
    pub fn values(&self, line: &[u8]) -> Option<Arc<Values>> {
        let line = std::str::from_utf8(line).ok()?;
        let Ok(found) = self.found(line) else { return Some(Arc::new(Values::Any)) };
        if found.iter().map(|found| found.range.len()).sum::<usize>() > VALUES_BYTES_MAX {
            return Some(Arc::new(Values::Any));
        }
        let mut values: Vec<String> = Vec::new();
        for found in found {
            let value = unescaped(&line[found.range]).into_owned();
            // As a program prints it that quotes what it does not like.
            let quoted = format!("{value:?}");
            values.push(quoted.trim_matches('"').to_owned());
            values.push(value);
        }
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        (!values.is_empty()).then(|| Arc::new(Values::These(values)))
    }

    /// The credentials: numbers, and strings or parts of strings without their quotation marks.
    fn found(&self, line: &str) -> Result<Vec<Token>, TooDeep> {
        if let Carrier::Error(values) = self {
            return Ok(values.found(line));
        }
        let given = given_in_lists(line);
        Walk { json: line, carrier: self, given, levels: Vec::new(), found: Vec::new() }.run()
    }
}

impl Values {
    /// Their places in the texts of an error.
    fn found(&self, line: &str) -> Vec<Token> {
        let error = serde_json::from_str::<Members<'_>>(line).ok().and_then(|message| message.get("error"));
        let Some(error) = error.map(|error| error.get()) else { return Vec::new() };
        let error_from = error.as_ptr().addr() - line.as_ptr().addr();
        let texts = tokens(error).filter(|token| token.kind == TokenKind::Text);
        let within = texts.flat_map(|token| {
            let from = error_from + token.range.start + 1;
            let written = &error[token.range.start + 1..token.range.end - 1];
            self.within(written).into_iter().map(move |span| text_at(from + span.start..from + span.end))
        });
        within.collect()
    }

    /// Their places in one text, as it was written.
    fn within(&self, written: &str) -> Vec<Range<usize>> {
        let values = match self {
            Values::These(values) if written.len() <= TEXT_BYTES_MAX => values,
            Values::These(_) | Values::Any => return std::iter::once(0..written.len()).collect(),
        };
        let parsed = JsonString::of_inner(written);
        let said = parsed.text();
        let spans = values.iter().flat_map(|value| occurrences(said.as_bytes(), value.as_bytes())).collect();
        parsed.written_spans(&merged(spans))
    }
}

/// The places of a value in a text; a short value counts only if no letter or digit touches it.
fn occurrences(text: &[u8], value: &[u8]) -> Vec<Range<usize>> {
    if value.is_empty() {
        return Vec::new();
    }
    let is_word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let all = memchr::memmem::find_iter(text, value).map(|at| at..at + value.len());
    all.filter(|span| {
        value.len() >= VALUE_BYTES_MIN || !(is_word(span.start.checked_sub(1)) || is_word(Some(span.end)))
    })
    .collect()
}

/// How the values in an object or array are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// The message itself: its members are looked at by their names.
    Message,
    /// Parameters of which only `config` is looked at.
    Params,
    /// The result of a form, of which only `content` is.
    Answer,
    /// The content of a form.
    Filled,
    /// Nothing in it is a credential.
    Skipped,
    /// Credentials in it are known by their names.
    Plain,
    /// The same; its members have names that the user has chosen.
    Named,
    /// `shell_environment_policy`, whose `set` is an environment.
    Policy,
    /// The words of a command line.
    Words,
    /// All in it are credentials.
    Secret,
    /// The same; entries of a list may have a `name`.
    Place,
    /// An entry of such a list.
    Entry,
    /// Parameters of which only `rate_limits` is looked at.
    Report,
    /// Limits of the account, of which only the windows are recorded.
    Limits,
    /// A window, of which only the numbers are.
    Window,
    /// A number, and anything else in its place is secret.
    Number,
}

/// An object or an array that the walk is in.
#[derive(Debug)]
struct Level {
    role: Treatment,
    is_object: bool,
    /// The role of the next value.
    value: Treatment,
    /// The word before it was an option whose value is a credential.
    is_after_option: bool,
}

struct Walk<'a> {
    json: &'a str,
    carrier: &'a Carrier,
    /// Secrets that commands are given in lists of words, in order.
    given: Vec<Range<usize>>,
    levels: Vec<Level>,
    found: Vec<Token>,
}

impl Walk<'_> {
    /// Walks all of the line, which is JSON.
    fn run(mut self) -> Result<Vec<Token>, TooDeep> {
        let mut seen_to = 0;
        for token in tokens(self.json) {
            self.pass(seen_to..token.range.start)?;
            seen_to = token.range.end;
            let inner = token.range.start + 1..seen_to;
            let inner = inner.start..seen_to - usize::from(self.json[inner].ends_with('"'));
            match token.kind {
                TokenKind::Name => {
                    let Some(level) = self.levels.last_mut() else { continue };
                    level.value = member_role(level.role, &unescaped(&self.json[inner]), self.carrier);
                }
                TokenKind::Text => self.string(inner),
                TokenKind::Number
                    if matches!(self.role(), Treatment::Secret | Treatment::Limits | Treatment::Window) =>
                {
                    self.found.push(token)
                }
                TokenKind::Number => {}
            }
        }
        self.pass(seen_to..self.json.len())?;
        Ok(self.found)
    }

    /// Reads the brackets between two tokens.
    fn pass(&mut self, between: Range<usize>) -> Result<(), TooDeep> {
        for byte in &self.json.as_bytes()[between] {
            match byte {
                b'{' | b'[' => self.enter(*byte == b'{')?,
                b'}' | b']' => drop(self.levels.pop()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The role of the next value, if that is neither object nor array.
    fn role(&self) -> Treatment {
        match self.levels.last() {
            Some(Level { value: Treatment::Secret | Treatment::Place | Treatment::Entry, .. }) => Treatment::Secret,
            Some(level) => level.value,
            None => Treatment::Skipped,
        }
    }

    fn enter(&mut self, is_object: bool) -> Result<(), TooDeep> {
        if self.levels.len() == DEPTH_MAX {
            return Err(TooDeep);
        }
        let role = match self.levels.last() {
            None => Treatment::Message,
            Some(Level { role: Treatment::Place, is_object: false, .. }) if is_object => Treatment::Entry,
            // The entries of a list have no names.
            Some(Level { value: Treatment::Named, .. }) if !is_object => Treatment::Plain,
            Some(level) => level.value,
        };
        let value = if is_object { Treatment::Plain } else { role };
        self.levels.push(Level { role, is_object, value, is_after_option: false });
        Ok(())
    }

    /// Adds what looks like a secret within a string.
    fn within(&mut self, inner: Range<usize>) {
        let parsed = JsonString::of_inner(&self.json[inner.clone()]);
        let spans = secret_spans(parsed.text().as_bytes());
        let found = parsed.written_spans(&spans).into_iter();
        self.found.extend(found.map(|span| text_at(inner.start + span.start..inner.start + span.end)));
    }

    /// A string, whose quotation marks stand around `inner`.
    fn string(&mut self, inner: Range<usize>) {
        let written = &self.json[inner.clone()];
        let role = self.role();
        let Some(level) = self.levels.last_mut().filter(|_| !written.is_empty()) else { return };
        if matches!(role, Treatment::Secret | Treatment::Limits | Treatment::Window | Treatment::Number) {
            self.found.push(text_at(inner));
        } else if role == Treatment::Words {
            let is_value = std::mem::replace(&mut level.is_after_option, is_secret_option(written));
            let is_given = touches(&self.given, &inner) && !written.contains(char::is_whitespace);
            match if is_value || is_given { Some(0) } else { secret_part(written) } {
                Some(from) if from < written.len() => self.found.push(text_at(inner.start + from..inner.end)),
                Some(_) => {}
                None => self.within(inner),
            }
        } else if matches!(role, Treatment::Plain | Treatment::Named) && written.starts_with(['{', '[']) {
            // JSON in a string.
            self.within(inner);
        }
    }
}

fn text_at(range: Range<usize>) -> Token {
    Token { kind: TokenKind::Text, range }
}

/// The role of a member of an object with the role `parent`.
fn member_role(parent: Treatment, name: &str, carrier: &Carrier) -> Treatment {
    match parent {
        Treatment::Message => match (name, carrier) {
            ("id" | "method" | "jsonrpc", _) => Treatment::Skipped,
            ("params", Carrier::Config) => Treatment::Params,
            ("params", Carrier::Limits) => Treatment::Report,
            ("result", Carrier::Form(_)) => Treatment::Answer,
            ("params" | "result" | "error", _) => Treatment::Plain,
            (_, _) => named_role(Treatment::Plain, name),
        },
        Treatment::Params if name == "config" => Treatment::Plain,
        // Some methods have it there.
        Treatment::Params if matches!(name, "overrides" | "params") => Treatment::Params,
        Treatment::Answer if name == "content" => Treatment::Filled,
        Treatment::Params | Treatment::Answer | Treatment::Skipped => Treatment::Skipped,
        Treatment::Filled if matches!(carrier, Carrier::Form(fields) if fields.has(name)) || is_secret_name(name) => {
            Treatment::Secret
        }
        Treatment::Filled => Treatment::Filled,
        Treatment::Report if name == "rate_limits" => Treatment::Limits,
        Treatment::Report if name == EVENT_MEMBER => Treatment::Report,
        Treatment::Report => Treatment::Skipped,
        Treatment::Limits if matches!(name, "primary" | "secondary") => Treatment::Window,
        Treatment::Window if matches!(name, "used_percent" | "window_minutes" | "resets_at" | "resets_in_seconds") => {
            Treatment::Number
        }
        Treatment::Limits | Treatment::Window | Treatment::Number => Treatment::Secret,
        Treatment::Secret | Treatment::Place => parent,
        Treatment::Entry if matches!(name, "name" | "key") => Treatment::Skipped,
        Treatment::Entry => Treatment::Secret,
        Treatment::Plain | Treatment::Named | Treatment::Policy | Treatment::Words => named_role(parent, name),
    }
}

/// The role of a setting, by its name or its path.
fn named_role(parent: Treatment, path: &str) -> Treatment {
    // A path of a file or an address is the name of nothing that we know.
    if path.contains('/') {
        return Treatment::Plain;
    }
    path.split('.').map(|name| name.trim_matches(['"', '\'', ' '])).fold(parent, |role, name| {
        let plain: String = name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        match (role, &*plain) {
            (Treatment::Secret | Treatment::Place | Treatment::Skipped, _) => role,
            (Treatment::Named, _) => Treatment::Plain,
            (Treatment::Policy, "set") => Treatment::Place,
            (_, "env" | "headers" | "httpheaders" | "requestheaders" | "queryparams") => Treatment::Place,
            (_, "shellenvironmentpolicy") => Treatment::Policy,
            (_, "mcpservers" | "modelproviders" | "profiles" | "projects" | "plugins" | "marketplaces") => {
                Treatment::Named
            }
            (_, "args" | "notify" | "command") => Treatment::Words,
            // Sources of settings and names of variables.
            (_, "origins" | "envhttpheaders" | "envvars") => Treatment::Skipped,
            _ if is_secret_name(name) => Treatment::Secret,
            _ => Treatment::Plain,
        }
    })
}

/// Whether `path`, the path of a setting that is written, or something in its `value`, is a credential.
pub fn writes_credential(path: &str, value: &Value) -> bool {
    let edit = serde_json::json!({ path: value }).to_string();
    Carrier::AnyMember.found(&edit).map_or(true, |found| !found.is_empty())
}

/// Whether any word of a line that cannot be read may be the name of a credential or of a place for them.
pub fn may_name_credential(text: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    text.split(|char| !is_part(char)).any(|word| {
        let role = named_role(Treatment::Plain, word);
        matches!(role, Treatment::Secret | Treatment::Place | Treatment::Policy | Treatment::Words)
    })
}

/// `--token`, behind which its value comes as a word of its own.
fn is_secret_option(written: &str) -> bool {
    written.starts_with('-') && !written.contains('=') && is_secret_name(written)
}

/// The offset of the credential in a word such as `--token=x`, `API_KEY=x` or `Authorization: x`.
fn secret_part(written: &str) -> Option<usize> {
    let at = written.find(['=', ':'])?;
    let name = &written[..at];
    // The scheme of an address is not a name.
    if written[at..].starts_with("://") || !is_secret_name(&unescaped(name)) {
        return None;
    }
    let from = at + 1;
    Some(from + written[from..].len() - written[from..].trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks a line in which `XXXX` stands for a credential, and expects stars in its place.
    fn check(carrier: &Carrier, line: &str) {
        let secret = line.replace("XXXX", "k3y!");
        let expect = line.replace("XXXX", "****");
        let masked = carrier.masked(&secret).expect("it is not deep").unwrap_or_else(|| secret.clone());
        assert_eq!(masked, expect);
        assert_eq!(carrier.masked(&masked).expect("it is not deep").unwrap_or_else(|| masked.clone()), masked);
    }

    #[test]
    fn configuration_is_masked_by_name_and_place() {
        let check = |config: &str| {
            check(&Carrier::Config, &format!(r#"{{"id":1,"method":"thread/start","params":{{"config":{config}}}}}"#));
        };
        check(r#"{"mcp_servers":{"a":{"command":"npx","env":{"PLAIN":"XXXX","n":null},"url":"http://h"}}}"#);
        check(r#"{"mcp_servers.codex_tui":{"http_headers":{"Authorization":"XXXX"}}}"#);
        check(r#"{"mcp_servers.a.env":{"A":"XXXX"},"mcp_servers.a.env.B":"XXXX","mcp_servers.\"a.b\".env.C":"XXXX"}"#);
        check(r#"{"mcp_servers.a.http_headers.X-Any":"XXXX","mcp_servers.a.bearer_token":"XXXX"}"#);
        check(r#"{"mcp_servers":{"a":{"e\u006ev":{"A":"XXXX"},"env":["XXXX",["XXXX"],{"b":"XXXX"}]}}}"#);
        check(r#"{"env":{"A":"XXXX"},"env":{"B":"XXXX"}}"#);
        check(r#"{"shell_environment_policy":{"set":{"A":"XXXX"},"include_only":["PATH"]}}"#);
        check(r#"{"shell_environment_policy.set":{"A":"XXXX"}}"#);
        check(r#"{"model_providers":{"m":{"experimental_bearer_token":"XXXX","query_params":{"k":"XXXX"}}}}"#);
        check(
            r#"{"mcp_servers.a.args":["--api-key","XXXX","--token=XXXX","-v","TOKEN=XXXX","Authorization: XXXX","x"]}"#,
        );
        check(r#"{"hooks":{"command":["tool","--password","XXXX"]},"x":"{\"password\":\"XXXX\"}"}"#);
        check(r#"{"mcp_servers.a.args":["-c","mysql -pXXXX db"],"y":"[{\"api_key\": \"XXXX\"}]"}"#);
        check(r#"{"otel":{"exporter":{"otlp-http":{"endpoint":"http://h:1","headers":{"x-any":"XXXX"}}}}}"#);
    }

    #[test]
    fn settings_that_are_no_credentials_stay() {
        let config = concat!(
            r#"{"model":"m","model_auto_compact_token_limit":12345,"env_key":"OPENAI_API_KEY","cli_auth_credentials_store":"#,
            r#""file","bearer_token_env_var":"MY_TOKEN","env_http_headers":{"X-Key":"MY_VAR"},"requires_openai_auth":true,"#,
            r#""mcp_servers":{"my-secrets":{"command":"npx","bearer_token_env_var":"V"}},"#,
            r#""projects":{"/home/me/secret-keys":{"trust_level":"trusted"}}}"#
        );
        check(&Carrier::Config, &format!(r#"{{"method":"thread/start","params":{{"config":{config}}}}}"#));
        let schema = r#"{"method":"thread/start","params":{"dynamicTools":[{"inputSchema":{"password":"string"}}]}}"#;
        check(&Carrier::Config, schema);
        check(&Carrier::AnyMember, r#"{"id":1,"result":{"config":{},"origins":{"x.env.A":{"version":"sha"}}}}"#);
    }

    #[test]
    fn limits_of_early_servers_keep_numbers() {
        let check = |limits: &str| {
            let msg = format!(r#"{{"type":"token_count","info":{{"total_tokens":7}},"rate_limits":{limits}}}"#);
            let line = format!(r#"{{"method":"codex/event/token_count","params":{{"id":"u","msg":{msg}}}}}"#);
            check(&Carrier::of_params("codex/event/token_count"), &line);
        };
        let window = r#"{"used_percent":1.5,"window_minutes":300,"resets_at":1767225600,"owner":"XXXX"}"#;
        check(&format!(
            r#"{{"limit_id":"XXXX","primary":{window},"secondary":null,"credits":{{"balance":"XXXX"}},"plan_type":"XXXX"}}"#
        ));
        check(r#"{"primary":{"used_percent":"XXXX","resets_at":["XXXX",{"a":"XXXX"}]},"secondary":"XXXX"}"#);
        check(r#""XXXX""#);
        check("null");
    }

    #[test]
    fn other_messages_are_masked_by_name_and_place() {
        let check = |line: &str| check(&Carrier::AnyMember, line);
        check(r#"{"method":"environment/add","params":{"execServerUrl":"wss://h","authBearerToken":"XXXX"}}"#);
        check(r#"{"method":"command/exec","params":{"command":["env"],"env":{"PLAIN":"XXXX"}}}"#);
        check(r#"{"method":"command/exec","params":{"command":["sshpass","-p","XXXX","ssh","h"]}}"#);
        check(r#"{"method":"command/exec","params":{"command":["bash","-lc","mysql -pXXXX db"]}}"#);
        check(r#"{"method":"command/exec","params":{"command":["curl","-H","X-Api-Key: XXXX","https://h"]}}"#);
        check(r#"{"id":1,"result":{"thread":{"id":"t"},"config":{"mcp_servers":{"a":{"env":{"A":"XXXX"}}}}}}"#);
        check(r#"{"id":1,"result":{"config":{"a":{"env":{"B":"XXXX"}}},"layers":[{"config":{"env":{"C":"XXXX"}}}]}}"#);
        check(r#"{"id":1,"result":{"requestHeaders":[{"name":"X-Any","value":"XXXX"}]}}"#);
        check(r#"{"id":1,"result":{"items":[{"details":{"mcpServers":[{"name":"a","env":{"B":"XXXX"}}]}}]}}"#);
        check(r#"{"id":1,"result":{"status":"enabled","serverToken":"XXXX","pairingCode":"XXXX"}}"#);
        check(r#"{"method":"thread/realtime/sdp","params":{"threadId":"t","sdp":"XXXX"}}"#);
        let masked = |line: &str| Carrier::AnyMember.masked(line).expect("it is not deep");
        assert_eq!(
            masked(r#"{"params":{"env":{"A":-12.5e3,"B":7}}}"#).as_deref(),
            Some(r#"{"params":{"env":{"A":-10.0e0,"B":1}}}"#)
        );
        assert_eq!(
            masked(r#"{"params":{"env":{"A":"é\u0041\"0123456789"}}}"#).as_deref(),
            Some(r#"{"params":{"env":{"A":"[redacted]**********"}}}"#)
        );
        let deep = format!(r#"{{"params":{}{}}}"#, "[".repeat(2_000), "]".repeat(2_000));
        assert_eq!(Carrier::AnyMember.masked(&deep), Err(TooDeep));
    }

    #[test]
    fn secret_fields_of_a_form_are_masked() {
        let schema = concat!(
            r#"{"mode":"form","requestedSchema":{"type":"object","properties":{"user":{"type":"string"},"#,
            r#""a":{"type":"string","format":"password"},"b":{"title":"API key","type":"string"},"c":{"writeOnly":true}}}}"#
        );
        let answer = |more: &str| {
            format!(r#"{{"id":1,"result":{{"action":"accept","content":{{"user":"me",{more}}},"_meta":null}}}}"#)
        };
        let form = Carrier::of_form(schema);
        check(&form, &answer(r#""a":"XXXX","b":"XXXX","c":{"d":["XXXX"]},"password":"XXXX","token":["XXXX"]"#));
        let described = |field: &str| {
            let schema =
                format!(r#"{{"mode":"form","requestedSchema":{{"type":"object","properties":{{"a":{field}}}}}}}"#);
            let line = answer(r#""a":"k3y!""#);
            Carrier::of_form(&schema).masked(&line).expect("it is not deep").is_some()
        };
        for field in [
            r#"{"type":"string","description":"Enter your API key for the service"}"#,
            r#"{"type":"string","description":"The password of the database."}"#,
            r#"{"type":"string","title":"Your GitHub personal access token"}"#,
            r#"{"type":"string","title":"Code","description":"One-time OTP from your phone"}"#,
        ] {
            assert!(described(field), "{field}");
        }
        for field in [
            r#"{"type":"string","description":"Name of the token"}"#,
            r#"{"type":"string","description":"Path of the file with the password"}"#,
            r#"{"type":"integer","description":"Number of tokens"}"#,
            r#"{"type":"string","description":"The sort key of the table"}"#,
            r#"{"type":"string","enum":["a"],"description":"Which token"}"#,
        ] {
            assert!(!described(field), "{field}");
        }
        check(&form, &answer(r#""pat":"XXXX","otp":"XXXX","path":"x","option":"y""#));
        let listed =
            r#"{"mode":"openai/form","requestedSchema":{"fields":[{"id":"q","type":"password"},{"id":"user"}]}}"#;
        check(&Carrier::of_form(listed), &answer(r#""q":"XXXX""#));
        let proof = r#"{"mode":"openai/userVerification","challenge":"c"}"#;
        check(&Carrier::of_form(proof), r#"{"id":1,"result":{"action":"accept","content":{"proof":{"x":"XXXX"}}}}"#);
    }

    #[test]
    fn errors_do_not_repeat_the_credentials() {
        let asked = r#"{"method":"thread/start","params":{"config":{"env":{"A":"sec\"ret","B":"é"},"x.env":"ab"}}}"#;
        let values = Carrier::Config.values(asked.as_bytes()).expect("it carries some");
        let carrier = Carrier::Error(values);
        let error = |message: &str| format!(r#"{{"error":{{"code":-32600,"message":"{message}"}},"id":1}}"#);
        let check = |message: &str, expect: &str| {
            let masked = carrier.masked(&error(message)).expect("it is not deep");
            assert_eq!(masked.unwrap_or_else(|| error(message)), error(expect));
        };
        check(
            r#"invalid type: string \"sec\\\"ret\", expected a map"#,
            r#"invalid type: string \"[redacted]\", expected a map"#,
        );
        check(r#"in `sec\"ret`"#, r#"in `********`"#);
        check(r#"string \"ab\", able"#, r#"string \"**\", able"#);
        check("something else", "something else");
        let long = format!(r#"{{"params":{{"config":{{"env":{{"A":"{}"}}}}}}}}"#, "x".repeat(VALUES_BYTES_MAX + 1));
        let carrier = Carrier::Error(Carrier::Config.values(long.as_bytes()).expect("it carries one"));
        assert_eq!(carrier.masked(&error("no x")).expect("it is not deep"), Some(error("****")));
    }
}
