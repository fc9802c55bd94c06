//! Describes a request for people: a one-line summary and the possible decisions.

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::visible::one_line;
use crate::protocol::RequestKind;
use crate::wire::Members;

/// Longest summary, in characters.
const SUMMARY_CHARS_MAX: usize = 160;

/// The member of a ledger row that lists the fields of a form in schema order.
pub(crate) const FIELD_ORDER: &str = "field_order";

/// A one-line summary that fits on a phone. `changes` are those of a file change, if known.
#[must_use]
pub(super) fn summary(kind: RequestKind, method: &str, params: &Value, changes: Option<&Value>) -> String {
    let text = |name: &str| params[name].as_str().map(one_line);
    let because = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    let summary = match kind {
        RequestKind::Command => match (text("command"), params["networkApprovalContext"]["host"].as_str()) {
            (_, Some(host)) => format!("reach {}{because}", one_line(host)),
            (Some(command), None) => format!("run {}{because}", without_shell(&command)),
            (None, None) => format!("run a command{because}"),
        },
        RequestKind::OldCommand => {
            let words: Vec<&str> =
                params["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            format!("run {}{because}", one_line(&command_line(&words)))
        }
        RequestKind::FileChange | RequestKind::OldPatch => format!("change {}{because}", files(params, changes)),
        RequestKind::Permissions => {
            let wanted = permissions_in_words(&params["permissions"]).join(", ");
            format!("allow {}{because}", if wanted.is_empty() { "nothing more" } else { &wanted })
        }
        RequestKind::UserInput => {
            let questions: Vec<&Value> = params["questions"].as_array().into_iter().flatten().collect();
            let first = questions.first().and_then(|question| question["question"].as_str()).unwrap_or("a question");
            let more = if questions.len() > 1 { format!(" (and {} more)", questions.len() - 1) } else { String::new() };
            format!("{}{more}", one_line(first))
        }
        RequestKind::Elicitation => {
            let server = text("serverName").map(|server| format!("{server}: ")).unwrap_or_default();
            let says = ["message", "title"].iter().find_map(|name| text(name));
            format!("{server}{}", says.unwrap_or_else(|| "a question".to_owned()))
        }
        RequestKind::Other => one_line(method),
    };
    bounded(&summary)
}

/// The names of the form fields in the order of the elicitation's schema.
#[must_use]
pub(crate) fn field_order(params: &RawValue) -> Vec<String> {
    let schema = Members::of(params).and_then(|params| params.get("requestedSchema")).and_then(Members::of);
    let Some(properties) = schema.and_then(|schema| schema.get("properties")).and_then(Members::of) else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for (name, _) in properties.iter() {
        if !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn files(params: &Value, changes: Option<&Value>) -> String {
    let of_now = changes.and_then(Value::as_array).into_iter().flatten().filter_map(|change| change["path"].as_str());
    let of_old = params["fileChanges"].as_object().into_iter().flatten().map(|(path, _)| path.as_str());
    let paths: Vec<String> = of_now.chain(of_old).map(one_line).collect();
    match &paths[..] {
        [] => "files".to_owned(),
        [path] => path.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// A command line without the shell that runs it: `ls` for `/bin/bash -lc 'ls'`.
#[must_use]
pub(crate) fn without_shell(command: &str) -> String {
    let words = shlex::split(command).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    script_of(&words).map_or_else(|| command.to_owned(), str::to_owned)
}

/// The arguments of a command as one line to read: the script if a shell runs one, else the words as a shell quotes them.
#[must_use]
pub(crate) fn command_line(words: &[&str]) -> String {
    let quoted = || shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" "));
    script_of(words).map_or_else(quoted, str::to_owned)
}

/// The script in `SHELL -c SCRIPT`. Further arguments would change its meaning, so a line with them is left alone.
fn script_of<'a>(words: &[&'a str]) -> Option<&'a str> {
    let [shell, "-c" | "-lc" | "-ic" | "-lic", script] = words else { return None };
    let name = shell.rsplit('/').next().unwrap_or_default();
    matches!(name, "bash" | "sh" | "zsh" | "dash" | "ksh" | "fish").then_some(*script)
}

/// The permissions of a profile in words: `network access`, `write /tmp/x`. A permission of an unknown form is shown as JSON.
#[must_use]
pub(crate) fn permissions_in_words(profile: &Value) -> Vec<String> {
    let mut words = Vec::new();
    for (name, wanted) in profile.as_object().into_iter().flatten().filter(|(_, wanted)| !wanted.is_null()) {
        match &**name {
            "network" if wanted["enabled"] == false => {}
            "network" => words.push("network access".to_owned()),
            "fileSystem" => words.extend(files_in_words(wanted)),
            name => words.push(format!("{}: {}", one_line(name), one_line(&wanted.to_string()))),
        }
    }
    words
}

