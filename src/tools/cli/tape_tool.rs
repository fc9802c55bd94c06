//! `codex-shim tape` lists and checks recordings, and `codex-shim replay` plays one as a server. See [`super::tape_export`] for
//! the export.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::history::thread_or_id;
use super::requests::print_json;
use super::screen::{self, Screen, Tone, plain, print};
use super::select_session::{SessionWord, whole};
use super::table::{Cell, Column, Table};
use super::{CliError, Done};
use super::{FAILED, NO_SUCH_THREAD, complete, say, select_session, tape_export};
use crate::config::Environment;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Record, SegmentName};
use crate::os::launch;
use crate::replay::{
    Difference, ListenNews, ListenOptions, Pace, Strictness, Summary, Survey, Tape, TapeError, TapeReader, TapeStep,
    listen, serve, summary_of,
};
use crate::store::Otherwise;

/// Polling interval of a live journal.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// Width of the method column, because records are printed one by one.
const METHOD_COLUMNS: usize = 40;

/// The name of the most recently used thread.
const LATEST: &str = "latest";

/// Runs one of the tools.
pub(super) fn run(tool: TapeTool, environment: &Environment) -> Done {
    match tool {
        TapeTool::Export(arguments) => {
            let session = select_session::one(arguments.session.name(), Otherwise::Latest, environment)?;
            tape_export::run(&arguments, &session, environment)
        }
        TapeTool::Show(arguments) => show(&arguments, environment),
        TapeTool::Check(arguments) => check(&arguments, environment),
    }
}

fn show(arguments: &ShowArguments, environment: &Environment) -> Done {
    let mut thread = arguments.thread.clone();
    let file = arguments.source.as_deref().map(Path::new).filter(|path| path.exists() && !path.is_dir());
    let opened = |path: &Path| TapeReader::open(path).map_err(|error| error.to_string());
    let (mut records, again) = match file {
        Some(path) => {
            if thread.as_deref() == Some(LATEST) {
                thread = Some(latest_thread(path)?);
            }
            // A pipe cannot be read twice.
            let again = if path.is_file() { Some(Records::Tape(opened(path)?)) } else { None };
            (Records::Tape(opened(path)?), again)
        }
        None => match select_session::one(
            arguments.source.as_deref().or(arguments.session.as_deref()),
            Otherwise::Latest,
            environment,
        ) {
            Ok(session) => {
                thread = thread.map(|name| thread_or_id(&session, &name, environment)).transpose()?;
                let journal = || Records::Journal(Reader::new(&session.journal_dir(), None));
                (journal(), Some(journal()))
            }
            Err(not_chosen) => {
                if let Some(source) = arguments.source.as_deref().filter(|source| looks_like_a_file(source)) {
                    let error = CliError::failed(format!("{source} does not exist"));
                    return Err(error.with_remedy("give a tape, or the name of a session"));
                }
                return Err(not_chosen);
            }
        },
    };
    let mut table = table(again.is_some_and(|again| are_of_hub(again).unwrap_or(false)));
    match list(&mut records, &mut table, arguments, thread.as_deref()) {
        Ok(status) => Ok(status),
        Err(error) => Err(screen::unread_or_unwritten(&error)),
    }
}

/// Records in which the first connection of a hub is looked for.
const LOOKED_AT_MAX: usize = 100;

/// Whether these records, from their beginning, are those of a hub.
fn are_of_hub(mut records: Records) -> io::Result<bool> {
    for _ in 0..LOOKED_AT_MAX {
        match records.next()? {
            Some(record) if summary_of(&record).is_ok_and(|summary| summary.conn > 0) => return Ok(true),
            Some(_) => {}
            None => break,
        }
    }
    Ok(false)
}

/// The most recently used thread of a tape.
fn latest_thread(path: &Path) -> Result<String, String> {
    let mut reader = TapeReader::open(path).map_err(|error| error.to_string())?;
    let mut latest = None;
    while let TapeStep::Record { bytes, .. } = reader.step().map_err(|error| error.to_string())? {
        latest = summary_of(bytes).ok().and_then(|summary| summary.thread).or(latest);
    }
    latest.ok_or_else(|| format!("{} has no threads", path.display()))
}

/// Whether a word is more likely a file than a session.
fn looks_like_a_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".jsonl")
}

