//! Kinds of settings: how each is read from its sources, and how it is printed.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use super::sources::{Sources, parse_bool, parse_bytes, parse_count, parse_duration, parse_names};
use super::{Name, Row, SessionName, Setting, Source, toml_text};
use crate::engine::{Carrier, RequestType};

/// A kind of setting, and the default of one.
pub(super) struct Kind<T> {
    read: Read<T>,
    row: fn(&'static str, &T, &Source) -> Row,
}

enum Read<T> {
    /// Every source has the same text.
    Text(fn(&str) -> Result<T, String>, T),
    /// The sources differ.
    Sources(fn(&mut Sources<'_>, Name, Option<T>) -> Setting<T>),
}

impl<T> Kind<T> {
    pub(super) fn resolve(self, sources: &mut Sources<'_>, name: Name, flag: Option<T>) -> Setting<T> {
        match self.read {
            Read::Text(parse, default) => sources.resolve(name, flag, parse, default),
            Read::Sources(resolve) => resolve(sources, name, flag),
        }
    }

    pub(super) fn row(&self, name: &'static str, setting: &Setting<T>) -> Row {
        (self.row)(name, &setting.value, &setting.source)
    }
}

pub(super) fn truth(default: bool) -> Kind<bool> {
    Kind { read: Read::Text(parse_bool, default), row: |name, value, source| Row::bare(name, value, source) }
}

pub(super) fn count(default: usize) -> Kind<usize> {
    Kind { read: Read::Text(parse_count, default), row: |name, value, source| Row::bare(name, value, source) }
}

pub(super) fn time(default: Duration) -> Kind<Duration> {
    let row = |name, value: &Duration, source: &Source| Row::text(name, Some(toml_text::duration(*value)), source);
    Kind { read: Read::Text(parse_duration, default), row }
}

pub(super) fn size(default: ByteSize) -> Kind<ByteSize> {
    let row = |name, value: &ByteSize, source: &Source| Row::text(name, Some(toml_text::bytes(*value)), source);
    Kind { read: Read::Text(parse_bytes, default), row }
}

pub(super) fn carrier() -> Kind<Carrier> {
    let row = |name, value: &Carrier, source: &Source| Row::text(name, Some(value.to_string()), source);
    Kind { read: Read::Text(str::parse, Carrier::default()), row }
}

pub(super) fn session() -> Kind<Option<SessionName>> {
    let row = |name, value: &Option<SessionName>, source: &Source| {
        Row::text(name, value.as_ref().map(ToString::to_string), source)
    };
    Kind { read: Read::Text(|text| text.parse().map(Some), None), row }
}

/// A path, or a name to look up on `PATH`.
pub(super) fn program() -> Kind<Option<PathBuf>> {
    let read = Read::Sources(|sources, name, flag| sources.resolve_path(name, flag.flatten()));
    Kind { read, row: path_row }
}

/// A file.
pub(super) fn file() -> Kind<Option<PathBuf>> {
    Kind { read: Read::Sources(|sources, name, _| sources.resolve_file(name)), row: path_row }
}

fn path_row(name: &'static str, value: &Option<PathBuf>, source: &Source) -> Row {
    Row::text(name, value.as_ref().map(|path| path.display().to_string()), source)
}

/// A program and its arguments.
pub(super) fn command() -> Kind<Vec<String>> {
    let row = |name, value: &Vec<String>, source: &Source| Row::list(name, value, " ", source);
    Kind { read: Read::Sources(|sources, name, _| sources.resolve_command(name)), row }
}

/// Names; without a value, others take their place.
pub(super) fn names() -> Kind<Option<Vec<String>>> {
    let row = |name, value: &Option<Vec<String>>, source: &Source| match value {
        Some(names) => Row::list(name, names, ",", source),
        None => Row { name, value: Some(String::new()), toml: None, source: source.clone() },
    };
    Kind { read: Read::Text(|text| parse_names(text).map(Some), None), row }
}

/// Times by type of request: `TYPE=TIME,…` in a variable, `{ TYPE = "TIME", … }` in the file.
pub(super) fn expiry() -> Kind<Vec<(RequestType, Duration)>> {
    let row = |name, value: &Vec<(RequestType, Duration)>, source: &Source| {
        let each = |pair: fn(&RequestType, String) -> String| -> Vec<String> {
            value.iter().map(|(of, after)| pair(of, toml_text::duration(*after))).collect()
        };
        let plain = each(|of, after| format!("{of}={after}")).join(",");
        let toml = match &value[..] {
            [] => "{}".to_owned(),
            _ => format!("{{ {} }}", each(|of, after| format!("{of} = \"{after}\"")).join(", ")),
        };
        Row { name, value: Some(plain), toml: Some(toml), source: source.clone() }
    };
    Kind { read: Read::Sources(|sources, name, _| sources.resolve_expiry(name)), row }
}
