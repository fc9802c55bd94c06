//! The terminal: acquired while the program runs, and restored on every way out.

use std::ffi::OsString;
use std::io::{self, Stdout, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, MouseButton, MouseEventKind};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute, style::Print};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Rect, Size};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGURG};
use signal_hook::iterator::Signals;

use super::model::Colours;
use super::model::{Event, UiEnd};
use super::pointing::{Mouse, Pointing};
use super::run::Setup;
use crate::capture::usual_size;
use crate::config::NoticeSequence;
use crate::os::signals::{self, Signal, stop_group};
use crate::sessions::poller::catches_panics;
use crate::text::doc::{Doc, Role};
use crate::text::plain;

/// Longest text for the clipboard, in bytes: terminals accept about 74,994 characters of base64.
const COPY_BYTES_MAX: usize = 56_000;

/// Exit status after a panic, as of any Rust program.
const PANICKED: i32 = 101;

/// How long the loop may take to end by itself.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// How often the thread that reads keys checks whether it has to pause.
const KEYS_POLL: Duration = Duration::from_millis(100);

/// A key is alone if no other comes for this long before and after it.
///
/// Pasted text comes at once, and programs that type wait 10 ms (AutoHotkey), 12 ms (xdotool) or 25 ms (KeePassXC) between two keys
/// by default. A typist of 200 words a minute presses a key every 60 ms, and a delay of less than 100 ms is not felt.
const ALONE: Duration = Duration::from_millis(50);

/// How long to wait for that thread to pause. After this it is blocked on the full channel and reads nothing either.
const PAUSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A pager that exits within this time did not wait for a reader.
const READ_MIN: Duration = Duration::from_millis(300);

/// Clicks and the wheel, in the encoding without a column limit. Movements are not reported.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// Saves and restores the terminal's title. A terminal without this feature ends up without a title.
const TITLE_SAVE: &str = "\x1b[22;0t";
const TITLE_RESTORE: &str = "\x1b]0;\x07\x1b[23;0t";

/// Number of pagers that own the terminal, or owned it at the last signal. Signals from keys are meant for them.
static PAGING: AtomicUsize = AtomicUsize::new(0);

/// We send ourselves this signal when a pager has ended. The thread below handles pending signals in numerical order, so this
/// one comes after an earlier signal from a key.
const PAGED: i32 = SIGURG;

/// The terminal while we own it.
pub(super) struct OwnedTerminal {
    pub(super) terminal: Terminal<Surface>,
    mouse: Mouse,
    title: String,
}