/// The records of a tape or a journal.
enum Records {
    Tape(TapeReader),
    Journal(Reader),
}

impl Records {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Records::Tape(reader) => match reader.step().map_err(io::Error::other)? {
                TapeStep::Record { bytes, .. } => Ok(Some(bytes.to_vec())),
                TapeStep::Torn | TapeStep::End => Ok(None),
            },
            Records::Journal(reader) => loop {
                match reader.step()? {
                    Step::Record { bytes, .. } => return Ok(Some(bytes.to_vec())),
                    Step::Lost { at } => say(&format!("{} was deleted before it was read", at.segment)),
                    Step::End => return Ok(None),
                }
            },
        }
    }
}

/// Lists records; returns the exit status.
fn list(records: &mut Records, table: &mut Table, arguments: &ShowArguments, thread: Option<&str>) -> io::Result<i32> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let (mut number, mut shown, mut began_us) = (0, 0, None);
    let mut threads: Vec<String> = Vec::new();
    loop {
        let Some(record) = records.next()? else {
            output.flush()?;
            if let (Records::Tape(reader), 0, false) = (&*records, number, arguments.follow) {
                say(&reader.not_a_tape().to_string());
                return Ok(FAILED);
            }
            match arguments.record {
                _ if arguments.follow => {}
                Some(wanted) => {
                    say(&format!("no record {wanted}; the records are numbered 1 to {number}"));
                    return Ok(FAILED);
                }
                None => {
                    match thread {
                        Some(name) if shown == 0 && !threads.iter().any(|thread| thread.starts_with(name)) => {
                            let all = if threads.is_empty() { "none".to_owned() } else { threads.join(", ") };
                            say(&format!("unknown thread `{name}`; threads in this recording: {all}"));
                            return Ok(NO_SUCH_THREAD);
                        }
                        Some(_) | None if shown == 0 && number > 0 => {
                            say(&format!("none of the {number} records matches"));
                        }
                        Some(_) | None => {}
                    }
                    return Ok(0);
                }
            }
            std::thread::park_timeout(FOLLOW_EVERY);
            continue;
        };
        number += 1;
        if let Some(wanted) = arguments.record {
            if number == wanted {
                return one(&mut output, &record, number, arguments.json);
            }
            continue;
        }
        let summary = match summary_of(&record) {
            Ok(summary) => summary,
            Err(error) => {
                say(&format!("record {number}: {error}"));
                continue;
            }
        };
        threads.extend(summary.thread.iter().filter(|thread| !threads.contains(thread)).cloned().collect::<Vec<_>>());
        let after_us = summary.at_us.saturating_sub(*began_us.get_or_insert(summary.at_us));
        if !wanted(&summary, arguments, thread) {
            continue;
        }
        shown += 1;
        match arguments.json {
            true => writeln!(output, "{}", as_json(number, &summary))?,
            false => output.write_all(table.add(vec![as_row(number, after_us, &summary)]).as_bytes())?,
        }
    }
}

/// Prints the selected record in full; returns the exit status.
fn one(output: &mut impl io::Write, record: &[u8], number: u64, as_json: bool) -> io::Result<i32> {
    if as_json {
        match in_full(record, number) {
            Ok(document) => writeln!(output, "{document}")?,
            Err(why) => {
                say(&format!("record {number}: {why}"));
                return Ok(FAILED);
            }
        }
    } else {
        output.write_all(&full_text(record))?;
    }
    output.flush()?;
    Ok(0)
}

fn wanted(summary: &Summary, arguments: &ShowArguments, thread: Option<&str>) -> bool {
    let is = |wanted: &Option<String>, have: &str| wanted.as_deref().is_none_or(|wanted| wanted == have);
    let has_word = |word: &str| {
        let word = word.to_lowercase();
        summary.method.as_deref().is_some_and(|method| method.to_lowercase().contains(&word))
    };
    is(&arguments.from, summary.from)
        && is(&arguments.kind, summary.kind)
        && arguments.conn.is_none_or(|wanted| wanted == summary.conn)
        && arguments.method.as_deref().is_none_or(has_word)
        && thread.is_none_or(|wanted| summary.thread.as_ref().is_some_and(|thread| thread.starts_with(wanted)))
}

fn as_json(number: u64, summary: &Summary) -> String {
    let mut document = json!(summary);
    document["record"] = json!(number);
    document.to_string()
}

