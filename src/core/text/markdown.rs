//! Converts the Markdown of messages to a document: headings, emphasis, code, lists, quotes, links, tables.
//!
//! Pure. The parser only gives the structure; every text goes through [`Doc`], which escapes it. Every line break stays,
//! because models rely on that.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::text::doc::{Doc, Role};
use crate::text::{fitted, plain, width};

/// Deepest indentation of nested lists and quotes.
const DEPTH_MAX: usize = 8;

/// Widest column of a table.
const CELL_COLUMNS_MAX: usize = 60;

pub fn doc(text: &str) -> Doc {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer::default();
    // Escape sequences are removed first, because the parser would split them into harmless but visible pieces.
    let text: Vec<String> = text.split('\n').map(plain).collect();
    for event in Parser::new_ext(&text.join("\n"), options) {
        writer.take(event);
    }
    writer.end_line();
    writer.doc
}

/// The end of an unfinished text: about the last `bytes_max` bytes, from a line break on.
pub fn tail(text: &str, bytes_max: usize) -> Doc {
    let text = text.trim_end();
    let from = text.len().saturating_sub(bytes_max);
    if from == 0 {
        return doc(text);
    }
    let from = text.ceil_char_boundary(from);
    // Cuts at a line break, unless little would be left; otherwise between two words.
    let first_half = &text[from..text.floor_char_boundary(from + bytes_max / 2)];
    let at = first_half.find('\n').or_else(|| first_half.find(' ')).map_or(0, |at| at + 1);
    let from = from + at;
    match is_in_code(&text[..from]) {
        true => doc(&format!("```\n{}", &text[from..])),
        false => doc(&text[from..]),
    }
}

/// Whether a text ends inside a code block.
pub fn is_in_code(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

/// The prefix of each line of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Prefix {
    Quote,
    Item { mark: String, is_written: bool },
}

