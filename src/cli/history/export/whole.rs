//! Whole outputs: an entry has the end of a long output, and the journal has all of it.
//!
//! The journal is read once, to find the records of the items that were cut; each record is then read again when its entry is
//! written, so that only one output is in memory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::super::progress::Progress;
use super::clean::Cleaner;
use crate::engine::terminal::remains_of;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Origin, Position, Record, SegmentName};
use crate::protocol::Method;
use crate::wire::Side;

/// The members of an entry that may be cut, with their names in the protocol.
const CUT: [(&str, &str); 2] = [("arguments", "arguments"), ("result", "result")];

/// Marks of a cut, in an entry's text.
const MARK: &[u8] = b"truncated_by_bytes\":";
const OUTPUT_MARK: &[u8] = b"output_truncated_by_bytes\":";

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
        let cut: HashMap<Name, Value> = entries.iter().filter_map(|entry| cut_entry(entry.get())).collect();
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

    fn read(&mut self, cut: &HashMap<Name, Value>) -> io::Result<()> {
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
            let members = entry.as_object_mut();
            if let (Some(members), true) = (members, stored["output_truncated_by_bytes"].is_u64()) {
                members.remove("output_truncated_by_bytes");
                members.insert("output".to_owned(), item["aggregatedOutput"].clone());
            }
            for (member, in_item) in
                CUT.into_iter().filter(|(member, _)| stored[*member]["truncated_by_bytes"].is_u64())
            {
                entry[member] = item[in_item].clone();
            }
        }
        if let Some(output) = entry["output"].as_str() {
            entry["output"] = remains_of(output).into();
        }
        cleaner.all_texts(&mut entry);
        Ok(entry)
    }

    fn item(&self, name: &Name, stored: &Value) -> io::Result<Option<Value>> {
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

/// The name of an entry that was cut, and the entry; `None` if it is whole.
fn cut_entry(json: &str) -> Option<(Name, Value)> {
    memchr::memmem::find(json.as_bytes(), MARK)?;
    let entry: Value = serde_json::from_str(json).ok()?;
    let is_cut = memchr::memmem::find(json.as_bytes(), OUTPUT_MARK).is_some()
        && entry["output_truncated_by_bytes"].is_u64()
        || CUT.iter().any(|(member, _)| entry[*member]["truncated_by_bytes"].is_u64());
    let id = entry["item_id"].as_str()?.to_owned();
    is_cut.then(|| ((entry["turn_id"].as_str().map(str::to_owned), id), entry))
}

/// The completed items of a thread in a record of the server, each with its turn and its id.
fn for_each_item(record: &[u8], thread: &str, mut take: impl FnMut(Option<&str>, &str, &Value)) {
    let Ok(record) = Record::parse(record) else { return };
    let Record::Line { from: Origin::Side(Side::Server), content, .. } = &record else { return };
    let Some(line) = content.bytes().and_then(|line| serde_json::from_slice::<Value>(line).ok()) else { return };
    let mut found = |turn: &Value, item: &Value| {
        item["id"].as_str().into_iter().for_each(|id| take(turn.as_str(), id, item));
    };
    let params = &line["params"];
    if Method::of(line["method"].as_str().unwrap_or_default()) == Some(Method::ItemCompleted) {
        if params["threadId"] == thread {
            found(&params["turnId"], &params["item"]);
        }
        return;
    }
    // A client has read the thread.
    let result = &line["result"];
    if result["thread"]["id"] != thread {
        return;
    }
    let lists = [&result["thread"]["turns"], &result["initialTurnsPage"]["data"]];
    for turn in lists.into_iter().filter_map(Value::as_array).flatten() {
        let items = turn["items"].as_array().into_iter().flatten();
        items.for_each(|item| found(&turn["id"], item));
    }
}

/// Whether an item is the one that an entry has a part of. Ids of early versions of codex are numbers that come again.
fn completes(item: &Value, entry: &Value) -> bool {
    // Masks are as long as the secrets, so lengths are comparable.
    let output = || {
        let cut = entry["output_truncated_by_bytes"].as_u64()?;
        let (whole, part) = (item["aggregatedOutput"].as_str()?, entry["output"].as_str()?);
        Some(whole.len() as u64 == part.len() as u64 + cut)
    };
    let member = |(member, in_item): (&str, &str)| {
        let cut = entry[member]["truncated_by_bytes"].as_u64()?;
        let (whole, part) = (item.get(in_item)?.to_string(), entry[member]["tail"].as_str()?);
        Some(whole.len() as u64 == part.len() as u64 + cut)
    };
    let all: Vec<bool> = output().into_iter().chain(CUT.into_iter().filter_map(member)).collect();
    !all.is_empty() && all.into_iter().all(|fits| fits)
}
