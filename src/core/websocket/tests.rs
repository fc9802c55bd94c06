//! Ends against tungstenite's own blocking client and server, against each other, and against raw bytes.

use std::io::{Cursor, Read as _, Write as _};
use std::thread::JoinHandle;
use std::time::Duration;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Message, WebSocket};

use super::*;
use crate::os::descriptors::never_block;
use crate::os::polling::{PollFlags, poll_one};
use std::os::unix::net::UnixStream;

/// Limit on any wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Texts that a careless relay would change.
const TEXTS: [&str; 8] = [
    "{}",
    "",
    "{\"a\":\n1}\n",
    "\r\n{\"nul\":\"\\u0000\"}\r\n",
    "\0",
    "ä€𝄞\u{feff}",
    "{\"id\":92}{\"id\":\"92\"}",
    "[1e400, 0.1000]",
];

const OFFER: &str = "x-codex-app-server-compression";

fn wait(fd: &impl std::os::fd::AsFd, is_writable_too: bool) {
    let flags = if is_writable_too { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    assert!(!poll_one(fd, flags, Some(PATIENCE)).unwrap().is_empty(), "nothing came");
}

/// Reads and writes until there are this many messages.
fn read_messages(end: &mut End, count: usize) -> Vec<Utf8Bytes> {
    let mut messages = Vec::new();
    while messages.len() < count {
        match end.read(&mut messages) {
            Reading::More => {}
            Reading::Drained if messages.len() >= count => {}
            Reading::Drained => wait(end, end.wants_write()),
            Reading::Ended(ended) => panic!("{ended:?} after {} messages", messages.len()),
        }
        if let Flushed::Broken(error) = end.flush() {
            panic!("{error}");
        }
    }
    messages
}

/// Reads until the end of the connection.
fn read_to_end(end: &mut End) -> (Vec<Utf8Bytes>, Ended) {
    let mut messages = Vec::new();
    loop {
        match end.read(&mut messages) {
            Reading::More => {}
            Reading::Drained => wait(end, false),
            Reading::Ended(ended) => return (messages, ended),
        }
    }
}

fn flush_all(end: &mut End) {
    loop {
        match end.flush() {
            Flushed::All => return,
            Flushed::Full => {
                let ready = poll_one(end, PollFlags::OUT, Some(PATIENCE)).unwrap();
                assert!(!ready.is_empty(), "it stays full");
            }
            Flushed::Broken(error) => panic!("{error}"),
        }
    }
}

fn accepting(socket: UnixStream) -> (Accepting, UpgradeRequest) {
    let mut accepting = Accepting::new(socket).unwrap();
    loop {
        if let Some(request) = accepting.read().unwrap() {
            return (accepting, request);
        }
        wait(&accepting, false);
    }
}

fn response(headers: &[(&'static str, &'static str)]) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    Response { status: 101, headers }
}

fn request() -> UpgradeRequest {
    UpgradeRequest { path: "/rpc".to_owned(), headers: response(&[("host", "localhost")]).headers }
}

fn connected(socket: UnixStream, request: &UpgradeRequest) -> (End, Response) {
    let mut connecting = Connecting::new(socket, request).unwrap();
    loop {
        if let Some(response) = connecting.advance().unwrap() {
            return (connecting.into_end(), response);
        }
        wait(&connecting, connecting.wants_write());
    }
}

/// An end of ours whose peer is the client or the server of tungstenite, which does `with` in a thread.
fn against<T: Send + 'static>(
    our_role: Role,
    with: impl FnOnce(&mut WebSocket<UnixStream>) -> T + Send + 'static,
) -> (End, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    theirs.set_write_timeout(Some(PATIENCE)).unwrap();
    let limits = WebSocketConfig::default().max_frame_size(Some(128 << 20)).max_message_size(Some(128 << 20));
    let thread = std::thread::spawn(move || {
        let mut peer = match our_role {
            Role::Server => {
                tungstenite::client::client_with_config("ws://localhost/rpc", theirs, Some(limits)).unwrap().0
            }
            // The limits of codex are tungstenite's own.
            Role::Client => tungstenite::accept(theirs).unwrap(),
        };
        with(&mut peer)
    });
    let end = match our_role {
        Role::Server => {
            let mut end = accepting(ours).0.accept(&response(&[]));
            flush_all(&mut end);
            end
        }
        Role::Client => connected(ours, &request()).0,
    };
    (end, thread)
}

