//! The JSON of requests, sessions and timeline entries, as the page shows them.
//!
//! Pure. All texts are untrusted; the page inserts them as text. Long texts and diffs are cut, and the JSON says by how much.

use serde_json::{Value, json};

use super::words;
use crate::api::{ClientDocument, ListedThread, Request, SessionDocument, ThreadDocument};
use crate::control::RequestOrigin;
use crate::engine::{RequestType, Subject};
use crate::history::{Activity, rfc3339_millis};
use crate::hub;
use crate::journal::{Generation, Position, SegmentName};
use crate::protocol::ThreadKind;
use crate::protocol::change::{self, ChangeSize, Form, LineKind};
use crate::requests::answer::{outcome_word, respond_arguments};
use crate::requests::form::{Field, FieldChoice};
use crate::requests::view::{self, ChangedFile, Choice, Gives, Meant, Question, Row, answer_until};
use crate::sessions::ask::Ask;
use crate::sessions::diff::form_of;
use crate::sessions::entry::{Entry, Key, Kind, Spot, Stage};
use crate::sessions::names::host_of;
use crate::store::{Found, label};

/// Limits for the texts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    diff_lines: usize,
    diff_bytes: usize,
    text_bytes: usize,
}

/// In a list of requests.
pub(super) const IN_LIST: Room = Room { diff_lines: 2_000, diff_bytes: 256 << 10, text_bytes: 64 << 10 };

/// In a list that is already long.
pub(super) const IN_LONG_LIST: Room = Room { diff_lines: 0, diff_bytes: 0, text_bytes: 1 << 10 };

/// Most lines of a further part of one diff.
const PART_LINES_MAX: usize = 20_000;

/// Most bytes of a further part of one diff, unless it is a single line.
const PART_BYTES_MAX: usize = 4 << 20;

/// A pending request of a session.
pub(super) fn request(session: &Found, client: Option<&str>, ask: &Ask, room: Room) -> Value {
    let (row, view) = (&ask.row, &ask.view);
    let origin = RequestOrigin::of(session, row);
    let folder = &*origin.cwd;
    let is_of_session = folder == self::folder(session);
    let (session_name, client) = match is_of_session {
        true => (name(session), client.map(str::to_owned)),
        false => (origin.name.clone(), origin.client.clone()),
    };
    let kind = view.kind;
    let mut left = room;
    let files: Vec<Value> =
        view.files.iter().map(|file| changed_file(file, (folder, view.folder.as_deref()), &mut left)).collect();
    let mut warnings = view.warnings.clone();
    let cut: u64 = files.iter().filter_map(|file| file["cut_lines"].as_u64()).sum();
    warnings
        .extend((cut > 0).then(|| format!("{cut} lines of the diff are not shown at first: show more lines below")));
    let asked = view.members.iter().filter(|row| row.meant == Meant::Asked);
    let hidden = asked.map(|row| row.text.len() - kept_bytes(row, room)).sum::<usize>();
    let hidden =
        (hidden > 0).then(|| format!("{hidden} bytes of this request are not shown here: see all of it in a terminal"));
    warnings.extend(hidden.clone());
    let choices = view.choices.iter().map(|one| choice(one, kind.subject(), hidden.as_deref()));
    let answers = (!view.questions.is_empty())
        .then(|| json!({ "key": "a", "word": "answer", "label": "Send answer", "gives": "form", "body": null, "confirm": null }));
    let mut told = json!({
        "session": session.id,
        "session_name": session_name,
        "folder": folder,
        "client": client,
        "request_id": ask.id,
        "thread_id": row.thread_id,
        "turn_id": row.turn_id,
        "handle": ask.handle(),
        "type": row.request_type,
        "kind": kind.name(),
        "subject": kind.subject(),
        "heading": words::heading(kind.subject()),
        "title": ask.summary(),
        "since": row.requested_at,
        "expires_at": row.expires_at,
        "until": answer_until(row).map(rfc3339_millis),
        "is_risky": view.choices.iter().any(|choice| choice.key == 'a' && choice.danger.is_some()),
        "is_for_human": ask.is_for_human(),
        "how": how(session, ask),
        "rows": rows(&view.members, folder, room),
        "warnings": warnings,
        "files": files,
        "fields": view.questions.iter().map(question).chain(view.fields.iter().map(field)).collect::<Vec<_>>(),
        "choices": choices.chain(answers).collect::<Vec<_>>(),
    });
    add_host(&mut told, session);
    told
}

