//! Which threads there are, as far as this relay has seen, and how those began whose first message carried an envelope.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::open_calls::OpenCall;
use crate::protocol::{Event, Method};
use crate::wire::Members;

/// Most opening markers that previews recognize.
const OPENINGS_MAX: usize = 1_024;

/// Threads that are remembered as told already; with more than these all are forgotten, and told again.
const TOLD_MAX: usize = 4_096;

/// Threads whose beginnings are kept.
const PREVIEWS_MAX: usize = 256;

/// Longest beginning that is kept, in characters.
pub(super) const PREVIEW_CHARS_MAX: usize = 1_000;

/// What stands for an image in the preview of a thread that begins with nothing else.
pub(super) const IMAGE_PREVIEW: &str = "[Image]";

/// What users wrote first, by thread, for previews that codex has cut in the middle of an envelope.
#[derive(Debug, Default)]
pub(super) struct Previews {
    by_thread: HashMap<String, String>,
    oldest_first: VecDeque<String>,
    of_images: ImagePreviews,
    /// What goes ahead of a thread's first message is its beginning to this server.
    take_what_goes_ahead: bool,
    /// How fragments that users say begin.
    openings: Vec<String>,
}

/// The middle number of a version that begins with 0, as all did until now.
pub(super) fn minor_of(codex_version: &str) -> Option<u32> {
    let minor = codex_version.strip_prefix("0.")?.split('.').next()?.parse().ok();
    // One that was built from its sources says 0.0.0, and may be of any day.
    minor.filter(|minor| *minor > 0)
}

/// Where this server's previews tell of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ImagePreviews {
    #[default]
    Everywhere,
    InLists,
    Nowhere,
}

/// Where a preview stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviewPlace {
    /// Among other threads.
    List,
    /// In a thread by itself.
    Thread,
}

impl ImagePreviews {
    /// As seen with 0.77 and 0.98, with 0.125, and from 0.135 on.
    fn of(codex_version: &str) -> ImagePreviews {
        match minor_of(codex_version) {
            Some(..125) => ImagePreviews::Nowhere,
            Some(125..135) => ImagePreviews::InLists,
            Some(135..) | None => ImagePreviews::Everywhere,
        }
    }
}

impl Previews {
    /// Keeps the beginning of a thread; the first one that is told counts. Gives what is kept, where that is new.
    pub(super) fn learn(&mut self, thread_id: &str, words: &str) -> Option<String> {
        if self.by_thread.contains_key(thread_id) {
            return None;
        }
        if self.oldest_first.len() >= PREVIEWS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.by_thread.remove(&oldest);
        }
        let words: String = words.chars().take(PREVIEW_CHARS_MAX).collect();
        self.by_thread.insert(thread_id.to_owned(), words.clone());
        self.oldest_first.push_back(thread_id.to_owned());
        Some(words)
    }

    /// The server is of this version.
    pub(super) fn server_is(&mut self, codex_version: &str) {
        self.of_images = ImagePreviews::of(codex_version);
        // As seen with 0.125, and not with 0.135; older ones take nothing ahead.
        self.take_what_goes_ahead = minor_of(codex_version).is_some_and(|minor| (125..135).contains(&minor));
    }

    /// What goes ahead of turns may begin like this.
    pub(super) fn may_begin_with(&mut self, openings: Vec<String>) {
        // Threads may still echo fragments from before the settings changed.
        let new = openings.into_iter().filter(|opening| !self.openings.contains(opening));
        let new: Vec<String> = new.take(OPENINGS_MAX.saturating_sub(self.openings.len())).collect();
        self.openings.extend(new);
    }

    /// Whether a preview may show a fragment that went ahead.
    pub(super) fn may_show_fragments(&self) -> bool {
        self.take_what_goes_ahead && !self.openings.is_empty()
    }

    /// Whether a thread that begins with `words` begins with a fragment, whole or cut.
    pub(super) fn is_fragment(&self, words: &str) -> bool {
        let is_one = |opening: &String| {
            let closing = format!("</{}>", opening.trim_matches(['<', '>', '\n']));
            words.starts_with(opening) && (words.ends_with(&closing) || words.ends_with(['…', '.']))
        };
        self.take_what_goes_ahead && self.openings.iter().any(is_one)
    }

    /// What the server would show of a thread's beginning.
    pub(super) fn get(&self, thread_id: &str, place: PreviewPlace) -> Option<&str> {
        let words = self.by_thread.get(thread_id).map(String::as_str);
        match (self.of_images, place) {
            (ImagePreviews::Everywhere, _) | (ImagePreviews::InLists, PreviewPlace::List) => words,
            (ImagePreviews::InLists, PreviewPlace::Thread) | (ImagePreviews::Nowhere, _) => {
                words.map(|words| if words == IMAGE_PREVIEW { "" } else { words })
            }
        }
    }
}

/// Learns of threads from what codex says when one is started, resumed or forked, or takes a turn.
#[derive(Debug, Default)]
pub(super) struct Threads {
    told: HashSet<String>,
    /// Threads that have had a turn, here or before they were resumed.
    begun: HashSet<String>,
    /// The thread whose first turn the message at hand has accepted.
    just_began: Option<String>,
}

