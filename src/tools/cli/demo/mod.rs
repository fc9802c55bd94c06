//! `codex-shim demo`: shows the features in a few seconds, installs nothing and leaves nothing behind.
//!
//! Plays a bundled tape of the real codex behind a relay to a small client, or behind a hub to two. Every figure is measured in
//! that run; if a promise is not kept, the demo fails. Prints text in 80 columns, or one JSON document.

mod client;
mod hub;
mod message;
mod websocket;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use client::{Client, PATIENCE};
use message::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Done;
use super::requests::print_json;
use super::screen::{self, Screen, Tone, plain};
use crate::api::{
    self, ActionsDocument, ActionsQuery, Cursor, DeliveriesDocument, DeliveriesQuery, EVENTS_MAX, EventPage,
    EventsQuery, OneRequest, Query, Requests, WhichRequests,
};
use crate::config::{Environment, setting_variables};
use crate::control::client::{self as side, Caller};
use crate::engine::{self, MARKER_END, MARKER_START, PushedCommand, without_shell};
use crate::files;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Origin, Record};
use crate::os::launch;
use crate::protocol::Method;
use crate::wire::Side;

/// Show what codex-shim does, in a few seconds
///
/// It needs nothing installed: it plays a bundled recording of the real codex behind a relay to a small client, or behind a
/// hub to two, and deletes everything afterwards.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if something does not work as promised.

Examples:
  codex-shim demo
  codex-shim demo --hub
  codex-shim demo --json | jq .held")]
pub(super) struct DemoArguments {
    /// Show the hub: two clients, one request, and kill -9 in between
    #[arg(long)]
    hub: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// The tape: a turn with an approved command.
const TAPE: &[u8] = include_bytes!("../../../../fixtures/tapes/command_approval.jsonl");

/// Playback speed, slow enough to watch.
const PLAYED_TIMES: &str = "1";

const ROUND_TRIPS: usize = 2_000;

/// Lines that must come back before the relay is killed. A build for tests takes half a millisecond for each.
const LINES_BEFORE_KILL: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

/// A result whose error is a message.
type DemoResult<T> = Result<T, String>;

/// Runs the demo; returns the exit status.
pub(super) fn run(arguments: &DemoArguments, environment: &Environment) -> Done {
    launch::keep_descriptors();
    let mut stage = if arguments.json { Stage::kept() } else { Stage::of_stdout(environment) };
    client::listen_for_the_end().map_err(|error| format!("demo: listen for signals: {error}"))?;
    let shown = match arguments.hub {
        false => Folder::new(TAPE).and_then(|folder| show(&folder, &mut stage)),
        true => Folder::new(hub::TAPE).and_then(|folder| hub::show(&folder, &mut stage)),
    };
    let printed = stage.end(shown.as_ref().err().map(String::as_str));
    shown.map_err(|why| format!("demo: {why}"))?;
    Ok(printed)
}

fn show(folder: &Folder, stage: &mut Stage) -> DemoResult<()> {
    stage.title(&format!("codex-shim {}: an editor, a terminal, and a recorded codex", env!("CARGO_PKG_VERSION")));
    let received = a_turn(folder, stage)?;
    on_record(folder, stage, &received)?;
    cost(folder, stage)?;
    a_kill(folder, stage)?;
    a_server_again(folder, stage, &received)?;
    stage.heading("Now yours");
    stage.row("codex-shim wrap vscode", "put it in front of your tool (wrap lists the tools)");
    stage.row("codex-shim doctor", "check codex, PATH, disk, databases and shells");
    stage.row("codex-shim --help", "every command, with examples");
    Ok(())
}

/// The temporary folder of the demo, removed at the end.
struct Folder {
    dir: PathBuf,
    shim: PathBuf,
    tape: PathBuf,
}

impl Folder {
    fn new(tape: &[u8]) -> DemoResult<Folder> {
        let shim = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        // A short name, because the path of a socket is limited.
        let id = uuid::Uuid::now_v7().simple().to_string();
        let dir = std::env::temp_dir().join(format!("codex-shim-{}", &id[24..]));
        let failed = |error| format!("create {}: {error}", dir.display());
        files::create_folder(&dir).map_err(failed)?;
        let folder = Folder { shim, tape: dir.join("tape.jsonl"), dir: dir.clone() };
        files::create_file(&folder.tape).and_then(|mut file| file.write_all(tape)).map_err(failed)?;
        files::create_folder(&folder.dir.join("run")).map_err(failed)?;
        Ok(folder)
    }

