//! The tools whose settings `wrap` changes, and the change of one member of a settings file; every other byte stays.
//!
//! Pure. The files are JSON, JSON with comments and trailing commas, or JSON5.

use std::ops::Range;
use std::path::PathBuf;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::errors::ParseError;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::config::Environment;
use crate::os::desktop::SETTINGS_FOLDER;

/// Why a member cannot be set, with line and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoPlace(pub(super) String);

/// Members to set in a settings file: the one that names codex, and others that an object needs if it is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// The path of the member.
    pub(super) names: &'static [&'static str],
    /// A member of the object that the first `depth` names lead to, if that object is new: its name and its value.
    pub(super) with: Option<(usize, &'static str, &'static str)>,
}

/// The text with `value` as the member, which may exist already. An empty text gives a new file.
pub(super) fn with_member(text: &str, setting: &Setting, value: &str) -> Result<String, NoPlace> {
    let quoted = serde_json::Value::from(value).to_string();
    let names = setting.names;
    let style = Style::of(text);
    let file = File::parse(text)?;
    let Some(root) = &file.root else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.line_end };
        return Ok(format!("{text}{gap}{}{}", style.nested(setting, 0, &quoted), style.line_end));
    };
    let mut object = file.object(root, "the whole file")?;
    for (depth, name) in names.iter().enumerate() {
        let Some(member) = member(object, name) else {
            let inserted = style.member(setting, depth, &quoted);
            return Ok(style.inserted(text, &file.range_of(object), object, &inserted, depth));
        };
        let range = file.range_of(&member.value);
        if depth + 1 == names.len() {
            return Ok(format!("{}{quoted}{}", &text[..range.start], &text[range.end..]));
        }
        object = file.object(&member.value, &names[..=depth].join("."))?;
    }
    Err(NoPlace("no member is named".to_owned()))
}

/// The source text of the value at `names`.
pub(super) fn value_of<'a>(text: &'a str, names: &[&str]) -> Option<&'a str> {
    place_of(text, names).map(|place| &text[place.value])
}

/// The value at `names`, if it is a string.
pub(super) fn string_of(text: &str, names: &[&str]) -> Option<String> {
    let file = File::parse(text).ok()?;
    let member = file.member(names)?;
    Some(member.value.as_string_lit()?.value.clone().into_owned())
}

/// How many of the names, from the first on, lead to a member.
pub(super) fn depth_of(text: &str, names: &[&str]) -> usize {
    (1..=names.len()).take_while(|depth| value_of(text, &names[..*depth]).is_some()).count()
}

/// The text with the existing value at `names` replaced by other JSON.
pub(super) fn with_value(text: &str, names: &[&str], value: &str) -> Option<String> {
    let range = place_of(text, names)?.value;
    Some(format!("{}{value}{}", &text[..range.start], &text[range.end..]))
}

/// The text without the member at `names`, and without its line and its comma.
pub(super) fn without_member(text: &str, names: &[&str]) -> Option<String> {
    let MemberRanges { member, .. } = place_of(text, names)?;
    let (before, after) = (&text[..member.start], &text[member.end..]);
    let line = before.trim_end_matches([' ', '\t']);
    let is_own_line = line.ends_with('\n');
    match after.strip_prefix(',') {
        Some(rest) if is_own_line => {
            let line = line.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))?;
            Some(format!("{line}{rest}"))
        }
        Some(rest) => Some(format!("{before}{}", rest.strip_prefix(' ').unwrap_or(rest))),
        // The last member: all of these formats except plain JSON allow the comma before it.
        None => {
            let before = before.trim_end();
            Some(format!("{}{after}", before.strip_suffix(',').unwrap_or(before)))
        }
    }
}

/// The byte ranges of a member and of its value.
struct MemberRanges {
    member: Range<usize>,
    value: Range<usize>,
}

