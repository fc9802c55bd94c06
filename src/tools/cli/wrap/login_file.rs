//! The file that has the hub started at login: a unit of systemd, or an agent of launchd. Nothing else writes one: `wrap codex` does
//! for its user, and `codex-shim login-file` prints one for the packages and their installer.
//!
//! It only builds text.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::super::{CliError, Done, screen};

/// The label of launchd's agent.
pub(super) const LABEL: &str = "codex-shim.hub";

/// The text of the unit. A name between two `@` stands for a value.
const UNIT_TEMPLATE: &str = include_str!("codex-shim-hub.service");

/// The text of the agent, as [`UNIT_TEMPLATE`].
const AGENT_TEMPLATE: &str = include_str!("codex-shim.hub.plist");

/// The comment at the top of a file of `wrap`.
const OF_WRAP: &str = "Made by `codex-shim wrap codex`; `codex-shim unwrap codex` removes it.";

/// The comment at the top of a file of a package.
const OF_PACKAGE: &str =
    "Starts the hub at login. `codex-shim wrap codex` writes one that also names your codex and PATH.";

/// Becomes the program that its first argument names. `$` is doubled, since systemd reads it too.
const BECOME: &str = r#"exec "$$0" "$$@""#;

/// What has a hub started at login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Manager {
    Systemd,
    Launchd,
}

/// Print the file that has the hub started at login
#[derive(Debug, Args)]
pub(in crate::cli) struct LoginFileArguments {
    manager: Manager,
    /// The path that codex-shim has
    program: PathBuf,
}

/// Prints the file of a package, which names no codex.
pub(in crate::cli) fn run(arguments: &LoginFileArguments) -> Done {
    let file = LoginFile::of_package(&arguments.program).map_err(CliError::failed)?;
    Ok(screen::print_exactly(&file.text(arguments.manager)))
}

/// What a hub that starts at login is started with. Each text fits on a line.
#[derive(Debug)]
pub(super) struct LoginFile {
    origin: &'static str,
    program: String,
    codex: Option<String>,
    /// Variables and their values.
    variables: Vec<(&'static str, String)>,
}

impl LoginFile {
    /// The file of `wrap codex`, which pins what a login does not know.
    pub(super) fn of_wrap(
        program: &Path,
        codex: &Path,
        variables: impl IntoIterator<Item = (&'static str, impl AsRef<OsStr>)>,
    ) -> Result<LoginFile, String> {
        let mut lines = Vec::new();
        for (name, value) in variables {
            lines.push((name, one_line(name, value.as_ref())?));
        }
        let program = one_line("the path of codex-shim", program.as_os_str())?;
        let codex = Some(one_line("the path of codex", codex.as_os_str())?);
        Ok(LoginFile { origin: OF_WRAP, program, codex, variables: lines })
    }

    fn of_package(program: &Path) -> Result<LoginFile, String> {
        if !program.is_absolute() {
            return Err(format!("{} is not an absolute path", program.display()));
        }
        let program = one_line("the path of codex-shim", program.as_os_str())?;
        Ok(LoginFile { origin: OF_PACKAGE, program, codex: None, variables: Vec::new() })
    }

    pub(super) fn text(&self, manager: Manager) -> String {
        match manager {
            Manager::Systemd => self.unit(),
            Manager::Launchd => self.agent(),
        }
    }

    /// The server of a hub outlives it, so a stop of the unit ends only the hub. A hub that ends with status 0 was told to.
    fn unit(&self) -> String {
        // systemd takes no program whose path has a quotation mark or a backslash, and reads `$` only in arguments.
        let program = match self.program.contains(['"', '\'', '\\', '$']) {
            false => quoted(&self.program),
            true => format!("/bin/sh -c {} {}", quoted(BECOME), argument(&self.program)),
        };
        let codex = self.codex.as_ref().map(|codex| format!(" --codex {}", argument(codex))).unwrap_or_default();
        let variable = |(name, value): &(&str, String)| format!("Environment={}\n", quoted(&format!("{name}={value}")));
        let variables: String = self.variables.iter().map(variable).collect();
        let values = [("ORIGIN", self.origin), ("PROGRAM", &program), ("CODEX", &codex), ("VARIABLES", &variables)];
        filled(UNIT_TEMPLATE, &values)
    }

    fn agent(&self) -> String {
        let string = |text: &str| format!("        <string>{}</string>\n", escaped(text));
        let key = |(name, value): &(&str, String)| format!("        <key>{name}</key>\n{}", string(value));
        let variables: String = self.variables.iter().map(key).collect();
        let codex = self.codex.as_ref().map(|codex| string("--codex") + &string(codex)).unwrap_or_default();
        let program = escaped(&self.program);
        let values = [("ORIGIN", self.origin), ("PROGRAM", &program), ("CODEX", &codex), ("VARIABLES", &variables)];
        filled(AGENT_TEMPLATE, &values)
    }
}

/// A text that can be a line of a unit, and is valid in XML.
fn one_line(what: &str, text: &OsStr) -> Result<String, String> {
    let is_refused = |char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}');
    let line = text.to_str().filter(|text| !text.contains(is_refused));
    line.map(str::to_owned)
        .ok_or_else(|| format!("{what} cannot be written to a file of the login: {}", text.display()))
}

/// A template with its names, each between two `@`, replaced by their values.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let value = |name| values.iter().find(|(of, _)| *of == name).map_or("", |(_, value)| *value);
    let parts = template.split('@').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { value(part) }).collect()
}

