//! The terminal: taken for as long as the program runs, and given back on every way out.

use std::io::{self, Stdout, Write as _};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::model::{Ending, Event};

/// Longest text that is handed to a clipboard, in bytes: terminals take about 74,994 letters of base64.
const COPY_BYTES_MAX: usize = 56_000;

/// Exit status after a panic, as of any program of Rust.
const PANICKED: i32 = 101;

/// How long the loop has to end by itself.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// The terminal, while it is ours.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it. From here on a panic in whichever thread gives it back, says what it was, and ends the program: on a
    /// terminal that is not its own any more nothing can be drawn.
    pub(super) fn take() -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
            std::process::exit(PANICKED);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Takes it again, whatever was done to it meanwhile.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enter()?;
        // All is drawn anew. `clear` would ask the terminal where its cursor is, and the answer would come as a key.
        let Size { width, height } = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, width, height))
    }

    /// Gives it back, stops with all of our process group, and takes it again once the shell has us go on. Where there is no
    /// shell that could, the kernel stops nobody.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        give_back();
        stop_group()?;
        self.retake()
    }

    /// Hands a text to the clipboard; returns how much of it.
    pub(super) fn copy(&mut self, text: &str) -> io::Result<()> {
        let text = &text[..text.floor_char_boundary(COPY_BYTES_MAX)];
        let mut stdout = io::stdout();
        write!(stdout, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text))?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide).inspect_err(|_| give_back())
}

/// Whatever of it is not ours any more is left as it is.
fn give_back() {
    let _ = execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// As the terminal's own key would: without our handler, so that it does what it does to any program.
#[expect(unsafe_code, reason = "no safe interface takes a handler away and puts it back")]
fn stop_group() -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is valid, and means the default action where it is given; both pointers are to
    // values that live through the call.
    let ours = unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut ours: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGTSTP, &raw const default, &raw mut ours) != 0 {
            return Err(io::Error::last_os_error());
        }
        ours
    };
    let stopped = kill_current_process_group(Signal::TSTP);
    // SAFETY: what is given is what the kernel has told above.
    unsafe { libc::sigaction(SIGTSTP, &raw const ours, std::ptr::null_mut()) };
    Ok(stopped?)
}

/// Tells of keys, and of the screen's size.
pub(super) fn listen(events: SyncSender<Event>) -> io::Result<()> {
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let told = match event::read() {
                Ok(event::Event::Key(key)) => Event::Key(key),
                Ok(event::Event::Paste(text)) => Event::Pasted(text),
                Ok(event::Event::Resize(width, height)) => Event::Resized(Size { width, height }),
                Ok(event::Event::FocusGained | event::Event::FocusLost | event::Event::Mouse(_)) => continue,
                // There is no terminal any more.
                Err(_) => Event::Ended(Ending::Signal(SIGHUP)),
            };
            let is_end = matches!(told, Event::Ended(_));
            if events.send(told).is_err() || is_end {
                return;
            }
        }
    })?;
    Ok(())
}

/// Tells of signals. Where the loop does not end by one that ends us, because its terminal does not take anything any
/// more, it is ended.
pub(super) fn heed_signals(events: SyncSender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGTSTP => drop(events.send(Event::Stopped)),
                SIGCONT => drop(events.send(Event::Continued)),
                ending => {
                    let _ = events.try_send(Event::Ended(Ending::Signal(ending)));
                    // The loop ends the process, and this thread with it; only where it hangs in a write is the time up.
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
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// What makes the process of this test the one that panics.
    const PANICS: &str = "CODEX_SHIM_TEST_PANICS";

    #[expect(clippy::disallowed_methods, reason = "a test that starts itself is told so by its environment")]
    fn is_to_panic() -> bool {
        std::env::var_os(PANICS).is_some()
    }

    #[test]
    fn a_panic_in_any_thread_gives_the_terminal_back_and_ends_the_program() {
        if is_to_panic() {
            let _screen = Screen::take().expect("there is a terminal");
            assert!(!tcgetattr(std::io::stdin()).expect("a terminal").local_modes.contains(LocalModes::ICANON));
            // Whoever panics, the program ends, and with it this wait.
            let _ = std::thread::spawn(|| panic!("as it was to be")).join();
            return;
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it can be used");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        let theirs = File::from(theirs);
        let stdio = || Stdio::from(theirs.try_clone().expect("it is open"));
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "--nocapture", "--test-threads=1"]);
        child.arg("tui::terminal::tests::a_panic_in_any_thread_gives_the_terminal_back_and_ends_the_program");
        child.env(PANICS, "1").env("RUST_BACKTRACE", "0").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let status = child.status().expect("it runs");
        assert_eq!(status.code(), Some(PANICKED));
        let modes = tcgetattr(&theirs).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
        // Once nobody has it open any more, reading ends behind all that was written.
        drop((child, theirs));
        let mut shown = Vec::new();
        let _ = File::from(ours).read_to_end(&mut shown);
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let at = |words: &str| shown.find(words).unwrap_or_else(|| panic!("{words:?} is not in {shown:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?1049l") < at("as it was to be"), "{shown:?}");
        assert!(at("\x1b[?1049l") < shown.rfind("\x1b[?25h").unwrap_or_default(), "{shown:?}");
    }
}
