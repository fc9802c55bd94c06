//! Connection slots, and the rule by which one connection is closed in favour of another.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, watch};

/// Connections served at once, streams excluded.
pub(super) const REQUESTS_MAX: usize = 64;

/// Streams served at once.
pub(super) const STREAMS_MAX: usize = 64;

/// Streams that may end with a farewell at the same time; beyond these one is cut off.
const ENDING_MAX: usize = 16;

/// The last bytes of an evicted stream: a comment, and the pause before a reconnect.
const FAREWELL: &str =
    ": closed: too many streams are open, and this one was idle for the longest time\nretry: 5000\n\n";

/// A comment starts with this byte and is not an event.
const COMMENT: u8 = b':';

/// Response extension that marks a stream.
#[derive(Debug, Clone, Copy)]
pub struct Stream;

/// All connection slots.
#[derive(Debug, Default)]
pub struct Places {
    taken: Mutex<Taken>,
    /// Notified when a slot may have become free.
    changed: Notify,
    /// Notified when a response may have been written.
    answered: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    /// By number; later connections have higher numbers.
    connections: BTreeMap<u64, Connection>,
    last: u64,
    /// A logical clock.
    moments: Moment,
    counts: Counts,
}

/// A reading of the logical clock.
type Moment = u64;

/// Open connections, and those evicted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: usize,
    pub(super) streams: usize,
    pub(super) requests_closed: u64,
    pub(super) streams_closed: u64,
}

#[derive(Debug)]
struct Connection {
    activity: Activity,
    leave: watch::Sender<Leave>,
}

/// The activity of a connection and the moment of its last progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    WaitForClient(Moment),
    Answer,
    /// The moment is that of the last event.
    Stream(Moment),
    /// Evicted.
    End,
}

/// Whether a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    No,
    /// After the farewell of a stream.
    Farewell,
    Now,
}

/// The slot of one connection.
#[derive(Debug)]
pub struct Place {
    number: u64,
    places: Arc<Places>,
    leave: watch::Receiver<Leave>,
}

impl Places {
    /// Waits for a request slot.
    pub async fn enter(self: &Arc<Places>) -> Arc<Place> {
        loop {
            let changed = self.changed.notified();
            if let Some(place) = self.try_enter() {
                return Arc::new(place);
            }
            changed.await;
        }
    }

    fn try_enter(self: &Arc<Places>) -> Option<Place> {
        let mut taken = self.taken();
        if taken.count(|activity| matches!(activity, Activity::WaitForClient(_) | Activity::Answer)) >= REQUESTS_MAX {
            taken.close_oldest(
                |activity| if let Activity::WaitForClient(since) = activity { Some(since) } else { None },
                None,
            )?;
            taken.counts.requests_closed += 1;
        }
        taken.last += 1;
        let number = taken.last;
        let (sender, leave) = watch::channel(Leave::No);
        let activity = Activity::WaitForClient(taken.now());
        taken.connections.insert(number, Connection { activity, leave: sender });
        drop(taken);
        Some(Place { number, places: Arc::clone(self), leave })
    }

    pub(super) fn counts(&self) -> Counts {
        let taken = self.taken();
        let requests = taken.count(|activity| matches!(activity, Activity::WaitForClient(_) | Activity::Answer));
        Counts { requests, streams: taken.count(|activity| matches!(activity, Activity::Stream(_))), ..taken.counts }
    }

    fn counts_of(&self, wanted: Activity) -> usize {
        self.taken().count(|activity| activity == wanted)
    }

    /// Waits until no response is in preparation.
    pub(super) async fn all_answered(&self) {
        loop {
            let answered = self.answered.notified();
            if self.counts_of(Activity::Answer) == 0 {
                break;
            }
            answered.await;
        }
    }

    fn changed(&self) {
        self.changed.notify_one();
        self.answered.notify_waiters();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn count(&self, wanted: impl Fn(Activity) -> bool) -> usize {
        self.connections.values().filter(|connection| wanted(connection.activity)).count()
    }

    fn now(&mut self) -> Moment {
        self.moments += 1;
        self.moments
    }

    /// Evicts the connection with the earliest moment, except `but`.
    fn close_oldest(&mut self, moment: impl Fn(Activity) -> Option<Moment>, but: Option<u64>) -> Option<()> {
        let is_ending = |activity: Activity| activity == Activity::End;
        let may_say_so = self.count(is_ending) < ENDING_MAX;
        let candidates = self.connections.iter_mut().filter(|(number, _)| Some(**number) != but);
        let candidates = candidates.filter_map(|(_, connection)| Some((moment(connection.activity)?, connection)));
        let (_, oldest) = candidates.min_by_key(|(since, _)| *since)?;
        let is_stream = matches!(oldest.activity, Activity::Stream(_));
        oldest.activity = Activity::End;
        let leave = if is_stream && may_say_so { Leave::Farewell } else { Leave::Now };
        // A connection that has just closed has no receiver.
        let _ = oldest.leave.send(leave);
        Some(())
    }
}

impl Place {
    /// Waits until the connection must end.
    pub(super) async fn left(&self) -> Leave {
        let mut leave = self.leave.clone();
        let evicted = leave.wait_for(|leave| *leave != Leave::No).await.map(|leave| *leave);
        evicted.unwrap_or(Leave::Now)
    }

