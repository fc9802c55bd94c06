//! Keeps what models can change from deciding for the user: knows where the sandboxes of all threads let them write, and looks at
//! [`super::deciders`] whenever a program is about to start, a rule accepts, or the settings or the places change.
//!
//! *Locking.* The relay takes the lock only to add places or to replace the settings. It is never held during a look at a file.
//!
//! The relay's thread looks at no file: what it has to be told is found on a thread that runs only while there is something to
//! look at.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::deciders::{CONFIG, Deciders, Exposed};
use super::inbox::Outbox;
use super::notices::Notices;
use super::program_check::ServerEnvironment;
use crate::config::Settings;
use crate::context_engine::Permit;
use crate::control::Published;
use crate::engine::{Input, ModelsReach, Note};
use crate::files::{Reach, Whose};

const STACK_BYTES: usize = 512 << 10;

/// A handle; all handles of a relay share their state.
#[derive(Clone)]
pub(crate) struct Guard(Arc<Shared>);

struct Shared {
    server: ServerEnvironment,
    codex: PathBuf,
    cwd: PathBuf,
    published: Arc<Published>,
    outbox: Outbox,
    state: Mutex<State>,
}

struct State {
    settings: Settings,
    reach: ModelsReach,
    /// The fault of each decider that was found in reach.
    faults: BTreeMap<String, String>,
    /// The fault that only bars rules.
    fault_of_rules: Option<String>,
    look: Look,
}

/// The thread that looks at all deciders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Done,
    Running,
    /// Something has changed meanwhile.
    RunningAndDue,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("reach", &self.lock().reach).finish_non_exhaustive()
    }
}

impl Guard {
    pub(super) fn new(
        settings: Settings,
        server: ServerEnvironment,
        codex: PathBuf,
        published: Arc<Published>,
        outbox: Outbox,
    ) -> Guard {
        let state = State {
            settings,
            reach: ModelsReach::default(),
            faults: BTreeMap::new(),
            fault_of_rules: None,
            look: Look::Done,
        };
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Guard(Arc::new(Shared { server, codex, cwd, published, outbox, state: Mutex::new(state) }))
    }

    pub(super) fn server(&self) -> &ServerEnvironment {
        &self.0.server
    }

    /// Adds places where models can write. Never waits for a file.
    pub(super) fn learn(&self, reach: ModelsReach) {
        let mut state = self.lock();
        let before = state.reach.clone();
        state.reach.add(reach);
        if state.reach != before {
            self.look_soon(state);
        }
    }

    /// Replaces the settings. Never waits for a file.
    pub(super) fn configure(&self, settings: &Settings) {
        let mut state = self.lock();
        state.settings.clone_from(settings);
        self.look_soon(state);
    }

    /// Whether a program may be started, or the settings be applied: neither it nor what names it is in the reach of a model. If
    /// not, `status` and an event say why.
    ///
    /// # Errors
    ///
    /// The reason, with the remedy.
    pub(super) fn check(&self, name: &str, cwd: Option<&Path>) -> Result<(), String> {
        let (settings, reach) = self.copy();
        if !reach.writes {
            return Ok(());
        }
        let reach = Reach::new(self.places(&reach), Whose::Models);
        let checked = self.deciders(&settings).check(name, &reach, cwd.unwrap_or(&self.0.cwd));
        checked.map_err(|exposed| {
            let fault = exposed.to_string();
            self.report(exposed);
            fault
        })
    }

    /// As [`Guard::check`], for the settings.
    pub(super) fn check_settings(&self) -> Result<(), String> {
        self.check(CONFIG, None)?;
        self.check("home", None)
    }

    /// A permit for a program that another room starts.
    pub(super) fn permit(&self, name: impl Fn(&str) -> String + Send + Sync + 'static) -> Permit {
        let guard = self.clone();
        Permit::new(move |what, cwd| guard.check(&name(what), cwd))
    }

