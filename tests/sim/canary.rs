//! Deliberately broken houses, with one defect each, and the check that must find each of them.

/// The defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// No defect.
    None,
    /// Sends the message of an API caller who names no thread to one of no person.
    SpeaksAnywhere,
    /// Loses a byte of the input.
    LosesBytes,
    /// Sends a line of the server twice.
    SaysTwice,
    /// Parses and reserializes lines.
    PrintsAgain,
    /// Lines that should wait behind a request overtake it.
    Overtakes,
    /// Never forwards an answer of the client.
    SwallowsAnswers,
    /// Never forwards the client's answer to a repeated request.
    SwallowsSecondAnswers,
    /// Forwards a line of the server with the envelope in it.
    ShowsEnvelopes,
    /// Never forwards the client's last lines.
    LosesTheClientsLast,
    /// Never forwards the server's last lines.
    LosesTheServersLast,
    /// Forwards a line before it is recorded.
    ForwardsFirst,
    /// Forwards a request before it is stored.
    ShowsUnkept,
    /// Forwards an answer before it is stored.
    SendsUnkept,
    /// Sends an answer to the server again.
    AnswersTwice,
    /// Sends an answer that the server does not want any more.
    KeepsAnswers,
    /// Reports that an answer was taken back of which the server has got a part.
    RecallsBegun,
    /// Changes an answer of the client.
    AltersAnswers,
    /// Loses a stored answer from the ledger.
    ForgetsAnswers,
    /// Loses the end of an unanswered request from the ledger.
    LeavesOpen,
    /// Stores the end of a hidden request, but not the request.
    ForgetsHidden,
    /// Does not store the last hidden requests.
    ForgetsTheLast,
    /// Stores a losing answer as the winner.
    LastAnswerWins,
    /// Does not store a losing answer.
    ForgetsLostAnswers,
    /// Stores an end twice.
    EndsTwice,
    /// Stores an expiry twice.
    ExpiresTwice,
    /// Stores a request again.
    OpensTwice,
    /// Rows do not say that a line was forwarded before it was stored.
    HidesLateness,
    /// Tells an API caller that its winning answer was rejected.
    LiesToCallers,
    /// Never replies to API callers.
    LeavesCallers,
    /// Does not report that the server has exited.
    ForgetsTheEnd,
    /// The index resumes one record too early.
    IndexesAgain,
    /// The index resumes one record too late.
    IndexesTooLittle,
    /// Skips numbers in the index.
    LeavesGaps,
    /// Forgets the issued numbers.
    ForgetsWitness,
    /// Leaves a turn out of the index.
    ForgetsTurns,
    /// Does not read the activity of a session.
    ForgetsActivity,
    /// Reads the activity from only a part of the records.
    LooksTooEarly,
    /// Releases held lines late.
    ReleasesLate,
    /// Reports no time while nothing is held.
    NeverExpires,
    /// Stops forwarding.
    Stalls,
    /// Passes a second answer to the server.
    PassesSecondAnswer,
    /// Records neither that a hub has started nor that clients connect, so that the history counts each delivery.
    CountsTwice,
    /// Drops what a client has written before it left.
    DropsAtDisconnect,
    /// Takes a request for answered if an earlier hub has stored an answer to it, sent or not.
    TrustsEarlierHub,
    /// Shows the envelope in an echo to clients other than the first.
    TellsWrongClient,
    /// Tells a terminal command to another thread than its own.
    MixesThreads,
    /// Tells delivered terminal commands again.
    TellsAgain,
    /// Passes a message to another client.
    MixesClients,
    /// Passes a message on before it is recorded.
    PassesFirst,
    /// Waits for no commit.
    HoldsNothing,
    /// Loses the end of an unanswered request from the ledger.
    HubLeavesOpen,
    /// Does not store a late answer.
    HubForgetsLostAnswers,
    /// Does not know the answers that an earlier hub has stored.
    ForgetsStoredAnswers,
    /// Keeps an answer that another one has replaced.
    KeepsReplacedAnswers,
    /// Sends an answer that the server does not want any more.
    HubKeepsAnswers,
    /// Takes back an answer that the server still wants.
    HubRecallsWanted,
    /// A command that ran in one folder goes to the threads of all.
    CrossesFolders,
    /// The history takes every thread for a person's.
    ForgetsKinds,
    /// The activity counts threads for titles.
    TakesOthersForPersons,
}

