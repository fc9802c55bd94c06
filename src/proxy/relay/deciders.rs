//! The table of everything of ours that decides for the user or starts a program, and whether each is out of the models' reach.
//!
//! A model that can change one of them decides for the user: it writes a rule that accepts its command, or the hook that runs
//! outside of its sandbox. So a rule accepts only while all are out of reach, and a program in reach is not started.
//!
//! It reads no settings itself and never runs anything; it looks at files, so no thread that relays may call it, and none without a
//! deadline ([`super::checks`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::interpreters;
use super::invocation;
use super::server_environment::ServerEnvironment;
use super::words::argument_files;
use crate::config::{Settings, Source};
use crate::context_engine::Subject;
use crate::engine::FragmentSource;
use crate::files::{Executable, InReach, Reach, is_missing};

pub(super) const CONFIG: &str = "config.toml";
pub(super) const CODEX: &str = "codex";
pub(super) const CONTEXT_ENGINE: &str = "context_engine.command";
const OWN: &str = "codex-shim";

/// The whole table.
pub(super) const ALL: &str = "what decides for you";

/// How long a check may take before everything that it has not found out counts as in reach.
pub(super) const CHECK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The name of a fragment in the table.
pub(super) fn fragment(name: &str) -> String {
    format!("fragment `{name}`")
}

/// What is about to be started, read or applied: the row of this name, or a subject that some settings named so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) name: String,
    pub(super) subject: Option<Subject>,
}

impl Use {
    pub(super) fn row(name: &str) -> Use {
        Use { name: name.to_owned(), subject: None }
    }

    /// A program that goes on in our place.
    pub(super) fn own(program: &Path) -> Use {
        Use { name: OWN.to_owned(), subject: Some(Subject::File(program.to_owned())) }
    }

    pub(super) fn command(name: &str, words: &[String]) -> Use {
        Use { name: name.to_owned(), subject: Some(Subject::Command(words.to_vec())) }
    }
}

/// One of the things that decide.
#[derive(Debug)]
struct Decider<'a> {
    /// Its setting, or what it is.
    name: String,
    part: PathPart<'a>,
    /// It is named in `config.toml`, so who can change that file can change it.
    is_in_file: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum PathPart<'a> {
    File(PathBuf),
    /// No model may write in it either.
    Folder(PathBuf),
    /// A program, and the files that its arguments name.
    Command(Vec<String>),
    /// A program that package managers may link to a store of theirs.
    Program {
        path: PathBuf,
        environment: &'a ServerEnvironment,
    },
}

/// A decider that a model can change, or could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    pub name: String,
    pub why: String,
    pub certainty: Certainty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    Seen,
    /// The check did not answer, so the file counts as in reach.
    Assumed,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let so = match &*self.name {
            ALL => "no program of yours is started",
            CONFIG | "home" => "no program that it names is started and no change of it is applied",
            OWN | "fleet.creds" | "fleet.ca" => "do not start codex-shim again",
            CODEX | CONTEXT_ENGINE => "it is not started again",
            name if name.starts_with("fragment") => "it is not read",
            _ => "it is not started",
        };
        let remedy = match &*self.name {
            "home" => "set CODEX_SHIM_HOME to a folder in which no model works",
            _ => "move it out of the folders in which models work",
        };
        let Exposed { name, why, certainty } = self;
        match certainty {
            Certainty::Seen => write!(f, "{name} {EXPOSED}: {why}; rules accept nothing, and {so}: {remedy}"),
            Certainty::Assumed => write!(f, "{name} {ASSUMED}: {why}; rules accept nothing, and {so}"),
        }
    }
}

impl Exposed {
    /// Why a rule does not accept.
    pub fn bar(&self) -> String {
        let Exposed { name, why, certainty } = self;
        match certainty {
            Certainty::Seen => {
                format!(
                    "{name} {EXPOSED}: {why}; rules accept nothing until it is out of the folders in which models work"
                )
            }
            Certainty::Assumed => format!("{name} {ASSUMED}: {why}; rules accept nothing"),
        }
    }

    /// The check has not answered.
    pub(super) fn unanswered(name: String) -> Exposed {
        let wait_s = CHECK_WAIT_MAX.as_secs();
        let why = format!("the file system has not answered within {wait_s} s; its answer counts when it comes");
        Exposed { name, why, certainty: Certainty::Assumed }
    }

    /// The check could not be started.
    pub(super) fn unchecked(name: String) -> Exposed {
        let why = "it cannot be checked, because earlier checks have no answer of the file system".to_owned();
        Exposed { name, why, certainty: Certainty::Assumed }
    }

    /// The settings have changed since it was named.
    fn unnamed(name: String) -> Exposed {
        let why = "the settings do not name it any more".to_owned();
        Exposed { name, why, certainty: Certainty::Assumed }
    }

    /// There are more places in which models may write than are known.
    pub(super) fn unbounded() -> Exposed {
        let why =
            "the models of this session may write in more places than codex-shim remembers; restart it".to_owned();
        Exposed { name: ALL.to_owned(), why, certainty: Certainty::Assumed }
    }
}

