//! `codex-shim context`: waiting commands and the last delivery. `codex-shim fragments`: the fragments that each thread has been sent.
//!
//! If a relay is running it is queried, otherwise the ledger is opened. A relay that starts meanwhile is notified of the
//! change, so no command waits unnoticed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};

use super::history::thread_or_id;
use super::offline;
use super::requests::print_json;
use super::screen::{self, Screen, Tone, counted};
use super::screen::{Clock, Times};
use super::select_session::{SessionFlag, SessionWord, signed};
use super::{CliError, Done};
use super::{complete, select_session, threads};
use crate::api::{
    ContextCommand, ContextDocument, ContextQuery, DeliveriesDocument, DeliveriesQuery, DeliveryDocument,
    FittedContext, FragmentsDocument, FragmentsQuery,
};
use crate::capture::{Tail, keep};
use crate::config::{Environment, Flags, Settings};
use crate::control::{not_waiting, recorded_threads};
use crate::engine::{Carrier, ContextBounds, ContextSettings, Label, MARKER_END, Preview, PushedCommand};
use crate::store::{Found, Otherwise, WhichCommands};

#[derive(Debug, Subcommand)]
pub(super) enum ContextTool {
    /// Show the commands and output that the next message will carry
    ///
    /// Each command has a number for `context drop`. With --last it prints what the model saw with the last message.
    #[command(after_long_help = "\
With --json it prints what `GET /sessions/self/context` returns. If several
sessions are live in this folder, their commands have a `session_id`.

Exit status: 0, or 1 if a session cannot be read, or if --last finds nothing,
or 3 if there is no such session.

Examples:
  codex-shim context show
  codex-shim context show --last
  codex-shim context show --json | jq -r '.commands[].cmd'")]
    Show(ContextShowArguments),
    /// Show the model a command with your next message
    ///
    /// It keeps only the end of the output. If no client is running, the command waits for the next start of the session.
    #[command(after_long_help = "\
Examples:
  codex-shim context push --cmd 'make' --exit-code 2 --output-file out.txt
  uname -a | codex-shim context push --cmd 'uname -a' --output-file -")]
    Push(ContextPushArguments),
    /// Remove one command, so that the model does not see it
    #[command(after_long_help = "\
Exit status: 0, or 1 if no such command is waiting.

Examples:
  codex-shim context drop 17              the number that `context show` prints
  codex-shim context drop latest          the last command")]
    Drop(ContextDropArguments),
    /// Remove all commands, so that the model does not see them
    #[command(after_long_help = "\
Examples:
  codex-shim context clear
  codex-shim context clear work")]
    Clear(ContextClearArguments),
}

#[derive(Debug, Args)]
pub(super) struct ContextShowArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Print what the model saw last, exactly
    #[arg(long)]
    last: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

