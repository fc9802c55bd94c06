//! The NATS configuration of docs/fleet.md: what each user may do, and what the server refuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::support::PATIENCE;
use super::support::nats::Nats;

const STREAMS: [(&str, &str); 4] = [
    ("CSHIM_EV", "cshim.ev.>"),
    ("KV_cshim_hosts", "$KV.cshim_hosts.>"),
    ("KV_cshim_pending", "$KV.cshim_pending.>"),
    ("CSHIM_LATER", "cshim.later.>"),
];

/// A connected user, and what the server has refused.
struct User {
    client: Client,
    refused: Arc<Mutex<Vec<String>>>,
}

impl User {
    async fn of(nats: &Nats, key: &str, inbox: &str) -> User {
        let seed = std::fs::read_to_string(nats.seed(key)).expect("a file").trim().to_owned();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&refused);
        let client = ConnectOptions::with_nkey(seed)
            .custom_inbox_prefix(inbox)
            .request_timeout(Some(PATIENCE))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    noted.lock().expect("no thread panics with it").push(error.to_string());
                }
                std::future::ready(())
            })
            .connect(nats.url())
            .await
            .expect("it connects");
        User { client, refused }
    }

    async fn ask(&self, subject: &str, body: &Value) -> Message {
        self.client.request(subject.to_owned(), body.to_string().into()).await.expect("it is answered")
    }

    /// Publishes with a reply subject, and waits until the server has handled it.
    async fn publishes(&self, subject: &str, reply: &str, body: &Value) {
        let (subject, reply, body) = (subject.to_owned(), reply.to_owned(), body.to_string());
        self.client.publish_with_reply(subject, reply, body.into()).await.expect("it is sent");
        self.settles().await;
    }

    /// A flush waits for an answer of the server, which handles what a connection sends in order.
    async fn settles(&self) {
        self.client.flush().await.expect("it is connected");
        let own = self.client.new_inbox();
        let mut back = self.client.subscribe(own.clone()).await.expect("its own inbox");
        // A user may not publish to its inbox, so a direct get answers there; an agent may ask only for what waits for it.
        let stream = if own.starts_with("_INBOX.build-") { "CSHIM_LATER" } else { "CSHIM_EV" };
        let get = format!("$JS.API.DIRECT.GET.{stream}");
        self.client.publish_with_reply(get, own, r#"{"seq":1}"#.into()).await.expect("it is sent");
        let answer = tokio::time::timeout(PATIENCE, back.next()).await;
        assert!(answer.is_ok_and(|answer| answer.is_some()), "the server did not answer");
    }

    /// What was refused since the last call.
    fn refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock().expect("no thread panics with it"))
    }

    async fn may_not_publish(&self, subject: &str) {
        self.publishes(subject, "_INBOX.x", &json!({})).await;
        self.was_refused(&format!("permissions violation for publish to \"{}\"", subject.to_lowercase())).await;
    }

    async fn may_not_subscribe(&self, subject: &str) {
        let _messages = self.client.subscribe(subject.to_owned()).await.expect("it is sent");
        self.settles().await;
        self.was_refused(&format!("permissions violation for subscription to \"{}\"", subject.to_lowercase())).await;
    }

    /// The client reports what the server says by another way than messages, so it may come later.
    async fn was_refused(&self, expect: &str) {
        let mut all = Vec::new();
        let seen = async {
            loop {
                all.extend(self.refused());
                if all.iter().any(|text| text.to_lowercase().contains(expect)) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seen).await;
        assert!(seen.is_ok(), "not refused: {expect}: {all:?}");
    }
}

/// The server with its streams and all users.
struct Fleet {
    nats: Nats,
    admin: User,
    host: User,
    operator: User,
    viewer: User,
}

impl Fleet {
    async fn start(test: &str) -> Option<Fleet> {
        let nats = Nats::start(test)?;
        let admin = User::of(&nats, "admin", "_INBOX.admin").await;
        for (name, subjects) in STREAMS {
            let config = json!({ "name": name, "subjects": [subjects], "allow_direct": true, "storage": "memory" });
            let made = admin.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &config).await;
            let made: Value = serde_json::from_slice(&made.payload).expect("it is JSON");
            assert_eq!(made["config"]["name"], name, "{made}");
        }
        let host = User::of(&nats, "build_7", "_INBOX.build-7").await;
        let operator = User::of(&nats, "ann", "_INBOX.ann").await;
        let viewer = User::of(&nats, "ben", "_INBOX.ben").await;
        Some(Fleet { nats, admin, host, operator, viewer })
    }

    /// The messages in a stream.
    async fn count(&self, stream: &str) -> u64 {
        let info = self.admin.ask(&format!("$JS.API.STREAM.INFO.{stream}"), &json!({})).await;
        let info: Value = serde_json::from_slice(&info.payload).expect("it is JSON");
        info["state"]["messages"].as_u64().unwrap_or_else(|| panic!("{info}"))
    }

    async fn counts(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for (stream, _) in STREAMS {
            counts.push(self.count(stream).await);
        }
        counts
    }
}

