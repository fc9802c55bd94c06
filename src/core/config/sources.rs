//! Looks settings up in their sources and parses their text.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::{Complaint, Setting, SettingName, Source};
use crate::engine::RequestType;
use crate::files::{self, Folder, Refused};

/// Limit of a time setting: 100 years.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The sources of settings. Names are removed from the file as they are used, so the rest is unknown.
pub(super) struct Sources<'a> {
    pub(super) environment: &'a Environment,
    pub(super) file: toml::Table,
    /// The folder of the file, to which its relative paths refer.
    pub(super) beside_file: PathBuf,
    pub(super) complaints: Vec<Complaint>,
}

impl Sources<'_> {
    /// The value of the first source that has a valid one. Later sources are not parsed.
    fn pick<T>(
        &mut self,
        name: SettingName,
        flag: Option<T>,
        of_variable: impl FnOnce(OsString) -> Result<T, String>,
        of_file: Option<impl FnOnce() -> Result<T, String>>,
        default: T,
    ) -> Setting<T> {
        if let Some(value) = flag {
            return Setting { value, source: Source::Flag(name.flag) };
        }
        let variable = self.environment.get(name.variable);
        if let Some(value) = variable.and_then(|text| self.accept(name.variable, of_variable(text))) {
            return Setting { value, source: Source::Variable(name.variable) };
        }
        match of_file.and_then(|read| self.accept(&format!("config.toml: {}", name.file), read())) {
            Some(value) => Setting { value, source: Source::File },
            None => Setting { value: default, source: Source::Default },
        }
    }

    pub(super) fn resolve<T>(
        &mut self,
        name: SettingName,
        flag: Option<T>,
        parse: impl Fn(&str) -> Result<T, String>,
        default: T,
    ) -> Setting<T> {
        let parse = &parse;
        let in_file = self.take_from_file(name.file).map(|text| move || parse(&text));
        self.pick(name, flag, |text| parse(&text.to_string_lossy()), in_file, default)
    }

    /// Paths need not be UTF-8, so they are not parsed.
    pub(super) fn resolve_path(&mut self, name: SettingName, flag: Option<PathBuf>) -> Setting<Option<PathBuf>> {
        let beside_file = self.beside_file.clone();
        let in_file = self.take_from_file(name.file).map(|program| {
            move || Ok(Some(if is_path(OsStr::new(&program)) { beside_file.join(program) } else { program.into() }))
        });
        self.pick(name, flag.map(Some), |path| Ok(Some(path.into())), in_file, None)
    }

    /// A file; a relative path in the config file refers to that file's folder.
    pub(super) fn resolve_file(&mut self, name: SettingName) -> Setting<Option<PathBuf>> {
        let beside_file = self.beside_file.clone();
        let in_file = self.take_from_file(name.file).filter(|path| !path.is_empty());
        let in_file = in_file.map(|path| move || Ok(Some(beside_file.join(path))));
        self.pick(name, None, |path| Ok(Some(path.into())), in_file, None)
    }

    /// A file, of which `~/` is the user's home folder.
    pub(super) fn resolve_file_of_user(&mut self, name: SettingName) -> Setting<Option<PathBuf>> {
        let home = self.environment.user_home();
        let Setting { value, source } = self.resolve_file(name);
        let in_home = |path: PathBuf| {
            // A path of the config file was joined with the folder of the file.
            let given = match source {
                Source::File => path.strip_prefix(&self.beside_file).unwrap_or(&path).to_owned(),
                Source::Flag(_) | Source::Variable(_) | Source::Default => path.clone(),
            };
            match (given.strip_prefix("~"), &home) {
                (Ok(rest), Some(home)) => home.join(rest),
                (Ok(_) | Err(_), _) => path,
            }
        };
        Setting { value: value.map(in_home), source }
    }

    /// The settings of the table `[name]` of the file get names such as `name.member`.
    pub(super) fn unfold(&mut self, name: &str, example: &str) {
        match self.file.remove(name) {
            Some(toml::Value::Table(table)) => {
                self.file.extend(table.into_iter().map(|(member, value)| (format!("{name}.{member}"), value)));
            }
            Some(other) => self.refuse(name, &other, &format!("use a table: `[{name}]` and in it `{example}`; ")),
            None => {}
        }
    }

    /// Times by type: a table in the file; `TYPE=TIME`, separated by commas, in a variable.
    pub(super) fn resolve_expiry(&mut self, name: SettingName) -> Setting<Vec<(RequestType, Duration)>> {
        let in_file = match self.file.remove(name.file) {
            Some(toml::Value::Table(table)) => Some(table),
            Some(other) => {
                self.refuse(name.file, &other, "use a table such as `[expiry]`; ");
                None
            }
            None => None,
        };
        let variable = |text: OsString| parse_expiry(&text.to_string_lossy());
        let Some(table) = in_file else { return self.pick(name, None, variable, None::<fn() -> _>, Vec::new()) };
        let setting = self.pick(name, None, variable, Some(|| Ok(Vec::new())), Vec::new());
        if setting.source != Source::File {
            return setting;
        }
        let pairs = table.iter().filter_map(|(of, after)| {
            let after = after.as_str().unwrap_or(after.type_str()).to_owned();
            self.accept(&format!("config.toml: {}.{of}", name.file), parse_expiry(&format!("{of}={after}")))
        });
        Setting { value: pairs.flatten().collect(), source: Source::File }
    }

    /// A program and its arguments: an array in both sources; in a variable, a plain string is a program.
    pub(super) fn resolve_command(&mut self, name: SettingName) -> Setting<Vec<String>> {
        let wrong = || "it must be a program and its arguments, such as [\"notify-send\", \"codex\"]".to_owned();
        let words = |value: &toml::Value| -> Option<Vec<String>> {
            match value.as_array() {
                Some(words) => words.iter().map(|word| word.as_str().map(str::to_owned)).collect(),
                None => value.as_str().map(|program| vec![program.to_owned()]),
            }
        };
        let in_file = self.file.remove(name.file).map(|value| move || words(&value).ok_or_else(wrong));
        let of_variable = |text: OsString| {
            let text = text.to_string_lossy().into_owned();
            if !text.trim_start().starts_with('[') {
                return Ok(vec![text]);
            }
            let table: Option<toml::Table> = format!("x = {text}").parse().ok();
            table.and_then(|table| words(table.get("x")?)).ok_or_else(wrong)
        };
        self.pick(name, None, of_variable, in_file, Vec::new())
    }

    /// Complains about a value in the file that is of the wrong kind.
    pub(super) fn refuse(&mut self, name: &str, value: &toml::Value, remedy: &str) {
        let kind = value.type_str();
        let article = article(kind);
        self.complaints
            .push(Complaint(format!("config.toml: {name}: {article} {kind} is not valid here; {remedy}it is ignored")));
    }

    /// The tables `[[name]]` of the file; `None` if it has none.
    pub(super) fn tables(&mut self, name: &str) -> Option<Vec<toml::Value>> {
        let value = self.file.remove(name)?;
        if let toml::Value::Array(tables) = value {
            return Some(tables);
        }
        self.refuse(name, &value, &format!("use `[[{name}]]`, once for each; "));
        Some(Vec::new())
    }

    fn accept<T>(&mut self, what: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|why| self.complaints.push(Complaint(format!("{what}: {why}; it is ignored")))).ok()
    }

    /// The text of a setting in the file. Numbers, booleans and lists of strings are converted to text.
    fn take_from_file(&mut self, name: &str) -> Option<String> {
        match self.file.remove(name)? {
            toml::Value::String(text) => Some(text),
            toml::Value::Integer(number) => Some(number.to_string()),
            toml::Value::Boolean(truth) => Some(truth.to_string()),
            toml::Value::Array(list) if list.iter().all(toml::Value::is_str) => {
                let names: Vec<&str> = list.iter().filter_map(toml::Value::as_str).collect();
                Some(names.join(","))
            }
            other @ (toml::Value::Float(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_)) => {
                self.refuse(name, &other, "");
                None
            }
        }
    }
}

