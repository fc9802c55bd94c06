//! The kinds of server requests. Everything that sets one kind apart is in this file: its row in [`RequestKind::row`] and
//! its one-line summary. All other code goes by [`RequestType`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::engine::visible::one_line;
use crate::protocol::change::FileChange;
use crate::protocol::{CommandText, Method, Word, named};
use crate::wire::Members;

named! {
    /// What a request asks for, which decides the form of its answer.
    #[derive(Hash)]
    pub enum RequestType {
        /// Permission to act: a decision.
        Approval = "request_approval",
        /// A profile of permissions: those that are granted, and for how long.
        Permissions = "request_permissions",
        /// Answers to questions.
        UserInput = "request_user_input",
        /// Input for a tool server: an action, and the content of a form.
        Elicitation = "request_elicitation",
        /// An unknown method: forwarded and stored, and answered by us only with the result that an API caller gives.
        Other = "server_request",
    }
}

impl RequestType {
    /// Whether it waits for a human: such a request blocks chat, can expire, and can be held.
    #[must_use]
    pub fn is_for_human(self) -> bool {
        self != RequestType::Other
    }
}

named! {
    /// What a request is about, as its documents name it.
    pub enum Subject {
        Command = "command",
        Diff = "diff",
        Permissions = "permissions",
        Questions = "questions",
        Elicitation = "elicitation",
    }
}

/// What an agent that waits for a human needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    Permission,
    Input,
}

impl Subject {
    pub fn need(self) -> Need {
        match self {
            Subject::Command | Subject::Diff | Subject::Permissions => Need::Permission,
            Subject::Questions | Subject::Elicitation => Need::Input,
        }
    }
}

/// A kind of request, whatever its method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    Command,
    /// A command that a person has to decide on each time: no policy answers it, and no decision holds for later.
    HumanCommand,
    FileChange,
    Permissions,
    UserInput,
    Elicitation,
    /// Any other method.
    Other,
}

/// What sets one kind apart.
#[derive(Debug, Clone, Copy)]
struct KindRow {
    request_type: RequestType,
    /// The kind as users read it.
    name: &'static str,
    /// `None` if it is not for a human.
    subject: Option<Subject>,
    /// The type of the item that it is about, for the row of a tool.
    item_type: Option<&'static str>,
    /// The decisions that it takes, whatever it offers.
    words: &'static [Word],
    /// Only a person may answer it, with one of `words`.
    needs_person: bool,
}

const APPROVAL: KindRow = KindRow {
    request_type: RequestType::Approval,
    name: "command",
    subject: Some(Subject::Command),
    item_type: Some("commandExecution"),
    words: &[Word::Accept, Word::AcceptForSession, Word::Decline, Word::Cancel],
    needs_person: false,
};

const PATCH: KindRow =
    KindRow { name: "file change", subject: Some(Subject::Diff), item_type: Some("fileChange"), ..APPROVAL };

const OTHER: KindRow = KindRow {
    request_type: RequestType::Other,
    name: "other",
    subject: None,
    item_type: None,
    words: &[],
    needs_person: false,
};

impl RequestKind {
    /// The kind of a request; `None` if only the client can answer it.
    #[must_use]
    pub fn asked(method: &str, params: &Value) -> Option<RequestKind> {
        let kind = RequestKind::of(method)?;
        let needs_person = kind == RequestKind::Command && params["kind"] == "humanCommand";
        Some(if needs_person { RequestKind::HumanCommand } else { kind })
    }

    /// The kind of a request, as far as its method tells; see [`RequestKind::asked`].
    #[must_use]
    pub fn of(method: &str) -> Option<RequestKind> {
        Some(match Method::of(method).map(Method::current) {
            Some(Method::CommandApproval) => RequestKind::Command,
            Some(Method::FileChangeApproval) => RequestKind::FileChange,
            Some(Method::PermissionsApproval) => RequestKind::Permissions,
            Some(Method::UserInput | Method::BudgetQuestion) => RequestKind::UserInput,
            Some(Method::Elicitation) => RequestKind::Elicitation,
            Some(Method::ToolCall | Method::CurrentTimeRead) => return None,
            _ if ["account/", "attestation/"].iter().any(|prefix| method.starts_with(prefix)) => return None,
            _ => RequestKind::Other,
        })
    }

