//! Arbitrary lines from both sides: the engine decides on each of them, and no line is lost, duplicated or invented.

#![no_main]

use std::time::Duration;

use codex_shim::testing::engine::{
    AssemblySettings, ContextSettings, Effect, Engine, EngineSettings, Incoming, Input, Now, Passage, RequestSettings,
    ServerOwner,
};
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut engine = Engine::new(EngineSettings {
        budget: Default::default(),
        exit_grace: Duration::from_secs(10),
        context: ContextSettings::default(),
        assembly: AssemblySettings::default(),
        requests: RequestSettings::default(),
        server_owner: ServerOwner::Client,
        own_ids: "codex-shim:0:".to_owned(),
        tokens_before: 0,
    });
    let mut effects = Vec::new();
    engine.handle(now(0), Input::ServerStarted { pid: 1, adopted: false }, &mut effects);
    engine.handle(now(0), Input::SessionOpened { generation: "000000010000".to_owned() }, &mut effects);
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate().take(200) {
        let Some((first, bytes)) = line.split_first() else { continue };
        let from = if first % 2 == 0 { Side::Client } else { Side::Server };
        effects.clear();
        let line = Line { bytes, end: LineEnd::Newline };
        let decision = engine.read(now(number as u64), Conn::OWN, from, Incoming::Line(line), &mut effects);
        let decision = decision.expect("nothing is assembled, so no line is held");
        assert!(decision.record.is_some(), "each line is on record");
        if let Passage::Replace(own) = &decision.line {
            assert!(serde_json::from_slice::<serde_json::Value>(&own.bytes).is_ok(), "what is changed is still JSON");
            assert!(!own.bytes.contains(&b'\n'));
        }
        if decision.line == Passage::Withhold {
            assert_eq!(from, Side::Client, "no line of the server's is withheld: nothing was called by us");
        }
        let token_of = |effect: &Effect| if let Effect::Order(order) = effect { order.token() } else { None };
        let tokens: Vec<_> = effects.iter().chain(&decision.then).filter_map(token_of).collect();
        for token in tokens {
            effects.clear();
            engine.handle(now(number as u64), Input::Committed { token, done: first % 3 != 0 }, &mut effects);
        }
        if first % 5 == 0 {
            effects.clear();
            engine.handle(now(number as u64 * 1_000), Input::Tick, &mut effects);
        }
    }
    effects.clear();
    engine.handle(now(1 << 40), Input::Closed { from: Side::Server }, &mut effects);
    assert_eq!(engine.requests_pending(), 0, "what is open ends with the server");
});

fn now(ms: u64) -> Now {
    Now { unix_us: ms * 1_000, elapsed: Duration::from_millis(ms) }
}
