//! Removing an envelope or a projection restores the user's exact message.

#![no_main]

use std::time::Duration;

use codex_shim::testing::engine::{
    AssemblySettings, ContextBounds, ContextChange, ContextSettings, Engine, EngineSettings, Incoming, Input,
    MARKER_END, MARKER_START, Now, PROJECTION_START, Passage, Preview, Provenance, PushedCommand, RequestSettings,
    ServerOwner, WaitingCommand,
};
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const NOW: Now = Now { unix_us: 1, elapsed: Duration::ZERO };

fuzz_target!(|said: (String, Vec<(u16, u16)>, String, String, bool)| {
    let (words, ranges, cmd, output, escapes) = said;
    // Words that begin with a whole envelope or projection count as ours. A marker alone does not.
    if begins_with_ours(&words) {
        return;
    }
    let mut engine = Engine::new(EngineSettings {
        budget: Default::default(),
        exit_grace: Duration::from_secs(10),
        context: ContextSettings::default(),
        assembly: AssemblySettings::default(),
        requests: RequestSettings::default(),
        server_owner: ServerOwner::Client,
        own_ids: "codex-shim:0:".to_owned(),
        tokens_before: 0,
    });
    let pushed = PushedCommand {
        cmd,
        exit_code: Some(1),
        cwd: Some(output.clone()),
        block_id: None,
        shell_id: None,
        ts: None,
        preview: None::<Preview>,
        output: Some(output),
        thread_id: None,
        private: false,
        once: false,
        provenance: Provenance::default(),
    };
    let Ok(command) = pushed.into_command(1, &ContextBounds::default()) else { return };
    let waiting = WaitingCommand { row: 1, thread_id: None, forgotten_before: 0, command };
    let mut effects = Vec::new();
    engine.handle(NOW, Input::Context(ContextChange::Added(vec![waiting])), &mut effects);
    let elements: Vec<Value> = ranges
        .iter()
        .map(|(start, end)| json!({"byteRange": {"start": start, "end": end}, "placeholder": null}))
        .collect();
    let item = json!({"type": "text", "text": words, "text_elements": elements});
    let input = json!([{"type": "image", "url": "x"}, item, {"type": "text", "text": "second"}]);
    let turn = json!({"id": 1, "method": "turn/start", "params": {"threadId": "t", "input": input}});
    let Some(sent) = replaced(&mut engine, Side::Client, &turn.to_string()) else { panic!("the context goes along") };
    let sent: Value = serde_json::from_slice(&sent).expect("it is JSON");
    let told = &sent["params"]["input"];
    // If the first text is empty, the envelope is an item of its own.
    if !words.is_empty() {
        assert!(
            told[1]["text"].as_str().expect("a text").ends_with(words.as_str()),
            "the user's words are what they were"
        );
        assert_eq!((&told[0], &told[2]), (&input[0], &input[2]));
    }
    // The form in which codex repeats it.
    let echo = json!({
        "method": "item/completed",
        "params": {"threadId": "t", "turnId": "u", "item": {"type": "userMessage", "id": "i", "content": told}},
    });
    let echo = if escapes { ascii(&echo.to_string()) } else { echo.to_string() };
    let seen = replaced(&mut engine, Side::Server, &echo).expect("it is taken out");
    let seen: Value = serde_json::from_slice(&seen).expect("it is JSON");
    assert_eq!(seen["params"]["item"]["content"], input, "the client sees what it wrote");
});

/// Whether words may begin with an envelope, which is one line of JSON, or with a projection.
fn begins_with_ours(words: &str) -> bool {
    let json = words.strip_prefix(MARKER_START).and_then(|rest| rest.split_once(MARKER_END)).map(|(json, _)| json);
    json.is_some_and(|json| serde_json::from_str::<Value>(json).is_ok()) || words.starts_with(PROJECTION_START)
}

fn replaced(engine: &mut Engine, from: Side, line: &str) -> Option<Vec<u8>> {
    let mut effects = Vec::new();
    let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
    match engine.read(NOW, Conn::OWN, from, Incoming::Line(line), &mut effects)?.line {
        Passage::Replace(own) => Some(own.bytes),
        Passage::Forward | Passage::Withhold => None,
    }
}

/// The same JSON, with every character outside ASCII escaped.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for character in json.chars() {
        match character.is_ascii() {
            true => text.push(character),
            false => {
                let mut units = [0; 2];
                character.encode_utf16(&mut units).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04X}")));
            }
        }
    }
    text
}
