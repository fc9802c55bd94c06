//! The rules: `[[rules]]` in the config file. No variable sets them.
//!
//! An invalid rule is left out, with a message that says how to correct it, and matches nothing; the others remain in effect.
//! Every member must be known: a misspelled condition must not make a rule more general than it was meant to be.

use toml::{Table, Value};

use super::kind::{list, quoted};
use super::sources::{Sources, article};
use super::{Complaint, Setting, SettingRow, Source};
use crate::engine::{Does, ExactCommand, Matcher, Rule, RuleAction, RulePlace, Subject, Trust, Words, is_whole_path};

const RULES_MAX: usize = 256;

const NAME_BYTES_MAX: usize = 64;

/// Limit of a reason for the model, in bytes.
const REASON_BYTES_MAX: usize = 2_000;

const MEMBERS: [&str; 8] =
    ["name", "match", "action", "reason", "shell", "trust_path", "trust_terminal", "trust_repository"];

/// The members of `match` for each kind.
const KINDS: [(&str, Subject, &[&str]); 5] = [
    ("command", Subject::Command, &["kind", "argv", "argv_prefix", "cwd", "cwd_below"]),
    ("file_change", Subject::Diff, &["kind", "path_below"]),
    ("permissions", Subject::Permissions, &["kind", "cwd", "cwd_below"]),
    ("question", Subject::Questions, &["kind"]),
    ("elicitation", Subject::Elicitation, &["kind"]),
];

pub(super) fn resolve(sources: &mut Sources<'_>) -> Setting<Vec<Rule>> {
    let Some(listed) = sources.tables("rules") else {
        return Setting { value: Vec::new(), source: Source::Default };
    };
    let (value, complaints) = listed_rules(listed, "config.toml");
    sources.complaints.extend(complaints);
    Setting { value, source: Source::File }
}

/// The valid rules of a list, and complaints about the others.
fn listed_rules(listed: Vec<Value>, file: &str) -> (Vec<Rule>, Vec<Complaint>) {
    let (mut kept, mut complaints): (Vec<Rule>, Vec<Complaint>) = (Vec::new(), Vec::new());
    for (index, value) in listed.into_iter().enumerate() {
        match rule(&value, &kept) {
            Ok(rule) => kept.push(rule),
            Err(why) => {
                let named = value.get("name").and_then(Value::as_str).map(|name| format!(" (`{name}`)"));
                let number = index + 1;
                complaints.push(Complaint(format!(
                    "{file}: rule {number}{}: {why}; the rule matches nothing",
                    named.unwrap_or_default()
                )));
            }
        }
    }
    (kept, complaints)
}

/// The rules of a file that is not in use, such as a proposal.
///
/// # Errors
///
/// A message, if the file is not valid TOML, has no rules, or has an invalid one.
pub fn rules_in(text: &str, file: &str) -> Result<Vec<Rule>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| format!("{file}: {}", error.message()))?;
    let listed = match table.get("rules") {
        Some(Value::Array(listed)) if !listed.is_empty() => listed.clone(),
        Some(_) | None => return Err(format!("{file} has no rules: write them as `[[rules]]`")),
    };
    let (rules, complaints) = listed_rules(listed, file);
    match complaints.into_iter().next() {
        None => Ok(rules),
        Some(Complaint(why)) => Err(why),
    }
}

pub(super) fn row(setting: &Setting<Vec<Rule>>) -> SettingRow {
    let shown = |rule: &Rule| format!("{} ({})", rule.name(), rule.action().name());
    let rules = &setting.value;
    SettingRow {
        name: "rules",
        value: Some(rules.iter().map(shown).collect::<Vec<_>>().join("; ")),
        toml: Some(format!("[{}]", rules.iter().map(inline_table).collect::<Vec<_>>().join(", "))),
        source: setting.source.clone(),
    }
}