/// The JSON document of a record.
fn in_full(record: &[u8], number: u64) -> Result<String, String> {
    #[derive(Serialize)]
    struct InFull<'a> {
        #[serde(flatten)]
        summary: Summary,
        record: u64,
        content: &'a RawValue,
    }
    let summary = summary_of(record).map_err(|error| error.to_string())?;
    let content = serde_json::from_slice(record).map_err(|error| error.to_string())?;
    let document = InFull { summary, record: number, content };
    Ok(serde_json::to_string(&document).expect("BUG: plain data is JSON"))
}

/// An empty table of records.
fn table(is_of_hub: bool) -> Table {
    let arrow_columns = if is_of_hub { 4 } else { 1 };
    let columns = vec![
        Column::number("RECORD").at_least(6),
        Column::number("SECONDS").at_least(9).spare(),
        Column::whole(" ").at_least(arrow_columns),
        Column::whole("KIND").at_least(12),
        Column::text("METHOD").at_least(METHOD_COLUMNS),
        Column::text("ID").at_least(10).spare(),
        Column::number("SIZE").at_least(10).spare(),
    ];
    Table::new(columns, Screen::of_stdout_plain())
}

/// `12   0.123  → 3  request       turn/start   id 2   214 B`, with the number of a hub's connection after the arrow.
fn as_row(number: u64, after_us: u64, summary: &Summary) -> Vec<Cell> {
    let arrow = match summary.from {
        "client" => "→",
        "server" => "←",
        _ => "·",
    };
    let conn = if summary.conn == 0 { String::new() } else { format!(" {}", summary.conn) };
    let id = summary.id.as_deref().map(|id| format!("id {id}")).unwrap_or_default();
    let size = if summary.from == "shim" { String::new() } else { ByteSize(summary.line_bytes).to_string() };
    let cells = [
        number.to_string(),
        format!("{:.3}", after_us as f64 / 1e6),
        format!("{arrow}{conn}"),
        summary.kind.to_string(),
        summary.method.clone().unwrap_or_default(),
        id,
        size,
    ];
    cells.into_iter().map(|cell| (Tone::Plain, cell)).collect()
}

/// The line in a record, escaped on a terminal; other records are printed whole.
fn full_text(record: &[u8]) -> Vec<u8> {
    let mut text = match Record::parse(record) {
        Ok(Record::Line { content, .. }) => content.bytes().unwrap_or(record).to_vec(),
        Ok(Record::Header(_) | Record::Event { .. } | Record::Gap { .. }) | Err(_) => record.to_vec(),
    };
    if io::stdout().is_terminal() {
        text = plain(&String::from_utf8_lossy(&text)).into_bytes();
    }
    text.push(b'\n');
    text
}

fn check(arguments: &CheckArguments, environment: &Environment) -> Done {
    let file = find_tape(&arguments.file, environment)?;
    let survey = Survey::of(&file).map_err(|error| error.to_string())?;
    let whole = survey.is_whole();
    let printed = if arguments.json {
        let mut document = json!(survey);
        document["whole"] = json!(whole);
        print_json(&document)
    } else {
        print(&told(&survey))
    };
    Ok(if whole { printed } else { FAILED })
}

fn told(survey: &Survey) -> String {
    let mut lines = vec![if survey.is_whole() { "whole".to_owned() } else { "NOT whole".to_owned() }];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<22} {value}"));
    row("format", survey.format.unwrap_or_default().to_string());
    row("records", survey.records.to_string());
    row("lines of the client", survey.client_lines.to_string());
    row("lines of the server", survey.server_lines.to_string());
    if survey.connections > 0 {
        row("clients of the hub", survey.connections.to_string());
    }
    row("runs of the server", survey.generations.to_string());
    row("end of the run", if survey.ended { "on record" } else { "not on record" }.to_owned());
    if survey.segments_missing > 0 {
        row("missing at the start", format!("{} segments", survey.segments_missing));
    }
    row("last record", if survey.torn { "cut off" } else { "complete" }.to_owned());
    row("lines missing", survey.gap_lines.to_string());
    row("left out as secret", survey.omitted_secret.to_string());
    row("left out as too long", survey.omitted_size.to_string());
    row("without an answer", (survey.unanswered_by_server.len() + survey.unanswered_by_client.len()).to_string());
    for request in &survey.unanswered_by_server {
        row("", format!("of the client: {}", plain(request)));
    }
    for request in &survey.unanswered_by_client {
        row("", format!("of the server: {}", plain(request)));
    }
    for fault in &survey.faults {
        row("fault", plain(fault));
    }
    lines.join("\n") + "\n"
}

