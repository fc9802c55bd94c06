//! Plays the client's side of a conversation to a codex.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thiserror::Error;

use super::heard::Heard;
use super::model::ScriptedModel;
use super::plan::{Plan, PlanStep, TurnKey, is_caused, turn_of, turn_of_item};
use super::responses::responses;
use crate::files::Folder;
use crate::os::processes::kill_group_of;
use crate::protocol::{Method, is_path};
use crate::relay::locate::Codex;
use crate::wire::RpcId;

/// How long the server may say nothing while something of it is awaited.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long one conversation may take.
const PLAY_MAX: Duration = Duration::from_secs(300);

/// How often a wait looks whether the user has interrupted it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a step that goes into a turn waits for items that the recorded turn had by then. A codex without such items gets it then.
const ITEMS_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the server may take to end after its stdin has.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest line of a server, in bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Lines of the server that wait to be read.
const LINES_MAX: usize = 16;

/// Answers that wait to be written, beside the steps.
const ANSWERS_MAX: usize = 4096;

/// The port "discard", on which nothing listens.
const NO_PROXY: &str = "http://127.0.0.1:9";

/// The variables that a codex gets from our environment, to run programs.
const PASSED: [&str; 5] = ["PATH", "SHELL", "LANG", "TERM", "USER"];

/// A conversation, and whom it is played to.
#[expect(missing_debug_implementations, reason = "it has functions of the caller")]
pub struct Play<'a> {
    pub codex: &'a Codex,
    pub plan: &'a Plan,
    /// An empty folder for the home and the work of this codex.
    pub folder: &'a Path,
    /// The variables of this process.
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether the user still wants it.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// Why a conversation was not played.
#[derive(Debug, Error)]
pub enum PlayError {
    #[error("prepare {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("start a model on loopback: {0}")]
    Model(io::Error),
    #[error("start {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// Plays a conversation and returns the messages of the codex, by kind.
///
/// # Errors
///
/// It cannot be played. The failure of a server is a result.
pub fn play(play: &Play<'_>) -> Result<Heard, PlayError> {
    let model = ScriptedModel::start().map_err(PlayError::Model)?;
    let mut playing = Playing::start(play, model)?;
    let stopped = playing.steps().err();
    playing.close();
    if playing.model.lacked_tools() {
        playing.heard.lacks_tools();
    }
    match stopped {
        None | Some(Stop::Stuck) => Ok(std::mem::take(&mut playing.heard)),
        Some(Stop::Interrupted) => Err(PlayError::Interrupted),
    }
}

/// Why the rest is not played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The server says no more.
    Stuck,
    Interrupted,
}

struct Playing<'a> {
    plan: &'a Plan,
    goes_on: &'a dyn Fn() -> bool,
    model: ScriptedModel,
    cwd: PathBuf,
    child: Child,
    /// Lines for its stdin, which is closed after the last one.
    stdin: Option<SyncSender<String>>,
    lines: Receiver<Value>,
    began: Instant,
    heard: Heard,
    /// The client's calls without a response, by their steps.
    calls: BTreeMap<RpcId, usize>,
    answered: BTreeSet<usize>,
    answers: BTreeMap<String, VecDeque<Value>>,
    /// Ids and paths of the recording, with those of this server.
    names: BTreeMap<String, String>,
    /// The threads of the client's calls.
    threads: BTreeSet<String>,
    /// The turns that steps have begun, and the number of calls that failed to begin one.
    ours: BTreeSet<TurnKey>,
    refused: usize,
    /// The turns that the server told of, and its items by their turns.
    begun: BTreeSet<TurnKey>,
    done: BTreeSet<TurnKey>,
    items: BTreeSet<(TurnKey, String)>,
    /// The turns that the client does not know of.
    aside: BTreeSet<TurnKey>,
    /// Responses to our own calls, which make threads that the recording found there.
    own: BTreeMap<String, Value>,
    own_calls: u32,
    is_aside: bool,
}

