//! Houses that are built wrong, one way each, and the check that has to find each of them.

/// How the house is built wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// It is not.
    None,
    /// A byte of what was read is lost.
    LosesBytes,
    /// A line of the server's comes twice.
    SaysTwice,
    /// Lines are parsed, and printed again.
    PrintsAgain,
    /// What should wait behind a request passes it.
    Overtakes,
    /// An answer of the client's never goes on.
    SwallowsAnswers,
    /// The client's answer to a repeated request never goes on.
    SwallowsSecondAnswers,
    /// A line of the server's goes on with what was put in front of the user's words.
    ShowsEnvelopes,
    /// What the client says last never goes on.
    LosesTheClientsLast,
    /// What the server says last does not.
    LosesTheServersLast,
    /// A line goes on before it is on record.
    ForwardsFirst,
    /// A request goes on before it is kept.
    ShowsUnkept,
    /// An answer does.
    SendsUnkept,
    /// An answer goes to the server once more.
    AnswersTwice,
    /// An answer of the client's goes on as another one.
    AltersAnswers,
    /// What the ledger was to keep of an answer is lost.
    ForgetsAnswers,
    /// What it was to keep of an end without one is.
    LeavesOpen,
    /// A request that the client is not shown is not kept, and its end is.
    ForgetsHidden,
    /// The last requests that it is not shown are not kept at all.
    ForgetsTheLast,
    /// An answer that was not the first is kept as if it were.
    LastAnswerWins,
    /// One that was not the first is not kept.
    ForgetsLostAnswers,
    /// The ledger takes an end twice.
    EndsTwice,
    /// The ledger takes it twice that nobody has answered in time.
    ExpiresTwice,
    /// A request is kept once more.
    OpensTwice,
    /// Rows do not say that something went on before it was kept.
    HidesLateness,
    /// Somebody at the side is told that an answer was not taken.
    LiesToCallers,
    /// Nobody at the side is told anything.
    LeavesCallers,
    /// Nobody says that the server is gone.
    ForgetsTheEnd,
    /// The index goes on a record too early.
    IndexesAgain,
    /// It goes on a record too late.
    IndexesTooLittle,
    /// Numbers of the index are left out.
    LeavesGaps,
    /// It forgets which numbers were issued.
    ForgetsWitness,
    /// A turn is not in it.
    ForgetsTurns,
    /// What a session does is not read.
    ForgetsActivity,
    /// It is read from only some of what is recorded.
    LooksTooEarly,
    /// What is held is released late.
    ReleasesLate,
    /// Time passes, and nobody says so while nothing is held.
    NeverExpires,
    /// Nothing goes on any more.
    Stalls,
}

impl Canary {
    /// Each, with what the error begins with by which it has to be found.
    pub const ALL: [(Canary, &'static str); 37] = [
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
        (Canary::AltersAnswers, "3: not the first answer"),
        (Canary::ForgetsAnswers, "3: the server gets"),
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
}