impl OwnedTerminal {
    /// Acquires the terminal. From now on a panic that nobody catches restores it, reports itself and ends the program, because
    /// nothing can be drawn on a restored terminal.
    pub(super) fn take() -> io::Result<OwnedTerminal> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if catches_panics() {
                return;
            }
            give_back();
            before(panic);
            std::process::exit(PANICKED);
        }));
        enter(Mouse::Taken)?;
        let terminal = Terminal::new(Surface(CrosstermBackend::new(io::stdout()))).inspect_err(|_| give_back())?;
        Ok(OwnedTerminal { terminal, mouse: Mouse::Taken, title: String::new() })
    }

    /// Acquires it again, whatever has changed meanwhile.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enter(self.mouse)?;
        self.title.clear();
        // Redraws everything. `clear` would query the cursor, and the reply would arrive as a key.
        let Size { width, height } = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, width, height))
    }

    /// Restores the terminal, stops our process group, and acquires it again when the shell continues us. Without a shell that
    /// can do that, the kernel does not stop us.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        give_back();
        stop_group()?;
        self.retake()
    }

    /// Copies text to the clipboard, up to the limit of terminals.
    pub(super) fn copy(&mut self, text: &str) -> io::Result<()> {
        let text = &text[..text.floor_char_boundary(COPY_BYTES_MAX)];
        write(&format!("\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text)))
    }

    pub(super) fn ring(&mut self) -> io::Result<()> {
        write("\x07")
    }

    /// Has the terminal show a notification.
    pub(super) fn notify(&mut self, sequence: NoticeSequence, text: &str) -> io::Result<()> {
        write(&notification(sequence, text))
    }

    /// Takes the mouse, or leaves it to the terminal.
    pub(super) fn point(&mut self, mouse: Mouse) -> io::Result<()> {
        self.mouse = mouse;
        write(if mouse == Mouse::Taken { MOUSE_ON } else { MOUSE_OFF })
    }

    /// Sets the terminal's title if it has changed.
    pub(super) fn name(&mut self, title: &str) -> io::Result<()> {
        if self.title == title {
            return Ok(());
        }
        self.title = title.to_owned();
        let title: String = title.chars().filter(|char| !char.is_control()).collect();
        write(&format!("\x1b]0;{title}\x07"))
    }

    /// Shows a document in the user's pager. The inner error says why the pager failed.
    pub(super) fn page(&mut self, doc: &Doc, setup: &Setup) -> io::Result<Result<(), String>> {
        PAGING.fetch_add(1, Ordering::SeqCst);
        give_back();
        let result = paged(doc, setup);
        signals::raise(Signal::URG)?;
        self.retake()?;
        Ok(result)
    }
}

impl Drop for OwnedTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// The terminal on stdout. One that reports no size has the usual one.
pub(super) struct Surface(CrosstermBackend<Stdout>);

impl Backend for Surface {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        self.0.draw(content)
    }

    fn append_lines(&mut self, lines: u16) -> io::Result<()> {
        self.0.append_lines(lines)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.0.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.0.clear_region(region)
    }

    fn size(&self) -> io::Result<Size> {
        let Size { width, height } = self.0.size()?;
        Ok(usual_size(width, height).into())
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let WindowSize { columns_rows: Size { width, height }, pixels } = self.0.window_size()?;
        Ok(WindowSize { columns_rows: usual_size(width, height).into(), pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

/// Most characters of a notification.
const NOTICE_CHARS_MAX: usize = 200;

/// The sequence with its text. The text has no character that ends or splits the sequence, and does not begin as a command of
/// another terminal that uses the same sequence.
fn notification(sequence: NoticeSequence, text: &str) -> String {
    let text = plain(text).replace(';', ",");
    let text: String = text.chars().filter(|char| !char.is_control()).take(NOTICE_CHARS_MAX).collect();
    match sequence {
        NoticeSequence::Osc9 => format!("\x1b]9;codex-shim: {text}\x07"),
        NoticeSequence::Osc777 => format!("\x1b]777;notify;codex-shim;{text}\x07"),
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn enter(mouse: Mouse) -> io::Result<()> {
    enable_raw_mode()?;
    let on = if mouse == Mouse::Taken { MOUSE_ON } else { "" };
    let title = Print(TITLE_SAVE);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, title, Print(on), cursor::Hide)
        .inspect_err(|_| give_back())
}

/// Restores the terminal. Errors are ignored, because it may be gone.
fn give_back() {
    let (mouse, title) = (Print(MOUSE_OFF), Print(TITLE_RESTORE));
    let _ = execute!(io::stdout(), mouse, DisableBracketedPaste, title, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// The user's pager, a shell command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pager {
    command: OsString,
    /// The user has own settings for `less`.
    has_less: bool,
}

impl Pager {
    /// The pager in `PAGER` with the settings in `LESS`.
    pub(crate) fn of(pager: Option<OsString>, less: Option<&OsString>) -> Pager {
        let command = pager.filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less -R".into());
        Pager { command, has_less: less.is_some() }
    }

    /// Runs the pager on what `write` writes, and waits for its end.
    ///
    /// # Errors
    ///
    /// The reason why there is no such pager, for the user.
    pub(crate) fn show(&self, write: impl FnOnce(ChildStdin) -> io::Result<()>) -> Result<(), String> {
        let name = self.command.to_string_lossy();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).stdin(Stdio::piped());
        if !self.has_less {
            // Passes colours through, as git does.
            command.env("LESS", "R");
        }
        let mut child = command.spawn().map_err(|error| format!("start the pager `{name}`: {error}"))?;
        if let Some(stdin) = child.stdin.take() {
            // The user may leave the pager early.
            let _ = write(stdin);
        }
        let status = child.wait().map_err(|error| format!("wait for the pager `{name}`: {error}"))?;
        match status.code() {
            Some(126 | 127) => Err(format!("the pager `{name}` cannot be run; set PAGER")),
            _ => Ok(()),
        }
    }
}

/// Shows a document in the pager.
fn paged(doc: &Doc, setup: &Setup) -> Result<(), String> {
    let began = Instant::now();
    setup.pager.show(|stdin| print(doc, setup.colours, io::BufWriter::new(stdin)))?;
    if began.elapsed() < READ_MIN {
        let name = setup.pager.command.to_string_lossy();
        return Err(format!("the pager `{name}` ended at once; set PAGER to one that waits, such as less"));
    }
    Ok(())
}

fn print(doc: &Doc, colours: Colours, mut out: impl Write) -> io::Result<()> {
    for line in 0..doc.len() {
        for (text, role) in doc.pieces_of(line) {
            match code(role).filter(|_| colours == Colours::Some) {
                Some(code) => write!(out, "\x1b[{code}m{text}\x1b[0m")?,
                None => out.write_all(text.as_bytes())?,
            }
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn code(role: Role) -> Option<u8> {
    match role {
        Role::Plain | Role::Emphasis | Role::Reversed => None,
        Role::Faint | Role::Link => Some(2),
        Role::Strong | Role::Title | Role::Heading | Role::Subheading => Some(1),
        Role::Good => Some(32),
        Role::Bad => Some(31),
        Role::Warning | Role::Badge => Some(33),
        Role::Info | Role::Code => Some(36),
        Role::User => Some(34),
        Role::Model => Some(35),
    }
}

/// Pauses the thread that reads keys.
#[derive(Debug, Clone)]
pub(super) struct Keys(Arc<(Mutex<Reads>, Condvar)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    On,
    /// A pause was requested.
    Pausing,
    Paused,
}

/// No one reads keys until this is dropped.
#[derive(Debug)]
pub(super) struct Pause(Keys);

impl Keys {
    fn state(&self) -> MutexGuard<'_, Reads> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pause(&self) -> Pause {
        let mut state = self.state();
        *state = Reads::Pausing;
        let is_pausing = |state: &mut Reads| *state == Reads::Pausing;
        drop(self.0.1.wait_timeout_while(state, PAUSE_WAIT_MAX, is_pausing));
        Pause(self.clone())
    }

    /// Blocks during a pause. Returns whether there was one.
    fn heed(&self) -> bool {
        let mut state = self.state();
        let is_pausing = *state == Reads::Pausing;
        if is_pausing {
            *state = Reads::Paused;
            self.0.1.notify_all();
            drop(self.0.1.wait_while(state, |state| *state != Reads::On));
        }
        is_pausing
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        *self.0.state() = Reads::On;
        self.0.0.1.notify_all();
    }
}

/// Sends events for keys, the mouse, and the screen's size.
pub(super) fn listen(events: SyncSender<Event>) -> io::Result<Keys> {
    let keys = Keys(Arc::new((Mutex::new(Reads::On), Condvar::new())));
    let pauses = keys.clone();
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        // When the last key came, until it has been quiet since. Keys that wait already were typed ahead.
        let mut key_at = Some(Instant::now());
        loop {
            if pauses.heed() {
                key_at = Some(Instant::now());
            }
            // After a long wait for room in the channel the terminal is still asked once: a key there followed at once.
            let wait = key_at.map_or(KEYS_POLL, |at| ALONE.saturating_sub(at.elapsed()));
            let told = match event::poll(wait).and_then(|is_there| is_there.then(event::read).transpose()) {
                Ok(None) if key_at.take_if(|at| at.elapsed() >= ALONE).is_some() => Event::Quiet,
                Ok(None) => continue,
                Ok(Some(event)) => match told(event) {
                    Some(told) => {
                        if matches!(told, Event::Key(_) | Event::Pasted(_)) {
                            key_at = Some(Instant::now());
                        }
                        told
                    }
                    None => continue,
                },
                // The terminal is gone.
                Err(_) => Event::Ended(UiEnd::Signal(SIGHUP)),
            };
            let is_end = matches!(told, Event::Ended(_));
            if events.send(told).is_err() || is_end {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn told(event: event::Event) -> Option<Event> {
    match event {
        event::Event::Key(key) => Some(Event::Key(key)),
        event::Event::Paste(text) => Some(Event::Pasted(text)),
        event::Event::Resize(width, height) => Some(Event::Resized(usual_size(width, height).into())),
        event::Event::Mouse(mouse) => {
            let does = match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => Pointing::Click,
                MouseEventKind::ScrollUp => Pointing::WheelUp,
                MouseEventKind::ScrollDown => Pointing::WheelDown,
                MouseEventKind::Down(MouseButton::Middle | MouseButton::Right)
                | MouseEventKind::Up(_)
                | MouseEventKind::Drag(_)
                | MouseEventKind::Moved
                | MouseEventKind::ScrollLeft
                | MouseEventKind::ScrollRight => return None,
            };
            Some(Event::Pointed(Position::new(mouse.column, mouse.row), does))
        }
        event::Event::FocusGained | event::Event::FocusLost => None,
    }
}

/// Sends events for signals. If the loop hangs after a fatal signal, because its terminal accepts no output, this ends the
/// program.
pub(super) fn heed_signals(events: SyncSender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT, PAGED])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let is_paging = PAGING.load(Ordering::SeqCst) > 0;
            match signal {
                PAGED if is_paging => drop(PAGING.fetch_sub(1, Ordering::SeqCst)),
                PAGED => {}
                // Ctrl-Z in the pager stops the pager and us: the terminal goes back to the shell.
                SIGTSTP if is_paging => drop(stop_group()),
                SIGINT | SIGQUIT | SIGCONT if is_paging => {}
                SIGTSTP => drop(events.send(Event::Stopped)),
                SIGCONT => drop(events.send(Event::Continued)),
                ending => {
                    let _ = events.try_send(Event::Ended(UiEnd::Signal(ending)));
                    // Normally the loop ends the process during this sleep. The sleep completes only if the loop hangs in a
                    // write.
                    std::thread::sleep(END_WAIT_MAX);
                    give_back();
                    std::process::exit(128 + ending);
                }
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Makes the test's child process panic.
    const PANICS: &str = "CODEX_SHIM_TEST_PANICS";

    #[expect(clippy::disallowed_methods, reason = "a test that starts itself is told so by its environment")]
    fn is_to_panic() -> bool {
        std::env::var_os(PANICS).is_some()
    }

    #[test]
    fn notification_cannot_be_left() {
        let text = "proj: run \u{1b}]0;x\u{7}4;1\u{9c}\u{202e}é";
        let (osc9, osc777) = (notification(NoticeSequence::Osc9, text), notification(NoticeSequence::Osc777, text));
        for (shown, head) in [(osc9, "\u{1b}]9;codex-shim: "), (osc777, "\u{1b}]777;notify;codex-shim;")] {
            let text = shown.strip_prefix(head).and_then(|rest| rest.strip_suffix('\u{7}'));
            let text = text.unwrap_or_else(|| panic!("{shown:?}"));
            assert!(text.starts_with("proj: run ") && text.ends_with('é'), "{text:?}");
            assert!(!text.contains(|char: char| char.is_control() || char == ';'), "{text:?}");
        }
        assert!(notification(NoticeSequence::Osc9, &"x".repeat(1_000)).len() < 300);
    }

    #[test]
    fn panic_restores_the_terminal_and_exits() {
        if is_to_panic() {
            let _screen = OwnedTerminal::take().expect("there is a terminal");
            assert!(!tcgetattr(std::io::stdin()).expect("a terminal").local_modes.contains(LocalModes::ICANON));
            // A panic in any thread ends the program, and with it this wait.
            let _ = std::thread::spawn(|| panic!("as it was to be")).join();
            return;
        }
        let (ours, theirs) = crate::os::terminals::pair().expect("a terminal");
        let stdio = || Stdio::from(theirs.try_clone().expect("it is open"));
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "--nocapture", "--test-threads=1"]);
        child.arg("tui::terminal::tests::panic_restores_the_terminal_and_exits");
        child.env(PANICS, "1").env("RUST_BACKTRACE", "0").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let status = child.status().expect("it runs");
        assert_eq!(status.code(), Some(PANICKED));
        let modes = tcgetattr(&theirs).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
        // Reading ends once every writer is closed.
        drop((child, theirs));
        let mut shown = Vec::new();
        let _ = File::from(ours).read_to_end(&mut shown);
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let at = |words: &str| shown.find(words).unwrap_or_else(|| panic!("{words:?} is not in {shown:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?1049l") < at("as it was to be"), "{shown:?}");
        assert!(at("\x1b[?1049l") < shown.rfind("\x1b[?25h").unwrap_or_default(), "{shown:?}");
    }
}
