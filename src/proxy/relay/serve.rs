//! `serve`: a server without a client of its own. API callers start and stop it, and clients attach to it and detach.
//!
//! While a client is attached, its socket is the client end of both directions. The engine admits the client and decides
//! which lines it gets.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::child::{ServerCommand, Spawned, to_forward};
use super::deciders::CHECK_WAIT_MAX;
use super::direction::{BOTH_ENDS, Direction, Waiting};
use super::event_loop::{take_messages, wait_for_core};
use super::on_pipes::Relay;
use super::pair::Pair;
use super::pipes::{PipeSource, Sink};
use super::start::{RelayError, prepare, spawn};
use crate::config::{Complaint, Environment, Settings};
use crate::driver::Driver;
use crate::engine::{ApiCallId, ApiReply, Effect, Exit, Input, LinkEffect, Now, ServerOwner, Unready};
use crate::os::polling::PollFlags;
use crate::wire::Side;

/// Controls when the server starts and stops.
#[derive(Debug)]
pub(super) enum Lifecycle {
    /// The client that started us.
    Client,
    /// `codex-shim serve`, on the request of API callers.
    Served(Served),
}

/// Of a served server.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) wanted: ServedState,
    /// The server was started, and its end was not handled yet.
    pub(super) runs: bool,
    /// A signal ends the relay.
    pub(super) signalled: bool,
    /// API callers that wait for the wanted state.
    pub(super) waiting: Vec<ApiCallId>,
}

/// The state in which API callers want a served server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedState {
    Started,
    Stopped,
}

/// Why a pause without a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseEnd {
    Signalled,
    /// The pause is over, or an API caller wants the server started or stopped.
    Over,
}

/// Initial delay before a server that ended by itself is restarted.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);

const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// How long a look at the program waits before the relay turns to its messages.
const CHECK_STEP: Duration = Duration::from_millis(10);

/// A run of this length resets the back-off.
const BACK_OFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Runs `command` without a client on stdin and stdout: the relay initializes the server, API callers drive it through
/// the control socket, clients attach to it, and it is restarted if it ends by itself. Returns after a signal.
///
/// Call this from a thread that lives as long as the process.
///
/// # Errors
///
/// As [`super::run`].
pub fn serve(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
) -> Result<Exit, RelayError> {
    let ends = |input, output| Ok((Direction::without_client_input(input), Direction::without_client_output(output)));
    let mut relay = prepare(command, settings, environment, complaints, ServerOwner::Relay, ends)?;
    let served = Served { wanted: ServedState::Started, runs: true, signalled: false, waiting: Vec::new() };
    relay.lifecycle = Lifecycle::Served(served);
    if let Some(id) = relay.core.recorder.session_id() {
        // Only the user needs the name to reach the session; a client does not.
        if let Some(wanted) = settings.session.value.as_ref().filter(|wanted| wanted.to_string() != id) {
            relay.core.notices.info(&format!(
                "session {wanted} is already in use by another codex-shim; this one is session {id}: `codex-shim status {id}`"
            ));
        }
        relay.core.notices.info(&format!(
            "serving session {id}; to reach it: `codex-shim send --session {id} --new TEXT`, `codex-shim tui {id}`, or \
             `codex-shim attach {id}` in place of `codex app-server`"
        ));
    }
    let (mut back_off, mut last_end) = (BACK_OFF_MIN, None::<String>);
    let exit = loop {
        let began = relay.core.clock.now().elapsed;
        let exit = relay.run();
        let Lifecycle::Served(served) = &mut relay.lifecycle else { break exit };
        served.runs = false;
        let (wanted, signalled) = (served.wanted, served.signalled);
        if wanted == ServedState::Stopped {
            relay.reply_to_waiting(&ApiReply::Done);
        }
        if signalled {
            break exit;
        }
        let pause_end = match wanted {
            ServedState::Stopped => relay.pause(None),
            ServedState::Started => {
                if relay.core.clock.now().elapsed - began >= BACK_OFF_FORGOTTEN_AFTER {
                    back_off = BACK_OFF_MIN;
                }
                let fault = format!("the server has ended with {exit}; it restarts in {back_off:?}");
                relay.core.notices.report(&fault);
                // Only the last end counts.
                let before = last_end.replace(fault).filter(|before| last_end.as_ref() != Some(before));
                before.iter().for_each(|fault| relay.core.published.fault_ended(fault));
                let pause_end = relay.pause(Some(back_off));
                back_off = (back_off * 2).min(BACK_OFF_MAX);
                pause_end
            }
        };
        if pause_end == PauseEnd::Signalled {
            break exit;
        }
        if relay.wait_for_program(&mut back_off) == PauseEnd::Signalled {
            break exit;
        }
        let Spawned { server, input, output } = spawn(command)?;
        let (from_client, from_server) = ends(input, output)?;
        relay.core.next_run(ServerOwner::Relay, server.pid(), None);
        (relay.server, relay.driver) = (server, Driver::new(Pair { from_client, from_server }));
        (relay.client_disconnected, relay.output_waits, relay.drain) = (false, false, None);
        relay.server_started();
    };
    relay.finish();
    Ok(exit)
}