#[derive(Debug, Args)]
pub(super) struct ContextPushArguments {
    #[command(flatten)]
    session: SessionWord,
    /// The command, as it was typed
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    cmd: OsString,
    /// Its exit status
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = signed)]
    exit_code: Option<i64>,
    /// Folder that it ran in [default: the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    cwd: Option<PathBuf>,
    /// File with its output; `-` reads stdin
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output_file: Option<PathBuf>,
    /// Only for this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    thread: Option<String>,
    /// When it ran, in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "MS", allow_hyphen_values = true, value_parser = signed)]
    ts: Option<i64>,
    /// An id of your own for this command
    #[arg(long, value_name = "ID")]
    block_id: Option<String>,
    /// An id of your own for the shell
    #[arg(long, value_name = "ID")]
    shell_id: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextDropArguments {
    /// Number of the command in `context show`, or `latest`
    #[arg(value_name = "N")]
    command: String,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextClearArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(tool: ContextTool, environment: &Environment) -> Done {
    match tool {
        ContextTool::Show(show) => run_show(&show, environment),
        ContextTool::Push(push) => run_push(push, environment),
        ContextTool::Drop(drop) => run_drop(&drop, environment),
        ContextTool::Clear(clear) => run_clear(&clear, environment),
    }
}

fn run_show(arguments: &ContextShowArguments, environment: &Environment) -> Done {
    if !arguments.last {
        let sessions = select_session::several(arguments.session.name(), Otherwise::Latest, environment)?;
        if let [session] = &sessions[..] {
            return show_buffer(session, arguments, environment);
        }
        if arguments.json {
            let (listed, status) = select_session::each(&sessions, waiting)?;
            return Ok(status.max(print_json(&together(listed))));
        }
        let shown = |session: &Found| {
            let printed = screen::print(&select_session::section(session, Screen::of_stdout(environment)));
            printed.max(show_buffer(session, arguments, environment).unwrap_or_else(|error| error.report()))
        };
        return Ok(sessions.iter().map(shown).max().unwrap_or(0));
    }
    let session = select_session::latest(arguments.session.name(), Otherwise::Latest, environment)?;
    let DeliveriesDocument { deliveries } = offline::query(&session, &DeliveriesQuery {})?;
    let Some(last) = deliveries.last() else {
        if arguments.json {
            // The error below has a status of its own.
            let _ = print_json(&Value::Null);
        }
        let name = session.name();
        return Err(CliError::failed(format!("the model has not been shown any context in session {name} yet"))
            .with_remedy("`codex-shim context push` adds a command to your next message"));
    };
    show_last(last, arguments.json, Screen::of_stdout(environment))
}

/// The waiting commands of several sessions in one document; each names its session.
fn together(listed: Vec<(&Found, ContextDocument)>) -> Value {
    let total: u64 = listed.iter().map(|(_, document)| document.total_commands_run).sum();
    let commands = listed.into_iter().flat_map(|(session, document)| {
        document.commands.into_iter().map(|command| {
            let mut command = json!(command);
            command["session_id"] = json!(session.id);
            command
        })
    });
    json!({ "commands": commands.collect::<Vec<_>>(), "total_commands_run": total })
}

/// The waiting commands of a session.
fn waiting(session: &Found) -> Result<ContextDocument, CliError> {
    Ok(offline::query(session, &ContextQuery {})?)
}

/// Prints the waiting commands of one session.
fn show_buffer(session: &Found, arguments: &ContextShowArguments, environment: &Environment) -> Done {
    let document = waiting(session)?;
    if arguments.json {
        return Ok(print_json(&document));
    }
    let to = Screen::of_stdout(environment);
    let list = List {
        session,
        name: name_of(session, environment),
        settings: settings_of(session, environment),
        clock: Clock::of(&arguments.times),
    };
    Ok(screen::print(&list.text(&document, to)))
}

/// The session's name in a sentence on stdout.
fn name_of(session: &Found, environment: &Environment) -> String {
    screen::plain(&select_session::heading(session, Screen::of_stdout(environment), environment))
}

/// The settings that the next message is sent with: those of the running relay, which may come from its own environment.
fn settings_of(session: &Found, environment: &Environment) -> ContextSettings {
    let of_relay = || {
        let state = session.live.then(|| offline::live_state(session).ok()).flatten();
        state??.config?.context
    };
    of_relay().unwrap_or_else(|| Settings::load(Flags::default(), environment).0.context())
}

fn show_last(last: &DeliveryDocument, json: bool, to: Screen) -> Done {
    if json {
        return Ok(print_json(last));
    }
    // On a terminal the markers are escaped; a file gets exactly what the model got.
    let text = match to {
        Screen::None => last.text.clone(),
        Screen::Coloured | Screen::Plain => {
            format!("{}\n", screen::plain(&last.text.replace('\u{1e}', "␞").replace(MARKER_END, "␟")))
        }
    };
    Ok(screen::print_exactly(&text))
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
        let commands = counted(fitted.commands_left_out as u64, "command", "commands");
        let lines = counted(fitted.lines_left_out as u64, "line of output", "lines of output");
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
            text.push_str(&only_counted(unshown));
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
        let thread = one.thread_id.as_ref().map(|thread| {
            let known = recorded_threads(&self.session.dir, std::slice::from_ref(thread));
            let words = known.get(thread).and_then(threads::in_words).map(|words| format!(": {words}"));
            format!(", for thread {thread}{}", words.unwrap_or_default())
        });
        let thread = thread.unwrap_or_default();
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

fn run_push(arguments: ContextPushArguments, environment: &Environment) -> Done {
    let json = arguments.json;
    let session = select_session::one(arguments.session.name(), Otherwise::None, environment)?;
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let thread = arguments.thread.as_ref().map(|name| thread_or_id(&session, name, environment)).transpose()?;
    let named = thread.is_some();
    let pushed = pushed(arguments, thread, &bounds)?;
    pushed.clone().into_command(0, &bounds).map_err(|error| CliError::usage(error.to_string()))?;
    let cwd = PathBuf::from(pushed.cwd.clone().unwrap_or_default());
    let threads = match named {
        true => vec![pushed.thread_id.clone()],
        false => select_session::threads_for_context(&session, &cwd, settings.context_scope.value),
    };
    let mut document = None;
    for thread_id in threads {
        document = Some(keep(&session, &[PushedCommand { thread_id, ..pushed.clone() }], &bounds)?);
    }
    let Some(document) = document else {
        let why = "no thread of this repository is open in the hub; name one with --thread, or see `codex-shim status`";
        return Err(CliError::failed(why));
    };
    if json {
        return Ok(print_json(&document));
    }
    let carried = document.waiting.min(settings_of(&session, environment).bounds.commands_max as u64);
    let older = document.waiting - carried;
    let commands = counted(carried, "command", "commands").unwrap_or_else(|| "0 commands".to_owned());
    let older = if older > 0 { only_counted(older) } else { String::new() };
    let name = name_of(&session, environment);
    Ok(screen::print(&format!("the next message in session {name} carries {commands}{older}\n")))
}

/// Follows the commands that a message carries, if there are more than it may carry.
fn only_counted(older: u64) -> String {
    match older {
        1 => "; 1 older command is counted but not shown".to_owned(),
        _ => format!("; {older} older commands are counted but not shown"),
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
    let mut tail = Tail::default();
    if path == Path::new("-") {
        tail.read(io::stdin().lock())?;
    } else {
        tail = Tail::of_file(File::open(path)?)?;
    }
    Ok(tail.preview(bounds))
}

/// Removes one waiting command.
fn run_drop(arguments: &ContextDropArguments, environment: &Environment) -> Done {
    let session = select_session::one(arguments.session.name(), Otherwise::None, environment)?;
    let waiting = waiting(&session)?;
    let is_meant = |one: &&ContextCommand| one.id.to_string() == arguments.command;
    let dropped = match arguments.command.as_str() {
        "latest" => waiting.commands.last(),
        _ => waiting.commands.iter().find(is_meant),
    };
    let dropped = dropped.ok_or_else(|| not_waiting(&arguments.command))?;
    let (document, count) = offline::remove_commands(&session, WhichCommands::One(dropped.id))?;
    if count == 0 {
        return Err(not_waiting(&dropped.id.to_string()).into());
    }
    Ok(match arguments.json {
        true => print_json(&document),
        false => screen::print(&format!("dropped: {}\n", screen::plain(&dropped.command.cmd))),
    })
}

fn run_clear(arguments: &ContextClearArguments, environment: &Environment) -> Done {
    let session = select_session::one(arguments.session.name(), Otherwise::None, environment)?;
    let (document, _) = offline::remove_commands(&session, WhichCommands::All)?;
    if arguments.json {
        return Ok(print_json(&document));
    }
    let name = name_of(&session, environment);
    Ok(screen::print(&format!("no commands are waiting in session {name} any more\n")))
}

pub(super) fn run_fragments(arguments: &FragmentsArguments, environment: &Environment) -> Done {
    let sessions = select_session::several(arguments.session.name(), Otherwise::Latest, environment)?;
    let sent = |session: &Found| Ok(offline::query(session, &FragmentsQuery {})?);
    let (listed, status) = select_session::each(&sessions, sent)?;
    if arguments.json {
        let threads = listed.into_iter().flat_map(|(_, document)| document.threads).collect();
        return Ok(status.max(print_json(&FragmentsDocument { threads })));
    }
    let (settings, _) = Settings::load(Flags::default(), environment);
    let set = settings.fragments.value.len();
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let mut text = String::new();
    for (session, document) in &listed {
        // The line above the list names one of several sessions.
        let place = match &sessions[..] {
            [_] => format!(" in session {}", screen::plain(&select_session::heading(session, to, environment))),
            _ => {
                text.push_str(&select_session::section(session, to));
                " yet".to_owned()
            }
        };
        text.push_str(&as_list(session, document, &place, set, (&clock, to)));
    }
    Ok(status.max(screen::print(&text)))
}

fn as_list(
    session: &Found,
    document: &FragmentsDocument,
    place: &str,
    set: usize,
    (clock, to): (&Clock, Screen),
) -> String {
    if document.threads.is_empty() {
        let why = match set {
            0 => "; none are set: add [[fragments]] to config.toml",
            _ => "; the next turn sends them",
        };
        return format!("no fragments were sent{place}{why}\n");
    }
    let ids: Vec<String> = document.threads.iter().map(|thread| thread.thread_id.clone()).collect();
    let known = recorded_threads(&session.dir, &ids);
    let mut text = String::new();
    for thread in &document.threads {
        let id = to.paint(Tone::Strong, &screen::plain(&thread.thread_id));
        let words = known.get(&thread.thread_id).and_then(threads::in_words);
        let words = words.map(|words| format!("  {}", to.paint(Tone::Faint, &words))).unwrap_or_default();
        text.push_str(&format!("{id}{words}\n"));
        for told in &thread.fragments {
            let stale = if told.stale { ", before a compaction" } else { "" };
            let how = format!("({}, {}, {}{stale})", told.role, told.carrier, ByteSize(told.text.len() as u64));
            text.push_str(&format!(
                "  {}  {}  {}\n",
                to.paint(Tone::Faint, &clock.text(&told.at)),
                screen::plain(&told.name),
                to.paint(Tone::Faint, &how)
            ));
            for line in told.text.lines() {
                text.push_str(&format!("    {}\n", screen::plain(line)));
            }
        }
    }
    text
}

/// Show the fragments that each thread has been sent
///
/// Fragments are set in config.toml, under `[[fragments]]`. A thread gets each one whole, and again once it has changed.
/// `developer_addition` is the developer text of a context engine.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fragments
  codex-shim fragments work
  codex-shim fragments --json | jq -r '.threads[].fragments[].name'")]
pub(super) struct FragmentsArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}
