//! The real codex behind a relay, with a client in front and the control socket beside it. Shared by the tests of its
//! requests.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::both_ends::{http, text};
use super::codex::{Lab, installed_or_skip};
use super::conversations::{start_thread, start_turn, start_turn_with_questions, turn_completed};
use super::eventually;
use super::model::{Item, Model, Script};
use super::peer::Peer;
use super::release::Release;
use super::requests::{PENDING, respond_path};
use super::shim::{Home, put_program};

pub const COMMAND: &str = "item/commandExecution/requestApproval";
pub const QUESTION: &str = "item/tool/requestUserInput";

/// A relayed codex, its client, and a thread.
pub struct Real {
    pub lab: Lab,
    pub model: Model,
    pub home: Home,
    pub peer: Peer,
    pub thread: String,
}

impl Real {
    pub fn start(test: &str, config: &str, script: Script) -> Option<Real> {
        Real::start_with(test, config, "", script)
    }

    /// The same, with more of codex's own configuration: features first.
    pub fn start_with(test: &str, config: &str, of_codex: &str, script: Script) -> Option<Real> {
        let model = Model::start(script);
        let lab = Lab::with(&model, of_codex);
        Real::in_lab(test, config, lab, model)
    }

    /// The same, with a model of this name.
    pub fn start_as(test: &str, model_name: &str, script: Script) -> Option<Real> {
        let model = Model::start(script);
        let lab = Lab::new(&model);
        let path = lab.codex_home().join("config.toml");
        let config = std::fs::read_to_string(&path).expect("it is there").replace(lab.release.model_name(), model_name);
        std::fs::write(path, config).expect("a file");
        Real::in_lab(test, "", lab, model)
    }

    /// The same, in an existing lab.
    pub fn in_lab(test: &str, config: &str, lab: Lab, model: Model) -> Option<Real> {
        let home = Home::new();
        std::fs::create_dir_all(home.path()).expect("a folder");
        std::fs::write(home.path().join("config.toml"), config).expect("a file");
        Real::in_home(test, home, lab, model, "read-only")
    }

    /// The same, in an existing home, and a thread with this sandbox.
    pub fn in_home(test: &str, home: Home, lab: Lab, model: Model, sandbox: &str) -> Option<Real> {
        let codex = installed_or_skip(test)?;
        let mut peer = connect(&lab, &home, &codex);
        let thread = start_thread(&mut peer, &lab, sandbox);
        Some(Real { lab, model, home, peer, thread })
    }

    /// Another run in the same places.
    pub fn start_again(lab: Lab, model: Model, home: Home, thread: String) -> Real {
        let codex = installed_or_skip("a second run").expect("there was a first one");
        let peer = connect(&lab, &home, &codex);
        Real { lab, model, home, peer, thread }
    }

    pub fn http(&self, line: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        http(&self.home.path().join("sessions/s"), line, body.as_bytes())
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, document) = self.http(&format!("GET {path}"), &Value::Null);
        assert_eq!(status, 200, "{document}");
        document
    }

    pub fn pending(&self) -> Vec<Value> {
        self.get(PENDING)["requests"].as_array().expect("an array").clone()
    }

    /// Lets the model make a request; returns the client's line and the row.
    pub fn asked_by_turn(&mut self, method: &str) -> (Value, Value) {
        match method {
            QUESTION => start_turn_with_questions(&mut self.peer, &self.lab, &self.thread, "go on"),
            _ => start_turn(&mut self.peer, &self.thread, "go on"),
        };
        self.asked(method)
    }

    /// Waits for a request of the server and answers all others; returns the client's line and the row.
    pub fn asked(&mut self, method: &str) -> (Value, Value) {
        let asked = self.peer.wait_for_method(method);
        let rows = self.pending();
        assert_eq!(rows.len(), 1, "{rows:#?}");
        assert_eq!((&rows[0]["rpc_request_id"], &rows[0]["request_payload"]), (&asked["id"], &asked["params"]));
        (asked, rows[0].clone())
    }

    pub fn respond(&self, row: &Value, given: &Value) -> (u16, Value) {
        self.http(&format!("POST {}", respond_path(&text(&row["request_id"]))), given)
    }

    pub fn responded(&self, row: &Value, given: &Value) {
        let (status, document) = self.respond(row, given);
        assert_eq!(
            (status, &document["ok"], &document["idempotent"]),
            (200, &json!(true), &json!(false)),
            "{document}"
        );
    }

    pub fn row(&self, row: &Value) -> Value {
        self.get(&format!("/sessions/self/codex-requests/{}", text(&row["request_id"])))["request"].clone()
    }

    /// The row, once the server has confirmed it.
    pub fn confirmed(&self, row: &Value) -> Value {
        eventually("its confirmation", || Some(self.row(row)).filter(|row| !row["confirmed_at"].is_null()))
    }

    pub fn ran(&self) -> usize {
        let told = std::fs::read_to_string(self.lab.cwd().join("ran.txt")).unwrap_or_default();
        told.lines().count()
    }

    pub fn completed(&mut self, status: &str) {
        turn_completed(&mut self.peer, status);
    }

    /// Checks that the client received nothing of codex-shim's own.
    pub fn end(self) {
        let (seen, _) = self.peer.finish();
        let ours: Vec<&Value> = seen.iter().filter(|message| message.to_string().contains("codex-shim:")).collect();
        assert!(ours.is_empty(), "{ours:#?}");
    }
}

fn connect(lab: &Lab, home: &Home, codex: &Path) -> Peer {
    let mut command = lab.command(home.program());
    let codex = codex_with_home(codex, lab, &mut command);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).env("CODEX_SHIM_SESSION", "s").arg("app-server");
    let mut peer = Peer::start(&mut command);
    peer.initialize();
    peer
}

/// The codex that a relay starts. If the relay has another home, codex keeps the one of the lab.
pub fn codex_with_home(codex: &Path, lab: &Lab, relay: &mut Command) -> PathBuf {
    let Some(away) = lab.away_folder() else { return codex.to_owned() };
    let (home, program) = (lab.codex_home(), away.join("codex"));
    let script = format!("#!/bin/sh\nCODEX_HOME='{}' exec '{}' \"$@\"\n", home.display(), codex.display());
    put_program(&program, script.as_bytes());
    relay.env_remove("CODEX_HOME");
    program
}

/// The model's command, which leaves a file once it may run.
pub fn run() -> Vec<Item> {
    vec![Release::under_test().command_to_be_approved("echo ran >> ran.txt")]
}

pub fn says() -> Vec<Item> {
    vec![Item::Text(vec!["Well."])]
}
