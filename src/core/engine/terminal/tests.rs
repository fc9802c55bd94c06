//! What is left of an output: a table over all that moves, erases or hides text, and properties of any bytes.

use proptest::prelude::*;

use super::*;

fn played(output: &[u8], size: Option<(u16, u16)>, cut: usize) -> Screen {
    let mut screen = Screen::new(size.map(|(columns, rows)| Size { columns, rows }), KEPT_BYTES);
    let mut parser = Parser::default();
    for bytes in output.chunks(cut.max(1)) {
        parser.parse(bytes, |piece| screen.apply(&piece));
    }
    screen
}

fn remains(output: &[u8], size: Option<(u16, u16)>) -> Remains {
    played(output, size, usize::MAX).remains()
}

/// Checks the text without the line ends at its end, read at once and byte by byte.
fn check(name: &str, output: &str, size: Option<(u16, u16)>, expect: &str) {
    for cut in [usize::MAX, 1] {
        let remains = played(output.as_bytes(), size, cut).remains();
        assert_eq!(remains.text.trim_end_matches('\n'), expect, "{name}: {output:?}");
    }
}

const SMALL: Option<(u16, u16)> = Some((10, 4));
const USUAL: Option<(u16, u16)> = Some((80, 24));
const UNKNOWN: Option<(u16, u16)> = None;

const NOTE: &str = "[a full-screen program; its screen is not kept]";

