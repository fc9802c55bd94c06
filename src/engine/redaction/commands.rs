//! What commands are given on their command lines.
//!
//! A text is looked through line by line, and a long line in parts, so that no pattern is looked for over more than
//! [`LINE_BYTES_MAX`] bytes at once.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::bytes::Regex;

/// What is typed in one word or two, wherever it stands. What the groups `keep` and `then` hold stays.
const SHAPES: [&str; 5] = [
    // `-H "X-Key: x"`, `--header 'Authorization: Basic x'`
    r#"(?<keep>\B(?:-H|--header)[ \t=]*["'](?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):\s*(?i:(?:basic|bearer|token)\s+)?)[^\s"'][^"'\n]*"#,
    // `-H X-Key:x`
    r#"(?<keep>\B(?:-H|--header)[ \t=]*(?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):[ \t]*(?i:(?:basic|bearer|token)[ \t]+)?)(?:\\.|[^\s"'\\])+"#,
    // `-p'secret'`
    r#"(?<keep>\s-p)(?:"[^"\n]+"|'[^'\n]+')"#,
    // `vault login x`, which nothing follows that is no end or redirection, as in prose; `vault login -method=m name=value` has none there.
    r#"(?<keep>\bvault[ \t]+login(?:[ \t]+-\S+)*[ \t]+)(?:(?:s|b|r|hv[sbr])\.[A-Za-z0-9_-]+|[^\s"'`=;&|<>)\\#-][^\s"'`=;&|<>)\\,}\]]*(?<then>[ \t]*(?:$|[\r\n;&|)"'`<>#\\,}\]]|\d>)))"#,
    // `openssl … -passin pass:x`
    r#"(?<keep>\B-pass(?:in|out)?[ \t=]+["']?pass:)[^\s"']+"#,
];

/// What may stand for `WORDS` in [`SHAPES_IN_LINES`], one after the other: words of one command, and the same with a shell's separators
/// in quotation marks.
const WORDS: [&str; 2] = [r"[^\n|;&]*?", r#"(?:\\\n|"[^"\n]*"|'[^'\n]*'|[^\n|;&"'])*?"#];

/// How secrets are typed behind other words of the same command, which are looked for line by line: a match would be looked for to the
/// end of a text for each command in it. What the group `keep` holds stays.
const SHAPES_IN_LINES: [&str; 5] = [
    // `curl -u name:x`, `curl --user name:x`
    r#"(?<keep>\bcurl\bWORDS\s(?:-[A-Za-z]*[uU]|--user|--proxy-user)[ \t=]*(?:"[^\s":]+:|'[^\s':]+:|[^\s"':]+:))[^\s"']+"#,
    // `docker login -p x`, `helm registry login -p x`
    r#"(?<keep>\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|oc|az|cf)(?:\.exe)?["']?(?:[ \t]+--?[\w-]+(?:[= \t](?:"[^"\n]*"|'[^'\n]*'|\S+))?)*(?:[ \t]+(?:registry|acr))?[ \t]+login\bWORDS\s-p[ \t=]*)(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)"#,
    // `redis-cli -a x`
    r#"(?<keep>\bredis-cli\bWORDS\s(?:-a|--pass)[ \t]+)(?:"[^"]*"|'[^']*'|[^\s"']+)"#,
    // `mysql -psecret`, `sshpass -p secret`
    r#"(?<keep>(?:\b(?:mysql\w*|mariadb\w*)\bWORDS\s-p|\bsshpass\bWORDS\s-p[ \t]?))(?:"[^"\n]+"|'[^'\n]+')"#,
    r#"(?<keep>(?:\b(?:mysql\w*|mariadb\w*)\bWORDS\s-p|\bsshpass\bWORDS\s-p[ \t]?))[^\s"']+"#,
];

/// The commands that these are about, but for those whose names are parts of many words.
const COMMANDS: [&str; 12] = [
    "curl",
    "docker",
    "podman",
    "nerdctl",
    "buildah",
    "skopeo",
    "helm",
    "oras",
    "redis-cli",
    "mysql",
    "mariadb",
    "sshpass",
];

/// Longest line that is looked at as a whole for these, in bytes; a longer one is taken in parts.
const LINE_BYTES_MAX: usize = 8 << 10;

/// What stands in any text in which one of the shapes is found.
const MARKS: [&str; 17] = [
    // As it stands in JSON.
    "-p\\\"",
    "curl",
    "login",
    "mysql",
    "mariadb",
    "sshpass",
    "redis-cli",
    "-p'",
    "-p\"",
    "-H",
    "--header",
    "-pass",
    "wget",
    "http",
    "az ",
    "oc ",
    "cf ",
];

static MARKED: LazyLock<AhoCorasick> =
    LazyLock::new(|| AhoCorasick::new(MARKS).expect("BUG: the marks are few and short"));

static COMPILED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let with = |words: &'static str| SHAPES_IN_LINES.iter().map(move |shape| shape.replace("WORDS", words));
    let in_lines = WORDS.into_iter().flat_map(with);
    SHAPES.iter().map(|shape| (*shape).to_owned()).chain(in_lines).map(|shape| compiled(&shape)).collect()
});