/// An end of ours and the raw socket of its peer.
fn raw(role: Role) -> (End, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    never_block(&ours).unwrap();
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    (End::new(role, ours, Vec::new(), Vec::new()), theirs)
}

/// A frame of a peer of `role`.
fn frame(role: Role, first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = match role {
        Role::Server => Some([0x12, 0x34, 0x56, 0x78]),
        Role::Client => None,
    };
    let mut bytes = Vec::new();
    let header = FrameHeader { is_final: true, opcode: OpCode::Data(Data::Text), mask, ..FrameHeader::default() };
    header.format(payload.len() as u64, &mut bytes).unwrap();
    bytes[0] = first;
    let mask = mask.unwrap_or_default();
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The frames in these bytes.
fn frames(bytes: &[u8]) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut cursor = Cursor::new(bytes);
    let mut frames = Vec::new();
    while let Some((header, length)) = FrameHeader::parse(&mut cursor).unwrap() {
        let begin = cursor.position();
        cursor.set_position(begin + length);
        frames.push((header, bytes[begin as usize..(begin + length) as usize].to_vec()));
    }
    assert_eq!(cursor.position(), bytes.len() as u64);
    frames
}

fn both(check: impl Fn(Role)) {
    check(Role::Server);
    check(Role::Client);
}

#[test]
fn client_is_accepted_with_the_servers_headers() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let request = tungstenite::ClientRequestBuilder::new("ws://localhost/rpc?a=b".parse().unwrap())
            .with_header(OFFER, "zstd-stream-v1");
        let (_, response) = tungstenite::client(request, theirs).unwrap();
        response
    });
    let (accepting, request) = accepting(ours);
    assert_eq!(request.path, "/rpc?a=b");
    assert_eq!(request.headers.get(OFFER).unwrap(), "zstd-stream-v1");
    assert_eq!(request.headers.get("host").unwrap(), "localhost");
    let of_server = response(&[
        ("x-codex-websocket-max-unfragmented-message-bytes", "16777216"),
        ("sec-websocket-accept", "another"),
        ("connection", "upgrade, x-hop"),
        ("x-hop", "1"),
    ]);
    flush_all(&mut accepting.accept(&of_server));
    let response = thread.join().unwrap();
    assert_eq!(response.headers().get("x-codex-websocket-max-unfragmented-message-bytes").unwrap(), "16777216");
    assert_eq!(response.headers().get_all("sec-websocket-accept").iter().count(), 1);
    assert!(!response.headers().contains_key("x-hop"));
}

#[test]
#[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
fn server_gets_the_clients_request_without_compression() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut seen = None;
        let callback = |request: &tungstenite::handshake::server::Request,
                        mut response: tungstenite::handshake::server::Response| {
            seen = Some(request.clone());
            response.headers_mut().insert("x-codex-a", "b".parse().unwrap());
            Ok(response)
        };
        tungstenite::accept_hdr(theirs, callback).unwrap();
        seen.unwrap()
    });
    let of_client = response(&[
        ("host", "localhost"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("sec-websocket-extensions", "permessage-deflate"),
        (OFFER, "zstd-stream-v1"),
        ("user-agent", "codex"),
    ]);
    let (_, response) = connected(ours, &UpgradeRequest { path: "/rpc?x".to_owned(), headers: of_client.headers });
    assert!(response.is_accepted());
    assert_eq!(response.headers.get("x-codex-a").unwrap(), "b");
    let seen = thread.join().unwrap();
    assert_eq!(seen.uri(), "/rpc?x");
    assert_eq!(seen.headers().get("user-agent").unwrap(), "codex");
    assert_ne!(seen.headers().get("sec-websocket-key").unwrap(), "AAAAAAAAAAAAAAAAAAAAAA==");
    assert!(!seen.headers().contains_key(OFFER) && !seen.headers().contains_key("sec-websocket-extensions"));
    for name in ["host", "connection", "upgrade", "sec-websocket-version", "sec-websocket-key"] {
        assert_eq!(seen.headers().get_all(name).iter().count(), 1, "{name}");
    }
}

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

