//! The relay's state as other threads see it.
//!
//! *Locking.* Counters are atomics with one writer. Everything that changes rarely is behind one mutex, which is held only for
//! the length of a copy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::api::{
    CallCount, ChildDocument, ClientDocument, ConfigDocument, ConfigWarningDocument, ContextEngineDocument, Counters,
    Fault, HubDocument,
};
use crate::config::DEFAULT_STALLED_AFTER;
use crate::driver::Passed;
use crate::engine::{ClientName, ConfigWarning, ContextBounds, Note};
use crate::journal::Tally;
use crate::wire::Side;

/// Most faults that are listed; further ones are only counted.
const FAULTS_MAX: usize = 16;

/// Most warnings of codex about its configuration; codex gives a handful.
const CONFIG_WARNINGS_MAX: usize = 16;

/// Longest text of a listed fault, in bytes.
const FAULT_BYTES_MAX: usize = 1_000;

/// The state of one relay. Only the relay thread calls the methods that count.
#[derive(Debug, Default)]
pub struct Published {
    client: Traffic,
    server: Traffic,
    omitted_lines: Counter,
    appended_bytes: Counter,
    gaps: Counter,
    missed_lines: Counter,
    context_waiting: Counter,
    requests_pending: Counter,
    turns_projected: Counter,
    fragments_told: Counter,
    fragments_failed: Counter,
    child_ended: AtomicBool,
    rare: Mutex<Rare>,
}

#[derive(Debug, Default)]
struct Traffic {
    lines: Counter,
    bytes: Counter,
}

/// State that changes rarely.
#[derive(Debug, Clone, Default)]
pub(super) struct Rare {
    pub(super) generation: Option<String>,
    pub(super) child: ChildDocument,
    pub(super) client: ClientDocument,
    pub(super) context_engine: Option<ContextEngineDocument>,
    pub(super) config: Option<ConfigDocument>,
    pub(super) hub: Option<HubDocument>,
    /// The bounds of commands, if they have changed since the relay started.
    pub(super) context_bounds: Option<ContextBounds>,
    /// The silence after which a turn counts as stalled.
    stalled_after: Option<Duration>,
    pub(super) config_warnings: Vec<ConfigWarningDocument>,
    pub(super) faults: Vec<Fault>,
    faults_unlisted: u64,
}

/// The part of this state that another process goes on with.
#[derive(Debug, Serialize, Deserialize)]
pub struct PublishedState {
    counters: Counters,
    child: ChildDocument,
    config_warnings: Vec<ConfigWarningDocument>,
}