fn place_of(text: &str, names: &[&str]) -> Option<MemberRanges> {
    let file = File::parse(text).ok()?;
    let member = file.member(names)?;
    Some(MemberRanges { member: file.range_of(member), value: file.range_of(&member.value) })
}

/// A parsed settings file.
struct File<'a> {
    text: &'a str,
    /// Length of the byte order mark, which is hidden from the parser.
    mark_bytes: usize,
    /// `None` if the text has only comments.
    root: Option<Value<'a>>,
}

impl<'a> File<'a> {
    fn parse(text: &'a str) -> Result<File<'a>, NoPlace> {
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
        let parsed = parse_to_ast(rest, &CollectOptions::default(), &options).map_err(|error| unreadable(&error))?;
        Ok(File { text, mark_bytes: text.len() - rest.len(), root: parsed.value })
    }

    fn object<'b>(&self, value: &'b Value<'a>, name: &str) -> Result<&'b Object<'a>, NoPlace> {
        value.as_object().ok_or_else(|| {
            let before = &self.text[..self.range_of(value).start];
            let (line, column) = (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n'));
            let column = column.filter(|c| *c != '\u{feff}').count() + 1;
            NoPlace(format!("line {line}, column {column}: `{name}` is not an object"))
        })
    }

    fn member(&self, names: &[&str]) -> Option<&ObjectProp<'a>> {
        let (first, rest) = names.split_first()?;
        let root = member(self.root.as_ref()?.as_object()?, first)?;
        rest.iter().try_fold(root, |found, name| member(found.value.as_object()?, name))
    }

    fn range_of(&self, node: &impl jsonc_parser::common::Ranged) -> Range<usize> {
        let range = node.range();
        range.start + self.mark_bytes..range.end + self.mark_bytes
    }
}

fn unreadable(error: &ParseError) -> NoPlace {
    let what = error.kind().to_string().to_lowercase();
    NoPlace(format!("line {}, column {}: {what}", error.line_display(), error.column_display()))
}

/// The last member of that name, which takes effect.
fn member<'a, 'b>(object: &'b Object<'a>, name: &str) -> Option<&'b ObjectProp<'a>> {
    object.properties.iter().rev().find(|property| property.name.as_str() == name)
}

/// Indentation and line ends of a file.
struct Style {
    indent: String,
    line_end: &'static str,
}

impl Style {
    fn of(text: &str) -> Style {
        let blank = |line: &str| line[..line.len() - line.trim_start_matches([' ', '\t']).len()].to_owned();
        let indented = text.lines().map(|line| (blank(line), line.trim_start()));
        // A line of a block comment is often indented by one space.
        let indent = indented
            .filter(|(blank, rest)| !blank.is_empty() && !rest.is_empty() && !rest.starts_with('*'))
            .map(|(blank, _)| if blank.starts_with('\t') { "\t".to_owned() } else { blank })
            .next();
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Style { indent: indent.unwrap_or_else(|| "  ".to_owned()), line_end }
    }

    fn indent(&self, depth: usize) -> String {
        self.indent.repeat(depth)
    }

    /// The name at `depth` with its value; all but the last are objects.
    fn member(&self, setting: &Setting, depth: usize, quoted: &str) -> String {
        let Some(name) = setting.names.get(depth) else { return String::new() };
        format!("{}: {}", serde_json::Value::from(*name), self.nested(setting, depth + 1, quoted))
    }

    /// The value at the first `depth` names.
    fn nested(&self, setting: &Setting, depth: usize, quoted: &str) -> String {
        if depth == setting.names.len() {
            return quoted.to_owned();
        }
        let (inner, outer, line_end) = (self.indent(depth + 1), self.indent(depth), self.line_end);
        let with = setting.with.filter(|(at, ..)| *at == depth);
        let with = with.map(|(_, name, value)| format!("\"{name}\": \"{value}\",{line_end}{inner}"));
        let member = self.member(setting, depth, quoted);
        format!("{{{line_end}{inner}{}{member}{line_end}{outer}}}", with.unwrap_or_default())
    }