pub(super) fn read_file(home: &Path, complaints: &mut Vec<Complaint>) -> toml::Table {
    let path = home.join("config.toml");
    // The relay and the tools report a refused home when they use it. Settings that other users can change are not
    // read.
    if Folder::home(home).is_err_and(|error| Refused::behind(&error).is_some()) {
        return toml::Table::new();
    }
    // The file itself may be a link, since only the user can create one in this folder.
    let text = match files::read_trusted(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return toml::Table::new(),
        // An unreachable home is reported when it is used.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return toml::Table::new(),
        // It can name programs that we run.
        Err(error) if Refused::behind(&error).is_some() => {
            complaints.push(Complaint(format!("config.toml is ignored: {error}")));
            return toml::Table::new();
        }
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

/// `a` or `an`.
pub(super) fn article(kind: &str) -> &'static str {
    if kind.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}

/// Parses `true` or `false`.
///
/// # Errors
///
/// A message with the valid values.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// Parses a duration such as `10s`.
///
/// # Errors
///
/// A message with an example.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is not a length of time, such as 500ms, 10s or 7d"))?;
    // A longer time means never, and this limit can be added to any time without overflow.
    Ok(duration.min(DURATION_MAX))
}

pub(super) fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a size, such as 256MiB"))
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number, 0 or more"))
}

