//! Checks the folder and the program of a command before a rule accepts it: the part of a rule's decision that needs files.
//!
//! A thread of its own does it, because a dead network drive can stall it for ever. The engine does not wait longer than its
//! deadline, and then asks the client. The thread confirms that
//!
//! - `config.toml` still has the rules that decided, so that a rule that is being edited or was removed accepts nothing;
//! - the folder's path has no link in it, so that it is the folder that the rule names;
//! - no folder on the way to the program, and no folder of PATH before it, can be written by another user, or lies where the
//!   model may write: in the command's own folder, or among the temporary files.
//!
//! It never runs anything. Another PATH, as a login shell may set, is out of its sight.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::config::{Environment, Flags, Settings};
use crate::engine::{ExactCommand, Input, ProgramCheck, Rule, Token};

/// Most checks at once. Further ones are refused: the others hang.
const CHECKS_MAX: usize = 8;

/// Most links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The parser of TOML calls itself for nested values.
const STACK_BYTES: usize = 2 << 20;

const EXECUTABLE: u32 = 0o111;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Starts checks on threads of their own.
#[derive(Debug)]
pub(crate) struct ProgramChecker {
    running: Arc<AtomicUsize>,
    /// The server's PATH.
    path: OsString,
}

impl ProgramChecker {
    pub(super) fn new(path: OsString) -> ProgramChecker {
        ProgramChecker { running: Arc::default(), path }
    }

    /// Starts a check and posts its result. Never waits.
    ///
    /// # Errors
    ///
    /// Why it could not be started; nothing is posted then.
    pub(super) fn check(
        &self,
        token: Token,
        check: ProgramCheck,
        rules: Vec<Rule>,
        post: impl Fn(Input) + Send + 'static,
    ) -> Result<(), String> {
        if self.running.fetch_add(1, Ordering::Relaxed) >= CHECKS_MAX {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return Err("the checks of earlier commands have not ended".to_owned());
        }
        let (running, path) = (Arc::clone(&self.running), self.path.clone());
        let started = thread("rule").spawn(move || {
            let checked = are_current(&rules).and_then(|()| program(&check.command, check.shell.as_deref(), &path));
            running.fetch_sub(1, Ordering::Relaxed);
            post(Input::ProgramChecked { token, checked });
        });
        started.map(drop).map_err(|error| {
            self.running.fetch_sub(1, Ordering::Relaxed);
            format!("start a thread: {error}")
        })
    }
}

/// [`program`], for a tool that waits at most `wait_max`.
pub(crate) fn program_in_time(
    command: &ExactCommand,
    shell: Option<&str>,
    path: &OsStr,
    wait_max: Duration,
) -> Result<String, String> {
    let (send, receive) = sync_channel(1);
    let (command, shell, path) = (command.clone(), shell.map(str::to_owned), path.to_owned());
    let started = thread("rule").spawn(move || drop(send.send(program(&command, shell.as_deref(), &path))));
    started.map_err(|error| format!("start a thread: {error}"))?;
    receive.recv_timeout(wait_max).unwrap_or_else(|_| Err(format!("the check took over {} ms", wait_max.as_millis())))
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES)
}

/// Whether the config file has these rules.
fn are_current(rules: &[Rule]) -> Result<(), String> {
    let (settings, _) = Settings::load(Flags::default(), &Environment::of_process());
    match settings.rules.value == rules {
        true => Ok(()),
        false => Err("config.toml has changed since its rules were read".to_owned()),
    }
}

/// The file that a command runs, as far as it can be told without the shell's own PATH.
///
/// # Errors
///
/// Why a rule must not accept the command.
fn program(command: &ExactCommand, shell: Option<&str>, path: &OsStr) -> Result<String, String> {
    let cwd = Path::new(command.cwd());
    let real = cwd.canonicalize().map_err(|error| format!("{}: {error}", cwd.display()))?;
    if real != cwd {
        return Err(format!("{} is reached through a link; its path is {}", cwd.display(), real.display()));
    }
    let model_writes = ModelWrites::of(cwd);
    if let Some(shell) = shell {
        model_writes.executable(Path::new(shell))?.ok_or_else(|| format!("{shell} does not exist"))?;
    }
    let name = command.argv().first().map(String::as_str).unwrap_or_default();
    let found = match name.contains('/') {
        true => model_writes.executable(Path::new(name))?,
        false => model_writes.on_path(name, path)?,
    };
    let found = found.ok_or_else(|| format!("{name} does not exist, or is not an executable file"))?;
    Ok(found.to_string_lossy().into_owned())
}

