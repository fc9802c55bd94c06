//! Settings: what there is to set, where each value came from, and what was wrong with one.
//!
//! A setting comes from a flag, else from `CODEX_SHIM_*`, else from `config.toml` in our home, else it has its default.
//! A value that cannot be used is a [`Complaint`], and the next source holds: a relay is never stopped by a setting.
//!
//! This is the only room that reads the environment.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use crate::journal::Bounds;

/// The variable that counts how many of us stand between this process and the first one.
pub const DEPTH_VARIABLE: &str = "CODEX_SHIM_DEPTH";

/// The variables that settings come from; a process that is to have none of the user's removes them.
pub const SETTING_VARIABLES: [&str; 7] = [
    "CODEX_SHIM_OFF",
    "CODEX_SHIM_CODEX",
    "CODEX_SHIM_SESSION",
    "CODEX_SHIM_RECORD",
    "CODEX_SHIM_EXIT_GRACE",
    "CODEX_SHIM_JOURNAL_BYTES_MAX",
    "CODEX_SHIM_JOURNAL_AGE_MAX",
];

/// Longest name of a session, in bytes.
const SESSION_NAME_BYTES_MAX: usize = 64;

/// Longest time that can be set: 100 years.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

const EXIT_GRACE: Duration = Duration::from_secs(10);
const JOURNAL_BYTES_MAX: ByteSize = ByteSize::mib(256);
const JOURNAL_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The name of a session: `[A-Za-z0-9._-]{1,64}`, and not only dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName(String);

impl std::str::FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<SessionName, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=SESSION_NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(allowed)
            && text.bytes().any(|byte| byte != b'.');
        if good {
            Ok(SessionName(text.to_owned()))
        } else {
            Err(format!("a session's name is 1 to {SESSION_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"))
        }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A flag of this name.
    Flag(&'static str),
    /// This variable of the environment.
    Variable(&'static str),
    /// The config file.
    File,
    /// Nobody set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(name) | Source::Variable(name) => f.write_str(name),
            Source::File => f.write_str("config.toml"),
            Source::Default => f.write_str("default"),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub source: Source,
}

/// Something that was set and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint(String);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What flags can set.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--codex`
    pub codex: Option<PathBuf>,
    /// `--session`
    pub session: Option<SessionName>,
    /// `--record`
    pub record: Option<bool>,
    /// `--exit-grace`
    pub exit_grace: Option<Duration>,
}

/// All settings, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where everything of ours is kept; `None` where no home folder is known.
    pub home: Setting<Option<PathBuf>>,
    /// Every relay becomes the server at once.
    pub off: Setting<bool>,
    /// The real codex: a path, or a name to look up on `PATH`; `None` looks for `codex`.
    pub codex: Setting<Option<PathBuf>>,
    /// The session to run in; `None` goes by the working directory.
    pub session: Setting<Option<SessionName>>,
    /// Whether a journal is kept.
    pub record: Setting<bool>,
    /// How long the server may take to end after the client has closed our stdin.
    pub exit_grace: Setting<Duration>,
    /// Size of a session's journal, over which its oldest segments go.
    pub journal_bytes_max: Setting<ByteSize>,
    /// Age at which a segment of a session's journal goes.
    pub journal_age_max: Setting<Duration>,
}

/// One setting as a person reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name in the config file.
    pub name: &'static str,
    /// Its value, `None` where there is none.
    pub value: Option<String>,
    /// Where the value came from.
    pub source: Source,
}

/// The variables of the environment, so that tests can bring their own.
pub struct Environment(Lookup);

type Lookup = Box<dyn Fn(&str) -> Option<OsString>>;

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

impl Environment {
    /// That of this process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn of_process() -> Environment {
        Environment(Box::new(|name| std::env::var_os(name)))
    }

    /// The value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// How many of us stand before this process; 0 where the count is missing or no number.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.get(DEPTH_VARIABLE).and_then(|depth| depth.to_str()?.parse().ok()).unwrap_or(0)
    }

    /// The home of codex: `CODEX_HOME`, else `~/.codex`.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        match self.get("CODEX_HOME") {
            // Without a slash at the end, so that the same folder is the same text.
            Some(home) => Path::new(&home).components().collect(),
            None => self.user_home().unwrap_or_default().join(".codex"),
        }
    }

    /// Where the user's sockets belong: `XDG_RUNTIME_DIR`, where it is set to an absolute path.
    #[must_use]
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        self.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())
    }

    fn user_home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).or_else(std::env::home_dir)
    }

    /// Where everything of ours is kept, and why there.
    #[must_use]
    pub fn shim_home(&self) -> Setting<Option<PathBuf>> {
        if let Some(home) = self.get("CODEX_SHIM_HOME") {
            let home = std::path::absolute(&home).unwrap_or_else(|_| PathBuf::from(&home));
            return Setting { value: Some(home), source: Source::Variable("CODEX_SHIM_HOME") };
        }
        let state = self.get("XDG_STATE_HOME").map(PathBuf::from).filter(|state| state.is_absolute());
        match state {
            Some(state) => {
                Setting { value: Some(state.join("codex-shim")), source: Source::Variable("XDG_STATE_HOME") }
            }
            None => Setting {
                value: self.user_home().map(|home| home.join(".local/state/codex-shim")),
                source: Source::Default,
            },
        }
    }
}