    /// `codex-shim ARG…` without the user's settings, with its journal under `name`.
    fn shim(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.shim);
        for variable in setting_variables() {
            command.env_remove(variable);
        }
        command.env("CODEX_SHIM_HOME", self.dir.join(name)).current_dir(&self.dir);
        // Sockets with long paths go here too: a killed relay leaves its socket behind.
        command.env("XDG_RUNTIME_DIR", self.dir.join("run")).stderr(Stdio::piped());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// A relay in front of `server`.
    fn relay(&self, name: &str, server: &[&std::ffi::OsStr]) -> Command {
        let mut command = self.shim(name, &["run", "--session", "demo", "--"]);
        command.args(server);
        command
    }

    fn session(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("sessions/demo")
    }

    fn journal(&self, name: &str) -> PathBuf {
        self.session(name).join("journal")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Plays the conversation; returns what the client received.
fn a_turn(folder: &Folder, stage: &mut Stage) -> DemoResult<Vec<String>> {
    stage.heading("A turn through the relay");
    let server = [
        folder.shim.as_os_str(),
        "replay".as_ref(),
        "--speed".as_ref(),
        PLAYED_TIMES.as_ref(),
        folder.tape.as_os_str(),
    ];
    let mut client = Client::start(folder.relay("turn", &server))?;
    let session = folder.session("turn");
    converse(&mut client, &Beside::Terminal(session.clone()), stage)?;
    the_history(&session, stage)?;
    client.finish()
}

/// Shows the recorded history.
fn the_history(session: &Path, stage: &mut Stage) -> DemoResult<()> {
    let EventPage { events, latest_seq, history_gap, .. } =
        at_the_side(session, &EventsQuery::after(Some(&Cursor::default()), EVENTS_MAX))?;
    let ActionsDocument { actions } = at_the_side(session, &ActionsQuery::default())?;
    let (events, last) = (events.len() as u64, latest_seq.unwrap_or(0));
    stage.heading("What happened, as the history tells it");
    stage.row("events", &format!("{events}, numbered 1 to {last}"));
    for action in &actions {
        stage.row(action.action_kind.name(), &action.words());
    }
    let has_hole = history_gap || last != events;
    holds(events > 0 && !has_hole, "the history has a hole")
}

/// Queries the relay's socket, as a second terminal does.
fn at_the_side<Q: Query>(session: &Path, query: &Q) -> DemoResult<Q::Document> {
    side::ask(session, query, PATIENCE).map_err(|error| error.to_string())
}

/// Sends it a command.
fn command_at_the_side(session: &Path, command: &api::Command) -> DemoResult<()> {
    side::command(session, command, Caller::Tool).map(drop).map_err(|error| error.to_string())
}

/// Accepts the pending request.
fn answer_at_the_side(session: &Path) -> DemoResult<()> {
    let listed = at_the_side(session, &Requests(WhichRequests::Pending))?;
    let one = listed.requests.first().and_then(|row| OneRequest::of(&row.request_id)).ok_or("no request is pending")?;
    command_at_the_side(session, &api::Command::Respond(one, json!({"decision": "accept"})))
}

/// Whether a second terminal takes part.
enum Beside {
    /// A second terminal that uses the session in this folder.
    Terminal(PathBuf),
    Nobody,
}

fn converse(client: &mut Client, beside: &Beside, stage: &mut Stage) -> DemoResult<()> {
    let began = Instant::now();
    let mut said = |who: &str, what: &str| stage.said(began.elapsed(), who, what);
    client
        .send(&json!({"id": 0, "method": Method::Initialize.name(), "params": {"clientInfo": {"name": "test-client",
        "title": null, "version": "1.0"}, "capabilities": {"experimentalApi": true}}}))?;
    let welcome = client.wait(|message| message.answers(0))?.result.unwrap_or_default();
    let version = welcome.version().unwrap_or("of an unknown version");
    said("editor", &format!("connects to codex {version}"));
    client.send(&json!({"method": Method::Initialized.name()}))?;
    client.send(&json!({"id": 1, "method": Method::ThreadStart.name(), "params": {"cwd": "/home/user/project",
        "approvalPolicy": "on-request", "sandbox": "read-only"}}))?;
    let started = client.wait(|message| message.answers(1))?;
    let thread = started.result.unwrap_or_default().thread.id;
    if let Beside::Terminal(session) = beside {
        said("terminal", "$ cargo test   (fails: test a ... FAILED)");
        let (cmd, output) = ("cargo test".to_owned(), Some("test a ... FAILED".to_owned()));
        let pushed = PushedCommand { cmd, exit_code: Some(101), output, ..PushedCommand::default() };
        command_at_the_side(session, &api::Command::Push(vec![pushed]))?;
    }
    said("editor", "the user writes: run it");
    client.send(&json!({"id": 2, "method": Method::TurnStart.name(), "params": {"threadId": thread,
        "input": [{"type": "text", "text": "run it", "text_elements": []}]}}))?;
    let request = client.wait(|message| message.is(Method::CommandApproval))?;
    if let Beside::Terminal(session) = beside {
        for line in seen_by_model(session)? {
            said("model", &format!("sees: {line}"));
        }
        said("model", "sees: run it");
    }
    said("codex", &format!("asks to run: {}", without_shell(&request.params.command)));
    match beside {
        Beside::Terminal(session) => {
            said("terminal", "$ codex-shim respond latest accept");
            answer_at_the_side(session)?;
        }
        // The tape continues by itself: its client did not answer the request either.
        Beside::Nobody => {}
    }
    let message = client.wait(Message::is_said)?;
    said("codex", &format!("says: {}", message.params.item.text));
    let completed = client.wait(|message| message.is(Method::TurnCompleted))?;
    said("codex", &format!("turn {}", completed.params.turn.status));
    Ok(())
}

/// The context that the model got before the user's words: each command with its output.
fn seen_by_model(session: &Path) -> DemoResult<Vec<String>> {
    let DeliveriesDocument { deliveries } = at_the_side(session, &DeliveriesQuery {})?;
    let text = deliveries.first().map_or("", |delivery| &delivery.text);
    let Some((envelope, _)) = text.strip_prefix(MARKER_START).and_then(|text| text.split_once(MARKER_END)) else {
        return Err("the model got no context".to_owned());
    };
    #[derive(Deserialize)]
    struct Commands {
        commands: Vec<engine::Command>,
    }
    let envelope: Commands = serde_json::from_str(envelope).map_err(|error| format!("read the context: {error}"))?;
    let mut lines = Vec::new();
    for command in envelope.commands {
        let exit = command.exit_code.map_or_else(|| "null".to_owned(), |code| code.to_string());
        lines.push(format!("$ {}   (exit {exit})", command.cmd));
        lines.extend(command.preview.lines.iter().map(|line| format!("  {line}")));
    }
    Ok(lines)
}

/// Compares what the client received with the journal.
fn on_record(folder: &Folder, stage: &mut Stage, received: &[String]) -> DemoResult<()> {
    let recorded = Recorded::read(&folder.journal("turn"))?;
    let bytes = |lines: &[Vec<u8>]| lines.iter().map(Vec::len).sum::<usize>();
    let same = recorded.server.iter().zip(received).filter(|(line, text)| line.as_slice() == text.as_bytes()).count();
    stage.heading("On record before it was passed on");
    stage.row("from the client", &format!("{} lines, {} bytes", recorded.client.len(), bytes(&recorded.client)));
    stage.row("from codex", &format!("{} lines, {} bytes", recorded.server.len(), bytes(&recorded.server)));
    stage.row("received by the client", &format!("{} lines, as on record: {same}", received.len()));
    let has_marker =
        |line: &[u8]| memchr::memmem::find(line, MARKER_START.trim_start_matches('\u{1e}').as_bytes()).is_some();
    let shown = recorded.to_server.iter().filter(|line| has_marker(line)).count();
    let seen = received.iter().filter(|line| has_marker(line.as_bytes())).count();
    stage.row("context", &format!("to the model {shown} time, to the client {seen} times"));
    holds(same == received.len() && recorded.server.len() == same, "what was received is not what is on record")?;
    holds(shown == 1 && seen == 0, "context did not go to the model alone")
}

/// Measures the round trip of a line with and without the relay, in alternation.
fn cost(folder: &Folder, stage: &mut Stage) -> DemoResult<()> {
    let mut direct_command = Command::new("cat");
    direct_command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut direct = Client::start(direct_command)?;
    let mut relayed = Client::start(folder.relay("cost", &["cat".as_ref()]))?;
    let line = json!({"method": Method::AgentMessageDelta.name(), "params": {"delta": "lorem ipsum ".repeat(10)}});
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUND_TRIPS {
        without.push(direct.round_trip(&line)?);
        with.push(relayed.round_trip(&line)?);
    }
    direct.finish()?;
    relayed.finish()?;
    stage.heading("What it costs");
    let shown = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        format!("{:.0} µs", times[times.len() / 2].as_secs_f64() * 1e6)
    };
    stage.row("a line and its echo", &format!("{} direct, {} relayed", shown(&mut without), shown(&mut with)));
    stage.row("", &format!("median of {ROUND_TRIPS}, each line on record"));
    Ok(())
}

/// Kills a relay under load and counts missing lines.
fn a_kill(folder: &Folder, stage: &mut Stage) -> DemoResult<()> {
    let mut client = Client::start(folder.relay("kill", &["cat".as_ref()]))?;
    let received = client.storm_until_killed(LINES_BEFORE_KILL)?;
    let recorded = Recorded::read(&folder.journal("kill"))?;
    let missing = received
        .iter()
        .enumerate()
        .filter(|(number, line)| recorded.server.get(*number).map(Vec::as_slice) != Some(line.as_bytes()));
    let missing = missing.count();
    stage.heading("kill -9 in the middle of a storm");
    stage.row("received until then", &format!("{} lines", received.len()));
    stage.row("missing on record", &missing.to_string());
    holds(missing == 0, "lines are missing on record")
}

/// Replays the recording of the turn to the same client.
fn a_server_again(folder: &Folder, stage: &mut Stage, received: &[String]) -> DemoResult<()> {
    let tape = folder.dir.join("again.jsonl");
    let mut export = folder.shim("turn", &["tape", "export", "demo", "-o"]);
    let exported = export.arg(&tape).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    holds(exported.is_ok_and(|status| status.success()), "the recording could not be exported")?;
    let mut replay = folder.shim("again", &["replay", "--strict"]);
    replay.arg(&tape);
    let mut client = Client::start(replay)?;
    let began = Instant::now();
    converse(&mut client, &Beside::Nobody, &mut Stage::dark())?;
    let again = client.finish()?;
    stage.heading("The recording is a server");
    stage.row("played to the client", &format!("{} lines in {} ms", again.len(), began.elapsed().as_millis()));
    holds(again.len() == received.len(), "the recording does not say what was recorded")
}

fn holds(promise: bool, otherwise: &str) -> DemoResult<()> {
    if promise { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// The lines in a journal.
#[derive(Default)]
struct Recorded {
    client: Vec<Vec<u8>>,
    server: Vec<Vec<u8>>,
    /// Lines sent to the server instead of the client's line.
    to_server: Vec<Vec<u8>>,
}

impl Recorded {
    fn read(journal: &Path) -> DemoResult<Recorded> {
        let mut reader = Reader::new(journal, None);
        let mut recorded = Recorded::default();
        let failed = |error| format!("read {}: {error}", journal.display());
        while let Step::Record { bytes, .. } = reader.step().map_err(failed)? {
            if let Ok(Record::Line { from, to, content, .. }) = Record::parse(bytes)
                && let Some(line) = content.bytes()
            {
                match (from, to) {
                    (Origin::Side(Side::Client), _) => recorded.client.push(line.to_vec()),
                    (Origin::Side(Side::Server), _) => recorded.server.push(line.to_vec()),
                    (Origin::Shim, Some(Side::Server)) => recorded.to_server.push(line.to_vec()),
                    (Origin::Shim, Some(Side::Client) | None) => {}
                }
            }
        }
        Ok(recorded)
    }
}

fn line_of(message: &Value) -> String {
    format!("{message}\n")
}

fn write_line(to: &mut impl std::io::Write, line: &str) -> DemoResult<()> {
    to.write_all(line.as_bytes()).map_err(|error| format!("write to the relay: {error}"))
}

/// Line width in columns.
const COLUMNS: usize = 78;

/// Columns before the value of a row.
const NAME_COLUMNS: usize = 30;

/// Destination of the demo's output.
pub(super) struct Stage {
    shown: StageOutput,
    headings: u32,
    /// Of what was printed so far.
    status: i32,
}

enum StageOutput {
    /// Printed while the demo runs.
    OnScreen(Screen),
    /// Collected for one document at the end.
    Kept(Vec<Section>),
    Nowhere,
}

/// A heading with its rows.
#[derive(Serialize)]
struct Section {
    heading: String,
    said: Vec<SaidLine>,
    rows: Vec<StageRow>,
}

#[derive(Serialize)]
struct SaidLine {
    after_ms: u64,
    who: String,
    what: String,
}

#[derive(Serialize)]
struct StageRow {
    name: String,
    value: String,
}

impl Stage {
    /// Prints to stdout.
    pub(super) fn of_stdout(environment: &Environment) -> Stage {
        Stage { shown: StageOutput::OnScreen(Screen::of_stdout(environment)), headings: 0, status: 0 }
    }

    /// Collects a document.
    pub(super) fn kept() -> Stage {
        Stage { shown: StageOutput::Kept(Vec::new()), headings: 0, status: 0 }
    }

    /// Discards the output.
    pub(super) fn dark() -> Stage {
        Stage { shown: StageOutput::Nowhere, headings: 0, status: 0 }
    }

    pub(super) fn title(&mut self, text: &str) {
        self.line(Tone::Strong, text);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.headings += 1;
        self.line(Tone::Faint, "");
        self.line(Tone::Strong, &format!("{:>2}  {text}", self.headings));
        if let StageOutput::Kept(parts) = &mut self.shown {
            parts.push(Section { heading: text.to_owned(), said: Vec::new(), rows: Vec::new() });
        }
    }

    /// A line of the conversation with its time.
    pub(super) fn said(&mut self, after: Duration, who: &str, what: &str) {
        let tone = match who {
            "codex" => Tone::Good,
            "model" => Tone::Faint,
            _ => Tone::Warning,
        };
        self.line(tone, &cut(&format!("    {:>5} ms  {who:>8}  {what}", after.as_millis())));
        if let Some(part) = self.last() {
            part.said.push(SaidLine { after_ms: after.as_millis() as u64, who: who.to_owned(), what: what.to_owned() });
        }
    }

    pub(super) fn row(&mut self, name: &str, value: &str) {
        let columns_max = screen::columns(Screen::of_stdout_plain()).map_or(COLUMNS, |columns| columns.min(COLUMNS));
        let row = plain(&format!("    {name:<24}  {value}"));
        self.write(&screen::wrapped(&row, NAME_COLUMNS, columns_max));
        if let Some(part) = self.last() {
            part.rows.push(StageRow { name: name.to_owned(), value: value.to_owned() });
        }
    }

    /// Prints the end, with the reason if the demo stopped early; returns the exit status.
    pub(super) fn end(mut self, why: Option<&str>) -> i32 {
        match &self.shown {
            StageOutput::Kept(parts) => {
                let shim = env!("CARGO_PKG_VERSION");
                // A part is empty if the demo stopped right after its heading.
                let parts: Vec<&Section> =
                    parts.iter().filter(|part| !part.rows.is_empty() || !part.said.is_empty()).collect();
                print_json(&json!({ "shim": shim, "held": why.is_none(), "error": why, "parts": parts }))
            }
            StageOutput::OnScreen(_) | StageOutput::Nowhere => {
                if why.is_none() {
                    self.write("");
                }
                self.status
            }
        }
    }

    fn last(&mut self) -> Option<&mut Section> {
        match &mut self.shown {
            StageOutput::Kept(parts) => parts.last_mut(),
            StageOutput::OnScreen(_) | StageOutput::Nowhere => None,
        }
    }

    fn line(&mut self, tone: Tone, text: &str) {
        if let StageOutput::OnScreen(screen) = self.shown {
            self.write(&if text.is_empty() { String::new() } else { screen.paint(tone, text) });
        }
    }

    fn write(&mut self, text: &str) {
        if matches!(self.shown, StageOutput::OnScreen(_)) {
            // A line that is lost does not stop the demo.
            self.status = self.status.max(screen::print_exactly(&format!("{text}\n")));
        }
    }
}

fn cut(text: &str) -> String {
    let plain = plain(text);
    if plain.chars().count() <= COLUMNS {
        return plain;
    }
    plain.chars().take(COLUMNS - 1).chain(['…']).collect()
}
