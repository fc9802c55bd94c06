//! `codex-shim show`: a request in full, with labels: everything there is to decide on, and its outcome.
//!
//! [`RequestView`] decides which rows there are, in which order, and their styles.

use super::super::complete;
use super::super::offline::damage_of_ledger;
use super::super::say;
use super::super::screen::Clock;
use super::super::screen::Times;
use super::super::screen::{self, Screen, Tone};
use super::super::select_session::SessionFlag;
use super::{Done, body, named, print_json};
use crate::api::{EnvironmentDocument, Request, RequestDocument, State, StoredAnswer, ThreadIdentityDocument};
use crate::config::Environment;
use crate::control::client::{self, ANSWER_WAIT_MAX};
use crate::engine::{RequestKind, answers_nothing};
use crate::history::rfc3339_millis;
use crate::requests::answer::respond_arguments;
use crate::requests::form::Field;
use crate::requests::view::{
    Gives, Meant, Question, RequestView, Row, answer_in_words, answer_until, size_of_changes, who,
};
use crate::store::Found;
use clap::Args;

/// Width of the label column.
const LABEL_COLUMNS: usize = 11;

/// Labels of prose, which is wrapped because no one copies it.
const PROSE: [&str; 2] = ["reason", "message"];

/// Replaces tabs, which would otherwise be escaped.
const TAB: &str = "    ";

pub(in crate::cli) fn run_show(arguments: &ShowRequestArguments, environment: &Environment) -> Done {
    let (session, document) = named(arguments.session.name(), &arguments.request, environment)?;
    let row = &document.request;
    damage_of_ledger(&session).iter().for_each(|damage| say(damage));
    if row.is_pending() {
        super::list::say_if_down([(&session, 1)].into_iter());
    }
    if arguments.as_json {
        return Ok(print_json(&document));
    }
    let (clock, screen) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let mut given = DetailView::new(screen);
    given.some("variables", variables(&session, row).as_ref());
    let text = [question(row, &clock, screen), given.text, outcome(&document, &clock, screen), next(row, screen)];
    Ok(screen::print_exactly(&text.concat()))
}

/// The variables of a client that the commands of a pending request's thread get, and whose they are. Only its hub knows.
fn variables(session: &Found, row: &Request) -> Option<String> {
    let thread_id = row.thread_id.as_ref().filter(|_| session.live && row.is_pending())?;
    let hub = client::ask(&session.dir, &State, ANSWER_WAIT_MAX).ok()?.hub?;
    hub.environments.iter().find(|given| given.thread_id == *thread_id).map(EnvironmentDocument::in_words)
}

/// Rows of a label and a text.
struct DetailView {
    text: String,
    to: Screen,
}

impl DetailView {
    fn new(to: Screen) -> DetailView {
        DetailView { text: String::new(), to }
    }

    /// A label and untrusted text, fitted to the terminal.
    fn row(&mut self, label: &str, value: &str) {
        self.toned(label, value, None);
    }

    fn toned(&mut self, label: &str, value: &str, tone: Option<Tone>) {
        let rows = self.lines(label, &value.replace("\r\n", "\n"), tone);
        self.text.push_str(&screen::fitted(&rows, screen::columns(self.to)));
    }

    /// A label and untrusted text that people copy or decide on: its lines stay as they are, and no character is left out.
    fn exact(&mut self, label: &str, value: &str, tone: Option<Tone>) {
        let rows = self.lines(label, value, tone);
        self.text.push_str(&rows);
    }

    fn lines(&self, label: &str, value: &str, tone: Option<Tone>) -> String {
        let value = value.strip_suffix('\n').unwrap_or(value);
        let line = |(number, line): (usize, &str)| {
            let label = screen::plain(if number == 0 { label } else { "" });
            let label = self.to.paint(Tone::Faint, &format!("{label:LABEL_COLUMNS$}"));
            let shown = screen::plain(&line.replace('\t', TAB));
            let shown = tone.map_or(shown.clone(), |tone| self.to.paint(tone, &shown));
            format!("{label} {shown}\n")
        };
        value.split('\n').enumerate().map(line).collect()
    }

