//! Checks the folder, the shell and the program of a command before a rule accepts it: the part of a rule's decision that
//! needs files.
//!
//! A thread of its own does it, because a dead network drive can stall it for ever. The engine does not wait longer than its
//! deadline, and then asks the client. The thread confirms that
//!
//! - `config.toml` still has the rules that decided, so that a rule that is being edited or was removed accepts nothing;
//! - everything that decides for the user is out of the reach of every model ([`super::deciders`]);
//! - the folder's path has no link in it, so that it is the folder that the rule names;
//! - the shell is the user's or the rule's, and no file that it reads before the command lies where the model may write;
//! - no folder on the way to the program or its interpreter, and no folder of PATH before it, can be written by another user,
//!   or lies where the model may write, and neither does what the interpreter of a script reads first.
//!
//! It never runs anything. Another PATH, as a login shell may set, is out of its sight.

use super::server_environment::{ServerEnvironment, check_snapshots, check_start_files};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::deciders::{Deciders, Exposed};
use super::guard::Guard;
use super::interpreters;
use crate::config::{Environment, Flags, Settings};
use crate::engine::{ExactCommand, Input, ProgramCheck, Rule, Token, runs_others, runs_repository_files};
use crate::files::{Reach, Whose, is_missing};

/// Most checks at once. Further ones are refused: the others hang.
const CHECKS_MAX: usize = 8;

/// One program with the names of many.
const OF_MANY_NAMES: [&str; 3] = ["busybox", "coreutils", "toybox"];

/// The parser of TOML calls itself for nested values.
const STACK_BYTES: usize = 2 << 20;

/// Starts checks on threads of their own.
#[derive(Debug)]
pub(super) struct ProgramChecker {
    running: Arc<AtomicUsize>,
    guard: Guard,
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
    pub(super) fn new(guard: Guard) -> ProgramChecker {
        ProgramChecker { running: Arc::default(), guard }
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
        let guard = self.guard.clone();
        let started = thread("rule").spawn(move || {
            let deciders = || guard.nothing_exposed(&folders(&check));
            let checked = are_current(&rules).and_then(|()| deciders()).and_then(|()| program(&check, guard.server()));
            drop(running);
            post(Input::ProgramChecked { token, checked });
        });
        started.map(drop).map_err(|error| format!("start a thread: {error}"))
    }
}

