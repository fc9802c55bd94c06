//! Passes variables of a client's process to the commands of its threads, for a server with many clients: such a server runs commands in
//! the environment of the terminal that started it.
//!
//! The call that opens the thread carries them, as `config["shell_environment_policy.set"]`. Values of the client win. Codex applies the
//! members of `config` in an unspecified order: if two overlap, either may win. So our values join the member of the client,
//! and a call with overlapping members stays as it is. Source: seen with codex 0.171.
//!
//! The record has the names only.
//!
//! A thread keeps its environment if another client resumes it while a client follows it or a turn runs. Otherwise the resuming client
//! gives the environment, also while the server still has the thread in memory. Source: seen with codex 0.171.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Engine;
use super::assembly::thread_of;
use super::lines::{Seen, form};
use super::model::{Decision, Form, GivenVariables, MaskedLine, OwnLine, Passage, Variables};
use crate::protocol::{Event, Method};
use crate::secrets::mask_of;
use crate::wire::{Body, Conn, Members, Side, Splice, repeats_member};

/// The member of `config` with all rules for the environment of commands.
const POLICY: &str = "shell_environment_policy";

/// Longest value that is passed, in bytes.
const VALUE_BYTES_MAX: usize = 32 << 10;

impl Variables {
    /// Those of these names in the environment of a client, which has a 0 byte after each variable. One that only the server has is
    /// empty, because codex cannot take one away. One that is not UTF-8 is left out.
    #[must_use]
    pub fn named_in(names: &[String], client: &[u8], server: &[u8]) -> Variables {
        let (client, server) = (values_in(client), values_in(server));
        let value = |name: &String| match client.get(&**name) {
            Some(value) => (value.len() <= VALUE_BYTES_MAX).then_some(*value),
            None => server.contains_key(&**name).then_some(""),
        };
        let pairs = names.iter().filter_map(|name| Some((name.clone(), value(name)?.to_owned()))).collect();
        Variables { pairs, decide: false }
    }

    /// The same for the record: masks take the place of the values, with the same length in JSON.
    fn masked(&self) -> Variables {
        let masked = |value: &str| mask_of(json!(value).to_string().len() - 2);
        let pairs = self.pairs.iter().map(|(name, value)| (name.clone(), masked(value))).collect();
        Variables { pairs, ..*self }
    }
}

fn values_in(environment: &[u8]) -> HashMap<&str, &str> {
    let pairs = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let end = variable.iter().position(|byte| *byte == b'=')?;
        Some((std::str::from_utf8(&variable[..end]).ok()?, std::str::from_utf8(&variable[end + 1..]).ok()?))
    });
    pairs.collect()
}

/// The form of a line in the record, of which the text is recorded in place of the line.
fn masked_form(form: Form, recorded: Vec<u8>) -> Form {
    match form {
        Form::Verbatim | Form::Text => {
            let is_verbatim = form == Form::Verbatim;
            // A call is JSON, so it is UTF-8.
            Form::Masked(Box::new(MaskedLine { text: String::from_utf8_lossy(&recorded).into_owned(), is_verbatim }))
        }
        Form::Base64 | Form::Masked(_) | Form::Omitted(_) => form,
    }
}

impl Engine {
    /// Gives the variables of a client to the thread that its call opens.
    pub(super) fn give_variables(&mut self, seen: &Seen<'_>, event: &Event<'_>, decision: &mut Decision) {
        let opens = matches!(event.method, Some(Method::ThreadStart | Method::ThreadResume | Method::ThreadFork));
        let client = self.clients.of(seen.conn);
        if !opens || client.peer.variables.pairs.is_empty() || event.id.is_none() {
            return;
        }
        let line = match &decision.line {
            Passage::Replace(own) => &own.bytes[..],
            Passage::Forward => seen.line,
            Passage::Withhold => return,
        };
        let Some((bytes, names)) = with_variables(line, &client.peer.variables) else { return };
        let Some((recorded, _)) = with_variables(line, &client.peer.variables.masked()) else { return };
        let form = masked_form(form(&seen.verdict, seen.body, &recorded), recorded);
        let given = GivenVariables {
            client: client.name.clone(),
            terminal: client.peer.terminal.clone(),
            names,
            decide: client.peer.variables.decide,
        };
        // The thread of a resume may run a command with them before the server has answered.
        if let Some(thread_id) = thread_of(event).filter(|_| given.decide) {
            self.requests.variables_given(&thread_id);
        }
        decision.line = Passage::Replace(OwnLine { to: Side::Server, form, bytes });
        if let Some(call) = seen.opened.and_then(|call| self.calls.to_server.get_mut(call)) {
            call.gives = Some(Box::new(given));
        }
    }

