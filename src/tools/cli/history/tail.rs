//! `codex-shim tail`: the agent's last actions, one per line.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::super::offline::{self, history_of};
use super::super::requests::print_json;
use super::super::screen::{self, Screen, Tone};
use super::super::screen::{Clock, Times};
use super::super::select_session;
use super::super::select_session::Common;
use super::super::select_session::up_to_200;
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done};
use super::Following;
use crate::api::{ActionDocument, ActionsDocument, Request};
use crate::config::Environment;
use crate::control::{RequestOrigin, identify_offline, sort_by_arrival};
use crate::history::{ActionKind, ActionStatus};
use crate::hub;
use crate::store::{Found, Otherwise};

/// Print what the agent did last, and how it went
///
/// One line for each command, file change, tool call, approval and question, the newest last.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f it prints an action again when its status changes, until you interrupt
it. With --json it prints what `GET /sessions/self/activity-actions` returns;
with -f and --json, one action per line.

Examples:
  codex-shim tail
  codex-shim tail work -n 3 -f
  codex-shim tail --json | jq -r '.actions[] | select(.status == \"failed\")'")]
pub(in crate::cli) struct TailArguments {
    #[command(flatten)]
    common: Common,
    /// Number of actions, 1 to 200
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 10, value_parser = up_to_200)]
    limit: u64,
    /// Keep printing actions as they happen
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    times: Times,
}

/// Actions that are compared for changes: the most that one request returns.
const LOOKED_THROUGH: u64 = 200;

/// How long to wait for further events before the actions are read again.
const SETTLE_WAIT: Duration = Duration::from_millis(150);

/// Longest delay if events keep arriving.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(500);

pub(in crate::cli) fn run_tail(arguments: &TailArguments, environment: &Environment) -> Done {
    if arguments.follow {
        return follow(arguments, environment);
    }
    let sessions = select_session::several(arguments.common.session.name(), Otherwise::Latest, environment)?;
    let actions = |session: &Found| Ok(offline::read(session.clone(), environment).actions(arguments.limit)?);
    let (listed, status) = select_session::each(&sessions, actions)?;
    let last = last_of(&listed, arguments.limit);
    if arguments.common.as_json {
        let actions = last.into_iter().map(|(_, action)| action.clone()).collect();
        return Ok(status.max(print_json(&ActionsDocument { actions })));
    }
    let to = Screen::of_stdout(environment);
    let mut text = String::new();
    for (session, all) in &listed {
        let is_alone = sessions.len() == 1;
        let actions: Vec<&ActionDocument> =
            last.iter().filter(|(of, _)| of == session).map(|(_, action)| *action).collect();
        if actions.is_empty() && !all.is_empty() {
            continue;
        }
        if !is_alone {
            text.push_str(&select_session::section(session, to));
        }
        text.push_str(&match is_alone {
            _ if !actions.is_empty() => ActionPrinter::new(arguments, session, to).text(&actions),
            true => {
                let name = select_session::heading(session, to, environment);
                format!("no actions in session {} yet\n", screen::plain(&name))
            }
            // The line above names the session.
            false => "no actions yet\n".to_owned(),
        });
    }
    Ok(status.max(screen::print(&text)))
}

