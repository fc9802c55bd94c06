//! Assembly: what the model is shown besides the user's words and their terminal.
//!
//! A context engine assembles context for a turn, and has the developer say something; fragments tell each thread what it has
//! not been told. Both are asked for outside. Until they have answered, or a deadline has passed, the lines of the thread that
//! the turn is in wait here, in their order; nobody else's do. Where nothing is set nothing is looked at.

pub(super) mod consultation;
pub(super) mod projection;
mod sent;
mod settings;

use std::collections::VecDeque;
use std::time::Duration;

use super::context::THREAD_ID_BYTES_MAX;
use super::open_calls::OpenCall;
use super::token::Token;
use super::turn_gate::{Awaited, Holds, Prepared};
use super::turns::Purpose;
use crate::wire::{Members, Message};

pub(crate) use consultation::{Assembled, Consultation, FragmentCarrier, Remembered, SentFragment};
pub use projection::PROJECTION_START;
pub(crate) use projection::{QuotedMessage, project};
pub(super) use sent::{Threads, inject_params};
pub use settings::AssemblySettings;
pub(crate) use settings::{ContextEngineSettings, Fragment, FragmentRole, FragmentSource, FragmentThreads};

/// Compactions of the client that are remembered; if there are more, the oldest is forgotten.
const COMPACTIONS_MAX: usize = 256;

/// Longest path of a thread's folder that is taken for one, in bytes.
const CWD_BYTES_MAX: usize = 4_096;

/// How long lines wait for fragments: what a command may take, and a little for the rest.
const FRAGMENTS_WAIT_MAX: Duration = Duration::from_millis(1_250);

/// What is shown to the model besides, and what waits for it.
#[derive(Debug)]
pub(super) struct Assembly {
    deadline: Option<Duration>,
    pub(super) holds: Holds,
    pub(super) threads: Threads,
    /// The context engine owns compaction.
    pub(super) owns_compaction: bool,
    /// The server has refused `thread/inject_items`, and that has been said.
    pub(super) inject_refused: bool,
    /// What is known for the client's line at hand.
    pub(super) at_hand: Option<Prepared>,
    /// Threads that the client has had compacted, and that were not seen to be.
    pub(super) compacting: VecDeque<String>,
    /// The turn whose compaction was told last.
    pub(super) compacted: Option<(String, String)>,
    is_set: bool,
}

/// What the answer to a call of the client will tell.
#[derive(Debug)]
pub(super) enum Asked {
    /// A new thread.
    Start { tools: Vec<String>, instructed: Vec<SentFragment> },
    /// A thread that was there before.
    Thread { instructed: Vec<SentFragment> },
    /// That a projection has arrived.
    Turn {
        thread_id: String,
        epoch: Option<String>,
        /// The epoch that was shown before.
        before: Option<String>,
        bytes: usize,
    },
    /// That a thread is compacted.
    Compact { thread_id: String },
}

/// What a thread was told with a call of ours.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) thread_id: String,
    pub(super) told: Vec<SentFragment>,
    /// What it was told before.
    pub(super) before: Before,
}

/// What a thread was told before, by the names of what it is told, in their order.
pub(super) type Before = Vec<(String, Option<String>)>;

impl Assembly {
    pub(super) fn new(settings: AssemblySettings, tokens_before: Token) -> Assembly {
        let AssemblySettings { context_engine, fragments } = settings;
        Assembly {
            is_set: context_engine.is_some() || !fragments.is_empty(),
            deadline: context_engine.map(|engine| engine.deadline),
            holds: Holds::new(tokens_before),
            threads: Threads::new(fragments),
            owns_compaction: false,
            inject_refused: false,
            at_hand: None,
            compacting: VecDeque::new(),
            compacted: None,
        }
    }

    /// Replaces the fragments. Lines no longer wait for a reading of the old ones.
    pub(super) fn configure(&mut self, fragments: Vec<Fragment>) {
        self.is_set = self.has_engine() || !fragments.is_empty();
        if self.threads.configure(fragments) {
            self.holds.forget_fragments();
        }
    }

    /// Whether there is anything that the model is to be shown besides.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Whether a context engine is set.
    pub(super) fn has_engine(&self) -> bool {
        self.deadline.is_some()
    }

    /// What a turn that was read at `read_at` waits for; `None` where that is nothing.
    pub(super) fn awaited(&self, read_at: Duration) -> Option<Awaited> {
        let fragments_wait_max = self.threads.are_read().then_some(FRAGMENTS_WAIT_MAX);
        let awaited = Awaited {
            engine_due: self.deadline.map(|deadline| read_at + deadline),
            fragments_due: fragments_wait_max.map(|wait_max| read_at + wait_max),
        };
        (!awaited.is_nothing()).then_some(awaited)
    }

