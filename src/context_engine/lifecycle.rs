//! The order of the calls for a thread.
//!
//! Pure: a table of first and next steps. Source: docs/context-engines.md and the ancestor's lifecycle. Every change
//! here changes the protocol.

/// A method of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Initialize,
    Bootstrap,
    Maintain,
    Assemble,
    AfterTurn,
    IngestBatch,
    Ingest,
    Compact,
    Dispose,
}

impl Method {
    pub(super) const ALL: [Method; 9] = [
        Method::Initialize,
        Method::Bootstrap,
        Method::Maintain,
        Method::Assemble,
        Method::AfterTurn,
        Method::IngestBatch,
        Method::Ingest,
        Method::Compact,
        Method::Dispose,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Initialize => "initialize",
            Method::Bootstrap => "bootstrap",
            Method::Maintain => "maintain",
            Method::Assemble => "assemble",
            Method::AfterTurn => "afterTurn",
            Method::IngestBatch => "ingestBatch",
            Method::Ingest => "ingest",
            Method::Compact => "compact",
            Method::Dispose => "dispose",
        }
    }
}

/// The methods that an engine supports, and whether it owns compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    pub(super) methods: Vec<Method>,
    pub(super) owns_compaction: bool,
}

impl Abilities {
    pub(super) fn has(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }

    fn then(&self, method: Method, step: Step) -> Option<Step> {
        self.has(method).then_some(step)
    }
}

/// An event of a thread that leads to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The thread is new to this engine process, and it has older messages.
    NewThread,
    TurnBegins,
    /// A turn is over; `messages` is the number of its messages.
    TurnCompleted {
        messages: usize,
    },
    /// The client compacts the thread.
    Compaction,
}

/// A call in the sequence of an occasion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Bootstrap,
    MaintainAfterBootstrap,
    Assemble,
    AfterTurn,
    IngestBatch,
    /// With the turn's message of this number.
    Ingest(usize),
    MaintainAfterTurn,
    Compact,
}

impl Step {
    pub(super) fn method(self) -> Method {
        match self {
            Step::Bootstrap => Method::Bootstrap,
            Step::MaintainAfterBootstrap | Step::MaintainAfterTurn => Method::Maintain,
            Step::Assemble => Method::Assemble,
            Step::AfterTurn => Method::AfterTurn,
            Step::IngestBatch => Method::IngestBatch,
            Step::Ingest(_) => Method::Ingest,
            Step::Compact => Method::Compact,
        }
    }
}

/// The first call of an occasion.
pub(super) fn first(occasion: Occasion, can: &Abilities) -> Option<Step> {
    match occasion {
        Occasion::NewThread => can.then(Method::Bootstrap, Step::Bootstrap),
        Occasion::TurnBegins => can.then(Method::Assemble, Step::Assemble),
        // The turn has no messages, for example because codex compacted the thread.
        Occasion::TurnCompleted { messages: 0 } => None,
        Occasion::TurnCompleted { .. } => can
            .then(Method::AfterTurn, Step::AfterTurn)
            .or_else(|| can.then(Method::IngestBatch, Step::IngestBatch))
            .or_else(|| can.then(Method::Ingest, Step::Ingest(0)))
            .or_else(|| can.then(Method::Maintain, Step::MaintainAfterTurn)),
        Occasion::Compaction if can.owns_compaction => can.then(Method::Compact, Step::Compact),
        Occasion::Compaction => None,
    }
}

/// The call after `worked` has succeeded. Nothing follows a call that failed.
pub(super) fn next(occasion: Occasion, worked: Step, can: &Abilities) -> Option<Step> {
    let after_turn = || can.then(Method::Maintain, Step::MaintainAfterTurn);
    match (occasion, worked) {
        (Occasion::NewThread, Step::Bootstrap) => can.then(Method::Maintain, Step::MaintainAfterBootstrap),
        (Occasion::TurnCompleted { messages }, Step::Ingest(number)) if number + 1 < messages => {
            Some(Step::Ingest(number + 1))
        }
        (Occasion::TurnCompleted { .. }, Step::AfterTurn | Step::IngestBatch | Step::Ingest(_)) => after_turn(),
        (Occasion::NewThread | Occasion::TurnBegins | Occasion::TurnCompleted { .. } | Occasion::Compaction, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the calls of an occasion, of which only `fails` fails.
    fn check(occasion: Occasion, methods: &str, fails: Option<Step>, expect: &[Step]) {
        let listed = Method::ALL.into_iter().filter(|method| methods.split(' ').any(|name| name == method.name()));
        let can = Abilities { methods: listed.collect(), owns_compaction: methods.contains("owns") };
        let mut steps = Vec::new();
        let mut step = first(occasion, &can);
        while let Some(now) = step {
            steps.push(now);
            step = if Some(now) == fails { None } else { next(occasion, now, &can) };
        }
        assert_eq!(steps, expect, "{occasion:?} {methods}");
    }

    const ALL: &str = "bootstrap maintain assemble afterTurn ingestBatch ingest compact owns";

    #[test]
    fn calls_follow_documented_order() {
        use Step::*;
        let over = Occasion::TurnCompleted { messages: 2 };
        check(Occasion::NewThread, ALL, None, &[Bootstrap, MaintainAfterBootstrap]);
        check(Occasion::TurnBegins, ALL, None, &[Assemble]);
        check(over, ALL, None, &[AfterTurn, MaintainAfterTurn]);
        check(over, "ingestBatch ingest maintain", None, &[IngestBatch, MaintainAfterTurn]);
        check(over, "ingest maintain", None, &[Ingest(0), Ingest(1), MaintainAfterTurn]);
        check(over, "maintain", None, &[MaintainAfterTurn]);
        check(Occasion::Compaction, ALL, None, &[Compact]);
    }

    #[test]
    fn failed_call_ends_the_sequence() {
        use Step::*;
        let over = Occasion::TurnCompleted { messages: 2 };
        check(Occasion::NewThread, ALL, Some(Bootstrap), &[Bootstrap]);
        check(over, ALL, Some(AfterTurn), &[AfterTurn]);
        check(over, "ingestBatch ingest maintain", Some(IngestBatch), &[IngestBatch]);
        check(over, "ingest maintain", Some(Ingest(0)), &[Ingest(0)]);
    }

    #[test]
    fn unlisted_methods_are_not_called() {
        for occasion in [Occasion::NewThread, Occasion::TurnBegins, Occasion::TurnCompleted { messages: 1 }] {
            check(occasion, "", None, &[]);
        }
        check(Occasion::NewThread, "maintain", None, &[]);
        check(Occasion::Compaction, "compact", None, &[]);
        check(Occasion::Compaction, "owns", None, &[]);
        check(Occasion::TurnCompleted { messages: 0 }, ALL, None, &[]);
    }
}
