//! Tools whose output is lost: on a full disk they say so and fail; if nobody reads the pipe, they end quietly.

use std::process::{Child, Command, Output, Stdio};

use serde_json::json;

use crate::request_tools::{begin_with, end_turn, finish, in_turn, sent};
use crate::send_wait::speak;
use crate::support::both_ends::Live;
use crate::support::requests::{answer, command_asked, decision, resolved, turn_completed, turn_started};
use crate::support::shim::put_program;
use crate::tools::Pair;

/// Standard outputs that lose everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// A full disk.
    Disk,
    /// A pipe that nobody reads any more.
    Reader,
}

impl Lost {
    pub fn stdout(self) -> Stdio {
        match self {
            Lost::Disk => Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("a device")),
            Lost::Reader => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                Stdio::from(writer)
            }
        }
    }

    /// What is wrong with the end of a tool that had this output.
    pub fn fault(self, words: &[&str], output: &Output) -> Option<String> {
        let said = String::from_utf8_lossy(&output.stderr);
        let told = said.matches("codex-shim: write to stdout: No space left on device").count();
        let is_right = match self {
            Lost::Disk => output.status.code().is_some_and(|status| status != 0) && told == 1,
            Lost::Reader => !said.contains("stdout") && !said.contains("pipe"),
        };
        (!is_right).then(|| format!("{self:?}: {words:?}: {:?} {said}", output.status.code()))
    }

    /// The same for a tool that prints at once.
    fn fault_of(self, words: &[&str], mut tool: Command) -> Option<String> {
        let tool = tool.stdin(Stdio::null()).stdout(self.stdout()).stderr(Stdio::piped());
        self.fault(words, &tool.spawn().and_then(Child::wait_with_output).expect("the tool runs"))
    }
}

pub const BOTH: [Lost; 2] = [Lost::Disk, Lost::Reader];

#[test]
fn every_tool_says_that_its_output_is_lost() {
    let pair = Pair::start();
    let codex = pair.folder.join("bin/codex");
    std::fs::create_dir(pair.folder.join("bin")).expect("a folder");
    put_program(&codex, b"#!/bin/sh\necho codex-cli 1.2.3\n");
    let codex = codex.to_str().expect("UTF-8");
    let mut wrong = Vec::new();
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["help", "hub"],
        &["sessions"],
        &["sessions", "--json"],
        &["status"],
        &["status", "one", "--json"],
        &["requests"],
        &["requests", "--json"],
        &["show", "latest"],
        &["show", "latest", "--json"],
        &["events", "one"],
        &["events", "one", "--json"],
        &["tail"],
        &["tail", "--json"],
        &["transcript", "thread-one"],
        &["transcript", "thread-one", "--json"],
        &["transcript", "thread-one", "--format", "md"],
        &["transcript", "thread-one", "--format", "html"],
        &["search", "hello"],
        &["search", "hello", "--json"],
        &["children"],
        &["usage"],
        &["usage", "--json"],
        &["fragments"],
        &["docs"],
        &["docs", "hub"],
        &["reviews", "--json"],
        &["prune"],
        &["doctor"],
        &["context", "show"],
        &["rules"],
        &["config"],
        &["config", "--json"],
        &["audit", "export"],
        &["audit", "export", "-o", "audit.jsonl", "--force", "--json"],
        &["prune", "--dry-run"],
        &["prune", "--dry-run", "--json"],
        &["tape", "show", "one"],
        &["tape", "export", "one", "-o", "tape.jsonl", "--json"],
        // The change is made all the same, so the next one takes it back.
        &["wrap", codex, "--yes"],
        &["unwrap", codex],
        &["wrap", codex, "--yes", "--json"],
        &["unwrap", codex, "--json"],
        &["unwrap"],
        &["demo"],
        &["demo", "--json"],
        &["hook", "bash"],
        &["completions", "bash"],
        &["hub", "status"],
        &["doctor", "--json"],
        &["wait", "one", "--for", "pending"],
        &["wait", "one", "--for", "pending", "--json"],
        &["redact", "one", "--dry-run"],
        &["redact", "one", "--yes"],
        &["redact", "--all", "--yes", "--json"],
        &["context", "push", "one", "--cmd", "ls"],
        &["context", "clear", "one"],
    ] {
        wrong.extend(BOTH.into_iter().filter_map(|lost| {
            let mut tool = pair.home.shim(arguments);
            tool.current_dir(&pair.folder);
            lost.fault_of(arguments, tool)
        }));
    }
    assert_eq!(wrong, [""; 0]);
}

/// The server takes the message of a tool into turn `turn`, which ends at once.
pub fn takes(live: &mut Live, turn: &str) {
    let call = sent(live);
    assert_eq!(call["method"], "turn/start", "{call}");
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": turn } } }).to_string());
    live.say_plainly(&turn_started("t", turn));
    speak(live, "t", turn);
    live.say_plainly(&turn_completed("t", turn));
}

#[test]
fn tools_that_act_have_acted_though_their_output_is_lost() {
    let mut live = in_turn();
    end_turn(&mut live);
    let (mut wrong, mut number) = (Vec::new(), 10);
    for (lost, format) in BOTH.into_iter().flat_map(|lost| [(lost, None), (lost, Some("--json"))]) {
        number += 1;
        let id = live.asked(&command_asked(&number.to_string(), "t"), &number.to_string());
        let words: Vec<&str> = ["respond", &id, "accept"].into_iter().chain(format).collect();
        wrong.extend(lost.fault(&words, &finish(begin_with(&live, &words, lost.stdout()))));
        assert_eq!(live.at_server(), format!("{}\n", answer(&number.to_string(), &decision("accept"))));
        live.say_plainly(&resolved(&number.to_string()));

        for wait in [None, Some("--wait")] {
            let words = ["send", "go", "--thread", "t"].into_iter().chain(wait).chain(format).collect::<Vec<_>>();
            let tool = begin_with(&live, &words, lost.stdout());
            number += 1;
            takes(&mut live, &format!("u{number}"));
            wrong.extend(lost.fault(&words, &finish(tool)));
        }
        let words: Vec<&str> = ["wait", "--for", "idle"].into_iter().chain(format).collect();
        wrong.extend(lost.fault(&words, &finish(begin_with(&live, &words, lost.stdout()))));
    }
    assert_eq!(wrong, [""; 0]);
    live.kill();
}
