//! Which rule decides on which request, and which commands no rule accepts.

use serde_json::{Value, json};

use super::*;
use crate::engine::requests::RequestKind;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const TRUST: Trust = Trust { path: true, terminal: false, repository: true };

fn accept(name: &str, argv: &[&str], cwd: &str) -> Rule {
    let exact = ExactCommand::new(words(argv), cwd.to_owned(), TRUST, None).expect("BUG: it can be accepted");
    Rule { name: name.to_owned(), does: Does::Accept(exact) }
}

fn decline(name: &str, of: Matcher) -> Rule {
    Rule { name: name.to_owned(), does: Does::Decline { of, reason: None } }
}

fn first(words_of: &[&str]) -> Matcher {
    Matcher::Command { argv: Some(Words::First(words(words_of))), cwd: None }
}

/// An approval as codex 0.169 asks for it.
fn asks_for(command: &str) -> Value {
    json!({
        "kind": "command", "threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1, "environmentId": "local",
        "reason": "ok?", "command": command, "cwd": "/home/me/proj",
        "commandActions": [{"type": "unknown", "command": "git status"}],
        "proposedExecpolicyAmendment": ["git", "status"],
        "availableDecisions": ["accept", {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "status"]}}, "cancel"],
    })
}

fn asked(kind: RequestKind, params: &Value) -> Option<Asked> {
    let raw = serde_json::value::to_raw_value(params).expect("BUG: it is JSON");
    Some(in_thread(Asked::of(kind, Some(&raw), params, None)?))
}

/// In a thread that began in the folder of the rules, with a codex that asks about input.
fn in_thread(mut asked: Asked) -> Asked {
    let workspace = Ok(Workspace { cwd: "/home/me/proj".to_owned(), places: Vec::new() });
    asked.is_in(|| InThread { workspace, asks_about_input: true });
    asked
}

/// The name of the rule that decides, or why the accept rules do not.
fn decided(rules: &[Rule], kind: RequestKind, params: &Value) -> String {
    let Some(asked) = asked(kind, params) else { return "nobody".to_owned() };
    let ruling = ruling(rules, &asked);
    let barred = ruling.barred.iter().map(|(rule, why)| format!("{} barred: {why}", rule.name));
    barred.chain(ruling.rule.map(|(rule, _)| rule.name.clone())).collect::<Vec<_>>().join(", ")
}

fn git_status() -> Vec<Rule> {
    vec![accept("status", &["git", "status"], "/home/me/proj")]
}

#[test]
fn exact_command_is_accepted_in_its_folder() {
    let check = |params: &Value, expect: &str| {
        assert_eq!(decided(&git_status(), RequestKind::Command, params), expect, "{params}");
    };
    let asks = asks_for("/bin/bash -lc 'git status'");
    check(&asks, "status");
    for (name, value) in [("cwd", json!("/home/me/proj/x")), ("cwd", json!("/home/me")), ("cwd", Value::Null)] {
        let mut other = asks.clone();
        other[name] = value;
        check(&other, "");
    }
    for other in ["git status -s", "git 'status '", "git push", "git status; x", "git", "git status $(x)", "GIT status"]
    {
        let line = shlex::try_join(["/bin/bash", "-lc", other]).expect("BUG: no NUL");
        check(&asks_for(&line), "");
    }
    // Without a shell, as an old codex may ask.
    check(&asks_for("git status"), "status");
}