/// A name, what a program writes, the columns and rows of its terminal if they are known, and the text that is left.
type Case = (&'static str, &'static str, Option<(u16, u16)>, &'static str);

const REDRAWN: [Case; 16] = [
    ("progress by CR", "10%\r20%\r100%\r\ndone\r\n", USUAL, "100%\ndone"),
    ("shorter text over longer", "downloading\rdone\r\n", USUAL, "doneloading"),
    ("CR and erasure", "downloading\r\x1b[Kdone\r\n", USUAL, "done"),
    ("CR before a line end", "a\r\r\nb\r\n", USUAL, "a\nb"),
    ("two lines redrawn", "a 1\r\nb 1\r\n\x1b[2A\x1b[2Ka 2\r\n\x1b[2Kb 2\r\n", USUAL, "a 2\nb 2"),
    (
        "docker pull",
        "a: Waiting\r\nb: Waiting\r\n\x1b[2A\x1b[2K\ra: Done\r\x1b[2B\x1b[1A\x1b[2K\rb: 5%\r\x1b[1B",
        USUAL,
        "a: Done\nb: 5%",
    ),
    (
        "cargo",
        "   Building [=>  ] 1/9: x\r\x1b[K   Compiling x\r\n   Building [==> ] 2/9\r\x1b[K    Finished\r\n",
        USUAL,
        "   Compiling x\n    Finished",
    ),
    ("npm", "\x1b[?25l⠙\x1b[1G\x1b[0K⠹\x1b[1G\x1b[0K\r\nadded 3 packages\r\n\x1b[?25h", USUAL, "\nadded 3 packages"),
    (
        "pnpm",
        "Progress: 1\r\n\x1b[1A\x1b[0JProgress: 2, done\r\n\x1b[0J\r\nDone\r\n",
        USUAL,
        "Progress: 2, done\n\nDone",
    ),
    (
        "apt",
        "\x1b[1;3r\x1b[4;1H[50%]\x1b[1;1Ha\r\nb\r\nc\r\nd\r\ne\x1b[r\x1b[4;1H\x1b[K\x1b[3;2H\r\n",
        SMALL,
        "a\nb\nc\nd\ne",
    ),
    ("cursor up stops at the top", "a\r\n\x1b[9Ab\r\nc", USUAL, "b\nc"),
    ("scrolled lines are out of reach", "1\r\n2\r\n3\r\n4\r\n5\r\n\x1b[9Ax", SMALL, "1\n2\nx\n4\n5"),
    ("up over a broken line", "0123456789abc\r\n\x1b[2A\x1b[2Kx\r\n\x1b[2Ky\r\n", SMALL, "x\ny"),
    ("the same if the width is not known", "0123456789abc\r\n\x1b[1A\x1b[2Kx\r\n", UNKNOWN, "x"),
    ("saved cursor", "ab\x1b7cd\r\nx\x1b8y\x1b[sz\x1b[uZ", USUAL, "abyZ\nx"),
    ("absolute places", "\x1b[2;3Hx\x1b[1;2Hy\x1b[3Gz\x1b[3dw\x1b[Ev\x1b[Fu\x1b[5`t", USUAL, " yz\n  x\nu  wt\nv"),
];

const CORRECTED: [Case; 12] = [
    ("backspace", "abc\x08\x08X", USUAL, "aXc"),
    ("backspace in the first column", "\x08\x08a\x08b", USUAL, "b"),
    ("bold by overstrike", "N\x08NA\x08AM\x08ME\x08E\r\n", USUAL, "NAME"),
    ("underline by overstrike", "_\x08f_\x08i_\x08l_\x08e _\x08é\r\n", USUAL, "file é"),
    ("wide overstrike", "漢\x08\x08漢字\x08\x08字", USUAL, "漢字"),
    ("spinner", "work /\x08-\x08\\\x08|\x08 \x08ok", USUAL, "work ok"),
    ("form feed", "a\x0cb\x0bc", USUAL, "a\n b\n  c"),
    ("form feed in a file", "a\x0cb\n", UNKNOWN, "a\nb"),
    (
        "tabs",
        "a\tb\r\n1234567\tc\r\n12345678\td\r\n\tx\x1b[Zy",
        USUAL,
        "a       b\n1234567 c\n12345678        d\n        y",
    ),
    ("tab in the last column", "a\t\t\tb", SMALL, "a        b"),
    ("tabs overwrite nothing", "abc\r\tx", USUAL, "abc     x"),
    ("bell, NUL, DEL and other controls", "a\x07b\0c\x7fd\x05e\u{9b}f\u{85}g", USUAL, "abcdefg"),
];

const ERASED: [Case; 15] = [
    ("to the end of the line", "abcdef\x1b[3D\x1b[K", USUAL, "abc"),
    ("to the start of the line", "abcdef\x1b[3D\x1b[1Kx", USUAL, "   xef"),
    ("a line", "abc\x1b[2Kd", USUAL, "   d"),
    ("to the end of the screen", "a\r\nb\r\nc\x1b[2;1H\x1b[J", USUAL, "a"),
    ("to the start of the screen", "a\r\nbc\r\nd\x1b[2;1H\x1b[1J", USUAL, "\n c\nd"),
    ("the screen", "a\r\nb\r\n\x1b[H\x1b[2Jc\r\n", USUAL, "c"),
    ("the screen, not what has scrolled off", "1\r\n2\r\n3\r\n4\r\n5\r\n\x1b[H\x1b[2Jc", SMALL, "1\n2\nc"),
    ("that too", "1\r\n2\r\n3\r\n4\r\n5\r\n\x1b[H\x1b[2J\x1b[3Jc", SMALL, "c"),
    ("reset", "a\r\nb\x1b(0\x1bcq", USUAL, "q"),
    ("characters", "abcdef\r\x1b[2X\x1b[C\x1b[9X", USUAL, ""),
    ("inserted and deleted characters", "abcdef\r\x1b[2@\x1b[3Cx\x1b[2P", USUAL, "  axef"),
    ("insert mode", "bc\r\x1b[4ha\x1b[4lX", USUAL, "aXc"),
    ("inserted lines", "a\r\nb\r\nc\x1b[2;1H\x1b[Lx", USUAL, "a\nx\nb\nc"),
    ("deleted lines", "a\r\nb\r\nc\r\nd\x1b[2;1H\x1b[2M", USUAL, "a\nd"),
    ("the last column of a full line stays", "0123456789\x1b[K\r\nx", SMALL, "0123456789\nx"),
];

const SCROLLED: [Case; 8] = [
    ("every line is there", "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7", SMALL, "1\n2\n3\n4\n5\n6\n7"),
    ("within a region", "a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\r\nx\x1b[r", SMALL, "a\nc\nx\nd"),
    (
        "a region at the top keeps what leaves it",
        "a\r\nb\r\nc\r\nd\x1b[1;2r\x1b[2;1H\r\nx\x1b[r",
        SMALL,
        "a\nb\nx\nc\nd",
    ),
    ("by count", "a\r\nb\r\nc\x1b[S\x1b[2T", SMALL, "a\n\n\nb\nc"),
    ("reverse index", "a\r\nb\x1b[H\x1bMx\x1b[9;1H\x1bDy\x1bEz", SMALL, "x\na\nb\n\ny\nz"),
    ("lines relative to the region", "\x1b[2;3r\x1b[?6h\x1b[1;1Ha\x1b[9;1Hb\x1b[?6lc", SMALL, "c\na\nb"),
    ("a line feed alone", "ab\ncd", USUAL, "ab\n  cd"),
    ("a line feed alone in a file", "ab\ncd", UNKNOWN, "ab\ncd"),
];

const WIDE: [Case; 13] = [
    ("a long line is one line", "0123456789abcdefghijklmnop\r\nx\r\n", SMALL, "0123456789abcdefghijklmnop\nx"),
    (
        "longer than the screen",
        "0123456789012345678901234567890123456789012345678901234567890123456789!\r\n",
        SMALL,
        "0123456789012345678901234567890123456789012345678901234567890123456789!",
    ),
    ("a full line is not joined", "0123456789\r\nabc", SMALL, "0123456789\nabc"),
    ("blanks where it is broken", "01234567  9 b", SMALL, "01234567  9 b"),
    ("no wrap", "\x1b[?7l0123456789abc\x1b[?7h", SMALL, "012345678c"),
    ("CR in a broken line", "0123456789abc\rX", SMALL, "0123456789Xbc"),
    ("wide characters", "漢字\rx", USUAL, "x 字"),
    ("a wide character that does not fit", "012345678漢x", SMALL, "012345678漢x"),
    ("marks", "e\u{301}x\r\ne\u{301}\x08X", USUAL, "e\u{301}x\nX"),
    ("a mark in a full line", "012345678e\u{301}x", SMALL, "012345678e\u{301}x"),
    ("emoji", "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f} 🇩🇪", USUAL, "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f} 🇩🇪"),
    ("line drawing", "\x1b(0lqk\x1b(B lqk \x1b)0\x0ex\x0fx", USUAL, "┌─┐ lqk │x"),
    ("a repeated character", "ab\x1b[3bc", USUAL, "abbbbc"),
];

const HIDDEN: [Case; 18] = [
    ("colours", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[48:5:9my\x1b[m", USUAL, "red xy"),
    ("colours within words", "pass\x1b[m\x1b[Kword", USUAL, "password"),
    ("a title", "\x1b]0;title\x07a\x1b]2;t\nu\x1b\\b\x1bkscreen\x1b\\c", USUAL, "abc"),
    ("a link", "\x1b]8;id=1;https://x.test/\x1b\\text\x1b]8;;\x1b\\.", USUAL, "text."),
    ("a picture in an OSC", "\x1b]1337;File=inline=1:AAAA\r\nBBBB\r\n\x07x", USUAL, "x"),
    ("sixel", "a\x1bP0;1q\"1;1;9;9#0;2;0;0;0#0~~@@vv$\r\n-!9~\x1b\\b", USUAL, "ab"),
    ("APC, PM and SOS", "\x1b_Ga=T;AAAA\x1b\\a\x1b^pm\nx\x1b\\b\x1bXsos\x1b\\c", USUAL, "abc"),
    ("modes and reports", "\x1b[?2004h\x1b[?25l\x1b=\x1b>\x1b[>4;1m\x1b[c\x1b[6n\x1b[?1ha\x1b[2 q\x1b%G", USUAL, "a"),
    (
        "a pager on the ordinary screen",
        "\x1b[?1h\x1b=\rcommit\x1b[m\r\nline\r\n\r\x1b[K\x1b[?1l\x1b>",
        USUAL,
        "commit\nline",
    ),
    ("an unfinished sequence", "a\x1b[1;3", USUAL, "a"),
    ("an unfinished title", "a\x1b]0;tit", USUAL, "a"),
    ("an unfinished picture", "a\x1bPq#0~~~\r\n~~", USUAL, "a"),
    ("an unfinished link", "a\x1b]8;;http\x1b[1mb", USUAL, "ab"),
    ("an aborted sequence", "a\x1b[1\x18b\x1b]0;x\x1ac\x1bPq\x1b[md", USUAL, "abcd"),
    ("a control within a sequence", "ab\x1b[\r1mX", USUAL, "Xb"),
    (
        "the alternate screen",
        "a\x1b[?1049h\x1b[2J\x1b[Hscreen\r\n\x1b[?1049lb\r\n",
        USUAL,
        "a\n[a full-screen program; its screen is not kept]\nb",
    ),
    ("twice, in its older forms", "\x1b[?47hx\x1b[?47l\x1b[?1;1047hy\x1b[?1047l", USUAL, NOTE),
    ("not left", "a\r\n\x1b[?1049hx\r\ny", USUAL, "a\n[a full-screen program; its screen is not kept]"),
];

#[test]
fn text_is_what_stood_on_the_screen() {
    for case in [&REDRAWN[..], &CORRECTED, &ERASED, &SCROLLED, &WIDE, &HIDDEN].concat() {
        let (name, output, size, expect) = case;
        check(name, output, size, expect);
    }
}

#[test]
fn only_missing_text_counts_as_cut() {
    let is_cut = |output: &[u8]| remains(output, USUAL).is_cut;
    assert!(!is_cut(b"a\x1b[1mb\r\x1b[Kc"));
    assert!(!is_cut(&b"10%\r".repeat(99_999)));
    assert!(is_cut(&b"line\r\n".repeat(99_999)));
    assert!(is_cut(b"\x1b[?1049hx"));
}

#[test]
fn new_size_moves_lines_off() {
    let mut screen = Screen::new(Some(Size { columns: 10, rows: 4 }), KEPT_BYTES);
    let mut parser = Parser::default();
    let mut write = |screen: &mut Screen, output: &str| parser.parse(output.as_bytes(), |piece| screen.apply(&piece));
    write(&mut screen, "1\r\n2\r\n3\r\n0123456789");
    screen.resize(Size { columns: 5, rows: 2 });
    write(&mut screen, "\r\n\x1b[2Ax\r\n\x1b[Babcdefg");
    screen.resize(Size { columns: 20, rows: 9 });
    write(&mut screen, "hijklmnop\r\nq");
    assert_eq!(screen.remains().text, "1\n2\n3\nx123456789\nabcdefghijklmnop\nq");
}

#[test]
fn huge_numbers_take_no_memory() {
    for size in [UNKNOWN, USUAL, Some((u16::MAX, u16::MAX)), Some((0, 0))] {
        for last in (b'@'..=b'~').map(char::from) {
            let output = format!("a\x1b[999999;999999{last}b\x1b[?999999{last}\x1b[999999{last}\u{6f22}c\r\n");
            let screen = played(output.repeat(50).as_bytes(), size, 7);
            assert!(screen.remains().text.len() <= KEPT_BYTES, "{last}");
        }
    }
    // Beyond what a terminal has, a program that asks for the last column does not get it.
    let text = remains(b"\x1b[999999;999999Hx", UNKNOWN).text;
    assert_eq!(text.trim_start(), "x");
    assert!(text.len() < 500);
}

/// Bytes that reach more than random ones do.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let sequence = (
        prop::sample::select(vec!["", "?", ">"]),
        prop::collection::vec(prop_oneof![0u32..12, Just(999_999), 47u32..49, Just(1_049)], 0..3),
        prop::sample::select(b"@ABCDEFGHIJKLMPSTXZ`abdefhlrsu".to_vec()),
    );
    let sequence = sequence.prop_map(|(prefix, numbers, last)| {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        format!("\x1b[{prefix}{}{}", numbers.join(";"), char::from(last)).into_bytes()
    });
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        "[ -~\u{300}漢e👩\u{9b}]{0,14}".prop_map(String::into_bytes),
        sequence,
        prop::sample::select(vec![
            "\r\n", "\n", "\t", "\x08", "\x1b7", "\x1b8", "\x1bM", "\x1bc", "\x1b]0;", "\x1bP", "\x1b\\", "\x07"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

#[test]
fn sequences_leave_nothing_in_their_line() {
    for (text, expect) in [
        ("plain\ttext\r\n", "plain\ttext\r\n"),
        ("\x1b[31mred\x1b[0m\x07\n", "red\x07\n"),
        ("a\x1b]8;;x\nb\x1b[3", "a\nb"),
    ] {
        assert_eq!(without_sequences(text), expect, "{text:?}");
    }
}

proptest! {
    #[test]
    fn text_without_controls_is_unchanged(text in "(\\PC|\n){0,300}") {
        let text: String = text.chars().filter(|char| !char.is_control() || *char == '\n').collect();
        prop_assert_eq!(remains(text.as_bytes(), None), Remains { text: text.clone(), is_cut: false });
        let coloured = format!("{text}\x1b[m");
        prop_assert_eq!(remains_of(&coloured), text.as_str());
        // Also if the terminal breaks its lines.
        let typed = text.replace('\n', "\r\n");
        prop_assert_eq!(remains(typed.as_bytes(), Some((7, 3))).text, text);
    }

    #[test]
    fn any_bytes_leave_plain_text(output in hostile(), columns in 0u16..20, rows in 0u16..6, cut in 1usize..9) {
        for size in [None, Some((columns, rows))] {
            let whole = remains(&output, size);
            prop_assert!(!whole.text.contains(|char: char| char.is_control() && char != '\n'), "{:?}", whole.text);
            prop_assert_eq!(&whole, &played(&output, size, cut).remains());
            prop_assert_eq!(&remains(whole.text.as_bytes(), None).text, &whole.text);
        }
        prop_assert!(!without_controls(&String::from_utf8_lossy(&output))
            .contains(|char: char| char.is_control() && char != '\n' && char != '\t'));
    }
}