#[derive(Debug, Default)]
struct Writer {
    doc: Doc,
    line: Vec<(String, Role)>,
    prefixes: Vec<Prefix>,
    /// The next number of each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    roles: Vec<Role>,
    links: Vec<(String, String)>,
    code: Option<String>,
    table: Option<Vec<Vec<String>>>,
    needs_gap: bool,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.write(&code, Role::Code),
            Event::InlineMath(math) | Event::DisplayMath(math) => self.write(&math, Role::Code),
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
            Event::SoftBreak | Event::HardBreak => match self.table.is_some() {
                true => self.text(" "),
                false => self.end_line(),
            },
            Event::Rule => {
                self.gap();
                self.write(&"─".repeat(24), Role::Faint);
                self.end_block();
            }
            Event::TaskListMarker(is_done) => self.write(if is_done { "[x] " } else { "[ ] " }, Role::Info),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.roles.push(match level {
                    HeadingLevel::H1 => Role::Title,
                    HeadingLevel::H2 => Role::Heading,
                    HeadingLevel::H3 | HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => Role::Subheading,
                });
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.prefixes.push(Prefix::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.gap();
                self.code = Some(match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                });
            }
            Tag::List(first) => {
                match self.lists.is_empty() {
                    true => self.gap(),
                    false => self.end_line(),
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_line();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "• ".to_owned(),
                };
                self.prefixes.push(Prefix::Item { mark, is_written: false });
                self.needs_gap = false;
            }
            Tag::Emphasis | Tag::Strikethrough => self.roles.push(Role::Emphasis),
            Tag::Strong => self.roles.push(Role::Strong),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.to_string(), String::new()));
                self.roles.push(Role::Info);
            }
            Tag::Table(_) => {
                self.gap();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => self.table.iter_mut().for_each(|rows| rows.push(Vec::new())),
            Tag::HtmlBlock => self.gap(),
            Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.roles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.prefixes.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => {
                self.code = None;
                self.end_block();
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                self.prefixes.pop();
            }
            TagEnd::Emphasis | TagEnd::Strikethrough | TagEnd::Strong => drop(self.roles.pop()),
            TagEnd::Link | TagEnd::Image => {
                self.roles.pop();
                if let Some((address, text)) = self.links.pop()
                    && address != text
                    && address.strip_prefix("mailto:") != Some(&text)
                {
                    self.write(&format!(" ({address})"), Role::Link);
                }
            }
            TagEnd::Table => self.table(),
            TagEnd::TableCell => {
                let cell: String = std::mem::take(&mut self.line).into_iter().map(|(text, _)| text).collect();
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(plain(cell.trim()));
                }
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((_, shown)) = self.links.last_mut() {
            shown.push_str(text);
        }
        let role = self.roles.last().copied().unwrap_or(Role::Plain);
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let is_last = lines.peek().is_none();
            match &self.code {
                Some(_) if is_last && line.is_empty() => {}
                Some(language) => {
                    let role = of_code(language, line);
                    self.write("  ", Role::Plain);
                    self.write(line, role);
                }
                None => self.write(line, role),
            }
            if !is_last {
                self.end_line();
            }
        }
    }

    fn write(&mut self, text: &str, role: Role) {
        if !text.is_empty() {
            self.line.push((text.to_owned(), role));
        }
    }

    /// A blank line between two blocks.
    fn gap(&mut self) {
        self.end_line();
        if std::mem::take(&mut self.needs_gap) && !self.doc.is_empty() {
            self.doc.push_pieces(&[], 0);
        }
    }

    fn end_block(&mut self) {
        self.end_line();
        self.needs_gap = true;
    }

    /// Appends the current line to the document, after its prefixes.
    fn end_line(&mut self) {
        let in_code = self.code.is_some();
        if self.line.is_empty() && !in_code {
            return;
        }
        let mut before: Vec<(String, Role)> = Vec::new();
        let depth = self.prefixes.len();
        for prefix in &mut self.prefixes[depth.saturating_sub(DEPTH_MAX)..] {
            before.push(match prefix {
                Prefix::Quote => ("│ ".to_owned(), Role::Faint),
                Prefix::Item { mark, is_written: false } => (mark.clone(), Role::Info),
                Prefix::Item { mark, .. } => (" ".repeat(width(mark)), Role::Plain),
            });
            if let Prefix::Item { is_written, .. } = prefix {
                *is_written = true;
            }
        }
        let hang: usize = before.iter().map(|(text, _)| width(text)).sum::<usize>() + if in_code { 2 } else { 0 };
        let line = std::mem::take(&mut self.line);
        let pieces: Vec<(&str, Role)> = before.iter().chain(&line).map(|(text, role)| (text.as_str(), *role)).collect();
        self.doc.push_pieces(&pieces, hang as u16);
    }

    fn table(&mut self) {
        let Some(rows) = self.table.take() else { return };
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let wide = |column: usize| {
            let widths = rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
            widths.max().unwrap_or(0).clamp(1, CELL_COLUMNS_MAX)
        };
        let widths: Vec<usize> = (0..columns).map(wide).collect();
        for (number, row) in rows.iter().enumerate() {
            let cell = |(column, columns): (usize, &usize)| {
                let text = row.get(column).map_or("", String::as_str);
                // The last cell needs no padding, and a wide cell is not padded either.
                let is_last = column + 1 == widths.len();
                if is_last || width(text) > *columns { text.to_owned() } else { fitted(text, *columns) }
            };
            let cells: Vec<String> = widths.iter().enumerate().map(cell).collect();
            let role = if number == 0 { Role::Strong } else { Role::Plain };
            self.write(&cells.join(" │ "), role);
            self.end_line();
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|columns| "─".repeat(*columns)).collect();
                self.write(&rule.join("─┼─"), Role::Faint);
                self.end_line();
            }
        }
        self.needs_gap = true;
    }
}

