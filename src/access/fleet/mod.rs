//! The fleet: sessions of many machines, over NATS JetStream.
//!
//! ```text
//! relays ──▶ control sockets ──▶ agent ──▶ cshim.ev.<host>.<session>  ──▶ stream CSHIM_EV ──▶ client ──▶ tools
//!   ▲                             │  ▲                                                          │
//!   └─────────── answers ─────────┘  └────────── cshim.req.<host>.<read|write>.<user> ◀─────────┘
//! ```
//!
//! An agent is a process beside the relays of a host. It ships events with a cursor on disk, describes the host in two buckets, and
//! answers questions. The host's ledgers decide on every answer; nothing in the server is a second truth.
//!
//! *Trust.* NATS does not tell the agent who has asked, so the user's name stands in the subject, and the server's permissions bind
//! it to the credentials. The agent checks the rest: the place of the reply, headers, length and members of a question. The name of a
//! host stands in the subjects of all that it sends, and a console takes it from there, never from a payload.
//!
//! *Bounds.* Pages in memory, unacknowledged messages, questions at a time, their length and that of replies, and waits all have
//! limits.
//!
//! The relay knows nothing of it. It never writes into a session, and never sends anything that has not passed the mask.

mod agent;
mod client;
mod connection;
mod credentials;
mod feed;
mod follow;
mod found;
mod level;
mod looks;
mod probe;
mod recording;
mod stored;
mod subject;
mod turn;
mod views;
mod wire;

pub use agent::{Agent, AgentError, AgentOptions, NameFile};
pub use client::{AskError, Client, ClientError, Host, StoredEvent};
pub use connection::{ConnectError, Member};
pub use follow::Reader;
pub use found::{found, front, session_rows};
pub use probe::{Keeping, Outcome, Permission, Probe, Role, StreamPlan, StreamState, plans};
pub use stored::Start;
pub use subject::{in_permissions, is_plain_id, name_of};
pub use turn::{Runs, TurnEnded, TurnEvents};
pub use views::{Views, is_cut_off, text, with_left_out};
pub use wire::{EventMessage, Failure, Gap, Later, PendingDocument, PendingRow, Question, VERSION, Waited};
