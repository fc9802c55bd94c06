//! One folder is one hub, however its path is spelled, and whatever the name of the hub is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::front::{Bench, Front, signal};
use crate::support::eventually;
use crate::support::hub::{ask, resume};
use crate::support::websocket::Client;

/// A way to name the folders of one user: variables, the ones that are not set, and the working directory.
struct Spelling {
    name: &'static str,
    set: Vec<(&'static str, PathBuf)>,
    unset: &'static [&'static str],
    cwd: PathBuf,
}

/// Ways to name the folders of a bench. The first one is that of the bench itself.
fn spellings(bench: &Bench) -> Vec<Spelling> {
    let root = bench.home.beside();
    fs::create_dir(root.join("user")).unwrap();
    for (target, link) in [
        ("codex-home", "linked-codex"),
        (".", "itself"),
        ("../codex-home", "user/.codex"),
        ("user", "linked-user"),
        ("home", "linked-shim"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let spelled = |name, set: &[(&'static str, &str)], cwd: &str| Spelling {
        name,
        set: set.iter().map(|(variable, path)| (*variable, root.join(path))).collect(),
        unset: &[],
        cwd: root.join(cwd),
    };
    let relative = |name, variable, path: &str, cwd: &str| Spelling {
        set: vec![(variable, PathBuf::from(path))],
        ..spelled(name, &[], cwd)
    };
    let without = |spelling| Spelling { unset: &["CODEX_HOME"], ..spelling };
    vec![
        spelled("as it is", &[], ""),
        spelled("a slash at the end", &[("CODEX_HOME", "codex-home/")], ""),
        spelled("a link", &[("CODEX_HOME", "linked-codex")], ""),
        spelled("a link above it", &[("CODEX_HOME", "itself/codex-home")], ""),
        spelled("dots", &[("CODEX_HOME", "user/.././codex-home")], ""),
        spelled("dots behind a link", &[("CODEX_HOME", "user/.codex/../linked-codex")], ""),
        relative("relative", "CODEX_HOME", "codex-home", ""),
        relative("relative with dots", "CODEX_HOME", "../codex-home", "user"),
        without(spelled("the default", &[("HOME", "user")], "")),
        without(spelled("the default of a linked home", &[("HOME", "linked-user")], "")),
        spelled("a linked state folder", &[("CODEX_SHIM_HOME", "linked-shim")], ""),
        spelled("a state folder with dots", &[("CODEX_SHIM_HOME", "user/../home")], ""),
        relative("a relative state folder", "CODEX_SHIM_HOME", "../home", "user"),
    ]
}

impl Spelling {
    fn command(&self, bench: &Bench, args: &[&str]) -> Command {
        let mut command = bench.command(args);
        command.envs(self.set.iter().map(|(variable, path)| (variable, path))).current_dir(&self.cwd);
        self.unset.iter().for_each(|variable| {
            command.env_remove(variable);
        });
        command
    }

    /// What a tool prints.
    fn said(&self, bench: &Bench, args: &[&str]) -> String {
        let output = self.command(bench, args).stdin(Stdio::null()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn document(&self, bench: &Bench, args: &[&str]) -> Value {
        let output = self.command(bench, args).stdin(Stdio::null()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{}: {error}: {output:?}", self.name))
    }
}

#[test]
fn every_spelling_of_a_folder_finds_its_hub() {
    let bench = Bench::new().started();
    let status = bench.status();
    let session = status["session_id"].as_str().unwrap();
    let mut client = Client::connect(status["sockets"][1].as_str().unwrap().as_ref());
    client.initialize("client");
    resume(&mut client);
    ask(&mut bench.server());
    let all = spellings(&bench);
    for spelling in &all {
        let name = spelling.name;
        let said = spelling.said(&bench, &["hub", "start"]);
        assert!(said.contains(session) && said.ends_with("runs already\n"), "{name}: {said}");
        assert_eq!(spelling.document(&bench, &["hub", "status", "--json"])["pid"], status["pid"], "{name}");
        let mut front = Front::start(&mut spelling.command(&bench, &["app-server"]));
        front.initialize();
        eventually(name, || (bench.connections().len() == 2).then_some(()));
        drop(front);
        eventually(name, || (bench.connections().len() == 1).then_some(()));
        let report = spelling.document(&bench, &["doctor", "--json"]);
        let checks = report["checks"].as_array().unwrap();
        let found = |of: &str| checks.iter().find(|check| check["name"] == of).map(|check| check["found"].to_string());
        assert!(found("shared server").is_some_and(|found| found.contains(session)), "{name}: {report:#}");
        assert_eq!(found("bypass").as_deref(), Some("\"no client that codex-shim knows of has a server of its own\""));
        let requests = spelling.document(&bench, &["requests", "--json"]);
        assert_eq!(requests["requests"].as_array().map(Vec::len), Some(1), "{name}: {requests}");
        assert_eq!(bench.home.sessions().len(), 1, "{name}");
    }
    // A hub that one spelling has started is stopped by the next one, and always has the same session.
    let next = all.iter().cycle().skip(1);
    spelling_stops(&bench, &all[0]);
    for (starts, stops) in all.iter().zip(next) {
        let said = starts.said(&bench, &["hub", "start"]);
        let log = || fs::read_to_string(bench.home.sessions()[0].join("server.log"));
        assert!(said.contains(session) && said.contains("listens on"), "{}: {said}: {:?}", starts.name, log());
        spelling_stops(&bench, stops);
    }
    assert_eq!(bench.home.sessions().len(), 1);
}

fn spelling_stops(bench: &Bench, spelling: &Spelling) {
    let said = spelling.said(bench, &["hub", "stop", "--yes"]);
    assert!(said.contains("stopped the hub") && said.contains("stopped the server"), "{}: {said}", spelling.name);
}

/// A version that did not resolve paths has left its session under the spelling of then.
#[test]
fn session_of_another_spelling_is_taken_over() {
    let bench = Bench::new().started();
    let linked = bench.home.beside().join("linked-codex");
    symlink("codex-home", &linked).unwrap();
    let before = bench.status();
    bench.kill_hub();
    let lock = bench.home.sessions()[0].join("lock");
    let resolved = bench.home.beside().join("codex-home").canonicalize().unwrap();
    let holder = fs::read_to_string(&lock).unwrap().replace(resolved.to_str().unwrap(), linked.to_str().unwrap());
    assert!(holder.contains("linked-codex"), "{holder}");
    fs::write(&lock, holder).unwrap();
    bench.hub(&["start"]);
    let after = bench.status();
    assert_eq!((&after["session_id"], &after["server"]["pid"]), (&before["session_id"], &before["server"]["pid"]));
}

#[test]
fn client_joins_a_hub_with_a_name() {
    for options in [&["--session", "named"][..], &["--session", "named", "--no-default-socket"]] {
        let bench = Bench::new();
        let said = bench.hub(&[&["start"], options].concat());
        assert!(said.contains("hub (session named, pid "), "{said}");
        let status =
            || -> Value { serde_json::from_str(&bench.hub(&["status", "--json", "--session", "named"])).unwrap() };
        let (pid, server) = (status()["pid"].as_u64().unwrap(), status()["server"]["pid"].clone());
        let client = bench.client();
        eventually("the client's connection", || {
            (status()["connections"].as_array().map(Vec::len) == Some(1)).then_some(())
        });
        drop(client);
        // Its server is left: the hub that the next client starts takes it over.
        signal(pid, Signal::KILL);
        eventually("the end of the hub", || (status()["running"] == false).then_some(()));
        let client = bench.client();
        assert_eq!(status()["server"]["pid"], server, "{options:?}");
        assert_eq!(bench.home.sessions().len(), 1, "{options:?}");
        drop(client);
        bench.hub(&["stop", "--yes", "--session", "named"]);
    }
}
