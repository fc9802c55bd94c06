//! Summarizes a tape: its records, and what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::tape::{EntryKind, TapeError, TapeReader, TapeStep, conn_of};
use crate::journal::{Content, Origin, Record, RecordError};
use crate::wire::{Conn, RpcId, Side};

/// Limit of the faults that are listed; further ones are only counted.
const FAULTS_NAMED_MAX: usize = 20;

/// A record in short form, for a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// `client`, `server` or `shim`.
    pub from: &'static str,
    /// `header`, `request`, `notification`, `response`, `text`, `omitted`, `event` or `gap`.
    pub kind: &'static str,
    /// The method, or the name that identifies a record without one.
    pub method: Option<String>,
    /// The id, as JSON.
    pub id: Option<String>,
    /// The thread that the record belongs to.
    pub thread: Option<String>,
    /// The connection of a hub; 0 for a relay on pipes, and for a hub's own.
    pub conn: u32,
    /// Length of the line in bytes.
    pub line_bytes: u64,
}

/// Summarizes a record.
///
/// # Errors
///
/// If it is not a valid record.
pub fn summary_of(record: &[u8]) -> Result<Summary, RecordError> {
    let ours = |at_us, kind, method: String| Summary {
        at_us,
        from: "shim",
        kind,
        method: Some(method),
        id: None,
        thread: None,
        conn: 0,
        line_bytes: 0,
    };
    Ok(match Record::parse(record)? {
        Record::Header(header) => ours(header.at, "header", format!("codex-shim {}", header.shim)),
        Record::Event { at_us, event, data } => {
            let conn = conn_of(data).unwrap_or(Conn::OWN).0;
            Summary { conn, ..ours(at_us, "event", event.into_owned()) }
        }
        Record::Gap { at_us, lines, reason } => ours(at_us, "gap", format!("{lines} lines: {reason}")),
        Record::Line { at_us, conn, from, content, .. } => {
            let from = match from {
                Origin::Side(side) => side.name(),
                Origin::Shim => "shim",
            };
            let (kind, method, id, thread, line_bytes) = match &content {
                Content::Omitted { reason, line_bytes, method, id } => {
                    let method = method.as_deref().unwrap_or("a line");
                    let id = id.map(|id| id.get().to_owned());
                    ("omitted", Some(format!("{method} ({reason})")), id, None, *line_bytes)
                }
                Content::Json(_) | Content::Text(_) | Content::Bytes(_) => {
                    let line = content.bytes().unwrap_or_default();
                    let (kind, method, id) = named(EntryKind::of(line));
                    (kind, method, id, super::tape::thread_of(line), line.len() as u64)
                }
            };
            Summary { at_us, from, kind, method, id, thread, conn: conn.0, line_bytes }
        }
    })
}

fn named(kind: EntryKind) -> (&'static str, Option<String>, Option<String>) {
    match kind {
        EntryKind::Request { method, id } => ("request", Some(method), Some(id.to_string())),
        EntryKind::Notification { method } => ("notification", Some(method), None),
        EntryKind::Response { id } => ("response", None, Some(id.to_string())),
        EntryKind::Other => ("text", None, None),
    }
}

/// The contents of a tape, and the reasons why it is incomplete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Version of its format.
    pub format: Option<u32>,
    /// Number of records of all kinds.
    pub records: u64,
    /// Number of the client's lines.
    pub client_lines: u64,
    /// Number of the server's lines.
    pub server_lines: u64,
    /// Number of the clients of a hub; 0 for a relay on pipes.
    pub connections: u64,
    /// Number of the server's runs.
    pub generations: u64,
    /// The record of the last run's end exists.
    pub ended: bool,
    /// Number of segments missing before the first one that exists.
    pub segments_missing: u32,
    /// The last record was cut off.
    pub torn: bool,
    /// Number of lines that could not be recorded.
    pub gap_lines: u64,
    /// Number of lines omitted as secret.
    pub omitted_secret: u64,
    /// Number of lines omitted as too long.
    pub omitted_size: u64,
    /// Requests of the client without a response.
    pub unanswered_by_server: Vec<String>,
    /// Requests of the server without a response.
    pub unanswered_by_client: Vec<String>,
    /// Invalid records with their line numbers; at most [`FAULTS_NAMED_MAX`] of them.
    pub faults: Vec<String>,
    /// Number of invalid records.
    pub faults_counted: u64,
}

/// The requests without an answer. Several clients of a hub may get the same request of the server.
#[derive(Default)]
struct OpenRequests {
    by_clients: BTreeMap<(Conn, RpcId), String>,
    by_server: BTreeMap<RpcId, String>,
}

/// Whether the rest of a tape can be read.
#[derive(PartialEq, Eq)]
enum Readable {
    Yes,
    No,
}

