//! The transcript of a thread for readers: finished entries only.
//!
//! The server reports an entry when it happens, and again whenever a client reads the thread. Two entries with the same
//! identity are one, as far as remembered. Keys are masked in entries and in stored state; ids of diffs and errors
//! derive from the text before masking.
//!
//! The `codex/event/*` notifications of early 2026 are ignored, because current notifications report the same.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{Met, Recent, masked_json, rfc3339_millis};
use super::conversation::{Change, Conversation, Step};
use super::item::{Item, ItemKind};
use super::request::{End, Request, RequestDocument};
use super::review::{Overruled, ReviewDocument};
use super::turn::{Came, Known, Plan, Snapshot, Steps, Turn, TurnEnd, TurnState, digest, number};
use crate::protocol::Method;
use crate::wire::{Members, elements};

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub thread_id: String,
    /// Entries of one thread with the same identity are one.
    pub identity: String,
    /// The entry as JSON.
    pub json: String,
}

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transcript {
    /// Emitted entries, by thread and identity.
    given: Recent,
    /// Turns recorded from beginning to end: a thread read adds nothing to them.
    whole: Recent,
    /// Texts recorded live, by thread, role and text.
    seen_live: Recent,
}

/// The kind of an approval that codex's own reviewer decided.
const AUTO_REVIEW: &str = "auto_review";

/// The place of an entry.
#[derive(Clone, Copy)]
struct Spot<'a> {
    at_us: u64,
    event: &'a str,
    thread_id: &'a str,
    turn_id: Option<&'a str>,
    /// The turn's name, unique within the thread.
    turn: &'a str,
}

documents! {
    /// An entry as JSON.
    struct Document<'a, T> {
        ts: String,
        role: &'a str,
        item_id?: &'a str,
        event: &'a str,
        turn_id?: &'a str,
        #[serde(flatten)]
        content: T,
    }

    /// The content of an entry with text.
    #[derive(Default)]
    struct Said<'a> {
        item_type?: &'a str,
        diff_id?: &'a str,
        supersedes?: &'a str,
        text?: &'a str,
        content?: Vec<&'a str>,
        error_code?: &'a str,
    }

    /// The content of the entry for a request.
    struct Approval<'a> {
        #[serde(flatten)]
        request: RequestDocument<'a>,
        text?: &'a str,
        #[serde(flatten)]
        end: &'a End,
    }
}

documents! {
    /// The content of the entry for a review, with the members of an approval.
    struct Reviewed<'a> {
        kind: &'a str,
        text?: &'a str,
        status: &'a str,
        decision: &'a str,
        source?: &'a str,
        review_id: &'a str,
        review?: &'a ReviewDocument,
    }
}

impl Transcript {
    /// Appends the new entries of a step.
    pub(super) fn take(&mut self, step: &Step<'_>, conversation: &Conversation, entries: &mut Vec<Entry>) {
        let at_us = step.at_us;
        let event = step.message.map_or("generation_ended", |message| &*message.method);
        step.plans.iter().for_each(|(thread_id, plan)| self.plan(at_us, event, (thread_id.as_deref(), plan), entries));
        for (thread_id, turn) in &step.lost.turns {
            self.turn_lost(step, event, (thread_id.as_deref(), turn), entries);
        }
        for request in &step.lost.requests {
            if !matches!(step.change, Change::RunEnded) {
                self.resolved(at_us, request, &End::not_followed(), entries);
            }
        }
        if let Change::Resolved(request, end) = &step.change {
            return self.resolved(at_us, request, end, entries);
        }
        if let Change::Answered { call: Some(call), result: Some(result), .. } = &step.change {
            if let Some(Method::ThreadResume | Method::ThreadRead | Method::ThreadFork) = Method::of(&call.method) {
                self.read(at_us, &call.method, result, entries);
            }
            if let (Some(overruled), Some(thread_id)) = (&call.overrules, call.thread_id.as_deref()) {
                self.overruled(at_us, &call.method, thread_id, overruled, entries);
            }
            return;
        }
        let Some((message, thread_id)) =
            step.message.and_then(|message| Some((message, message.place.thread_id.as_deref()?)))
        else {
            return;
        };
        if matches!(step.change, Change::None | Change::Piece(_)) {
            return;
        }
        let ended = if let Change::TurnEnded { turn, .. } = &step.change { turn.as_deref() } else { None };
        let turn_id = message.place.turn_id.as_deref().or_else(|| ended?.id.as_deref());
        let running = turn_id.and_then(|turn_id| conversation.thread_of(thread_id)?.running(turn_id));
        let name =
            turn_id.map(|turn_id| turn_name(turn_id, ended.or(running).map(|turn| turn.began_us))).unwrap_or_default();
        self.change(&step.change, Spot { at_us, event, thread_id, turn_id, turn: &name }, entries);
    }