    /// The text with a new first member in the object at `range`.
    fn inserted(&self, text: &str, range: &Range<usize>, object: &Object<'_>, member: &str, depth: usize) -> String {
        let (open, line_end) = (range.start + 1, self.line_end);
        let (inner, outer) = (self.indent(depth + 1), self.indent(depth));
        if object.properties.is_empty() {
            // A comment in the object stays in it.
            let (inside, rest) = (text[open..range.end - 1].trim_end(), &text[range.end - 1..]);
            return format!("{}{inside}{line_end}{inner}{member}{line_end}{outer}{rest}", &text[..open]);
        }
        let first_line = text[open..range.end].split('\n').next().unwrap_or_default();
        let on_it = first_line.trim();
        let has_comment_only = on_it.starts_with("//") || is_one_comment(on_it);
        match on_it.is_empty() || has_comment_only {
            true => {
                let at = open + first_line.trim_end().len();
                format!("{}{line_end}{inner}{member},{}", &text[..at], &text[at..])
            }
            false => {
                let at = open + first_line.len() - first_line.trim_start_matches(' ').len();
                format!("{}{member}, {}", &text[..at], &text[at..])
            }
        }
    }
}

/// Whether a text consists of one block comment.
fn is_one_comment(text: &str) -> bool {
    text.strip_prefix("/*").and_then(|rest| rest.find("*/").map(|end| end + 2 == rest.len())).unwrap_or(false)
}

/// A tool that names codex in a settings file.
pub(super) struct Tool {
    /// Its name in `wrap TARGET`.
    pub(super) target: &'static str,
    base: Base,
    /// The settings file, below that folder; the first that exists counts.
    files: &'static [&'static str],
    /// The member that names codex.
    pub(super) setting: Setting,
    /// How the user makes the tool read the change.
    pub(super) then: &'static str,
}

/// The folder of a settings file.
enum Base {
    /// This system's folder for settings: `~/.config`, or `~/Library/Application Support`.
    System,
    /// `~/.config` on every system.
    Config,
    Home,
}

const EXTENSION: Setting = Setting { names: &["chatgpt.cliExecutable"], with: None };

const RELOAD: &str = "reload each open window (`Developer: Reload Window` in its command palette); until then it keeps \
                      the codex that runs";

const fn editor(target: &'static str, files: &'static [&'static str]) -> Tool {
    Tool { target, base: Base::System, files, setting: EXTENSION, then: RELOAD }
}

const ALL: [Tool; 7] = [
    editor("vscode", &["Code/User/settings.json"]),
    editor("vscode-insiders", &["Code - Insiders/User/settings.json"]),
    editor("vscodium", &["VSCodium/User/settings.json", "VSCodium - Insiders/User/settings.json"]),
    editor("cursor", &["Cursor/User/settings.json"]),
    editor("windsurf", &["Windsurf/User/settings.json", "Windsurf - Next/User/settings.json"]),
    Tool {
        target: "zed",
        base: Base::Config,
        files: &["zed/settings.json"],
        // That agent is the npm package `@agentclientprotocol/codex-acp`, which reads this variable.
        setting: Setting {
            names: &["agent_servers", "codex-acp", "env", "CODEX_PATH"],
            with: Some((2, "type", "registry")),
        },
        then: "restart Zed, or start a new Codex thread",
    },
    Tool {
        target: "openclaw",
        base: Base::Home,
        files: &[".openclaw/openclaw.json"],
        setting: Setting { names: &["plugins", "entries", "codex", "config", "appServer", "command"], with: None },
        then: "restart the gateway of OpenClaw",
    },
];

/// The names of all tools for `wrap`.
pub(in crate::cli) fn targets() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|tool| tool.target)
}

