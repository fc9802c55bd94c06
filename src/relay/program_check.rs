//! Checks the folder, the shell and the program of a command before a rule accepts it: the part of a rule's decision that
//! needs files.
//!
//! A thread of its own does it, because a dead network drive can stall it for ever. The engine does not wait longer than its
//! deadline, and then asks the client. The thread confirms that
//!
//! - `config.toml` still has the rules that decided, so that a rule that is being edited or was removed accepts nothing;
//! - the folder's path has no link in it, so that it is the folder that the rule names;
//! - the shell is the user's or the rule's, and no file that it reads before the command lies where the model may write;
//! - no folder on the way to the program or its interpreter, and no folder of PATH before it, can be written by another user,
//!   or lies where the model may write.
//!
//! It never runs anything. Another PATH, as a login shell may set, is out of its sight.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::config::{Environment, Flags, Settings};
use crate::engine::{ExactCommand, Input, ProgramCheck, Rule, Token, is_git, runs_others};

/// Most checks at once. Further ones are refused: the others hang.
const CHECKS_MAX: usize = 8;

/// Most links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// Most interpreters of one program: an interpreter may be a script too. Source: `exec(2)`.
const INTERPRETERS_MAX: usize = 4;

/// Bytes of a script that the kernel looks at.
const SCRIPT_HEAD_BYTES: u64 = 256;

/// Files that shells read when they start, in the home folder.
const START_FILES: [&str; 10] = [
    ".bash_login",
    ".bash_profile",
    ".bashrc",
    ".kshrc",
    ".mkshrc",
    ".profile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// Folder of scripts in codex's home that a shell may read before a command. Source: the feature `shell_snapshot` of codex.
const SNAPSHOTS: &str = "shell_snapshots";

/// One program with the names of many.
const OF_MANY_NAMES: [&str; 3] = ["busybox", "coreutils", "toybox"];

/// The parser of TOML calls itself for nested values.
const STACK_BYTES: usize = 2 << 20;

const EXECUTABLE: u32 = 0o111;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The variables of the server that decide which files a command runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerEnvironment {
    path: OsString,
    home: Option<OsString>,
    shell: Option<OsString>,
    zdotdir: Option<OsString>,
    codex_home: PathBuf,
    /// Folders of temporary files.
    temporary: Vec<PathBuf>,
    /// `BASH_ENV` and `ENV`: files that a shell runs first.
    first: Vec<(&'static str, OsString)>,
}

impl ServerEnvironment {
    /// The environment of a server that inherits ours, perhaps with another PATH.
    pub(crate) fn of(environment: &Environment, path: Option<OsString>) -> ServerEnvironment {
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
        }
    }
}

/// Starts checks on threads of their own.
#[derive(Debug)]
pub(crate) struct ProgramChecker {
    running: Arc<AtomicUsize>,
    server: Arc<ServerEnvironment>,
}

/// Counts a check as running until it is dropped, also by a panic.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(running: &Arc<AtomicUsize>) -> Option<Running> {
        let before = running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(running));
        (before < CHECKS_MAX).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ProgramChecker {
    pub(super) fn new(server: ServerEnvironment) -> ProgramChecker {
        ProgramChecker { running: Arc::default(), server: Arc::new(server) }
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
        let running = Running::begin(&self.running).ok_or("the checks of earlier commands have not ended")?;
        let server = Arc::clone(&self.server);
        let started = thread("rule").spawn(move || {
            let checked = are_current(&rules).and_then(|()| program(&check, &server));
            drop(running);
            post(Input::ProgramChecked { token, checked });
        });
        started.map(drop).map_err(|error| format!("start a thread: {error}"))
    }
}

