//! WebSocket ends of the hub against the scripted server, and the scripted server itself.

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;
use tungstenite::{Error, Message};

use crate::support::eventually;
use crate::support::websocket::{Client, FakeServer};

fn server() -> (FakeServer, PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("server.sock");
    (FakeServer::start(&socket), socket, folder)
}

#[test]
fn scripted_server_fans_out_as_codex_does() {
    let (mut server, socket, _folder) = server();
    let mut first = Client::connect(&socket);
    let limit = "x-codex-websocket-max-unfragmented-message-bytes";
    assert_eq!(first.headers.get(limit).unwrap(), "16777216");
    assert_eq!(first.initialize("one")["userAgent"], "one/0.169.0");
    let mut second = Client::connect_to(&socket, "/rpc?a", &[("x-codex-a", "b")]);
    assert_eq!(second.initialize("two")["userAgent"], "one/0.169.0");

    let thread = first.call("thread/start", json!({}))["thread"]["id"].as_str().unwrap().to_owned();
    second.wait_for("the thread", |message| message["method"] == "thread/started");
    let id = server.ask(&thread, "item/tool/requestUserInput", json!({"questions": []}));
    let asked = first.wait_for("the request", |message| message["id"] == id && message.get("method").is_some());
    second.call("thread/resume", json!({"threadId": thread}));
    assert_eq!(second.wait_for("the request", |message| message["id"] == id && message.get("method").is_some()), asked);

    second.answer(&asked["id"], json!({"by": "two"}));
    for client in [&mut first, &mut second] {
        let resolved = client.wait_for("its end", |message| message["method"] == "serverRequest/resolved");
        assert_eq!(resolved["params"], json!({"threadId": thread, "requestId": id}));
    }
    first.answer(&asked["id"], json!({"by": "one"}));
    server.wait_for(r#""by":"one""#);

    let text = "{\"method\":\"a\",\n \"params\":{\"x\":1e2}}\n";
    assert_eq!(server.notify(&thread, text), 2);
    assert_eq!(server.broadcast(text), 2);
    server.deltas(&thread, 300);
    for client in [&mut first, &mut second] {
        assert_eq!([client.receive(), client.receive()], [Some(text.to_owned()), Some(text.to_owned())]);
        client.wait_for("the last delta", |message| message["params"]["delta"] == "299");
    }
    let connections = server.connections();
    let names: Vec<_> = connections.iter().map(|connection| connection["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(connections[1]["path"], "/rpc?a");
    assert!(connections[1]["headers"].as_array().unwrap().contains(&json!(["x-codex-a", "b"])));
}

#[test]
fn scripted_server_ends_connections_on_request() {
    let (mut server, socket, _folder) = server();
    let [mut cut, mut closed, mut left] = [0, 1, 2].map(|_| Client::connect(&socket));
    server.cut(0);
    assert_eq!(cut.receive_message(), None);
    server.close(1, 4_001, "gone");
    let Some(Message::Close(Some(close))) = closed.receive_message() else { panic!("no close frame") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (4_001, "gone"));
    server.refuse(Some(503));
    let refused = Client::try_connect(&socket, "/rpc", &[]).err();
    assert!(matches!(&refused, Some(Error::Http(response)) if response.status() == 503), "{refused:?}");
    server.say(2, "{\"id\":null}");
    assert_eq!(left.receive().as_deref(), Some("{\"id\":null}"));
    left.send_message(Message::Ping("p".into()));
    assert_eq!(left.receive_message(), Some(Message::Pong("p".into())));
    left.send_message(Message::binary("dropped"));
    left.send("{}");
    assert_eq!(server.wait_for("{}"), (2, "{}".to_owned()));
    left.close();
    server.refuse(None);
    let last = Client::connect(&socket);
    last.stream().shutdown(std::net::Shutdown::Both).unwrap();
    drop((cut, closed, last));
    eventually("the end of all connections", || server.connections().is_empty().then_some(()));
    assert_ne!(server.pid(), u64::from(std::process::id()));
}