impl Canary {
    /// Each canary, with the beginning of the error that must find it.
    pub const ALL: [(Canary, &'static str); 39] = [
        (Canary::LosesBytes, "1: the engine got"),
        (Canary::SaysTwice, "1: the client got"),
        (Canary::PrintsAgain, "1: the "),
        (Canary::Overtakes, "1: the client got"),
        (Canary::SwallowsAnswers, "1: the server "),
        (Canary::SwallowsSecondAnswers, "1: the server "),
        (Canary::ShowsEnvelopes, "1: the client sees an envelope"),
        (Canary::LosesTheClientsLast, "1: the server never got"),
        (Canary::LosesTheServersLast, "1: the client never got"),
        (Canary::ForwardsFirst, "2: the "),
        (Canary::ShowsUnkept, "3: the client sees"),
        (Canary::SendsUnkept, "3: the server gets"),
        (Canary::AnswersTwice, "3: answered twice"),
        (Canary::KeepsAnswers, "3: not the first answer"),
        (Canary::RecallsBegun, "3: kept otherwise"),
        (Canary::AltersAnswers, "3: not the first answer"),
        (Canary::ForgetsAnswers, "3: "),
        (Canary::LeavesOpen, "3: open for ever"),
        (Canary::ForgetsHidden, "3: ends and was never opened"),
        (Canary::ForgetsTheLast, "3: not kept at all"),
        (Canary::LastAnswerWins, "3: kept otherwise"),
        (Canary::ForgetsLostAnswers, "3: lost answers"),
        (Canary::EndsTwice, "3: ends twice"),
        (Canary::ExpiresTwice, "3: expires and does not wait"),
        (Canary::OpensTwice, "3: opened twice"),
        (Canary::HidesLateness, "3: not marked late"),
        (Canary::LiesToCallers, "3: told wrongly: NotOpen"),
        (Canary::LeavesCallers, "3: told wrongly: nothing"),
        (Canary::ForgetsTheEnd, "3: waits for a server that is gone"),
        (Canary::IndexesAgain, "4: indexed twice"),
        (Canary::IndexesTooLittle, "4: event"),
        (Canary::LeavesGaps, "4: the numbers"),
        (Canary::ForgetsWitness, "4: given twice"),
        (Canary::ForgetsTurns, "4: codex_turn_events"),
        (Canary::ForgetsActivity, "5: read live"),
        (Canary::LooksTooEarly, "5: it is not so"),
        (Canary::ReleasesLate, "6: held"),
        (Canary::NeverExpires, "6: waits past its expiry"),
        (Canary::Stalls, "it does not come to rest"),
    ];

    /// The broken hubs.
    pub const OF_HUBS: [(Canary, &'static str); 20] = [
        (Canary::PassesSecondAnswer, "1: the server got"),
        (Canary::CountsTwice, "4: counted otherwise"),
        (Canary::DropsAtDisconnect, "1: the server never got"),
        (Canary::TrustsEarlierHub, "3: not taken back"),
        (Canary::TellsWrongClient, "1: a client sees an envelope"),
        (Canary::MixesThreads, "7: command"),
        (Canary::TellsAgain, "7: the model is told twice"),
        (Canary::MixesClients, "1: client"),
        (Canary::PassesFirst, "2: the "),
        (Canary::HoldsNothing, "3: "),
        (Canary::HubLeavesOpen, "3: open for ever"),
        (Canary::HubForgetsLostAnswers, "3: lost answers"),
        (Canary::ForgetsStoredAnswers, "3: opened twice"),
        (Canary::KeepsReplacedAnswers, "3: "),
        (Canary::HubKeepsAnswers, "3: not taken back"),
        (Canary::SpeaksAnywhere, "8: a message of an API caller"),
        (Canary::HubRecallsWanted, "3: taken back although the server wants it"),
        (Canary::CrossesFolders, "7: the model in "),
        (Canary::ForgetsKinds, "9: "),
        (Canary::TakesOthersForPersons, "9: "),
    ];
}