/// A counter with one writer.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, more: u64) {
        // With one writer this needs no atomic read-modify-write.
        self.set(self.get() + more);
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Published {
    /// Counts one read from `from`.
    pub fn count(&self, from: Side, passed: Passed) {
        let traffic = match from {
            Side::Client => &self.client,
            Side::Server => &self.server,
        };
        traffic.lines.add(passed.lines);
        traffic.bytes.add(passed.bytes);
        if passed.omitted_lines > 0 {
            self.omitted_lines.add(passed.omitted_lines);
        }
    }

    /// Stores the counters of the journal's writer.
    pub fn journal(&self, tally: Tally) {
        self.appended_bytes.set(tally.appended_bytes);
        self.gaps.set(tally.gaps);
        self.missed_lines.set(tally.missed_lines);
    }

    pub fn context_waiting(&self, commands: u64) {
        self.context_waiting.set(commands);
    }

    pub fn requests_pending(&self, requests: u64) {
        self.requests_pending.set(requests);
    }

    pub fn child_started(&self, generation: &str, pid: u32) {
        let mut rare = self.rare();
        if rare.child.pid != Some(pid) {
            rare.config_warnings.clear();
        }
        rare.generation = Some(generation.to_owned());
        rare.child = ChildDocument { pid: Some(pid), codex_version: None };
        self.child_ended.store(false, Ordering::Relaxed);
    }

    pub fn child_ended(&self) {
        self.child_ended.store(true, Ordering::Relaxed);
    }

    /// Takes from a note what API callers can query.
    pub fn note(&self, note: &Note) {
        match note {
            Note::CodexVersion { version: Some(version), user_agent: _ } => {
                self.rare().child.codex_version = Some(version.clone());
            }
            Note::ContextProjected { .. } => self.turns_projected.add(1),
            Note::FragmentsSent { fragments, outcome: "delivered", .. } => {
                self.fragments_told.add(fragments.len() as u64);
            }
            Note::FragmentFailed { .. } => self.fragments_failed.add(1),
            Note::ContextEngineStarted { pid, id, name, version, .. } => self.with_context_engine(|engine| {
                (engine.running, engine.pid, engine.version) = (true, Some(*pid), version.clone());
                (engine.id, engine.name) = (Some(id.clone()), Some(name.clone()));
            }),
            Note::ContextEngineEnded { reason, restart_in_ms: _ } => self.with_context_engine(|engine| {
                (engine.running, engine.pid, engine.last_end) = (false, None, Some(reason.clone()));
                engine.ends += 1;
            }),
            Note::ContextEngineCall { method, ms, outcome, .. } => self.with_context_engine(|engine| {
                let known = engine.calls.iter().position(|call| call.method == *method && call.outcome == *outcome);
                let index = known.unwrap_or_else(|| {
                    let (method, outcome) = ((*method).to_owned(), (*outcome).to_owned());
                    engine.calls.push(CallCount { method, outcome, ..CallCount::default() });
                    engine.calls.len() - 1
                });
                engine.calls[index].count += 1;
                engine.calls[index].ms += ms;
            }),
            Note::CodexVersion { version: None, .. }
            | Note::GenerationStarted { .. }
            | Note::GenerationEnded { .. }
            | Note::RateLimits { .. }
            | Note::EventPersistRecovered { .. }
            | Note::ContextDelivered { .. }
            | Note::ContextEngineCompacted { .. }
            | Note::NativeCompaction { .. }
            | Note::FragmentsSent { .. }
            | Note::ConnOpen { .. }
            | Note::ConnClose { .. }
            | Note::ClientAttached { .. }
            | Note::ClientLeft { .. }
            | Note::TurnNotStarted { .. }
            | Note::RequestOpened { .. }
            | Note::RequestRenamed { .. }
            | Note::RequestCommitted { .. }
            | Note::RequestResolved { .. }
            | Note::RuleApplied { .. }
            | Note::RuleRefused { .. }
            | Note::SandboxedPeer { .. }
            | Note::InReach { .. } => {}
        }
    }

    fn with_context_engine(&self, change: impl FnOnce(&mut ContextEngineDocument)) {
        change(self.rare().context_engine.get_or_insert_default());
    }

    /// Stores the client's name.
    pub fn introduce(&self, client: ClientName) {
        let ClientName { name, version } = client;
        self.rare().client = ClientDocument { name, version };
    }

    /// Stores the state of a hub.
    pub fn hub(&self, hub: HubDocument) {
        self.rare().hub = Some(hub);
    }

    /// Stores the relay's settings.
    pub fn config(&self, config: ConfigDocument) {
        self.rare().config = Some(config);
    }

    #[must_use]
    pub fn config_document(&self) -> Option<ConfigDocument> {
        self.rare().config.clone()
    }

    /// Stores changed bounds of commands.
    pub fn bound_context(&self, bounds: ContextBounds) {
        self.rare().context_bounds = Some(bounds);
    }

    /// Stores the silence after which a turn counts as stalled.
    pub fn stalls_after(&self, stalled_after: Duration) {
        self.rare().stalled_after = Some(stalled_after);
    }

    /// The silence after which a turn counts as stalled.
    #[must_use]
    pub fn stalled_after(&self) -> Duration {
        self.rare().stalled_after.unwrap_or(DEFAULT_STALLED_AFTER)
    }

    /// The bounds of commands, if they have changed since the relay started.
    #[must_use]
    pub fn context_bounds(&self) -> Option<ContextBounds> {
        self.rare().context_bounds
    }

    /// Takes what codex says about its configuration. It tells each connection the same.
    pub fn config_warning(&self, warning: ConfigWarning) {
        let ConfigWarning { what, path, is_broken } = warning;
        let mut rare = self.rare();
        let is_known = rare.config_warnings.iter().any(|known| known.what == what);
        if is_known || rare.config_warnings.len() == CONFIG_WARNINGS_MAX {
            return;
        }
        let since = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        rare.config_warnings.push(ConfigWarningDocument { what, path, is_broken, since });
    }

    /// Records a fault. A repeated fault keeps its first time.
    pub fn fault(&self, what: &str) {
        let what = &what[..what.floor_char_boundary(FAULT_BYTES_MAX)];
        let mut rare = self.rare();
        if rare.faults.iter().any(|fault| fault.what == what) {
            return;
        }
        if rare.faults.len() == FAULTS_MAX {
            rare.faults_unlisted += 1;
            return;
        }
        let since = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        rare.faults.push(Fault { what: what.to_owned(), since });
    }

    /// Removes a fault that has ended.
    pub fn fault_ended(&self, what: &str) {
        let what = &what[..what.floor_char_boundary(FAULT_BYTES_MAX)];
        self.rare().faults.retain(|fault| fault.what != what);
    }

    pub(super) fn child_runs(&self) -> bool {
        !self.child_ended.load(Ordering::Relaxed)
    }

    pub(super) fn pending(&self) -> u64 {
        self.requests_pending.get()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.context_waiting.get()
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps.get()
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            client_lines: self.client.lines.get(),
            client_bytes: self.client.bytes.get(),
            server_lines: self.server.lines.get(),
            server_bytes: self.server.bytes.get(),
            omitted_lines: self.omitted_lines.get(),
            journal_appended_bytes: self.appended_bytes.get(),
            journal_missed_lines: self.missed_lines.get(),
            turns_projected: self.turns_projected.get(),
            fragments_told: self.fragments_told.get(),
            fragments_failed: self.fragments_failed.get(),
            faults_unlisted: self.rare().faults_unlisted,
        }
    }

    /// The part of this state that another process of the same session goes on with.
    pub fn state(&self) -> PublishedState {
        let counters = self.counters();
        let rare = self.rare();
        PublishedState { counters, child: rare.child.clone(), config_warnings: rare.config_warnings.clone() }
    }

    /// Goes on with the state of another process. The journal's own counters come with its writer.
    pub fn take_over(&self, state: PublishedState) {
        let PublishedState { counters, child, config_warnings } = state;
        for (counter, value) in [
            (&self.client.lines, counters.client_lines),
            (&self.client.bytes, counters.client_bytes),
            (&self.server.lines, counters.server_lines),
            (&self.server.bytes, counters.server_bytes),
            (&self.omitted_lines, counters.omitted_lines),
            (&self.turns_projected, counters.turns_projected),
            (&self.fragments_told, counters.fragments_told),
            (&self.fragments_failed, counters.fragments_failed),
        ] {
            counter.set(value);
        }
        let mut rare = self.rare();
        (rare.child, rare.config_warnings) = (child, config_warnings);
    }

    /// A lock: hold it no longer than for a copy.
    pub(super) fn rare(&self) -> MutexGuard<'_, Rare> {
        // A panic cannot leave the value half written.
        self.rare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_bounded_and_listed_once() {
        let published = Published::default();
        for number in [1, 1, 2] {
            published.fault(&number.to_string());
        }
        let told: Vec<String> = published.rare().faults.clone().into_iter().map(|fault| fault.what).collect();
        assert_eq!(told, ["1", "2"]);
        (0..100).for_each(|number| published.fault(&number.to_string()));
        assert_eq!(published.rare().faults.len(), FAULTS_MAX);
        assert_eq!(published.counters().faults_unlisted, 100 - FAULTS_MAX as u64);
    }

    #[test]
    fn counters_add_up() {
        let published = Published::default();
        published.count(Side::Client, Passed { lines: 2, omitted_lines: 1, bytes: 30 });
        published.count(Side::Client, Passed { lines: 1, omitted_lines: 0, bytes: 4 });
        published.count(Side::Server, Passed { lines: 0, omitted_lines: 0, bytes: 9 });
        let counters = published.counters();
        assert_eq!((counters.client_lines, counters.client_bytes, counters.omitted_lines), (3, 34, 1));
        assert_eq!((counters.server_lines, counters.server_bytes), (0, 9));
    }
}