/// The last actions of all sessions together. Those of one session keep their order, whatever its clock was set to.
fn last_of<'a>(listed: &'a [(&'a Found, Vec<ActionDocument>)], limit: u64) -> Vec<(&'a Found, &'a ActionDocument)> {
    let mut all: Vec<(&Found, &ActionDocument)> =
        listed.iter().flat_map(|(session, actions)| actions.iter().map(move |action| (*session, action))).collect();
    if listed.len() > 1 {
        sort_by_arrival(&mut all, |(session, _)| &session.id, |(_, action)| action.changed_at());
    }
    let surplus = all.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    all.split_off(surplus)
}

fn follow(arguments: &TailArguments, environment: &Environment) -> Done {
    let mut read = offline::chosen(arguments.common.session.name(), environment)?;
    // Events after this number trigger another look.
    let cursor = read.events(None, 1)?.latest_seq.unwrap_or(0);
    let all = read.actions(LOOKED_THROUGH)?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let last = &all[all.len().saturating_sub(limit)..];
    let mut printer = ActionPrinter::new(arguments, &read.session, Screen::of_stdout(environment));
    screen::put(&printer.text(&last.iter().collect::<Vec<_>>()))?;
    let mut known = KnownActions::default();
    known.learn(&all);
    let mut following = Following::new(&mut read, cursor);
    loop {
        settled(&mut following)?;
        let actions = following.read().actions(LOOKED_THROUGH)?;
        screen::put(&printer.text(&known.learn(&actions)))?;
    }
}

/// How actions are printed.
struct ActionPrinter {
    clock: Clock,
    as_json: bool,
    when: When,
    /// The hub, whose threads work in several folders.
    hub: Option<Found>,
    table: Table,
    to: Screen,
}

/// Content of the first column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The age, for a list that is printed once.
    Ago,
    /// The time, for a list that continues.
    Time,
}

impl ActionPrinter {
    fn new(arguments: &TailArguments, session: &Found, to: Screen) -> ActionPrinter {
        let clock = Clock::of(&arguments.times);
        let when = if arguments.follow || arguments.times.is_utc() { When::Time } else { When::Ago };
        let hub = session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place)).then(|| session.clone());
        let as_json = arguments.common.as_json;
        ActionPrinter {
            table: table(when, hub.as_ref().map(|_| Column::text("WHERE")), &clock, to),
            clock,
            as_json,
            when,
            hub,
            to,
        }
    }

    fn text(&mut self, actions: &[&ActionDocument]) -> String {
        if self.as_json {
            return actions.iter().map(|action| format!("{}\n", json!(action))).collect();
        }
        self.clock.go_on();
        let places = self.hub.as_ref().map(|hub| places(hub, actions));
        let row = |(number, action): (usize, &&ActionDocument)| {
            let mut row = cells(action, self.when, &self.clock, self.to);
            row.splice(2..2, places.as_ref().and_then(|places| Some((Tone::Plain, places.get(number)?.clone()))));
            row
        };
        self.table.add(actions.iter().enumerate().map(row).collect())
    }
}

/// The folder and the client of the thread of each action.
fn places(hub: &Found, actions: &[&ActionDocument]) -> Vec<String> {
    let of_thread = |action: &&ActionDocument| Request { thread_id: action.thread_id.clone(), ..Request::default() };
    let mut rows: Vec<Request> = actions.iter().map(of_thread).collect();
    identify_offline(&history_of(hub), &mut rows);
    rows.iter().map(|row| RequestOrigin::of(hub, row).name).collect()
}

fn table(when: When, place: Option<Column>, clock: &Clock, to: Screen) -> Table {
    let first = match when {
        When::Ago => Column::number("WHEN"),
        When::Time => Column::whole(clock.head("TIME")),
    };
    let mut columns = vec![first.spare(), Column::whole("STATUS"), Column::text("ACTION")];
    columns.splice(2..2, place);
    Table::new(columns, to)
}

/// Waits for an event, and briefly for further ones.
fn settled(following: &mut Following<'_>) -> Result<(), CliError> {
    while following.next(None)?.is_none() {}
    let began = Instant::now();
    while began.elapsed() < LOOK_WAIT_MAX {
        if following.next(Some(SETTLE_WAIT))?.is_none() {
            break;
        }
    }
    Ok(())
}

/// The printed status of each action. Another change, such as more output, is not worth a new line.
#[derive(Debug, Default)]
struct KnownActions(HashMap<ActionIdentity, ActionStatus>);

impl KnownActions {
    /// The actions that are new or have changed.
    fn learn<'a>(&mut self, actions: &'a [ActionDocument]) -> Vec<&'a ActionDocument> {
        let is_new = |action: &&ActionDocument| self.0.get(&identity(action)) != Some(&action.status);
        let new = actions.iter().filter(is_new).collect();
        // Actions that left the list do not come back.
        self.0 = actions.iter().map(|action| (identity(action), action.status)).collect();
        new
    }
}

