//! `codex-shim demo --hub`: two clients on one thread through a hub, and what is left of it after `kill -9`.
//!
//! The server is `codex-shim replay --listen` with a bundled tape, started by the hub through a script in the place of codex.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{LOOK_EVERY, PATIENCE, check_told_to_end};
use super::message::{CallResult, Message};
use super::websocket::WebSocketClient;
use super::{DemoResult, Folder, PLAYED_TIMES, Stage, at_the_side, holds, without_shell};
use crate::api::{OneRequest, Request, Requests, ServerDocument, State, WhichRequests};
use crate::files;
use crate::hub::process;
use crate::hub::sockets::CODEX_SOCKET;
use crate::journal::reader::{Reader, Step};
use crate::journal::{Origin, Record};
use crate::os::processes;
use crate::os::sockets::connect;
use crate::protocol::Method;
use crate::socket::resolve_at;
use crate::wire::Side;

/// The tape: two clients, an approval answered by the second one, and another one over which both connect again.
pub(super) const TAPE: &[u8] = include_bytes!("../../../../fixtures/tapes/hub_two_clients.jsonl");

/// What the script in the place of codex calls itself: the release that was recorded.
const VERSION: &str = "0.169.0";

const EDITOR: &str = "editor";
const TERMINAL: &str = "terminal";

/// How long a hub may take to end when told.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// Name of the folder of the hub's home, and of its log.
const HOME: &str = "hub";
const LOG: &str = "hub.log";

/// Shows the hub.
pub(super) fn show(folder: &Folder, stage: &mut Stage) -> DemoResult<()> {
    stage.title(&format!("codex-shim {}: an editor, a terminal, and one codex", env!("CARGO_PKG_VERSION")));
    let mut hub = Hub::start(folder)?;
    let mut received = Vec::new();
    stage.heading("Two clients of one hub, on one thread");
    let mut pair = Pair::connect(&hub, stage)?;
    let thread = pair.open_thread()?;
    let first = pair.asked_both_late(&thread, stage)?;
    pair.answer(&first, TERMINAL, stage)?;
    let row = hub.row(&first, "resolved")?;
    stage.row("in the ledger", &format!("1 request, answered by the {}", by(&row)));
    holds(by(&row) == TERMINAL, "the ledger names another winner")?;

    stage.heading("kill -9 of the hub, in the middle of an approval");
    let second = pair.asked_both(&thread, stage)?;
    let before = (hub.row(&second, "pending")?, hub.server()?);
    received.extend(pair.cut_off(&mut hub, stage)?);
    hub.restart()?;
    let server = hub.server()?;
    stage.row("the server", &format!("pid {} as before, taken over by a new hub", server.pid));
    holds(server.pid == before.1.pid && server.adopted, "the server is another one")?;

    stage.heading("The hub is back");
    let mut pair = Pair::connect(&hub, stage)?;
    let again = pair.asked_again(&thread, stage)?;
    holds(again.is_same(&second), "the request came back under another id")?;
    let after = hub.row(&second, "pending")?;
    stage.row("the request", &format!("id {} as before, in the ledger as {}", again.id, after.request_id));
    holds(after.request_id == before.0.request_id, "the ledger has the request under another name")?;
    pair.answer(&again, EDITOR, stage)?;
    let row = hub.row(&second, "resolved")?;
    let answers = hub.answers(&row)?;
    stage.row("in the ledger", &format!("1 row, answered {answers} time by the {}", by(&row)));
    holds(answers == 1 && by(&row) == EDITOR, "the request was not answered once")?;
    holds(hub.rows()?.len() == 2, "the ledger does not have two requests")?;
    received.extend(pair.received());
    hub.end()?;

    stage.heading("On record before it was passed on");
    let missing = missing_on_record(folder, &received)?;
    stage.row("received by both clients", &format!("{} messages", received.len()));
    stage.row("missing on record", &missing.to_string());
    holds(missing == 0, "messages are missing on record")?;
    stage.heading("Now yours");
    stage.row("codex-shim hub start", "one codex for all your terminals");
    stage.row("codex-shim hub status", "its server, clients and threads");
    Ok(())
}