    fn set(&self, next: impl FnOnce(Activity, Moment) -> Activity) {
        let mut taken = self.places.taken();
        let now = taken.now();
        if let Some(connection) = taken.connections.get_mut(&self.number)
            && connection.activity != Activity::End
        {
            connection.activity = next(connection.activity, now);
        }
        drop(taken);
        self.places.changed();
    }

    /// The connection is blocked until its client sends or reads something.
    pub(super) fn waits(&self) {
        self.set(
            |activity, now| {
                if let Activity::WaitForClient(_) = activity { activity } else { Activity::WaitForClient(now) }
            },
        );
    }

    /// The relay is working on a response.
    pub(super) fn answers(&self) {
        self.set(|_, _| Activity::Answer);
    }

    /// The client has read some of the response.
    pub(super) fn moves_on(&self) {
        self.set(
            |activity, now| {
                if let Activity::WaitForClient(_) = activity { Activity::WaitForClient(now) } else { activity }
            },
        );
    }

    /// The response is a stream; this may evict another one.
    pub(super) fn streams(&self) {
        self.set(|_, now| Activity::Stream(now));
        let mut taken = self.places.taken();
        if taken.count(|activity| matches!(activity, Activity::Stream(_))) > STREAMS_MAX {
            let last_sent = |activity| if let Activity::Stream(at) = activity { Some(at) } else { None };
            let closed = taken.close_oldest(last_sent, Some(self.number));
            taken.counts.streams_closed += u64::from(closed.is_some());
        }
    }

    /// The stream was sent an event.
    fn sent(&self) {
        self.set(|activity, now| if let Activity::Stream(_) = activity { Activity::Stream(now) } else { activity });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().connections.remove(&self.number);
        self.places.changed();
    }
}

/// A request body. While it is incomplete, the connection waits for its client.
pub(super) struct Awaited<B> {
    body: B,
    place: Arc<Place>,
}

impl<B> Awaited<B> {
    pub(super) fn new(body: B, place: Arc<Place>) -> Awaited<B> {
        Awaited { body, place }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Awaited<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Pending => self.place.waits(),
            // A client that trickles bytes still counts as waiting.
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => self.place.answers(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Awaited<B> {
    fn drop(&mut self) {
        self.place.answers();
    }
}

/// A response body. Once it is written, the connection waits for its client again.
pub(super) struct Answered {
    body: Body,
    place: Arc<Place>,
    /// Ends a stream that is evicted.
    farewell: Option<Pin<Box<dyn Future<Output = Leave> + Send>>>,
    is_over: bool,
}

impl Answered {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Answered {
        Answered { body, place, farewell: None, is_over: false }
    }

    /// A response that lasts until its reader leaves or it is evicted.
    pub(super) fn stream(body: Body, place: Arc<Place>) -> Answered {
        place.streams();
        let own = Arc::clone(&place);
        let farewell = Box::pin(async move { own.left().await });
        Answered { body, place, farewell: Some(farewell), is_over: false }
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(farewell) = &mut self.farewell
            && farewell.as_mut().poll(context).is_ready()
        {
            self.is_over = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(FAREWELL.as_bytes())))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && frame.data_ref().is_some_and(|data| data.first() != Some(&COMMENT))
        {
            self.place.sent();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.place.waits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    fn is_evicted(place: &Place) -> bool {
        *place.leave.borrow() != Leave::No
    }

    #[test]
    fn longest_waiting_connection_is_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut inside = Vec::new();
            for _ in 0..REQUESTS_MAX {
                inside.push(places.enter().await);
            }
            // The first one answers, and the second one has just read something.
            inside[0].answers();
            inside[1].moves_on();
            let late = places.enter().await;
            let evicted: Vec<usize> = (0..REQUESTS_MAX).filter(|at| is_evicted(&inside[*at])).collect();
            assert_eq!(evicted, [2]);
            assert_eq!((places.counts().requests, places.counts().requests_closed), (REQUESTS_MAX, 1));
            drop(late);
        });
    }

    #[test]
    fn answering_connections_are_never_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut inside = Vec::new();
            for _ in 0..REQUESTS_MAX {
                inside.push(places.enter().await);
            }
            inside.iter().for_each(|place| place.answers());
            assert!(places.try_enter().is_none());
            inside[5].waits();
            assert!(places.try_enter().is_some() && is_evicted(&inside[5]));
            inside.pop();
            assert!(places.try_enter().is_some());
        });
    }

    #[test]
    fn idlest_stream_is_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut streams = Vec::new();
            for _ in 0..STREAMS_MAX {
                let place = places.enter().await;
                place.streams();
                streams.push(place);
            }
            streams[0].sent();
            let counts = places.counts();
            assert_eq!((counts.requests, counts.streams, counts.streams_closed), (0, STREAMS_MAX, 0));
            let late = places.enter().await;
            late.streams();
            let evicted: Vec<usize> = (0..STREAMS_MAX).filter(|at| is_evicted(&streams[*at])).collect();
            assert_eq!((evicted, is_evicted(&late)), (vec![1], false));
            assert_eq!(streams[1].left().await, Leave::Farewell);
            assert_eq!(places.counts().streams, STREAMS_MAX);
        });
    }

    #[test]
    fn streams_that_do_not_end_are_cut_off() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut streams = Vec::new();
            for _ in 0..STREAMS_MAX + ENDING_MAX + 1 {
                let place = places.enter().await;
                place.streams();
                streams.push(place);
            }
            assert_eq!(streams[0].left().await, Leave::Farewell);
            assert_eq!(streams[ENDING_MAX].left().await, Leave::Now);
        });
    }
}