/// The kind, thread, turn, item and start of an action.
type ActionIdentity = (&'static str, [Option<String>; 4]);

/// The identity of an action. The start of an item can be corrected later, so it does not count; one item can have several
/// requests, so their start does.
fn identity(action: &ActionDocument) -> ActionIdentity {
    let ActionDocument { action_kind, thread_id, turn_id, item_id, started_at, .. } = action;
    let is_item = matches!(action_kind, ActionKind::Command | ActionKind::FileChange | ActionKind::Tool);
    let began = (!is_item || item_id.is_none()).then(|| started_at.clone());
    (action_kind.name(), [thread_id.clone(), turn_id.clone(), item_id.clone(), began])
}

/// `2m ago  failed  ran cargo test (exit 1)`
fn cells(action: &ActionDocument, when: When, clock: &Clock, to: Screen) -> Vec<Cell> {
    let (status, at) = (action.status, action.changed_at());
    let first = match when {
        When::Ago => clock.age(at).map_or_else(|| "now".to_owned(), |age| format!("{age} ago")),
        When::Time => clock.cell(at, to),
    };
    vec![(Tone::Faint, first), (tone(status), status.to_string()), (Tone::Strong, words_beside_status(action))]
}

/// An action in words without a status in front, for a row that has the status in a cell of its own.
fn words_beside_status(action: &ActionDocument) -> String {
    let words = action.words();
    let status = if action.status == ActionStatus::Timeout { "timed out" } else { action.status.name() };
    let bare = words.strip_prefix(status).and_then(|rest| rest.strip_prefix(": "));
    bare.map(str::to_owned).unwrap_or(words)
}

fn tone(status: ActionStatus) -> Tone {
    match status {
        ActionStatus::Completed => Tone::Good,
        ActionStatus::Failed | ActionStatus::Timeout => Tone::Bad,
        ActionStatus::Pending => Tone::Warning,
        ActionStatus::Running
        | ActionStatus::Declined
        | ActionStatus::Interrupted
        | ActionStatus::Cancelled
        | ActionStatus::Newer(_) => Tone::Faint,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn action(
        kind: &str,
        summary: &str,
        status: &str,
        item: Option<&str>,
        began: &str,
        ended: Option<&str>,
    ) -> ActionDocument {
        let time = |second: &str| format!("2026-01-02T03:04:{second}.000Z");
        let action = json!({
            "action_kind": kind, "summary_text": summary, "status": status, "item_id": item, "session_id": "s",
            "source_provider": "codex-app", "started_at": time(began), "ended_at": ended.map(time),
        });
        serde_json::from_value(action).expect("an action")
    }

    #[test]
    fn a_row_shows_action_and_outcome() {
        let clock = Clock::stopped("2026-01-02T03:06:07Z");
        let check = |action: ActionDocument, expect: &str| {
            let row = cells(&action, When::Ago, &clock, Screen::None);
            assert_eq!(table(When::Ago, None, &clock, Screen::None).add(vec![row]), expect);
        };
        check(
            action("command", "Failed: cargo test (exit 1)", "failed", None, "05", Some("07")),
            "2m ago  failed  ran cargo test (exit 1)\n",
        );
        check(
            action("command", "Declined: rm -rf build", "declined", None, "05", Some("07")),
            "2m ago  declined  rm -rf build\n",
        );
        check(action("command", "Timed out: make", "timeout", None, "05", Some("07")), "2m ago  timeout  make\n");
        check(
            action("approval", "Approval declined: ls: a", "completed", None, "05", Some("07")),
            "2m ago  completed  Approval declined: ls: a\n",
        );
        check(
            action("file_change", "Started: a: b", "running", None, "05", None),
            "2m 2s ago  running  changes a: b\n",
        );
        check(
            action("approval", "Approval requested: make\u{1b}", "pending", None, "05", None),
            "2m 2s ago  pending  Approval requested: make\u{fffd}\n",
        );
        check(action("tool", "Completed", "completed", None, "05", Some("07")), "2m ago  completed  Completed\n");
    }

    #[test]
    fn limit_counts_actions_of_all_sessions() {
        let session = |id: &str| Found {
            id: id.to_owned(),
            dir: id.into(),
            live: false,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let at = |began: &str, ended: Option<&str>| action("command", began, "completed", None, began, ended);
        let (a, b) = (session("a"), session("b"));
        let listed =
            [(&a, vec![at("01", Some("04")), at("05", None)]), (&b, vec![at("02", Some("03")), at("06", None)])];
        let check = |limit: u64, expect: &[(&str, &str)]| {
            let last: Vec<(&str, &str)> = last_of(&listed, limit)
                .into_iter()
                .map(|(session, action)| (&*session.id, &*action.summary_text))
                .collect();
            assert_eq!(last, expect);
        };
        check(10, &[("b", "02"), ("a", "01"), ("a", "05"), ("b", "06")]);
        check(2, &[("a", "05"), ("b", "06")]);
    }

    #[test]
    fn clock_that_jumps_keeps_the_order_of_a_session() {
        let session = |id: &str| Found {
            id: id.to_owned(),
            dir: id.into(),
            live: false,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let (a, b) = (session("a"), session("b"));
        for (of_a, of_b, expect) in [
            (&["01", "05"][..], &["02", "06"][..], "01 02 05 06"),
            (&["50", "05"], &["02", "06"], "02 50 05 06"),
            (&["50", "05", "40", "10"], &["07"], "50 05 07 40 10"),
            (&["50", "05"], &["40", "03"], "40 03 50 05"),
        ] {
            let of = |times: &[&str]| -> Vec<ActionDocument> {
                times.iter().map(|at| action("command", at, "completed", None, "00", Some(at))).collect()
            };
            let listed = [(&a, of(of_a)), (&b, of(of_b))];
            let order: Vec<&str> = last_of(&listed, 10).into_iter().map(|(_, action)| &*action.summary_text).collect();
            assert_eq!(order.join(" "), expect, "{of_a:?} {of_b:?}");
        }
    }

    #[test]
    fn followed_list_names_the_zone_once() {
        let clock = Clock::stopped("2026-01-02T03:06:07Z");
        let done = action("command", "Completed: ls", "completed", None, "05", Some("07"));
        let row = || cells(&done, When::Time, &clock, Screen::Plain);
        let mut followed = table(When::Time, None, &clock, Screen::Plain);
        let first = followed.add(vec![row()]);
        assert_eq!(first, "TIME (UTC)  STATUS     ACTION\n03:04:07    completed  ran ls\n");
        assert_eq!(followed.add(vec![row()]), "03:04:07    completed  ran ls\n");
        let piped = cells(&done, When::Time, &clock, Screen::None);
        assert_eq!(piped[0].1, "2026-01-02T03:04:07Z");
    }

    #[test]
    fn each_state_is_printed_once() {
        let mut known = KnownActions::default();
        let mut check = |actions: &[ActionDocument], expect: &[&str]| {
            let new: Vec<&str> = known.learn(actions).iter().map(|action| &*action.summary_text).collect();
            assert_eq!(new, expect);
        };
        let begun = action("command", "Started: a", "running", Some("i"), "05", None);
        let asked = |second: &str, status: &str| action("approval", second, status, Some("i"), second, None);
        check(std::slice::from_ref(&begun), &["Started: a"]);
        check(&[begun.clone(), asked("06", "completed"), asked("07", "pending")], &["06", "07"]);
        check(&[begun.clone(), asked("06", "completed"), asked("07", "pending")], &[]);
        // The end of an item can correct its start.
        let ended = action("command", "Completed: a", "completed", Some("i"), "04", Some("09"));
        check(&[asked("06", "completed"), asked("07", "completed"), ended.clone()], &["07", "Completed: a"]);
        check(&[asked("06", "completed"), asked("07", "completed"), ended], &[]);
    }
}
