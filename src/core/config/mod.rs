//! Settings: their values, the source of each value, and complaints about invalid ones.
//!
//! A setting comes from a flag, else from `CODEX_SHIM_*`, else from `config.toml` in our home, else it has its default.
//! An invalid value causes a [`Complaint`], and the next source applies: a setting never stops a relay.
//!
//! No other room reads the environment.

mod assembly;
mod budget;
mod fleet;
mod hub;
mod kind;
mod prices;
mod rules;
mod sources;
mod terminal;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::engine::{
    AssemblySettings, BudgetUse, Carrier, ContextBounds, ContextSettings, Fragment, RequestSettings, RequestType, Rule,
};
use crate::journal::Bounds;

pub use assembly::ContextEngineChoice;
pub use budget::BudgetChoice;
pub use fleet::FleetChoice;
pub use fleet::FleetLevel;
pub use hub::HubChoice;
pub use prices::Price;
pub use rules::{conditions, rule_in_file, rules_in};
pub use sources::DEPTH_VARIABLE;
pub use sources::Environment;
pub use sources::parse_duration;
pub use sources::{is_path, parse_bool, resolved};
pub use terminal::{NoticeChoice, NoticeSequence};

use kind::{command, count, expiry, file, names, program, session, size, time, truth, word};
use sources::{Sources, read_file};

pub const SESSION_NAME_BYTES_MAX: usize = 64;

const DEFAULT_EXIT_GRACE: Duration = Duration::from_secs(10);
const DEFAULT_JOURNAL_BYTES_MAX: ByteSize = ByteSize::mib(256);
const DEFAULT_JOURNAL_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);

const DEFAULT_EVENTS_MAX: usize = 50_000;
const DEFAULT_TOOL_EVENTS_MAX: usize = 20_000;
const DEFAULT_TURN_EVENTS_MAX: usize = 5_000;
const DEFAULT_HISTORY_AGE_MAX: Duration = Duration::from_secs(14 * 86_400);
const DEFAULT_SESSION_AGE_MAX: Duration = Duration::from_secs(30 * 86_400);
const DEFAULT_ON_PENDING_AFTER: Duration = Duration::from_millis(500);
/// Source: the contract.
pub const DEFAULT_STALLED_AFTER: Duration = Duration::from_secs(300);

/// The name of a setting in each of its sources.
#[derive(Debug, Clone, Copy)]
struct SettingName {
    file: &'static str,
    variable: &'static str,
    /// Empty if there is no flag.
    flag: &'static str,
}

const fn name(file: &'static str, variable: &'static str, flag: &'static str) -> SettingName {
    SettingName { file, variable, flag }
}

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
            Err(format!("a session name has 1 to {SESSION_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"))
        }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Declares a choice between words, with the words in which another one is refused.
macro_rules! choice {
    ($(#[$attr:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* } else $refuse:expr) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$doc])* $variant,)*
        }

        impl std::str::FromStr for $enum {
            type Err = String;

            fn from_str(text: &str) -> Result<$enum, String> {
                let refuse: fn(&str) -> String = $refuse;
                match text {
                    $($word => Ok($enum::$variant),)*
                    other => Err(refuse(other)),
                }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($enum::$variant => $word,)* })
            }
        }
    };
}
use choice;

choice! {
    /// Which server a client on stdio gets.
    pub enum ServerChoice {
        /// One for this client alone, as without codex-shim.
        #[default]
        Own = "own",
        /// That of the hub of its `CODEX_HOME`.
        Shared = "shared",
    } else |text| format!("`{text}` is neither `own` nor `shared`")
}

