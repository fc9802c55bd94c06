//! What looks like a secret in a text, by shape.

mod names;
mod table;

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::{Captures, Regex};

use super::written::{MASK, Written};
use crate::wire::{TokenKind, tokens};

pub use names::names_secret;

/// Shapes of keys and tokens. Groups called `keep`, which stands ahead, and `then`, which stands behind, stay.
pub(super) const SHAPES: [&str; 17] = [
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?<keep>(?i:\bbearer )\s*)[A-Za-z0-9._~+/=-]{8,}",
    r#"(?<keep>(?i:token|secret|password|passwd|api[_-]?key)["']?\s*[=:]\s*["']?)[^\s"'&,;]{6,}"#,
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bnpm_[A-Za-z0-9]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"\bhf_[A-Za-z0-9]{30,}",
    r"\bhvs\.[A-Za-z0-9_-]{20,}",
    // `DB_PASS=…`; in small letters it may be a step: `first_pass=…`.
    r#"(?<keep>\b[A-Z0-9_]*_(?:PASS|PWD)(?:=["']?|["']\s*:\s*["']))[^\s"'&,;]{6,}"#,
    // Of one that was cut off the end is missing. Five dashes are the end of any: none is looked for behind the next beginning.
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?:(?:-{0,4}[^-])*?-{5,6}END (?:[A-Z0-9]+ )*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\:,.-]*)",
    // The last `@` in front of the path is the one ahead of the host.
    r#"(?<keep>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"'<>]*:)[^\s/@"'<>]+(?:@[^\s/@"'<>,;?]+)*(?<then>@)"#,
];

/// What may stand for `WORDS` in [`SHAPES_IN_LINES`], one after the other: words of one command, and the same with a shell's separators
/// in quotation marks.
const WORDS: [&str; 2] = [r"[^\n|;&]*?", r#"(?:\\\n|"[^"\n]*"|'[^'\n]*'|[^\n|;&"'])*?"#];

/// How secrets are typed. What the groups `keep` and `then` hold stays.
const TYPED_SHAPES: [&str; 10] = [
    // `export GITHUB_TOKEN=…`, `DB_PASSWORD='…' make`, `set -gx API_KEY …`: short ones and quoted ones, too.
    r#"(?<keep>(?:^|[\s;&|(])(?:export\s+|declare\s+-\w+\s+|set\s+-\w+\s+)?\w*(?i:token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key)\w*=)(?:"[^"]*"|'[^']*')"#,
    r#"(?<keep>\bexport\s+\w*(?i:token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key)\w*=)[^\s"'][^\s;&|]*"#,
    r#"(?<keep>\bset[ \t]+-\w+[ \t]+\w*(?i:token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key)\w*[ \t]+)(?:"[^"]*"|'[^']*'|[^\s;&|"']+)(?:[ \t]+(?:"[^"]*"|'[^']*'|[^\s;&|"']+))*"#,
    // `DB_PASS=x ./run`
    r#"(?<keep>\b[A-Z0-9_]*_(?:PASS|PWD)=)(?:"[^"]*"|'[^']*'|[^\s"';&|]+)"#,
    // `-H "X-Key: x"`, `--header 'Authorization: Basic x'`
    r#"(?<keep>\B(?:-H|--header)[ \t=]*["'](?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):\s*(?i:(?:basic|bearer|token)\s+)?)[^\s"'][^"'\n]*"#,
    // `-H X-Key:x`
    r#"(?<keep>\B(?:-H|--header)[ \t=]*(?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):[ \t]*(?i:(?:basic|bearer|token)[ \t]+)?)(?:\\.|[^\s"'\\])+"#,
    // `-p'secret'`
    r#"(?<keep>\s-p)(?:"[^"]+"|'[^']+')"#,
    // `vault login x`, which nothing follows that is no end or redirection, as in prose; `vault login -method=m name=value` has none there.
    r#"(?<keep>\bvault[ \t]+login(?:[ \t]+-\S+)*[ \t]+)(?:(?:s|b|r|hv[sbr])\.[A-Za-z0-9_-]+|[^\s"'`=;&|<>)\\#-][^\s"'`=;&|<>)\\,}\]]*(?<then>[ \t]*(?:$|[\r\n;&|)"'`<>#\\,}\]]|\d>)))"#,
    // `openssl … -passin pass:x`
    r#"(?<keep>\B-pass(?:in|out)?[ \t=]+["']?pass:)[^\s"']+"#,
    // `--password X`, `--api-key=X`
    r#"(?<keep>\B--(?i:[a-z0-9-]*(?:password|passwd|passphrase|token|secret|api-?key|access-?key))(?:=|[ \t]+))(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)"#,
];

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

static SECRETS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SHAPES.iter().chain(&TYPED_SHAPES).map(|shape| compiled(shape)).collect());