    fn change(&mut self, change: &Change<'_>, spot: Spot<'_>, entries: &mut Vec<Entry>) {
        if let Change::ItemCompleted { item, .. } = change {
            if let (Some(role), Some(text)) = (item.kind.role(), item.text()) {
                self.seen_live.meet(&[spot.thread_id, role, &text]);
            }
            self.item(spot, item, entries);
        } else if let Change::Review { review, .. } = change {
            if review.is_over() {
                let (review_id, text) = (review.id(), review.in_words());
                let content = Reviewed {
                    kind: AUTO_REVIEW,
                    text: Some(&text),
                    status: "resolved",
                    decision: review.decision(),
                    source: Some(AUTO_REVIEW),
                    review_id,
                    review: Some(&review.document),
                };
                let identity = format!("/{review_id}/auto_review");
                self.push(spot, &identity, "approval", review.target_item(), content, entries);
            }
        } else if let Change::Diff { text, snapshot: Snapshot { diff_id, supersedes, came: Came::First } } = change {
            let supersedes = supersedes.as_deref();
            let said = Said { diff_id: Some(diff_id), supersedes, text: Some(text), ..Said::default() };
            self.push(spot, diff_id, "diff", None, said, entries);
        } else if let Change::Compacted { by_item: false } = change {
            // Since early 2026, items report the same.
            let identity = format!("{}/@{}/context_compacted", spot.turn, spot.at_us);
            self.push(spot, &identity, "context_compacted", None, Said::default(), entries);
        } else if let Change::Error { failure, will_retry: false } = change {
            let text = failure.message.as_deref().unwrap_or_default();
            let identity = match spot.turn_id {
                Some(_) => format!("{}/{}/error", spot.turn, digest(text)),
                None => format!("/@{}/error", spot.at_us),
            };
            let said = Said { text: Some(text), error_code: failure.code.as_deref(), ..Said::default() };
            self.push(spot, &identity, "error", None, said, entries);
        } else if let (Change::TurnEnded { end, turn, .. }, Some(turn_id)) = (change, spot.turn_id) {
            if let Some(turn) = turn {
                self.usage(spot, turn, entries);
                if turn.items > 0 && turn.known == Known::Whole {
                    self.whole.meet(&[spot.thread_id, turn_id]);
                }
            }
            self.status(spot, end, entries);
        }
    }

    /// A turn has ended without a report of its own, or is forgotten because too many are running.
    fn turn_lost(
        &mut self,
        step: &Step<'_>,
        event: &str,
        (thread_id, turn): (Option<&str>, &Turn),
        entries: &mut Vec<Entry>,
    ) {
        let (Some(thread_id), Some(turn_id), true) = (thread_id, turn.id.as_deref(), turn.is_reported()) else {
            return;
        };
        let name = turn_name(turn_id, Some(turn.began_us));
        let spot = Spot { at_us: step.at_us, event, thread_id, turn_id: Some(turn_id), turn: &name };
        self.usage(spot, turn, entries);
        if matches!(step.change, Change::RunEnded) && turn.state != TurnState::Over {
            self.status(spot, &TurnEnd::unreported(step.lost_code()), entries);
        }
    }

    fn item(&mut self, spot: Spot<'_>, item: &Item, entries: &mut Vec<Entry>) {
        let item = item.masked();
        let (role, text) = (item.kind.role().unwrap_or("tool"), item.text());
        let text = text.as_deref();
        let spot = Spot { at_us: item.at_us().unwrap_or(spot.at_us), ..spot };
        let identity = format!("{}/{}/{role}", spot.turn, item.id().unwrap_or_default());
        let said = match item.kind {
            ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan if text.is_none() => return,
            ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan => Said { text, ..Said::default() },
            ItemKind::User => {
                Said { text: Some(text.unwrap_or_default()), content: item.content_types(), ..Said::default() }
            }
            ItemKind::Aside => Said { item_type: Some(item.item_type()), text, ..Said::default() },
            ItemKind::Compaction => Said::default(),
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => {
                return self.push(spot, &identity, role, item.id(), item.document(), entries);
            }
        };
        self.push(spot, &identity, role, item.id(), said, entries);
    }