#[test]
fn refusals() {
    let check = |sent: &[u8], expect: &str, answer: &str| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut accepting = Accepting::new(ours).unwrap();
        theirs.write_all(sent).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let refusal = accepting.read().unwrap_err();
        assert_eq!(format!("{refusal:?}"), expect, "{}", String::from_utf8_lossy(sent));
        drop(accepting);
        let mut answered = String::new();
        let _ = theirs.read_to_string(&mut answered);
        assert_eq!(answered.lines().next().unwrap_or_default(), answer);
    };
    check(b"", "Eof", "");
    check(b"GE", "Eof", "");
    check(b"{\"id\":1,\"method\":\"initialize\"}\n", "NotHttp", "");
    check(b"POST / HTTP/1.1\r\n\r\n", "NotHttp", "");
    check(b"GET / HTTP/1.0\r\n\r\n", "NotHttp", "");
    check(b"GET \0 HTTP/1.1\r\n\r\n", "NotHttp", "");
    check(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "NotWebSocket", "");
    check(b"GET / HTTP/1.1\n\n", "NotWebSocket", "");
    check(format!("{HANDSHAKE}Origin: https://example.org\r\n\r\n").as_bytes(), "Origin", "HTTP/1.1 403 Forbidden");
    check(format!("{HANDSHAKE}X: {}\r\n\r\n", "x".repeat(16 << 10)).as_bytes(), "TooLong", "");
    check(format!("{HANDSHAKE}{}\r\n", "x: y\r\n".repeat(200)).as_bytes(), "NotHttp", "");
}

#[test]
fn refused_client_hears_the_servers_status() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(HANDSHAKE.as_bytes()).unwrap();
    theirs.write_all(b"\r\n").unwrap();
    accepting(ours).0.refuse(503);
    let mut answered = String::new();
    theirs.read_to_string(&mut answered).unwrap();
    assert_eq!(answered, "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
}

#[test]
fn server_that_does_not_accept() {
    let check = |answer: &str, expect: Result<u16, &str>| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connecting = Connecting::new(ours, &request()).unwrap();
        assert!(connecting.advance().unwrap().is_none());
        assert!(!connecting.wants_write());
        theirs.write_all(answer.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        match (connecting.advance(), expect) {
            (Ok(response), Ok(status)) => assert_eq!(response.unwrap().status, status),
            (Err(error), Err(expect)) => assert_eq!(format!("{error:?}"), expect, "{answer}"),
            (got, expect) => panic!("{answer}: {got:?}, not {expect:?}"),
        }
    };
    let accepted = "HTTP/1.1 101 Switching Protocols\r\n";
    check("HTTP/1.1 403 Forbidden\r\n\r\n", Ok(403));
    check("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 3\r\n\r\nno\n", Ok(503));
    check("", Err("Eof"));
    check(accepted, Err("Eof"));
    check(&format!("{accepted}\r\n"), Err("NotWebSocket"));
    check(&format!("{accepted}sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"), Err("NotWebSocket"));
    check("{\"id\":1}\n\n", Err("NotWebSocket"));
    check(&format!("{accepted}{}\r\n", "x: y\r\n".repeat(200)), Err("NotWebSocket"));
    check(&format!("{accepted}x: {}", "x".repeat(16 << 10)), Err("TooLong"));
}

#[test]
fn frames_may_follow_the_handshake_in_the_same_write() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let sent = [HANDSHAKE.as_bytes(), b"\r\n", &frame(Role::Server, 0x89, b"p"), &frame(Role::Server, 0x81, b"{}")];
    theirs.write_all(&sent.concat()).unwrap();
    let mut end = accepting(ours).0.accept(&response(&[]));
    assert_eq!(read_messages(&mut end, 1), ["{}"]);
    flush_all(&mut end);
    drop(end);
    let mut answered = Vec::new();
    theirs.read_to_end(&mut answered).unwrap();
    assert!(answered.starts_with(b"HTTP/1.1 101 ") && answered.ends_with(b"\r\n\r\n\x8a\x01p"), "{answered:?}");
}