/// [`program`], for a tool that waits at most `wait_max`.
pub(crate) fn program_in_time(
    check: ProgramCheck,
    server: ServerEnvironment,
    wait_max: Duration,
) -> Result<String, String> {
    let (send, receive) = sync_channel(1);
    let started = thread("rule").spawn(move || drop(send.send(program(&check, &server))));
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
fn program(check: &ProgramCheck, server: &ServerEnvironment) -> Result<String, String> {
    let command = &check.command;
    let cwd = Path::new(command.cwd());
    let real = cwd.canonicalize().map_err(|error| format!("{}: {error}", cwd.display()))?;
    if real != cwd {
        return Err(format!("{} is reached through a link; its path is {}", cwd.display(), real.display()));
    }
    let model_writes = ModelWrites::of(check, server);
    if let Some(shell) = &check.shell {
        check_shell(command, Path::new(shell), server)?;
        model_writes.executable(Path::new(shell))?.ok_or_else(|| format!("{shell} does not exist"))?;
        model_writes.check_start_files(server)?;
    }
    let name = command.argv().first().map(String::as_str).unwrap_or_default();
    let found = match name.contains('/') {
        true => model_writes.executable(Path::new(name))?,
        false => model_writes.on_path(name, &server.path)?,
    };
    let found = found.ok_or_else(|| format!("{name} does not exist, or is not an executable file"))?;
    let real_name = found.file_name().unwrap_or_default().to_string_lossy();
    if let Some(why) = runs_others(&real_name).filter(|_| !OF_MANY_NAMES.contains(&&*real_name)) {
        return Err(format!("{name} is {}, which {why}", found.display()));
    }
    if is_git(&real_name) && !command.trust().repository {
        return Err(format!("{name} is {}, which can run files that the model writes", found.display()));
    }
    model_writes.check_interpreters(&found, &server.path)?;
    Ok(found.to_string_lossy().into_owned())
}

/// Whether a shell is the one whose start-up files the user has in mind.
fn check_shell(command: &ExactCommand, shell: &Path, server: &ServerEnvironment) -> Result<(), String> {
    let wanted = match (command.shell(), &server.shell) {
        (Some(shell), _) => PathBuf::from(shell),
        (None, Some(shell)) => PathBuf::from(shell),
        (None, None) => {
            return Err("the server has no variable SHELL; name the shell in the rule: `shell = …`".to_owned());
        }
    };
    // `/bin` is often a link to `/usr/bin`.
    let is_same = || wanted.canonicalize().is_ok_and(|wanted| shell.canonicalize().is_ok_and(|shell| shell == wanted));
    match shell == wanted || (shell.file_name() == wanted.file_name() && is_same()) {
        true => Ok(()),
        false => Err(format!("{} is not your shell, {}", shell.display(), wanted.display())),
    }
}

/// Folders in which the model may create files without asking.
struct ModelWrites(Vec<PathBuf>);

impl ModelWrites {
    fn of(check: &ProgramCheck, server: &ServerEnvironment) -> ModelWrites {
        let cwds = [check.command.cwd(), &check.workspace.cwd].map(PathBuf::from);
        let repositories = cwds.iter().filter_map(|cwd| outermost_repository(cwd));
        let places = check.workspace.places.iter().map(PathBuf::from);
        let places: Vec<PathBuf> =
            repositories.chain(cwds.iter().cloned()).chain(places).chain(server.temporary.iter().cloned()).collect();
        let real = places.iter().filter_map(|folder| folder.canonicalize().ok());
        ModelWrites(real.chain(places.iter().cloned()).collect())
    }

    /// The files that the shell reads before the command are not the model's.
    fn check_start_files(&self, server: &ServerEnvironment) -> Result<(), String> {
        let home = server.home.as_ref().map(Path::new).ok_or("the server has no variable HOME")?;
        let zdotdir = server.zdotdir.as_ref().map_or(home, Path::new);
        let folders = [(home, &START_FILES[..]), (zdotdir, &START_FILES), (&server.codex_home, &[SNAPSHOTS])];
        for (folder, names) in folders {
            if !folder.is_absolute() {
                return Err(format!("the path of the shell's start-up files, {}, is not absolute", folder.display()));
            }
            for name in names {
                self.is_out_of_reach(&folder.join(name))?;
            }
        }
        for (name, file) in &server.first {
            if !file.as_bytes().starts_with(b"/") || file.as_bytes().contains(&b'$') {
                return Err(format!("the server's variable {name} is not a plain absolute path"));
            }
            self.is_out_of_reach(Path::new(file))?;
        }
        Ok(())
    }

    /// Neither a file nor anything on the way to it is where the model or another user may write.
    fn is_out_of_reach(&self, path: &Path) -> Result<(), String> {
        match self.walk(path)? {
            Some((real, file)) => has_one_name(&real, &file, own_uid()),
            None => Ok(()),
        }
    }

    /// The interpreter of a script, and its interpreter, are not the model's.
    fn check_interpreters(&self, program: &Path, path: &OsStr) -> Result<(), String> {
        let mut at = program.to_owned();
        for _ in 0..INTERPRETERS_MAX {
            let Some(words) = interpreter_of(&at)? else { return Ok(()) };
            let Some(interpreter) = words.first() else { return Ok(()) };
            if !interpreter.starts_with('/') {
                return Err(format!("the interpreter of {}, `{interpreter}`, is not an absolute path", at.display()));
            }
            let absent = |name: &str| format!("the interpreter of {}, {name}, does not exist", at.display());
            let found = self.executable(Path::new(interpreter))?.ok_or_else(|| absent(interpreter))?;
            let is_env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
            at = match (is_env, &words[1..]) {
                (false, _) => found,
                (true, [name]) if !name.starts_with('-') && !name.contains(['=', '/']) => {
                    self.on_path(name, path)?.ok_or_else(|| absent(name))?
                }
                (true, _) => return Err(format!("the first line of {} is not `env` and a name", at.display())),
            };
        }
        Err(format!("{} has too many interpreters", program.display()))
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
        if writable_by_others(&file) {
            return Err(format!("other users can write to {}", real.display()));
        }
        has_one_name(&real, &file, own_uid()).map(|()| Some(real))
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
                return Err(match next == *place {
                    true => format!("{} is a folder where the model may write", next.display()),
                    false => format!("{} is in {}, where the model may write", next.display(), place.display()),
                });
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

/// The outermost folder of a path that holds a repository.
fn outermost_repository(cwd: &Path) -> Option<PathBuf> {
    let holds_one = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    cwd.ancestors().filter(holds_one).last().map(Path::to_owned)
}

/// The words of a script's first line, after `#!`; `None` if the file is not such a script.
fn interpreter_of(program: &Path) -> Result<Option<Vec<String>>, String> {
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let mut head = Vec::new();
    let opened = match File::open(program) {
        // A program that can be run but not read is not a script.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    opened.take(SCRIPT_HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| format!("the first line of {} is not text", program.display()))?;
    Ok(Some(line.split([' ', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect()))
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

/// A file of ours has no other name, under which the model may write to it. Programs of the system often have several, so
/// root's files are not refused, also if we run as root.
fn has_one_name(path: &Path, file: &Metadata, own_uid: u32) -> Result<(), String> {
    match file.is_file() && file.nlink() > 1 && file.uid() == own_uid && own_uid != 0 {
        true => {
            Err(format!("{} has another name (a hard link), which may be where the model may write", path.display()))
        }
        false => Ok(()),
    }
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
    use crate::engine::{Trust, Workspace};

    /// A folder outside of any repository. It counts as temporary only if a test says so.
    fn lab() -> tempfile::TempDir {
        let lab = tempfile::tempdir().expect("a folder");
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

    fn check(argv0: &str, cwd: &Path) -> ProgramCheck {
        let (argv, cwd) = (vec![argv0.to_owned()], cwd.to_string_lossy().into_owned());
        let trust = Trust { path: true, ..Trust::default() };
        let command = ExactCommand::new(argv, cwd.clone(), trust, None).expect("BUG: it can be accepted");
        ProgramCheck { command, shell: None, workspace: Workspace { cwd, places: Vec::new() } }
    }

    fn found(argv0: &str, cwd: &Path, path: &str) -> Result<String, String> {
        program(&check(argv0, cwd), &ServerEnvironment { path: path.into(), ..ServerEnvironment::default() })
    }

    /// A server with a shell and a home.
    fn server(home: &Path) -> ServerEnvironment {
        let (codex_home, shell) = (home.join(".codex"), Some("/bin/sh".into()));
        ServerEnvironment { home: Some(home.into()), shell, codex_home, ..ServerEnvironment::default() }
    }

    fn in_shell(check: ProgramCheck, shell: &str) -> ProgramCheck {
        ProgramCheck { shell: Some(shell.to_owned()), ..check }
    }

    fn why(checked: Result<String, String>) -> String {
        checked.expect_err("it is refused")
    }

    #[test]
    fn start_files_of_the_shell_are_out_of_reach() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let (cwd, home) = (root.join("proj"), root.join("home"));
        fs::create_dir_all(cwd.join("etc")).expect("a folder");
        fs::create_dir(&home).expect("a folder");
        let ls = in_shell(check("/bin/ls", &cwd), "/bin/sh");
        let ok = server(&home);
        assert!(program(&ls, &ok).is_ok(), "{:?}", program(&ls, &ok));
        // Below the model's folder, behind a link into it, or in another place.
        assert!(why(program(&ls, &server(&cwd))).contains("where the model may write"));
        assert!(why(program(&ls, &server(&cwd.join("etc")))).contains("where the model may write"));
        let mut elsewhere = ls.clone();
        elsewhere.workspace.places.push(root.display().to_string());
        assert!(why(program(&elsewhere, &ok)).contains("where the model may write"));
        symlink(cwd.join("etc/profile"), home.join(".profile")).expect("a link");
        assert!(why(program(&ls, &ok)).contains("where the model may write"));
        fs::remove_file(home.join(".profile")).expect("it is there");
        let inside = |name: &str| cwd.join(name).into_os_string();
        let zdotdir = ServerEnvironment { zdotdir: Some(inside("etc")), ..ok.clone() };
        assert!(why(program(&ls, &zdotdir)).contains("where the model may write"));
        for file in [inside("x"), "$HOME/x".into(), "x".into(), "/$x".into()] {
            let first = ServerEnvironment { first: vec![("BASH_ENV", file)], ..ok.clone() };
            assert!(program(&ls, &first).is_err(), "{first:?}");
        }
        for codex_home in [cwd.join("codex"), "codex".into()] {
            let in_reach = ServerEnvironment { codex_home, ..ok.clone() };
            assert!(program(&ls, &in_reach).is_err(), "{in_reach:?}");
        }
        fs::create_dir_all(home.join("other")).expect("a folder");
        let fine = ServerEnvironment { codex_home: home.join("other"), ..ok.clone() };
        assert!(program(&ls, &fine).is_ok(), "{:?}", program(&ls, &fine));
        fs::create_dir(home.join(".codex")).expect("a folder");
        symlink(cwd.join("etc"), home.join(".codex/shell_snapshots")).expect("a link");
        assert!(why(program(&ls, &ok)).contains("where the model may write"));
        assert!(program(&ls, &fine).is_ok());
        let no_home = ServerEnvironment { home: None, ..ok.clone() };
        assert!(why(program(&ls, &no_home)).contains("no variable HOME"));
    }

    #[test]
    fn only_one_shell_is_accepted() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let (cwd, home) = (root.join("proj"), root.join("home"));
        fs::create_dir(&cwd).expect("a folder");
        fs::create_dir(&home).expect("a folder");
        let ls = check("/bin/ls", &cwd);
        let server = server(&home);
        assert!(program(&in_shell(ls.clone(), "/bin/sh"), &server).is_ok());
        assert!(why(program(&in_shell(ls.clone(), "/bin/bash"), &server)).contains("is not your shell"));
        let without = ServerEnvironment { shell: None, ..server.clone() };
        assert!(why(program(&in_shell(ls.clone(), "/bin/sh"), &without)).contains("name the shell in the rule"));
        let named = ExactCommand::new(
            vec!["/bin/ls".to_owned()],
            cwd.display().to_string(),
            Trust::default(),
            Some("/bin/bash".to_owned()),
        );
        let named = ProgramCheck { command: named.expect("BUG: it can be accepted"), ..ls };
        assert!(program(&in_shell(named.clone(), "/bin/bash"), &server).is_ok());
        assert!(program(&in_shell(named, "/bin/sh"), &server).is_err());
    }

    #[test]
    fn programs_in_places_of_the_thread_are_refused() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let cwd = root.join("proj/src");
        fs::create_dir_all(&cwd).expect("a folder");
        add_program(&root.join("proj/bin/tool"));
        add_program(&root.join("bin/tool"));
        let tool = |name: &str| check(&root.join(name).display().to_string(), &cwd);
        let with = |of: ProgramCheck, place: &str| {
            let places = vec![root.join(place).display().to_string()];
            ProgramCheck { workspace: Workspace { places, ..of.workspace }, ..of }
        };
        let server = ServerEnvironment::default();
        assert!(program(&tool("proj/bin/tool"), &server).is_ok());
        assert!(why(program(&with(tool("proj/bin/tool"), "proj"), &server)).contains("where the model may write"));
        assert!(why(program(&with(tool("bin/tool"), "bin"), &server)).contains("where the model may write"));
        // The repository around the folder.
        fs::create_dir(root.join("proj/.git")).expect("a folder");
        assert!(why(program(&tool("proj/bin/tool"), &server)).contains("where the model may write"));
        assert!(program(&tool("bin/tool"), &server).is_ok());
    }

    #[test]
    fn interpreters_are_checked_too() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let cwd = root.join("proj");
        fs::create_dir(&cwd).expect("a folder");
        add_program(&root.join("bin/tool"));
        add_program(&cwd.join("inside"));
        add_program(&root.join("bin/outside"));
        let tool = root.join("bin/tool").display().to_string();
        let path = format!("{}/bin:/usr/bin:/bin", root.display());
        let run = |line: &str, path: &str| {
            fs::write(root.join("bin/tool"), line).expect("a file");
            found(&tool, &cwd, path)
        };
        for fine in ["#!/bin/sh\n", "#! /bin/sh -e\n", "#!/usr/bin/env outside\n", "echo\n", "\u{7f}ELF", ""] {
            assert!(run(fine, &path).is_ok(), "{fine:?}: {:?}", run(fine, &path));
        }
        let inside = format!("#!{}\n", cwd.join("inside").display());
        assert!(why(run(&inside, &path)).contains("where the model may write"));
        assert!(why(run("#!/usr/bin/env inside\n", &format!("{}:{path}", cwd.display()))).contains("may write"));
        for bad in ["#!sh\n", "#!/usr/bin/env -S outside\n", "#!/usr/bin/env A=1 outside\n", "#!/nowhere/sh\n"] {
            assert!(run(bad, &path).is_err(), "{bad:?}");
        }
        // The interpreter is a script of the model's interpreter.
        fs::write(root.join("bin/outside"), &inside).expect("a file");
        assert!(why(run("#!/usr/bin/env outside\n", &path)).contains("where the model may write"));
        symlink("/bin/sh", root.join("bin/link")).expect("a link");
        assert!(why(found(&root.join("bin/link").display().to_string(), &cwd, "")).contains("runs other programs"));
        add_program(&root.join("bin/git"));
        symlink("git", root.join("bin/g")).expect("a link");
        assert!(
            why(found(&root.join("bin/g").display().to_string(), &cwd, "")).contains("files that the model writes")
        );
    }

    #[test]
    fn own_file_with_another_name_is_refused() {
        let lab = lab();
        let (file, link) = (lab.path().join("tool"), lab.path().join("link"));
        fs::write(&file, "").expect("a file");
        // Only root can give it away; root's own files are not refused.
        drop(std::os::unix::fs::chown(&file, Some(1_000), None));
        let refused = |own_uid: u32| {
            let there = file.metadata().expect("it is there");
            has_one_name(&file, &there, own_uid).is_err()
        };
        let owner = file.metadata().expect("it is there").uid();
        assert!(!refused(owner));
        fs::hard_link(&file, &link).expect("a link");
        assert!(refused(owner));
        assert!(!refused(owner + 1) && !refused(0));
        assert!(has_one_name(lab.path(), &lab.path().metadata().expect("it is there"), owner).is_ok());
    }

    #[test]
    fn check_that_panics_is_not_counted_for_ever() {
        let running = Arc::default();
        let all: Vec<Option<Running>> = (0..=CHECKS_MAX).map(|_| Running::begin(&running)).collect();
        assert!(all[CHECKS_MAX - 1].is_some() && all[CHECKS_MAX].is_none());
        drop(all);
        let thread = std::thread::spawn({
            let running = Running::begin(&running);
            move || {
                let _running = running;
                panic!("as a check might");
            }
        });
        assert!(thread.join().is_err());
        assert_eq!(running.load(Ordering::Relaxed), 0);
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
        let temporary = vec![root.join("bin")];
        let path = root.join("bin").into_os_string();
        let server = ServerEnvironment { path, temporary, ..ServerEnvironment::default() };
        assert!(why(program(&check("tool", &cwd), &server)).contains("where the model may write"));
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