/// Names separated by commas.
pub(super) fn parse_names(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn parse_expiry(text: &str) -> Result<Vec<(RequestType, Duration)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let types = || RequestType::ALL.iter().filter(|of| of.is_for_human()).map(|of| of.name()).collect::<Vec<_>>();
    pairs
        .map(|pair| {
            let (of, after) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not TYPE=TIME"))?;
            let known = RequestType::ALL.into_iter().find(|known| known.is_for_human() && known.name() == of.trim());
            let known = known.ok_or_else(|| format!("unknown type `{of}`; the types are {}", types().join(", ")))?;
            Ok((known, parse_duration(after.trim())?))
        })
        .collect()
}

/// Whether the value of a program setting is a path, not a bare name to look up on `PATH`.
#[must_use]
pub fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

// The environment. No other module reads its variables.

/// A path without links and `..`. As much of it as does not exist stays as it is.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let exists = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match exists {
        Some((ancestor, resolved)) => {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            // Joined by components: an empty rest would add a slash.
            resolved.components().chain(rest.components()).collect()
        }
        None => path,
    }
}

/// The variable that counts the nested codex-shim processes.
pub const DEPTH_VARIABLE: &str = "CODEX_SHIM_DEPTH";

/// The variables of the environment; tests bring their own.
pub struct Environment(Lookup);

type Lookup = Box<dyn Fn(&str) -> Option<OsString>>;

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn of_process() -> Environment {
        Environment(Box::new(|name| std::env::var_os(name)))
    }

    /// An environment with another lookup.
    #[must_use]
    pub fn of(lookup: impl Fn(&str) -> Option<OsString> + 'static) -> Environment {
        Environment(Box::new(lookup))
    }

    /// The environment of another process, a 0 byte after each variable. Ours plays no part in it. Source: `proc(5)`.
    #[must_use]
    pub fn of_variables(variables: &[u8]) -> Environment {
        let pairs = variables.split(|byte| *byte == 0).filter_map(|variable| {
            let end = variable.iter().position(|byte| *byte == b'=')?;
            let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
            Some((text(&variable[..end]), text(&variable[end + 1..])))
        });
        let variables: HashMap<OsString, OsString> = pairs.collect();
        Environment::of(move |name| variables.get(OsStr::new(name)).cloned())
    }

    /// The value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// The number of codex-shim processes in front of this one; 0 if the count is missing or invalid.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.get(DEPTH_VARIABLE).and_then(|depth| depth.to_str()?.parse().ok()).unwrap_or(0)
    }

    /// The home of codex: `CODEX_HOME`, else `~/.codex`.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        match self.get("CODEX_HOME") {
            // Removes trailing slashes, so that the same folder is the same text.
            Some(home) => Path::new(&home).components().collect(),
            None => self.user_home().unwrap_or_default().join(".codex"),
        }
    }

    /// The home of codex in a shell without `CODEX_HOME`, resolved.
    #[must_use]
    pub fn codex_home_by_default(&self) -> PathBuf {
        resolved(&self.user_home().unwrap_or_default().join(".codex"))
    }

    /// The home of codex by the one path that it has, however it is spelled: without links, and not relative.
    #[must_use]
    pub fn codex_home_resolved(&self) -> PathBuf {
        resolved(&self.codex_home())
    }

    /// The folder for the user's sockets: `XDG_RUNTIME_DIR`, if it is an absolute path.
    #[must_use]
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        self.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())
    }

    pub fn user_home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).or_else(std::env::home_dir)
    }

    /// Our home, and where its path came from.
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
