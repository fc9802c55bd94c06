//! The search in the histories of sessions, for tools and for the page.
//!
//! Sessions are searched in their files. A relay that has answered has indexed everything it recorded; a stopped session is
//! indexed first.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use super::door::{Door, SessionError};
use super::stopped::{Read, complete_search, history_of, requests};
use crate::api::{GapReason, Identities, Request, ThreadIdentityDocument, WhichRequests};
use crate::control::{RequestOrigin, recorded_threads};
use crate::history::{Excerpt, Filter, FilterChoices, FilterThread, KnownFacts, RequestFacts, client_name};
use crate::index::{HISTORY_FILE, History, Hit, Hits, Search};
use crate::store::{Found, short};

/// A session that can be searched.
pub struct Searched<'a> {
    pub session: &'a Found,
    pub history: History,
    known: KnownFacts,
}

impl<'a> Searched<'a> {
    /// Indexes everything that a session has recorded, and reads the facts for the filter.
    pub fn ready(session: &'a Found, door: Door, search: &Search) -> Result<Searched<'a>, SessionError> {
        let mut read = Read::through(door, session.clone());
        if read.events(None, 1)?.gap_reason == Some(GapReason::PersistenceError) {
            (door.say)(&format!(
                "some recorded messages of session {} are not indexed yet, and are not searched",
                session.name()
            ));
        }
        let known = facts_for_tokens(session, &search.filter)?;
        Ok(Searched { session, history: history_of(session), known })
    }

    /// The number of entries that the search index lacks; 0 in a live session, which completes its own index.
    pub fn lacks(&self) -> u64 {
        if self.session.is_still_live() { 0 } else { self.history.unfilled().unwrap_or(0) }
    }

    /// The matches, newest first. Passes on how many entries it reads one by one.
    pub fn search(&self, search: &Search, advance: impl Fn(u64)) -> Result<Hits, SessionError> {
        let hits = self.history.search(search, &self.known, advance);
        hits.map_err(|error| SessionError::new(error.to_string()))
    }
}

/// The facts of a session that the tokens of this filter read.
fn facts_for_tokens(session: &Found, filter: &Filter) -> Result<KnownFacts, SessionError> {
    let mut known = if filter.asks_threads() { facts_of_threads(session)? } else { KnownFacts::default() };
    if filter.asks_requests() {
        known.requests = facts_of_requests(session)?;
    }
    Ok(known)
}

/// All facts of a session.
pub fn known_facts(session: &Found) -> Result<KnownFacts, SessionError> {
    Ok(KnownFacts { requests: facts_of_requests(session)?, ..facts_of_threads(session)? })
}

fn facts_of_requests(session: &Found) -> Result<HashMap<String, RequestFacts>, SessionError> {
    let rows = requests(session, WhichRequests::All)?;
    Ok(rows.iter().map(|row| (row.request_id.clone(), row.for_filter())).collect())
}

/// The facts of a session that can be read.
pub fn readable_facts(session: &Found) -> KnownFacts {
    let known = facts_of_threads(session).unwrap_or_default();
    KnownFacts { requests: facts_of_requests(session).unwrap_or_default(), ..known }
}

/// The facts of the threads of a session.
pub fn facts_of_threads(session: &Found) -> Result<KnownFacts, SessionError> {
    let holder = session.holder.as_ref();
    let of_session = FilterThread {
        client: holder.and_then(|holder| holder.client.clone()),
        folder: holder.map(|holder| holder.place.cwd.clone()).filter(|folder| !folder.is_empty()),
        title: None,
    };
    let has_history = session.dir.join(HISTORY_FILE).exists();
    let threads = if has_history { history_of(session).threads_for_filter(0) } else { Ok(HashMap::new()) };
    let threads = threads.map_err(|error| SessionError::new(error.to_string()))?;
    let whole = |(id, FilterThread { client, folder, title }): (String, FilterThread)| {
        let client = client.or_else(|| of_session.client.clone());
        (id, FilterThread { client, folder: folder.or_else(|| of_session.folder.clone()), title })
    };
    let threads = threads.into_iter().map(whole).collect();
    Ok(KnownFacts { session: of_session, threads, requests: HashMap::new() })
}

/// Whether a request passes. Its own row has the newest facts of its thread.
pub fn request_passes(known: &KnownFacts, filter: &Filter, row: &Request) -> bool {
    let facts = row.for_filter();
    let stored = row.thread_id.as_ref().and_then(|id| known.threads.get(id)).unwrap_or(&known.session);
    let of_row = row.thread().map(|thread| FilterThread {
        client: thread.client.as_ref().map(|client| client.name.clone()).or_else(|| stored.client.clone()),
        folder: thread.cwd.clone().or_else(|| stored.folder.clone()),
        title: thread.title.clone().or_else(|| stored.title.clone()),
    });
    filter.passes(&facts.facts(of_row.as_ref().unwrap_or(stored), row.last_us()))
}

/// The names that a filter can be completed with.
pub fn choices(sessions: &[Found]) -> FilterChoices {
    let mut choices = FilterChoices::default();
    let add = |to: &mut Vec<String>, name: Option<String>| {
        if let Some(name) = name.filter(|name| !to.contains(name) && to.len() < CHOICES_MAX) {
            to.push(name);
        }
    };
    for session in sessions.iter().take(CHOICE_SESSIONS_MAX) {
        let Ok(known) = facts_of_threads(session) else { continue };
        for FilterThread { client, folder, title } in known.threads.into_values().chain([known.session]) {
            add(&mut choices.clients, client.map(|name| client_name(&name).to_owned()));
            add(&mut choices.folders, folder);
            add(&mut choices.threads, title);
        }
    }
    choices.clients.sort();
    choices.folders.sort();
    choices.threads.sort();
    choices
}

/// Limits on the names that complete one key, and on the sessions that are read for them.
const CHOICES_MAX: usize = 200;
const CHOICE_SESSIONS_MAX: usize = 50;

/// The matches of several sessions, newest first.
#[derive(Default)]
pub struct AllHits<'a> {
    pub hits: Vec<(&'a Found, Hit)>,
    /// The identities of the threads, by session.
    threads: HashMap<&'a str, Identities>,
    pub has_more: bool,
    pub read: u64,
}

impl<'a> AllHits<'a> {
    pub fn add(&mut self, session: &'a Found, Hits { hits, has_more, read }: Hits) {
        self.hits.extend(hits.into_iter().map(|hit| (session, hit)));
        self.has_more |= has_more;
        self.read += read;
    }