#[test]
fn texts_pass_unchanged_in_both_roles() {
    both(|role| {
        let (mut end, thread) = against(role, |peer| {
            for text in TEXTS {
                peer.send(Message::text(text)).unwrap();
            }
            TEXTS.map(|_| peer.read().unwrap().into_text().unwrap().to_string())
        });
        assert_eq!(read_messages(&mut end, TEXTS.len()), TEXTS);
        TEXTS.iter().for_each(|text| end.send((*text).into()));
        flush_all(&mut end);
        assert_eq!(thread.join().unwrap(), TEXTS);
        assert_eq!(end.unsent_bytes(), 0);
    });
}

/// Text of a length whose repetition fits no size of a buffer.
fn long_text(bytes: usize) -> String {
    let block: String = (0..50_000).map(|number| format!("€{number:x},")).collect();
    let mut text = block.repeat(bytes / block.len() + 1);
    text.truncate(text.floor_char_boundary(bytes));
    text
}

#[test]
fn long_messages_pass_in_both_directions() {
    let down = long_text(40 << 20);
    let (expected, up) = (down.clone(), long_text(20 << 20));
    let (mut to_server, server) = against(Role::Client, move |peer| {
        peer.send(Message::text(down)).unwrap();
        peer.read().unwrap().into_text().unwrap()
    });
    let messages = read_messages(&mut to_server, 1);
    assert!(messages[0] == expected);
    let (mut to_client, client) = against(Role::Server, |peer| peer.read().unwrap().into_text().unwrap());
    to_client.send(messages[0].clone());
    flush_all(&mut to_client);
    assert!(client.join().unwrap() == expected);
    // tungstenite, like codex, takes no frame over 16 MiB.
    to_server.send(up.clone().into());
    flush_all(&mut to_server);
    assert!(server.join().unwrap() == up);
}

#[test]
fn long_message_leaves_no_buffer_behind() {
    let (mut end, thread) = against(Role::Client, |peer| {
        peer.send(Message::text(long_text(40 << 20))).unwrap();
        peer.send(Message::text("{}")).unwrap();
        peer.read().unwrap()
    });
    assert_eq!(read_messages(&mut end, 2)[1], "{}");
    assert!(matches!(end.read(&mut Vec::new()), Reading::Drained));
    end.send(long_text(20 << 20).into());
    flush_all(&mut end);
    thread.join().unwrap();
    assert!(format!("{end:?}").len() < 2_000, "no payload is left: {end:?}");
    assert_eq!(end.buffered_bytes(), 0);
}

#[test]
fn bytes_that_come_one_by_one() {
    both(|role| {
        let (mut end, mut theirs) = raw(role);
        let sent = [
            frame(role, 0x81, TEXTS[5].as_bytes()),
            frame(role, 0x01, &TEXTS[5].as_bytes()[..1]),
            frame(role, 0x89, b"ping"),
            frame(role, 0x00, b""),
            frame(role, 0x80, &TEXTS[5].as_bytes()[1..]),
            frame(role, 0x82, b"binary"),
            frame(role, 0x8a, b"pong"),
            frame(role, 0x81, "x".repeat(300).as_bytes()),
            frame(role, 0x88, b"\x03\xe8bye"),
        ];
        let mut messages = Vec::new();
        let mut ended = None;
        for byte in sent.concat() {
            theirs.write_all(&[byte]).unwrap();
            match end.read(&mut messages) {
                Reading::More => panic!("no limit is reached"),
                Reading::Drained => {}
                Reading::Ended(reason) => ended = Some(reason),
            }
        }
        assert_eq!(messages, [TEXTS[5], TEXTS[5], &"x".repeat(300)]);
        assert_eq!(end.dropped(), 1);
        let Some(Ended::Closed(close)) = ended else { panic!("{ended:?}") };
        assert_eq!((close.code(), close.reason().as_str()), (Some(1000), "bye"));
        assert!(matches!(end.read(&mut messages), Reading::Ended(Ended::Eof)));
        assert!(matches!(end.flush(), Flushed::All));
        let mut answer = [0; 64];
        let read = theirs.read(&mut answer).unwrap();
        let answer = frames(&answer[..read]);
        assert_eq!(answer.len(), 1);
        assert_eq!((answer[0].0.opcode, answer[0].1.as_slice()), (OpCode::Control(Control::Pong), b"ping".as_slice()));
    });
}

