//! The names of requests: their ids, parts of these, and `latest`. The short name of a request is the end of its id, `90c4e-0` for
//! `6b02d1a90c4e-0`.
//!
//! Pure. An id is the run of the server, 12 hex digits of which the last 4 are random, and the number that the server gave the
//! request. Each server counts from the beginning, so the number alone would soon name a request that the user has not seen. The
//! end of the run tells the requests of all sessions of a home apart. `latest` and the number mean a request of the sessions here.
//! All other names must be unique among the requests of all sessions, answered and stopped ones too.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::api::Request;

/// The newest pending request.
pub const LATEST: &str = "latest";

/// Most requests that an error lists.
const LISTED_MAX: usize = 8;

/// Digits of a run.
const RUN_DIGITS: usize = 12;

/// Fewest digits of the run in a short name: the random ones.
const NAME_DIGITS_MIN: usize = 4;

/// The short names of some requests.
#[derive(Debug)]
pub struct ShortNames<'a> {
    /// The ids by their shortest possible name.
    by_end: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> ShortNames<'a> {
    /// The names are unique among these ids.
    pub fn among(ids: impl Iterator<Item = &'a str>) -> ShortNames<'a> {
        let mut by_end: HashMap<&str, Vec<&str>> = HashMap::new();
        for id in ids {
            by_end.entry(end(id, NAME_DIGITS_MIN)).or_default().push(id);
        }
        ShortNames { by_end }
    }

    /// The shortest name of an id.
    pub fn of<'b>(&self, id: &'b str) -> &'b str {
        let alike = self.by_end.get(end(id, NAME_DIGITS_MIN)).map(Vec::as_slice).unwrap_or_default();
        let is_unique = |name: &&str| !alike.iter().any(|other| *other != id && other.ends_with(name));
        (NAME_DIGITS_MIN..RUN_DIGITS).map(|digits| end(id, digits)).find(is_unique).unwrap_or(id)
    }
}

/// The part of an id from the last `digits` of its run on; the whole id if it does not begin with a run.
fn end(id: &str, digits: usize) -> &str {
    if is_whole(id) { &id[RUN_DIGITS - digits..] } else { id }
}

/// Whether `name` is a short name of this id.
pub fn is_short_name(name: &str, id: &str) -> bool {
    is_whole(id) && name.len() >= id.len() - (RUN_DIGITS - NAME_DIGITS_MIN) && id.ends_with(name)
}

/// Whether a name has the form of a short name.
pub fn has_short_form(name: &str) -> bool {
    name.find('-').is_some_and(|at| is_short_name(name, &format!("{:0>12}{}", &name[..at], &name[at..])))
}

/// Whether a name has the form of a whole id.
pub fn is_whole(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.bytes().all(is_plain) && name.find('-') == Some(RUN_DIGITS)
}

/// The requests of one session.
#[derive(Debug, Clone)]
pub struct Looked<S> {
    pub session: S,
    pub is_here: IsHere,
    /// The pending ones of threads that work in other folders than the caller.
    pub of_others: BTreeSet<String>,
    /// The requests, oldest first.
    pub rows: Vec<Request>,
}

/// Whether a session is one of the user's folder, or the one that they named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsHere {
    Yes,
    No,
}

/// Why a name is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotNamed {
    /// `latest`, but no request is pending.
    NothingWaits,
    /// `latest`, but the requests are pending in sessions of other folders.
    WaitElsewhere(Vec<String>),
    /// No match; these requests exist, pending ones first.
    Unknown { name: String, there_are: Vec<String>, among: Among },
    /// It was found and has been deleted since.
    Gone(String),
    /// Several match.
    Ambiguous { name: String, matching: Vec<String> },
}

/// The sessions in which a name was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    OneSession,
    Sessions,
}

