//! Names that mean a secret, as words, in texts and as fields of forms.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Match};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::quote::{Quote, quote_before};
use super::table::{
    ABOUT, CAMEL_KEYS, COUNTED, COUNTS, HARMLESS_PARTS, LAST_PARTS, LAST_WORDS, NAMES_ELSEWHERE, OPEN_KEYS,
    OPEN_PASSES, PASS_OWNERS, PASSWORD_PARTS, SECRET_PARTS, SORTS,
};
use super::{automaton, automaton_of_any_case, patterns};

/// Longest name that is judged, in bytes: a longer word is not a name.
pub(super) const NAME_BYTES_MAX: usize = 160;

/// Every name that means a secret holds one of these. A word without any of them is not divided into parts.
static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let marks = SECRET_PARTS.into_iter().chain(LAST_PARTS).chain(LAST_WORDS);
    automaton_of_any_case(marks.chain(["pass", "pwd", "pw", "phrase"]))
});

/// Whether the name of a setting, a variable, a header, an option or a member of JSON means a secret. Of a dotted path each part
/// is judged, and the path means a secret if one of its parts does.
#[must_use]
pub fn names_secret(name: &str) -> bool {
    let is_elsewhere = || NAMES_ELSEWHERE.split('|').any(|elsewhere| name.contains(elsewhere));
    if !name.is_ascii() && name.len() <= NAME_BYTES_MAX && is_elsewhere() {
        return true;
    }
    name.split(|char: char| !char.is_alphanumeric() && !matches!(char, '_' | '-')).any(word_names_secret)
}

/// The same of one word, which holds no dot.
pub(super) fn word_names_secret(word: &str) -> bool {
    if word.len() > NAME_BYTES_MAX || !MARKED.is_match(word) {
        return false;
    }
    let parts = parts_of(word);
    let mut parts: &[String] = &parts;
    // A number or a word like `old` at the end does not decide: the rest of the name does.
    while let [start @ .., last] = parts
        && !start.is_empty()
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || SORTS.contains(&last.as_str()))
    {
        parts = start;
    }
    let Some(last) = parts.last().map(|last| last.trim_end_matches(|char: char| char.is_ascii_digit())) else {
        return false;
    };
    if parts.len() > 1 && ABOUT.contains(&last) {
        return false;
    }
    let before = parts.len().checked_sub(2).map(|at| parts[at].as_str());
    has_secret_part(parts, last)
        || LAST_WORDS.contains(&last)
        || is_key(word, last, before)
        || is_pass(word, last, before)
}

fn has_secret_part(parts: &[String], last: &str) -> bool {
    static HARMLESS: LazyLock<AhoCorasick> = LazyLock::new(|| automaton(HARMLESS_PARTS));
    static SECRET: LazyLock<AhoCorasick> = LazyLock::new(|| automaton(SECRET_PARTS));
    let mut plain = parts.concat();
    if HARMLESS.is_match(&plain) {
        for harmless in HARMLESS_PARTS {
            plain = plain.replace(harmless, "");
        }
    }
    let means_more = |found: Match| SECRET_PARTS[found.pattern().as_usize()] != "token";
    let mut found = SECRET.find_overlapping_iter(&plain).peekable();
    found.peek().is_some() && (found.any(means_more) || !counts_tokens(parts, last, &plain))
}

/// Whether a name counts the tokens of a model.
fn counts_tokens(parts: &[String], last: &str, plain: &str) -> bool {
    let is_counted = last == "tokens" && parts.iter().any(|part| COUNTED.contains(&part.as_str()));
    let joined = [plain.strip_suffix("tokens"), plain.strip_prefix("token")];
    let mut words = parts.iter().map(String::as_str).chain(joined.into_iter().flatten());
    is_counted || words.any(|word| COUNTS.contains(&word))
}

fn is_key(word: &str, last: &str, before: Option<&str>) -> bool {
    match before {
        // The credentials of a registry, in `.npmrc` and in docker's `config.json`.
        None => last == "auth",
        Some(before) if !LAST_PARTS.contains(&last) || OPEN_KEYS.contains(&before) => false,
        Some(before) => word.trim_start_matches(['_', '-']).contains(['_', '-']) || CAMEL_KEYS.contains(&before),
    }
}

/// Short words for a password.
const PASS_WORDS: [&str; 3] = ["pass", "pwd", "pw"];

