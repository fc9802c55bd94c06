//! The words of the page for states, requests, answers and outcomes. Pure.

use crate::engine::{Subject, UNANSWERED};
use crate::history::Activity;
use crate::protocol::Word;
use crate::sessions::entry::{Kind, Stage};

/// The heading of a request.
pub(super) fn heading(subject: Option<Subject>) -> &'static str {
    match subject {
        Some(Subject::Command) => "Run this command?",
        Some(Subject::Diff) => "Change these files?",
        Some(Subject::Permissions) => "Give these permissions?",
        Some(Subject::Questions) => "Codex asks you",
        Some(Subject::Elicitation) => "A tool asks you",
        None => "A question that this page does not know",
    }
}

/// The text of a button. An approval is "approved" on the page; only forms are "accepted".
pub(super) fn answer(label: &str, subject: Option<Subject>) -> String {
    let is_approval = match subject {
        Some(Subject::Command | Subject::Diff | Subject::Permissions) => true,
        Some(Subject::Questions | Subject::Elicitation) | None => false,
    };
    match label.strip_prefix("accept").filter(|_| is_approval) {
        Some(rest) => format!("Approve{rest}"),
        None => upper(label.trim_end_matches(", and fill in the form")),
    }
}

/// How a request has ended. `outcome` is the word of the ledger, or the decision that an entry of the timeline names.
pub(super) fn verdict(outcome: &str) -> String {
    let words = match (Word::named(outcome), outcome) {
        (Some(Word::Accept), _) | (_, "accepted") => "Approved",
        (Some(Word::AcceptForSession), _) => "Approved for the session",
        (Some(Word::Decline), _) | (_, "declined") => "Declined",
        (Some(Word::Cancel), _) | (_, "cancelled") => "Cancelled",
        (_, "withdrawn" | "withdrawn_by_server") => "No longer needed",
        (_, "expired") => "Not answered in time",
        (_, UNANSWERED) => "No answer was given",
        (_, "orphaned") => "Codex stopped before there was an answer",
        (_, "unknown") => "No longer waiting",
        (None, other) => return upper(&other.replace('_', " ")),
    };
    words.to_owned()
}

/// How the page marks an outcome; the words are those of [`verdict`].
pub(super) fn look(outcome: &str) -> &'static str {
    match (Word::named(outcome), outcome) {
        (Some(Word::Accept | Word::AcceptForSession), _) | (_, "accepted" | "answered") => "good",
        (Some(Word::Decline | Word::Cancel), _) | (_, "declined" | "cancelled") => "bad",
        (None, _) => "",
    }
}

/// The place from which an answer came.
pub(super) fn place(source: &str) -> &'static str {
    match source {
        "web" => "in a browser",
        "tui" => "in the terminal UI",
        "cli" => "in a terminal",
        "api" => "by a program",
        "policy" => "by your settings",
        "client" => "in its client",
        _ => "",
    }
}

/// The state of a session or thread, and how the page marks it; `None` if its relay does not answer.
pub(super) fn state(state: Option<Activity>) -> (&'static str, &'static str) {
    match state {
        Some(Activity::WaitingPermission) => ("Waits for approval", "asks"),
        Some(Activity::WaitingInput) => ("Waits for an answer", "asks"),
        Some(Activity::Working) => ("Working", "busy"),
        Some(Activity::Thinking) => ("Thinking", "busy"),
        Some(Activity::Idle) => ("Idle", ""),
        Some(Activity::Stopped) => ("Stopped", ""),
        Some(Activity::Newer(newer)) => (newer.name(), ""),
        None => ("Does not answer", "bad"),
    }
}