impl Relay {
    /// Waits as long as an API caller wants the server stopped, or a model can change the program that is about to start. The guard
    /// says the latter in `status`.
    fn wait_for_program(&mut self, back_off: &mut Duration) -> PauseEnd {
        loop {
            if self.is_to_be_stopped() {
                self.reply_to_waiting(&ApiReply::Done);
                if self.pause(None) == PauseEnd::Signalled {
                    return PauseEnd::Signalled;
                }
            }
            let Some(checked) = self.check_program() else { return PauseEnd::Signalled };
            if self.is_to_be_stopped() {
                continue;
            }
            if checked.is_ok() {
                return PauseEnd::Over;
            }
            self.reply_to_waiting(&ApiReply::NotReady(Unready::Stopped));
            if self.pause(Some(*back_off)) == PauseEnd::Signalled {
                return PauseEnd::Signalled;
            }
            *back_off = (*back_off * 2).min(BACK_OFF_MAX);
        }
    }

    fn is_to_be_stopped(&self) -> bool {
        matches!(&self.lifecycle, Lifecycle::Served(served) if served.wanted == ServedState::Stopped)
    }

    /// Whether the program may start; `None` after a signal. Another thread looks, and this one goes on with its messages.
    fn check_program(&mut self) -> Option<Result<(), String>> {
        let checking = self.core.begin_check_of_server_program();
        let until = self.core.clock.elapsed() + CHECK_WAIT_MAX;
        loop {
            if let Some(checked) = checking.wait(CHECK_STEP) {
                return Some(checked);
            }
            if self.pause(Some(Duration::ZERO)) == PauseEnd::Signalled {
                return None;
            }
            if self.core.clock.elapsed() >= until {
                return Some(checking.give_up());
            }
        }
    }

    /// Waits while no server runs: for `wait_max` at most, until an API caller wants the server started, or until a
    /// signal.
    pub(super) fn pause(&mut self, wait_max: Option<Duration>) -> PauseEnd {
        let until = wait_max.map(|wait_max| self.core.clock.now().elapsed + wait_max);
        loop {
            if self.core.signals.take().into_iter().any(|number| to_forward(number).is_some()) {
                return PauseEnd::Signalled;
            }
            let now = self.core.clock.now();
            let mut effects = Vec::new();
            take_messages(self, now, &mut effects);
            // These effects belong to a run that is over, so its exit no longer matters.
            while self.carry_out_all(&mut effects).is_some() {}
            let Lifecycle::Served(Served { wanted, waiting, .. }) = &self.lifecycle else { return PauseEnd::Over };
            let is_over = match wanted {
                // Without a limit the server stays stopped until a caller wants it; otherwise a caller that waits for the start cuts
                // the back-off short.
                ServedState::Started => until.is_none() || !waiting.is_empty(),
                // The server must stay stopped, so the back-off no longer matters.
                ServedState::Stopped => until.is_some(),
            };
            let left = until.map(|until| until.saturating_sub(now.elapsed));
            if is_over || left.is_some_and(|left| left.is_zero()) {
                return PauseEnd::Over;
            }
            wait_for_core(&self.core, left);
        }
    }

    /// Starts or stops a served server on request.
    pub(super) fn set_wanted(&mut self, target: ServedState, caller: ApiCallId, now: Now, effects: &mut Vec<Effect>) {
        let Lifecycle::Served(Served { wanted, runs, waiting, .. }) = &mut self.lifecycle else {
            effects.push(Effect::Link(LinkEffect::Reply(caller, ApiReply::NotServed)));
            return;
        };
        let is_in_target_state = *runs == (target == ServedState::Started);
        if *wanted == target && is_in_target_state && waiting.is_empty() {
            effects.push(Effect::Link(LinkEffect::Reply(caller, ApiReply::Done)));
            return;
        }
        waiting.push(caller);
        if target == ServedState::Stopped && *wanted == ServedState::Started {
            // The server ends as it does when its client has closed its input.
            self.core.engine.handle(now, Input::Closed { from: Side::Client }, effects);
        }
        *wanted = target;
    }