fn compiled(shape: &str) -> Regex {
    Regex::new(shape).expect("BUG: the shapes are regular expressions")
}

/// Whether a text may hold such a command.
pub(super) fn may_hold_command(text: &[u8]) -> bool {
    MARKED.is_match(text)
}

/// Adds where secrets stand that a command is given.
pub(super) fn find(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let mut at = 0;
    for part in parts(text) {
        if MARKED.is_match(part) {
            for shape in COMPILED.iter() {
                spans.extend(shape.captures_iter(part).map(|found| {
                    let all = found.get_match().range();
                    let from = found.name("keep").map_or(all.start, |kept| kept.end());
                    at + from..at + found.name("then").map_or(all.end, |kept| kept.start())
                }));
            }
        }
        at += part.len();
    }
}

/// Where the last command in the second half of a text begins that one of [`SHAPES_IN_LINES`] is about.
fn last_command(text: &[u8]) -> Option<usize> {
    let last = COMMANDS.iter().filter_map(|command| memchr::memmem::rfind(text, command.as_bytes())).max();
    last.filter(|at| *at > text.len() / 2)
}

/// The lines of a text, with those that go on behind a `\\`; of one that is too long, parts that end with a word.
fn parts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_end = |at: &usize| !rest[..*at].ends_with(b"\\");
        let near = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let end = match memchr::memchr_iter(b'\n', near).find(is_end) {
            Some(at) => at + 1,
            None if near.len() == rest.len() => rest.len(),
            // The next part begins with a command, or else not between an option and what it is given.
            None => last_command(near).unwrap_or_else(|| {
                let is_between = |at: &usize| {
                    let word = near[..*at].rsplit(|byte| byte.is_ascii_whitespace()).next();
                    !word.is_some_and(|word| word.starts_with(b"-"))
                };
                let blanks = (1..near.len()).rev().filter(|at| matches!(near[*at], b' ' | b'\n'));
                blanks.take(BLANKS_MAX).find(is_between).map_or(near.len(), |at| at + 1)
            }),
        };
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

/// How many blanks are tried at the end of a part.
const BLANKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, parts};

    #[test]
    fn long_lines_are_divided_between_words() {
        let long = format!("{} curl -u a:bcd h\n", "x".repeat(9_000));
        let text = format!("a\\\nb\n{long}ä {}", "ö".repeat(5_000));
        assert_eq!(parts(text.as_bytes()).collect::<Vec<_>>().concat(), text.as_bytes());
        assert_eq!(parts(text.as_bytes()).next(), Some(&b"a\\\nb\n"[..]));
        assert!(parts(text.as_bytes()).all(|part| part.len() <= LINE_BYTES_MAX));
    }
}