fn stored(message: &Message) -> bool {
    let ack: Value = serde_json::from_slice(&message.payload).expect("it is JSON");
    ack["seq"].as_u64().is_some()
}

#[tokio::test]
async fn host_publishes_only_its_own() {
    let Some(fleet) = Fleet::start("host_publishes_only_its_own").await else { return };
    for own in ["cshim.ev.build-7.s", "$KV.cshim_hosts.build-7", "$KV.cshim_pending.build-7"] {
        assert!(stored(&fleet.host.ask(own, &json!({})).await), "{own}");
    }
    let all = fleet.counts().await;
    for other in [
        "cshim.ev.build-8.s",
        "$KV.cshim_hosts.build-8",
        "$KV.cshim_pending.build-8",
        "cshim.req.build-8.read.ann",
        "cshim.req.build-8.write.ann",
        "cshim.later.build-8.ann",
        "_INBOX.ann.x",
        "_INBOX.build-8.x",
        "_R_.aaaaaa.bbbbbb",
        "$JS.API.STREAM.DELETE.CSHIM_EV",
        "$JS.API.STREAM.INFO.CSHIM_EV",
        "$JS.API.DIRECT.GET.CSHIM_EV",
        "$JS.API.CONSUMER.CREATE.CSHIM_LATER.c.cshim.later.build-7.>",
    ] {
        fleet.host.may_not_publish(other).await;
    }
    for other in ["cshim.req.build-8.>", "cshim.req.>", "cshim.ev.>", "_INBOX.>", "_INBOX.build-8.>", ">"] {
        fleet.host.may_not_subscribe(other).await;
    }
    assert_eq!(fleet.counts().await, all);
}

#[tokio::test]
async fn console_asks_only_in_its_own_name() {
    let Some(fleet) = Fleet::start("console_asks_only_in_its_own_name").await else { return };
    for other in [
        "cshim.req.build-7.read.ben",
        "cshim.req.build-7.write.ben",
        "cshim.later.build-7.ben",
        "cshim.ev.build-7.s",
        "$KV.cshim_hosts.build-7",
        "$KV.cshim_pending.build-7",
        "_INBOX.ben.x",
        "$JS.API.STREAM.CREATE.X",
        "$JS.API.STREAM.PURGE.CSHIM_EV",
        "$JS.API.STREAM.MSG.DELETE.CSHIM_EV",
        "$JS.API.CONSUMER.CREATE.CSHIM_EV.c.cshim.ev.>",
        "$JS.API.DIRECT.GET.CSHIM_LATER",
    ] {
        fleet.operator.may_not_publish(other).await;
    }
    for other in ["_INBOX.ben.>", "_INBOX.>", "cshim.req.>", "cshim.ev.>", ">"] {
        fleet.operator.may_not_subscribe(other).await;
    }
}

#[tokio::test]
async fn viewer_cannot_write() {
    let Some(fleet) = Fleet::start("viewer_cannot_write").await else { return };
    for write in ["cshim.req.build-7.write.ben", "cshim.req.build-7.write.ann", "cshim.later.build-7.ben"] {
        fleet.viewer.may_not_publish(write).await;
    }
    // It may ask: no agent runs, which the server says at once.
    let asked = fleet.viewer.client.request("cshim.req.build-7.read.ben", "{}".into()).await;
    assert_eq!(asked.expect_err("no agent runs").kind(), async_nats::RequestErrorKind::NoResponders);
    assert!(fleet.viewer.refused().is_empty());
}

#[tokio::test]
async fn question_carries_its_asker() {
    let Some(fleet) = Fleet::start("question_carries_its_asker").await else { return };
    let mut asked = fleet.host.client.subscribe("cshim.req.build-7.>").await.expect("it is its own");
    fleet.host.settles().await;
    let client = fleet.operator.client.clone();
    let question =
        tokio::spawn(
            async move { client.request("cshim.req.build-7.write.ann", "{}".into()).await.expect("answered") },
        );
    let message = tokio::time::timeout(PATIENCE, asked.next()).await.expect("it is asked").expect("a message");
    assert_eq!(message.subject.as_str(), "cshim.req.build-7.write.ann");
    let reply = message.reply.expect("a reply subject");
    assert!(reply.as_str().starts_with("_R_."), "{reply}");
    let headers = message.headers.expect("the server's own");
    let names: Vec<String> = headers.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["Nats-Request-Info"]);
    fleet.host.client.publish(reply.clone(), "yes".into()).await.expect("it is sent");
    assert_eq!(&*question.await.expect("it ends").payload, b"yes");
    // Once: a further answer would be another host's to give.
    fleet.host.may_not_publish(reply.as_str()).await;
}

