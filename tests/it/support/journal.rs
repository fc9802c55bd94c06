//! The contents of a journal, read with the library's own reader and checked on the way.

use std::path::Path;

use codex_shim::testing::journal::reader::{Reader, Step};
use codex_shim::testing::journal::{Content, Header, Origin, Record};
use codex_shim::testing::wire::{LineEnd, Side};
use serde_json::Value;

/// The records of a session, in order.
#[derive(Debug, Default)]
pub struct Journal {
    pub headers: Vec<Header>,
    /// Lines of each side as they passed, with their `
    /// ` if they had one; `None` for lines that are not on record.
    pub client: Vec<Option<Vec<u8>>>,
    pub server: Vec<Option<Vec<u8>>>,
    /// Our own lines: their receiver, whether they replace the line before, and their bytes as above.
    pub own: Vec<(Side, bool, Option<Vec<u8>>)>,
    /// Names and data of events.
    pub events: Vec<(String, Value)>,
    /// Lines and reason of gaps.
    pub gaps: Vec<(u64, String)>,
    /// Every record as text, headers excepted.
    pub texts: Vec<String>,
}

impl Journal {
    /// Reads the journal in a session's folder.
    pub fn read(session: &Path) -> Journal {
        let mut reader = Reader::new(&session.join("journal"), None);
        let mut journal = Journal::default();
        let mut last_at = 0;
        loop {
            let bytes = match reader.step().expect("the journal can be read") {
                Step::Record { bytes, .. } => bytes,
                Step::Lost { at } => panic!("a segment is missing: {at:?}"),
                Step::End => return journal,
            };
            let text = String::from_utf8(bytes.to_vec()).expect("a record is UTF-8");
            let record = Record::parse(bytes).unwrap_or_else(|error| panic!("{error}: {text}"));
            let at = match &record {
                Record::Header(header) => header.at,
                Record::Line { at_us, .. } | Record::Event { at_us, .. } | Record::Gap { at_us, .. } => *at_us,
            };
            assert!(at >= last_at, "time goes back: {text}");
            last_at = at;
            journal.add(record);
            journal.texts.push(text);
        }
    }

    fn add(&mut self, record: Record<'_>) {
        match record {
            Record::Header(header) => self.headers.push(header),
            Record::Event { event, data, .. } => {
                let data = data.map_or(Value::Null, |data| serde_json::from_str(data.get()).expect("data is JSON"));
                self.events.push((event.into_owned(), data));
            }
            Record::Gap { lines, reason, .. } => self.gaps.push((lines, reason.into_owned())),
            Record::Line { from, to, replaces, content, end, .. } => {
                let line = as_read(&content, end);
                match from {
                    Origin::Side(Side::Client) => self.client.push(line),
                    Origin::Side(Side::Server) => self.server.push(line),
                    Origin::Shim => self.own.push((to.expect("a line of ours goes to a side"), replaces, line)),
                }
            }
        }
    }

    /// Everything one side wrote. Panics if a line of it is not on record.
    pub fn bytes(&self, side: Side) -> Vec<u8> {
        let lines = match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        };
        lines.iter().flat_map(|line| line.as_deref().expect("the line is on record").to_vec()).collect()
    }

    /// The names of the events.
    pub fn event_names(&self) -> Vec<&str> {
        self.events.iter().map(|(name, _)| name.as_str()).collect()
    }
}

fn as_read(content: &Content<'_>, end: LineEnd) -> Option<Vec<u8>> {
    let mut line = content.bytes()?.to_vec();
    if end == LineEnd::Newline {
        line.push(b'\n');
    }
    Some(line)
}
