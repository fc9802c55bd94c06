//! Arbitrary output on a screen of arbitrary size: what is left is plain and bounded text, however the output is cut.

#![no_main]

use codex_shim::testing::engine::terminal::{KEPT_BYTES, Parser, Remains, Screen, Size};
use libfuzzer_sys::fuzz_target;

/// Bytes before the output: columns, rows, another size, and the number of bytes per read.
const HEAD_BYTES: usize = 5;

fuzz_target!(|data: &[u8]| {
    let Some(([columns, rows, columns_then, rows_then, cut], output)) = data.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    let size = (*columns > 0).then(|| Size { columns: u16::from(*columns), rows: u16::from(*rows) });
    let (first, rest) = output.split_at(output.len() / 2);
    let played = |cut: usize| -> Remains {
        let (mut parser, mut screen) = (Parser::default(), Screen::new(size, KEPT_BYTES));
        first.chunks(cut).for_each(|bytes| parser.parse(bytes, |piece| screen.apply(&piece)));
        if size.is_some() {
            screen.resize(Size { columns: u16::from(*columns_then), rows: u16::from(*rows_then) });
        }
        rest.chunks(cut).for_each(|bytes| parser.parse(bytes, |piece| screen.apply(&piece)));
        screen.remains()
    };
    let whole = played(usize::MAX);
    assert_eq!(whole, played(usize::from(*cut).max(1)), "where a read ends makes no difference");
    assert!(whole.text.len() <= KEPT_BYTES);
    assert!(!whole.text.contains(|char: char| char.is_control() && char != '\n'), "{:?}", whole.text);
});
