//! `codex-shim usage`: the tokens, time, commands and requests of turns, over all sessions.

mod budget;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::offline::{self, Read};
use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, Clock, Screen, Times, Tone};
use super::select_session::{self, SessionWord};
use super::since::SinceFlag;
use super::table::{Cell, Column, Table};
use super::{CliError, Done, say};
use crate::api::{
    Identities, Moment, RateLimitDocument, SessionUsage, ThreadIdentityDocument, ThreadUsage, Tokens, TurnUsage,
    UsageDocument, UsageQuery, Used,
};
use crate::config::{Environment, Price};
use crate::control::RequestOrigin;
use crate::hub;
use crate::protocol::ThreadKind;
use crate::store::{ChoiceError, Found, label, short, short_id};
use crate::text::short as compact;
use budget::{Cost, Today};

/// Width of the longest bar.
const BAR_COLUMNS: usize = 12;

/// Narrower screens have no bars.
const BARS_FROM_COLUMNS: usize = 60;

/// Parts of a bar's column, from an eighth on.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Show the tokens, time, commands and requests of turns
///
/// Counts the turns of all sessions, or of one. The tokens of a thread's turns add up to the total that codex reports. Tokens
/// that a thread used before its first record, or while codex ran without codex-shim, have a row of their own. Sums leave that
/// row out.
#[derive(Debug, Args)]
#[command(after_long_help = "\
INPUT includes CACHED, and OUTPUT includes REASONING, as codex counts. WAITING
is the time of turns with an open request to a human, WORKING the rest of their
time. COMMANDS counts commands that ended, REQUESTS approvals and questions.
ANSWERED BY says who ended these.

Exit status: 0, or 1 if a session could not be read, or 3 if there is no such
session.

Examples:
  codex-shim usage
  codex-shim usage --by model --since 30d
  codex-shim usage --by project --since 30d
  codex-shim usage work --by turn
  codex-shim usage --json | jq .total.total_tokens")]
pub(super) struct UsageArguments {
    #[command(flatten)]
    session: SessionWord,
    /// One row for each of these
    #[arg(long, value_enum, value_name = "WHAT", default_value = "day")]
    by: By,
    #[command(flatten)]
    since: SinceFlag,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

/// The meaning of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Day,
    Session,
    Thread,
    Turn,
    Client,
    Model,
    /// The folder that the thread works in
    Folder,
    /// The branch on which the thread began
    Branch,
    /// The repository that the one of the folder is a copy of
    Project,
}

/// A session and its usage.
struct Counted<'a> {
    session: &'a Found,
    usage: SessionUsage,
    /// Who its threads are.
    threads: Identities,
}

impl Counted<'_> {
    /// Whose thread a turn belongs to.
    fn kind(&self, turn: &TurnUsage) -> ThreadKind {
        self.thread(turn).map(|thread| thread.kind).unwrap_or_default()
    }

    fn thread(&self, turn: &TurnUsage) -> Option<&ThreadIdentityDocument> {
        self.threads.get(turn.thread_id.as_ref()?)
    }

    /// The folder of a turn's thread.
    fn folder(&self, turn: &TurnUsage) -> Option<&str> {
        self.thread(turn)?.cwd.as_deref()
    }

    /// The branch of a turn's thread, and the project, as codex has told them.
    fn branch(&self, turn: &TurnUsage) -> Option<&str> {
        self.thread(turn)?.place.as_ref()?.branch.as_deref()
    }

    fn project(&self, turn: &TurnUsage) -> Option<&str> {
        self.thread(turn)?.place.as_ref()?.remote.as_deref()
    }
}

/// A row: turns that belong together.
#[derive(Debug, Default)]
struct Group {
    /// The members of its document that name it.
    names: Map<String, Value>,
    kind: ThreadKind,
    session: usize,
    used: Used,
    cost: Cost,
}

