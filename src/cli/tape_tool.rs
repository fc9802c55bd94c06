//! `codex-shim tape`: lists and checks recordings. See [`super::tape_export`] for the export.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::args::{CheckArguments, ShowArguments, TapeTool};
use super::history::thread_or_id;
use super::screen::{Screen, Tone, plain, print};
use super::table::{Cell, Column, Table};
use super::{FAILED, say, select_session, tape_export, tape_file};
use crate::config::Environment;
use crate::journal::Record;
use crate::journal::reader::{Reader, Step};
use crate::replay::{Summary, Survey, TapeReader, TapeStep, summary_of};
use crate::store::Otherwise;

/// Polling interval of a live journal.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// Width of the method column, because records are printed one by one.
const METHOD_COLUMNS: usize = 40;

/// The name of the most recently used thread.
const LATEST: &str = "latest";

/// Runs one of the tools.
pub(super) fn run(tool: TapeTool, environment: &Environment) -> i32 {
    match tool {
        TapeTool::Export(arguments) => {
            match select_session::one(arguments.session.name(), Otherwise::Latest, environment) {
                Ok(session) => tape_export::run(&arguments, &session, environment),
                Err(not_chosen) => not_chosen.report(),
            }
        }
        TapeTool::Show(arguments) => show(&arguments, environment),
        TapeTool::Check(arguments) => check(&arguments, environment),
    }
}

fn show(arguments: &ShowArguments, environment: &Environment) -> i32 {
    let mut thread = arguments.thread.clone();
    let file = arguments.source.as_deref().map(Path::new).filter(|path| path.exists() && !path.is_dir());
    let mut records = match file {
        Some(path) => {
            let opened = match thread.as_deref() {
                Some(LATEST) => latest_thread(path).map(|found| thread = Some(found)),
                Some(_) | None => Ok(()),
            };
            match opened.and_then(|()| TapeReader::open(path).map_err(|error| error.to_string())) {
                Ok(reader) => Records::Tape(reader),
                Err(error) => {
                    say(&error);
                    return FAILED;
                }
            }
        }
        None => match select_session::one(
            arguments.source.as_deref().or(arguments.session.as_deref()),
            Otherwise::Latest,
            environment,
        ) {
            Ok(session) => {
                match thread.map(|name| thread_or_id(&session, &name, environment)).transpose() {
                    Ok(found) => thread = found,
                    Err(stop) => return stop.report(),
                }
                Records::Journal(Reader::new(&session.journal_dir(), None))
            }
            Err(not_chosen) => {
                if let Some(source) = arguments.source.as_deref().filter(|source| looks_like_a_file(source)) {
                    say(&format!("{source} does not exist; give a tape, or the name of a session"));
                    return FAILED;
                }
                return not_chosen.report();
            }
        },
    };
    match list(&mut records, arguments, thread.as_deref()) {
        Ok(status) => status,
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            say(&error.to_string());
            FAILED
        }
    }
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
fn list(records: &mut Records, arguments: &ShowArguments, thread: Option<&str>) -> io::Result<i32> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut table = table();
    let (mut number, mut shown, mut began_us) = (0, 0, None);
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
                    if shown == 0 && number > 0 {
                        say(&format!("none of the {number} records matches"));
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
fn table() -> Table {
    let columns = vec![
        Column::number("RECORD").at_least(6),
        Column::number("SECONDS").at_least(9).spare(),
        Column::whole(" ").at_least(1),
        Column::whole("KIND").at_least(12),
        Column::text("METHOD").at_least(METHOD_COLUMNS),
        Column::text("ID").at_least(10).spare(),
        Column::number("SIZE").at_least(10).spare(),
    ];
    Table::new(columns, Screen::of_stdout_plain())
}

/// `12   0.123  →  request       turn/start   id 2   214 B`
fn as_row(number: u64, after_us: u64, summary: &Summary) -> Vec<Cell> {
    let arrow = match summary.from {
        "client" => "→",
        "server" => "←",
        _ => "·",
    };
    let id = summary.id.as_deref().map(|id| format!("id {id}")).unwrap_or_default();
    let size = if summary.from == "shim" { String::new() } else { ByteSize(summary.line_bytes).to_string() };
    let cells = [
        number.to_string(),
        format!("{:.3}", after_us as f64 / 1e6),
        arrow.to_owned(),
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

fn check(arguments: &CheckArguments, environment: &Environment) -> i32 {
    let file = match tape_file::find(&arguments.file, environment) {
        Ok(file) => file,
        Err(status) => return status,
    };
    let survey = match Survey::of(&file) {
        Ok(survey) => survey,
        Err(error) => {
            say(&error.to_string());
            return FAILED;
        }
    };
    let whole = survey.is_whole();
    let text = if arguments.json {
        let mut document = json!(survey);
        document["whole"] = json!(whole);
        format!("{document}\n")
    } else {
        told(&survey)
    };
    let printed = print(&text);
    if whole { printed } else { FAILED }
}

fn told(survey: &Survey) -> String {
    let mut lines = vec![if survey.is_whole() { "whole".to_owned() } else { "NOT whole".to_owned() }];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<22} {value}"));
    row("format", survey.format.unwrap_or_default().to_string());
    row("records", survey.records.to_string());
    row("lines of the client", survey.client_lines.to_string());
    row("lines of the server", survey.server_lines.to_string());
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