    const fn row(self) -> KindRow {
        match self {
            RequestKind::Command => APPROVAL,
            // The server has not begun an item for it.
            RequestKind::HumanCommand => KindRow {
                name: "command for a person",
                item_type: None,
                words: &[Word::Accept, Word::Decline, Word::Cancel],
                needs_person: true,
                ..APPROVAL
            },
            RequestKind::FileChange => PATCH,
            RequestKind::Permissions => KindRow {
                request_type: RequestType::Permissions,
                name: "permissions",
                subject: Some(Subject::Permissions),
                words: &[Word::Accept, Word::AcceptForSession, Word::Decline],
                ..OTHER
            },
            RequestKind::UserInput => KindRow {
                request_type: RequestType::UserInput,
                name: "question",
                subject: Some(Subject::Questions),
                ..OTHER
            },
            RequestKind::Elicitation => KindRow {
                request_type: RequestType::Elicitation,
                name: "elicitation",
                subject: Some(Subject::Elicitation),
                words: &[Word::Accept, Word::Decline, Word::Cancel],
                ..OTHER
            },
            RequestKind::Other => OTHER,
        }
    }

    #[must_use]
    pub fn request_type(self) -> RequestType {
        self.row().request_type
    }

    pub fn is_for_human(self) -> bool {
        self.request_type().is_for_human()
    }

    /// The kind as users read it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What it is about; `None` if it is not for a human.
    pub fn subject(self) -> Option<Subject> {
        self.row().subject
    }

    /// The type of the item that it is about, if it always is about one.
    pub fn item_type(self) -> Option<&'static str> {
        self.row().item_type
    }

    /// The decisions that it takes, whatever it offers.
    pub fn words(self) -> &'static [Word] {
        self.row().words
    }

    /// Whether only a person may answer it, with one of its words.
    pub fn needs_person(self) -> bool {
        self.row().needs_person
    }

    /// The word of an answer to a request of this kind and method.
    pub(super) fn word_of(self, method: &str, given: &str) -> Option<Word> {
        Word::given(method, given).filter(|word| self.words().contains(word))
    }
}

/// Longest summary, in characters.
const SUMMARY_CHARS_MAX: usize = 160;

/// A one-line summary that fits on a phone. `changes` are those of a file change, if known.
pub(super) fn summary(kind: RequestKind, method: &str, params: &Value, changes: Option<&Value>) -> String {
    let text = |name: &str| params[name].as_str().map(one_line);
    let because = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    let summary = match kind {
        RequestKind::Command | RequestKind::HumanCommand => {
            let run = |command: &str| format!("run {command}{because}");
            match (params["networkApprovalContext"]["host"].as_str(), CommandText::of(&params["command"])) {
                (Some(host), _) => format!("reach {}{because}", one_line(host)),
                (None, Some(CommandText::Line(line))) => run(&without_system_shell(&one_line(line))),
                (None, Some(CommandText::Words(words))) => run(&one_line(&command_line(&words))),
                (None, None) => run("a command"),
            }
        }
        RequestKind::FileChange => format!("change {}{because}", files(params, changes)),
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

fn files(params: &Value, changes: Option<&Value>) -> String {
    let paths = FileChange::all_of_request(params, changes).into_iter().filter_map(|change| change.path);
    let paths: Vec<String> = paths.map(one_line).collect();
    match &paths[..] {
        [] => "files".to_owned(),
        [path] => path.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// A command line without the shell that ran it: `ls` for `/bin/bash -lc 'ls'`. Only for commands that nobody decides on any
/// more, because the shell may be any program of that name.
pub fn without_shell(command: &str) -> String {
    without(command, is_named_as_shell)
}

/// A command line to decide on, without the shell of the system that is to run it. Any other program stays, such as
/// `/tmp/bash`.
pub fn without_system_shell(command: &str) -> String {
    without(command, is_system_shell)
}

fn without(command: &str, is_shell: fn(&str) -> bool) -> String {
    let words = shlex::split(command).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    script_of(&words, is_shell).map_or_else(|| command.to_owned(), str::to_owned)
}

/// The arguments of a command to decide on, as one line to read: the script if a shell of the system runs one, else the words
/// as a shell quotes them.
pub fn command_line(words: &[&str]) -> String {
    let quoted = || shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" "));
    script_of(words, is_system_shell).map_or_else(quoted, str::to_owned)
}

/// The script in `SHELL -c SCRIPT`. Further arguments would change its meaning, so a line with them is left alone.
fn script_of<'a>(words: &[&'a str], is_shell: fn(&str) -> bool) -> Option<&'a str> {
    let [shell, "-c" | "-lc" | "-ic" | "-lic", script] = words else { return None };
    is_shell(shell).then_some(*script)
}

