//! Ships the events of one session: page by page, oldest first. The next page is read once the server has stored the one before.
//!
//! Messages of a page are sent without waiting for each other. If the connection breaks, some may be stored and earlier ones not;
//! the page is then sent again from the first one that is missing, under the same ids. So a message may be stored after one with a
//! higher number, but never more than a page late, and readers sort by number.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use super::cursors::Cursor;
use super::page::{Of, Outgoing, is_last, is_unreadable, outgoing, query};
use super::told::Trouble;
use super::{Shared, locked};
use crate::control::client::{self, ClientError};
use crate::fleet::connection::{ACK_WAIT_MAX, Link, backoff, in_words};
use crate::fleet::subject;
use crate::sessions::source::end_of_journal;
use crate::sessions::stopped::Read;
use crate::store::Found;

/// Polling interval of the end of a live session's journal.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Polling interval of a live session whose journal does not change.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Failures to read a stopped session after which it is left alone for a while.
const UNREADABLE_MAX: u32 = 5;

/// The reason why the agent stops following a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All is shipped.
    Shipped,
    /// Its folder is gone.
    Gone,
    Unreadable,
}

/// Whether a session has more to ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shipped {
    Page,
    All,
}

/// Why a page was not shipped.
#[derive(Debug)]
enum Failed {
    /// The history cannot be read.
    Read(String),
    /// The server has not stored it.
    Publish(String),
}

/// Ships a session until it has stopped and all of it is shipped.
pub(super) async fn follow(shared: Arc<Shared>, found: Found) -> Ended {
    let mut traffic = Traffic::default();
    let (mut failures, mut unreadable) = (0, 0);
    let mut read = Some(shared.read(&found));
    loop {
        traffic.look(&found);
        let is_live = is_live(&found).await;
        if is_gone(&found).await {
            return Ended::Gone;
        }
        match ship_page(&shared, &found, is_live, &mut read).await {
            Ok(Shipped::Page) => (failures, unreadable) = (0, 0),
            Ok(Shipped::All) => {
                shared.mended(&Trouble::Session(found.id.clone()));
                if !is_live {
                    return Ended::Shipped;
                }
                (failures, unreadable) = (0, 0);
                traffic.wait(&found).await;
            }
            Err(Failed::Read(why)) => {
                tracing::debug!(%why, session = found.id, "a page of events");
                unreadable += 1;
                if unreadable >= UNREADABLE_MAX && !is_live {
                    let message = format!("session {} is not shipped: {why}; trying again later", found.id);
                    shared.tell(Trouble::Session(found.id), &message);
                    return Ended::Unreadable;
                }
                sleep(backoff(unreadable)).await;
            }
            Err(Failed::Publish(why)) => {
                failures += 1;
                shared.tell(Trouble::Events, &format!("events are not shipped now: {why}; trying again"));
                sleep(backoff(failures)).await;
            }
        }
    }
}

pub(super) async fn is_live(found: &Found) -> bool {
    let found = found.clone();
    tokio::task::spawn_blocking(move || found.is_still_live()).await.unwrap_or_default()
}

/// Whether the session was deleted. A folder that cannot be read now is not.
async fn is_gone(found: &Found) -> bool {
    let dir = found.dir.clone();
    let looked = tokio::task::spawn_blocking(move || dir.symlink_metadata()).await;
    looked.is_ok_and(|looked| looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound))
}

/// Waits for a place for a page in memory. A relay that does not answer is waited for without one.
async fn place<'a>(
    pages: &'a Semaphore,
    found: &Found,
    is_live: bool,
) -> Result<Option<SemaphorePermit<'a>>, ClientError> {
    if is_live
        && let Err(error) = client::probed(&found.dir).await
        && error.is_silence()
    {
        return Err(error);
    }
    Ok(pages.acquire().await.ok())
}

