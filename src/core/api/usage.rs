//! What turns have used: tokens, time, commands and requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parameter::{Moment, query};
use super::session::ThreadIdentityDocument;
use crate::history::{AnsweredBy, Counts};

query! {
    /// The usage of the turns that began at a time or later. Accounts are always of whole threads.
    UsageQuery -> UsageDocument = "usage" {
        since: Moment,
    }
}

/// Threads by their ids.
pub type Identities = BTreeMap<String, ThreadIdentityDocument>;

/// The usage of a session, and who its threads are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageDocument {
    #[serde(flatten)]
    pub usage: SessionUsage,
    /// Relays of older versions omit it.
    #[serde(default)]
    pub identities: Identities,
}

/// Tokens in documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_output_tokens: u64,
    pub total_tokens: u64,
}

impl From<Counts> for Tokens {
    fn from(Counts { input, cached, output, reasoning, total }: Counts) -> Tokens {
        Tokens {
            input_tokens: input,
            cached_input_tokens: cached,
            output_tokens: output,
            reasoning_output_tokens: reasoning,
            total_tokens: total,
        }
    }
}

impl Tokens {
    pub fn add(&mut self, more: Tokens) {
        *self = self.counts().plus(more.counts()).into();
    }

    pub fn counts(self) -> Counts {
        let Tokens { input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens, total_tokens } = self;
        [input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens, total_tokens].into()
    }
}

/// Sums of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub turns: u64,
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Time of turns without an open request to a human.
    pub working_ms: u64,
    /// Time with an open request to a human.
    pub waiting_ms: u64,
    /// Commands that ended.
    pub commands: u64,
    /// Requests to a human.
    pub requests: u64,
    pub answered_by: Answered,
}

/// Requests by who ended them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    pub client: u64,
    pub tui: u64,
    /// Hosts of a fleet with an older version do not tell it.
    #[serde(default)]
    pub web: u64,
    pub cli: u64,
    pub api: u64,
    pub policy: u64,
    pub nobody: u64,
}

impl Answered {
    /// With names, in the order of the columns.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        let Answered { client, tui, web, cli, api, policy, nobody } = *self;
        let numbers = [client, tui, web, cli, api, policy, nobody];
        std::array::from_fn(|index| (AnsweredBy::ALL[index].name(), numbers[index]))
    }
}

impl Used {
    pub fn add(&mut self, more: &Used) {
        self.turns += more.turns;
        self.tokens.add(more.tokens);
        self.working_ms += more.working_ms;
        self.waiting_ms += more.waiting_ms;
        self.commands += more.commands;
        self.requests += more.requests;
        let Answered { client, tui, web, cli, api, policy, nobody } = more.answered_by;
        self.answered_by.client += client;
        self.answered_by.tui += tui;
        self.answered_by.web += web;
        self.answered_by.cli += cli;
        self.answered_by.api += api;
        self.answered_by.policy += policy;
        self.answered_by.nobody += nobody;
    }
}

/// The usage of a turn, or of the part of a thread outside its turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsage {
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub client: Option<String>,
    pub model: Option<String>,
    /// RFC 3339.
    pub began_at: String,
    /// `None` for a turn that runs.
    pub outcome: Option<String>,
    /// The row is the sum of old turns, which have no rows of their own any more.
    pub older: bool,
    #[serde(flatten)]
    pub used: Used,
}

/// The account of a thread: `turns + before_record + not_on_record = codex_total + set_back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadUsage {
    pub thread_id: String,
    /// As codex reported it last.
    pub codex_total: Tokens,
    /// The sum over its turns.
    pub turns: Tokens,
    pub before_record: Tokens,
    pub not_on_record: Tokens,
    pub set_back: Tokens,
    pub adds_up: bool,
}

/// A limit of the account, as it was last reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitDocument {
    pub name: String,
    /// RFC 3339.
    pub told_at: String,
    pub used_percent: u64,
    pub window_minutes: Option<u64>,
    /// RFC 3339.
    pub resets_at: Option<String>,
}

/// The usage of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// The time of the first record that is counted, RFC 3339; `None` if nothing is.
    pub counted_since: Option<String>,
    /// Whether that is the first record of the session. Otherwise, older turns are unknown.
    pub from_start: bool,
    /// Oldest first.
    pub turns: Vec<TurnUsage>,
    pub threads: Vec<ThreadUsage>,
    pub rate_limits: Vec<RateLimitDocument>,
}
