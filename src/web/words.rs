//! The words of the page for states, requests, answers and outcomes. Pure.

use crate::engine::Subject;
use crate::history::Activity;

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
    let words = match outcome {
        "accepted" | "accept" => "Approved",
        "acceptForSession" => "Approved for the session",
        "declined" | "decline" => "Declined",
        "cancelled" | "cancel" => "Cancelled",
        "withdrawn" | "withdrawn_by_server" => "No longer needed",
        "expired" => "Not answered in time",
        "orphaned" => "Codex stopped before there was an answer",
        "unknown" => "No longer waiting",
        other => return upper(&other.replace('_', " ")),
    };
    words.to_owned()
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
        None => ("Does not answer", "bad"),
    }
}

/// Splits the title of an answered request in the timeline into question, verdict and place.
pub(super) fn asked(title: &str) -> Option<(&str, String, &'static str)> {
    let (what, end) = title.rsplit_once(" → ")?;
    let by_source = end.strip_suffix(')').and_then(|end| end.rsplit_once(" ("));
    let (word, source) = by_source.unwrap_or((end, ""));
    Some((what, verdict(word), place(source)))
}

fn upper(text: &str) -> String {
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
        let check = |title: &str, expect: Option<(&str, &str, &str)>| {
            let found = asked(title);
            assert_eq!(found.as_ref().map(|(what, verdict, place)| (*what, &**verdict, *place)), expect, "{title}");
        };
        check("run a → b → accept (web)", Some(("run a → b", "Approved", "in a browser")));
        check("run x → orphaned: server_restarted", Some(("run x", "Orphaned: server restarted", "")));
        check("color → Red (dark) (tui)", Some(("color", "Red (dark)", "in the terminal UI")));
        check("run x", None);
    }
}