impl Threads {
    /// Looks at a message of the server; gives the thread that it tells of for the first time.
    pub(super) fn told(&mut self, message: &Event<'_>, completed: Option<&OpenCall>) -> Option<String> {
        self.just_began = None;
        let call = completed.and_then(|call| call.method);
        let thread_id = match (message.method, call) {
            (Some(Method::ThreadStarted), _) => thread_in(message.params?)?,
            (None, Some(Method::ThreadStart)) => thread_in(message.result?)?,
            (None, Some(Method::ThreadResume | Method::ThreadFork)) => {
                let thread_id = thread_in(message.result?)?;
                self.begin(&thread_id);
                thread_id
            }
            (None, Some(Method::TurnStart)) if message.result.is_some() => {
                let thread_id = completed?.thread_id.clone()?;
                self.just_began = self.begin(&thread_id).then(|| thread_id.clone());
                thread_id
            }
            (_, _) => return None,
        };
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(thread_id.clone()).then_some(thread_id)
    }
}

impl Threads {
    /// Whether a thread was seen.
    pub(super) fn knows(&self, thread_id: &str) -> bool {
        self.told.contains(thread_id)
    }

    /// A thread has had a turn; whether that is news.
    fn begin(&mut self, thread_id: &str) -> bool {
        // With too many to remember, none is taken for new.
        self.begun.len() < TOLD_MAX && self.begun.insert(thread_id.to_owned())
    }

    /// Whether the message that was looked at last has accepted the first turn of a thread.
    pub(super) fn just_began(&self, thread_id: &str) -> bool {
        self.just_began.as_deref() == Some(thread_id)
    }
}

/// The id of the thread in an object that carries one.
fn thread_in(value: &serde_json::value::RawValue) -> Option<String> {
    Members::of(Members::of(value)?.get("thread")?)?.text("id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::open_calls::OpenCalls;
    use crate::wire::Body;

    #[test]
    fn threads_are_told_once() {
        let (mut threads, mut calls) = (Threads::default(), OpenCalls::default());
        let mut play = |step: &str| {
            let Body::Message(message) = Body::parse(&step.as_bytes()[1..]) else { panic!("{step}: no message") };
            let event = Event::of(&message);
            if step.starts_with('>') {
                return calls.open(&event, None).and(None);
            }
            threads.told(&event, calls.complete(&event).call.as_deref())
        };
        assert_eq!(play(r#">{"id":1,"method":"thread/start","params":{}}"#), None);
        assert_eq!(play(r#"<{"id":"1","result":{"thread":{"id":"no"}}}"#), None);
        assert_eq!(play(r#"<{"id":1,"result":{"thread":{"id":"a"}}}"#).as_deref(), Some("a"));
        assert_eq!(play(r#"<{"method":"thread/started","params":{"thread":{"id":"a"}}}"#), None);
        assert_eq!(play(r#"<{"method":"thread/started","params":{"thread":{"id":"b"}}}"#).as_deref(), Some("b"));
        assert_eq!(play(r#">{"id":2,"method":"turn/start","params":{"threadId":"c"}}"#), None);
        assert_eq!(play(r#"<{"id":2,"error":{"code":-32600}}"#), None);
        assert_eq!(play(r#"<{"id":2,"result":{}}"#), None);
        assert_eq!(play(r#">{"id":3,"method":"turn/start","params":{"threadId":"c"}}"#), None);
        assert_eq!(play(r#"<{"id":3,"result":{}}"#).as_deref(), Some("c"));
    }

    #[test]
    fn beginnings_are_bounded() {
        let mut previews = Previews::default();
        assert_eq!(previews.learn("t0", &"x".repeat(2_000)).map(|kept| kept.len()), Some(PREVIEW_CHARS_MAX));
        assert_eq!(previews.learn("t0", "y"), None);
        (1..=PREVIEWS_MAX).for_each(|number| assert!(previews.learn(&format!("t{number}"), "z").is_some()));
        let get = |thread_id| previews.get(thread_id, PreviewPlace::Thread);
        assert_eq!((get("t0"), get("t1")), (None, Some("z")));
    }

    #[test]
    fn images_are_told_of_as_the_server_does() {
        for (version, in_list, by_itself) in [
            ("0.77.0", "", ""),
            ("0.98.0", "", ""),
            ("0.125.0", "[Image]", ""),
            ("0.135.0-alpha.1", "[Image]", "[Image]"),
            ("0.169.0", "[Image]", "[Image]"),
            ("1.0.0", "[Image]", "[Image]"),
            ("nonsense", "[Image]", "[Image]"),
        ] {
            let mut previews = Previews::default();
            previews.server_is(version);
            previews.learn("image", IMAGE_PREVIEW);
            previews.learn("words", "hi");
            let get =
                |thread_id| [PreviewPlace::List, PreviewPlace::Thread].map(|place| previews.get(thread_id, place));
            assert_eq!(get("image"), [Some(in_list), Some(by_itself)], "{version}");
            assert_eq!(get("words"), [Some("hi"); 2], "{version}");
        }
    }
}
