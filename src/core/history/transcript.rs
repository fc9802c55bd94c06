//! The transcript of a thread for readers: finished entries only.
//!
//! The server reports an entry when it happens, and again whenever a client reads the thread. Two entries with the same
//! identity are one, as far as remembered. Keys are masked in entries and in stored state; ids of diffs and errors
//! derive from the text before masking.
//!
//! Events in another dialect than today's are ignored, because they repeat what it reports.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounded::{Met, Recent, masked_json, rfc3339_millis};
use super::conversation::{Change, Conversation, Step};
use super::diffs::{Came, Snapshot, digest};
use super::entry::{
    AUTO_REVIEW, ApprovalDocument, Content, EndDocument, Entry, ErrorDocument, OVERRULED, PlanDocument, TurnDiff,
};
use super::entry_rows::{EntryRow, EntryRows};
use super::item::ThreadItem;
use super::past::{Part, Past};
use super::request::{End, Request};
use super::review::Overruled;
use super::turn::{Known, Plan, Turn, TurnEnd, TurnState};
use crate::protocol::{Method, is_item_number, is_turn_number};

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transcript {
    /// Emitted entries, by thread and identity.
    given: Recent,
    /// Turns recorded from beginning to end: a thread read adds nothing to them.
    whole: Recent,
    /// Texts recorded live, by thread, role and text.
    seen_live: Recent,
    /// Turns that were read in parts, oldest first.
    #[serde(default)]
    parted: VecDeque<PartedTurn>,
}

/// Turns read in parts that are remembered; the oldest is evicted first.
const PARTED_MAX: usize = 256;

/// A turn that is read in parts. Its end follows its last item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartedTurn {
    thread_id: String,
    turn_id: String,
    has: Has,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Has {
    /// The place of the last item.
    Items(u64),
    /// The end, and its time, in microseconds since the Unix epoch.
    End(EndDocument, Option<u64>),
    /// Some items and the end, which is at this place: items that are read later stand before it.
    Ended(u64),
}

/// The place of an entry.
#[derive(Clone, Copy)]
struct Spot<'a> {
    at_us: u64,
    /// As [`EntryRow::place_us`].
    place_us: u64,
    event: &'a str,
    thread_id: &'a str,
    turn_id: Option<&'a str>,
    /// The turn's name, unique within the thread.
    turn: &'a str,
}

impl PartedTurn {
    fn is(&self, thread_id: &str, turn_id: &str) -> bool {
        self.thread_id == thread_id && self.turn_id == turn_id
    }
}

