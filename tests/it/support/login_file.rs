//! What systemd and launchd read in the files that have a hub started at login.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A name of a folder with most characters that a unit, an agent or a shell could read as something else.
pub const ODD_NAME: &str = "it's \"100%\" a\\b $HOME ${X} & <ä> @b|";

/// The words of a value in a unit: in quotation marks, with a backslash before what it escapes, and `%` and `$` doubled.
fn words(value: &str, is_command: bool) -> Vec<String> {
    let (mut words, mut chars) = (Vec::new(), value.chars().peekable());
    while chars.peek().is_some() {
        let quote = chars.next_if_eq(&'"');
        let mut word = String::new();
        while let Some(char) = chars.next() {
            match char {
                '"' if quote.is_some() => break,
                ' ' if quote.is_none() => break,
                '\\' => word.extend(chars.next()),
                '%' => assert_eq!(chars.next(), Some('%'), "a specifier in {value}"),
                '$' if is_command && !words.is_empty() => {
                    assert_eq!(chars.next(), Some('$'), "a variable in {value}");
                }
                _ => {}
            }
            if char != '\\' {
                word.push(char);
            }
        }
        chars.next_if(|char| quote.is_some() && *char == ' ');
        words.push(word);
    }
    words
}

/// The command of a unit, in the environment of the unit.
pub fn command_of(unit: &str) -> Command {
    let values = |member: &str, is_command| -> Vec<String> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(member));
        lines.flat_map(|value| words(value, is_command)).collect()
    };
    let started = values("ExecStart=", true);
    let mut command = Command::new(&started[0]);
    command.args(&started[1..]).env_clear().stdin(Stdio::null());
    for variable in values("Environment=", false) {
        let (name, value) = variable.split_once('=').expect("a variable");
        command.env(name, value);
    }
    command
}

/// Has systemd check a unit, if it is installed. Programs that do not exist are errors to it, too.
pub fn systemd_accepts(unit: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("checked.service");
    fs::write(&file, unit).expect("a file");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(&file).env("XDG_RUNTIME_DIR", folder.path());
    match verify.stdin(Stdio::null()).output() {
        Err(_) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: there is no systemd-analyze to check a unit");
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let about: Vec<&str> = said.lines().filter(|line| line.contains("checked.service")).collect();
            assert!(about.is_empty(), "{about:?}\n{unit}");
        }
    }
}

/// The members of an agent, as a parser of property lists reads them; `None` if there is no Python for that.
pub fn members_of(agent: &[u8]) -> Option<Value> {
    let script = "import json, plistlib, sys; print(json.dumps(plistlib.loads(sys.stdin.buffer.read())))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = python.spawn() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no python3 to read a property list");
        return None;
    };
    python.stdin.take().expect("it is piped").write_all(agent).expect("it reads");
    let output = python.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(agent));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// PATH with a folder before those of the system.
pub fn path_with(folder: &Path) -> OsString {
    std::env::join_paths([folder, Path::new("/usr/bin"), Path::new("/bin")]).expect("no colon in them")
}