    pub fn keep_newest(&mut self, limit: usize) {
        self.hits.sort_by(|(_, one), (_, other)| other.at.cmp(&one.at));
        self.has_more |= self.hits.len() > limit;
        self.hits.truncate(limit);
        let mut of_session: HashMap<&str, (&Found, BTreeSet<String>)> = HashMap::new();
        for (session, hit) in &self.hits {
            let (_, ids) = of_session.entry(&session.id).or_insert((session, BTreeSet::new()));
            ids.insert(hit.thread_id.clone());
        }
        let threads = |(session, ids): (&Found, BTreeSet<String>)| {
            recorded_threads(&session.dir, &ids.into_iter().collect::<Vec<_>>())
        };
        self.threads = of_session.into_iter().map(|(id, of_session)| (id, threads(of_session))).collect();
    }

    /// The identity of a match's thread, if it is on record.
    pub fn thread(&self, session: &Found, hit: &Hit) -> Option<&ThreadIdentityDocument> {
        self.threads.get(&*session.id)?.get(&hit.thread_id)
    }

    pub fn origin(&self, session: &Found, hit: &Hit) -> RequestOrigin {
        RequestOrigin::of_thread(session, self.thread(session, hit).cloned().unwrap_or_default())
    }

    /// The matches as `search --json` prints them; `known` are all sessions.
    pub fn document(&self, known: &[Found]) -> Value {
        let of_hit = |(session, hit): &(&Found, Hit)| {
            let Hit { kind, at, thread_id, turn_id, item_id, request_id, excerpt } = hit;
            json!({
                "session_id": session.id, "short_id": short(session, known), "thread_id": thread_id,
                "turn_id": turn_id, "item_id": item_id, "request_id": request_id, "at": at, "kind": kind,
                "of": excerpt.head, "line": excerpt.line, "matched": matched(excerpt),
                "name": self.origin(session, hit).name, "thread": self.thread(session, hit),
            })
        };
        json!({
            "matches": self.hits.iter().map(of_hit).collect::<Vec<_>>(), "has_more": self.has_more,
            "entries_read": self.read,
        })
    }
}

/// The matched parts of a line.
fn matched(Excerpt { line, marks, .. }: &Excerpt) -> Vec<&str> {
    marks.iter().map(|mark| &line[mark.clone()]).collect()
}

/// Searches sessions one by one. Each session that cannot be searched adds an error.
pub fn search<'a>(sessions: &'a [Found], door: Door, search: &Search) -> (AllHits<'a>, Vec<SessionError>) {
    let (mut all, mut errors) = (AllHits::default(), Vec::new());
    for session in sessions.iter().filter(|session| session.last_segment().is_some()) {
        let hits = Searched::ready(session, door, search).and_then(|searched| {
            if searched.lacks() > 0 {
                // The search works all the same.
                let _ = complete_search(session, |_| {});
            }
            searched.search(search, |_| {})
        });
        match hits {
            Ok(hits) => all.add(session, hits),
            Err(error) => errors.push(error),
        }
    }
    all.keep_newest(search.limit);
    (all, errors)
}
