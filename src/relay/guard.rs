//! Keeps what models can change from deciding for the user: knows where the sandboxes of all threads let them write, and looks at
//! [`super::deciders`] whenever a program is about to start, a rule accepts, or the settings or the places change.
//!
//! Each look is on a thread of its own with a deadline ([`Checks`]); what it has not found out by then counts as in reach. While
//! something is in reach, a further thread looks again every few seconds, so that a fault ends when its cause does.
//!
//! *Locking.* The relay takes the lock only to add places or to replace the settings. It is never held during a look at a file. The
//! faults in `status` change under it, so that they are those of the last report.
//!
//! The relay's thread looks at no file and waits for none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::checks::{Answer, Check, Checks, Subject};
use super::deciders::{ALL, CHECK_WAIT_MAX, CONFIG, Deciders, Exposed};
use super::inbox::Outbox;
use super::notices::Notices;
use super::program_check::ServerEnvironment;
use crate::config::Settings;
use crate::context_engine::Permit;
use crate::control::Published;
use crate::engine::{Input, ModelsReach, Note};
use crate::files::{Reach, Whose};

const STACK_BYTES: usize = 512 << 10;

/// Pause between two looks while something is in reach.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A handle; all handles of a relay share their state.
#[derive(Clone)]
pub(crate) struct Guard(Arc<Shared>);

struct Shared {
    server: ServerEnvironment,
    codex: PathBuf,
    own: Option<PathBuf>,
    cwd: PathBuf,
    published: Arc<Published>,
    outbox: Outbox,
    checks: Checks,
    state: Mutex<State>,
    /// Tells the thread that looks that something has changed.
    changed: Condvar,
}

struct State {
    settings: Settings,
    reach: ModelsReach,
    /// The fault of each decider that was found in reach.
    faults: BTreeMap<String, Fault>,
    /// The fault that only bars rules.
    fault_of_rules: Option<FaultOfRules>,
    look: Look,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    text: String,
    /// The folder in which the program was about to start, if that was not our own.
    cwd: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FaultOfRules {
    text: String,
    /// The places that counted for the rule.
    places: Vec<PathBuf>,
}

/// The thread that looks at all deciders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Done,
    Running,
    /// Something has changed meanwhile.
    RunningAndDue,
}

/// The result of a look.
struct Found {
    exposed: Vec<Exposed>,
    /// The faults of before whose cause is gone.
    ended: Vec<(String, Fault)>,
    ended_of_rules: Option<FaultOfRules>,
}

/// A check of one decider that was started.
pub(super) struct Checking {
    guard: Guard,
    name: String,
    cwd: Option<PathBuf>,
    /// `None` if no model can write.
    check: Option<Check<Result<(), Exposed>>>,
}

impl Checking {
    /// Waits for the answer; `None` if there is none yet. If not, `status` and an event say why.
    pub(super) fn wait(&self, wait_max: Duration) -> Option<Result<(), String>> {
        let Some(check) = &self.check else { return Some(Ok(())) };
        let exposed = match check.wait(wait_max) {
            Answer::Is(Ok(())) => {
                self.guard.is_out_of_reach(&self.name);
                return Some(Ok(()));
            }
            Answer::Is(Err(exposed)) => exposed,
            Answer::Late(_) => return None,
            Answer::None(subject) => Exposed::unanswered(subject),
        };
        Some(self.refused(exposed))
    }

    /// The result for an answer that did not come in time.
    pub(super) fn give_up(self) -> Result<(), String> {
        let subject = match self.check.as_ref().map(|check| check.wait(Duration::ZERO)) {
            None | Some(Answer::Is(Ok(()))) => return Ok(()),
            Some(Answer::Is(Err(exposed))) => return self.refused(exposed),
            Some(Answer::Late(subject) | Answer::None(subject)) => subject,
        };
        self.refused(Exposed::unanswered(subject))
    }

    fn refused(&self, exposed: Exposed) -> Result<(), String> {
        let fault = exposed.to_string();
        self.guard.report(exposed, self.cwd.clone());
        Err(fault)
    }
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
        let own = std::env::current_exe().ok();
        let (checks, changed) = (Checks::default(), Condvar::new());
        Guard(Arc::new(Shared {
            server,
            codex,
            own,
            cwd,
            published,
            outbox,
            checks,
            state: Mutex::new(state),
            changed,
        }))
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

