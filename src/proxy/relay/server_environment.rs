//! What a server has from its environment that a shell or an interpreter reads before the command: start-up files and variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::interpreters;
use crate::config::Environment;
use crate::files::{InReach, Reach};

/// Files that shells read when they start or end, in the home folder.
const START_FILES: [&str; 12] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".kshrc",
    ".mkshrc",
    ".profile",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// The same of the system, and folders of them.
const START_FILES_OF_SYSTEM: [&str; 10] = [
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/ksh.kshrc",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/zlogin",
    "/etc/zprofile",
    "/etc/zsh",
    "/etc/zshenv",
    "/etc/zshrc",
];

/// Folder of scripts in codex's home that a shell may read before a command. Source: the feature `shell_snapshot` of codex.
const SNAPSHOTS: &str = "shell_snapshots";

/// The variables of the server that decide which files a command runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerEnvironment {
    pub(super) path: OsString,
    pub(super) home: Option<OsString>,
    pub(super) shell: Option<OsString>,
    pub(super) zdotdir: Option<OsString>,
    pub(super) codex_home: PathBuf,
    /// Folders of temporary files.
    pub(super) temporary: Vec<PathBuf>,
    /// `BASH_ENV` and `ENV`: files that a shell runs first.
    pub(super) first: Vec<(&'static str, OsString)>,
    /// Variables of interpreters and of the loader.
    pub(super) variables: Vec<(&'static str, OsString)>,
}

impl ServerEnvironment {
    /// The environment of a server that inherits ours, perhaps with another PATH.
    pub fn of(environment: &Environment, path: Option<OsString>) -> ServerEnvironment {
        let get = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let temporary = [Some("/tmp".into()), Some("/var/tmp".into()), get("TMPDIR").map(PathBuf::from)];
        ServerEnvironment {
            path: path.or_else(|| get("PATH")).unwrap_or_default(),
            home: get("HOME"),
            shell: get("SHELL"),
            zdotdir: get("ZDOTDIR"),
            codex_home: environment.codex_home(),
            temporary: temporary.into_iter().flatten().chain([std::env::temp_dir()]).collect(),
            first: ["BASH_ENV", "ENV"].into_iter().filter_map(|name| Some((name, get(name)?))).collect(),
            variables: interpreters::variables().filter_map(|name| Some((name, get(name)?))).collect(),
        }
    }

    pub(super) fn path(&self) -> &OsStr {
        &self.path
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref().map(Path::new)
    }

    pub(super) fn zdotdir(&self) -> Option<&Path> {
        self.zdotdir.as_deref().map(Path::new)
    }

    /// Folders in which a sandbox lets a model write, unless it excludes them.
    pub fn temporary(&self) -> &[PathBuf] {
        &self.temporary
    }

    /// One of the variables of [`interpreters::variables`].
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(seen, _)| *seen == name).map(|(_, value)| value.as_os_str())
    }
}

/// The files that a shell reads when it starts or ends are out of reach. All shells count, since one may start another.
pub(super) fn check_start_files(reach: &Reach, server: &ServerEnvironment) -> Result<(), InReach> {
    let home = server.home().ok_or_else(|| InReach::Unclear(interpreters::NO_HOME.to_owned()))?;
    let zdotdir = server.zdotdir().unwrap_or(home);
    for folder in [home, zdotdir] {
        is_absolute(folder)?;
        START_FILES.iter().try_for_each(|name| check_start_file(reach, &folder.join(name)))?;
    }
    for (name, file) in &server.first {
        // `ENV=production` is a name of the user's, and only a shell at a terminal would read such a file.
        if *name == "ENV" && !file.as_bytes().contains(&b'/') {
            continue;
        }
        if !file.as_bytes().starts_with(b"/") || file.as_bytes().contains(&b'$') {
            let why = format!("the server's variable {name} is not a plain absolute path; write it out");
            return Err(InReach::Unclear(why));
        }
        reach.check(Path::new(file)).map_err(|why| why.named(&format!("the variable {name}")))?;
    }
    START_FILES_OF_SYSTEM.iter().try_for_each(|file| check_start_file(reach, Path::new(file)))
}

fn check_start_file(reach: &Reach, path: &Path) -> Result<(), InReach> {
    interpreters::check_with_entries(reach, path).map_err(|why| why.named("a start-up file of shells"))
}

/// The scripts that codex has its shells read are out of reach.
pub(super) fn check_snapshots(reach: &Reach, server: &ServerEnvironment) -> Result<(), InReach> {
    is_absolute(&server.codex_home)?;
    let checked = interpreters::check_with_entries(reach, &server.codex_home.join(SNAPSHOTS));
    checked.map_err(|why| why.named("a script that codex has its shells read"))
}

fn is_absolute(folder: &Path) -> Result<(), InReach> {
    let why = || format!("the path of the shell's start-up files, {}, is not absolute", folder.display());
    if folder.is_absolute() { Ok(()) } else { Err(InReach::Unclear(why())) }
}

/// Whether a variable of the environment of a command decides which program runs, or what that or its shell reads first. A rule knows only the
/// environment of the server.
pub fn decides(variable: &str) -> bool {
    is_watched(variable) || ["SHELL", "TMPDIR", "CODEX_HOME"].contains(&variable)
}

/// Whether a variable decides what a program reads when it starts, or which one starts.
pub(super) fn is_watched(variable: &str) -> bool {
    ["PATH", "HOME", "ZDOTDIR", "BASH_ENV", "ENV"].contains(&variable)
        || interpreters::variables().any(|name| name == variable)
}
