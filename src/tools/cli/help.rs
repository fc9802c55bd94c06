//! Help: clap's text for a command, then notes and examples exactly as written.
//!
//! clap wraps everything that it prints, which would break examples in the middle of a command. Notes and examples therefore
//! bypass clap. They are at most 80 columns wide in the source, which a test checks. On a narrower terminal [`narrowed`]
//! breaks lines between words, because the terminal would break them within words.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use unicode_width::UnicodeWidthStr as _;

use super::{GROUPS, screen};

/// Widest line of a note or an example.
const COLUMNS_MAX: usize = 80;

/// The help for the command line `args`, with styles; `is_long` for `--help`, which includes notes and examples.
pub(super) fn render(mut root: Command, args: &[OsString], is_long: bool, columns: Option<usize>) -> String {
    root.build();
    let meant = meant(&root, args);
    let notes = meant.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let is_root = meant.get_name() == root.get_name();
    // clap's long help puts each option's text on separate lines; here options stay in columns.
    let mut command = meant
        .clone()
        .term_width(columns.unwrap_or(COLUMNS_MAX).min(COLUMNS_MAX))
        .mut_arg("help", |arg| arg.help("Print help; --help also prints examples"));
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
    narrowed(&text.ansi().to_string(), columns)
}

/// The text of a usage error, with styles. An option that belongs after another command gets a tip that names the command.
pub(super) fn usage_error(
    mut error: clap::Error,
    mut root: Command,
    args: &[OsString],
    columns: Option<usize>,
) -> String {
    root.build();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && meant(&root, args).has_subcommands()
        && let Some(usage) = usage_of(&root, option)
    {
        let tip = StyledStr::from(format!("'{option}' is an option of a command, as in `{usage}`"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    narrowed(&error.render().ansi().to_string(), columns)
}

/// `codex-shim run --codex PATH`: a command that takes the option. Options of a relay come first: a client that starts
/// codex-shim passes them most often.
fn usage_of(root: &Command, option: &str) -> Option<String> {
    let long = option.split('=').next()?.strip_prefix("--")?;
    let names = ["run", "status"].into_iter().chain(GROUPS.iter().flat_map(|(_, names)| names.iter().copied()));
    let commands = names.filter_map(|name| root.find_subcommand(name));
    let (command, arg) = commands.flat_map(with_nested).find_map(|command| {
        command.get_arguments().find(|arg| arg.get_long() == Some(long)).map(|arg| (command, arg))
    })?;
    let values = arg.get_value_names().unwrap_or_default().iter().map(|name| format!(" {name}"));
    let values: String = if takes_values(arg) { values.collect() } else { String::new() };
    Some(format!("{} --{long}{values}", command.get_bin_name()?))
}

fn takes_values(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.takes_values())
}

fn with_nested(command: &Command) -> impl Iterator<Item = &Command> {
    std::iter::once(command).chain(command.get_subcommands())
}

/// Help whose lines fit the terminal. Help that fits stays as it is; else sentences over several lines are joined first.
fn narrowed(text: &str, columns: Option<usize>) -> String {
    let bare = |line: &str| anstream::adapter::strip_str(line).to_string();
    let Some(columns_max) = columns.filter(|columns| text.lines().any(|line| bare(line).width() > *columns)) else {
        return text.to_owned();
    };
    let mut lines: Vec<String> = Vec::new();
    // The column at which the text of the last line begins; `None` if the next line does not continue it.
    let mut goes_on_at = None;
    for line in text.lines() {
        let plain = bare(line);
        let indent = plain.len() - plain.trim_start().len();
        let text_column = match plain[indent..].split_once("  ") {
            Some((_, text)) if indent > 0 => plain.width() - text.trim_start().width(),
            Some(_) | None => indent,
        };
        let begins_text = text_column > indent || indent == 0;
        match lines.last_mut() {
            Some(last) if goes_on_at == Some(indent) && text_column == indent && !plain.is_empty() => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            Some(_) | None => {
                lines.push(line.to_owned());
                goes_on_at = Some(text_column).filter(|_| begins_text && !plain.is_empty());
            }
        }
        goes_on_at = goes_on_at.filter(|_| !plain.ends_with(':'));
    }
    let fitted = lines.iter().map(|line| screen::fitted(line, Some(columns_max)));
    fitted.map(|line| format!("{}\n", line.trim_end())).collect()
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
        for name in *names {
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

    use super::super::Arguments;

    use super::*;

    /// The long help without styles.
    fn rendered(args: &[OsString]) -> String {
        anstream::adapter::strip_str(&render(Arguments::command(), args, true, None)).to_string()
    }

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
        let text = rendered(&args);
        assert!(text.contains("\n  git diff | codex-shim send - --json | jq -r .turn_id\n"), "{text}");
        assert!(text.contains("Usage: codex-shim send [OPTIONS] <TEXT>"), "{text}");
        let below = rendered(&["help", "context", "push"].map(OsString::from));
        assert!(below.contains("Usage: codex-shim context push [OPTIONS]"), "{below}");
        let root = rendered(&[]);
        assert!(root.contains("\n\nStart here:\n  demo "), "{root}");
        let in_option = rendered(&["events", "--type", "tail", "--help"].map(OsString::from));
        assert!(in_option.contains("Usage: codex-shim events [OPTIONS]"));
    }

    #[test]
    fn narrow_text_breaks_between_words() {
        let check = |text: &str, expect: &str| assert_eq!(narrowed(text, Some(40)), expect);
        let text = "Exit status: that of the command, or 128 + n if\nsignal n ended it.\n\nExamples:\n";
        check(text, "Exit status: that of the command, or 128\n+ n if signal n ended it.\n\nExamples:\n");
        let text = "Exit status:\n  1  it did not, or a request is pending,\n     or the time is over\n  4  it ended\n";
        check(
            text,
            "Exit status:\n  1  it did not, or a request is\n     pending, or the time is over\n  4  it ended\n",
        );
        let text =
            "  shim status                is the relay in this folder well?\n  shim tui                   everything\n";
        check(
            text,
            "  shim status\n      is the relay in this folder well?\n  shim tui                   everything\n",
        );
        let text = "  git diff | codex-shim send - --json | jq -r .turn_id\n  codex-shim send x\n";
        check(text, "  git diff | codex-shim send - --json |\n    jq -r .turn_id\n  codex-shim send x\n");
        let fits = "a  b\n  c\nd e\n";
        check(fits, fits);
    }

    #[test]
    fn no_help_names_a_file_of_the_sources() {
        let mut found = Vec::new();
        every(&Arguments::command(), "", &mut |_, path| {
            let args: Vec<OsString> = path.split_whitespace().map(OsString::from).collect();
            let text = rendered(&args);
            let lines =
                text.lines().filter(|line| ["docs/", "README", "CHANGELOG"].iter().any(|name| line.contains(name)));
            found.extend(lines.map(|line| format!("{path}: {line}")));
        });
        assert!(found.is_empty(), "name `codex-shim docs NAME`:\n{}", found.join("\n"));
    }

    #[test]
    fn no_help_is_wider_than_80_columns() {
        let mut wide = Vec::new();
        every(&Arguments::command(), "", &mut |_, path| {
            let args: Vec<OsString> = path.split_whitespace().map(OsString::from).collect();
            let text = rendered(&args);
            assert!(text.contains("Examples"), "{path}: {text}");
            let lines = text.lines().filter(|line| line.chars().count() > COLUMNS_MAX);
            wide.extend(lines.map(|line| format!("{path}: {line}")));
        });
        assert!(wide.is_empty(), "{} lines are too wide:\n{}", wide.len(), wide.join("\n"));
    }
}
