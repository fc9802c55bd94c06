//! The protocols of codex programs. They are stored below the home, because an upgrade replaces the program.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::super::doctor::codex::{self, Ran};
use super::scratch::Scratch;
use crate::config::Settings;
use crate::drift::Schema;
use crate::files::Folder;
use crate::relay::locate::Codex;

/// The folder below the home.
const FOLDER: &str = "codex-schemas";

/// Largest file of a schema, in bytes. Those of codex have less than 3 MB.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Number of stored protocols; the newest remain.
const KEPT_MAX: usize = 8;

/// The protocol of a version.
#[derive(Debug)]
pub(in super::super) struct Known {
    pub version: String,
    pub schema: Schema,
}

/// Whether to store a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Keeping {
    /// For the codex in use.
    Kept,
    /// For any other codex.
    Asked,
}

/// The version and the protocol of a program.
///
/// # Errors
///
/// It does not run, prints no version, or writes no schema.
pub(in super::super) fn of_program(settings: &Settings, codex: &Codex, keeping: Keeping) -> Result<Known, String> {
    let at = codex.program.display();
    let version = match codex::version(codex) {
        Ran::Well(told) if told.starts_with("codex-shim") => return Err(format!("{at} leads back to codex-shim")),
        Ran::Well(told) => version_in(&told).ok_or_else(|| format!("{at} --version says `{told}`"))?,
        Ran::Badly(why) => return Err(format!("{at} --version: {why}")),
        Ran::TooSlow => return Err(format!("{at} --version does not end")),
    };
    if let Some(known) = kept(settings, &version) {
        return Ok(known);
    }
    let home = settings.home.value.as_ref().ok_or("no home: set CODEX_SHIM_HOME or HOME")?;
    let scratch = Scratch::new(home)?;
    let ran = codex::write_schema(codex, scratch.path());
    let schema = Schema::of(json_files(scratch.path()));
    drop(scratch);
    match (ran, schema) {
        (Ran::Well(_), Some(schema)) => {
            let known = Known { version, schema };
            if keeping == Keeping::Kept {
                keep(settings, &known);
            }
            Ok(known)
        }
        (Ran::Well(_), None) => Err(format!("{at} writes a schema that is none of the app-server")),
        (Ran::Badly(why), _) => Err(format!("{at} writes no schema: {why}")),
        (Ran::TooSlow, _) => Err(format!("{at} writes no schema in time")),
    }
}

/// `0.171.0` in `codex-cli 0.171.0`.
fn version_in(told: &str) -> Option<String> {
    let version = told.split_whitespace().find(|word| word.starts_with(|char: char| char.is_ascii_digit()))?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || ".-+".contains(char);
    (version.len() <= 64 && version.chars().all(is_plain)).then(|| version.to_owned())
}

/// The files of a folder and of those in it: their names below it, and their bytes.
fn json_files(folder: &Path) -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in [folder.to_owned(), folder.join("v1"), folder.join("v2")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let is_whole = std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= FILE_BYTES_MAX);
            if is_whole
                && path.extension() == Some(OsStr::new("json"))
                && let (Some(name), Ok(bytes)) = (path.file_name(), std::fs::read(&path))
            {
                found.push((name.to_string_lossy().into_owned(), bytes));
            }
        }
    }
    found.into_iter()
}

fn folder(settings: &Settings) -> Option<PathBuf> {
    Some(settings.home.value.as_ref()?.join(FOLDER))
}

/// The stored protocol of a version.
pub(in super::super) fn kept(settings: &Settings, version: &str) -> Option<Known> {
    let bytes = Folder::at(&folder(settings)?).ok()?.read(format!("{version}.json")).ok()?;
    Some(Known { version: version.to_owned(), schema: serde_json::from_slice(&bytes).ok()? })
}

/// The versions with stored protocols, newest first.
pub(in super::super) fn kept_versions(settings: &Settings) -> Vec<String> {
    let Some(entries) = folder(settings).and_then(|folder| std::fs::read_dir(folder).ok()) else { return Vec::new() };
    let of = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some((entry.metadata().ok()?.modified().ok()?, name.strip_suffix(".json")?.to_owned()))
    };
    let mut versions: Vec<_> = entries.filter_map(of).collect();
    versions.sort_unstable();
    versions.into_iter().rev().map(|(_, version)| version).collect()
}

/// Keeps a protocol. Without it the next report asks again, so errors are only logged.
fn keep(settings: &Settings, known: &Known) {
    // A build from source has no version of its own.
    if known.version.starts_with("0.0.0") {
        return;
    }
    let Some((home, path)) = settings.home.value.as_ref().zip(folder(settings)) else { return };
    let kept = Folder::make_home(home).and_then(|_| {
        let bytes = serde_json::to_vec(&known.schema).map_err(io::Error::other)?;
        Folder::make(&path)?.put(format!("{}.json", known.version), &bytes)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "keep the protocol of codex");
    }
    for version in kept_versions(settings).into_iter().skip(KEPT_MAX) {
        let _ = std::fs::remove_file(path.join(format!("{version}.json")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_codex_says() {
        assert_eq!(version_in("codex-cli 0.171.0").as_deref(), Some("0.171.0"));
        assert_eq!(version_in("codex-cli 0.172.0-alpha.3").as_deref(), Some("0.172.0-alpha.3"));
        assert_eq!(version_in("codex ../../x"), None);
        assert_eq!(version_in("9/../../etc"), None);
    }
}
