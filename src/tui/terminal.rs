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
use ratatui::layout::Size;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::model::Event;

/// Longest text that is handed to a clipboard, in bytes: terminals take about 74,994 letters of base64.
const COPY_BYTES_MAX: usize = 56_000;

/// How long the loop has to end by itself.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// The terminal, while it is ours.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it.
    pub(super) fn take() -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Takes it again, whatever was done to it meanwhile.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enter()?;
        self.terminal.clear()
    }

    /// Gives it back, stops, and takes it again once the shell has us go on.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
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
                Err(_) => Event::Ended,
            };
            let is_end = matches!(told, Event::Ended);
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
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGTSTP => drop(events.send(Event::Stopped)),
                SIGCONT => drop(events.send(Event::Continued)),
                ending => {
                    let _ = events.try_send(Event::Ended);
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
