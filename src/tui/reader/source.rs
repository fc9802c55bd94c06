//! The journal's records and the events they contain.

use std::io::{self, BufRead as _, Read as _};

use serde_json::{Value, json};

use super::super::timeline::SessionEvent;
use crate::files::{self, Access};
use crate::history::{RecordEvent, Seen, UiFold};
use crate::index::{Follower, Next, Patience};
use crate::journal::{Position, Record};

/// Longest first record that is read, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Result of [`Source::next`].
pub(super) enum NextRecord {
    /// A record, which began here.
    Record(Position),
    /// No record yet.
    Nothing,
}

/// Converts records to events.
pub(super) struct Source {
    follower: Follower,
    ui: UiFold,
    generation: Option<String>,
}

impl Source {
    pub(super) fn new(follower: Follower) -> Source {
        Source { follower, ui: UiFold::default(), generation: None }
    }

    /// Reads a record and appends its events.
    pub(super) fn next(&mut self, patience: Patience, events: &mut Vec<SessionEvent>) -> io::Result<NextRecord> {
        let (at, bytes, successor) = match self.follower.next(patience)? {
            Next::Record { at, bytes, successor } => (at, bytes, successor),
            Next::Lost { at } => {
                let told =
                    json!({ "type": "gap", "lines": 0, "reason": "a part of the journal was removed meanwhile" });
                events.push(SessionEvent { at: at.clone(), at_us: 0, fields: told });
                return Ok(NextRecord::Record(at));
            }
            Next::End => return Ok(NextRecord::Nothing),
        };
        let Ok(record) = Record::parse(bytes) else { return Ok(NextRecord::Record(at)) };
        let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
        let seen = Seen::of(&record, successor.as_ref().and_then(Record::line_bytes));
        let at_us = seen.at_us;
        let mut told = Vec::new();
        self.ui.take(&seen, &mut told);
        // The journal has events that clients never see.
        match &seen.event {
            RecordEvent::Generation(generation) if self.generation.as_ref() != Some(generation) => {
                let begins = json!({ "type": "run", "generation": generation });
                self.generation = Some(generation.clone());
                if at.segment.number == 1 {
                    events.push(SessionEvent { at: at.clone(), at_us, fields: begins });
                }
            }
            RecordEvent::Gap { lines, reason } => {
                let gap = json!({ "type": "gap", "lines": lines, "reason": reason });
                events.push(SessionEvent { at: at.clone(), at_us, fields: gap });
            }
            RecordEvent::Generation(_)
            | RecordEvent::Notification(_)
            | RecordEvent::ServerRequest { .. }
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Other => {}
        }
        events.extend(told.into_iter().map(|event| SessionEvent {
            at: at.clone(),
            at_us,
            fields: serde_json::to_value(&event).unwrap_or(Value::Null),
        }));
        Ok(NextRecord::Record(at))
    }
}

/// The time of a segment's first record, in microseconds since the Unix epoch.
pub(super) fn first_at_us(segment: &std::path::Path) -> Option<u64> {
    let mut line = Vec::new();
    let mut file = io::BufReader::new(files::open(segment, Access::Read).ok()?).take(HEADER_BYTES_MAX);
    file.read_until(b'\n', &mut line).ok()?;
    match Record::parse(line.strip_suffix(b"\n").unwrap_or(&line)).ok()? {
        Record::Header(header) => Some(header.at),
        Record::Line { at_us, .. } | Record::Event { at_us, .. } | Record::Gap { at_us, .. } => Some(at_us),
    }
}
