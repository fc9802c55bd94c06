//! Coverage: which events of the fault model have happened.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The events of the fault model and of the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Event {
    Step,
    Kill,
    DeathOfTheChild,
    FailedCommit,
    /// A line that was not recorded for lack of space.
    MissedLine,
    Request,
    /// A request that the server repeats while its answer is missing or in flight.
    RepeatedRequest,
    /// A request that the server repeats after an answer.
    RequestAgain,
    /// A client's answer that is lost and still forwarded.
    ForwardedLostAnswer,
    /// A request that is hidden from the client.
    HiddenRequest,
    /// A hidden request that the client sees after all.
    LateShow,
    Answer,
    /// A losing answer.
    LostAnswer,
    /// A client's answer while another one is being stored.
    RunnerUp,
    /// A runner-up that is sent because the other answer could not be stored.
    SentRunnerUp,
    /// A runner-up that is sent because the ledger takes too long for the other answer.
    TiredRunnerUp,
    /// A request that the server withdrew while an answer was being stored.
    OverWhileDeciding,
    /// An answer that was taken back, because the server did not want it any more.
    TakenBack,
    /// A line that waited for the ledger until the deadline.
    HoldUntilDeadline,
    Expiry,
    /// Words of the user with context before them.
    Envelope,
    OddLine,
    IndexStop,
    History,
    /// A check of a live session's activity.
    LookAtActivity,
    /// Stored data was restored or lost.
    Harm,
    /// The program finds a defect in itself.
    Defect,
    /// A client connects to a hub.
    Connected,
    /// A client closes its connection to a hub.
    ClientLeaves,
    /// A connection ends while one of its messages waits for a commit.
    LeftWithHold,
    /// A hub disconnects a client that reads nothing.
    SlowClient,
    /// The server closes a connection.
    ServerCuts,
    /// A hub is killed.
    HubKill,
    /// The hub has become another program.
    Handover,
    /// A hub is killed in the middle of an append.
    TornAppend,
    /// A hub is killed between a commit and the passing of what waited for it.
    KillAfterCommit,
    /// A hub takes over the server of an earlier one.
    Adoption,
    /// The server of a hub dies.
    DeathOfTheServer,
    /// One more delivery of an open request.
    Copy,
    /// The server asks again because it has not got the answer.
    AskedAgain,
    /// The server asks again for a request whose answer an earlier hub has stored.
    StoredAnswerSent,
    /// The server needs no answer any more to a request of an earlier hub.
    OverBefore,
    /// An answer that an earlier hub has stored is replaced, because another one went to the server before the ledger was open: too
    /// rare to be expected.
    ReplacedStored,
    /// A request gets another row because the ledger was opened late: too rare to be expected.
    OpenedAnew,
    /// An answer of ours waits for a connection.
    Unsent,
    /// An answer of policy or a rule was lost with its connection, and is sent again.
    SentAgain,
    /// A connection that ends is cut, because a side does not take what waits for it.
    CutLink,
    /// A check of a hub's history.
    HubHistory,
    /// A line of a client that waits for the context of its thread.
    HeldLine,
    /// A line that has waited for it, and goes on.
    ReleasedLine,
    /// A client closes its end while lines of it wait for their context.
    EndBehindHeld,
    /// A fragment goes ahead of a turn.
    FragmentAhead,
    /// A rule has answered.
    AnswerByRule,
    /// The check of a program has failed.
    FailedCheck,
    /// A rule took too long.
    TiredRule,
    /// The client gets a request on which a rule has not decided.
    ShownAfterRule,
    /// An answer was taken back before it was on its way.
    UnsentTakenBack,
    /// The ledger had no room for an answer.
    RefusedOrder,
    /// A line that was not recorded because there was no journal yet.
    LineWithoutJournal,
    /// Lines of several clients go on together.
    HeldOfSeveral,
    /// A close frame of one side reaches the other.
    CloseFrame,
}

impl Event {
    const ALL: [Event; 59] = [
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
        Event::TiredRunnerUp,
        Event::OverWhileDeciding,
        Event::TakenBack,
        Event::HoldUntilDeadline,
        Event::Expiry,
        Event::Envelope,
        Event::OddLine,
        Event::IndexStop,
        Event::History,
        Event::LookAtActivity,
        Event::Harm,
        Event::Defect,
        Event::Connected,
        Event::ClientLeaves,
        Event::LeftWithHold,
        Event::SlowClient,
        Event::ServerCuts,
        Event::HubKill,
        Event::Handover,
        Event::TornAppend,
        Event::KillAfterCommit,
        Event::Adoption,
        Event::DeathOfTheServer,
        Event::Copy,
        Event::AskedAgain,
        Event::Unsent,
        Event::StoredAnswerSent,
        Event::OverBefore,
        Event::SentAgain,
        Event::CutLink,
        Event::HubHistory,
        Event::HeldLine,
        Event::ReleasedLine,
        Event::EndBehindHeld,
        Event::FragmentAhead,
        Event::AnswerByRule,
        Event::FailedCheck,
        Event::TiredRule,
        Event::ShownAfterRule,
        Event::UnsentTakenBack,
        Event::RefusedOrder,
        Event::LineWithoutJournal,
        Event::HeldOfSeveral,
        Event::CloseFrame,
    ];
}

/// How often each event has happened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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

    /// The events that have not happened at all.
    pub fn missing(&self) -> Vec<Event> {
        Event::ALL.into_iter().filter(|event| self.times(*event) == 0).collect()
    }
}
