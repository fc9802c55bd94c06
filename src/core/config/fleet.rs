//! The settings of the fleet: `[fleet]`. The agent of a host and the tools of a console read them; a relay does not.

use std::path::PathBuf;

use super::kind::{file_of_user, text, truth, word};
use super::{choice, section};

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

section! {
    pub struct FleetChoice of "fleet", such as "url = \"tls://HOST:4222\"" {
        /// The NATS server; `None` if this machine is not in a fleet.
        url: Option<String> = text(|text| Ok(Some(text.to_owned()))), "CODEX_SHIM_FLEET_URL";
        /// The file with the credentials.
        creds: Option<PathBuf> = file_of_user(), "CODEX_SHIM_FLEET_CREDS";
        /// A file with the certificate of the authority that has signed the server's; `None` for those of the system.
        ca: Option<PathBuf> = file_of_user(), "CODEX_SHIM_FLEET_CA";
        /// The name of the NATS user; `None` for the one in the credentials.
        user: Option<String> = text(parse_name), "CODEX_SHIM_FLEET_USER";
        /// The name of this machine; `None` for its host name.
        host: Option<String> = text(parse_name), "CODEX_SHIM_FLEET_HOST";
        level: FleetLevel = word(), "CODEX_SHIM_FLEET_LEVEL";
        /// Connections without TLS may leave this machine.
        allow_plain: bool = truth(false), "CODEX_SHIM_FLEET_ALLOW_PLAIN";
    }
}

fn parse_name(text: &str) -> Result<Option<String>, String> {
    let is_good =
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(|char| char.is_control() || char == '/');
    match is_good {
        true => Ok(Some(text.to_owned())),
        false => Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, no `/` and no control characters")),
    }
}