impl fmt::Display for NotNamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNamed::NothingWaits => {
                write!(f, "no requests are pending")
            }
            NotNamed::WaitElsewhere(names) => {
                write!(f, "no requests are pending in this folder; name one of another folder: {}", listed(names))
            }
            NotNamed::Unknown { name, there_are, among } if there_are.is_empty() => match among {
                Among::OneSession => write!(f, "unknown request `{name}`: this session has had no requests"),
                Among::Sessions => write!(f, "unknown request `{name}`: these sessions have had no requests"),
            },
            NotNamed::Unknown { name, there_are, among } => {
                let place = match among {
                    Among::OneSession => "this session",
                    Among::Sessions => "these sessions",
                };
                write!(f, "unknown request `{name}`; requests in {place}: {}", listed(there_are))
            }
            NotNamed::Gone(id) => write!(f, "request {id} is gone; see `codex-shim requests --all`"),
            NotNamed::Ambiguous { name, matching } => {
                write!(f, "`{name}` matches several requests: {}; give more of the id", listed(matching))
            }
        }
    }
}

fn listed(names: &[String]) -> String {
    let told = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

/// A session and the id of one of its requests.
pub type Named<S> = (S, String);

/// The request of the sessions here that is called `latest`, or by its number alone.
pub fn find_here<S: Clone>(name: &str, sessions: &[Looked<S>]) -> Result<Option<Named<S>>, NotNamed> {
    let here = || sessions.iter().filter(|of| of.is_here == IsHere::Yes);
    if name == LATEST {
        // A session lists its requests in the order of their arrival, whatever its clock was set to.
        let newest = here().filter_map(|of| pending_here(of).last());
        let newest = newest.max_by_key(|(_, row)| &row.requested_at);
        return Ok(newest.map(|(session, row)| (session, row.request_id.clone())));
    }
    only(name, here().flat_map(|of| numbered(name, of)).collect())
}

/// The request of any session: by its id, or the end or the beginning of it. `latest` is the only pending one, and a number is unique
/// if no session is here.
pub fn find_anywhere<S: Clone>(name: &str, sessions: &[Looked<S>]) -> Result<Named<S>, NotNamed> {
    if name == LATEST {
        let pending: Vec<(S, &Request)> = sessions.iter().flat_map(pending).collect();
        return match &pending[..] {
            [] => Err(NotNamed::NothingWaits),
            [(session, row)] => Ok((session.clone(), row.request_id.clone())),
            several => {
                let names = ShortNames::among(several.iter().map(|(_, row)| &*row.request_id));
                let names = several.iter().map(|(_, row)| names.of(&row.request_id).to_owned());
                Err(NotNamed::WaitElsewhere(names.collect()))
            }
        };
    }
    let by = |is: &dyn Fn(&str) -> bool| -> Vec<Named<S>> {
        let ids = sessions.iter().flat_map(|of| of.rows.iter().map(move |row| (&of.session, &*row.request_id)));
        ids.filter(|(_, id)| is(id)).map(|(session, id)| (session.clone(), id.to_owned())).collect()
    };
    let mut by_end = by(&|id| is_short_name(name, id));
    if !sessions.iter().any(|of| of.is_here == IsHere::Yes) {
        by_end.extend(sessions.iter().flat_map(|of| numbered(name, of)));
    }
    for matching in [by(&|id| id == name), by_end, by(&|id| !name.is_empty() && id.starts_with(name))] {
        if let Some(found) = only(name, matching)? {
            return Ok(found);
        }
    }
    let among = if sessions.len() == 1 { Among::OneSession } else { Among::Sessions };
    let newest_first = sessions.iter().flat_map(|of| of.rows.iter().rev());
    let (pending, rest): (Vec<&Request>, Vec<&Request>) = newest_first.partition(|row| row.is_pending());
    let there_are = pending.into_iter().chain(rest).map(|row| row.request_id.clone()).collect();
    Err(NotNamed::Unknown { name: name.to_owned(), there_are, among })
}

/// The only match, if there is any.
fn only<S: Clone>(name: &str, matching: Vec<Named<S>>) -> Result<Option<Named<S>>, NotNamed> {
    match &matching[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let matching = several.iter().map(|(_, id)| id.clone()).collect();
            Err(NotNamed::Ambiguous { name: name.to_owned(), matching })
        }
    }
}

