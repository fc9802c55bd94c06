//! Selects the records that belong to one thread.

use std::collections::BTreeMap;

use super::tape::{EntryKind, thread_of};
use crate::journal::{Content, Origin, Record};
use crate::wire::{RpcId, Side};

/// Selects the records of one thread and those of no thread. Call `look` for every record in order, then ask for the
/// results.
#[derive(Debug)]
pub(crate) struct Selection {
    thread: Option<String>,
    keeps: Vec<bool>,
    seen_thread: bool,
    /// Open requests of the client, with their record numbers.
    by_client: BTreeMap<RpcId, usize>,
    by_server: BTreeMap<RpcId, usize>,
}

impl Selection {
    /// Selects the records of `thread`, or all records if it is `None`.
    #[must_use]
    pub(crate) fn new(thread: Option<String>) -> Selection {
        Selection {
            seen_thread: thread.is_none(),
            thread,
            keeps: Vec::new(),
            by_client: BTreeMap::new(),
            by_server: BTreeMap::new(),
        }
    }

    /// Reads the next record.
    pub(crate) fn look(&mut self, record: &[u8]) {
        let number = self.keeps.len();
        self.keeps.push(true);
        let Some(wanted) = &self.thread else { return };
        let Ok(Record::Line { from, to, replaces, content, .. }) = Record::parse(record) else { return };
        let side = match (from, to) {
            (Origin::Side(side), _) => side,
            // A replacement belongs to the line that it replaces. Our own call is treated as the client's, our own
            // answer as the server's.
            (Origin::Shim, _) if replaces => {
                self.keeps[number] = number.checked_sub(1).is_none_or(|replaced| self.keeps[replaced]);
                return;
            }
            (Origin::Shim, Some(Side::Server)) => Side::Client,
            (Origin::Shim, Some(Side::Client)) => Side::Server,
            (Origin::Shim, None) => return,
        };
        let (kind, thread) = match &content {
            Content::Omitted { method, id, .. } => (omitted_kind(method.as_deref(), id.map(RpcId::from_raw)), None),
            Content::Json(_) | Content::Text(_) | Content::Bytes(_) => {
                let line = content.bytes().unwrap_or_default();
                (EntryKind::of(line), thread_of(line))
            }
        };
        self.seen_thread |= thread.as_ref() == Some(wanted);
        let is_other = thread.is_some_and(|thread| thread != *wanted);
        self.keeps[number] = !is_other;
        let (asked_here, asked_there) = match side {
            Side::Client => (&mut self.by_client, &mut self.by_server),
            Side::Server => (&mut self.by_server, &mut self.by_client),
        };
        match kind {
            EntryKind::Request { id, .. } => drop(asked_here.insert(id, number)),
            EntryKind::Response { id } => {
                // An answer belongs to its request; either may name the thread.
                if let Some(request) = asked_there.remove(&id) {
                    let keeps = self.keeps[request] && self.keeps[number];
                    self.keeps[request] = keeps;
                    self.keeps[number] = keeps;
                }
            }
            EntryKind::Notification { .. } | EntryKind::Other => {}
        }
    }

    /// Whether any record names the wanted thread.
    #[must_use]
    pub(crate) fn has_seen_thread(&self) -> bool {
        self.seen_thread
    }

    /// Whether the record of this number, from 0, is selected.
    #[must_use]
    pub(crate) fn keeps(&self, number: usize) -> bool {
        self.keeps.get(number).copied().unwrap_or(false)
    }
}

fn omitted_kind(method: Option<&str>, id: Option<RpcId>) -> EntryKind {
    match (method, id) {
        (Some(method), Some(id)) => EntryKind::Request { method: method.to_owned(), id },
        (None, Some(id)) => EntryKind::Response { id },
        (_, None) => EntryKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_with_its_request() {
        let records = [
            r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#,
            r#"{"at":1,"from":"client","line":{"id":0,"method":"initialize"}}"#,
            r#"{"at":2,"from":"client","line":{"id":1,"method":"thread/start","params":{}}}"#,
            r#"{"at":3,"from":"server","line":{"id":1,"result":{"thread":{"id":"A"}}}}"#,
            r#"{"at":4,"from":"client","line":{"id":2,"method":"thread/start","params":{}}}"#,
            r#"{"at":5,"from":"server","line":{"id":2,"result":{"thread":{"id":"B"}}}}"#,
            r#"{"at":6,"from":"server","line":{"id":0,"method":"ask","params":{"threadId":"B"}}}"#,
            r#"{"at":7,"from":"client","line":{"id":0,"result":{}}}"#,
            r#"{"at":8,"from":"server","line":{"method":"note","params":{"threadId":"A"}}}"#,
            r#"{"at":9,"from":"server","text":"noise"}"#,
            r#"{"at":10,"from":"shim","to":"client","replaces":true,"text":"noise"}"#,
            r#"{"at":11,"from":"client","line":{"id":3,"method":"turn/start","params":{"threadId":"A"}}}"#,
            r#"{"at":12,"from":"shim","to":"server","replaces":true,"line":{"id":3,"method":"turn/start","params":{}}}"#,
            r#"{"at":13,"from":"shim","to":"server","line":{"id":"codex-shim:1","method":"x","params":{"threadId":"B"}}}"#,
            r#"{"at":14,"from":"server","line":{"id":"codex-shim:1","result":{}}}"#,
        ];
        let chosen = |thread: Option<&str>| {
            let mut selection = Selection::new(thread.map(str::to_owned));
            records.iter().for_each(|record| selection.look(record.as_bytes()));
            (0..records.len()).filter(|number| selection.keeps(*number)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(Some("A")), [0, 1, 2, 3, 8, 9, 10, 11, 12]);
        assert_eq!(chosen(Some("B")), [0, 1, 4, 5, 6, 7, 9, 10, 13, 14]);
        assert_eq!(chosen(None).len(), records.len());
    }
}