impl Playing<'_> {
    fn start<'a>(play: &Play<'a>, model: ScriptedModel) -> Result<Playing<'a>, PlayError> {
        let cwd = play.folder.join("work");
        let home = play.folder.join("home");
        let prepare = || -> io::Result<()> {
            Folder::make(&cwd)?;
            Folder::make(&home)?.put("config.toml", config(model.base_url()).as_bytes())
        };
        prepare().map_err(|source| PlayError::Folder { path: play.folder.to_owned(), source })?;
        let mut command = Command::new(&play.codex.program);
        command.arg("app-server").env_clear().current_dir(&cwd);
        command.envs(PASSED.iter().filter_map(|name| Some((name, (play.environment)(name)?))));
        command.envs(play.codex.path.iter().map(|path| ("PATH", path)));
        command.envs(["HOME", "CODEX_HOME"].map(|name| (name, &home)));
        let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
        command.envs(proxies.map(|name| (name, NO_PROXY)));
        command.envs(["NO_PROXY", "no_proxy"].map(|name| (name, "127.0.0.1,localhost")));
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |source| PlayError::Start { program: play.codex.program.clone(), source };
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (heard, lines) = sync_channel(LINES_MAX);
        let (sender, said) = sync_channel::<String>(play.plan.steps.len() + ANSWERS_MAX);
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let reader = thread("server").spawn(move || stdout.into_iter().for_each(|stdout| read(stdout, &heard)));
        let writer = thread("client").spawn(move || stdin.into_iter().for_each(|stdin| write(stdin, &said)));
        if let Err(source) = reader.and(writer) {
            kill_group_of(&mut child);
            return Err(failed(source));
        }
        Ok(Playing {
            plan: play.plan,
            goes_on: play.goes_on,
            model,
            cwd,
            child,
            stdin: Some(sender),
            lines,
            began: Instant::now(),
            heard: Heard::default(),
            calls: BTreeMap::new(),
            answered: BTreeSet::new(),
            answers: play.plan.answers.clone(),
            names: BTreeMap::new(),
            threads: BTreeSet::new(),
            ours: BTreeSet::new(),
            refused: 0,
            begun: BTreeSet::new(),
            done: BTreeSet::new(),
            items: BTreeSet::new(),
            aside: BTreeSet::new(),
            own: BTreeMap::new(),
            own_calls: 0,
            is_aside: false,
        })
    }

    /// Makes all steps, and waits for what they begin.
    fn steps(&mut self) -> Result<(), Stop> {
        let plan = self.plan;
        for (number, step) in plan.steps.iter().enumerate() {
            self.until(|it| it.may_follow(number, step.after_begun, step.after_done))?;
            if matches!(step.method().and_then(Method::of), Some(Method::TurnInterrupt | Method::TurnSteer)) {
                self.until_items(step.after_items)?;
            }
            self.make(number, step)?;
        }
        self.until(|it| it.may_follow(plan.steps.len(), 0, plan.done))?;
        // The recording may have ended in the middle of a turn.
        self.until_items(plan.items)
    }

    /// Whether all that had come before a step has come.
    fn may_follow(&self, number: usize, begun: usize, done: usize) -> bool {
        let is_ours = |key: &&TurnKey| self.threads.contains(&key.0) && !self.aside.contains(*key);
        let has = |turns: &BTreeSet<TurnKey>| turns.iter().filter(is_ours).count() + self.refused;
        let is_answered = |(step, planned): (usize, &PlanStep)| {
            planned.answered_before.is_none_or(|before| before > number) || self.answered.contains(&step)
        };
        has(&self.begun) >= begun
            && has(&self.done) >= done
            && self.plan.steps.iter().enumerate().take(number).all(is_answered)
    }

    /// Listens until something has come.
    fn until(&mut self, has_come: impl Fn(&Self) -> bool) -> Result<(), Stop> {
        if self.listen(SILENCE_MAX, has_come)? {
            return Ok(());
        }
        // The oldest call without a response, or else one whose turn has not ended.
        let call = self.calls.values().min().and_then(|step| self.plan.steps[*step].method());
        self.heard.is_stuck(call.unwrap_or(Method::TurnStart.name()));
        Err(Stop::Stuck)
    }

    /// Listens until so many items have begun, or for a while.
    fn until_items(&mut self, count: usize) -> Result<(), Stop> {
        let count_now = |it: &Self| it.items.iter().filter(|(turn, _)| it.ours.contains(turn)).count();
        self.listen(ITEMS_WAIT_MAX, |it| count_now(it) >= count).map(drop)
    }

    /// Listens until something has come; false if the server has been silent for so long, or has ended.
    fn listen(&mut self, silence_max: Duration, has_come: impl Fn(&Self) -> bool) -> Result<bool, Stop> {
        let mut last = Instant::now();
        loop {
            if !(self.goes_on)() {
                return Err(Stop::Interrupted);
            }
            if self.began.elapsed() >= PLAY_MAX {
                return Ok(false);
            }
            if has_come(self) {
                return Ok(true);
            }
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    last = Instant::now();
                    self.hear(&line);
                }
                Err(RecvTimeoutError::Timeout) if last.elapsed() < silence_max => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn make(&mut self, number: usize, step: &PlanStep) -> Result<(), Stop> {
        let thread = step.message.pointer("/params/threadId").and_then(Value::as_str);
        if let Some(thread) = thread.filter(|thread| !self.names.contains_key(*thread)) {
            self.stand_in(thread, step)?;
        }
        let mut message = step.message.clone();
        if let Some(params) = message.get_mut("params") {
            self.translate(params, "params");
        }
        let turn = step.turn.as_ref().and_then(|key| self.plan.turns.iter().find(|planned| planned.key == *key));
        let now = message.pointer("/params/threadId").and_then(Value::as_str);
        self.threads.extend(now.map(str::to_owned));
        if let (Some(turn), Some(now)) = (turn, now) {
            self.model.begins(now, responses(turn));
        }
        if let Some(id) = &step.id {
            self.calls.insert(id.clone(), number);
        }
        self.send(&message);
        self.model.made(number + 1);
        Ok(())
    }

    /// Makes a thread in place of one that the recording found there.
    fn stand_in(&mut self, recorded: &str, step: &PlanStep) -> Result<(), Stop> {
        self.is_aside = true;
        let made = self.make_thread(recorded, step);
        self.is_aside = false;
        made
    }

    fn make_thread(&mut self, recorded: &str, step: &PlanStep) -> Result<(), Stop> {
        let started = self.call(Method::ThreadStart, json!({"cwd": self.cwd}))?;
        let text = |at: &str| started.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let Some(thread) = text("/result/thread/id") else {
            self.heard.is_stuck(Method::ThreadStart.name());
            return Err(Stop::Stuck);
        };
        // A thread without a message has no file yet.
        let input = json!([{"type": "text", "text": "hello", "text_elements": []}]);
        let turn = self.call(Method::TurnStart, json!({"threadId": thread, "input": input}))?;
        if let Some(turn) = turn.pointer("/result/turn/id").and_then(Value::as_str) {
            let key = (thread.clone(), turn.to_owned());
            self.aside.insert(key.clone());
            self.until(|it| it.done.contains(&key))?;
        }
        if let (Some(recorded), Some(now)) = (step.file.clone(), text("/result/thread/path")) {
            self.names.insert(recorded, now);
        }
        self.names.insert(recorded.to_owned(), thread);
        Ok(())
    }

    /// A call of our own.
    fn call(&mut self, method: Method, params: Value) -> Result<Value, Stop> {
        self.own_calls += 1;
        let id = format!("codex-shim:{}", self.own_calls);
        self.send(&json!({"id": id, "method": method.name(), "params": params}));
        self.until(|it| it.own.contains_key(&id))?;
        Ok(self.own.remove(&id).unwrap_or_default())
    }

    /// Puts the names of this server in place of those on record, and its folder in place of all others.
    fn translate(&self, value: &mut Value, name: &str) {
        match value {
            Value::String(_) if name == "text" => {}
            Value::String(text) => {
                if let Some(now) = self.names.get(text) {
                    now.clone_into(text);
                } else if is_path(name, text) {
                    *text = self.cwd.to_string_lossy().into_owned();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.translate(value, name)),
            Value::Object(members) => members.iter_mut().for_each(|(name, value)| self.translate(value, name)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A server that reads no more is noticed by its silence, and one that asks without end by the queue.
    fn send(&mut self, message: &Value) {
        let sent = self.stdin.as_ref().map(|stdin| stdin.try_send(format!("{message}\n")));
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.stdin = None;
        }
    }

    fn hear(&mut self, message: &Value) {
        let id = message.get("id").filter(|id| !id.is_null());
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => self.asked(method, id),
            (Some(method), None) => self.told(method, message),
            (None, Some(id)) => self.response(id, message),
            (None, None) => {}
        }
    }

    fn asked(&mut self, method: &str, id: &Value) {
        self.heard.request(method);
        let answers = self.answers.get_mut(method);
        // The last answer stands for requests that the recording has less often.
        let answer = answers.and_then(|it| if it.len() > 1 { it.pop_front() } else { it.front().cloned() });
        let mut answer = answer.unwrap_or_else(|| {
            self.heard.has_no_answer(method);
            json!({"error": {"code": -32601, "message": "this client does not know the method"}})
        });
        answer["id"] = id.clone();
        self.send(&answer);
    }

    fn told(&mut self, method: &str, message: &Value) {
        let params = &message["params"];
        match Method::of(method) {
            Some(Method::TurnStarted) => self.begun.extend(turn_of(params)),
            Some(Method::TurnCompleted) => self.done.extend(turn_of(params)),
            Some(Method::ItemStarted | Method::ItemCompleted) if is_caused(&params["item"]) => {
                let id = params["item"]["id"].as_str().map(str::to_owned);
                self.items.extend(turn_of_item(params).zip(id));
            }
            Some(_) | None => {}
        }
        if !self.is_aside {
            self.heard.notification(method, message);
        }
    }

    fn response(&mut self, id: &Value, message: &Value) {
        if let Some(own) = id.as_str().filter(|id| id.starts_with("codex-shim:")) {
            self.own.insert(own.to_owned(), message.clone());
            return;
        }
        let id = serde_json::value::to_raw_value(id).map(|id| RpcId::from_raw(&id)).ok();
        let Some(number) = id.and_then(|id| self.calls.remove(&id)) else { return };
        self.answered.insert(number);
        let plan = self.plan;
        let step = &plan.steps[number];
        self.heard.response(step.method().unwrap_or_default(), message);
        let turn = step.turn.as_ref().map(|(_, turn)| turn);
        for (recorded, at) in [
            (step.opens.as_ref(), "/result/thread/id"),
            (step.file.as_ref(), "/result/thread/path"),
            (turn, "/result/turn/id"),
        ] {
            if let (Some(recorded), Some(now)) = (recorded, message.pointer(at).and_then(Value::as_str)) {
                self.names.insert(recorded.clone(), now.to_owned());
            }
        }
        self.threads.extend(message.pointer("/result/thread/id").and_then(Value::as_str).map(str::to_owned));
        let begins = step.turn.is_some() || step.method() == Some(Method::ThreadCompactStart.name());
        let text = |at: &str| message.pointer(at).and_then(Value::as_str);
        let thread = text("/result/reviewThreadId")
            .or_else(|| self.names.get(step.turn.as_ref()?.0.as_str()).map(String::as_str));
        match thread.zip(text("/result/turn/id")) {
            Some((thread, turn)) if begins => drop(self.ours.insert((thread.to_owned(), turn.to_owned()))),
            None if begins && message.get("error").is_some() => self.refused += 1,
            Some(_) | None => {}
        }
    }

    /// Ends the server, and reads what it still says.
    fn close(&mut self) {
        drop(self.stdin.take());
        let began = Instant::now();
        while began.elapsed() < END_WAIT_MAX {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        kill_group_of(&mut self.child);
    }
}

fn read(stdout: impl io::Read, lines: &SyncSender<Value>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stdout).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if let Ok(message) = serde_json::from_slice(&line)
                    && lines.send(message).is_err()
                {
                    return;
                }
            }
        }
    }
}

fn write(mut stdin: ChildStdin, lines: &Receiver<String>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

/// A model to which codex offers each of its tools by itself. Source: 0.125 to 0.171; to newer models it offers one that runs scripts.
const MODEL: &str = "gpt-5.5";

/// The settings of a codex with this model alone. It reads no settings of a project from the folders around its own.
fn config(base_url: &str) -> String {
    format!(
        r#"model = "{MODEL}"
model_provider = "recorded"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
project_root_markers = []
project_doc_max_bytes = 0
[model_providers.recorded]
name = "recorded"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
[analytics]
enabled = false
[features]
default_mode_request_user_input = true
"#
    )
}