choice! {
    /// Which threads of a hub get a command that was captured in a folder.
    pub enum ContextScope {
        /// Those whose folder it ran in or below.
        Folder = "folder",
        /// Those of its repository; without one, the same as for a folder.
        #[default]
        Repository = "repository",
        /// All.
        Session = "session",
    } else |_| "expected `folder`, `repository` or `session`".to_owned()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A command-line flag.
    Flag(&'static str),
    /// An environment variable.
    Variable(&'static str),
    /// The config file.
    File,
    /// The built-in default.
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

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub source: Source,
}

/// A value that is set but invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint(String);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Complaint {
    /// Whether the complaint is about the config file and not about an environment variable.
    #[must_use]
    pub fn is_about_file(&self) -> bool {
        !self.0.starts_with("CODEX_SHIM_")
    }

    /// Whether it is about one of the rules.
    pub fn is_about_rules(&self) -> bool {
        self.0.starts_with("config.toml: rule")
    }

    /// The mistake without what a start makes of it.
    #[must_use]
    pub fn mistake(&self) -> &str {
        self.0.strip_suffix("; it is ignored").unwrap_or(&self.0)
    }
}

/// Declares the settings: each with its type, kind and default, its variable, whether a running relay applies a change (`live`)
/// or not (`restart`), and its flag. The name is that in the config file.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ty = $kind:expr, $variable:literal, $when:ident $(, flag $flag:literal)?;
    )*) => {
        /// The variables of the settings. A process that must ignore the user's settings removes them.
        pub fn setting_variables() -> impl Iterator<Item = &'static str> {
            let own: &[&str] = &[$($variable),*];
            [own, ContextEngineChoice::VARIABLES, FleetChoice::VARIABLES, HubChoice::VARIABLES, BudgetChoice::VARIABLES].into_iter().flatten().copied()
        }

        /// The settings that flags can set.
        #[derive(Debug, Clone, Default)]
        pub struct Flags {
            $($(#[doc = concat!("`", $flag, "`")] pub $name: Option<$type>,)?)*
        }

        /// All settings, resolved.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            /// Our home; `None` if neither CODEX_SHIM_HOME nor HOME is set.
            pub home: Setting<Option<PathBuf>>,
            $($(#[$doc])* pub $name: Setting<$type>,)*
            pub context_engine: ContextEngineChoice,
            pub fleet: FleetChoice,
            pub hub: HubChoice,
            pub budget: BudgetChoice,
            /// Texts that threads receive, in the order of the file.
            pub fragments: Setting<Vec<Fragment>>,
            /// What tokens cost the user, by model.
            pub prices: Setting<Vec<Price>>,
            /// Requests that are decided without asking, in the order of the file.
            pub rules: Setting<Vec<Rule>>,
        }

        impl Settings {
            fn resolve(home: Setting<Option<PathBuf>>, flags: &Flags, sources: &mut Sources<'_>) -> Settings {
                Settings {
                    $($name: {
                        let name = name(stringify!($name), $variable, concat!($($flag)?));
                        $kind.resolve(sources, name, settings!(@flag flags.$name $($flag)?))
                    },)*
                    fragments: assembly::fragments(sources),
                    context_engine: ContextEngineChoice::resolve(sources),
                    fleet: FleetChoice::resolve(sources),
                    hub: HubChoice::resolve(sources),
                    budget: BudgetChoice::resolve(sources),
                    prices: prices::resolve(sources),
                    rules: rules::resolve(sources),
                    home,
                }
            }

            /// These settings, with the live ones of `newer`: those that a running relay can change. The others wait for a
            /// restart.
            #[must_use]
            pub fn with_live_settings_of(&self, newer: &Settings) -> Settings {
                Settings {
                    home: self.home.clone(),
                    $($name: settings!(@$when newer, self).$name.clone(),)*
                    context_engine: self.context_engine.clone(),
                    // No relay uses them.
                    fleet: newer.fleet.clone(),
                    hub: newer.hub.clone(),
                    budget: newer.budget.clone(),
                    fragments: newer.fragments.clone(),
                    prices: newer.prices.clone(),
                    rules: newer.rules.clone(),
                }
            }

            /// What follows from the budget: a person is asked, or told.
            pub fn budget_use(&self) -> BudgetUse {
                let tells = self.budget.limits().are_set() && !self.on_budget.value.is_empty();
                BudgetUse { asks: self.budget.asks(), tells }
            }

            /// The cgroups whose processes may call although they are confined.
            pub fn trusted_cgroups(&self) -> Vec<PathBuf> {
                self.trusted_cgroups.value.iter().flatten().map(PathBuf::from).collect()
            }

            /// The flags that these settings came from.
            #[must_use]
            pub fn flags(&self) -> Flags {
                Flags { $($($name: of_flag(&self.$name, $flag),)?)* }
            }

            /// Every setting with its source.
            #[must_use]
            pub fn rows(&self) -> Vec<SettingRow> {
                let home = self.home.value.as_ref().map(|home| home.display().to_string());
                let mut rows = vec![
                    SettingRow { name: "home", value: home, toml: None, source: self.home.source.clone() },
                    $($kind.row(stringify!($name), &self.$name),)*
                ];
                rows.extend(self.context_engine.rows());
                rows.push(assembly::row(&self.fragments));
                rows.extend(self.fleet.rows());
                rows.extend(self.hub.rows());
                rows.extend(self.budget.rows());
                rows.push(prices::row(&self.prices));
                rows.push(rules::row(&self.rules));
                rows
            }
        }
    };
    (@live $newer:ident, $current:ident) => { $newer };
    (@restart $newer:ident, $current:ident) => { $current };
    (@flag $flags:ident.$name:ident $flag:literal) => { $flags.$name.clone() };
    (@flag $flags:ident.$name:ident) => { None };
}

/// The value, if it is of this flag.
fn of_flag<T: Clone>(setting: &Setting<T>, flag: &'static str) -> Option<T> {
    (setting.source == Source::Flag(flag)).then(|| setting.value.clone())
}

/// Declares the settings of a table of the config file, like `settings!`.
macro_rules! section {
    (pub struct $section:ident of $table:literal, such as $example:literal {
        $($(#[$doc:meta])* $name:ident: $type:ty = $kind:expr, $variable:literal;)*
    }) => {
        #[doc = concat!("The settings `[", $table, "]`.")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $section { $($(#[$doc])* pub $name: super::Setting<$type>,)* }

        impl $section {
            pub(super) const VARIABLES: &[&str] = &[$($variable),*];

            pub(super) fn resolve(sources: &mut super::sources::Sources<'_>) -> $section {
                sources.unfold($table, $example);
                $section {
                    $($name: $kind.resolve(sources, super::name(concat!($table, ".", stringify!($name)), $variable, ""), None),)*
                }
            }

            pub(super) fn rows(&self) -> Vec<super::SettingRow> {
                vec![$($kind.row(concat!($table, ".", stringify!($name)), &self.$name),)*]
            }
        }
    };
}
use section;

settings! {
    /// Every relay becomes the server at once.
    off: bool = truth(false), "CODEX_SHIM_OFF", restart;
    /// The real codex: a path, or a name to look up on `PATH`; `None` looks for `codex`.
    codex: Option<PathBuf> = program(), "CODEX_SHIM_CODEX", restart, flag "--codex";
    /// Which server `codex-shim app-server` gives its client.
    server: ServerChoice = word(), "CODEX_SHIM_SERVER", restart;
    /// The session to run in; `None` selects it by the working directory.
    session: Option<SessionName> = session(), "CODEX_SHIM_SESSION", restart, flag "--session";
    record: bool = truth(true), "CODEX_SHIM_RECORD", restart, flag "--record";
    /// How long the server may take to end after the client has closed our stdin.
    exit_grace: Duration = time(DEFAULT_EXIT_GRACE), "CODEX_SHIM_EXIT_GRACE", restart, flag "--exit-grace";
    /// Limit of a session's journal; beyond it, the oldest segments are deleted.
    journal_bytes_max: ByteSize = size(DEFAULT_JOURNAL_BYTES_MAX), "CODEX_SHIM_JOURNAL_BYTES_MAX", live;
    /// Age at which a segment of the journal is deleted.
    journal_age_max: Duration = time(DEFAULT_JOURNAL_AGE_MAX), "CODEX_SHIM_JOURNAL_AGE_MAX", live;
    /// How the user's commands reach the model.
    carrier: Carrier = word(), "CODEX_SHIM_CARRIER", live;
    /// Limit of commands in one message.
    context_commands_max: usize = count(ContextBounds::default().commands_max), "CODEX_SHIM_CONTEXT_COMMANDS_MAX", live;
    /// Limit of the output of each command, in lines.
    context_preview_lines_max: usize = count(ContextBounds::default().preview_lines_max), "CODEX_SHIM_CONTEXT_PREVIEW_LINES_MAX", live;
    /// Limit of the output of each command, in bytes.
    context_preview_bytes_max: usize = count(ContextBounds::default().preview_bytes_max), "CODEX_SHIM_CONTEXT_PREVIEW_BYTES_MAX", live;
    /// Limit of each command line, in bytes.
    context_cmd_bytes_max: usize = count(ContextBounds::default().cmd_bytes_max), "CODEX_SHIM_CONTEXT_CMD_BYTES_MAX", live;
    /// Limit of each command's folder, in bytes.
    context_cwd_bytes_max: usize = count(ContextBounds::default().cwd_bytes_max), "CODEX_SHIM_CONTEXT_CWD_BYTES_MAX", live;
    /// Limit of all context in one message, in bytes.
    context_bytes_max: usize = count(ContextBounds::default().envelope_bytes_max), "CODEX_SHIM_CONTEXT_BYTES_MAX", live;
    /// Which threads of a hub get a command that was captured in a folder.
    context_scope: ContextScope = word(), "CODEX_SHIM_CONTEXT_SCOPE", live;
    /// Tools that the context names for the rest of a terminal's output; `None` names the tools of the terminal's
    /// source.
    mcp: Option<Vec<String>> = names(), "CODEX_SHIM_MCP", live;
    /// Cgroups of containers whose processes may call although they are confined; `None` is the same as none.
    trusted_cgroups: Option<Vec<String>> = names(), "CODEX_SHIM_TRUSTED_CGROUPS", restart;
    /// Requests for a human are held back from the client.
    hold: bool = truth(false), "CODEX_SHIM_HOLD", live;
    /// For each type of request that expires, the time after which policy answers it.
    expiry: Vec<(RequestType, Duration)> = expiry(), "CODEX_SHIM_EXPIRY", live;
    /// The program and its arguments that run for a pending request.
    on_pending: Vec<String> = command(), "CODEX_SHIM_ON_PENDING", live;
    /// How long a request is pending before `on_pending` runs.
    on_pending_after: Duration = time(DEFAULT_ON_PENDING_AFTER), "CODEX_SHIM_ON_PENDING_AFTER", live;
    /// The program and its arguments that run when no turn is in progress any more.
    on_idle: Vec<String> = command(), "CODEX_SHIM_ON_IDLE", live;
    /// The program and its arguments that run when a running turn has been silent for `stalled_after`.
    on_stalled: Vec<String> = command(), "CODEX_SHIM_ON_STALLED", live;
    /// The program and its arguments that run when a codex beside a hub has a thread open in a server of its own.
    on_bypass: Vec<String> = command(), "CODEX_SHIM_ON_BYPASS", live;
    /// The program and its arguments that run when most of a token budget is used.
    on_budget: Vec<String> = command(), "CODEX_SHIM_ON_BUDGET", live;
    /// How long a running turn is silent before it counts as stalled.
    stalled_after: Duration = time(DEFAULT_STALLED_AFTER), "CODEX_SHIM_STALLED_AFTER", live;
    /// The terminal UI rings the bell for a new request.
    tui_bell: bool = truth(true), "CODEX_SHIM_TUI_BELL", live;
    /// How the terminal UI asks the terminal to show a notification.
    tui_notify: NoticeChoice = word(), "CODEX_SHIM_TUI_NOTIFY", live;
    /// Limit of the events in a session's history.
    events_max: usize = count(DEFAULT_EVENTS_MAX), "CODEX_SHIM_EVENTS_MAX", live;
    /// Limit of the tool rows in it.
    tool_events_max: usize = count(DEFAULT_TOOL_EVENTS_MAX), "CODEX_SHIM_TOOL_EVENTS_MAX", live;
    /// Limit of the turn rows in it.
    turn_events_max: usize = count(DEFAULT_TURN_EVENTS_MAX), "CODEX_SHIM_TURN_EVENTS_MAX", live;
    /// Age at which events and rows are deleted.
    history_age_max: Duration = time(DEFAULT_HISTORY_AGE_MAX), "CODEX_SHIM_HISTORY_AGE_MAX", live;
    /// How long after its last use a session is deleted.
    session_age_max: Duration = time(DEFAULT_SESSION_AGE_MAX), "CODEX_SHIM_SESSION_AGE_MAX", live;
    /// Transcripts are also written as files.
    transcript_files: bool = truth(false), "CODEX_SHIM_TRANSCRIPT_FILES", restart;
    /// The `agent_pty` event file to follow.
    agent_pty: Option<PathBuf> = file(), "CODEX_SHIM_AGENT_PTY", restart;
    /// Commands that the user did not run are included too.
    agent_pty_all: bool = truth(false), "CODEX_SHIM_AGENT_PTY_ALL", restart;
}

/// Retention of a session's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionBounds {
    pub events_max: u64,
    pub tool_events_max: u64,
    pub turn_events_max: u64,
    /// Age limit of all of them.
    pub age_max: Duration,
    /// How long after its last use a session is deleted.
    pub session_age_max: Duration,
}

impl RetentionBounds {
    /// Keeps everything.
    pub const UNBOUNDED: RetentionBounds = RetentionBounds {
        events_max: u64::MAX,
        tool_events_max: u64::MAX,
        turn_events_max: u64::MAX,
        age_max: Duration::MAX,
        session_age_max: Duration::MAX,
    };
}

/// A setting for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// Its name in the config file.
    pub name: &'static str,
    /// Its value for programs; `None` if it is not set.
    pub value: Option<String>,
    /// Its value in the syntax of the file; `None` if it is not set or the file cannot set it.
    pub toml: Option<String>,
    pub source: Source,
}

impl Settings {
    /// Resolves every setting; returns the complaints about invalid values.
    #[must_use]
    pub fn load(flags: Flags, environment: &Environment) -> (Settings, Vec<Complaint>) {
        let home = environment.shim_home();
        let mut complaints = Vec::new();
        let file = home.value.as_deref().map_or_else(toml::Table::new, |home| read_file(home, &mut complaints));
        let beside_file = home.value.clone().unwrap_or_default();
        let mut sources = Sources { environment, file, beside_file, complaints };
        let settings = Settings::resolve(home, &flags, &mut sources);
        let unknown = sources.file.keys().map(|name| {
            Complaint(format!("config.toml: unknown setting `{name}`; `codex-shim config` lists the settings"))
        });
        sources.complaints.extend(unknown);
        (settings, sources.complaints)
    }

    /// The names of the settings whose values differ.
    #[must_use]
    pub fn names_that_differ(&self, other: &Settings) -> Vec<&'static str> {
        let rows = self.rows().into_iter().zip(other.rows());
        rows.filter(|(row, other)| row.value != other.value).map(|(row, _)| row.name).collect()
    }

    #[must_use]
    pub fn journal_bounds(&self) -> Bounds {
        Bounds { journal_bytes_max: self.journal_bytes_max.value.as_u64(), journal_age_max: self.journal_age_max.value }
    }

    #[must_use]
    pub fn retention(&self) -> RetentionBounds {
        RetentionBounds {
            events_max: self.events_max.value as u64,
            tool_events_max: self.tool_events_max.value as u64,
            turn_events_max: self.turn_events_max.value as u64,
            age_max: self.history_age_max.value,
            session_age_max: self.session_age_max.value,
        }
    }

    /// The settings of terminal context.
    #[must_use]
    pub fn context(&self) -> ContextSettings {
        ContextSettings {
            carrier: self.carrier.value,
            bounds: ContextBounds {
                commands_max: self.context_commands_max.value,
                preview_lines_max: self.context_preview_lines_max.value,
                preview_bytes_max: self.context_preview_bytes_max.value,
                cmd_bytes_max: self.context_cmd_bytes_max.value,
                cwd_bytes_max: self.context_cwd_bytes_max.value,
                envelope_bytes_max: self.context_bytes_max.value,
            },
            mcp: self.mcp.value.clone(),
        }
    }

    /// The settings of the added context.
    #[must_use]
    pub fn assembly(&self) -> AssemblySettings {
        AssemblySettings { context_engine: self.context_engine.settings(), fragments: self.fragments.value.clone() }
    }

    /// The settings of requests.
    #[must_use]
    pub fn requests(&self) -> RequestSettings {
        let notify_after = (!self.on_pending.value.is_empty()).then_some(self.on_pending_after.value);
        RequestSettings {
            hold: self.hold.value,
            expiry: self.expiry.value.clone(),
            notify_after,
            rules: self.rules.value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn load(flags: Flags, variables: &[(&str, &str)], file: &str) -> (Settings, Vec<String>) {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(home.path().join("config.toml"), file).expect("BUG: it can be written to");
        let mut variables: Vec<(String, OsString)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        variables.push(("CODEX_SHIM_HOME".to_owned(), home.path().into()));
        let environment = Environment::of(move |wanted| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        });
        let (settings, complaints) = Settings::load(flags, &environment);
        (settings, complaints.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn sources_take_precedence_in_order() {
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
    fn invalid_value_is_reported_and_next_source_used() {
        let variables = [("CODEX_SHIM_EXIT_GRACE", "soon"), ("CODEX_SHIM_SESSION", "a/b")];
        let (settings, complaints) =
            load(Flags::default(), &variables, "exit_grace = \"3s\"\nrecord = 1.5\nholds = 1\n");
        assert_eq!(settings.exit_grace.value, Duration::from_secs(3));
        assert_eq!(settings.session.value, None);
        assert!(settings.record.value);
        assert_eq!(
            complaints,
            [
                "CODEX_SHIM_SESSION: a session name has 1 to 64 letters, digits, `.`, `_` or `-`; it is ignored",
                "config.toml: record: a float is not valid here; it is ignored",
                "CODEX_SHIM_EXIT_GRACE: `soon` is not a length of time, such as 500ms, 10s or 7d; it is ignored",
                "config.toml: unknown setting `holds`; `codex-shim config` lists the settings",
            ]
        );
    }

    #[test]
    fn context_engine_comes_from_table_or_variable() {
        let file = "[context_engine]\ncommand = [\"e\", \"-x\"]\ndeadline_ms = 500\nspeed = 9\n";
        let (settings, complaints) = load(Flags::default(), &[], file);
        let engine = settings.assembly().context_engine.expect("there is one");
        assert_eq!(engine.command, ["e", "-x"]);
        assert_eq!((engine.deadline, engine.token_budget), (Duration::from_millis(500), None));
        assert_eq!(engine.projection_chars_max, 24_000);
        assert_eq!(
            complaints,
            ["config.toml: unknown setting `context_engine.speed`; `codex-shim config` lists the settings"]
        );
        let variables =
            [("CODEX_SHIM_CONTEXT_ENGINE", "e"), ("CODEX_SHIM_CONTEXT_ENGINE_PROJECTION_CHARS_MAX", "1000001")];
        let (settings, complaints) = load(Flags::default(), &variables, "context_engine = 7");
        assert_eq!(settings.assembly().context_engine.map(|engine| engine.command), Some(vec!["e".to_owned()]));
        assert!(complaints[0].starts_with("config.toml: context_engine: an integer is not valid here; use a table"));
        assert!(complaints[1].ends_with("1000001 is not from 0 to 1000000; it is ignored"), "{complaints:?}");
        assert_eq!(load(Flags::default(), &[], "").0.assembly(), AssemblySettings::default());
    }

    #[test]
    fn fleet_comes_from_table_or_variable() {
        let file =
            "[fleet]\nurl = \"tls://n:4222\"\ncreds = \"~/a.creds\"\nca = \"ca.pem\"\nlevel = \"all\"\nspeed = 9\n";
        let variables = [("CODEX_SHIM_FLEET_HOST", "build-7"), ("HOME", "/home/ann"), ("CODEX_SHIM_FLEET_USER", "a/b")];
        let (settings, complaints) = load(Flags::default(), &variables, file);
        let FleetChoice { url, creds, ca, user, host, level, allow_plain } = settings.fleet;
        assert_eq!(
            (url.value.as_deref(), host.value.as_deref(), user.value),
            (Some("tls://n:4222"), Some("build-7"), None)
        );
        assert_eq!(creds.value, Some(PathBuf::from("/home/ann/a.creds")));
        assert!(ca.value.is_some_and(|ca| ca.is_absolute() && ca.ends_with("ca.pem")));
        assert_eq!((level.value, allow_plain.value), (FleetLevel::Summary, false));
        let expect = [
            "CODEX_SHIM_FLEET_USER: a name has 1 to 64 bytes, no `/` and no control characters; it is ignored",
            "config.toml: fleet.level: `all` is neither `summary` nor `full`; it is ignored",
            "config.toml: unknown setting `fleet.speed`; `codex-shim config` lists the settings",
        ];
        assert_eq!(complaints, expect);
    }

    #[test]
    fn invalid_fragments_are_reported_with_remedy() {
        let check = |members: &str, expect: &str| {
            let file =
                format!("[[fragments]]\nname = \"a\"\nrole = \"developer\"\ntext = \"x\"\n[[fragments]]\n{members}");
            let (settings, complaints) = load(Flags::default(), &[], &file.replace("; ", "\n"));
            assert_eq!(settings.assembly().fragments.len(), 1, "{members}");
            assert_eq!(complaints, [format!("config.toml: fragment 2{expect}; it is left out")]);
        };
        check("text = 'x'", ": it has no name: add `name = \"…\"`");
        check(
            "name = 'b'; text = 'x'",
            " (`b`): it has no role: add `role = \"developer\"` or `role = \"contextual_user\"`",
        );
        check("name = 'b'; role = 'user'", " (`b`): role: `user` is neither `developer` nor `contextual_user`");
        check("name = 'b'; role = 'developer'", " (`b`): it has no content: add one of `command`, `file` and `text`");
        check(
            "name = 'b'; role = 'developer'; text = 'x'; file = 'y'",
            " (`b`): it has more than one of `command`, `file` and `text`: keep one",
        );
        check(
            "name = 'b'; role = 'developer'; command = []",
            " (`b`): command: it must be a program and its arguments, such as [\"git\", \"status\", \"-sb\"]",
        );
        check(
            "name = 'a'; role = 'developer'; text = 'x'",
            " (`a`): an earlier fragment has this name: choose another one",
        );
        check("name = 'skill'; role = 'developer'; text = 'x'", " (`skill`): the name is reserved: choose another one");
        check(
            "name = 'b c'; role = 'developer'; text = 'x'",
            " (`b c`): a name begins with a letter and has 1 to 64 letters, digits, `_` and `-`",
        );
        check(
            "name = 'b'; role = 'developer'; text = 'x'; bytes_max = 0",
            " (`b`): bytes_max: it must be a number from 1 to 65536",
        );
        check(
            "name = 'b'; tag = 'x'",
            " (`b`): unknown member `tag`; the members are name, role, command, file, text, threads, bytes_max",
        );
    }

    #[test]
    fn some_settings_wait_for_a_restart() {
        let before = load(Flags { exit_grace: Some(Duration::from_secs(1)), ..Flags::default() }, &[], "").0;
        let file = "on_idle = \"x\"\nrecord = false\nexit_grace = \"3s\"\nhold = true\n[context_engine]\ncommand = \"e\"\n\
                    [[fragments]]\nname = \"a\"\nrole = \"developer\"\ntext = \"x\"\n";
        let (after, complaints) =
            load(before.flags(), &[("CODEX_SHIM_HOLD", "false"), ("CODEX_SHIM_EXPIRY", "x")], file);
        assert!(complaints.len() == 1 && !Complaint(complaints[0].clone()).is_about_file(), "{complaints:?}");
        let applied = before.with_live_settings_of(&after);
        assert_eq!((applied.on_idle.value.len(), applied.fragments.value.len()), (1, 1));
        // A flag and a variable take precedence over the file.
        assert_eq!((applied.exit_grace.value, applied.hold.value), (Duration::from_secs(1), false));
        let waiting: Vec<&str> = applied.names_that_differ(&after).into_iter().filter(|name| *name != "home").collect();
        assert_eq!(waiting, ["record", "context_engine.command"]);
    }

    #[test]
    fn broken_file_is_reported_with_its_line() {
        let (settings, complaints) = load(Flags::default(), &[], "record = false\nexit_grace = = 1\n");
        assert!(settings.record.value);
        assert!(complaints[0].contains("config.toml, line 2: "), "{complaints:?}");
    }

    #[test]
    fn printed_settings_are_read_back() {
        let file = "codex = \"/opt/co\\\"dex\"\nsession = \"work\"\njournal_bytes_max = 1234\nexit_grace = \"1500ms\"\n\
            mcp = [\"a\", \"b\"]\non_pending = [\"notify\", \"a b\"]\nagent_pty = \"/x\"\nhold = true\n\
            [expiry]\nrequest_approval = \"90m\"\nrequest_user_input = \"1d\"\n\
            [context_engine]\ncommand = [\"e\"]\ntoken_budget = 7\n\
            [[fragments]]\nname = \"a\"\nrole = \"developer\"\ntext = \"x\\ny\"\nthreads = \"new\"\n\
            [[fragments]]\nname = \"b\"\nrole = \"contextual_user\"\ncommand = [\"git\", \"log\"]\nbytes_max = 9\n\
            [[fragments]]\nname = \"c\"\nrole = \"developer\"\nfile = \"/f\"\n\
            [[rules]]\nname = \"r 1\"\nmatch = { kind = \"command\", argv = [\"ls\", \"a\\\"b\"], cwd = \"/p\" }\n\
            action = \"accept\"\ntrust_path = true\n\
            [[rules]]\nname = \"r2\"\nmatch = { kind = \"command\", argv_prefix = [\"rm\"], cwd_below = \"/p\" }\n\
            action = \"decline\"\nreason = \"no\"\n\
            [[rules]]\nname = \"r3\"\nmatch = { kind = \"file_change\", path_below = \"/p\" }\naction = \"hold\"\n";
        for file in [file, ""] {
            let (settings, complaints) = load(Flags::default(), &[], file);
            assert_eq!(complaints, Vec::<String>::new());
            let printed: Vec<String> = settings
                .rows()
                .into_iter()
                .filter_map(|row| row.toml.map(|toml| format!("{} = {toml}\n", row.name)))
                .collect();
            let (again, complaints) = load(Flags::default(), &[], &printed.concat());
            assert_eq!(complaints, Vec::<String>::new(), "{printed:?}");
            let values = |settings: &Settings| -> Vec<(&str, Option<String>, Option<String>)> {
                let rows = settings.rows().into_iter().filter(|row| row.name != "home");
                rows.map(|row| (row.name, row.value, row.toml)).collect()
            };
            assert_eq!(values(&again), values(&settings));
            assert_eq!(again.assembly(), settings.assembly());
            assert_eq!(again.rules.value, settings.rules.value);
        }
    }

    #[test]
    fn session_names_are_checked() {
        for good in ["a", "A.b_c-9", ".hidden", &"x".repeat(64)] {
            assert!(good.parse::<SessionName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad}");
        }
    }
}
