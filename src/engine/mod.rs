//! The engine: what happened goes in, what is to be done comes out.
//!
//! [`Engine::handle`] is the only place where a line, a signal or an end is decided on. It is total and never waits.
//!
//! The effects of the lines that one read brought are carried out together: all of `Record` and `Note` in their order,
//! with one append to the journal, and then all of `Forward`, with one write. So nothing reaches a side that is not on
//! record. Every other effect is carried out after them, in its order.
//!
//! It knows no clock, file, pipe, process or thread: the time is an argument, and effects are only named here.

mod context;
mod ending;
mod ledger;
mod secrets;
mod version;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::wire::{Body, Line, Side, stands_verbatim};

pub use context::{
    Carrier, Command, ContextBounds, ContextSettings, Envelope, Label, MARKER_END, MARKER_START, Preview, PushError,
    PushedCommand,
};
pub use ending::{Exit, Signal};
pub use ledger::{ContextChange, Delivery, LedgerEntry, Outcome, RowId, WaitingCommand};
pub use secrets::{masked_args, names_secret};
pub use version::ClientName;

use context::{Answer, Context, OnTurn};
use ending::Ending;
use secrets::{Secrets, Verdict};
use version::VersionWatch;

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, for the record; the wall clock may jump.
    pub unix_us: u64,
    /// Time since the relay began, for deadlines; never goes back.
    pub elapsed: Duration,
}

/// Everything that can happen to a relay.
#[derive(Debug)]
pub enum Input<'a> {
    /// The child runs.
    ServerStarted {
        /// Its process id.
        pid: u32,
    },
    /// A side wrote a line.
    Line {
        /// Who wrote it.
        from: Side,
        /// The line.
        line: Line<'a>,
    },
    /// A side wrote a piece of a line that is over [`crate::wire::LINE_BYTES_MAX`], and not the last one.
    Piece {
        /// Who wrote it.
        from: Side,
    },
    /// A side wrote the last piece of such a line.
    LongLine {
        /// Who wrote it.
        from: Side,
        /// The length of the whole line in bytes, without the `\n`.
        line_bytes: u64,
    },
    /// A side has closed its stream, and all that it wrote has been handed on or can no longer be.
    Closed {
        /// Who closed it.
        from: Side,
    },
    /// The client is gone, though not all that it wrote has been handed on.
    ClientLeft,
    /// The child was reaped.
    ServerExited(Exit),
    /// We were sent a signal.
    Signalled(Signal),
    /// The buffer of what the user did in a terminal has changed.
    Context(ContextChange),
    /// Time has passed.
    Tick,
}

/// Everything that a relay can be told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Put the line at hand on record.
    Record(Form),
    /// Pass the line at hand, or the piece of one, on as it was read. A line that is to be withheld has no such effect.
    Forward,
    /// Pass this on in the place of the line at hand, and put it on record behind that.
    Replace(OwnLine),
    /// Send a line of ours, ahead of the line at hand, and put it on record.
    Send(OwnLine),
    /// Put on record something that we did or learned ourselves.
    Note(Note),
    /// Have this kept in the ledger. The relay does not wait for it.
    Keep(LedgerEntry),
    /// Tell the user something.
    Warn(Warning),
    /// Tell whoever asks who the client is. The record has its `initialize` anyway.
    Introduce(Box<ClientName>),
    /// Close the child's stdin.
    CloseServerInput,
    /// Close our stdout.
    CloseClientOutput,
    /// Send the child a signal.
    SignalServer(Signal),
    /// Kill the child.
    KillServer,
    /// Take the server's side as closed once it has been silent for `quiet_max`, or once the client has taken nothing
    /// for `stall_max` of what waits for it.
    DrainServer {
        /// How long a silence counts as the end.
        quiet_max: Duration,
        /// How long the client may take nothing; `None` is as long as it likes.
        stall_max: Option<Duration>,
    },
    /// End as the child did.
    Finish(Exit),
}

/// A line that we made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLine {
    /// Who it is for.
    pub to: Side,
    /// How it is put on record.
    pub form: Form,
    /// Its bytes, without a `\n`.
    pub bytes: Vec<u8>,
}

/// What the user is told, once a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The server does not take context by a call of our own; another way is taken.
    InjectRefusedFallsBack,
    /// The server does not take context by a call of our own, and no other way is allowed.
    InjectRefusedWaits,
    /// The settings leave no room for any context.
    ContextDoesNotFit,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Warning::InjectRefusedFallsBack => {
                "this codex does not take `thread/inject_items`: context goes in front of the user's words from now on"
            }
            Warning::ContextDoesNotFit => {
                "`context_bytes_max` or `context_commands_max` leaves no room for a single command: context waits"
            }
            Warning::InjectRefusedWaits => {
                "this codex does not take `thread/inject_items`: context waits; `carrier = \"auto\"` would put it in front \
                 of the user's words"
            }
        })
    }
}