#[derive(Debug, Subcommand)]
pub(super) enum TapeTool {
    /// Write the recording of a session as a tape without personal data
    ///
    /// Paths, names, ids and times are replaced, each by the same thing wherever it stands.
    #[command(after_long_help = "\
The tape of a hub has all of its clients, each line with its connection; with
--conn it has one client's conversation alone.

Exit status: 0, or 1 if the tape cannot be written, or 3 if there is no such
thread, connection or session.

Examples:
  codex-shim tape export -o turn.jsonl
  codex-shim tape export .codex --conn 3 -o terminal.jsonl
  codex-shim tape export work --thread 0192… --redact -o turn.jsonl
  codex-shim tape export work --generation 6b02d1 -o run.jsonl")]
    Export(ExportArguments),
    /// List the records of a tape or of a session
    #[command(after_long_help = "\
Examples:
  codex-shim tape show turn.jsonl
  codex-shim tape show work --method approval
  codex-shim tape show latest --follow --from server
  codex-shim tape show turn.jsonl --record 12      print that record in full")]
    Show(ShowArguments),
    /// Check whether a tape is complete
    #[command(after_long_help = "\
Exit status: 0 if it is, 1 if it is not or is not a tape.

Examples:
  codex-shim tape check turn.jsonl
  codex-shim tape check latest               the recording made last")]
    Check(CheckArguments),
}

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Only this thread, and messages that belong to no thread
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Only this connection of a hub; `hub status` and `tape show` list them
    #[arg(long, value_name = "N", value_parser = connection)]
    pub(super) conn: Option<u32>,
    /// Run of the server: a unique beginning of its id [default: latest]
    #[arg(long, value_name = "GENERATION")]
    pub(super) generation: Option<String>,
    /// Mask text that looks like a key or a token
    #[arg(long)]
    pub(super) redact: bool,
    /// File to write
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// A tape, or a session: its name, the beginning or end of its id, or `latest`
    #[arg(value_name = "FILE|SESSION", add = complete::sessions_and_files())]
    pub(super) source: Option<String>,
    /// Session, if the word could be taken for a file
    #[arg(long, value_name = "SESSION", conflicts_with = "source", add = complete::sessions())]
    pub(super) session: Option<String>,
    /// Only records of this side
    #[arg(long, value_name = "SIDE", value_parser = ["client", "server", "shim"])]
    pub(super) from: Option<String>,
    /// Only records of this kind
    #[arg(long, value_name = "KIND", value_parser = ["header", "request", "notification", "response", "text", "omitted", "event", "gap"])]
    pub(super) kind: Option<String>,
    /// Only records whose method contains WORD, in capitals or not
    #[arg(long, value_name = "WORD")]
    pub(super) method: Option<String>,
    /// Only this thread: its id, the beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Only this connection of a hub
    #[arg(long, value_name = "N", value_parser = connection)]
    pub(super) conn: Option<u32>,
    /// Only record number N, in full
    #[arg(long, value_name = "N", value_parser = whole)]
    pub(super) record: Option<u64>,
    /// Keep printing records as they are written
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print one JSON document per line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// The tape, or `latest`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// The number of a client's connection.
fn connection(word: &str) -> Result<u32, String> {
    match word.parse() {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(format!("`{word}` is not the number of a connection; they count from 1")),
    }
}

/// Play a recording as a server on stdin and stdout, or on a socket
///
/// It matches the requests of a client to the tape by method and parameters; ids, paths and times may differ. Answers carry
/// the client's ids. All other lines of the server are sent at the same places between the lines of the client.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A request that the tape lacks gets a JSON-RPC error that says so. Differences
are printed on stderr at the end, with --listen when a client leaves.

With --listen, several clients may connect at once, such as `codex --remote`.
Each plays a connection of the tape: the next one of a client of its name. The
first answer to a request counts. SIGTERM or SIGINT ends the server.

Exit status: 0, or with --strict 1 if the client differs from the tape, or with
--listen 1 if the socket cannot be had.

