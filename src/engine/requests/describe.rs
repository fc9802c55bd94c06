//! What a person needs to see of a request: one line, and what there is to decide.

use serde_json::Value;

use super::super::visible::one_line;
use super::kind::RequestKind;

/// Longest summary, in characters.
const SUMMARY_CHARS_MAX: usize = 160;

/// One line that a phone could show. `changes` are those of a file change, where they are known.
#[must_use]
pub(super) fn summary(kind: RequestKind, method: &str, params: &Value, changes: Option<&Value>) -> String {
    let text = |name: &str| params[name].as_str().map(one_line);
    let because = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    let told = match kind {
        RequestKind::Command => match (text("command"), params["networkApprovalContext"]["host"].as_str()) {
            (_, Some(host)) => format!("reach {}{because}", one_line(host)),
            (Some(command), None) => format!("run {}{because}", without_shell(&command)),
            (None, None) => format!("run a command{because}"),
        },
        RequestKind::OldCommand => {
            let words = params["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
            format!("run {}{because}", one_line(&words.collect::<Vec<_>>().join(" ")))
        }
        RequestKind::FileChange | RequestKind::OldPatch => format!("change {}{because}", files(params, changes)),
        RequestKind::Permissions => {
            let wanted: Vec<&str> = params["permissions"]
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, _)| name.as_str())
                .collect();
            format!("allow {}{because}", one_line(&wanted.join(", ")))
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
    bounded(&told)
}

/// The files of a change.
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

/// A command without the shell that runs it: `/bin/bash -lc '…'`.
#[must_use]
pub fn without_shell(command: &str) -> String {
    let inner = ["bash -lc ", "sh -lc ", "zsh -lc ", "bash -c ", "sh -c "].iter().find_map(|shell| {
        let at = command.find(shell)?;
        command[..at].chars().all(|char| !char.is_whitespace()).then(|| &command[at + shell.len()..])
    });
    let inner = inner.unwrap_or(command);
    let quoted = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
    quoted.filter(|inner| !inner.contains('\'')).unwrap_or(inner).to_owned()
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
    fn one_line_each() {
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
        check(RequestKind::OldCommand, r#"{"command":["ls","-l"]}"#, None, "run ls -l");
        check(
            RequestKind::Permissions,
            r#"{"permissions":{"network":{"enabled":true},"x":null}}"#,
            None,
            "allow network",
        );
        check(RequestKind::UserInput, r#"{"questions":[{"question":"Which?"},{}]}"#, None, "Which? (and 1 more)");
        check(RequestKind::Elicitation, r#"{"serverName":"lab","message":"Sure?"}"#, None, "lab: Sure?");
        check(RequestKind::Other, "{}", None, "new/method");
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(500));
        check(RequestKind::Command, &long, None, &format!("run {}…", "x".repeat(155)));
    }
}