fn is_pass(word: &str, last: &str, before: Option<&str>) -> bool {
    let is_owned = |owner: &str| PASS_OWNERS.iter().any(|known| owner.ends_with(known));
    match before {
        Some(before) if PASS_WORDS.contains(&last) => {
            let is_capital = !word.bytes().any(|byte| byte.is_ascii_lowercase());
            // In `camelCase`, most of these are rounds of a program.
            let is_divided = || word.trim_start_matches(['_', '-']).contains(['_', '-']);
            is_capital || is_owned(before) || (is_divided() && !OPEN_PASSES.contains(&before))
        }
        Some(_) | None => PASS_WORDS.into_iter().find_map(|pass| last.strip_suffix(pass)).is_some_and(is_owned),
    }
}

/// Returns the parts of a name in small letters; `_`, `-` and capitals divide them.
fn parts_of(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in word.split(['_', '-']).filter(|piece| !piece.is_empty()) {
        let chars: Vec<char> = piece.chars().collect();
        let mut part = String::new();
        for (at, char) in chars.iter().enumerate() {
            let is_upper = |at: usize| chars.get(at).is_some_and(|char| char.is_uppercase());
            let is_lower = |at: usize| chars.get(at).is_some_and(|char| char.is_lowercase());
            let ends_word = at > 0 && !is_upper(at - 1);
            // `APIKey` is `api` and `key`; `IDs` is one part.
            let ends_capitals = at > 0 && is_upper(at - 1) && is_lower(at + 1) && at + 2 < chars.len();
            if char.is_uppercase() && (ends_word || ends_capitals) && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
            part.extend(char.to_lowercase());
        }
        parts.push(part);
    }
    parts
}

patterns! {
    /// An escape or the end of a colour, whose letters are not part of a name.
    ESCAPE = r"^(?:[\[;]\d{1,3}[A-Za-z]|\\(?:u[\da-fA-F]{4}|x[\da-fA-F]{2}|[nrtbfvae0])|%[\da-fA-F]{2})";
    /// What stands behind one dash, if it is the name of an option: `-psecret` is `-p` and its value.
    LONG_OPTION = r"^(?i:pass|passwd|password|passphrase|token|secret|apikey|storepass|keypass|credentials)$|-|^.+[A-Z]";
}

/// The sort of secret that a name means, if its value has a syntax of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// `Authorization`: a scheme may stand ahead of the credential.
    Scheme,
    /// `Cookie`: all of the line.
    Cookie,
    /// Something that a person makes up: any words, any number.
    Password,
    /// `pass`, `pwd`: a password, a path or a count.
    Weak,
    /// Anything else.
    Other,
}

/// A name in a text, as far as it may have a value.
#[derive(Debug, Clone)]
pub(super) struct Label {
    /// Its place, without the dashes of an option.
    pub(super) range: Range<usize>,
    pub(super) sort: Sort,
    /// It is written in capitals, as variables are.
    pub(super) is_variable: bool,
    /// It is an option: `-name`, `--name`.
    pub(super) is_option: bool,
    /// The quotation mark right in front of it, and how many backslashes that has.
    pub(super) open_quote: Option<Quote>,
}

/// The word in which a mark stands.
pub(super) fn name_at(text: &[u8], mark: Range<usize>, floor: usize) -> Option<Label> {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let floor = floor.max(mark.start.saturating_sub(NAME_BYTES_MAX)).min(mark.start);
    let from = mark.start - text[floor..mark.start].iter().rev().take_while(is_part).count();
    let escape = from.checked_sub(1).filter(|at| b"\\%[;".contains(&text[*at]));
    let escape = escape.and_then(|at| ESCAPE.find(&text[at..mark.start]).map(|escape| at + escape.end()));
    let from = escape.unwrap_or(from);
    let end = match &text[mark.clone()] {
        [.., b' ' | b'='] => mark.end - 1,
        [.., b'%', b'3', b'D' | b'd'] => mark.end - 3,
        word if word.is_ascii() => mark.end + text[mark.end..].iter().take(NAME_BYTES_MAX).take_while(is_part).count(),
        _ => mark.end,
    };
    let dashes = text[from..end].iter().take_while(|byte| **byte == b'-').count();
    let is_at_word = from == 0 || escape.is_some() || b" \t\n\r\"'`[(=,".contains(&text[from - 1]);
    // A sentence may end behind it, and a range may.
    let end = end - text[from + dashes..end].iter().rev().take_while(|byte| matches!(byte, b'.' | b'-')).count();
    let word = last_segment(&text[from + dashes..end]);
    let start = end - word;
    let name = &text[start..end];
    let front = text[from..start].iter().rev().take(dashes).take_while(|byte| **byte == b'-').count();
    (word > 0).then(|| Label {
        sort: Sort::Other,
        is_variable: !name.iter().any(u8::is_ascii_lowercase) && name.is_ascii(),
        is_option: is_at_word && (dashes == 2 || (dashes == 1 && LONG_OPTION.is_match(name))),
        open_quote: quote_before(text, start - front),
        range: start..end,
    })
}

