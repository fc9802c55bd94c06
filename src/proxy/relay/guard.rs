//! Keeps what models can change from deciding for the user: knows where the sandboxes of all threads let them write, and looks at
//! [`super::deciders`] whenever a program is about to start, a rule accepts, or the settings or the places change.
//!
//! Each look is on a thread of its own with a deadline ([`Checks`]). What it has not found out by then counts as in reach until its
//! answer comes. While something is in reach, a further thread looks again, after pauses that grow, so that a fault ends when its
//! cause does.
//!
//! *Locking.* The relay takes the lock only to add places or to replace the settings. It is never held during a look at a file. The
//! faults in `status` change under it, so that they are those of the last report.
//!
//! The relay's thread looks at no file and waits for none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::checks::{CheckState, Checks, RunningCheck, Subject};
use super::deciders::{ALL, CHECK_WAIT_MAX, CONFIG, Deciders, Exposed, Use};
use super::inbox::Outbox;
use super::notices::Notices;
use super::server_environment::ServerEnvironment;
use crate::config::Settings;
use crate::context_engine::Permit;
use crate::control::Published;
use crate::engine::{Input, ModelsReach, Note};
use crate::files::{Reach, Whose};

const STACK_BYTES: usize = 512 << 10;

/// Pauses between two looks while something is in reach: each is twice as long, until something changes.
const LOOK_AGAIN_AFTER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// How long a hook waits for a late answer.
const LATE_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long the answer of a late check counts.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(60);

/// Most checks of programs at once: those of all hooks and of the fragments of some turns.
const CHECKS_MAX: usize = 64;

/// Most looks at once: one after each change of the settings or the places, while earlier ones hang.
const LOOKS_MAX: usize = 4;

/// Most looks for rules at once.
const LOOKS_OF_RULES_MAX: usize = 8;

/// Late checks whose answers are waited for.
const LATE_MAX: usize = 16;

/// Faults that are remembered.
const FAULTS_MAX: usize = 64;

/// The environment in which codex starts, and the one of all other programs.
#[derive(Debug, Default)]
pub(super) struct Environments {
    pub(super) server: ServerEnvironment,
    pub(super) ours: ServerEnvironment,
}

/// A handle; all handles of a relay share their state.
#[derive(Clone)]
pub(super) struct Guard(Arc<SharedGuard>);

struct SharedGuard {
    environments: Environments,
    codex: PathBuf,
    own: Option<PathBuf>,
    cwd: PathBuf,
    published: Arc<Published>,
    outbox: Outbox,
    /// Each kind has its own limit, so that a folder that does not answer stops only those that look at it.
    checks: Checks,
    looks: Checks,
    looks_of_rules: Checks,
    state: Mutex<GuardState>,
    /// Tells the thread that looks that something has changed.
    changed: Condvar,
}

struct GuardState {
    settings: Settings,
    reach: ModelsReach,
    /// Changes with the settings and the reach.
    inputs: u64,
    /// Changes with the faults.
    reports: u64,
    /// The text of each fault.
    faults: BTreeMap<DeciderKey, String>,
    /// Checks that were too late for their caller. The next one for the same gets the answer.
    late: Vec<Late>,
    look: Look,
}

/// The decider that was found in reach, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DeciderKey {
    name: String,
    place: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Own,
    /// The folder in which a program was about to start.
    In(PathBuf),
    /// The places that counted for a rule: the fault bars only rules.
    OfRule(Vec<PathBuf>),
}

/// The answer of a check of one decider, and when it came.
type Checked = (Result<(), Exposed>, Instant);