/// The members of a rule beside its name, `match` and action.
fn other_members(rule: &Rule) -> Vec<(&'static str, String)> {
    match rule.does() {
        Does::Accept(exact) => {
            let Trust { path, terminal, repository } = exact.trust();
            let trusted = [("trust_path", path), ("trust_terminal", terminal), ("trust_repository", repository)];
            let trusted = trusted.iter().filter(|(_, trust)| *trust).map(|(name, _)| (*name, "true".to_owned()));
            exact.shell().map(|shell| ("shell", quoted(shell))).into_iter().chain(trusted).collect()
        }
        Does::Decline { of: _, reason: Some(reason) } => vec![("reason", quoted(reason))],
        Does::Decline { .. } | Does::Hold { .. } => Vec::new(),
    }
}

/// A rule as a TOML inline table.
fn inline_table(rule: &Rule) -> String {
    let rest: String = other_members(rule).iter().map(|(name, value)| format!(", {name} = {value}")).collect();
    let (name, action) = (quoted(rule.name()), rule.action().name());
    format!("{{ name = {name}, match = {{ {} }}, action = \"{action}\"{rest} }}", conditions(rule))
}

/// A rule as it stands in the file.
pub fn rule_in_file(rule: &Rule) -> String {
    let rest: String = other_members(rule).iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    let (name, action) = (quoted(rule.name()), rule.action().name());
    format!("[[rules]]\nname = {name}\nmatch = {{ {} }}\naction = \"{action}\"\n{rest}", conditions(rule))
}

/// The members of a rule's `match`, in the syntax of the file.
pub fn conditions(rule: &Rule) -> String {
    match rule.does() {
        Does::Accept(exact) => {
            format!("kind = \"command\", argv = {}, cwd = {}", list(exact.argv()), quoted(exact.cwd()))
        }
        Does::Decline { of, reason: _ } | Does::Hold { of } => of_matcher(of).join(", "),
    }
}

fn of_matcher(matcher: &Matcher) -> Vec<String> {
    let kind = KINDS.iter().find(|(_, subject, _)| *subject == matcher.subject()).map_or("", |(kind, ..)| kind);
    let place = |place: &RulePlace| match place {
        RulePlace::Exactly(folder) => format!("cwd = {}", quoted(folder)),
        RulePlace::Below(folder) => format!("cwd_below = {}", quoted(folder)),
    };
    let words = |words: &Words| match words {
        Words::All(words) => format!("argv = {}", list(words)),
        Words::First(words) => format!("argv_prefix = {}", list(words)),
    };
    let (argv, cwd, below) = match matcher {
        Matcher::Command { argv, cwd } => (argv.as_ref().map(words), cwd.as_ref().map(place), None),
        Matcher::Permissions { cwd } => (None, cwd.as_ref().map(place), None),
        Matcher::FileChange { below } => {
            (None, None, below.as_ref().map(|below| format!("path_below = {}", quoted(below))))
        }
        Matcher::Questions | Matcher::Elicitation => (None, None, None),
    };
    std::iter::once(format!("kind = \"{kind}\"")).chain(argv).chain(cwd).chain(below).collect()
}

