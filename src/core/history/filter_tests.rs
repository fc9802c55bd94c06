//! Tests of filters: their parser, their errors, their matches and their completion.

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::filter::*;
use super::searchable::SearchKind;

fn read(text: &str) -> Result<Filter, String> {
    let place = FilterPlace {
        now_us: 1_800_000_000_000_000,
        zone: &TimeZone::UTC,
        home: Some("/h/me"),
        folder: Some("/w/a b"),
    };
    Filter::read(text, &place)
}

#[test]
fn texts_are_words_and_tokens() {
    let check = |text: &str, expect: &str| {
        assert_eq!(read(text).map(|filter| filter.to_string()), Ok(expect.to_owned()), "{text}");
    };
    check("", "");
    check("rm  build", "rm build");
    check("kind:command rm", "kind:command rm");
    check("rm KIND:Command \"a phrase\"* x*", "kind:Command rm \"a phrase\"* x*");
    check("std::vec http://x 12:30 kind: kind kinds:x", "std::vec http://x 12:30 kind: kind kinds:x");
    check("\"kind:command\"", "\"kind:command\"");
    check("\"kind:command", "\"kind:command\"");
    check("thread:\"fix the build\" client:\"tui\"x", "thread:\"fix the build\" client:tui x");
    check("\"a\"kind:diff", "kind:diff \"a\"");
    check("since:7d since:2026-11-01T09:30 by:nobody", "since:7d since:2026-11-01T09:30 by:nobody");
    check(
        "folder:./x folder:~ folder:proj folder:/ folder:../b",
        "folder:./x folder:~ folder:proj folder:/ folder:../b",
    );
    check("\"\" \"  \"", "");
}

#[test]
fn errors_name_the_token_and_the_remedy() {
    let check = |text: &str, expect: &str| assert_eq!(read(text), Err(expect.to_owned()), "{text}");
    let kinds = "message, command, diff, request, permissions, questions and elicitation";
    check("rm kind:foo", &format!("kind:foo: there is no such kind; kinds are {kinds}"));
    check(
        "status:\"no such\"",
        "status:no such: there is no such status; they are pending, accepted, declined, cancelled, answered, unanswered, \
         withdrawn, expired, orphaned, completed, failed and interrupted",
    );
    check("since:x", "since:x: it must be a time such as 7d, 12h, 2026-11-01 or 2026-11-01T09:30");
    check("folder:a/b", "folder:a/b: it must be an absolute path, ~/…, ./…, or the name of a folder");
    check("kind:\"\"", "kind:\"\": it has no value");
    check(&"x".repeat(FILTER_BYTES_MAX + 1), "it has more than 8192 bytes");
    check(&"kind:diff ".repeat(65), "it has more than 64 tokens such as kind:diff");
    let nowhere = FilterPlace::nowhere(0);
    for (text, what) in [("folder:~/x", "home"), ("folder:./x", "current")] {
        let expect = format!("{text}: there is no {what} folder here; give an absolute path");
        assert_eq!(Filter::read(text, &nowhere), Err(expect));
    }
}

