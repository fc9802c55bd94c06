//! `codex-shim context`: waiting commands and the last delivery.
//!
//! If a relay is running it is queried, otherwise the ledger is opened. A relay that starts meanwhile is notified of the
//! change, so no command waits unnoticed.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::args::{
    ContextClearArguments, ContextDropArguments, ContextPushArguments, ContextShowArguments, ContextTool,
};
use super::clock::Clock;
use super::history::thread_or_id;
use super::screen::{self, Screen, Tone};
use super::{FAILED, USAGE, say, select_session};
use crate::capture::{keep, notify_started};
use crate::config::{Environment, Flags, Settings};
use crate::control::client::{self, Answer, ClientError};
use crate::control::{
    ContextCommand, ContextDocument, DeliveriesDocument, FittedContext, SessionDocument, WaitingDocument, not_waiting,
};
use crate::engine::{Carrier, ContextBounds, ContextSettings, Label, MARKER_END, Preview, PushedCommand, RowId};
use crate::store::{Found, KeptDelivery, LEDGER_FILE, OfflineLedger, Otherwise, WhichCommands};

/// Bytes read from the end of an output; much less of it is stored.
const OUTPUT_TAIL_BYTES: usize = 256 << 10;

/// Runs the tool; returns the exit status.
pub(super) fn run(tool: ContextTool, environment: &Environment) -> i32 {
    match tool {
        ContextTool::Show(show) => run_show(&show, environment),
        ContextTool::Push(push) => run_push(push, environment),
        ContextTool::Drop(drop) => run_drop(&drop, environment),
        ContextTool::Clear(clear) => run_clear(&clear, environment),
    }
}

fn run_show(arguments: &ContextShowArguments, environment: &Environment) -> i32 {
    if !arguments.last {
        let sessions = match select_session::several(arguments.session.name(), Otherwise::Latest, environment) {
            Ok(sessions) => sessions,
            Err(error) => return error.report(),
        };
        if let [session] = &sessions[..] {
            return show_buffer(session, arguments, environment);
        }
        let shown = |session: &Found| {
            if !arguments.json {
                screen::print(&select_session::section(session, &sessions, Screen::of_stdout(environment)));
            }
            show_buffer(session, arguments, environment)
        };
        return sessions.iter().map(shown).max().unwrap_or(0);
    }
    let session = match select_session::latest(arguments.session.name(), Otherwise::Latest, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    let read = |ledger: &mut OfflineLedger| {
        let deliveries = ledger.deliveries().map_err(|error| error.to_string())?;
        Ok(DeliveriesDocument { deliveries })
    };
    match look(&session, "/sessions/self/context/deliveries", read) {
        Ok(DeliveriesDocument { deliveries }) => {
            show_last(deliveries.last(), arguments.json, Screen::of_stdout(environment))
        }
        Err(why) => failed(&why),
    }
}

/// Prints the waiting commands of one session.
fn show_buffer(session: &Found, arguments: &ContextShowArguments, environment: &Environment) -> i32 {
    let read = |ledger: &mut OfflineLedger| {
        Ok(ContextDocument::of(ledger.waiting_context().map_err(|error| error.to_string())?))
    };
    match look(session, "/sessions/self/context", read) {
        Ok(document) if arguments.json => print_json(&document),
        Ok(document) => {
            let list = List {
                session,
                name: name_of(session, environment),
                settings: settings_of(session, environment),
                clock: Clock::of(&arguments.times),
            };
            screen::print(&list.text(&document, Screen::of_stdout(environment)))
        }
        Err(why) => failed(&why),
    }
}

/// The session's name in a sentence on stdout.
fn name_of(session: &Found, environment: &Environment) -> String {
    screen::plain(&select_session::heading(session, Screen::of_stdout(environment), environment))
}

/// The settings that the next message is sent with: those of the running relay, which may come from its own environment.
fn settings_of(session: &Found, environment: &Environment) -> ContextSettings {
    let of_relay = || {
        let answer = session.live.then(|| client::get(&session.dir, "/sessions/self").ok()).flatten()?;
        answer.document::<SessionDocument>().ok()?.config?.context
    };
    of_relay().unwrap_or_else(|| Settings::load(Flags::default(), environment).0.context())
}

/// Queries the relay, or runs `read` if none is running.
pub(super) fn look<T: DeserializeOwned + Default>(
    session: &Found,
    path: &str,
    read: impl FnOnce(&mut OfflineLedger) -> Result<T, String>,
) -> Result<T, String> {
    if session.live
        && let Some(answer) = answered(session, client::get(&session.dir, path))?
    {
        return answer.document();
    }
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(T::default());
    }
    read(&mut OfflineLedger::open(&session.dir).map_err(|error| error.to_string())?)
}