impl Settings {
    /// Resolves every setting, and tells which values could not be used.
    #[must_use]
    pub fn load(flags: Flags, environment: &Environment) -> (Settings, Vec<Complaint>) {
        let home = environment.shim_home();
        let mut complaints = Vec::new();
        let file = home.value.as_deref().map_or_else(toml::Table::new, |home| read_file(home, &mut complaints));
        let beside_file = home.value.clone().unwrap_or_default();
        let mut sources = Sources { environment, file, beside_file, complaints };
        let settings = Settings {
            off: sources.resolve("off", None, "CODEX_SHIM_OFF", "no flag", parse_bool, false),
            codex: sources.resolve_path("codex", flags.codex, "CODEX_SHIM_CODEX", "--codex"),
            session: sources.resolve_session(flags.session),
            record: sources.resolve("record", flags.record, "CODEX_SHIM_RECORD", "--record", parse_bool, true),
            exit_grace: sources.resolve(
                "exit_grace",
                flags.exit_grace,
                "CODEX_SHIM_EXIT_GRACE",
                "--exit-grace",
                parse_duration,
                EXIT_GRACE,
            ),
            journal_bytes_max: sources.resolve(
                "journal_bytes_max",
                None,
                "CODEX_SHIM_JOURNAL_BYTES_MAX",
                "no flag",
                parse_bytes,
                JOURNAL_BYTES_MAX,
            ),
            journal_age_max: sources.resolve(
                "journal_age_max",
                None,
                "CODEX_SHIM_JOURNAL_AGE_MAX",
                "no flag",
                parse_duration,
                JOURNAL_AGE_MAX,
            ),
            home,
        };
        let unknown = sources.file.keys().map(|name| {
            Complaint(format!("config.toml: `{name}` is no setting; `codex-shim config` lists those that there are"))
        });
        sources.complaints.extend(unknown);
        (settings, sources.complaints)
    }

    /// The bounds of a session's journal.
    #[must_use]
    pub fn journal_bounds(&self) -> Bounds {
        Bounds { journal_bytes_max: self.journal_bytes_max.value.as_u64(), journal_age_max: self.journal_age_max.value }
    }

    /// Every setting with its source, in the order of the documentation.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let duration = |duration: Duration| Some(humantime::format_duration(duration).to_string());
        let row = |name, value, source: &Source| Row { name, value, source: source.clone() };
        vec![
            row("home", path(&self.home.value), &self.home.source),
            row("off", Some(self.off.value.to_string()), &self.off.source),
            row("codex", path(&self.codex.value), &self.codex.source),
            row("session", self.session.value.as_ref().map(ToString::to_string), &self.session.source),
            row("record", Some(self.record.value.to_string()), &self.record.source),
            row("exit_grace", duration(self.exit_grace.value), &self.exit_grace.source),
            row("journal_bytes_max", Some(self.journal_bytes_max.value.to_string()), &self.journal_bytes_max.source),
            row("journal_age_max", duration(self.journal_age_max.value), &self.journal_age_max.source),
        ]
    }
}

/// The sources that a setting is looked for in; names are taken out of the file as they are used.
struct Sources<'a> {
    environment: &'a Environment,
    file: toml::Table,
    /// Where the file stands; a relative path in it starts there.
    beside_file: PathBuf,
    complaints: Vec<Complaint>,
}

impl Sources<'_> {
    fn resolve<T>(
        &mut self,
        name: &'static str,
        flag: Option<T>,
        variable: &'static str,
        flag_name: &'static str,
        parse: fn(&str) -> Result<T, String>,
        default: T,
    ) -> Setting<T> {
        let in_file = self.take_from_file(name);
        if let Some(value) = flag {
            return Setting { value, source: Source::Flag(flag_name) };
        }
        if let Some(text) = self.environment.get(variable)
            && let Some(value) = self.accept(variable, parse(&text.to_string_lossy()))
        {
            return Setting { value, source: Source::Variable(variable) };
        }
        if let Some(text) = in_file
            && let Some(value) = self.accept(&format!("config.toml: {name}"), parse(&text))
        {
            return Setting { value, source: Source::File };
        }
        Setting { value: default, source: Source::Default }
    }

    /// Paths need not be UTF-8, so they are not parsed.
    fn resolve_path(
        &mut self,
        name: &'static str,
        flag: Option<PathBuf>,
        variable: &'static str,
        flag_name: &'static str,
    ) -> Setting<Option<PathBuf>> {
        let in_file = self.take_from_file(name);
        if flag.is_some() {
            return Setting { value: flag, source: Source::Flag(flag_name) };
        }
        if let Some(path) = self.environment.get(variable) {
            return Setting { value: Some(path.into()), source: Source::Variable(variable) };
        }
        match in_file {
            Some(path) if is_path(OsStr::new(&path)) => {
                Setting { value: Some(self.beside_file.join(path)), source: Source::File }
            }
            Some(name) => Setting { value: Some(name.into()), source: Source::File },
            None => Setting { value: None, source: Source::Default },
        }
    }

    fn resolve_session(&mut self, flag: Option<SessionName>) -> Setting<Option<SessionName>> {
        let parse = |text: &str| text.parse().map(Some);
        self.resolve("session", flag.map(Some), "CODEX_SHIM_SESSION", "--session", parse, None)
    }

    fn accept<T>(&mut self, what: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|why| self.complaints.push(Complaint(format!("{what}: {why}; it is ignored")))).ok()
    }

    /// The text of a setting in the file. A number or a truth value stands for its text.
    fn take_from_file(&mut self, name: &str) -> Option<String> {
        match self.file.remove(name)? {
            toml::Value::String(text) => Some(text),
            toml::Value::Integer(number) => Some(number.to_string()),
            toml::Value::Boolean(truth) => Some(truth.to_string()),
            other @ (toml::Value::Float(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_)) => {
                let kind = other.type_str();
                self.complaints.push(Complaint(format!("config.toml: {name}: no {kind} goes here; it is ignored")));
                None
            }
        }
    }
}

