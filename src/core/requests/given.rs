//! An answer as a user gives it, on a command line or to a host of a fleet. The holder of the whole request makes the body of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{argument, of_answers, of_word};
use super::form::in_one_line;
use crate::api::Request;
use crate::protocol::Word;

/// An answer as the user has given it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Given {
    Decision(Decision),
    /// Texts by question or field.
    Texts {
        answers: Vec<(String, String)>,
    },
    /// The body itself.
    Whole {
        body: Value,
    },
}

/// A word, and a reason for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub word: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Given {
    /// The body for the server.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn body(&self, row: &Request) -> Result<Value, String> {
        match self {
            Given::Whole { body } => Ok(body.clone()),
            Given::Texts { answers } => of_answers(row, answers).map_err(|errors| in_one_line(&errors)),
            Given::Decision(decision) => {
                let word = decision.word().ok_or("unknown decision")?;
                of_word(row, word, decision.reason.as_deref())
            }
        }
    }
}

impl Decision {
    pub fn new(word: Word, reason: Option<&str>) -> Decision {
        Decision { word: argument(word).to_owned(), reason: reason.map(str::to_owned) }
    }

    /// The decision without its reason.
    #[must_use]
    pub fn without_reason(self) -> Decision {
        Decision { reason: None, ..self }
    }

    /// `None` for a word of a later version.
    pub fn word(&self) -> Option<Word> {
        Word::ALL.into_iter().find(|word| argument(*word) == self.word)
    }
}