/// The name of a session, without its machine.
fn name(session: &Found) -> String {
    let whole = label(session);
    let bare = host_of(&session.id).and_then(|host| whole.strip_prefix(host)?.strip_prefix('/'));
    bare.map_or_else(|| whole.clone(), str::to_owned)
}

/// The machine of a session, unless it is this one.
fn add_host(told: &mut Value, session: &Found) {
    if let Some(host) = host_of(&session.id) {
        told["host"] = json!(host);
    }
}

/// The command that answers the request from a shell.
fn how(session: &Found, ask: &Ask) -> String {
    let arguments = respond_arguments(&ask.row).into_iter().next().unwrap_or_default();
    match host_of(&session.id) {
        None => format!("codex-shim respond {} --session {} {arguments}", ask.id, session.id),
        Some(_) => format!("codex-shim fleet respond {}/{} {arguments}", session.id, ask.id),
    }
}

/// The bytes of a text that are shown. What is asked for is never shortened to make room for other requests.
fn kept_bytes(row: &Row, room: Room) -> usize {
    let room = if row.meant == Meant::Asked { room.text_bytes.max(IN_LIST.text_bytes) } else { room.text_bytes };
    row.text.floor_char_boundary(room)
}

/// The members of a request, and the session's folder if the request names none.
fn rows(members: &[Row], folder: &str, room: Room) -> Vec<Value> {
    let is_lacking = !folder.is_empty() && !members.iter().any(|row| row.label == "cwd");
    let folder = is_lacking.then(|| json!({ "label": "Folder", "text": folder, "style": "plain" }));
    members.iter().map(|row| member(row, room)).chain(folder).collect()
}

fn member(row: &Row, room: Room) -> Value {
    let style = match (row.meant, &*row.label) {
        (Meant::Asked, "command") => "command",
        (Meant::Asked, "message") => "message",
        (_, "reason") => "prose",
        (_, _) => "plain",
    };
    let label = match &*row.label {
        "cwd" => "Folder".to_owned(),
        "reason" => "Why".to_owned(),
        label => words::upper(label),
    };
    let kept = kept_bytes(row, room);
    let text = match row.text.len() - kept {
        0 => row.text.clone(),
        more => format!("{} … ({more} more bytes)", &row.text[..kept]),
    };
    json!({ "label": label, "text": text, "style": style })
}

/// A changed file with as many lines as there is room for; its path is shown below the first folder, and the second one is that of
/// its thread.
fn changed_file(file: &ChangedFile, (folder, of_thread): (&str, Option<&str>), left: &mut Room) -> Value {
    let kind = match &*file.kind {
        "add" => "new",
        "delete" => "deleted",
        "update" => "",
        other => other,
    };
    let is_outside = file.is_outside(of_thread);
    let heading = file.heading(if is_outside { "" } else { folder });
    let note = [kind, if is_outside { "outside the folder" } else { "" }];
    let note = note.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ");
    let mut lines = Vec::new();
    let ChangeSize { added, removed, .. } = file.size();
    let mut cut = 0;
    for row in file.lines() {
        if cut > 0 || left.diff_lines == 0 || row.text.len() > left.diff_bytes {
            cut += 1;
            continue;
        }
        left.diff_lines -= 1;
        left.diff_bytes -= row.text.len();
        lines.push(diff_line(&row));
    }
    json!({
        "kind": file.kind,
        "path": file.path,
        "moved_to": file.moved_to,
        "name": heading.strip_prefix(&*file.kind).unwrap_or(&heading).trim_start(),
        "note": note,
        "has_diff": file.has_diff,
        "added": added,
        "removed": removed,
        "cut_lines": cut,
        "lines": lines,
    })
}