/// Returns the length of the last part of a dotted name. A part such as `value` counts with the part before it.
fn last_segment(name: &[u8]) -> usize {
    let mut parts = name.rsplit(|byte| *byte == b'.');
    match (parts.next().unwrap_or_default(), parts.next()) {
        (last @ (b"value" | b"data" | b"raw" | b"plain" | b"default"), Some(before)) => before.len() + 1 + last.len(),
        (last, _) => last.len(),
    }
}

pub(super) fn sort_of(name: &[u8]) -> Sort {
    let plain: Vec<u8> = name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
    let has = |part: &&str| memchr::memmem::find(&plain, part.as_bytes()).is_some();
    match &*plain {
        b"pass" | b"pwd" => Sort::Weak,
        _ if has(&"authorization") => Sort::Scheme,
        b"cookie" | b"setcookie" | b"cookies" => Sort::Cookie,
        _ if PASSWORD_PARTS.iter().any(has) || plain.ends_with(b"pw") || plain.ends_with(b"psk") => Sort::Password,
        _ if !name.is_ascii() => Sort::Password,
        _ => Sort::Other,
    }
}

/// The fields of a form whose content is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretFields {
    All,
    Named(Vec<String>),
}

impl SecretFields {
    /// Those that a request for a form says are secret: by `format: "password"` or the like, or by their names.
    pub(super) fn of(params: &str) -> SecretFields {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        // The answer is the proof that a person has approved something.
        if params["mode"] == "openai/userVerification" {
            return SecretFields::All;
        }
        let mut names = Vec::new();
        secret_fields(&params["requestedSchema"], &mut names);
        SecretFields::Named(names)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            SecretFields::All => true,
            SecretFields::Named(names) => names.iter().any(|named| named == name),
        }
    }
}

