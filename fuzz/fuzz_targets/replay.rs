//! Arbitrary tapes and client lines: the player answers, and twice in the same way.

#![no_main]

use codex_shim::testing::replay::{Player, Strictness, Tape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let cut = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (tape, client) = data.split_at(cut);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tape.jsonl");
    let header = br#"{"journal":1,"session":"s","generation":"000000010000","segment":1,"at":1,"argv":[],"cwd":"/","codex":{"path":"c"},"shim":"0"}"#;
    std::fs::write(&path, [&header[..], b"\n", tape, b"\n"].concat()).expect("a file");
    let said = || {
        let mut player = Player::new(Tape::load(&path).ok()?, Strictness::Lenient);
        let mut said = format!("{:?}", player.begin());
        for line in client.split(|byte| *byte == b'\n').take(100) {
            said.push_str(&format!("{:?}", player.take(line)));
        }
        Some(format!("{said}{:?}{:?}", player.differences(), player.unsent()))
    };
    assert_eq!(said(), said(), "the same lines are answered the same");
});