static SECRETS_IN_LINES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let with = |words: &'static str| SHAPES_IN_LINES.iter().map(move |shape| compiled(&shape.replace("WORDS", words)));
    WORDS.into_iter().flat_map(with).collect()
});

fn compiled(shape: &str) -> Regex {
    Regex::new(shape).expect("BUG: the shapes are regular expressions")
}

/// What stands, in small letters or capitals, in any text in which one of [`SHAPES`] or [`TYPED_SHAPES`] is found, but for
/// that of an address with a password, and in any name of a secret.
const MARKS: [&str; 42] = [
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat",
    "akia",
    "asia",
    "xox",
    "eyj",
    "bearer",
    "token",
    "secret",
    "passw",
    "passp",
    "_pat",
    "-pat",
    "key",
    "credential",
    "auth",
    "cookie",
    "aiza",
    "npm_",
    "glpat-",
    "private key",
    "-p'",
    "-p\"",
    // The same as it stands in JSON.
    "-p\\\"",
    "mysql",
    "mariadb",
    "sshpass",
    "redis-cli",
    "_pass",
    "_pwd",
    "k_live_",
    "k_test_",
    "hf_",
    "hvs.",
    "curl",
    "login",
    "-pass",
];

/// Cheap to look for: nearly every text has none.
static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(MARKS);
    builder.expect("BUG: the marks are few and short")
});

/// Whether a text can hold anything that looks like a secret, or a member whose name says so.
#[must_use]
pub fn may_hold_secret(text: &str) -> bool {
    MARKED.is_match(text) || (text.contains('@') && memchr::memmem::find(text.as_bytes(), b"://").is_some())
}

/// JSON in which every text that looks like a secret is masked, and every text under a name that says so; everything else
/// stands as it was written. `None` where nothing was masked. `json` may end anywhere, as what was cut off does; a string that
/// was cut off and has a secret ends in quotation marks afterwards.
#[must_use]
pub fn redacted_json(json: &str) -> Option<String> {
    if !may_hold_secret(json) {
        return None;
    }
    let mut masked: Option<String> = None;
    let mut kept_to = 0;
    let mut name: Option<&str> = None;
    for token in tokens(json) {
        let written = &json[token.range.clone()];
        match token.kind {
            TokenKind::Name => name = Some(written),
            TokenKind::Number => name = None,
            TokenKind::Text => {
                let named = name.take().is_some_and(|name| names_secret(&unquoted(name)));
                let instead =
                    if named && written.len() > 2 { Some(MASK.to_owned()) } else { redacted(&unquoted(written)) };
                let Some(instead) = instead else { continue };
                let out = masked.get_or_insert_with(String::new);
                out.push_str(&json[kept_to..token.range.start]);
                out.push_str(&serde_json::Value::from(instead).to_string());
                kept_to = token.range.end;
            }
        }
    }
    let mut masked = masked?;
    masked.push_str(&json[kept_to..]);
    Some(masked)
}

/// The text of a JSON string, of one that was cut off too.
fn unquoted(written: &str) -> Cow<'_, str> {
    match Written::of(written).text() {
        Cow::Borrowed(text) => String::from_utf8_lossy(text),
        Cow::Owned(text) => Cow::Owned(String::from_utf8(text).unwrap_or_default()),
    }
}

