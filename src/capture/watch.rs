//! Follows the events of an `agent_pty`, and has each command there kept once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocks::{Blocks, Ended, Screen, Whose};
use super::follow::Follower;
use crate::engine::{ContextBounds, PushedCommand};

/// How often the file is looked at. Source: what a person takes between the end of a command and the next message.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Commands that are kept together; so many are well below the longest body that a relay takes.
const TOGETHER_MAX: usize = 50;

/// Commands that wait while they cannot be kept; of more the oldest goes, as in the buffer itself.
const UNKEPT_MAX: usize = 200;

/// A file of events that is followed.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    follower: Follower,
    blocks: Blocks,
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

    /// Has `keep` take what has ended since the last look.
    ///
    /// # Errors
    ///
    /// Why the events cannot be read, or what `keep` has said: what was not taken is given again with the next look.
    pub fn look(&mut self, keep: &mut impl FnMut(&[PushedCommand]) -> Result<(), String>) -> Result<(), String> {
        let Watch { path, follower, blocks, unkept, .. } = self;
        let mut ended: Vec<Ended> = Vec::new();
        let looked = follower.look(|line| ended.extend(blocks.line(line)));
        let count = ended.len();
        for (index, ended) in ended.into_iter().enumerate() {
            let screen = if index + 1 == count { Screen::ShowsIt } else { Screen::HasGoneOn };
            unkept.push(blocks.with_screen(ended, screen));
        }
        let surplus = unkept.len().saturating_sub(UNKEPT_MAX);
        unkept.drain(..surplus);
        while !unkept.is_empty() {
            let together = unkept.len().min(TOGETHER_MAX);
            keep(&unkept[..together])?;
            unkept.drain(..together);
        }
        looked.map_err(|error| format!("read {}: {error}", path.display()))
    }
}
