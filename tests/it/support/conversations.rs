//! Conversations with the real codex, one behaviour each. The same function drives it direct and through a relay.

use serde_json::{Value, json};

use super::codex::Lab;
use super::model::{Item, Script};
use super::peer::Peer;
use super::release::{Ability, Release};

/// A conversation: the model's script, and the client's actions.
#[derive(Clone, Copy)]
pub struct Conversation {
    pub script: fn(Release) -> Script,
    pub drive: fn(&mut Peer, &Lab),
}

/// All of them, by the names of their tapes.
pub const ALL: [(&str, Conversation); 10] = [
    ("plain_turn", PLAIN_TURN),
    ("reasoning", REASONING),
    ("streamed_deltas", STREAMED_DELTAS),
    ("command_approval", COMMAND_APPROVAL),
    ("file_change_approval", FILE_CHANGE_APPROVAL),
    ("auto_review", AUTO_REVIEW),
    ("question", QUESTION),
    ("interrupt", INTERRUPT),
    ("list_read_resume", LIST_READ_RESUME),
    ("end_in_mid_turn", END_IN_MID_TURN),
];

pub const PLAIN_TURN: Conversation = Conversation {
    script: |_| vec![vec![Item::Text(vec!["Hello."])]],
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        complete_turn(peer, &thread, "hi");
    },
};

pub const REASONING: Conversation = Conversation {
    script: |_| vec![vec![Item::Reasoning("**Thinking** of an answer"), Item::Text(vec!["Thought."])]],
    drive: PLAIN_TURN.drive,
};

pub const STREAMED_DELTAS: Conversation = Conversation {
    script: |_| vec![vec![Item::Text(vec!["One ", "two ", "thr\u{2028}ee ", "fünf \u{1f600}", " \"six\"\\."])]],
    drive: PLAIN_TURN.drive,
};

pub const COMMAND_APPROVAL: Conversation = Conversation {
    script: |release| vec![vec![release.command_to_be_approved(release.harmless())], vec![Item::Text(vec!["It ran."])]],
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        start_turn(peer, &thread, "run it");
        let request = peer.wait_for_method("item/commandExecution/requestApproval");
        peer.answer(&request, json!({"decision": "accept"}));
        turn_completed(peer, "completed");
    },
};

pub const FILE_CHANGE_APPROVAL: Conversation = Conversation {
    script: |_| {
        let patch = Item::Patch("*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch");
        vec![vec![patch], vec![Item::Text(vec!["Left alone."])]]
    },
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        start_turn(peer, &thread, "write it");
        let request = peer.wait_for_method("item/fileChange/requestApproval");
        peer.answer(&request, json!({"decision": "decline"}));
        turn_completed(peer, "completed");
        assert!(!lab.cwd().join("new.txt").exists(), "it was declined");
    },
};

/// Codex's own reviewer denies a command, the client overrules that, and in the next turn the reviewer approves.
pub const AUTO_REVIEW: Conversation = Conversation {
    script: |release| {
        let command = || vec![release.command_to_be_approved("echo ran >> ran.txt")];
        vec![
            command(),
            verdict("deny"),
            vec![Item::Text(vec!["It was denied."])],
            command(),
            verdict("allow"),
            vec![Item::Text(vec!["It ran."])],
        ]
    },
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_reviewed_thread(peer, lab);
        start_turn(peer, &thread, "run it");
        let review = peer.wait_for_method("item/autoApprovalReview/completed")["params"].clone();
        assert_eq!(review["review"]["status"], "denied", "{review}");
        turn_completed(peer, "completed");
        assert!(!lab.cwd().join("ran.txt").exists(), "it was denied");
        let mut action = review["action"].clone();
        action["source"] = "unified_exec".into();
        let event = json!({"id": review["reviewId"], "turn_id": review["turnId"], "status": "denied",
            "started_at_ms": review["startedAtMs"], "action": action});
        peer.call("thread/approveGuardianDeniedAction", json!({"threadId": thread, "event": event}));
        start_turn(peer, &thread, "try again");
        turn_completed(peer, "completed");
    },
};

/// The answer of a model that reviews an action.
pub fn verdict(outcome: &str) -> Vec<Item> {
    vec![Item::Text(vec![match outcome {
        "allow" => {
            r#"{"outcome":"allow","risk_level":"low","user_authorization":"high","rationale":"The user asked for it."}"#
        }
        _ => {
            r#"{"outcome":"deny","risk_level":"high","user_authorization":"low","rationale":"It writes outside the sandbox."}"#
        }
    }])]
}