/// How a line is put on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// As it was written: the line is one JSON value.
    Verbatim,
    /// As a JSON string: the line is UTF-8.
    Text,
    /// As base64: the line is not UTF-8.
    Base64,
    /// Not at all, only that it was there.
    Omitted(Box<Omitted>),
}

/// What is on record of a line that is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omitted {
    /// Why.
    pub reason: OmittedReason,
    /// Its length in bytes, without the `\n`.
    pub line_bytes: u64,
    /// The method it named, where one could be read.
    pub method: Option<String>,
    /// Its id as raw JSON, where one could be read.
    pub id: Option<String>,
}

/// Why a line is left out of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OmittedReason {
    /// It carries a credential.
    Secret,
    /// It is over [`crate::wire::LINE_BYTES_MAX`].
    Size,
}

/// What we did or learned ourselves, as it goes on record: `event` is the name, `data` the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Note {
    /// A child was started.
    GenerationStarted {
        /// Its process id.
        pid: u32,
    },
    /// The child has ended.
    GenerationEnded {
        /// Its exit status, unless a signal ended it.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// The server named its version when it answered `initialize`.
    CodexVersion {
        /// The version, such as `0.169.0`, where one could be read.
        version: Option<String>,
        /// The text that it stood in.
        user_agent: String,
    },
    /// The server has taken what the user did in a terminal.
    ContextDelivered {
        /// The thread.
        thread_id: String,
        /// Its turn, where that is known by then.
        turn_id: Option<String>,
        /// How it was sent.
        carrier: &'static str,
        /// How many commands it told of, those that were left out for want of room included.
        commands: u64,
        /// How long it was, as the model saw it.
        bytes: u64,
    },
}

/// What an engine is told at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// How long the child may take to end after the client has closed our stdin.
    pub exit_grace: Duration,
    /// How context is carried.
    pub context: ContextSettings,
    /// What the ids of our own calls begin with: `codex-shim:`, and something that no other shim has, since one may
    /// stand behind another.
    pub own_ids: String,
}

/// The decisions of one relay, over one run of the child.
#[derive(Debug)]
pub struct Engine {
    secrets: Secrets,
    version: VersionWatch,
    context: Context,
    ending: Ending,
}

impl Engine {
    /// An engine for a child that has not been started yet.
    #[must_use]
    pub fn new(settings: EngineSettings) -> Engine {
        Engine {
            secrets: Secrets::default(),
            version: VersionWatch::default(),
            context: Context::new(settings.context, settings.own_ids),
            ending: Ending::new(settings.exit_grace),
        }
    }

    /// Decides what `input` leads to, and appends it to `effects`.
    pub fn handle(&mut self, now: Now, input: Input<'_>, effects: &mut Vec<Effect>) {
        match input {
            Input::ServerStarted { pid } => effects.push(Effect::Note(Note::GenerationStarted { pid })),
            Input::Line { from, line } => self.line(now, from, line, effects),
            Input::Piece { from: _ } => effects.push(Effect::Forward),
            Input::LongLine { from: _, line_bytes } => {
                let omitted = Omitted { reason: OmittedReason::Size, line_bytes, method: None, id: None };
                effects.extend([Effect::Record(Form::Omitted(Box::new(omitted))), Effect::Forward]);
            }
            Input::Closed { from: Side::Client } => self.ending.client_closed(now.elapsed, effects),
            Input::Closed { from: Side::Server } => {
                self.context.server_ended(effects);
                self.ending.server_closed(effects);
            }
            Input::ClientLeft => self.ending.client_left(now.elapsed),
            Input::ServerExited(exit) => self.ending.server_exited(exit, effects),
            Input::Signalled(signal) => self.ending.signalled(now.elapsed, signal, effects),
            Input::Context(change) => self.context.changed(change),
            Input::Tick => self.ending.tick(now.elapsed, effects),
        }
    }

    /// When [`Input::Tick`] is due, as [`Now::elapsed`].
    #[must_use]
    pub fn tick_due(&self) -> Option<Duration> {
        self.ending.tick_due()
    }

    /// Commands of the user that wait to be shown to the model.
    #[must_use]
    pub fn context_waiting(&self) -> usize {
        self.context.waiting()
    }

    fn line(&mut self, now: Now, from: Side, line: Line<'_>, effects: &mut Vec<Effect>) {
        let body = Body::parse(line.bytes);
        let verdict = self.secrets.judge(from, &body, line.bytes);
        let record = Effect::Record(form(verdict, &body, line.bytes));
        match (&body, from) {
            (Body::Message(message), Side::Client) => {
                match self.context.client_says(now, line.bytes, message, effects) {
                    OnTurn::Unchanged => effects.extend([record, Effect::Forward]),
                    OnTurn::Replaced(bytes) => {
                        let replace = Effect::Replace(own_line(Side::Server, verdict, &body, bytes));
                        effects.extend([record, replace]);
                    }
                    OnTurn::Preceded(bytes) => {
                        let send = Effect::Send(own_line(Side::Server, verdict, &body, bytes));
                        effects.extend([send, record, Effect::Forward]);
                    }
                }
            }
            (Body::Message(message), Side::Server) => {
                effects.push(record);
                match (self.context.server_says(message, effects), self.context.stripped(line.bytes, message)) {
                    (Answer::Ours, _) => {}
                    (Answer::Clients, Some(bytes)) => {
                        effects.push(Effect::Replace(own_line(Side::Client, verdict, &body, bytes)));
                    }
                    (Answer::Clients, None) => effects.push(Effect::Forward),
                }
            }
            (Body::OtherJson | Body::Text | Body::Bytes, Side::Client | Side::Server) => {
                effects.extend([record, Effect::Forward]);
            }
        }
        if let Body::Message(message) = &body {
            effects.extend(self.version.learn(from, message));
        }
    }
}