    /// A row, unless there is no text.
    fn some(&mut self, label: &str, text: Option<&String>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.row(label, text);
        }
    }

    fn shown(&mut self, rows: &[Row]) {
        for row in rows {
            if PROSE.contains(&row.label.as_str()) {
                self.row(&row.label, &row.text);
                continue;
            }
            let tone = match row.meant {
                Meant::Added => Some(Tone::Good),
                Meant::Removed => Some(Tone::Bad),
                Meant::Place => Some(Tone::Faint),
                Meant::Asked | Meant::Plain => None,
            };
            self.exact(&row.label, &row.text, tone);
        }
    }
}

/// The part of the changed files that is shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Diffs<'a> {
    Whole,
    /// The names alone, relative to this folder, at most so many.
    Names {
        below: &'a str,
        names_max: usize,
    },
}

/// The request itself.
pub(in crate::cli) fn question(row: &Request, clock: &Clock, to: Screen) -> String {
    question_with(row, Diffs::Whole, clock, to)
}

/// [`question`] with a part of the changed files.
pub(super) fn question_with(row: &Request, diffs: Diffs<'_>, clock: &Clock, to: Screen) -> String {
    let mut view = DetailView::new(to);
    let request = RequestView::of(row);
    view.row("request", &format!("{}, {}", row.request_id, request.kind.name()));
    if request.kind == RequestKind::Other {
        view.some("method", Some(&row.request_method));
    }
    let asked = &row.requested_at;
    let age = clock.age(asked).map(|age| format!(" ({age} ago)")).unwrap_or_default();
    view.row("asked", &format!("{}{age}", clock.text(asked)));
    if let Some(expires) = &row.expires_at {
        view.row("expires", &clock.text(expires));
    }
    if let Some(until) = answer_until(row) {
        view.row("left", &format!("{}, until {}", clock.left(until), clock.text(&rfc3339_millis(until))));
    }
    view.some("from", row.thread().and_then(ThreadIdentityDocument::in_words).as_ref());
    for (label, id) in [("thread", &row.thread_id), ("turn", &row.turn_id), ("item", &row.item_id)] {
        view.some(label, id.as_ref());
    }
    view.shown(&request.members);
    size_of_changes(&request.files).iter().for_each(|changes| view.row("changes", changes));
    match diffs {
        Diffs::Whole => request.files.iter().for_each(|file| view.shown(&file.rows())),
        Diffs::Names { below, names_max } => names(&mut view, &request, below, names_max),
    }
    request.warnings.iter().for_each(|warning| view.row("warning", warning));
    request.questions.iter().for_each(|question| a_question(&mut view, question));
    request.fields.iter().for_each(|field| a_field(&mut view, field));
    let summary = screen::fitted(&screen::plain(&row.summary), screen::columns(to));
    format!("{}\n\n{}", to.paint(Tone::Strong, &summary), view.text)
}

/// The names of changed files; those outside the folder come first, so that no cut hides them.
fn names(view: &mut DetailView, request: &RequestView, below: &str, names_max: usize) {
    let (files, folder) = (&request.files, request.folder.as_deref());
    let (outside, inside): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.is_outside(folder));
    for (number, file) in outside.into_iter().chain(inside).take(names_max).enumerate() {
        view.row(if number == 0 { "files" } else { "" }, &file.heading(below));
    }
    let unnamed = files.len().saturating_sub(names_max);
    if unnamed > 0 {
        view.row("", &format!("… and {unnamed} more"));
    }
}

fn a_question(view: &mut DetailView, question: &Question) {
    let secret = if question.is_secret { " (the answer is not stored)" } else { "" };
    view.row("question", &format!("{}: {}{secret}", question.id, question.text));
    for (number, (label, about)) in question.options.iter().enumerate() {
        let about = if about.is_empty() { String::new() } else { format!("  {about}") };
        view.row("", &format!("  {}. {label}{about}", number + 1));
    }
}

/// A form field: its name, description and accepted values.
fn a_field(view: &mut DetailView, field: &Field) {
    let about = field.about.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
    let hint = Some(field.hint()).filter(|hint| !hint.is_empty());
    view.row("field", &format!("{}{about}{}", field.name, hint.map(|hint| format!("  ({hint})")).unwrap_or_default()));
}

