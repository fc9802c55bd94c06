//! Assembly: what the model is shown besides the user's words and their terminal.
//!
//! A context engine assembles context for a turn, and has the developer say something; fragments tell each thread what it has
//! not been told. Both are asked for outside. Until they have answered, or a deadline has passed, the lines of the thread that
//! the turn is in wait here, in their order; nobody else's do. Where nothing is set nothing is looked at.

pub(super) mod consultation;
mod held;
pub(super) mod projection;
mod settings;
mod told;

use std::collections::VecDeque;
use std::time::Duration;

use super::context::THREAD_ID_BYTES_MAX;
use super::token::Token;
use crate::wire::{Members, Message, RpcId};

pub(crate) use consultation::{Assembled, Consultation, FragmentCarrier, Remembered, ToldFragment};
pub(super) use held::{Awaited, Held, Hold, Holds, LINE_BYTES_MAX, Prepared, Queued};
pub use projection::PROJECTION_START;
pub(crate) use projection::{QuotedMessage, project};
pub use settings::AssemblySettings;
pub(crate) use settings::{ContextEngineSettings, Fragment, FragmentRole, FragmentSource, FragmentThreads};
pub(super) use told::{Threads, inject_params};

/// Calls whose answers are awaited, of each kind; of more than these the oldest is forgotten.
const AWAITED_MAX: usize = 256;

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
    /// Calls of the client, by their ids.
    asked: VecDeque<(RpcId, Asked)>,
    /// Our own calls that tell a thread something.
    deliveries: VecDeque<(RpcId, Delivered)>,
    delivered: u64,
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
    Start { tools: Vec<String>, instructed: Vec<ToldFragment> },
    /// A thread that was there before.
    Thread { instructed: Vec<ToldFragment> },
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
    pub(super) told: Vec<ToldFragment>,
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
            asked: VecDeque::new(),
            deliveries: VecDeque::new(),
            delivered: 0,
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

    /// The answer to this call of the client will tell something.
    pub(super) fn ask(&mut self, message: &Message<'_>, asked: Asked) {
        let Some(id) = message.id.map(RpcId::from_raw) else { return };
        push_bounded(&mut self.asked, (id, asked));
    }

    /// What an answer tells, and how many calls that wait for theirs were asked before it.
    pub(super) fn answered(&mut self, id: &RpcId) -> Option<(usize, Asked)> {
        let index = self.asked.iter().position(|(asked, _)| asked == id)?;
        self.asked.remove(index).map(|(_, asked)| (index, asked))
    }

    /// A turn that was to show an epoch was refused: what was shown before is what was, also for the next one that waits for its
    /// answer. `earlier` wait for theirs since before it.
    pub(super) fn epoch_refused(&mut self, earlier: usize, thread_id: &str, epoch: &str, before: Option<String>) {
        let later = self.asked.iter_mut().skip(earlier).find_map(|(_, asked)| match asked {
            Asked::Turn { thread_id: of, epoch: Some(_), before, .. } if of == thread_id => Some(before),
            Asked::Turn { .. } | Asked::Start { .. } | Asked::Thread { .. } | Asked::Compact { .. } => None,
        });
        let shown = later.unwrap_or_else(|| &mut self.threads.of(thread_id).epoch);
        if shown.as_deref() == Some(epoch) {
            *shown = before;
        }
    }

    /// The id of a call of ours that tells a thread something.
    pub(super) fn deliver(&mut self, own_ids: &str, delivered: Delivered) -> String {
        self.delivered += 1;
        // Calls for somebody at the side, and context, count theirs by themselves.
        let id = format!("{own_ids}f{}", self.delivered);
        push_bounded(&mut self.deliveries, (RpcId::Text(id.clone()), delivered));
        id
    }

    /// What was told with the call that is answered, and how many calls that wait for their answers were made before it.
    pub(super) fn delivered(&mut self, id: &RpcId) -> Option<(usize, Delivered)> {
        let index = self.deliveries.iter().position(|(delivered, _)| delivered == id)?;
        self.deliveries.remove(index).map(|(_, delivered)| (index, delivered))
    }

    /// What was to be told was refused: the thread was told what it was before, also for the next call that waits for its answer.
    /// `earlier` wait for theirs since before it.
    pub(super) fn telling_refused(&mut self, earlier: usize, thread_id: &str, told: &[ToldFragment], before: Before) {
        for ((name, before), told) in before.into_iter().zip(told) {
            let mut later = self.deliveries.iter_mut().skip(earlier).filter(|(_, later)| later.thread_id == thread_id);
            let later = later.find_map(|(_, later)| later.before.iter_mut().find(|(later, _)| *later == name));
            match later {
                Some((_, text)) if text.as_deref() == Some(&*told.text) => *text = before,
                Some(_) => {}
                None => self.threads.put_back(thread_id, name, &told.text, before),
            }
        }
    }

    /// The client has a thread compacted.
    pub(super) fn compacts(&mut self, thread_id: &str) {
        push_bounded(&mut self.compacting, thread_id.to_owned());
    }

    /// Whether it was the client who had a thread compacted that is now, or is not.
    pub(super) fn has_compacted(&mut self, thread_id: &str) -> bool {
        let index = self.compacting.iter().position(|compacting| compacting == thread_id);
        index.is_some_and(|index| self.compacting.remove(index).is_some())
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, one: T) {
    if queue.len() >= AWAITED_MAX {
        queue.pop_front();
    }
    queue.push_back(one);
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
    use super::*;

    /// Two calls that tell a thread something different, refused in either order.
    #[test]
    fn what_is_refused_twice_was_never_told() {
        for refused_first in [0, 1] {
            let mut assembly = Assembly::new(AssemblySettings::default(), Token::default());
            let ids = ["x", "y"].map(|text| {
                let told = vec![ToldFragment {
                    name: told::ADDITION.to_owned(),
                    role: settings::FragmentRole::Developer.of_message(),
                    carrier: FragmentCarrier::InjectItems,
                    text: text.to_owned(),
                }];
                let before = assembly.threads.tell("t", &told);
                assembly.deliver("own:", Delivered { thread_id: "t".to_owned(), told, before })
            });
            for at in [refused_first, 1 - refused_first] {
                let (earlier, delivered) = assembly.delivered(&RpcId::Text(ids[at].clone())).expect("it waits");
                let Delivered { thread_id, told, before } = delivered;
                assembly.telling_refused(earlier, &thread_id, &told, before);
            }
            assert!(!assembly.threads.has_addition("t"), "{refused_first}");
        }
    }
}
