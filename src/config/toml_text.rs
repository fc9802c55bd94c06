//! Values in the syntax of `config.toml`. The parsers in [`super::sources`] read them back.

use std::time::Duration;

use bytesize::ByteSize;

use super::{Row, Source};

impl Row {
    /// A number or a boolean.
    pub(super) fn bare(name: &'static str, value: impl ToString, source: &Source) -> Row {
        let value = value.to_string();
        Row { name, value: Some(value.clone()), toml: Some(value), source: source.clone() }
    }

    /// A string; `None` if it is not set.
    pub(super) fn text(name: &'static str, value: Option<String>, source: &Source) -> Row {
        let toml = value.as_deref().map(quoted);
        Row { name, value, toml, source: source.clone() }
    }

    /// A list of strings; `separator` joins them for programs.
    pub(super) fn list(name: &'static str, value: &[String], separator: &str, source: &Source) -> Row {
        let value_text = Some(value.join(separator));
        Row { name, value: value_text, toml: Some(list(value)), source: source.clone() }
    }
}

pub(super) fn quoted(text: &str) -> String {
    // A JSON string is a valid basic string of TOML, except for this character.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

pub(super) fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
}

/// A duration: `10s`, `1h 30m`, `500ms`.
pub(super) fn duration(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut rest = duration.as_secs();
    let mut parts: Vec<String> = Vec::new();
    for (seconds, unit) in UNITS {
        if rest >= seconds {
            parts.push(format!("{}{unit}", rest / seconds));
            rest %= seconds;
        }
    }
    let nanos = duration.subsec_nanos();
    match (nanos, nanos % 1_000_000, nanos % 1_000) {
        (0, ..) => {}
        (_, 0, _) => parts.push(format!("{}ms", nanos / 1_000_000)),
        (_, _, 0) => parts.push(format!("{}us", nanos / 1_000)),
        (..) => parts.push(format!("{nanos}ns")),
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// An exact size: `256MiB`, or a number of bytes if no unit fits.
pub(super) fn bytes(size: ByteSize) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let bytes = size.as_u64();
    let fits = UNITS.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::super::sources::{parse_bytes, parse_duration};
    use super::*;

    #[test]
    fn durations_round_trip() {
        let check = |length: Duration, expect: &str| {
            assert_eq!(duration(length), expect);
            assert_eq!(parse_duration(expect), Ok(length), "{expect}");
        };
        check(Duration::ZERO, "0s");
        check(Duration::from_secs(10), "10s");
        check(Duration::from_secs(7 * 86_400), "7d");
        check(Duration::from_secs(5_400), "1h 30m");
        check(Duration::from_millis(1_500), "1s 500ms");
        check(Duration::from_micros(7), "7us");
        check(Duration::from_nanos(7), "7ns");
        check(Duration::from_secs(400 * 86_400), "400d");
    }

    #[test]
    fn sizes_round_trip_exactly() {
        let check = |size: u64, expect: &str| {
            assert_eq!(bytes(ByteSize(size)), expect);
            assert_eq!(parse_bytes(expect), Ok(ByteSize(size)), "{expect}");
        };
        check(256 << 20, "256MiB");
        check(3 << 30, "3GiB");
        check(1_000, "1000");
        check(1_025, "1025");
        check(0, "0");
    }

    #[test]
    fn strings_round_trip() {
        for text in ["", "a b", "\"\\\n\t\u{7f}\u{1b}é", "[x]"] {
            let read: toml::Table = format!("x = {}", quoted(text)).parse().expect("it is TOML");
            assert_eq!(read["x"].as_str(), Some(text));
        }
        assert_eq!(list(&["a".to_owned(), "b c".to_owned()]), r#"["a", "b c"]"#);
    }
}