Examples:
  codex-shim replay turn.jsonl
  codex-shim replay --strict session.jsonl     a difference is an error
  codex-shim replay --speed 1 session.jsonl    as slowly as it was recorded
  codex-shim replay latest                     the recording made last
  codex-shim replay --listen unix:///tmp/t.sock hub.jsonl
  codex --remote unix:///tmp/t.sock            in another terminal")]
pub(super) struct ReplayArguments {
    /// The tape, or `latest`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Serve WebSocket clients on this Unix socket
    #[arg(long, value_name = "unix://PATH", value_parser = socket_path)]
    pub(super) listen: Option<PathBuf>,
    /// Speed: max, or N times as fast as it was recorded
    #[arg(long, value_name = "SPEED", default_value = "max")]
    pub(super) speed: Pace,
    /// Treat a difference from the tape as an error
    #[arg(long)]
    pub(super) strict: bool,
}

/// The path in `unix://PATH`.
fn socket_path(word: &str) -> Result<PathBuf, String> {
    match word.strip_prefix("unix://") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => Err(format!("`{word}` is not unix://PATH; a tape is played on Unix sockets only")),
    }
}

/// Finds a tape.
fn find_tape(file: &Path, environment: &Environment) -> Result<PathBuf, CliError> {
    if file != Path::new(LATEST) || file.exists() {
        return Ok(file.to_owned());
    }
    let session = select_session::one(Some(LATEST), Otherwise::Latest, environment)?;
    let journal = session.journal_dir();
    let segments = SegmentName::list(&journal).unwrap_or_default();
    match segments.last() {
        Some(last) => Ok(journal.join(last.to_string())),
        None => Err(CliError::failed(format!("session {} has no recording", session.name()))
            .with_remedy(format!("see `codex-shim status {}`", session.id))),
    }
}

/// Differences shown in full.
const SHOWN_MAX: usize = 20;

/// Plays the tape. Differences are printed on stderr and are errors with `--strict`.
pub(super) fn run_replay(arguments: &ReplayArguments, environment: &Environment) -> Done {
    let strictness = if arguments.strict { Strictness::Strict } else { Strictness::Lenient };
    let file = find_tape(&arguments.file, environment)?;
    let tape = Tape::load(&file).map_err(|error| {
        let failed = CliError::failed(error.to_string());
        match error {
            TapeError::Record { .. } => failed.with_remedy(format!("see `codex-shim tape check {}`", file.display())),
            TapeError::Io { .. } | TapeError::NotATape { .. } => failed,
        }
    })?;
    if let Some(path) = &arguments.listen {
        return run_listen(tape, strictness, arguments, path, environment);
    }
    let differences = serve(tape, strictness, arguments.speed).map_err(|error| error.to_string())?;
    if differences.is_empty() {
        return Ok(0);
    }
    print_differences("the client", &differences);
    Ok(if arguments.strict { FAILED } else { 0 })
}

/// Plays the tape to the clients at a socket.
fn run_listen(
    tape: Tape,
    strictness: Strictness,
    arguments: &ReplayArguments,
    path: &Path,
    environment: &Environment,
) -> Done {
    launch::keep_descriptors();
    let options = ListenOptions {
        path: path.to_owned(),
        runtime_dir: environment.runtime_dir(),
        strictness,
        pace: arguments.speed,
    };
    let name_of = |name: Option<&str>| plain(name.unwrap_or("a client"));
    let differs = listen(tape, &options, &mut |told| match told {
        ListenNews::Listening => say(&format!("plays the tape at unix://{}", path.display())),
        ListenNews::Left { differences: [], .. } => {}
        ListenNews::Left { name, differences } => print_differences(&name_of(name), differences),
        ListenNews::TooSlow { name } => say(&format!("{} does not read its messages: disconnected", name_of(name))),
        ListenNews::TooMany => say("too many clients: the new one is disconnected"),
    });
    let differs = differs.map_err(|error| error.to_string())?;
    Ok(if differs { FAILED } else { 0 })
}

fn print_differences(client: &str, differences: &[Difference]) {
    let count = differences.len();
    say(&format!("{client} differs from the tape in {count} place{}", if count == 1 { "" } else { "s" }));
    for difference in differences.iter().take(SHOWN_MAX) {
        say(&difference.to_string());
    }
    if count > SHOWN_MAX {
        say(&format!("and {} more", count - SHOWN_MAX));
    }
}