/// How a line is put on record.
fn form(verdict: Verdict, body: &Body<'_>, line: &[u8]) -> Form {
    match (verdict, body) {
        (Verdict::Secret, _) => secrets::omitted(body, line.len()),
        (Verdict::Open, Body::Message(_) | Body::OtherJson) if stands_verbatim(line) => Form::Verbatim,
        (Verdict::Open, Body::Message(_) | Body::OtherJson | Body::Text) => Form::Text,
        (Verdict::Open, Body::Bytes) => Form::Base64,
    }
}

/// A line of ours that goes with one whose verdict and kind are these.
fn own_line(to: Side, verdict: Verdict, body: &Body<'_>, bytes: Vec<u8>) -> OwnLine {
    OwnLine { to, form: form(verdict, body, &bytes), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::LineEnd;

    fn settings() -> EngineSettings {
        let exit_grace = Duration::from_secs(10);
        EngineSettings { exit_grace, context: ContextSettings::default(), own_ids: "codex-shim:".to_owned() }
    }

    /// A playbook: `>` client line, `<` server line; returns the effects of each as one text a line.
    fn play(script: &[&str]) -> Vec<String> {
        let mut engine = Engine::new(settings());
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        script
            .iter()
            .map(|step| {
                let (side, line) = step.split_at(1);
                let from = if side == ">" { Side::Client } else { Side::Server };
                let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
                let mut effects = Vec::new();
                engine.handle(now, Input::Line { from, line }, &mut effects);
                effects.iter().map(told).collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    fn told(effect: &Effect) -> String {
        match effect {
            Effect::Record(Form::Omitted(omitted)) => format!("omit({:?})", omitted.reason),
            Effect::Record(form) => format!("{form:?}"),
            Effect::Note(note) => serde_json::to_string(note).expect("BUG: notes are plain data"),
            Effect::Forward => "forward".to_owned(),
            Effect::Introduce(client) => format!("client({})", client.name.as_deref().unwrap_or("-")),
            other @ (Effect::Replace(_)
            | Effect::Send(_)
            | Effect::Keep(_)
            | Effect::Warn(_)
            | Effect::CloseServerInput
            | Effect::CloseClientOutput
            | Effect::SignalServer(_)
            | Effect::KillServer
            | Effect::DrainServer { .. }
            | Effect::Finish(_)) => format!("{other:?}"),
        }
    }

    #[test]
    fn every_line_is_recorded_and_then_forwarded() {
        assert_eq!(
            play(&[
                r#">{"id":1,"method":"thread/list"}"#,
                "<not json",
                "<",
                r#"<{"id":1,"result":{}}"#,
                "<{}\r",
                "<[1]"
            ]),
            [
                "Verbatim forward",
                "Text forward",
                "Text forward",
                "Verbatim forward",
                "Text forward",
                "Verbatim forward"
            ]
        );
    }

    #[test]
    fn a_secret_request_takes_its_answer_with_it() {
        assert_eq!(
            play(&[
                r#">{"id":7,"method":"account/login/start","params":{"apiKey":"sk-1"}}"#,
                r#"<{"id":7,"method":"item/tool/call"}"#,
                r#"<{"id":"7","result":{}}"#,
                r#"<{"id":7,"result":{"token":"t"}}"#,
                r#"<{"id":7,"result":{}}"#,
            ]),
            [
                "omit(Secret) forward",
                "Verbatim forward",
                "Verbatim forward",
                "omit(Secret) forward",
                "omit(Secret) forward"
            ]
        );
    }

    #[test]
    fn the_version_is_learned_from_the_answer_to_initialize() {
        assert_eq!(
            play(&[
                r#">{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x"}}}"#,
                r#"<{"id":0,"result":{"userAgent":"x/0.169.0 (Debian 12; x86_64) dumb (x; 1)"}}"#,
                r#"<{"id":0,"result":{"userAgent":"y/1.0.0"}}"#,
            ]),
            [
                "Verbatim forward client(x)",
                concat!(
                    r#"Verbatim forward {"event":"codex_version","data":{"version":"0.169.0","#,
                    r#""user_agent":"x/0.169.0 (Debian 12; x86_64) dumb (x; 1)"}}"#
                ),
                "Verbatim forward"
            ]
        );
    }
}