/// The lines of a file's diff from number `from` on, at least one, and how many are left after them; `None` if it has no
/// such line.
pub(super) fn part_of_diff(ask: &Ask, file: usize, from: usize) -> Option<Value> {
    let file = ask.view.files.get(file)?;
    let mut rows = file.lines().skip(from);
    let first = rows.next()?;
    let mut bytes = first.text.len();
    let fits = |row: &Row| {
        bytes += row.text.len();
        bytes <= PART_BYTES_MAX
    };
    let more = rows.take(PART_LINES_MAX - 1).take_while(fits);
    let lines: Vec<Value> = std::iter::once(first).chain(more).map(|row| diff_line(&row)).collect();
    Some(json!({ "lines": lines, "cut_lines": file.lines().count() - from - lines.len() }))
}

fn diff_line(row: &Row) -> Value {
    json!({ "type": line_type(row.meant), "text": row.text })
}

fn line_type(meant: Meant) -> &'static str {
    match meant {
        Meant::Added => "added",
        Meant::Removed => "removed",
        Meant::Place => "header",
        Meant::Plain | Meant::Asked => "context",
    }
}

fn question(question: &Question) -> Value {
    let option = |(label, description): &(String, String)| json!({ "label": label, "description": description });
    json!({
        "name": question.id,
        "label": question.text,
        "is_required": false,
        "is_secret": question.is_secret,
        "is_number": false,
        "is_long": !question.is_secret,
        "takes_many": false,
        "takes_text": question.takes_text,
        "options": question.options.iter().map(option).collect::<Vec<_>>(),
        "hint": null,
        "starts": [],
    })
}

fn field(field: &Field) -> Value {
    let starts = if field.is_secret { Vec::new() } else { starts(field) };
    let option = |choice: &FieldChoice| json!({ "label": choice.label });
    let hint = field.hint();
    let hint = if field.is_required { hint["required".len()..].trim_start_matches(" · ").to_owned() } else { hint };
    json!({
        "name": field.name,
        "label": field.about.as_ref().unwrap_or(&field.name),
        "is_required": field.is_required,
        "is_secret": field.is_secret,
        "is_number": matches!(&*field.json_type, "integer" | "number"),
        "is_long": !field.is_secret && (field.json_type == "object" || starts.iter().any(|start| start.contains('\n'))),
        "takes_many": field.takes_many,
        "takes_text": field.choices.is_empty(),
        "options": field.choices.iter().map(option).collect::<Vec<_>>(),
        "hint": if field.choices.is_empty() { Some(hint) } else { field.limits.clone() },
        "starts": starts,
    })
}

/// The default of a field, as the labels of its choices, or as the text that [`Field::read`] turns into the same value.
fn starts(field: &Field) -> Vec<String> {
    let Some(default) = &field.default else { return Vec::new() };
    let values = default.as_array().filter(|_| field.takes_many);
    let label = |value: &Value| field.choices.iter().find(|choice| choice.value == *value).map(|one| one.label.clone());
    if !field.choices.is_empty() {
        return values
            .map_or_else(|| label(default).into_iter().collect(), |all| all.iter().filter_map(label).collect());
    }
    let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = values.map_or_else(|| bare(default), |all| all.iter().map(bare).collect::<Vec<_>>().join(", "));
    let is_same = field.read(&[&text]).is_ok_and(|read| read == *default);
    vec![if is_same { text } else { bare(default) }]
}

/// A choice. If the page does not show the whole request (`hidden` says so), accepting it needs a second tap.
fn choice(choice: &Choice, subject: Option<Subject>, hidden: Option<&str>) -> Value {
    let (gives, body) = match &choice.gives {
        Gives::Body(body) => ("body", body),
        Gives::Reason => ("reason", &Value::Null),
        Gives::Form => ("form", &Value::Null),
    };
    let word = match (choice.key, &choice.gives) {
        (_, Gives::Form) => "form",
        (_, Gives::Reason) => "reason",
        ('a', Gives::Body(_)) => "accept",
        ('s', Gives::Body(_)) => "accept_for_session",
        ('d', Gives::Body(_)) => "decline",
        ('c', Gives::Body(_)) => "cancel",
        (_, Gives::Body(_)) => "offer",
    };
    json!({
        "key": choice.key.to_string(),
        "word": word,
        "label": words::answer(&choice.label, subject),
        "gives": gives,
        "body": body,
        "confirm": choice.danger.as_deref().or(hidden.filter(|_| matches!(word, "accept" | "accept_for_session" | "offer"))),
    })
}