    fn status(&mut self, spot: Spot<'_>, end: &TurnEnd, entries: &mut Vec<Entry>) {
        self.push(spot, &format!("{}//status", spot.turn), "status", None, end.document(), entries);
    }

    /// The last plan of a turn that has ended, or an evicted one.
    fn plan(&mut self, at_us: u64, event: &str, (thread_id, plan): (Option<&str>, &Plan), entries: &mut Vec<Entry>) {
        let Plan { turn_id, began_us, json } = plan;
        let (Some(thread_id), Ok(plan)) = (thread_id, serde_json::from_str::<Value>(json)) else { return };
        let name = turn_name(turn_id, Some(*began_us));
        let spot = Spot { at_us, event, thread_id, turn_id: Some(turn_id), turn: &name };
        self.push(spot, &format!("{name}//plan"), "plan", None, Steps::of(&plan), entries);
    }

    /// The usage of a turn that has ended.
    fn usage(&mut self, spot: Spot<'_>, turn: &Turn, entries: &mut Vec<Entry>) {
        if let Some(usage) = turn.usage {
            self.push(spot, &format!("{}//token_usage", spot.turn), "token_usage", None, usage, entries);
        }
    }

    fn resolved(&mut self, at_us: u64, request: &Request, end: &End, entries: &mut Vec<Entry>) {
        let place = &request.place;
        let (Some(thread_id), Some(request_id)) = (&place.thread_id, &request.request_id) else { return };
        let spot = Spot { at_us, event: "request_resolved", thread_id, turn_id: place.turn_id.as_deref(), turn: "" };
        let content = Approval { request: request.document(), text: request.text.as_deref(), end };
        self.push(spot, &format!("/{request_id}/approval"), "approval", place.item_id.as_deref(), content, entries);
    }

    /// A client has read a thread; adds the entries that were not recorded live.
    fn read(&mut self, at_us: u64, method: &str, result: &RawValue, entries: &mut Vec<Entry>) {
        let Some(read) = ThreadRead::of(result) else { return };
        for turn in read.turns {
            if self.whole.knows(&[&read.thread_id, &turn.turn_id]) {
                continue;
            }
            let (thread_id, turn_id) = (&*read.thread_id, Some(&*turn.turn_id));
            let at_us = turn.at_us.unwrap_or(at_us);
            let spot = Spot { at_us, event: method, thread_id, turn_id, turn: &turn.turn_id };
            // Until early 2026, items and turns got new ids when they were read again.
            let is_told = |item: &Item| match (item.kind.role(), item.text()) {
                (Some(role), Some(text)) => item.is_numbered() && self.seen_live.knows(&[thread_id, role, &text]),
                (_, _) => false,
            };
            let fresh: Vec<&Item> = turn.items.iter().filter(|item| !is_told(item)).collect();
            if fresh.is_empty() && !turn.items.is_empty() {
                continue;
            }
            fresh.into_iter().for_each(|item| self.item(spot, item, entries));
            self.status(spot, &turn.end, entries);
        }
    }

    fn overruled(&mut self, at_us: u64, event: &str, thread_id: &str, overruled: &Overruled, entries: &mut Vec<Entry>) {
        let Overruled { review_id, turn_id, text, .. } = overruled;
        let spot = Spot { at_us, event, thread_id, turn_id: turn_id.as_deref(), turn: "" };
        let (kind, status, text) = (AUTO_REVIEW, "resolved", Some(text.as_str()));
        let content = Reviewed { kind, text, status, decision: "overruled", source: None, review_id, review: None };
        self.push(spot, &format!("/{review_id}/overruled"), "approval", None, content, entries);
    }

    fn push(
        &mut self,
        spot: Spot<'_>,
        identity: &str,
        role: &str,
        item_id: Option<&str>,
        content: impl Serialize,
        entries: &mut Vec<Entry>,
    ) {
        if self.given.meet(&[spot.thread_id, identity]) == Met::First {
            let Spot { at_us, event, thread_id, turn_id, turn: _ } = spot;
            let document = Document { ts: rfc3339_millis(at_us), role, item_id, event, turn_id, content };
            let json = serde_json::to_string(&document).expect("BUG: plain data becomes JSON without error");
            let (thread_id, identity) = (thread_id.to_owned(), identity.to_owned());
            entries.push(Entry { thread_id, identity, json: masked_json(json) });
        }
    }
}