#[test]
fn every_extra_bars_an_accept() {
    let bars = |name: &str, value: Value| {
        let mut params = asks_for("/bin/bash -lc 'git status'");
        params[name] = value.clone();
        let decided = decided(&git_status(), RequestKind::Command, &params);
        assert!(decided.starts_with("status barred: "), "{name} {value}: {decided}");
    };
    for (name, value) in [
        ("additionalPermissions", json!({"network": {"enabled": true}})),
        ("additionalPermissions", json!({})),
        ("networkApprovalContext", json!({"host": "x", "protocol": "https"})),
        ("proposedNetworkPolicyAmendments", json!([{"action": "allow", "host": "x"}])),
        ("environmentId", json!("remote")),
        ("environmentId", json!(7)),
        ("approvalId", json!("a")),
        ("commandActions", json!([{}, {}])),
        ("commandActions", json!("x")),
        ("commandActions", json!([{"type": "unknown", "command": "git push"}])),
        ("commandActions", json!([{"type": "unknown"}])),
        ("commandActions", json!([7])),
        // Everything in an action is known.
        ("commandActions", json!([{"type": "new", "command": "git status"}])),
        ("commandActions", json!([{"command": "git status"}])),
        ("commandActions", json!([{"type": "unknown", "command": "git status", "runsAs": "root"}])),
        ("commandActions", json!([{"type": "unknown", "command": "git status", "cmd": "git status"}])),
        ("commandActions", json!([{"type": "read", "command": "git status", "path": {}}])),
        ("proposedExecpolicyAmendment", json!(["git", "push"])),
        ("proposedExecpolicyAmendment", json!(["git", "status", "x"])),
        ("proposedExecpolicyAmendment", json!("git status")),
        ("availableDecisions", json!(["decline"])),
        ("availableDecisions", json!("accept")),
        ("sandboxPermissions", json!("require_escalated")),
        ("new", Value::Null),
        ("threadId", json!(7)),
        ("reason", json!({})),
    ] {
        bars(name, value);
    }
    let repeated =
        r#"{"command":"/bin/bash -lc 'git push'","cwd":"/home/me/proj","command":"/bin/bash -lc 'git status'"}"#;
    let raw: &serde_json::value::RawValue = serde_json::from_str(repeated).expect("BUG: it is JSON");
    let params: Value = serde_json::from_str(repeated).expect("BUG: it is JSON");
    let asked = Asked::of(RequestKind::Command, Some(raw), &params, None).map(in_thread).expect("it is a command");
    assert_eq!(ruling(&git_status(), &asked).barred.len(), 1);
}