impl Tool {
    pub(super) fn named(target: &str) -> Option<&'static Tool> {
        ALL.iter().find(|tool| tool.target == target)
    }

    /// The names of all tools.
    pub(super) fn all() -> String {
        targets().collect::<Vec<_>>().join(", ")
    }

    /// The settings file, which may not exist yet, in an existing folder.
    pub(super) fn file(&self, environment: &Environment) -> Result<PathBuf, String> {
        let places = self.places(environment)?;
        let has_folder = |file: &&PathBuf| file.parent().is_some_and(|folder| folder.is_dir());
        if let Some(file) = places.iter().find(has_folder) {
            return Ok(file.clone());
        }
        let looked_for: Vec<String> = places.iter().map(|file| file.display().to_string()).collect();
        let is_here =
            |tool: &&Tool| tool.places(environment).is_ok_and(|places| places.iter().any(|it| has_folder(&it)));
        let here: Vec<&str> = ALL.iter().filter(is_here).map(|tool| tool.target).collect();
        let here = if here.is_empty() { "no other tool that wrap knows".to_owned() } else { here.join(", ") };
        Err(format!(
            "{} has no settings here (looked for {}); start it once, or set {} by hand; found here: {here}",
            self.target,
            looked_for.join(" and "),
            self.setting.names.join(".")
        ))
    }

    fn places(&self, environment: &Environment) -> Result<Vec<PathBuf>, String> {
        let home = environment.get("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
        if self.target == "openclaw" {
            // OpenClaw reads these, too.
            if let Some(file) = environment.get("OPENCLAW_CONFIG_PATH") {
                return Ok(vec![PathBuf::from(file)]);
            }
            if let Some(folder) = environment.get("OPENCLAW_STATE_DIR") {
                return Ok(vec![PathBuf::from(folder).join("openclaw.json")]);
            }
        }
        let config =
            |home: &PathBuf| environment.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let base = match (&self.base, SETTINGS_FOLDER) {
            (Base::Home, _) => home,
            (Base::Config, Some(_)) => home.join(".config"),
            (Base::System, Some(folder)) => home.join(folder),
            (Base::Config | Base::System, None) => config(&home),
        };
        Ok(self.files.iter().map(|file| base.join(file)).collect())
    }
}

