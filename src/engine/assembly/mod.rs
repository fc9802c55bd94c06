//! Context besides the user's words and terminal commands.
//!
//! A context engine assembles a projection for a turn and may add developer instructions; fragments are texts that each
//! thread receives once and again after a change. Both come from outside the engine. Until they arrive, or a deadline
//! passes, the turn gate holds the lines of that thread, and only those. Without settings for either, this module
//! inspects nothing.

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

/// Compactions requested by the client that are tracked; the oldest is evicted first.
const COMPACTIONS_MAX: usize = 256;

/// Longest accepted path of a thread's folder, in bytes.
const CWD_BYTES_MAX: usize = 4_096;

/// How long lines wait for fragments: the time limit of a command plus a margin.
const FRAGMENTS_WAIT_MAX: Duration = Duration::from_millis(1_250);

/// Context engine, fragments and held lines.
#[derive(Debug)]
pub(super) struct Assembly {
    deadline: Option<Duration>,
    pub(super) holds: Holds,
    pub(super) threads: Threads,
    pub(super) owns_compaction: bool,
    /// The server rejected `thread/inject_items`, and the user was warned.
    pub(super) inject_refused: bool,
    /// The context for the client line being processed.
    pub(super) at_hand: Option<Prepared>,
    /// Threads with a compaction requested by the client and not yet observed.
    pub(super) compacting: VecDeque<String>,
    /// The turn of the last reported compaction.
    pub(super) compacted: Option<(String, String)>,
    is_set: bool,
}

/// How to interpret the response to a client call.
#[derive(Debug)]
pub(super) enum ThreadCall {
    Start {
        tools: Vec<String>,
        instructed: Vec<SentFragment>,
    },
    /// An existing thread.
    Thread {
        instructed: Vec<SentFragment>,
    },
    /// The response shows whether a projection arrived.
    Turn {
        thread_id: String,
        epoch: Option<String>,
        /// The epoch shown before.
        before: Option<String>,
        bytes: usize,
    },
    /// The response shows whether a compaction was accepted.
    Compact {
        thread_id: String,
    },
}

/// Fragments sent to a thread by one of our calls.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) thread_id: String,
    pub(super) sent: Vec<SentFragment>,
    /// The texts that the thread had before.
    pub(super) before: Before,
}