/// A reader that takes the first of two members sees another request than one that takes the last.
#[test]
fn member_repeated_at_any_depth_bars() {
    let fine = asks_for("/bin/bash -lc 'git status'").to_string();
    let check = |from: &str, to: &str, expect: bool| {
        assert!(fine.contains(from), "{from}");
        let line = fine.replacen(from, to, 1);
        let raw: &serde_json::value::RawValue = serde_json::from_str(&line).expect("BUG: it is JSON");
        let params: Value = serde_json::from_str(&line).expect("BUG: it is JSON");
        let asked = Asked::of(RequestKind::Command, Some(raw), &params, None).map(in_thread).expect("a command");
        let rules = git_status();
        let ruling = ruling(&rules, &asked);
        assert_eq!((ruling.rule.is_some(), ruling.barred.len()), (expect, usize::from(!expect)), "{line}");
    };
    check("\"startedAtMs\":1", "\"startedAtMs\":2", true);
    check(r#"{"command":"git status""#, r#"{"command":"git push","command":"git status""#, false);
    check(r#"{"command":"git status""#, r#"{"comm\u0061nd":"git push","command":"git status""#, false);
    check(r#""type":"unknown""#, r#""type":"read","type":"unknown""#, false);
    check(
        r#"{"execpolicy_amendment":["git","status"]}"#,
        r#"{"execpolicy_amendment":["git"],"execpolicy_amendment":["git","status"]}"#,
        false,
    );
}

#[test]
fn members_may_be_missing_or_null() {
    for name in
        ["kind", "environmentId", "commandActions", "proposedExecpolicyAmendment", "availableDecisions", "reason"]
    {
        let mut params = asks_for("/bin/bash -lc 'git status'");
        params[name] = Value::Null;
        assert_eq!(decided(&git_status(), RequestKind::Command, &params), "status", "{name}");
        params.as_object_mut().expect("BUG: an object").remove(name);
        assert_eq!(decided(&git_status(), RequestKind::Command, &params), "status", "{name}");
    }
}

#[test]
fn folder_spelled_otherwise_does_not_match() {
    for cwd in ["/home/me/proj/", "/home/me/./proj", "/home/me/x/../proj", "//home/me/proj", "home/me/proj", "."] {
        let mut params = asks_for("/bin/bash -lc 'git status'");
        params["cwd"] = json!(cwd);
        assert_eq!(decided(&git_status(), RequestKind::Command, &params), "", "{cwd}");
    }
}

#[test]
fn no_rule_decides_for_a_person_or_on_input() {
    let rules =
        [accept("a", &["git", "status"], "/home/me/proj"), decline("d", Matcher::Command { argv: None, cwd: None })];
    let params = asks_for("/bin/bash -lc 'git status'");
    assert_eq!(decided(&rules, RequestKind::HumanCommand, &params), "nobody");
    for kind in [json!("humanCommand"), json!("writeStdin"), json!("new"), json!(7)] {
        let mut params = params.clone();
        params["kind"] = kind;
        assert_eq!(decided(&rules, RequestKind::Command, &params), "nobody");
    }
    assert_eq!(decided(&rules, RequestKind::Other, &params), "nobody");
}

#[test]
fn first_matching_rule_decides() {
    let rules = [
        decline("push", first(&["git", "push"])),
        accept("status", &["git", "status"], "/home/me/proj"),
        decline("git", first(&["git"])),
        Rule { name: "all".to_owned(), does: Does::Hold { of: Matcher::Command { argv: None, cwd: None } } },
    ];
    let check = |script: &str, expect: &str| {
        let mut params = asks_for(&shlex::try_join(["/bin/bash", "-lc", script]).expect("BUG: no NUL"));
        params["proposedExecpolicyAmendment"] = Value::Null;
        assert_eq!(decided(&rules, RequestKind::Command, &params), expect, "{script}");
    };
    check("git push -f", "push");
    check("git status", "status");
    check("git status -s", "git");
    check("git status && rm -rf /", "git");
    check("make", "all");
    check("echo $(x", "all");
    // A request that bars the accept rule falls through to the next.
    let mut params = asks_for("/bin/bash -lc 'git status'");
    params["new"] = json!(1);
    assert!(decided(&rules, RequestKind::Command, &params).ends_with(", git"));
}

#[test]
fn prefixes_are_whole_words_and_whole_parts() {
    let check = |of: Matcher, script: &str, cwd: &str, expect: bool| {
        let mut params = asks_for(&shlex::try_join(["/bin/bash", "-lc", script]).expect("BUG: no NUL"));
        params["cwd"] = json!(cwd);
        let decided = decided(&[decline("d", of.clone())], RequestKind::Command, &params);
        assert_eq!(decided == "d", expect, "{of:?} {script} {cwd}");
    };
    check(first(&["rm", "-rf"]), "rm -rf build *", "/x", true);
    check(first(&["rm", "-rf"]), "rm -rfv build", "/x", false);
    check(first(&["rm"]), "rmdir x", "/x", false);
    let below = |folder: &str| Matcher::Command { argv: None, cwd: Some(RulePlace::Below(folder.to_owned())) };
    check(below("/home/me"), "ls", "/home/me", true);
    check(below("/home/me"), "ls", "/home/me/a/b", true);
    check(below("/home/me"), "ls", "/home/meagain", false);
    check(below("/home/me"), "ls", "/home/me/../you", false);
    check(below("/"), "ls", "/anywhere", true);
    check(Matcher::Command { argv: Some(Words::All(words(&["ls"]))), cwd: None }, "ls -l", "/x", false);
}

#[test]
fn old_and_incomplete_requests() {
    let old = json!({
        "conversationId": "c", "callId": "i", "command": ["/bin/bash", "-lc", "git status"], "cwd": "/home/me/proj",
        "parsedCmd": [{"type": "unknown", "cmd": "git status"}], "reason": null,
    });
    assert_eq!(decided(&git_status(), RequestKind::Command, &old), "status");
    let mut risky = old.clone();
    risky["risk"] = json!({});
    assert!(decided(&git_status(), RequestKind::Command, &risky).contains("`risk` is not known"));
    // Codex 0.77 leaves the command to the item.
    let params =
        json!({"threadId": "t", "turnId": "u", "itemId": "i", "reason": null, "proposedExecpolicyAmendment": null});
    assert_eq!(decided(&git_status(), RequestKind::Command, &params), "");
    let raw = serde_json::value::to_raw_value(&params).expect("BUG: it is JSON");
    let mut shown = params;
    shown["command"] = json!("/bin/bash -lc 'git status'");
    shown["cwd"] = json!("/home/me/proj");
    let asked = Asked::of(RequestKind::Command, Some(&raw), &shown, None).map(in_thread).expect("it is a command");
    assert!(ruling(&git_status(), &asked).rule.is_some());
}

#[test]
fn files_are_matched_by_folder() {
    let below = |folder: &str| [decline("d", Matcher::FileChange { below: Some(folder.to_owned()) })];
    let check = |rules: &[Rule], changes: &Value, expect: bool| {
        let params = json!({"threadId": "t", "itemId": "i"});
        let raw = serde_json::value::to_raw_value(&params).expect("BUG: it is JSON");
        let asked = Asked::of(RequestKind::FileChange, Some(&raw), &params, Some(changes)).expect("files change");
        assert_eq!(ruling(rules, &asked).rule.is_some(), expect, "{changes}");
    };
    check(&below("/p/.github"), &json!([{"path": "/p/src/a"}, {"path": "/p/.github/x.yml"}]), true);
    check(&below("/p/.github"), &json!([{"path": "/p/.githubx/a"}]), false);
    check(&below("/p/.github"), &json!([{"path": "/p/src/../.github/a"}]), true);
    check(&below("/p/s"), &json!([{"path": "/p/a", "kind": {"type": "update", "move_path": "/p/s/a"}}]), true);
    check(&below("/p"), &json!(null), false);
    check(&[decline("d", Matcher::FileChange { below: None })], &json!(null), true);
}

#[test]
fn commands_that_are_never_accepted() {
    let check = |argv: &[&str], cwd: &str, path: bool, expect: &str| {
        let trust = Trust { path, ..TRUST };
        let why = ExactCommand::new(words(argv), cwd.to_owned(), trust, None).expect_err("it is refused");
        assert!(why.contains(expect), "{argv:?}: {why}");
    };
    check(&[], "/p", true, "it is empty");
    check(&["git", "a\nb"], "/p", true, "printable ASCII");
    check(&["git", "é"], "/p", true, "printable ASCII");
    for program in ["./x", "bin/x", "../x", "/bin/../x", "//x", "-x", ".", "A=1", "~/x", "a b", "$x", ""] {
        check(&[program], "/p", true, "neither a plain name nor an absolute path");
    }
    for program in ["eval", "exec", "command", "builtin", "source", "echo", "printf", "test", "if", "while", "repeat"] {
        check(&[program, "x"], "/p", true, "built into some shells");
    }
    check(&["git"], "/p", false, "`trust_path = true`");
    for cwd in ["", "p", "./p", "/p/", "/p/../q", "/p//q", "/p/.", "~"] {
        check(&["git"], cwd, true, "not an absolute path");
    }
    assert!(ExactCommand::new(words(&["/usr/bin/printf", "x"]), "/".to_owned(), Trust::default(), None).is_ok());
}

/// One or two of each kind, in several spellings.
#[test]
fn programs_are_refused_by_kind() {
    const RUN_OTHERS: &str = "bash /bin/sh env /usr/bin/env sudo xargs nohup time timeout yarn npm prlimit /usr/bin/setpriv choom \
        fakeroot npx doas run0 setarch taskset systemd-run chpst direnv uv qemu-x86_64 parallel watchexec at strace valgrind \
        ltrace tmux xvfb-run docker bwrap podman flatpak-spawn kubectl ansible rsync socat pnpm uvx pipx apt-get \
        /lib64/ld-linux-x86-64.so.2 fzf systemctl";
    const TAKE_COMMANDS: &str = "python python3 /usr/bin/python3.12 node perl5.36.0 ruby3.1 less vim.tiny nano gdb ssh mysql \
        psql sqlite3 bc man R jupyter lynx ghci racket kotlin java bun";
    const OF_REPOSITORY: &str =
        "git /usr/bin/git git-status GIT make /usr/bin/cargo ninja gradle go pytest just rake hg gh";
    const READERS: &str = "ls wc rg grep cat head tail find sort uniq jq du df stat diff file tree cut tr sha256sum date ps awk \
        sed";
    let refused = |program: &str| {
        let trust = Trust { repository: false, ..TRUST };
        ExactCommand::new(words(&[program, "x"]), "/p".to_owned(), trust, None).err().unwrap_or_default()
    };
    for (programs, expect) in [
        (RUN_OTHERS, "runs other programs"),
        (TAKE_COMMANDS, "takes commands"),
        (OF_REPOSITORY, "files that the model writes; if you accept that, add `trust_repository = true`"),
    ] {
        for program in programs.split_whitespace() {
            assert!(refused(program).contains(expect), "{program}: {}", refused(program));
        }
    }
    for program in READERS.split_whitespace() {
        assert_eq!(refused(program), "", "{program}");
    }
    for program in OF_REPOSITORY.split_whitespace() {
        assert!(ExactCommand::new(words(&[program, "x"]), "/p".to_owned(), TRUST, None).is_ok(), "{program}");
    }
}

#[test]
fn member_that_cannot_be_read_bars_an_accept() {
    let params = asks_for("/bin/bash -lc 'git status'");
    for unreadable in ["1e999".to_owned(), format!("{}{}", "[".repeat(200), "]".repeat(200)), "\"\\ud800\"".to_owned()]
    {
        let text = params.to_string().replace("\"ok?\"", &unreadable);
        let raw: &serde_json::value::RawValue = serde_json::from_str(&text).expect("BUG: it is JSON");
        let asked = Asked::of(RequestKind::Command, Some(raw), &params, None).map(in_thread).expect("it is a command");
        let rules = git_status();
        let ruling = ruling(&rules, &asked);
        assert!(ruling.rule.is_none() && ruling.barred[0].1.contains("cannot be read"), "{text}");
    }
}

#[test]
fn command_that_is_null_is_not_that_of_its_item() {
    let params = json!({"threadId": "t", "itemId": "i", "command": null, "cwd": null});
    let item = json!({"command": "/bin/bash -lc 'git status'", "cwd": "/home/me/proj"});
    let asked = super::asked(RequestKind::Command, &params, Some(&item), None).map(in_thread).expect("a command");
    assert!(ruling(&git_status(), &asked).rule.is_none());
    let absent = json!({"threadId": "t", "itemId": "i"});
    let asked = super::asked(RequestKind::Command, &absent, Some(&item), None).map(in_thread).expect("a command");
    assert!(ruling(&git_status(), &asked).rule.is_some());
}

#[test]
fn unknown_thread_or_version_bars_an_accept() {
    let why = |argv: &[&str], trust: Trust, workspace: Result<&str, &str>, asks_about_input: bool| {
        let exact = ExactCommand::new(words(argv), "/home/me/proj".to_owned(), trust, None).expect("BUG: acceptable");
        let rules = [Rule { name: "r".to_owned(), does: Does::Accept(exact) }];
        let line = format!("/bin/bash -lc '{}'", argv.join(" "));
        let params = json!({"threadId": "t", "command": line, "cwd": "/home/me/proj"});
        let mut asked = asked(RequestKind::Command, &params).expect("a command");
        let workspace = workspace.map(|cwd| Workspace { cwd: cwd.to_owned(), places: Vec::new() });
        asked.is_in(|| InThread { workspace: workspace.map_err(str::to_owned), asks_about_input });
        ruling(&rules, &asked).barred.first().map(|(_, why)| why.clone()).unwrap_or_default()
    };
    let (here, ls) = (Ok("/home/me/proj"), &["/bin/ls", "-l"][..]);
    let terminal = Trust { terminal: true, ..Trust::default() };
    assert_eq!(why(ls, Trust::default(), here, true), "");
    assert_eq!(why(ls, Trust::default(), Ok("/elsewhere"), true), "");
    assert_eq!(why(ls, Trust::default(), Err("not known"), true), "not known");
    assert!(why(ls, Trust::default(), here, false).contains("type into the program"));
    assert_eq!(why(ls, terminal, here, false), "");
}
