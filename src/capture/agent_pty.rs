//! Follows the events of an `agent_pty` and stores each command once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocks::{Blocks, Ended, Screen, Whose};
use super::follow::Follower;
use crate::engine::{Command, ContextBounds, PushError, PushedCommand};

/// The interval between two reads of the file. Source: the time a person takes between the end of a command and the next
/// message.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Most commands in one request.
const BATCH_COMMANDS_MAX: usize = 50;

/// Most bytes of JSON in one request; a single command may be longer. Source: half of the longest body that a relay
/// accepts.
const BATCH_BYTES_MAX: usize = 512 << 10;

/// Most commands that wait for a retry; beyond this the oldest is dropped, as in the buffer itself.
const UNKEPT_MAX: usize = 200;

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
    /// Follows the events at `path`, which may not exist yet.
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

    /// Follows the events forever. `keep` receives new commands, and receives those again that it could not store. `fault`
    /// receives an error when it first occurs and when it recurs after a success.
    pub fn follow(mut self, mut keep: impl FnMut(&[PushedCommand]) -> Result<(), String>, mut fault: impl FnMut(&str)) {
        loop {
            match self.poll(&mut keep) {
                Ok(()) => self.fault_told = false,
                Err(why) if !std::mem::replace(&mut self.fault_told, true) => fault(&why),
                Err(_) => {}
            }
            std::thread::park_timeout(POLL_EVERY);
        }
    }

    /// Passes the commands that ended since the last call to `keep`, cleaned and shortened.
    ///
    /// # Errors
    ///
    /// The events cannot be read, `keep` failed (the commands that it did not take are passed again next time), or a
    /// command is invalid and was dropped.
    pub fn poll(&mut self, keep: &mut impl FnMut(&[PushedCommand]) -> Result<(), String>) -> Result<(), String> {
        let Watch { path, follower, blocks, bounds, unkept, .. } = self;
        let mut impossible = None;
        let mut ended: Vec<Ended> = Vec::new();
        let polled = follower.poll(|line| ended.extend(blocks.line(line)));
        let count = ended.len();
        for (index, ended) in ended.into_iter().enumerate() {
            let screen = if index + 1 == count { Screen::ShowsIt } else { Screen::IsOutdated };
            match fitting(blocks.with_screen(ended, screen), bounds) {
                Ok(command) => unkept.push(command),
                // A relay would reject the whole request because of it.
                Err(error) => impossible = Some(error),
            }
        }
        let surplus = unkept.len().saturating_sub(UNKEPT_MAX);
        unkept.drain(..surplus);
        while !unkept.is_empty() {
            let together = together(unkept);
            keep(&unkept[..together]).map_err(|why| format!("{why}; its commands are stored once that works"))?;
            unkept.drain(..together);
        }
        polled.map_err(|error| format!("read {}: {error}", path.display()))?;
        impossible.map_or(Ok(()), |error| Err(format!("skipped an invalid command in {}: {error}", path.display())))
    }
}

/// The command in the form that a relay would store: not too long, and accepted.
fn fitting(pushed: PushedCommand, bounds: &ContextBounds) -> Result<PushedCommand, PushError> {
    // A missing time is left to the relay.
    let Command { cmd, cwd, preview, .. } = pushed.clone().into_command(0, bounds)?;
    // Shortening may have left only blanks.
    if cmd.trim().is_empty() {
        return Err(PushError::EmptyCmd);
    }
    Ok(PushedCommand { cmd, cwd, preview: Some(preview), output: None, ..pushed })
}

/// How many of these fit into one request, at least one.
fn together(unkept: &[PushedCommand]) -> usize {
    let mut bytes = 0;
    let fit = unkept.iter().take(BATCH_COMMANDS_MAX).take_while(|command| {
        bytes += serde_json::to_string(command).expect("BUG: plain data is JSON").len();
        bytes <= BATCH_BYTES_MAX
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
    fn batches_fit_into_one_body() {
        let small = vec![of("ls"); 60];
        assert_eq!(together(&small), BATCH_COMMANDS_MAX);
        // Each of its bytes takes six in JSON.
        let large = vec![of(&"\u{1}".repeat(30 << 10)); 3];
        assert_eq!((together(&large), together(&large[2..])), (2, 1));
        assert_eq!(together(&[of(&"x".repeat(BATCH_BYTES_MAX)), of("ls")]), 1);
    }

    #[test]
    fn fitting_commands_are_unchanged() {
        let bounds = ContextBounds { cmd_bytes_max: 8, cwd_bytes_max: 4, ..ContextBounds::default() };
        let pushed =
            PushedCommand { cwd: Some("/w\u{e9}\u{e9}".to_owned()), ts: Some(7), ..of("\u{1b}[1mecho \u{e9}\u{e9}") };
        let fits = fitting(pushed, &bounds).expect("it is a command");
        assert_eq!((&*fits.cmd, fits.cwd.as_deref(), fits.ts), ("echo \u{e9}", Some("/w\u{e9}"), Some(7)));
        assert_eq!(fitting(fits.clone(), &bounds), Ok(fits));
        assert_eq!(fitting(of("         ls"), &bounds), Err(PushError::EmptyCmd));
    }
}