/// JetStream answers to any reply subject. No answer may be stored, or reach an agent or a console as something else.
#[tokio::test]
async fn reply_subject_writes_nothing_elsewhere() {
    let Some(fleet) = Fleet::start("reply_subject_writes_nothing_elsewhere").await else { return };
    let other = User::of(&fleet.nats, "build_8", "_INBOX.build-8").await;
    let mut asked = other.client.subscribe("cshim.req.build-8.>").await.expect("it is its own");
    other.settles().await;
    assert!(stored(&fleet.host.ask("cshim.ev.build-7.s", &json!({})).await));
    assert!(stored(&fleet.host.ask("$KV.cshim_hosts.build-7", &json!({ "host": "build-8" })).await));
    assert!(stored(&fleet.operator.ask("cshim.later.build-7.ann", &json!({})).await));
    let mut expect = fleet.counts().await;
    for reply in [
        "cshim.ev.build-8.s",
        "$KV.cshim_hosts.build-8",
        "$KV.cshim_pending.build-8",
        "cshim.later.build-8.ann",
        "cshim.req.build-8.write.ann",
    ] {
        let first = json!({ "seq": 1 });
        fleet.host.publishes("cshim.ev.build-7.s", reply, &json!({})).await;
        fleet.host.publishes("$JS.API.DIRECT.GET.CSHIM_LATER", reply, &first).await;
        fleet.operator.publishes("cshim.later.build-7.ann", reply, &json!({})).await;
        fleet.viewer.publishes("$JS.API.DIRECT.GET.KV_cshim_hosts", reply, &first).await;
        // Of each round the host's event and the operator's answer are stored, and nothing else.
        expect[0] += 1;
        expect[3] += 1;
        assert_eq!(fleet.counts().await, expect, "{reply}");
    }
    assert!(fleet.host.refused().is_empty() && fleet.viewer.refused().is_empty());
    // An answer that goes to an agent has no reply subject, so no agent takes it for a question.
    other.settles().await;
    while let Ok(Some(message)) = tokio::time::timeout(Duration::ZERO, asked.next()).await {
        assert!(message.reply.is_none(), "{message:?}");
    }
}

/// A host that works with a viewer: the viewer's question names another host's subject as its reply.
#[tokio::test]
async fn host_cannot_ask_in_place_of_answering() {
    let Some(fleet) = Fleet::start("host_cannot_ask_in_place_of_answering").await else { return };
    let other = User::of(&fleet.nats, "build_8", "_INBOX.build-8").await;
    let mut seen = other.client.subscribe("cshim.req.build-8.>").await.expect("it is its own");
    let mut asked = fleet.host.client.subscribe("cshim.req.build-7.>").await.expect("it is its own");
    other.settles().await;
    fleet.host.settles().await;
    fleet.viewer.publishes("cshim.req.build-7.read.ben", "cshim.req.build-8.write.ann", &json!({})).await;
    let message = tokio::time::timeout(PATIENCE, asked.next()).await.expect("it is asked").expect("a message");
    let reply = message.reply.expect("a reply subject");
    assert!(reply.as_str().starts_with("_R_."), "{reply}");
    let mut headers = HeaderMap::new();
    headers.insert("Forged", "1");
    let forged = fleet.host.client.publish_with_reply_and_headers(reply, "_INBOX.ann.x", headers, "{}".into());
    forged.await.expect("it is sent");
    fleet.host.settles().await;
    other.settles().await;
    let got = tokio::time::timeout(Duration::ZERO, seen.next()).await;
    assert!(got.is_err(), "{got:?}");
}

#[tokio::test]
async fn console_reads_by_direct_get() {
    let Some(fleet) = Fleet::start("console_reads_by_direct_get").await else { return };
    for event in 0..5 {
        assert!(stored(&fleet.host.ask("cshim.ev.build-7.s", &json!({ "event": event })).await));
    }
    assert!(stored(&fleet.host.ask("$KV.cshim_hosts.build-7", &json!({})).await));
    for (stream, subjects, count) in [("CSHIM_EV", "cshim.ev.build-7.>", 5), ("KV_cshim_hosts", "$KV.cshim_hosts.>", 1)]
    {
        let inbox = fleet.viewer.client.new_inbox();
        let mut answers = fleet.viewer.client.subscribe(inbox.clone()).await.expect("its own inbox");
        let get = json!({ "seq": 1, "batch": 100, "next_by_subj": subjects }).to_string();
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        fleet.viewer.client.publish_with_reply(subject, inbox, get.into()).await.expect("it is sent");
        let mut got = 0;
        loop {
            let message = tokio::time::timeout(PATIENCE, answers.next()).await.expect("an answer").expect("a message");
            if message.status.is_some_and(|status| status.as_u16() == 204) {
                break;
            }
            let headers = message.headers.expect("the server's own");
            assert!(
                headers.get("Nats-Subject").is_some_and(|subject| subject.as_str().contains("build-7")),
                "{headers:?}"
            );
            got += 1;
        }
        assert_eq!(got, count, "{stream}");
    }
}