/// The parts of the text of an [`Exposed`].
const EXPOSED: &str = "can be changed by a model";
const ASSUMED: &str = "counts as if a model could change it";

/// Whether a fault of a relay is about a decider in reach.
pub fn is_exposure(fault: &str) -> bool {
    fault.contains(EXPOSED) || fault.contains(ASSUMED)
}

/// What the table is made of.
#[derive(Debug)]
pub struct Deciders<'a> {
    pub settings: &'a Settings,
    /// The server's program.
    pub codex: Option<&'a Path>,
    /// Our own program, which decides at the next start; `None` if the system does not say.
    pub own: Option<&'a Path>,
    /// The environment in which codex starts.
    pub server: &'a ServerEnvironment,
    /// The environment in which all other programs start. Its PATH may differ.
    pub ours: &'a ServerEnvironment,
    /// Our working directory, where hooks and the context engine start.
    pub cwd: &'a Path,
}

impl Deciders<'_> {
    /// What decides for the user.
    fn table(&self) -> Vec<Decider<'_>> {
        let settings = self.settings;
        let mut table = Vec::new();
        let mut add = |name: &str, is_in_file, part| table.push(Decider { name: name.to_owned(), part, is_in_file });
        if let Some(home) = &settings.home.value {
            add(CONFIG, false, PathPart::File(home.join("config.toml")));
            add("home", false, PathPart::Folder(home.clone()));
        }
        if let Some(codex) = self.codex {
            let part = PathPart::Program { path: codex.to_owned(), environment: self.server };
            add(CODEX, settings.codex.source == Source::File, part);
        }
        if let Some(own) = self.own {
            add(OWN, false, PathPart::Program { path: own.to_owned(), environment: self.ours });
        }
        for (name, setting) in [
            ("on_pending", &settings.on_pending),
            ("on_idle", &settings.on_idle),
            ("on_stalled", &settings.on_stalled),
            ("on_bypass", &settings.on_bypass),
            ("on_budget", &settings.on_budget),
            (CONTEXT_ENGINE, &settings.context_engine.command),
        ] {
            add(name, setting.source == Source::File, PathPart::Command(setting.value.clone()));
        }
        // They decide who answers from another machine.
        for (name, setting) in [("fleet.creds", &settings.fleet.creds), ("fleet.ca", &settings.fleet.ca)] {
            if let Some(file) = &setting.value {
                add(name, setting.source == Source::File, PathPart::File(file.clone()));
            }
        }
        for of in &settings.fragments.value {
            match &of.source {
                FragmentSource::Command(words) => add(&fragment(&of.name), true, PathPart::Command(words.clone())),
                FragmentSource::File(file) => add(&fragment(&of.name), true, PathPart::File(file.clone())),
                // The settings themselves hold it.
                FragmentSource::Text(_) => {}
            }
        }
        table
    }

    /// All that a model can change. Calls `begin` with the name of each before it looks at its files.
    pub fn exposed(&self, reach: &Reach, begin: impl Fn(&str)) -> Vec<Exposed> {
        let table = self.table();
        let check = |of: &Decider<'_>| {
            begin(&of.name);
            self.check_one(of, reach, self.cwd).err()
        };
        table.iter().filter_map(check).collect()
    }

    /// Whether the table has a row of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.table().iter().any(|of| of.name == name)
    }

    /// Whether one of them, and the file that names it, is out of reach. `cwd` is the folder in which a program starts.
    pub(super) fn check(&self, wanted: &Use, reach: &Reach, cwd: &Path) -> Result<(), Exposed> {
        let mut table = self.table();
        let Some(at) = table.iter().position(|of| of.name == wanted.name) else {
            return Err(Exposed::unnamed(wanted.name.clone()));
        };
        let mut row = table.swap_remove(at);
        if let (OWN, Some(Subject::File(path))) = (&*wanted.name, &wanted.subject) {
            // The caller names it, and no setting.
            row.part = PathPart::Program { path: path.clone(), environment: self.ours };
        } else if let Some(subject) = &wanted.subject {
            let part = match subject {
                Subject::Command(words) => PathPart::Command(words.clone()),
                Subject::File(path) => PathPart::File(path.clone()),
            };
            // Other settings than these have named it: those of a file, perhaps.
            row.is_in_file |= row.part != part;
            row.part = part;
        }
        let names_it = |of: &&Decider<'_>| row.is_in_file && matches!(&*of.name, CONFIG | "home");
        let before = table.iter().filter(names_it);
        before.chain([&row]).try_for_each(|of| self.check_one(of, reach, cwd))
    }

    fn check_one(&self, of: &Decider<'_>, reach: &Reach, cwd: &Path) -> Result<(), Exposed> {
        let checked = match &of.part {
            PathPart::File(path) => reach.check(&cwd.join(path)),
            PathPart::Folder(path) => reach.check_folder(&cwd.join(path)),
            PathPart::Command(words) => self.check_command(words, reach, cwd),
            PathPart::Program { path, environment } => check_program(&cwd.join(path), environment, reach, cwd),
        };
        let certainty = |why: &InReach| match why {
            InReach::OfModel(_) | InReach::OfUsers(_) => Certainty::Seen,
            InReach::Unclear(_) => Certainty::Assumed,
        };
        let exposed =
            |why: InReach| Exposed { name: of.name.clone(), certainty: certainty(&why), why: why.to_string() };
        checked.map_err(exposed)
    }

    fn check_command(&self, words: &[String], reach: &Reach, cwd: &Path) -> Result<(), InReach> {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let found = match program.contains('/') {
            true => reach.executable(&cwd.join(program))?,
            false => reach.on_path(program, self.ours.path())?,
        };
        if let Some(found) = found {
            invocation::check(reach, &found, words, self.ours, cwd)?;
        }
        let files = argument_files(program, arguments, cwd, self.ours.home());
        files.iter().try_for_each(|file| reach.check(file))
    }
}

