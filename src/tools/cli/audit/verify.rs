//! `codex-shim audit verify`: checks the chain of a file, and compares its lines with the ledgers that still exist.
//!
//! The lines of the file and the entries of the ledgers come in the same order, so both are read once, side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::progress::Progress;
use super::super::requests::print_json;
use super::super::screen::{self, counted};
use super::super::{CliError, Done, FAILED, select_session};
use super::ledgers::{AuditTime, Ledgers};
use super::line::{AuditLine, COLUMNS, FOOTER, FORMAT, HEADER, NO_HASH, columns_of};
use super::{VerifyArguments, csv};
use crate::config::Environment;
use crate::files;
use crate::history::micros_of;
use crate::history::rfc3339_millis;
use crate::store::LedgerError;

/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Lines between two updates of the progress bar.
const PROGRESS_LINES: u64 = 256;

/// Most problems that are reported; the rest is counted.
const PROBLEMS_MAX: usize = 100;

/// An entry of the last seconds before an export may have been stored after it.
const STORED_WITHIN: Duration = Duration::from_secs(10);

/// Members that tell where a session was when it was exported, and the chain itself.
const NOT_COMPARED: [&str; 9] =
    ["line", "folder", "client", "thread_name", "thread_folder", "thread_title", "thread_kind", "prev", "hash"];

/// Members that may become known while a request is open.
const KNOWN_LATER: [&str; 2] = ["summary", "files"];

/// Checks the file.
pub(super) fn run(arguments: &VerifyArguments, environment: &Environment) -> Done {
    let failed = |error: io::Error| CliError::failed(format!("read {}: {error}", arguments.file.display()));
    let file = files::open_named(&arguments.file).map_err(failed)?;
    let mut verified = Verified::default();
    verify(file, &mut verified, environment).map_err(|error| match error {
        Stopped::File(error) => failed(error),
        Stopped::Cli(error) => error,
    })?;
    if let Some(expected) = arguments.last_hash.as_deref().filter(|expected| *expected != verified.last_hash) {
        verified.broken(verified.lines, &format!("the last hash is {} and not {expected}", verified.last_hash));
    }
    let status = if verified.is_intact() { 0 } else { FAILED };
    match arguments.as_json {
        true => print_json(&verified.document()),
        false => screen::print(&verified.in_words(&arguments.file)),
    };
    Ok(status)
}

/// Why a check did not come to its end.
enum Stopped {
    File(io::Error),
    Cli(CliError),
}

impl From<LedgerError> for Stopped {
    fn from(error: LedgerError) -> Stopped {
        Stopped::Cli(CliError::failed(error.to_string()))
    }
}

/// The result of a check.
#[derive(Debug, Default)]
struct Verified {
    lines: u64,
    /// Lines that were compared with a ledger.
    compared: u64,
    last_hash: String,
    /// The period of the file.
    period: Option<(Option<String>, String)>,
    /// The first line that breaks the chain, and why.
    first_broken: Option<(u64, String)>,
    problems: Vec<Problem>,
    more_problems: u64,
    /// Deleted sessions, each with the number of its lines.
    deleted: BTreeMap<String, u64>,
    /// Lines whose text was masked in the ledger since.
    redacted: u64,
}

#[derive(Debug)]
struct Problem {
    /// The line of the file, if it has one.
    line: Option<u64>,
    problem: &'static str,
    entry: String,
}

impl Verified {
    fn broken(&mut self, line: u64, why: &str) {
        self.first_broken.get_or_insert_with(|| (line, why.to_owned()));
    }

    fn problem(&mut self, line: Option<u64>, problem: &'static str, entry: String) {
        match self.problems.len() < PROBLEMS_MAX {
            true => self.problems.push(Problem { line, problem, entry }),
            false => self.more_problems += 1,
        }
    }

    fn is_intact(&self) -> bool {
        self.first_broken.is_none() && self.problems.is_empty()
    }

    fn document(&self) -> Value {
        let problem =
            |problem: &Problem| json!({"line": problem.line, "problem": problem.problem, "entry": problem.entry});
        json!({
            "intact": self.is_intact(),
            "lines": self.lines,
            "compared": self.compared,
            "last_hash": self.last_hash,
            "since": self.period.as_ref().and_then(|(since, _)| since.clone()),
            "until": self.period.as_ref().map(|(_, until)| until.clone()),
            "first_broken": self.first_broken.as_ref().map(|(line, why)| json!({"line": line, "why": why})),
            "problems": self.problems.iter().map(problem).collect::<Vec<_>>(),
            "more_problems": self.more_problems,
            "deleted_sessions": self.deleted,
            "redacted_lines": self.redacted,
        })
    }