/// Prints the usage.
pub(super) fn run(arguments: &UsageArguments, environment: &Environment) -> Done {
    let found = select_session::listed(arguments.session.name(), environment)?;
    let since = arguments.since.get();
    let query = UsageQuery { since: since.map(|since| Moment(since.micros())) };
    let door = offline::door(environment);
    let progress = Progress::new("reading sessions", found.len() as u64);
    let read = select_session::at_once(&found, |session| {
        let read = Read::through(door, session.clone()).query_recorded(&query);
        progress.advance(1);
        read
    });
    drop(progress);
    let (mut counted, mut worst) = (Vec::new(), 0);
    for (session, read) in found.iter().zip(read) {
        match read {
            Ok(Some(UsageDocument { usage, identities: threads })) => counted.push(Counted { session, usage, threads }),
            Ok(None) => {
                let usage = SessionUsage { from_start: true, ..SessionUsage::default() };
                counted.push(Counted { session, usage, threads: Identities::new() });
            }
            Err(error) if found.len() == 1 => return Err(error.into()),
            Err(error) => worst = worst.max(CliError::from(error).report()),
        }
    }
    let clock = Clock::of(&arguments.times);
    let settings = budget::settings(environment);
    let prices = &settings.prices.value;
    let groups = groups(&counted, arguments.by, prices, &clock);
    let today = Today::of(&settings);
    for why in &today.unread {
        say(&format!("the tokens of a session do not count for the budget: {why}"));
    }
    let notes = notes(&counted, &clock);
    if arguments.json {
        let mut document =
            document(arguments.by, &counted, (&groups, !prices.is_empty()), &notes, since.map(|since| since.rfc3339()));
        document.insert("budget".to_owned(), json!(today.documents()));
        return Ok(worst.max(print_json(&document)));
    }
    if found.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    } else if groups.is_empty() && worst == 0 {
        say("no turns are on record; see `codex-shim sessions`");
    }
    notes.iter().for_each(|note| say(note));
    let all = select_session::all_quietly(environment)?;
    let shown = UsageTable {
        by: arguments.by,
        counted: &counted,
        groups: &groups,
        all: &all,
        clock: &clock,
        today: &today,
        has_costs: !prices.is_empty(),
    };
    let to = Screen::of_stdout(environment);
    Ok(worst.max(screen::print(&shown.text(to, screen::columns(to), since.is_none()))))
}

/// The turns in groups, in the order of the rows. Threads that no person speaks in have groups of their own.
fn groups(counted: &[Counted<'_>], by: By, prices: &[Price], clock: &Clock) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<GroupKey<'_>, usize> = HashMap::new();
    for (number, of_session) in counted.iter().enumerate() {
        for turn in &of_session.usage.turns {
            let kind = of_session.kind(turn);
            let new = |groups: &mut Vec<Group>| {
                let mut names = names(by, of_session, turn, clock);
                names.insert("kind".to_owned(), json!(kind));
                groups.push(Group { names, kind, session: number, used: Used::default(), cost: Cost::default() });
                groups.len() - 1
            };
            let at = match key(by, of_session, turn, clock) {
                Some(parts) => *known.entry((kind, parts)).or_insert_with(|| new(&mut groups)),
                None => new(&mut groups),
            };
            groups[at].used.add(&turn.used);
            groups[at].cost.add(prices, turn);
        }
    }
    match by {
        // The days of several sessions mix. Turns whose day is not known come first.
        By::Day => groups.sort_by_key(|group| (group.names["day"].as_str().map(str::to_owned), group.kind)),
        By::Client | By::Model | By::Folder | By::Branch | By::Project => {
            groups.sort_by_key(|group| std::cmp::Reverse(group.used.tokens.total_tokens))
        }
        By::Session | By::Thread | By::Turn => {}
    }
    groups
}

/// What turns of one group have in common, besides the kind of their threads.
type Parts<'a> = [Option<Cow<'a, str>>; 2];

type GroupKey<'a> = (ThreadKind, Parts<'a>);

/// The key of the group of a turn; `None` if each turn is a group.
fn key<'a>(by: By, counted: &'a Counted<'_>, turn: &'a TurnUsage, clock: &Clock) -> Option<Parts<'a>> {
    let session = counted.session;
    let one = |text: Option<&'a str>| [text.map(Cow::Borrowed), None];
    Some(match by {
        By::Day => [clock.day(&turn.began_at).filter(|_| !turn.older).map(Cow::Owned), None],
        By::Session => one(Some(&session.id)),
        By::Thread => [Some(Cow::Borrowed(&session.id)), turn.thread_id.as_deref().map(Cow::Borrowed)],
        By::Turn => return None,
        By::Client => one(turn.client.as_deref()),
        By::Model => one(turn.model.as_deref()),
        By::Folder => one(counted.folder(turn)),
        By::Project => one(counted.project(turn)),
        // Branches of one name in two projects are two.
        By::Branch => {
            let of = counted.project(turn).or_else(|| counted.folder(turn));
            [counted.branch(turn).map(Cow::Borrowed), of.map(Cow::Borrowed)]
        }
    })
}

fn is_hub(session: &Found) -> bool {
    session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place))
}

/// The name of a session. A hub has none of a folder, since its threads work in many.
fn name_of(session: &Found) -> String {
    if is_hub(session) { "hub".to_owned() } else { label(session) }
}

