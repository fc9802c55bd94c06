//! Every byte of each side reaches the other unchanged and is recorded unchanged.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};

use codex_shim::testing::wire::{LINE_BYTES_MAX, Side};

use crate::support::both_ends::Live;
use crate::support::journal::Journal;
#[cfg(target_os = "linux")]
use crate::support::shim::Home;

/// Writes `pieces` to a relay in front of `cat`, one write each, and returns the whole output.
fn through_cat(home: &Home, pieces: &[&[u8]]) -> Vec<u8> {
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || pieces.iter().for_each(|piece| stdin.write_all(piece).expect("the relay reads")));
        relay.stdout.as_mut().expect("stdout is piped").read_to_end(&mut back).expect("stdout can be read");
    });
    ended_well(relay);
    back
}

fn ended_well(relay: Child) {
    let output = relay.wait_with_output().expect("the shim ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Checks that `bytes` come back from `cat` and are recorded from both sides.
fn check(bytes: &[u8]) -> Journal {
    check_pieces(&[bytes])
}

fn check_pieces(pieces: &[&[u8]]) -> Journal {
    let home = Home::new();
    let bytes = pieces.concat();
    assert!(
        through_cat(&home, pieces) == bytes,
        "altered: {}",
        String::from_utf8_lossy(&bytes[..bytes.len().min(500)])
    );
    let journal = home.journal();
    for side in [Side::Client, Side::Server] {
        assert!(journal.bytes(side) == bytes, "not on record as it was: {:?}", &journal.texts);
    }
    journal
}

#[test]
fn awkward_lines_pass() {
    let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(20_000), "]".repeat(20_000));
    let lines: [&[u8]; 18] = [
        b"null\nfalse\n0\n\"\"\n",
        b"{\"id\":1,\"method\":\"thread/list\",\"params\":{}}\n",
        b"{ \"params\" : {} , \"method\" : \"x\" , \"id\" : \"1\" }\n",
        b"{\"id\":1}\r\n",
        b"\n",
        b"\r\n",
        b"[started] thread\n",
        b"label {\"id\":1,\"result\":{}}\n",
        b"\xff\xfe{\"a\":\"\x80\"}\n",
        b"nul \0 nul\n{\"a\":\"\0\"}\n",
        b"{\"id\":1,\"id\":2,\"method\":\"a\",\"method\":\"b\"}\n",
        b"{\"n\":1e400,\"m\":-0.0,\"i\":12345678901234567890123}\n1e400\n",
        b"[{\"id\":1,\"method\":\"a\"},{\"method\":\"b\"}]\n",
        "{\"text\":\"a\u{2028}b\u{2029}c\u{85}d\u{feff}\"}\u{2028}\n".as_bytes(),
        b"{\"emoji\":\"\\ud83d\\ude00\",\"lone\":\"\\ud800\",\"slash\":\"\\/\"}\n",
        b"{\"unfinished\":\n{\"a\":\x1b[0m}\n\x1eCODEX_META x\x1f\n",
        deep.as_bytes(),
        b"  {\"padded\":true}  \t\n",
    ];
    let journal = check(&lines.concat());
    assert!(journal.texts.iter().any(|text| text.contains(r#""line":{"id":1,"method":"thread/list","params":{}}"#)));
    assert!(journal.texts.iter().any(|text| text.contains(r#""text":"{\"id\":1}\r"}"#)));
    assert!(journal.texts.iter().any(|text| text.contains(r#""base64":"//57ImEiOiKAIn0="}"#)));
}

#[test]
fn a_last_line_without_its_newline_passes_and_stays_without() {
    let journal = check(b"{\"a\":1}\n{\"b\":2}");
    assert!(journal.texts.iter().any(|text| text.ends_with(r#""line":{"b":2},"eol":false}"#)), "{:?}", journal.texts);
}

#[test]
fn nothing_at_all_passes() {
    let journal = check(b"");
    assert_eq!(journal.event_names(), ["generation_started", "generation_ended"]);
}

#[test]
fn a_client_that_writes_byte_by_byte_is_understood() {
    let text = "{\"id\":1,\"method\":\"ä\"}\r\nx\n\n{\"id\":2}".as_bytes();
    check_pieces(&text.chunks(1).collect::<Vec<_>>());
}

#[test]
fn a_line_goes_on_as_soon_as_it_is_complete() {
    let home = Home::new();
    let mut relay = home.shim(&["run", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let stdout = relay.stdout.as_mut().expect("stdout is piped");
    for line in [&b"{\"id\":1}\n"[..], b"\n", b"{\"id\":2}\n{\"id\":3}\n"] {
        stdin.write_all(line).expect("the relay reads");
        stdin.write_all(b"{\"unfin").expect("the relay reads");
        let mut back = vec![0; line.len()];
        stdout.read_exact(&mut back).expect("the line comes back while the next one is unfinished");
        assert_eq!(back, line);
        stdin.write_all(b"ished\":1}\n").expect("the relay reads");
        stdout.read_exact(&mut [0; 17]).expect("the rest comes too");
    }
    drop(stdin);
    ended_well(relay);
}

#[test]
fn a_line_of_64_mib_is_on_record_and_a_longer_one_passes_unseen() {
    let line = |bytes: usize| {
        let fill = bytes - 2;
        let mut line = Vec::with_capacity(bytes + 1);
        line.push(b'"');
        line.extend(std::iter::repeat_n(b'x', fill));
        line.extend_from_slice(b"\"\n");
        line
    };
    let (whole, over, after) = (line(LINE_BYTES_MAX), line(LINE_BYTES_MAX + 1), b"{\"id\":1}\n");
    let home = Home::new();
    let sent = [&whole[..], &over, after];
    assert!(through_cat(&home, &sent) == sent.concat(), "altered");
    let journal = home.journal();
    for lines in [&journal.client, &journal.server] {
        assert_eq!(lines.len(), 3);
        assert!(lines[0].as_deref() == Some(&whole), "the longest line that is held is on record");
        assert!(lines[1].is_none());
        assert_eq!(lines[2].as_deref(), Some(&after[..]));
    }
    let omitted = format!(r#""omitted":"size","bytes":{}}}"#, LINE_BYTES_MAX + 1);
    assert_eq!(journal.texts.iter().filter(|text| text.ends_with(&omitted)).count(), 2);
    assert!(journal.headers.len() > 1, "a segment that is full is followed by the next one");
    assert_eq!(journal.headers[1].segment, 2);
}

#[test]
fn a_line_of_200_mib_passes_with_bounded_memory() {
    const MIB: usize = 200;
    let home = Home::new();
    let script = format!("head -c {} /dev/zero | tr '\\0' x; echo; cat >/dev/null", MIB << 20);
    let mut relay = home.shell(&script).spawn().expect("the shim starts");
    let mut stdout = relay.stdout.take().expect("stdout is piped");
    let (mut chunk, mut read_bytes, mut resident_kib_peak) = (vec![0; 1 << 20], 0, 0);
    while read_bytes <= MIB << 20 {
        let read = stdout.read(&mut chunk).expect("stdout can be read");
        assert!(read > 0, "the line ended after {read_bytes} bytes");
        assert!(chunk[..read].iter().all(|byte| matches!(byte, b'x' | b'\n')));
        read_bytes += read;
        resident_kib_peak = resident_kib_peak.max(resident_kib(relay.id()));
    }
    assert!(resident_kib_peak < 160 << 10, "{resident_kib_peak} KiB");
    drop(relay.stdin.take());
    ended_well(relay);
    let journal = home.journal();
    assert_eq!(journal.server, [None]);
    assert!(
        journal.texts.iter().any(|text| text.contains(&format!(r#""bytes":{}"#, MIB << 20))),
        "{:?}",
        journal.texts
    );
}

/// Resident memory of a process, or 0 on systems without `/proc`.
fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    field.and_then(|field| field.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn secrets_pass_and_are_nowhere_on_disk() {
    let key = "sk-verysecret";
    let from_client = [
        format!(r#"{{"id":1,"method":"account/login/start","params":{{"type":"apiKey","apiKey":"{key}"}}}}"#),
        format!(r#"{{"method":"account/login/start","id":2,"params":{{"apiKey":"{key}"}}}}{}"#, '\r'),
        format!(r#"{{"id":3,"method":"config/value/write","params":{{"keyPath":"x.api_key","value":"{key}"}}}}"#),
        format!(r#"{{"id":0,"result":{{"answers":{{"q":{{"answers":["{key}"]}}}}}}}}"#),
        r#"{"id":4,"method":"thread/list","params":{}}"#.to_owned(),
    ];
    let from_server = [
        r#"{"id":0,"method":"item/tool/requestUserInput","params":{"questions":[{"id":"q","isSecret":true}]}}"#
            .to_owned(),
        format!(r#"{{"id":1,"result":{{"token":"{key}"}}}}"#),
        r#"{"id":4,"result":{}}"#.to_owned(),
    ];
    let home = Home::new();
    let told = home.beside().join("told");
    std::fs::write(&told, from_server.join("\n") + "\n").expect("a file");
    // The server sends its request first, and answers after it was called.
    let script = "head -n 1 \"$0\"; head -n 5 >/dev/null; tail -n +2 \"$0\"";
    let told = told.to_str().expect("the path is UTF-8");
    let secret_flag = format!("api_key={key}");
    let mut relay = home.shim(&["run", "--session", "s", "--", "sh", "-c", script, told, &secret_flag]);
    let mut relay = relay.spawn().expect("the shim starts");
    let stdout = relay.stdout.as_mut().expect("stdout is piped");
    let mut back = vec![0; from_server[0].len() + 1];
    stdout.read_exact(&mut back).expect("the server asks");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    stdin.write_all((from_client.join("\n") + "\n").as_bytes()).expect("the relay reads");
    drop(stdin);
    stdout.read_to_end(&mut back).expect("the server answers");
    assert_eq!(String::from_utf8_lossy(&back), from_server.join("\n") + "\n");
    ended_well(relay);

    let journal = home.journal();
    let seen = |lines: &[Option<Vec<u8>>]| lines.iter().map(Option::is_some).collect::<Vec<_>>();
    assert_eq!(seen(&journal.client), [false, false, false, false, true]);
    assert_eq!(seen(&journal.server), [true, false, true]);
    assert!(journal.texts.iter().any(|text| {
        text.contains(r#""omitted":"secret""#) && text.contains(r#""method":"account/login/start","id":1"#)
    }));
    assert!(!holds(&home.path(), key.as_bytes()), "the key is on disk");
}

/// Whether any file below `dir` contains `bytes`.
fn holds(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("a folder can be read").any(|entry| {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        let content = std::fs::read(&path).expect("a file can be read");
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn without_a_record_everything_passes_and_nothing_is_kept() {
    let home = Home::new();
    let mut command: Command = home.shim(&["run", "--session", "s", "--record", "false", "--", "cat"]);
    let mut relay = command.spawn().expect("the shim starts");
    relay.stdin.take().expect("stdin is piped").write_all(b"{\"id\":1}\nx").expect("the relay reads");
    let output = relay.wait_with_output().expect("the shim ends");
    assert_eq!(output.stdout, b"{\"id\":1}\nx");
    assert!(home.journal().texts.is_empty());
    assert!(!holds(&home.path(), b"{\"id\":1}"));
}

/// Lines that carry the credential `KEY`, marked by the name or the place of a member, and their senders.
const CARRYING: [(&str, &str); 14] = [
    (
        "client",
        r#"{"id":1,"method":"thread/start","params":{"config":{"mcp_servers.codex_tui":{"http_headers":{"Authorization":"KEY"}}}}}"#,
    ),
    ("server", r#"{"id":1,"result":{"thread":{"id":"t"}}}"#),
    (
        "client",
        r#" {"id":2,"method":"thread\/resume","params":{"threadId":"t","config":{"mcp_servers":{"a":{"e\u006ev":{"PLAIN":"KEY"}}}}}}"#,
    ),
    ("server", r#"{"id":2,"error":{"code":-32600,"message":"invalid type: string \"KEY\", expected a map"}}"#),
    (
        "client",
        r#"{"id":3,"method":"environment/add","params":{"environmentId":"e","execServerUrl":"wss://h","authBearerToken":"KEY"}}"#,
    ),
    ("client", r#"{"id":4,"method":"command/exec","params":{"command":["true"],"env":{"PLAIN":"KEY"}}}"#),
    ("client", r#"{"id":5,"method":"process/spawn","params":{"command":["true"],"env":{"PLAIN":"KEY"}}}"#),
    ("client", r#"{"id":6,"method":"config/read","params":{}}"#),
    (
        "server",
        r#"{"id":6,"result":{"config":{"model":"m","mcp_servers":{"a":{"env":{"PLAIN":"KEY"},"bearer_token":"KEY"}}}}}"#,
    ),
    ("client", r#"{"id":7,"method":"externalAgentConfig/detect","params":{}}"#),
    ("server", r#"{"id":7,"result":{"items":[{"details":{"mcpServers":[{"name":"a","env":{"PLAIN":"KEY"}}]}}]}}"#),
    ("client", r#"{"id":8,"method":"remoteControl/enable","params":{}}"#),
    ("server", r#"{"id":8,"result":{"status":"connected","serverToken":"KEY"}}"#),
    (
        "client",
        r#"{"id":9,"method":"config/value/write","params":{"keyPath":"mcp_servers.a.env.PLAIN","value":"KEY"}}"#,
    ),
];

#[test]
fn credentials_by_member_are_masked_in_the_record() {
    const KEY: &str = "hunter2-of-nobody";
    let mut live = Live::start();
    for (from, line) in CARRYING {
        let line = line.replace("KEY", KEY);
        let got = if from == "client" { live.send(&line) } else { live.say(&line) };
        assert_eq!(got, format!("{line}\n"));
    }
    let home = live.end_quietly();
    let journal = home.journal();
    let lines = journal.client.iter().chain(&journal.server).filter(|line| line.is_some()).count();
    assert_eq!(lines, CARRYING.len() - 1, "only the write is left out: {:#?}", journal.texts);
    let masked: Vec<&String> = journal.texts.iter().filter(|text| text.ends_with(r#","masked":true}"#)).collect();
    assert_eq!(masked.len(), 9, "{masked:#?}");
    let mask = "[redacted]*******";
    assert_eq!(mask.len(), KEY.len());
    let first = CARRYING[0].1.replace("KEY", mask);
    assert!(masked[0].contains(&format!(r#""line":{first},"#)), "{}", masked[0]);
    assert!(!holds(&home.path(), KEY.as_bytes()), "the credential is on disk");
}

#[test]
fn ambiguous_line_hides_only_its_own_answers() {
    let asks = [
        r#"[{"id":1,"method":"account/read"}]"#,
        r#"[{"id":2,"method":"acc\u006funt/read"}]"#,
        r#"{"id":3,"method":"account/read","method":"x"}"#,
        r#"label {"id":4,"method":"account/read"}"#,
        r#"{"id":5,"method":"account/read","id":6}"#,
    ];
    let mut live = Live::start();
    asks.iter().for_each(|line| assert_eq!(live.send(line), format!("{line}\n")));
    for id in 1..=6 {
        live.say_plainly(&format!(r#"{{"id":{id},"result":{{"accessToken":"hunter2-of-nobody"}}}}"#));
    }
    for id in 10..30 {
        live.answer_plainly(&format!(r#"{{"id":{id},"method":"thread/list"}}"#));
        live.say_plainly(&format!(r#"{{"id":{id},"result":{{"data":[]}}}}"#));
    }
    let faults = live.get("/sessions/self")["faults"].to_string();
    assert_eq!(faults.matches("names a method that carries credentials").count(), 1, "{faults}");
    let (home, stderr) = live.end();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let journal = home.journal();
    assert_eq!(journal.client.iter().filter(|line| line.is_none()).count(), asks.len());
    assert_eq!(journal.server.iter().filter(|line| line.is_none()).count(), 6, "{:#?}", journal.texts);
    assert!(!holds(&home.path(), b"hunter2-of-nobody"), "the secret is on disk");
}
