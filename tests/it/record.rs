//! `make record`: drives every conversation with the real codex through a relay or a hub, and exports the recordings as tapes.
//! With names of tapes as arguments, only these.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "shares its support with the tests, prints, may fail where it stands, and is no library"
)]

#[path = "support"]
mod support {
    pub mod codex;
    pub mod conversations;
    pub mod dispositions;
    pub mod hub_tapes;
    pub mod model;
    pub mod patience;
    pub mod peer;
    pub mod release;
    pub mod websocket;

    pub use patience::{PATIENCE, eventually};
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::codex::{Lab, installed_or_skip};
use support::conversations::ALL;
use support::model::{Item, Model, Script};
use support::peer::Peer;
use support::release::Release;
use support::{eventually, hub_tapes};

fn main() {
    let Some(codex) = installed_or_skip("recording") else { std::process::exit(1) };
    let this = std::env::current_exe().expect("this program has a path");
    let shim: PathBuf = this.parent().and_then(Path::parent).expect("it stands in examples/").join("codex-shim");
    let names: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    for (name, conversation) in ALL.iter().filter(|(name, _)| is_wanted(name)) {
        let model = Model::start((conversation.script)(Release::newest()));
        let lab = Lab::new(&model);
        let home = lab.root().join("shim-home");
        let mut relay = lab.command(&shim);
        relay.arg("app-server").env("CODEX_SHIM_HOME", &home).env("CODEX_SHIM_CODEX", &codex);
        relay.env("CODEX_SHIM_SESSION", "record").env_remove("CODEX_SHIM_OFF").env_remove("CODEX_SHIM_DEPTH");
        let mut peer = Peer::start(&mut relay);
        (conversation.drive)(&mut peer, &lab);
        let (received, status) = peer.finish();
        assert!(status.success(), "{name}: {status}");
        export(&shim, &home, name);
        println!("{name}: {} lines of the server", received.len());
    }
    if is_wanted(hub_tapes::TWO_CLIENTS) {
        hub(&shim, &codex, hub_tapes::TWO_CLIENTS, |lab, socket| hub_tapes::two_clients(socket, &lab.cwd()));
    }
    if is_wanted(hub_tapes::TUI) {
        hub(&shim, &codex, hub_tapes::TUI, |lab, socket| tui(lab, socket, &codex));
    }
}

/// Writes the recording of a session as the tape of this name.
fn export(shim: &Path, home: &Path, name: &str) {
    let tape = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/tapes/{name}.jsonl"));
    let mut export = Command::new(shim);
    export.args(["tape", "export", "record", "--redact", "-o"]).arg(&tape).env("CODEX_SHIM_HOME", home);
    assert!(export.status().expect("the shim starts").success(), "{name}: export");
}

/// Records what `drive` does with a hub at its socket. The model asks to run a command and then says something, twice.
fn hub(shim: &Path, codex: &Path, name: &str, drive: impl Fn(&Lab, &Path)) {
    let run = || vec![Release::newest().command_to_be_approved(Release::newest().harmless())];
    let says = || vec![Item::Text(vec!["It ", "ran."])];
    let script: Script = vec![run(), says(), run(), says()];
    let model = Model::start(script);
    let lab = Lab::new(&model);
    let config = lab.codex_home().join("config.toml");
    let trust = format!("[projects.\"{}\"]\ntrust_level = \"trusted\"\n", lab.cwd().display());
    let config_text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, [&config_text, &trust, hub_tapes::FIRST_START].concat()).expect("a file");
    let home = lab.root().join("shim-home");
    let hub = |word: &str| {
        let mut command = lab.command(shim);
        command.args(["hub", word, "--session", "record"]).env("CODEX_SHIM_HOME", &home).env("CODEX_SHIM_CODEX", codex);
        command.env_remove("CODEX_SHIM_OFF").env_remove("CODEX_SHIM_DEPTH").stdin(Stdio::null());
        assert!(command.status().expect("the shim starts").success(), "{name}: hub {word}");
    };
    hub("start");
    drive(&lab, &home.join("sessions/record/codex.sock"));
    hub("stop");
    export(shim, &home, name);
    println!("{name}");
}

/// A TUI of codex in a terminal: one message, one approval.
fn tui(lab: &Lab, socket: &Path, codex: &Path) {
    let tmux = |args: &[&str]| {
        let mut command = lab.command("tmux");
        let output = command.arg("-S").arg(lab.root().join("tmux")).args(args).output().expect("tmux is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shows = |what: &str| {
        eventually(what, || tmux(&["capture-pane", "-p"]).contains(what).then_some(()));
    };
    let program = hub_tapes::remote(codex, socket, lab);
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", &program]);
    shows(hub_tapes::PROMPT);
    tmux(&["send-keys", "-l", hub_tapes::WORDS]);
    shows(hub_tapes::WORDS);
    tmux(&["send-keys", "Enter"]);
    shows(hub_tapes::DIALOG);
    // A dialog that has just appeared may ignore a key.
    eventually("the answer of the model", || {
        let screen = tmux(&["capture-pane", "-p"]);
        if screen.contains(hub_tapes::DIALOG) {
            tmux(&["send-keys", "-l", "y"]);
        }
        screen.contains("It ran.").then_some(())
    });
    tmux(&["send-keys", "-l", "/quit"]);
    shows("/quit");
    tmux(&["send-keys", "Enter"]);
    eventually("the end of the TUI", || tmux(&["list-panes"]).is_empty().then_some(()));
}