/// A thread's earlier texts by fragment name, in the order of the fragments.
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

    /// Replaces the fragments. Lines stop waiting for reads of the old ones.
    pub(super) fn configure(&mut self, fragments: Vec<Fragment>) {
        self.is_set = self.has_engine() || !fragments.is_empty();
        if self.threads.configure(fragments) {
            self.holds.forget_fragments();
        }
    }

    /// Whether a context engine or a fragment is configured.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Whether a context engine is configured.
    pub(super) fn has_engine(&self) -> bool {
        self.deadline.is_some()
    }

    /// The answers that a turn read at `read_at` waits for; `None` if it need not wait.
    pub(super) fn awaited(&self, read_at: Duration) -> Option<Awaited> {
        let fragments_wait_max = self.threads.are_read().then_some(FRAGMENTS_WAIT_MAX);
        let awaited = Awaited {
            engine_due: self.deadline.map(|deadline| read_at + deadline),
            fragments_due: fragments_wait_max.map(|wait_max| read_at + wait_max),
        };
        (!awaited.is_nothing()).then_some(awaited)
    }

    /// Likewise for a compaction.
    pub(super) fn awaited_by_compaction(&self, read_at: Duration) -> Option<Awaited> {
        let deadline = self.deadline.filter(|_| self.owns_compaction)?;
        Some(Awaited { engine_due: Some(read_at + deadline), fragments_due: None })
    }

    /// The server rejected a turn that carried an epoch: restores the earlier epoch, or passes it to the next open call
    /// that carries one. `later` are the calls opened after the turn.
    pub(super) fn epoch_refused<'a>(
        &mut self,
        later: impl Iterator<Item = &'a mut OpenCall>,
        thread_id: &str,
        epoch: &str,
        before: Option<String>,
    ) {
        let later = later.filter_map(|call| call.asked.as_mut()).find_map(|asked| match asked {
            ThreadCall::Turn { thread_id: of, epoch: Some(_), before, .. } if of == thread_id => Some(before),
            ThreadCall::Turn { .. }
            | ThreadCall::Start { .. }
            | ThreadCall::Thread { .. }
            | ThreadCall::Compact { .. } => None,
        });
        let shown = later.unwrap_or_else(|| &mut self.threads.of(thread_id).epoch);
        if shown.as_deref() == Some(epoch) {
            *shown = before;
        }
    }

    /// The server rejected fragments: restores the thread's earlier texts, or passes them to the next open call that
    /// carries fragments. `later` are the calls opened after it.
    pub(super) fn fragments_refused<'a>(
        &mut self,
        later: impl Iterator<Item = &'a mut OpenCall>,
        delivered: Delivered,
    ) {
        let Delivered { thread_id, sent, before } = delivered;
        let mut later: Vec<&mut Delivered> = later
            .filter_map(|call| match call.purpose.as_mut() {
                Some(Purpose::Fragments(later)) if later.thread_id == thread_id => Some(later),
                Some(_) | None => None,
            })
            .collect();
        for ((name, before), sent) in before.into_iter().zip(&sent) {
            let later = later.iter_mut().find_map(|later| later.before.iter_mut().find(|(later, _)| *later == name));
            match later {
                Some((_, text)) if text.as_deref() == Some(&*sent.text) => *text = before,
                Some(_) => {}
                None => self.threads.put_back(&thread_id, name, &sent.text, before),
            }
        }
    }

    /// Notes a compaction requested by the client.
    pub(super) fn compacts(&mut self, thread_id: &str) {
        if self.compacting.len() >= COMPACTIONS_MAX {
            self.compacting.pop_front();
        }
        self.compacting.push_back(thread_id.to_owned());
    }

    /// Whether the client requested the compaction of this thread; forgets that request.
    pub(super) fn has_compacted(&mut self, thread_id: &str) -> bool {
        let index = self.compacting.iter().position(|compacting| compacting == thread_id);
        index.is_some_and(|index| self.compacting.remove(index).is_some())
    }
}

/// The folder that parameters or a thread name, if it is an absolute path of acceptable length.
pub(super) fn cwd_in(members: &Members<'_>) -> Option<String> {
    members.text("cwd").filter(|cwd| cwd.starts_with('/') && cwd.len() <= CWD_BYTES_MAX && !cwd.contains('\0'))
}

pub(super) fn thread_of(message: &Message<'_>) -> Option<String> {
    Members::of(message.params?)?.text("threadId").filter(|id| !id.is_empty() && id.len() <= THREAD_ID_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::open_calls::Calls;
    use super::*;

    /// Two calls send a thread different fragments and are rejected in either order.
    #[test]
    fn both_rejected_sends_leave_no_trace() {
        for refused_first in [0, 1] {
            let mut assembly = Assembly::new(AssemblySettings::default(), Token::default());
            let mut calls = Calls::new("own:".to_owned());
            let keys = ["x", "y"].map(|text| {
                let sent = vec![SentFragment {
                    name: sent::ADDITION.to_owned(),
                    role: settings::FragmentRole::Developer.of_message(),
                    carrier: FragmentCarrier::InjectItems,
                    text: text.to_owned(),
                }];
                let before = assembly.threads.mark_sent("t", &sent);
                let delivered = Delivered { thread_id: "t".to_owned(), sent, before };
                calls.call_server("x", None, Purpose::Fragments(delivered)).0
            });
            for at in [refused_first, 1 - refused_first] {
                let purpose = calls.to_server.get_mut(keys[at]).and_then(|call| call.purpose.take());
                let Some(Purpose::Fragments(delivered)) = purpose else { panic!("BUG: the call is open") };
                assembly.fragments_refused(calls.to_server.later_than(keys[at]), delivered);
            }
            assert!(!assembly.threads.has_addition("t"), "{refused_first}");
        }
    }
}