    /// The server has opened a thread for a client. Its commands get these variables, unless the server had it in memory for another
    /// client or for a turn.
    pub(super) fn variables_taken(
        &mut self,
        conn: Conn,
        method: Option<Method>,
        given: Option<Box<GivenVariables>>,
        result: &RawValue,
    ) {
        if !self.owner.has_many_clients() {
            return;
        }
        let Some(thread) = Members::of(result).and_then(|result| Members::of(result.get("thread")?)) else { return };
        let Some(thread_id) = thread.text("id") else { return };
        let of_parent = thread.text("forkedFromId").is_some_and(|parent| self.requests.has_variables(&parent));
        if given.as_ref().is_some_and(|given| given.decide) || of_parent {
            self.requests.variables_given(&thread_id);
        }
        let is_kept = method == Some(Method::ThreadResume)
            && (self.clients.is_followed(&thread_id, conn) || self.threads.runs(&thread_id));
        if !is_kept {
            self.threads.of(&thread_id).variables = given;
        }
    }

    /// Whose variables the commands of each thread get, and which.
    pub fn given_variables(&self) -> Vec<(&String, &GivenVariables)> {
        self.threads.given_variables()
    }
}

/// Adds the variables that a call does not set. Returns the line and the added names; `None` without any.
fn with_variables(line: &[u8], variables: &Variables) -> Option<(Vec<u8>, Vec<String>)> {
    let Body::Message(message) = Body::parse(line) else { return None };
    let params = message.params.filter(|params| !message.repeated_member && !repeats_member(params))?;
    let place = VariablesPlace::of(Members::of(params)?)?;
    let missing: Vec<&(String, String)> = variables.pairs.iter().filter(|(name, _)| !place.has(name)).collect();
    if missing.is_empty() {
        return None;
    }
    let set: Map<String, Value> = missing.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut splice = Splice::of(line);
    let at = place.value.unwrap_or(params);
    let text = place.text(set);
    match at.get() {
        "null" => splice.replace(splice.range_of(at), format!("{{{text}}}")),
        object => {
            let comma = if Members::of_text(object)?.iter().next().is_some() { "," } else { "" };
            let start = splice.range_of(at).start + 1;
            splice.replace(start..start, format!("{text}{comma}"));
        }
    }
    Some((splice.apply()?, missing.into_iter().map(|(name, _)| name.clone()).collect()))
}

/// The place in a call for added variables.
struct VariablesPlace<'a> {
    /// The object that gets them, or `null`; `None` for the parameters.
    value: Option<&'a RawValue>,
    form: Added,
    /// The names that the client sets.
    set: Vec<String>,
}

/// The form of the added members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// The member `config`.
    Config,
    /// `shell_environment_policy.set`
    Dotted,
    /// `set`
    Nested,
    /// The variables themselves.
    Variables,
    /// `shell_environment_policy.set.NAME` for each.
    Each,
}

