//! The loop: waits for something to happen, has the model updated, does what it wants, and draws.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use ratatui::layout::Size;

use super::model::{Colours, Command, Ending, Event, Model, News};
use super::poller::{self, Errand, Looking};
use super::reader::{self, Following, Pages, Teller};
use super::steps::attach;
use super::terminal::{self, Screen};
use super::update::update;
use super::view::view;
use crate::store::Found;

/// Events that may wait for the loop.
const WAITING_MAX: usize = 256;

/// Events that are taken before the screen is drawn again.
const AT_ONCE_MAX: usize = 512;

/// How often times on the screen go on.
const TICK: Duration = Duration::from_secs(1);

/// How often the screen is drawn at most, so that a storm costs no more than this.
const FRAME: Duration = Duration::from_millis(33);

/// What is shown first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The list of the sessions.
    List,
    /// A session, by its id.
    Session(String),
}

/// What the loop has running beside it.
struct Beside {
    home: PathBuf,
    events: SyncSender<Event>,
    list: Option<Looking>,
    attached: Option<Attached>,
}

struct Attached {
    dir: PathBuf,
    teller: Teller,
    looking: Looking,
    pages: Pages,
    /// Held for as long as it is to go on.
    _following: Option<Following>,
}

/// What becomes of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    Ends(Ending),
}

/// Runs the terminal UI on stdin and stdout until its user has enough, or a signal ends it; says which.
///
/// # Errors
///
/// That of the terminal, or of a thread that cannot be started.
pub fn run(home: &Path, start: Start, colours: Colours) -> io::Result<Ending> {
    let (events, happened) = sync_channel(WAITING_MAX);
    let mut screen = Screen::take()?;
    terminal::heed_signals(events.clone())?;
    terminal::listen(events.clone())?;
    let mut beside = Beside { home: home.to_owned(), events, list: None, attached: None };
    let Size { width, height } = screen.terminal.size()?;
    let mut model = Model::new(Size { width, height }, colours, now_us());
    let first = match start {
        Start::List => vec![Command::List],
        Start::Session(id) => attach(&mut model, id),
    };
    for command in first {
        beside.carry_out(command, &mut screen)?;
    }
    let mut drawn_at: Option<Instant> = None;
    loop {
        if let Some(wait) = drawn_at.and_then(|at| FRAME.checked_sub(at.elapsed())) {
            // What is waited for is the time itself: the screen is drawn so often and no more, whatever happens.
            std::thread::sleep(wait);
        }
        screen.terminal.draw(|frame| {
            let area = frame.area();
            if let Some(cursor) = view(&model, area, frame.buffer_mut()) {
                frame.set_cursor_position(cursor);
            }
        })?;
        drawn_at = Some(Instant::now());
        let mut event = match happened.recv_timeout(TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Ticked,
            Err(RecvTimeoutError::Disconnected) => return Ok(Ending::Left),
        };
        for _ in 0..AT_ONCE_MAX {
            for command in update(&mut model, now_us(), event) {
                if let Goes::Ends(ending) = beside.carry_out(command, &mut screen)? {
                    return Ok(ending);
                }
            }
            match happened.try_recv() {
                Ok(next) => event = next,
                Err(_) => break,
            }
        }
    }
}

fn now_us() -> u64 {
    poller::us(SystemTime::now())
}

impl Beside {
    fn carry_out(&mut self, command: Command, screen: &mut Screen) -> io::Result<Goes> {
        match command {
            Command::Quit(ending) => return Ok(Goes::Ends(ending)),
            Command::Suspend => screen.stop()?,
            Command::Retake => screen.retake()?,
            Command::Copy(text) => screen.copy(&text)?,
            Command::List => {
                self.attached = None;
                self.list = Some(poller::list(&self.home, self.events.clone())?);
            }
            Command::Attach { id, attachment } => {
                self.list = None;
                self.attached = self.attach(&id, attachment)?;
            }
            Command::Look
            | Command::Follow { .. }
            | Command::ReadOlder(_)
            | Command::ReadNewer(_)
            | Command::Find { .. }
            | Command::Open(_)
            | Command::Respond { .. }
            | Command::Say { .. }
            | Command::Interrupt(_) => {
                if let Some(attached) = &mut self.attached {
                    attached.carry_out(command)?;
                }
            }
        }
        Ok(Goes::On)
    }

    fn attach(&self, id: &str, attachment: u64) -> io::Result<Option<Attached>> {
        let teller = Teller { events: self.events.clone(), attachment };
        let found = Found::all(&self.home).unwrap_or_default().into_iter().find(|found| found.id == id);
        let Some(found) = found else {
            // It was pruned since it was listed. The channel has room: the loop is what empties it.
            let gone = News::Unreadable(format!("session {id} is not there any more"));
            let _ = self.events.try_send(Event::Of(attachment, gone));
            return Ok(None);
        };
        let dir = found.dir.clone();
        Ok(Some(Attached {
            looking: poller::session(found, teller.clone())?,
            pages: Pages::start(&dir, teller.clone())?,
            _following: Some(reader::follow(&dir, 0, teller.clone())?),
            dir,
            teller,
        }))
    }
}

impl Attached {
    fn carry_out(&mut self, command: Command) -> io::Result<()> {
        let errand = match command {
            Command::Look => {
                self.looking.now();
                return Ok(());
            }
            Command::Follow { epoch } => {
                self._following = None;
                self._following = Some(reader::follow(&self.dir, epoch, self.teller.clone())?);
                return Ok(());
            }
            page @ (Command::ReadOlder(_) | Command::ReadNewer(_) | Command::Find { .. } | Command::Open(_)) => {
                self.pages.read(page);
                return Ok(());
            }
            Command::Respond { request_id, body } => Errand::Respond { request_id, body },
            Command::Say { text, thread_id } => Errand::Say { text, thread_id },
            Command::Interrupt(thread_id) => Errand::Interrupt(thread_id),
            Command::Quit(_)
            | Command::Suspend
            | Command::Retake
            | Command::List
            | Command::Attach { .. }
            | Command::Copy(_) => return Ok(()),
        };
        poller::run(errand, self.dir.clone(), self.teller.clone())
    }
}