fn rule(value: &Value, others: &[Rule]) -> Result<Rule, String> {
    let Value::Table(table) = value else {
        let kind = value.type_str();
        return Err(format!("{} {kind} is not valid here; use a table: `[[rules]]`", article(kind)));
    };
    known_members(table, &MEMBERS)?;
    let name = text(table, "name")?.ok_or("it has no name: add `name = \"…\"`")?;
    check_name(&name, others)?;
    if others.len() >= RULES_MAX {
        return Err(format!("the limit is {RULES_MAX} rules"));
    }
    let action = match text(table, "action")?.as_deref() {
        Some("accept") => RuleAction::Accept,
        Some("decline") => RuleAction::Decline,
        Some("hold") => RuleAction::Hold,
        Some(other) => return Err(format!("action: `{other}` is neither `accept`, `decline` nor `hold`")),
        None => return Err("it has no action: add `action = \"accept\"`, `\"decline\"` or `\"hold\"`".to_owned()),
    };
    let matches = match table.get("match") {
        Some(Value::Table(matches)) => matches,
        Some(_) => return Err("match: it must be a table, such as { kind = \"command\" }".to_owned()),
        None => return Err("it has no `match`: add `match = { kind = \"command\", … }`".to_owned()),
    };
    let reason = text(table, "reason")?.filter(|reason| !reason.trim().is_empty());
    if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(format!("reason: the limit is {REASON_BYTES_MAX} bytes"));
    }
    if reason.is_some() && action != RuleAction::Decline {
        return Err("reason: it goes with `action = \"decline\"` only".to_owned());
    }
    let of_accept = ["shell", "trust_path", "trust_terminal", "trust_repository"];
    if let Some(name) = of_accept.into_iter().find(|name| action != RuleAction::Accept && table.contains_key(*name)) {
        return Err(format!("{name}: it goes with `action = \"accept\"` only"));
    }
    let does = match action {
        RuleAction::Accept => Does::Accept(exact_command(matches, trust(table)?, text(table, "shell")?)?),
        RuleAction::Decline => Does::Decline { of: matcher(matches)?, reason },
        RuleAction::Hold => Does::Hold { of: matcher(matches)? },
    };
    Ok(Rule { name, does })
}

fn check_name(name: &str, others: &[Rule]) -> Result<(), String> {
    let is_good =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control) && name.trim() == name;
    if !is_good {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, no control characters, and no space at its ends"));
    }
    if others.iter().any(|other| other.name == name) {
        return Err("an earlier rule has this name: choose another one".to_owned());
    }
    Ok(())
}

/// What an accept rule matches: a whole command and its folder.
fn exact_command(table: &Table, trust: Trust, shell: Option<String>) -> Result<ExactCommand, String> {
    let (kind, _, members) = kind(table)?;
    if kind != "command" {
        return Err(format!("match.kind: a rule can decline or hold `{kind}`, but accepts only `command`"));
    }
    known_members(table, members)?;
    if let Some(general) = ["argv_prefix", "cwd_below"].into_iter().find(|name| table.contains_key(*name)) {
        return Err(format!(
            "match.{general}: a rule accepts only one whole command in one folder: use `argv` and `cwd`"
        ));
    }
    let argv = words(table, "argv")?.ok_or("match: a rule that accepts needs `argv`, the whole command")?;
    let cwd = text(table, "cwd")?.ok_or("match: a rule that accepts needs `cwd`, the folder of the command")?;
    let in_match = |why: String| if why.starts_with("shell:") { why } else { format!("match.{why}") };
    ExactCommand::new(argv, cwd, trust, shell).map_err(in_match)
}

fn trust(table: &Table) -> Result<Trust, String> {
    let is_set = |name: &str| match table.get(name) {
        None => Ok(false),
        Some(Value::Boolean(is_set)) => Ok(*is_set),
        Some(_) => Err(format!("{name}: it must be true or false")),
    };
    Ok(Trust {
        path: is_set("trust_path")?,
        terminal: is_set("trust_terminal")?,
        repository: is_set("trust_repository")?,
    })
}

fn matcher(table: &Table) -> Result<Matcher, String> {
    let (_, subject, members) = kind(table)?;
    known_members(table, members)?;
    let cwd = match (folder(table, "cwd")?, folder(table, "cwd_below")?) {
        (None, None) => None,
        (Some(cwd), None) => Some(RulePlace::Exactly(cwd)),
        (None, Some(folder)) => Some(RulePlace::Below(folder)),
        (Some(_), Some(_)) => return Err("match: it has both `cwd` and `cwd_below`: keep one".to_owned()),
    };
    Ok(match subject {
        Subject::Command => {
            let argv = match (words(table, "argv")?, words(table, "argv_prefix")?) {
                (None, None) => None,
                (Some(all), None) => Some(Words::All(all)),
                (None, Some(first)) => Some(Words::First(first)),
                (Some(_), Some(_)) => return Err("match: it has both `argv` and `argv_prefix`: keep one".to_owned()),
            };
            Matcher::Command { argv, cwd }
        }
        Subject::Diff => Matcher::FileChange { below: folder(table, "path_below")? },
        Subject::Permissions => Matcher::Permissions { cwd },
        Subject::Questions => Matcher::Questions,
        Subject::Elicitation => Matcher::Elicitation,
    })
}

