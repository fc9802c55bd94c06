//! `codex-shim blame`: which turn wrote a line of a file, and who approved it.
//!
//! [`crate::sessions::blame`] has the answer; here the file is read, and the answer printed.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::ops::RangeInclusive;
use std::path::Path;

use clap::{Args, ValueHint};

use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, Clock, Screen, Times, Tone};
use super::select_session::{self, SessionFlag};
use super::since::SinceFlag;
use super::table::{Cell, Column, Table};
use super::{CliError, Done, USAGE, offline, say};
use crate::config::Environment;
use crate::engine::one_line;
use crate::sessions::blame::{
    ApprovalKind, BlameApproval, BlameChange, BlameDocument, BlameError, BlameKind, BlameLine, BlameQuestion,
    blame_file,
};
use crate::store::Otherwise;
use crate::text::cut_words;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Columns of a prompt in an answer on one line.
const PROMPT_COLUMNS_MAX: usize = 72;

/// Columns of a cell with a name or a prompt in a table.
const CELL_COLUMNS_MAX: usize = 28;

/// Tell which turn wrote a line of a file, and who approved it
///
/// Follows the changes that codex has reported, in all sessions, back from the file as it is now: through later changes, moves and
/// deletions. A line that contradicts what codex has left was changed outside codex: by you, by another program, or by a
/// command that the model ran.
#[derive(Debug, Args)]
#[command(after_long_help = "\
LINE is a number, or two for a range: 12, 12,20 or 12-20. Without it, every line
of the file has a row. A deleted file can be asked about by its old name.

`no recorded change` is a line that is older than the record, or was changed
outside where codex changed nothing. --since and --session choose which changes
are named; the lines of others stay without a name.

Exit status: 0, or 1 if the file or a session cannot be read, or 2 if there is
no such line, or 3 if there is no such session.

Examples:
  codex-shim blame src/main.rs:120
  codex-shim blame src/main.rs:100,140
  codex-shim blame src/main.rs --since 7d
  codex-shim blame src/main.rs --json | jq -r '.changes[].prompt'")]
pub(super) struct BlameArguments {
    /// File, and the line or the lines
    #[arg(value_name = "FILE[:LINE]", value_hint = ValueHint::FilePath)]
    place: String,
    #[command(flatten)]
    since: SinceFlag,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run(arguments: &BlameArguments, environment: &Environment) -> Done {
    let (file, lines) = split(&arguments.place)?;
    if file.is_empty() {
        return Err(CliError::exits(USAGE, "name a file, such as src/main.rs:6".to_owned()));
    }
    let path = std::path::absolute(file).map_err(|error| CliError::failed(format!("{file}: {error}")))?;
    let text = read(&path)?;
    let named = arguments.session.name().map(|name| select_session::one(Some(name), Otherwise::Latest, environment));
    let named = named.transpose()?;
    // The changes of other sessions say what the named one has not written.
    let sessions = select_session::listed(None, environment)?;
    let question = BlameQuestion {
        path: &path,
        text: text.as_deref(),
        lines: lines.clone(),
        since_us: arguments.since.get().map(|since| since.micros()),
        session: named.as_ref().map(|session| &*session.id),
    };
    let progress = Progress::new("reading sessions", sessions.len() as u64);
    let (answer, unread) = blame_file(&question, &sessions, offline::door(environment), || progress.advance(1));
    drop(progress);
    let status = unread.into_iter().fold(0, |worst, error| worst.max(CliError::from(error).report()));
    let document = answer.map_err(refusal)?;
    if arguments.as_json {
        return Ok(status.max(print_json(&document)));
    }
    document.notes.iter().for_each(|note| say(note));
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let shown = Shown { document: &document, file, clock: &clock, to };
    shown.remarks().iter().for_each(|remark| say(remark));
    let is_one = lines.is_some_and(|lines| lines.start() == lines.end());
    let printed = match document.lines.first().filter(|_| is_one) {
        Some(line) => screen::print(&format!("{}\n", screen::fitted(&shown.sentence(line), screen::columns(to)))),
        None => screen::print(&shown.table()),
    };
    Ok(status.max(printed))
}

/// The file and the lines of an argument. A file whose name ends like a line is itself.
fn split(place: &str) -> Result<(&str, Option<RangeInclusive<usize>>), CliError> {
    let Some((file, lines)) = place.rsplit_once(':').filter(|(file, _)| !file.is_empty()) else {
        return Ok((place, None));
    };
    if Path::new(place).symlink_metadata().is_ok() {
        return Ok((place, None));
    }
    let (from, to) = lines.split_once([',', '-']).unwrap_or((lines, lines));
    let number = |text: &str| text.parse::<usize>().ok();
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from >= 1 && to >= from => Ok((file, Some(from..=to))),
        (None, None) if !lines.starts_with(|char: char| char.is_ascii_digit()) => Ok((place, None)),
        (_, _) => Err(CliError::usage(format!("`{lines}` is not a line, from 1 on, or a range such as 12,20"))),
    }
}

