//! The settings of the fleet: `[fleet]`. The agent of a host and the tools of a console read them; a relay does not.

use std::path::PathBuf;

use toml::Value;

use super::sources::{Sources, parse_bool};
use super::{Setting, SettingName, SettingRow, Source, choice, name};

/// The variables of these settings.
pub(super) const VARIABLES: [&str; 7] = [
    "CODEX_SHIM_FLEET_URL",
    "CODEX_SHIM_FLEET_CREDS",
    "CODEX_SHIM_FLEET_CA",
    "CODEX_SHIM_FLEET_USER",
    "CODEX_SHIM_FLEET_HOST",
    "CODEX_SHIM_FLEET_LEVEL",
    "CODEX_SHIM_FLEET_ALLOW_PLAIN",
];

const URL: SettingName = name("fleet.url", VARIABLES[0], "");
const CREDS: SettingName = name("fleet.creds", VARIABLES[1], "");
const CA: SettingName = name("fleet.ca", VARIABLES[2], "");
const USER: SettingName = name("fleet.user", VARIABLES[3], "");
const HOST: SettingName = name("fleet.host", VARIABLES[4], "");
const LEVEL: SettingName = name("fleet.level", VARIABLES[5], "");
const ALLOW_PLAIN: SettingName = name("fleet.allow_plain", VARIABLES[6], "");

/// Longest name of a host or a user, in bytes. Each byte takes at most three in a subject.
const NAME_BYTES_MAX: usize = 64;

choice! {
    /// How much of a session leaves the machine.
    pub enum FleetLevel {
        /// No output, no diff and no message text.
        #[default]
        Summary = "summary",
        /// Everything that the history and the requests have, secrets masked.
        Full = "full",
    } else |text| format!("`{text}` is neither `summary` nor `full`")
}

/// The configured values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetChoice {
    /// The NATS server; `None` if this machine is not in a fleet.
    pub url: Setting<Option<String>>,
    /// The file with the credentials.
    pub creds: Setting<Option<PathBuf>>,
    /// A file with the certificate of the authority that has signed the server's; `None` for those of the system.
    pub ca: Setting<Option<PathBuf>>,
    /// The name of the NATS user; `None` for the one in the credentials.
    pub user: Setting<Option<String>>,
    /// The name of this machine; `None` for its host name.
    pub host: Setting<Option<String>>,
    pub level: Setting<FleetLevel>,
    /// Connections without TLS may leave this machine.
    pub allow_plain: Setting<bool>,
}

impl FleetChoice {
    pub(super) fn resolve(sources: &mut Sources<'_>) -> FleetChoice {
        match sources.file.remove("fleet") {
            Some(Value::Table(table)) => {
                let named = table.into_iter().map(|(name, value)| (format!("fleet.{name}"), value));
                sources.file.extend(named);
            }
            Some(other) => {
                let remedy = "use a table: `[fleet]` and in it `url = \"tls://HOST:4222\"`; ";
                sources.refuse("fleet", &other, remedy);
            }
            None => {}
        }
        FleetChoice {
            url: sources.resolve(URL, None, |text| Ok(Some(text.to_owned())), None),
            creds: file(sources, CREDS),
            ca: file(sources, CA),
            user: sources.resolve(USER, None, parse_name, None),
            host: sources.resolve(HOST, None, parse_name, None),
            level: sources.resolve(LEVEL, None, str::parse, FleetLevel::default()),
            allow_plain: sources.resolve(ALLOW_PLAIN, None, parse_bool, false),
        }
    }

    pub(super) fn rows(&self) -> Vec<SettingRow> {
        let path = |value: &Option<PathBuf>| value.as_ref().map(|path| path.display().to_string());
        vec![
            SettingRow::text(URL.file, self.url.value.clone(), &self.url.source),
            SettingRow::text(CREDS.file, path(&self.creds.value), &self.creds.source),
            SettingRow::text(CA.file, path(&self.ca.value), &self.ca.source),
            SettingRow::text(USER.file, self.user.value.clone(), &self.user.source),
            SettingRow::text(HOST.file, self.host.value.clone(), &self.host.source),
            SettingRow::text(LEVEL.file, Some(self.level.value.to_string()), &self.level.source),
            SettingRow::bare(ALLOW_PLAIN.file, self.allow_plain.value, &self.allow_plain.source),
        ]
    }
}

/// A file. `~/` is the user's home folder.
fn file(sources: &mut Sources<'_>, name: SettingName) -> Setting<Option<PathBuf>> {
    let home = sources.environment.user_home();
    let Setting { value, source } = sources.resolve_file(name);
    let in_home = |path: PathBuf| {
        // A path of the config file was joined with the folder of the file.
        let given = match source {
            Source::File => path.strip_prefix(&sources.beside_file).unwrap_or(&path).to_owned(),
            Source::Flag(_) | Source::Variable(_) | Source::Default => path.clone(),
        };
        match (given.strip_prefix("~"), &home) {
            (Ok(rest), Some(home)) => home.join(rest),
            (Ok(_) | Err(_), _) => path,
        }
    };
    Setting { value: value.map(in_home), source }
}

fn parse_name(text: &str) -> Result<Option<String>, String> {
    let is_good =
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(|char| char.is_control() || char == '/');
    match is_good {
        true => Ok(Some(text.to_owned())),
        false => Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, no `/` and no control characters")),
    }
}