    /// Starts to check whether a program may be started, or the settings be applied: neither it nor what names it is in the reach
    /// of a model. Never waits.
    pub(super) fn begin_check(&self, name: &str, cwd: Option<&Path>) -> Checking {
        let (settings, reach) = self.copy();
        let (guard, name, cwd) = (self.clone(), name.to_owned(), cwd.map(Path::to_owned));
        let check = reach.writes.then(|| {
            let (guard, wanted, cwd) = (guard.clone(), name.clone(), cwd.clone());
            self.0.checks.start(&name, move |_| {
                guard.bounded(&reach)?;
                let cwd = cwd.as_deref().unwrap_or(&guard.0.cwd);
                guard.deciders(&settings).check(&wanted, &guard.reach(&reach, &[]), cwd)
            })
        });
        Checking { guard, name, cwd, check }
    }

    /// As [`Guard::begin_check`], and waits, but not for ever. If the program may not be started, `status` and an event say why.
    ///
    /// # Errors
    ///
    /// The reason, with the remedy.
    pub(super) fn check(&self, name: &str, cwd: Option<&Path>) -> Result<(), String> {
        let checking = self.begin_check(name, cwd);
        checking.wait(CHECK_WAIT_MAX).unwrap_or_else(|| checking.give_up())
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
        let exposed = if reach.writes {
            let (guard, places) = (self.clone(), more.to_vec());
            let look = move |subject: &Subject| guard.exposed(&settings, &reach, &places, subject);
            match self.0.checks.start(ALL, look).wait(CHECK_WAIT_MAX) {
                Answer::Is(exposed) => exposed,
                Answer::Late(subject) | Answer::None(subject) => vec![Exposed::unanswered(subject)],
            }
        } else {
            Vec::new()
        };
        // What is in reach of a rule alone, such as the repository around its folder, stops no program.
        let fault = exposed.first().map(Exposed::bar);
        let mut state = self.lock();
        let is_reported = exposed.iter().all(|exposed| state.faults.contains_key(&exposed.name));
        let new = fault.clone().filter(|_| !is_reported).map(|text| FaultOfRules { text, places: more.to_vec() });
        let (new_text, before) = (new.as_ref().map(|fault| fault.text.clone()), state.fault_of_rules.take());
        state.fault_of_rules = new;
        let before = before.map(|fault| fault.text);
        let is_new = before != new_text;
        if is_new {
            before.iter().for_each(|fault| self.0.published.fault_ended(fault));
            new_text.iter().for_each(|fault| self.0.published.fault(fault));
        }
        if state.fault_of_rules.is_some() {
            self.look_soon(state);
        } else {
            drop(state);
        }
        let notices = Notices::new(Arc::clone(&self.0.published));
        new_text.iter().filter(|_| is_new).for_each(|fault| notices.tell(fault));
        fault.map_or(Ok(()), Err)
    }

    fn copy(&self) -> (Settings, ModelsReach) {
        let state = self.lock();
        (state.settings.clone(), state.reach.clone())
    }

    /// Looks at the places, which takes files.
    fn reach(&self, reach: &ModelsReach, more: &[PathBuf]) -> Reach {
        let temporary = if reach.writes_temporary { self.0.server.temporary() } else { &[] };
        let places = reach.places.iter().map(PathBuf::from);
        Reach::new(places.chain(temporary.iter().cloned()).chain(more.iter().cloned()), Whose::Models)
    }

    /// Whether all places are known.
    fn bounded(&self, reach: &ModelsReach) -> Result<(), Exposed> {
        if reach.has_more { Err(Exposed::unbounded()) } else { Ok(()) }
    }

    fn deciders<'a>(&'a self, settings: &'a Settings) -> Deciders<'a> {
        let Shared { server, codex, own, cwd, .. } = &*self.0;
        Deciders { settings, codex: Some(codex), own: own.as_deref(), server, cwd }
    }

    fn exposed(&self, settings: &Settings, reach: &ModelsReach, more: &[PathBuf], subject: &Subject) -> Vec<Exposed> {
        match self.bounded(reach) {
            Ok(()) => self.deciders(settings).exposed(&self.reach(reach, more), |name| subject.is(name)),
            Err(exposed) => vec![exposed],
        }
    }