/// The text with everything that looks like a secret masked; `None` where nothing does.
#[must_use]
pub fn redacted(text: &str) -> Option<String> {
    if !may_hold_secret(text) {
        return None;
    }
    let masked = masked_by(SECRETS.iter(), text);
    let current = masked.as_deref().unwrap_or(text);
    let in_lines: Vec<&Regex> = SECRETS_IN_LINES.iter().filter(|shape| shape.is_match(current)).collect();
    if in_lines.is_empty() {
        return masked;
    }
    let by_line = parts(current).map(|part| match masked_by(in_lines.iter().copied(), part) {
        Some(masked) => Cow::Owned(masked),
        None => Cow::Borrowed(part),
    });
    let by_line: String = by_line.collect();
    if masked.is_some() || by_line != text { Some(by_line) } else { None }
}

fn masked_by<'a>(shapes: impl IntoIterator<Item = &'a Regex>, text: &str) -> Option<String> {
    let mut masked: Option<String> = None;
    for shape in shapes {
        let current = masked.as_deref().unwrap_or(text);
        if shape.is_match(current) {
            let keep = |found: &Captures<'_>| {
                let group = |name| found.name(name).map_or("", |kept| kept.as_str());
                format!("{}{MASK}{}", group("keep"), group("then"))
            };
            masked = Some(shape.replace_all(current, keep).into_owned());
        }
    }
    masked
}

/// Where the last command in the second half of a text begins that one of [`SHAPES_IN_LINES`] is about.
fn last_command(text: &str) -> Option<usize> {
    let last = COMMANDS.iter().filter_map(|command| memchr::memmem::rfind(text.as_bytes(), command.as_bytes())).max();
    last.filter(|at| *at > text.len() / 2)
}

/// The lines of a text, with those that go on behind a `\\`; of one that is too long, parts that end with a word.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_end = |at: &usize| !rest[..*at].ends_with('\\');
        let near = &rest[..rest.floor_char_boundary(LINE_BYTES_MAX)];
        let end = match memchr::memchr_iter(b'\n', near.as_bytes()).find(is_end) {
            Some(at) => at + 1,
            None if near.len() == rest.len() => rest.len(),
            // The next part begins with a command, or else not between an option and what it is given.
            None => last_command(near).unwrap_or_else(|| {
                let is_between = |(at, _): &(usize, &str)| {
                    !near[..*at].rsplit(char::is_whitespace).next().is_some_and(|word| word.starts_with('-'))
                };
                near.rmatch_indices([' ', '\n']).find(is_between).map_or(near.len(), |(at, _)| at + 1)
            }),
        };
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, parts, redacted, redacted_json};

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
            Some(r#"{"cmd":"DB_PASS=[redacted] ./run; mysql -p[redacted]"}"#),
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
            Some("{\"a\":\"DB_PASS=[redacted] ./run\",\"n\":[1,\"curl -u \\\"bob:[redacted]\\\" u00\""),
        );
        check(r#"{"cookie":"abc"#, Some(r#"{"cookie":"[redacted]""#));
        check(r#"{"a":"key","b":"x\"#, None);
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
        check("export NPM_TOKEN='a b c' && make", "export NPM_TOKEN=[redacted] && make");
        check("DB_PASSWORD=\"x y\" ./run", "DB_PASSWORD=[redacted] ./run");
        check("set -gx API_KEY abc", "set -gx API_KEY [redacted]");
        check("curl --password abc https://x.y", "curl --password [redacted] https://x.y");
        check("tool --api-key=abc --user me", "tool --api-key=[redacted] --user me");
        check("tool --auth-token 'a b' now", "tool --auth-token [redacted] now");
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
    fn a_long_line_is_taken_in_parts_that_end_with_a_word() {
        let long = format!("{} curl -u a:bcd h\n", "x".repeat(9_000));
        assert_eq!(redacted(&long), Some(long.replace("bcd", "[redacted]")));
        for ahead in 0..30 {
            let long = format!("{} redis-cli -a bcd h\n", "x".repeat(LINE_BYTES_MAX - ahead));
            assert_eq!(redacted(&long), Some(long.replace("bcd", "[redacted]")), "{ahead}");
        }
        let text = format!("a\\\nb\n{long}ä {}", "ö".repeat(5_000));
        assert_eq!(parts(&text).collect::<String>(), text);
        assert_eq!(parts(&text).next(), Some("a\\\nb\n"));
        assert!(parts(&text).all(|part| part.len() <= LINE_BYTES_MAX));
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
}