/// The members that name the group of a turn.
fn names(by: By, counted: &Counted<'_>, turn: &TurnUsage, clock: &Clock) -> Map<String, Value> {
    let Counted { session, threads, .. } = counted;
    let TurnUsage { thread_id, turn_id, client, model, began_at, outcome, older, used: _ } = turn;
    let of_thread = || {
        let thread = thread_id.as_ref().and_then(|id| threads.get(id)).cloned().unwrap_or_default();
        let title = thread.title.clone();
        let is_lost = is_hub(session) && thread.cwd.is_none();
        let RequestOrigin { name, cwd, .. } = RequestOrigin::of_thread(session, thread);
        let name = if is_lost { name_of(session) } else { name };
        let cwd = Some(cwd).filter(|cwd| !cwd.is_empty() && !is_lost);
        json!({ "session_id": session.id, "thread_id": thread_id, "name": name, "cwd": cwd, "title": title })
    };
    let mut names = match by {
        By::Day => json!({ "day": clock.day(began_at).filter(|_| !older) }),
        By::Session => json!({ "session_id": session.id, "name": name_of(session) }),
        By::Thread | By::Turn => of_thread(),
        By::Client => json!({ "client": client }),
        By::Model => json!({ "model": model }),
        By::Folder => json!({ "cwd": counted.folder(turn) }),
        By::Project => json!({ "project": counted.project(turn) }),
        By::Branch => {
            let project = counted.project(turn);
            // Threads of one project may have several folders.
            let cwd = counted.folder(turn).filter(|_| project.is_none());
            json!({ "branch": counted.branch(turn), "project": project, "cwd": cwd })
        }
    };
    if by == By::Turn {
        let of_turn = [
            ("turn_id", json!(turn_id)),
            ("began_at", json!(began_at)),
            ("outcome", json!(outcome)),
            ("client", json!(client)),
            ("model", json!(model)),
            ("older", json!(older)),
        ];
        of_turn.into_iter().for_each(|(name, value)| names[name] = value);
    }
    object(&names)
}

/// Notes about unknown usage, in words.
fn notes(counted: &[Counted<'_>], clock: &Clock) -> Vec<String> {
    let mut notes = Vec::new();
    for Counted { session, usage, .. } in counted {
        if let (Some(since), false) = (&usage.counted_since, usage.from_start) {
            notes.push(format!(
                "session {}: usage is counted from {} on; the record has no earlier turns, so what they used is not known",
                session.name(),
                clock.text(since)
            ));
        }
        let wrong = usage.threads.iter().filter(|thread| !thread.adds_up);
        notes.extend(wrong.map(|thread| {
            format!(
                "session {}: the turns of thread {} do not add up to the total of codex; please report this",
                session.name(),
                thread.thread_id
            )
        }));
    }
    notes
}

fn document(
    by: By,
    counted: &[Counted<'_>],
    (groups, has_costs): (&[Group], bool),
    notes: &[String],
    since: Option<String>,
) -> Map<String, Value> {
    #[derive(Serialize)]
    struct OfSession<'a> {
        session_id: &'a str,
        counted_since: Option<&'a str>,
        from_start: bool,
        threads: &'a [ThreadUsage],
        rate_limits: &'a [RateLimitDocument],
    }
    let costs = |cost: Cost| {
        let members = cost.members().into_iter().filter(|_| has_costs);
        members.map(|(name, value)| (name.to_owned(), value)).collect::<Map<String, Value>>()
    };
    let mut total = object(&total(groups));
    total.extend(costs(total_cost(groups)));
    let rows = groups.iter().map(|group| {
        let mut row = group.names.clone();
        row.extend(object(&group.used));
        row.extend(costs(group.cost));
        row
    });
    let sessions = counted.iter().map(|Counted { session, usage, .. }| OfSession {
        session_id: &session.id,
        counted_since: usage.counted_since.as_deref(),
        from_start: usage.from_start,
        threads: &usage.threads,
        rate_limits: &usage.rate_limits,
    });
    let document = json!({
        "by": by,
        "since": since,
        "rows": rows.collect::<Vec<_>>(),
        "total": total,
        "before_record": before(counted.iter().flat_map(|counted| &counted.usage.threads)),
        "rate_limits": last_limits(counted),
        "sessions": sessions.collect::<Vec<_>>(),
        "notes": notes,
    });
    object(&document)
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value).expect("BUG: plain data is JSON") {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn total(groups: &[Group]) -> Used {
    let mut total = Used::default();
    groups.iter().for_each(|group| total.add(&group.used));
    total
}

fn total_cost(groups: &[Group]) -> Cost {
    groups.iter().fold(Cost::default(), |sum, group| sum.plus(group.cost))
}

/// The tokens that threads used outside of the record.
fn before<'a>(threads: impl Iterator<Item = &'a ThreadUsage>) -> Tokens {
    let mut before = Tokens::default();
    for thread in threads {
        before.add(thread.before_record);
        before.add(thread.not_on_record);
    }
    before
}

/// The limits that were reported last.
fn last_limits<'a>(counted: &'a [Counted<'_>]) -> Vec<&'a RateLimitDocument> {
    let mut last: BTreeMap<&str, &RateLimitDocument> = BTreeMap::new();
    for limit in counted.iter().flat_map(|counted| &counted.usage.rate_limits) {
        let known = last.entry(&limit.name).or_insert(limit);
        if known.told_at < limit.told_at {
            *known = limit;
        }
    }
    last.into_values().collect()
}

/// All that is printed for a person or a program that reads columns.
struct UsageTable<'a> {
    by: By,
    counted: &'a [Counted<'a>],
    groups: &'a [Group],
    all: &'a [Found],
    clock: &'a Clock,
    today: &'a Today,
    /// The user has given prices.
    has_costs: bool,
}

