//! Follows the events of an `agent_pty`, and has each command there kept once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocks::{Blocks, Ended, Screen, Whose};
use super::follow::Follower;
use crate::engine::{Command, ContextBounds, PushError, PushedCommand};

/// How often the file is looked at. Source: what a person takes between the end of a command and the next message.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Commands that are kept together.
const TOGETHER_MAX: usize = 50;

/// What commands that are kept together may come to as JSON, in bytes; one alone may be more. Source: half of the longest body
/// that a relay takes.
const TOGETHER_BYTES_MAX: usize = 512 << 10;

/// Commands that wait while they cannot be kept; of more the oldest goes, as in the buffer itself.
const UNKEPT_MAX: usize = 200;

/// A file of events that is followed.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    follower: Follower,
    blocks: Blocks,
    bounds: ContextBounds,
    unkept: Vec<PushedCommand>,
    fault_told: bool,
}

impl Watch {
    /// Of the events at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: &Path, whose: Whose, bounds: ContextBounds) -> Watch {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let dir = path.parent().unwrap_or(&path).to_owned();
        Watch {
            follower: Follower::new(path.clone()),
            blocks: Blocks::new(&dir, whose, bounds),
            bounds,
            path,
            unkept: Vec::new(),
            fault_told: false,
        }
    }

    /// Follows them for good. `keep` is given what is new; what it cannot keep is given again. `fault` is told once of
    /// what goes wrong, and once more when it does so again after it went well.
    pub fn follow(mut self, mut keep: impl FnMut(&[PushedCommand]) -> Result<(), String>, mut fault: impl FnMut(&str)) {
        loop {
            match self.look(&mut keep) {
                Ok(()) => self.fault_told = false,
                Err(why) if !std::mem::replace(&mut self.fault_told, true) => fault(&why),
                Err(_) => {}
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Has `keep` take what has ended since the last look, cleaned and cut.
    ///
    /// # Errors
    ///
    /// Why the events cannot be read, what `keep` has said (what was not taken is given again with the next look), or what cannot
    /// be a command, which is given to nobody.
    pub fn look(&mut self, keep: &mut impl FnMut(&[PushedCommand]) -> Result<(), String>) -> Result<(), String> {
        let Watch { path, follower, blocks, bounds, unkept, .. } = self;
        let mut impossible = None;
        let mut ended: Vec<Ended> = Vec::new();
        let looked = follower.look(|line| ended.extend(blocks.line(line)));
        let count = ended.len();
        for (index, ended) in ended.into_iter().enumerate() {
            let screen = if index + 1 == count { Screen::ShowsIt } else { Screen::HasGoneOn };
            match fitting(blocks.with_screen(ended, screen), bounds) {
                Ok(command) => unkept.push(command),
                // It would be refused for good, and with it all that is kept together with it.
                Err(error) => impossible = Some(error),
            }
        }
        let surplus = unkept.len().saturating_sub(UNKEPT_MAX);
        unkept.drain(..surplus);
        while !unkept.is_empty() {
            let together = together(unkept);
            keep(&unkept[..together]).map_err(|why| format!("{why}; what is run there is kept once it can be"))?;
            unkept.drain(..together);
        }
        looked.map_err(|error| format!("read {}: {error}", path.display()))?;
        impossible.map_or(Ok(()), |error| Err(format!("a command in {} is not kept: {error}", path.display())))
    }
}

/// What is kept of a command, as whoever keeps it would make it: nothing is too long then, and nothing is refused.
fn fitting(pushed: PushedCommand, bounds: &ContextBounds) -> Result<PushedCommand, PushError> {
    // Only whoever keeps it says when it ran where nobody has.
    let Command { cmd, cwd, preview, .. } = pushed.clone().into_command(0, bounds)?;
    // What was cut may have been all that there was but blanks.
    if cmd.trim().is_empty() {
        return Err(PushError::EmptyCmd);
    }
    Ok(PushedCommand { cmd, cwd, preview: Some(preview), output: None, ..pushed })
}

/// How many of these are kept together: one at least.
fn together(unkept: &[PushedCommand]) -> usize {
    let mut bytes = 0;
    let fit = unkept.iter().take(TOGETHER_MAX).take_while(|command| {
        bytes += serde_json::to_string(command).expect("BUG: plain data is JSON").len();
        bytes <= TOGETHER_BYTES_MAX
    });
    fit.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cmd: &str) -> PushedCommand {
        PushedCommand { cmd: cmd.to_owned(), ..PushedCommand::default() }
    }

    #[test]
    fn what_is_kept_together_fits_into_one_body() {
        let small = vec![of("ls"); 60];
        assert_eq!(together(&small), TOGETHER_MAX);
        // Each byte of it is six in JSON.
        let large = vec![of(&"\u{1}".repeat(30 << 10)); 3];
        assert_eq!((together(&large), together(&large[2..])), (2, 1));
        assert_eq!(together(&[of(&"x".repeat(TOGETHER_BYTES_MAX)), of("ls")]), 1);
    }

    #[test]
    fn what_fits_is_taken_as_it_is() {
        let bounds = ContextBounds { cmd_bytes_max: 8, cwd_bytes_max: 4, ..ContextBounds::default() };
        let pushed =
            PushedCommand { cwd: Some("/w\u{e9}\u{e9}".to_owned()), ts: Some(7), ..of("\u{1b}[1mecho \u{e9}\u{e9}") };
        let fits = fitting(pushed, &bounds).expect("it is a command");
        assert_eq!((&*fits.cmd, fits.cwd.as_deref(), fits.ts), ("echo \u{e9}", Some("/w\u{e9}"), Some(7)));
        assert_eq!(fitting(fits.clone(), &bounds), Ok(fits));
        assert_eq!(fitting(of("         ls"), &bounds), Err(PushError::EmptyCmd));
    }
}