#[test]
fn last_ping_is_answered_between_frames() {
    let (mut end, mut theirs) = raw(Role::Client);
    let long = long_text(3 << 20);
    end.send("{}".into());
    end.send(long.clone().into());
    end.send("{\"after\":1}".into());
    assert!(matches!(end.flush(), Flushed::Full));
    for number in 0..5_000 {
        theirs.write_all(&frame(Role::Client, 0x89, format!("{number}").as_bytes())).unwrap();
        if number % 100 == 0 {
            while matches!(end.read(&mut Vec::new()), Reading::More) {}
        }
    }
    while matches!(end.read(&mut Vec::new()), Reading::More) {}
    assert!(end.unsent_bytes() < 4 << 20, "pings do not pile up");
    let thread = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).unwrap();
        bytes
    });
    flush_all(&mut end);
    drop(end);
    let frames = frames(&thread.join().unwrap());
    let kinds: Vec<OpCode> = frames.iter().map(|(header, _)| header.opcode).collect();
    let (text, pong) = (OpCode::Data(Data::Text), OpCode::Control(Control::Pong));
    assert_eq!(kinds, [text, text, pong, text]);
    assert!(frames[1].1 == long.as_bytes());
    assert_eq!(frames[2].1, b"4999");
}

#[test]
fn close_is_relayed_as_it_came() {
    both(|role| {
        let reason = || Some(CloseFrame { code: CloseCode::Library(4_001), reason: "gone".into() });
        let (mut end, thread) = against(role, move |peer| {
            peer.close(reason()).unwrap();
            peer.read().unwrap()
        });
        let (_, ended) = read_to_end(&mut end);
        let Ended::Closed(close) = ended else { panic!("{ended:?}") };
        assert_eq!(close, Close::new(4_001, "gone"));
        end.send("{}".into());
        end.close(&close);
        end.close(&close);
        end.send("{}".into());
        flush_all(&mut end);
        // The message before the close frame is read; the one after it is not sent.
        assert_eq!(thread.join().unwrap(), Message::text("{}"));
    });
    let (mut end, thread) = against(Role::Server, |peer| peer.read().unwrap());
    end.close(&Close::new(1_009, &"ä".repeat(200)));
    flush_all(&mut end);
    let Message::Close(Some(close)) = thread.join().unwrap() else { panic!("no close frame") };
    assert_eq!((close.code, close.reason.as_str()), (CloseCode::Size, "ä".repeat(61).as_str()));
}

#[test]
fn close_without_a_code() {
    let (mut end, mut theirs) = raw(Role::Server);
    theirs.write_all(&frame(Role::Server, 0x88, b"")).unwrap();
    let (_, ended) = read_to_end(&mut end);
    let Ended::Closed(close) = ended else { panic!("{ended:?}") };
    assert_eq!((close.code(), close.reason()), (None, String::new()));
    end.close(&close);
    flush_all(&mut end);
    let mut answer = [0; 16];
    let read = theirs.read(&mut answer).unwrap();
    assert_eq!(answer[..read], [0x88, 0]);

    let (mut end, mut theirs) = raw(Role::Server);
    end.close(&Close::new(1_000, ""));
    flush_all(&mut end);
    theirs.write_all(&frame(Role::Server, 0x89, b"ping")).unwrap();
    assert!(matches!(end.read(&mut Vec::new()), Reading::Drained));
    assert!(!end.wants_write(), "nothing follows our close frame");
}