    /// Marks the server as running and replies to the callers that waited for it.
    pub(super) fn server_started(&mut self) {
        if let Lifecycle::Served(served) = &mut self.lifecycle {
            served.runs = true;
        }
        self.reply_to_waiting(&ApiReply::Done);
    }

    /// Replies to the callers that waited for the wanted state.
    fn reply_to_waiting(&mut self, reply: &ApiReply) {
        if let Lifecycle::Served(served) = &mut self.lifecycle {
            for caller in std::mem::take(&mut served.waiting) {
                self.core.callers.reply(caller, reply.clone());
            }
        }
    }
}

// Clients attach to a served server and detach.

impl Relay {
    /// Connects the client that the engine admitted; `None` if it disconnected first.
    pub(super) fn attach_client(
        &mut self,
        admission: ApiCallId,
        client: Option<UnixStream>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        // The server may have ended meanwhile, and the engine may have admitted another client.
        if self.core.engine.admitted() != Some(admission) || self.driver.links.from_client.has_client() {
            return;
        }
        let ends = client.and_then(|client| Some((PipeSource::socket(client.try_clone().ok()?), Sink::socket(client))));
        match ends {
            Some((source, sink)) => {
                self.driver.links.from_client.attach_source(source);
                self.driver.links.from_server.attach_sink(sink);
            }
            None => self.core.engine.handle(now, Input::Detached, effects),
        }
    }

    /// Detaches the client once it has closed its end, all its lines are forwarded, and all output queued for it is
    /// written.
    pub(super) fn detach_if_done(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let owes_nothing = match self.driver.links.from_server.waiting() {
            Waiting::ToRead | Waiting::Idle => true,
            Waiting::ToWrite | Waiting::Held => false,
        };
        if owes_nothing && self.driver.links.from_client.has_closed() {
            self.detach_client(now, effects);
        }
    }

    /// The poll that detects that an attached client has closed both its ends while nothing is read from it: the server
    /// may not accept what it wrote for a long time.
    pub(super) fn attached_hang_up_poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.driver.links.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle if !self.driver.links.from_client.has_client() => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle => self
                .driver
                .links
                .from_client
                .watch_source(BOTH_ENDS)
                .or_else(|| self.driver.links.from_server.watch_sink(BOTH_ENDS)),
        }
    }

    /// Handles a client that disconnected while nothing was read from it.
    pub(super) fn handle_disconnect(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.lifecycle {
            Lifecycle::Client => {
                self.client_disconnected = true;
                self.core.engine.handle(now, Input::ClientDisconnected, effects);
            }
            Lifecycle::Served(_) => {
                // The server still gets what the client wrote before it left.
                let mut frames = std::mem::take(&mut self.frames);
                self.driver.links.from_client.read_rest(now.elapsed, &mut frames);
                self.pass_frames(Side::Client, now, frames, effects);
                self.detach_client(now, effects);
            }
        }
    }

    /// When the attached client counts as stalled: it has not read queued output for the engine's limit.
    pub(super) fn client_stalled_at(&self) -> Option<Duration> {
        let stall_max = self.core.engine.client_stall_max()?;
        self.driver.links.from_server.stalled_since().map(|since| since + stall_max)
    }

    /// Disconnects an attached client that reads nothing: the server and all other clients wait for it.
    pub(super) fn disconnect_stalled(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.client_stalled_at().is_none_or(|due| due > now.elapsed) {
            return;
        }
        let stall_max = self.core.engine.client_stall_max().unwrap_or_default();
        self.core
            .notices
            .report(&format!("the attached client has read nothing for {stall_max:?}; it is disconnected"));
        let mut frames = std::mem::take(&mut self.frames);
        self.driver.links.from_client.end(&mut frames);
        self.pass_frames(Side::Client, now, frames, effects);
        self.detach_client(now, effects);
    }

    fn detach_client(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.core.engine.handle(now, Input::Detached, effects);
        self.close_client();
        self.flush(Side::Client, now, effects);
    }

    pub(super) fn close_client(&mut self) {
        match self.lifecycle {
            Lifecycle::Served(_) => {
                self.driver.links.from_client.detach_source();
                self.driver.links.from_server.detach_sink();
            }
            Lifecycle::Client => {}
        }
    }
}