/// A word of a unit, in quotation marks.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// An argument of a command in a unit.
fn argument(text: &str) -> String {
    quoted(text).replace('$', "$$")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of folders that a unit or an agent could read as something else.
    const NAMES: [&str; 20] = [
        "plain",
        "a b",
        " blank",
        "blank ",
        "100%",
        "%h",
        "%%",
        "a&b",
        "<a>",
        "]]>",
        "\"quoted\"",
        "it's",
        "a\\b",
        "\\x41\\",
        "$HOME",
        "${HOME}",
        "$$",
        "@PROGRAM@",
        "a=b;c #d",
        "ä-日本-😀",
    ];

    /// The words of a command in a unit, or of a value: as systemd.syntax(7), systemd.unit(5) and systemd.service(5) say. A
    /// variable that it would replace, and a path of a program that it would refuse, are errors.
    fn words(value: &str, is_command: bool) -> Result<Vec<String>, String> {
        let (mut words, mut chars) = (Vec::new(), value.chars().peekable());
        while chars.peek().is_some() {
            let quote = chars.next_if_eq(&'"');
            let mut word = String::new();
            loop {
                match chars.next() {
                    Some('"') if quote.is_some() => break,
                    Some(' ') if quote.is_none() => break,
                    None if quote.is_none() => break,
                    None => return Err("it does not end".to_owned()),
                    Some('\\') => word.push(chars.next().filter(|char| "\\\"".contains(*char)).ok_or("an escape")?),
                    Some('%') => word.push(chars.next_if_eq(&'%').ok_or("a specifier")?),
                    Some('$') if is_command && !words.is_empty() => {
                        word.push(chars.next_if_eq(&'$').ok_or("a variable")?);
                    }
                    Some(char) => word.push(char),
                }
            }
            if quote.is_some() {
                chars.next_if_eq(&' ');
            }
            if is_command && words.is_empty() && word.contains(['"', '\'', '\\', '$']) {
                return Err(format!("a program {word}"));
            }
            words.push(word);
        }
        Ok(words)
    }

    /// What the kernel gets at last: the shell becomes its first argument.
    fn started(mut words: Vec<String>) -> Vec<String> {
        if words[..2] == ["/bin/sh", "-c"] {
            assert_eq!(words[2], "exec \"$0\" \"$@\"");
            words.drain(..3);
        }
        words
    }

    /// The texts between `<string>` and its end.
    fn strings(agent: &str) -> Vec<String> {
        let text = |part: &str| part.split_once("</string>").expect("it ends").0.to_owned();
        let unescaped = |text: String| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        agent.split("<string>").skip(1).map(text).map(unescaped).collect()
    }

    #[test]
    fn paths_are_read_as_they_are() {
        for name in NAMES {
            let [program, codex] = ["codex-shim", "codex"].map(|file| format!("/{name}/{file}"));
            let variables = [("PATH", format!("/bin:/{name}")), ("CODEX_HOME", format!("/{name}"))];
            let file = LoginFile::of_wrap(program.as_ref(), codex.as_ref(), variables.clone()).expect("it fits");
            let unit = file.text(Manager::Systemd);
            let values = |member: &str, is_command| -> Vec<String> {
                let lines = unit.lines().filter_map(|line| line.strip_prefix(member));
                let read = |value| words(value, is_command).unwrap_or_else(|why| panic!("{why}: {value}"));
                lines.flat_map(read).collect()
            };
            assert_eq!(started(values("ExecStart=", true)), [&*program, "hub", "--codex", &*codex]);
            let expected = variables.clone().map(|(name, value)| format!("{name}={value}"));
            assert_eq!(values("Environment=", false), expected);
            let [path, home] = variables.map(|(_, value)| value);
            let agent = file.text(Manager::Launchd);
            assert_eq!(strings(&agent), [LABEL, &program, "hub", "--codex", &codex, &path, &home]);
            let file = LoginFile::of_package(program.as_ref()).expect("it fits");
            let unit = file.text(Manager::Systemd);
            let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
            assert_eq!(started(words(command, true).expect("words")), [&*program, "hub"]);
            assert_eq!(strings(&file.text(Manager::Launchd)), [LABEL, &program, "hub"]);
        }
    }

    #[test]
    fn usual_paths_give_usual_files() {
        let variables = [("PATH", "/usr/bin:/bin")];
        let file = LoginFile::of_wrap("/bin/codex-shim".as_ref(), "/opt/codex".as_ref(), variables).expect("it fits");
        let unit = file.text(Manager::Systemd);
        let lines: Vec<&str> = unit.lines().collect();
        assert!(lines.contains(&r#"ExecStart="/bin/codex-shim" hub --codex "/opt/codex""#), "{unit}");
        assert!(lines.contains(&r#"Environment="PATH=/usr/bin:/bin""#), "{unit}");
        let comment = "# Made by `codex-shim wrap codex`; `codex-shim unwrap codex` removes it.";
        assert_eq!((lines[0], lines[1]), (comment, "[Unit]"), "an upgrade must not change the file: {unit}");
        assert!(unit.ends_with("\n\n[Install]\nWantedBy=default.target\n") && !unit.contains('@'), "{unit}");
        let agent = file.text(Manager::Launchd);
        assert_eq!(agent.matches("<dict>").count(), agent.matches("</dict>").count());
        let codex = "        <string>--codex</string>\n        <string>/opt/codex</string>\n    </array>\n";
        assert!(agent.contains(codex) && !agent.contains(['@', '\t']), "{agent}");
    }

    #[test]
    fn paths_that_fit_no_line_are_refused() {
        for path in ["/a\n[Service]", "/a\tb", "/a\u{7f}", "/a\u{85}b", "/a\u{ffff}"] {
            assert!(LoginFile::of_package(path.as_ref()).is_err(), "{path:?}");
            assert!(LoginFile::of_wrap("/a".as_ref(), "/b".as_ref(), [("PATH", path)]).is_err(), "{path:?}");
        }
        assert!(LoginFile::of_package("codex-shim".as_ref()).is_err());
    }
}
