//! Arbitrary bytes in arbitrary pieces: output equals input, the lines are the same, and nothing panics.

#![no_main]

use std::collections::BTreeMap;

use codex_shim::testing::wire::{
    Body, Frame, Framer, Glance, Members, elements, stands_verbatim, text, tokens, written_members,
};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

fuzz_target!(|data: &[u8]| {
    let Some((&[line_bytes_max, step], bytes)) = data.split_first_chunk::<2>() else { return };
    let line_bytes_max = usize::from(line_bytes_max) + 1;
    let (at_once, lines_at_once) = run(&[bytes], line_bytes_max);
    let chunks: Vec<&[u8]> = bytes.chunks(usize::from(step) + 1).collect();
    let (in_pieces, lines_in_pieces) = run(&chunks, line_bytes_max);
    assert_eq!(at_once, bytes, "what goes on is what came");
    assert_eq!(in_pieces, bytes);
    assert_eq!(lines_at_once, lines_in_pieces);
});

fn run(chunks: &[&[u8]], line_bytes_max: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut framer = Framer::new(line_bytes_max);
    let (mut passed, mut lines, mut glance) = (Vec::new(), Vec::new(), Glance::default());
    let mut take = |framer: &mut Framer, frame: Frame| match frame {
        Frame::Line { range, end } => {
            let line = framer.line(range.clone(), end).bytes;
            assert!(line.len() <= line_bytes_max && !line.contains(&b'\n'));
            look_at(line, &mut glance);
            lines.push(line.to_vec());
            passed.extend_from_slice(framer.bytes(range));
        }
        Frame::Piece { range } | Frame::LastPiece { range, .. } => passed.extend_from_slice(framer.bytes(range)),
    };
    for chunk in chunks {
        framer.buffer_mut().extend_from_slice(chunk);
        while let Some(frame) = framer.next_frame() {
            take(&mut framer, frame);
        }
        framer.release_framed();
    }
    while let Some(frame) = framer.last_frame() {
        take(&mut framer, frame);
    }
    (passed, lines)
}

/// Reads a line with every parser, and with a glance that has seen the lines before.
fn look_at(line: &[u8], glance: &mut Glance) {
    let mut method = None;
    let is_plain = Glance::default().is_plain_notification(line, |name| {
        method = Some(name.to_owned());
        true
    });
    assert_eq!(glance.is_plain_notification(line, |_| true), is_plain, "no earlier line changes the answer");
    let Body::Message(message) = Body::parse(line) else {
        assert!(!is_plain, "only a message is plain");
        return;
    };
    if is_plain {
        assert_eq!(message.method.as_deref(), method.as_deref());
        assert!(message.id.is_none() && message.result.is_none() && message.error.is_none());
        assert!(!message.repeated_member && stands_verbatim(line));
    }
    // Every parser agrees that a message is a JSON object; JSON permits larger numbers than a machine.
    let whole: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_slice(line);
    assert!(whole.is_ok(), "a message is JSON");
    for part in [message.params, message.result, message.error].into_iter().flatten() {
        if let Some(members) = Members::of(part) {
            members.iter().for_each(|(_, value)| drop(text(value)));
            let parsed = members.iter().map(|(name, value)| (name.to_owned(), value.get()));
            let written = written_members(part.get()).map(|(name, value)| (name.into_owned(), value));
            assert!(parsed.eq(written), "members are found as a parser finds them");
        }
        elements(part).into_iter().flatten().for_each(|element| drop(text(element)));
        let mut end = 0;
        for token in tokens(part.get()) {
            assert!(token.range.start >= end && token.range.end <= part.get().len(), "tokens stand in their order");
            end = token.range.end;
        }
    }
}
