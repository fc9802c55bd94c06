//! Whole outputs: an entry has the end of a long output, and the journal has all of it.
//!
//! The journal is read once, to find the records of the items that were cut; each record is then read again when its entry is
//! written, so that only one output is in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::super::progress::Progress;
use super::clean::Cleaner;
use crate::api::{Content, Entry, ItemDocument};
use crate::engine::terminal::remains_of;
use crate::history::cut_value;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Origin, Position, Record, SegmentName};
use crate::protocol::Method;
use crate::wire::Side;

/// Marks a cut, in an entry's text.
const MARK: &[u8] = b"truncated_by_bytes\":";

/// The name of an item: its turn, if an entry has one, and its id.
type Name = (Option<String>, String);

/// An item of the protocol: the members of which an entry may have only a part.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeItem {
    #[serde(default)]
    id: String,
    aggregated_output: Option<String>,
    arguments: Option<Value>,
    result: Option<Value>,
}

/// A message of the server.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Completed {
    thread_id: String,
    turn_id: Option<String>,
    item: WholeItem,
}

/// A thread that a client has read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadRead {
    thread: Thread,
    initial_turns_page: Option<Page>,
}

#[derive(Deserialize)]
struct Thread {
    id: String,
    turns: Option<Vec<Turn>>,
}

#[derive(Deserialize)]
struct Page {
    data: Option<Vec<Turn>>,
}

#[derive(Deserialize)]
struct Turn {
    id: Option<String>,
    items: Option<Vec<WholeItem>>,
}

/// The records of the items of which an entry has only a part.
pub(super) struct WholeItems {
    journal: PathBuf,
    thread: String,
    at: HashMap<Name, Position>,
    missing: u64,
}

impl WholeItems {
    /// Completes nothing.
    pub(super) fn none() -> WholeItems {
        WholeItems { journal: PathBuf::new(), thread: String::new(), at: HashMap::new(), missing: 0 }
    }

    /// Looks for the items of entries that were cut.
    pub(super) fn find(journal: &Path, thread: &str, entries: &[Box<RawValue>]) -> io::Result<WholeItems> {
        let mut items = WholeItems { journal: journal.to_owned(), thread: thread.to_owned(), ..WholeItems::none() };
        let cut: HashMap<Name, ItemDocument> = entries.iter().filter_map(|entry| cut_entry(entry.get())).collect();
        if !cut.is_empty() {
            items.read(&cut)?;
        }
        items.missing = (cut.len() - items.at.len()) as u64;
        Ok(items)
    }

    /// How many cut items the journal does not have.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    fn read(&mut self, cut: &HashMap<Name, ItemDocument>) -> io::Result<()> {
        let ids = AhoCorasick::new(cut.keys().map(|(_, id)| id.as_str())).map_err(io::Error::other)?;
        let segments =
            SegmentName::list(&self.journal).or_else(|error| match error.kind() == io::ErrorKind::NotFound {
                true => Ok(Vec::new()),
                false => Err(error),
            })?;
        let sizes: Vec<u64> = segments
            .iter()
            .map(|name| std::fs::metadata(self.journal.join(name.to_string())).map_or(0, |file| file.len()))
            .collect();
        let progress = Progress::new("reading the journal", sizes.iter().sum());
        let mut reader = Reader::new(&self.journal, None);
        let mut found = HashMap::new();
        while !segments.is_empty() {
            let (at, bytes) = match reader.step()? {
                Step::Record { at, bytes } => (at, bytes),
                Step::Lost { .. } => continue,
                Step::End => break,
            };
            progress.advance(bytes.len() as u64 + 1);
            if !ids.is_match(bytes) {
                continue;
            }
            // Each record is parsed once: a long output comes in thousands of pieces, and each names its item.
            for_each_item(bytes, &self.thread, |turn, id, item| {
                for name in [(turn.map(str::to_owned), id.to_owned()), (None, id.to_owned())] {
                    if let Some((name, entry)) = cut.get_key_value(&name)
                        && !found.contains_key(name)
                        && completes(item, entry)
                    {
                        found.insert(name.clone(), at.clone());
                    }
                }
            });
        }
        self.at = found;
        Ok(())
    }

    /// An entry with its secrets masked and home folders replaced, and with its output in full if the journal has it, as it stood
    /// on the screen in the end.
    pub(super) fn complete(&self, json: &str, cleaner: &Cleaner) -> io::Result<Value> {
        let mut entry = cleaner.masked(json);
        if let Some((name, stored)) = cut_entry(json)
            && let Some(item) = self.item(&name, &stored)?
        {
            let item = serde_json::to_string(&item).expect("BUG: plain data is JSON");
            let item = serde_json::from_value::<WholeItem>(cleaner.masked(&item)).unwrap_or_default();
            if let Some(members) = entry.as_object_mut() {
                if let (Some(_), Some(output)) = (stored.output_truncated_by_bytes, item.aggregated_output) {
                    members.remove("output_truncated_by_bytes");
                    members.insert("output".to_owned(), output.into());
                }
                let parts = [("arguments", &stored.arguments, item.arguments), ("result", &stored.result, item.result)];
                for (member, stored, whole) in parts {
                    if let (Some(_), Some(whole)) = (stored.as_ref().and_then(cut_value), whole) {
                        members.insert(member.to_owned(), whole);
                    }
                }
            }
        }
        if let Some(Value::String(output)) = entry.get_mut("output") {
            *output = remains_of(output).into_owned();
        }
        cleaner.all_texts(&mut entry);
        Ok(entry)
    }

    fn item(&self, name: &Name, stored: &ItemDocument) -> io::Result<Option<WholeItem>> {
        let Some(at) = self.at.get(name) else { return Ok(None) };
        match Reader::new(&self.journal, Some(at.clone())).step()? {
            Step::Record { at: read, bytes } if read == *at => {
                let (of_turn, of_item) = name;
                let mut whole = None;
                for_each_item(bytes, &self.thread, |turn, id, item| {
                    let is_it = id == of_item && (of_turn.is_none() || of_turn.as_deref() == turn);
                    if whole.is_none() && is_it && completes(item, stored) {
                        whole = Some(item.clone());
                    }
                });
                Ok(whole)
            }
            // The segment was deleted meanwhile.
            Step::Record { .. } | Step::Lost { .. } | Step::End => Ok(None),
        }
    }
}

