//! `codex-shim transcript --format … -o FILE`: a transcript for somebody else.
//!
//! Every text of others passes through [`clean`] first, which masks secrets and replaces home folders, and then through
//! [`shown`] or the escapes of its format. This module only reads stored data.

mod clean;
mod html;
mod markdown;
mod message;
#[cfg(test)]
mod properties;
mod shown;
mod whole;

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::output_file::{self, Existing};
use super::super::progress::Progress;
use super::super::screen::{self, Clock, Screen, counted};
use super::super::{Done, say};
use super::below::{Detail, More};
use super::transcript::{OUTPUT_LINES_MAX, TranscriptArguments, in_words};
use crate::api::{Content, Entry};
use crate::config::Environment;
use crate::control::{RequestOrigin, recorded_threads};
use crate::engine::one_line;
use crate::history::client_name;
use crate::store::Found;
use clean::Cleaner;
use whole::WholeItems;

/// Lines shown from the end of an output in a page.
const PAGE_OUTPUT_LINES_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// As on a terminal
    Text,
    /// Markdown
    #[value(name = "md")]
    Markdown,
    /// One page that loads nothing
    Html,
    /// One document
    Json,
}

impl Format {
    /// The format for the name of a file.
    fn of_name(arguments: &TranscriptArguments) -> Format {
        let extension = arguments.output.as_deref().and_then(|path| path.extension()).and_then(|name| name.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("md" | "markdown") => Format::Markdown,
            Some("html" | "htm") => Format::Html,
            Some("json") => Format::Json,
            Some(_) | None => Format::Text,
        }
    }
}

/// Facts about the thread at the top of an export, cleaned.
struct Facts {
    thread: String,
    title: Option<String>,
    /// What the thread is for, unless a person speaks in it.
    kind: Option<&'static str>,
    /// Of the thread, else of its session.
    folder: Option<String>,
    client: Option<String>,
    /// The times of the first and the last entry, RFC 3339.
    from: String,
    to: String,
    missing: Option<String>,
}

impl Facts {
    /// Each fact with its name.
    fn rows(&self, clock: &Clock) -> Vec<(&'static str, String)> {
        let time = |at: &str| clock.cell(at, Screen::None);
        let mut rows = vec![("thread", self.thread.clone())];
        rows.extend(self.title.clone().map(|title| ("title", title)));
        rows.extend(self.kind.map(|kind| ("of", kind.to_owned())));
        rows.extend(self.folder.clone().map(|folder| ("folder", folder)));
        rows.extend(self.client.clone().map(|client| ("client", client)));
        rows.push(("from", time(&self.from)));
        rows.push(("to", time(&self.to)));
        rows.push(("exported by", concat!("codex-shim ", env!("CARGO_PKG_VERSION")).to_owned()));
        rows.extend(self.missing.clone().map(|missing| ("missing", missing)));
        rows
    }
}

/// Exports the entries of a thread.
pub(super) fn run(
    arguments: &TranscriptArguments,
    session: &Found,
    thread: &str,
    entries: &[Box<RawValue>],
    environment: &Environment,
) -> Done {
    let format = arguments.format.unwrap_or_else(|| Format::of_name(arguments));
    let cleaner = Cleaner::new(arguments.paths, environment);
    let items = match arguments.full {
        true => WholeItems::find(&session.journal_dir(), thread, entries)
            .map_err(|error| format!("read {}: {error}", session.journal_dir().display()))?,
        false => WholeItems::none(),
    };
    let facts = facts(session, thread, entries, &items, &cleaner);
    let to = if arguments.output.is_some() { Screen::None } else { Screen::of_stdout(environment) };
    let export = Export { format, arguments, cleaner, items, clock: Clock::of(&arguments.times), to, entries };
    let written = match &arguments.output {
        Some(path) => {
            let existing = if arguments.force { Existing::ReplacedItself } else { Existing::Kept };
            let fill = |output: &mut BufWriter<_>, goes_on: output_file::GoesOn<'_>| {
                export.write(&facts, output, goes_on).map_err(|error| error.to_string())
            };
            output_file::write(path, existing, fill)?;
            say(&format!(
                "wrote {} to {}",
                counted(entries.len() as u64, "entry", "entries").unwrap_or_default(),
                path.display()
            ));
            Ok(())
        }
        None => {
            let mut output = BufWriter::new(io::stdout().lock());
            export.write(&facts, &mut output, &|| true).and_then(|()| output.flush())
        }
    };
    if let Some(missing) = &facts.missing {
        say(missing);
    }
    written.map(|()| 0).map_err(|error| screen::unread_or_unwritten(&error))
}

