//! `config.toml` while a relay runs: a thread looks at the file once a second and sends changed settings to the relay.
//!
//! The thread reads the file once it has not changed for a second, so it does not apply a file that is being written. A file with
//! a mistake changes nothing. Settings that need a restart are published by name.
//!
//! It never touches the relay's own state: the new settings go through the inbox.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::guard::Guard;
use super::inbox::Outbox;
use super::notices::Notices;
use crate::api::ConfigDocument;
use crate::config::{Complaint, Environment, Settings};
use crate::control::Published;
use crate::files::{Folder, Refused};
use crate::invariants::{self, holds};
use crate::os::memory;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks until the start is over: the other threads of a relay without traffic rest by then.
const LOOKS_OF_START: u64 = 5;

/// Stack of the thread, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Starts the thread without waiting. `complaints` are about the settings that the relay starts with.
pub(super) fn start(running: &Settings, complaints: &[Complaint], outbox: Outbox, guard: Guard, notices: &Notices) {
    let Some(home) = running.home.value.clone() else { return };
    let published = Arc::clone(&notices.published);
    let context = Some(running.context());
    published.config(ConfigDocument { loaded_at: Some(now()), context, ..ConfigDocument::default() });
    let mut reload = Reload {
        home,
        running: running.clone(),
        looks: Looks::default(),
        outbox,
        guard,
        published,
        reported: mistakes(complaints),
        faults: of_file(complaints).map(ToString::to_string).collect(),
    };
    let thread = std::thread::Builder::new().name("config".to_owned()).stack_size(STACK_BYTES);
    let broken = invariants::shared();
    let started = thread.spawn(move || {
        broken.join();
        for look in 1u64.. {
            std::thread::park_timeout(LOOK_EVERY);
            reload.look();
            if look == LOOKS_OF_START {
                memory::give_back();
            }
        }
    });
    notices.started(started, "config.toml", "its changes take effect at the next start");
}

/// Identifies one state of the file; `None` if there is no file.
type Stamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

/// Decides when the thread reads the file.
#[derive(Debug, Default)]
struct Looks {
    /// State at the last look.
    seen: Option<Stamp>,
    /// State at the last reading.
    read: Option<Stamp>,
    /// State at the last reading that was refused because a model could have written the file, and the revision of what the guard
    /// knew before it.
    refused: Option<(Stamp, u64)>,
}

impl Looks {
    /// Whether the file has changed since the last reading and has not changed since the last look. A refused file is read again
    /// only if it has changed, or what the guard knows.
    fn is_due(&mut self, stamp: Stamp, guard_revision: u64) -> bool {
        let has_settled = self.seen.replace(stamp) == Some(stamp);
        has_settled && self.read != Some(stamp) && self.refused != Some((stamp, guard_revision))
    }
}

#[derive(Debug)]
struct Reload {
    home: PathBuf,
    /// The settings that the relay runs with.
    running: Settings,
    looks: Looks,
    outbox: Outbox,
    guard: Guard,
    published: Arc<Published>,
    /// The mistake that was reported last.
    reported: Option<String>,
    /// The faults that `status` shows because of it.
    faults: Vec<String>,
}

impl Reload {
    fn look(&mut self) {
        let file = self.home.join("config.toml");
        let stamp = stamp_of(&file);
        let guard_revision = self.guard.revision();
        if !self.looks.is_due(stamp, guard_revision) {
            return;
        }
        // A missing or refused home changes no setting.
        if !self.home.is_dir() || Folder::home(&self.home).is_err_and(|error| Refused::behind(&error).is_some()) {
            return;
        }
        let (settings, complaints) = Settings::load(self.running.flags(), &Environment::of_process());
        // The file changed during the reading; a later look reads it again.
        if stamp_of(&file) != stamp {
            return;
        }
        (self.looks.read, self.looks.refused) = (Some(stamp), None);
        match (mistakes(&complaints), self.guard.check_settings()) {
            (None, Ok(())) => self.apply(&settings),
            (Some(mistakes), Ok(())) => self.refuse(mistakes),
            // A model may have written them. The guard has reported it.
            (_, Err(why)) => {
                // Once they are out of reach, they are read again.
                (self.looks.read, self.looks.refused) = (None, Some((stamp, guard_revision)));
                self.reported = None;
                self.end_faults();
                self.publish_error(why);
            }
        }
    }

