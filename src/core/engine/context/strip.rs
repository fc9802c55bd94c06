//! Hides from the client what we add to its conversations, so that it sees what it would have seen without us: the text that
//! we put in front of the user's words, and the items that our own calls put into histories.
//!
//! *Texts.* Envelopes and projections are removed only where codex repeats a user's message: at the start of the first text of
//! a user message, of a thread's preview, and in a search snippet. A marker anywhere else is a quotation. The places come
//! from codex's schema (0.169) and from the output of 0.77 and 0.98. Only the removed stretches change; ranges that count from
//! the start of a text are shifted.
//!
//! *Items.* A client that asks for raw events is notified of every message that codex adds to a history, including ours. A
//! message counts as an echo only if its whole content is ours. Text between markers is ours for the rest of the run. Plain
//! text, such as a reason, matches only once and only until the next turn of its thread ends, because a user may write the
//! same words. Only a bounded number of digests is stored, never text.

use std::collections::VecDeque;

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use super::envelope::{
    MARKER_END, is_cut_off, is_cut_off_in_snippet, is_end_in_snippet, is_end_of_ours, is_ours, is_ours_in_snippet,
    is_start_of_marker, move_range, move_ranges,
};
use crate::engine::threads::Threads;
use crate::protocol::{
    Dialect, EVENT_MEMBER, Event, Method, PAST_EVENTS, THREAD_NAMES, USER_MESSAGES, has_user_words, raw_item, thread_id,
};
use crate::wire::{Body, Conn, Members, Message, Splice, elements, text};

/// How the start and end markers begin in JSON; the next digit distinguishes them.
const MARK_IN_JSON: &[u8] = b"\\u001";

/// The text before a preview.
const PREVIEW_IN_JSON: &[u8] = b"\"preview\"";

/// The end marker in JSON.
const END_IN_JSON: &[u8] = b"\\u001f";

/// Deepest nesting of inspected objects: a message, its result, a page, a thread, a turn, an item, a content.
const DEPTH_MAX: usize = 8;

/// Most opening markers that previews recognize.
const OPENINGS_MAX: usize = 1_024;

/// The preview of a thread that begins with only an image.
pub(super) const IMAGE_PREVIEW: &str = "[Image]";

/// The previews of threads that this server shows, and how ours may be in them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Previews {
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum ImagePreviews {
    #[default]
    Everywhere,
    InLists,
    Nowhere,
}

/// The place of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreviewPlace {
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

    /// The server's own preview of a thread that begins with these words of the user.
    fn shown<'a>(&self, words: &'a str, place: PreviewPlace) -> &'a str {
        match (self.of_images, place) {
            (ImagePreviews::Everywhere, _) | (ImagePreviews::InLists, PreviewPlace::List) => words,
            (ImagePreviews::InLists, PreviewPlace::Thread) | (ImagePreviews::Nowhere, _) => {
                if words == IMAGE_PREVIEW {
                    ""
                } else {
                    words
                }
            }
        }
    }
}

/// Quickly rules out lines with nothing to remove, which is nearly all of them.
#[derive(Debug)]
pub(super) struct Scanner {
    mark: memmem::Finder<'static>,
    preview: memmem::Finder<'static>,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner { mark: memmem::Finder::new(MARK_IN_JSON), preview: memmem::Finder::new(PREVIEW_IN_JSON) }
    }
}

impl Scanner {
    /// Whether a server line may contain text that the client must not see.
    pub(super) fn may_hold_ours(&self, line: &[u8], message: &Message<'_>, previews: &Previews) -> bool {
        self.may_hold_envelope(line, message) || (previews.may_show_fragments() && self.preview.find(line).is_some())
    }

    /// Whether a call of a client may contain a marker.
    pub(super) fn may_begin_envelope(&self, line: &[u8]) -> bool {
        memchr::memchr(b'\\', line)
            .and_then(|first| line.get(first..))
            .is_some_and(|line| self.mark.find(line).is_some())
    }

    /// Whether a line may contain a marker. A snippet may show only the end of an envelope and comes in a response; a
    /// preview that begins inside an envelope comes in responses and in thread notifications.
    fn may_hold_envelope(&self, line: &[u8], message: &Message<'_>) -> bool {
        // Most lines have no escape, and a search for one byte is faster than for several.
        let Some(line) = memchr::memchr(b'\\', line).and_then(|first| line.get(first..)) else { return false };
        let may_show_end = message.method.as_deref().is_none_or(|method| method.starts_with("thread/"));
        self.mark.find_iter(line).any(|at| match line.get(at + MARK_IN_JSON.len()) {
            Some(b'e' | b'E') => true,
            Some(b'f' | b'F') => may_show_end,
            Some(_) | None => false,
        })
    }
}

/// The line without our text; `None` if it has none.
pub(super) fn strip(
    line: &[u8],
    message: &Message<'_>,
    previews: &Previews,
    foreign: &Foreign,
    threads: &Threads,
) -> Option<Vec<u8>> {
    let mut stripper = Stripper { splice: Splice::of(line), previews, foreign, threads, place: PreviewPlace::Thread };
    match (message.method.as_deref(), message.params, message.result) {
        (Some(method), Some(params), _) if Dialect::of(method) != Dialect::Now => {
            stripper.event(Members::of(params)?.get(EVENT_MEMBER)?, 0);
        }
        (Some(_), Some(params), _) => stripper.node(params, 0),
        (None, _, Some(result)) => stripper.node(result, 0),
        (Some(_), None, _) | (None, _, None) => return None,
    }
    stripper.splice.apply()
}

struct Stripper<'a> {
    splice: Splice<'a>,
    previews: &'a Previews,
    foreign: &'a Foreign,
    threads: &'a Threads,
    /// The place of the previews being visited.
    place: PreviewPlace,
}