impl UsageTable<'_> {
    /// `of_all_time` adds the rows of tokens outside of the record, which have no time.
    fn text(&self, to: Screen, columns_max: Option<usize>, of_all_time: bool) -> String {
        let most = self.groups.iter().map(|group| group.used.tokens.total_tokens).max().unwrap_or(0);
        let has_bars = to != Screen::None && columns_max.is_none_or(|columns_max| columns_max >= BARS_FROM_COLUMNS);
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let bar = if has_bars { bar(group.used.tokens.total_tokens, most) } else { String::new() };
            rows.push(self.row(self.heads_of(group, to), bar, (&group.used, Some(group.cost), group.kind.name()), to));
            let is_last = self.groups.get(at + 1).is_none_or(|next| thread_of(next) != thread_of(group));
            if of_all_time && is_last && matches!(self.by, By::Thread | By::Turn) {
                rows.extend(self.before_row(Some(group), to));
            }
        }
        if of_all_time && !matches!(self.by, By::Thread | By::Turn) {
            rows.extend(self.before_row(None, to));
        }
        if to != Screen::None && self.groups.len() > 1 {
            let mut heads = self.heads().iter().map(|_| (Tone::Plain, String::new())).collect::<Vec<_>>();
            heads[0] = (Tone::Strong, "total".to_owned());
            rows.push(self.row(heads, String::new(), (&total(self.groups), Some(total_cost(self.groups)), ""), to));
        }
        let mut text = Table::within(self.columns(), to, columns_max).add(rows);
        if to != Screen::None {
            text.extend(self.today.lines(to).map(|lines| format!("\n{lines}\n")));
            text.extend(self.limits().map(|limits| format!("\n{limits}\n")));
        }
        text
    }

    fn heads(&self) -> Vec<Column> {
        match self.by {
            By::Day => vec![Column::whole(self.clock.head("DAY"))],
            By::Session => vec![Column::whole("SESSION"), Column::text("NAME").spare()],
            By::Thread => {
                vec![Column::whole("THREAD"), Column::text("SESSION").spare(), Column::text("TITLE").spare()]
            }
            By::Turn => vec![
                Column::whole("TURN"),
                Column::whole(self.clock.head("BEGAN")).spare(),
                Column::whole("THREAD").spare(),
                Column::text("SESSION").spare(),
            ],
            By::Client => vec![Column::text("CLIENT")],
            By::Model => vec![Column::text("MODEL")],
            By::Folder => vec![Column::text("FOLDER")],
            By::Project => vec![Column::text("PROJECT")],
            By::Branch => vec![Column::text("BRANCH"), Column::text("PROJECT").spare()],
        }
    }

    /// Whether rows name the kind of their threads: only if some are not of persons.
    fn has_kinds(&self) -> bool {
        self.groups.iter().any(|group| !group.kind.is_user())
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = self.heads();
        columns.push(Column::whole("").spare());
        columns.extend(self::columns());
        columns.extend(self.has_costs.then(|| Column::number("COST")));
        columns.push(Column::number("REASONING").spare());
        columns.push(Column::text("ANSWERED BY").spare());
        columns.extend(self.has_kinds().then(|| Column::whole("KIND")));
        columns
    }

    fn heads_of(&self, group: &Group, to: Screen) -> Vec<Cell> {
        let name = |name: &str| group.names.get(name).and_then(Value::as_str);
        let session = self.counted[group.session].session;
        // A program splits columns at blanks, which names and titles have.
        let session_cell = || match to {
            Screen::None => session.id.clone(),
            Screen::Coloured | Screen::Plain => name("name").unwrap_or_default().to_owned(),
        };
        let title = || match to {
            Screen::None => String::new(),
            Screen::Coloured | Screen::Plain => name("title").unwrap_or_default().to_owned(),
        };
        let short_of = |id: Option<&str>, otherwise: &str| match (id, to) {
            (None, _) => otherwise.to_owned(),
            (Some(id), Screen::None) => id.to_owned(),
            (Some(id), Screen::Coloured | Screen::Plain) => short_id(id, self.ids().map(|id| (id, None))).to_owned(),
        };
        let is_older = group.names.get("older") == Some(&Value::Bool(true));
        let cells = match self.by {
            By::Day => vec![name("day").unwrap_or("older").to_owned()],
            By::Session if to == Screen::None => vec![session.id.clone(), String::new()],
            By::Session => vec![short(session, self.all).to_owned(), name_of(session)],
            By::Thread => vec![short_of(name("thread_id"), "-"), session_cell(), title()],
            By::Turn => vec![
                short_of(name("turn_id"), if is_older { "older" } else { "-" }),
                self.clock.cell(name("began_at").unwrap_or_default(), to),
                short_of(name("thread_id"), "-"),
                session_cell(),
            ],
            By::Client => vec![name("client").unwrap_or("-").to_owned()],
            By::Model => vec![name("model").unwrap_or("-").to_owned()],
            By::Folder => vec![name("cwd").unwrap_or("unknown").to_owned()],
            By::Project => vec![name("project").unwrap_or("unknown").to_owned()],
            By::Branch => {
                let of = name("project").or_else(|| name("cwd")).unwrap_or("unknown");
                vec![name("branch").unwrap_or("unknown").to_owned(), of.to_owned()]
            }
        };
        let tones = std::iter::once(Tone::Strong).chain(std::iter::repeat(Tone::Faint));
        tones.zip(cells).collect()
    }

    /// All ids of threads and turns, among which a short one is unique.
    fn ids(&self) -> impl Iterator<Item = &str> + Clone {
        let ids = self.groups.iter().flat_map(|group| ["thread_id", "turn_id"].map(|name| group.names.get(name)));
        ids.flatten().filter_map(Value::as_str)
    }

    /// A row; `kind` names the kind of its threads.
    fn row(
        &self,
        heads: Vec<Cell>,
        bar: String,
        (used, cost, kind): (&Used, Option<Cost>, &str),
        to: Screen,
    ) -> Vec<Cell> {
        let answered = used.answered_by.named().into_iter().filter(|(_, count)| *count > 0);
        let answered: Vec<String> = answered.map(|(by, count)| format!("{by}:{count}")).collect();
        let mut row = heads;
        row.push((Tone::Good, bar));
        row.extend(cells(used, to));
        let cost = cost.map_or_else(|| "-".to_owned(), Cost::text);
        row.extend(self.has_costs.then_some((Tone::Plain, cost)));
        row.push((Tone::Plain, count(used.tokens.reasoning_output_tokens, to)));
        row.push((Tone::Plain, if answered.is_empty() { "-".to_owned() } else { answered.join(",") }));
        row.extend(self.has_kinds().then(|| (Tone::Plain, kind.to_owned())));
        row
    }

    /// The row of tokens outside of the record: of the thread of `group`, or of all threads. Sums leave it out.
    fn before_row(&self, group: Option<&Group>, to: Screen) -> Option<Vec<Cell>> {
        let of = |group: &Group| {
            let thread_id = group.names.get("thread_id").and_then(Value::as_str);
            let threads = self.counted[group.session].usage.threads.iter();
            before(threads.filter(|thread| Some(&*thread.thread_id) == thread_id))
        };
        let all = || before(self.counted.iter().flat_map(|counted| &counted.usage.threads));
        let tokens = group.map_or_else(all, of);
        if tokens == Tokens::default() {
            return None;
        }
        let mut heads = match group {
            Some(group) => self.heads_of(group, to),
            None => self.heads().iter().map(|_| (Tone::Plain, String::new())).collect(),
        };
        // The first cell has no space for a program that splits columns.
        let words = if to == Screen::None { "before-record" } else { "before the record" };
        heads[0] = (Tone::Faint, words.to_owned());
        let used = Used { tokens, ..Used::default() };
        let kind = group.map_or("", |group| group.kind.name());
        let row = self.row(heads, String::new(), (&used, None, kind), to);
        Some(row.into_iter().map(|(_, cell)| (Tone::Faint, cell)).collect())
    }

    fn limits(&self) -> Option<String> {
        let limits = last_limits(self.counted);
        let told_at = limits.iter().map(|limit| &limit.told_at).max()?;
        let each = limits.iter().map(|limit| {
            let window = limit.window_minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
            let window = window.map_or_else(String::new, |it| format!(" of {}", humantime::format_duration(it)));
            let resets = limit.resets_at.as_deref().map(|at| format!(", resets {}", self.clock.text(at)));
            format!("{} %{window} used{}", limit.used_percent, resets.unwrap_or_default())
        });
        let age = self.clock.age(told_at).unwrap_or_default();
        Some(format!("rate limits, as told {age} ago: {}", each.collect::<Vec<_>>().join("; ")))
    }
}

