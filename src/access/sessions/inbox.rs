//! The requests of many sessions in one list.

use std::borrow::Borrow;

use super::at_once::{ReadEach, read_each};
use crate::api::Request;
use crate::control::sort_by_arrival;
use crate::store::Found;

/// The requests of these sessions in the order of their arrival, and the sessions that could not be read.
pub fn inbox<S: Borrow<Found> + Sync + Clone + Send, E: Send>(
    sessions: &[S],
    read: impl Fn(&Found) -> Result<Vec<Request>, E> + Sync,
) -> ReadEach<S, Request, E> {
    let (listed, silent) = read_each(sessions, |session| read(session.borrow()).map(Some));
    let rows = |(session, rows): (S, Vec<Request>)| rows.into_iter().map(move |row| (session.clone(), row));
    let mut listed: Vec<(S, Request)> = listed.into_iter().flat_map(rows).collect();
    sort_by_arrival(&mut listed, |(session, _)| session.borrow().id.clone(), |(_, row)| row.requested_at.clone());
    (listed, silent)
}