/// The whole check, for a tool that waits at most `wait_max`.
pub fn program_in_time(
    check: ProgramCheck,
    settings: Settings,
    server: ServerEnvironment,
    wait_max: Duration,
) -> Result<String, String> {
    let (send, receive) = sync_channel(1);
    let started = thread("rule").spawn(move || {
        let reach = Reach::new(places(&check, &server), Whose::Models);
        let own = std::env::current_exe().ok();
        let (settings, own, cwd) = (&settings, own.as_deref(), Path::new("/"));
        let deciders = Deciders { settings, codex: None, own, server: &server, ours: &server, cwd };
        let exposed = deciders.exposed(&reach, |_| {}).first().map(Exposed::bar);
        drop(send.send(exposed.map_or_else(|| program(&check, &server), Err)));
    });
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

/// The folders in which a model may have written when a rule decides.
fn places(check: &ProgramCheck, server: &ServerEnvironment) -> Vec<PathBuf> {
    folders(check).into_iter().chain(server.temporary.iter().cloned()).collect()
}

/// The same without the folders of temporary files.
fn folders(check: &ProgramCheck) -> Vec<PathBuf> {
    let cwds = [check.command.cwd(), &check.workspace.cwd].map(PathBuf::from);
    let repositories: Vec<PathBuf> = cwds.iter().filter_map(|cwd| outermost_repository(cwd)).collect();
    let places = check.workspace.places.iter().map(PathBuf::from);
    repositories.into_iter().chain(cwds).chain(places).collect()
}

/// The file that a command runs, as far as it can be told without the shell's own PATH.
///
/// # Errors
///
/// Why a rule must not accept the command.
fn program(check: &ProgramCheck, server: &ServerEnvironment) -> Result<String, String> {
    let command = &check.command;
    let cwd = Path::new(command.cwd());
    let unseen = |error| format!("the folder of the command, {}, cannot be looked at: {error}", cwd.display());
    let real = cwd.canonicalize().map_err(unseen)?;
    if real != cwd {
        return Err(format!("{} is reached through a link; its path is {}", cwd.display(), real.display()));
    }
    let reach = Reach::new(places(check, server), Whose::ModelsAndUsers);
    if let Some(shell) = &check.shell {
        check_shell(command, Path::new(shell), server)?;
        reach.executable(Path::new(shell))?.ok_or_else(|| format!("{shell} does not exist"))?;
        check_start_files(&reach, server)?;
        check_snapshots(&reach, server)?;
    }
    let name = command.argv().first().map(String::as_str).unwrap_or_default();
    let found = match name.contains('/') {
        true => reach.executable(Path::new(name))?,
        false => reach.on_path(name, &server.path)?,
    };
    let found = found.ok_or_else(|| format!("{name} does not exist, or is not an executable file"))?;
    let real_name = found.real.file_name().unwrap_or_default().to_string_lossy();
    if let Some(why) = runs_others(&real_name).filter(|_| !OF_MANY_NAMES.contains(&&*real_name)) {
        return Err(format!("{name} is {}, which {why}", found.real.display()));
    }
    if runs_repository_files(&real_name) && !command.trust().repository {
        let real = found.real.display();
        return Err(format!(
            "{name} is {real}, which can run files that the model writes; if you accept that, add `trust_repository = true` \
             to the rule"
        ));
    }
    interpreters::check(&reach, &found, server, cwd)?;
    Ok(found.real.to_string_lossy().into_owned())
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

/// The outermost folder of a path that holds a repository.
fn outermost_repository(cwd: &Path) -> Option<PathBuf> {
    // One that cannot be looked at may hold one.
    let holds_one = |folder: &&Path| {
        let git = folder.join(".git").symlink_metadata();
        !git.is_err_and(|error| is_missing(&error))
    };
    cwd.ancestors().filter(holds_one).last().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use std::ffi::OsString;

    use super::*;
    use crate::engine::{Trust, Workspace};

    /// A folder outside of any repository. It counts as temporary only if a test says so.
    ///
    /// It is not in the usual folder of temporary files, where codex may write: its sandbox puts an empty `.git` there while a
    /// command runs, which makes a repository of all that lies below.
    fn lab() -> tempfile::TempDir {
        let lab = tempfile::tempdir_in("/var/tmp").expect("a folder");
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
        assert!(why(program(&elsewhere, &ok)).starts_with("a start-up file of shells: "));
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
        for (file, expect) in [("production".into(), true), (inside("x"), false), ("./x".into(), false)] {
            let first = ServerEnvironment { first: vec![("ENV", file)], ..ok.clone() };
            assert_eq!(program(&ls, &first).is_ok(), expect, "{first:?}");
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
        let by_env = ["#!/usr/bin/env outside\n", "#!/usr/bin/env -S A=1 outside -x\n"];
        for fine in ["#!/bin/sh\n", "#! /bin/sh -e\n", "echo\n", "\u{7f}ELF", ""].into_iter().chain(by_env) {
            assert!(run(fine, &path).is_ok(), "{fine:?}: {:?}", run(fine, &path));
        }
        let inside = format!("#!{}\n", cwd.join("inside").display());
        assert!(why(run(&inside, &path)).contains("where the model may write"));
        assert!(why(run("#!/usr/bin/env inside\n", &format!("{}:{path}", cwd.display()))).contains("may write"));
        for bad in ["#!sh\n", "#!/usr/bin/env -S -i outside\n", "#!/usr/bin/env A=1 outside\n", "#!/nowhere/sh\n"] {
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

    /// Files that other users can write count as theirs, also if they are only read.
    #[test]
    fn start_files_that_others_can_write_bar() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let (cwd, home) = (root.join("proj"), root.join("home"));
        for folder in [&cwd, &home, &home.join(".codex"), &home.join(".codex/shell_snapshots")] {
            fs::create_dir(folder).expect("a folder");
            set_mode(folder, 0o755);
        }
        let ls = in_shell(check("/bin/ls", &cwd), "/bin/sh");
        let server = server(&home);
        for file in [".bash_profile", ".zshenv", ".profile", ".bash_logout", ".codex/shell_snapshots/a.sh"] {
            let path = home.join(file);
            for (mode, expect) in [(0o644, true), (0o600, true), (0o666, false), (0o646, false), (0o602, false)] {
                fs::write(&path, "").expect("a file");
                set_mode(&path, mode);
                let checked = program(&ls, &server);
                assert_eq!(checked.is_ok(), expect, "{file} {mode:o}: {checked:?}");
            }
            fs::remove_file(path).expect("it is there");
        }
        set_mode(&home.join(".codex/shell_snapshots"), 0o777);
        assert!(why(program(&ls, &server)).contains("other users can write"));
        let elsewhere = root.join("env");
        fs::write(&elsewhere, "").expect("a file");
        set_mode(&elsewhere, 0o666);
        set_mode(&home.join(".codex/shell_snapshots"), 0o755);
        let first = ServerEnvironment { first: vec![("BASH_ENV", elsewhere.into())], ..server };
        assert!(why(program(&ls, &first)).contains("other users can write"));
    }

    /// A script that no shell starts: its interpreter reads more than the script.
    #[test]
    fn files_that_an_interpreter_reads_first_are_out_of_reach() {
        let lab = lab();
        let root = lab.path().canonicalize().expect("it is there");
        let (cwd, home, bin) = (root.join("proj"), root.join("home"), root.join("bin"));
        for folder in [&cwd, &home] {
            fs::create_dir(folder).expect("a folder");
        }
        for name in [
            "python3", "perl", "node", "ruby", "bash", "zsh", "lua5.4", "fish", "Rscript", "java", "make", "mytool",
            "tool",
        ] {
            add_program(&bin.join(name));
            fs::write(bin.join(name), "\u{7f}ELF").expect("a file");
        }
        fs::write(bin.join("package.json"), "{}").expect("a file");
        let site = home.join(".local/lib/python3.11/site-packages");
        fs::create_dir_all(&site).expect("a folder");
        fs::create_dir_all(home.join(".config/fish")).expect("a folder");
        let tool = bin.join("tool");
        let run = |interpreter: &str, variables: &[(&'static str, &str)]| {
            fs::write(&tool, format!("#!{}/{interpreter}\n", bin.display())).expect("a file");
            let at = |text: &str| OsString::from(text.replace("WS", &cwd.display().to_string()));
            let variables = variables.iter().map(|(name, value)| (*name, at(value))).collect();
            let server = ServerEnvironment { path: bin.clone().into(), variables, ..server(&home) };
            program(&check(&tool.display().to_string(), &cwd), &server)
        };
        for fine in ["python3", "perl", "node", "ruby", "bash", "zsh", "fish", "python3 -sE"] {
            assert!(run(fine, &[]).is_ok(), "{fine}: {:?}", run(fine, &[]));
        }
        // Everything is known: the interpreter, and what it reads in the folder of the command.
        assert!(why(run("mytool", &[])).contains("not known what"));
        for in_cwd in ["lua5.4", "Rscript", "java", "make -f"] {
            assert!(why(run(in_cwd, &[])).contains("in its folder"), "{in_cwd}");
        }
        for (interpreter, name, value) in [
            ("python3", "PYTHONPATH", "WS/lib"),
            ("python3", "PYTHONPATH", "/usr/lib:"),
            ("python3", "PYTHONUSERBASE", "WS"),
            ("perl", "PERL5LIB", "/usr/lib:WS"),
            ("perl", "PERL5OPT", "-I/usr/lib -IWS/lib"),
            ("node", "NODE_OPTIONS", "--max-old-space-size=9 --require WS/x.js"),
            ("node", "NODE_PATH", "WS"),
            ("ruby", "RUBYOPT", "-rWS/x"),
            ("ruby", "RUBYLIB", "lib"),
            ("bash", "BASH_ENV", "WS/env"),
            ("zsh", "LD_PRELOAD", "/usr/lib/x.so WS/x.so"),
            ("fish", "XDG_CONFIG_HOME", "WS"),
        ] {
            assert!(why(run(interpreter, &[(name, value)])).contains("where the model may write"), "{name}={value}");
        }
        // An empty entry is the folder of the command, and nobody sees that in the variable.
        for (interpreter, name, value) in [
            ("python3", "PYTHONPATH", "/usr/lib:"),
            ("python3", "PYTHONPATH", ":/usr/lib"),
            ("bash", "LD_LIBRARY_PATH", "/usr/lib::/usr/share"),
            ("perl", "PERL5LIB", "/usr/lib:"),
        ] {
            let why = why(run(interpreter, &[(name, value)]));
            let expect = format!(
                "the variable {name} has an empty entry, which means the folder in which the program starts; remove the extra `:`"
            );
            assert!(why.contains(&expect), "{name}={value}: {why}");
        }
        assert!(run("zsh", &[("LD_PRELOAD", " libx.so  /usr/lib/x.so ")]).is_ok());
        assert!(run("node", &[("NODE_OPTIONS", "--max-old-space-size=9"), ("PYTHONPATH", "WS")]).is_ok());
        assert!(run(&format!("node --require {}/x.js", cwd.display()), &[]).is_err());
        assert!(run("bash -l", &[]).is_ok());
        // Files of the interpreter that lead to the model's, or that others can write.
        let link = |target: PathBuf, at: PathBuf, interpreter: &str| {
            drop(fs::remove_file(&at));
            symlink(target, &at).expect("a link");
            assert!(why(run(interpreter, &[])).contains("where the model may write"), "{}", at.display());
            fs::remove_file(at).expect("it is there");
        };
        link(cwd.join("env"), home.join(".zshenv"), "zsh");
        link(cwd.join("profile"), home.join(".profile"), "bash --login");
        link(cwd.join("config.fish"), home.join(".config/fish/config.fish"), "fish");
        link(cwd.join("custom.py"), site.join("usercustomize.py"), "python3");
        link(cwd.join("modules"), home.join(".node_modules"), "node");
        link(cwd.join("package.json"), bin.join("package.json"), "node");
        // In a folder of PYTHONPATH too.
        let modules = root.join("modules");
        fs::create_dir(&modules).expect("a folder");
        let listed = modules.display().to_string();
        for file in ["sitecustomize.py", "usercustomize.py", "sitecustomize"] {
            assert_eq!(run("python3", &[("PYTHONPATH", &listed)]).err(), None, "{file}");
            symlink(cwd.join("custom"), modules.join(file)).expect("a link");
            assert!(why(run("python3", &[("PYTHONPATH", &listed)])).contains("where the model may write"), "{file}");
            fs::remove_file(modules.join(file)).expect("it is there");
            fs::write(modules.join(file), "").expect("a file");
            set_mode(&modules.join(file), 0o666);
            assert!(why(run("python3", &[("PYTHONPATH", &listed)])).contains("other users can write"), "{file}");
            fs::remove_file(modules.join(file)).expect("it is there");
        }
        fs::write(site.join("mine.pth"), format!("import os\n{}\n", cwd.display())).expect("a file");
        assert!(why(run("python3", &[])).contains("mine.pth"));
        fs::write(site.join("mine.pth"), "/usr/share\n").expect("a file");
        assert!(run("python3", &[]).is_ok());
        set_mode(&site.join("mine.pth"), 0o666);
        assert!(why(run("python3", &[])).contains("other users can write"));
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
        for path in [":/usr/bin", "/none::/usr/bin", "/none:"] {
            assert!(refused("tool", path).contains("an empty entry"), "{path}");
        }
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