/// Folders in which the model may create files without asking.
struct ModelWrites(Vec<PathBuf>);

impl ModelWrites {
    fn of(cwd: &Path) -> ModelWrites {
        let temporary = [PathBuf::from("/tmp"), PathBuf::from("/var/tmp"), std::env::temp_dir()];
        let real = temporary.iter().filter_map(|folder| folder.canonicalize().ok());
        ModelWrites(std::iter::once(cwd.to_owned()).chain(real).chain(temporary.iter().cloned()).collect())
    }

    /// The first program of this name in the folders of PATH.
    fn on_path(&self, name: &str, path: &OsStr) -> Result<Option<PathBuf>, String> {
        for folder in std::env::split_paths(path) {
            if !folder.is_absolute() {
                return Err(format!("PATH has the relative folder `{}`", folder.display()));
            }
            if let Some(found) = self.executable(&folder.join(name))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The executable file at a path; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Somebody who must not can put a file there, or change the one that is there.
    fn executable(&self, path: &Path) -> Result<Option<PathBuf>, String> {
        let Some((real, file)) = self.walk(path)? else { return Ok(None) };
        if !file.is_file() || file.mode() & EXECUTABLE == 0 {
            return Ok(None);
        }
        match writable_by_others(&file) {
            true => Err(format!("other users can write to {}", real.display())),
            false => Ok(Some(real)),
        }
    }

    /// Follows a path part by part, as the kernel does, and checks each folder on the way.
    fn walk(&self, path: &Path) -> Result<Option<(PathBuf, Metadata)>, String> {
        let mut at = PathBuf::from("/");
        let mut left: VecDeque<PathBuf> = parts(path);
        let mut links = 0;
        let failed = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
        let mut folder = at.symlink_metadata().map_err(|error| failed(&at, &error))?;
        while let Some(part) = left.pop_front() {
            if part == Path::new("..") {
                at.pop();
                folder = at.symlink_metadata().map_err(|error| failed(&at, &error))?;
                continue;
            }
            let next = at.join(&part);
            if let Some(place) = self.0.iter().find(|place| next.starts_with(place)) {
                return Err(format!("{} is in {}, where the model may write", next.display(), place.display()));
            }
            if !is_trusted_owner(&folder) {
                return Err(format!("{} belongs to another user", at.display()));
            }
            let there = match next.symlink_metadata() {
                Ok(there) => there,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return if writable_by_others(&folder) { Err(shared(&at)) } else { Ok(None) };
                }
                Err(error) => return Err(failed(&next, &error)),
            };
            // In a sticky folder, only the owner can replace a file.
            let is_fixed = folder.mode() & STICKY != 0 && is_trusted_owner(&there);
            if writable_by_others(&folder) && !is_fixed {
                return Err(shared(&at));
            }
            if !is_trusted_owner(&there) {
                return Err(format!("{} belongs to another user", next.display()));
            }
            if there.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(format!("{} has too many links", path.display()));
                }
                let target = next.read_link().map_err(|error| failed(&next, &error))?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                    folder = at.symlink_metadata().map_err(|error| failed(&at, &error))?;
                }
                for part in parts(&target).into_iter().rev() {
                    left.push_front(part);
                }
            } else {
                (at, folder) = (next, there);
            }
        }
        Ok(Some((at, folder)))
    }
}

