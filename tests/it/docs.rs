//! The documentation: its examples, run as they stand, its links, its pictures, and the size of the README.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use codex_shim::testing::config::{parse_duration, setting_variables};
use codex_shim::testing::control::client;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::context_engine::{projection, take_place};
use crate::support::both_ends::{Live, carried, turn};
use crate::support::eventually;
use crate::support::shim::{Home, SHIM};
use crate::wrap::Lab;

const CONTROL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/control.md");

const HISTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/history.md");

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tools.md");

const ENGINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/context-engines.md");

/// Words of the README, so that it is read and not searched.
const README_WORDS_MAX: usize = 1_300;

/// Columns of a block in the README that no screen wraps: code, a table or a diagram.
const README_BLOCK_COLUMNS_MAX: usize = 90;

/// Line of the README by which both pictures have come.
const README_PICTURES_LINE_MAX: usize = 10;

/// The id of a request as the examples have it.
const SOME_REQUEST: &str = "6b02d1a90c4e-0";

/// The id of a thread as they have it.
const SOME_THREAD: &str = "0192abcd";

/// Answers every call, and asks for an approval once it is initialized.
const SERVER: &str = r#"while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
  [ -n "$id" ] && printf '{"id":"%s","result":{"userAgent":"x/0.169.0 (x)","turn":{"id":"u"}}}\n' "$id"
  case "$line" in *initialized*)
    printf '{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}\n'
    printf '{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","command":"ls"}}\n';;
  esac
done"#;

/// The lines of the examples that ask, in their order, without what only shows the answer.
fn examples(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("curl ") || line.starts_with("$ask "));
    lines.map(|line| line.split(" | jq").next().unwrap_or(line).to_owned()).collect()
}

/// Runs an example beside a session; returns what it asked for.
fn run(example: &str, session: &Path) -> Command {
    let script = format!(
        "S={}; ask=\"curl -s --unix-socket $S/control.sock\"; self=http://shim/sessions/self; exec {}",
        session.display(),
        example.replace(SOME_THREAD, "t")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    command
}

/// The first thing that a stream says.
fn first_of_stream(example: &str, session: &Path) -> Value {
    let mut curl = run(example, session).stdout(Stdio::piped()).spawn().expect("sh runs");
    let lines = BufReader::new(curl.stdout.take().expect("stdout is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    let first = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    curl.kill().expect("it runs");
    curl.wait().expect("it is ours");
    let first = first.unwrap_or_else(|| panic!("{example}: nothing"));
    serde_json::from_str(&first).unwrap_or_else(|_| panic!("{example}: {first}"))
}

fn answer(example: &str, session: &Path) -> Value {
    let output = run(example, session).output().expect("sh runs");
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{example}: {output:?}");
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{example}: {answer}"))
}

#[test]
fn docs_examples_for_the_control_socket_work() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: docs_examples_for_the_control_socket_work: there is no curl");
        return;
    }
    let read = |path: &str| examples(&std::fs::read_to_string(path).expect("it is there"));
    let (history, control) = (read(HISTORY), read(CONTROL));
    assert!(history.len() >= 11 && control.len() >= 17, "{history:?} {control:?}");
    let home = Home::new();
    let mut shim = home.shim(&["serve", "--session", "s", "--", "sh", "-c", SERVER]).spawn().expect("the shim starts");
    let session = home.path().join("sessions/s");
    let request = eventually("a request", || {
        let listed = client::get(&session, "/sessions/self/codex-pending-requests").ok()?;
        let listed: Value = serde_json::from_slice(&listed.body).ok()?;
        listed["requests"][0]["request_id"].as_str().map(str::to_owned)
    });
    // The last of what control.md shows is that the server is stopped.
    for example in history.iter().chain(&control) {
        let example = example.replace(SOME_REQUEST, &request);
        let answer =
            if example.contains(" -N ") { first_of_stream(&example, &session) } else { answer(&example, &session) };
        assert!(answer.get("detail").is_none(), "{example}: {answer}");
    }
    shim.kill().expect("it runs");
    shim.wait().expect("it is ours");
}

/// The commands of codex-shim in the `sh` blocks of the README and of the page on the tools, without comments.
fn commands_of_the_tools() -> Vec<String> {
    let page = [README, TOOLS].map(|path| std::fs::read_to_string(path).expect("it is there")).concat();
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(str::lines).filter(|line| line.starts_with("codex-shim "));
    commands.map(|line| line.split(" #").next().unwrap_or(line).trim().to_owned()).collect()
}

/// Tools that need a terminal, run until somebody ends them, or have tests of their own.
const NOT_RUN: [&str; 5] = ["demo", "hook", "shell", "tui", "web"];

/// A codex that says its version, and is asked for an approval when a client has initialized and when a message is sent.
const CODEX: &str = r#"[ "$1" = app-server ] || { echo codex-cli 0.169.0; exit; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case "$line" in *'"method"'*)
    [ -n "$id" ] && printf '{"id":%s,"result":{"userAgent":"x/0.169.0 (x)","turn":{"id":"u"},"thread":{"id":"t"}}}\n' "$id";;
  esac
  case "$line" in
  *initialized*)
    printf '{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}\n'
    printf '{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"m","text":"hi"}}}\n'
    for n in 0 1; do
      printf '{"id":%s,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","command":"rm -rf build"}}\n' $n
    done;;
  esac