    fn in_words(&self, path: &Path) -> String {
        let mut rows = Vec::new();
        rows.extend(self.first_broken.as_ref().map(|(line, why)| format!("line {line} is broken: {why}")));
        for problem in &self.problems {
            let line = problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            rows.push(format!("{line}{}: {}", problem.problem, problem.entry));
        }
        rows.extend((self.more_problems > 0).then(|| format!("and {} more", self.more_problems)));
        for (session, lines) in &self.deleted {
            let lines = counted(*lines, "line", "lines").unwrap_or_else(|| "no lines".to_owned());
            rows.push(format!("session {session} was deleted since; not compared: {lines}"));
        }
        let redacted = counted(self.redacted, "line was", "lines were");
        rows.extend(redacted.map(|lines| format!("{lines} masked in the ledger since, by `codex-shim redact`")));
        let (lines, compared) = (self.lines, self.compared);
        rows.push(match self.is_intact() {
            true => format!("{} is intact: {lines} lines, {compared} compared with ledgers", path.display()),
            false => format!("{} is not intact", path.display()),
        });
        rows.push(format!("last hash: {}", self.last_hash));
        let columns = screen::columns(screen::Screen::of_stdout_plain());
        rows.iter().map(|row| format!("{}\n", screen::fitted(&screen::plain(row), columns))).collect()
    }
}

fn verify(file: File, verified: &mut Verified, environment: &Environment) -> Result<(), Stopped> {
    let size = file.metadata().map(|metadata| metadata.len()).unwrap_or_default();
    let progress = Progress::new("verifying", size);
    let mut lines = FileLines::of(file).map_err(Stopped::File)?;
    let mut chain = Chain { prev: NO_HASH.to_owned(), last: None, has_ended: false };
    let Some(first) = lines.next().map_err(Stopped::File)? else {
        verified.broken(1, "the file is empty");
        return Ok(());
    };
    verified.lines = 1;
    let header = first.and_then(|line| chain.follow(1, &line).map(|()| line)).and_then(check_header);
    let header = match header {
        Ok(header) => header,
        Err(why) => {
            verified.broken(1, &why);
            return Ok(());
        }
    };
    let mut comparison = Comparison::begin(&header, verified, environment)?;
    while let Some(line) = lines.next().map_err(Stopped::File)? {
        verified.lines += 1;
        if verified.lines.is_multiple_of(PROGRESS_LINES) {
            progress.advance(lines.read_bytes());
        }
        let number = verified.lines;
        let line = match line {
            Ok(line) => line,
            Err(why) => {
                verified.broken(number, &why);
                continue;
            }
        };
        if let Err(why) = chain.follow(number, &line) {
            verified.broken(number, &why);
        }
        match line.get("kind") {
            Some(FOOTER) => chain.has_ended = true,
            _ => comparison.line(number, &line, verified)?,
        }
    }
    if !chain.has_ended {
        verified.broken(verified.lines + 1, "the last line is not the footer: the file was cut off");
    }
    verified.last_hash = chain.prev;
    comparison.end(verified)
}

fn check_header(line: AuditLine) -> Result<AuditLine, String> {
    if line.get("kind") != Some(HEADER) {
        return Err("it is not the header".to_owned());
    }
    match line.get("format") {
        Some(format) if format == FORMAT.to_string() => {}
        format => return Err(format!("its format is {} and not {FORMAT}", format.unwrap_or("missing"))),
    }
    match line.get("until").and_then(micros_of) {
        Some(_) => Ok(line),
        None => Err("its `until` is not a time".to_owned()),
    }
}

/// The chain up to a line.
struct Chain {
    prev: String,
    /// The time of the last line, and its session.
    last: Option<(String, String)>,
    has_ended: bool,
}

impl Chain {
    /// Checks the next line. The line after it must have the hash that this line states, even if this line is broken.
    fn follow(&mut self, number: u64, line: &AuditLine) -> Result<(), String> {
        let hash = line.computed_hash();
        let (told, prev) = (line.get("hash").unwrap_or_default(), line.get("prev").unwrap_or_default());
        let before = std::mem::replace(&mut self.prev, told.to_owned());
        let text = |name: &str| line.get(name).unwrap_or_default().to_owned();
        let place = (text("at"), text("session"));
        let is_entry = !matches!(line.get("kind"), Some(HEADER | FOOTER));
        let is_older = is_entry && self.last.as_ref().is_some_and(|last| place < *last);
        if is_entry {
            self.last = Some(place);
        }
        match () {
            () if hash != told => Err("its hash is not that of its text".to_owned()),
            () if prev != before => Err("its `prev` is not the hash of the line before".to_owned()),
            () if line.get("line") != Some(&*number.to_string()) => Err(format!("its number is not {number}")),
            () if self.has_ended => Err("it stands behind the footer".to_owned()),
            () if is_older => Err("it is older than the line before".to_owned()),
            () => Ok(()),
        }
    }
}

