//! codex-shim: a proxy between a client and `codex app-server` that is transparent to both.
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
//! 1. **The forwarded bytes are the bytes that were read.** A line is parsed once, borrowed from those bytes. No parsed
//!    message is ever serialized; a line that has to change is spliced ([`wire::Splice`]).
//! 2. **The journal is the truth.** One write appends the result of one read to the journal, and only then one write
//!    forwards it. The page cache survives `kill -9`, so the journal has every complete line that a side has received.
//!    Each consumer follows the journal's files ([`journal::reader`]); there is no queue in memory between.
//! 3. **Decisions are pure.** [`engine::Engine`] takes a line or another event and its time, and returns a decision and
//!    effects. It reads no clock, file or socket and never blocks. All lines of a read are on record before any of them is
//!    forwarded: this durability policy is implemented in one place, [`driver`], which the simulation drives as the product does.
//! 4. **The relay never blocks.** One thread owns both directions, the engine and the journal writer. All pipe and
//!    socket I/O is non-blocking; a slow reader stalls only its own direction, as a pipe would. Other threads post to a
//!    bounded inbox and wake the poll loop.
//! 5. **The ledger is a truth of its own** ([`store::Ledger`]): state that must outlive a crash and is not a line,
//!    committed by one thread with `synchronous=FULL`. The engine decides by a copy of it and gets every change. A
//!    request for a human is forwarded once its row is committed, and so is the answer: the only wait of a direction, at
//!    most 250 ms.
//! 6. **History is a view of the journal.** One pure fold ([`history::Fold`]) reads the records; one thread
//!    ([`index::Index`]) follows the files and commits the fold's output together with its position. A lost or damaged
//!    database is rebuilt from the files.
//! 7. **Fail open, out loud.** If codex-shim itself fails (a folder that cannot be written, a full disk), the relay goes
//!    on, reports the fault once on stderr, and marks the gap in the journal as soon as it can.
//!
//! # Rooms
//!
//! The code is in four packages. Each is a folder of `src` and imports only those before it: `core ← proxy ← access ← tools`. A package
//! consists of rooms, which import one way too: each only those before it in the table, which `tests/it/tidy.rs` reads and checks. Tests
//! through the binary are in `tests/it`, and use the rooms through `testing.rs`; `fixtures/golden` has the output that they compare.
//! `docs/contributing.md` has the words of the code, and recipes for a setting, a tool, a query, a member of a document, a kind of entry, a
//! call of the system, a secret and a request. To change a rule, go to:
//!
//! | package | room | its rules |
//! |---|---|---|
//! | core | `invariants` | checks that stay on in releases, and how a relay learns that one has failed |
//! | core | `wire` (pure) | line framing, message parsing, equality of ids |
//! | core | `os` | what is asked of the system, by what it is for: descriptors, sockets, terminals, processes, clocks; `os::launch`: the state from our launcher, and which program inherits it: signal mask, ignored signals, descriptors; `os::signals`: signals to a poll loop; the only room that knows which system it is |
//! | core | `protocol` (pure) | the methods of codex that this program knows: which are secret, which fields are used; the only room with method names |
//! | core | `secrets` (pure) | what a secret looks like, in one table; masks in texts, JSON and records; the credentials that a message carries |
//! | core | `engine` (pure) | the effects of each line, how much of it is recorded, shutdown; `engine::context`: the terminal context that the model gets, and its removal from every echo; `engine::requests`: the kinds of approvals and questions, their answers, and their state machine; `engine::assembly`: further context for the model, and the lines that wait for it; `engine::terminal`: the text that a command's output leaves on a screen; `engine::shell_line`: the commands in a line for a shell |
//! | core | `files` | how files below the home are opened and created: no link is followed, only regular files, only in folders that no other user can write to |
//! | core | `socket` | where our Unix sockets are bound, and which processes may call at them |
//! | core | `websocket` | one end of a WebSocket connection on a Unix socket: handshakes, frames, limits |
//! | core | `journal` | records, segments, append and cut back, sync and bounds, following a live journal |
//! | core | `text` (pure) | text for people: what a terminal may be sent, Markdown, documents that are scrolled |
//! | core | `config` | every setting, its sources and its default |
//! | core | `history` (pure) | the meaning of records: events, tool and turn activity, transcripts and the kinds of their entries, UI events |
//! | core | `api` (pure) | what a session is asked and what it answers: one struct for each document of the control socket |
//! | core | `drift` (pure) | the protocol of a codex, from the schema that it writes; what of the uses of clients another one refuses |
//! | core | `requests` (pure) | a request for people: what it asks, in words; what is risky about it; the answers that it takes, and its form |
//! | core | `store` | the session's folder, lock, ledger and log; which session a start or a tool belongs to |
//! | core | `index` | `history.db`: following the journal, each record once; cursors, epochs and gaps; retention; the answers to queries about it |
//! | core | `keeping` | deletion and redaction in stored sessions on the user's request; copies of a home beside running relays, and their restore |
//! | proxy | `driver` (pure) | what happens to the lines of one read, in which order: decided on, recorded, queued, written; the effects that concern links |
//! | proxy | `control` | the relay's control socket: its place, access and endpoints, listed in `routes.rs`; its client; warnings in the rows of requests; the display of times |
//! | proxy | `capture` | commands in the user's terminal: a terminal of ours, shell hooks, followed events |
//! | proxy | `replay` | tapes: anonymization at export, matching of a client to a tape, timing of the recorded lines |
//! | proxy | `context_engine` | start, calls, order of calls and end of the user's context engine; reading of fragments |
//! | proxy | `relay` | finding the server, the child process, the pipes and the queues between them, the signals; the event loop, also of hubs |
//! | proxy | `rehearsal` | a conversation on record, played to another codex with a model that repeats its part; pure except `model` and `play` |
//! | proxy | `hub` | one server for all clients: its process, the sockets, the links and their queues; its handover to the program that it becomes at a restart; a client on stdio that joins |
//! | access | `sessions` | the sessions of a home or a fleet for those who look at them: lists, requests, the timeline of a conversation and its pages; pure except `reader`, `poller`, `at_once`, `blame`, `inbox`, `search`, `selection`, `source` and `stopped` |
//! | access | `fleet` (feature `fleet`) | sessions of many machines over NATS: an agent beside the relays of a host ships events and answers questions; its client |
//! | tools | `tui` | the terminal UI's screens, keys and mouse; pure except `terminal` and `run` |
//! | tools | `web` | the web page: who may use it, its paths, and what it shows |
//! | tools | `cli` | the meaning of each invocation, and the tools |
//!
//! - `core`: the rules, most of them pure, and what is stored.
//! - `proxy`: what stands between clients and the server, and its control socket.
//! - `access`: the sessions, of this machine and of others, for those who look at them.
//! - `tools`: the command line, the terminal UI and the web page.
//!
//! # Invariants, stated by absence
//!
//! - The pure rooms know no file, socket, thread, process, environment or clock.
//! - Nothing owed to one attached client ever reaches the next: no queue, no half of a line, and no answer to a call,
//!   unless the next client reuses the id of a call in progress.
//! - The relay never writes anything but server bytes to stdout, and never waits for a disk's fsync, a human or a
//!   reader of the journal.
//! - The control socket never makes the relay wait: the two share counters and a lock that is held only for a copy.
//! - No queue grows with the traffic: a direction holds only the chunk that was read last.
//! - Only [`os`] names a system, `rustix` or `libc`. Pure rooms know nothing of it.
//! - Only `files` opens files below the home: never through a link or in a folder that another user can write to.
//! - The journal never retracts a whole record that a reader may have seen.

use codex_shim_access::sessions;
use codex_shim_core::{
    api, config, engine, history, index, invariants, journal, os, protocol, secrets, store, websocket, wire,
};
use codex_shim_proxy::{capture, control, driver, hub, relay, replay};

#[doc(hidden)]
pub mod testing;

pub use codex_shim_tools::main;
