//! The event loop: waits for an event, updates the model, executes its commands, and draws.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use jiff::tz::TimeZone;
use ratatui::layout::{Rect, Size};

use super::deciding;
use super::lists::Destination;
use super::model::{Colours, Model};
use super::model::{Command, Event, UiEnd};
use super::pressed::attach;
use super::pressed::title;
use super::searching::Folders;
use super::terminal::{self, Keys, OwnedTerminal, Pager};
use super::update::update;
use super::view::view;
use crate::config::NoticeSequence;
use crate::sessions::news::News;
use crate::sessions::poller::{self, Looking};
use crate::sessions::reader::{Following, Gone, Pages, Teller};
use crate::sessions::source::Source;
use crate::store::Found;
use crate::text::Zone;

/// Capacity of the event channel.
const WAITING_MAX: usize = 256;

/// Most events between two drawings.
const AT_ONCE_MAX: usize = 512;

/// How often the times on the screen are updated.
const TICK: Duration = Duration::from_secs(1);

/// [`TICK`] while a spinner turns.
const BUSY_TICK: Duration = Duration::from_millis(120);

/// Shortest time between two drawings, so that a burst of events costs no more.
const FRAME: Duration = Duration::from_millis(33);

/// The first screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirstScreen {
    List,
    /// A session, by its id.
    Session(String),
}

/// Settings from the user's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Whether the screen shows colours.
    pub colours: Colours,
    pub pager: Pager,
    /// Whether the bell rings for a new request.
    pub bell: Bell,
    /// The sequence by which the terminal shows a notification.
    pub notice: Option<NoticeSequence>,
    pub folders: Folders,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bell {
    On,
    Off,
}

/// The threads beside the loop.
struct Beside {
    source: Arc<dyn Source>,
    setup: Setup,
    events: SyncSender<Event>,
    /// Keeps its thread running.
    _list: Looking,
    attached: Option<Attached>,
    keys: Keys,
}

struct Attached {
    source: Arc<dyn Source>,
    found: Found,
    teller: Teller,
    looking: Looking,
    pages: Pages,
    /// Keeps its thread running.
    _following: Option<Following>,
}

/// Whether the loop continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    Ends(UiEnd),
}