fn parts(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

fn shared(folder: &Path) -> String {
    format!("other users can write to {}", folder.display())
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_trusted_owner(there: &Metadata) -> bool {
    there.uid() == 0 || there.uid() == own_uid()
}

/// A group that has the number of the user is taken for the user's own.
fn writable_by_others(there: &Metadata) -> bool {
    let by_group = there.mode() & GROUP_WRITES != 0 && there.gid() != own_uid();
    !there.is_symlink() && (by_group || there.mode() & OTHERS_WRITE != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder that is not among the temporary ones: the build's.
    fn lab() -> tempfile::TempDir {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        let lab = tempfile::tempdir_in(target).expect("a folder");
        set_mode(lab.path(), 0o755);
        lab
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    fn add_program(path: &Path) {
        fs::create_dir_all(path.parent().expect("BUG: a file")).expect("a folder");
        set_mode(path.parent().expect("BUG: a file"), 0o755);
        fs::write(path, "#!/bin/sh\n").expect("a file");
        set_mode(path, 0o755);
    }

    fn found(argv0: &str, cwd: &Path, path: &str) -> Result<String, String> {
        let argv = vec![argv0.to_owned()];
        let command =
            ExactCommand::new(argv, cwd.to_string_lossy().into_owned(), true).expect("BUG: it can be accepted");
        program(&command, None, OsStr::new(path))
    }

    #[test]
    fn program_is_found_as_the_shell_finds_it() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let cwd = root.join("proj");
        fs::create_dir(&cwd).expect("a folder");
        add_program(&root.join("bin/tool"));
        add_program(&root.join("late/tool"));
        let path = format!("{0}/none:{0}/bin:{0}/late", root.display());
        let tool = root.join("bin/tool").display().to_string();
        assert_eq!(found("tool", &cwd, &path), Ok(tool.clone()));
        assert_eq!(found(&tool, &cwd, ""), Ok(tool.clone()));
        symlink("../bin/tool", root.join("late/link")).expect("a link");
        assert_eq!(found("link", &cwd, &path), Ok(tool));
        set_mode(&root.join("bin/tool"), 0o644);
        assert_eq!(found("tool", &cwd, &path), Ok(root.join("late/tool").display().to_string()));
        assert!(found("absent", &cwd, &path).expect_err("it is absent").contains("does not exist"));
    }

    #[test]
    fn places_where_the_model_writes_are_refused() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let cwd = root.join("proj");
        add_program(&cwd.join("bin/tool"));
        add_program(&root.join("bin/tool"));
        let refused = |argv0: &str, path: &str| found(argv0, &cwd, path).expect_err("it is refused");
        let inside = cwd.join("bin/tool").display().to_string();
        assert!(refused(&inside, "").contains("where the model may write"));
        // A folder of the project, before or in the place of the right one, even if it is missing.
        for first in ["bin", "missing"] {
            let path = format!("{}/{first}:{}/bin", cwd.display(), root.display());
            assert!(refused("tool", &path).contains("where the model may write"));
        }
        symlink(cwd.join("bin/tool"), root.join("bin/link")).expect("a link");
        assert!(refused("link", &format!("{}/bin", root.display())).contains("where the model may write"));
        assert!(refused("tool", "bin:/usr/bin").contains("relative folder"));
        assert!(refused("tool", ":/usr/bin").contains("relative folder"));
        assert!(refused("tool", "/tmp/bin:/usr/bin").contains("where the model may write"));
    }

    #[test]
    fn places_where_others_write_are_refused() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let cwd = root.join("proj");
        fs::create_dir(&cwd).expect("a folder");
        add_program(&root.join("bin/tool"));
        let path = format!("{}/bin", root.display());
        set_mode(&root.join("bin/tool"), 0o777);
        assert!(found("tool", &cwd, &path).expect_err("it is refused").contains("other users can write"));
        set_mode(&root.join("bin/tool"), 0o755);
        set_mode(&root.join("bin"), 0o777);
        assert!(found("tool", &cwd, &path).expect_err("it is refused").contains("other users can write"));
        assert!(found("absent", &cwd, &path).expect_err("it is refused").contains("other users can write"));
        set_mode(&root.join("bin"), 0o1777);
        assert!(found("tool", &cwd, &path).is_ok());
        assert!(found("absent", &cwd, &path).expect_err("it is refused").contains("other users can write"));
        set_mode(&root.join("bin"), 0o755);
        assert!(found("tool", &cwd, &path).is_ok());
    }

    #[test]
    fn folder_behind_a_link_is_refused() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        fs::create_dir(root.join("proj")).expect("a folder");
        symlink("proj", root.join("link")).expect("a link");
        add_program(&root.join("bin/tool"));
        let tool = root.join("bin/tool").display().to_string();
        assert!(found(&tool, &root.join("proj"), "").is_ok());
        let why = found(&tool, &root.join("link"), "").expect_err("it is refused");
        assert!(why.contains("reached through a link; its path is") && why.ends_with("/proj"), "{why}");
        assert!(found(&tool, &root.join("gone"), "").is_err());
    }
}
