//! `codex-shim audit export`.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::SystemTime;

use serde_json::json;

use super::super::offline::damage_of_ledger;
use super::super::output_file::{self, Existing};
use super::super::progress::Progress;
use super::super::requests::print_json;
use super::super::screen::{self, counted};
use super::super::{Done, FAILED, say, select_session};
use super::ledgers::Ledgers;
use super::line::{AuditLine, COLUMNS, FOOTER, FORMAT, HEADER, NO_HASH};
use super::{ExportArguments, Format, csv};
use crate::config::Environment;
use crate::history::rfc3339_millis;

/// Lines between two updates of the progress bar.
const PROGRESS_LINES: usize = 256;

/// The beginning of a period without one, as times are stored.
const EVER: &str = "";

/// The end of a period without one.
const NEVER: &str = "~";

/// Writes the file.
pub(super) fn run(arguments: &ExportArguments, environment: &Environment) -> Done {
    let sessions = select_session::listed(arguments.session.name(), environment)?;
    let since = arguments.since.get().map(|since| since.rfc3339());
    let began = now();
    let damaged: Vec<String> = sessions.iter().filter_map(damage_of_ledger).collect();
    let (mut ledgers, unreadable) = Ledgers::of(&sessions, (since.as_deref().unwrap_or(EVER), NEVER));
    // Entries from before the clock was set back have times in the future.
    let until = ledgers.last_at().filter(|last| *last > began).unwrap_or(began);
    let mut header = AuditLine::new(HEADER, &until);
    header.set_number("format", Some(FORMAT));
    header.set("since", since);
    header.set("until", Some(until));
    let only = arguments.session.name().and_then(|_| sessions.first()).map(|session| session.id.clone());
    header.set("only_session", only);
    header.set("sessions", Some(json!(ledgers.sessions().collect::<Vec<_>>()).to_string()));
    let ids: Vec<&str> = unreadable.iter().map(|(id, _)| &**id).collect();
    header.set("unreadable", (!ids.is_empty()).then(|| json!(ids).to_string()));

    let path = arguments.output.as_deref();
    let format = arguments.format.unwrap_or_else(|| Format::of_name(path));
    let mut chain = Chain { format, is_for_terminal: false, lines: 0, last: NO_HASH.to_owned() };
    let written = match path {
        Some(path) => {
            let existing = if arguments.force { Existing::ReplacedItself } else { Existing::Kept };
            output_file::write(path, existing, |output, goes_on| {
                write(&mut chain, header, &mut ledgers, output, goes_on).map_err(|error| error.to_string())
            })?;
            Ok(())
        }
        None => {
            let stdout = io::stdout().lock();
            chain.is_for_terminal = stdout.is_terminal();
            let mut output = BufWriter::new(stdout);
            write(&mut chain, header, &mut ledgers, &mut output, &|| true).and_then(|()| output.flush())
        }
    };
    for (id, why) in &unreadable {
        say(&format!("session {id} is not in the file: {why}"));
    }
    damaged.iter().for_each(|damage| say(damage));
    let mut status = if unreadable.is_empty() && damaged.is_empty() { 0 } else { FAILED };
    written.map_err(|error| screen::unread_or_unwritten(&error))?;
    if let Some(path) = path {
        let Chain { lines, last, .. } = &chain;
        match arguments.as_json {
            true => {
                let file = path.display().to_string();
                let document = json!({"file": file, "lines": lines, "last_hash": last, "unreadable_sessions": ids});
                status = status.max(print_json(&document));
            }
            false => {
                let lines = counted(*lines, "line", "lines").unwrap_or_default();
                say(&format!("wrote {lines} to {}; the last hash is {last}", path.display()));
            }
        }
    }
    Ok(status)
}

/// The current time as times are stored.
pub(super) fn now() -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    rfc3339_millis(since_epoch.as_micros() as u64)
}

/// The lines written so far.
struct Chain {
    format: Format,
    /// Replaces control characters, which could steer the terminal.
    is_for_terminal: bool,
    lines: u64,
    last: String,
}

impl Chain {
    fn add(&mut self, mut line: AuditLine, output: &mut dyn Write) -> io::Result<()> {
        self.lines += 1;
        line.chain(self.lines, &self.last);
        line.get("hash").unwrap_or_default().clone_into(&mut self.last);
        match self.format {
            Format::Jsonl => self.put(&(line.json() + "\n"), output),
            Format::Csv => self.put(&csv::row(line.cells()), output),
        }
    }

    fn put(&self, text: &str, output: &mut dyn Write) -> io::Result<()> {
        match self.is_for_terminal {
            true => writeln!(output, "{}", screen::plain(text.trim_end_matches('\n'))),
            false => output.write_all(text.as_bytes()),
        }
    }
}

fn write(
    chain: &mut Chain,
    header: AuditLine,
    ledgers: &mut Ledgers,
    output: &mut dyn Write,
    goes_on: output_file::GoesOn<'_>,
) -> io::Result<()> {
    if chain.format == Format::Csv {
        chain.put(&csv::row(COLUMNS.iter().map(|(name, _)| *name)), output)?;
    }
    chain.add(header, output)?;
    let progress = Progress::new("exporting", ledgers.len() as u64);
    for number in 0..ledgers.len() {
        if !goes_on() {
            return Err(io::Error::other("interrupted by a signal"));
        }
        if number.is_multiple_of(PROGRESS_LINES) {
            progress.advance(PROGRESS_LINES as u64);
        }
        if let Some(line) = ledgers.line(number).map_err(io::Error::other)? {
            chain.add(line, output)?;
        }
    }
    chain.add(AuditLine::new(FOOTER, &now()), output)
}
