//! Our own log, `shim.log` in the session's folder.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Mutex;

/// Size at which a start puts the log aside as `shim.log.old`, in bytes.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Sends what is logged from now on to `shim.log` in `dir`. Calls after the first of a process have no effect.
///
/// # Errors
///
/// That of opening the file.
pub fn open_log(dir: &Path) -> io::Result<()> {
    let path = dir.join("shim.log");
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        std::fs::rename(&path, dir.join("shim.log.old"))?;
    }
    let file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    let subscriber = tracing_subscriber::fmt()
        .with_writer(Mutex::new(file))
        .with_ansi(false)
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        // A log that cannot be written is no reason to write to the user's stderr.
        .log_internal_errors(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}
