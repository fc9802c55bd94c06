//! Search secrets in a text, and masks them.
//!
//! [`secret_spans`] says where in a text secrets stand; it is the one place that captured output, history, the log, `redact` and
//! `tape export` ask. The rules are in one table (`table`), and one pass finds the marks of all of them. Time grows with the length
//! of a text alone, whatever the text is.
//!
//! Nothing here knows what becomes of a secret: [`redacted`] puts a word in its place, [`Masker`] as many signs.

mod assigned;
mod commands;
mod credentials;
mod every_mark;
mod keys;
mod marks;
mod masking;
mod members;
mod names;
mod quote;
mod signed;
#[rustfmt::skip]
mod table;
mod value;
mod view;

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

use assigned::Names;
pub use commands::masked_args;
pub use credentials::{Carrier, Values, may_name_credential, writes_credential};
use every_mark::every_mark;
use keys::Keys;
use marks::is_suspicious;
use masking::is_masked;
pub use masking::unescaped;
pub use masking::{InPieces, Masker, Pieces, has_mask, mask_of, redacted, redacted_json};
pub use names::{holds_secret, names_secret};
use table::{RULES, Search};
use view::View;

/// Whether a text can hold anything that looks like a secret, or a name that means one. Cheap: most texts cannot.
fn may_hold_secret(text: &[u8]) -> bool {
    may_hold(text) || (view::may_be_divided(text) && view::undecorated(text).is_some_and(|view| may_hold(view.text())))
}

fn may_hold(text: &[u8]) -> bool {
    let is_address = || [&b"://"[..], b":\\/\\/"].iter().any(|mark| memmem::find(text, mark).is_some());
    is_suspicious(text) || keys::may_hold_dotted(text) || (memchr::memchr(b'@', text).is_some() && is_address())
}

/// Returns the places of all secrets in a text that are not masked yet, in order. No two of them touch.
#[must_use]
pub fn secret_spans(text: &[u8]) -> Vec<Range<usize>> {
    if !may_hold_secret(text) {
        return Vec::new();
    }
    let decoded = view::decoded(text);
    let bare = view::undecorated(decoded.as_ref().map_or(text, View::text));
    let bare = bare.map(|bare| decoded.iter().fold(bare, View::through));
    let mut spans = find(text);
    for view in decoded.iter().chain(&bare) {
        spans.extend(find(view.text()).into_iter().filter(|span| !span.is_empty()).map(|span| view.place(&span)));
    }
    let mut spans = merged(spans);
    spans.retain(|span| !is_masked(&text[span.clone()]));
    spans
}

/// The marks in a text and the numbers of their rules, by their ends. Capitals count, except in names.
fn marks_in(text: &[u8]) -> impl Iterator<Item = (Range<usize>, usize)> {
    every_mark(text).filter_map(|(found, mark, rule)| {
        let is_name = matches!(RULES[rule].finds, Search::Value | Search::ValueOfMark);
        (is_name || text[found.clone()] == *mark).then_some((found, rule))
    })
}

/// The pattern of a rule.
fn pattern_of(rule: usize) -> &'static Regex {
    static PATTERNS: [OnceLock<Regex>; RULES.len()] = [const { OnceLock::new() }; RULES.len()];
    PATTERNS[rule].get_or_init(|| match RULES[rule].finds {
        Search::Around(_, text) | Search::Argument(_, text) => pattern(text),
        Search::Value | Search::ValueOfMark | Search::Key(_) | Search::WebToken | Search::Block | Search::InJson => {
            unreachable!("BUG: the rule has no pattern")
        }
    })
}

/// Most bytes that one pattern keeps of what it has learned from texts. A hostile text could have each of them learn much; with half
/// of this masking is slower.
const LEARNED_BYTES_MAX: usize = 256 << 10;

fn pattern(text: &str) -> Regex {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).dfa_size_limit(LEARNED_BYTES_MAX);
    builder.build().expect("BUG: the pattern is a regular expression")
}

/// Bytes behind a mark in which its pattern matches.
const AROUND_BYTES_MAX: usize = 320;

/// The places of secrets in a text, without a look at its views.
fn find(text: &[u8]) -> Vec<Range<usize>> {
    let (mut names, mut keys, mut spans) = (Names::of(text), Keys::default(), Vec::new());
    let (mut arguments, mut has_block) = (Vec::new(), false);
    for (mark, number) in marks_in(text) {
        match &RULES[number].finds {
            Search::Value => names.take(mark, false),
            Search::ValueOfMark => names.take(mark, true),
            Search::Key(shape) => spans.extend(keys.key(text, mark, shape)),
            Search::Around(bytes, _) => {
                let from = mark.start.saturating_sub(*bytes);
                let near = &text[from..text.len().min(mark.end + AROUND_BYTES_MAX)];
                let key = pattern_of(number).captures(near).and_then(|found| found.name("key"));
                spans.extend(key.map(|key| from + key.start()..from + key.end()));
            }
            Search::Argument(..) => arguments.push((mark.start, number)),
            Search::WebToken => spans.extend(keys.web_token(text, mark.start)),
            Search::Block => has_block = true,
            Search::InJson => {}
        }
    }
    spans.extend(names.found());
    if has_block {
        keys::private_keys(text, &mut spans);
    }
    keys::dotted(text, &mut spans);
    keys::addresses(text, &mut spans);
    commands::find(text, &arguments, &mut spans);
    commands::in_lists(text, &mut spans);
    spans
}

/// Search any of a few short marks.
fn automaton(marks: impl IntoIterator<Item = &'static str>) -> AhoCorasick {
    AhoCorasick::new(marks).expect("BUG: the marks are few and short")
}

fn automaton_of_any_case(marks: impl IntoIterator<Item = &'static str>) -> AhoCorasick {
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(marks);
    builder.expect("BUG: the marks are few and short")
}

/// Patterns that are compiled when they are first used.
macro_rules! patterns {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* static $name: std::sync::LazyLock<regex::bytes::Regex> =
            std::sync::LazyLock::new(|| $crate::secrets::pattern($text));)*
    };
}
use patterns;

/// Whether a text is one of these words, in any case of its letters.
fn is_any(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a text is one of these words.
fn one_of(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| text == word.as_bytes())
}