/// Whether `body` is one of the answers that the page offers for this request.
pub(super) fn is_offered(ask: &Ask, body: &Value) -> bool {
    let offers = ask.view.choices.iter().any(|choice| choice.gives == Gives::Body(body.clone()));
    offers && !matches!(ask.view.kind.request_type(), RequestType::UserInput | RequestType::Other)
}

/// How a request has ended.
pub(super) fn ending(row: &Request) -> Value {
    let outcome = outcome_word(row);
    json!({
        "outcome": outcome,
        "look": words::look(outcome),
        "verdict": words::verdict(outcome),
        "place": place(row),
        "ending": view::ending(row),
        "source": row.resolution_source,
        "by": row.resolved_by,
    })
}

/// The place from which an answer came, or the name of its client, rule or user of the fleet.
fn place(row: &Request) -> String {
    let source = row.resolution_source.as_deref().unwrap_or_default();
    let by = row.resolved_by.as_deref().unwrap_or_default();
    match (source, by.split_once(':')) {
        ("client", _) if !by.is_empty() => format!("in {by}"),
        ("policy", Some(("rule", rule))) => format!("by your rule {rule}"),
        ("api", Some(("fleet", user))) => format!("by {user}"),
        (_, _) => words::place(source).to_owned(),
    }
}

/// The end of a request whose row cannot be read; `ending` says why.
pub(super) fn unknown_ending(ending: &str) -> Value {
    let outcome = "unknown";
    json!({ "outcome": outcome, "look": "", "verdict": words::verdict(outcome), "place": "", "ending": ending, "source": null,
        "by": null })
}

/// A session; the document is that of its relay, if that has answered.
pub(super) fn session(session: &Found, document: Option<&SessionDocument>, problem: Option<&str>) -> Value {
    let document = document.filter(|_| session.live);
    let state = match session.live {
        true => document.map(|document| document.state).filter(|_| problem.is_none()),
        false => Some(Activity::Stopped),
    };
    let (words, look) = words::state(state);
    let clients = document.map(clients).unwrap_or_default();
    let listed = document.map(SessionDocument::listed_threads).unwrap_or_default();
    let others = document.iter().flat_map(|document| &document.threads);
    let others = others.filter(|thread| !thread.identity.kind.is_user());
    let mut told = json!({
        "id": session.id,
        "name": name(session),
        "folder": folder(session),
        "is_live": session.live,
        "is_hub": session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place)),
        "state": state.map_or(json!("unknown"), |state| json!(state)),
        "words": problem.unwrap_or(words),
        "look": look,
        "since": document.and_then(|document| document.state_since.as_ref()),
        "problem": problem,
        "client": clients.first(),
        "clients": clients,
        "codex_version": document.and_then(|document| document.child.codex_version.as_ref()),
        "pending": document.map_or(0, |document| document.pending_requests),
        "last_used": (!session.live).then(|| humantime::format_rfc3339_millis(session.last_used).to_string()),
        "threads": listed.into_iter().map(thread).collect::<Vec<_>>(),
        "others": others.map(other_thread).collect::<Vec<_>>(),
    });
    if let Some(document) = document {
        told["hub"] = json!(document.hub.is_some());
    }
    add_host(&mut told, session);
    told
}

/// The clients of a session, with their versions.
fn clients(document: &SessionDocument) -> Vec<String> {
    let connected = document.hub.iter().flat_map(|hub| &hub.connections).map(|one| &one.client);
    let named = |client: &ClientDocument| {
        let name = client.name.as_ref()?;
        Some(client.version.as_ref().map_or(name.clone(), |version| format!("{name} {version}")))
    };
    std::iter::once(&document.client).chain(connected).filter_map(named).collect()
}