#[test]
fn peer_that_reads_late_gets_everything_once() {
    both(|role| {
        let (mut end, mut theirs) = raw(role);
        let mut sent = Vec::new();
        for number in 0..2_000 {
            let text = format!("{number}:{}", "x".repeat(if number % 100 == 0 { 70_000 } else { number % 200 }));
            end.send(text.as_str().into());
            sent.push(text);
            if number % 10 == 0 {
                assert!(!matches!(end.flush(), Flushed::Broken(_)));
            }
        }
        assert!(matches!(end.flush(), Flushed::Full));
        assert!(matches!(end.flush(), Flushed::Full));
        let unsent = end.unsent_bytes();
        assert!(end.wants_write() && unsent > 1 << 20, "{unsent}");
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut step = 1;
            loop {
                let mut piece = vec![0; step];
                match theirs.read(&mut piece).unwrap() {
                    0 => return bytes,
                    read => bytes.extend_from_slice(&piece[..read]),
                }
                step = step * 7 % 100_003 + 1;
            }
        });
        flush_all(&mut end);
        assert_eq!((end.unsent_bytes(), end.wants_write()), (0, false));
        drop(end);
        let frames = frames(&thread.join().unwrap());
        assert_eq!(frames.len(), sent.len());
        for ((header, payload), sent) in frames.iter().zip(&sent) {
            assert_eq!(header.mask.is_some(), role == Role::Client);
            assert_eq!(String::from_utf8_lossy(payload), *sent);
        }
    });
}

#[test]
fn peer_that_is_gone_is_an_error() {
    let (mut end, theirs) = raw(Role::Server);
    drop(theirs);
    end.send("{}".into());
    assert!(matches!(end.flush(), Flushed::Broken(_)));
    assert!(matches!(end.read(&mut Vec::new()), Reading::Ended(Ended::Eof)));
}