#[test]
fn tokens_match_facts() {
    let thread = FilterThread {
        client: Some("codex_vscode".to_owned()),
        folder: Some("/w/a b/Proj".to_owned()),
        title: Some("Fix the build".to_owned()),
    };
    let by = ["policy".to_owned(), "rule:Build it".to_owned()];
    let facts = Facts {
        kinds: &[FilterKind::Request, FilterKind::Command],
        status: Some(FilterStatus::Declined),
        by: &by,
        thread_id: Some("019a-b"),
        thread: Some(&thread),
        at_us: 1_800_000_000_000_000 - 3_600_000_000,
        text: "rm -rf build",
    };
    let check = |text: &str, expect: bool| {
        let filter = read(text).expect("it is valid");
        assert_eq!(filter.passes(&facts), expect, "{text}");
    };
    for text in [
        "",
        "rm",
        "RM build",
        "kind:command",
        "kind:REQUEST kind:diff",
        "status:declined",
        "status:failed status:declined",
        "client:vscode",
        "client:codex_vscode",
        "Client:VSCode",
        "folder:/w",
        "folder:/",
        "folder:./proj",
        "folder:.",
        "folder:\"/w/a b\"",
        "folder:proj",
        "folder:~ folder:proj",
        "folder:..",
        "thread:019a",
        "thread:019A-B",
        "thread:build",
        "thread:\"the fix\"",
        "since:2h",
        "since:1m since:1d",
        "by:policy",
        "by:rule",
        "by:\"rule:build it\"",
        "kind:command status:declined client:vscode folder:proj thread:fix since:1d by:policy rm",
    ] {
        check(text, true);
    }
    for text in [
        "mv",
        "kind:message",
        "status:accepted",
        "client:code",
        "folder:/w/a",
        "folder:a",
        "folder:~",
        "folder:./pro",
        "thread:9a",
        "thread:\"fix it\"",
        "since:30m",
        "by:rul",
        "by:tui",
        "kind:command status:accepted",
        "\"kind:command\"",
    ] {
        check(text, false);
    }
    let nothing = Facts { text: "rm", ..Facts::default() };
    for key in FilterKey::ALL {
        let value = values(key).first().copied().unwrap_or("x");
        let filter = read(&format!("{}:{value}", key.name())).expect("it is valid");
        assert!(!filter.passes(&nothing), "{filter}");
    }
}

#[test]
fn entries_that_cannot_pass_are_not_looked_at() {
    let check = |text: &str, expect: &[SearchKind]| {
        assert_eq!(read(text).expect("it is valid").search_kinds(), expect, "{text}");
    };
    check("rm", &[]);
    check("kind:message", &[SearchKind::Message]);
    check("kind:command", &[SearchKind::Command, SearchKind::Request]);
    check("kind:questions kind:diff", &[SearchKind::Diff, SearchKind::Request]);
}

#[test]
fn last_word_is_completed() {
    let choices = FilterChoices {
        clients: vec!["vscode".to_owned()],
        folders: vec!["/w/a b".to_owned()],
        threads: vec!["a\"b".to_owned(), "fix the build".to_owned()],
    };
    let check = |text: &str, expect: &[&str]| assert_eq!(complete(text, &choices), expect, "{text}");
    check("rm ki", &["rm kind:"]);
    check("S", &["status:", "since:"]);
    check("kind:c", &["kind:command"]);
    check("x KIND:d", &["x kind:diff"]);
    check("kind:command", &[]);
    check("status:un", &["status:unanswered"]);
    check("by:t", &["by:tui"]);
    check("client:", &["client:vscode"]);
    check("folder:", &["folder:\"/w/a b\""]);
    check("thread:\"fix t", &["thread:\"fix the build\""]);
    check("\"ki", &[]);
    check("\"ki ", &[]);
    check("build", &[]);
    assert_eq!(complete("", &choices).len(), 7);
    assert_eq!(complete("kind:diff ", &choices).len(), 7);
}

/// Texts that are like filters.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z:\"* ./~]{0,6}",
        "(kind|status|client|folder|thread|since|by):",
        "(message|declined|7d|nobody|~/x|\\./y|/z)",
        "\\PC{0,4}",
        Just("\"".to_owned()),
        Just(" ".to_owned()),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn filter_is_the_same_after_it_was_printed(text in text()) {
        if let Ok(filter) = read(&text) {
            let printed = filter.to_string();
            prop_assert_eq!(read(&printed), Ok(filter.clone()), "{:?}", printed);
            filter.passes(&Facts { text: &text, ..Facts::default() });
        }
    }

    #[test]
    fn completions_go_on_with_the_text(text in text()) {
        for completed in complete(&text, &FilterChoices::default()) {
            prop_assert!(completed.to_lowercase().starts_with(&text.to_lowercase()), "{}", completed);
        }
    }
}
