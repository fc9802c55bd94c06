//! The whole house under one seed: client, server, people at the side, engine, journal, ledger and index, in one process and in
//! a time of its own.
//!
//! # Fault model
//!
//! What can happen between any two steps, as the seed has it:
//!
//! - pipes take and give any number of bytes at a time, and are full at a few hundred;
//! - lines are spelled in many ways, with odd gaps, orders of members and escapes, or are no JSON, no UTF-8, or nothing;
//! - an append to the journal writes a part of what it should, or nothing, and goes on failing until there is room again;
//! - a commit of the ledger takes any time, or fails, for one or for all;
//! - people answer requests that are open, were answered or never were, say something, interrupt, and call the server;
//! - the client answers requests once, twice or not at all, each time differently, and requests that there are not, or that it
//!   was not shown;
//! - the server takes requests back, by themselves or with their turn;
//! - the child dies; the shim is killed between any two effects, and started again on the same folder;
//! - the index comes to any record and stops there, and goes on later;
//! - afterwards the session's folder is restored from a copy, the journal loses its end or a run, or the history is lost.
//!
//! Not in it: a disk that loses or alters what it has taken, bytes that a kernel's pipe alters, threads, and the control socket,
//! which the tests with real processes have.
//!
//! # What has to hold
//!
//! What each side is to get, who was first, and how each request ends is said by a referee, from what goes into the engine and
//! from the contract alone.
//!
//! 1. Each side gets, byte for byte and in this order, what the referee says: the other's lines, without what stands in front of
//!    the user's words, without answers that were not the first, and without requests that the client is not shown.
//! 2. Nothing was received that is not on record, or counted as missing.
//! 3. A request is kept before the client gets it, and an answer before the server does, in every life, however it ends; but for
//!    those that the ledger has failed, or kept waiting until the deadline, and those are marked late. A request ends once, as
//!    the first answer to it says. The server gets one answer at most. Each answer that was not the first is kept as one.
//!    People are told what became of theirs.
//! 4. Each record is indexed once, whatever happened in between: the database is what one reading of the files gives. No two events
//!    get one number, even after a restore or a loss, and a missing run is a gap.
//! 5. What a session does is what the server knows, once nothing is under way; and the fold that the index goes on with from
//!    where it had stopped is that of one reading of the files. What `GET /sessions/{id}` lays over that is not looked at here: that
//!    the relay knows sooner whether its child runs.
//! 6. No line is held past its deadline, and nothing waits past its expiry.
//!
//! Each of these has houses that are built wrong, and each of those has to be found by the check that is there for it.
//!
//! `SIM_SEED=N` plays one seed and says what it does; `SIM_SEEDS=N` plays so many (`make sim SEED=… SEEDS=…`).

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test crate is no library, is told its seed by the environment, says what it has played, and looks at some of what there is"
)]

mod asked;
mod canary;
mod checks;
mod client;
mod dice;
mod ends;
mod happened;
mod indexing;
mod lines;
mod pipe;
mod referee;
mod restored;
mod rows;
mod server;
mod shim;
mod side;
mod spelling;
mod world;

use canary::Canary;
use happened::Happened;
use world::World;

/// As many as a test run has time for.
const SEEDS: u64 = 1_000;

/// Seeds among which each canary is found.
const CANARY_SEEDS: u64 = 400;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number goes there")))
}

fn play(seed: u64, canary: Canary) -> Result<Happened, String> {
    let mut world = World::new(seed, canary);
    world.play()?;
    Ok(world.happened)
}

#[test]
fn whatever_happens_no_promise_is_broken() {
    let _alone = world::alone();
    let (first, count) = match setting("SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (0, setting("SIM_SEEDS").unwrap_or(SEEDS)),
    };
    let mut happened = Happened::default();
    for seed in first..first + count {
        match play(seed, Canary::None) {
            Ok(more) => happened.add_all(&more),
            Err(what) => panic!("seed {seed}: {what}\n  play it again: make sim SEED={seed}"),
        }
    }
    println!("{count} seeds: {happened:?}");
    let missing = happened.missing();
    assert!(count < SEEDS || missing.is_empty(), "never happened: {missing:?}");
}

/// A house that is built wrong, in one way after the other, is found out by the check that is there for that.
#[test]
fn canaries_die() {
    let _alone = world::alone();
    for (canary, finds) in Canary::ALL {
        let found = (0..CANARY_SEEDS).find_map(|seed| play(seed, canary).err());
        let found = found.unwrap_or_else(|| panic!("nobody notices: {canary:?}"));
        assert!(found.starts_with(finds), "{canary:?} is found by another check than `{finds}`: {found}");
    }
}