/// The name of an entry that was cut, and the action; `None` if it is whole.
fn cut_entry(json: &str) -> Option<(Name, ItemDocument)> {
    memchr::memmem::find(json.as_bytes(), MARK)?;
    let Entry { turn_id, item_id, content, .. } = Entry::read(json)?;
    let (Content::Command(item) | Content::FileChange(item) | Content::Tool(item)) = content else { return None };
    let is_cut = |value: &Option<Value>| value.as_ref().and_then(cut_value).is_some();
    let is_cut = item.output_truncated_by_bytes.is_some() || is_cut(&item.arguments) || is_cut(&item.result);
    is_cut.then_some(((turn_id.map(Cow::into_owned), item_id?.into_owned()), item))
}

/// The completed items of a thread in a record of the server, each with its turn and its id.
fn for_each_item(record: &[u8], thread: &str, mut take: impl FnMut(Option<&str>, &str, &WholeItem)) {
    let Ok(record) = Record::parse(record) else { return };
    let Record::Line { from: Origin::Side(Side::Server), content, .. } = &record else { return };
    let Some(message) = content.bytes().and_then(|line| serde_json::from_slice::<Message<'_>>(line).ok()) else {
        return;
    };
    if message.method.as_deref().and_then(Method::of) == Some(Method::ItemCompleted) {
        let completed = message.params.and_then(|params| serde_json::from_str::<Completed>(params.get()).ok());
        if let Some(Completed { turn_id, item, .. }) = completed.filter(|completed| completed.thread_id == thread) {
            take(turn_id.as_deref(), &item.id, &item);
        }
        return;
    }
    let read = message.result.and_then(|result| serde_json::from_str::<ThreadRead>(result.get()).ok());
    let Some(read) = read.filter(|read| read.thread.id == thread) else { return };
    let page = read.initial_turns_page.and_then(|page| page.data);
    for turn in [read.thread.turns, page].into_iter().flatten().flatten() {
        turn.items.iter().flatten().for_each(|item| take(turn.id.as_deref(), &item.id, item));
    }
}

/// Whether an item is the one that an entry has a part of. Ids of early versions of codex are numbers that come again.
fn completes(item: &WholeItem, entry: &ItemDocument) -> bool {
    // Masks are as long as the secrets, so lengths are comparable.
    let fits = |whole: Option<&str>, part: Option<&str>, cut_bytes: u64| {
        whole.zip(part).is_some_and(|(whole, part)| whole.len() as u64 == part.len() as u64 + cut_bytes)
    };
    let output = entry
        .output_truncated_by_bytes
        .map(|cut_bytes| fits(item.aggregated_output.as_deref(), entry.output.as_deref(), cut_bytes));
    let member = |(whole, part): (&Option<Value>, &Option<Value>)| {
        let (cut_bytes, tail) = cut_value(part.as_ref()?)?;
        Some(fits(whole.as_ref().map(Value::to_string).as_deref(), Some(tail), cut_bytes))
    };
    let members = [(&item.arguments, &entry.arguments), (&item.result, &entry.result)];
    let all: Vec<bool> = output.into_iter().chain(members.into_iter().filter_map(member)).collect();
    !all.is_empty() && all.into_iter().all(|fits| fits)
}