impl Transcript {
    /// Appends the new entries of a step.
    pub(super) fn take(&mut self, step: &Step<'_>, conversation: &Conversation, entries: &mut EntryRows) {
        let &Step { at_us, place_us, .. } = step;
        let event = step.message.map_or("generation_ended", |message| &*message.method);
        step.plans.iter().for_each(|(thread_id, plan)| self.plan(step, event, (thread_id.as_deref(), plan), entries));
        for (thread_id, turn) in &step.lost.turns {
            self.turn_lost(step, event, (thread_id.as_deref(), turn), entries);
        }
        for request in &step.lost.requests {
            if !matches!(step.change, Change::RunEnded) {
                self.resolved(step, request, &End::not_followed(), entries);
            }
        }
        if let Change::Resolved(request, end) = &step.change {
            return self.resolved(step, request, end, entries);
        }
        if let Change::Answered { call: Some(call), result: Some(result), .. } = &step.change {
            let (called_for, method) = (call.thread_id.as_deref(), Method::of(&call.method));
            if let Some(past) = method.and_then(|method| Past::of(method, call.order, called_for, result)) {
                self.read(step, &call.method, past, conversation, entries);
            }
            if let (Some(overruled), Some(thread_id)) = (&call.overrules, call.thread_id.as_deref()) {
                self.overruled(step, &call.method, thread_id, overruled, entries);
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
        self.change(&step.change, Spot { at_us, place_us, event, thread_id, turn_id, turn: &name }, entries);
    }

    fn change(&mut self, change: &Change<'_>, spot: Spot<'_>, entries: &mut EntryRows) {
        if let Change::ItemCompleted { item, .. } = change {
            if let (Some(role), Some(text)) = (item.kind.role(), item.text()) {
                self.seen_live.meet(&[spot.thread_id, role, &text]);
            }
            self.item(spot, item, entries);
        } else if let Change::Review { review, .. } = change {
            if review.is_over() {
                let (review_id, text) = (review.id(), review.in_words());
                let content = ApprovalDocument {
                    source: Some(AUTO_REVIEW.into()),
                    review: Some(Cow::Borrowed(&review.document)),
                    ..ApprovalDocument::of_review(review_id, &text, review.decision())
                };
                let identity = format!("/{review_id}/auto_review");
                self.push(spot, &identity, review.target_item(), Content::Approval(content), entries);
            }
        } else if let Change::Diff { text, snapshot: Snapshot { diff_id, supersedes, came: Came::First } } = change {
            let supersedes = supersedes.as_deref().map(Cow::Borrowed);
            let diff = TurnDiff { diff_id: diff_id.into(), supersedes, text: text.into() };
            self.push(spot, diff_id, None, Content::Diff(diff), entries);
        } else if let Change::Compacted { by_item: false } = change {
            // Most servers report an item instead.
            let identity = format!("{}/@{}/context_compacted", spot.turn, spot.at_us);
            self.push(spot, &identity, None, Content::Compaction, entries);
        } else if let Change::Error { failure, will_retry: false } = change {
            let text = failure.message.as_deref().unwrap_or_default();
            let identity = match spot.turn_id {
                Some(_) => format!("{}/{}/error", spot.turn, digest(text)),
                None => format!("/@{}/error", spot.at_us),
            };
            let error_code = failure.code.as_deref().map(Cow::Borrowed);
            let error = ErrorDocument { text: Some(text.into()), message: None, error_code, will_retry: None };
            self.push(spot, &identity, None, Content::Error(error), entries);
        } else if let (Change::TurnEnded { end, turn, .. }, Some(turn_id)) = (change, spot.turn_id) {
            if let Some(turn) = turn {
                self.usage(spot, turn, entries);
                if turn.items > 0 && turn.known == Known::Whole {
                    self.whole.meet(&[spot.thread_id, turn_id]);
                }
            }
            self.status(spot, end.document(), entries);
        }
    }

    /// A turn has ended without a report of its own, or is forgotten because too many are running.
    fn turn_lost(
        &mut self,
        step: &Step<'_>,
        event: &str,
        (thread_id, turn): (Option<&str>, &Turn),
        entries: &mut EntryRows,
    ) {
        let (Some(thread_id), Some(turn_id), true) = (thread_id, turn.id.as_deref(), turn.is_reported()) else {
            return;
        };
        let name = turn_name(turn_id, Some(turn.began_us));
        let &Step { at_us, place_us, .. } = step;
        let spot = Spot { at_us, place_us, event, thread_id, turn_id: Some(turn_id), turn: &name };
        self.usage(spot, turn, entries);
        if matches!(step.change, Change::RunEnded) && turn.state != TurnState::Over {
            self.status(spot, TurnEnd::unreported(step.lost_code()).document(), entries);
        }
    }

    fn item(&mut self, spot: Spot<'_>, item: &ThreadItem, entries: &mut EntryRows) {
        let item = item.masked();
        let spot = Spot { at_us: item.at_us().unwrap_or(spot.at_us), ..spot };
        let content = item.content();
        if content.is_empty() {
            return;
        }
        let identity = format!("{}/{}/{}", spot.turn, item.id().unwrap_or_default(), content.role());
        self.push(spot, &identity, item.id(), content, entries);
    }

    fn status(&mut self, spot: Spot<'_>, end: EndDocument, entries: &mut EntryRows) {
        self.push(spot, &format!("{}//status", spot.turn), None, Content::Status(end), entries);
    }

    /// The last plan of a turn that has ended, or an evicted one.
    fn plan(
        &mut self,
        step: &Step<'_>,
        event: &str,
        (thread_id, plan): (Option<&str>, &Plan),
        entries: &mut EntryRows,
    ) {
        let (Plan { turn_id, began_us, json }, &Step { at_us, place_us, .. }) = (plan, step);
        let (Some(thread_id), Ok(plan)) = (thread_id, serde_json::from_str::<Value>(json)) else { return };
        let name = turn_name(turn_id, Some(*began_us));
        let spot = Spot { at_us, place_us, event, thread_id, turn_id: Some(turn_id), turn: &name };
        self.push(spot, &format!("{name}//plan"), None, Content::Plan(PlanDocument::of(&plan)), entries);
    }

    /// The usage of a turn that has ended.
    fn usage(&mut self, spot: Spot<'_>, turn: &Turn, entries: &mut EntryRows) {
        if let Some(usage) = turn.usage {
            self.push(spot, &format!("{}//token_usage", spot.turn), None, Content::Usage(usage), entries);
        }
    }

    fn resolved(&mut self, step: &Step<'_>, request: &Request, end: &End, entries: &mut EntryRows) {
        let (place, &Step { at_us, place_us, .. }) = (&request.place, step);
        let (Some(thread_id), Some(request_id)) = (&place.thread_id, &request.request_id) else { return };
        let (event, turn_id) = ("request_resolved", place.turn_id.as_deref());
        let spot = Spot { at_us, place_us, event, thread_id, turn_id, turn: "" };
        let content = Content::Approval(request.document(end));
        // The entry of the first end stays, and this one says that its answer was not sent.
        let again = end.not_sent.as_ref().map(|_| format!("@{at_us}")).unwrap_or_default();
        self.push(spot, &format!("/{request_id}/approval{again}"), place.item_id.as_deref(), content, entries);
    }

    /// A client has read a thread, or a page of it; adds the entries that were not recorded live.
    fn read(
        &mut self,
        step: &Step<'_>,
        event: &str,
        past: Past<'_>,
        conversation: &Conversation,
        entries: &mut EntryRows,
    ) {
        let (Past { thread_id, parts }, &Step { at_us: read_us, place_us: read_place_us, .. }) = (past, step);
        let mut place_us = 0;
        let is_known = conversation.thread_of(&thread_id).is_some();
        for Part { turn_id, items, end, at_us, lacks_items, is_summary } in parts {
            // A look at a thread that nobody uses here does not bring it into this session.
            if self.whole.knows(&[&thread_id, &turn_id]) || (is_summary && !is_known) {
                continue;
            }
            // Numbers are new in each reading.
            let is_told = |item: &ThreadItem| {
                let said = item.kind.role().zip(item.text()).filter(|_| item.id().is_some_and(is_item_number));
                said.is_some_and(|(role, text)| self.seen_live.knows(&[&thread_id, role, &text]))
            };
            let fresh: Vec<&ThreadItem> = items.iter().filter(|item| !is_told(item)).collect();
            if fresh.is_empty() && !items.is_empty() {
                continue;
            }
            let turn = (Some(&*turn_id), &*turn_id);
            let spot = |at_us: Option<u64>, place_us| {
                let (at_us, (turn_id, turn)) = (at_us.unwrap_or(read_us), turn);
                Spot { at_us, place_us, event, thread_id: &thread_id, turn_id, turn }
            };
            let end_place_us = self.end_place_us(&thread_id, &turn_id);
            for item in fresh {
                place_us = item.at_us().or(at_us).unwrap_or(read_place_us).clamp(place_us, read_place_us);
                place_us = end_place_us.map_or(place_us, |end_us| place_us.min(end_us.saturating_sub(1)));
                self.item(spot(at_us, place_us), item, entries);
            }
            let items_us = (!items.is_empty()).then_some(place_us);
            let parted = match (end, lacks_items) {
                (Some(end), false) => Some((end.document(), at_us, items_us)),
                (end, _) => self.joined(&thread_id, &turn_id, items_us, end.map(|end| (end.document(), at_us))),
            };
            if let Some((end, at_us, items_us)) = parted {
                let running = conversation.thread_of(&thread_id).and_then(|thread| thread.running(&turn_id));
                let last_us = items_us.max(running.map(|turn| turn.item_place_us));
                // The time of an end has no fraction of a second: that of its last item may be later.
                let end_us = last_us.map(|last_us| last_us.saturating_add(1)).max(at_us).unwrap_or(read_place_us);
                let end_us = end_us.clamp(place_us, read_place_us.saturating_add(1));
                self.status(spot(at_us, end_us), end, entries);
                if lacks_items || is_summary {
                    self.remember(&thread_id, &turn_id, Has::Ended(end_us));
                }
            }
        }
    }

    /// The place of the end of a turn of which items were missing when it was read.
    fn end_place_us(&self, thread_id: &str, turn_id: &str) -> Option<u64> {
        let turn = self.parted.iter().find(|turn| turn.is(thread_id, turn_id))?;
        if let Has::Ended(end_us) = turn.has { Some(end_us) } else { None }
    }

    fn remember(&mut self, thread_id: &str, turn_id: &str, has: Has) {
        self.parted.retain(|turn| !turn.is(thread_id, turn_id));
        if self.parted.len() >= PARTED_MAX {
            self.parted.pop_front();
        }
        let (thread_id, turn_id) = (thread_id.to_owned(), turn_id.to_owned());
        self.parted.push_back(PartedTurn { thread_id, turn_id, has });
    }

    /// Joins the parts of a turn that were read one by one; returns its end, with its time and the place of its last item, once it
    /// has both. Of a turn the last items are read first, or its end comes last.
    fn joined(
        &mut self,
        thread_id: &str,
        turn_id: &str,
        items_us: Option<u64>,
        end: Option<(EndDocument, Option<u64>)>,
    ) -> Option<(EndDocument, Option<u64>, Option<u64>)> {
        if self.given.knows(&[thread_id, &format!("{turn_id}//status")]) {
            return None;
        }
        let at = self.parted.iter().position(|turn| turn.is(thread_id, turn_id));
        let before = at.and_then(|at| self.parted.remove(at)).map(|turn| turn.has);
        let has = match (items_us, end, before) {
            (_, _, Some(Has::Ended(end_us))) => Has::Ended(end_us),
            (Some(items_us), Some((end, at_us)), _) => return Some((end, at_us, Some(items_us))),
            (Some(items_us), None, Some(Has::End(end, at_us))) => return Some((end, at_us, Some(items_us))),
            (None, Some((end, at_us)), Some(Has::Items(items_us))) => return Some((end, at_us, Some(items_us))),
            (Some(items_us), None, Some(Has::Items(before_us))) => Has::Items(items_us.max(before_us)),
            (Some(items_us), None, None) => Has::Items(items_us),
            (None, Some((end, at_us)), _) => Has::End(end.stored(), at_us),
            (None, None, before) => before?,
        };
        self.remember(thread_id, turn_id, has);
        None
    }

    fn overruled(
        &mut self,
        step: &Step<'_>,
        event: &str,
        thread_id: &str,
        overruled: &Overruled,
        entries: &mut EntryRows,
    ) {
        let (Overruled { review_id, turn_id, text, .. }, &Step { at_us, place_us, .. }) = (overruled, step);
        let spot = Spot { at_us, place_us, event, thread_id, turn_id: turn_id.as_deref(), turn: "" };
        let content = Content::Approval(ApprovalDocument::of_review(review_id, text, OVERRULED));
        self.push(spot, &format!("/{review_id}/overruled"), None, content, entries);
    }

    fn push(
        &mut self,
        spot: Spot<'_>,
        identity: &str,
        item_id: Option<&str>,
        content: Content<'_>,
        entries: &mut EntryRows,
    ) {
        if self.given.meet(&[spot.thread_id, identity]) == Met::First {
            let Spot { at_us, place_us, event, thread_id, turn_id, turn: _ } = spot;
            let (item_id, turn_id) = (item_id.map(Cow::Borrowed), turn_id.map(Cow::Borrowed));
            let entry = Entry { ts: rfc3339_millis(at_us).into(), item_id, event: event.into(), turn_id, content };
            let json = serde_json::to_string(&entry).expect("BUG: plain data becomes JSON without error");
            entries.push(EntryRow { thread_id, identity, place_us, json: &masked_json(json) });
        }
    }
}

/// The name of a turn in its thread: that of a numbered one has its time, because the next run of the server numbers from 0 again.
fn turn_name(turn_id: &str, began_us: Option<u64>) -> String {
    match began_us {
        Some(began_us) if is_turn_number(turn_id) => format!("{turn_id}@{began_us}"),
        Some(_) | None => turn_id.to_owned(),
    }
}

#[cfg(test)]
pub(super) use tests::check;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::properties::{entries, records};

    /// A line of `expect` is the identity and content of an entry, without members that repeat the identity or the
    /// time.
    pub(in crate::history) fn check(playbook: &str, expect: &str) {
        let actual = entries(&records(playbook));
        let actual = actual.iter().map(|entry| {
            let mut json: serde_json::Map<String, Value> = serde_json::from_str(entry.json).expect("it is JSON");
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
        const STORED: usize = 64 << 10;
        for cut_bytes in [1, (1 << 20) - STORED, (1 << 20) - STORED + 1, 3 << 20] {
            let end = format!("{}b", "é".repeat(STORED / 2 - 1));
            let output = format!("{}{end}", "a".repeat(cut_bytes + STORED - end.len()));
            let line = item(&format!(
                r#""type":"commandExecution","id":"i","command":"ls","cwd":"/","status":"failed","exitCode":1,"aggregatedOutput":"{output}""#
            ));
            let entries = entries(&records(&line));
            let entry = entries.iter().next().expect("an entry");
            let json: Value = serde_json::from_str(entry.json).expect("it is JSON");
            assert_eq!(json["output"].as_str(), Some(&output[cut_bytes..]), "{cut_bytes}");
            let counts = (json["output_truncated_by_bytes"].as_u64(), json["exit_code"].as_i64());
            assert_eq!(counts, (Some(cut_bytes as u64), Some(1)));
        }
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
}
