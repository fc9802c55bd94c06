//! Arbitrary changes of files: each byte is in one line, each line is shown or said to be missing, and lists lose none.

#![no_main]

use codex_shim::testing::protocol::{Form, LineKind, Listed, Text, lines, list, shown};
use libfuzzer_sys::fuzz_target;

const FORMS: [Form; 5] = [Form::Added, Form::Deleted, Form::Updated, Form::Turn, Form::Listed];

const KINDS: [&str; 3] = ["add", "delete", "update"];

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    FORMS.iter().for_each(|form| is_whole(*form, &text));
    KINDS.iter().for_each(|kind| is_listed(kind, &text));
});

fn is_whole(form: Form, text: &str) {
    let mut at = 0;
    let mut all = lines(form, text);
    for line in all.by_ref() {
        assert_eq!(line.range.start, at, "{form:?} {text:?}");
        assert!(text[line.range.clone()].find('\n').is_none_or(|end| end + 1 == line.range.len()), "{form:?} {text:?}");
        at = line.range.end;
    }
    assert_eq!(at, text.len(), "{form:?} {text:?}");
    let sign = match form {
        Form::Added => "+",
        Form::Deleted => "-",
        Form::Updated | Form::Turn | Form::Listed => "",
    };
    let mut rest = text;
    let mut remarks = Vec::new();
    for (kind, line) in shown(form, text) {
        if rest.is_empty() {
            remarks.push((kind, line.into_owned()));
            continue;
        }
        let line = line.strip_prefix(sign).unwrap_or_else(|| panic!("{line:?} lacks its sign"));
        let behind = rest.strip_prefix(line).unwrap_or_else(|| panic!("{line:?} is not shown of {text:?}"));
        rest = behind.strip_prefix('\n').unwrap_or(behind);
    }
    assert!(rest.is_empty(), "{rest:?} is not shown");
    let is_remarked = !sign.is_empty() && !text.ends_with('\n') && !text.ends_with(" bytes in all)");
    assert_eq!(remarks.len(), usize::from(is_remarked), "{form:?} {text:?} {remarks:?}");
    assert!(remarks.iter().all(|(kind, line)| *kind == LineKind::Remark && line.starts_with("\\ ")));
}

/// A list of two changes has all lines of both.
fn is_listed(kind: &str, text: &str) {
    let mut all = String::new();
    let one = Listed { kind, path: "x", moved_to: None, text: Text::Diff(text) };
    list(one, &mut all);
    list(one, &mut all);
    is_whole(Form::Listed, &all);
    let half: Vec<_> = shown(Form::of_kind(kind), text).map(|(kind, line)| (kind, line.into_owned())).collect();
    let heading = || std::iter::once((LineKind::File, format!("diff {kind} x")));
    let expect: Vec<_> = heading().chain(half.clone()).chain(heading()).chain(half).collect();
    let read: Vec<_> = shown(Form::Listed, &all).map(|(kind, line)| (kind, line.into_owned())).collect();
    assert_eq!(read.len(), expect.len(), "{text:?}");
    for ((kind, line), (expect_kind, expect)) in read.iter().zip(&expect) {
        assert!(line == expect || *line == format!("> {expect}"), "{line:?} {expect:?}");
        assert!(kind == expect_kind || line != expect, "{kind:?} {expect_kind:?} {line:?}");
    }
}
