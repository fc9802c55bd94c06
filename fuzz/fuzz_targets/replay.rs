//! Arbitrary tapes and lines of two clients: the player answers, and twice in the same way.

#![no_main]

use std::sync::Arc;

use codex_shim::testing::replay::{Player, Script, Strictness, Tape};
use codex_shim::testing::wire::Conn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let cut = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (tape, client) = data.split_at(cut);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tape.jsonl");
    let header = br#"{"journal":1,"session":"s","generation":"000000010000","segment":1,"at":1,"argv":[],"cwd":"/","codex":{"path":"c"},"shim":"0"}"#;
    std::fs::write(&path, [&header[..], b"\n", tape, b"\n"].concat()).expect("a file");
    let said = || {
        let mut player = Player::new(Arc::new(Script::of(Tape::load(&path).ok()?)), Strictness::Lenient);
        let mut said = String::new();
        for (number, line) in client.split(|byte| *byte == b'\n').take(100).enumerate() {
            let conn = Conn(number as u32 % 3);
            if number < 3 {
                said.push_str(&format!("{:?}", player.join(conn)));
            }
            said.push_str(&format!("{:?}", player.take(conn, line)));
        }
        let differences: Vec<_> = player.differences().collect();
        Some(format!("{said}{differences:?}{:?}", player.unsent(Conn(1))))
    };
    assert_eq!(said(), said(), "the same lines are answered the same");
});