fn read_file(home: &Path, complaints: &mut Vec<Complaint>) -> toml::Table {
    let path = home.join("config.toml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return toml::Table::new(),
        // A home that cannot be reached is told of when it is used.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return toml::Table::new(),
        Err(error) => {
            complaints.push(Complaint(format!("read {}: {error}; it is ignored", path.display())));
            return toml::Table::new();
        }
    };
    text.parse().unwrap_or_else(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        let why = error.message();
        complaints.push(Complaint(format!("{}, line {line}: {why}; the file is ignored", path.display())));
        toml::Table::new()
    })
}

/// Reads a truth value.
///
/// # Errors
///
/// What would be one.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// Reads a length of time such as `10s`.
///
/// # Errors
///
/// What would be one.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is no length of time such as 500ms, 10s or 7d"))?;
    // Longer is the same as never, and can be added to any time without care.
    Ok(duration.min(DURATION_MAX))
}

fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| format!("`{text}` is no size such as 256MiB"))
}

/// Whether the value of a program setting is a path and not a bare name to look up on `PATH`.
#[must_use]
pub fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: Flags, variables: &[(&str, &str)], file: &str) -> (Settings, Vec<String>) {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(home.path().join("config.toml"), file).expect("BUG: it can be written to");
        let mut variables: Vec<(String, OsString)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        variables.push(("CODEX_SHIM_HOME".to_owned(), home.path().into()));
        let environment = Environment(Box::new(move |wanted| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        }));
        let (settings, complaints) = Settings::load(flags, &environment);
        (settings, complaints.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
        let file = "exit_grace = \"3s\"\nrecord = false\njournal_bytes_max = \"1GiB\"\n";
        let variables = [("CODEX_SHIM_EXIT_GRACE", "2s"), ("CODEX_SHIM_CODEX", "/opt/codex")];
        let flags = Flags { exit_grace: Some(Duration::from_secs(1)), ..Flags::default() };
        let (settings, complaints) = load(flags, &variables, file);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(settings.exit_grace.value, Duration::from_secs(1));
        assert_eq!(settings.exit_grace.source, Source::Flag("--exit-grace"));
        assert_eq!(settings.codex.source, Source::Variable("CODEX_SHIM_CODEX"));
        assert_eq!((settings.record.value, settings.record.source), (false, Source::File));
        assert_eq!(settings.journal_bytes_max.value, ByteSize::gib(1));
        assert_eq!(settings.journal_age_max.source, Source::Default);
    }

    #[test]
    fn what_cannot_be_used_is_told_and_the_next_source_holds() {
        let variables = [("CODEX_SHIM_EXIT_GRACE", "soon"), ("CODEX_SHIM_SESSION", "a/b")];
        let (settings, complaints) =
            load(Flags::default(), &variables, "exit_grace = \"3s\"\nrecord = 1.5\nholds = 1\n");
        assert_eq!(settings.exit_grace.value, Duration::from_secs(3));
        assert_eq!(settings.session.value, None);
        assert!(settings.record.value);
        assert_eq!(
            complaints,
            [
                "CODEX_SHIM_SESSION: a session's name is 1 to 64 letters, digits, `.`, `_` or `-`; it is ignored",
                "config.toml: record: no float goes here; it is ignored",
                "CODEX_SHIM_EXIT_GRACE: `soon` is no length of time such as 500ms, 10s or 7d; it is ignored",
                "config.toml: `holds` is no setting; `codex-shim config` lists those that there are",
            ]
        );
    }

    #[test]
    fn a_broken_file_is_told_with_its_line() {
        let (settings, complaints) = load(Flags::default(), &[], "record = false\nexit_grace = = 1\n");
        assert!(settings.record.value);
        assert!(complaints[0].contains("config.toml, line 2: "), "{complaints:?}");
    }

    #[test]
    fn names_of_sessions() {
        for good in ["a", "A.b_c-9", ".hidden", &"x".repeat(64)] {
            assert!(good.parse::<SessionName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad}");
        }
    }
}