/// Those of threads that work in the folder of the caller.
pub fn pending_here<S: Clone>(of: &Looked<S>) -> impl Iterator<Item = (S, &Request)> {
    pending(of).filter(|(_, row)| !of.of_others.contains(&row.request_id))
}

fn pending<S: Clone>(of: &Looked<S>) -> impl Iterator<Item = (S, &Request)> {
    of.rows.iter().filter(|row| row.is_pending()).map(|row| (of.session.clone(), row))
}

/// The requests with this number: those of the last run if it has one, because each server counts from the beginning.
fn numbered<S: Clone>(name: &str, of: &Looked<S>) -> Vec<Named<S>> {
    let all: Vec<&Request> = of.rows.iter().filter(|row| number(&row.request_id) == name).collect();
    let last_run = of.rows.last().map(|last| &last.process_generation);
    let is_of_last_run = |row: &&&Request| Some(&row.process_generation) == last_run;
    let of_last_run: Vec<&Request> = all.iter().filter(is_of_last_run).copied().collect();
    let rows = if of_last_run.is_empty() { all } else { of_last_run };
    rows.into_iter().map(|row| (of.session.clone(), row.request_id.clone())).collect()
}

/// The part of an id after the run.
fn number(id: &str) -> &str {
    if is_whole(id) { id.split_once('-').map_or(id, |(_, number)| number) } else { id }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_as_short_as_is_unique() {
        let ids = ["6b02d1a90c4e-0", "6b02d1a90c4e-10", "6b02d1a00c4e-10", "6b02d1b12222-0", "odd"];
        let names = ShortNames::among(ids.into_iter());
        let short = ids.map(|id| names.of(id));
        assert_eq!(short, ["0c4e-0", "90c4e-10", "00c4e-10", "2222-0", "odd"]);
        for (id, name) in ids.iter().zip(short).take(4) {
            assert_eq!(ids.iter().filter(|id| is_short_name(name, id)).collect::<Vec<_>>(), [id], "{name}");
        }
    }

    #[test]
    fn number_alone_is_not_a_short_name() {
        let check = |name: &str, expect: bool| assert_eq!(is_short_name(name, "6b02d1a90c4e-0"), expect, "{name}");
        check("0", false);
        check("-0", false);
        check("c4e-0", false);
        check("0c4e-0", true);
        check("6b02d1a90c4e-0", true);
        check("6b02d1a90c4e-00", false);
    }

    #[test]
    fn whole_ids_are_recognised() {
        assert!(is_whole("c000cccccccc-0") && is_whole("c000cccccccc-s.a_b-c"));
        assert!(!is_whole("0") && !is_whole("c000cccccccc-/") && !is_whole("-7"));
    }

    fn row(id: &str, status: &str, at: &str) -> Request {
        let generation = id.split('-').next();
        json!({"request_id": id, "process_generation": generation, "status": status, "requested_at": at}).into()
    }

    fn rows() -> Vec<Request> {
        vec![
            row("1a00aaaaaaaa-0", "orphaned", "2026-01-01"),
            row("1a00aaaaaaaa-7", "resolved", "2026-01-02"),
            row("bb00bbbbbbbb-7", "resolved", "2026-01-03"),
            row("c000cccccccc-0", "pending", "2026-01-04"),
            row("c000cccccccc-1", "pending", "2026-01-05"),
            row("c000cccccccc-s.x", "resolved", "2026-01-06"),
        ]
    }

    /// As [`resolved`], without a relay that does not answer.
    fn find<S: Clone>(name: &str, sessions: &[Looked<S>]) -> Result<Named<S>, NotNamed> {
        find_here(name, sessions)?.map_or_else(|| find_anywhere(name, sessions), Ok)
    }

    fn here(rows: Vec<Request>) -> Looked<&'static str> {
        Looked { session: "here", is_here: IsHere::Yes, of_others: BTreeSet::new(), rows }
    }

    fn in_session(name: &str, rows: Vec<Request>) -> Result<String, NotNamed> {
        find(name, &[here(rows)]).map(|(_, id)| id)
    }

    #[test]
    fn latest_arrived_last_whatever_the_clock_says() {
        let rows = vec![row("c000cccccccc-0", "pending", "2026-01-04"), row("c000cccccccc-1", "pending", "2026-01-03")];
        assert_eq!(in_session("latest", rows).as_deref(), Ok("c000cccccccc-1"));
    }

    #[test]
    fn requests_have_several_names() {
        let check = |name: &str, expect: &str| assert_eq!(in_session(name, rows()).as_deref(), Ok(expect), "{name}");
        check("latest", "c000cccccccc-1");
        check("c000cccccccc-0", "c000cccccccc-0");
        check("cccc-0", "c000cccccccc-0");
        check("aaaa-0", "1a00aaaaaaaa-0");
        check("0", "c000cccccccc-0");
        check("1", "c000cccccccc-1");
        check("s.x", "c000cccccccc-s.x");
        check("bb", "bb00bbbbbbbb-7");
        check("1a00aaaaaaaa-7", "1a00aaaaaaaa-7");
        check("c000cccccccc-s", "c000cccccccc-s.x");
    }

    #[test]
    fn requests_of_several_sessions_are_distinguished() {
        let sessions = [
            Looked {
                session: "vscode",
                is_here: IsHere::Yes,
                of_others: BTreeSet::new(),
                rows: vec![
                    row("aa00aaaaaaaa-0", "pending", "2026-01-01"),
                    row("aa00aaaaaaaa-1", "pending", "2026-01-03"),
                ],
            },
            Looked {
                session: "zed",
                is_here: IsHere::Yes,
                of_others: BTreeSet::new(),
                rows: vec![row("bb00bbbbbbbb-0", "pending", "2026-01-02")],
            },
            Looked {
                session: "elsewhere",
                is_here: IsHere::No,
                of_others: BTreeSet::new(),
                rows: vec![row("cc00cccccccc-2", "pending", "2026-01-04")],
            },
        ];
        let found = |name| find(name, &sessions);
        assert_eq!(found("latest"), Ok(("vscode", "aa00aaaaaaaa-1".to_owned())));
        assert_eq!(found("1"), Ok(("vscode", "aa00aaaaaaaa-1".to_owned())));
        assert_eq!(found("bb"), Ok(("zed", "bb00bbbbbbbb-0".to_owned())));
        assert_eq!(found("cccc-2"), Ok(("elsewhere", "cc00cccccccc-2".to_owned())));
        let both = found("0").expect_err("two have that name").to_string();
        assert!(both.contains("aa00aaaaaaaa-0, bb00bbbbbbbb-0"), "{both}");
        // The number alone is one of a request here.
        assert!(matches!(found("2"), Err(NotNamed::Unknown { .. })));
        let unknown = found("9").expect_err("none has that name").to_string();
        assert_eq!(unknown.split_once(": ").expect("a list").0, "unknown request `9`; requests in these sessions");
        assert_eq!(unknown.matches("aaaa-").count() + unknown.matches("bbbb-").count(), 3, "{unknown}");
    }

    #[test]
    fn latest_prefers_requests_here() {
        let elsewhere = |ids: &[&str]| Looked {
            session: "elsewhere",
            is_here: IsHere::No,
            of_others: BTreeSet::new(),
            rows: ids.iter().map(|id| row(id, "pending", "2026-02-01")).collect(),
        };
        let ended = || here(vec![row("c000cccccccc-0", "resolved", "2026-01-04")]);
        let check = |sessions: &[Looked<&'static str>], expect: Result<&str, &str>| {
            let found = find("latest", sessions).map(|(_, id)| id).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        check(&[here(rows()), elsewhere(&["dd00dddddddd-5"])], Ok("c000cccccccc-1"));
        check(&[ended(), elsewhere(&["dd00dddddddd-5"])], Ok("dd00dddddddd-5"));
        let told = "no requests are pending in this folder; name one of another folder: dddd-5, dddd-6";
        check(&[ended(), elsewhere(&["dd00dddddddd-5", "dd00dddddddd-6"])], Err(told));
        check(&[ended(), elsewhere(&[])], Err("no requests are pending"));
    }

    #[test]
    fn latest_is_of_a_thread_here() {
        let hub = |others: &[&str]| {
            let of_others = others.iter().map(|id| (*id).to_owned()).collect();
            Looked { of_others, ..here(rows()) }
        };
        let check = |others: &[&str], expect: Result<&str, &str>| {
            let found = find("latest", &[hub(others)]).map(|(_, id)| id).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{others:?}");
        };
        check(&[], Ok("c000cccccccc-1"));
        check(&["c000cccccccc-1"], Ok("c000cccccccc-0"));
        let told = "no requests are pending in this folder; name one of another folder: cccc-0, cccc-1";
        check(&["c000cccccccc-0", "c000cccccccc-1"], Err(told));
    }

    #[test]
    fn beginning_must_be_unique_in_all_sessions() {
        let other = Looked {
            session: "other",
            is_here: IsHere::No,
            of_others: BTreeSet::new(),
            rows: vec![row("bb00eeeeeeee-1", "resolved", "2026")],
        };
        assert!(matches!(find("bb", &[here(rows()), other]), Err(NotNamed::Ambiguous { .. })));
    }

    #[test]
    fn number_of_nobody_here_must_be_unique() {
        let session = |session, id| Looked {
            session,
            is_here: IsHere::No,
            of_others: BTreeSet::new(),
            rows: vec![row(id, "pending", "2026")],
        };
        let one = session("one", "aa00aaaaaaaa-0");
        assert_eq!(find("0", std::slice::from_ref(&one)).map(|(_, id)| id).as_deref(), Ok("aa00aaaaaaaa-0"));
        assert!(matches!(find("0", &[one, session("two", "bb00bbbbbbbb-0")]), Err(NotNamed::Ambiguous { .. })));
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let check = |name: &str, expect: &[&str]| match in_session(name, rows()) {
            Err(NotNamed::Ambiguous { matching, .. }) => assert_eq!(matching, expect, "{name}"),
            other => panic!("{name}: {other:?}"),
        };
        check("7", &["1a00aaaaaaaa-7", "bb00bbbbbbbb-7"]);
        check("1a", &["1a00aaaaaaaa-0", "1a00aaaaaaaa-7"]);
        check("c", &["c000cccccccc-0", "c000cccccccc-1", "c000cccccccc-s.x"]);
    }

    #[test]
    fn unknown_name_lists_existing_requests() {
        let told = |name: &str, rows: Vec<Request>| in_session(name, rows).expect_err("there is none").to_string();
        assert_eq!(
            told("9", rows()),
            "unknown request `9`; requests in this session: c000cccccccc-1, c000cccccccc-0, c000cccccccc-s.x, bb00bbbbbbbb-7, \
             1a00aaaaaaaa-7, 1a00aaaaaaaa-0"
        );
        assert!(told("", rows()).contains("unknown request ``"));
        assert!(told("x", Vec::new()).contains("has had no requests"));
        assert!(told("latest", rows()[..3].to_vec()) == "no requests are pending");
    }

    #[test]
    fn listed_names_are_found_again() {
        let rows = rows();
        let names = ShortNames::among(rows.iter().map(|row| &*row.request_id));
        for row in &rows {
            let id = &*row.request_id;
            assert_eq!(in_session(names.of(id), rows.clone()).as_deref(), Ok(id));
        }
    }
}
