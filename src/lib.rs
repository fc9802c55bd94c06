//! codex-shim stands between a client and `codex app-server` and changes nothing that either can see.
//!
//! # In one picture
//!
//! ```text
//!                 ┌─────────────────────────── codex-shim ───────────────────────────┐
//! client stdin ──▶│ read ─▶ frame ─▶ parse ─▶ ENGINE ─▶ journal.commit ─▶ forward ───│─▶ server stdin
//! client stdout ◀─│── forward ◀─ journal.commit ◀─ ENGINE ◀─ parse ◀─ frame ◀─ read ◀│── server stdout
//!                 └──────┬─────────────────┬───────────────────┬──────────────────────┘
//!     counters, faults ─▶ control.sock ◀─▶ ledger.db     journal/<generation>-<nnn>.jsonl
//!                              ▲                                │ followed by
//!                              └────── history.db ◀───────── INDEX (history::Fold)
//! ```
//!
//! # Ideas that carry the rest
//!
//! 1. **The bytes that were read are the bytes that are forwarded.** A line is parsed beside the bytes, borrowed,
//!    once. Nothing is ever printed back from a parsed message; a line that has to change is spliced ([`wire::Splice`]).
//! 2. **The journal is the truth.** What one read brought is appended to the journal with one write, and only then
//!    forwarded with one write. The page cache survives `kill -9`, so every complete line that a side has received is
//!    on record. Whatever wants to know what happened follows the journal's files ([`journal::reader`]); no queue in
//!    memory lies between.
//! 3. **Decisions are pure.** [`engine::Engine::handle`] takes what happened and when, and says what to do. It reads no
//!    clock, file or socket and never waits. For what one read brought, every `Record` is carried out before any
//!    `Forward`: that is the durability policy, and it stands in one place, `relay::event_loop`.
//! 4. **The relay waits for nobody.** One thread owns both directions, the engine and the journal's writing end. Its
//!    reads and writes of pipes and sockets never block; a direction whose reader is slow stops alone, as a pipe would.
//!    Other threads tell it something through a bounded inbox, and wake its poll.
//! 5. **The ledger is a truth of its own** ([`store::Ledger`]): what must outlive a crash and is no line, committed by one
//!    thread with `synchronous=FULL`. The engine holds a copy of what it decides by, and is told of every change. A request
//!    for a human goes on once its row is committed, an answer once it is too: the one thing that a direction waits for, at
//!    most 250 ms.
//! 6. **History is a view of the journal.** One pure fold ([`history::Fold`]) reads its records; one thread
//!    ([`index::Index`]) follows the files and commits what the fold gives together with how far it came. Whatever happens
//!    to the database, it is read or built again from the files.
//! 7. **Fail open, out loud.** A fault of ours (a folder that cannot be written, a full disk) is a state in which the
//!    relay goes on; it is said once on stderr, and the journal marks the gap as soon as it can.
//!
//! # Rooms
//!
//! Imports run one way: `wire ← protocol ← engine ← files ← journal ← history ← store ← index ← {keeping, control} ← {capture, replay,
//! context_engine} ← relay ← tui ← cli ← main`, with [`config`] beside [`history`] and [`launch`] beside [`control`]. To change
//! a rule, go to:
//!
//! | room | the rules that live there |
//! |---|---|
//! | [`wire`] (pure) | what a line is, how a message is read, when two ids are the same |
//! | [`protocol`] (pure) | the methods of codex that this program knows: which are secret, which ask a human, which fields are used; the only room with names of methods |
//! | [`engine`] (pure) | what is done with each line, what is kept off the record, how a relay ends; `engine::context`: what the model is shown of a terminal, and what is taken out of every echo; `engine::requests`: the state machine of approvals and questions; `engine::assembly`: what else the model is shown, and which lines wait for that |
//! | [`files`] | how files below the home are opened and created: no link is followed, only regular files, only in folders that no other user can write to |
//! | [`journal`] | what a record looks like, segments, append and cut back, sync and bounds, following a live journal |
//! | [`history`] (pure) | what a record tells of: events, what tools and turns did, activity, transcripts, UI events |
//! | [`config`] | every setting, its sources and its default |
//! | [`store`] | the folder of a session, its lock, its ledger, which session a start or a tool belongs to, the log |
//! | [`index`] | `history.db`: following the journal, each record once; cursors, epochs and gaps; what is kept and for how long |
//! | [`keeping`] | what of stored sessions goes, and what of it is masked, when a person asks |
//! | [`control`] | the socket beside a relay: where it is, who may ask, what is answered; the client for it; how requests and times are shown to a person |
//! | [`launch`] | what our launcher gave us, and which program inherits it: signal mask, ignored signals, descriptors |
//! | [`capture`] | what the user does in a terminal: a program in a terminal of ours, shells' hooks, followed events |
//! | [`context_engine`] | how the user's context engine is started, called and ended; in which order; what fragments say |
//! | [`relay`] | finding the server, the child process, the pipes, the signals, the poll loop |
//! | [`replay`] | tapes: what of a machine is taken out at export, how a client is matched to a tape, when what is said |
//! | [`tui`] | what the terminal UI shows, and what keys and the mouse do; pure except `reader`, `poller`, `terminal` and `run` |
//! | [`cli`] | which invocation means what, the tools |
//!
//! # Invariants, stated by absence
//!
//! - `wire`, `protocol`, `engine` and `history` know no file, socket, thread, process, environment or clock.
//! - What one attached client was owed never reaches the next: no queue, no half of a line, and no answer to its calls, but
//!   where the next uses the id of an open one.
//! - The relay never writes anything but server bytes to stdout, and never waits for a disk's fsync, a human or a
//!   reader of the journal.
//! - The control socket never waits in the relay's way: the two share counters and a lock held for the time of a copy.
//! - Nothing holds a queue that can grow with traffic: what waits is the one chunk that was read.
//! - No file below the home is opened but by [`files`]: through no link, in no folder that another user can write to.
//! - The journal never retracts a whole record that a reader may have seen.

mod wire;

mod protocol;

mod engine;

mod files;

mod journal;

mod config;

mod history;

mod store;

mod index;

mod keeping;

mod control;

mod launch;

mod capture;

mod replay;

mod context_engine;

mod relay;

mod tui;

mod cli;

#[doc(hidden)]
pub mod testing;

/// Runs the program with the arguments of this process. Returns its exit status.
pub fn main() -> i32 {
    cli::main()
}
