//! Sockets that are removed or replaced under running processes.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::hub::Hub;
use crate::support::page::Page;
use crate::support::shim::Home;
use crate::support::websocket::Client;

/// All that a tool prints, and its status.
fn said(hub: &Hub, args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = hub.command(args).output().unwrap();
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn status(hub: &Hub) -> (i32, String) {
    said(hub, &["hub", "status", "--session", "h"])
}

fn start(hub: &Hub) -> (i32, String) {
    said(hub, &["hub", "start", "--session", "h"])
}

/// Whether the scripted hub itself listens at this path.
fn is_back(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn removed_sockets_come_back() {
    let hub = Hub::new();
    let control = hub.session().join("control.sock");
    let folder = hub.default_socket().with_file_name("");
    for socket in [hub.default_socket(), hub.socket(), control] {
        let target = fs::read_link(&socket).unwrap();
        let mut states = vec![vec![socket.clone()], vec![target.clone()], vec![socket.clone(), target]];
        if socket.starts_with(&folder) {
            states.push(vec![folder.clone()]);
        }
        for gone in states {
            gone.iter().for_each(|path| remove(path));
            eventually(&format!("{} without {gone:?}", socket.display()), || is_back(&socket).then_some(()));
        }
    }
    assert_eq!(status(&hub).0, 0, "{}", status(&hub).1);
    let (code, text) = start(&hub);
    assert!(code == 0 && text.contains("runs already\n"), "{text}");
    for socket in [hub.default_socket(), hub.socket()] {
        Client::connect(&socket).initialize("client");
    }
    let document = hub.get("/sessions/self");
    assert_eq!(document["faults"].as_array().map(Vec::len), Some(0), "{document}");
}

/// What another program may put in the place of a socket.
#[derive(Debug, Clone, Copy)]
enum Intruder {
    File,
    Folder,
    LinkToFile,
    Listener,
    LinkToListener,
}

impl Intruder {
    const ALL: [(Intruder, &str); 5] = [
        (Intruder::File, "a file that is not a socket"),
        (Intruder::Folder, "a folder"),
        (Intruder::LinkToFile, "a link to a file that is not a socket"),
        (Intruder::Listener, "listens on|a socket of another process"),
        (Intruder::LinkToListener, "listens on|a socket of another process"),
    ];

    /// Makes it in a folder of the test. A listener listens as long as it is kept.
    fn make(self, folder: &Path) -> (PathBuf, Option<UnixListener>) {
        let (path, other) = (folder.join("intruder"), folder.join("other"));
        [&path, &other].into_iter().for_each(|path| remove(path));
        let listener = match self {
            Intruder::File => fs::write(&path, "precious").map(|()| None),
            Intruder::Folder => fs::create_dir(&path).map(|()| None),
            Intruder::LinkToFile => fs::write(&other, "").and_then(|()| symlink(&other, &path)).map(|()| None),
            Intruder::Listener => UnixListener::bind(&path).map(Some),
            Intruder::LinkToListener => {
                UnixListener::bind(&other).and_then(|listener| symlink(&other, &path).map(|()| Some(listener)))
            }
        };
        (path, listener.unwrap())
    }

    /// Puts it at the path of a socket, which may come back meanwhile.
    fn put(self, made: &Path, socket: &Path) {
        eventually("its place", || {
            if matches!(self, Intruder::Folder) {
                remove(socket);
            }
            fs::rename(made, socket).ok()
        });
    }
}

fn is_named(text: &str, socket: &Path, what: &str) -> bool {
    let text = text.replace('\u{a0}', " ");
    text.contains(socket.to_str().unwrap()) && what.split('|').any(|what| text.contains(what))
}

#[test]
fn what_takes_the_place_of_a_socket_stays_and_is_named() {
    let hub = Hub::new();
    let control = hub.session().join("control.sock");
    for socket in [hub.default_socket(), hub.socket(), control.clone()] {
        for (intruder, what) in Intruder::ALL {
            let state = format!("{intruder:?} at {}", socket.display());
            let (made, listener) = intruder.make(hub.home.beside());
            intruder.put(&made, &socket);
            let identity = |path: &Path| {
                use std::os::unix::fs::MetadataExt as _;
                let there = path.symlink_metadata().unwrap();
                (there.dev(), there.ino())
            };
            let theirs = identity(&socket);
            eventually(&state, || {
                let (code, text) = status(&hub);
                (code == 1 && is_named(&text, &socket, what)).then_some(())
            });
            if matches!(intruder, Intruder::File) {
                let (code, text) = start(&hub);
                assert!(code == 1 && text.contains("runs already, but") && is_named(&text, &socket, what), "{text}");
                let report = hub.command(&["doctor", "--json"]).output().unwrap().stdout;
                let report: Value = serde_json::from_slice(&report).unwrap();
                let checks = report["checks"].as_array().unwrap();
                let broken =
                    |check: &&Value| check["status"] == "broken" && is_named(&check.to_string(), &socket, what);
                assert!(checks.iter().any(|check| broken(&check)), "{state}: {report:#}");
            }
            assert_eq!(identity(&socket), theirs, "{state}");
            fs::rename(&socket, hub.home.beside().join("aside")).unwrap();
            remove(&hub.home.beside().join("aside"));
            drop(listener);
            eventually(&format!("after {state}"), || {
                let (code, text) = status(&hub);
                (code == 0 && text.starts_with("running")).then_some(())
            });
        }
    }
}

#[test]
fn socket_of_the_server_is_missed_before_a_client_comes() {
    let hub = Hub::new();
    let server = hub.server().pid();
    remove(&hub.session().join("server.sock"));
    eventually("another server", || {
        let now = hub.get("/sessions/self")["server"]["pid"].as_u64();
        now.filter(|now| *now != server && is_back(&hub.default_socket()))
    });
    hub.client("client");
}

#[test]
fn hub_whose_session_folder_is_gone_is_named() {
    let hub = Hub::new();
    fs::rename(hub.session(), hub.home.beside().join("gone")).unwrap();
    let (code, text) = said(&hub, &["hub", "status"]);
    fs::rename(hub.home.beside().join("gone"), hub.session()).unwrap();
    let pid = hub.pid();
    assert!(code == 4 && text.contains(&format!("(pid {pid})")) && text.contains(&format!("`kill {pid}`")), "{text}");
}

#[test]
fn socket_of_a_relay_comes_back_and_an_intruder_stays() {
    let mut live = Live::initialized("");
    let control = live.session.join("control.sock");
    remove(&control);
    eventually("the control socket", || is_back(&control).then_some(()));
    let (made, _) = Intruder::File.make(live.home.beside());
    Intruder::File.put(&made, &control);
    let (code, text) = eventually("the fault", || {
        let output = live.home.shim(&["status"]).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        text.contains("a file that is not a socket is in the place of its socket")
            .then_some((output.status.code(), text))
    });
    assert_eq!(code, Some(1), "{text}");
    (live.stdin, live.down) = (None, None);
    live.relay.wait().unwrap();
    assert_eq!(fs::read_to_string(&control).unwrap(), "precious");
}

#[test]
fn socket_of_the_page_comes_back() {
    let home = Home::new();
    let _page = Page::start(&home, &[]);
    let socket = home.path().join("web.sock");
    for gone in [socket.clone(), fs::read_link(&socket).unwrap()] {
        remove(&gone);
        eventually("the socket of the page", || {
            home.shim(&["web", "--new-link"]).output().unwrap().status.success().then_some(())
        });
    }
    let (made, _) = Intruder::File.make(home.beside());
    Intruder::File.put(&made, &socket);
    let output = home.shim(&["web", "--new-link"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && is_named(&said, &socket, "a file that is not a socket is in the place"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
}