/// Who has answered a request.
fn by(row: &Request) -> &str {
    row.resolved_by.as_deref().unwrap_or("nobody")
}

/// The demo's hub. At its end neither it nor its server runs.
struct Hub<'a> {
    folder: &'a Folder,
    codex: PathBuf,
    /// The stderr of each of its processes.
    log: File,
    process: Option<Child>,
}

impl<'a> Hub<'a> {
    /// Writes the script in the place of codex, starts the hub, and waits until it listens.
    fn start(folder: &'a Folder) -> DemoResult<Hub<'a>> {
        let failed = |error: std::io::Error| format!("create {}: {error}", folder.dir.display());
        let codex = folder.dir.join("codex");
        let quoted = |path: &std::path::Path| path.to_string_lossy().replace('\'', r"'\''");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'codex-cli {VERSION}' && exit\n\
             exec '{}' replay --speed {PLAYED_TIMES} --listen \"$3\" '{}'\n",
            quoted(&folder.shim),
            quoted(&folder.tape)
        );
        files::create_file(&codex).and_then(|mut file| file.write_all(script.as_bytes())).map_err(failed)?;
        std::fs::set_permissions(&codex, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
        files::create_folder(&folder.dir.join("codex-home")).map_err(failed)?;
        let log = files::create_file(&folder.dir.join(LOG)).map_err(failed)?;
        let mut hub = Hub { folder, codex, log, process: None };
        hub.restart()?;
        Ok(hub)
    }

    /// Starts the hub, and waits until it listens.
    fn restart(&mut self) -> DemoResult<()> {
        let failed = |error: std::io::Error| format!("start the hub: {error}");
        let mut command = self.folder.shim(HOME, &["hub", "--session", "demo", "--no-default-socket", "--codex"]);
        command.arg(&self.codex).env("CODEX_HOME", self.folder.dir.join("codex-home")).env("HOME", &self.folder.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let began = Instant::now();
        // A hub that was killed leaves its control socket behind.
        let listens = || {
            let is_there = resolve_at(&self.socket()).and_then(|path| connect(&path)).is_ok();
            is_there && self.server().is_ok()
        };
        let waited = loop {
            if listens() {
                break Ok(());
            }
            if let Ok(Some(status)) = child.try_wait() {
                let said = files::read(&self.folder.dir.join(LOG)).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                let said = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
                break Err(format!("the hub ended too early with {status}{said}"));
            }
            if began.elapsed() >= PATIENCE {
                break Err(format!("the hub does not listen after {}s", PATIENCE.as_secs()));
            }
            if let Err(told) = check_told_to_end() {
                break Err(told);
            }
            std::thread::park_timeout(LOOK_EVERY);
        };
        self.process = Some(child);
        waited
    }

    fn socket(&self) -> PathBuf {
        self.session().join(CODEX_SOCKET)
    }

    fn session(&self) -> PathBuf {
        self.folder.session(HOME)
    }

    /// The server, as the hub tells.
    fn server(&self) -> DemoResult<ServerDocument> {
        let document = at_the_side(&self.session(), &State)?;
        document.hub.map(|hub| hub.server).ok_or_else(|| "the hub tells nothing of its server".to_owned())
    }

    /// All requests in the ledger.
    fn rows(&self) -> DemoResult<Vec<Request>> {
        at_the_side(&self.session(), &Requests(WhichRequests::All)).map(|list| list.requests)
    }

    /// The only row of a request, once it has this status.
    fn row(&self, asked: &Message, status: &str) -> DemoResult<Request> {
        let began = Instant::now();
        loop {
            let mut rows = self.rows()?;
            rows.retain(|row| row.rpc_request_id == asked.id);
            match &rows[..] {
                [row] if row.status == status => return Ok(row.clone()),
                [] | [_] if began.elapsed() < PATIENCE => {}
                [] | [_] => return Err(format!("request {} does not become {status} in the ledger", asked.id)),
                _ => return Err(format!("request {} is in the ledger {} times", asked.id, rows.len())),
            }
            check_told_to_end()?;
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// How many answers to a request the ledger has.
    fn answers(&self, row: &Request) -> DemoResult<usize> {
        let one = OneRequest::of(&row.request_id).ok_or("the request has no id")?;
        at_the_side(&self.session(), &one).map(|document| document.answers.len())
    }

    fn kill(&mut self) -> DemoResult<()> {
        let mut process = self.process.take().ok_or("no hub runs")?;
        process.kill().and_then(|()| process.wait()).map_err(|error| format!("kill the hub: {error}"))?;
        Ok(())
    }

    /// Ends the hub with SIGTERM, and its server.
    fn end(&mut self) -> DemoResult<()> {
        let ended = self.end_hub();
        if let Some(mut server) = process::recorded(&self.session()) {
            server.stop();
            holds(!server.is_alive(), "the server does not end")?;
        }
        holds(ended.is_none_or(|status| status.success()), "the hub did not end with status 0")
    }

    /// The exit status of the hub, if one runs.
    fn end_hub(&mut self) -> Option<std::process::ExitStatus> {
        processes::end(&mut self.process.take()?, END_WAIT_MAX)
    }
}

impl Drop for Hub<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The two clients.
struct Pair {
    editor: WebSocketClient,
    terminal: WebSocketClient,
    began: Instant,
}

impl Pair {
    fn connect(hub: &Hub<'_>, stage: &mut Stage) -> DemoResult<Pair> {
        let began = Instant::now();
        let (editor, welcome) = WebSocketClient::connect(&hub.socket(), EDITOR)?;
        let version = version_in(&welcome)?;
        stage.said(began.elapsed(), EDITOR, &format!("connects to codex {version}"));
        let (terminal, welcome) = WebSocketClient::connect(&hub.socket(), TERMINAL)?;
        stage.said(began.elapsed(), TERMINAL, &format!("connects to codex {version}"));
        holds(version_in(&welcome)? == version, "the clients have different servers")?;
        Ok(Pair { editor, terminal, began })
    }

    fn open_thread(&mut self) -> DemoResult<Value> {
        let params = json!({"cwd": "/home/user/project", "approvalPolicy": "on-request", "sandbox": "read-only"});
        let started = self.editor.call(Method::ThreadStart.name(), params)?;
        Ok(started.thread.id)
    }

    /// The editor's user writes; returns the request of the server that the editor gets.
    fn write(&mut self, thread: &Value, words: &str, stage: &mut Stage) -> DemoResult<Message> {
        stage.said(self.began.elapsed(), EDITOR, &format!("the user writes: {words}"));
        let input = json!([{"type": "text", "text": words, "text_elements": []}]);
        self.editor.call(Method::TurnStart.name(), json!({"threadId": thread, "input": input}))?;
        self.editor.wait(is_asked)
    }

    /// Both clients were asked the same.
    fn asked(&self, asked: &Message, other: &Message, stage: &mut Stage) -> DemoResult<()> {
        let command = without_shell(&asked.params.command);
        let words = format!("asks both to run: {command}   (request {})", asked.id);
        stage.said(self.began.elapsed(), "codex", &words);
        holds(asked.is_same(other), "the clients were asked differently")
    }

    /// The terminal joins once the editor is asked.
    fn asked_both_late(&mut self, thread: &Value, stage: &mut Stage) -> DemoResult<Message> {
        let asked = self.write(thread, "run it", stage)?;
        self.terminal.call(Method::ThreadResume.name(), json!({"threadId": thread, "excludeTurns": true}))?;
        stage.said(self.began.elapsed(), TERMINAL, "joins the thread");
        let other = self.terminal.wait(is_asked)?;
        self.asked(&asked, &other, stage)?;
        Ok(asked)
    }

    fn asked_both(&mut self, thread: &Value, stage: &mut Stage) -> DemoResult<Message> {
        // The time starts anew under each heading.
        self.began = Instant::now();
        let asked = self.write(thread, "once more", stage)?;
        let other = self.terminal.wait(is_asked)?;
        self.asked(&asked, &other, stage)?;
        Ok(asked)
    }

    /// Both join the thread again, and are asked again.
    fn asked_again(&mut self, thread: &Value, stage: &mut Stage) -> DemoResult<Message> {
        let params = json!({"threadId": thread, "excludeTurns": true});
        self.editor.call(Method::ThreadResume.name(), params.clone())?;
        self.terminal.call(Method::ThreadResume.name(), params)?;
        let (asked, other) = (self.editor.wait(is_asked)?, self.terminal.wait(is_asked)?);
        self.asked(&asked, &other, stage)?;
        Ok(asked)
    }

    /// The client of this name answers, the other one's dialog closes, and the turn ends for both.
    fn answer(&mut self, asked: &Message, by: &str, stage: &mut Stage) -> DemoResult<()> {
        let (winner, other, other_name) = match by {
            EDITOR => (&mut self.editor, &mut self.terminal, TERMINAL),
            _ => (&mut self.terminal, &mut self.editor, EDITOR),
        };
        winner.send(&json!({"id": asked.id, "result": {"decision": "accept"}}))?;
        stage.said(self.began.elapsed(), by, "accepts");
        for client in [winner, other] {
            let resolved = client.wait(|message| message.is(Method::RequestResolved))?;
            holds(resolved.params.request_id == asked.id, "another request was resolved")?;
        }
        stage.said(self.began.elapsed(), other_name, "closes its dialog: answered elsewhere");
        let mut ends = Vec::new();
        for client in [&mut self.editor, &mut self.terminal] {
            let completed = client.wait(|message| message.is(Method::TurnCompleted))?;
            ends.push(completed.params.turn.status);
        }
        stage.said(self.began.elapsed(), "codex", &format!("tells both: turn {}", ends[0]));
        holds(ends.iter().all(|status| status == "completed"), "the turn did not complete")
    }

    /// Kills the hub; both connections end. Returns what the clients have received.
    fn cut_off(mut self, hub: &mut Hub<'_>, stage: &mut Stage) -> DemoResult<Vec<String>> {
        hub.kill()?;
        stage.said(self.began.elapsed(), "", "$ kill -9 of the hub");
        for client in [&mut self.editor, &mut self.terminal] {
            client.wait_for_end()?;
        }
        stage.said(self.began.elapsed(), "", "the connections of both end");
        Ok(self.received())
    }

    fn received(self) -> Vec<String> {
        [self.editor.received, self.terminal.received].concat()
    }
}

/// The version of codex in the result of `initialize`.
fn version_in(welcome: &CallResult) -> DemoResult<String> {
    welcome.version().map(str::to_owned).ok_or_else(|| "the server tells no version".to_owned())
}

fn is_asked(message: &Message) -> bool {
    message.is(Method::CommandApproval)
}

/// How many of the messages that clients have received are not in the journal.
fn missing_on_record(folder: &Folder, received: &[String]) -> DemoResult<usize> {
    let journal = folder.journal(HOME);
    let mut reader = Reader::new(&journal, None);
    let failed = |error| format!("read {}: {error}", journal.display());
    let mut recorded: HashMap<Vec<u8>, usize> = HashMap::new();
    while let Step::Record { bytes, .. } = reader.step().map_err(failed)? {
        if let Ok(Record::Line { from: Origin::Side(Side::Server), content, .. }) = Record::parse(bytes)
            && let Some(line) = content.bytes()
        {
            *recorded.entry(line.to_vec()).or_default() += 1;
        }
    }
    let is_missing = |text: &&String| match recorded.get_mut(text.as_bytes()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        Some(_) | None => true,
    };
    Ok(received.iter().filter(is_missing).count())
}