/// The text of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, CliError> {
    let failed = |why: String| CliError::failed(format!("read {}: {why}", path.display()));
    let facts = match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        facts => facts.map_err(|error| failed(error.to_string()).with_remedy(AS_ITS_OWNER))?,
    };
    if !facts.is_file() {
        let what = if facts.is_dir() { "it is a folder" } else { "it is not a regular file" };
        return Err(failed(what.to_owned()).with_remedy("name a file"));
    }
    if facts.len() > FILE_BYTES_MAX {
        let most = bytesize::ByteSize(FILE_BYTES_MAX);
        return Err(failed(format!("it is larger than {most}")).with_remedy(BY_SEARCH));
    }
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    opened.map_err(|error| failed(error.to_string()).with_remedy(AS_ITS_OWNER))?;
    let is_text = !bytes.contains(&0);
    let text = String::from_utf8(bytes).ok().filter(|_| is_text);
    let binary = || failed("it is not UTF-8 text, and codex changes nothing else".to_owned()).with_remedy(BY_SEARCH);
    text.map(Some).ok_or_else(binary)
}

const AS_ITS_OWNER: &str = "run this as a user who may read it";

const BY_SEARCH: &str = "`codex-shim search NAME --kind diff` lists the changes of a file by its name";

/// The error with the next step.
fn refusal(error: BlameError) -> CliError {
    let message = error.to_string();
    match error {
        BlameError::NoLine { .. } => CliError::usage(message),
        BlameError::Moved { to, .. } => {
            let to = shlex::try_join([&*to]).unwrap_or(to);
            CliError::failed(message).with_remedy(format!("`codex-shim blame {}`", screen::plain(&to)))
        }
        BlameError::NoFile { .. } | BlameError::NoText { .. } => CliError::failed(message).with_remedy(BY_SEARCH),
        BlameError::Gone { .. } => {
            CliError::failed(message).with_remedy("put it back first, or move it back if it has another name now")
        }
    }
}

/// An answer for people, or as columns for a program.
struct Shown<'a> {
    document: &'a BlameDocument,
    /// As the user has named it.
    file: &'a str,
    clock: &'a Clock,
    to: Screen,
}