    /// What a compaction waits for, likewise.
    pub(super) fn awaited_by_compaction(&self, read_at: Duration) -> Option<Awaited> {
        let deadline = self.deadline.filter(|_| self.owns_compaction)?;
        Some(Awaited { engine_due: Some(read_at + deadline), fragments_due: None })
    }

    /// A turn that was to show an epoch was refused: what was shown before is what was, also for the next open call that shows
    /// one. `later` are the calls that were opened after it.
    pub(super) fn epoch_refused<'a>(
        &mut self,
        later: impl Iterator<Item = &'a mut OpenCall>,
        thread_id: &str,
        epoch: &str,
        before: Option<String>,
    ) {
        let later = later.filter_map(|call| call.asked.as_mut()).find_map(|asked| match asked {
            Asked::Turn { thread_id: of, epoch: Some(_), before, .. } if of == thread_id => Some(before),
            Asked::Turn { .. } | Asked::Start { .. } | Asked::Thread { .. } | Asked::Compact { .. } => None,
        });
        let shown = later.unwrap_or_else(|| &mut self.threads.of(thread_id).epoch);
        if shown.as_deref() == Some(epoch) {
            *shown = before;
        }
    }

    /// What was to be told was refused: the thread was told what it was before, also for the next open call that tells it
    /// something. `later` are the calls that were opened after it.
    pub(super) fn telling_refused<'a>(&mut self, later: impl Iterator<Item = &'a mut OpenCall>, delivered: Delivered) {
        let Delivered { thread_id, told, before } = delivered;
        let mut later: Vec<&mut Delivered> = later
            .filter_map(|call| match call.purpose.as_mut() {
                Some(Purpose::Fragments(later)) if later.thread_id == thread_id => Some(later),
                Some(_) | None => None,
            })
            .collect();
        for ((name, before), told) in before.into_iter().zip(&told) {
            let later = later.iter_mut().find_map(|later| later.before.iter_mut().find(|(later, _)| *later == name));
            match later {
                Some((_, text)) if text.as_deref() == Some(&*told.text) => *text = before,
                Some(_) => {}
                None => self.threads.put_back(&thread_id, name, &told.text, before),
            }
        }
    }

    /// The client has a thread compacted.
    pub(super) fn compacts(&mut self, thread_id: &str) {
        if self.compacting.len() >= COMPACTIONS_MAX {
            self.compacting.pop_front();
        }
        self.compacting.push_back(thread_id.to_owned());
    }

    /// Whether it was the client who had a thread compacted that is now, or is not.
    pub(super) fn has_compacted(&mut self, thread_id: &str) -> bool {
        let index = self.compacting.iter().position(|compacting| compacting == thread_id);
        index.is_some_and(|index| self.compacting.remove(index).is_some())
    }
}

/// The folder that parameters or a thread name, where it is one that can be gone to.
pub(super) fn cwd_in(members: &Members<'_>) -> Option<String> {
    members.text("cwd").filter(|cwd| cwd.starts_with('/') && cwd.len() <= CWD_BYTES_MAX && !cwd.contains('\0'))
}

/// The thread that a message is about.
pub(super) fn thread_of(message: &Message<'_>) -> Option<String> {
    Members::of(message.params?)?.text("threadId").filter(|id| !id.is_empty() && id.len() <= THREAD_ID_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::open_calls::Calls;
    use super::*;

    /// Two calls that tell a thread something different, refused in either order.
    #[test]
    fn telling_that_is_refused_twice_has_no_effect() {
        for refused_first in [0, 1] {
            let mut assembly = Assembly::new(AssemblySettings::default(), Token::default());
            let mut calls = Calls::new("own:".to_owned());
            let keys = ["x", "y"].map(|text| {
                let told = vec![SentFragment {
                    name: sent::ADDITION.to_owned(),
                    role: settings::FragmentRole::Developer.of_message(),
                    carrier: FragmentCarrier::InjectItems,
                    text: text.to_owned(),
                }];
                let before = assembly.threads.tell("t", &told);
                let delivered = Delivered { thread_id: "t".to_owned(), told, before };
                calls.call_server("x", None, Purpose::Fragments(delivered)).0
            });
            for at in [refused_first, 1 - refused_first] {
                let purpose = calls.to_server.get_mut(keys[at]).and_then(|call| call.purpose.take());
                let Some(Purpose::Fragments(delivered)) = purpose else { panic!("BUG: the call is open") };
                assembly.telling_refused(calls.to_server.later_than(keys[at]), delivered);
            }
            assert!(!assembly.threads.has_addition("t"), "{refused_first}");
        }
    }
}