impl<'a> VariablesPlace<'a> {
    /// `None` if the members of the client overlap, or are of another form than codex takes.
    fn of(params: Members<'a>) -> Option<VariablesPlace<'a>> {
        let place = |value, form, set| Some(VariablesPlace { value, form, set });
        let Some(config) = params.get("config") else { return place(None, Added::Config, Vec::new()) };
        if config.get() == "null" {
            return place(Some(config), Added::Dotted, Vec::new());
        }
        let members = Members::of(config)?;
        let (dotted, each) = (format!("{POLICY}.set"), format!("{POLICY}.set."));
        let names: Vec<String> =
            members.iter().filter_map(|(name, _)| Some(name.strip_prefix(&each)?.to_owned())).collect();
        match (members.get(POLICY), members.get(&dotted), names.is_empty()) {
            (None, None, true) => place(Some(config), Added::Dotted, names),
            (None, None, false) => place(Some(config), Added::Each, names),
            (None, Some(set), true) => place(Some(set), Added::Variables, names_of(set)?),
            (Some(policy), None, true) if policy.get() != "null" => match Members::of(policy)?.get("set") {
                None => place(Some(policy), Added::Nested, names),
                Some(set) => place(Some(set), Added::Variables, names_of(set)?),
            },
            _ => None,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.set.iter().any(|set| set == name)
    }

    /// The members to add, as JSON without braces.
    fn text(&self, set: Map<String, Value>) -> String {
        let members = match self.form {
            Added::Config => json!({ "config": { format!("{POLICY}.set"): set } }),
            Added::Dotted => json!({ format!("{POLICY}.set"): set }),
            Added::Nested => json!({ "set": set }),
            Added::Variables => Value::Object(set),
            Added::Each => set
                .into_iter()
                .map(|(name, value)| (format!("{POLICY}.set.{name}"), value))
                .collect::<Map<_, _>>()
                .into(),
        };
        let text = members.to_string();
        text[1..text.len() - 1].to_owned()
    }
}

/// The names in an object or `null`.
fn names_of(set: &RawValue) -> Option<Vec<String>> {
    match set.get() {
        "null" => Some(Vec::new()),
        _ => Some(Members::of(set)?.iter().map(|(name, _)| name.to_owned()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(config: &str) -> String {
        format!(r#"{{"id":1,"method":"thread/start","params":{{"cwd":"/w"{config}}}}}"#)
    }

    fn variables() -> Variables {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Variables { pairs: vec![pair("A", "1"), pair("B", "\"2")], decide: false }
    }

    #[test]
    fn variables_go_under_what_the_client_sets() {
        let (a, b) = (r#""A":"1""#, r#""B":"\"2""#);
        let both = format!("{a},{b}");
        for (config, expect) in [
            (String::new(), Some(format!(r#"{{"config":{{"{POLICY}.set":{{{both}}}}},"cwd":"/w"}}"#))),
            (r#","config":null"#.to_owned(), Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}.set":{{{both}}}}}}}"#))),
            (r#","config":{}"#.to_owned(), Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}.set":{{{both}}}}}}}"#))),
            (
                r#","config": { "model": "m" }"#.to_owned(),
                Some(format!(r#"{{"cwd":"/w","config": {{"{POLICY}.set":{{{both}}}, "model": "m" }}}}"#)),
            ),
            (
                format!(r#","config":{{"{POLICY}.set":{{"B":"mine"}}}}"#),
                Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}.set":{{{a},"B":"mine"}}}}}}"#)),
            ),
            (
                format!(r#","config":{{"{POLICY}.set":null,"{POLICY}.inherit":"none"}}"#),
                Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}.set":{{{both}}},"{POLICY}.inherit":"none"}}}}"#)),
            ),
            (
                format!(r#","config":{{"{POLICY}":{{"inherit":"core"}}}}"#),
                Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}":{{"set":{{{both}}},"inherit":"core"}}}}}}"#)),
            ),
            (
                format!(r#","config":{{"{POLICY}":{{"set":{{"A":"mine"}}}}}}"#),
                Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}":{{"set":{{{b},"A":"mine"}}}}}}}}"#)),
            ),
            (
                format!(r#","config":{{"{POLICY}.set.A":"mine"}}"#),
                Some(format!(r#"{{"cwd":"/w","config":{{"{POLICY}.set.B":"\"2","{POLICY}.set.A":"mine"}}}}"#)),
            ),
            // It sets all of them.
            (format!(r#","config":{{"{POLICY}.set":{{"A":"x","B":""}}}}"#), None),
            // Either of two members that overlap may win.
            (format!(r#","config":{{"{POLICY}.set":{{}},"{POLICY}":{{}}}}"#), None),
            (format!(r#","config":{{"{POLICY}.set.A":"x","{POLICY}":{{}}}}"#), None),
            (format!(r#","config":{{"{POLICY}.set.A":"x","{POLICY}.set":{{}}}}"#), None),
            (r#","config":{"a":1,"a":2}"#.to_owned(), None),
            // Codex refuses these.
            (r#","config":7"#.to_owned(), None),
            (format!(r#","config":{{"{POLICY}.set":[]}}"#), None),
            (format!(r#","config":{{"{POLICY}":"x"}}"#), None),
        ] {
            let line = call(&config);
            let given = with_variables(line.as_bytes(), &variables());
            let params = given.map(|(bytes, _)| {
                let Body::Message(message) = Body::parse(&bytes) else { panic!("BUG: it is a message") };
                message.params.expect("it has parameters").get().to_owned()
            });
            assert_eq!(params, expect, "{line}");
        }
    }

    #[test]
    fn only_named_variables_are_taken() {
        let client = b"PATH=/bin\0SECRET=x\0EMPTY=\0PATHS=no\0=odd\0BAD=\xff\0A=b=c\0";
        let server = b"PATH=/of/the/server\0OF_SERVER=s\0SECRET=y\0";
        let names = ["PATH", "EMPTY", "A", "ABSENT", "OF_SERVER"].map(str::to_owned);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs = vec![pair("PATH", "/bin"), pair("EMPTY", ""), pair("A", "b=c"), pair("OF_SERVER", "")];
        let found = Variables::named_in(&names, client, server);
        assert_eq!(found, Variables { pairs, decide: false });
        assert!(!format!("{found:?}").contains("/bin"));
        let long = [b"A=".to_vec(), vec![b'x'; VALUE_BYTES_MAX + 1]].concat();
        assert_eq!(Variables::named_in(&names, &long, b""), Variables::NONE);
    }
}