fn of_code(language: &str, line: &str) -> Role {
    match (language, line.as_bytes().first()) {
        ("diff" | "patch", Some(b'+')) => Role::Good,
        ("diff" | "patch", Some(b'-')) => Role::Bad,
        ("diff" | "patch", Some(b'@')) => Role::Info,
        (_, _) => Role::Code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let doc = doc(text);
        let lines: Vec<&str> = (0..doc.len()).map(|line| doc.text_of(line)).collect();
        assert_eq!(lines, expect, "{text:?}");
    }

    #[test]
    fn blocks_are_formatted() {
        check("# One\ntext\nmore\n\n## Two", &["One", "", "text", "more", "", "Two"]);
        check(
            "a\n\n- one\n- two\n  - deep\n    words\n\nb",
            &["a", "", "• one", "• two", "  • deep", "    words", "", "b"],
        );
        check("3. x\n4. y", &["3. x", "4. y"]);
        check("- [x] done\n- [ ] open", &["• [x] done", "• [ ] open"]);
        check("> said\n> so\n\nplain", &["│ said", "│ so", "", "plain"]);
        check("x\n```rust\nfn a() {\n\n    1\n}\n```\ny", &["x", "", "  fn a() {", "  ", "      1", "  }", "", "y"]);
        check("| a | long |\n|---|---|\n| 1 | 2 |", &["a │ long", "──┼─────", "1 │ 2"]);
        check("[site](http://x.y) and <http://z>", &["site (http://x.y) and http://z"]);
        check("<b>html</b> & *so*", &["<b>html</b> & so"]);
        check("", &[]);
    }

    #[test]
    fn inline_parts_have_roles() {
        let roles = |text: &str| -> Vec<(String, Role)> {
            doc(text).pieces_of(0).map(|(text, role)| (text.to_owned(), role)).collect()
        };
        let expect = [("a ", Role::Plain), ("b", Role::Strong), (" ", Role::Plain), ("c", Role::Code)];
        assert_eq!(roles("a **b** `c`"), expect.map(|(text, role)| (text.to_owned(), role)));
        assert_eq!(roles("```diff\n-x\n```")[1], ("-x".to_owned(), Role::Bad));
        for (text, role) in [("# a", Role::Title), ("## a", Role::Heading), ("### a", Role::Subheading)] {
            assert_eq!(roles(text), [("a".to_owned(), role)]);
        }
    }

    #[test]
    fn markdown_cannot_steer_the_terminal() {
        let doc = doc("\u{1b}[31m# x\u{9b}2J\n\n[\u{1b}]8;;x\u{7}a](http://\u{202e}b) `\u{1b}c`\n\n    \u{7}code");
        let shown: String = (0..doc.len()).map(|line| doc.text_of(line)).collect();
        assert!(!shown.chars().any(|char| char.is_control() || char == '\u{202e}'), "{shown:?}");
    }

    #[test]
    fn tail_of_long_text_is_its_end() {
        let text = format!("{}```\nfn last() {{\n}}", "word word\n".repeat(10_000));
        let end = tail(&text, 60);
        assert_eq!(end.text_of(end.len() - 1), "  }");
        let inside = format!("```\n{}", "code * x * y\n".repeat(100));
        let end = tail(&inside, 30);
        assert_eq!(end.text_of(end.len() - 1), "  code * x * y");
        assert_eq!(tail("short", 60).text_of(0), "short");
        let paragraphs = format!("{}the last words\n\n", "word ".repeat(1_000));
        let end = tail(&paragraphs, 60);
        assert!(end.text_of(end.len() - 1).ends_with("word the last words"));
    }

    #[test]
    fn hostile_nesting_is_bounded() {
        let text = format!("{}x\n{}", "> ".repeat(4_000), "lazy\n".repeat(1_000));
        let doc = doc(&text);
        assert!((0..doc.len()).all(|line| doc.text_of(line).len() < 200));
        let _ = super::doc(&"- ".repeat(8_000));
        let _ = super::doc(&"[".repeat(8_000));
    }
}
