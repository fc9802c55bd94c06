//! Finds the real codex by its identity, never by its name alone.
//!
//! Each candidate on `PATH` is compared with our own device and inode numbers, so a link to codex-shim, direct or not,
//! is skipped. This cannot detect a wrapper script that starts codex-shim again; a limit on nested relays stops that
//! loop.
//!
//! `codex-shim wrap` pins the codex that it finds: an editor that was started from the desktop may have no PATH that
//! contains it. A link that a tool's setting names runs its pinned codex, and another one on PATH only if the pinned
//! one is gone. A link on PATH runs the codex on PATH, as it would without us, and its pinned one only if PATH has no
//! codex.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Environment, Settings, Source, is_path};
use crate::files::{self, Folder};
use crate::os::fs::{Access, check_access};
use crate::os::processes::own_program;

/// Limit of nested relays. An agent may well run a codex within a codex; a wrapper that loops increases the number
/// forever.
const DEPTH_MAX: u32 = 8;

/// The remedy if the real codex is not found.
const REMEDY: &str = "set CODEX_SHIM_CODEX or `codex` in config.toml to the path of the real codex, or use `codex-shim run --codex PATH`";

/// Why no server can be started. `looked_in` are the folders that were searched, if any; `named_by` is the setting's origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// PATH has no codex other than codex-shim.
    #[error("no codex found in PATH ({}); {REMEDY}", .looked_in.display())]
    NotOnPath { looked_in: OsString },
    /// The codex that `wrap` pinned for `target` is gone, and PATH has no other.
    #[error(
        "the codex pinned by `codex-shim wrap {target}`, {}, is gone, and PATH has no codex ({}); run `codex-shim wrap \
         {target}` again in a terminal in which codex runs", .pinned.display(), .looked_in.display()
    )]
    PinIsGone { pinned: PathBuf, target: String, looked_in: OsString },
    /// The configured program does not exist.
    #[error("{} (set by {named_by}) {}; {REMEDY}", .program.display(), missing(.looked_in.as_deref()))]
    NoSuchProgram { program: PathBuf, named_by: String, looked_in: Option<OsString> },
    #[error("the server command {} {}; give its path after `--`", .program.display(), missing(.looked_in.as_deref()))]
    NoSuchServer { program: PathBuf, looked_in: Option<OsString> },
    /// The configured program is codex-shim.
    #[error("{} (set by {named_by}) is codex-shim itself; {REMEDY}", .program.display())]
    IsOurselves { program: PathBuf, named_by: String },
    /// codex-shim has started itself too often.
    #[error("codex-shim has started itself {depth} times in a row; {REMEDY}")]
    LeadsBack { depth: u32 },
}

fn missing(looked_in: Option<&OsStr>) -> String {
    looked_in.map_or("does not exist".to_owned(), |folders| format!("is not in PATH ({})", folders.display()))
}

/// The name that `wrap` gives a codex whose place its link takes.
pub const SET_ASIDE: &str = "codex-before-codex-shim";

/// The file in our home that records what `codex-shim wrap` has changed.
pub const WRAPPED_FILE: &str = "wrapped.json";

/// The link in our home that version 0.1 wrote into the settings of tools.
pub const SHARED_LINK: &str = "bin/codex";