    /// Whether all that decides for the user is out of the reach of the models, which may also write to `more` if a sandbox lets
    /// them write at all: a rule may accept.
    pub(super) fn nothing_exposed(&self, more: &[PathBuf]) -> Result<(), String> {
        let (settings, reach) = self.copy();
        let places = self.places(&reach).into_iter().chain(more.iter().cloned());
        let exposed = match reach.writes {
            true => self.deciders(&settings).exposed(&Reach::new(places, Whose::Models)),
            false => Vec::new(),
        };
        // What is in reach of a rule alone, such as the repository around its folder, stops no program.
        let mut state = self.lock();
        let ended = state.fault_of_rules.take();
        let fault = exposed.first().map(Exposed::bar);
        let is_reported = exposed.iter().all(|exposed| state.faults.contains_key(&exposed.name));
        state.fault_of_rules = fault.clone().filter(|_| !is_reported);
        let new = state.fault_of_rules.clone();
        drop(state);
        if ended != new {
            ended.iter().for_each(|fault| self.0.published.fault_ended(fault));
            new.iter().for_each(|fault| Notices::new(Arc::clone(&self.0.published)).report(fault));
        }
        fault.map_or(Ok(()), Err)
    }

    fn copy(&self) -> (Settings, ModelsReach) {
        let state = self.lock();
        (state.settings.clone(), state.reach.clone())
    }

    fn places(&self, reach: &ModelsReach) -> Vec<PathBuf> {
        let temporary = if reach.writes_temporary { self.0.server.temporary() } else { &[] };
        reach.places.iter().map(PathBuf::from).chain(temporary.iter().cloned()).collect()
    }

    fn deciders<'a>(&'a self, settings: &'a Settings) -> Deciders<'a> {
        Deciders { settings, codex: Some(&self.0.codex), server: &self.0.server, cwd: &self.0.cwd }
    }

    /// Has a thread look at all deciders.
    fn look_soon(&self, mut state: MutexGuard<'_, State>) {
        if !state.reach.writes {
            return;
        }
        let before = std::mem::replace(&mut state.look, Look::RunningAndDue);
        drop(state);
        if before != Look::Done {
            return;
        }
        let guard = self.clone();
        let thread = std::thread::Builder::new().name("guard".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || guard.look()) {
            self.lock().look = Look::Done;
            tracing::warn!(%error, "start a thread for what decides");
        }
    }

    fn look(&self) {
        while self.is_due() {
            let (settings, reach) = self.copy();
            let exposed = self.deciders(&settings).exposed(&Reach::new(self.places(&reach), Whose::Models));
            let is_exposed = |name: &str| exposed.iter().any(|exposed| exposed.name == name);
            let mut state = self.lock();
            let ended: Vec<String> = state.faults.keys().filter(|name| !is_exposed(name)).cloned().collect();
            let ended: Vec<String> = ended.iter().filter_map(|name| state.faults.remove(name)).collect();
            drop(state);
            ended.iter().for_each(|fault| self.0.published.fault_ended(fault));
            exposed.into_iter().for_each(|exposed| self.report(exposed));
        }
    }

    /// Whether there is something new to look at.
    fn is_due(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.look == Look::RunningAndDue;
        state.look = if is_due { Look::Running } else { Look::Done };
        is_due
    }

    /// Says once that a decider is in reach, in `status`, on stderr and in the history.
    fn report(&self, exposed: Exposed) {
        let fault = exposed.to_string();
        let before = self.lock().faults.insert(exposed.name.clone(), fault.clone());
        if before.as_ref() == Some(&fault) {
            return;
        }
        if let Some(before) = before {
            self.0.published.fault_ended(&before);
        }
        Notices::new(Arc::clone(&self.0.published)).report(&fault);
        let note = Note::InReach { what: exposed.name, reason: exposed.why };
        self.0.outbox.try_post(Input::Noted(Box::new(note)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