/// Reads the page after the cursor and has it stored.
async fn ship_page(
    shared: &Arc<Shared>,
    found: &Found,
    is_live: bool,
    read: &mut Option<Read>,
) -> Result<Shipped, Failed> {
    // Without a server, or beside another agent of this name, nothing is read, so that nothing waits in memory.
    shared.is_only().await;
    let place = place(&shared.pages, found, is_live).await;
    let Some(_one) = place.map_err(|silent| Failed::Read(silent.to_string()))? else { return Ok(Shipped::All) };
    let after = locked(&shared.cursors).sessions.get(&found.id).cloned();
    let (mut own, query) = (read.take().unwrap_or_else(|| shared.read(found)), query(after.as_ref()));
    let asked = tokio::task::spawn_blocking(move || (own.query_recorded(&query), own)).await;
    let (page, own) = asked.map_err(|_| Failed::Read("it cannot be read".to_owned()))?;
    *read = Some(own);
    let page = page.map_err(|error| Failed::Read(error.to_string()))?;
    let Some(page) = page else { return Ok(Shipped::All) };
    let of = Of { host: &shared.member.host, session: &found.id, level: shared.member.level };
    let (is_unreadable, is_last) = (is_unreadable(&page), is_last(&page));
    let outgoing = outgoing(&page, after.as_ref(), of);
    drop(page);
    let count = outgoing.len();
    if count > 0 {
        let (stored, failure) = publish(shared, found, outgoing).await;
        if let Some(last) = stored {
            shared.put_cursor(&found.id, last);
        }
        if let Some(why) = failure {
            return Err(Failed::Publish(why));
        }
        shared.mended(&Trouble::Events);
    }
    match (is_unreadable, is_last) {
        (true, _) => Err(Failed::Read("its history cannot be read now".to_owned())),
        (false, true) => Ok(Shipped::All),
        (false, false) => Ok(Shipped::Page),
    }
}

/// Publishes messages; returns the cursor of the last one up to which all are stored, and why a later one is not.
async fn publish(shared: &Shared, found: &Found, outgoing: Vec<Outgoing>) -> (Option<Cursor>, Option<String>) {
    let subject = subject::events_of(&shared.member.host, &found.id);
    let mut sent: Vec<(Cursor, PublishAckFuture)> = Vec::with_capacity(outgoing.len());
    let mut failure = None;
    for Outgoing { id, payload, cursor } in outgoing {
        let message = PublishMessage::build().message_id(id).payload(payload.into());
        match timeout(ACK_WAIT_MAX, shared.jetstream.send_publish(subject.clone(), message)).await {
            Ok(Ok(ack)) => sent.push((cursor, ack)),
            Ok(Err(error)) => {
                failure = Some(error.to_string());
                break;
            }
            Err(_) => {
                failure = Some("the connection takes no more".to_owned());
                break;
            }
        }
    }
    let mut link = shared.connection.link.clone();
    let mut stored = None;
    for (cursor, ack) in sent {
        let acknowledged = tokio::select! {
            acknowledged = timeout(ACK_WAIT_MAX, ack.into_future()) => acknowledged,
            _ = link.wait_for(|link| *link == Link::Down) => return (stored, Some("the connection is lost".to_owned())),
        };
        match acknowledged {
            Ok(Ok(_)) => stored = Some(cursor),
            Ok(Err(error)) => return (stored, Some(in_words(&error, subject::EVENTS_STREAM))),
            Err(_) => return (stored, Some("the server does not acknowledge".to_owned())),
        }
    }
    (stored, failure)
}

/// Notices that a relay has recorded something, by the end of its journal.
#[derive(Default)]
pub(super) struct Traffic {
    end: (String, u64),
}

impl Traffic {
    /// Notes the end; returns whether it has moved.
    pub(super) fn look(&mut self, found: &Found) -> bool {
        let end = end_of_journal(found);
        std::mem::replace(&mut self.end, end.clone()) != end
    }

    pub(super) async fn wait(&mut self, found: &Found) {
        let began = Instant::now();
        while began.elapsed() < ASK_EVERY {
            sleep(LOOK_EVERY).await;
            if self.look(found) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::SystemTime;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;
    use crate::control::SOCKET_FILE;

    /// A relay that listens and does not answer, as one that was stopped, costs nobody a place.
    #[tokio::test]
    async fn silent_relay_has_no_place_for_a_page() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("our own folder");
        let relay = UnixListener::bind(dir.path().join(SOCKET_FILE)).expect("a socket");
        let (id, last_used) = ("s".to_owned(), SystemTime::UNIX_EPOCH);
        let dir = dir.path().to_owned();
        let found = Found { id, dir, live: true, holder: None, repository: None, threads: None, last_used };
        let pages = Semaphore::new(1);
        let answers = async |answer: &[u8]| {
            let (mut asked, _) = relay.accept().await.expect("a connection");
            let _ = asked.read(&mut [0; 256]).await.expect("a question");
            let places = pages.available_permits();
            asked.write_all(answer).await.expect("the agent waits");
            (places, asked)
        };
        // Its connection stays open.
        let (taken, (places, _asked)) = tokio::join!(place(&pages, &found, true), answers(b""));
        assert_eq!((taken.is_err(), places), (true, 1));
        let (taken, (places, _asked)) =
            tokio::join!(place(&pages, &found, true), answers(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(matches!(taken, Ok(Some(_))) && places == 1);
        assert_eq!(pages.available_permits(), 0);
    }
}