fn is_named_as_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    matches!(name, "bash" | "sh" | "zsh" | "dash" | "ksh" | "fish")
}

fn is_system_shell(program: &str) -> bool {
    let folder = program.rsplit_once('/').map(|(folder, _)| folder);
    is_named_as_shell(program) && matches!(folder, None | Some("/bin" | "/usr/bin" | "/usr/local/bin"))
}

/// The permissions of a profile in words: `network access`, `write /tmp/x`. A permission of an unknown form is shown as JSON.
pub fn permissions_in_words(profile: &Value) -> Vec<String> {
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

/// The names of the form fields in the order of the elicitation's schema.
pub fn field_order(params: &RawValue) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Listed;

    #[test]
    fn requests_for_humans_are_recognized() {
        for method in ["item/tool/call", "currentTime/read", "account/x/refresh", "attestation/generate"] {
            assert_eq!(RequestKind::of(method), None);
        }
        let types: Vec<RequestType> = ["applyPatchApproval", "item/tool/requestUserInput", "new/method"]
            .into_iter()
            .filter_map(|method| RequestKind::of(method).map(RequestKind::request_type))
            .collect();
        assert_eq!(types, [RequestType::Approval, RequestType::UserInput, RequestType::Other]);
    }

    #[test]
    fn each_request_in_the_schema_has_a_kind() {
        let requests = Method::ALL.iter().filter(|method| method.listed() == Listed::ServerRequest);
        for method in requests {
            assert_ne!(RequestKind::of(method.name()), Some(RequestKind::Other), "{}", method.name());
        }
    }

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
        check(RequestKind::FileChange, r#"{"fileChanges":{"/a":{}}}"#, None, "change /a");
        check(RequestKind::Command, r#"{"command":["ls","a b"]}"#, None, "run ls 'a b'");
        check(RequestKind::Command, r#"{"command":["bash","-lc","ls -l"]}"#, None, "run ls -l");
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
        check("/opt/homebrew/bin/fish -c ls", "ls");
    }

    #[test]
    fn decisions_show_unknown_shells() {
        let check = |command: &str, expect: &str| {
            assert_eq!(without_system_shell(command), expect);
            let words = shlex::split(command).expect("BUG: test commands are well quoted");
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(command_line(&words), expect);
        };
        for known in ["bash", "/bin/bash", "/usr/bin/zsh", "/usr/local/bin/fish"] {
            check(&format!("{known} -lc 'ls -l'"), "ls -l");
        }
        for unknown in ["/tmp/x/bash", "./bash", "/bin/../tmp/sh", "bin/sh", "/sh"] {
            let whole = format!("{unknown} -lc 'ls -l'");
            check(&whole, &whole);
        }
        let params = serde_json::json!({ "command": "/tmp/x/bash -lc ls" });
        assert_eq!(summary(RequestKind::Command, "", &params, None), "run /tmp/x/bash -lc ls");
    }
}
