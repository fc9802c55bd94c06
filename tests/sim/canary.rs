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
    /// The next hub program, after a handover, lacks the open requests; or, in the next four, something else.
    LosesRequestsOver,
    /// The commands on their way to a model.
    LosesLeasesOver,
    /// The calls to the server.
    LosesCallsOver,
    /// The messages that wait for a client.
    LosesQueuesOver,
    /// The end of the journal.
    RecordsOverAgain,
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
    /// Takes answers back behind other effects.
    RecallsLast,
    /// Sends an answer that was to be sent when the server withdrew its request.
    HidesInjections,
    /// Tells the API caller of such an answer that it is sent.
    PromisesTaken,
    /// Sends a line of ours inside another line.
    MixesLines,
    /// Loses the line end between a last line that has none and a line of ours.
    GluesLines,
    /// Sends the fragments behind their turn.
    CallsAfterTurns,
    /// Releases lines that waited for their context behind other effects.
    ReleasesLast,
    /// Passes the end of the client's input ahead of its lines that wait for their context.
    EndsBeforeHeld,
    /// Reports an answer as written when it is queued.
    ReportsTooEarly,
    /// Puts what is sent instead of a line on record ahead of that line.
    RecordsBackwards,
    /// Does not count the lines for which there is no journal.
    CountsNoMissing,
    /// Does not report that the ledger had no room.
    ForgetsRefused,
    /// A rule accepts a command whose program has failed its check.
    AcceptsUnchecked,
    /// A rule accepts in a thread of which nothing is known.
    AcceptsUnknown,
    /// A rule answers what it does not match.
    AnswersOthers,
    /// A rule answers otherwise than it says.
    AnswersOtherwise,
    /// A rule that holds requests back answers one.
    AnswersHeld,
    /// The client sees a request on which a rule decides.
    ShowsRuled,
    /// A request that has ended is opened again.
    Reopens,
    /// Requests of an earlier run stay open.
    LeavesEarlierOpen,
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
    /// Takes answers back behind other effects.
    HubRecallsLast,
    /// Sends an answer that was to be sent when the server withdrew its request.
    HubHidesInjections,
    /// Tells the API caller of such an answer that it is sent.
    HubPromisesTaken,
    /// Reports an answer as written when it is queued.
    HubReportsTooEarly,
    /// Does not report that the connection of an answer is gone.
    ForgetsLostMarks,
    /// Takes another connection for the one that carries an answer.
    MisnamesCarrier,
    /// Sends an answer over a connection that the server has not initialized.
    AnswersNowhere,
    /// Keeps what waits for a connection when there is one.
    NeverSendsUnsent,
    /// Shows a request to clients that were not asked, because one was asked late.
    PassesLateToAll,
    /// Records the lines of several clients on the connection of the first one.
    RecordsHeldOnOne,
    /// Loses lines of a client that has left while they waited for their context.
    LosesHeld,
    /// Releases what waits for a commit on one connection only.
    ReleasesOne,
    /// Keeps a connection that has ended as long as something waits.
    NeverCuts,
    /// Reads from a client although the server does not take what it has said.
    ReadsOn,
    /// Lets any number of bytes wait for a client.
    LetsWait,
    /// Does not pass on how a side has closed its connection.
    ForgetsCloseFrames,
    /// Connects to the server ahead of its first client.
    NamesServer,
    /// Goes on to decide although it has found a defect in itself.
    DecidesOn,
    /// The same in a hub.
    HubDecidesOn,
    /// Takes a thread that works for one that rests, because the server does not say that it waits.
    BelievesFlags,
}

/// What a world must have so that a defect can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    History,
    Rules,
    Expiry,
    Fragments,
    HiddenRequests,
}

impl Canary {
    /// All runs in the world of this canary have it.
    pub fn needs(self, need: Need) -> bool {
        let all: &[Canary] = match need {
            Need::History => &[
                Canary::IndexesAgain,
                Canary::IndexesTooLittle,
                Canary::LeavesGaps,
                Canary::ForgetsWitness,
                Canary::ForgetsTurns,
                Canary::ForgetsActivity,
                Canary::LooksTooEarly,
                Canary::CountsTwice,
                Canary::ForgetsKinds,
                Canary::TakesOthersForPersons,
            ],
            Need::Rules => &[
                Canary::AcceptsUnchecked,
                Canary::AcceptsUnknown,
                Canary::AnswersOthers,
                Canary::AnswersOtherwise,
                Canary::AnswersHeld,
                Canary::ShowsRuled,
                Canary::ForgetsLostMarks,
                Canary::PassesLateToAll,
            ],
            Need::Expiry => &[Canary::ExpiresTwice, Canary::NeverExpires],
            Need::Fragments => &[
                Canary::CallsAfterTurns,
                Canary::ReleasesLast,
                Canary::EndsBeforeHeld,
                Canary::RecordsHeldOnOne,
                Canary::LosesHeld,
            ],
            Need::HiddenRequests => &[Canary::ForgetsHidden, Canary::ForgetsTheLast],
        };
        all.contains(&self)
    }

