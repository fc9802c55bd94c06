//! `codex-shim tape export`: a session's recording as a tape with nothing of this machine in it.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use super::args::ExportArguments;
use super::screen::print;
use super::{FAILED, say};
use serde_json::json;

use crate::config::Environment;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Generation, Header, Position, Record, SegmentName};
use crate::replay::{Anonymizer, Machine, Redaction, Selection};
use crate::wire::Body;

/// Writes the tape.
pub(super) fn run(arguments: &ExportArguments, journal: &Path, environment: &Environment) -> i32 {
    match export(arguments, journal, environment) {
        Ok(records) if arguments.json => {
            print(&format!("{}\n", json!({"file": arguments.output.display().to_string(), "records": records})))
        }
        Ok(records) => {
            say(&format!("{}: {records} records", arguments.output.display()));
            0
        }
        Err(error) => {
            say(&error);
            FAILED
        }
    }
}

fn export(arguments: &ExportArguments, journal: &Path, environment: &Environment) -> Result<u64, String> {
    let segments = SegmentName::list(journal).map_err(|error| format!("read {}: {error}", journal.display()))?;
    let generation = match &arguments.generation {
        Some(text) => Generation::parse(text).ok_or(format!("`{text}` is no generation: 12 hex digits"))?,
        None => segments.last().map(|last| last.generation.clone()).ok_or("nothing is recorded in this session")?,
    };
    let first = segments.into_iter().find(|segment| segment.generation == generation);
    let first = first.ok_or_else(|| format!("no generation {generation} in {}", journal.display()))?;
    let from = Position { segment: first, offset: 0 };

    let mut selection = Selection::new(arguments.thread.clone());
    let mut known = Known::default();
    read(journal, &from, |record| {
        selection.look(record);
        known.learn(record);
        Ok(())
    })?;
    let header = known.header.ok_or("the journal has no header")?;
    let machine = Machine {
        cwd: header.cwd,
        codex: header.codex.path,
        home: environment.get("HOME").map(|home| home.to_string_lossy().into_owned()),
        host: Some(rustix::system::uname().nodename().to_string_lossy().into_owned()),
        began_us: header.at,
    };
    let redaction = if arguments.redact { Redaction::Masked } else { Redaction::Left };
    let mut anonymizer = Anonymizer::new(machine, redaction);
    if let Some(codex_home) = known.codex_home {
        anonymizer.learn_codex_home(codex_home);
    }

    // Written beside its place and then put there: a tape is whole or not there.
    let partial = arguments.output.with_added_extension("partial");
    let failed = |error: io::Error| format!("write {}: {error}", partial.display());
    let mut output = BufWriter::new(File::create(&partial).map_err(failed)?);
    let (mut number, mut written) = (0, 0);
    read(journal, &from, |record| {
        let is_later_header = number > 0 && record.starts_with(b"{\"journal\":");
        if selection.keeps(number) && !is_later_header {
            let record = String::from_utf8_lossy(record);
            writeln!(output, "{}", anonymizer.record(&record)).map_err(failed)?;
            written += 1;
        }
        number += 1;
        Ok(())
    })?;
    output.flush().map_err(failed)?;
    std::fs::rename(&partial, &arguments.output)
        .map_err(|error| format!("write {}: {error}", arguments.output.display()))?;
    Ok(written)
}

/// Hands every record of one generation to `take`.
fn read(journal: &Path, from: &Position, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let mut reader = Reader::new(journal, Some(from.clone()));
    loop {
        match reader.step().map_err(|error| format!("read {}: {error}", journal.display()))? {
            Step::Record { at, bytes } if at.segment.generation == from.segment.generation => take(bytes)?,
            Step::Record { .. } | Step::End => return Ok(()),
            Step::Lost { at } => return Err(format!("{} was removed while it was read", at.segment)),
        }
    }
}

/// What a recording says of its machine.
#[derive(Default)]
struct Known {
    header: Option<Header>,
    codex_home: Option<String>,
}

impl Known {
    fn learn(&mut self, record: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Initialized {
            #[serde(rename = "codexHome")]
            codex_home: String,
        }
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
            Ok(Record::Line { .. } | Record::Event { .. } | Record::Gap { .. }) | Err(_) => {}
        }
    }
}