/// The columns of numbers that every table of usage has.
pub(super) fn columns() -> Vec<Column> {
    let spare = ["CACHED", "WORKING", "WAITING", "COMMANDS", "REQUESTS"].map(|head| Column::number(head).spare());
    ["TURNS", "INPUT", "OUTPUT"].map(Column::number).into_iter().chain(spare).collect()
}

/// The cells in these columns.
pub(super) fn cells(used: &Used, to: Screen) -> Vec<Cell> {
    let time = |ms: u64| match to {
        Screen::None => format!("{:.3}", ms as f64 / 1_000.0),
        Screen::Coloured | Screen::Plain => crate::text::lasted(ms.saturating_mul(1_000)),
    };
    let numbers = [
        used.turns.to_string(),
        count(used.tokens.input_tokens, to),
        count(used.tokens.output_tokens, to),
        count(used.tokens.cached_input_tokens, to),
        time(used.working_ms),
        time(used.waiting_ms),
        used.commands.to_string(),
        used.requests.to_string(),
    ];
    numbers.map(|number| (Tone::Plain, number)).into()
}

fn count(count: u64, to: Screen) -> String {
    if to == Screen::None { count.to_string() } else { compact(count) }
}

/// The session and the thread of a group.
fn thread_of(group: &Group) -> (usize, Option<&Value>) {
    (group.session, group.names.get("thread_id"))
}

