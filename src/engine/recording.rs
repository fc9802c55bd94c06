//! How a line goes on record, and how an answer goes into the ledger.

use super::effect::{Form, MaskedLine, OwnLine};
use super::requests;
use super::secrets::{self, Verdict};
use crate::wire::{Body, Message, Side, stands_verbatim};

/// How a line is put on record.
pub(super) fn form(verdict: &Verdict, body: &Body<'_>, line: &[u8]) -> Form {
    match (verdict, body) {
        (Verdict::Secret, _) => secrets::omitted(body, line.len()),
        (Verdict::Masked(carrier), _) => match std::str::from_utf8(line).map(|line| carrier.masked(line)) {
            Ok(Ok(None)) => form(&Verdict::Open, body, line),
            Ok(Ok(Some(text))) => {
                let is_verbatim = stands_verbatim(text.as_bytes());
                Form::Masked(Box::new(MaskedLine { text, is_verbatim }))
            }
            Ok(Err(_)) | Err(_) => secrets::omitted(body, line.len()),
        },
        (Verdict::Open, Body::Message(_) | Body::OtherJson) if stands_verbatim(line) => Form::Verbatim,
        (Verdict::Open, Body::Message(_) | Body::OtherJson | Body::Text) => Form::Text,
        (Verdict::Open, Body::Bytes) => Form::Base64,
    }
}

/// A line of ours to the server that goes with no line of the client.
pub(super) fn free_line(bytes: Vec<u8>) -> OwnLine {
    own_free_line(Side::Server, bytes)
}

/// The same to either side.
pub(super) fn own_free_line(to: Side, bytes: Vec<u8>) -> OwnLine {
    let form = if stands_verbatim(&bytes) { Form::Verbatim } else { Form::Text };
    OwnLine { to, form, bytes }
}

/// A line of ours that goes with a line of this verdict and kind.
pub(super) fn own_line(to: Side, verdict: &Verdict, body: &Body<'_>, bytes: Vec<u8>) -> OwnLine {
    OwnLine { to, form: form(verdict, body, &bytes), bytes }
}

/// The answer for the ledger: as much of it as may stand in the record.
pub(super) fn kept_answer(verdict: &Verdict, line: &[u8], message: &Message<'_>) -> String {
    match verdict {
        Verdict::Open => requests::answered(message),
        Verdict::Secret => requests::OMITTED.to_owned(),
        Verdict::Masked(carrier) => match std::str::from_utf8(line).map(|line| carrier.masked(line)) {
            Ok(Ok(None)) => requests::answered(message),
            Ok(Ok(Some(masked))) => match Body::parse(masked.as_bytes()) {
                Body::Message(message) => requests::answered(&message),
                Body::OtherJson | Body::Text | Body::Bytes => requests::OMITTED.to_owned(),
            },
            Ok(Err(_)) | Err(_) => requests::OMITTED.to_owned(),
        },
    }
}
