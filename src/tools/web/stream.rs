//! The stream of a tab (Server-Sent Events): the inbox, then its changes, and the timeline of the session that the tab shows.
//!
//! A tab has one connection for both, because browsers open few to one address. The state to send is looked up when the tab can
//! take it, so a slow tab costs nothing but its connection. It ends when its browser is signed out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};

use super::access::Visitor;
use super::inbox::{self, Changes};
use super::routes::App;
use super::timeline::{TimelineReader, Told, Wanted};
use crate::control;
use crate::store::Found;

/// Interval of the event that shows that the connection lives, and of the check of the cookie.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Shortest time between two looks for changes. Changes in between are sent together.
const TOGETHER: Duration = Duration::from_millis(25);

/// Events that wait for a slow tab. An event can be as long as the inbox.
const EVENTS_MAX: usize = 1;

/// When a tab connects again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The tab is gone.
struct Gone;

type Sender = mpsc::Sender<Event>;

/// The timeline of a stream.
pub(super) enum Timeline {
    /// The tab shows the inbox only.
    None,
    Read(TimelineReader),
    /// Tabs show too many other sessions. The tab has the inbox, and the timeline as soon as there is room.
    TooMany(Box<Found>, Wanted),
}

/// Starts a stream.
pub(super) fn start(app: Arc<App>, visitor: Visitor, timeline: Timeline) -> Response {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    tokio::spawn(async move {
        let _ = run(&app, &visitor, timeline, sender).await;
    });
    let events = stream::poll_fn(move |context| events.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>)));
    let headers = [(header::CONNECTION, "close")];
    (headers, Extension(control::Stream), Sse::new(events)).into_response()
}

async fn run(app: &App, visitor: &Visitor, timeline: Timeline, sender: Sender) -> Result<(), Gone> {
    let (mut timeline, mut waiting) = match timeline {
        Timeline::None => (None, None),
        Timeline::Read(reader) => (Some(reader), None),
        Timeline::TooMany(found, wanted) => (None, Some((found, wanted))),
    };
    let _open = app.inbox.reader();
    let mut inbox_changed = app.inbox.changed();
    let mut timeline_changed = timeline.as_ref().map(TimelineReader::changed);
    let mut signed_out = app.signed_out.subscribe();
    let mut alive = interval(ALIVE_EVERY);
    alive.reset();
    // hyper sends the head with the first event.
    send(&sender, Event::default().retry(RETRY_AFTER).event("alive").data(json!({ "now": inbox::now() }).to_string()))
        .await?;
    if let Some((found, _)) = &waiting {
        let message = "too many sessions are open; close a tab that shows another one, and this one appears";
        let json = json!({ "session": found.id, "message": message }).to_string();
        send(&sender, event_of(Told::Problem { json })).await?;
    }
    app.inbox.refresh().await;
    let (mut seen, snapshot) = app.inbox.snapshot();
    send(&sender, Event::default().event("inbox").data(snapshot)).await?;
    loop {
        inbox_changed.borrow_and_update();
        timeline_changed.iter_mut().for_each(|changed| drop(changed.borrow_and_update()));
        seen = send_inbox(app, seen, &sender).await?;
        for told in timeline.iter_mut().flat_map(TimelineReader::take) {
            send(&sender, event_of(told)).await?;
        }
        sleep(TOGETHER).await;
        let timeline_changes = async {
            match &mut timeline_changed {
                Some(changed) => changed.changed().await.map_err(|_| Gone),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sender.closed() => return Err(Gone),
            changed = inbox_changed.changed() => changed.map_err(|_| Gone)?,
            changed = timeline_changes => changed?,
            _ = signed_out.changed() => {}
            _ = alive.tick() => {
                let now = json!({ "now": inbox::now() }).to_string();
                send(&sender, Event::default().event("alive").data(now)).await?;
                let reader = waiting.as_ref().and_then(|(found, wanted)| app.follows.reader(found, wanted.clone(), None));
                if let Some(reader) = reader {
                    timeline_changed = Some(reader.changed());
                    timeline = Some(reader);
                    waiting = None;
                }
            }
        }
        if !app.is_signed_in(visitor) {
            return Ok(());
        }
    }
}

/// Sends the changes of the inbox after `seen`; returns the last one.
async fn send_inbox(app: &App, seen: u64, sender: &Sender) -> Result<u64, Gone> {
    let Some(Changes { change, sessions, requests, ended }) = app.inbox.since(seen) else {
        let (change, snapshot) = app.inbox.snapshot();
        send(sender, Event::default().event("inbox").data(snapshot)).await?;
        return Ok(change);
    };
    if let Some(sessions) = sessions {
        send(sender, Event::default().event("sessions").data(sessions)).await?;
    }
    for (name, texts) in [("request", requests), ("ended", ended)] {
        for text in texts {
            send(sender, Event::default().event(name).data(&*text)).await?;
        }
    }
    Ok(change)
}

fn event_of(told: Told) -> Event {
    match told {
        Told::Timeline { json, id } => Event::default().event("timeline").id(id).data(json),
        Told::Entries { json, id } => Event::default().event("entries").id(id).data(json),
        Told::Problem { json } => Event::default().event("problem").data(json),
    }
}

async fn send(sender: &Sender, event: Event) -> Result<(), Gone> {
    sender.send(event).await.map_err(|_| Gone)
}