/// The response of a relay; `None` if it has exited since it was found.
fn answered(session: &Found, asked: Result<Answer, ClientError>) -> Result<Option<Answer>, String> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(_) if !session.is_still_live() => Ok(None),
        Err(error) => Err(error.message(session)),
    }
}

fn show_last(last: Option<&KeptDelivery>, json: bool, to: Screen) -> i32 {
    let Some(last) = last else {
        if json {
            return print_json(&serde_json::Value::Null);
        }
        return failed("the model has not been shown any context yet");
    };
    if json {
        return print_json(last);
    }
    // On a terminal the markers are escaped; a file gets exactly what the model got.
    let text = match to {
        Screen::None => last.text.clone(),
        Screen::Coloured | Screen::Plain => {
            format!("{}\n", screen::plain(&last.text.replace('\u{1e}', "␞").replace(MARKER_END, "␟")))
        }
    };
    screen::print(&text)
}

/// A list of waiting commands.
struct List<'a> {
    session: &'a Found,
    /// Its name in the heading.
    name: String,
    settings: ContextSettings,
    clock: Clock,
}

impl List<'_> {
    fn text(&self, document: &ContextDocument, to: Screen) -> String {
        let fitted = document.fitted(&self.settings);
        let mut text = self.first_line(document, &fitted);
        for one in &fitted.commands {
            text.push_str(&self.command(one, to));
            for line in &one.command.preview.lines {
                text.push_str(&format!("      {}\n", to.paint(Tone::Faint, &screen::plain(line))));
            }
        }
        text.extend(self.left_out(&fitted).map(|line| format!("{line}\n")));
        text
    }

    /// Names the commands and lines that the bounds leave out.
    fn left_out(&self, fitted: &FittedContext) -> Option<String> {
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        };
        let commands = counted(fitted.commands_left_out, "command", "commands");
        let lines = counted(fitted.lines_left_out, "line of output", "lines of output");
        let told: Vec<String> = commands.into_iter().chain(lines).collect();
        let verb = if fitted.commands_left_out + fitted.lines_left_out == 1 { "is" } else { "are" };
        let room = ByteSize(self.settings.bounds.envelope_bytes_max as u64);
        (!told.is_empty()).then(|| format!("… {} {verb} left out to fit {room}", told.join(" and ")))
    }

    fn first_line(&self, document: &ContextDocument, fitted: &FittedContext) -> String {
        let id = &self.name;
        let unshown = document.total_commands_run.saturating_sub(fitted.commands.len() as u64);
        let mut text = match fitted.commands.len() {
            0 if document.commands.is_empty() => return format!("no commands are waiting in session {id}\n"),
            0 => format!("the next message in session {id} carries no commands"),
            1 => format!("the next message in session {id} carries 1 command"),
            many => format!("the next message in session {id} carries {many} commands"),
        };
        if unshown > 0 && !fitted.commands.is_empty() {
            text.push_str(&format!(", and counts {unshown} older ones"));
        }
        text.push_str(match (self.settings.carrier, self.session.live) {
            (Carrier::Off, _) => "; none is sent: the setting `carrier` is \"off\"\n",
            (Carrier::Envelope | Carrier::InjectItems | Carrier::Auto, true) => "\n",
            (Carrier::Envelope | Carrier::InjectItems | Carrier::Auto, false) => ", once it runs again\n",
        });
        text
    }

    /// Number, time, exit status and text of a command, with its source.
    fn command(&self, one: &ContextCommand, to: Screen) -> String {
        let command = &one.command;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(command.ts.unsigned_abs());
        let (status, tone) = match command.exit_code {
            Some(0) => ("exit 0".to_owned(), Tone::Good),
            Some(code) => (format!("exit {code}"), Tone::Bad),
            None => ("exit ?".to_owned(), Tone::Faint),
        };
        let output = match (command.preview.lines.is_empty(), command.preview.truncated) {
            (true, _) => ", no output",
            (false, true) => ", the end of its output",
            (false, false) => "",
        };
        let took = command.provenance.duration_ms.map(|ms| format!(", {}", screen::lasted(Duration::from_millis(ms))));
        let source = command.provenance.source;
        let thread = one.thread_id.as_ref().map(|thread| format!(", for thread {thread}")).unwrap_or_default();
        let about = format!("({source}{}{output}{thread})", took.unwrap_or_default());
        format!(
            "{:>4}  {}  {}  {}  {}\n",
            one.id,
            to.paint(Tone::Faint, &self.clock.text_of(at)),
            to.paint(tone, &format!("{status:>6}")),
            to.paint(Tone::Strong, &screen::plain(&command.cmd)),
            to.paint(Tone::Faint, &screen::plain(&about)),
        )
    }
}