/// The outcome, with every answer that was given.
pub(in crate::cli) fn outcome(document: &RequestDocument, clock: &Clock, to: Screen) -> String {
    let (row, mut view) = (&document.request, DetailView::new(to));
    let (outcome, tone) = status(row);
    view.text.push('\n');
    view.toned("status", &outcome, Some(tone));
    if let Some(at) = &row.resolved_at {
        view.row("ended", &format!("{} by {}", clock.text(at), who(row)));
    }
    for (label, at) in [("sent", &row.dispatched_at), ("confirmed", &row.confirmed_at)] {
        view.some(label, at.as_ref().map(|at| clock.text(at)).as_ref());
    }
    view.some("because", row.error_message.as_ref());
    for (label, text) in [("rule", &row.rule), ("program", &row.program), ("reason", &row.reason)] {
        view.some(label, text.iter().flatten().next());
    }
    if row.late {
        view.row("late", "it was forwarded before it was stored");
    }
    for StoredAnswer { at, by, payload, source, won } in &document.answers {
        let label = if *won { "answer" } else { "came later" };
        view.row(label, &format!("{} by {source} ({by}): {}", clock.text(at), answer_in_words(payload)));
    }
    view.text
}

/// The status of a row, with its answer.
fn status(row: &Request) -> (String, Tone) {
    match (&*row.status, row.error_code.as_deref()) {
        ("pending", _) => ("pending".to_owned(), Tone::Warning),
        ("resolved", _) if row.is_withdrawn() => ("resolved: withdrawn".to_owned(), Tone::Faint),
        ("resolved", _) if answers_nothing(&row.resolved_payload) => ("resolved: no answer".to_owned(), Tone::Faint),
        ("resolved", _) => {
            let mut words = body::in_words(&row.resolved_payload);
            // The whole answer follows.
            if words.starts_with('{') {
                words = "answered".to_owned();
            }
            (format!("resolved: {words}"), Tone::Good)
        }
        (status, None) => (status.to_owned(), Tone::Bad),
        (status, Some(code)) => (format!("{status}: {code}"), Tone::Bad),
    }
}

/// The answers that a pending request takes, each with its command, which begins with `respond`, up to the id.
pub(in crate::cli) fn ways(row: &Request, respond: &str, to: Screen) -> String {
    let mut view = DetailView::new(to);
    let ways = if row.is_pending() { respond_arguments(row) } else { Vec::new() };
    for (number, way) in ways.into_iter().enumerate() {
        let command = format!("codex-shim {respond}{} {way}", row.request_id);
        view.exact(if number == 0 { "respond" } else { "or" }, &command, None);
    }
    view.text
}

/// How to answer a pending request.
pub(super) fn next(row: &Request, to: Screen) -> String {
    if !row.is_pending() {
        return String::new();
    }
    let mut view = DetailView { text: ways(row, "respond ", to), to };
    let id = &row.request_id;
    let request = RequestView::of(row);
    for choice in request.choices.iter().filter(|choice| choice.key.is_ascii_digit()) {
        if let Gives::Body(body) = &choice.gives {
            view.row("or", &format!("{}:", choice.label));
            // A single quote would end the shell's quotation.
            let body = body.to_string().replace('\'', r"'\''");
            view.exact("", &format!("codex-shim respond {id} --json '{body}'"), None);
        }
    }
    view.text
}

/// Show a request in full, and what became of it
///
/// The command and its folder, the file changes with their diffs, or the questions with their options; then who answered what
/// and when. With --json it prints what `GET /sessions/self/codex-requests/ID` returns.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A request of any session is named by its id, by a unique end of it as in the
list of `requests` (`0c4e-0` for `6b02d1a90c4e-0`), or by a unique beginning.
Requests of the sessions in this folder are also named by the part after the
`-` (`0`), and by `latest`: the newest that waits. If none waits here, `latest`
is the only one that waits elsewhere.

Exit status: 0, or 3 if there is no such request or session.

Examples:
  codex-shim show
  codex-shim show 0c4e-0
  codex-shim show 6b02d1a90c4e-0 --json | jq .answers")]
pub(in crate::cli) struct ShowRequestArguments {
    /// Request: its name in the list, its id or a part of it, or its number
    #[arg(value_name = "REQUEST", default_value = "latest", add = complete::requests())]
    pub(in crate::cli) request: String,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
    #[command(flatten)]
    pub(in crate::cli) times: Times,
}

