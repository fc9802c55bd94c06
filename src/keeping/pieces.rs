//! Texts that a journal holds in pieces: a secret may be split between two records.

use serde::Deserialize;

use crate::engine::{InPieces, Masker, Pieces};
use crate::journal::{Origin, Record};
use crate::wire::Side;

/// The spans to mask in the pieces of a segment, by record number.
pub(super) fn in_segment(segment: &[u8], masker: &Masker) -> InPieces {
    let mut pieces = Pieces::default();
    for (number, record) in (0..).zip(segment.split(|byte| *byte == b'\n')) {
        add_piece(&mut pieces, number, record);
    }
    masker.in_pieces(&pieces)
}

/// Adds the piece of a text in a journal record, if it has one.
pub(crate) fn add_piece(pieces: &mut Pieces, number: u64, record: &[u8]) {
    #[derive(Deserialize)]
    struct Told<'a> {
        method: &'a str,
        #[serde(borrow)]
        params: Piece<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Piece<'a> {
        #[serde(alias = "conversationId")]
        thread_id: Option<&'a str>,
        item_id: Option<&'a str>,
        #[serde(borrow)]
        msg: Option<Early<'a>>,
    }
    /// The delta format of early 2026.
    #[derive(Deserialize)]
    struct Early<'a> {
        item_id: Option<&'a str>,
        call_id: Option<&'a str>,
        stream: Option<&'a str>,
    }
    let has = |name: &[u8]| memchr::memmem::find(record, name).is_some();
    if !has(b"\"delta\"") && !has(b"\"chunk\"") {
        return;
    }
    let (Ok(Record::Line { from, content, .. }), Ok(text)) = (Record::parse(record), std::str::from_utf8(record))
    else {
        return;
    };
    let writer = match from {
        Origin::Side(Side::Client) => "client",
        Origin::Side(Side::Server) => "server",
        Origin::Shim => "shim",
    };
    if let Ok(Told { method, params }) = serde_json::from_slice(content.bytes().unwrap_or_default()) {
        let Piece { thread_id, item_id, msg } = params;
        let early = msg.map(|Early { item_id, call_id, stream }| (item_id, call_id, stream));
        pieces.add(format!("{writer} {method} {thread_id:?} {item_id:?} {early:?}"), number, text);
    }
}