/// Fails if so many relays are nested that one of them must be a loop.
pub fn check_depth(environment: &Environment) -> Result<(), LocateError> {
    let depth = environment.depth();
    if depth >= DEPTH_MAX { Err(LocateError::LeadsBack { depth }) } else { Ok(()) }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codex {
    pub program: PathBuf,
    /// The PATH for codex, if it differs from ours: an npm launcher needs the `node` that it was pinned with.
    pub path: Option<OsString>,
    /// A line for the user if this is not the pinned codex.
    pub notice: Option<String>,
}

impl Codex {
    fn plain(program: PathBuf) -> Codex {
        Codex { program, path: None, notice: None }
    }
}

/// Finds the real codex.
pub fn codex(settings: &Settings, environment: &Environment) -> Result<Codex, LocateError> {
    let ourselves = ourselves();
    let path = environment.get("PATH").unwrap_or_default();
    match &settings.codex.value {
        None => {
            let started_as = started_as(&path, ourselves);
            let record = Record::read(settings.home.value.as_deref(), &started_as);
            match record.entry_of(&started_as) {
                Some(entry) => codex_for(&entry, &record, &path, ourselves),
                None => renamed_codex(&started_as, ourselves)
                    .or_else(|| on_path(OsStr::new("codex"), &path, ourselves))
                    .map(Codex::plain)
                    .or_else(|| record.first_existing(&path, ourselves))
                    .ok_or(LocateError::NotOnPath { looked_in: path }),
            }
        }
        Some(program) => {
            let named_by = match &settings.codex.source {
                Source::File => "`codex` in config.toml".to_owned(),
                other @ (Source::Flag(_) | Source::Variable(_) | Source::Default) => other.to_string(),
            };
            named(program, named_by, &path, ourselves).map(Codex::plain)
        }
    }
}

/// The codex for a tool that started us by a link of `wrap`.
fn codex_for(
    entry: &WrapLink,
    record: &Record,
    path: &OsStr,
    ourselves: Option<Identity>,
) -> Result<Codex, LocateError> {
    let with_path = |program| Codex { program, path: with_folders(path, &entry.folders), notice: None };
    if let Some(own) = &entry.own {
        let named_by = "the setting that codex-shim wrap has changed".to_owned();
        return named(own, named_by, path, ourselves).map(with_path);
    }
    let pinned = entry.pinned.clone().filter(|pinned| is_program(pinned) && Identity::of(pinned) != ourselves);
    let found = || on_path(OsStr::new("codex"), path, ourselves);
    let other = match (entry.is_setting, pinned) {
        (true, Some(pinned)) => return Ok(with_path(pinned)),
        (false, pinned) => {
            let aside = renamed_codex(&entry.link, ourselves).map(with_path);
            let first = aside.or_else(|| found().map(Codex::plain)).or_else(|| pinned.map(with_path));
            if let Some(codex) = first {
                return Ok(codex);
            }
            record.first_existing(path, ourselves)
        }
        (true, None) => found().map(Codex::plain).or_else(|| record.first_existing(path, ourselves)),
    };
    match (other, &entry.pinned) {
        (Some(codex), None) => Ok(codex),
        (Some(codex), Some(pinned)) => {
            let (pinned, target, program) = (pinned.display(), &entry.target, codex.program.display());
            let notice = format!(
                "the codex pinned by `codex-shim wrap {target}`, {pinned}, is gone; {program} runs instead; repeat the \
                 wrap to pin it"
            );
            Ok(Codex { notice: Some(notice), ..codex })
        }
        (None, Some(pinned)) => Err(LocateError::PinIsGone {
            pinned: pinned.clone(),
            target: entry.target.clone(),
            looked_in: path.to_owned(),
        }),
        (None, None) => Err(LocateError::NotOnPath { looked_in: path.to_owned() }),
    }
}

/// The folders that a codex needs on PATH: if it is a script, those of its interpreters.
#[must_use]
pub fn folders_for(codex: &Path, environment: &Environment) -> Vec<PathBuf> {
    let mut first = [0; 256];
    let read = files::open_named(codex).and_then(|mut file| file.read(&mut first)).unwrap_or(0);
    let Some(line) = first[..read].strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next()) else {
        return Vec::new();
    };
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let is_env = words.next().is_some_and(|program| program.ends_with("/env"));
    let by_env = words.find(|word| !word.starts_with('-') && !word.contains('=')).filter(|_| is_env);
    let path = environment.get("PATH").unwrap_or_default();
    let mut folders = Vec::new();
    // A launcher that is a shell script starts `node` itself.
    for name in by_env.into_iter().chain(["node"]) {
        let program = on_path(OsStr::new(name), &path, None).and_then(|program| std::path::absolute(program).ok());
        let folder = program.and_then(|program| program.parent().map(Path::to_owned));
        folders.extend(folder.filter(|folder| !folders.contains(folder)));
    }
    folders
}

/// PATH with the missing ones of `folders` in front; `None` if none is missing.
fn with_folders(path: &OsStr, folders: &[PathBuf]) -> Option<OsString> {
    let has: Vec<PathBuf> = std::env::split_paths(path).collect();
    let lacks: Vec<PathBuf> = folders.iter().filter(|folder| !has.contains(folder)).cloned().collect();
    let all = std::env::join_paths(lacks.iter().chain(&has)).ok()?;
    (!lacks.is_empty()).then_some(all)
}

/// The path of the program of a server command.
pub fn server(program: &OsStr, environment: &Environment) -> Result<PathBuf, LocateError> {
    find(program, &environment.get("PATH").unwrap_or_default(), None)
        .map_err(|looked_in| LocateError::NoSuchServer { program: program.into(), looked_in })
}