#[cfg(test)]
mod tests {
    use crate::requests::request_testing::{one_of_each_kind, raw_names};
    use crate::requests::view::ending;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn copied_text_is_one_shell_word() {
        let offer = json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["echo", "it's; rm x"] } });
        let row = json!({
            "request_id": "g-0", "request_method": "item/commandExecution/requestApproval", "status": "pending",
            "available_decisions": [offer],
        });
        let shown = next(&Request::from(&row), Screen::None);
        let line = shown.lines().find_map(|line| line.split_once(" --json ")).expect("it is offered").1;
        let output = std::process::Command::new("sh").args(["-c", &format!("printf %s {line}")]).output();
        let read: Value = serde_json::from_slice(&output.expect("sh runs").stdout).expect("one word");
        assert_eq!(read, json!({ "decision": offer }));
    }

    #[test]
    fn each_answer_is_a_line_to_paste() {
        for row in one_of_each_kind() {
            for line in next(&row, Screen::None).lines().filter_map(|line| line.split_once("codex-shim ")) {
                assert!(!line.1.contains(['|', '>', '<', ';', '&']) || line.1.contains(" --json '"), "{line:?}");
            }
        }
    }

    fn shown(method: &str, payload: &Value, changes: &Value) -> String {
        let row = json!({
            "request_id": "g-0", "request_method": method, "summary": "s", "status": "pending", "changes": changes,
            "requested_at": "2026-01-02T03:04:05.000Z", "thread_id": "t", "request_payload": payload,
        });
        question(&Request::from(&row), &Clock::stopped("2026-01-02T03:04:08Z"), Screen::None)
    }

    fn check(shown: &str, expect: &[&str]) {
        for line in expect {
            assert!(shown.lines().any(|shown| shown == *line), "{line} is not in\n{shown}");
        }
    }

    #[test]
    fn form_without_fields_takes_no_answers() {
        let check = |schema: Value, expect: &str| {
            let row = json!({ "request_id": "g-0", "request_method": "mcpServer/elicitation/request", "status": "pending",
                "request_payload": { "message": "Sure?", "requestedSchema": schema } });
            let lines = next(&Request::from(&row), Screen::None);
            let offered: Vec<&str> =
                lines.lines().filter_map(|line| line.split_once("respond g-0 ")).map(|(_, to)| to).collect();
            assert_eq!(
                offered.iter().map(|to| to.split(' ').next().unwrap_or(to)).collect::<Vec<_>>().join(" "),
                expect
            );
        };
        check(json!({ "type": "object", "properties": {} }), "accept decline cancel");
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        check(schema, "accept --answer decline cancel");
    }

    #[test]
    fn command_is_shown_in_full() {
        let payload =
            json!({"command": "a\n\tb\u{1b}[1m", "cwd": "/w", "reason": null, "threadId": "t", "new": {"x": 1}});
        let shown = shown("item/commandExecution/requestApproval", &payload, &Value::Null);
        let expect = [
            "s",
            "request     g-0, command",
            "asked       03:04:05 UTC (3s ago)",
            "thread      t",
            "command     a",
            "                b\u{fffd}[1m",
            "cwd         /w",
            "new         x: 1",
        ];
        check(&shown, &expect);
        assert!(!shown.contains("reason"), "{shown}");
    }

    #[test]
    fn changes_have_their_diffs() {
        let now =
            json!([{"path": "/a", "kind": {"type": "update", "move_path": "/b"}, "diff": "@@ -1 +1 @@\n-x\n+y\n"}]);
        let shown_now = shown("item/fileChange/requestApproval", &json!({}), &now);
        check(&shown_now, &["file        update /a → /b", "            -x", "            +y"]);
        let old = json!({"/a": {"type": "add", "content": "x\n"}, "/c": {"odd": 1}});
        let shown_old = shown("applyPatchApproval", &json!({"fileChanges": old}), &old);
        check(
            &shown_old,
            &["file        add /a", "            +x", "file        change /c", "            {\"odd\":1}"],
        );
    }

    #[test]
    fn changes_have_a_summary() {
        let change =
            |path: &str| json!({"path": path, "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-x\n+y\n+z\n"});
        let row = json!({
            "request_id": "g-0", "request_method": "item/fileChange/requestApproval", "summary": "s", "status": "pending", "thread": { "cwd": "/w" },
            "changes": [change("/w/a/b.rs"), change("/w/c.rs"), change("/x/d.rs")], "request_payload": {},
        });
        let clock = Clock::stopped("2026-01-02T03:04:08Z");
        check(
            &question(&Request::from(&row), &clock, Screen::None),
            &["changes     3 files +6 -3", "file        update /w/c.rs"],
        );
        let names =
            question_with(&Request::from(&row), Diffs::Names { below: "/w", names_max: 2 }, &clock, Screen::None);
        let expect = [
            "changes     3 files +6 -3",
            "files       update /x/d.rs",
            "            update a/b.rs",
            "            … and 1 more",
        ];
        check(&names, &expect);
        assert!(!names.contains("+y"), "{names}");
    }

    #[test]
    fn names_include_the_new_path_of_a_move() {
        let change =
            |path: &str, to: &str| json!({"path": path, "kind": {"type": "update", "move_path": to}, "diff": ""});
        let row = json!({
            "request_id": "g-0", "request_method": "item/fileChange/requestApproval", "summary": "s", "status": "pending", "thread": { "cwd": "/w" },
            "changes": [change("/w/a.rs", "/w/b.rs"), change("/w/c.rs", "/etc/x"), change("d.rs", "../e.rs")], "request_payload": {},
        });
        let clock = Clock::stopped("2026-01-02T03:04:08Z");
        let names =
            question_with(&Request::from(&row), Diffs::Names { below: "/w", names_max: 3 }, &clock, Screen::None);
        let expect =
            ["files       update c.rs → /etc/x", "            update d.rs → ../e.rs", "            update a.rs → b.rs"];
        check(&names, &expect);
    }

    #[test]
    fn time_left_for_a_question_is_told() {
        let left =
            |wait: Value| shown("item/tool/requestUserInput", &json!({ "autoResolutionMs": wait }), &Value::Null);
        check(&left(json!(120_000)), &["left        1m 57s, until 03:06:05 UTC"]);
        assert!(!left(Value::Null).contains("left "));
    }

    #[test]
    fn questions_have_their_options() {
        let payload = json!({"questions": [
            {"id": "color", "question": "Which?", "options": [{"label": "Red", "description": "warm"}]},
            {"id": "key", "question": "Key?", "isSecret": true, "options": null},
        ]});
        let expect = [
            "question    color: Which?",
            "              1. Red  warm",
            "question    key: Key? (the answer is not stored)",
        ];
        check(&shown("item/tool/requestUserInput", &payload, &Value::Null), &expect);
    }

    #[test]
    fn outcome_lists_all_answers() {
        let document: RequestDocument = serde_json::from_value(json!({
            "request": {
                "status": "resolved", "resolved_payload": {"decision": "accept"}, "resolved_at": "2026-01-02T03:04:05.123Z", "late": true,
                "resolution_source": "client", "resolved_by": "ide",
            },
            "answers": [
                {"at": "T", "source": "client", "by": "ide", "payload": {"decision": "accept"}, "won": true},
                {"at": "U", "source": "cli", "by": "uid 0", "payload": {"decision": "decline"}, "won": false},
            ],
        }))
        .expect("BUG: it is a document");
        let expect = [
            "status      resolved: accept",
            "ended       03:04:05 UTC by client (ide)",
            "late        it was forwarded before it was stored",
            "answer      T by client (ide): accept",
            "came later  U by cli (uid 0): decline",
        ];
        check(&outcome(&document, &Clock::stopped("2026-01-02T03:04:08Z"), Screen::None), &expect);
        assert_eq!(ending(&document.request), "answered by client (ide): accept");
        assert_eq!(next(&document.request, Screen::None), "");
    }

    #[test]
    fn no_kind_shows_names_of_members() {
        for row in one_of_each_kind() {
            let clock = Clock::stopped("2026-01-02T03:04:08Z");
            let shown = format!("{}{}", question(&row, &clock, Screen::None), next(&row, Screen::None));
            // A command to copy contains the body of the answer.
            let is_prose = |line: &&str| !line.contains("codex-shim respond");
            let prose: String = shown.lines().filter(is_prose).map(|line| format!("{line}\n")).collect();
            let names = raw_names(&row.request_payload, &prose);
            assert!(names.is_empty(), "{names:?}\n{prose}");
        }
    }

    #[test]
    fn status_names_the_answer() {
        let check = |row: Value, expect: &str| assert_eq!(status(&row.into()).0, expect);
        check(json!({ "status": "orphaned", "error_code": "server_exited" }), "orphaned: server_exited");
        check(json!({ "status": "resolved", "error_code": "withdrawn_by_server" }), "resolved: withdrawn");
        let answers = |given: Value| json!({ "status": "resolved", "resolved_payload": { "answers": given } });
        check(answers(json!({ "q": { "answers": ["x"] } })), "resolved: answered");
        check(answers(json!({})), "resolved: no answer");
    }
}