/// The lines of a file, of either form.
struct FileLines {
    input: io::Take<BufReader<File>>,
    /// Of a CSV file.
    columns: Option<Vec<&'static str>>,
    before: u64,
}

impl FileLines {
    fn of(file: File) -> io::Result<FileLines> {
        let mut input = BufReader::new(file).take(u64::MAX);
        let is_csv = input.fill_buf()?.first().is_some_and(|byte| *byte != b'{');
        let mut lines = FileLines { input, columns: None, before: u64::MAX };
        if is_csv {
            lines.columns = match csv::read(&mut lines.input)? {
                csv::CsvRow::Cells(cells) => columns_of(&cells),
                csv::CsvRow::Broken(_) | csv::CsvRow::End => None,
            };
            if lines.columns.is_none() {
                return Err(io::Error::other("it is not a file of `codex-shim audit export`"));
            }
        }
        Ok(lines)
    }

    /// Bytes read since the last call.
    fn read_bytes(&mut self) -> u64 {
        let left = self.input.limit();
        std::mem::replace(&mut self.before, left) - left
    }

    /// The next line, or why it is not one; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Result<AuditLine, String>>> {
        if let Some(columns) = &self.columns {
            return Ok(match csv::read(&mut self.input)? {
                csv::CsvRow::Cells(cells) => Some(AuditLine::of_cells(columns, cells)),
                csv::CsvRow::Broken(why) => Some(Err(why)),
                csv::CsvRow::End => None,
            });
        }
        let mut text = Vec::new();
        if (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        if text.pop() != Some(b'\n') {
            return Ok(Some(Err("it has no end".to_owned())));
        }
        Ok(Some(match std::str::from_utf8(&text) {
            Ok(text) => AuditLine::of_json(text),
            Err(_) => Err("it is not UTF-8".to_owned()),
        }))
    }
}

/// Compares lines with the ledgers, moment by moment.
struct Comparison {
    ledgers: Ledgers,
    /// The number of the next entry of the ledgers.
    next: usize,
    /// The entries of the current moment that no line has been yet.
    open: Vec<AuditLine>,
    moment: Option<AuditTime>,
    until: String,
    /// Entries from then on may have been stored after the export.
    stored_later_from: String,
    /// Sessions that are not compared, because a ledger could not be read.
    unreadable: BTreeSet<String>,
}

impl Comparison {
    fn begin(header: &AuditLine, verified: &mut Verified, environment: &Environment) -> Result<Comparison, Stopped> {
        let text = |name: &str| header.get(name).unwrap_or_default().to_owned();
        let (since, until) = (text("since"), text("until"));
        verified.period = Some((header.get("since").map(str::to_owned), until.clone()));
        let all = select_session::all(environment).map_err(Stopped::Cli)?;
        let names = |name: &str| -> BTreeSet<String> { serde_json::from_str(&text(name)).unwrap_or_default() };
        let (covered, unreadable_then) = (names("sessions"), names("unreadable"));
        let is_meant = |id: &str| match header.get("only_session") {
            Some(only) => id == only,
            None => !unreadable_then.contains(id),
        };
        let sessions: Vec<_> = all.iter().filter(|session| is_meant(&session.id)).cloned().collect();
        let (ledgers, unreadable) = Ledgers::of(&sessions, (&since, &until));
        for (id, why) in &unreadable {
            verified.problem(None, "a ledger cannot be read", format!("session {id}: {why}"));
        }
        let there: BTreeSet<&str> = all.iter().map(|session| session.id.as_str()).collect();
        let deleted = covered.into_iter().filter(|id| !there.contains(id.as_str()));
        verified.deleted = deleted.map(|id| (id, 0)).collect();
        let until_us = micros_of(&until).unwrap_or_default();
        Ok(Comparison {
            ledgers,
            next: 0,
            open: Vec::new(),
            moment: None,
            until,
            stored_later_from: rfc3339_millis(until_us.saturating_sub(STORED_WITHIN.as_micros() as u64)),
            unreadable: unreadable.into_iter().map(|(id, _)| id).chain(unreadable_then).collect(),
        })
    }

