//! What looks like a secret in a text, by shape.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What stands where a secret stood. It is the same for every secret, so equal texts stay equal.
const MASK: &str = "[redacted]";

/// Shapes of keys and tokens. A group called `keep` stays.
const SHAPES: [&str; 8] = [
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?<keep>(?i:\bbearer )\s*)[A-Za-z0-9._~+/=-]{8,}",
    r#"(?<keep>(?i:token|secret|password|passwd|api_?key)["']?\s*[=:]\s*["']?)[^\s"'&,;]{6,}"#,
];

static SECRETS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    SHAPES.iter().map(|shape| Regex::new(shape).expect("BUG: the shapes are regular expressions")).collect()
});

/// The text with everything that looks like a secret masked; `None` where nothing does.
#[must_use]
pub(super) fn redacted(text: &str) -> Option<String> {
    let mut masked: Option<String> = None;
    for shape in SECRETS.iter() {
        let current = masked.as_deref().unwrap_or(text);
        if shape.is_match(current) {
            let keep = |found: &Captures<'_>| format!("{}{MASK}", found.name("keep").map_or("", |keep| keep.as_str()));
            masked = Some(shape.replace_all(current, keep).into_owned());
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::redacted;

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
}