impl Shown<'_> {
    /// Remarks about the answer as a whole, for stderr.
    fn remarks(&self) -> Vec<String> {
        let BlameDocument { changes, deleted_by, line_count, changes_on_record, .. } = self.document;
        let mut remarks = Vec::new();
        if let Some(change) = deleted_by.and_then(|number| changes.get(number)) {
            let change = self.of_change(change);
            remarks.push(format!("{} is deleted, and these are the lines that it had; deleted by {change}", self.file));
        } else if *changes_on_record == 0 {
            remarks.push(format!("no change of {} is on record", self.file));
        } else if *line_count == 0 {
            remarks.push(format!("{} is empty", self.file));
        }
        remarks
    }

    fn change(&self, line: &BlameLine) -> Option<&BlameChange> {
        self.document.changes.get(line.change?)
    }

    /// The answer about one line.
    fn sentence(&self, line: &BlameLine) -> String {
        let change = self.change(line).map(|change| self.of_change(change));
        let after = |words: &str| change.as_ref().map(|change| format!(", {words} {change}")).unwrap_or_default();
        let what = match line.kind {
            BlameKind::Codex => change.clone().unwrap_or_default(),
            BlameKind::Outside => format!("changed outside codex{}", after("after")),
            BlameKind::Unrecorded => "no recorded change wrote this line".to_owned(),
            BlameKind::Unknown => format!("unknown: {}{}", line.why.unwrap_or_default(), after("that of")),
            BlameKind::Other => "written by a change that --since or --session leaves out".to_owned(),
        };
        screen::plain(&format!("{}:{}: {what}", self.file, line.line))
    }

    /// `"Fix it" in proj (codex-tui), 03:04:05 UTC: "go on"; gpt-5.5; accepted by client (codex-tui) 03:04:04 UTC`
    fn of_change(&self, change: &BlameChange) -> String {
        let name = one_line(&change.name);
        let who = match change.thread.as_ref().and_then(|thread| thread.title.as_deref()) {
            Some(title) => format!("\"{}\" in {name}", one_line(title)),
            None => format!("thread {} in {name}", one_line(&change.thread_id)),
        };
        let prompt = change.prompt.as_deref().map(|prompt| cut_words(&one_line(prompt), PROMPT_COLUMNS_MAX));
        let prompt = prompt.map(|prompt| format!(": \"{prompt}\"")).unwrap_or_default();
        // Another client may have spoken in the thread.
        let client = change.client.as_deref().map(one_line).filter(|client| !name.ends_with(&format!("({client})")));
        let by = [
            client.map(|client| format!("; by {client}")),
            change.model.as_deref().map(|model| format!("; {}", one_line(model))),
        ];
        let by: String = by.into_iter().flatten().collect();
        let at = self.clock.text(&change.at);
        format!("{who}, {at}{prompt}{by}; {}", self.of_approval(&change.approval))
    }

    /// The approver, and the time.
    fn of_approval(&self, approval: &BlameApproval) -> String {
        let at = approval.at.as_deref().map(|at| format!(" {}", self.clock.text(at))).unwrap_or_default();
        match approval.kind {
            ApprovalKind::Person | ApprovalKind::Rule | ApprovalKind::Reviewer => {
                format!("accepted by {}{at}", approver(approval))
            }
            ApprovalKind::NotAsked => "codex did not ask".to_owned(),
            ApprovalKind::Unknown => match &approval.outcome {
                Some(outcome) => format!("its request was {outcome}{at}"),
                None => "who approved it is not on record".to_owned(),
            },
        }
    }

    /// A row for each line. Programs get words without blanks before its text: number, kind, time, thread, who approved.
    fn table(&self) -> String {
        if self.to == Screen::None {
            let columns = ["LINE", "KIND", "CHANGED", "THREAD", "ACCEPTED BY", "TEXT"].map(Column::whole);
            let rows = self.document.lines.iter().map(|line| self.words_of(line)).collect();
            return Table::of(columns.into(), rows, self.to);
        }
        let columns = vec![
            Column::number("LINE"),
            Column::whole(self.clock.head("CHANGED")),
            Column::text("THREAD"),
            Column::text("PROMPT").spare(),
            Column::text("MODEL").spare(),
            Column::text("ACCEPTED BY"),
            Column::text("TEXT"),
        ];
        let mut before = None;
        let mut row = |line: &BlameLine| {
            let of = (line.kind, line.change);
            // A person sees the origin of several lines at the first one.
            let is_again = before.replace(of) == Some(of);
            let mut row: Vec<Cell> = vec![(Tone::Faint, line.line.to_string())];
            row.extend(if is_again { vec![(Tone::Plain, String::new()); 5] } else { self.origin_cells(line) });
            row.push((Tone::Plain, text_of(line)));
            row
        };
        Table::of(columns, self.document.lines.iter().map(&mut row).collect(), self.to)
    }

    fn words_of(&self, line: &BlameLine) -> Vec<Cell> {
        let change = self.change(line).filter(|_| line.kind == BlameKind::Codex);
        let word = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
        let cells = [
            line.line.to_string(),
            line.kind.name().to_owned(),
            word(change.map(|change| self.clock.cell(&change.at, self.to))),
            word(change.map(|change| change.thread_id.clone())),
            word(change.map(|change| change.approval.kind.name().to_owned())),
            text_of(line),
        ];
        cells.map(|cell| (Tone::Plain, cell)).to_vec()
    }

    /// The cells about the origin of a line: time, thread, prompt, model, approval.
    fn origin_cells(&self, line: &BlameLine) -> Vec<Cell> {
        let plain = |text: &str| (Tone::Plain, text.to_owned());
        let none = || plain("-");
        let instead = |tone: Tone, words: &str| vec![none(), (tone, words.to_owned()), none(), none(), none()];
        match (line.kind, self.change(line)) {
            (BlameKind::Codex, Some(change)) => {
                let title = change.thread.as_ref().and_then(|thread| thread.title.as_deref());
                let prompt = change.prompt.as_deref().unwrap_or("-");
                vec![
                    (Tone::Faint, self.clock.cell(&change.at, self.to)),
                    (Tone::Strong, cell(title.unwrap_or(&change.name))),
                    plain(&cell(prompt)),
                    (Tone::Faint, change.model.as_deref().map_or_else(|| "-".to_owned(), cell)),
                    plain(&cell(&approver(&change.approval))),
                ]
            }
            (BlameKind::Codex, None) | (BlameKind::Unrecorded, _) => instead(Tone::Faint, "no recorded change"),
            (BlameKind::Outside, _) => instead(Tone::Warning, "changed outside"),
            (BlameKind::Unknown, _) => {
                let mut cells = instead(Tone::Warning, "unknown");
                cells[2] = plain(line.why.unwrap_or_default());
                cells
            }
            (BlameKind::Other, _) => instead(Tone::Faint, "another change"),
        }
    }
}