done
"#;

#[test]
fn documented_tools_work_in_their_order() {
    let lab = Lab::new();
    lab.program("real/codex", CODEX);
    std::os::unix::fs::symlink(SHIM, lab.user.join("bin/codex-shim")).expect("a link");
    let sh = |command: &str| {
        let path = format!("{0}/bin:{0}/real:/usr/bin:/bin", lab.user.display());
        let mut sh = Command::new("sh");
        sh.args(["-c", command]).env_clear().env("PATH", path).env("HOME", &lab.user).current_dir(&lab.user);
        sh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        sh
    };
    let mut client: Option<Child> = None;
    let mut run = Vec::new();
    for command in commands_of_the_tools() {
        if NOT_RUN.iter().any(|tool| command.starts_with(&format!("codex-shim {tool}"))) {
            continue;
        }
        // The walk ends when the wrap is taken back; the rest of the page goes on with the same client.
        let given = match &*command {
            "codex-shim wrap vscode" => "codex-shim wrap vscode --yes".to_owned(),
            "codex-shim exec cargo test" => "codex-shim exec true".to_owned(),
            "codex-shim blame src/main.rs:6" => format!("mkdir src; seq 9 > src/main.rs; {command}"),
            other => other.replace(" -f", "").replace("SESSION", "latest"),
        };
        let output = sh(&given).output().expect("sh runs");
        // Two tell that this codex is not a real one.
        let is_expected = match (&*command, output.status.code()) {
            ("codex-shim doctor", Some(1)) | ("codex-shim drift", Some(2)) => true,
            (_, status) => status == Some(0),
        };
        assert!(is_expected, "{given}: {output:?}");
        if command.starts_with("codex-shim wrap") && client.is_none() {
            let link = lab.user.join(".local/state/codex-shim/bin/vscode/codex");
            let mut started = sh(&format!("exec {} app-server", link.display()));
            let mut started = started.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the client starts");
            let stdin = started.stdin.as_mut().expect("stdin is piped");
            let initialize =
                r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"vscode","version":"1"}}}"#;
            let start = r#"{"id":2,"method":"thread/start","params":{}}"#;
            writeln!(stdin, "{initialize}\n{start}\n{{\"method\":\"initialized\"}}").expect("the relay reads");
            client = Some(started);
            let waits = || {
                sh("codex-shim requests --json")
                    .output()
                    .ok()
                    .filter(|output| String::from_utf8_lossy(&output.stdout).matches("request_id").count() >= 2)
            };
            eventually("two requests", waits);
        }
        run.push(command);
    }
    assert!(run.len() >= 18, "{run:?}");
    let mut client = client.expect("the walk begins with a wrap");
    drop(client.stdin.take());
    client.wait().expect("it ends");
}

/// The first block of this language in the page on context engines that has `mark` in it.
fn engine(language: &str, mark: &str) -> String {
    let page = std::fs::read_to_string(ENGINES).expect("it is there");
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).find(|block| block.contains(mark)).expect("there is one")
}