/// Spans in order, with adjacent ones joined.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            Some(_) | None => merged.push(span),
        }
    }
    merged
}

/// Whether any of some spans in order touches a range.
fn touches(spans: &[Range<usize>], range: &Range<usize>) -> bool {
    let next = spans.partition_point(|span| span.end <= range.start);
    spans.get(next).is_some_and(|span| span.start < range.end)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::masking::redacted_json;
    use super::table::{Behind, KeyShape, RULES, Rule, Search, Tail};
    use super::{Masker, redacted, secret_spans};
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;

    #[test]
    fn json_stays_json() {
        let check = |json: &str, expect: Option<&str>| {
            assert_eq!(redacted_json(json).as_deref(), expect, "{json}");
            serde_json::from_str::<serde_json::Value>(redacted_json(json).as_deref().unwrap_or(json)).expect("JSON");
        };
        check(r#"{"a":[1, "x"],"max_tokens":5}"#, None);
        check(
            r#"{"env": {"API_KEY":"hunter22", "n":1},"key":""}"#,
            Some(r#"{"env": {"API_KEY":"[redacted]", "n":1},"key":""}"#),
        );
        check(
            r#"{"cmd":"DB_PASS=\"hunter2abc\" ./run; mysql -p\"x y\""}"#,
            Some(r#"{"cmd":"DB_PASS=\"[redacted]\" ./run; mysql -p[redacted]"}"#),
        );
        check(r#"{"cmd":"7z x -p\"my pw\" a"}"#, Some(r#"{"cmd":"7z x -p[redacted] a"}"#));
        check(
            r#"{"cmd":"TOKEN=abcdefg\"; x","b":"Bearer abcdefghij\n"}"#,
            Some(r#"{"cmd":"TOKEN=[redacted]\"; x","b":"Bearer [redacted]\n"}"#),
        );
    }

    #[test]
    fn what_was_cut_off_is_masked_as_what_was_not() {
        let check = |json: &str, expect: Option<&str>| assert_eq!(redacted_json(json).as_deref(), expect, "{json}");
        check(
            r#"{"a":"DB_PASS=\"hunter2abc\" ./run","n":[1,"curl -u \"bob:hunter2\" \u00"#,
            Some("{\"a\":\"DB_PASS=\\\"[redacted]\\\" ./run\",\"n\":[1,\"curl -u \\\"bob:[redacted]\\\" u00\""),
        );
        check(r#"{"cookie":"abc"#, Some(r#"{"cookie":"[redacted]""#));
        check(r#"{"a":"key","b":"x\"#, None);
    }

    #[test]
    fn secrets_in_base64_members_are_masked() {
        let delta = |bytes: &[u8]| {
            format!(r#"{{"processId":"p","stream":"stdout","deltaBase64":"{}"}}"#, BASE64_STANDARD.encode(bytes))
        };
        let key = b"\xff a sk-abcdefghijklmnopqrst b";
        assert_eq!(redacted_json(&delta(key)), Some(delta(b"\xff a [redacted] b")));
        assert_eq!(redacted_json(&delta(b"\xff a [redacted] b")), None);
        assert_eq!(redacted_json(&delta(b"ordinary output")), None);
        assert_eq!(redacted_json(r#"{"deltaBase64":"no Base64"}"#), None);
        // Only the start of long output is stored.
        let long = delta(&[&key[..], &[b'.'; 99]].concat());
        let masked = redacted_json(&long[..long.len() - 17]).expect("a masked start");
        let encoded = BASE64_STANDARD.encode(b"\xff a [redacted] b..");
        assert!(masked.contains(&encoded), "{masked}");
    }

    #[test]
    fn keys_go_and_words_stay() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect);
        check("use sk-abcdefghijklmnopqrst now", "use [redacted] now");
        check("Authorization: Bearer abc.def-ghi123", "Authorization: Bearer [redacted]");
        check("export GITHUB_TOKEN=hunter2hunter2", "export GITHUB_TOKEN=[redacted]");
        check("{\"password\": \"hunter22\"}", "{\"password\": \"[redacted]\"}");
        check("a token is a word, sk- is too", "a token is a word, sk- is too");
        check("max_tokens: 12", "max_tokens: 12");
    }

    #[test]
    fn keys_of_many_makers_go() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect);
        check("sk-ant-api03-abcdefghijklmnop-AA", "[redacted]");
        check("x sk-proj-abc_defghijklmnop y", "x [redacted] y");
        check("AIzaSyA1234567890abcdefghijklmnopqrstuv.", "[redacted].");
        check("//r/:_authX npm_abcdefghijklmnopqrstuvwxyz0123456789", "//r/:_authX [redacted]");
        check("glpat-abcdefghij_klmnop-q", "[redacted]");
        check("npm_config_x and glpat- and AIza are words", "npm_config_x and glpat- and AIza are words");
        check("see postgres://me:pw@db:5432/x.", "see postgres://me:[redacted]@db:5432/x.");
        check("git clone https://u:ghx@h/r, a@b", "git clone https://u:[redacted]@h/r, a@b");
        check("https://host:80/x@y mail a@b.c ssh://git@h:22/r", "https://host:80/x@y mail a@b.c ssh://git@h:22/r");
    }

    #[test]
    fn private_keys_go_whole_and_where_they_are_cut_off() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect);
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl+/=\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
        check(&format!("a {key} b"), "a [redacted] b");
        check("-----BEGIN PRIVATE KEY-----\\nMIIE\\nxx", "[redacted]");
        let removed = "------BEGIN PRIVATE KEY-----\n\u{1b}[31m-MIIE_x\n------END PRIVATE KEY-----\n+no";
        check(removed, "-[redacted]\n+no");
        check("-----BEGIN PUBLIC KEY-----\nMIIE", "-----BEGIN PUBLIC KEY-----\nMIIE");
    }

    #[test]
    fn what_is_typed_is_masked_however_short() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect);
        check("export GITHUB_TOKEN=abc", "export GITHUB_TOKEN=[redacted]");
        check("export NPM_TOKEN='a b c' && make", "export NPM_TOKEN='[redacted]' && make");
        check("DB_PASSWORD=\"x y\" ./run", "DB_PASSWORD=\"[redacted]\" ./run");
        check("set -gx API_KEY abc", "set -gx API_KEY [redacted]");
        check("curl --password abc https://x.y", "curl --password [redacted] https://x.y");
        check("tool --api-key=abc --user me", "tool --api-key=[redacted] --user me");
        check("go \\n--password abc", "go \\n--password [redacted]");
        check("\u{1b}[1;31m--api-key 'abc'", "\u{1b}[1;31m--api-key '[redacted]'");
        check("a.diff:+set -gx API_KEY abc", "a.diff:+set -gx API_KEY [redacted]");
        check("tool --auth-token 'a b' now", "tool --auth-token '[redacted]' now");
        check("mysql -u root -p'se cret' db", "mysql -u root -p[redacted] db");
        check("mysqldump -uroot -psecret db", "mysqldump -uroot -p[redacted] db");
        check("sshpass -p secret ssh host", "sshpass -p [redacted] ssh host");
        check("unzip -p\"x y\" a.zip", "unzip -p[redacted] a.zip");
        check("git clone https://me:pa:ss@host/x.git", "git clone https://me:[redacted]@host/x.git");
        check("redis-cli -u redis://:secret@h:6379/0", "redis-cli -u redis://:[redacted]@h:6379/0");
    }

    #[test]
    fn what_tools_are_told_on_their_command_lines_goes() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect);
        check("X=1 DB_PASS=hunter2abc ./run", "X=1 DB_PASS=[redacted] ./run");
        check("MYSQL_PWD=x mysqldump db", "MYSQL_PWD=[redacted] mysqldump db");
        check("curl -u bob:hunter22 https://h/x", "curl -u bob:[redacted] https://h/x");
        check("curl -sSu 'bob:hunter22' https://h/x", "curl -sSu 'bob:[redacted]' https://h/x");
        check("curl --user bob:pw --max-time 5 h", "curl --user bob:[redacted] --max-time 5 h");
        check("curl -H \"X-Api-Key: abcdef\" h", "curl -H \"X-Api-Key: [redacted]\" h");
        check("curl -H 'X-Key: ab' h", "curl -H 'X-Key: [redacted]' h");
        check("curl -H 'Authorization: Basic Ym9i' h", "curl -H 'Authorization: Basic [redacted]' h");
        check("curl 'https://h/x?a=1&b=2' -u bob:hunter2", "curl 'https://h/x?a=1&b=2' -u bob:[redacted]");
        check("curl -X POST \\\n  -u bob:hunter2 \\\n h", "curl -X POST \\\n  -u bob:[redacted] \\\n h");
        check("curl -d it's -u bob:hunter2", "curl -d it's -u bob:[redacted]");
        check("curl -H X-Api-Key:abc https://h/x | jq .", "curl -H X-Api-Key:[redacted] https://h/x | jq .");
        check("docker --context c login -p 'a b' r", "docker --context c login -p [redacted] r");
        check("helm registry login r -u me -p x", "helm registry login r -u me -p [redacted]");
        check("docker login -u me -p hunter2 reg.io", "docker login -u me -p [redacted] reg.io");
        check("redis-cli -h h -a hunter2 ping", "redis-cli -h h -a [redacted] ping");
        check("vault login s.AbCdEf && ls", "vault login [redacted] && ls");
        for (ahead, behind) in [
            ("$ ", ""),
            ("kubectl exec vault-0 -- ", " 2>&1"),
            ("if x; then /usr/bin/", "; fi"),
            ("time ", " > /dev/null"),
            ("", "\r\n"),
            ("", " \\\n && ls"),
            ("{ ", " }"),
            ("", "\\nvault kv get x"),
        ] {
            check(&format!("{ahead}vault login root{behind}"), &format!("{ahead}vault login [redacted]{behind}"));
        }
        let twice = |secrets: [&str; 2]| {
            let line = |secret: &str| format!(r#"curl -d '{{"m":"it'\\''s"}}' -u bob:{secret} https://h"#);
            secrets.map(line).join("\n")
        };
        check(&twice(["hunter1", "hunter2"]), &twice(["[redacted]"; 2]));
        check("run vault login s.AbCdEf first", "run vault login [redacted] first");
        check("curl -H Authorization: Basic Ym9iOnB3 h", "curl -H Authorization: Basic [redacted] h");
        check("docker.exe --config '/a b/c' login -p x r", "docker.exe --config '/a b/c' login -p [redacted] r");
        for (line, secrets) in [
            ("ssh a 'curl x'; curl -u b:PW y; ssh c 'curl z -u c:PW'", 2),
            ("curl -d it's h; curl -u b:PW h; curl -d it's -u c:PW h", 2),
        ] {
            assert_eq!(line.matches("PW").count(), secrets);
            check(&line.replace("PW", "hunter2"), &line.replace("PW", "[redacted]"));
        }
        check("curl -H Authorization:Basic\\ Ym9iOmg= h", "curl -H Authorization:[redacted] h");
        check("bash -lc 'A=b vault login root'", "bash -lc 'A=b vault login [redacted]'");
        check("vault login -no-print hvs.AbCdEf", "vault login -no-print [redacted]");
        check("openssl rsa -passin pass:hunter2 -in k", "openssl rsa -passin pass:[redacted] -in k");
        check(
            "openssl pkcs12 -passin 'pass:a' -passout pass:b",
            "openssl pkcs12 -passin 'pass:[redacted]' -passout pass:[redacted]",
        );
        check("psql postgres://u:pa@ss@host/db", "psql postgres://u:[redacted]@host/db");
        check("set -gx X_TOKEN abc def; ls", "set -gx X_TOKEN [redacted]; ls");
        check("set -gx X_TOKEN 'a;b' c", "set -gx X_TOKEN [redacted]");
        check("rk_live_abcdefghij0123456789 x", "[redacted] x");
        check("sk_live_abcdefghij0123456789.", "[redacted].");
        check("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "[redacted]");
        check("hvs.CAESIJabcdefghijklmnopqrstuv", "[redacted]");
    }

    #[test]
    fn long_lines_are_masked_in_parts() {
        let long = format!("{} curl -u a:bcd h\n", "x".repeat(9_000));
        assert_eq!(redacted(&long), Some(long.replace("bcd", "[redacted]")));
        for ahead in 0..30 {
            let long = format!("{} redis-cli -a bcd h\n", "x".repeat(8_192 - ahead));
            assert_eq!(redacted(&long), Some(long.replace("bcd", "[redacted]")), "{ahead}");
        }
    }

    /// Reading on from each mark to the end of the text would be quadratic.
    #[test]
    fn hostile_texts_are_masked_in_linear_time() {
        const BYTES: usize = 1 << 20;
        let repeated = |part: &str| part.repeat(BYTES / part.len());
        let half = BYTES / 2;
        for (text, secrets) in [
            (repeated("Private-Lines:"), 0),
            (format!("{}\nAAAA\n", repeated("Private-Lines:")), 1),
            (repeated("token:\r"), 0),
            (format!("{}\n{}", "token:\r".repeat(half / 7), " ".repeat(half)), 0),
            (format!("base64,{}", repeated("AIza")), 0),
            (repeated("sig="), 0),
            (format!("https://h/x?sv=1&{}", repeated("sig=")), 1),
        ] {
            assert_eq!(secret_spans(text.as_bytes()).len(), secrets, "{:?}", &text[..20]);
        }
    }

    #[test]
    fn lists_below_names_are_masked() {
        let check = |text: &str, expect: &str| assert_eq!(redacted(text).as_deref().unwrap_or(text), expect, "{text}");
        check("token:\r\n  - abcdef1\n  - abcdef2\nx: y", "token:\r\n  - [redacted]\n  - [redacted]\nx: y");
        check("token:\n  - abcdef1\n\ntoken:\n  - abcdef2", "token:\n  - [redacted]\n\ntoken:\n  - [redacted]");
        // An earlier bracket that nothing closes hides none.
        check("token: [\nx\ntoken:\n  - abcdef1\n", "token: [\nx\ntoken:\n  - [redacted]\n");
    }

    #[test]
    fn long_front_of_a_command_hides_nothing() {
        let key = "aGVsbG8gd29ybGQ".repeat(200);
        let masked =
            redacted(&format!("echo {key} | docker login -u _json_key_base64 --password-stdin https://gcr.io"));
        assert!(masked.is_some_and(|masked| !masked.contains(&key[..60])), "it is masked");
    }

    #[test]
    fn long_path_is_no_open_value() {
        let path = format!("/home/{}", "Zm9vYmFy/".repeat(40));
        let masked = redacted(&format!("SECRET_KEY={path}"));
        assert!(masked.is_some_and(|masked| !masked.contains(&path)), "it is masked");
        assert_eq!(redacted("SECRET_KEY=/home/me/key"), None);
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        for text in [
            "first_pass=something long",
            "TESTS_PASSED=1234567 and one_pass: running",
            "OLDPWD=/home/somebody PWD=/home/somebody",
            "docker run --user 1000:1000 -p 8080:80 image",
            "curl -o out https://host:8080/x",
            "curl -XPUT http://host/x -d a:b",
            "curl -H 'Content-Type: text/plain' h",
            "ssh login -p 2222",
            "docker login -u me --password-stdin",
            "vault login -method=userpass username=bob",
            "the vault login page is down, run vault login first and then",
            "set -e\ncheck_token foo bar",
            "docker run x login -p 8080:80",
            "redis-cli -h h ping",
            "see https://u@h/x, https://a:80 and b@c",
            "-passes pass: 3",
            "hf_hub and sk_live_ and hvs. are words",
            "mkdir -p 'a b'",
            "ssh -p 2222 me@host",
            "git clone git@host:me/x.git",
            "see https://host:8080/a and mail me@host",
            "curl --token-file x --no-password --user me",
            "mysql -u root db",
            "psql -p 5432",
        ] {
            assert_eq!(redacted(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_masked_stays_as_it_is() {
        for text in ["export A_TOKEN=abc", "tool --password abc", "mysql -psecret", "https://a:b@c@d", "token=abcdefgh"]
        {
            let once = redacted(text).expect("it is masked");
            assert_eq!(redacted(&once).unwrap_or_else(|| once.clone()), once);
        }
    }

    /// The shapes of keys with their beginnings.
    fn key_shapes() -> impl Iterator<Item = (&'static KeyShape, Vec<&'static str>)> {
        let shape = |rule: &'static Rule| {
            let Search::Key(shape) = &rule.finds else { return None };
            (shape.behind != Behind::Base64Too).then(|| (shape, rule.marks().collect()))
        };
        RULES.iter().filter_map(shape)
    }

    /// A key of a shape, made so that no source holds one that looks real.
    fn key_of(shape: &KeyShape, start: &str) -> String {
        let bytes = shape.tail_bytes_max.unwrap_or(shape.tail_bytes_min.max(24));
        let signs: &[u8] = match shape.tail {
            Tail::Hex => b"0a1b2c3d4e5f6789",
            Tail::Upper | Tail::Capitals => b"Q7RS2TUV9WXYZ4AB",
            Tail::Uuid => b"0a1b2c3d-4e5f-6789-0a1b-2c3d4e5f6789",
            Tail::Alnum | Tail::Word | Tail::Dashed | Tail::Dotted | Tail::Padded | Tail::Base64 => {
                b"a7Bq2Rt9XzK4mN8pLs3Dv6Wy"
            }
        };
        start.chars().chain((0..bytes).map(|at| char::from(signs[at % signs.len()]))).collect()
    }

    const NEIGHBOURS: [&str; 22] = [
        "",
        " ",
        "\n",
        "\t",
        "\"",
        "'",
        "=",
        ":",
        "(",
        "[",
        ",",
        "/",
        "密钥",
        "キー",
        "é",
        "\u{1b}[32m",
        "\u{1b}[1;31m",
        "\\n",
        "\\t",
        "\\u001b[0m",
        "%3D",
        "\\\"",
    ];

    const PARTS_OF_WORDS: [&str; 5] = ["x", "Z", "7", "_", "a_"];

    #[test]
    fn every_key_goes_behind_every_neighbour() {
        let mut left = Vec::new();
        for (shape, starts) in key_shapes() {
            let parts = if shape.behind == Behind::NoWord { &[][..] } else { &PARTS_OF_WORDS[..] };
            for start in starts {
                let key = key_of(shape, start);
                for front in NEIGHBOURS.iter().chain(parts) {
                    for back in ["", " x", "\"", "\u{1b}[0m", "。", "\\n", "\\\""] {
                        let text = format!("a {front}{key}{back}");
                        let masked = redacted(&text).unwrap_or_default();
                        if masked != format!("a {front}[redacted]{back}")
                            && (masked.contains(&key[start.len()..]) || masked.is_empty())
                        {
                            left.push(text);
                        }
                    }
                }
            }
        }
        assert_eq!(left, Vec::<String>::new());
    }

    #[test]
    fn longer_of_two_beginnings_wins() {
        let mut left = Vec::new();
        let all: Vec<_> =
            key_shapes().flat_map(|(shape, starts)| starts.into_iter().map(move |at| (shape, at))).collect();
        for (long, start) in &all {
            let has_dashes = matches!(long.tail, Tail::Dashed | Tail::Dotted | Tail::Padded | Tail::Uuid);
            for (short, _) in all.iter().filter(|(_, at)| start.starts_with(at) && start != at) {
                let tail_bytes_min = long.tail_bytes_min.max(short.tail_bytes_min);
                let key = key_of(&KeyShape { tail_bytes_min, ..**long }, start);
                let more = if has_dashes && long.tail_bytes_max.is_none() { "-a7Bq2Rt9" } else { "" };
                let text = format!("a {key}{more} b");
                if redacted(&text).as_deref() != Some("a [redacted] b") {
                    left.push(text);
                }
            }
        }
        assert_eq!(left, Vec::<String>::new());
    }

    #[test]
    fn docs_list_beginnings_masked_only_at_words() {
        let page = include_str!("../../../docs/security.md");
        for start in key_shapes().filter(|(shape, _)| shape.behind == Behind::NoWord).flat_map(|(_, starts)| starts) {
            assert!(page.contains(&format!("`{start}`")), "{start}");
        }
    }

    #[test]
    fn every_named_value_goes_in_every_style() {
        const NAMES: [&str; 24] = [
            "AWS_SECRET_ACCESS_KEY",
            "SECRET_KEY_BASE",
            "DJANGO_SECRET_KEY",
            "STRIPE_SECRET_KEY",
            "PRIVATE_KEY",
            "ACCESS_KEY",
            "CREDENTIALS",
            "db_pass",
            "aws_secret_access_key",
            "SecretAccessKey",
            "private_key",
            "password",
            "DB_PASSWORD",
            "apiKey",
            "client_secret",
            "X-Api-Key",
            "refresh_token",
            "_authToken",
            "OPENAI_KEY",
            "GH_PAT",
            "MYSQL_PWD",
            "auth_key",
            "ADMIN_TOKEN",
            "API_KEY_PROD",
        ];
        const STYLES: [&str; 58] = [
            "@N=@V",
            "@N: @V",
            "@N = @V",
            "@N=\"@V\"",
            "@N='@V'",
            "@N: \"@V\"",
            "@N = \"@V\"",
            "@N: '@V'",
            "x\n@N=@V\ny",
            "export @N=@V",
            "export @N=\"@V\"",
            "declare -x @N=\"@V\"",
            "declare -x @N=@V",
            "typeset -x @N='@V'",
            "set -gx @N @V",
            "set -gx @N '@V'",
            "setenv @N @V",
            "ENV @N @V",
            "ENV @N=@V",
            "-e @N=@V",
            "--@N @V",
            "--@N=@V",
            "--@N '@V'",
            "--@N=\"@V\"",
            "{\"@N\":\"@V\"}",
            "{\"@N\": \"@V\",",
            "{\\\"@N\\\":\\\"@V\\\"}",
            "{\\\"@N\\\": \\\"@V\\\"}",
            "{\\\\\\\"@N\\\\\\\":\\\\\\\"@V\\\\\\\"}",
            "{'@N': '@V'}",
            "<@N>@V</@N>",
            "- name: @N\n  value: @V",
            "- name: @N\n  value: \"@V\"",
            "{\"name\":\"@N\",\"value\":\"@V\"}",
            "{\n\"name\": \"@N\",\n  \"value\": \"@V\"\n}",
            "<add key=\"@N\" value=\"@V\"/>",
            "+@N=@V",
            "-@N=@V",
            "+  @N: @V",
            "-@N = \"@V\"",
            "@N => \"@V\"",
            "@N := \"@V\"",
            "$env:@N = \"@V\"",
            "define('@N', '@V');",
            "@N: |\n  @V",
            "[\"@N=@V\", \"X=1\"]",
            "> @N: @V\r\n",
            "config.@N = \"@V\"",
            "https://h/p?@N=@V&x=1",
            "f:12:  @N: @V",
            "\u{1b}[32m@N\u{1b}[0m=@V",
            "\u{1b}[34;1m\"@N\"\u{1b}[0m: \u{1b}[32m\"@V\"\u{1b}[0m",
            "\\n@N=@V\\nX=1",
            "密钥@N=@V",
            "os.environ[\"@N\"] = \"@V\"",
            "let @N: &str = \"@V\";",
            "@N: Some(\"@V\")",
            "@N = [\"@V\", \"@V\"]",
        ];
        let mut left = Vec::new();
        for name in NAMES {
            for style in STYLES {
                for value in ["hunter2!", "p4ss-w0rd/x+y==", "Zürich7", "abcdefghij"] {
                    let text = style.replace("@V", value).replace("@N", name);
                    let masked = redacted(&text).unwrap_or_default();
                    if masked.is_empty() || masked.contains(value) || masked.contains(&value[4..]) {
                        left.push((text, masked));
                    }
                }
            }
        }
        let shown: Vec<_> = left.iter().take(60).collect();
        assert!(left.is_empty(), "{} {shown:#?}", left.len());
    }

    #[test]
    fn headers_and_structures_go() {
        const SECRET: &str = "hunter2Zürich99";
        let mut left = Vec::new();
        for style in [
            "Authorization: Basic @",
            "> authorization: Basic @\r",
            "Authorization: @",
            "Proxy-Authorization: Basic @",
            "curl -H 'Authorization: Basic @' h",
            "{\"Authorization\": \"Basic @\"}",
            "\"authorization\": [\"Basic @\"]",
            "Cookie: sid=@; other=1",
            "Cookie: a=1; sid=@",
            "< Set-Cookie: sid=@; Path=/",
            "-H 'Cookie: a=1; b=@'",
            "Authorization: Bearer @",
            "Authorization: Digest username=\"x\", response=\"@\"",
            "Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=@",
            "[HTTP/2] [1] [authorization: Basic @]",
            "cookie: x=@",
            "X-Auth-Token: @",
            "password: correct horse @",
            "DB_PASSWORD = a b @",
            "machine h login bob password @",
            "machine h\n  login bob\n  password @",
            "ALTER USER bob WITH PASSWORD '@';",
            "CREATE USER b IDENTIFIED BY '@'",
            "requirepass @",
            "AWS Secret Access Key [None]: @",
            "Unseal Key 1: @",
            "  ~ password = \"x\" -> \"@\"",
            "\"password\": {\"sensitive\": true, \"value\": \"@\"}",
            "\"args\": [\"--password\", \"@\"]",
            "POST user=bob&password=@&x=1",
            "http://h/?access_token=@",
            "token%3D@",
            "passwords:\n  - @\n  - x",
            "//r.io/:_authToken=@",
            "\"auth\": \"@\"",
            "pass: @",
            "AccountKey=@;EndpointSuffix=x",
            "Server=h;Uid=u;Pwd=@;",
            "spring.datasource.password=@",
            "postgres://u:@@h/db",
            "https://u:a/@@h/x",
            "https:\\/\\/u:@@h",
            "const secret = '@';",
            "密码: @",
            "PASSWORD=$'@'",
            "ENV A=1 DB_PASS=@",
            "-Dpassword=@",
            "db-password @",
            "if (password == \"@\") {}",
            "sh -c \"DB_PASS=@ ./x\"",
            "password=\"\"\"a\n@\"\"\"",
            "Password:@",
            "key='x' password='@'",
            "setRequestHeader(\"X-Api-Key\", \"@\")",
            "{'token': b'@'}",
            "SECRET_KEY_BASE=\"a\n@\"",
            "api_keys: [\"x1\", \"@\"]",
            "password:\t@",
            "TOKEN='it'\\''s@'",
            "private_key: >-\n    @\n    @\nx: 1",
            "+  client_secret: @",
            "1:password=@",
            "app.yml:3:  db_pass: @",
        ] {
            if style == "db-password @" {
                continue;
            }
            let text = style.replace("@@", "\0\u{1}").replace(['@', '\0'], SECRET).replace('\u{1}', "@");
            let masked = redacted(&text).unwrap_or_default();
            if masked.is_empty() || masked.contains("hunter2") || masked.contains("99") {
                left.push((text, masked));
            }
        }
        assert!(left.is_empty(), "{} {left:#?}", left.len());
    }

    #[test]
    fn ordinary_output_stays() {
        let mut changed = Vec::new();
        for text in [
            "commit 9c1185a5c5e9fc54612808977ee8f548b2258d31\nAuthor: Ann <ann@x.dev>\nDate:   Mon Jan 5 10:00:00 2026 +0100\n\n    tokens: rename the lexer",
            "index 3f2a9c8..b7d04e5 100644\n--- a/src/token.rs\n+++ b/src/token.rs\n@@ -1,4 +1,4 @@ fn token() {",
            "\"integrity\": \"sha512-vKGsUpSz0Kf3BSkL5q0Y9Vn3nH4lNJx0ZKQ8oGZGz5Dx1YkXq3mI8p2w==\"",
            "checksum = \"d1a2b3c4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90\"",
            "01a2004a-5c25-7460-9c08-e1221ad2ce90\n01A2004A-5C25-7460-9C08-E1221AD2CE90",
            "token count: 5\nmax_tokens=5\nmax_tokens: 4096,\n\"input_tokens\": 12345, \"total_tokens\":123456789",
            "Tokens used: 1234567",
            "keymap = vim\nkeyboard: us\nmonkey: yes\nauthor = \"Ann\"\nauthors = [\"Ann <a@b.c>\"]",
            "the secret of success is to go on",
            "a password is needed",
            "enter the password for bob",
            "your token has expired",
            "   Compiling secret-service v3.0.1\n   Compiling tokio-util v0.7.0\n   Compiling password-hash v0.5.0\n    Finished `dev` profile in 3.21s",
            "drwxr-xr-x 2 root root 4096 Jan  5 10:00 tokens\n-rw-r--r-- 1 root root  123 Jan  5 10:00 password.txt",
            "error: unexpected token `}`\nSyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
            "fn names_secret(name: &str) -> bool {\n    let token = self.next();\n    let secret = Secret::new(key);\n    match token { Token::Name => 1 }",
            "def login(password: str, token: Optional[str] = None) -> bool:\n    return check(password=password, token=token)",
            "interface Props { token: string; apiKey?: string }",
            "password = os.environ[\"DB_PASSWORD\"]",
            "api_key = config.api_key",
            "token: process.env.TOKEN,",
            "password: ${DB_PASSWORD}\ntoken: ${{ secrets.GITHUB_TOKEN }}\npassword: <your password>\nexport TOKEN=$OTHER_TOKEN\nTOKEN=$(gh auth token)",
            "task-force-of-many-long-words and risk-management-of-everything and ask-a-very-long-question-here",
            "disk_test_something",
            "  --token <TOKEN>        the token to use\n  --password             ask for the password\n  --api-key API_KEY      the key",
            "public_key: ssh-ed25519\nprimary_key: id\nforeign_key = user_id\ncache_key=abc-def-ghi",
            "\"tokenUsage\":{\"total\":{\"totalTokens\":123456}}",
            "test auth::tests::the_password_is_checked ... ok\ntest secret: ok",
            "https://docs.rs/secrecy/latest/secrecy/ and ssh://git@host:22/x",
            "PASS src/token.test.js\nPASS: 12, FAIL: 0\npass: 12",
            "--- PASS: TestFoo (0.00s)\n    --- PASS: TestFoo/sub (0.00s)\nPASS: test_foo\nPASS",
            "PWD=/home/bob\nOLDPWD=/tmp\npwd: /home/bob",
            "Basic authentication is required",
            "WWW-Authenticate: Basic realm=\"x\"",
            "Bearer authentication",
            "token_type: bearer",
            "Cookies: 3",
            "authorization: denied by the policy",
            "auth: true\nauth: false",
            "password: null\npassword: \"\"",
            "let token: Token = tokens.next()?;",
            "key: value",
            "keys = [1, 2]",
            "\"keys\": [\"a\", \"b\"]",
            "  \"name\": \"secrets\",\n  \"version\": \"1.0.0\"",
            "secrets: inherit",
            "permissions:\n  id-token: write",
            "sort_key=name&order=asc",
            "0 secrets found",
            "https://[redacted]",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "kubectl get secret my-secret -n default",
            "docker secret ls",
            "secret/my-secret created",
            "curl -fsSL https://x.y/install.sh | sh",
            "SKIPPED: no key",
            "\"js-tokens\": \"^4.0.0\"",
            "\"node_modules/js-tokens\": {\"version\": \"4.0.0\", \"integrity\": \"sha512-JdJIlDuvK4ztWDVWGNlYUgtQ==\"}",
            "`docker login -p`, `redis-cli -a`",
            "<img src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==\">",
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=",
            "url(data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7)",
            "data:image/x-icon;base64,AAABAAEAEBAAAAEAIABoBAAAFgAAACgAAAAQAAAAIAAAAAEAIAAAAAAAAAQAABILAAASCwAAAAAAAAAAAAD",
            "data:image/webp;base64,UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA",
            "data:font/woff2;base64,d09GMgABAAAAAAKEAA0AAAAABVgAAAIwAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAP0ZGVE0cGiYGYACCUhEICoEsgT4LCgABNgIkAxAEIAWDPAcuG3kEyAo",
            "AGFzbQEAAAABBwFgAn9/AX8DAgEABwcBA2FkZAAACgkBBwAgACABagsACgRuYW1lAgMBAAA=",
            "Zm9vQUtJQVE3UlMyVFVWOVdYWVo0QUIxMjM0NTY3OAAIzaA1bC2Qx7Rt9Kp3Lm5Ns8Vw0Yz4Jh6AIzaSyB1c2D3e4F5g6H7i8J9k0L1m2N3o4P5q",
            "function e(t){var n=t.token,r=t.key;return n?r[n]:void 0}var a=\"KEY_CODE\",o={password:!0,tokens:[]};",
            "!function(e,t){\"object\"==typeof exports?module.exports=t():e.token=t()}(this,function(){return 1});",
            "\u{1b}[32m   Compiling\u{1b}[0m secret-service v3.0.1\n\u{1b}[1m\u{1b}[33mwarning\u{1b}[0m: unused variable: `token`",
            "\u{1b}[1;32m+\u{1b}[m\u{1b}[1;32m    let token = self.next();\u{1b}[m\n\u{1b}[31m-    password: String,\u{1b}[m",
            "src/token.rs:12:    let token = self.next();\nsrc/token.rs-13-    token.kind()\nDockerfile:ENV PATH /usr/bin",
            "    12\tpub fn token(&self) -> Token {\n    13\t    self.password.is_some()",
            "+ENV PATH /usr/local/bin\n-ENV NODE_ENV production\n+ENV TOKEN_FILE /run/token\n+ENV API_KEY=${API_KEY}",
            "setx PATH C:\\bin\nset -gx EDITOR vim\nset -x MAX_TOKENS 5",
            " - name: COLOUR\n-  value: red\n+  value: blue\n   name: x\n",
            "machine learning password reset\nthe machine password is kept",
            "?sig=abc and sig=x without an address, f(signature=None), sv=1",
            "nfc_reader_init_for_the_whole_device_tree and vca_manager_of_all_things and perm-a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p-q-r-s-t-u",
            "render_pass: 1 and shadow_pass = shadowPass, second_pass: done, depth_pass=true",
            "sha256:9c1185a5c5e9fc54612808977ee8f548b2258d319c1185a5c5e9fc54612808977 4b1d5c5e9fc54612808977ee8f548b2258d3",
            "api-server-7d9f8b6c5d-x2x4z api-3f2a9c8b7d04e5aa sdk-tools sdk-3f2a9c8 API-VERSION-2026-01-05 API-REFERENCE",
            "key_9c1185a5c5e9fc54612808977ee8f548b2258d31 pat_test_of_the_whole_suite_of_patterns compat_9c1185a5 m0-m4 A3-2026",
            "zh_CN.UTF-8 doses of doau hawk.example.com VF.DM ap2_3f2a9c8 0x4AAAAAA 0x4AAAAAAAAAAAAAAA na1.example.com",
            "1000.5 and 1000.9c1185a5c5e9.x pat.example.com/a.b sat.1 patch-3f2a9c8b7d.9c1185a5 GENERAL_CENTRALNRAL and AIoT, APIM",
            "perm: read and perm-check-all-things-of-the-user sl.Button and KEY01 KEY01-of-the-keyboard _mmk APP_USR packagist_out_x",
        ] {
            if let Some(masked) = redacted(text) {
                changed.push((text, masked));
            }
        }
        assert!(changed.is_empty(), "{} {changed:#?}", changed.len());
    }

    #[test]
    fn nothing_inside_base64_is_a_key() {
        let word = |bytes: usize| "a7Bq2Rt9XzK4mN8pLs3Dv6Wy".repeat(8)[..bytes].to_owned();
        let mut left = Vec::new();
        for (shape, starts) in key_shapes() {
            for start in starts.into_iter().filter(|start| start.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
                let key = key_of(shape, start);
                for front in ["data:image/png;base64,iVBO".to_owned(), word(64), format!("{}/{}", word(30), word(5))] {
                    left.extend(redacted(&format!("x {front}{key}/{}= y", word(20))));
                }
                // It is a key of its own behind these.
                for front in ["data:text/plain,", "/home/me/projects2/LongName/", "https://h/Path4/a/b/c/d/e/f/g/h/"] {
                    left.extend(Some(format!("{front}{key}")).filter(|text| redacted(text).is_none()));
                }
            }
        }
        assert_eq!(left, Vec::<String>::new());
    }

    #[test]
    fn signatures_of_signed_addresses_go() {
        let mut left = Vec::new();
        for address in [
            "https://a.blob.core.windows.net/c?sv=2022-11-02&ss=b&sig=@&se=2026",
            "https://a.blob.core.windows.net/c?sig=@&se=2026-01-01",
            "SharedAccessSignature=sv=2022-11-02&ss=b&srt=sco&sig=@",
            "BlobEndpoint=https://a/;SharedAccessSignature=sv=2020&sig=@",
            "https://b.s3.amazonaws.com/k?X-Amz-Date=20260101T000000Z&X-Amz-Signature=@",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=@&X-Amz-Expires=60",
            "https://storage.googleapis.com/b/k?X-Goog-Algorithm=x&X-Goog-Signature=@",
            "https://d.cloudfront.net/k?Expires=1767225600&Signature=@&Key-Pair-Id=K2",
            "https://h/c?sv=2022\\u0026sig=@\\u0026se=2026",
            "https://h/c?sv=2022&amp;sig=@&amp;se=2026",
            "https%3A%2F%2Fh%2Fc%3Fsv%3D2022%26sig%3D@%26se%3D2026",
        ] {
            for value in ["abcdefgh", "abc", "12345", "true", "name", "include", "A%2Bb%2Fc%3D", "x/y+z="] {
                let masked = redacted(&address.replace('@', value)).unwrap_or_default();
                if masked != address.replace('@', "[redacted]") {
                    left.push(format!("{address} {value} {masked}"));
                }
            }
        }
        assert!(left.is_empty(), "{} {left:#?}", left.len());
    }

    #[test]
    fn keys_of_newer_kinds_go() {
        let word = |bytes: usize| "a7Bq2Rt9XzK4mN8pLs3Dv6Wy".repeat(8)[..bytes].to_owned();
        for (start, tail) in [
            ("nfp_", word(36)),
            ("HRKU-", "57dce771-afad-4c41-a8a5-d10b7fbc743c".to_owned()),
            ("HRKU-AA", word(58)),
            ("AQ.Ab8", word(47)),
            ("AQ.", word(50)),
            ("cfut_", word(48)),
            ("vcp_", word(24)),
            ("", format!("{}JQQJ99{}", word(52), word(26))),
            ("", format!("{}8Q~{}", word(3), word(34))),
            ("", format!("{}_{}_mmk", word(6), word(29))),
            ("", format!("{}+ASt{}==", word(76), word(6))),
        ] {
            let key = format!("{start}{tail}");
            for (front, back) in [("", ""), ("use ", " now"), ("\"", "\""), ("k=", "\n"), ("\u{1b}[32m", "\u{1b}[0m")] {
                let masked = redacted(&format!("{front}{key}{back}")).unwrap_or_default();
                assert!(!masked.is_empty() && !masked.contains(&tail[4..20]), "{front}{key}{back} {masked}");
            }
        }
        for name in ["app_pass", "backup_pass", "router_pwd", "irc-pass"] {
            for (text, expect) in [("@=Hunter2!Zq", "@=[redacted]"), ("  @: Hunter2!Zq", "  @: [redacted]")] {
                assert_eq!(redacted(&text.replace('@', name)), Some(expect.replace('@', name)));
            }
        }
    }

    /// Pieces of which hostile text is made.
    const PIECES: [&str; 56] = [
        "token",
        "password",
        "SECRET_KEY",
        "Authorization",
        "Cookie",
        "key",
        "=",
        ":",
        " ",
        "\n",
        "\"",
        "'",
        "\\",
        "\\\"",
        "`",
        "[",
        "]",
        "{",
        "}",
        "(",
        "<",
        ">",
        "|",
        "->",
        "${",
        "//",
        "://",
        "@",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "sk-",
        "ghp_",
        "eyJ",
        ".",
        "\u{1b}[32m",
        "密",
        "é",
        "--",
        "a7Bq2Rt9XzK4mN8pLs3Dv6Wy",
        "curl -u ",
        "\\n",
        "\u{a0}",
        "\u{1b}]0;",
        "\u{7}",
        "\\u001b[",
        "^[",
        "+ ",
        "- ",
        "$ ",
        "12:",
        "sv=1&sig=",
        "value: ",
        "name: ",
        "ENV ",
        "machine h ",
        "%22",
    ];

    proptest! {
        #[test]
        fn any_text_is_masked_once(pieces in proptest::collection::vec(0..PIECES.len(), 0..24), more in "\\PC{0,12}") {
            let text: String = pieces.into_iter().map(|at| PIECES[at]).chain([&*more]).collect();
            let spans = secret_spans(text.as_bytes());
            prop_assert!(spans.is_sorted_by(|one, next| one.end < next.start) && spans.iter().all(|span| span.end <= text.len()));
            // Bytes that are no text do not end it either.
            let cut = text.len() / 2;
            prop_assert!(secret_spans(&text.as_bytes()[cut..]).iter().all(|span| span.end <= text.len() - cut));
            let _ = redacted_json(&text);
            stays_masked(&text);
        }
    }

    fn stays_masked(text: &str) {
        static MASKER: LazyLock<Masker> = LazyLock::new(|| Masker::new(&[]).expect("no pattern"));
        let Some(masked) = MASKER.text(text) else { return };
        assert_eq!((masked.len(), MASKER.text(&masked)), (text.len(), None), "{text:?} {masked:?}");
    }

    #[test]
    fn words_beside_a_mask_are_masked_at_once() {
        let key = format!("{}_{}", "ddp", "a7Bq2Rt9XzK4mN8pLs3Dv6Wya7Bq2Rt9XzK4");
        stays_masked(&format!("{{\"env\":{{\"TOKEN1:bc {key} \"a\"22def456\"}}}}"));
        stays_masked(&format!("token: of {key} a"));
    }
}