    /// Compares a line.
    fn line(&mut self, number: u64, line: &AuditLine, verified: &mut Verified) -> Result<(), Stopped> {
        let session = line.get("session").unwrap_or_default();
        if let Some(lines) = verified.deleted.get_mut(session) {
            *lines += 1;
            return Ok(());
        }
        if self.unreadable.contains(session) {
            return Ok(());
        }
        let moment = self.ledgers.moment_of(line);
        if let Some(moment) = moment {
            self.go_to(moment, verified)?;
        }
        let is_same = |entry: &AuditLine| {
            entry.get("request") == line.get("request") && entry.get("answer_id") == line.get("answer_id")
        };
        let found = self.open.iter().position(is_same).filter(|_| moment.is_some() && moment == self.moment);
        let Some(found) = found else {
            if !self.is_replaced(line)? {
                verified.problem(Some(number), "the ledger lacks this line", named(line));
            }
            return Ok(());
        };
        verified.compared += 1;
        let entry = self.open.swap_remove(found);
        self.compare(number, line, &entry, verified)
    }

    /// Reads the entries of a moment; those of earlier ones that no line has been are lacking.
    fn go_to(&mut self, moment: AuditTime, verified: &mut Verified) -> Result<(), Stopped> {
        if self.moment.is_some_and(|current| current >= moment) {
            return Ok(());
        }
        self.end_moment(verified);
        while let Some(next) = self.ledgers.moment(self.next).filter(|next| *next <= moment) {
            let line = self.ledgers.line(self.next)?;
            self.next += 1;
            match line {
                Some(line) if next == moment => self.open.push(line),
                Some(line) => self.lacks(&line, verified),
                None => {}
            }
        }
        self.moment = Some(moment);
        Ok(())
    }

    fn end_moment(&mut self, verified: &mut Verified) {
        for line in std::mem::take(&mut self.open) {
            self.lacks(&line, verified);
        }
    }

    /// The file has no line for this entry.
    fn lacks(&self, line: &AuditLine, verified: &mut Verified) {
        if line.get("at").unwrap_or_default() < self.stored_later_from.as_str() {
            verified.problem(None, "the file lacks an entry of its period", named(line));
        }
    }

    /// Whether a line that the ledger lacks is the end of a request that expired and was answered after the export.
    fn is_replaced(&mut self, line: &AuditLine) -> Result<bool, Stopped> {
        if line.get("status") != Some("expired") {
            return Ok(false);
        }
        Ok(self.ledgers.ended_at(line)?.flatten().is_some_and(|ended| ended > self.until))
    }

    fn compare(
        &mut self,
        number: u64,
        line: &AuditLine,
        entry: &AuditLine,
        verified: &mut Verified,
    ) -> Result<(), Stopped> {
        let (mut differing, mut is_redacted) = (Vec::new(), false);
        let names = COLUMNS.iter().map(|(name, _)| *name).filter(|name| !NOT_COMPARED.contains(name));
        for name in names {
            match (line.get(name), entry.get(name)) {
                (told, stored) if told == stored => {}
                (Some(told), Some(stored)) if is_masked_form(told, stored) => is_redacted = true,
                (_, _) => differing.push(name),
            }
        }
        if differing.iter().any(|name| KNOWN_LATER.contains(name)) {
            // The request was open when it was exported.
            let ended = self.ledgers.ended_at(line)?.flatten();
            if ended.is_none_or(|ended| ended > self.until) {
                differing.retain(|name| !KNOWN_LATER.contains(name));
            }
        }
        verified.redacted += u64::from(is_redacted && differing.is_empty());
        if !differing.is_empty() {
            let entry = format!("{}: {}", named(line), differing.join(", "));
            verified.problem(Some(number), "this line differs from the ledger", entry);
        }
        Ok(())
    }

    /// The file has ended.
    fn end(mut self, verified: &mut Verified) -> Result<(), Stopped> {
        self.end_moment(verified);
        while self.next < self.ledgers.len() {
            if let Some(line) = self.ledgers.line(self.next)? {
                self.lacks(&line, verified);
            }
            self.next += 1;
        }
        Ok(())
    }
}

/// The name of an entry in a message.
fn named(line: &AuditLine) -> String {
    let text = |name: &str| line.get(name).unwrap_or("?");
    format!("{} of request {} in session {} at {}", text("kind"), text("request"), text("session"), text("at"))
}

/// Whether a text is another one in which parts are masked: a mask is as long as the secret.
fn is_masked_form(text: &str, masked: &str) -> bool {
    const MASK: &[u8] = b"[redacted]*";
    let mut pairs = text.bytes().zip(masked.bytes());
    text.len() == masked.len() && pairs.all(|(byte, masked)| byte == masked || MASK.contains(&masked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_text_is_recognized() {
        let check =
            |text: &str, masked: &str, expect: bool| assert_eq!(is_masked_form(text, masked), expect, "{masked}");
        check("use abcdefghijkl now", "use [redacted]** now", true);
        check("use abc now", "use *** now", true);
        check("use abc now", "use xyz now", false);
        check("use abc now", "use [redacted] now", false);
    }
}
