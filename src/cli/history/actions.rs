//! `codex-shim tail`: what is done, an action a line.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::super::requests::{Stop, print_json, status};
use super::super::screen::{self, Screen, Tone};
use super::args::TailArguments;
use super::following::Following;
use super::{Read, put};
use crate::config::Environment;
use crate::history::action_in_words;

/// Actions that are looked through for those that have changed: the most that can be asked for.
const LOOKED_THROUGH: u64 = 200;

/// How long it is waited for more of what comes at once.
const SETTLE_WAIT: Duration = Duration::from_millis(150);

/// How long a stream that never rests may put off a look.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(500);

/// Columns that an age takes.
const AGE_COLUMNS: usize = 7;

/// Prints actions.
pub(in crate::cli) fn run_tail(arguments: &TailArguments, environment: &Environment) -> i32 {
    status(tail(arguments, environment))
}

fn tail(arguments: &TailArguments, environment: &Environment) -> Result<i32, Stop> {
    let mut read = Read::chosen(arguments.common.session.as_deref(), environment)?;
    // What happens behind this is looked at again.
    let cursor = if arguments.follow { read.events(None, 1)?.latest_seq.unwrap_or(0) } else { 0 };
    let all = read.actions(if arguments.follow { LOOKED_THROUGH } else { arguments.limit })?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let last = &all[all.len().saturating_sub(limit)..];
    if arguments.common.as_json && !arguments.follow {
        return Ok(print_json(&json!({ "actions": last })));
    }
    let to = Screen::of_stdout(environment);
    let text = |actions: &[&Value]| -> String {
        let now = SystemTime::now();
        let line = |action: &&Value| match arguments.common.as_json {
            true => format!("{action}\n"),
            false => line(action, now, to),
        };
        actions.iter().map(line).collect()
    };
    if last.is_empty() && !arguments.follow {
        return Ok(screen::print(&format!("nothing was done in session {} yet\n", read.session.id)));
    }
    if let Err(status) = put(&text(&last.iter().collect::<Vec<_>>())) {
        return Ok(status);
    }
    if !arguments.follow {
        return Ok(0);
    }
    let mut known = Known::default();
    known.learn(&all);
    let mut following = Following::new(&mut read, cursor);
    loop {
        settled(&mut following)?;
        let actions = following.read().actions(LOOKED_THROUGH)?;
        if let Err(status) = put(&text(&known.learn(&actions))) {
            return Ok(status);
        }
    }
}

/// Waits until something has happened, and a little for more of it.
fn settled(following: &mut Following<'_>) -> Result<(), Stop> {
    while following.next(None)?.is_none() {}
    let began = Instant::now();
    while began.elapsed() < LOOK_WAIT_MAX {
        if following.next(Some(SETTLE_WAIT))?.is_none() {
            break;
        }
    }
    Ok(())
}

/// What was printed of each action.
#[derive(Debug, Default)]
struct Known(HashMap<String, String>);

impl Known {
    /// Those that are new, or in another state than they were.
    fn learn<'a>(&mut self, actions: &'a [Value]) -> Vec<&'a Value> {
        let told: Vec<(String, String, &Value)> =
            actions.iter().map(|action| (identity(action), state(action), action)).collect();
        let is_new = |(identity, state, _): &&(String, String, &Value)| self.0.get(identity) != Some(state);
        let new = told.iter().filter(is_new).map(|(_, _, action)| *action).collect();
        // What has left the list does not come back.
        self.0 = told.into_iter().map(|(identity, state, _)| (identity, state)).collect();
        new
    }
}

/// What tells an action apart from all others. When an item began is learned better later; of one item more than one thing
/// may be asked.
fn identity(action: &Value) -> String {
    let is_item = matches!(action["action_kind"].as_str(), Some("command" | "file_change" | "tool"));
    let began = if is_item && !action["item_id"].is_null() { &Value::Null } else { &action["started_at"] };
    let parts = [&action["action_kind"], &action["thread_id"], &action["turn_id"], &action["item_id"], began];
    parts.map(Value::to_string).join(" ")
}

/// What of an action is worth a line of its own: not that it has put out more.
fn state(action: &Value) -> String {
    action["status"].as_str().unwrap_or_default().to_owned()
}

