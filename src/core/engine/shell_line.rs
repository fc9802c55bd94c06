//! Takes a line for a shell apart: its commands, their words and redirections, and the commands in substitutions.
//!
//! It reads a line as bash reads most lines. What a line means in every shell, whatever its options, is for `rules::command_line`, which
//! takes far less. Pure and total: every text gives commands, and nothing is ever run.

use std::str::Chars;

/// Most substitutions within substitutions; the marks of deeper ones are text.
const DEPTH_MAX: usize = 32;

/// A simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// Whether it reads what the command before it prints.
    pub is_piped: bool,
    pub words: Vec<ShellWord>,
    pub redirections: Vec<Redirection>,
}

/// A word without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellWord {
    pub parts: Vec<Part>,
    /// The shell replaces a part of it: a variable, a pattern, a substitution.
    pub expands: bool,
    /// It begins with the home folder: `~/x`.
    pub is_in_home: bool,
    is_quoted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// The commands of a substitution: `$(…)`, `<(…)`.
    Inner(Vec<ShellCommand>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    pub kind: RedirectionKind,
    /// The file, or the text itself.
    pub target: ShellWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectionKind {
    From,
    To,
    HereDocument,
    HereString,
}

impl ShellWord {
    /// A word that the shell takes as it is.
    pub fn plain(text: &str) -> ShellWord {
        ShellWord { parts: vec![Part::Text(text.to_owned())], ..ShellWord::default() }
    }

    /// Its text without substitutions.
    pub fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Inner(_) => String::new(),
        };
        self.parts.iter().map(text).collect()
    }

    /// The commands of its substitutions.
    pub fn inner(&self) -> impl Iterator<Item = &[ShellCommand]> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Inner(commands) => Some(&commands[..]),
        })
    }

    fn push(&mut self, char: char) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(char),
            Some(Part::Inner(_)) | None => self.parts.push(Part::Text(char.to_string())),
        }
    }

    /// Whether it is the number of a descriptor before a redirection, or its name: `2>`, `{log}>`.
    fn is_descriptor(&self) -> bool {
        let text = self.text();
        let is_name = text.strip_prefix('{').and_then(|name| name.strip_suffix('}')).is_some_and(is_name);
        !self.is_quoted && (is_name || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// The commands of a line, in order; those in substitutions are in their words.
pub fn commands(line: &str) -> Vec<ShellCommand> {
    LineReader { chars: line.chars(), depth: 0 }.commands(None)
}

/// Where the program of a command is among its words: behind assignments and words of the shell. `None` if it starts none.
pub fn program_at(words: &[String]) -> Option<usize> {
    const BEFORE: [&str; 15] = [
        "if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "exec", "command", "builtin", "coproc",
        "function",
    ];
    let is_assigned = |word: &String| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_'))
    };
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| BEFORE.contains(&&***word) || is_assigned(word)) {
        let has_options = ["exec", "command", "builtin", "time"].contains(&&**word);
        // `function` names what follows.
        at += if word == "function" { 2 } else { 1 };
        while has_options && words.get(at).is_some_and(|word| word.starts_with('-')) {
            // `command -v` only looks for the program; `exec -a` takes a name.
            match &*words[at] {
                "-v" | "-V" => return None,
                "-a" => at += 2,
                _ => at += 1,
            }
        }
    }
    (at < words.len()).then_some(at)
}

struct LineReader<'a> {
    chars: Chars<'a>,
    depth: usize,
}

/// A here-document whose text is still to come.
struct AwaitedText {
    command: usize,
    redirection: usize,
    delimiter: ShellWord,
    has_tabs: bool,
}

/// What the word that is being read will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordRole {
    Word,
    Target(RedirectionKind),
    /// Of a here-document; leading tabs of its lines may not count.
    Delimiter {
        has_tabs: bool,
    },
    /// A descriptor, or a file if it is not one: `>&2`, `>&log`.
    Copy(RedirectionKind),
}

/// The commands that have been read, and the one that is being read.
struct Level {
    all: Vec<ShellCommand>,
    command: ShellCommand,
    word: Option<ShellWord>,
    role: WordRole,
    awaited: Vec<AwaitedText>,
}