impl Stripper<'_> {
    /// Visits a value that is or contains threads, turns, items, inputs or snippets.
    fn node(&mut self, value: &RawValue, depth: usize) {
        let Some(members) = Members::of(value).filter(|_| depth < DEPTH_MAX) else { return };
        for (name, value) in members.iter() {
            match name {
                "thread" | "turn" | "queuedSubmission" | "initialTurnsPage" | "summary" => self.node(value, depth + 1),
                "item" => self.item(value),
                "data" | "threads" | "turns" => {
                    let around = std::mem::replace(&mut self.place, PreviewPlace::List);
                    elements(value).into_iter().flatten().for_each(|element| self.node(element, depth + 1));
                    self.place = around;
                }
                "items" => elements(value).into_iter().flatten().for_each(|item| {
                    self.item(item);
                    // It may be a thread.
                    if let Some(listed) = Members::of(item)
                        && let Some(preview) = listed.get("preview")
                    {
                        self.preview("preview", preview, &listed);
                    }
                }),
                _ if PAST_EVENTS.contains(&name) => self.events(value, depth + 1),
                "input" => self.content(value),
                // 0.125 names a thread after its beginning if an item was sent ahead.
                "preview" | "name" => self.preview(name, value, &members),
                "snippet" => self.snippet(value, &members),
                _ => {}
            }
        }
    }

    /// An item of a turn or of a model's history.
    fn item(&mut self, value: &RawValue) {
        let Some(members) = Members::of(value) else { return };
        let is_users = match members.text("type").as_deref() {
            Some("message") => members.text("role").as_deref() == Some("user"),
            Some(kind) => USER_MESSAGES.contains(&kind),
            None => false,
        };
        if is_users && let Some(content) = members.get("content") {
            self.content(content);
        }
    }

    /// A user's input: only its first text matters. In a model's history, codex puts an image between two texts of its
    /// own.
    fn content(&mut self, value: &RawValue) {
        let Some(items) = elements(value) else { return };
        let contents: Vec<Content> = items.iter().map(|item| Content::of(item)).collect();
        let is_image = |index: Option<usize>| {
            index.and_then(|index| contents.get(index)).is_some_and(|content| content.kind == "input_image")
        };
        let first = contents.iter().enumerate().find_map(|(index, content)| {
            let labels_image = match content.members.text("text").as_deref() {
                Some("</image>") => is_image(index.checked_sub(1)),
                Some(text) => text.starts_with("<image ") && is_image(Some(index + 1)),
                None => false,
            };
            let is_text = content.kind == "text" || (content.kind == "input_text" && !labels_image);
            is_text.then_some((index, &content.members))
        });
        let Some((index, members)) = first else { return };
        let Some(envelope) = members.get("text").and_then(|text| self.leading(text)) else { return };
        if envelope.is_all {
            self.remove_element(&items, index);
        } else {
            self.cut(members, "text", &envelope);
        }
    }

    /// Our text at the start of a string.
    fn leading(&self, value: &RawValue) -> Option<Leading> {
        Leading::in_text(value, |text| is_ours(text) && !self.foreign.contains(text))
    }

    /// Removes an envelope from the text member `name`, and shifts the ranges beside it.
    fn cut(&mut self, members: &Members<'_>, name: &str, envelope: &Leading) {
        let Some(value) = members.get(name) else { return };
        let start = self.splice.range_of(value).start + 1;
        self.splice.replace(start..start + envelope.raw_bytes, "");
        let moved_by = envelope.utf8_bytes as u64;
        move_ranges(&mut self.splice, members, |offset| Some(offset.saturating_sub(moved_by)));
    }

    fn remove_element(&mut self, items: &[&RawValue], index: usize) {
        let own = self.splice.range_of(items[index]);
        let range = match (items.get(index + 1), index.checked_sub(1)) {
            (Some(next), _) => own.start..self.splice.range_of(next).start,
            (None, Some(previous)) => self.splice.range_of(items[previous]).end..own.end,
            (None, None) => own,
        };
        self.splice.replace(range, "");
    }

    /// The preview of a thread: its first message, possibly cut off.
    fn preview(&mut self, called: &str, value: &RawValue, thread: &Members<'_>) {
        match self.leading(value) {
            Some(envelope) if envelope.is_all => self.replace_preview(value, thread, usize::MAX),
            Some(envelope) => {
                match envelope.rest(value).filter(|rest| is_cut_off(rest)) {
                    // One of the two is whole, the other is cut off.
                    Some(cut) => self.replace_preview(value, thread, cut.chars().count()),
                    None => self.cut(thread, called, &envelope),
                }
            }
            None => match Leading::from_inside(value) {
                Some(ours) if ours.is_all => self.replace_preview(value, thread, usize::MAX),
                Some(ours) => self.cut(thread, called, &ours),
                None => match text(value) {
                    Some(cut) if is_cut_off(&cut) => self.replace_preview(value, thread, cut.chars().count()),
                    Some(fragment) if self.previews.is_fragment(&fragment) => {
                        self.replace_preview(value, thread, usize::MAX);
                    }
                    Some(_) | None => {}
                },
            },
        }
    }

    /// Inserts the user's own words if they are known, at most `chars_max` of them.
    fn replace_preview(&mut self, value: &RawValue, thread: &Members<'_>, chars_max: usize) {
        let known = THREAD_NAMES.iter().find_map(|name| self.threads.find(&thread.text(name)?)?.words());
        let shown = self.previews.shown(known.unwrap_or_default(), self.place);
        let words: String = shown.chars().take(chars_max).collect();
        let quoted = serde_json::to_string(&words).expect("BUG: a string is JSON");
        self.splice.replace(self.splice.range_of(value), quoted);
    }

    /// An excerpt around a search match: removes what it shows of ours, up to its end. One that ends inside of ours has nothing of
    /// the user's.
    fn snippet(&mut self, value: &RawValue, found: &Members<'_>) {
        let leading = Leading::in_snippet(value);
        let rest = match &leading {
            Some(leading) => leading.rest(value),
            None => serde_json::from_str(value.get()).ok(),
        };
        let follows_ours = leading.is_some();
        let is_cut = rest.is_some_and(|rest| is_cut_off_in_snippet(&rest) || follows_ours && is_start_of_marker(&rest));
        let range = found.get("snippetMatchRange");
        if is_cut {
            self.splice.replace(self.splice.range_of(value), "\"\"");
            if let Some(range) = range {
                move_range(&mut self.splice, range, |_| Some(0));
            }
        } else if let Some(ours) = leading {
            let start = self.splice.range_of(value).start + 1;
            self.splice.replace(start..start + ours.raw_bytes, "");
            if let Some(range) = range {
                // Counted in UTF-16, as observed with 0.169.
                let moved_by = ours.utf16_units as u64;
                move_range(&mut self.splice, range, |offset| Some(offset.saturating_sub(moved_by)));
            }
        }
    }

    fn events(&mut self, value: &RawValue, depth: usize) {
        elements(value).into_iter().flatten().for_each(|event| self.event(event, depth));
    }

    fn event(&mut self, value: &RawValue, depth: usize) {
        let Some(members) = Members::of(value).filter(|_| depth < DEPTH_MAX) else { return };
        for (name, value) in members.iter() {
            match name {
                "item" => self.item(value),
                "message" if has_user_words(&members) => {
                    if let Some(envelope) = self.leading(value) {
                        self.cut(&members, name, &envelope);
                    }
                }
                _ if PAST_EVENTS.contains(&name) => self.events(value, depth + 1),
                _ => {}
            }
        }
    }
}

/// One item of a user's input.
struct Content<'a> {
    kind: String,
    members: Members<'a>,
}