struct Late {
    wanted: Use,
    cwd: Option<PathBuf>,
    inputs: u64,
    check: RunningCheck<Checked>,
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
struct LookResult {
    /// Those of the state that it looked at.
    inputs: u64,
    exposed: Vec<Exposed>,
    /// The faults of before whose cause is gone.
    ended: Vec<(DeciderKey, String)>,
}

/// A check of one decider that was started.
pub struct Checking {
    guard: Guard,
    wanted: Use,
    cwd: Option<PathBuf>,
    inputs: u64,
    progress: LookProgress,
}

enum LookProgress {
    /// No model can write, or a late check has answered.
    Is(Result<(), Exposed>),
    Running(RunningCheck<Checked>),
}

impl Checking {
    /// Waits for the answer; `None` if there is none yet. If not, `status` and an event say why.
    pub fn wait(&self, wait_max: Duration) -> Option<Result<(), String>> {
        let checked = match &self.progress {
            LookProgress::Is(checked) => checked.clone(),
            LookProgress::Running(check) => match check.wait(wait_max) {
                CheckState::Is((checked, _)) => checked,
                CheckState::Late(_) => return None,
                CheckState::None(subject) => Err(Exposed::unchecked(subject)),
            },
        };
        if checked.is_ok() {
            self.guard.is_out_of_reach(&self.wanted.name);
        }
        Some(checked.map_err(|exposed| self.refused(exposed)))
    }

    /// The result for an answer that has not come in time. The next check for the same gets the answer if it comes by then.
    pub(super) fn give_up(self) -> Result<(), String> {
        if let Some(checked) = self.wait(Duration::ZERO) {
            return checked;
        }
        let fault = self.is_late();
        let Checking { guard, wanted, cwd, inputs, progress } = self;
        if let LookProgress::Running(check) = progress {
            let mut state = guard.lock();
            if state.late.len() == LATE_MAX {
                state.late.remove(0);
            }
            state.late.push(Late { wanted, cwd, inputs, check });
        }
        Err(fault)
    }

    /// Reports that the answer has not come yet.
    fn is_late(&self) -> String {
        self.refused(Exposed::unanswered(self.wanted.name.clone()))
    }

