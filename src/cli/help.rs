//! Help: clap's text for a command, then notes and examples exactly as written.
//!
//! clap wraps everything that it prints, which would break examples in the middle of a command. Notes and examples therefore
//! bypass clap. They are at most 80 columns wide in the source, which a test checks.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;

/// Widest line of a note or an example.
#[cfg(test)]
const COLUMNS_MAX: usize = 80;

/// The commands of `codex-shim --help` in groups, each in the order in which a new user meets them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start here", &["demo", "wrap", "unwrap", "doctor", "status", "sessions"]),
    ("Answer and talk", &["tui", "requests", "show", "respond", "send", "interrupt", "wait"]),
    ("Show the model your terminal", &["exec", "hook", "shell", "context", "watch-pty", "fragments"]),
    ("See what happened", &["tail", "events", "transcript", "children"]),
    ("Relay a server", &["run", "serve", "attach"]),
    ("Record and replay", &["tape", "replay"]),
    ("Settings and maintenance", &["config", "prune", "redact", "completions", "help"]),
];

/// The help for the command line `args`; `is_long` for `--help`, which includes notes and examples.
pub(super) fn render(mut root: Command, args: &[OsString], is_long: bool) -> StyledStr {
    root.build();
    let meant = meant(&root, args);
    let notes = meant.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let is_root = meant.get_name() == root.get_name();
    // clap's long help puts each option's text on separate lines; here options stay in columns.
    let mut command = meant.clone().mut_arg("help", |arg| arg.help("Print help; --help also prints examples"));
    if let (true, Some(about)) = (is_long, meant.get_long_about()) {
        command = command.about(about.clone());
    }
    if is_root {
        command = command.help_template(ROOT_TEMPLATE);
    }
    let mut text = command.render_help();
    // Writing to memory does not fail.
    if is_root {
        let _ = write!(text, "\n{}", groups(&root));
    }
    if is_long && !notes.is_empty() {
        let _ = write!(text, "\n{notes}\n");
    }
    text
}

/// The help of the root command without clap's list of commands, which [`groups`] replaces.
const ROOT_TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\nOptions:\n{options}\n";

/// The command that a command line names: `context push --cmd x`, `help context push`.
fn meant<'a>(root: &'a Command, args: &[OsString]) -> &'a Command {
    let mut command = root;
    for arg in args.iter().filter_map(|arg| arg.to_str()).filter(|arg| *arg != "help") {
        match command.find_subcommand(arg) {
            Some(found) => command = found,
            None => break,
        }
    }
    command
}

/// The commands grouped under headings.
fn groups(root: &Command) -> String {
    let mut text = String::new();
    let style = root.get_styles().get_header();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{style}{heading}:{style:#}");
        for name in names {
            let about = match *name {
                "help" => Some("Print the help of a command".to_owned()),
                name => root.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string),
            };
            let _ = writeln!(text, "  {name:12} {}", about.unwrap_or_default());
        }
        text.push('\n');
    }
    text.pop();
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::args::Arguments;
    use super::*;

    fn every(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
        check(command, path);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            every(below, &format!("{path} {}", below.get_name()), check);
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let root = Arguments::command();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let count = listed.iter().filter(|name| **name == command.get_name()).count();
            assert_eq!(count, 1, "{} is in {count} groups", command.get_name());
        }
        let exists = |name: &&str| *name == "help" || root.find_subcommand(name).is_some();
        assert!(listed.iter().all(exists), "{listed:?}");
    }

    #[test]
    fn notes_and_examples_fit_80_columns() {
        let mut wide = Vec::new();
        every(&Arguments::command(), "codex-shim", &mut |command, path| {
            let notes = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            wide.extend(
                notes.lines().filter(|line| line.chars().count() > COLUMNS_MAX).map(|line| format!("{path}: {line}")),
            );
            // The list of commands puts the name in front of it.
            if path.contains(' ') && about.chars().count() > COLUMNS_MAX - 15 {
                wide.push(format!("{path}: about: {about}"));
            }
        });
        assert!(wide.is_empty(), "{} lines are too wide:\n{}", wide.len(), wide.join("\n"));
    }

    #[test]
    fn help_prints_examples_verbatim() {
        let args = ["send", "--help"].map(OsString::from);
        let text = render(Arguments::command(), &args, true).to_string();
        assert!(text.contains("\n  git diff | codex-shim send - --json | jq -r .turn_id\n"), "{text}");
        assert!(text.contains("Usage: codex-shim send [OPTIONS] <TEXT>"), "{text}");
        let below = render(Arguments::command(), &["help", "context", "push"].map(OsString::from), true).to_string();
        assert!(below.contains("Usage: codex-shim context push [OPTIONS]"), "{below}");
        let root = render(Arguments::command(), &[], true).to_string();
        assert!(root.contains("\n\nStart here:\n  demo "), "{root}");
        let in_option = render(Arguments::command(), &["events", "--type", "tail", "--help"].map(OsString::from), true);
        assert!(in_option.to_string().contains("Usage: codex-shim events [OPTIONS]"));
    }

    #[test]
    fn no_help_is_wider_than_80_columns() {
        let mut wide = Vec::new();
        every(&Arguments::command(), "", &mut |_, path| {
            let args: Vec<OsString> = path.split_whitespace().map(OsString::from).collect();
            let text = render(Arguments::command(), &args, true).to_string();
            assert!(text.contains("Examples"), "{path}: {text}");
            let lines = text.lines().filter(|line| line.chars().count() > COLUMNS_MAX);
            wide.extend(lines.map(|line| format!("{path}: {line}")));
        });
        assert!(wide.is_empty(), "{} lines are too wide:\n{}", wide.len(), wide.join("\n"));
    }
}
