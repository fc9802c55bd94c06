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
use super::program_check::ServerEnvironment;
use super::words::argument_files;
use crate::config::{Settings, Source};
use crate::engine::FragmentSource;
use crate::files::{Executable, InReach, Reach};

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

/// One of the things that decide.
#[derive(Debug)]
struct Decider {
    /// Its setting, or what it is.
    name: String,
    part: Part,
    /// It is named in `config.toml`, so who can change that file can change it.
    is_in_file: bool,
}

#[derive(Debug)]
enum Part {
    File(PathBuf),
    /// No model may write in it either.
    Folder(PathBuf),
    /// A program, and the files that its arguments name.
    Command(Vec<String>),
    /// A program that package managers may link to a store of theirs.
    Program(PathBuf),
}

/// A decider that a model can change, or could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exposed {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) certainty: Certainty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
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
    pub(crate) fn bar(&self) -> String {
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
        let why = format!("the file system has not answered within {} s; it is tried again", CHECK_WAIT_MAX.as_secs());
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
pub(crate) fn is_exposure(fault: &str) -> bool {
    fault.contains(EXPOSED) || fault.contains(ASSUMED)
}

/// What the table is made of.
#[derive(Debug)]
pub(crate) struct Deciders<'a> {
    pub(crate) settings: &'a Settings,
    /// The server's program.
    pub(crate) codex: Option<&'a Path>,
    /// Our own program, which decides at the next start; `None` if the system does not say.
    pub(crate) own: Option<&'a Path>,
    /// The environment of the server, which is ours.
    pub(crate) server: &'a ServerEnvironment,
    /// Our working directory, where hooks and the context engine start.
    pub(crate) cwd: &'a Path,
}

impl Deciders<'_> {
    /// What decides for the user.
    fn table(&self) -> Vec<Decider> {
        let settings = self.settings;
        let mut table = Vec::new();
        let mut add = |name: &str, is_in_file: bool, part: Part| {
            table.push(Decider { name: name.to_owned(), part, is_in_file });
        };
        if let Some(home) = &settings.home.value {
            add(CONFIG, false, Part::File(home.join("config.toml")));
            add("home", false, Part::Folder(home.clone()));
        }
        if let Some(codex) = self.codex {
            add(CODEX, settings.codex.source == Source::File, Part::Program(codex.to_owned()));
        }
        if let Some(own) = self.own {
            add(OWN, false, Part::Program(own.to_owned()));
        }
        for (name, setting) in [
            ("on_pending", &settings.on_pending),
            ("on_idle", &settings.on_idle),
            ("on_stalled", &settings.on_stalled),
            (CONTEXT_ENGINE, &settings.assembly.command),
        ] {
            add(name, setting.source == Source::File, Part::Command(setting.value.clone()));
        }
        // They decide who answers from another machine.
        for (name, setting) in [("fleet.creds", &settings.fleet.creds), ("fleet.ca", &settings.fleet.ca)] {
            if let Some(file) = &setting.value {
                add(name, setting.source == Source::File, Part::File(file.clone()));
            }
        }
        for of in &settings.assembly.fragments.value {
            match &of.source {
                FragmentSource::Command(words) => add(&fragment(&of.name), true, Part::Command(words.clone())),
                FragmentSource::File(file) => add(&fragment(&of.name), true, Part::File(file.clone())),
                // The settings themselves hold it.
                FragmentSource::Text(_) => {}
            }
        }
        table
    }

    /// All that a model can change. Calls `begin` with the name of each before it looks at its files.
    pub(crate) fn exposed(&self, reach: &Reach, begin: impl Fn(&str)) -> Vec<Exposed> {
        let table = self.table();
        let check = |of: &Decider| {
            begin(&of.name);
            self.check_one(of, reach, self.cwd).err()
        };
        table.iter().filter_map(check).collect()
    }

    /// Whether one of them, and the file that names it, is out of reach. `cwd` is the folder in which a program starts.
    pub(crate) fn check(&self, name: &str, reach: &Reach, cwd: &Path) -> Result<(), Exposed> {
        let table = self.table();
        let Some(wanted) = table.iter().find(|of| of.name == name) else { return Ok(()) };
        let names_it = |of: &&Decider| wanted.is_in_file && matches!(&*of.name, CONFIG | "home");
        let before = table.iter().filter(names_it);
        before.chain([wanted]).try_for_each(|of| self.check_one(of, reach, cwd))
    }

    fn check_one(&self, of: &Decider, reach: &Reach, cwd: &Path) -> Result<(), Exposed> {
        let checked = match &of.part {
            Part::File(path) => reach.check(&cwd.join(path)),
            Part::Folder(path) => reach.check_folder(&cwd.join(path)),
            Part::Command(words) => self.check_command(words, reach, cwd),
            Part::Program(path) => self.check_program(&cwd.join(path), reach, cwd),
        };
        match checked.map_err(InReach::of_model) {
            Err(Some(why)) => Err(Exposed { name: of.name.clone(), why, certainty: Certainty::Seen }),
            Ok(()) | Err(None) => Ok(()),
        }
    }

    fn check_command(&self, words: &[String], reach: &Reach, cwd: &Path) -> Result<(), InReach> {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let found = match program.contains('/') {
            true => reach.executable(&cwd.join(program))?,
            false => reach.on_path(program, self.server.path())?,
        };
        if let Some(found) = found {
            interpreters::check_with_start(reach, &found, self.server, cwd)?;
        }
        let files = argument_files(program, arguments, cwd, self.server.home());
        files.iter().try_for_each(|file| reach.check(file))
    }

    fn check_program(&self, path: &Path, reach: &Reach, cwd: &Path) -> Result<(), InReach> {
        reach.check_linked(path)?;
        let Ok(real) = path.canonicalize() else { return Ok(()) };
        interpreters::check(reach, &Executable { spelled: path.to_owned(), real }, self.server, cwd)
    }
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
        _folder: tempfile::TempDir,
    }

    impl Lab {
        fn new() -> Lab {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path().canonicalize().expect("it is there");
            for name in ["home/sessions", "ws", "bin", "own"] {
                fs::create_dir_all(root.join(name)).expect("a folder");
            }
            let lab = Lab { root, _folder: folder };
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
            let server = ServerEnvironment::of(&environment, None);
            let codex = self.root.join(codex);
            let own = self.root.join("own/codex-shim");
            let deciders = Deciders {
                settings: &settings,
                codex: Some(&codex),
                own: Some(&own),
                server: &server,
                cwd: &self.root,
            };
            let reach = Reach::new(places.iter().map(|place| self.root.join(place)), Whose::Models);
            deciders.exposed(&reach, |_| {}).into_iter().map(|exposed| exposed.name).collect()
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
            let deciders = Deciders { settings: &settings, codex: None, own: None, server: &server, cwd: &lab.root };
            let checked = deciders.check("on_pending", &reach, &lab.root).map_err(|exposed| exposed.name);
            assert_eq!(checked, expect.map_err(str::to_owned), "{variable:?}");
        }
    }
}