#[test]
fn garbage_ends_the_connection() {
    let check = |role: Role, sent: &[u8], expect: &str| {
        let (mut end, mut theirs) = raw(role);
        theirs.write_all(&frame(role, 0x81, b"{}")).unwrap();
        theirs.write_all(sent).unwrap();
        drop(theirs);
        let (messages, ended) = read_to_end(&mut end);
        assert_eq!(messages, ["{}"]);
        assert_eq!(format!("{ended:?}"), expect, "{sent:?}");
    };
    let [server, client] = [Role::Server, Role::Client];
    check(server, b"", "Eof");
    check(server, b"\x81", "Truncated");
    check(server, &frame(server, 0x01, b"{"), "Truncated");
    check(server, b"\x81\x85abcd12", "Truncated");
    check(server, b"{\"id\":1}\n", "Violation(Header)");
    check(server, &frame(client, 0x81, b"{}"), "Violation(Unmasked)");
    check(client, &frame(server, 0x81, b"{}"), "Violation(Masked)");
    check(client, &frame(client, 0xc1, b"{}"), "Violation(Header)");
    check(client, &frame(client, 0x83, b"{}"), "Violation(Header)");
    check(client, &frame(client, 0x8b, b"{}"), "Violation(Header)");
    check(client, &frame(client, 0x09, b""), "Violation(Control)");
    check(client, &frame(client, 0x89, &[0; 126]), "Violation(Control)");
    check(client, &frame(client, 0x80, b"{}"), "Violation(Fragment)");
    check(client, &[frame(client, 0x01, b"{"), frame(client, 0x81, b"}")].concat(), "Violation(Fragment)");
    check(client, &frame(client, 0x81, b"\xff"), "Violation(Utf8)");
    check(client, &[frame(client, 0x01, b"\xe2"), frame(client, 0x80, b"\x82")].concat(), "Violation(Utf8)");
    check(server, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffabcd", "Violation(TooLong { bytes_max: 67108864 })");
    check(server, b"\x82\xff\0\0\0\0\x04\0\0\x01abcd", "Violation(TooLong { bytes_max: 67108864 })");
    check(server, b"\x81\xff\0\0\0\0\x04\0\0\0abcd", "Truncated");
    check(client, b"\x81\x7f\0\0\0\0\x08\0\0\x01", "Violation(TooLong { bytes_max: 134217728 })");
    let too_long = [frame(client, 0x01, b"{"), b"\x80\x7f\0\0\0\0\x08\0\0\0".to_vec()].concat();
    check(client, &too_long, "Violation(TooLong { bytes_max: 134217728 })");
}

#[test]
fn announced_length_takes_no_memory() {
    let (mut end, mut theirs) = raw(Role::Client);
    theirs.write_all(b"\x81\x7f\0\0\0\0\x08\0\0\0abc").unwrap();
    assert!(matches!(end.read(&mut Vec::new()), Reading::Drained));
    assert!(end.buffered_bytes() < 200 << 10, "{}", end.buffered_bytes());
}

#[test]
fn one_call_reads_a_bounded_amount() {
    // All of it fits into the socket before the first read.
    let check = |bytes: Vec<u8>, expect: usize| {
        let (mut end, mut theirs) = raw(Role::Client);
        theirs.write_all(&bytes).unwrap();
        drop(theirs);
        let mut messages = Vec::new();
        let mut calls = 0;
        loop {
            let had = messages.len();
            let reading = end.read(&mut messages);
            assert!(messages.len() - had <= 256);
            calls += 1;
            match reading {
                Reading::More => {}
                Reading::Drained => panic!("the end of the stream is there"),
                Reading::Ended(_) => break,
            }
        }
        assert_eq!(messages.len(), expect);
        assert!(calls > 5, "{calls}");
    };
    check(frame(Role::Client, 0x81, b"{}").repeat(20_000), 20_000);
    // Empty fragments and pings give no message.
    check(frame(Role::Client, 0x89, b"").repeat(40_000), 0);
    let fragments = [frame(Role::Client, 0x01, b""), frame(Role::Client, 0x00, b"").repeat(40_000)];
    check(fragments.concat(), 0);
}

#[test]
fn fast_peer_does_not_hold_a_call() {
    let (mut end, mut theirs) = raw(Role::Client);
    let sent = frame(Role::Client, 0x81, &[b'x'; 60_000]).repeat(200);
    let thread = std::thread::spawn(move || theirs.write_all(&sent));
    let mut messages = Vec::new();
    while messages.len() < 200 {
        let had = messages.len();
        if matches!(end.read(&mut messages), Reading::Drained) {
            wait(&end, false);
        }
        assert!((messages.len() - had) * 60_000 <= 2 << 20);
    }
    thread.join().unwrap().unwrap();
}

#[test]
fn message_of_many_fragments() {
    let (mut end, mut theirs) = raw(Role::Server);
    let text = long_text(1 << 20);
    let expected = text.clone();
    let thread = std::thread::spawn(move || {
        let mut sent = frame(Role::Server, 0x01, b"");
        text.as_bytes().chunks(3).for_each(|piece| sent.extend(frame(Role::Server, 0x00, piece)));
        sent.extend(frame(Role::Server, 0x80, b""));
        theirs.write_all(&sent).unwrap();
        theirs
    });
    assert_eq!(read_messages(&mut end, 1), [expected]);
    thread.join().unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn any_texts_pass_through_two_ends(texts in proptest::collection::vec(".{0,40}", 0..40), repeat in 1..3_000usize) {
        let (left, right) = UnixStream::pair().unwrap();
        let mut connecting = Connecting::new(left, &request()).unwrap();
        assert!(connecting.advance().unwrap().is_none());
        let mut accepted = accepting(right).0.accept(&response(&[]));
        flush_all(&mut accepted);
        assert!(connecting.advance().unwrap().unwrap().is_accepted());
        let mut connected = connecting.into_end();
        let texts: Vec<Utf8Bytes> = texts.iter().map(|text| text.repeat(repeat).into()).collect();
        let pass = |from: &mut End, to: &mut End| {
            let mut received = Vec::new();
            texts.iter().for_each(|text| from.send(text.clone()));
            while received.len() < texts.len() {
                from.flush();
                to.read(&mut received);
            }
            received
        };
        proptest::prop_assert_eq!(&pass(&mut connected, &mut accepted), &texts);
        proptest::prop_assert_eq!(&pass(&mut accepted, &mut connected), &texts);
    }
}