/// The title of an entry of the timeline, how it has ended, and how the page marks that.
pub(super) fn entry(
    kind: Kind,
    stage: Stage,
    title: &str,
    exit_code: Option<i64>,
    took_ms: Option<u64>,
) -> (String, String, &'static str) {
    let took = took_ms.filter(|ms| *ms > 999).map(duration);
    match kind {
        Kind::Reasoning if stage == Stage::Open => ("Thinking…".to_owned(), String::new(), ""),
        Kind::Reasoning => (took.map_or("Thought".to_owned(), |took| format!("Thought for {took}")), String::new(), ""),
        Kind::Status => {
            let title = title.strip_prefix("turn ").unwrap_or(title);
            let finished = title.strip_prefix("completed").map(|rest| format!("Finished{rest}"));
            (finished.unwrap_or_else(|| upper(title)), String::new(), "")
        }
        Kind::Request => asked(title, stage),
        Kind::Run => ("Codex started".to_owned(), String::new(), ""),
        Kind::Command | Kind::Tool | Kind::Change | Kind::Diff => {
            let code = exit_code.filter(|code| *code > 0);
            let is_bad = stage == Stage::Failed || code.is_some();
            let failed = is_bad.then(|| code.map_or("failed".to_owned(), |code| format!("exit {code}")));
            let end = match stage {
                Stage::Open if kind == Kind::Diff => String::new(),
                Stage::Open => "running…".to_owned(),
                Stage::Stopped => "not run".to_owned(),
                Stage::Done | Stage::Failed => failed.into_iter().chain(took).collect::<Vec<_>>().join(" · "),
            };
            (title.to_owned(), end, if is_bad { "bad" } else { "" })
        }
        Kind::User | Kind::Assistant | Kind::Plan | Kind::Review | Kind::Error | Kind::Gap => {
            (title.to_owned(), String::new(), "")
        }
    }
}

/// The question of a request in the timeline, its answer and the place of that, and the mark.
fn asked(title: &str, stage: Stage) -> (String, String, &'static str) {
    if stage == Stage::Open {
        return (title.to_owned(), "waiting".to_owned(), "");
    }
    let Some((what, end)) = title.rsplit_once(" → ") else { return (title.to_owned(), "over".to_owned(), "") };
    let by_source = end.strip_suffix(')').and_then(|end| end.rsplit_once(" ("));
    let (word, source) = by_source.unwrap_or((end, ""));
    let verdict = format!("{} {}", verdict(word), place(source));
    (what.to_owned(), verdict.trim_end().to_owned(), look(word))
}

/// A duration in its largest unit: `2 min`.
fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1, "s"));
    format!("{} {unit}", seconds / size)
}

pub(super) fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvals_are_approved_and_forms_accepted() {
        let check = |label: &str, subject, expect: &str| assert_eq!(answer(label, Some(subject)), expect);
        check("accept for the session", Subject::Command, "Approve for the session");
        check("decline with a reason", Subject::Diff, "Decline with a reason");
        check("accept, and fill in the form", Subject::Elicitation, "Accept");
        assert_eq!(answer("", None), "");
    }

    #[test]
    fn titles_of_requests_have_three_parts() {
        let check = |title: &str, expect: (&str, &str, &str)| {
            let (what, end, look) = entry(Kind::Request, Stage::Done, title, None, None);
            assert_eq!((&*what, &*end, look), expect, "{title}");
        };
        check("run a → b → accept (web)", ("run a → b", "Approved in a browser", "good"));
        check("run x → approved (client)", ("run x", "Approved in its client", "good"));
        check("run x → approved_for_session (tui)", ("run x", "Approved for the session in the terminal UI", "good"));
        check("run x → denied (web)", ("run x", "Declined in a browser", "bad"));
        check("run x → abort (web)", ("run x", "Cancelled in a browser", "bad"));
        check("Which? → unanswered (client)", ("Which?", "No answer was given in its client", ""));
        check("run x → orphaned: server_restarted", ("run x", "Orphaned: server restarted", ""));
        check("color → Red (dark) (tui)", ("color", "Red (dark) in the terminal UI", ""));
        check("run x", ("run x", "over", ""));
    }

    #[test]
    fn ends_of_entries_are_told_in_words() {
        let check = |kind, stage, title: &str, exit_code, took_ms, expect: (&str, &str, &str)| {
            let (title, end, look) = entry(kind, stage, title, exit_code, took_ms);
            assert_eq!((&*title, &*end, look), expect);
        };
        check(Kind::Command, Stage::Open, "make", None, None, ("make", "running…", ""));
        check(Kind::Command, Stage::Done, "make", Some(0), Some(61_000), ("make", "1 min", ""));
        check(Kind::Command, Stage::Failed, "make", Some(2), Some(2_500), ("make", "exit 2 · 2 s", "bad"));
        check(Kind::Tool, Stage::Failed, "find", None, Some(9), ("find", "failed", "bad"));
        check(Kind::Tool, Stage::Stopped, "find", None, None, ("find", "not run", ""));
        check(Kind::Reasoning, Stage::Done, "", None, Some(3_000), ("Thought for 3 s", "", ""));
        check(Kind::Status, Stage::Done, "turn completed", None, None, ("Finished", "", ""));
        check(Kind::Status, Stage::Done, "turn interrupted", None, None, ("Interrupted", "", ""));
    }
}
