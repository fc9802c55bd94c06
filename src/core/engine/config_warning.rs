//! What codex says about its own configuration: a file that cannot be read, a setting that it ignores. It finds that when it starts, and
//! tells each connection.

use serde_json::value::RawValue;

use crate::secrets::redacted;
use crate::wire::Members;

/// Longest text, in bytes.
const TEXT_BYTES_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The text for a person.
    pub what: String,
    /// The file that it is about, if codex names one beside the text.
    pub path: Option<String>,
    /// Codex cannot use its configuration, and starts no thread.
    pub is_broken: bool,
}

impl ConfigWarning {
    /// Reads the notification. The values of settings may be in it, so secrets in it are masked.
    pub(super) fn of(params: &RawValue) -> Option<ConfigWarning> {
        let params = Members::of(params)?;
        let summary = params.text("summary")?;
        // Codex 0.171 gives details of what keeps it from using a file, and has all else in the summary.
        let details = params.text("details").filter(|details| !details.trim().is_empty());
        let what = match &details {
            Some(details) => format!("{} {}", summary.trim(), details.trim()),
            None => summary.trim().to_owned(),
        };
        let what = redacted(&what).unwrap_or(what);
        let what = what[..what.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        let path = params.text("path").map(|path| path[..path.floor_char_boundary(TEXT_BYTES_MAX)].to_owned());
        let path = path.filter(|path| !path.is_empty() && !what.contains(path.as_str()));
        (!what.is_empty()).then_some(ConfigWarning { what, path, is_broken: details.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_has_its_file_and_no_secret() {
        let check = |params: &str, expect: Option<(&str, Option<&str>, bool)>| {
            let params = serde_json::from_str::<&RawValue>(params).expect("BUG: a test has JSON");
            let read = ConfigWarning::of(params);
            let read = read.as_ref().map(|read| (&*read.what, read.path.as_deref(), read.is_broken));
            assert_eq!(read, expect, "{params}");
        };
        // As 0.171 sends them.
        check(
            r#"{"summary":"Invalid configuration; using defaults.","details":"/h/config.toml:1:9: invalid type","path":"/h/config.toml","range":{"start":{"line":1,"column":9},"end":{"line":1,"column":9}}}"#,
            Some(("Invalid configuration; using defaults. /h/config.toml:1:9: invalid type", None, true)),
        );
        check(
            r#"{"summary":"Codex is ignoring 1 setting.\n  user (/h/config.toml): `x` is ignored.","details":null}"#,
            Some(("Codex is ignoring 1 setting.\n  user (/h/config.toml): `x` is ignored.", None, false)),
        );
        check(r#"{"summary":"s","details":"d","path":"/h/c.toml"}"#, Some(("s d", Some("/h/c.toml"), true)));
        check(r#"{"summary":"key sk-abcdefghijklmnopqrst"}"#, Some(("key [redacted]", None, false)));
        for other in ["{}", r#"{"summary":""}"#, r#"{"summary":7}"#, "[]"] {
            check(other, None);
        }
        let long = format!(r#"{{"summary":"{}"}}"#, "é".repeat(9_000));
        let params = serde_json::from_str::<&RawValue>(&long).expect("BUG: a test has JSON");
        assert!(ConfigWarning::of(params).is_some_and(|read| read.what.len() <= TEXT_BYTES_MAX));
    }
}