/// A bar whose length shows the part of the longest one.
fn bar(tokens: u64, most: u64) -> String {
    let eighths = match most {
        0 => 0,
        most => (u128::from(tokens) * (BAR_COLUMNS * 8) as u128).div_ceil(u128::from(most)) as usize,
    };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;

    use super::*;
    use crate::api::{Answered, ThreadIdentityDocument};
    use crate::history::{ThreadClient, ThreadIdentity};
    use crate::protocol::ThreadDescription;
    use crate::store::Holder;

    #[test]
    fn bars_are_shares_of_the_longest() {
        let check = |tokens: u64, most: u64, expect: &str| assert_eq!(bar(tokens, most), expect);
        check(0, 0, "");
        check(0, 9, "");
        check(1, u64::MAX, "▏");
        check(50, 100, "██████");
        check(u64::MAX, u64::MAX, "████████████");
    }

    fn found(id: &str) -> Found {
        Found {
            dir: PathBuf::from(id),
            id: id.to_owned(),
            live: false,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    fn tokens(input: u64) -> Tokens {
        Tokens { input_tokens: input, output_tokens: input / 10, total_tokens: input + input / 10, ..Tokens::default() }
    }

    fn turn(thread: &str, turn: &str, began_at: &str, input: u64) -> TurnUsage {
        let answered_by = Answered { tui: 1, ..Answered::default() };
        TurnUsage {
            thread_id: Some(thread.to_owned()),
            turn_id: Some(turn.to_owned()),
            client: Some("editor".to_owned()),
            model: Some("m-1".to_owned()),
            began_at: began_at.to_owned(),
            outcome: Some("completed".to_owned()),
            older: false,
            used: Used {
                turns: 1,
                tokens: tokens(input),
                working_ms: 61_000,
                waiting_ms: 5_000,
                commands: 2,
                requests: 1,
                answered_by,
            },
        }
    }

    fn usage() -> SessionUsage {
        SessionUsage {
            counted_since: Some("2026-11-01T00:00:00.000Z".to_owned()),
            from_start: false,
            turns: vec![
                turn("t", "u", "2026-11-01T09:00:00.000Z", 12_300),
                turn("t", "v", "2026-11-02T09:00:00.000Z", 100),
            ],
            threads: vec![ThreadUsage {
                thread_id: "t".to_owned(),
                codex_total: tokens(12_900),
                turns: tokens(12_400),
                before_record: tokens(500),
                not_on_record: Tokens::default(),
                set_back: Tokens::default(),
                adds_up: true,
            }],
            rate_limits: vec![RateLimitDocument {
                name: "primary".to_owned(),
                told_at: "2026-11-02T11:00:00.000Z".to_owned(),
                used_percent: 23,
                window_minutes: Some(300),
                resets_at: Some("2026-11-02T14:00:00.000Z".to_owned()),
            }],
        }
    }

    fn identities(kind: ThreadKind) -> Identities {
        let (cwd, title) = (Some("/proj".to_owned()), Some("Fix it".to_owned()));
        let description = ThreadDescription { kind, cwd, title, ..ThreadDescription::default() };
        let client = Some(ThreadClient { name: "tui".to_owned(), ..ThreadClient::default() });
        let thread = ThreadIdentity { description, client, last_used_us: 0 };
        BTreeMap::from([("t".to_owned(), ThreadIdentityDocument::recorded(thread))])
    }

    fn shown(by: By, to: Screen, columns_max: Option<usize>) -> String {
        shown_of(Identities::new(), by, to, columns_max)
    }

    fn shown_of(threads: Identities, by: By, to: Screen, columns_max: Option<usize>) -> String {
        let session = found("work");
        let mut usage = usage();
        usage.turns.extend((!threads.is_empty()).then(|| turn("x", "w", "2026-11-02T10:00:00.000Z", 700)));
        let counted = [Counted { session: &session, usage, threads }];
        let clock = Clock::stopped("2026-11-02T12:00:00Z");
        let groups = groups(&counted, by, &[], &clock);
        let all = [session.clone()];
        UsageTable {
            by,
            counted: &counted,
            groups: &groups,
            all: &all,
            clock: &clock,
            today: &Today::default(),
            has_costs: false,
        }
        .text(to, columns_max, true)
    }

    fn check(by: By, to: Screen, columns_max: Option<usize>, expect: &str) {
        assert_eq!(shown(by, to, columns_max), expect);
    }

    #[test]
    fn wide_screens_have_bars() {
        check(
            By::Day,
            Screen::Plain,
            Some(80),
            "DAY (UTC)                        TURNS  INPUT  OUTPUT  CACHED  WORKING  WAITING\n\
             2026-11-01         ████████████      1  12.3k    1.2k       0   1m 01s       5s\n\
             2026-11-02         ▏                 1    100      10       0   1m 01s       5s\n\
             before the record                    0    500      50       0       0s       0s\n\
             total                                2  12.4k    1.2k       0   2m 02s      10s\n\
             \nrate limits, as told 1h ago: 23 % of 5h used, resets 14:00:00 UTC\n",
        );
    }

    #[test]
    fn threads_of_no_person_have_rows_of_their_own() {
        let title = || identities(ThreadKind::Title);
        let day = shown_of(title(), By::Day, Screen::Plain, Some(60));
        let rows: Vec<&str> = day.lines().filter(|line| line.starts_with("2026-11-02")).collect();
        assert!(rows.len() == 2 && rows[0].ends_with("  user") && rows[1].ends_with("  title"), "{day}");
        let thread = shown_of(title(), By::Thread, Screen::Plain, Some(120));
        let of_user = thread.lines().find(|line| line.starts_with("x ")).expect("the other thread");
        assert!(thread.contains("proj (tui)  Fix it ") && of_user.ends_with("  user"), "{thread}");
        assert!(of_user.contains(" work "), "{thread}");
        let session = found("work");
        let clock = Clock::stopped("2026-11-02T12:00:00Z");
        let counted = [Counted { session: &session, usage: usage(), threads: title() }];
        for by in [By::Day, By::Session, By::Thread, By::Turn, By::Client, By::Model] {
            let groups = groups(&counted, by, &[], &clock);
            assert!(groups.iter().all(|group| group.names["kind"] == "title"), "{groups:?}");
        }
    }

    /// Each key divides the same turns.
    #[test]
    fn sums_are_the_same_by_every_key() {
        let identity = |cwd: &str, branch: Option<&str>, remote: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let (cwd, branch, remote) = (text(Some(cwd)), text(branch), text(remote));
            let description = ThreadDescription { cwd, branch, remote, ..ThreadDescription::default() };
            ThreadIdentityDocument::recorded(ThreadIdentity { description, client: None, last_used_us: 0 })
        };
        let threads: Identities = [
            ("a", identity("/p", Some("main"), Some("example.org/p"))),
            ("b", identity("/p/sub", Some("main"), Some("example.org/p"))),
            ("c", identity("/q", Some("main"), None)),
            ("d", identity("/p", Some("work"), Some("example.org/p"))),
        ]
        .map(|(id, identity)| (id.to_owned(), identity))
        .into();
        let session = found("work");
        let mut usage = usage();
        let turns = ["a", "b", "c", "d", "nobody knows"].iter().enumerate();
        usage.turns = turns.map(|(at, thread)| turn(thread, "u", "2026-11-02T10:00:00.000Z", 100 << at)).collect();
        let counted = [Counted { session: &session, usage, threads }];
        let clock = Clock::stopped("2026-11-02T12:00:00Z");
        let inputs = |by: By, name: &str| -> Vec<(Value, u64)> {
            let groups = groups(&counted, by, &[], &clock).into_iter();
            groups.map(|group| (group.names[name].clone(), group.used.tokens.input_tokens)).collect()
        };
        assert_eq!(
            inputs(By::Folder, "cwd"),
            [(Value::Null, 1600), (json!("/p"), 900), (json!("/q"), 400), (json!("/p/sub"), 200)]
        );
        assert_eq!(inputs(By::Project, "project"), [(Value::Null, 2000), (json!("example.org/p"), 1100)]);
        assert_eq!(
            inputs(By::Branch, "branch"),
            [(Value::Null, 1600), (json!("work"), 800), (json!("main"), 400), (json!("main"), 300)]
        );
        for by in By::value_variants() {
            let groups = groups(&counted, *by, &[], &clock);
            assert_eq!(total(&groups).tokens.input_tokens, 3100, "{by:?}");
            assert_eq!(total(&groups).turns, 5, "{by:?}");
        }
    }

    #[test]
    fn hub_has_no_folder_of_its_own() {
        let place = hub::place(Path::new("/home/.codex"), None);
        let holder = Holder { pid: 1, started_at: String::new(), client: None, place };
        let session = Found { holder: Some(holder), ..found("work") };
        let clock = Clock::stopped("2026-11-02T12:00:00Z");
        let mut usage = usage();
        usage.turns.push(turn("x", "w", "2026-11-02T10:00:00.000Z", 700));
        let counted = [Counted { session: &session, usage, threads: identities(ThreadKind::User) }];
        let names = |by: By| {
            let groups = groups(&counted, by, &[], &clock);
            groups
                .into_iter()
                .map(|group| [&group.names["name"], &group.names["session_id"]].map(Value::to_string))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(By::Session), [["\"hub\"", "\"work\""]]);
        assert_eq!(names(By::Thread), [["\"proj (tui)\"", "\"work\""], ["\"hub\"", "\"work\""]]);
        let groups = groups(&counted, By::Session, &[], &clock);
        let all = [session.clone()];
        let shown = UsageTable {
            by: By::Session,
            counted: &counted,
            groups: &groups,
            all: &all,
            clock: &clock,
            today: &Today::default(),
            has_costs: false,
        };
        let text = shown.text(Screen::Plain, Some(120), true);
        let row = text.lines().find(|line| line.starts_with("work ")).expect("its row");
        assert_eq!(row.split_whitespace().nth(1), Some("hub"), "{text}");
    }

    #[test]
    fn narrow_screens_have_no_bars() {
        for by in [By::Day, By::Session, By::Thread, By::Turn, By::Client, By::Model] {
            let text = shown(by, Screen::Plain, Some(40));
            assert!(!text.contains('█') && text.contains("before the record"), "{text}");
        }
    }

    #[test]
    fn programs_get_whole_numbers() {
        check(
            By::Thread,
            Screen::None,
            None,
            "t              work  2  12400  1240  0  122.000  10.000  4  2  0  tui:2\n\
             before-record  work  0    500    50  0    0.000   0.000  0  0  0  -\n",
        );
    }

    #[test]
    fn missing_start_is_noted_in_words() {
        let session = found("work");
        let clock = Clock::stopped("2026-11-02T12:00:00Z");
        let note = |usage: SessionUsage| {
            let threads = Identities::new();
            notes(&[Counted { session: &session, usage, threads }], &clock).join("\n")
        };
        assert!(note(usage()).contains("counted from 2026-11-01 00:00:00 UTC on"), "{}", note(usage()));
        assert_eq!(note(SessionUsage { from_start: true, ..usage() }), "");
        assert_eq!(note(SessionUsage::default()), "");
    }
}
