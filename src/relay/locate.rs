//! Finding the real codex: by identity, never by name alone.
//!
//! What is found on `PATH` is compared with ourselves by device and inode, so a link to us, or a link to that, is passed
//! over. A wrapper that leads back to us cannot be seen this way; for that there is a limit on how many of us may stand
//! in a row.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Environment, Settings, Source, is_path};
use crate::files::Folder;

/// How many of us may stand in a row. An agent may well run a codex within a codex; a wrapper that comes back makes the
/// number grow without end.
const DEPTH_MAX: u32 = 8;

/// Why there is no server to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocateError {
    /// No codex on `PATH` but ourselves.
    NotOnPath {
        /// The folders that were looked into.
        looked_in: OsString,
    },
    /// The program that was named does not exist.
    NoSuchProgram {
        /// As it was named.
        program: PathBuf,
        /// By what, in words.
        named_by: String,
        /// The folders that were looked into; `None` for a path.
        looked_in: Option<OsString>,
    },
    /// The server command does not exist.
    NoSuchServer {
        /// As it was given.
        program: PathBuf,
        /// The folders that were looked into; `None` for a path.
        looked_in: Option<OsString>,
    },
    /// The program that was named is codex-shim.
    IsOurselves {
        /// As it was named.
        program: PathBuf,
        /// By what, in words.
        named_by: String,
    },
    /// We were started by ourselves too often.
    LeadsBack {
        /// How often.
        depth: u32,
    },
}

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "set CODEX_SHIM_CODEX or `codex` in config.toml to the path of the real codex, or use `codex-shim run --codex PATH`";
        match self {
            LocateError::NotOnPath { looked_in } => {
                write!(f, "no codex found in PATH ({}); {REMEDY}", looked_in.display())
            }
            LocateError::NoSuchProgram { program, named_by, looked_in: None } => {
                write!(f, "{} (set by {named_by}) does not exist; {REMEDY}", program.display())
            }
            LocateError::NoSuchProgram { program, named_by, looked_in: Some(looked_in) } => {
                let (program, looked_in) = (program.display(), looked_in.display());
                write!(f, "{program} (set by {named_by}) is not in PATH ({looked_in}); {REMEDY}")
            }
            LocateError::NoSuchServer { program, looked_in: None } => {
                write!(f, "the server command {} does not exist; give its path after `--`", program.display())
            }
            LocateError::NoSuchServer { program, looked_in: Some(looked_in) } => {
                let (program, looked_in) = (program.display(), looked_in.display());
                write!(f, "the server command {program} is not in PATH ({looked_in}); give its path after `--`")
            }
            LocateError::IsOurselves { program, named_by } => {
                write!(f, "{} (set by {named_by}) is codex-shim itself; {REMEDY}", program.display())
            }
            LocateError::LeadsBack { depth } => {
                write!(f, "codex-shim has started itself {depth} times in a row; {REMEDY}")
            }
        }
    }
}

impl std::error::Error for LocateError {}

/// What a codex is called that stands beside a link of ours that has taken its name.
pub const SET_ASIDE: &str = "codex-before-codex-shim";

/// The file, in our home, that has what `codex-shim wrap` has done.
pub const WRAPPED_FILE: &str = "wrapped.json";

/// Fails where so many of us stand in a row that one of them must have been led back to.
///
/// # Errors
///
/// [`LocateError::LeadsBack`].
pub fn check_depth(environment: &Environment) -> Result<(), LocateError> {
    let depth = environment.depth();
    if depth >= DEPTH_MAX { Err(LocateError::LeadsBack { depth }) } else { Ok(()) }
}

/// The path of the real codex.
///
/// # Errors
///
/// [`LocateError`], which says where it looked and how to name it.
pub fn codex(settings: &Settings, environment: &Environment) -> Result<PathBuf, LocateError> {
    let ourselves = ourselves();
    let path = environment.get("PATH").unwrap_or_default();
    match &settings.codex.value {
        None => {
            let started_as = PathBuf::from(std::env::args_os().next().unwrap_or_default());
            let record = Wrapped::read(settings.home.value.as_deref());
            if let Some(codex) = record.named_before(&started_as) {
                let named_by = "the setting that codex-shim wrap has changed".to_owned();
                return named(&codex, named_by, &path, ourselves);
            }
            beside(&started_as, ourselves)
                .or_else(|| on_path(OsStr::new("codex"), &path, ourselves))
                .or_else(|| record.any(ourselves))
                .ok_or(LocateError::NotOnPath { looked_in: path })
        }
        Some(program) => {
            let named_by = match &settings.codex.source {
                Source::File => "`codex` in config.toml".to_owned(),
                other @ (Source::Flag(_) | Source::Variable(_) | Source::Default) => other.to_string(),
            };
            named(program, named_by, &path, ourselves)
        }
    }
}

