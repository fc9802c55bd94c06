//! `make record`: drives every conversation with the real codex through a relay, and exports the recordings as tapes.

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
    pub mod model;
    pub mod patience;
    pub mod peer;
    pub mod release;

    pub use patience::{PATIENCE, eventually};
}

use std::path::{Path, PathBuf};
use std::process::Command;

use support::codex::{Lab, installed_or_skip};
use support::conversations::ALL;
use support::model::Model;
use support::peer::Peer;
use support::release::Release;

fn main() {
    let Some(codex) = installed_or_skip("recording") else { std::process::exit(1) };
    let tapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tapes");
    let this = std::env::current_exe().expect("this program has a path");
    let shim: PathBuf = this.parent().and_then(Path::parent).expect("it stands in examples/").join("codex-shim");
    for (name, conversation) in ALL {
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

        let tape = tapes.join(format!("{name}.jsonl"));
        let mut export = Command::new(&shim);
        export.args(["tape", "export", "record", "--redact", "-o"]).arg(&tape).env("CODEX_SHIM_HOME", &home);
        assert!(export.status().expect("the shim starts").success(), "{name}: export");
        println!("{name}: {} lines of the server", received.len());
    }
}
