//! `codex-shim tape export`: writes a session's recording as a tape without personal data.

use std::borrow::Cow;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;

use super::history::thread_or_id;
use super::output_file::{self, Existing};
use super::requests::print_json;
use super::screen;
use super::tape_tool::ExportArguments;
use super::{CliError, Done, NO_SUCH_THREAD, say};
use crate::config::Environment;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Generation, Header, Position, Record, SegmentName};
use crate::keeping::add_piece;
use crate::os::identity::host_name;
use crate::replay::{Anonymizer, Machine, Redaction, Selection, summary_of};
use crate::secrets::{InPieces, Masker, Pieces};
use crate::store::Found;
use crate::wire::{Body, Conn};

/// The run that was recorded last.
const LATEST: &str = "latest";

/// Writes the tape.
pub(super) fn run(arguments: &ExportArguments, session: &Found, environment: &Environment) -> Done {
    let thread = arguments.thread.as_ref().map(|name| thread_or_id(session, name, environment)).transpose()?;
    let records = export(arguments, thread, &session.journal_dir(), environment)?;
    if arguments.json {
        return Ok(print_json(&json!({"file": arguments.output.display().to_string(), "records": records})));
    }
    say(&format!("wrote {records} records to {}", arguments.output.display()));
    Ok(0)
}

fn export(
    arguments: &ExportArguments,
    thread: Option<String>,
    journal: &Path,
    environment: &Environment,
) -> Result<u64, CliError> {
    let segments = SegmentName::list(journal).map_err(|error| format!("read {}: {error}", journal.display()))?;
    let generation = generation(arguments.generation.as_deref().unwrap_or(LATEST), &segments)?;
    let first = segments.into_iter().find(|segment| segment.generation == generation);
    let first = first.expect("BUG: the generation is that of a segment");
    let from = Position { segment: first, offset: 0 };

    let mut selection = Selection::new(thread, arguments.conn.map(Conn));
    let mut known = PersonalData::default();
    let mut masked = MaskedPieces::new(arguments.redact);
    read(journal, &from, |record| {
        selection.look(record);
        known.learn(record);
        masked.learn(record);
        Ok(())
    })?;
    masked.end_segment();
    let no_header = || CliError::failed("the journal has no header; `codex-shim tape show` lists its records");
    let header = known.header.ok_or_else(no_header)?;
    let machine = Machine {
        cwd: header.cwd,
        codex: header.codex.path,
        home: environment.get("HOME").map(|home| home.to_string_lossy().into_owned()),
        shim_home: environment.shim_home().value.map(|home| home.to_string_lossy().into_owned()),
        session: header.session,
        host: Some(host_name()),
        began_us: header.at,
    };
    let redaction = if arguments.redact { Redaction::Masked } else { Redaction::Left };
    let mut anonymizer = Anonymizer::new(machine, redaction);
    if let Some(codex_home) = known.codex_home {
        anonymizer.learn_codex_home(codex_home);
    }

    if !selection.has_seen_thread() {
        let all = known.threads.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let all = if all.is_empty() { "it has none".to_owned() } else { format!("its threads are {all}") };
        let name = arguments.thread.as_deref().unwrap_or_default();
        let why = format!("this run has no messages of thread `{name}`; {all}; name another run with --generation");
        return Err(CliError::exits(NO_SUCH_THREAD, screen::plain(&why)));
    }
    if !selection.has_seen_conn() {
        let conn = arguments.conn.unwrap_or_default();
        let all = known.connections.join(", ");
        let all = if all.is_empty() { "it is not that of a hub".to_owned() } else { format!("it has {all}") };
        let why = format!("this run has no connection {conn}; {all}; name another run with --generation");
        return Err(CliError::exits(NO_SUCH_THREAD, screen::plain(&why)));
    }
    let mut number = 0;
    let mut written = 0;
    output_file::write(&arguments.output, Existing::Replaced, |output, goes_on| {
        read(journal, &from, |record| {
            if !goes_on() {
                return Err("interrupted by a signal".to_owned());
            }
            let is_later_header = number > 0 && record.starts_with(b"{\"journal\":");
            if selection.keeps(number) && !is_later_header {
                let record = without_previous(record);
                let record = masked.record(number as u64, &record);
                writeln!(output, "{}", anonymizer.record(&record)).map_err(|error| error.to_string())?;
                written += 1;
            }
            number += 1;
            Ok(())
        })
    })?;
    Ok(written)
}

/// The run that a user names: its id, a unique beginning of it, or `latest`.
fn generation(name: &str, segments: &[SegmentName]) -> Result<Generation, String> {
    let mut all: Vec<&Generation> = segments.iter().map(|segment| &segment.generation).collect();
    all.dedup();
    if name == LATEST {
        return all.pop().cloned().ok_or_else(|| "this session has no recording".to_owned());
    }
    let ids = |all: &[&Generation]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let matching: Vec<&Generation> =
        all.iter().copied().filter(|one| !name.is_empty() && one.to_string().starts_with(name)).collect();
    match &matching[..] {
        [one] => Ok((*one).clone()),
        [] if all.is_empty() => Err(format!("unknown run `{name}`: this session has no recording")),
        [] => Err(format!("unknown run `{name}`; runs in this session, latest last: {}", ids(&all))),
        several => Err(format!("`{name}` is the beginning of several runs: {}; give more of the id", ids(several))),
    }
}