impl<'a> Content<'a> {
    fn of(item: &'a RawValue) -> Content<'a> {
        let members = Members::of(item).unwrap_or_default();
        Content { kind: members.text("type").unwrap_or_default(), members }
    }
}

/// A JSON string from its start to the end of an envelope.
#[derive(Debug)]
struct Leading {
    /// Length as written, without the quotation mark before it.
    raw_bytes: usize,
    /// Decoded length in UTF-8.
    utf8_bytes: usize,
    /// Decoded length in UTF-16.
    utf16_units: usize,
    /// The envelope is the whole string.
    is_all: bool,
}

impl Leading {
    /// Finds our text at the start of a string: an envelope, a projection after it, and both again if one shim runs
    /// behind another.
    fn in_text(value: &RawValue, is_one: impl Fn(&str) -> bool) -> Option<Leading> {
        let (leading, unescaped) = Leading::up_to_end(value, 0)?;
        is_one(&unescaped).then(|| leading.and_further(value, is_one))
    }

    /// Finds our text at the start of a preview that codex cut: it shows only the text after its own heading, even if
    /// that heading was quoted inside our text.
    fn from_inside(value: &RawValue) -> Option<Leading> {
        let (leading, unescaped) = Leading::up_to_end(value, 0)?;
        let shown = unescaped.strip_suffix(MARKER_END)?;
        is_end_of_ours(shown).then(|| leading.and_further(value, is_ours))
    }

    /// Extends the match over the following texts while `is_one` accepts them.
    fn and_further(self, value: &RawValue, is_one: impl Fn(&str) -> bool) -> Leading {
        let mut leading = self;
        while let Some((further, unescaped)) = Leading::up_to_end(value, leading.raw_bytes)
            && is_one(&unescaped)
        {
            leading.utf8_bytes += further.utf8_bytes;
            leading.utf16_units += further.utf16_units;
            leading = Leading { raw_bytes: further.raw_bytes, is_all: further.is_all, ..leading };
        }
        leading
    }

    /// The text after the match.
    fn rest(&self, value: &RawValue) -> Option<String> {
        let raw = value.get().strip_prefix('"')?.strip_suffix('"')?;
        serde_json::from_str(&format!("\"{}\"", raw.get(self.raw_bytes..)?)).ok()
    }

    /// Finds what a snippet shows of our text: all of it, or its last characters after an ellipsis. Blanks may replace
    /// line ends.
    fn in_snippet(value: &RawValue) -> Option<Leading> {
        let (leading, unescaped) = Leading::up_to_end(value, 0)?;
        let shown = unescaped.strip_suffix(MARKER_END)?;
        let is_one = is_ours_in_snippet(&unescaped) || is_end_in_snippet(shown);
        is_one.then(|| leading.and_further(value, is_ours_in_snippet))
    }

    /// A text from byte `from` up to the next end marker, which cannot occur inside an envelope. `raw_bytes` still
    /// counts from the start.
    fn up_to_end(value: &RawValue, from: usize) -> Option<(Leading, String)> {
        let raw = value.get().strip_prefix('"')?.strip_suffix('"')?;
        let raw_bytes = from + end_of_envelope(raw.as_bytes().get(from..)?)?;
        let unescaped: String = serde_json::from_str(&format!("\"{}\"", raw.get(from..raw_bytes)?)).ok()?;
        let leading = Leading {
            raw_bytes,
            utf8_bytes: unescaped.len(),
            utf16_units: unescaped.encode_utf16().count(),
            is_all: raw_bytes == raw.len(),
        };
        Some((leading, unescaped))
    }
}

/// The end of the first escaped end marker in the inside of a JSON string.
fn end_of_envelope(raw: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(b'\\', raw.get(at..)?)?;
        match raw.get(at..at + END_IN_JSON.len()) {
            Some(escape) if escape.eq_ignore_ascii_case(END_IN_JSON) => return Some(at + END_IN_JSON.len()),
            Some(_) | None => at += 2,
        }
    }
}

/// Envelopes that clients have written themselves, in front of their own words. They are shown like all that a client writes:
/// otherwise one client of a hub could show the model a text that no other client sees.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Foreign(VecDeque<TextDigest>);

type TextDigest = [u8; 20];

/// Envelopes of clients; the oldest is evicted first.
const FOREIGN_MAX: usize = 256;

impl Foreign {
    /// Registers the envelopes at the start of a client's input.
    pub(super) fn add(&mut self, first_text: &RawValue) {
        let mut from = 0;
        while let Some((leading, text)) = Leading::up_to_end(first_text, from)
            && is_ours(&text)
        {
            from = leading.raw_bytes;
            if self.contains(&text) {
                continue;
            }
            if self.0.len() == FOREIGN_MAX {
                self.0.pop_front();
            }
            self.0.push_back(Sha1::digest(text).into());
        }
    }

    fn contains(&self, text: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&<TextDigest>::from(Sha1::digest(text)))
    }
}

/// Digests of marked messages; the oldest is evicted first.
const DIGESTS_MAX: usize = 1_024;

/// Digests of plain messages, likewise.
const PLAIN_MAX: usize = 64;

type ItemDigest = [u8; 20];

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::engine) struct OwnItems {
    digests: VecDeque<ItemDigest>,
    /// Plain messages, oldest first.
    plain: VecDeque<Plain>,
}

/// Text of ours that a user might write too.
#[derive(Debug, Serialize, Deserialize)]
struct Plain {
    thread_id: String,
    digest: ItemDigest,
    /// The connections and notifications that have reported the item. A repeated report is not ours.
    reported: Vec<(Conn, Method)>,
    /// A turn has ended since, possibly the previous one.
    one_is_over: bool,
}

impl OwnItems {
    /// Registers the items that one of our calls injects.
    pub(in crate::engine) fn expect(&mut self, call: &[u8]) {
        for digest in digests_in(call) {
            if self.digests.contains(&digest) {
                continue;
            }
            if self.digests.len() >= DIGESTS_MAX {
                self.digests.pop_front();
            }
            self.digests.push_back(digest);
        }
    }

    /// Registers plain items injected into `thread_id` before a turn.
    pub(in crate::engine) fn expect_plain(&mut self, thread_id: &str, call: &[u8]) {
        for digest in digests_in(call) {
            if self.plain.len() >= PLAIN_MAX {
                self.plain.pop_front();
            }
            self.plain.push_back(Plain {
                thread_id: thread_id.to_owned(),
                digest,
                reported: Vec::new(),
                one_is_over: false,
            });
        }
    }

    /// A turn of this thread ended. From now on, the same words come from somebody else.
    pub(in crate::engine) fn turn_is_over(&mut self, thread_id: &str) {
        self.plain.retain_mut(|plain| {
            let is_of_turn = plain.thread_id == thread_id;
            // An unreported item may precede the turn after the one that just ended.
            let goes = is_of_turn && (!plain.reported.is_empty() || plain.one_is_over);
            plain.one_is_over |= is_of_turn;
            !goes
        });
    }

