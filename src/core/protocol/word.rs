//! The words of an answer to an approval.

use super::early;

/// A decision in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Approve once.
    Accept,
    /// Approve, and approve the same again in this session without asking.
    AcceptForSession,
    /// Decline; the model goes on without it.
    Decline,
    /// Decline and end the turn.
    Cancel,
}

impl Word {
    pub const ALL: [Word; 4] = [Word::Accept, Word::AcceptForSession, Word::Decline, Word::Cancel];

    /// The word in answers. Source: the real server.
    pub const fn decision(self) -> &'static str {
        match self {
            Word::Accept => "accept",
            Word::AcceptForSession => "acceptForSession",
            Word::Decline => "decline",
            Word::Cancel => "cancel",
        }
    }

    /// The word that the server reads in an answer to a request of this method.
    pub fn in_answer_to(self, method: &str) -> &'static str {
        if early::says_all(method) { early::word(self) } else { self.decision() }
    }

    /// The word that a caller gives to a request of this method: that of today, or that of the server.
    pub fn given(method: &str, word: &str) -> Option<Word> {
        let is_given = |of: &Word| of.decision() == word || of.in_answer_to(method) == word;
        Word::ALL.into_iter().find(is_given)
    }

    /// The word of a stored answer, whatever its request was.
    pub fn named(word: &str) -> Option<Word> {
        Word::ALL.into_iter().find(|of| of.decision() == word || early::word(*of) == word)
    }
}