/// `  2m ago  ran cargo test (exit 1)  [failed]`
pub(super) fn line(action: &Value, now: SystemTime, to: Screen) -> String {
    let status = action["status"].as_str().unwrap_or_default();
    let ago = age(action, now).map_or_else(|| "now".to_owned(), |age| format!("{age} ago"));
    format!(
        "{}  {}  {}\n",
        to.paint(Tone::Faint, &format!("{ago:>width$}", width = AGE_COLUMNS + 4)),
        to.paint(Tone::Strong, &screen::plain(&words(action))),
        to.paint(tone(status), &format!("[{}]", screen::plain(status))),
    )
}

/// How long ago it ended, or began where it has not.
pub(super) fn age(action: &Value, now: SystemTime) -> Option<String> {
    let at = action["ended_at"].as_str().or(action["started_at"].as_str())?;
    Some(screen::age(humantime::parse_rfc3339(at).ok()?, now))
}

fn tone(status: &str) -> Tone {
    match status {
        "completed" => Tone::Good,
        "failed" | "timeout" => Tone::Bad,
        "pending" => Tone::Warning,
        _ => Tone::Faint,
    }
}

/// An action in words. The JSON of an action repeats its status in front of its summary.
pub(super) fn words(action: &Value) -> String {
    let text = |member: &str| action[member].as_str().unwrap_or_default();
    match (text("action_kind"), text("summary_text").split_once(": ")) {
        (kind @ ("command" | "file_change" | "tool"), Some((_, what))) => action_in_words(kind, text("status"), what),
        (_, _) => text("summary_text").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(kind: &str, summary: &str, status: &str, item: Option<&str>, began: &str, ended: Option<&str>) -> Value {
        let time = |second: &str| format!("2026-01-02T03:04:{second}.000Z");
        json!({
            "action_kind": kind, "summary_text": summary, "status": status, "item_id": item,
            "started_at": time(began), "ended_at": ended.map(time),
        })
    }

    #[test]
    fn a_line_says_what_was_done_and_how_it_went() {
        let now = humantime::parse_rfc3339("2026-01-02T03:06:07Z").expect("a time");
        let check = |action: Value, expect: &str| assert_eq!(line(&action, now, Screen::None), expect);
        check(
            action("command", "Failed: cargo test (exit 1)", "failed", None, "05", Some("07")),
            "     2m ago  ran cargo test (exit 1)  [failed]\n",
        );
        check(
            action("command", "Declined: rm -rf build", "declined", None, "05", Some("07")),
            "     2m ago  declined: rm -rf build  [declined]\n",
        );
        check(
            action("file_change", "Started: a: b", "running", None, "05", None),
            "  2m 2s ago  changes a: b  [running]\n",
        );
        check(
            action("approval", "Approval requested: make\u{1b}", "pending", None, "05", None),
            "  2m 2s ago  Approval requested: make\u{fffd}  [pending]\n",
        );
        check(
            action("tool", "Completed", "completed", None, "05", Some("07")),
            "     2m ago  Completed  [completed]\n",
        );
    }

    #[test]
    fn each_state_is_printed_once() {
        let mut known = Known::default();
        let mut check = |actions: &[Value], expect: &[&str]| {
            let new: Vec<&str> =
                known.learn(actions).iter().filter_map(|action| action["summary_text"].as_str()).collect();
            assert_eq!(new, expect);
        };
        let begun = action("command", "Started: a", "running", Some("i"), "05", None);
        let asked = |second: &str, status: &str| action("approval", second, status, Some("i"), second, None);
        check(std::slice::from_ref(&begun), &["Started: a"]);
        check(&[begun.clone(), asked("06", "completed"), asked("07", "pending")], &["06", "07"]);
        check(&[begun.clone(), asked("06", "completed"), asked("07", "pending")], &[]);
        // When it began is learned better at its end.
        let ended = action("command", "Completed: a", "completed", Some("i"), "04", Some("09"));
        check(&[asked("06", "completed"), asked("07", "completed"), ended.clone()], &["07", "Completed: a"]);
        check(&[asked("06", "completed"), asked("07", "completed"), ended], &[]);
    }
}
