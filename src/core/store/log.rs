//! Our own log, `shim.log` in the session's folder, with the previous one in `shim.log.old`.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::files::{self, Access};

/// Largest log, in bytes. A line that would exceed it first rotates the log, replacing the previous `shim.log.old`.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Sends the process's log to `shim.log` in `dir`. Only the first call has an effect.
pub fn open_log(dir: &Path) -> io::Result<()> {
    let log = Log::open(dir, LOG_BYTES_MAX)?;
    let subscriber = tracing_subscriber::fmt()
        .with_writer(Mutex::new(log))
        .with_ansi(false)
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        // A log that cannot be written must not clutter the user's stderr.
        .log_internal_errors(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// A log that rotates when it is full.
#[derive(Debug)]
struct Log {
    dir: PathBuf,
    bytes_max: u64,
    file: File,
    bytes: u64,
}

impl Log {
    fn open(dir: &Path, bytes_max: u64) -> io::Result<Log> {
        let file = files::open(&dir.join("shim.log"), Access::Append)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let bytes = file.metadata()?.len();
        Ok(Log { dir: dir.to_owned(), bytes_max, file, bytes })
    }

    fn rotate(&mut self) -> io::Result<()> {
        match std::fs::rename(self.dir.join("shim.log"), self.dir.join("shim.log.old")) {
            // Another process has removed it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        *self = Log::open(&self.dir, self.bytes_max)?;
        Ok(())
    }
}

impl Write for Log {
    /// Takes a whole line. The line is lost if the log cannot rotate: the size limit takes precedence.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        let written = self.file.write(line)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(dir: &Path, file: &str) -> String {
        std::fs::read_to_string(dir.join(file)).unwrap_or_default()
    }

    #[test]
    fn full_log_rotates_during_a_run() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut log = Log::open(dir.path(), 8).expect("it is ours");
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            log.write_all(line.as_bytes()).expect("it is ours");
        }
        assert_eq!(
            (lines(dir.path(), "shim.log.old"), lines(dir.path(), "shim.log")),
            ("three\n".into(), "four\n".into())
        );
        let mut next = Log::open(dir.path(), 8).expect("it is ours");
        next.write_all(b"five\n").expect("it is ours");
        assert_eq!(
            (lines(dir.path(), "shim.log.old"), lines(dir.path(), "shim.log")),
            ("four\n".into(), "five\n".into())
        );
        let mode = std::fs::metadata(dir.path().join("shim.log")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn stuck_log_stops_growing_and_removed_one_returns() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut log = Log::open(dir.path(), 4).expect("it is ours");
        log.write_all(b"one\n").expect("it is ours");
        let in_the_way = dir.path().join("shim.log.old");
        std::fs::create_dir_all(in_the_way.join("x")).expect("a folder");
        log.write_all(b"two\n").expect_err("a folder is in the way");
        assert_eq!(lines(dir.path(), "shim.log"), "one\n");
        std::fs::remove_dir_all(&in_the_way).expect("it is ours");
        std::fs::remove_file(dir.path().join("shim.log")).expect("it is ours");
        log.write_all(b"two\n").expect("it is ours");
        assert_eq!(lines(dir.path(), "shim.log"), "two\n");
    }
}
