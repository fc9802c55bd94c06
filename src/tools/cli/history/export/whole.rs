//! Whole outputs: an entry has the end of a long output, and the journal has all of it.
//!
//! The journal is read once, to find the records of the items that were cut; each record is then read again when its entry is
//! written, so that only one output is in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
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
            let item = cleaner.masked(&item.to_string());
            if let Some(members) = entry.as_object_mut() {
                members.remove("output_truncated_by_bytes");
                for (member, in_item, _) in cut_members(&stored) {
                    members.insert(member.to_owned(), item.get(in_item).cloned().unwrap_or_default());
                }
            }
        }
        if let Some(Value::String(output)) = entry.get_mut("output") {
            *output = remains_of(output).into_owned();
        }
        cleaner.all_texts(&mut entry);
        Ok(entry)
    }

    fn item(&self, name: &Name, stored: &ItemDocument) -> io::Result<Option<Value>> {
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
    let name = (turn_id.map(Cow::into_owned), item_id?.into_owned());
    (!cut_members(&item).is_empty()).then_some((name, item))
}

/// The members that were cut, with their names in the protocol and their whole lengths in bytes.
fn cut_members(entry: &ItemDocument) -> Vec<(&'static str, &'static str, u64)> {
    let output = entry.output_truncated_by_bytes.zip(entry.output.as_deref());
    let cut = |value: &'_ Option<Value>| value.as_ref().and_then(cut_value).map(|(cut, tail)| cut + tail.len() as u64);
    let all = [
        ("output", "aggregatedOutput", output.map(|(cut, output)| cut + output.len() as u64)),
        ("arguments", "arguments", cut(&entry.arguments)),
        ("result", "result", cut(&entry.result)),
    ];
    all.into_iter().filter_map(|(member, in_item, bytes)| Some((member, in_item, bytes?))).collect()
}

/// The completed items of a thread in a record of the server, each with its turn and its id.
fn for_each_item(record: &[u8], thread: &str, mut take: impl FnMut(Option<&str>, &str, &Value)) {
    let Ok(record) = Record::parse(record) else { return };
    let Record::Line { from: Origin::Side(Side::Server), content, .. } = &record else { return };
    let Some(line) = content.bytes().and_then(|line| serde_json::from_slice::<Value>(line).ok()) else { return };
    let text = |path: &str| line.pointer(path).and_then(Value::as_str);
    if text("/method").and_then(Method::of) == Some(Method::ItemCompleted) {
        if let (Some(id), Some(item)) = (text("/params/item/id"), line.pointer("/params/item"))
            && text("/params/threadId") == Some(thread)
        {
            take(text("/params/turnId"), id, item);
        }
        return;
    }
    // A client has read the thread.
    if text("/result/thread/id") != Some(thread) {
        return;
    }
    let lists = ["/result/thread/turns", "/result/initialTurnsPage/data"].map(|path| line.pointer(path));
    for turn in lists.into_iter().flatten().filter_map(Value::as_array).flatten() {
        let turn_id = turn.get("id").and_then(Value::as_str);
        for item in turn.get("items").and_then(Value::as_array).into_iter().flatten() {
            item.get("id").and_then(Value::as_str).into_iter().for_each(|id| take(turn_id, id, item));
        }
    }
}

/// Whether an item is the one that an entry has a part of. Ids of early versions of codex are numbers that come again.
fn completes(item: &Value, entry: &ItemDocument) -> bool {
    // Masks are as long as the secrets, so lengths are comparable.
    cut_members(entry).into_iter().all(|(member, in_item, of_whole)| {
        item.get(in_item).is_some_and(|whole| match (member, whole.as_str()) {
            ("output", output) => output.map(|output| output.len() as u64) == Some(of_whole),
            // Values are cut as JSON.
            _ => whole.to_string().len() as u64 == of_whole,
        })
    })
}
