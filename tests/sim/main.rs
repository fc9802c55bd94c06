//! The whole house under one seed: client, server, people at the side, engine, journal, ledger and index, in one process and in
//! a time of its own.
//!
//! # Fault model
//!
//! What can happen between any two steps, as the seed has it:
//!
//! - pipes take and give any number of bytes at a time, and are full at a few hundred;
//! - an append to the journal writes a part of what it should, or nothing, and goes on failing until there is room again;
//! - a commit of the ledger takes any time, or fails, for one or for all;
//! - people answer requests that are open, were answered or never were, say something, interrupt, and call the server;
//! - the client answers requests once, twice or not at all, and requests that there are not;
//! - the child dies; the shim is killed between any two effects, and started again on the same folder;
//! - the index comes to any record and stops there, and goes on later.
//!
//! Not in it: a disk that loses or alters what it has taken, bytes that a kernel's pipe alters, and threads, which the tests
//! with real processes have.
//!
//! # What has to hold
//!
//! 1. Each side gets the other's lines, whole, in order and unchanged, but for what the contract names.
//! 2. Nothing was received that is not on record, or counted as missing.
//! 3. A request ends once, the server gets one answer at most, and what it got is what is kept.
//! 4. Each record is indexed once, whatever happened in between: the database is what one reading of the files gives.
//! 5. What a session does is the same read live and read again.
//! 6. No line is held past its deadline.
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
    assert!(count < 100 || missing.is_empty(), "never happened: {missing:?}");
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