/// The name of a turn in its thread. Until early 2026, turns were numbered from 0 in every run of the server.
fn turn_name(turn_id: &str, began_us: Option<u64>) -> String {
    match began_us {
        Some(began_us) if turn_id.bytes().all(|byte| byte.is_ascii_digit()) => format!("{turn_id}@{began_us}"),
        Some(_) | None => turn_id.to_owned(),
    }
}

/// A thread as returned to a client that reads it: ended turns with their items. Only one turn is held in full at a time, because a thread can have many megabytes.
struct ThreadRead<'a> {
    thread_id: String,
    /// Ended turns, in order.
    turns: Box<dyn Iterator<Item = TurnRead> + 'a>,
}

/// An ended turn.
struct TurnRead {
    turn_id: String,
    items: Vec<Item>,
    /// End time in microseconds since the Unix epoch.
    at_us: Option<u64>,
    end: TurnEnd,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holds<'a> {
    #[serde(borrow)]
    thread: Thread<'a>,
    #[serde(borrow)]
    initial_turns_page: Option<Page<'a>>,
}

#[derive(Deserialize)]
struct Thread<'a> {
    id: String,
    #[serde(borrow)]
    turns: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Option<Vec<&'a RawValue>>,
}

impl<'a> ThreadRead<'a> {
    /// Parses a response; `None` if it has no thread.
    fn of(result: &'a RawValue) -> Option<ThreadRead<'a>> {
        let Holds { thread, initial_turns_page } = serde_json::from_str(result.get()).ok()?;
        let mut page = initial_turns_page.and_then(|page| page.data).unwrap_or_default();
        if let [first, .., last] = page[..]
            && began(first) > began(last)
        {
            page.reverse();
        }
        let turns = thread.turns.unwrap_or_default().into_iter().chain(page).filter_map(TurnRead::of);
        Some(ThreadRead { thread_id: thread.id, turns: Box::new(turns) })
    }
}

impl TurnRead {
    /// Parses a turn; `None` if it is invalid or still running.
    fn of(raw: &RawValue) -> Option<TurnRead> {
        let turn = Members::of(raw)?;
        if turn.text("status")? == "inProgress" {
            return None;
        }
        let items = turn.get("items").and_then(elements).unwrap_or_default();
        let seconds = number(&turn, "completedAt").or_else(|| number(&turn, "startedAt"));
        Some(TurnRead {
            turn_id: turn.text("id")?,
            items: items.into_iter().filter_map(Item::of_raw).collect(),
            at_us: seconds.map(|seconds| seconds.saturating_mul(1_000_000)),
            end: TurnEnd::of(Some(&turn)),
        })
    }
}

/// Start time in seconds since the Unix epoch.
fn began(raw: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Began {
        started_at: Option<u64>,
    }
    serde_json::from_str::<Began>(raw.get()).ok()?.started_at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::properties::{entries, records};

    /// A line of `expect` is the identity and content of an entry, without members that repeat the identity or the
    /// time.
    fn check(playbook: &str, expect: &str) {
        let actual = entries(&records(playbook)).into_iter().map(|entry| {
            let mut json: serde_json::Map<String, Value> = serde_json::from_str(&entry.json).expect("it is JSON");
            assert!(entry.thread_id == "t" || entry.thread_id == "f", "{entry:?}");
            ["ts", "role", "event", "turn_id", "item_id"].iter().for_each(|name| drop(json.remove(*name)));
            format!("{} {}", entry.identity, Value::Object(json))
        });
        let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(actual.collect::<Vec<_>>(), expect);
    }

    /// An item completed in turn `u`.
    fn item(members: &str) -> String {
        let params = format!(r#"{{"threadId":"t","turnId":"u","item":{{{members}}}}}"#);
        format!(r#"<< {{"method":"item/completed","params":{params}}}"#)
    }

    #[test]
    fn roles() {
        let said = |members: &str, expect: &str| check(&item(members), expect);
        said(r#""type":"agentMessage","id":"i","text":"a\nb""#, r#"u/i/assistant {"text":"a\nb"}"#);
        said(r#""type":"agentMessage","id":"i","text":"""#, "");
        said(r#""type":"plan","id":"i","text":"p""#, r#"u/i/plan {"text":"p"}"#);
        said(
            r#""type":"reasoning","id":"i","summary":["a","b"],"content":["c"]"#,
            r#"u/i/reasoning {"text":"a\n\nb"}"#,
        );
        said(r#""type":"reasoning","id":"i","summary":[],"content":["c"]"#, r#"u/i/reasoning {"text":"c"}"#);
        said(r#""type":"reasoning","id":"i","summary":[],"content":[]"#, "");
        said(r#""type":"contextCompaction","id":"i""#, "u/i/context_compacted {}");
        said(
            r#""type":"hookPrompt","id":"i","fragments":[{"text":"x","hookRunId":"h"}]"#,
            r#"u/i/tool {"item_type":"hookPrompt","text":"x"}"#,
        );
        said(
            r#""type":"fileChange","id":"i","status":"completed","changes":[{"path":"/a"}]"#,
            r#"u/i/file_change {"changes":[{"path":"/a"}],"is_error":false,"item_type":"fileChange","status":"completed"}"#,
        );
        said(
            r#""type":"mcpToolCall","id":"i","server":"s","tool":"w","arguments":{"a":1},"error":{"message":"no"},"status":"failed","durationMs":3"#,
            r#"u/i/tool {"arguments":{"a":1},"duration_ms":3,"error_message":"no","is_error":true,"item_type":"mcpToolCall","server":"s","status":"failed","tool":"w"}"#,
        );
        said(
            r#""type":"newThing","id":"i","what":"x","startedAtMs":1"#,
            r#"u/i/tool {"details":{"what":"x"},"item_type":"newThing"}"#,
        );
    }

    #[test]
    fn user_messages_list_text_and_images() {
        let said = |content: &str, expect: &str| {
            check(&item(&format!(r#""type":"userMessage","id":"i","content":[{content}]"#)), expect);
        };
        said(r#"{"type":"text","text":"a"},{"type":"text","text":"b"}"#, r#"u/i/user {"text":"a\nb"}"#);
        said(
            r#"{"type":"image","url":"data:image/png;base64,AAAA"},{"type":"text","text":"a"}"#,
            r#"u/i/user {"content":["image","text"],"text":"a"}"#,
        );
        said(r#"{"type":"localImage","path":"/a.png"}"#, r#"u/i/user {"content":["localImage"],"text":""}"#);
    }

    #[test]
    fn secrets_are_masked() {
        let said = r#""type":"agentMessage","id":"i","text":"export TOKEN=abcdefghijk""#;
        check(&item(said), r#"u/i/assistant {"text":"export TOKEN=[redacted]*"}"#);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let output = format!("{}b", "a".repeat(64 << 10));
        let line = item(&format!(
            r#""type":"commandExecution","id":"i","command":"ls","cwd":"/","status":"failed","exitCode":1,"aggregatedOutput":"{output}""#
        ));
        let entries = entries(&records(&line));
        let json: Value = serde_json::from_str(&entries[0].json).expect("it is JSON");
        assert_eq!(json["output"].as_str(), Some(&output[1..]));
        assert_eq!((json["output_truncated_by_bytes"].as_u64(), json["exit_code"].as_i64()), (Some(1), Some(1)));
    }

    #[test]
    fn same_entry_is_emitted_once() {
        let said = item(r#""type":"agentMessage","id":"i","text":"a""#);
        check(&format!("{said}\n{said}"), r#"u/i/assistant {"text":"a"}"#);
        let old = r#"<< {"method":"codex/event/agent_message","params":{"conversationId":"t","msg":{"type":"agent_message","message":"a"}}}"#;
        check(&format!("{old}\n{said}"), r#"u/i/assistant {"text":"a"}"#);
    }

    #[test]
    fn last_plan_and_usage_follow_turn_end() {
        check(
            r#"
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"before","tokenUsage":{"last":{},"total":{}}}}
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
            << {"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","plan":[{"step":"a","status":"pending"}]}}
            << {"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","explanation":"e","plan":[{"step":"a","status":"inProgress"}]}}
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"last":{"totalTokens":1},"total":{"totalTokens":1}}}}
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"last":{"totalTokens":2},"total":{"totalTokens":3},"modelContextWindow":9}}}
            << {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed","durationMs":5,"error":{"message":"m","codexErrorInfo":"other"}}}}
            generation_ended
            "#,
            r#"
            u//plan {"explanation":"e","steps":[{"status":"in_progress","step":"a"}]}
            u//token_usage {"context_window":9,"thread_total":3,"total":2}
            u//status {"duration_ms":5,"error_code":"other","error_message":"m","status":"failed"}
            "#,
        );
    }

    #[test]
    fn open_turn_fails_with_its_child() {
        let started = r#"<< {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#;
        let failed = r#"u//status {"error_code":"app_server_stream_closed","status":"failed"}"#;
        let idle = r#"<< {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
        let ended =
            r#"<< {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#;
        let item =
            r#"<< {"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"x","id":"i"}}}"#;
        let next = r#"<< {"method":"turn/started","params":{"threadId":"t","turn":{"id":"v"}}}"#;
        check(&format!("{started}\ngeneration_ended\ngeneration_ended"), failed);
        check(&format!("{item}\ngeneration_ended"), failed);
        check(&format!("{started}\n{idle}\ngeneration_ended"), "");
        let odd = idle.replace(r#""idle""#, r#""idle","activeFlags":null"#);
        check(&format!("{started}\n{odd}\ngeneration_ended"), "");
        check(&format!("{started}\n{next}\n{idle}\ngeneration_ended"), "");
        // A record after the end of its turn does not restart it.
        check(&format!("{started}\n{ended}\n{item}\ngeneration_ended"), r#"u//status {"status":"completed"}"#);
        // A different outcome in a later read adds no second entry.
        let read = r#"{"thread":{"id":"t","turns":[{"id":"u","status":"interrupted","items":[]}]}}"#;
        let resumed = format!(
            r#">> {{"id":1,"method":"thread/resume","params":{{"threadId":"t"}}}}
            << {{"id":1,"result":{read}}}"#
        );
        check(&format!("{started}\ngeneration_ended\n{resumed}"), failed);
    }

    #[test]
    fn numbered_turns_of_two_runs_are_two() {
        let run = r#"generation_started
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"0"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"0","status":"completed"}}}
            generation_ended"#;
        check(
            &format!("{run}\n{run}"),
            r#"
            0@1001//status {"status":"completed"}
            0@1005//status {"status":"completed"}
            "#,
        );
    }

    #[test]
    fn errors_that_are_final() {
        let error = |retry: &str| {
            format!(
                r#"<< {{"method":"error","params":{{"threadId":"t","turnId":"u"{retry},"error":{{"message":"m"}}}}}}"#
            )
        };
        check(&error(r#","willRetry":true"#), "");
        check(
            &format!("{}\n{}", error(r#","willRetry":false"#), error("")),
            &format!(r#"u/{}/error {{"text":"m"}}"#, digest("m")),
        );
    }

    #[test]
    fn diffs_name_what_they_supersede() {
        let diff = |text: &str| {
            format!(r#"<< {{"method":"turn/diff/updated","params":{{"threadId":"t","turnId":"u","diff":"{text}"}}}}"#)
        };
        let id = |text: &str| format!("t:u:{}", digest(text));
        check(
            &[diff("a"), diff("a\\n"), diff("b"), diff("a")].join("\n"),
            &format!(
                "{a} {{\"diff_id\":\"{a}\",\"text\":\"a\"}}\n\
                 {b} {{\"diff_id\":\"{b}\",\"supersedes\":\"{a}\",\"text\":\"b\"}}",
                a = id("a"),
                b = id("b")
            ),
        );
    }

    #[test]
    fn compaction_is_emitted_once() {
        let compacted = r#"<< {"method":"thread/compacted","params":{"threadId":"t","turnId":"u"}}"#;
        let started = r#"<< {"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"contextCompaction","id":"i"}}}"#;
        let item = item(r#""type":"contextCompaction","id":"i""#);
        check(compacted, "u/@1000/context_compacted {}");
        check(&format!("{started}\n{compacted}\n{item}"), "u/i/context_compacted {}");
        check(&format!("{started}\n{item}\n{compacted}"), "u/i/context_compacted {}");
    }

    #[test]
    fn requests_appear_after_they_end() {
        check(
            r#"
            generation_started
            request_opened {"request_id":"g-0","request_type":"request_approval"}
            << {"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"ls","cwd":"/"}}
            request_opened {"request_id":"g-1","request_type":"request_user_input"}
            << {"id":1,"method":"item/tool/requestUserInput","params":{"threadId":"t","turnId":"u","itemId":"j","questions":[{"question":"Which?","isSecret":true}]}}
            << {"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}
            request_resolved {"request_id":"g-0","status":"resolved","source":"api","decision":"decline","error_code":null}
            generation_ended
            request_resolved {"request_id":"g-1","status":"orphaned","source":"server","decision":null,"error_code":"server_exited"}
            request_resolved {"request_id":"g-1","status":"orphaned","source":"server","decision":null,"error_code":"server_exited"}
            "#,
            r#"
            /g-0/approval {"command":"ls","cwd":"/","decision":"decline","kind":"command","request_id":"g-0","source":"api","status":"resolved"}
            /g-1/approval {"error_code":"server_exited","kind":"questions","request_id":"g-1","source":"server","status":"orphaned","text":"Which?"}
            "#,
        );
    }

    const SAID: &str = r#"{"type":"userMessage","id":"i","content":[{"type":"text","text":"a"}],"completedAtMs":5}"#;

    #[test]
    fn reading_a_thread_adds_finished_turns() {
        let read = |method: &str, thread: &str| {
            format!(
                r#">> {{"id":"r","method":"{method}","params":{{"threadId":"t"}}}}
                << {{"id":"r","result":{{"thread":{thread}}}}}"#
            )
        };
        let turns = format!(
            r#"{{"id":"t","turns":[{{"id":"u","status":"completed","completedAt":2,"items":[{SAID}]}},
            {{"id":"v","status":"inProgress","items":[{SAID}]}}]}}"#
        )
        .replace('\n', "");
        let expect = r#"
            u/i/user {"text":"a"}
            u//status {"status":"completed"}
        "#;
        for method in ["thread/resume", "thread/read", "thread/fork"] {
            check(&read(method, &turns), expect);
        }
        check(&read("thread/list", &turns), "");
        check(&format!("{}\n{}", read("thread/read", &turns), read("thread/resume", &turns)), expect);
        check(&read("thread/read", r#"{"id":"t","turns":null}"#), "");
        check(&read("thread/read", "7"), "");
        // A fork's entries belong to the fork.
        let fork = turns.replace(r#"{"id":"t""#, r#"{"id":"f""#);
        check(
            &format!("{}\n{}", read("thread/read", &turns), read("thread/fork", &fork)),
            &format!("{expect}{expect}"),
        );
        let actual = entries(&records(&read("thread/read", &turns)));
        let times: Vec<&str> = actual.iter().map(|entry| &entry.json[7..31]).collect();
        assert_eq!(times, ["1970-01-01T00:00:00.005Z", "1970-01-01T00:00:02.000Z"]);
    }

    #[test]
    fn page_of_turns_is_emitted_oldest_first() {
        let turn =
            |id: &str, began: u64| format!(r#"{{"id":"{id}","status":"completed","startedAt":{began},"items":[]}}"#);
        check(
            &format!(
                r#">> {{"id":"r","method":"thread/resume","params":{{"threadId":"t"}}}}
                << {{"id":"r","result":{{"thread":{{"id":"t","turns":[]}},"initialTurnsPage":{{"data":[{},{}]}}}}}}"#,
                turn("v", 2),
                turn("u", 1)
            ),
            r#"
            u//status {"status":"completed"}
            v//status {"status":"completed"}
            "#,
        );
    }

    #[test]
    fn renamed_items_are_recognized_when_read_again() {
        let live = r#"
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
            << {"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"msg_1","text":"a"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#;
        let read = |turn: &str, id: &str| {
            format!(
                r#"{live}
                >> {{"id":1,"method":"thread/resume","params":{{}}}}
                << {{"id":1,"result":{{"thread":{{"id":"t","turns":[{{"id":"{turn}","status":"completed","items":[{{"type":"agentMessage","id":"{id}","text":"a"}}]}}]}}}}}}"#
            )
        };
        let once = "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}";
        check(&read("u", "x"), once);
        check(&read("turn-1", "item-1"), once);
        // After a gap, the missing entries come from the thread read.
        let gap = read("u", "x").replacen("\n            << {\"method\":\"item", "\ngap\n<< {\"method\":\"item", 1);
        check(
            &gap,
            "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}\nu/x/assistant {\"text\":\"a\"}",
        );
    }
}