/// A relay with the engine of the page, which `program` runs.
fn with_engine(program: &str, script: &str) -> Live {
    assert!(script.lines().count() < 60, "it fits a page");
    let home = Home::new();
    std::fs::create_dir_all(home.path()).expect("a folder");
    let path = home.beside().join("engine");
    std::fs::write(&path, script).expect("a file");
    let command = format!("[context_engine]\ncommand = [\"{program}\", \"{}\"]\ndeadline_ms = 60000\n", path.display());
    std::fs::write(home.path().join("config.toml"), command).expect("a file");
    Live::start_in(home)
}

#[test]
fn docs_engine_in_python_works() {
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: docs_engine_in_python_works: there is no python3");
        return;
    }
    let mut live = with_engine("python3", &engine("python", "import json"));
    let sent = turn(1, "a", "the giraffe is tall");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    take_place(&mut live, "a", "u1", "the giraffe is tall", "completed");
    // What was said in one thread is known in another.
    let sent = turn(2, "b", "which giraffe was it?");
    eventually("what it remembers", || {
        let shown = carried(&live.send(&sent), &sent);
        live.take_turn(2);
        (!shown.is_empty()).then_some(shown)
    });
    let sent = turn(3, "b", "which giraffe was it?");
    assert_eq!(carried(&live.send(&sent), &sent), projection("[user]\nthe giraffe is tall"));
    live.take_turn(3);
    live.end_quietly();
}

#[test]
fn docs_engine_in_shell_works() {
    let script = engine("sh", "while IFS= read -r line");
    let note = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(note.path(), "call \"the\" zoo\n").expect("a file");
    let script = format!("NOTE_FILE={}\n{script}", note.path().display());
    let mut live = with_engine("sh", &script);
    let sent = turn(1, "a", "hi");
    live.write(&format!("{sent}\n"));
    assert!(live.at_server().contains("Today is "));
    assert_eq!(carried(&live.at_server(), &sent), projection("[note]\ncall the zoo"));
    live.take_turn(1);
    live.end_quietly();
}

/// Whether a value is the default that a table tells.
fn is_documented(value: &Value, told: &str) -> bool {
    let value = value.as_str().unwrap_or_default();
    let told = told.trim_matches(|char: char| char == '`' || char == '"');
    let (time, size) =
        (|text: &str| parse_duration(text).ok(), |text: &str| text.replace([' ', '.'], "").replace("0M", "M"));
    value == told || (time(told).is_some() && time(value) == time(told)) || size(value) == size(told)
}

#[test]
fn documented_settings_are_those_of_the_program() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let mut shim = Home::new().shim(&["config", "--json"]);
    for name in setting_variables() {
        shim.env_remove(name);
    }
    let output = shim.output().expect("it runs");
    let mut settings: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let settings = settings.as_object_mut().expect("an object");
    settings.remove("home");
    let mut variables = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() >= 6) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches(['`', '[', ']']);
        let setting = settings.remove(name).unwrap_or_else(|| panic!("{name} is not a setting"));
        if cells[4].starts_with('`') && !cells[4].contains(';') {
            assert!(is_documented(&setting["value"], cells[4]), "{name}: {setting} and {}", cells[4]);
        }
        if !cells[1].contains("[[") && name != "prices" {
            let variable = name.trim_end_matches(".command").replace('.', "_").to_uppercase();
            let variable = format!("CODEX_SHIM_{variable}");
            assert!(cells[2].starts_with(&format!("`{variable}`")), "{name}: {variable}");
            variables.insert(variable);
        }
    }
    assert!(settings.is_empty(), "not in the page: {settings:?}");
    assert_eq!(variables, setting_variables().map(str::to_owned).collect());
}

#[test]
fn documented_ids_name_parts_of_a_record() {
    let page = std::fs::read_to_string(HISTORY).expect("it is there");
    assert!(page.contains("`generation:segment:offset`") && page.contains("`:part`"));
}

/// The text of README.md, CHANGELOG.md and each page in `docs`, with its path.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().expect("a folder");
    let docs = std::fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("a file").path());
    let paths = [root.join("README.md"), root.join("CHANGELOG.md")].into_iter().chain(docs);
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), std::fs::read_to_string(&path).expect("it is text"))).collect()
}