pub const QUESTION: Conversation = Conversation {
    script: |_| {
        let arguments = json!({"questions": [{"id": "color", "header": "Color", "question": "Which?",
            "options": [{"label": "Red", "description": "red"}, {"label": "Blue", "description": "blue"}]}]});
        vec![vec![Item::Call { name: "request_user_input", arguments }], vec![Item::Text(vec!["Red it is."])]]
    },
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        start_turn_with_questions(peer, lab, &thread, "ask me");
        let request = peer.wait_for_method("item/tool/requestUserInput");
        peer.answer(&request, json!({"answers": {"color": {"answers": ["Red"]}}}));
        turn_completed(peer, "completed");
    },
};

pub const INTERRUPT: Conversation = Conversation {
    script: |_| vec![vec![Item::Text(vec!["I begin"]), Item::Hang]],
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        let turn = start_turn(peer, &thread, "go on");
        message_completed(peer);
        peer.call("turn/interrupt", json!({"threadId": thread, "turnId": turn}));
        turn_completed(peer, "interrupted");
    },
};

pub const LIST_READ_RESUME: Conversation = Conversation {
    script: |_| vec![vec![Item::Text(vec!["First."])], vec![Item::Text(vec!["Second."])]],
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        complete_turn(peer, &thread, "one");
        let list = peer.call("thread/list", json!({}));
        assert_eq!(list["data"][0]["id"], thread.as_str(), "{list}");
        if lab.release.has(Ability::ThreadRead) {
            peer.call("thread/loaded/list", json!({}));
            peer.call("thread/read", json!({"threadId": thread, "includeTurns": true}));
        }
        peer.call("thread/resume", json!({"threadId": thread}));
        complete_turn(peer, &thread, "two");
    },
};

/// The client ends during a turn: [`Peer::finish`] closes stdin while the model is still streaming.
pub const END_IN_MID_TURN: Conversation = Conversation {
    script: |_| vec![vec![Item::Text(vec!["I begin"]), Item::Hang]],
    drive: |peer, lab| {
        peer.initialize();
        let thread = start_thread(peer, lab, "read-only");
        start_turn(peer, &thread, "go on");
        message_completed(peer);
    },
};

/// Starts a thread in the lab; returns its id.
pub fn start_thread(peer: &mut Peer, lab: &Lab, sandbox: &str) -> String {
    let params = json!({"cwd": lab.cwd(), "approvalPolicy": "on-request", "sandbox": sandbox});
    let result = peer.call("thread/start", params);
    text(&result["thread"]["id"])
}

/// The same for a thread in which codex's own reviewer takes the place of the user.
pub fn start_reviewed_thread(peer: &mut Peer, lab: &Lab) -> String {
    let params = json!({"cwd": lab.cwd(), "approvalPolicy": "on-request", "sandbox": "read-only",
        "approvalsReviewer": "auto_review"});
    let result = peer.call("thread/start", params);
    text(&result["thread"]["id"])
}

/// Starts a turn; returns its id.
pub fn start_turn(peer: &mut Peer, thread: &str, says: &str) -> String {
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": says, "text_elements": []}]});
    let result = peer.call("turn/start", params);
    text(&result["turn"]["id"])
}

/// The same for a turn in which the model may ask the user, with the settings that the release needs.
pub fn start_turn_with_questions(peer: &mut Peer, lab: &Lab, thread: &str, says: &str) -> String {
    if lab.release.has(Ability::QuestionsInDefaultMode) {
        return start_turn(peer, thread, says);
    }
    let settings = json!({"model": lab.release.model_name(), "reasoning_effort": null, "developer_instructions": null});
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": says, "text_elements": []}],
        "collaborationMode": {"mode": "plan", "settings": settings}});
    let result = peer.call("turn/start", params);
    text(&result["turn"]["id"])
}

fn complete_turn(peer: &mut Peer, thread: &str, says: &str) {
    start_turn(peer, thread, says);
    turn_completed(peer, "completed");
}

/// Waits for the assistant's message, so that the test does not race with the model's later items.
fn message_completed(peer: &mut Peer) {
    peer.wait_for("the assistant's message", |message| {
        message["method"] == "item/completed" && message["params"]["item"]["type"] == "agentMessage"
    });
}

pub fn turn_completed(peer: &mut Peer, status: &str) {
    let completed = peer.wait_for_method("turn/completed");
    assert_eq!(completed["params"]["turn"]["status"], status, "{completed}");
}

fn text(value: &Value) -> String {
    value.as_str().expect("it is a string").to_owned()
}
