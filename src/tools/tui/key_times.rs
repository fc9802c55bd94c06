//! When keys came, and when what they answer was drawn.

use crossterm::event::KeyEvent;

use super::keys::KeyPlace;
use crate::sessions::news::Overruling;

/// The keys so far, as far as they matter for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    /// Whether no key has come for a while.
    pub(super) is_quiet: bool,
    /// A deciding key that acts once no other has followed it, and what it decides on.
    pub(super) held: Option<(KeyEvent, Scene)>,
    /// Whether a deciding key was dropped since it was last quiet.
    pub(super) has_dropped: bool,
    /// The content of the screen, and when it appeared, in microseconds since the Unix epoch.
    pub(super) drawn: Option<(Scene, u64)>,
}

/// The subject of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) place: KeyPlace,
    pub(super) has_help: bool,
    pub(super) attachment: u64,
    /// The request on the screen, by its id.
    pub(super) request: Option<String>,
    pub(super) overruling: Option<Overruling>,
}
