//! The outputs of one shell's commands, served to the shell's hook.
//!
//! The hook knows the commands, and we know their output. Marks that the hook writes to the terminal separate the outputs;
//! the hook asks for one at a socket in a folder that only the user can enter. An unclaimed output is dropped after a few
//! more.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::tail::Kept;
use super::tail::{Piece, Scanner};
use crate::engine::{ContextBounds, Preview};
use crate::files;

/// Most unclaimed outputs.
const OUTPUTS_MAX: usize = 16;

/// How long to wait for the mark at the end of an output.
const MARK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest key of a command, in bytes.
const KEY_BYTES_MAX: u64 = 64;

#[derive(Debug)]
pub(crate) struct Outputs {
    scanner: Scanner,
    running: Option<(String, Kept)>,
    shared: Arc<Shared>,
    dir: PathBuf,
}

#[derive(Debug, Default)]
struct Shared {
    ended: Mutex<VecDeque<(String, Preview)>>,
    another: Condvar,
    bounds: ContextBounds,
}

impl Outputs {
    /// Starts a thread that answers at a socket in a new folder in `base`.
    pub(crate) fn start(base: &Path, bounds: ContextBounds) -> io::Result<Outputs> {
        let dir = base.join(format!("codex-shim-shell.{}", uuid::Uuid::now_v7().simple()));
        files::create_folder(&dir)?;
        let shared = Arc::new(Shared { bounds, ..Shared::default() });
        let outputs = Outputs { scanner: Scanner::default(), running: None, shared: Arc::clone(&shared), dir };
        let listener = UnixListener::bind(outputs.socket())?;
        std::thread::Builder::new().name("outputs".to_owned()).spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // A request may have to wait for its mark; the next one need not.
                let _ = std::thread::Builder::new().spawn(move || shared.answer(stream));
            }
        })?;
        Ok(outputs)
    }

    /// The path of the socket.
    #[must_use]
    pub(crate) fn socket(&self) -> OsString {
        self.dir.join("s").into_os_string()
    }

    /// Processes the next bytes from the shell and its commands.
    pub(crate) fn take(&mut self, written: &[u8]) {
        let Outputs { scanner, running, shared, .. } = self;
        scanner.scan(written, |piece| match piece {
            Piece::Began(key) => *running = Some((key, Kept::default())),
            Piece::Ended(key) => {
                if let Some((began, kept)) = running.take_if(|(began, _)| *began == key) {
                    shared.put(began, kept.preview(&shared.bounds));
                }
            }
            Piece::Text(_) | Piece::FullScreenBegan | Piece::FullScreenEnded => {
                if let Some((_, kept)) = running {
                    kept.take(&piece);
                }
            }
        });
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Shared {
    fn put(&self, key: String, preview: Preview) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() == OUTPUTS_MAX {
            ended.pop_front();
        }
        ended.push_back((key, preview));
        self.another.notify_all();
    }

    fn answer(&self, mut stream: UnixStream) {
        let mut key = String::new();
        let _ = stream.set_read_timeout(Some(MARK_WAIT_MAX));
        if (&stream).take(KEY_BYTES_MAX).read_to_string(&mut key).is_err() {
            return;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |ended: &mut VecDeque<(String, Preview)>| !ended.iter().any(|(ended, _)| *ended == key);
        let waited = self.another.wait_timeout_while(ended, MARK_WAIT_MAX, is_missing);
        let (mut ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = ended.iter().position(|(ended, _)| *ended == key).and_then(|index| ended.remove(index));
        drop(ended);
        if let Some((_, preview)) = found {
            let _ = stream.write_all(&serde_json::to_vec(&preview).expect("BUG: plain data is JSON"));
        }
    }
}

/// Asks a socket of [`Outputs`] for the output of a command.
#[must_use]
pub(crate) fn output_of(socket: &Path, key: &str) -> Option<Preview> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(key.as_bytes()).ok()?;
    stream.shutdown(std::net::Shutdown::Write).ok()?;
    stream.set_read_timeout(Some(2 * MARK_WAIT_MAX)).ok()?;
    let mut told = Vec::new();
    stream.read_to_end(&mut told).ok()?;
    serde_json::from_slice(&told).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_served_once_its_command_ends() {
        let base = tempfile::tempdir().expect("a folder");
        let mut outputs = Outputs::start(base.path(), ContextBounds::default()).expect("it starts");
        let socket = PathBuf::from(outputs.socket());
        outputs.take(b"$ ls\r\n\x1b]133;C;aid=codex-shim.1.1\x07a\r\nb\r\n");
        let asked = std::thread::spawn({
            let socket = socket.clone();
            move || output_of(&socket, "1.1")
        });
        outputs.take(b"\x1b]133;D;0;aid=codex-shim.1.1\x07$ x\r\n");
        assert_eq!(asked.join().expect("it ends").expect("it is told").lines, ["a", "b"]);
        assert_eq!(output_of(&socket, "1.1"), None);
        drop(outputs);
        assert_eq!(std::fs::read_dir(base.path()).expect("it is there").count(), 0);
    }
}