fn facts(session: &Found, thread: &str, entries: &[Box<RawValue>], items: &WholeItems, cleaner: &Cleaner) -> Facts {
    let time = |entry: Option<&Box<RawValue>>| {
        entry.and_then(|entry| Entry::read(entry.get())).map(|entry| entry.ts.into_owned()).unwrap_or_default()
    };
    let identity = recorded_threads(&session.dir, &[thread.to_owned()]).remove(thread).unwrap_or_default();
    let (title, kind) = (identity.title.clone(), identity.kind);
    let RequestOrigin { cwd, client, .. } = RequestOrigin::of_thread(session, identity);
    Facts {
        thread: cleaner.text(thread),
        title: title.map(|title| cleaner.text(&one_line(&title))),
        kind: Some(kind.in_words()).filter(|_| !kind.is_user()),
        folder: Some(cwd).filter(|cwd| !cwd.is_empty()).map(|cwd| cleaner.text(&cwd)),
        client: client.map(|name| cleaner.text(client_name(&name))),
        from: time(entries.first()),
        to: time(entries.last()),
        missing: match items.missing() {
            0 => None,
            1 => Some("1 output is cut, because the journal no longer has it whole".to_owned()),
            many => Some(format!("{many} outputs are cut, because the journal no longer has them whole")),
        },
    }
}

/// An export that is ready to be written.
struct Export<'a> {
    format: Format,
    arguments: &'a TranscriptArguments,
    cleaner: Cleaner,
    items: WholeItems,
    clock: Clock,
    to: Screen,
    entries: &'a [Box<RawValue>],
}

impl Export<'_> {
    fn write(&self, facts: &Facts, output: &mut dyn Write, goes_on: output_file::GoesOn<'_>) -> io::Result<()> {
        let rows = facts.rows(&self.clock);
        match self.format {
            Format::Text => {}
            Format::Markdown => output.write_all(markdown::head(&rows).as_bytes())?,
            Format::Html => output.write_all(html::head(&rows).as_bytes())?,
            Format::Json => output.write_all(json_head(facts).as_bytes())?,
        }
        let superseded = self.superseded();
        let progress = Progress::new("exporting", self.entries.len() as u64);
        let mut is_first = true;
        for entry in self.entries {
            if !goes_on() {
                return Err(io::Error::other("interrupted by a signal"));
            }
            progress.advance(1);
            let json = self.items.complete(entry.get(), &self.cleaner)?.to_string();
            let Some(entry) = Entry::read(&json) else { continue };
            let is_old = matches!(&entry.content, Content::Diff(diff) if superseded.contains(&*diff.diff_id));
            let text = match self.format {
                Format::Json => format!("{}{json}", if is_first { "" } else { ",\n" }),
                _ if is_old => continue,
                Format::Text => in_words(&entry, &self.clock, self.to, &self.detail()),
                Format::Markdown => markdown::entry(&entry, &self.clock, &self.detail()),
                Format::Html => html::entry(&entry, &self.clock, &self.detail()),
            };
            is_first = false;
            output.write_all(text.as_bytes())?;
        }
        match self.format {
            Format::Text | Format::Markdown => Ok(()),
            Format::Html => output.write_all(html::TAIL.as_bytes()),
            Format::Json => output.write_all(b"\n]}\n"),
        }
    }

    fn detail(&self) -> Detail {
        let lines_max = if self.format == Format::Text { OUTPUT_LINES_MAX } else { PAGE_OUTPUT_LINES_MAX };
        Detail {
            output_lines_max: (!self.arguments.full).then_some(lines_max),
            has_diffs: self.arguments.diff,
            more: if self.arguments.full { More::All } else { More::Notes },
        }
    }

    /// Diffs of a turn that a later one contains.
    fn superseded(&self) -> HashSet<String> {
        let of_entry = |entry: &RawValue| {
            // Parsing every entry would take long, and few are diffs.
            memchr::memmem::find(entry.get().as_bytes(), b"\"supersedes\"")?;
            let Content::Diff(diff) = Entry::read(entry.get())?.content else { return None };
            diff.supersedes.map(Cow::into_owned)
        };
        self.entries.iter().filter_map(|entry| of_entry(entry)).collect()
    }
}

fn json_head(facts: &Facts) -> String {
    let head = json!({
        "thread_id": facts.thread,
        "title": facts.title,
        "of": facts.kind,
        "folder": facts.folder,
        "client": facts.client,
        "exported_by": concat!("codex-shim ", env!("CARGO_PKG_VERSION")),
        "missing": facts.missing,
    })
    .to_string();
    format!("{},\"entries\":[\n", head.trim_end_matches('}'))
}