impl Survey {
    /// Surveys the tape at `path`, a record at a time.
    ///
    /// # Errors
    ///
    /// If it is not a readable tape. A later record that is invalid is a fault in the survey.
    pub fn of(path: &Path) -> Result<Survey, TapeError> {
        let mut reader = TapeReader::open(path)?;
        let mut survey = Survey::default();
        let mut open = OpenRequests::default();
        let mut connections = BTreeSet::new();
        loop {
            match reader.step()? {
                TapeStep::Record { line, bytes } => {
                    if survey.add(line, bytes, &mut open, &mut connections) == Readable::No {
                        break;
                    }
                }
                TapeStep::Torn => {
                    survey.torn = true;
                    break;
                }
                TapeStep::End => break,
            }
        }
        if survey.format.is_none() {
            return Err(TapeError::NotATape { path: path.to_owned() });
        }
        survey.connections = connections.len() as u64;
        let told = |id: &RpcId, method: &str| format!("{method}, request {id}");
        survey.unanswered_by_server = open.by_clients.iter().map(|((_, id), method)| told(id, method)).collect();
        survey.unanswered_by_client = open.by_server.iter().map(|(id, method)| told(id, method)).collect();
        Ok(survey)
    }

    /// Whether every record exists and is unchanged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.format.is_some()
            && !self.torn
            && self.segments_missing == 0
            && self.gap_lines == 0
            && self.faults_counted == 0
    }

    fn add(&mut self, line: u64, bytes: &[u8], open: &mut OpenRequests, connections: &mut BTreeSet<Conn>) -> Readable {
        self.records += 1;
        let record = match Record::parse(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.fault(format!("line {line}: {error}"));
                return if matches!(error, RecordError::Newer(_)) { Readable::No } else { Readable::Yes };
            }
        };
        match record {
            Record::Header(header) => {
                if self.format.is_none() {
                    self.segments_missing = header.segment.saturating_sub(1);
                }
                self.format = self.format.max(Some(header.journal));
                self.generations += u64::from(header.segment == 1 || self.generations == 0);
                self.ended = false;
            }
            Record::Gap { lines, .. } => self.gap_lines += lines,
            Record::Event { event, .. } => self.ended |= event == "generation_ended",
            Record::Line { conn, from: Origin::Shim, to: Some(Side::Client), replaces: false, content, .. } => {
                self.add_line(conn, Side::Server, &content, open);
            }
            Record::Line { from: Origin::Shim, to: Some(Side::Server), replaces: false, content, .. } => {
                if let EntryKind::Response { id } = kind_of(&content) {
                    open.by_server.remove(&id);
                }
            }
            Record::Line { from: Origin::Shim, .. } => {}
            Record::Line { conn, from: Origin::Side(side), content, .. } => {
                connections.extend((conn != Conn::OWN).then_some(conn));
                self.add_line(conn, side, &content, open);
            }
        }
        Readable::Yes
    }

    fn fault(&mut self, what: String) {
        self.faults_counted += 1;
        if self.faults.len() < FAULTS_NAMED_MAX {
            self.faults.push(what);
        }
    }

    fn add_line(&mut self, conn: Conn, side: Side, content: &Content<'_>, open: &mut OpenRequests) {
        let lines = match side {
            Side::Client => &mut self.client_lines,
            Side::Server => &mut self.server_lines,
        };
        *lines += 1;
        if let Content::Omitted { reason, .. } = content {
            let counted = if reason == "size" { &mut self.omitted_size } else { &mut self.omitted_secret };
            *counted += 1;
        }
        match (side, kind_of(content)) {
            (Side::Client, EntryKind::Request { method, id }) => drop(open.by_clients.insert((conn, id), method)),
            (Side::Client, EntryKind::Response { id }) => drop(open.by_server.remove(&id)),
            (Side::Server, EntryKind::Request { method, id }) => drop(open.by_server.insert(id, method)),
            (Side::Server, EntryKind::Response { id }) => drop(open.by_clients.remove(&(conn, id))),
            (Side::Client | Side::Server, EntryKind::Notification { .. } | EntryKind::Other) => {}
        }
    }
}

fn kind_of(content: &Content<'_>) -> EntryKind {
    match content {
        Content::Omitted { method, id, .. } => match (method, id.map(RpcId::from_raw)) {
            (Some(method), Some(id)) => EntryKind::Request { method: method.to_string(), id },
            (None, Some(id)) => EntryKind::Response { id },
            (_, None) => EntryKind::Other,
        },
        Content::Json(_) | Content::Text(_) | Content::Bytes(_) => EntryKind::of(content.bytes().unwrap_or_default()),
    }
}
