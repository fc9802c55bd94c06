//! Threads seen in this run, and the beginnings of threads whose first message carried an envelope.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::open_calls::OpenCall;
use crate::protocol::{Event, Method};
use crate::wire::Members;

/// Most opening markers that previews recognize.
const OPENINGS_MAX: usize = 1_024;

/// Threads remembered as reported; one more clears them.
const REPORTED_MAX: usize = 4_096;

/// Threads whose beginnings are stored.
const PREVIEWS_MAX: usize = 256;

/// Longest stored beginning, in characters.
pub(super) const PREVIEW_CHARS_MAX: usize = 1_000;

/// The preview of a thread that begins with only an image.
pub(super) const IMAGE_PREVIEW: &str = "[Image]";

/// The users' first words by thread, to repair previews that codex cut inside an envelope.
#[derive(Debug, Default)]
pub(super) struct Previews {
    by_thread: HashMap<String, String>,
    oldest_first: VecDeque<String>,
    of_images: ImagePreviews,
    /// This server takes an item sent ahead of the first message as the thread's beginning.
    take_what_goes_ahead: bool,
    /// Opening tags of user-role fragments.
    openings: Vec<String>,
}

/// The minor number of a 0.x version; no other major version exists yet.
pub(super) fn minor_of(codex_version: &str) -> Option<u32> {
    let minor = codex_version.strip_prefix("0.")?.split('.').next()?.parse().ok();
    // A build from source reports 0.0.0 and may be of any age.
    minor.filter(|minor| *minor > 0)
}

/// Which previews of this server mention an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ImagePreviews {
    #[default]
    Everywhere,
    InLists,
    Nowhere,
}

/// The place of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviewPlace {
    /// In a list of threads.
    List,
    /// In a single thread.
    Thread,
}

impl ImagePreviews {
    /// Source: observed with 0.77 and 0.98, with 0.125, and from 0.135 on.
    fn of(codex_version: &str) -> ImagePreviews {
        match minor_of(codex_version) {
            Some(..125) => ImagePreviews::Nowhere,
            Some(125..135) => ImagePreviews::InLists,
            Some(135..) | None => ImagePreviews::Everywhere,
        }
    }
}

impl Previews {
    /// Stores the beginning of a thread; the first report counts. Returns the stored text if it is new.
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

    pub(super) fn server_is(&mut self, codex_version: &str) {
        self.of_images = ImagePreviews::of(codex_version);
        // Observed with 0.125 but not with 0.135; older versions accept no items ahead.
        self.take_what_goes_ahead = minor_of(codex_version).is_some_and(|minor| (125..135).contains(&minor));
    }

    /// Registers opening tags of texts sent ahead of turns.
    pub(super) fn may_begin_with(&mut self, openings: Vec<String>) {
        // Threads may still echo fragments from before the settings changed.
        let new = openings.into_iter().filter(|opening| !self.openings.contains(opening));
        let new: Vec<String> = new.take(OPENINGS_MAX.saturating_sub(self.openings.len())).collect();
        self.openings.extend(new);
    }

    /// Whether a preview may show a fragment that was sent ahead.
    pub(super) fn may_show_fragments(&self) -> bool {
        self.take_what_goes_ahead && !self.openings.is_empty()
    }

    /// Whether a thread that begins with `words` begins with a fragment, whole or cut off.
    pub(super) fn is_fragment(&self, words: &str) -> bool {
        let is_one = |opening: &String| {
            let closing = format!("</{}>", opening.trim_matches(['<', '>', '\n']));
            words.starts_with(opening) && (words.ends_with(&closing) || words.ends_with(['…', '.']))
        };
        self.take_what_goes_ahead && self.openings.iter().any(is_one)
    }

    /// The server's own preview of a thread's real beginning.
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

/// Tracks threads from codex's messages about starts, resumes, forks and turns.
#[derive(Debug, Default)]
pub(super) struct Threads {
    reported: HashSet<String>,
    /// Threads that have had a turn, in this run or before they were resumed.
    begun: HashSet<String>,
    /// The thread whose first turn the current message accepted.
    just_began: Option<String>,
}

impl Threads {
    /// Inspects a server message; returns the thread that it mentions for the first time.
    pub(super) fn first_mention(&mut self, event: &Event<'_>, completed: Option<&OpenCall>) -> Option<String> {
        self.just_began = None;
        let call = completed.and_then(|call| call.method);
        let thread_id = match (event.method, call) {
            (Some(Method::ThreadStarted), _) => thread_in(event.params?)?,
            (None, Some(Method::ThreadStart)) => thread_in(event.result?)?,
            (None, Some(Method::ThreadResume | Method::ThreadFork)) => {
                let thread_id = thread_in(event.result?)?;
                self.begin(&thread_id);
                thread_id
            }
            (None, Some(Method::TurnStart)) if event.result.is_some() => {
                let thread_id = completed?.thread_id.clone()?;
                self.just_began = self.begin(&thread_id).then(|| thread_id.clone());
                thread_id
            }
            (_, _) => return None,
        };
        if self.reported.len() >= REPORTED_MAX {
            self.reported.clear();
        }
        self.reported.insert(thread_id.clone()).then_some(thread_id)
    }
}

impl Threads {
    pub(super) fn knows(&self, thread_id: &str) -> bool {
        self.reported.contains(thread_id)
    }

    /// Marks a thread as begun; returns whether that is new.
    fn begin(&mut self, thread_id: &str) -> bool {
        // If the set is full, no thread counts as new.
        self.begun.len() < REPORTED_MAX && self.begun.insert(thread_id.to_owned())
    }

    /// Whether the last inspected message accepted the first turn of a thread.
    pub(super) fn just_began(&self, thread_id: &str) -> bool {
        self.just_began.as_deref() == Some(thread_id)
    }
}

fn thread_in(value: &serde_json::value::RawValue) -> Option<String> {
    Members::of(Members::of(value)?.get("thread")?)?.text("id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::open_calls::OpenCalls;
    use crate::wire::Body;

    #[test]
    fn threads_are_reported_once() {
        let (mut threads, mut calls) = (Threads::default(), OpenCalls::default());
        let mut play = |step: &str| {
            let Body::Message(message) = Body::parse(&step.as_bytes()[1..]) else { panic!("{step}: no message") };
            let event = Event::of(&message);
            if step.starts_with('>') {
                return calls.open(&event, None).and(None);
            }
            threads.first_mention(&event, calls.complete(&event).call.as_deref())
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
    fn image_previews_match_the_server() {
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
