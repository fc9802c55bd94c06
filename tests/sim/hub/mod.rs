//! The world of a hub: one server, and several clients that come and go.
//!
//! # Fault model
//!
//! Besides the faults of the journal and of the ledger that the world on pipes has:
//!
//! - clients connect and leave at any moment: with messages unread, with a request open, with an answer that is held for its
//!   commit; some are probes of codex's daemon, and some leave everything unread until the hub disconnects them;
//! - several clients and API callers answer the same request, also ones that were not asked, late or twice;
//! - the hub is killed between any two effects, and in the middle of an append: the journal ends at any byte that was not
//!   passed on, and the ledger at its last commit. The server goes on, and the next hub adopts it;
//! - the hub becomes another program, with all connections, whenever nothing is in progress;
//! - the hub opens the ledger late, when clients are already connected;
//! - the server dies, with or without a hub, or closes one connection, also the hub's own, at once or after it has read nothing more
//!   on it for a while;
//! - a side does not take what waits for it, until its connection is cut;
//! - the server does not say in the status of a thread that it waits for an answer.
//!
//! Not simulated: the bytes of WebSocket frames, handshakes, limits in bytes, and two hubs at once.
//!
//! # Promises
//!
//! The numbers are those of the world on pipes.
//!
//! 1. Each connection carries its own messages, unchanged and in order, but for what the rules withhold or edit.
//! 2. Each message that a side has received is on record under its connection, or counted as missing.
//! 3. A request that several clients get has one row. The first answer to it wins, and no other reaches the server, unless
//!    the connection of the first one has broken, or the server asks again because it has not got that answer: then the
//!    request has another row. Late answers are stored as lost. A request that is open is pending in the ledger, and one
//!    that the server has resolved while a hub heard it is not. Whatever has happened before, a client that comes last can
//!    answer everything that the server still waits for.
//! 4. The history has each message once, however many connections delivered it. Event numbers have no holes.
//! 6. Nothing is held past its deadline, and nothing waits past its expiry.
//! 7. A turn of any client carries each terminal command once, and no client sees it. A command goes to threads of persons in the
//!    folder where it ran, and to no other.
//! 8. The message of an API caller who names no thread enters one in which a person speaks.
//! 9. The history knows what each thread is, and one in which no person speaks changes the activity of the session only if it
//!    waits for a person.

mod asked;
mod canaries;
mod checks;
mod client;
mod defect;
mod ends;
mod handover;
mod ledger;
mod referee;
mod ruled;
mod server;
mod shim;
mod threads;
mod wire;
mod world;

pub use threads::Others;
pub use world::HubWorld;