    fn apply(&mut self, settings: &Settings) {
        let applied = self.running.with_live_settings_of(settings);
        let restart_needed: Vec<String> = applied.names_that_differ(settings).into_iter().map(str::to_owned).collect();
        tracing::info!(?restart_needed, "config.toml was read");
        self.reported = None;
        self.end_faults();
        let mut loaded_at = self.published.config_document().and_then(|config| config.loaded_at);
        let changed = self.running.names_that_differ(&applied);
        let waits = |name: &&str| restart_needed.iter().any(|of| of == name);
        holds!("config.changes-what-needs-no-restart", !changed.iter().any(waits));
        if applied != self.running {
            loaded_at = Some(now());
            self.running = applied.clone();
            self.outbox.configure(applied);
        }
        let context = Some(self.running.context());
        self.published.config(ConfigDocument { loaded_at, restart_needed, error: None, context });
    }

    /// Keeps the settings and reports the mistake, unless the relay has reported it before.
    fn refuse(&mut self, mistake: String) {
        if self.reported.as_ref() != Some(&mistake) {
            self.end_faults();
            let fault =
                format!("config.toml has changed but is invalid, and is not applied until it is corrected: {mistake}");
            Notices::new(Arc::clone(&self.published)).report(&fault);
            self.faults.push(fault);
        }
        self.publish_error(mistake.clone());
        self.reported = Some(mistake);
    }

    fn publish_error(&self, error: String) {
        let published = self.published.config_document();
        self.published.config(ConfigDocument { error: Some(error), ..published.unwrap_or_default() });
    }

    fn end_faults(&mut self) {
        self.faults.drain(..).for_each(|fault| self.published.fault_ended(&fault));
    }
}

/// The mistakes in the file.
fn mistakes(complaints: &[Complaint]) -> Option<String> {
    let mistakes: Vec<&str> = of_file(complaints).map(Complaint::mistake).collect();
    (!mistakes.is_empty()).then(|| mistakes.join("; "))
}

fn of_file(complaints: &[Complaint]) -> impl Iterator<Item = &Complaint> {
    complaints.iter().filter(|complaint| complaint.is_about_file())
}

fn stamp_of(file: &Path) -> Stamp {
    let metadata = fs::metadata(file).ok()?;
    let (modified, changed) = ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
    Some((metadata.dev(), metadata.ino(), metadata.size(), modified.0, modified.1, changed.0, changed.1))
}

fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_once_it_has_settled() {
        let stamp = |size| Some((1, 1, size, 0, 0, 0, 0));
        let mut looks = Looks::default();
        assert!(!looks.is_due(stamp(1), 0));
        assert!(looks.is_due(stamp(1), 0));
        looks.read = Some(stamp(1));
        assert!(!looks.is_due(stamp(1), 0));
        // It is written in two pieces, then removed.
        assert!(!looks.is_due(stamp(2), 0) && !looks.is_due(stamp(3), 0));
        assert!(looks.is_due(stamp(3), 0));
        looks.read = Some(stamp(3));
        assert!(!looks.is_due(None, 0) && looks.is_due(None, 0));
    }

    #[test]
    fn refused_file_is_read_again_only_after_a_change() {
        let stamp = |size| Some((1, 1, size, 0, 0, 0, 0));
        let mut looks = Looks::default();
        assert!(!looks.is_due(stamp(1), 7) && looks.is_due(stamp(1), 7));
        looks.refused = Some((stamp(1), 7));
        for _ in 0..100 {
            assert!(!looks.is_due(stamp(1), 7));
        }
        assert!(looks.is_due(stamp(1), 8));
        assert!(!looks.is_due(stamp(2), 7) && looks.is_due(stamp(2), 7));
    }
}