impl Level {
    fn word(&mut self) -> &mut ShellWord {
        self.word.get_or_insert_default()
    }

    /// Whether nothing of the next command has come.
    fn is_at_start(&self) -> bool {
        self.word.is_none() && self.command.words.is_empty() && self.command.redirections.is_empty()
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match std::mem::replace(&mut self.role, WordRole::Word) {
            WordRole::Word => self.command.words.push(word),
            WordRole::Target(kind) => self.command.redirections.push(Redirection { kind, target: word }),
            WordRole::Copy(kind) => {
                let is_descriptor = word.is_descriptor() || word.text().trim_end_matches('-').is_empty();
                self.command.redirections.extend((!is_descriptor).then_some(Redirection { kind, target: word }));
            }
            WordRole::Delimiter { has_tabs } => {
                let (command, redirection) = (self.all.len(), self.command.redirections.len());
                self.awaited.push(AwaitedText { command, redirection, delimiter: word, has_tabs });
                let target = ShellWord::default();
                self.command.redirections.push(Redirection { kind: RedirectionKind::HereDocument, target });
            }
        }
    }

    fn end_command(&mut self, is_next_piped: bool) {
        self.end_word();
        self.role = WordRole::Word;
        let next = ShellCommand { is_piped: is_next_piped, ..ShellCommand::default() };
        let command = std::mem::replace(&mut self.command, next);
        if !command.words.is_empty() || !command.redirections.is_empty() {
            self.all.push(command);
        }
    }

    /// A redirection begins.
    fn redirects(&mut self, role: WordRole) {
        if self.word.as_ref().is_some_and(ShellWord::is_descriptor) {
            self.word = None;
        }
        self.end_word();
        self.role = role;
    }
}