    /// Has a thread look at all deciders.
    fn look_soon(&self, mut state: MutexGuard<'_, State>) {
        if !state.reach.writes {
            return;
        }
        let before = std::mem::replace(&mut state.look, Look::RunningAndDue);
        drop(state);
        if before != Look::Done {
            self.0.changed.notify_all();
            return;
        }
        let guard = self.clone();
        let thread = std::thread::Builder::new().name("guard".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || guard.look()) {
            self.lock().look = Look::Done;
            tracing::warn!(%error, "start a thread for what decides");
        }
    }

    /// Looks until nothing is due, and nothing is in reach.
    fn look(&self) {
        let mut hung: Option<Check<Found>> = None;
        loop {
            self.lock().look = Look::Running;
            let is_fresh = hung.is_none();
            let check = hung.take().unwrap_or_else(|| self.begin_look());
            match check.wait(CHECK_WAIT_MAX) {
                Answer::Is(found) if is_fresh => self.take(found),
                // Its places are old.
                Answer::Is(_) => continue,
                Answer::Late(subject) => {
                    self.report(Exposed::unanswered(subject), None);
                    hung = Some(check);
                }
                Answer::None(subject) => self.report(Exposed::unanswered(subject), None),
            }
            let mut state = self.lock();
            let is_quiet = hung.is_none() && state.faults.is_empty() && state.fault_of_rules.is_none();
            if is_quiet && state.look == Look::Running {
                state.look = Look::Done;
                return;
            }
            let rests = |state: &mut State| state.look == Look::Running;
            let waited = self.0.changed.wait_timeout_while(state, LOOK_AGAIN_AFTER, rests);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn begin_look(&self) -> Check<Found> {
        let (settings, reach) = self.copy();
        let state = self.lock();
        let (before, of_rules) = (state.faults.clone(), state.fault_of_rules.clone());
        drop(state);
        let guard = self.clone();
        self.0.checks.start(ALL, move |subject| {
            let exposed = guard.exposed(&settings, &reach, &[], subject);
            let places = guard.reach(&reach, &[]);
            let is_ended = |(name, fault): &(String, Fault)| {
                subject.is(name);
                let is_elsewhere = |cwd: &PathBuf| guard.deciders(&settings).check(name, &places, cwd).is_err();
                !exposed.iter().any(|one| one.name == *name) && !fault.cwd.as_ref().is_some_and(is_elsewhere)
            };
            let ended = before.into_iter().filter(is_ended).collect();
            let is_cured = |fault: &FaultOfRules| guard.exposed(&settings, &reach, &fault.places, subject).is_empty();
            Found { ended, ended_of_rules: of_rules.filter(is_cured), exposed }
        })
    }

    /// Ends the faults whose cause is gone, and reports the new ones.
    fn take(&self, found: Found) {
        let Found { exposed, ended, ended_of_rules } = found;
        let mut state = self.lock();
        let mut texts = Vec::new();
        for (name, fault) in ended {
            // A check may have found another one meanwhile.
            if state.faults.get(&name) == Some(&fault) {
                state.faults.remove(&name);
                texts.push(fault.text);
            }
        }
        if ended_of_rules.is_some() && state.fault_of_rules == ended_of_rules {
            texts.extend(state.fault_of_rules.take().map(|fault| fault.text));
        }
        texts.iter().for_each(|fault| self.0.published.fault_ended(fault));
        drop(state);
        exposed.into_iter().for_each(|exposed| self.report(exposed, None));
    }

    /// A check has found a decider out of reach: its fault, if any, ends after another look.
    fn is_out_of_reach(&self, name: &str) {
        let state = self.lock();
        if state.faults.contains_key(name) {
            self.look_soon(state);
        }
    }

    /// Says once that a decider is in reach, in `status`, on stderr and in the history, and looks again later.
    fn report(&self, exposed: Exposed, cwd: Option<PathBuf>) {
        let text = exposed.to_string();
        let mut state = self.lock();
        let fault = Fault { text: text.clone(), cwd };
        let before = state.faults.insert(exposed.name.clone(), fault).map(|fault| fault.text);
        let is_new = before.as_ref() != Some(&text);
        if is_new {
            before.iter().for_each(|fault| self.0.published.fault_ended(fault));
            self.0.published.fault(&text);
        }
        if state.look == Look::Done {
            self.look_soon(state);
        } else {
            drop(state);
        }
        if !is_new {
            return;
        }
        Notices::new(Arc::clone(&self.0.published)).tell(&text);
        let note = Note::InReach { what: exposed.name, reason: exposed.why };
        self.0.outbox.try_post(Input::Noted(Box::new(note)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::super::checks::tests::hang_all;
    use super::super::inbox::{Inbox, inbox};
    use super::*;
    use crate::config::{Environment, Flags};

    fn guard(home: &Path) -> (Guard, Inbox, UnixStream) {
        let home = home.as_os_str().to_owned();
        let environment = Environment::of(move |name| (name == "CODEX_SHIM_HOME").then(|| home.clone()));
        let (settings, _) = Settings::load(Flags::default(), &environment);
        let (wake, woken) = UnixStream::pair().expect("a pair of sockets");
        let (outbox, inbox) = inbox(wake);
        let server = ServerEnvironment::default();
        (Guard::new(settings, server, "/bin/true".into(), Arc::default(), outbox), inbox, woken)
    }

    fn names(guard: &Guard) -> Vec<String> {
        guard.lock().faults.keys().cloned().collect()
    }

    #[track_caller]
    fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    /// The file system answers nothing, and later it does.
    #[test]
    fn silent_file_system_counts_as_in_reach() {
        let lab = tempfile::tempdir().expect("a folder");
        let (home, ws) = (lab.path().join("home"), lab.path().join("ws"));
        for folder in [&home, &ws] {
            std::fs::create_dir(folder).expect("a folder");
        }
        let (guard, _inbox, _woken) = guard(&home);
        let all = |guard: &Guard| {
            let checked = ["on_pending", super::super::deciders::CODEX].map(|name| guard.check(name, None));
            [guard.check_settings(), guard.nothing_exposed(&[])].into_iter().chain(checked).collect::<Vec<_>>()
        };
        let hung = hang_all(&guard.0.checks);
        // No model can write anywhere.
        assert!(all(&guard).iter().all(Result::is_ok));
        let places = [ws.display().to_string()].into();
        guard.learn(ModelsReach { places, writes: true, ..ModelsReach::default() });
        eventually("the fault of the whole table", || names(&guard).contains(&ALL.to_owned()));
        for _ in 0..2 {
            for checked in all(&guard) {
                let why = checked.expect_err("it cannot be checked");
                assert!(
                    why.contains("counts as if a model could change it") && why.contains("has not answered"),
                    "{why}"
                );
            }
            // One for each, however often they are checked.
            assert_eq!(names(&guard), ["codex", "config.toml", "on_pending", ALL]);
        }
        drop(hung);
        eventually("the answers", || all(&guard).iter().all(Result::is_ok));
        eventually("the end of the faults", || names(&guard).is_empty() && guard.lock().look == Look::Done);
    }

    /// A look that began earlier ends no fault that was found meanwhile.
    #[test]
    fn faults_end_only_after_a_look_at_them() {
        let lab = tempfile::tempdir().expect("a folder");
        let (guard, _inbox, _woken) = guard(lab.path());
        let fault = |text: &str| Fault { text: text.to_owned(), cwd: None };
        let of_rules = |text: &str| FaultOfRules { text: text.to_owned(), places: Vec::new() };
        for (seen, now, expect) in [("a", "a", None), ("a", "b", Some("b"))] {
            let mut state = guard.lock();
            (state.faults, state.fault_of_rules) = ([("x".to_owned(), fault(now))].into(), Some(of_rules(now)));
            drop(state);
            let ended = vec![("x".to_owned(), fault(seen))];
            guard.take(Found { exposed: Vec::new(), ended, ended_of_rules: Some(of_rules(seen)) });
            let state = guard.lock();
            assert_eq!(state.faults.get("x").map(|fault| &*fault.text), expect, "{seen} {now}");
            assert_eq!(state.fault_of_rules.as_ref().map(|fault| &*fault.text), expect, "{seen} {now}");
        }
    }
}