/// A record as text; a header loses its reference to the previous segment, which the tape lacks.
fn without_previous(record: &[u8]) -> Cow<'_, str> {
    match Record::parse(record) {
        Ok(Record::Header(header)) if header.previous.is_some() => {
            let header = Header { previous: None, ..header };
            Cow::Owned(serde_json::to_string(&header).expect("BUG: plain data is JSON"))
        }
        Ok(_) | Err(_) => String::from_utf8_lossy(record),
    }
}

/// Passes every record of one generation to `take`.
fn read(journal: &Path, from: &Position, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let mut reader = Reader::new(journal, Some(from.clone()));
    loop {
        match reader.step().map_err(|error| format!("read {}: {error}", journal.display()))? {
            Step::Record { at, bytes } if at.segment.generation == from.segment.generation => take(bytes)?,
            Step::Record { .. } | Step::End => return Ok(()),
            Step::Lost { at } => {
                let next = reader.position();
                if next.is_some_and(|next| next.segment.generation == from.segment.generation) {
                    return Err(format!("{} was deleted while it was read", at.segment));
                }
                // The next generation is another tape.
                return Ok(());
            }
        }
    }
}

/// Masks records as `redact` does, including secrets split between two records of streamed text.
struct MaskedPieces {
    /// `None` without `--redact`.
    masker: Option<Masker>,
    /// The pieces of the current segment.
    pieces: Pieces,
    records: u64,
    found: InPieces,
}

impl MaskedPieces {
    fn new(redacts: bool) -> MaskedPieces {
        let masker = redacts.then(|| Masker::new(&[]).expect("BUG: no pattern is a wrong one"));
        MaskedPieces { masker, pieces: Pieces::default(), records: 0, found: InPieces::new() }
    }

    fn learn(&mut self, record: &[u8]) {
        if record.starts_with(b"{\"journal\":") {
            self.end_segment();
        }
        if self.masker.is_some() {
            add_piece(&mut self.pieces, self.records, record);
        }
        self.records += 1;
    }

    /// Only the pieces of one segment are held at once.
    fn end_segment(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        if let Some(masker) = &self.masker {
            self.found.extend(masker.in_pieces(&pieces));
        }
    }

    fn record<'a>(&self, number: u64, record: &'a str) -> Cow<'a, str> {
        let divided = self.found.get(&number).map_or(&[][..], Vec::as_slice);
        let masked = self.masker.as_ref().and_then(|masker| masker.record(record, divided));
        masked.map_or(Cow::Borrowed(record), Cow::Owned)
    }
}

/// Personal data found in a recording.
#[derive(Default)]
struct PersonalData {
    header: Option<Header>,
    codex_home: Option<String>,
    /// The threads of the run, in order of their first record.
    threads: Vec<String>,
    /// The connections of a hub, each with its client's name.
    connections: Vec<String>,
}

impl PersonalData {
    fn learn(&mut self, record: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Initialized {
            #[serde(rename = "codexHome")]
            codex_home: String,
        }
        #[derive(serde::Deserialize)]
        struct OpenedTape {
            conn: u32,
            name: Option<String>,
        }
        let thread = summary_of(record).ok().and_then(|summary| summary.thread);
        self.threads.extend(thread.filter(|thread| !self.threads.contains(thread)));
        match Record::parse(record) {
            Ok(Record::Header(header)) => self.header = self.header.take().or(Some(header)),
            Ok(Record::Line { content, .. }) if self.codex_home.is_none() => {
                if let Body::Message(message) = Body::parse(content.bytes().unwrap_or_default())
                    && let Some(result) = message.result
                    && let Ok(initialized) = serde_json::from_str::<Initialized>(result.get())
                {
                    self.codex_home = Some(initialized.codex_home);
                }
            }
            Ok(Record::Event { event, data, .. }) if event == "conn_open" => {
                if let Some(opened) = data.and_then(|data| serde_json::from_str::<OpenedTape>(data.get()).ok()) {
                    let name = opened.name.as_deref().unwrap_or("a client without a name");
                    self.connections.push(format!("{} ({name})", opened.conn));
                }
            }
            Ok(Record::Line { .. } | Record::Event { .. } | Record::Gap { .. }) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_unique_beginning() {
        let names = ["6b02d1a90c4e-001.jsonl", "6b02d1a90c4e-002.jsonl", "6b99d1a90c4e-001.jsonl"];
        let segments: Vec<SegmentName> = names.iter().filter_map(|name| SegmentName::parse(name)).collect();
        let check = |name: &str, expect: Result<&str, &str>| match (
            generation(name, &segments).map(|found| found.to_string()),
            expect,
        ) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(why), Err(words)) => assert!(why.contains(words), "{why}"),
            (found, _) => panic!("{name}: {found:?}"),
        };
        check("latest", Ok("6b99d1a90c4e"));
        check("6b02", Ok("6b02d1a90c4e"));
        check("6b02d1a90c4e", Ok("6b02d1a90c4e"));
        check("6b", Err("several runs: 6b02d1a90c4e, 6b99d1a90c4e;"));
        check("x", Err("unknown run `x`; runs in this session, latest last: 6b02d1a90c4e, 6b99d1a90c4e"));
        check("", Err("unknown run ``"));
        assert!(generation("latest", &[]).is_err_and(|why| why.contains("no recording")));
    }
}