/// The text of a line for a table.
fn text_of(line: &BlameLine) -> String {
    line.text.trim_end_matches('\r').replace('\t', "    ")
}

/// A name or a prompt for a column.
fn cell(text: &str) -> String {
    cut_words(&one_line(text), CELL_COLUMNS_MAX)
}

/// The approver: `client (ide)`.
fn approver(approval: &BlameApproval) -> String {
    let by = approval.by.as_deref().map(one_line);
    match (approval.kind, approval.source.as_deref(), by) {
        (ApprovalKind::Person, Some(source), Some(by)) => format!("{source} ({by})"),
        (ApprovalKind::Person, Some(source), None) => source.to_owned(),
        (ApprovalKind::Person, None, by) => by.unwrap_or_else(|| "a person".to_owned()),
        (ApprovalKind::Rule, _, by) => format!("rule `{}`", by.unwrap_or_default()),
        (ApprovalKind::Reviewer, _, _) => "codex's own reviewer".to_owned(),
        (ApprovalKind::NotAsked, _, _) => "not asked".to_owned(),
        (ApprovalKind::Unknown, _, _) => "not on record".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_name_of_a_file() {
        let check = |place: &str, expect: Option<(&str, Option<RangeInclusive<usize>>)>| {
            assert_eq!(split(place).ok(), expect, "{place}");
        };
        check("src/a.rs", Some(("src/a.rs", None)));
        check("src/a.rs:12", Some(("src/a.rs", Some(12..=12))));
        check("src/a.rs:12,20", Some(("src/a.rs", Some(12..=20))));
        check("src/a.rs:12-20", Some(("src/a.rs", Some(12..=20))));
        check("a:b:3", Some(("a:b", Some(3..=3))));
        check("a:b", Some(("a:b", None)));
        check(":3", Some((":3", None)));
        for wrong in ["a:0", "a:5,4", "a:3x", "a:3,", "a:99999999999999999999"] {
            assert_eq!(split(wrong).err().map(|error| error.exit), Some(2), "{wrong}");
        }
    }
}