    /// Whether a server notification reports only items that we injected.
    pub(in crate::engine) fn is_echo(&mut self, conn: Conn, event: &Event<'_>) -> bool {
        if (self.digests.is_empty() && self.plain.is_empty()) || event.id.is_some() {
            return false;
        }
        let params = event.params.and_then(Members::of).unwrap_or_default();
        let digest = raw_item(event.method, &params).and_then(digest_of);
        let Some((method, digest)) = event.method.zip(digest) else { return false };
        if self.digests.contains(&digest) {
            return true;
        }
        let Some(thread_id) = thread_id(&params) else { return false };
        let awaited = |plain: &&mut Plain| {
            plain.digest == digest && plain.thread_id == thread_id && !plain.reported.contains(&(conn, method))
        };
        let Some(plain) = self.plain.iter_mut().find(awaited) else { return false };
        plain.reported.push((conn, method));
        true
    }
}

fn digests_in(call: &[u8]) -> Vec<ItemDigest> {
    let Body::Message(message) = Body::parse(call) else { return Vec::new() };
    let items = message.params.and_then(Members::of).and_then(|params| elements(params.get("items")?));
    items.unwrap_or_default().into_iter().filter_map(digest_of).collect()
}

/// Digest of a message's role and texts; `None` if the item is not a message or has non-text content.
fn digest_of(item: &RawValue) -> Option<ItemDigest> {
    let item = Members::of(item)?;
    if item.text("type")? != "message" {
        return None;
    }
    let mut sha1 = Sha1::new();
    let mut add = |text: &str| {
        sha1.update((text.len() as u64).to_le_bytes());
        sha1.update(text);
    };
    add(&item.text("role")?);
    let content = item.get("content").and_then(elements).filter(|content| !content.is_empty())?;
    for part in content {
        let part = Members::of(part)?;
        if part.text("type")? != "input_text" {
            return None;
        }
        add(&part.text("text")?);
    }
    Some(sha1.finalize().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::envelope::TurnStart;
    use super::*;
    use crate::engine::assembly::projection::{QuotedMessage, project};
    use crate::wire::{Body, Conn};

    /// As a server writes it; decoded, it has 69 bytes and 68 UTF-16 units.
    const ENVELOPE: &str =
        r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"commands\":[],\"a\":\"é\"}\u001f"#;
    const ENVELOPE_BYTES: usize = 69;
    const ENVELOPE_UNITS: usize = 68;

    /// A server's previews, and the threads with known beginnings.
    #[derive(Default)]
    struct Shown(Previews, Threads);

    impl Shown {
        fn learn(&mut self, thread_id: &str, words: &str) {
            self.1.of(thread_id).learn_words(words);
        }
    }

    fn stripped(line: &str, previews: &Shown) -> Option<String> {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        if !Scanner::default().may_hold_ours(line.as_bytes(), &message, &previews.0) {
            return None;
        }
        strip(line.as_bytes(), &message, &previews.0, &Foreign::default(), &previews.1)
            .map(|line| String::from_utf8(line).expect("BUG: it was UTF-8"))
    }

    /// `@` stands for an envelope.
    fn check(line: &str, expect: &str) {
        let sent = line.replace('@', ENVELOPE);
        assert_eq!(stripped(&sent, &Shown::default()).as_deref(), Some(expect), "{line}");
    }

    fn check_stays(line: &str) {
        let sent = line.replace('@', ENVELOPE);
        assert_eq!(stripped(&sent, &Shown::default()), None, "{line}");
    }

    #[test]
    fn items_are_stripped_everywhere() {
        let user = |words: &str| format!(r#"{{"type":"userMessage","content":[{{"type":"text","text":"{words}"}}]}}"#);
        let (with, without) = (user("@hi"), user("hi"));
        for place in [
            r#"{"method":"item/started","params":{"item":$,"threadId":"t"},"emittedAtMs":1}"#,
            r#"{"method":"turn/completed","params":{"turn":{"id":"u","items":[{"type":"x"},$]}}}"#,
            r#"{"id":1,"result":{"thread":{"turns":[{"items":[$]}]}}}"#,
            r#"{"id":1,"result":{"thread":{},"initialTurnsPage":{"data":[{"items":[$,$]}]}}}"#,
            r#"{"id":1,"result":{"turn":{"items":[$]}}}"#,
            r#"{"id":1,"result":{"data":[{"turnId":"u","item":$},{"items":[$]}]}}"#,
            r#"{"method":"thread/started","params":{"thread":{"turns":[{"items":[$]}]}}}"#,
            r#"{"method":"codex/event/item_started","params":{"msg":{"type":"item_started","item":$}}}"#,
            r#"{"method":"codex/event/session_configured","params":{"msg":{"initial_messages":[{"item":$}]}}}"#,
        ] {
            check(&place.replace('$', &with), &place.replace('$', &without));
        }
    }

    #[test]
    fn other_user_message_shapes_are_stripped() {
        check(
            r#"{"method":"rawResponseItem/completed","params":{"item":{"type":"message","role":"user","content":[{"type":"input_text","text":"@hi"}]}}}"#,
            r#"{"method":"rawResponseItem/completed","params":{"item":{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}}}"#,
        );
        check(
            r#"{"id":1,"result":{"data":[{"input":[{"type":"image"},{"type":"text","text":"@hi"}]}]}}"#,
            r#"{"id":1,"result":{"data":[{"input":[{"type":"image"},{"type":"text","text":"hi"}]}]}}"#,
        );
        check(
            r#"{"method":"codex/event/user_message","params":{"msg":{"type":"user_message","message":"@","images":[]}}}"#,
            r#"{"method":"codex/event/user_message","params":{"msg":{"type":"user_message","message":"","images":[]}}}"#,
        );
    }

    #[test]
    fn ranges_move_back() {
        let line = |words: &str, name: &str, start: usize| {
            let span = format!(r#"{{"{name}":{{"start":{start},"end":{}}}}}"#, start + 4);
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"text_elements":[{span}],"text":"{words}","type":"text"}}]}}}}}}"#
            )
        };
        for name in ["byteRange", "byte_range"] {
            check(&line("@hi there", name, ENVELOPE_BYTES + 3), &line("hi there", name, 3));
        }
        check(
            r#"{"method":"codex/event/user_message","params":{"msg":{"type":"user_message","message":"@hi","text_elements":[{"byte_range":{"start":69,"end":71}}]}}}"#,
            r#"{"method":"codex/event/user_message","params":{"msg":{"type":"user_message","message":"hi","text_elements":[{"byte_range":{"start":0,"end":2}}]}}}"#,
        );
    }

    #[test]
    fn envelope_only_item_is_removed() {
        let line = |content: &str| {
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{content}],"id":"i"}}}}}}"#
            )
        };
        let own = r#"{"type":"text","text":"@","text_elements":[]}"#;
        check(&line(own), &line(""));
        check(&line(&format!(r#"{own}, {{"type":"image"}}"#)), &line(r#"{"type":"image"}"#));
        check(&line(&format!(r#"{{"type":"image"}}, {own}"#)), &line(r#"{"type":"image"}"#));
        check(&line(&format!(r#"{own},{{"type":"text","text":""}}"#)), &line(r#"{"type":"text","text":""}"#));
    }

    #[test]
    fn only_leading_envelope_is_removed() {
        let line = |words: &str| format!(r#"{{"id":1,"result":{{"thread":{{"preview":"{words}"}}}}}}"#);
        check(&line("@@x"), &line("x"));
        let mine = r#"\u001eCODEX_META {\"a\":1}\u001fx"#;
        check(&line(&format!("@{mine}")), &line(mine));
    }

    #[test]
    fn envelopes_of_clients_stay() {
        let item = |words: &str| {
            let words = words.replace('@', ENVELOPE).replace('#', &ENVELOPE.replace("é", "u"));
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"type":"text","text":"{words}"}}]}}}}}}"#
            )
        };
        let echo = |given: &str, sent: &str| {
            let mut foreign = Foreign::default();
            let given = format!("\"{}\"", given.replace('@', ENVELOPE).replace('#', &ENVELOPE.replace("é", "u")));
            foreign.add(serde_json::from_str(&given).expect("BUG: it is JSON"));
            let line = item(sent);
            let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
            let (previews, threads) = (Previews::default(), Threads::default());
            let stripped = strip(line.as_bytes(), &message, &previews, &foreign, &threads);
            stripped.map_or(line, |line| String::from_utf8(line).expect("BUG: it was UTF-8"))
        };
        for (given, sent, shown) in [
            ("#hi", "#hi", "#hi"),
            // Ours in front of it.
            ("#hi", "@#hi", "#hi"),
            ("##hi", "@##hi", "##hi"),
            ("#@hi", "#@hi", "#@hi"),
            ("hi", "@hi", "hi"),
            ("hi", "#hi", "hi"),
            ("hi # there", "@hi # there", "hi # there"),
        ] {
            assert_eq!(echo(given, sent), item(shown), "{given} {sent}");
        }
    }

    #[test]
    fn words_after_bare_marker_stay() {
        let item = |words: &str| {
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"type":"text","text":"{words}"}}]}}}}}}"#
            )
        };
        let preview = |words: &str| format!(r#"{{"id":1,"result":{{"data":[{{"id":"t","preview":"{words}"}}]}}}}"#);
        let name = |words: &str| format!(r#"{{"method":"thread/started","params":{{"thread":{{"name":"{words}"}}}}}}"#);
        let old = |words: &str| {
            format!(
                r#"{{"method":"codex/event/user_message","params":{{"msg":{{"type":"user_message","message":"{words}"}}}}}}"#
            )
        };
        let snippet = |words: &str| {
            format!(
                r#"{{"id":1,"result":{{"data":[{{"snippet":"{words}","snippetMatchRange":{{"start":1,"end":2}}}}]}}}}"#
            )
        };
        for words in [
            r"\u001eCODEX_META what is this?\u001fhi",
            r"\u001eCODEX_META \u001fhi",
            r#"\u001eCODEX_META {\"v\":1}\u001fhi"#,
            r#"\u001eCODEX_META {\"v\":1,\"type\":\"other\",\"commands\":[]}\u001fhi"#,
            r#"\u001eCODEX_META {\"v\":1,\n\"type\":\"user_cmd_context\",\"commands\":[]}\u001fhi"#,
            r#" \u001eCODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"commands\":[]}\u001fhi"#,
            r"\u001eCODEX_META only this\u001f",
            r"\u001eCODEX_CONTEXT\nmine\u001fhi",
            r"\u001eCODEX_CONTEXT\nAssembled context for this turn:\nmine\u001fhi",
            r"\u001eCODEX_META no end",
            r"\u001eCODEX_META {no end",
            r"\u001eCODEX_METAL",
            r"\u001eCODEX_CONTEXT\nno end",
            r"a[0]}\u001fhi",
            r"}\u001fhi",
            r"\u001fhi",
            r"my request:\u001fhi",
        ] {
            [item(words), preview(words), name(words), old(words), snippet(words)]
                .iter()
                .for_each(|line| check_stays(line));
        }
    }

    #[test]
    fn envelopes_of_chained_shims_are_removed() {
        let whole = crate::engine::context::envelope::Envelope {
            conversation_id: "t".to_owned(),
            shell_id: None,
            total_commands_run: 0,
            commands: Vec::new(),
            mcp: Vec::new(),
        };
        let text = whole.render();
        let line = |words: &str| {
            let words = serde_json::to_string(words).expect("BUG: a string is JSON");
            let spans = |start| format!(r#"[{{"byteRange":{{"start":{start},"end":{start}}}}}]"#);
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"type":"text","text":{words},"text_elements":{}}}]}}}}}}"#,
                spans(words.len() - 2)
            )
        };
        let moved = line(&format!("{text}{text}é")).replace(
            &format!("{}", serde_json::to_string(&format!("{text}{text}é")).expect("a string").len() - 2),
            &format!("{}", 2 * text.len() + 7),
        );
        let expect = line("é").replace("\"start\":2,\"end\":2", "\"start\":7,\"end\":7");
        assert_eq!(stripped(&moved, &Shown::default()), Some(expect));
    }

    /// As a server writes it.
    fn projection() -> String {
        let messages = serde_json::json!([{ "role": "user", "content": "é \u{1f600}" }]);
        let messages = QuotedMessage::read_all(&messages).expect("BUG: they are messages");
        project(&messages, "", 24_000).expect("BUG: there is one")
    }

    fn as_written(text: &str) -> String {
        let quoted = serde_json::to_string(text).expect("BUG: a string is JSON");
        quoted[1..quoted.len() - 1].to_owned()
    }

    #[test]
    fn projection_is_removed_alone_or_after_envelope() {
        let own = as_written(&projection());
        let user = |words: &str, at: usize| {
            format!(
                r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"type":"text","text":"{words}","text_elements":[{{"byteRange":{{"start":{at},"end":{at}}}}}]}}]}}}}}}"#
            )
        };
        let bytes = projection().len();
        check(&user(&format!("{own}hi"), bytes + 1), &user("hi", 1));
        check(&user(&format!("@{own}hi"), bytes + ENVELOPE_BYTES + 2), &user("hi", 2));
        // A look-alike after an envelope is the user's.
        let quoted = r"\u001eCODEX_CONTEXT\nmine\u001fhi";
        check(&user(&format!("@{quoted}"), ENVELOPE_BYTES), &user(quoted, 0));
        check_stays(&user(&format!("see {own}"), 0));
        let alone = |content: &str| {
            format!(r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{content}]}}}}}}"#)
        };
        let image = r#"{"type":"image"}"#;
        check(&alone(&format!(r#"{{"type":"text","text":"@{own}"}},{image}"#)), &alone(image));
    }

    #[test]
    fn previews_and_snippets_of_a_projection() {
        let own = as_written(&projection());
        let mut previews = Shown::default();
        previews.learn("t", "what the user wrote");
        let line = |words: &str| format!(r#"{{"id":1,"result":{{"data":[{{"id":"t","preview":"{words}"}}]}}}}"#);
        let known = |words: &str| stripped(&line(&words.replace('@', ENVELOPE)), &previews);
        assert_eq!(known(&format!("{own}fix it")), Some(line("fix it")));
        assert_eq!(known(&format!("@{own}fix it")), Some(line("fix it")));
        assert_eq!(known(&own), Some(line("what the user wrote")));
        assert_eq!(known(r"\u001eCODEX_CONT"), Some(line("what the us")));
        assert_eq!(known(r"\u001eCODEX_CONTEXT\nAss"), Some(line("what the user wrot")));
        assert_eq!(known(r"@\u001eCODEX_CONTEXT\nAss"), Some(line("what the user wrot")));
        assert_eq!(known(r"@\u001eCODEX_"), Some(line("what th")));
        let snippet = |text: &str, start: usize| {
            format!(
                r#"{{"id":1,"result":{{"data":[{{"snippet":"{text}","snippetMatchRange":{{"start":{start},"end":{start}}}}}]}}}}"#
            )
        };
        check(&snippet(r"... user request:\n\u001fplease", 19), &snippet("please", 0));
        check(&snippet(r"… user request: \u001fplease", 17), &snippet("please", 0));
        check(
            &snippet(&format!(r#"... []}}\u001f{own}please"#), 8 + projection().encode_utf16().count()),
            &snippet("please", 0),
        );
        check_stays(&snippet(r"... my request \u001fplease", 0));
        // The words of a user who quotes the marker, alone and behind ours.
        check_stays(&snippet(r"\u001eCODEX_CONTEXT no end", 0));
        check(&snippet(r#"... []}\u001f\u001eCODEX_CONTEXT no end"#, 9), &snippet(r"\u001eCODEX_CONTEXT no end", 1));
    }

    #[test]
    fn previews_cut_inside_our_text_are_replaced() {
        let mut previews = Shown::default();
        previews.learn("t", "what the user wrote");
        for start in [r#"{"id":1,"result":{"data":[{"#, r#"{"method":"thread/started","params":{"thread":{"#] {
            let line = |words: &str| {
                let (ends, start) = (start.matches(['{', '[']).skip(1), &start[1..]);
                let ends: Vec<&str> = ends.map(|open| if open == "{" { "}" } else { "]" }).collect();
                let ends: String = ends.into_iter().rev().collect();
                format!(r#"{{{start}"id":"t","preview":"{words}"{ends}}}"#)
            };
            let known = |words: &str| stripped(&line(words), &previews);
            let end = r"old\n</conversation_context>\n\nCurrent user request:\n\u001f";
            assert_eq!(known(&format!("{end}do it")), Some(line("do it")));
            assert_eq!(known(end), Some(line("what the user wrote")));
            let envelope = r#" x\"],\"truncated\":false}}],\"mcp\":[]}\u001f"#;
            assert_eq!(known(&format!("{envelope}do it")), Some(line("do it")));
            assert_eq!(known(&format!("{envelope}{}do it", as_written(&projection()))), Some(line("do it")));
            for mine in [r"Current user request:\u001fdo it", r"{}\u001fdo it", r"a\u001f"] {
                assert_eq!(known(mine), None, "{mine}");
            }
        }
    }

    #[test]
    fn old_conversations_and_summaries() {
        check(
            r#"{"id":1,"result":{"summary":{"conversationId":"t","preview":"@hi"}}}"#,
            r#"{"id":1,"result":{"summary":{"conversationId":"t","preview":"hi"}}}"#,
        );
        check(
            r#"{"id":1,"result":{"items":[{"conversationId":"t","preview":"@hi"}],"initialMessages":[{"type":"user_message","message":"@hi"}]}}"#,
            r#"{"id":1,"result":{"items":[{"conversationId":"t","preview":"hi"}],"initialMessages":[{"type":"user_message","message":"hi"}]}}"#,
        );
    }

    #[test]
    fn image_labels_are_not_user_words() {
        let line = |words: &str| {
            format!(
                r#"{{"method":"rawResponseItem/completed","params":{{"item":{{"type":"message","role":"user","content":[{{"type":"input_text","text":"<image name=[Image #1] path=\"/x\">"}},{{"type":"input_image","image_url":"x"}},{{"type":"input_text","text":"</image>"}},{{"type":"input_text","text":"{words}"}}]}}}}}}"#
            )
        };
        check(&line("@look"), &line("look"));
    }

    #[test]
    fn previews() {
        let line = |words: &str| format!(r#"{{"id":1,"result":{{"data":[{{"id":"t","preview":"{words}","x":1}}]}}}}"#);
        check(&line("@fix it"), &line("fix it"));
        check(&line("@"), &line(""));
        check(&line(r#"\u001eCODEX_META {\"v\":1,\"ty"#), &line(""));
        check(&line(r#"\u001eCODEX_META {\"v\":1,\"ty..."#), &line(""));
        check(&line(r#"\u001eCODEX_M…"#), &line(""));
        let mut previews = Shown::default();
        previews.learn("t", "what the user wrote");
        let known = |words: &str| stripped(&line(words), &previews);
        assert_eq!(known(r#"\u001eCODEX_META {\"v"#), Some(line("what the user w")));
        assert_eq!(known(ENVELOPE), Some(line("what the user wrote")));
        let fork = |id: &str, preview: &str| {
            format!(r#"{{"id":1,"result":{{"thread":{{"id":"{id}","forkedFromId":"t","preview":"{preview}"}}}}}}"#)
        };
        assert_eq!(stripped(&fork("f", ENVELOPE), &previews), Some(fork("f", "what the user wrote")));
    }

    #[test]
    fn names_that_are_beginnings() {
        let thread = |name: &str, preview: &str| {
            format!(r#"{{"id":1,"result":{{"thread":{{"id":"t","name":"{name}","preview":"{preview}"}}}}}}"#)
        };
        check(&thread("@hi", "@hi"), &thread("hi", "hi"));
        check(&thread("@hi", "hi"), &thread("hi", "hi"));
    }

    #[test]
    fn fragment_previews_are_replaced() {
        let mut previews = Shown::default();
        previews.learn("t", "what the user wrote");
        previews.0.may_begin_with(vec!["<notes>\n".to_owned()]);
        let line = |id: &str, words: &str| {
            format!(r#"{{"id":1,"result":{{"thread":{{"id":"{id}","preview":"{words}","turns":[]}}}}}}"#)
        };
        let fragment = r"<notes>\none\n</notes>";
        assert_eq!(stripped(&line("t", fragment), &previews), None);
        previews.0.server_is("0.125.0");
        assert_eq!(stripped(&line("t", fragment), &previews), Some(line("t", "what the user wrote")));
        for words in [r"<notes> of mine", r"<notes>\nwhat do you think of this tag?"] {
            assert_eq!(stripped(&line("t", words), &previews), None);
        }
        // A thread with unknown beginning shows nothing of ours either.
        assert_eq!(stripped(&line("other", fragment), &previews), Some(line("other", "")));
        previews.0.server_is("0.135.0");
        assert_eq!(stripped(&line("t", fragment), &previews), None);
    }

    #[test]
    fn image_previews_match_the_server() {
        let mut previews = Shown::default();
        previews.0.server_is("0.125.0");
        previews.learn("t", IMAGE_PREVIEW);
        for (around, expect) in
            [(r#""thread":@"#, ""), (r#""data":[@]"#, IMAGE_PREVIEW), (r#""data":[],"thread":@"#, "")]
        {
            let line = |words: &str| {
                let thread = format!(r#"{{"id":"t","preview":"{words}"}}"#);
                format!(r#"{{"id":1,"result":{{{}}}}}"#, around.replace('@', &thread))
            };
            assert_eq!(stripped(&line(ENVELOPE), &previews), Some(line(expect)), "{around}");
        }
    }

    #[test]
    fn snippets_lose_text_up_to_end_marker() {
        let line = |snippet: &str, start: usize| {
            format!(
                r#"{{"id":1,"result":{{"data":[{{"snippet":"{snippet}","snippetMatchRange":{{"start":{start},"end":{}}}}}]}}}}"#,
                start + 2
            )
        };
        check(&line(r#"... \"mcp\": []}\u001fplease look"#, 22), &line("please look", 7));
        check(&line(r#"… é😀\"],\"truncated\":true}],\"mcp\":[]}\u001fplease look"#, 44), &line("please look", 7));
        check(&line("@please", ENVELOPE_UNITS), &line("please", 0));
        check(&line(r#"...\u001fplease"#, 4), &line("please", 0));
        let nothing = r#"{"id":1,"result":{"data":[{"snippet":"","snippetMatchRange":{"start":0,"end":0}}]}}"#;
        for cut in [r#"\u001eCODEX_META {\"v\":1,\"ty"#, r#"\u001eCODEX_META {\"v\":1,\"ty..."#, r"\u001eCODEX_META …"]
        {
            check(&line(cut, 1), nothing);
        }
        check_stays(&line(r"\u001eCODEX_META what is this?", 1));
        check_stays(&line(r#"see \u001eCODEX_META {\"v\":1,\"ty"#, 5));
        check_stays(&line(r#"... what \u001fplease"#, 1));
        check_stays(&line(r#"... \"cmd\":\"cargo"#, 1));
    }

    /// Each excerpt ends at another character of a projection, behind an envelope, behind the end of one, or at the start.
    #[test]
    fn snippets_cut_in_projections_show_nothing() {
        let line = |snippet: &str, range: &str| {
            let snippet = serde_json::to_string(snippet).expect("BUG: a string is JSON");
            format!(r#"{{"id":1,"result":{{"data":[{{"snippet":{snippet},"snippetMatchRange":{range}}}]}}}}"#)
        };
        let nothing = line("", r#"{"start":0,"end":0}"#);
        let envelope: String = serde_json::from_str(&format!("\"{ENVELOPE}\"")).expect("BUG: it is JSON");
        let whole = projection();
        let own = whole.strip_suffix('\u{1f}').expect("BUG: it ends so");
        for before in ["", &envelope, "... []}\u{1f}", &format!("… []}}\u{1f}{whole}"), &whole] {
            for at in (1..=own.len()).filter(|at| own.is_char_boundary(*at)) {
                for shown in [own[..at].to_owned(), own[..at].replace('\n', " ")] {
                    // One character may be anything.
                    if before.is_empty() && at == 1 {
                        continue;
                    }
                    for after in ["", "...", "…", " …"] {
                        let cut = line(&format!("{before}{shown}{after}"), r#"{"start":1,"end":2}"#);
                        assert_eq!(stripped(&cut, &Shown::default()).as_ref(), Some(&nothing), "{cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn quoted_markers_stay() {
        for line in [
            r#"{"method":"item/started","params":{"item":{"type":"userMessage","content":[{"type":"text","text":"see @"}]}}}"#,
            r#"{"method":"item/started","params":{"item":{"type":"userMessage","content":[{"type":"text","text":"a"},{"type":"text","text":"@b"}]}}}"#,
            r#"{"method":"item/started","params":{"item":{"type":"userMessage","content":[{"type":"text","text":"\u001eCODEX_META no end"}]}}}"#,
            r#"{"method":"item/completed","params":{"item":{"type":"agentMessage","text":"@x"}}}"#,
            r#"{"method":"item/completed","params":{"item":{"type":"commandExecution","aggregatedOutput":"@x"}}}"#,
            r#"{"method":"item/completed","params":{"item":{"type":"mcpToolCall","result":{"item":{"type":"userMessage","content":[{"type":"text","text":"@x"}]}}}}}"#,
            r#"{"method":"rawResponseItem/completed","params":{"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"@x"}]}}}"#,
            r#"{"id":1,"method":"item/tool/call","params":{"arguments":{"preview":"@x"}}}"#,
            r#"{"method":"item/agentMessage/delta","params":{"delta":"@x"}}"#,
            r#"{"id":1,"result":{"content":[{"type":"text","text":"@x"}],"structuredContent":{"preview":"@"}}}"#,
            r#"{"id":1,"error":{"message":"@"}}"#,
            r#"{"method":"codex/event/agent_message","params":{"msg":{"type":"agent_message","message":"@x"}}}"#,
        ] {
            check_stays(line);
        }
    }

    #[test]
    fn other_bytes_stay_unchanged() {
        check(
            "{ \"method\" : \"item/started\", \"params\":{\"item\":{\"x\":1e400,\"type\":\"userMessage\",\"content\":[ {\"type\":\"text\" ,\"text\":\"@\\u2028\\/\u{2028}\"}]} },\"z\":[]}",
            "{ \"method\" : \"item/started\", \"params\":{\"item\":{\"x\":1e400,\"type\":\"userMessage\",\"content\":[ {\"type\":\"text\" ,\"text\":\"\\u2028\\/\u{2028}\"}]} },\"z\":[]}",
        );
    }

    #[test]
    fn deep_nesting_is_safe() {
        let deep =
            format!(r#"{{"id":1,"result":{}{{"preview":"@"}}{}}}"#, r#"{"thread":"#.repeat(5_000), "}".repeat(5_000));
        check_stays(&deep);
    }

    #[test]
    fn image_previews_depend_on_version() {
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
            let shown = |words| [PreviewPlace::List, PreviewPlace::Thread].map(|place| previews.shown(words, place));
            assert_eq!(shown(IMAGE_PREVIEW), [in_list, by_itself], "{version}");
            assert_eq!(shown("hi"), ["hi"; 2], "{version}");
        }
    }

    proptest! {
        #[test]
        fn injected_text_is_always_stripped(
            said in "(?s).{0,20}",
            words in "(?s).{1,40}",
            start in 0u64..50,
            both in any::<bool>(),
        ) {
            let messages = serde_json::json!([{ "role": "assistant", "content": said.clone() + "." }]);
            let messages = QuotedMessage::read_all(&messages).expect("BUG: they are messages");
            let own = project(&messages, &words, 24_000).expect("BUG: it says something");
            let envelope = r#"{"v":1,"type":"user_cmd_context","commands":[]}"#;
            let own = if both { format!("\u{1e}CODEX_META {envelope}\u{1f}{own}") } else { own };
            let quoted = as_written(&words);
            let item = |words: &str, start: u64| {
                format!(r#"[{{"type":"text","text":"{words}","text_elements":[{{"byteRange":{{"start":{start},"end":{start}}}}}]}}]"#)
            };
            let turn = format!(r#"{{"id":1,"method":"turn/start","params":{{"threadId":"t","input":{}}}}}"#, item(&quoted, start));
            let Body::Message(message) = Body::parse(turn.as_bytes()) else { panic!("{turn}: no message") };
            let sent = TurnStart::read(turn.as_bytes(), &message).and_then(|turn| turn.with_envelope(&own));
            let sent = String::from_utf8(sent.expect("BUG: it fits")).expect("BUG: it was UTF-8");
            let input = &sent[sent.find("\"input\":").expect("BUG: it is there") + 8..sent.len() - 2];
            let unchanged = format!("{quoted}\",\"text_elements\"");
            prop_assert!(input.contains(&unchanged));
            let echo = |content: &str| {
                format!(r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":{content}}}}}}}"#)
            };
            prop_assert_eq!(stripped(&echo(input), &Shown::default()), Some(echo(&item(&quoted, start))));
        }

        #[test]
        fn json_like_text_never_panics(
            text in r#"(\{|\}|\[|\]|,|:|"preview"|"item"|"data"|"content"|"text"|"type"|"userMessage"|"\\u001eCODEX_META |\\u001f|"|\\){0,40}"#,
        ) {
            let line = format!(r#"{{"id":1,"result":{{"x":"\u001e","data":[{text}]}}}}"#);
            if let Body::Message(message) = Body::parse(line.as_bytes()) {
                let (previews, foreign) = (Previews::default(), Foreign::default());
                let _ = strip(line.as_bytes(), &message, &previews, &foreign, &Threads::default());
            }
        }
    }

    fn call(items: &str) -> String {
        format!(r#"{{"id":"x","method":"thread/inject_items","params":{{"threadId":"t","items":[{items}]}}}}"#)
    }

    fn item(role: &str, texts: &[&str]) -> String {
        let content: Vec<_> =
            texts.iter().map(|text| serde_json::json!({ "type": "input_text", "text": text })).collect();
        serde_json::json!({ "type": "message", "role": role, "content": content }).to_string()
    }

    fn is_echo(own_items: &mut OwnItems, line: &str) -> bool {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        own_items.is_echo(Conn::OWN, &Event::of(&message))
    }

    #[test]
    fn only_fully_injected_items_are_echoes() {
        let mut own_items = OwnItems::default();
        let raw = |item: &str| {
            format!(
                r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"t","turnId":"u","item":{item}}}}}"#
            )
        };
        let mine = item("developer", &["a", "b"]);
        assert!(!is_echo(&mut own_items, &raw(&mine)));
        own_items.expect(call(&format!("{mine},{}", item("user", &["\u{1e}é"]))).as_bytes());
        assert!(is_echo(&mut own_items, &raw(&mine)));
        assert!(is_echo(&mut own_items, &raw(&item("user", &["\u{1e}é"]))));
        // The server added an id, reordered the members and escaped a character.
        let line = r#"{"id":"msg_1","content":[{"text":"\u0061","type":"input_text"},{"type":"input_text","text":"b"}],"role":"developer","type":"message"}"#;
        assert!(is_echo(&mut own_items, &raw(line)));
        let old = format!(r#"{{"method":"codex/event/raw_response_item","params":{{"msg":{{"item":{mine}}}}}}}"#);
        assert!(is_echo(&mut own_items, &old));
        for other in [
            item("user", &["a", "b"]),
            item("developer", &["a"]),
            item("developer", &["ab"]),
            item("developer", &["a", "b", ""]),
            mine.replace("input_text", "output_text"),
            mine.replace("message", "reasoning"),
            item("developer", &[]),
        ] {
            assert!(!is_echo(&mut own_items, &raw(&other)), "{other}");
        }
        assert!(!is_echo(&mut own_items, &format!(r#"{{"method":"item/completed","params":{{"item":{mine}}}}}"#)));
        assert!(!is_echo(&mut own_items, &raw(&mine).replacen('{', r#"{"id":1,"#, 1)));
    }

    #[test]
    fn plain_echo_matches_once_until_turn_ends() {
        let mut own_items = OwnItems::default();
        let said = item("user", &["no"]);
        let raw = |thread: &str| {
            format!(r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"{thread}","item":{said}}}}}"#)
        };
        let old = format!(
            r#"{{"method":"codex/event/raw_response_item","params":{{"conversationId":"t","msg":{{"item":{said}}}}}}}"#
        );
        assert!(!is_echo(&mut own_items, &raw("t")));
        own_items.expect_plain("t", call(&said).as_bytes());
        assert!(!is_echo(&mut own_items, &raw("u")), "who says the same elsewhere is somebody else");
        assert!(is_echo(&mut own_items, &raw("t")) && is_echo(&mut own_items, &old));
        assert!(!is_echo(&mut own_items, &raw("t")) && !is_echo(&mut own_items, &old), "who says it again, too");
        // This may be the end of the previous turn.
        own_items.expect_plain("t", call(&said).as_bytes());
        own_items.turn_is_over("u");
        own_items.turn_is_over("t");
        assert!(is_echo(&mut own_items, &raw("t")));
        own_items.turn_is_over("t");
        assert!(!is_echo(&mut own_items, &old));
        // The server never reported the item.
        own_items.expect_plain("t", call(&said).as_bytes());
        (0..2).for_each(|_| own_items.turn_is_over("t"));
        assert!(!is_echo(&mut own_items, &raw("t")));
    }

    #[test]
    fn stored_digests_are_bounded() {
        let mut own_items = OwnItems::default();
        (0..=PLAIN_MAX).for_each(|_| own_items.expect_plain("t", call(&item("user", &["no"])).as_bytes()));
        assert_eq!(own_items.plain.len(), PLAIN_MAX);
        (0..=DIGESTS_MAX).for_each(|number| {
            let line = call(&item("user", &[&number.to_string()]));
            own_items.expect(line.as_bytes());
            own_items.expect(line.as_bytes());
        });
        assert_eq!(own_items.digests.len(), DIGESTS_MAX);
    }
}