fn thread(ListedThread { name, thread, .. }: ListedThread<'_>) -> Value {
    let (words, look) = words::state(Some(thread.activity_state));
    json!({
        "thread_id": thread.thread_id,
        "name": name,
        "about": thread.about(),
        "state": thread.activity_state,
        "words": words,
        "look": look,
        "since": thread.since,
        "turn_id": thread.turn_id,
        "pending": thread.pending,
        "last_action": thread.last_action,
        "stalled_since": thread.stalled_since,
    })
}

/// A thread that no person speaks in.
fn other_thread(thread: &ThreadDocument) -> Value {
    json!({
        "thread_id": thread.thread_id,
        "words": thread.identity.kind.in_words(),
        "parent": thread.identity.parent,
    })
}

/// The folder of a session.
pub(super) fn folder(session: &Found) -> &str {
    session.holder.as_ref().map(|holder| holder.place.cwd.as_str()).unwrap_or_default()
}

/// An entry of the timeline. Only its kinds with a diff have `marks`, one letter for each line, and a plan has `steps`.
pub(super) fn entry(entry: &Entry) -> Value {
    let stage = match entry.stage {
        Stage::Open => "open",
        Stage::Done => "done",
        Stage::Failed => "failed",
        Stage::Stopped => "stopped",
    };
    let took_ms = entry.took_us.map(|us| us / 1_000);
    let (title, end, look) = words::entry(entry.kind, entry.stage, &entry.title, entry.exit_code, took_ms);
    json!({
        "key": key_text(&entry.key),
        "kind": entry.kind.name(),
        "stage": stage,
        "at": rfc3339_millis(entry.at_us),
        "thread_id": entry.thread_id,
        "handle": entry.handle,
        "of": of(entry.thread_kind),
        "title": title,
        "end": end,
        "look": look,
        "body": entry.body,
        "marks": form_of(entry.kind).map(|form| marks(form, &entry.body)),
        "steps": if entry.kind == Kind::Plan { steps(&entry.body) } else { None },
        "cut_bytes": entry.cut_bytes,
    })
}

/// What the thread of an entry is for, and who speaks in it, unless a person does.
fn of(kind: ThreadKind) -> Option<Value> {
    (!kind.is_user()).then(|| json!({ "words": kind.in_words(), "speaker": words::upper(kind.speaker()) }))
}

/// The steps of a plan, if all of its lines are steps.
fn steps(body: &str) -> Option<Vec<Value>> {
    let step = |line: &str| {
        let marks = [("[x] ", "done"), ("[>] ", "now"), ("[ ] ", "later")];
        let (text, state) = marks.iter().find_map(|(mark, state)| Some((line.strip_prefix(mark)?, state)))?;
        Some(json!({ "state": state, "text": text }))
    };
    body.lines().map(step).collect::<Option<Vec<Value>>>().filter(|steps| !steps.is_empty())
}

/// A letter for each line of a diff: `+` added, `-` removed, `@` a heading, or a space.
fn marks(form: Form, text: &str) -> String {
    let mark = |kind| match kind {
        LineKind::File | LineKind::Header | LineKind::Hunk => '@',
        LineKind::Added => '+',
        LineKind::Removed => '-',
        LineKind::Context | LineKind::Remark | LineKind::Outside => ' ',
    };
    change::lines(form, text).map(|line| mark(line.kind)).collect()
}

/// A key as text. Texts have the order of keys, and need no escapes in a URL.
pub(super) fn key_text(key: &Key) -> String {
    match &key.at {
        Spot::Kept(line) => format!("k.{line:020}.{:05}", key.nth),
        Spot::Recorded(Position { segment: SegmentName { generation, number }, offset }) => {
            format!("r.{}.{number:010}.{offset:020}.{:05}", generation.as_str(), key.nth)
        }
    }
}