/// The names of secret fields in a schema, whichever way it lists them: `{NAME: {…}}` or `[{"id": NAME, …}]`.
fn secret_fields(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, field) in members {
                if is_secret_field(field) {
                    names.push(name.clone());
                }
                secret_fields(field, names);
            }
            if is_secret_field(schema) {
                let named = ["id", "name", "key"].into_iter().filter_map(|name| schema[name].as_str());
                names.extend(named.map(str::to_owned));
            }
        }
        Value::Array(fields) => fields.iter().for_each(|field| secret_fields(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a field of a form holds a secret, by its name or its schema.
pub fn holds_secret(name: &str, schema: &Value) -> bool {
    is_secret_name(name) || is_secret_field(schema)
}

/// Whether the schema of one field marks its content as secret.
fn is_secret_field(field: &Value) -> bool {
    let says = |name: &str| field[name].as_str().unwrap_or_default().to_lowercase();
    let is_typed =
        ["format", "type", "inputType", "widget", "ui:widget"].iter().any(|name| says(name).contains("password"));
    let is_marked = ["writeOnly", "isSecret", "secret", "sensitive"].iter().any(|name| field[*name] == true);
    let is_text = field["type"].as_str().is_none_or(|kind| kind == "string") && field["enum"].is_null();
    let is_described = || ["title", "description", "label"].iter().any(|name| asks_for_secret(&says(name)));
    is_typed || is_marked || is_secret_name(&says("title").replace(' ', "_")) || (is_text && is_described())
}

/// Whether a title or a description asks for a secret: "Your API key", "the password of the database". A sentence that asks
/// for the name, the number or the file of one does not.
fn asks_for_secret(text: &str) -> bool {
    const SECRETS: [&str; 10] =
        ["password", "passphrase", "passcode", "token", "secret", "pin", "otp", "psk", "credential", "credentials"];
    const ABOUT: [&str; 18] = [
        "name", "names", "number", "many", "count", "length", "size", "file", "path", "url", "type", "kind", "label",
        "id", "max", "maximum", "limit", "policy",
    ];
    let words: Vec<&str> = text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_about = |from: usize, to: usize| {
        let near = words[from.saturating_sub(3)..from].iter().chain(words.get(to));
        near.into_iter().any(|word| ABOUT.contains(word))
    };
    // `API key` is judged as `apiKey`.
    let is_pair = |words: &[&str]| {
        matches!(words, [first, last @ ("key" | "token" | "code"), ..]
            if is_secret_name(&format!("{first}{}{}", last[..1].to_uppercase(), &last[1..])))
    };
    (0..words.len()).any(|at| {
        (SECRETS.contains(&words[at]) && !is_about(at, at + 1)) || (is_pair(&words[at..]) && !is_about(at, at + 2))
    })
}

/// Whether the value of a member of this name is a credential itself: not the name of a variable or a file that holds one.
pub(super) fn is_secret_name(name: &str) -> bool {
    const REFERENCES: [&str; 6] = ["envvar", "envkey", "store", "file", "instructions", "url"];
    const CODES: [&str; 7] = ["pairingcode", "usercode", "sdp", "pin", "pat", "otp", "totp"];
    let plain: String = name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let is_code = CODES.iter().any(|code| if code.len() > 4 { plain.ends_with(code) } else { plain == *code });
    is_code || (names_secret(name) && !REFERENCES.iter().any(|end| plain.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_every_style() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "aws_secret_access_key",
            "SecretAccessKey",
            "SECRET_KEY_BASE",
            "DJANGO_SECRET_KEY",
            "STRIPE_SECRET_KEY",
            "PRIVATE_KEY",
            "private_key",
            "ACCESS_KEY",
            "CREDENTIALS",
            "db_pass",
            "app_pass",
            "backup_pass",
            "irc-pass",
            "service_account_pass",
            "router_pwd",
            "DB_PASS",
            "MYSQL_PWD",
            "smtp-pass",
            "dbPassword",
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "Set-Cookie",
            "X-Api-Key",
            "apiKey",
            "APIKey",
            "API_KEY_2",
            "API_KEY_PROD",
            "OPENAI_KEY",
            "OPENAI_KEY_LIVE",
            "a.access-key",
            "GH_PAT",
            "x.api_tokens",
            "access_tokens",
            "limits.token",
            "ACCOUNT_TOKEN",
            "ADMIN_TOKEN",
            "admin_token",
            "discountToken",
            "_authToken",
            "_auth",
            "auth",
            "_password",
            "PGPASSWORD",
            "SSHPASS",
            "storepass",
            "requirepass",
            "tls.client-key",
            "accountKey",
            "clientSecret",
            "client_secret",
            "refresh_token",
            "sessionToken",
            "SharedAccessKey",
            "bearer_token",
            ".dockerconfigjson",
            "RAILS_MASTER_KEY",
            "dbpasswd",
            "password2",
            "TOKEN1",
            "private_key_id",
            "secretKey",
            "\"password\"",
            "db_key",
            "psk",
            "wpa-psk",
            "psw",
            "bindpw",
            "rootpw",
            "DB_PW",
            "mot_de_passe",
            "contraseña",
            "senha",
            "令牌",
        ] {
            assert!(names_secret(name), "{name}");
        }
    }

    #[test]
    fn names_of_other_things_stay_open() {
        for name in [
            "tool_output_max_tokens",
            "token_limit",
            "max_tokens",
            "maxTokens",
            "keymap",
            "tui.key",
            "monkey",
            "model_provider",
            "token_count",
            "tokenCount",
            "input_tokens",
            "cachedInputTokens",
            "tokenizer",
            "tokenize",
            "token_type",
            "primary_key",
            "foreign_key",
            "public_key",
            "SSH_PUBLIC_KEY",
            "cacheKey",
            "cache-key",
            "PWD",
            "OLDPWD",
            "first_pass",
            "render_pass",
            "shadow_pass",
            "test_pass",
            "did_pass",
            "renderPass",
            "old_pwd",
            "TESTS_PASSED",
            "one_pass",
            "compass",
            "bypass",
            "author",
            "authMode",
            "authStatus",
            "secretName",
            "password_file",
            "token_endpoint",
            "tokenUsage",
            "expires_in",
            "secretary",
            "keyboard",
            "hotkey",
            "key",
            "keys",
            "pass",
            "itemKey",
            "idempotency_key",
            "auth_mode",
            "session_id",
            "access",
            "private",
            "total_token_usage",
            "STATUS_KEY",
            "number_of_tokens",
            "upskill",
            "pw",
            "http_pw_dialog",
        ] {
            assert!(!names_secret(name), "{name}");
        }
    }
}