/// The path of a server that was given as a command.
///
/// # Errors
///
/// [`LocateError::NoSuchServer`].
pub fn server(program: &OsStr, environment: &Environment) -> Result<PathBuf, LocateError> {
    let missing = |looked_in| LocateError::NoSuchServer { program: program.into(), looked_in };
    if is_path(program) {
        return Some(PathBuf::from(program)).filter(|program| program.exists()).ok_or_else(|| missing(None));
    }
    let path = environment.get("PATH").unwrap_or_default();
    on_path(program, &path, None).ok_or_else(|| missing(Some(path)))
}

fn named(program: &Path, named_by: String, path: &OsStr, ourselves: Option<Identity>) -> Result<PathBuf, LocateError> {
    let (found, looked_in) = if is_path(program.as_os_str()) {
        (Some(program.to_owned()).filter(|program| program.exists()), None)
    } else {
        (on_path(program.as_os_str(), path, ourselves), Some(path.to_owned()))
    };
    match found {
        None => Err(LocateError::NoSuchProgram { program: program.to_owned(), named_by, looked_in }),
        Some(found) if Identity::of(&found).is_some_and(|found| Some(found) == ourselves) => {
            Err(LocateError::IsOurselves { program: found, named_by })
        }
        Some(found) => Ok(found),
    }
}

/// The codex that was set aside for the link by whose path we were started, wherever that is.
fn beside(started_as: &Path, ourselves: Option<Identity>) -> Option<PathBuf> {
    let is_link_of_ours = is_path(started_as.as_os_str()) && started_as.file_name() == Some(OsStr::new("codex"));
    let aside = is_link_of_ours.then(|| started_as.with_file_name(SET_ASIDE))?;
    Some(aside).filter(|aside| is_program(aside) && Identity::of(aside) != ourselves)
}

/// What `codex-shim wrap` says that it has done.
#[derive(Default)]
struct Wrapped(Vec<serde_json::Value>);

impl Wrapped {
    /// Nothing, where that cannot be read.
    fn read(home: Option<&Path>) -> Wrapped {
        let text = home.and_then(|home| Folder::home(home).and_then(|home| home.read(WRAPPED_FILE)).ok());
        Wrapped(text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
    }

    /// The codex that a tool's setting named before it named the link by whose path we were started.
    fn named_before(&self, started_as: &Path) -> Option<PathBuf> {
        let done =
            self.0.iter().find(|done| done["link"].as_str().is_some_and(|link| Path::new(link) == started_as))?;
        done["codex"].as_str().map(PathBuf::from)
    }

    /// The first codex that was set aside or was named by a setting, and that is there.
    fn any(&self, ourselves: Option<Identity>) -> Option<PathBuf> {
        let codexes = ["set_aside", "codex"].into_iter().flat_map(|name| self.0.iter().map(move |done| &done[name]));
        let codexes = codexes.filter_map(|codex| codex.as_str()).map(PathBuf::from);
        codexes.into_iter().find(|codex| is_program(codex) && Identity::of(codex) != ourselves)
    }
}

fn is_program(candidate: &PathBuf) -> bool {
    let is_file = candidate.metadata().is_ok_and(|metadata| metadata.is_file());
    is_file && rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The first executable file called `name` in the folders of `path` that is not `but`.
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

/// What makes two paths the same file.
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
    // The link stays right when the file that we were started from has been replaced since.
    Identity::of(Path::new("/proc/self/exe")).or_else(|| Identity::of(&std::env::current_exe().ok()?))
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
    fn links_to_ourselves_are_passed_over() {
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
    fn a_file_that_cannot_be_run_is_passed_over() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(root.path().join("codex"), "text").expect("write");
        assert_eq!(on_path(OsStr::new("codex"), root.path().as_os_str(), None), None);
    }
}