/// Runs the terminal UI on stdin and stdout until the user leaves or a signal ends it; returns which.
///
/// # Errors
///
/// The terminal failed, or a thread could not be started.
pub(crate) fn run(source: Arc<dyn Source>, start: FirstScreen, setup: Setup) -> io::Result<UiEnd> {
    let (events, happened) = sync_channel(WAITING_MAX);
    let mut screen = OwnedTerminal::take()?;
    terminal::heed_signals(events.clone())?;
    let keys = terminal::listen(events.clone())?;
    let list = poller::list(&source, {
        let events = events.clone();
        move |rows| events.send(Event::Listed(rows)).map_err(|_| Gone)
    })?;
    let size = screen.terminal.size()?;
    let mut model = Model::new(size, setup.colours, Zone::new(TimeZone::system()), now_us());
    model.folders = setup.folders.clone();
    let mut beside = Beside { source, setup, events, _list: list, attached: None, keys };
    if let FirstScreen::Session(id) = start {
        for command in attach(&mut model, Destination::session(id)) {
            beside.carry_out(command, &mut screen)?;
        }
    }
    let mut drawn_at: Option<Instant> = None;
    loop {
        if let Some(wait) = drawn_at.and_then(|at| FRAME.checked_sub(at.elapsed())) {
            // This limits the frame rate, so there is no condition to wait for.
            std::thread::sleep(wait);
        }
        draw(&mut model, &mut screen)?;
        drawn_at = Some(Instant::now());
        deciding::drawn(&mut model, now_us());
        let tick = if model.is_busy() { BUSY_TICK } else { TICK };
        let mut event = match happened.recv_timeout(tick) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Ticked,
            Err(RecvTimeoutError::Disconnected) => return Ok(UiEnd::Left),
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

fn draw(model: &mut Model, screen: &mut OwnedTerminal) -> io::Result<()> {
    let mut spots = Vec::new();
    screen.terminal.draw(|frame| {
        let area = frame.area();
        let Rect { width, height, .. } = area;
        if model.size != (Size { width, height }) {
            // The terminal was resized, but the event has not arrived yet.
            update(model, model.now_us, Event::Resized(Size { width, height }));
        }
        let drawn = view(model, area, frame.buffer_mut());
        if let Some(cursor) = drawn.cursor {
            frame.set_cursor_position(cursor);
        }
        spots = drawn.spots;
    })?;
    model.spots = spots;
    screen.name(&title(model))
}

fn now_us() -> u64 {
    poller::us(SystemTime::now())
}

impl Beside {
    fn carry_out(&mut self, command: Command, screen: &mut OwnedTerminal) -> io::Result<Goes> {
        match command {
            Command::Quit(ending) => return Ok(Goes::Ends(ending)),
            Command::Suspend => screen.stop()?,
            Command::Retake => screen.retake()?,
            Command::Ring if self.setup.bell == Bell::Off => {}
            Command::Ring => screen.ring()?,
            Command::Notify(text) => {
                if let Some(sequence) = self.setup.notice {
                    screen.notify(sequence, &text)?;
                }
            }
            Command::Mouse(mouse) => screen.point(mouse)?,
            Command::Copy(text) => screen.copy(&text)?,
            Command::Page(doc) => self.page(&doc, screen)?,
            Command::PageDiff(diff) => self.page(&diff.doc, screen)?,
            Command::Detach => self.attached = None,
            Command::Attach { id, attachment } => self.attached = self.attach(&id, attachment)?,
            Command::Look | Command::Follow { .. } | Command::Read(_) | Command::Call(_) => {
                if let Some(attached) = &mut self.attached {
                    attached.carry_out(command)?;
                }
            }
        }
        Ok(Goes::On)
    }

    /// Runs the user's pager on a document. Nothing else reads keys meanwhile, and events wait.
    fn page(&mut self, doc: &crate::text::doc::Doc, screen: &mut OwnedTerminal) -> io::Result<()> {
        let pause = self.keys.pause();
        let result = screen.page(doc, &self.setup)?;
        drop(pause);
        // The channel may be full, and this loop is the one that empties it.
        let _ = self.events.try_send(Event::Paged(result));
        Ok(())
    }

    fn attach(&self, id: &str, attachment: u64) -> io::Result<Option<Attached>> {
        let events = self.events.clone();
        let teller = Teller::new(move |news| events.send(Event::Of(attachment, news)).map_err(|_| Gone));
        let found = self.source.all().into_iter().find(|found| found.id == id);
        let Some(found) = found else {
            // The session was deleted after the list was read. The channel has room, because the loop empties it.
            let gone = News::Unreadable(format!("session {id} does not exist any more"));
            let _ = self.events.try_send(Event::Of(attachment, gone));
            return Ok(None);
        };
        let source = Arc::clone(&self.source);
        Ok(Some(Attached {
            looking: poller::session(Arc::clone(&source), found.clone(), teller.clone())?,
            pages: Pages::start(&*source, &found, teller.clone())?,
            _following: Some(source.follow(&found, 0, teller.clone())?),
            source,
            found,
            teller,
        }))
    }
}

impl Attached {
    fn carry_out(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Look => self.looking.now(),
            Command::Follow { epoch } => {
                self._following = None;
                self._following = Some(self.source.follow(&self.found, epoch, self.teller.clone())?);
            }
            Command::Read(wanted) => self.pages.read(wanted),
            Command::Call(call) => {
                poller::run(call, Arc::clone(&self.source), self.found.clone(), self.teller.clone())?;
            }
            Command::Quit(_)
            | Command::Suspend
            | Command::Retake
            | Command::Ring
            | Command::Notify(_)
            | Command::Mouse(_)
            | Command::Page(_)
            | Command::PageDiff(_)
            | Command::Detach
            | Command::Attach { .. }
            | Command::Copy(_) => {}
        }
        Ok(())
    }
}