/// The member that names codex in a target's settings.
pub(super) fn setting_of(target: &str) -> Setting {
    Tool::named(target).map_or(EXTENSION, |tool| tool.setting)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn setting(names: &'static [&'static str]) -> Setting {
        Setting { names, with: None }
    }

    fn check(text: &str, names: &'static [&'static str], expect: &str) {
        assert_eq!(with_member(text, &setting(names), "/x").as_deref(), Ok(expect));
    }

    #[test]
    fn setting_a_member_changes_nothing_else() {
        check("", &["a"], "{\n  \"a\": \"/x\"\n}\n");
        check("// only this", &["a"], "// only this\n{\n  \"a\": \"/x\"\n}\n");
        check("{}", &["a"], "{\n  \"a\": \"/x\"\n}");
        check("{ /* none */ }", &["a"], "{ /* none */\n  \"a\": \"/x\"\n}");
        check("{\n  \"b\": 1 // one\n}\n", &["a"], "{\n  \"a\": \"/x\",\n  \"b\": 1 // one\n}\n");
        check("{ // all\n\tb: 1\n}\n", &["a"], "{ // all\n\t\"a\": \"/x\",\n\tb: 1\n}\n");
        check("{\r\n    \"b\": 1\r\n}\r\n", &["a"], "{\r\n    \"a\": \"/x\",\r\n    \"b\": 1\r\n}\r\n");
        check("{\"b\": 1}", &["a"], "{\"a\": \"/x\", \"b\": 1}");
        check("{ \"b\": 1 }", &["a"], "{ \"a\": \"/x\", \"b\": 1 }");
        check("\u{feff}{\"a\": 1}", &["a"], "\u{feff}{\"a\": \"/x\"}");
        check(
            "/* \"a\": 0 */ {\"b\":[1,{\"a\":2}], \"a\" : \"old\\\"\",}",
            &["a"],
            "/* \"a\": 0 */ {\"b\":[1,{\"a\":2}], \"a\" : \"/x\",}",
        );
        check("{\"a\":null}", &["a"], "{\"a\":\"/x\"}");
        check("{a: 'old', a: 'newer'}", &["a"], "{a: 'old', a: \"/x\"}");
    }

    #[test]
    fn removing_a_member_changes_nothing_else() {
        for text in [
            "{\n  \"b\": 1 // one\n}\n",
            "{ // all\r\n\t'b': 1\r\n}\r\n",
            "{\"b\": 1}",
            "{ \"b\": 1 }",
            "{\"p\": {\n \"q\": {\"x\": 1}}}",
        ] {
            let names: &'static [&'static str] = if text.contains('p') { &["p", "q", "r"] } else { &["a"] };
            let set = with_member(text, &setting(names), "/x").expect("it can be set");
            assert_eq!(value_of(&set, names), Some("\"/x\""));
            assert_eq!(without_member(&set, names).as_deref(), Some(text));
            assert_eq!(
                with_value(&set, names, "1").and_then(|text| value_of(&text, names).map(str::to_owned)).as_deref(),
                Some("1")
            );
        }
        assert_eq!(value_of("{}", &["a"]), None);
        // The user has moved it to the end.
        assert_eq!(without_member("{\"b\": 1, \"a\": 2}", &["a"]).as_deref(), Some("{\"b\": 1}"));
    }

    #[test]
    fn missing_objects_are_created() {
        check("{\"p\": {\"q\": {}}}", &["p", "q", "r"], "{\"p\": {\"q\": {\n      \"r\": \"/x\"\n    }}}");
        check("{}", &["p", "q"], "{\n  \"p\": {\n    \"q\": \"/x\"\n  }\n}");
        let with = Setting { names: &["p", "q"], with: Some((1, "type", "t")) };
        let expect = "{\n  \"p\": {\n    \"type\": \"t\",\n    \"q\": \"/x\"\n  }\n}";
        assert_eq!(with_member("{}", &with, "/x").as_deref(), Ok(expect));
        assert_eq!(with_member("{\"p\": {}}", &with, "/x").as_deref(), Ok("{\"p\": {\n    \"q\": \"/x\"\n  }}"));
        assert_eq!(depth_of("{\"p\": {}}", &["p", "q"]), 1);
    }

    #[test]
    fn broken_file_is_reported_with_position() {
        let why = |text| with_member(text, &setting(&["p", "q"]), "/x").expect_err("it is broken").0;
        assert_eq!(why("{\n  \"p\": 1}"), "line 2, column 8: `p` is not an object");
        for broken in ["[1]", "{\"a\"", "{\"a\":", "nonsense", "{\"a\": 1 \"b\": 2}", "{a: 1} {b: 2}", "{'a: 1}"] {
            assert!(why(broken).starts_with("line 1, column "), "{broken}: {}", why(broken));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[\\[\\]{}\"',:/*\\\\a1+. \u{feff}\u{e9}\n]{0,60}") {
            if let Ok(set) = with_member(&text, &setting(&["a", "b"]), "/x") {
                let read = string_of(&set, &["a", "b"]);
                prop_assert_eq!(read.as_deref(), Some("/x"));
                let _ = without_member(&set, &["a", "b"]);
            }
        }

        #[test]
        fn a_set_member_can_be_replaced(value in "[a-z]{0,6}") {
            let once = with_member("{\"z\": [1]}", &setting(&["a", "b"]), &value).expect("it can be set");
            let read: serde_json::Value = serde_json::from_str(&once).expect("JSON");
            prop_assert_eq!(read["a"]["b"].as_str(), Some(&*value));
            prop_assert_eq!(with_member(&once, &setting(&["a", "b"]), &value), Ok(once.clone()));
        }
    }
}
