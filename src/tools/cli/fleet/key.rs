//! `codex-shim fleet key`: a new key for a user of the NATS server.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::super::screen;
use super::super::{CliError, Done, say};
use crate::files;
use crate::fleet::in_permissions;

/// Make a key for a host, a person or the administrator
///
/// Writes the secret seed to a file that only you can read, for `fleet.creds`, and prints the public key, which the
/// configuration of the NATS server needs. A name with a dot, or with other characters than letters, digits, `-` and `_`, is
/// written in another way in that configuration's permissions; --for says how.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if FILE exists or cannot be written.

Examples:
  codex-shim fleet key ann.nk
  codex-shim fleet key build.nk --for build.example.org
  echo \"KEY_ann: $(codex-shim fleet key ann.nk)\" >> keys.conf")]
pub(in crate::cli) struct KeyArguments {
    /// The file for the seed; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Say on stderr how the server's permissions write the name of this host or person
    #[arg(long = "for", value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(arguments: &KeyArguments) -> Done {
    let key = nkeys::KeyPair::new_user();
    let path = arguments.file.display();
    let seed = key.seed().map_err(|error| CliError::failed(format!("make a key: {error}")))?;
    let mut file =
        files::create_file(&arguments.file).map_err(|error| match error.kind() == ErrorKind::AlreadyExists {
            true => CliError::failed(format!("{path} exists")).with_remedy("name another file"),
            false => CliError::failed(format!("create {path}: {error}")),
        })?;
    writeln!(file, "{seed}").map_err(|error| CliError::failed(format!("write {path}: {error}")))?;
    if let Some(name) = &arguments.name {
        let same = || format!("the server's permissions write `{name}` as it is");
        say(&screen::plain(&in_permissions(name).unwrap_or_else(same)));
    }
    Ok(screen::print(&format!("{}\n", key.public_key())))
}
