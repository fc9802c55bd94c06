//! Describes the host in two buckets: itself, and its pending requests. No answer is decided by them, and they are written again after
//! every loss.
//!
//! The description of the host also claims its name, see [`super::claim`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use tokio::time::{sleep, timeout};

use super::claim::{Act, Claim, Fate, Next, SEEN_EVERY, Standing};
use super::cursors::NameFile;
use super::told::Trouble;
use super::{Shared, locked};
use crate::control::sort_by_arrival;
use crate::fleet::connection::{Link, backoff, in_words, stored};
use crate::fleet::level;
use crate::fleet::subject::{HOSTS_BUCKET, PENDING_BUCKET, key, stream_of};
use crate::fleet::wire::{self, HostDocument, MESSAGE_BYTES_MAX, PendingDocument, PendingRow, VERSION};

/// Pause after a change, in which further ones are collected.
const SETTLES_AFTER: Duration = Duration::from_millis(100);

/// Most pending requests in the list.
const PENDING_MAX: usize = 1_000;

/// A description on its way. The agent sends it again under the same id until it knows its fate: the server recognizes
/// the id.
struct Sent {
    act: Act,
    id: String,
    known: u64,
    payload: Vec<u8>,
}

/// Claims the name of the host, and describes it, until the process ends.
pub(super) async fn hold(shared: &Arc<Shared>) {
    let mut link = shared.connection.link.clone();
    let mut claim = Claim::new(NameFile::load(&shared.home, &shared.member.host).number);
    let mut act = Act::Claim;
    let mut repeated: Option<Sent> = None;
    loop {
        let _ = link.wait_for(|link| *link == Link::Up).await;
        let is_repeated = repeated.is_some();
        let sent = repeated.take().unwrap_or_else(|| description(shared, &claim, act));
        let fate = store_description(shared, &sent).await;
        let next = claim.learns(sent.act, fate, Instant::now());
        keep(shared, &claim).await;
        shared.standing.send_replace(claim.standing);
        tell_of_name(shared, &claim);
        act = match next {
            Next::Now(act) => act,
            // The stored description may be old.
            Next::After(_, act) if is_repeated && claim.standing != Standing::Waits => act,
            Next::After(wait, act) => {
                waits(shared, wait, &mut claim).await;
                act
            }
            Next::Again(failures, act) => {
                repeated = Some(sent);
                waits(shared, backoff(failures), &mut claim).await;
                act
            }
        };
    }
}

/// Waits for the next description: so long, until something changes, or until the connection is lost.
async fn waits(shared: &Shared, wait: Duration, claim: &mut Claim) {
    let mut link = shared.connection.link.clone();
    tokio::select! {
        () = sleep(wait) => {}
        () = shared.host_changed.notified(), if claim.standing == Standing::Only => sleep(SETTLES_AFTER).await,
        // A watch goes on without a link; the next claim waits until the link is back.
        _ = link.wait_for(|link| *link == Link::Down), if claim.standing != Standing::Waits => {
            claim.is_cut();
            shared.standing.send_replace(claim.standing);
        }
    }
}

fn description(shared: &Shared, claim: &Claim, act: Act) -> Sent {
    let host = &shared.member.host;
    let document = HostDocument {
        v: VERSION,
        host: host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        level: shared.member.level.to_string(),
        since: humantime::format_rfc3339_seconds(shared.started_at).to_string(),
        seen_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        agent: shared.id.clone(),
        sessions: locked(&shared.found).iter().filter(|session| session.live).count() as u64,
        pending: locked(&shared.pending).values().map(Vec::len).sum::<usize>() as u64,
        others: act == Act::Challenge || claim.has_others(Instant::now()),
        waited: locked(&shared.cursors).waited(),
    };
    let payload = level::host(&document, shared.member.level);
    Sent { act, id: uuid::Uuid::now_v7().to_string(), known: claim.known, payload }
}

async fn store_description(shared: &Shared, sent: &Sent) -> Fate {
    let subject = key(HOSTS_BUCKET, &shared.member.host);
    let message = PublishMessage::build()
        .message_id(&sent.id)
        .expected_last_subject_sequence(sent.known)
        .payload(sent.payload.clone().into());
    let error = match stored(&shared.jetstream, subject, message).await {
        Some(Ok(ack)) => {
            shared.mended(&Trouble::Description);
            return Fate::Stored(ack.sequence);
        }
        Some(Err(error)) => error,
        None => {
            let message = "this host is not described: the server does not acknowledge; trying again";
            shared.tell(Trouble::Description, message);
            return Fate::Unknown;
        }
    };
    if error.kind() == PublishErrorKind::WrongLastSequence
        && let Some(number) = last_number(&error)
    {
        return Fate::Overtaken(number);
    }
    let why = in_words(&error, &stream_of(HOSTS_BUCKET));
    shared.tell(Trouble::Description, &format!("this host is not described: {why}; trying again"));
    Fate::Unknown
}

/// The number of the last description, which the server names in its refusal.
fn last_number(error: &dyn std::error::Error) -> Option<u64> {
    let source = error.source()?.downcast_ref::<async_nats::jetstream::Error>()?;
    if source.error_code() != ErrorCode::STREAM_WRONG_LAST_SEQUENCE {
        return None;
    }
    numbered(&source.to_string())
}