fn run_push(arguments: ContextPushArguments, environment: &Environment) -> i32 {
    let json = arguments.json;
    let session = match select_session::one(arguments.session.name(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let thread = arguments.thread.as_ref().map(|name| thread_or_id(&session, name, environment)).transpose();
    let thread = match thread {
        Ok(thread) => thread,
        Err(stop) => return stop.report(),
    };
    let pushed = match pushed(arguments, thread, &bounds) {
        Ok(pushed) => pushed,
        Err(why) => return failed(&why),
    };
    if let Err(error) = pushed.clone().into_command(0, &bounds) {
        say(&error.to_string());
        return USAGE;
    }
    match keep(&session, &[pushed], &bounds) {
        Ok(document) if json => print_json(&document),
        Ok(WaitingDocument { waiting }) => {
            let commands = if waiting == 1 { "1 command".to_owned() } else { format!("{waiting} commands") };
            let name = name_of(&session, environment);
            screen::print(&format!("the next message in session {name} carries {commands}\n"))
        }
        Err(why) => failed(&why),
    }
}

/// The command from the arguments. Text from a terminal may not be UTF-8; invalid bytes become U+FFFD.
fn pushed(
    arguments: ContextPushArguments,
    thread_id: Option<String>,
    bounds: &ContextBounds,
) -> Result<PushedCommand, String> {
    let preview = match &arguments.output_file {
        Some(path) => Some(preview_of(path, bounds).map_err(|error| format!("read {}: {error}", path.display()))?),
        None => None,
    };
    let cwd =
        arguments.cwd.map(|cwd| std::path::absolute(&cwd).unwrap_or(cwd)).or_else(|| std::env::current_dir().ok());
    Ok(PushedCommand {
        cmd: arguments.cmd.to_string_lossy().into_owned(),
        exit_code: arguments.exit_code,
        cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        block_id: arguments.block_id.map(Label::Text),
        shell_id: arguments.shell_id.map(Label::Text),
        ts: arguments.ts,
        preview,
        output: None,
        thread_id,
        ..PushedCommand::default()
    })
}

fn preview_of(path: &Path, bounds: &ContextBounds) -> io::Result<Preview> {
    let (tail, is_cut) = if path == Path::new("-") {
        tail_of(io::stdin().lock())?
    } else {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let skipped = bytes.saturating_sub(OUTPUT_TAIL_BYTES as u64);
        if skipped > 0 {
            file.seek(SeekFrom::Start(skipped))?;
        }
        let (tail, is_cut) = tail_of(file)?;
        (tail, is_cut || skipped > 0)
    };
    let mut preview = Preview::of_output(&String::from_utf8_lossy(&tail), bounds);
    preview.truncated |= is_cut;
    Ok(preview)
}

/// The last bytes of a stream, and whether there were more.
fn tail_of(mut from: impl Read) -> io::Result<(Vec<u8>, bool)> {
    let mut tail = Vec::new();
    let mut is_cut = false;
    while (&mut from).take(OUTPUT_TAIL_BYTES as u64).read_to_end(&mut tail)? > 0 {
        let surplus = tail.len().saturating_sub(OUTPUT_TAIL_BYTES);
        tail.drain(..surplus);
        is_cut |= surplus > 0;
    }
    Ok((tail, is_cut))
}

/// Removes one waiting command.
fn run_drop(arguments: &ContextDropArguments, environment: &Environment) -> i32 {
    let session = match select_session::one(arguments.session.name(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    let read = |ledger: &mut OfflineLedger| {
        Ok(ContextDocument::of(ledger.waiting_context().map_err(|error| error.to_string())?))
    };
    let waiting = match look(&session, "/sessions/self/context", read) {
        Ok(waiting) => waiting,
        Err(why) => return failed(&why),
    };
    let is_meant = |one: &&ContextCommand| one.id.to_string() == arguments.command;
    let dropped = match arguments.command.as_str() {
        "latest" => waiting.commands.last(),
        _ => waiting.commands.iter().find(is_meant),
    };
    let Some(dropped) = dropped else {
        return failed(&not_waiting(&arguments.command));
    };
    match drop_one(&session, dropped.id) {
        Ok(document) if arguments.json => print_json(&document),
        Ok(_) => screen::print(&format!("dropped: {}\n", screen::plain(&dropped.command.cmd))),
        Err(why) => failed(&why),
    }
}

fn drop_one(session: &Found, id: RowId) -> Result<WaitingDocument, String> {
    let ask = || client::delete(&session.dir, &format!("/sessions/self/context/{id}"));
    if session.live
        && let Some(answer) = answered(session, ask())?
    {
        return answer.document();
    }
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| error.to_string())?;
    let count = ledger.clear_context(WhichCommands::One(id)).map_err(|error| error.to_string())?;
    let waiting = ledger.waiting_context().map_err(|error| error.to_string())?.len() as u64;
    drop(ledger);
    if count == 0 {
        return Err(not_waiting(&id.to_string()));
    }
    notify_started(session, ask)?;
    Ok(WaitingDocument { waiting })
}

fn run_clear(arguments: &ContextClearArguments, environment: &Environment) -> i32 {
    let session = match select_session::one(arguments.session.name(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    match clear(&session) {
        Ok(document) if arguments.json => print_json(&document),
        Ok(_) => {
            let name = name_of(&session, environment);
            screen::print(&format!("no commands are waiting in session {name} any more\n"))
        }
        Err(why) => failed(&why),
    }
}

fn clear(session: &Found) -> Result<WaitingDocument, String> {
    let ask = || client::delete(&session.dir, "/sessions/self/context");
    if session.live
        && let Some(answer) = answered(session, ask())?
    {
        return answer.document();
    }
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| error.to_string())?;
    ledger.clear_context(WhichCommands::All).map_err(|error| error.to_string())?;
    drop(ledger);
    notify_started(session, ask)?;
    Ok(WaitingDocument { waiting: 0 })
}

pub(super) fn print_json(document: &impl Serialize) -> i32 {
    let text = serde_json::to_string(document).expect("BUG: plain data is JSON");
    screen::print(&format!("{text}\n"))
}

fn failed(why: &str) -> i32 {
    say(why);
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_of_stream_is_kept() {
        assert_eq!(tail_of(&b"abc"[..]).expect("it can be read"), (b"abc".to_vec(), false));
        let long: Vec<u8> = (0..=255).cycle().take(2 * OUTPUT_TAIL_BYTES + 7).collect();
        let (tail, is_cut) = tail_of(&long[..]).expect("it can be read");
        assert!(is_cut && tail == long[long.len() - OUTPUT_TAIL_BYTES..]);
    }
}