fn check_program(path: &Path, environment: &ServerEnvironment, reach: &Reach, cwd: &Path) -> Result<(), InReach> {
    reach.check_linked(path)?;
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(InReach::unseen(path, &error)),
    };
    interpreters::check(reach, &Executable { spelled: path.to_owned(), real }, environment, cwd)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::config::{Environment, Flags};
    use crate::files::Whose;

    /// A home, a workspace, and a folder of programs, all beside each other.
    struct Lab {
        root: PathBuf,
        /// The folder of codex-shim.
        cwd: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Lab {
        fn new() -> Lab {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path().canonicalize().expect("it is there");
            for name in ["home/sessions", "ws", "bin", "own"] {
                fs::create_dir_all(root.join(name)).expect("a folder");
            }
            let lab = Lab { cwd: root.clone(), root, _folder: folder };
            for program in ["bin/hook", "bin/codex", "bin/engine", "own/codex-shim", "ws/hook"] {
                lab.put(program, "#!/bin/sh\n");
            }
            lab.put("home/config.toml", "");
            lab
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.root.join(name), text).expect("a file");
            fs::set_permissions(self.root.join(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
        }

        /// What is exposed if a model may write to these folders, with this file of settings.
        fn exposed(&self, config: &str, codex: &str, places: &[&str]) -> Vec<String> {
            self.exposed_with_path(None, config, codex, places)
        }

        /// The same with another PATH of the server.
        fn exposed_with_path(&self, path: Option<&str>, config: &str, codex: &str, places: &[&str]) -> Vec<String> {
            self.with(path, config, codex, places, |deciders, reach| {
                deciders.exposed(reach, |_| {}).into_iter().map(|exposed| exposed.name).collect()
            })
        }

        fn check(&self, wanted: &Use, places: &[&str]) -> Result<(), Exposed> {
            self.with(None, "", "bin/codex", places, |deciders, reach| deciders.check(wanted, reach, &self.cwd))
        }

        fn with<T>(
            &self,
            path: Option<&str>,
            config: &str,
            codex: &str,
            places: &[&str],
            look: impl FnOnce(&Deciders<'_>, &Reach) -> T,
        ) -> T {
            let at = self.root.display().to_string();
            let file = self.root.join("home/config.toml");
            if !config.is_empty() {
                fs::write(file, config.replace("AT", &at)).expect("a file");
            }
            let variables = [
                ("CODEX_SHIM_HOME", format!("{at}/home")),
                ("HOME", format!("{at}/user")),
                ("PATH", format!("{at}/bin:/usr/bin:/bin")),
            ];
            let environment = Environment::of(move |wanted| {
                variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(value))
            });
            let (settings, complaints) = Settings::load(Flags::default(), &environment);
            assert_eq!(complaints, [], "{config}");
            let ours = ServerEnvironment::of(&environment, None);
            let path = path.map(|path| OsString::from(path.replace("AT", &at)));
            let server = ServerEnvironment::of(&environment, path);
            let codex = self.root.join(codex);
            let own = self.root.join("own/codex-shim");
            let deciders = Deciders {
                settings: &settings,
                codex: Some(&codex),
                own: Some(&own),
                server: &server,
                ours: &ours,
                cwd: &self.cwd,
            };
            let reach = Reach::new(places.iter().map(|place| self.root.join(place)), Whose::Models);
            look(&deciders, &reach)
        }
    }

    /// Neither the settings nor our own program count: the user who calls it trusts them already.
    #[test]
    fn program_that_takes_over_is_out_of_reach() {
        for (program, places, expect) in [
            ("own/codex-shim", &["ws"][..], None),
            ("own/codex-shim", &["home", "bin"], None),
            ("ws/hook", &["ws"], Some(OWN)),
            ("ws/missing", &["ws"], Some(OWN)),
            ("own/codex-shim", &["own"], Some(OWN)),
        ] {
            let lab = Lab::new();
            let checked = lab.check(&Use::own(&lab.root.join(program)), places);
            assert_eq!(checked.err().as_ref().map(|exposed| &*exposed.name), expect, "{program} {places:?}");
        }
    }

    #[test]
    fn everything_that_decides_is_in_the_table() {
        for (config, codex, places, expect) in [
            ("", "bin/codex", &["ws"][..], &[][..]),
            ("", "bin/codex", &["home"], &["config.toml", "home"]),
            ("", "bin/codex", &["home/sessions"], &["home"]),
            ("", "ws/hook", &["ws"], &["codex"]),
            ("", "bin/codex", &["own"], &["codex-shim"]),
            ("", "bin/codex", &[""], &["config.toml", "home", "codex", "codex-shim"]),
            ("on_pending = \"AT/bin/hook\"\non_idle = [\"hook\", \"AT/etc/x\"]\n", "bin/codex", &["ws"], &[]),
            ("on_pending = \"AT/ws/hook\"\n", "bin/codex", &["ws"], &["on_pending"]),
            ("on_idle = [\"sh\", \"AT/ws/new\"]\n", "bin/codex", &["ws"], &["on_idle"]),
            ("on_stalled = [\"sh\", \"-c\", \"exec AT/ws/hook\"]\n", "bin/codex", &["ws"], &["on_stalled"]),
            ("on_stalled = [\"hook\"]\n", "bin/codex", &["bin"], &["codex", "on_stalled"]),
            (
                "[context_engine]\ncommand = [\"AT/bin/engine\", \"--data=AT/ws/x\"]\n",
                "bin/codex",
                &["ws"],
                &[CONTEXT_ENGINE],
            ),
            (
                "[[fragments]]\nname = \"a\"\nrole = \"developer\"\nfile = \"AT/ws/a.md\"\n",
                "bin/codex",
                &["ws"],
                &["fragment `a`"],
            ),
            (
                "[[fragments]]\nname = \"a\"\nrole = \"developer\"\ncommand = [\"./ws/hook\"]\n",
                "bin/codex",
                &["ws"],
                &["fragment `a`"],
            ),
            (
                "[fleet]\ncreds = \"AT/ws/a.creds\"\nca = \"AT/ws/ca.pem\"\n",
                "bin/codex",
                &["ws"],
                &["fleet.creds", "fleet.ca"],
            ),
        ] {
            let lab = Lab::new();
            assert_eq!(lab.exposed(config, codex, places), expect, "{config} {codex} {places:?}");
        }
    }

    /// What cannot be told counts as in reach, and a usual first line does not.
    #[test]
    fn first_line_that_is_unclear_counts_as_in_reach() {
        let long = format!("#!/usr/bin/env -S sh {}\n", "-e ".repeat(100));
        for (first_line, expect) in [
            ("#!/bin/sh -e\n", true),
            ("#!/usr/bin/env sh\n", true),
            ("#!/usr/bin/env -S sh -e\n", true),
            ("#!/usr/bin/env -S  'sh'  \"-e\" # AT/ws/x\n", true),
            ("#!/usr/bin/env -vS LANG=C A=1 sh -e\n", true),
            ("#!/usr/bin/env --split-string=/bin/sh -e\n", true),
            ("#!/usr/bin/env -S -- sh -e\n", true),
            // Nothing runs, and nobody can put it there.
            ("#!/usr/bin/env absent\n", true),
            ("#!AT/etc/absent\n", true),
            ("#!AT/bin/one\n", true),
            ("echo\n", true),
            ("", true),
            ("#!AT/ws/new\n", false),
            ("#!/usr/bin/env -S AT/ws/new\n", false),
            ("#!/usr/bin/env -S sh AT/ws/hook\n", false),
            ("#!/usr/bin/env -S PATH=AT/ws sh\n", false),
            ("#!/usr/bin/env -S BASH_ENV=AT/ws/x bash\n", false),
            ("#!/usr/bin/env -S LD_PRELOAD=x sh\n", false),
            ("#!/usr/bin/env -S -C AT/ws sh\n", false),
            ("#!/usr/bin/env -i sh\n", false),
            ("#!/usr/bin/env -S -i sh\n", false),
            ("#!/usr/bin/env -S ${SHELL} -e\n", false),
            ("#!/usr/bin/env -S s\\_h\n", false),
            ("#!/usr/bin/env -S 'sh\n", false),
            ("#!/usr/bin/env -S\n", false),
            ("#!/usr/bin/env -S bin/sh\n", false),
            ("#!/usr/bin/env sh -e\n", false),
            ("#!/usr/bin/env -S sh hook\n", false),
            ("#!/usr/bin/env -S sh -c x\n", false),
            ("#!/usr/bin/perl -Ilib\n", false),
            ("#!/usr/bin/env -S python3 -m x\n", false),
            ("#!/usr/bin/env -S python3 -I -Es\n", true),
            ("#!/usr/bin/env -S AT/bin/npx\n", false),
            ("#!/usr/bin/env -S AT/bin/own\n", true),
            ("#!/usr/bin/env bin/sh\n", false),
            ("#!bin/sh\n", false),
            ("#!AT/bin/four\n", false),
            ("#!AT/bin/unknown\n", false),
            (&long, false),
        ] {
            let lab = Lab::new();
            let at = lab.root.display().to_string();
            lab.put("bin/unknown", "\u{7f}ELF");
            ["npx", "own"].iter().for_each(|name| lab.put(&format!("bin/{name}"), "#!/bin/sh\n"));
            for (name, next) in [("four", "three"), ("three", "two"), ("two", "one"), ("one", "hook")] {
                lab.put(&format!("bin/{name}"), &format!("#!{at}/bin/{next}\n"));
            }
            lab.put("bin/tool", &first_line.replace("AT/", &format!("{at}/")));
            let found = lab.exposed("on_pending = \"AT/bin/tool\"\n", "bin/codex", &["ws"]);
            assert_eq!(found.is_empty(), expect, "{first_line:?}: {found:?}");
            // The same for codex.
            assert_eq!(lab.exposed("on_pending = []\n", "bin/tool", &["ws"]).is_empty(), expect, "{first_line:?}");
        }
        let lab = Lab::new();
        fs::write(lab.root.join("bin/tool"), b"#!/bin/\xff\n").expect("a file");
        fs::set_permissions(lab.root.join("bin/tool"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert_eq!(lab.exposed("", "bin/tool", &["ws"]), ["codex"]);
    }

    /// Files and places that cannot be looked at.
    #[test]
    fn path_that_cannot_be_followed_counts_as_in_reach() {
        let hook = "on_pending = [\"sh\", \"AT/etc/hook\"]\n";
        let long = "x".repeat(300);
        for (config, links, places, expect) in [
            (hook, &[][..], &["ws", "ws/new", "gone/x"][..], &[][..]),
            (hook, &[("etc", "etc")], &["ws"], &["on_pending"]),
            (hook, &[("etc", "etc2"), ("etc2", "etc")], &["ws"], &["on_pending"]),
            ("on_pending = [\"sh\", \"LONG/x\", \"AT/LONG\"]\n", &[], &["ws"], &[]),
            // Another name of the place cannot be known.
            (hook, &[("alias", "alias")], &["alias"], &["config.toml", "home", "codex", "codex-shim", "on_pending"]),
        ] {
            let lab = Lab::new();
            let config = config.replace("LONG", &long);
            let with_config = lab.exposed(&config, "bin/codex", &["own/none"]);
            assert_eq!(with_config, [""; 0], "{config}");
            for (at, target) in links {
                drop(fs::remove_file(lab.root.join(at)));
                symlink(target, lab.root.join(at)).expect("a link");
            }
            assert_eq!(lab.exposed(&config, "bin/codex", places), expect, "{config} {links:?} {places:?}");
        }
    }

    /// A shell of a login reads the same files in a command of the user's as before an accepted one.
    #[test]
    fn start_files_of_a_login_shell_are_out_of_reach() {
        for (command, script, expect) in [
            (r#"["bash", "-c", "true"]"#, "", true),
            (r#"["bash", "-e", "-c", "true"]"#, "", true),
            (r#"["bash", "AT/bin/hook", "-l"]"#, "", true),
            (r#"["notify", "-i", "bash"]"#, "", true),
            (r#"["node", "--title=x", "AT/bin/x.js"]"#, "", true),
            (r#""AT/bin/tool""#, "#!/bin/bash -e\n", true),
            (r#""AT/bin/tool""#, "#!/usr/bin/perl -l\n", true),
            (r#"["bash", "-lc", "true"]"#, "", false),
            (r#"["bash", "-e", "-l", "-c", "true"]"#, "", false),
            (r#"["bash", "--login", "AT/bin/hook"]"#, "", false),
            (r#"["/bin/bash", "-ic", "true"]"#, "", false),
            (r#"["bash", "-o", "pipefail", "-lc", "true"]"#, "", false),
            (r#"["sh", "-lc", "true"]"#, "", false),
            (r#"["zsh", "-o", "login", "-c", "true"]"#, "", false),
            (r#"["env", "A=1", "bash", "-lc", "true"]"#, "", false),
            (r#"["sh", "-c", "exec bash -lc true"]"#, "", false),
            (r#""AT/bin/tool""#, "#!/bin/bash -l\n", false),
            (r#""AT/bin/tool""#, "#!/bin/bash --login\n", false),
            (r#""AT/bin/tool""#, "#!/usr/bin/env -S bash -l\n", false),
        ] {
            // Only a program that is there is looked at.
            if command.contains("zsh") && !["/bin/zsh", "/usr/bin/zsh"].into_iter().any(|zsh| Path::new(zsh).exists()) {
                continue;
            }
            for (file, target) in [(".bashrc", "../ws/rc"), (".profile", "../ws/gone"), (".zlogin", "../own/rc")] {
                let lab = Lab::new();
                fs::create_dir(lab.root.join("user")).expect("a folder");
                lab.put("ws/rc", "");
                lab.put("bin/tool", script);
                symlink(target, lab.root.join("user").join(file)).expect("a link");
                let found = lab.exposed(&format!("on_pending = {command}\n"), "bin/codex", &["ws"]);
                let expect = expect || target.starts_with("../own");
                assert_eq!(found.is_empty(), expect, "{command} {script:?} {file}: {found:?}");
            }
        }
    }

    /// Some interpreters load modules of the folder in which they start.
    #[test]
    fn modules_of_the_folder_are_out_of_reach() {
        let mut lab = Lab::new();
        for program in ["bin/python3", "bin/node", "bin/perl"] {
            lab.put(program, "\u{7f}ELF");
        }
        lab.put("ws/tool.js", "");
        let root = lab.root.clone();
        for (command, expect) in [
            (r#"["python3", "-c", "import json"]"#, false),
            (r#"["python3", "-uc", "import json"]"#, false),
            (r#"["python3", "-W", "ignore", "-c", "import json"]"#, false),
            (r#"["python3", "-m", "module"]"#, false),
            (r#"["python3", "-mIPython"]"#, false),
            (r#"["python3", "-W", "ignore::DeprecationWarning", "-c", "import json"]"#, false),
            (r#"["python3", "-X", "utf8=1", "-m", "module"]"#, false),
            (r#"["python3", "-Wonce", "AT/bin/x.py"]"#, true),
            (r#"["node", "--max-old-space-size=4096", "-e", "require('x')"]"#, false),
            (r#"["node", "-C", "dev", "-e", "require('x')"]"#, false),
            (r#"["sh", "-c", "node --title=x -e 1"]"#, false),
            (r#"["sh", "-c", "notify-send tool"]"#, true),
            (r#"["sh", "-c", "cat | python3 -c 'import json'"]"#, false),
            (r#"["sh", "-c", "python3 - < AT/bin/x.py"]"#, false),
            (r#"["sh", "-c", "python3 -I - < AT/bin/x.py"]"#, true),
            (r#"["python3", "-I", "-c", "import json"]"#, true),
            (r#"["python3", "-Pm", "module"]"#, true),
            (r#"["python3", "-u", "AT/bin/x.py", "-c"]"#, true),
            (r#"["node", "-e", "require('x')"]"#, false),
            (r#"["node", "--require", "x", "AT/bin/x.js"]"#, false),
            (r#"["node", "--import=x", "AT/bin/x.js"]"#, false),
            (r#"["node", "--enable-source-maps", "AT/bin/x.js"]"#, true),
            (r#"["node", "tool"]"#, false),
            (r#"["node", "other"]"#, true),
            (r#"["perl", "-e", "1"]"#, true),
        ] {
            for (folder, expect) in [("ws", expect), ("bin", true)] {
                lab.cwd = root.join(folder);
                let found = lab.exposed(&format!("on_pending = {command}\n"), "bin/codex", &["ws"]);
                assert_eq!(found.is_empty(), expect, "{command} in {folder}: {found:?}");
            }
        }
    }

    /// Programs that run what a file of their folder says, wherever the words of a command start them.
    #[test]
    fn commands_of_the_folder_are_out_of_reach() {
        let mut lab = Lab::new();
        for program in ["java", "npm", "npx", "yarn", "pnpm", "just", "cargo", "make", "git", "notify-send"] {
            lab.put(&format!("bin/{program}"), "\u{7f}ELF");
        }
        symlink("npm", lab.root.join("bin/runner")).expect("a link");
        let root = lab.root.clone();
        for (command, expect) in [
            (r#"["make"]"#, false),
            (r#"["make", "-C", "AT/bin"]"#, false),
            (r#"["npm", "run", "x"]"#, false),
            (r#"["AT/bin/npm", "run", "x"]"#, false),
            (r#"["runner", "run", "x"]"#, false),
            (r#"["npx", "tsx", "x.ts"]"#, false),
            (r#"["yarn", "x"]"#, false),
            (r#"["pnpm", "x"]"#, false),
            (r#"["just"]"#, false),
            (r#"["cargo", "run", "--release"]"#, false),
            (r#"["java", "Main"]"#, false),
            (r#"["java", "-jar", "x.jar"]"#, false),
            (r#"["java", "AT/bin/X.java"]"#, false),
            (r#"["java", "-cp", "AT/bin:lib", "Main"]"#, false),
            (r#"["java", "-cp", "AT/bin:", "Main"]"#, false),
            (r#"["timeout", "5", "make"]"#, false),
            (r#"["env", "A=1", "npm", "test"]"#, false),
            (r#"["nice", "-n", "5", "sh", "-c", "just"]"#, false),
            (r#"["sh", "-c", "cd x && make test"]"#, false),
            (r#"["sh", "-c", "A=1 make"]"#, false),
            (r#"["sh", "-c", "if true; then make; fi"]"#, false),
            (r#"["sh", "-c", "echo \"$(make x)\""]"#, false),
            (r#"["sh", "-c", "echo \"`make x`\""]"#, false),
            (r#"["sh", "-c", "eval 'make x'"]"#, false),
            (r#"["bash", "-e", "-c", "sh -c 'exec make x'"]"#, false),
            (r#"["bash", "-o", "pipefail", "-c", "2>log make"]"#, false),
            (r#"["sh", "-c", "bash < x.sh"]"#, false),
            (r#"["java", "-jar", "AT/bin/x.jar"]"#, true),
            (r#"["java", "-cp", "AT/bin:AT/own/x.jar", "Main"]"#, true),
            (r#"["sh", "-c", "echo make"]"#, true),
            (r#"["sh", "-c", "notify-send 'ready to go; make'"]"#, true),
            (r#"["sh", "-c", "command -v make # make"]"#, true),
            (r#"["sh", "AT/bin/hook", "make"]"#, true),
            (r#"["notify-send", "make"]"#, true),
            (r#"["git", "status"]"#, true),
        ] {
            for (folder, expect) in [("ws", expect), ("bin", true)] {
                lab.cwd = root.join(folder);
                let found = lab.exposed(&format!("on_pending = {command}\n"), "bin/codex", &["ws"]);
                assert_eq!(found.is_empty(), expect, "{command} in {folder}: {found:?}");
            }
        }
    }

    /// What comes on the standard input of an interpreter is not known.
    #[test]
    fn commands_on_standard_input_count_as_in_reach() {
        let mut lab = Lab::new();
        ["python3", "node", "perl", "lua5.4", "curl"]
            .iter()
            .for_each(|name| lab.put(&format!("bin/{name}"), "\u{7f}ELF"));
        lab.put("bin/x.sh", "");
        lab.cwd = lab.root.join("bin");
        for (command, expect) in [
            (r#"["sh"]"#, false),
            (r#"["sh", "-s", "AT/bin/hook"]"#, false),
            (r#"["bash", "-es"]"#, false),
            (r#"["bash", "-o", "pipefail"]"#, false),
            (r#"["bash", "-"]"#, false),
            (r#"["sh", "/dev/stdin"]"#, false),
            (r#"["python3"]"#, false),
            (r#"["python3", "-"]"#, false),
            (r#"["python3", "-W", "ignore"]"#, false),
            (r#"["node"]"#, false),
            (r#"["node", "--title=x", "-"]"#, false),
            (r#"["perl"]"#, false),
            (r#"["lua5.4", "-"]"#, false),
            (r#"["timeout", "5", "bash"]"#, false),
            (r#"["sh", "-c", "cat | sh"]"#, false),
            (r#"["sh", "-c", "curl -s https://x | bash -s -- a"]"#, false),
            (r#"["sh", "-c", "bash <<EOF\ntrue\nEOF"]"#, false),
            (r#"["sh", "-c", "bash <<< true"]"#, false),
            (r#"["sh", "-c", "bash < <(cat)"]"#, false),
            (r#"["sh", "-c", "exec python3 >log"]"#, false),
            (r#"["sh", "-c", "bash < AT/bin/x.sh"]"#, true),
            (r#"["sh", "-c", "bash AT/bin/x.sh < in.json"]"#, true),
            (r#"["sh", "-c", "cat > /dev/null"]"#, true),
            (r#"["sh", "-c", "command -v python3 >/dev/null && AT/bin/hook"]"#, true),
            (r#"["sh", "-c", "echo 'use python3'"]"#, true),
            (r#"["bash", "--", "AT/bin/hook"]"#, true),
            (r#"["python3", "-u", "AT/bin/x.py"]"#, true),
            (r#"["perl", "-ne", "print"]"#, true),
        ] {
            let found = lab.exposed(&format!("on_pending = {command}\n"), "bin/codex", &["ws"]);
            assert_eq!(found.is_empty(), expect, "{command}: {found:?}");
        }
    }

    /// As package managers install programs, and the programs of this machine.
    #[test]
    fn usual_programs_are_out_of_reach() {
        let lab = Lab::new();
        for folder in
            ["npm/bin", "npm/lib/node_modules/@openai/codex/bin", "pyenv/shims", "nix/store/a/bin", "alternatives"]
        {
            fs::create_dir_all(lab.root.join(folder)).expect("a folder");
        }
        lab.put("bin/node", "\u{7f}ELF");
        lab.put("npm/lib/node_modules/@openai/codex/package.json", "{}");
        lab.put("npm/lib/node_modules/@openai/codex/bin/codex.js", "#!/usr/bin/env node\n");
        lab.put(
            "npm/lib/node_modules/@openai/codex/bin/flag.js",
            "#!/usr/bin/env -S node --no-warnings --enable-source-maps\n",
        );
        lab.put("pyenv/shims/python3", "#!/usr/bin/env bash\nexec pyenv\n");
        lab.put("nix/store/a/bin/node", "\u{7f}ELF");
        lab.put("nix/store/a/bin/tool", &format!("#! {}/bin/node\n", lab.root.join("nix/store/a").display()));
        let link = |target: &str, at: &str| symlink(target, lab.root.join(at)).expect("a link");
        link("../lib/node_modules/@openai/codex/bin/codex.js", "npm/bin/codex");
        link("../lib/node_modules/@openai/codex/bin/flag.js", "npm/bin/flag");
        link("../nix/store/a/bin/tool", "alternatives/tool");
        link("../alternatives/tool", "bin/alternative");
        fs::hard_link(lab.root.join("bin/node"), lab.root.join("nix/store/a/bin/hard")).expect("a link");
        let check = |program: &str| {
            assert_eq!(lab.exposed("on_pending = []\n", program, &["ws"]), [""; 0], "{program}");
            let hook = format!("on_pending = [\"{}\", \"AT/own/x\"]\n", lab.root.join(program).display());
            assert_eq!(lab.exposed(&hook, "bin/codex", &["ws"]), [""; 0], "{program}");
        };
        for program in
            ["npm/bin/codex", "npm/bin/flag", "pyenv/shims/python3", "bin/alternative", "nix/store/a/bin/hard"]
        {
            check(program);
        }
        let of_machine =
            ["node", "npm", "python3", "perl", "awk", "bash", "sh", "vi", "git", "notify-send", "curl", "pip"];
        let path = Environment::of_process().get("PATH").unwrap_or_default();
        let on_path = of_machine.iter().flat_map(|name| std::env::split_paths(&path).map(move |of| of.join(name)));
        let codex = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/codex/node_modules/.bin/codex");
        on_path.chain([codex]).filter(|file| file.exists()).for_each(|file| check(&file.display().to_string()));
    }

    /// codex starts with the server's PATH, and all other programs with ours.
    #[test]
    fn programs_are_looked_up_on_the_path_that_they_start_with() {
        let lab = Lab::new();
        lab.put("bin/script", "#!/usr/bin/env engine\n");
        lab.put("bin/engine", "#!/bin/sh\n");
        let in_ws = Some("AT/ws:AT/bin:/usr/bin:/bin");
        for (path, config, codex, expect) in [
            (None, "on_idle = [\"engine\"]\n", "bin/script", &[][..]),
            (in_ws, "on_idle = [\"engine\"]\n", "bin/codex", &[]),
            (in_ws, "on_idle = [\"AT/bin/script\"]\n", "bin/codex", &[]),
            (in_ws, "on_idle = []\n", "bin/script", &["codex"]),
        ] {
            assert_eq!(lab.exposed_with_path(path, config, codex, &["ws"]), expect, "{path:?} {config} {codex}");
        }
    }

    #[test]
    fn link_of_the_settings_counts_at_each_step() {
        for (links, expect) in [
            (&[("home/config.toml", "../ws/config.toml")][..], &["config.toml"][..]),
            (&[("home/config.toml", "../dots/link"), ("dots/link", "../ws/config.toml")], &["config.toml"]),
            (&[("home/config.toml", "../dots/config.toml"), ("dots", "ws")], &["config.toml"]),
            (&[("home/config.toml", "../dots/config.toml"), ("dots", "etc")], &[]),
            (&[("home/config.toml", "../ws/gone")], &["config.toml"]),
        ] {
            let lab = Lab::new();
            fs::create_dir(lab.root.join("etc")).expect("a folder");
            lab.put("ws/config.toml", "");
            lab.put("etc/config.toml", "");
            fs::remove_file(lab.root.join("home/config.toml")).expect("it is there");
            if links.iter().any(|(at, _)| at.starts_with("dots/")) {
                fs::create_dir(lab.root.join("dots")).expect("a folder");
            }
            for (at, target) in links {
                symlink(target, lab.root.join(at)).expect("a link");
            }
            assert_eq!(lab.exposed("", "bin/codex", &["ws"]), expect, "{links:?}");
        }
    }

    #[test]
    fn program_named_by_settings_in_reach_is_not_started() {
        let lab = Lab::new();
        let home = lab.root.join("home");
        let settings = |variable: Option<&str>| {
            let (home, hook) = (home.clone(), variable.map(str::to_owned));
            fs::write(home.join("config.toml"), "on_pending = \"/bin/true\"\n").expect("a file");
            let environment = Environment::of(move |name| match name {
                "CODEX_SHIM_HOME" => Some(home.clone().into()),
                "CODEX_SHIM_ON_PENDING" => hook.clone().map(OsString::from),
                _ => None,
            });
            Settings::load(Flags::default(), &environment).0
        };
        let server = ServerEnvironment::default();
        let reach = Reach::new([home.clone()], Whose::Models);
        for (variable, expect) in [(None, Err("config.toml")), (Some("/bin/true"), Ok(()))] {
            let settings = settings(variable);
            let (settings, ours) = (&settings, &server);
            let deciders = Deciders { settings, codex: None, own: None, server: &server, ours, cwd: &lab.root };
            let checked = deciders.check(&Use::row("on_pending"), &reach, &lab.root);
            let names = |checked: Result<(), Exposed>| checked.map_err(|exposed| exposed.name);
            assert_eq!(names(checked), expect.map_err(str::to_owned), "{variable:?}");
            // The very command counts, whatever the settings name by now; one that they do not know may be that of a file.
            let ws = lab.root.join("ws");
            let in_ws = Reach::new([ws.clone()], Whose::Models);
            let hook = ws.join("hook").display().to_string();
            for (words, reach, expect) in [
                (&["/bin/true".to_owned()][..], &in_ws, Ok(())),
                (&["/bin/false".to_owned()], &in_ws, Ok(())),
                (&[hook], &in_ws, Err("on_pending".to_owned())),
                (&["/bin/true".to_owned()], &reach, names(deciders.check(&Use::row("on_pending"), &reach, &ws))),
                (&["/bin/false".to_owned()], &reach, Err("config.toml".to_owned())),
            ] {
                let checked = deciders.check(&Use::command("on_pending", words), reach, &lab.root);
                assert_eq!(names(checked), expect, "{variable:?} {words:?}");
            }
            let unknown = deciders.check(&Use::command("fragment `x`", &["/bin/true".to_owned()]), &in_ws, &ws);
            assert!(unknown.expect_err("it is unknown").to_string().contains("do not name it any more"));
        }
    }
}