/// The number in `wrong last sequence: 17`.
fn numbered(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("wrong last sequence: ")?;
    rest.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// Writes the number of the description down, for the next agent of this home.
async fn keep(shared: &Arc<Shared>, claim: &Claim) {
    let others_at = claim.has_others(Instant::now()).then(SystemTime::now);
    let (kept, home) = (NameFile::new(&shared.member.host, claim.known, others_at), shared.home.clone());
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || kept.save(&home)).await {
        shared.tell(Trouble::Cursors, &format!("write below the home: {error}"));
    }
}

fn tell_of_name(shared: &Shared, claim: &Claim) {
    let host = &shared.member.host;
    let message = match (claim.standing, claim.has_others(Instant::now())) {
        (Standing::Waits, true) => format!(
            "another agent runs as host {host}: this one ships and answers nothing until the other has ended; give one of them \
             another name with fleet.host"
        ),
        (Standing::Waits, false) => format!(
            "host {host} was described by another agent: waiting {} s to see whether it still runs",
            super::claim::WATCH.as_secs()
        ),
        (Standing::Only | Standing::Unsure, true) => format!(
            "another agent runs as host {host}: it ships and answers nothing while this one runs; give one of them another name \
             with fleet.host"
        ),
        (Standing::Only, false) => return shared.mended(&Trouble::Name),
        (Standing::Unsure, false) => return,
    };
    shared.tell(Trouble::Name, &message);
}

/// Lists the pending requests until the process ends.
pub(super) async fn list_pending(shared: &Arc<Shared>) {
    let mut failures = 0;
    loop {
        shared.is_only().await;
        let rows: Vec<PendingRow> = locked(&shared.pending).values().flatten().cloned().collect();
        let bytes = level::pending(&bounded(&shared.member.host, rows), shared.member.level);
        let (subject, message) =
            (key(PENDING_BUCKET, &shared.member.host), PublishMessage::build().payload(bytes.into()));
        let why = match stored(&shared.jetstream, subject, message).await {
            Some(Ok(_)) => {
                failures = 0;
                shared.mended(&Trouble::Pending);
                let _ = timeout(SEEN_EVERY, shared.pending_changed.notified()).await;
                sleep(SETTLES_AFTER).await;
                continue;
            }
            Some(Err(error)) => in_words(&error, &stream_of(PENDING_BUCKET)),
            None => "the server does not acknowledge".to_owned(),
        };
        shared.tell(Trouble::Pending, &format!("the pending requests are not listed: {why}; trying again"));
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

/// The pending requests, the oldest first, in at most one message. Those of one session are in the order of their arrival.
fn bounded(host: &str, mut rows: Vec<PendingRow>) -> PendingDocument {
    sort_by_arrival(&mut rows, |row| row.session_id.clone(), |row| row.requested_at.clone());
    let all = rows.len();
    rows.truncate(PENDING_MAX);
    let mut document = PendingDocument { v: VERSION, host: host.to_owned(), requests: rows, more: 0 };
    loop {
        document.more = (all - document.requests.len()) as u64;
        if wire::bytes(&document).len() <= MESSAGE_BYTES_MAX || document.requests.is_empty() {
            return document;
        }
        document.requests.truncate(document.requests.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn row(number: usize, summary: &str) -> PendingRow {
        PendingRow {
            session_id: "s".to_owned(),
            session_name: "s".to_owned(),
            request_id: format!("g-{number}"),
            request_method: "m".to_owned(),
            request_type: Value::Null,
            thread_id: None,
            requested_at: format!("{number:05}"),
            expires_at: None,
            summary: summary.to_owned(),
        }
    }

    #[test]
    fn refusal_names_the_last_number() {
        assert_eq!(numbered("nats error: wrong last sequence: 17 (code 400, error code 10071)"), Some(17));
        assert_eq!(numbered("wrong last sequence: 0"), Some(0));
        assert_eq!((numbered("wrong last sequence"), numbered("wrong last sequence: x")), (None, None));
    }

    #[test]
    fn pending_requests_fit_one_message() {
        let few = bounded("h", vec![row(1, "a"), row(2, "b")]);
        assert_eq!((few.requests[0].request_id.as_str(), few.requests.len(), few.more), ("g-1", 2, 0));
        let many = bounded("h", (0..PENDING_MAX + 7).map(|number| row(number, "x")).collect());
        assert_eq!((many.requests.len(), many.more), (PENDING_MAX, 7));
        let long = bounded("h", (0..PENDING_MAX).map(|number| row(number, &"x".repeat(4 << 10))).collect());
        assert!(wire::bytes(&long).len() <= MESSAGE_BYTES_MAX);
        assert_eq!(long.requests.len() as u64 + long.more, PENDING_MAX as u64);
    }

    #[test]
    fn pending_requests_are_in_order_of_arrival() {
        for (given, expect) in [
            (&[("a", 1), ("a", 4), ("b", 2)][..], "1 2 4"),
            (&[("b", 2), ("a", 1), ("a", 4)], "1 2 4"),
            // The clock of the host was set back, or ahead and back.
            (&[("a", 9), ("a", 3), ("a", 5)], "9 3 5"),
            (&[("a", 9), ("a", 3), ("b", 2), ("b", 4)], "2 9 3 4"),
            (&[("a", 1), ("a", 8), ("a", 2), ("b", 3)], "1 8 2 3"),
        ] {
            let of = |(session, number): &(&str, usize)| PendingRow {
                session_id: (*session).to_owned(),
                ..row(*number, "x")
            };
            let listed = bounded("h", given.iter().map(of).collect()).requests;
            let numbers: Vec<&str> = listed.iter().map(|row| row.request_id.trim_start_matches("g-")).collect();
            assert_eq!(numbers.join(" "), expect, "{given:?}");
        }
    }
}
