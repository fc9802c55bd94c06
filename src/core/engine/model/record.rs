//! How a line is recorded.

use serde::{Deserialize, Serialize};

use crate::secrets::Carrier;

/// How much of a line may be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) enum Verdict {
    /// All of it.
    Open,
    /// All but the credentials in these members.
    Masked(Carrier),
    /// Nothing.
    Secret,
}

/// How a line is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// As written: the line is one JSON value.
    Verbatim,
    /// As a JSON string: the line is UTF-8.
    Text,
    /// As base64: the line is not UTF-8.
    Base64,
    /// As written or as a JSON string, with credentials masked.
    Masked(Box<MaskedLine>),
    /// Omitted; only its presence is recorded.
    Omitted(Box<Omitted>),
}

/// A line with masked credentials; the length is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedLine {
    pub text: String,
    /// The text can be recorded as written.
    pub is_verbatim: bool,
}

/// The recorded facts of an omitted line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    pub reason: OmittedReason,
    /// Length in bytes, without the `\n`.
    pub line_bytes: u64,
    /// The method, if readable.
    pub method: Option<String>,
    /// The id as raw JSON, if readable.
    pub id: Option<String>,
}

/// Why a line is omitted from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OmittedReason {
    /// It carries a credential.
    Secret,
    /// The line exceeds [`crate::wire::LINE_BYTES_MAX`].
    Size,
}
