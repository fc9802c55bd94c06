//! Warnings for the user.

use std::fmt;

use crate::wire::Side;

/// A warning for the user, shown once a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The server rejects injected context; the relay uses another carrier.
    InjectRefusedFallsBack,
    /// The server rejects injected context, and the settings allow no other carrier.
    InjectRefusedWaits,
    /// The settings leave no room for context.
    ContextDoesNotFit,
    /// The server rejects injected fragments.
    FragmentsRefused,
    /// The server rejects decline reasons, both during the turn and before the next.
    ReasonNotSent,
    /// We refused a turn beyond the budget, because we could ask nobody.
    BudgetNotAsked,
    /// A turn beyond the budget began, because the session can keep no question.
    BudgetWithoutLedger,
    /// The usage could not be read in time, so we ask a person.
    BudgetNotLookedUp,
    /// The ledger of a hub could not be read for so long that requests which have ended since are not stored.
    RequestsNotStored,
    /// A line of this side names a method with credentials and can be parsed in more than one way, so neither it nor
    /// the responses to its ids are recorded.
    AmbiguousSecret(Side),
    /// Any response to this side may carry credentials, so the relay stops recording responses to it.
    AnswersNotRecorded(Side),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_about = |f: &mut fmt::Formatter<'_>, side: Side, before: &str, after: &str| {
            write!(f, "{before} the {} {after}", side.name())
        };
        f.write_str(match self {
            Warning::AmbiguousSecret(side) => {
                let after = "names a method that carries credentials, but is a batch, has text before it or repeats a member: \
                             neither the line nor responses to its ids are recorded";
                return write_about(f, *side, "a line from", after);
            }
            Warning::AnswersNotRecorded(side) => {
                let after = "are not recorded for the rest of this run: a line that names a method with credentials has \
                             unreadable ids, or too many such requests are open";
                return write_about(f, *side, "responses to", after);
            }
            Warning::InjectRefusedFallsBack => {
                "this codex does not support `thread/inject_items`: context now goes in front of the user's words"
            }
            Warning::ContextDoesNotFit => {
                "`context_bytes_max` or `context_commands_max` leaves no room for a single command: raise it to send context"
            }
            Warning::FragmentsRefused => {
                "this codex does not support `thread/inject_items`: developer fragments are sent only when a thread starts \
                 or resumes, others not at all"
            }
            Warning::ReasonNotSent => {
                "this codex does not support `thread/inject_items`: the reason of a decline did not reach the model"
            }
            Warning::BudgetNotAsked => {
                "a turn was refused: the token budget does not allow it, and the question about it cannot be stored; see the other faults"
            }
            Warning::BudgetWithoutLedger => {
                "a turn began although the token budget does not allow it: this session keeps no record, so nobody can be asked"
            }
            Warning::BudgetNotLookedUp => {
                "what is used of the token budget could not be read in time, so a turn waits for your answer; see the other faults"
            }
            Warning::RequestsNotStored => {
                "the ledger cannot be read: the oldest requests of this run that have ended will not be in it; the journal has them"
            }
            Warning::InjectRefusedWaits => {
                "this codex does not support `thread/inject_items`: context stays queued; set `carrier = \"auto\"` to put it \
                 in front of the user's words"
            }
        })
    }
}