impl LineReader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    fn next_is(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.chars.next();
        }
        is_next
    }

    /// Reads commands up to a closing mark, or to the end.
    fn commands(&mut self, end: Option<char>) -> Vec<ShellCommand> {
        let mut level = Level {
            all: Vec::new(),
            command: ShellCommand::default(),
            word: None,
            role: WordRole::Word,
            awaited: Vec::new(),
        };
        while let Some(char) = self.chars.next() {
            match char {
                _ if Some(char) == end => break,
                '\n' => {
                    // A pipeline goes on in the next line.
                    let goes_on = level.command.is_piped && level.is_at_start();
                    level.end_command(goes_on);
                    self.here_documents(&mut level);
                }
                ';' | ')' => level.end_command(false),
                '&' if self.next_is('>') => self.output(&mut level),
                '&' => {
                    self.next_is('&');
                    level.end_command(false);
                }
                '|' => {
                    let is_other = self.next_is('|');
                    self.next_is('&');
                    level.end_command(!is_other);
                }
                '<' | '>' if self.peek() == Some('(') => {
                    self.chars.next();
                    self.inner(level.word(), ')');
                }
                '<' => self.input(&mut level),
                '>' => self.output(&mut level),
                '(' => self.parenthesis(&mut level),
                '#' if level.word.is_none() => {
                    while self.peek().is_some_and(|next| next != '\n') {
                        self.chars.next();
                    }
                }
                '\\' if self.next_is('\n') => {}
                char if char.is_whitespace() => level.end_word(),
                char => self.in_word(level.word(), char),
            }
        }
        level.end_command(false);
        level.all
    }

    /// What follows `<`.
    fn input(&mut self, level: &mut Level) {
        let role = match self.peek() {
            Some('<') => {
                self.chars.next();
                match self.next_is('<') {
                    true => WordRole::Target(RedirectionKind::HereString),
                    false => WordRole::Delimiter { has_tabs: self.next_is('-') },
                }
            }
            Some('&') => {
                self.chars.next();
                WordRole::Copy(RedirectionKind::From)
            }
            Some('>') => {
                self.chars.next();
                WordRole::Target(RedirectionKind::To)
            }
            Some(_) | None => WordRole::Target(RedirectionKind::From),
        };
        level.redirects(role);
    }

    /// What follows `>`.
    fn output(&mut self, level: &mut Level) {
        let is_appended = self.next_is('>') || self.next_is('|');
        let role = match !is_appended && self.next_is('&') {
            true => WordRole::Copy(RedirectionKind::To),
            false => WordRole::Target(RedirectionKind::To),
        };
        level.redirects(role);
    }

    /// A group of commands, or a part of a word: `a=(…)`, `f()`.
    fn parenthesis(&mut self, level: &mut Level) {
        if level.word.is_some() && level.command.words.is_empty() && self.next_is(')') {
            // The body of a function follows its name: `f() {`.
            level.word = None;
            return;
        }
        if level.word.is_some() || !level.command.words.is_empty() {
            return self.inner(level.word(), ')');
        }
        if self.depth == DEPTH_MAX {
            return;
        }
        let mut group = self.nested(')');
        if let Some(first) = group.first_mut() {
            first.is_piped |= level.command.is_piped;
        }
        level.all.append(&mut group);
    }

    fn nested(&mut self, end: char) -> Vec<ShellCommand> {
        self.depth += 1;
        let commands = self.commands(Some(end));
        self.depth -= 1;
        commands
    }

    /// A substitution within a word.
    fn inner(&mut self, word: &mut ShellWord, end: char) {
        word.expands = true;
        if self.depth < DEPTH_MAX {
            let commands = self.nested(end);
            word.parts.push(Part::Inner(commands));
        }
    }

    /// A character of a word, with what belongs to it.
    fn in_word(&mut self, word: &mut ShellWord, char: char) {
        match char {
            '\'' => {
                self.begins_quote(word);
                while let Some(char) = self.chars.next().filter(|char| *char != '\'') {
                    word.push(char);
                }
            }
            '"' => {
                self.begins_quote(word);
                self.quoted(word, Some('"'));
            }
            '$' if self.next_is('\'') => {
                self.begins_quote(word);
                word.expands = true;
                while let Some(char) = self.chars.next().filter(|char| *char != '\'') {
                    let escaped = if char == '\\' { self.chars.next() } else { None };
                    [Some(char), escaped].into_iter().flatten().for_each(|char| word.push(char));
                }
            }
            '$' => self.dollar(word),
            '`' => self.inner(word, '`'),
            '\\' => {
                word.is_quoted = true;
                self.chars.next().into_iter().for_each(|next| word.push(next));
            }
            '~' if word.parts.is_empty() => {
                word.is_in_home = true;
                word.push(char);
            }
            '*' | '?' | '[' | '{' => {
                word.expands = true;
                word.push(char);
            }
            char => word.push(char),
        }
    }

    fn begins_quote(&self, word: &mut ShellWord) {
        word.is_quoted = true;
        if word.parts.is_empty() {
            word.parts.push(Part::Text(String::new()));
        }
    }

    fn dollar(&mut self, word: &mut ShellWord) {
        word.expands = true;
        match self.next_is('(') {
            true => self.inner(word, ')'),
            false => word.push('$'),
        }
    }

    /// The text in double quotes, or all the rest, in which only `$`, `` ` `` and `\` mean something.
    fn quoted(&mut self, word: &mut ShellWord, end: Option<char>) {
        while let Some(char) = self.chars.next() {
            match char {
                _ if Some(char) == end => return,
                '$' => self.dollar(word),
                '`' => self.inner(word, '`'),
                '\\' => match self.chars.next() {
                    Some('\n') | None => {}
                    Some(next @ ('$' | '`' | '"' | '\\')) => word.push(next),
                    Some(next) => {
                        word.push('\\');
                        word.push(next);
                    }
                },
                char => word.push(char),
            }
        }
    }

    /// Reads the texts of here-documents, which begin in the line after them.
    fn here_documents(&mut self, level: &mut Level) {
        for AwaitedText { command, redirection, delimiter, has_tabs } in std::mem::take(&mut level.awaited) {
            let (end, mut text) = (delimiter.text(), String::new());
            while self.peek().is_some() {
                let line: String = self.chars.by_ref().take_while(|char| *char != '\n').collect();
                let line = if has_tabs { line.trim_start_matches('\t') } else { &line };
                if line == end {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            let mut target = ShellWord::default();
            match delimiter.is_quoted {
                true => target.parts.push(Part::Text(text)),
                false => LineReader { chars: text.chars(), depth: self.depth }.quoted(&mut target, None),
            }
            let of_command = level.all.get_mut(command).map(|command| &mut command.redirections);
            if let Some(redirection) = of_command.and_then(|all| all.get_mut(redirection)) {
                redirection.target = target;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands in short: words in brackets, substitutions in braces, `|` before a command that reads another one.
    fn shown(commands: &[ShellCommand]) -> String {
        let word = |word: &ShellWord| -> String {
            let part = |part: &Part| match part {
                Part::Text(text) => text.replace('\n', "⏎"),
                Part::Inner(commands) => format!("{{{}}}", shown(commands)),
            };
            word.parts.iter().map(part).collect()
        };
        let command = |command: &ShellCommand| {
            let words = command.words.iter().map(|one| format!("[{}]", word(one)));
            let redirections = command.redirections.iter().map(|Redirection { kind, target }| {
                let mark = match kind {
                    RedirectionKind::From => "<",
                    RedirectionKind::To => ">",
                    RedirectionKind::HereDocument => "<<",
                    RedirectionKind::HereString => "<<<",
                };
                format!("{mark}{}", word(target))
            });
            let pipe = if command.is_piped { "|" } else { "" };
            format!("{pipe}{}", words.chain(redirections).collect::<Vec<_>>().join(""))
        };
        commands.iter().map(command).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_become_commands() {
        for (line, expect) in [
            ("a b 'c d'", "[a][b][c d]"),
            ("a;b&c&&d||e", "[a] [b] [c] [d] [e]"),
            ("a|b |& c || d", "[a] |[b] |[c] [d]"),
            ("a \"b $(c 'd' \"e\") f\"", "[a][b {[c][d][e]} f]"),
            ("a `b c` d", "[a][{[b][c]}][d]"),
            ("a > b 2>/c &> d 2>&1 >& e", "[a]>b>/c>d>e"),
            ("a < b <<< c <> d", "[a]<b<<<c>d"),
            ("a <(b) >(c)", "[a][{[b]}][{[c]}]"),
            ("(a; b) | c", "[a] [b] |[c]"),
            ("a | (b; c)", "[a] |[b] [c]"),
            ("x=(a b) f() c", "[x={[a][b]}][f{}][c]"),
            ("a |\n# c\n b\nc", "[a] |[b] [c]"),
            ("f() { a; }", "[{][a] [}]"),
            ("a # b\nc#d", "[a] [c#d]"),
            ("a\\\nb \\# 'c\nd'", "[ab][#][c⏎d]"),
            ("cat <<E > f\nx $(y)\nE\nz", "[cat]<<x {[y]}⏎>f [z]"),
            ("cat <<-'E'\n\tx $(y)\n\tE\nz", "[cat]<<x $(y)⏎ [z]"),
            ("cat <<E", "[cat]<<"),
            ("a $'b\\'c' d", "[a][b\\'c][d]"),
            ("", ""),
            ("'a", "[a]"),
            (")a(", "[a{}]"),
            ("$(", "[{}]"),
        ] {
            assert_eq!(shown(&commands(line)), expect, "{line:?}");
        }
    }

    #[test]
    fn words_say_whether_the_shell_changes_them() {
        for (line, expands, is_in_home) in [
            ("a", false, false),
            ("'$a*'", false, false),
            ("\"$a\"", true, false),
            ("a*", true, false),
            ("~/a", false, true),
            ("'~/a'", false, false),
            ("\\$a", false, false),
        ] {
            let word = &commands(line)[0].words[0];
            assert_eq!((word.expands, word.is_in_home), (expands, is_in_home), "{line}");
        }
    }

    #[test]
    fn programs_are_behind_assignments_and_words_of_the_shell() {
        let check = |line: &str, expect: Option<usize>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(program_at(&words), expect, "{line}");
        };
        check("make", Some(0));
        check("A=1 B= make", Some(2));
        check("if ! time -p exec -a x make", Some(7));
        check("function f { make", Some(3));
        check("function", None);
        check("command -v make", None);
        check("A=1", None);
    }

    #[test]
    fn deep_substitutions_are_bounded() {
        for mark in ["$(", "(", "<(", "`a $(", "\"$("] {
            assert!(commands(&mark.repeat(100_000)).len() < 2, "{mark}");
        }
    }
}