    fn refused(&self, exposed: Exposed) -> String {
        let fault = exposed.to_string();
        self.guard.report(exposed, self.cwd.clone().map_or(Scope::Own, Scope::In));
        fault
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
        environments: Environments,
        codex: PathBuf,
        published: Arc<Published>,
        outbox: Outbox,
    ) -> Guard {
        let state = GuardState {
            settings,
            reach: ModelsReach::default(),
            inputs: 0,
            reports: 0,
            faults: BTreeMap::new(),
            late: Vec::new(),
            look: Look::Done,
        };
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let own = std::env::current_exe().ok();
        Guard(Arc::new(SharedGuard {
            environments,
            codex,
            own,
            cwd,
            published,
            outbox,
            checks: Checks::new(CHECKS_MAX),
            looks: Checks::new(LOOKS_MAX),
            looks_of_rules: Checks::new(LOOKS_OF_RULES_MAX),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    pub(super) fn server(&self) -> &ServerEnvironment {
        &self.0.environments.server
    }

    /// Adds places where models can write. Never waits for a file.
    pub(super) fn learn(&self, reach: ModelsReach) {
        let mut state = self.lock();
        let before = state.reach.clone();
        state.reach.add(reach);
        if state.reach != before {
            state.inputs += 1;
            self.look_soon(state);
        }
    }

    /// The places where models can write, of all servers.
    pub(super) fn known_reach(&self) -> ModelsReach {
        self.lock().reach.clone()
    }

    /// Replaces the settings. Never waits for a file.
    pub(super) fn configure(&self, settings: &Settings) {
        let mut state = self.lock();
        state.settings.clone_from(settings);
        state.inputs += 1;
        self.look_soon(state);
    }

    /// A number that changes with all that could change the answer of a check, as far as it is known.
    pub(super) fn revision(&self) -> u64 {
        let state = self.lock();
        state.inputs + state.reports
    }

    /// Starts to check whether a program may be started, or the settings be applied: neither it nor what names it is in the reach
    /// of a model. Never waits.
    pub(super) fn begin_check(&self, wanted: &Use, cwd: Option<&Path>) -> Checking {
        let (settings, reach, inputs) = self.copy();
        let cwd = cwd.map(Path::to_owned);
        let progress = match self.late_check(wanted, cwd.as_deref(), inputs) {
            _ if !reach.writes => LookProgress::Is(Ok(())),
            Some(progress) => progress,
            None => {
                let name = wanted.name.clone();
                let (guard, wanted, cwd) = (self.clone(), wanted.clone(), cwd.clone());
                let look = move || {
                    guard.bounded(&reach)?;
                    let cwd = cwd.as_deref().unwrap_or(&guard.0.cwd);
                    guard.deciders(&settings).check(&wanted, &guard.reach(&reach, &[]), cwd)
                };
                LookProgress::Running(self.0.checks.start(&name, move |_| (look(), Instant::now())))
            }
        };
        Checking { guard: self.clone(), wanted: wanted.clone(), cwd, inputs, progress }
    }

    /// An earlier check for the same that was too late.
    fn late_check(&self, wanted: &Use, cwd: Option<&Path>, inputs: u64) -> Option<LookProgress> {
        let mut state = self.lock();
        state.late.retain(|late| late.inputs == inputs);
        let is_same = |late: &Late| late.wanted == *wanted && late.cwd.as_deref() == cwd;
        let at = state.late.iter().position(is_same)?;
        let late = state.late.swap_remove(at);
        drop(state);
        match late.check.wait(Duration::ZERO) {
            CheckState::Is((checked, at)) => (at.elapsed() <= LATE_ANSWER_MAX).then_some(LookProgress::Is(checked)),
            CheckState::Late(_) => Some(LookProgress::Running(late.check)),
            CheckState::None(_) => None,
        }
    }

    /// As [`Guard::begin_check`], and waits, but not for ever. If the program may not be started, `status` and an event say why.
    ///
    /// # Errors
    ///
    /// The reason, with the remedy.
    pub(super) fn check(&self, wanted: &Use, cwd: Option<&Path>) -> Result<(), String> {
        let checking = self.begin_check(wanted, cwd);
        checking.wait(CHECK_WAIT_MAX).unwrap_or_else(|| checking.give_up())
    }

    /// As [`Guard::check`], for a caller that has the time to wait for a late answer.
    pub(super) fn check_patiently(&self, wanted: &Use) -> Result<(), String> {
        let checking = self.begin_check(wanted, None);
        if let Some(checked) = checking.wait(CHECK_WAIT_MAX) {
            return checked;
        }
        checking.is_late();
        checking.wait(LATE_WAIT_MAX).unwrap_or_else(|| checking.give_up())
    }

    /// As [`Guard::check`], for the settings.
    pub(super) fn check_settings(&self) -> Result<(), String> {
        self.check(&Use::row(CONFIG), None)?;
        self.check(&Use::row("home"), None)
    }

    /// A permit for a program that another room starts.
    pub(super) fn permit(&self, name: impl Fn(&str) -> String + Send + Sync + 'static) -> Permit {
        let guard = self.clone();
        Permit::new(move |what, subject, cwd| guard.check(&Use { name: name(what), subject: Some(subject) }, cwd))
    }

    /// Whether all that decides for the user is out of the reach of the models, which may also write to `more` if a sandbox lets
    /// them write at all: a rule may accept.
    pub(super) fn nothing_exposed(&self, more: &[PathBuf]) -> Result<(), String> {
        let (settings, reach, _) = self.copy();
        let exposed = if reach.writes {
            let (guard, places) = (self.clone(), more.to_vec());
            let look = move |subject: &Subject| guard.exposed(&settings, &reach, &places, subject);
            match self.0.looks_of_rules.start(ALL, look).wait(CHECK_WAIT_MAX) {
                CheckState::Is(exposed) => exposed,
                CheckState::Late(subject) => vec![Exposed::unanswered(subject)],
                CheckState::None(subject) => vec![Exposed::unchecked(subject)],
            }
        } else {
            Vec::new()
        };
        // What is in reach of a rule alone, such as the repository around its folder, stops no program.
        let fault = exposed.first().map(Exposed::bar);
        let mut state = self.lock();
        let own = |exposed: &Exposed| DeciderKey { name: exposed.name.clone(), place: Scope::Own };
        let is_reported = exposed.iter().all(|exposed| state.faults.contains_key(&own(exposed)));
        let of_rule = fault.clone().filter(|_| !is_reported);
        let bars = of_rule.is_some();
        let new = self.set_fault(
            &mut state,
            DeciderKey { name: ALL.to_owned(), place: Scope::OfRule(more.to_vec()) },
            of_rule,
        );
        if bars {
            self.look_soon(state);
        } else {
            drop(state);
        }
        let notices = Notices::new(Arc::clone(&self.0.published));
        new.iter().for_each(|fault| notices.tell(fault));
        fault.map_or(Ok(()), Err)
    }

    /// Begins, changes or ends a fault, also in `status`. Returns its text if no other fault has it.
    fn set_fault(&self, state: &mut GuardState, key: DeciderKey, text: Option<String>) -> Option<String> {
        // Those of the table itself are few, and always have room.
        let is_bounded = key.place != Scope::Own && !state.faults.contains_key(&key);
        let is_full = is_bounded && state.faults.len() >= FAULTS_MAX;
        let text = text.filter(|_| !is_full);
        let before = match &text {
            Some(text) => state.faults.insert(key, text.clone()),
            None => state.faults.remove(&key),
        };
        if before == text {
            return None;
        }
        state.reports += 1;
        let others = |text: &String| state.faults.values().filter(|other| *other == text).count();
        before.iter().filter(|before| others(before) == 0).for_each(|before| self.0.published.fault_ended(before));
        let new = text.filter(|text| others(text) == 1);
        new.iter().for_each(|text| self.0.published.fault(text));
        new
    }

    fn copy(&self) -> (Settings, ModelsReach, u64) {
        let state = self.lock();
        (state.settings.clone(), state.reach.clone(), state.inputs)
    }

    /// Looks at the places, which takes files.
    fn reach(&self, reach: &ModelsReach, more: &[PathBuf]) -> Reach {
        let temporary = if reach.writes_temporary { self.server().temporary() } else { &[] };
        let places = reach.places.iter().map(PathBuf::from);
        Reach::new(places.chain(temporary.iter().cloned()).chain(more.iter().cloned()), Whose::Models)
    }

    /// Whether all places are known.
    fn bounded(&self, reach: &ModelsReach) -> Result<(), Exposed> {
        if reach.has_more { Err(Exposed::unbounded()) } else { Ok(()) }
    }

    fn deciders<'a>(&'a self, settings: &'a Settings) -> Deciders<'a> {
        let SharedGuard { environments: Environments { server, ours }, codex, own, cwd, .. } = &*self.0;
        Deciders { settings, codex: Some(codex), own: own.as_deref(), server, ours, cwd }
    }

    fn exposed(&self, settings: &Settings, reach: &ModelsReach, more: &[PathBuf], subject: &Subject) -> Vec<Exposed> {
        match self.bounded(reach) {
            Ok(()) => self.deciders(settings).exposed(&self.reach(reach, more), |name| subject.is(name)),
            Err(exposed) => vec![exposed],
        }
    }

    /// Has a thread look at all deciders.
    fn look_soon(&self, mut state: MutexGuard<'_, GuardState>) {
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
        let mut hung: Option<(u64, RunningCheck<LookResult>)> = None;
        let mut pause = LOOK_AGAIN_AFTER.0;
        loop {
            let mut state = self.lock();
            state.look = Look::Running;
            let inputs = state.inputs;
            drop(state);
            // The result of a look that hangs is of no use after a change.
            hung = hung.filter(|(of, _)| *of == inputs);
            let is_fresh = hung.is_none();
            let (inputs, check) = hung.take().unwrap_or_else(|| (inputs, self.begin_look()));
            match check.wait(CHECK_WAIT_MAX) {
                CheckState::Is(found) => {
                    if !self.take(found, is_fresh) {
                        continue;
                    }
                }
                CheckState::Late(subject) => {
                    self.report(Exposed::unanswered(subject), Scope::Own);
                    hung = Some((inputs, check));
                }
                CheckState::None(subject) => self.report(Exposed::unchecked(subject), Scope::Own),
            }
            let mut state = self.lock();
            if hung.is_none() && state.faults.is_empty() && state.look == Look::Running {
                state.look = Look::Done;
                return;
            }
            // The wait for a late answer is a pause by itself.
            let wait_max = if hung.is_some() { Duration::ZERO } else { pause };
            let rests = |state: &mut GuardState| state.look == Look::Running;
            let waited = self.0.changed.wait_timeout_while(state, wait_max, rests);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            pause = match state.look {
                Look::RunningAndDue => LOOK_AGAIN_AFTER.0,
                Look::Done | Look::Running => (pause * 2).min(LOOK_AGAIN_AFTER.1),
            };
        }
    }

    fn begin_look(&self) -> RunningCheck<LookResult> {
        let (settings, reach, inputs) = self.copy();
        let before = self.lock().faults.clone();
        let guard = self.clone();
        self.0.looks.start(ALL, move |subject| {
            let exposed = guard.exposed(&settings, &reach, &[], subject);
            let places = guard.reach(&reach, &[]);
            let deciders = guard.deciders(&settings);
            let is_ended = |(key, _): &(DeciderKey, String)| {
                subject.is(&key.name);
                match &key.place {
                    Scope::Own => !exposed.iter().any(|one| one.name == key.name),
                    Scope::In(cwd) => {
                        !deciders.has(&key.name) || deciders.check(&Use::row(&key.name), &places, cwd).is_ok()
                    }
                    Scope::OfRule(places) => guard.exposed(&settings, &reach, places, subject).is_empty(),
                }
            };
            let ended = before.into_iter().filter(is_ended).collect();
            LookResult { inputs, ended, exposed }
        })
    }

    /// Ends the faults whose cause is gone, and reports the new ones. A late answer counts too, unless the settings or the places
    /// have changed meanwhile: then it returns false.
    fn take(&self, found: LookResult, is_fresh: bool) -> bool {
        let LookResult { inputs, exposed, ended } = found;
        let mut state = self.lock();
        if !is_fresh && inputs != state.inputs {
            return false;
        }
        for (key, text) in ended {
            // A check may have found another one meanwhile.
            if state.faults.get(&key) == Some(&text) {
                self.set_fault(&mut state, key, None);
            }
        }
        drop(state);
        exposed.into_iter().for_each(|exposed| self.report(exposed, Scope::Own));
        true
    }

    /// A check has found a decider out of reach: its fault, if any, ends after another look.
    fn is_out_of_reach(&self, name: &str) {
        let state = self.lock();
        if state.faults.keys().any(|key| key.name == name) {
            self.look_soon(state);
        }
    }

    /// Says once that a decider is in reach, in `status`, on stderr and in the history, and looks again later.
    fn report(&self, exposed: Exposed, place: Scope) {
        let mut state = self.lock();
        let key = DeciderKey { name: exposed.name.clone(), place };
        let new = self.set_fault(&mut state, key, Some(exposed.to_string()));
        if state.look == Look::Done {
            self.look_soon(state);
        } else {
            drop(state);
        }
        let Some(text) = new else { return };
        Notices::new(Arc::clone(&self.0.published)).tell(&text);
        let note = Note::InReach { what: exposed.name, reason: exposed.why };
        self.0.outbox.try_post(Input::Noted(Box::new(note)));
    }

    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::sync_channel;

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
        (Guard::new(settings, Environments::default(), "/bin/true".into(), Arc::default(), outbox), inbox, woken)
    }

    fn names(guard: &Guard) -> Vec<String> {
        guard.lock().faults.keys().map(|key| key.name.clone()).collect()
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
            let checked = ["on_pending", super::super::deciders::CODEX].map(|name| guard.check(&Use::row(name), None));
            [guard.check_settings(), guard.nothing_exposed(&[])].into_iter().chain(checked).collect::<Vec<_>>()
        };
        let SharedGuard { checks, looks, looks_of_rules, .. } = &*guard.0;
        let hung = [checks, looks, looks_of_rules].map(hang_all);
        // No model can write anywhere.
        assert!(all(&guard).iter().all(Result::is_ok));
        let places = [ws.display().to_string()].into();
        guard.learn(ModelsReach { places, writes: true, ..ModelsReach::default() });
        eventually("the fault of the whole table", || names(&guard).contains(&ALL.to_owned()));
        for _ in 0..2 {
            for checked in all(&guard) {
                let why = checked.expect_err("it cannot be checked");
                assert!(
                    why.contains("counts as if a model could change it") && why.contains("it cannot be checked"),
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

    /// What hangs stops only checks of its kind, and a look that could not begin is repeated after a change.
    #[test]
    fn hung_looks_stop_no_other_checks() {
        let lab = tempfile::tempdir().expect("a folder");
        let home = lab.path().join("home");
        std::fs::create_dir(&home).expect("a folder");
        let (guard, _inbox, _woken) = guard(&home);
        let mut hung = hang_all(&guard.0.looks);
        let places = [lab.path().join("ws").display().to_string()].into();
        guard.learn(ModelsReach { places, writes: true, ..ModelsReach::default() });
        eventually("a fault", || names(&guard) == [ALL]);
        assert_eq!(guard.check(&Use::row("on_pending"), None), Ok(()));
        assert_eq!(guard.nothing_exposed(&[]), Ok(()));
        // Room for one.
        drop(hung.pop().expect("BUG: it has some"));
        guard.learn(ModelsReach { places: ["/elsewhere".to_owned()].into(), ..ModelsReach::default() });
        eventually("its end", || names(&guard).is_empty());
    }

    /// A look that began earlier ends no fault that was found meanwhile.
    #[test]
    fn faults_end_only_after_a_look_at_them() {
        let lab = tempfile::tempdir().expect("a folder");
        let (guard, _inbox, _woken) = guard(lab.path());
        let keys = [Scope::Own, Scope::In("/w".into()), Scope::OfRule(Vec::new())];
        let keys = keys.map(|place| DeciderKey { name: "x".to_owned(), place });
        for (seen, now, is_fresh, changes, expect) in [
            ("a", "a", true, false, None),
            ("a", "b", true, false, Some("b")),
            // The answer of a look that took long.
            ("a", "a", false, false, None),
            ("a", "a", false, true, Some("a")),
            ("a", "a", true, true, None),
        ] {
            let with = |text: &str| keys.clone().map(|key| (key, text.to_owned()));
            let mut state = guard.lock();
            state.faults = with(now).into();
            let inputs = state.inputs;
            state.inputs += u64::from(changes);
            drop(state);
            let counts = guard.take(LookResult { inputs, exposed: Vec::new(), ended: with(seen).into() }, is_fresh);
            assert_eq!(counts, is_fresh || !changes, "{seen} {now} {is_fresh} {changes}");
            let state = guard.lock();
            let text = |key| state.faults.get(key).map(String::as_str);
            assert!(keys.iter().all(|key| text(key) == expect), "{seen} {now} {is_fresh} {changes}");
        }
    }

    /// In two folders in turn, each fault is told once.
    #[test]
    fn faults_of_two_places_are_told_once() {
        let lab = tempfile::tempdir().expect("a folder");
        let (guard, _inbox, _woken) = guard(lab.path());
        // Nobody looks meanwhile.
        guard.lock().look = Look::Running;
        let exposed = |why: &str| Exposed {
            name: "fragment `a`".to_owned(),
            why: why.to_owned(),
            certainty: super::super::deciders::Certainty::Seen,
        };
        let report = |cwd: &str, why: &str| {
            let before = guard.revision();
            guard.report(exposed(why), Scope::In(cwd.into()));
            guard.revision() - before
        };
        assert_eq!((report("/a", "in /a"), report("/b", "in /b")), (1, 1));
        for _ in 0..3 {
            assert_eq!((report("/a", "in /a"), report("/b", "in /b")), (0, 0));
        }
        assert_eq!(guard.lock().faults.len(), 2);
        // The same text of two places ends with the last of them.
        let text = exposed("in /x").to_string();
        let mut state = guard.lock();
        let set = |state: &mut GuardState, cwd: &str, text: Option<&String>| {
            let key = DeciderKey { name: "x".to_owned(), place: Scope::In(cwd.into()) };
            guard.set_fault(state, key, text.cloned())
        };
        let told =
            [set(&mut state, "/a", Some(&text)), set(&mut state, "/b", Some(&text)), set(&mut state, "/a", None)];
        assert_eq!(told, [Some(text.clone()), None, None]);
        assert_eq!((set(&mut state, "/a", Some(&text)), set(&mut state, "/b", None)), (None, None));
        (0..2 * FAULTS_MAX).for_each(|number| drop(set(&mut state, &number.to_string(), Some(&text))));
        assert_eq!(state.faults.len(), FAULTS_MAX);
        // A row of the table is told although there are so many.
        let key = DeciderKey { name: "config.toml".to_owned(), place: Scope::Own };
        assert_eq!(
            guard.set_fault(&mut state, key, Some("it is in reach".to_owned())).as_deref(),
            Some("it is in reach")
        );
    }

    /// A check that takes longer than anybody waits for it: its answer counts when it comes.
    #[test]
    fn late_answer_counts() {
        let lab = tempfile::tempdir().expect("a folder");
        let (guard, _inbox, _woken) = guard(lab.path());
        guard.lock().look = Look::Running;
        guard.lock().reach.writes = true;
        for (answer, changes, expect) in [(true, false, true), (false, false, false), (false, true, true)] {
            let wanted = Use::row("on_pending");
            let (tell, told) = sync_channel(1);
            let checked = move |_: &Subject| {
                let found = || Exposed::unanswered("what was found".to_owned());
                let is_fine = told.recv().unwrap_or_default();
                (if is_fine { Ok(()) } else { Err(found()) }, Instant::now())
            };
            let progress = LookProgress::Running(guard.0.checks.start("on_pending", checked));
            let inputs = guard.lock().inputs;
            let checking = Checking { guard: guard.clone(), wanted: wanted.clone(), cwd: None, inputs, progress };
            assert!(checking.wait(Duration::ZERO).is_none());
            let late = checking.give_up().expect_err("it is unknown");
            assert!(late.contains("its answer counts when it comes"), "{late}");
            assert!(names(&guard).contains(&"on_pending".to_owned()));
            // The next one waits for the same check, as long as nothing has changed.
            let next = guard.begin_check(&wanted, None);
            assert!(next.wait(Duration::ZERO).is_none());
            drop(next.give_up());
            guard.lock().inputs += u64::from(changes);
            tell.send(answer).expect("it waits");
            let next = guard.begin_check(&wanted, None).wait(Duration::from_secs(60)).expect("an answer");
            assert_eq!(next.is_ok(), expect, "{answer} {changes}: {next:?}");
            assert!(expect || next.expect_err("it is refused").starts_with("what was found"));
        }
    }
}