/// The program at a path, or the one of this name in the folders of `path`, except `but`.
///
/// # Errors
///
/// The folders that were searched, if any.
fn find(program: &OsStr, path: &OsStr, but: Option<Identity>) -> Result<PathBuf, Option<OsString>> {
    match is_path(program) {
        true => Some(PathBuf::from(program)).filter(|program| program.exists()).ok_or(None),
        false => on_path(program, path, but).ok_or_else(|| Some(path.to_owned())),
    }
}

fn named(program: &Path, named_by: String, path: &OsStr, ourselves: Option<Identity>) -> Result<PathBuf, LocateError> {
    match find(program.as_os_str(), path, ourselves) {
        Err(looked_in) => Err(LocateError::NoSuchProgram { program: program.to_owned(), named_by, looked_in }),
        Ok(found) if Identity::of(&found).is_some_and(|found| Some(found) == ourselves) => {
            Err(LocateError::IsOurselves { program: found, named_by })
        }
        Ok(found) => Ok(found),
    }
}

/// The codex that `wrap` renamed for the link that started us.
fn renamed_codex(started_as: &Path, ourselves: Option<Identity>) -> Option<PathBuf> {
    let is_link_of_ours = is_path(started_as.as_os_str()) && started_as.file_name() == Some(OsStr::new("codex"));
    let aside = is_link_of_ours.then(|| started_as.with_file_name(SET_ASIDE))?;
    Some(aside).filter(|aside| is_program(aside) && Identity::of(aside) != ourselves)
}

/// The absolute path of the link or program that started us.
fn started_as(path: &OsStr, ourselves: Option<Identity>) -> PathBuf {
    let name = std::env::args_os().next().unwrap_or_default();
    if is_path(&name) {
        return std::path::absolute(&name).unwrap_or_else(|_| name.into());
    }
    let mut candidates = std::env::split_paths(path).map(|folder| folder.join(&name));
    candidates.find(|candidate| Identity::of(candidate) == ourselves).unwrap_or_else(|| name.into())
}

/// The changes that `codex-shim wrap` has recorded.
#[derive(Default)]
struct Record(Vec<WrapLink>);

/// A link that `wrap` made, and its codex.
#[derive(Debug, Clone)]
struct WrapLink {
    target: String,
    link: PathBuf,
    /// Whether a tool's setting names the link.
    is_setting: bool,
    /// The codex that the setting named before `wrap`, chosen by the user.
    own: Option<PathBuf>,
    /// The codex that was renamed for the link.
    set_aside: Option<PathBuf>,
    pinned: Option<PathBuf>,
    /// The folders that the pinned codex needs on PATH.
    folders: Vec<PathBuf>,
    /// Its clients join the hub.
    is_shared: bool,
}

impl Record {
    /// Reads the records in our home and in the home that contains the link: an editor may lack CODEX_SHIM_HOME.
    fn read(home: Option<&Path>, started_as: &Path) -> Record {
        let bin = started_as.ancestors().skip(1).take(2).find(|folder| folder.file_name() == Some(OsStr::new("bin")));
        let homes = [home, bin.and_then(Path::parent).filter(|of_link| Some(*of_link) != home)];
        Record(homes.into_iter().flatten().flat_map(Record::entries).collect())
    }

    /// The entries of a home; empty if the record cannot be read.
    fn entries(home: &Path) -> Vec<WrapLink> {
        let text = Folder::home(home).and_then(|home| home.read(WRAPPED_FILE)).ok();
        let done: Vec<serde_json::Value> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        done.iter().map(|done| WrapLink::of(done, home)).collect()
    }

    fn entry_of(&self, started_as: &Path) -> Option<WrapLink> {
        self.0.iter().find(|entry| entry.link == started_as).cloned()
    }

    /// The first recorded codex that still exists.
    fn first_existing(&self, path: &OsStr, ourselves: Option<Identity>) -> Option<Codex> {
        let aside = self.0.iter().map(|entry| (&entry.set_aside, entry));
        let own = self.0.iter().map(|entry| (&entry.own, entry));
        let pinned = self.0.iter().map(|entry| (&entry.pinned, entry));
        let mut all = aside.chain(own).chain(pinned).filter_map(|(codex, entry)| Some((codex.clone()?, entry)));
        let (program, entry) = all.find(|(codex, _)| is_program(codex) && Identity::of(codex) != ourselves)?;
        Some(Codex { program, path: with_folders(path, &entry.folders), notice: None })
    }
}

