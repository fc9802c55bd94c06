//! Arbitrary output of an `agent_pty`, in arbitrary pieces: every command is stored once, and the result equals that of
//! a single read.

#![no_main]

use std::io::Write as _;

use codex_shim::testing::capture::{Watch, Whose};
use codex_shim::testing::engine::{ContextBounds, PushedCommand};
use libfuzzer_sys::fuzz_target;

/// Bytes before the events: the owner of the blocks, and the number of bytes per read.
const HEAD_BYTES: usize = 9;

fuzz_target!(|data: &[u8]| {
    let Some(([takes_all, cuts @ ..], events)) = data.split_first_chunk::<HEAD_BYTES>() else { return };
    let takes_all = takes_all % 2 == 0;
    let whose = if takes_all { Whose::All } else { Whose::Users };
    let dir = tempfile::tempdir().expect("a folder");
    let whole = dir.path().join("whole.jsonl");
    std::fs::write(&whole, events).expect("a file");
    let mut at_once = Vec::new();
    look(&mut Watch::new(&whole, whose, ContextBounds::default()), &mut at_once);

    let grows = dir.path().join("grows.jsonl");
    let mut file = std::fs::File::create(&grows).expect("a file");
    let mut watch = Watch::new(&grows, whose, ContextBounds::default());
    let (mut in_pieces, mut rest) = (Vec::new(), events);
    for cut in cuts {
        let (piece, behind) = rest.split_at(rest.len().min(usize::from(*cut)));
        rest = behind;
        file.write_all(piece).expect("it is written");
        look(&mut watch, &mut in_pieces);
    }
    file.write_all(rest).expect("it is written");
    look(&mut watch, &mut in_pieces);

    assert_eq!(at_once, in_pieces, "where a read ends makes no difference");
    let before = in_pieces.len();
    look(&mut watch, &mut in_pieces);
    assert_eq!(in_pieces.len(), before, "each is told once");
    for command in in_pieces {
        let id = format!("{:?}", command.block_id);
        assert!(takes_all || id.contains("user:"), "the blocks of others are none of ours: {id}");
        // A refusal has a reason.
        if let Err(why) = command.into_command(1, &ContextBounds::default()) {
            assert!(!format!("{why}").is_empty());
        }
    }
});

fn look(watch: &mut Watch, kept: &mut Vec<PushedCommand>) {
    let mut keep = |more: &[PushedCommand]| {
        kept.extend_from_slice(more);
        Ok(())
    };
    watch.poll(&mut keep).expect("there is a file");
}