    /// Each canary, with the beginning of the error by which its own check finds it.
    pub const ALL: [(Canary, &'static str); 60] = [
        (Canary::DecidesOn, "11: "),
        (Canary::LosesBytes, "1: the engine got"),
        (Canary::SaysTwice, "1: the client got"),
        (Canary::PrintsAgain, "1: the client got"),
        (Canary::Overtakes, "1: the client got"),
        (Canary::SwallowsAnswers, "1: the server got"),
        (Canary::SwallowsSecondAnswers, "1: the server got"),
        (Canary::ShowsEnvelopes, "1: the client sees an envelope"),
        (Canary::LosesTheClientsLast, "1: the server never got"),
        (Canary::LosesTheServersLast, "1: the client never got"),
        (Canary::ForwardsFirst, "2: the server got"),
        (Canary::ShowsUnkept, "3: the client sees"),
        (Canary::SendsUnkept, "3: the server gets"),
        (Canary::AnswersTwice, "3: answered twice"),
        (Canary::KeepsAnswers, "3: not the first answer"),
        (Canary::RecallsBegun, "3: kept otherwise"),
        (Canary::AltersAnswers, "3: not the first answer"),
        (Canary::ForgetsAnswers, "3: sent, and has no end"),
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
        (Canary::RecallsLast, "3: not the first answer"),
        (Canary::HidesInjections, "3: not the first answer"),
        (Canary::PromisesTaken, "3: told wrongly: Kept"),
        (Canary::MixesLines, "1: the server got"),
        (Canary::GluesLines, "1: the server got"),
        (Canary::CallsAfterTurns, "1: what goes ahead of a turn"),
        (Canary::ReleasesLast, "1: the server got"),
        (Canary::EndsBeforeHeld, "1: the server never got"),
        (Canary::ReportsTooEarly, "3: not the first answer"),
        (Canary::RecordsBackwards, "2: on record"),
        (Canary::CountsNoMissing, "2: the client got"),
        (Canary::ForgetsRefused, "3: open for ever"),
        (Canary::AcceptsUnchecked, "3: a rule accepts what was not checked"),
        (Canary::AcceptsUnknown, "3: a rule accepts in a thread of which nothing is known"),
        (Canary::AnswersOthers, "3: a rule answers what it does not match"),
        (Canary::AnswersOtherwise, "3: a rule answers otherwise than it says"),
        (Canary::AnswersHeld, "3: a rule that holds has answered"),
        (Canary::ShowsRuled, "1: the client got"),
        (Canary::Reopens, "3: reopened"),
        (Canary::LeavesEarlierOpen, "3: open after its run"),
    ];

    /// The broken hubs.
    pub const OF_HUBS: [(Canary, &'static str); 44] = [
        (Canary::HubDecidesOn, "11: "),
        (Canary::PassesSecondAnswer, "1: the server got"),
        (Canary::CountsTwice, "4: counted otherwise"),
        (Canary::DropsAtDisconnect, "1: the server never got"),
        (Canary::TrustsEarlierHub, "1: the server never got"),
        (Canary::TellsWrongClient, "1: a client sees an envelope"),
        (Canary::MixesThreads, "7: command"),
        (Canary::TellsAgain, "7: the model is told twice"),
        (Canary::MixesClients, "1: client"),
        (Canary::PassesFirst, "2: the server got"),
        (Canary::HoldsNothing, "3: client"),
        (Canary::HubLeavesOpen, "3: open for ever"),
        (Canary::HubForgetsLostAnswers, "3: lost answers"),
        (Canary::ForgetsStoredAnswers, "3: opened twice"),
        (Canary::KeepsReplacedAnswers, "3: kept otherwise"),
        (Canary::HubKeepsAnswers, "3: not taken back"),
        (Canary::SpeaksAnywhere, "8: a message of an API caller"),
        (Canary::HubRecallsWanted, "3: taken back although the server wants it"),
        (Canary::CrossesFolders, "7: the model in "),
        (Canary::ForgetsKinds, "9: in the history"),
        (Canary::TakesOthersForPersons, "9: the activity"),
        (Canary::HubRecallsLast, "3: not taken back"),
        (Canary::HubHidesInjections, "3: not taken back"),
        (Canary::HubPromisesTaken, "3: told wrongly: Kept"),
        (Canary::HubReportsTooEarly, "3: not taken back"),
        (Canary::ForgetsLostMarks, "3: not sent again"),
        (Canary::MisnamesCarrier, "6: read although"),
        (Canary::AnswersNowhere, "3: an answer goes where the server does not listen"),
        (Canary::NeverSendsUnsent, "1: the server never got"),
        (Canary::PassesLateToAll, "1: client"),
        (Canary::RecordsHeldOnOne, "2: the server got on connection"),
        (Canary::LosesHeld, "1: the server never got"),
        (Canary::ReleasesOne, "6: held past its deadline"),
        (Canary::NeverCuts, "6: not cut"),
        (Canary::ReadsOn, "6: read although"),
        (Canary::LetsWait, "6: too much waits"),
        (Canary::ForgetsCloseFrames, "1: the server never got the close frame"),
        (Canary::NamesServer, "10: the hub connects"),
        (Canary::BelievesFlags, "3: "),
        (Canary::LosesRequestsOver, "3: opened twice"),
        (Canary::LosesLeasesOver, "7: the model is told twice"),
        (Canary::LosesCallsOver, "1: the server never got"),
        (Canary::LosesQueuesOver, "1: client"),
        (Canary::RecordsOverAgain, "2: "),
    ];
}