fn files_in_words(wanted: &Value) -> Vec<String> {
    let list = |access: &'static str| {
        let paths = wanted[access].as_array().into_iter().flatten().filter_map(Value::as_str);
        paths.map(move |path| format!("{access} {}", one_line(path)))
    };
    let entries = wanted["entries"].as_array().into_iter().flatten().map(|entry| {
        let access = entry["access"].as_str().map(one_line).unwrap_or_else(|| "access".to_owned());
        let path = &entry["path"];
        let place = [&path["path"], &path["pattern"]].into_iter().find_map(Value::as_str).map(one_line);
        let special = || match path["value"]["kind"].as_str().or(path["kind"].as_str()) {
            Some("root") => "everything".to_owned(),
            Some("project_roots") => "the project folders".to_owned(),
            _ => one_line(&path.to_string()),
        };
        format!("{access} {}", place.unwrap_or_else(special))
    });
    let mut words: Vec<String> = entries.collect();
    // Newer servers list each path twice: here, and in `entries`.
    for word in list("read").chain(list("write")) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

fn bounded(text: &str) -> String {
    if text.chars().count() <= SUMMARY_CHARS_MAX {
        return text.to_owned();
    }
    let cut: String = text.chars().take(SUMMARY_CHARS_MAX - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: RequestKind, params: &str, changes: Option<&str>, expect: &str) {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("BUG: test parameters are JSON");
        assert_eq!(summary(kind, "new/method", &read(params), changes.map(read).as_ref()), expect);
    }

    #[test]
    fn summaries_are_one_line() {
        check(
            RequestKind::Command,
            r#"{"command":"/bin/bash -lc 'touch x\nls'","reason":"why\u001b[1m"}"#,
            None,
            "run touch x ls (why [1m)",
        );
        check(RequestKind::Command, r#"{"command":null}"#, None, "run a command");
        check(RequestKind::Command, r#"{"command":"rm \u202egpj.a"}"#, None, r"run rm \u{202e}gpj.a");
        check(RequestKind::FileChange, "{}", Some(r#"[{"path":"/a"},{"path":"/b"}]"#), "change /a and 1 more");
        check(RequestKind::FileChange, "{}", None, "change files");
        check(RequestKind::OldPatch, r#"{"fileChanges":{"/a":{}}}"#, None, "change /a");
        check(RequestKind::OldCommand, r#"{"command":["ls","a b"]}"#, None, "run ls 'a b'");
        check(RequestKind::OldCommand, r#"{"command":["bash","-lc","ls -l"]}"#, None, "run ls -l");
        check(
            RequestKind::Permissions,
            r#"{"permissions":{"network":{"enabled":true},"x":null}}"#,
            None,
            "allow network access",
        );
        check(
            RequestKind::Permissions,
            r#"{"permissions":{"fileSystem":{"entries":[{"access":"write","path":{"type":"path","path":"/a"}},
                {"access":"read","path":{"type":"special","value":{"kind":"root"}}}],"write":["/a","/b"]},"new":{"x":1}}}"#,
            None,
            "allow write /a, read everything, write /b, new: {\"x\":1}",
        );
        check(RequestKind::Permissions, r#"{"permissions":{}}"#, None, "allow nothing more");
        check(RequestKind::UserInput, r#"{"questions":[{"question":"Which?"},{}]}"#, None, "Which? (and 1 more)");
        check(RequestKind::Elicitation, r#"{"serverName":"lab","message":"Sure?"}"#, None, "lab: Sure?");
        check(RequestKind::Other, "{}", None, "new/method");
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(500));
        check(RequestKind::Command, &long, None, &format!("run {}…", "x".repeat(155)));
    }

    #[test]
    fn command_lines_omit_the_shell() {
        let check = |command: &str, expect: &str| assert_eq!(without_shell(command), expect);
        check("/bin/bash -lc 'ls -l'", "ls -l");
        check(r#"bash -lc "echo 'a b'""#, "echo 'a b'");
        check(r"/usr/bin/zsh -lc 'echo it'\''s'", "echo it's");
        check("sh -c ls", "ls");
        check("sh -c ls name", "sh -c ls name");
        check("cargo test -- -lc 'x'", "cargo test -- -lc 'x'");
        check("bash -lc 'open", "bash -lc 'open");
    }
}