/// Lines of a page with whether they are in a fenced block.
fn lines(page: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut is_fenced = false;
    page.lines().map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (is_fenced && !is_fence, line)
    })
}

/// The anchors of a page: its headings as GitHub names them, and explicit ids.
fn anchors(page: &str) -> Vec<String> {
    let headings = lines(page).filter(|(is_fenced, line)| !is_fenced && line.starts_with('#'));
    let headings = headings.map(|(_, line)| {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    });
    let ids = page.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
    headings.chain(ids).collect()
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    let pages = pages();
    let mut count = 0;
    for (path, page) in &pages {
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let pictures = page.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for link in links.chain(pictures).filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.parent().expect("it is in a folder");
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            let target = target.canonicalize().unwrap_or_else(|error| panic!("{}: {link}: {error}", path.display()));
            let text = pages.iter().find(|(path, _)| *path == target).map_or("", |(_, text)| text);
            let is_there = anchor.is_empty() || anchors(text).iter().any(|known| known == anchor);
            assert!(is_there, "{}: {link}: there is no such heading", path.display());
            // Packages have this folder, and `codex-shim docs` its pages.
            let is_installed =
                path.ends_with("README.md") || path.ends_with("CHANGELOG.md") || target.parent() == Some(folder);
            assert!(is_installed, "{}: {link}: it leads out of the documentation", path.display());
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}

/// The sources that a text names, such as `src/lib.rs` or, by its room, `wire/mod.rs`.
fn named_sources(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |word: &&str| word.contains('/') && word.ends_with(".rs") && !word.contains(['*', '<', ' ']);
    text.split('`').filter(is_path)
}

#[test]
fn sources_that_are_named_exist() {
    let known: Vec<PathBuf> = crate::tidy::sources().into_iter().map(|(path, _)| path).collect();
    let mut count = 0;
    for (page, text) in pages() {
        for name in named_sources(&text) {
            count += 1;
            let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            let is_there = whole.is_file() || known.iter().any(|path| path.ends_with(name));
            assert!(is_there, "{}: there is no {name}", page.display());
        }
    }
    assert!(count > 50, "{count}");
}

/// A text whose wrapped comments and strings are one line each.
fn unwrapped(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let line = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| line.strip_prefix(mark));
        match (comment, text.ends_with('\\')) {
            (Some(words), _) => text.push_str(words),
            (None, true) => {
                text.pop();
                text.push_str(line);
            }
            (None, false) => {
                text.push('\n');
                text.push_str(line);
            }
        }
    }
    text
}

/// The pages that a text names as `codex-shim docs NAME`.
fn named_pages(text: &str) -> impl Iterator<Item = &str> {
    let rests = text.split("codex-shim docs ").skip(1);
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let names = rests.map(move |rest| &rest[..rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len())]);
    names.filter(|name| !name.is_empty())
}

#[test]
fn pages_that_are_named_exist() {
    let told = Home::new().shim(&["docs"]).output().expect("the shim runs");
    let told = String::from_utf8(told.stdout).expect("it is UTF-8");
    let known: Vec<&str> = told.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let sources = crate::tidy::sources().into_iter().map(|(path, text)| (path, unwrapped(&text)));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in sources.chain(pages()) {
        for name in named_pages(&text) {
            count += 1;
            if !known.contains(&name) {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "the pages are {known:?}");
    assert!(count > 5, "{count}");
}

#[test]
fn readme_is_short_and_begins_with_pictures() {
    let page = std::fs::read_to_string(README).expect("it is there");
    let words = page.split_whitespace().count();
    assert!(words <= README_WORDS_MAX, "{words} words");
    for (is_fenced, line) in lines(&page) {
        let is_block = is_fenced || line.starts_with('|') || line.starts_with("    ");
        assert!(!is_block || line.width() <= README_BLOCK_COLUMNS_MAX, "{} columns: {line}", line.width());
    }
    let begin: String = page.lines().take(README_PICTURES_LINE_MAX).collect();
    for picture in ["](docs/web-timeline.png)", "](docs/tui.svg)"] {
        assert!(begin.contains(picture), "{picture}");
    }
    for command in ["\nmake demo ", "\nmake test "] {
        assert!(page.contains(command), "{command}");
    }
}