/// Parses a key.
pub(super) fn key_of(text: &str) -> Option<Key> {
    let parts: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match parts[..] {
        ["k", line, nth] if [line, nth].iter().all(is_number) => {
            Some(Key { at: Spot::Kept(line.parse().ok()?), nth: nth.parse().ok()? })
        }
        ["r", generation, number, offset, nth] if [number, offset, nth].iter().all(is_number) => {
            let segment = SegmentName { generation: Generation::parse(generation)?, number: number.parse().ok()? };
            let at = Position { segment, offset: offset.parse().ok()? };
            Some(Key { at: Spot::Recorded(at), nth: nth.parse().ok()? })
        }
        _ => None,
    }
}

/// A key after every entry.
pub(super) fn last_key() -> Key {
    let generation = Generation::parse("ffffffffffff").expect("BUG: it is twelve digits");
    let segment = SegmentName { generation, number: u32::MAX };
    Key { at: Spot::Recorded(Position { segment, offset: u64::MAX }), nth: u16::MAX }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;
    use crate::requests::request_testing::one_of_each_kind;
    use crate::sessions::ask::of_row;

    fn found() -> Found {
        Found {
            id: "s".to_owned(),
            dir: PathBuf::from("s"),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn keys_survive_text_and_keep_their_order() {
        let recorded = |generation: &str, number, offset, nth| {
            let segment = SegmentName { generation: Generation::parse(generation).expect("digits"), number };
            Key { at: Spot::Recorded(Position { segment, offset }), nth }
        };
        let keys = [
            Key::START,
            Key { at: Spot::Kept(9), nth: 2 },
            Key { at: Spot::Kept(10), nth: 0 },
            Key::JOURNAL_BEGINS,
            recorded("000000000001", 9, 100, 0),
            recorded("000000000001", 10, 9, 0),
            recorded("000000000001", 10, 10, 9),
            recorded("000000000001", 10, 10, 10),
            recorded("00000000000a", 1, 0, 0),
            last_key(),
        ];
        let texts: Vec<String> = keys.iter().map(key_text).collect();
        assert!(texts.is_sorted(), "{texts:?}");
        for (key, text) in keys.iter().zip(&texts) {
            assert_eq!(key_of(text).as_ref(), Some(key), "{text}");
        }
        for wrong in
            ["", "k", "k.1", "k.x.1", "k.+1.1", "r.x.1.1.1", "r.000000000001.1.1", "r.000000000001.1.1.1.1", "../x"]
        {
            assert_eq!(key_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn command_that_is_cut_takes_a_second_tap() {
        let shown = |bytes: usize, room| {
            let mut row = one_of_each_kind().remove(0);
            row.request_payload = json!({ "threadId": "t", "turnId": "u", "itemId": "i", "cwd": "/w" });
            row.request_payload["command"] = json!(format!("echo {}", "x".repeat(bytes)));
            let shown = request(&found(), None, &of_row(row, 0), room);
            let accept = shown["choices"].as_array().expect("an array")[0].clone();
            assert_eq!(accept["word"], "accept");
            format!("{} {}", accept["confirm"], shown["warnings"])
        };
        // Other requests do not shorten what is approved.
        assert_eq!(shown(2_000, IN_LONG_LIST), "null []");
        let long = shown(70_000, IN_LIST);
        assert!(!long.starts_with("null") && long.contains("bytes of this request are not shown here"), "{long}");
    }

    #[test]
    fn every_kind_is_shown_with_its_answers() {
        for row in one_of_each_kind() {
            let ask = of_row(row, 0);
            let shown = request(&found(), None, &ask, IN_LIST);
            let choices = shown["choices"].as_array().expect("an array");
            assert!(ask.is_for_human() != choices.is_empty(), "{shown}");
            assert!(!shown["title"].as_str().expect("a text").is_empty(), "{shown}");
            for choice in choices.iter().filter(|choice| choice["gives"] == "body") {
                assert!(is_offered(&ask, &choice["body"]), "{choice}");
            }
            assert!(!is_offered(&ask, &json!({ "decision": "acceptAll" })));
        }
    }

    #[test]
    fn long_diffs_and_texts_are_cut_and_say_so() {
        let diff = format!("@@ -0,0 +1,30 @@\n{}", "+x\n".repeat(30));
        let change = json!({ "path": "/w/a", "kind": { "type": "update" }, "diff": diff });
        let row = json!({ "request_id": "g-1", "request_method": "item/fileChange/requestApproval",
            "request_payload": { "reason": "y".repeat(50) }, "changes": [change, change] });
        let room = Room { diff_lines: 40, diff_bytes: 1_000, text_bytes: 10 };
        let shown = request(&found(), None, &of_row(row.into(), 0), room);
        let [one, two] = &shown["files"].as_array().expect("an array")[..] else { panic!("{shown}") };
        assert_eq!((&one["cut_lines"], one["lines"].as_array().map(Vec::len)), (&json!(0), Some(31)));
        assert_eq!(
            (&two["cut_lines"], &two["added"], &two["lines"][0]["type"]),
            (&json!(22), &json!(30), &json!("header"))
        );
        assert_eq!(shown["warnings"], json!(["22 lines of the diff are not shown at first: show more lines below"]));
        assert_eq!(shown["rows"][0]["text"], "yyyyyyyyyy … (40 more bytes)");
    }

    #[test]
    fn every_line_of_a_diff_can_be_read() {
        let diff = |lines: usize, line: &str| format!("@@ -1 +1 @@\n{}", format!("+{line}\n").repeat(lines));
        let changes = [diff(50_000, "x"), diff(3, &"y".repeat(3 << 20)), String::new()];
        let change = |diff: &String| json!({ "path": "/w/a", "kind": { "type": "update" }, "diff": diff });
        let changes: Vec<Value> = changes.iter().map(change).collect();
        let row = json!({ "request_id": "g-1", "request_method": "item/fileChange/requestApproval",
            "request_payload": {}, "changes": changes });
        let ask = of_row(row.into(), 0);
        for (file, count) in [(0, 50_001), (1, 4)] {
            let mut read = 0;
            loop {
                let part = part_of_diff(&ask, file, read).expect("there are lines");
                read += part["lines"].as_array().expect("an array").len();
                if part["cut_lines"] == 0 {
                    break;
                }
            }
            assert_eq!(read, count);
        }
        assert!([(0, 50_001), (2, 0), (3, 0)].iter().all(|(file, from)| part_of_diff(&ask, *file, *from).is_none()));
    }

    #[test]
    fn secret_defaults_are_not_shown() {
        let schema = json!({ "properties": { "api_token": { "type": "string", "default": "hunter2" } } });
        let row = json!({ "request_id": "g-1", "request_method": "mcpServer/elicitation/request",
            "request_payload": { "message": "?", "requestedSchema": schema } });
        let shown = request(&found(), None, &of_row(row.into(), 0), IN_LIST);
        assert_eq!((&shown["fields"][0]["is_secret"], &shown["fields"][0]["starts"]), (&json!(true), &json!([])));
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
    }

    #[test]
    fn entries_have_plain_words() {
        let mut one = Entry::new(Key::START, Kind::Command, 1_000_000);
        (one.stage, one.title, one.took_us) = (Stage::Failed, "make".to_owned(), Some(2_500_000));
        let shown = entry(&one);
        assert_eq!(
            (&shown["kind"], &shown["stage"], &shown["end"]),
            (&json!("runs"), &json!("failed"), &json!("failed · 2 s"))
        );
        assert_eq!(shown["at"], "1970-01-01T00:00:01.000Z");
    }

    #[test]
    fn endings_name_the_client_or_the_rule() {
        let check = |source: &str, by: Value, expect: &str| {
            let row = json!({ "status": "resolved", "resolution_source": source, "resolved_by": by });
            assert_eq!(ending(&Request::from(&row))["place"], expect);
        };
        check("client", json!("codex-tui"), "in codex-tui");
        check("client", Value::Null, "in its client");
        check("policy", json!("rule:no-network"), "by your rule no-network");
        check("policy", json!("expiry"), "by your settings");
        check("api", json!("fleet:ann@laptop"), "by ann@laptop");
        check("api", json!("uid 0, pid 1"), "by a program");
        check("web", json!("uid 0, pid 1"), "in a browser");
    }

    #[test]
    fn plans_have_steps_and_other_texts_none() {
        let steps = |body: &str| steps(body).map(|steps| json!(steps));
        let expect = json!([{ "state": "done", "text": "read" }, { "state": "now", "text": "write \u{2028}" }]);
        assert_eq!(steps("[x] read\n[>] write \u{2028}"), Some(expect));
        assert_eq!((steps("[x] read\nthen"), steps("")), (None, None));
    }

    #[test]
    fn removed_lines_name_no_files() {
        let check = |form, text: &str, expect: &str| assert_eq!(marks(form, text), expect, "{text}");
        let in_hunk = "diff update q.sql\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n keep\n";
        check(Form::Listed, in_hunk, "@@-+ ");
        check(Form::Listed, "diff delete q.sql\n--- x\n-- y\n", "@--");
        check(Form::Listed, "diff add q.sql\n+++ x\n+@@ -1 +1 @@\n\\ No newline at end of file\n", "@++ ");
        let cut = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-x\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n";
        check(Form::Turn, cut, "@@@@-@@@@");
    }

    /// The page finds a kind by its label. A label that changes changes there too, and in `app.css`.
    #[test]
    fn page_draws_the_kinds_of_entries_that_exist() {
        let between = |from: &str, to: &str| {
            let (_, rest) = include_str!("page/app.js").split_once(from).unwrap_or_else(|| panic!("no {from}"));
            rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
        };
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let drawn =
            between("switch (kind) {", "default:").split("case \"").skip(1).filter_map(|rest| rest.split('"').next());
        // `default` draws these as a text.
        let drawn: BTreeSet<&str> = drawn.chain([Kind::Review, Kind::Error, Kind::Gap].map(Kind::name)).collect();
        assert_eq!(drawn, names);
        let icons: Vec<&str> =
            between("const ICON_OF = { ", " };").split(", ").filter_map(|icon| icon.split(':').next()).collect();
        let is_known = |name: &&str| names.contains(name) || Subject::ALL.iter().any(|subject| subject.name() == *name);
        assert!(icons.len() > 5 && icons.iter().all(is_known), "{icons:?}");
        let marked = between("null, /", "/.test(entry.kind)").split('|');
        assert!(marked.clone().all(|name| names.contains(name) && icons.contains(&name)), "{marked:?}");
    }

    #[test]
    fn entry_with_a_diff_stays_small() {
        let mut one = Entry::new(Key::START, Kind::Diff, 1_000_000);
        one.body = "+\n".repeat(8_000);
        let shown = entry(&one);
        assert_eq!((&shown["body"], shown["marks"].as_str().map(str::len)), (&json!(one.body), Some(8_000)));
        let bytes = shown.to_string().len();
        assert!(bytes < 2 * one.body.len() + 1_000, "{bytes}");
    }

    #[test]
    fn defaults_of_a_form_stay_as_they_are() {
        let check = |schema: Value, expect: Value| {
            let row = json!({ "request_id": "g-1", "request_method": "mcpServer/elicitation/request",
                "request_payload": { "message": "?", "requestedSchema": { "properties": { "constructor": schema } } } });
            assert_eq!(
                request(&found(), None, &of_row(row.into(), 0), IN_LIST)["fields"][0]["starts"],
                expect,
                "{schema}"
            );
        };
        check(json!({ "type": "string", "default": "true" }), json!(["true"]));
        check(json!({ "type": "string", "default": "one\ntwo" }), json!(["one\ntwo"]));
        check(json!({ "type": "boolean", "default": true }), json!(["yes"]));
        check(json!({ "type": "integer", "default": 3 }), json!(["3"]));
        check(json!({ "type": "string" }), json!([]));
        let many = |items: Value, default: Value| json!({ "type": "array", "items": items, "default": default });
        let zones = json!({ "enum": ["a", "b"], "enumNames": ["Zone A, north", "Zone B"] });
        check(many(zones, json!(["a", "b"])), json!(["Zone A, north", "Zone B"]));
        check(many(json!({ "type": "string" }), json!(["x", "y"])), json!(["x, y"]));
        check(many(json!({ "type": "string" }), json!(["x, y"])), json!([r#"["x, y"]"#]));
    }
}
