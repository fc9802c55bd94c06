//! Kinds of settings: how each is read from its sources, and how it is printed, in the syntax of `config.toml`. The parsers in
//! [`super::sources`] read it back.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

use super::sources::{Sources, parse_bool, parse_bytes, parse_count, parse_duration, parse_names};
use super::{SessionName, Setting, SettingName, SettingRow, Source};
use crate::engine::RequestType;

/// A kind of setting, and the default of one.
pub(super) struct Kind<T> {
    read: ReadValue<T>,
    row: fn(&'static str, &T, &Source) -> SettingRow,
}

enum ReadValue<T> {
    /// Every source has the same text.
    Text(fn(&str) -> Result<T, String>, T),
    /// The sources differ.
    Sources(fn(&mut Sources<'_>, SettingName, Option<T>) -> Setting<T>),
}

impl<T> Kind<T> {
    pub(super) fn resolve(self, sources: &mut Sources<'_>, name: SettingName, flag: Option<T>) -> Setting<T> {
        match self.read {
            ReadValue::Text(parse, default) => sources.resolve(name, flag, parse, default),
            ReadValue::Sources(resolve) => resolve(sources, name, flag),
        }
    }

    pub(super) fn row(&self, name: &'static str, setting: &Setting<T>) -> SettingRow {
        (self.row)(name, &setting.value, &setting.source)
    }
}

pub(super) fn truth(default: bool) -> Kind<bool> {
    Kind {
        read: ReadValue::Text(parse_bool, default),
        row: |name, value, source| SettingRow::bare(name, value, source),
    }
}

pub(super) fn count(default: usize) -> Kind<usize> {
    Kind {
        read: ReadValue::Text(parse_count, default),
        row: |name, value, source| SettingRow::bare(name, value, source),
    }
}

pub(super) fn time(default: Duration) -> Kind<Duration> {
    let row = |name, value: &Duration, source: &Source| SettingRow::text(name, Some(duration(*value)), source);
    Kind { read: ReadValue::Text(parse_duration, default), row }
}

pub(super) fn size(default: ByteSize) -> Kind<ByteSize> {
    let row = |name, value: &ByteSize, source: &Source| SettingRow::text(name, Some(bytes(*value)), source);
    Kind { read: ReadValue::Text(parse_bytes, default), row }
}

/// A whole number within bounds.
pub(super) fn bounded<const MIN: usize, const MAX: usize>(default: usize) -> Kind<usize> {
    let parse = |text: &str| match parse_count(text)? {
        number if (MIN..=MAX).contains(&number) => Ok(number),
        number => Err(format!("{number} is not from {MIN} to {MAX}")),
    };
    Kind { read: ReadValue::Text(parse, default), ..count(default) }
}

/// A whole number, which may be left out.
pub(super) fn optional_count() -> Kind<Option<usize>> {
    let row = |name, value: &Option<usize>, source: &Source| match value {
        Some(number) => SettingRow::bare(name, number, source),
        None => SettingRow::text(name, None, source),
    };
    Kind { read: ReadValue::Text(|text| parse_count(text).map(Some), None), row }
}

/// One of several words.
pub(super) fn word<T: FromStr<Err = String> + fmt::Display + Default>() -> Kind<T> {
    let row = |name, value: &T, source: &Source| SettingRow::text(name, Some(value.to_string()), source);
    Kind { read: ReadValue::Text(T::from_str, T::default()), row }
}

/// A text, which may be left out.
pub(super) fn text(parse: fn(&str) -> Result<Option<String>, String>) -> Kind<Option<String>> {
    let row = |name, value: &Option<String>, source: &Source| SettingRow::text(name, value.clone(), source);
    Kind { read: ReadValue::Text(parse, None), row }
}

pub(super) fn session() -> Kind<Option<SessionName>> {
    let row = |name, value: &Option<SessionName>, source: &Source| {
        SettingRow::text(name, value.as_ref().map(ToString::to_string), source)
    };
    Kind { read: ReadValue::Text(|text| text.parse().map(Some), None), row }
}

/// A path, or a name to look up on `PATH`.
pub(super) fn program() -> Kind<Option<PathBuf>> {
    let read = ReadValue::Sources(|sources, name, flag| sources.resolve_path(name, flag.flatten()));
    Kind { read, row: path_row }
}

/// A file.
pub(super) fn file() -> Kind<Option<PathBuf>> {
    Kind { read: ReadValue::Sources(|sources, name, _| sources.resolve_file(name)), row: path_row }
}

/// A file. `~/` is the user's home folder.
pub(super) fn file_of_user() -> Kind<Option<PathBuf>> {
    Kind { read: ReadValue::Sources(|sources, name, _| sources.resolve_file_of_user(name)), row: path_row }
}

fn path_row(name: &'static str, value: &Option<PathBuf>, source: &Source) -> SettingRow {
    SettingRow::text(name, value.as_ref().map(|path| path.display().to_string()), source)
}

/// A program and its arguments.
pub(super) fn command() -> Kind<Vec<String>> {
    let row = |name, value: &Vec<String>, source: &Source| SettingRow::list(name, value, " ", source);
    Kind { read: ReadValue::Sources(|sources, name, _| sources.resolve_command(name)), row }
}

/// Names; without a value, others take their place.
pub(super) fn names() -> Kind<Option<Vec<String>>> {
    let row = |name, value: &Option<Vec<String>>, source: &Source| match value {
        Some(names) => SettingRow::list(name, names, ",", source),
        None => SettingRow { name, value: Some(String::new()), toml: None, source: source.clone() },
    };
    Kind { read: ReadValue::Text(|text| parse_names(text).map(Some), None), row }
}

/// Times by type of request: `TYPE=TIME,…` in a variable, `{ TYPE = "TIME", … }` in the file.
pub(super) fn expiry() -> Kind<Vec<(RequestType, Duration)>> {
    let row = |name, value: &Vec<(RequestType, Duration)>, source: &Source| {
        let each = |pair: fn(&RequestType, String) -> String| -> Vec<String> {
            value.iter().map(|(of, after)| pair(of, duration(*after))).collect()
        };
        let plain = each(|of, after| format!("{of}={after}")).join(",");
        let toml = match &value[..] {
            [] => "{}".to_owned(),
            _ => format!("{{ {} }}", each(|of, after| format!("{of} = \"{after}\"")).join(", ")),
        };
        SettingRow { name, value: Some(plain), toml: Some(toml), source: source.clone() }
    };
    Kind { read: ReadValue::Sources(|sources, name, _| sources.resolve_expiry(name)), row }
}

// Values in the syntax of `config.toml`.

impl SettingRow {
    /// A number or a boolean.
    pub(super) fn bare(name: &'static str, value: impl ToString, source: &Source) -> SettingRow {
        let value = value.to_string();
        SettingRow { name, value: Some(value.clone()), toml: Some(value), source: source.clone() }
    }

    /// A string; `None` if it is not set.
    pub(super) fn text(name: &'static str, value: Option<String>, source: &Source) -> SettingRow {
        let toml = value.as_deref().map(quoted);
        SettingRow { name, value, toml, source: source.clone() }
    }

    /// A list of strings; `separator` joins them for programs.
    pub(super) fn list(name: &'static str, value: &[String], separator: &str, source: &Source) -> SettingRow {
        let value_text = Some(value.join(separator));
        SettingRow { name, value: value_text, toml: Some(list(value)), source: source.clone() }
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
