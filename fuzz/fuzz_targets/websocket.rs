//! Arbitrary bytes of a WebSocket peer in arbitrary pieces: the result does not depend on the pieces, and messages pass
//! on unchanged.

#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use codex_shim::testing::websocket::{
    Accepting, Connecting, End, Ended, Flushed, Reading, Response, UpgradeRequest, Utf8Bytes,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, step], bytes)) = data.split_first_chunk::<2>() else { return };
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(step) + 1).collect();
    match kind % 4 {
        0 => assert_eq!(request(&[bytes]), request(&pieces)),
        1 => assert_eq!(response(&[bytes]), response(&pieces)),
        kind => {
            let (at_once, in_pieces) = (messages(kind, &[bytes]), messages(kind, &pieces));
            assert_eq!(at_once, in_pieces);
            pass_on(&at_once.0);
        }
    }
});

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a pair of sockets")
}

/// The request, or its refusal, of a client that writes these pieces.
fn request(pieces: &[&[u8]]) -> String {
    let (ours, mut theirs) = pair();
    let mut accepting = Accepting::new(ours).expect("it is made non-blocking");
    for piece in pieces {
        theirs.write_all(piece).expect("the socket has room");
        match accepting.read() {
            Ok(None) => {}
            outcome => return format!("{outcome:?}"),
        }
    }
    drop(theirs);
    format!("{:?}", accepting.read())
}

/// The response, or the error, of a server that writes these pieces.
fn response(pieces: &[&[u8]]) -> String {
    let (ours, mut theirs) = pair();
    let mut connecting = connecting(ours);
    for piece in pieces {
        theirs.write_all(piece).expect("the socket has room");
        match connecting.advance() {
            Ok(None) => {}
            outcome => return format!("{outcome:?}"),
        }
    }
    theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
    format!("{:?}", connecting.advance())
}

fn connecting(socket: UnixStream) -> Connecting {
    let request = UpgradeRequest { path: "/rpc".to_owned(), headers: Default::default() };
    let mut connecting = Connecting::new(socket, &request).expect("it is made non-blocking");
    assert!(matches!(connecting.advance(), Ok(None)), "nobody has answered");
    connecting
}

/// Both ends of a connection, and a second handle on each socket.
fn ends() -> [(End, UnixStream); 2] {
    let (left, right) = pair();
    let clones = [&left, &right].map(|socket| socket.try_clone().expect("a descriptor is left"));
    let mut connecting = connecting(left);
    let mut accepting = Accepting::new(right).expect("it is made non-blocking");
    assert!(matches!(accepting.read(), Ok(Some(_))), "our own request is valid");
    let mut server = accepting.accept(&Response { status: 101, headers: Default::default() });
    assert!(matches!(server.flush(), Flushed::All));
    assert!(matches!(connecting.advance(), Ok(Some(response)) if response.is_accepted()));
    let [left, right] = clones;
    [(connecting.into_end(), left), (server, right)]
}

/// The messages of a peer that writes these pieces after its handshake, and the end of the connection.
fn messages(kind: u8, pieces: &[&[u8]]) -> (Vec<Utf8Bytes>, u64, String) {
    let [client, server] = ends();
    let ((mut end, _), (peer, mut theirs)) = if kind == 2 { (client, server) } else { (server, client) };
    let mut messages = Vec::new();
    let mut ended = None;
    for piece in pieces {
        theirs.write_all(piece).expect("the socket has room");
        ended = read(&mut end, &mut messages);
        end.flush();
        if ended.is_some() {
            break;
        }
    }
    drop(peer);
    theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
    let ended = ended.or_else(|| read(&mut end, &mut messages)).expect("the stream has ended");
    (messages, end.dropped(), format!("{ended:?}"))
}

fn read(end: &mut End, messages: &mut Vec<Utf8Bytes>) -> Option<Ended> {
    loop {
        match end.read(messages) {
            Reading::More => {}
            Reading::Drained => return None,
            Reading::Ended(ended) => return Some(ended),
        }
    }
}

/// Sends these messages both ways.
fn pass_on(messages: &[Utf8Bytes]) {
    let [(mut client, _), (mut server, _)] = ends();
    pass(&mut client, &mut server, messages);
    pass(&mut server, &mut client, messages);
}

fn pass(from: &mut End, to: &mut End, messages: &[Utf8Bytes]) {
    messages.iter().for_each(|message| from.send(message.clone()));
    let mut received = Vec::new();
    while received.len() < messages.len() {
        assert!(!matches!(from.flush(), Flushed::Broken(_)));
        assert!(read(to, &mut received).is_none());
    }
    assert_eq!(received, messages);
    assert_eq!(from.unsent_bytes(), 0);
}