impl WrapLink {
    fn of(done: &serde_json::Value, home: &Path) -> WrapLink {
        let path_in = |value: &serde_json::Value| value.as_str().map(PathBuf::from);
        let is_setting = done["change"] == "file";
        let link = if is_setting { path_in(&done["link"]) } else { path_in(&done["path"]) };
        // A folder may have been named by a relative path.
        let target = if is_setting || done["target"] == "path" { &done["target"] } else { &done["path"] };
        let folders = done["pinned"]["folders"].as_array().into_iter().flatten();
        WrapLink {
            target: target.as_str().unwrap_or_default().to_owned(),
            // Version 0.1 had one link for all settings.
            link: link.unwrap_or_else(|| home.join(SHARED_LINK)),
            is_setting,
            own: path_in(&done["codex"]),
            set_aside: path_in(&done["set_aside"]),
            pinned: path_in(&done["pinned"]["codex"]),
            folders: folders.filter_map(path_in).collect(),
            is_shared: done["shared"] == true,
        }
    }
}

/// Whether a link that started us was made by `wrap --shared`.
pub fn is_shared(settings: &Settings, environment: &Environment) -> bool {
    let started_as = started_as(&environment.get("PATH").unwrap_or_default(), ourselves());
    let record = Record::read(settings.home.value.as_deref(), &started_as);
    record.entry_of(&started_as).is_some_and(|entry| entry.is_shared)
}

/// Whether the path leads to an executable file.
pub fn is_program(candidate: &PathBuf) -> bool {
    let is_file = candidate.metadata().is_ok_and(|metadata| metadata.is_file());
    is_file && check_access(candidate, Access::EXEC_OK).is_ok()
}

/// The first executable file called `name` in the folders of `path`, except `but`.
fn on_path(name: &OsStr, path: &OsStr, but: Option<Identity>) -> Option<PathBuf> {
    let in_dir = |dir: PathBuf| {
        let candidate = dir.join(name);
        if but.is_some() && Identity::of(&candidate) == but {
            return Some(dir.join(SET_ASIDE)).filter(is_program).filter(|aside| Identity::of(aside) != but);
        }
        Some(candidate).filter(is_program)
    };
    std::env::split_paths(path).find_map(in_dir)
}

/// Two paths with the same identity lead to the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        path.metadata().ok().map(|metadata| Identity::from(&metadata))
    }
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Identity {
        Identity { device: metadata.dev(), inode: metadata.ino() }
    }
}

fn ourselves() -> Option<Identity> {
    Identity::of(&own_program())
}

/// The path of this program for a link: its name on PATH, or the path that started it. An upgrade replaces the program
/// behind the name on PATH; a path into a build folder breaks with the next clean build.
pub struct OwnPath {
    pub path: PathBuf,
    /// Whether the path was found on PATH.
    pub is_on_path: bool,
}

impl OwnPath {
    /// Looks up the path.
    ///
    /// # Errors
    ///
    /// If this program cannot be found.
    pub fn find(environment: &Environment) -> std::io::Result<OwnPath> {
        let ourselves = ourselves();
        let path = environment.get("PATH").unwrap_or_default();
        let mut named = std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join("codex-shim"))
            .filter(|candidate| is_program(candidate) && Identity::of(candidate) == ourselves);
        if let Some(path) = named.next() {
            return Ok(OwnPath { path, is_on_path: true });
        }
        let started_as = started_as(&path, ourselves);
        let path = match started_as.is_absolute() && Identity::of(&started_as) == ourselves {
            true => started_as,
            false => std::env::current_exe()?,
        };
        Ok(OwnPath { path, is_on_path: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn program(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, "#!/bin/sh\n").expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    }

    #[test]
    fn links_to_codex_shim_are_skipped() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let dirs: Vec<PathBuf> = ["a", "b", "c", "d"].iter().map(|name| root.path().join(name)).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("mkdir"));
        let us = program(root.path(), "us");
        symlink(&us, dirs[0].join("codex")).expect("link");
        symlink(dirs[0].join("codex"), dirs[1].join("codex")).expect("link");
        std::fs::create_dir(dirs[2].join("codex")).expect("a folder is no program");
        let real = program(&dirs[3], "codex");
        let path = std::env::join_paths(&dirs).expect("join");
        assert_eq!(on_path(OsStr::new("codex"), &path, Identity::of(&us)), Some(real));
        assert_eq!(on_path(OsStr::new("codex"), &path, None), Some(dirs[0].join("codex")));
        assert_eq!(on_path(OsStr::new("other"), &path, None), None);
    }

    #[test]
    fn files_that_are_not_executable_are_skipped() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(root.path().join("codex"), "text").expect("write");
        assert_eq!(on_path(OsStr::new("codex"), root.path().as_os_str(), None), None);
    }
}
