//! How much of what can happen has happened.

use std::collections::BTreeMap;

/// What the fault model names, and what the promises are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Step,
    Kill,
    DeathOfTheChild,
    FailedCommit,
    /// A line that is not on record, for want of room.
    MissedLine,
    Request,
    /// One that the server repeats while its answer is missing or on its way.
    RepeatedRequest,
    /// One that it asks again after an answer.
    RequestAgain,
    /// A client's answer that is lost, and goes on all the same.
    ForwardedLostAnswer,
    /// A request that the client is not shown.
    HiddenRequest,
    /// One that it is shown after all.
    LateShow,
    Answer,
    /// An answer that was not the first.
    LostAnswer,
    /// A client's answer while another is being kept.
    RunnerUp,
    /// One of those that is sent, because the other could not be kept.
    SentRunnerUp,
    /// A request that the server withdrew while an answer was being kept.
    OverWhileDeciding,
    /// What waited for the ledger for as long as it may.
    HoldUntilDeadline,
    Expiry,
    /// Words of the user with context in front of them.
    Envelope,
    OddLine,
    IndexStop,
    History,
    /// A session that was looked at while it was live.
    LookAtActivity,
    /// Something that was stored was restored or lost.
    Harm,
}

impl Event {
    const ALL: [Event; 24] = [
        Event::Step,
        Event::Kill,
        Event::DeathOfTheChild,
        Event::FailedCommit,
        Event::MissedLine,
        Event::Request,
        Event::RepeatedRequest,
        Event::RequestAgain,
        Event::ForwardedLostAnswer,
        Event::HiddenRequest,
        Event::LateShow,
        Event::Answer,
        Event::LostAnswer,
        Event::RunnerUp,
        Event::SentRunnerUp,
        Event::OverWhileDeciding,
        Event::HoldUntilDeadline,
        Event::Expiry,
        Event::Envelope,
        Event::OddLine,
        Event::IndexStop,
        Event::History,
        Event::LookAtActivity,
        Event::Harm,
    ];
}

/// How often each has happened.
#[derive(Debug, Clone, Default)]
pub struct Happened(BTreeMap<Event, u64>);

impl Happened {
    pub fn count(&mut self, event: Event) {
        self.add(event, 1);
    }

    pub fn add(&mut self, event: Event, times: u64) {
        *self.0.entry(event).or_default() += times;
    }

    pub fn add_all(&mut self, more: &Happened) {
        more.0.iter().for_each(|(event, times)| self.add(*event, *times));
    }

    pub fn times(&self, event: Event) -> u64 {
        self.0.get(&event).copied().unwrap_or_default()
    }

    /// What has not happened at all.
    pub fn missing(&self) -> Vec<Event> {
        Event::ALL.into_iter().filter(|event| self.times(*event) == 0).collect()
    }
}