fn kind(table: &Table) -> Result<(&'static str, Subject, &'static [&'static str]), String> {
    let names = || KINDS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let given = text(table, "kind")?.ok_or_else(|| format!("match: it has no `kind`; the kinds are {}", names()))?;
    let known = KINDS.iter().find(|(name, ..)| *name == given);
    known.copied().ok_or_else(|| format!("match.kind: unknown kind `{given}`; the kinds are {}", names()))
}

fn known_members(table: &Table, known: &[&str]) -> Result<(), String> {
    match table.keys().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(format!("unknown member `{unknown}`; the members are {}", known.join(", "))),
        None => Ok(()),
    }
}

fn folder(table: &Table, name: &str) -> Result<Option<String>, String> {
    match text(table, name)? {
        Some(folder) if !is_whole_path(&folder) => {
            Err(format!("match.{name}: `{folder}` is not an absolute path without `.`, `..` and a slash at its end"))
        }
        folder => Ok(folder),
    }
}

fn text(table: &Table, name: &str) -> Result<Option<String>, String> {
    match table.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => {
            Err(format!("{name}: it must be a string, not {} {}", article(other.type_str()), other.type_str()))
        }
    }
}

fn words(table: &Table, name: &str) -> Result<Option<Vec<String>>, String> {
    let wrong = || format!("match.{name}: it must be a list of words, such as [\"git\", \"status\"]");
    let words = match table.get(name) {
        None => return Ok(None),
        Some(Value::Array(words)) => {
            words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        }
        Some(_) => None,
    };
    words.filter(|words| !words.is_empty()).map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, Flags, Settings};

    fn load(file: &str) -> (Settings, Vec<String>) {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(home.path().join("config.toml"), file).expect("BUG: it can be written to");
        let path = home.path().as_os_str().to_owned();
        let environment = Environment::of(move |wanted| (wanted == "CODEX_SHIM_HOME").then(|| path.clone()));
        let (settings, complaints) = Settings::load(Flags::default(), &environment);
        (settings, complaints.iter().map(ToString::to_string).collect())
    }

    const GOOD: &str = "[[rules]]\nname = \"a\"\nmatch = { kind = \"command\", argv = [\"/bin/ls\"], cwd = \"/p\" }\naction = \"accept\"\n";

    #[test]
    fn invalid_rules_are_reported_and_left_out() {
        let check = |members: &str, expect: &str| {
            let file = format!("{GOOD}[[rules]]\n{}\n{}", members.replace("; ", "\n"), GOOD.replace("\"a\"", "\"z\""));
            let (settings, complaints) = load(&file);
            let names: Vec<&str> = settings.rules.value.iter().map(|rule| rule.name.as_str()).collect();
            assert_eq!(names, ["a", "z"], "{members}");
            assert_eq!(complaints, [format!("config.toml: rule 2{expect}; the rule matches nothing")], "{members}");
        };
        let in_words = "argv = ['ls'], cwd = '/p'";
        check("action = 'hold'", ": it has no name: add `name = \"…\"`");
        check(
            "name = 'a'; action = 'hold'; match = { kind = 'command' }",
            " (`a`): an earlier rule has this name: choose another one",
        );
        check(
            "name = 'b'; match = { kind = 'command' }",
            " (`b`): it has no action: add `action = \"accept\"`, `\"decline\"` or `\"hold\"`",
        );
        check("name = 'b'; action = 'allow'", " (`b`): action: `allow` is neither `accept`, `decline` nor `hold`");
        check("name = 'b'; action = 'hold'", " (`b`): it has no `match`: add `match = { kind = \"command\", … }`");
        check(
            "name = 'b'; action = 'hold'; mach = 1",
            " (`b`): unknown member `mach`; the members are name, match, action, reason, shell, trust_path, \
             trust_terminal, trust_repository",
        );
        check(
            "name = 'b'; action = 'decline'; match = { kind = 'command', argv_prefx = ['rm'] }",
            " (`b`): unknown member `argv_prefx`; the members are kind, argv, argv_prefix, cwd, cwd_below",
        );
        check(
            "name = 'b'; action = 'decline'; match = { kind = 'question', cwd = '/p' }",
            " (`b`): unknown member `cwd`; the members are kind",
        );
        check(
            "name = 'b'; action = 'accept'; match = { kind = 'file_change' }",
            " (`b`): match.kind: a rule can decline or hold `file_change`, but accepts only `command`",
        );
        check(
            "name = 'b'; action = 'accept'; match = { kind = 'command', argv_prefix = ['ls'], cwd = '/p' }",
            " (`b`): match.argv_prefix: a rule accepts only one whole command in one folder: use `argv` and `cwd`",
        );
        check(
            "name = 'b'; action = 'accept'; match = { kind = 'command', argv = ['/bin/ls'] }",
            " (`b`): match: a rule that accepts needs `cwd`, the folder of the command",
        );
        check(
            "name = 'b'; action = 'accept'; match = { kind = 'command', cwd = '/p' }",
            " (`b`): match: a rule that accepts needs `argv`, the whole command",
        );
        check(
            &format!("name = 'b'; action = 'accept'; match = {{ kind = 'command', {in_words} }}"),
            " (`b`): match.argv: the shell that codex starts looks `ls` up on its PATH, which your profile may change; give the \
             path of the program, or add `trust_path = true` to the rule",
        );
        check(
            "name = 'b'; action = 'hold'; match = { kind = 'command', cwd_below = 'p' }",
            " (`b`): match.cwd_below: `p` is not an absolute path without `.`, `..` and a slash at its end",
        );
        check(
            "name = 'b'; action = 'hold'; match = { kind = 'command', argv = 'rm -rf' }",
            " (`b`): match.argv: it must be a list of words, such as [\"git\", \"status\"]",
        );
        check(
            "name = 'b'; action = 'hold'; reason = 'x'; match = { kind = 'command' }",
            " (`b`): reason: it goes with `action = \"decline\"` only",
        );
        check(
            "name = 'b'; action = 'hold'; trust_path = true; match = { kind = 'command' }",
            " (`b`): trust_path: it goes with `action = \"accept\"` only",
        );
    }

    #[test]
    fn part_of_an_accept_rule_is_not_a_rule() {
        let file = "[[rules]]\nname = \"a\"\naction = \"accept\"\n[rules.match]\nkind = \"command\"\nargv = [\"/bin/ls\", \"-l\"]\ncwd = \"/p\"\n";
        let (whole, complaints) = load(file);
        assert_eq!((whole.rules.value.len(), complaints), (1, Vec::new()));
        for end in 0..file.len() - 1 {
            let (settings, _) = load(&file[..end]);
            assert!(settings.rules.value.iter().all(|rule| *rule == whole.rules.value[0]), "{}", &file[..end]);
        }
    }

    #[test]
    fn rules_apply_without_a_restart() {
        let (before, after) = (load("").0, load(GOOD).0);
        let applied = before.with_live_settings_of(&after);
        assert_eq!(applied.rules, after.rules);
        assert!(!applied.names_that_differ(&after).contains(&"rules"));
        assert_eq!(applied.requests().rules.len(), 1);
    }
}
