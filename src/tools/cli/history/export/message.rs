//! The Markdown of a message of the model, reduced to what a report may contain.
//!
//! Pure. The parser only gives the structure: HTML is text here, an image is a link, and a link leads to the web or to an address for
//! mail, or is text. Every line break stays, because models rely on that. Each text is as a reader sees it; the writer of each
//! format escapes it.

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::shown::line_shown;

/// Deepest nesting. A message with more is not read as Markdown.
const DEPTH_MAX: usize = 24;

/// The schemes of addresses that a link may have.
const SCHEMES: [&str; 3] = ["http:", "https:", "mailto:"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Paragraph(Vec<Inline>),
    /// From 1 to 6.
    Heading(usize, Vec<Inline>),
    Quote(Vec<Block>),
    /// Items, with the first number of a list that has numbers.
    List(Option<u64>, Vec<Vec<Block>>),
    Code(Vec<String>),
    /// Rows of cells. The first row is the head.
    Table(Vec<Vec<Vec<Inline>>>),
    Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inline {
    Text(String),
    Code(String),
    Break,
    Strong(Vec<Inline>),
    Emphasis(Vec<Inline>),
    Deleted(Vec<Inline>),
    /// A text that leads to an address.
    Link(String, Vec<Inline>),
}

/// The blocks of a message; `None` if it is nested too deep.
pub(super) fn blocks(text: &str) -> Option<Vec<Block>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let text: Vec<String> = text.lines().map(line_shown).collect();
    let text = text.join("\n");
    let mut open = vec![Open::new(TagKind::Group)];
    for event in Parser::new_ext(&text, options) {
        match event {
            Event::Start(tag) => {
                let kind = TagKind::of(&tag);
                if let (Some(top), true) = (open.last_mut(), kind.is_block()) {
                    top.end_paragraph();
                }
                open.push(Open::new(kind));
                if open.len() > DEPTH_MAX {
                    return None;
                }
            }
            Event::End(_) => {
                let (Some(ended), Some(top)) = (open.pop(), open.last_mut()) else { return None };
                ended.end_in(top);
            }
            text @ (Event::Text(_)
            | Event::Code(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_)) => open.last_mut()?.take(text),
        }
    }
    let mut whole = open.pop()?;
    whole.end_paragraph();
    Some(whole.blocks)
}

/// What a tag begins.
#[derive(Debug)]
enum TagKind {
    /// Its parts count for what it is in.
    Group,
    Paragraph,
    Heading(usize),
    Quote,
    List(Option<u64>),
    Item,
    Code,
    Table,
    Row,
    Cell,
    Strong,
    Emphasis,
    Deleted,
    Link(String),
}

impl TagKind {
    fn of(tag: &Tag<'_>) -> TagKind {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => TagKind::Paragraph,
            Tag::Heading { level, .. } => TagKind::Heading(*level as usize),
            Tag::BlockQuote(_) => TagKind::Quote,
            Tag::CodeBlock(_) => TagKind::Code,
            Tag::List(first) => TagKind::List(*first),
            Tag::Item => TagKind::Item,
            Tag::Table(_) => TagKind::Table,
            Tag::TableHead | Tag::TableRow => TagKind::Row,
            Tag::TableCell => TagKind::Cell,
            Tag::Emphasis => TagKind::Emphasis,
            Tag::Strong => TagKind::Strong,
            Tag::Strikethrough => TagKind::Deleted,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => TagKind::Link(dest_url.to_string()),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => TagKind::Group,
        }
    }

    fn is_block(&self) -> bool {
        match self {
            TagKind::Paragraph
            | TagKind::Heading(_)
            | TagKind::Quote
            | TagKind::List(_)
            | TagKind::Item
            | TagKind::Code => true,
            TagKind::Table | TagKind::Row | TagKind::Cell => true,
            TagKind::Group | TagKind::Strong | TagKind::Emphasis | TagKind::Deleted | TagKind::Link(_) => false,
        }
    }
}

/// What has begun and not ended, with its parts so far.
#[derive(Debug)]
struct Open {
    kind: TagKind,
    blocks: Vec<Block>,
    inlines: Vec<Inline>,
    items: Vec<Vec<Block>>,
    rows: Vec<Vec<Vec<Inline>>>,
    cells: Vec<Vec<Inline>>,
}

impl Open {
    fn new(kind: TagKind) -> Open {
        let (blocks, inlines, items, rows, cells) = Default::default();
        Open { kind, blocks, inlines, items, rows, cells }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Code(code) | Event::InlineMath(code) | Event::DisplayMath(code) => {
                self.inlines.push(Inline::Code(line_shown(&code)));
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
            Event::SoftBreak | Event::HardBreak => self.inlines.push(Inline::Break),
            Event::TaskListMarker(is_done) => self.text(if is_done { "[x] " } else { "[ ] " }),
            Event::Rule => {
                self.end_paragraph();
                self.blocks.push(Block::Rule);
            }
            Event::Start(_) | Event::End(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.inlines.push(Inline::Break);
            }
            if !line.is_empty() {
                self.inlines.push(Inline::Text(line_shown(line)));
            }
        }
    }

    /// Text beside blocks, as in an item of a list without blank lines, is a paragraph.
    fn end_paragraph(&mut self) {
        let inlines = trimmed(std::mem::take(&mut self.inlines));
        if !inlines.is_empty() {
            self.blocks.push(Block::Paragraph(inlines));
        }
    }

    /// Ends it, as a part of `top`.
    fn end_in(mut self, top: &mut Open) {
        let inlines = match &self.kind {
            TagKind::Quote | TagKind::Item | TagKind::Group => Vec::new(),
            TagKind::Paragraph
            | TagKind::Heading(_)
            | TagKind::List(_)
            | TagKind::Code
            | TagKind::Table
            | TagKind::Row
            | TagKind::Cell => trimmed(std::mem::take(&mut self.inlines)),
            TagKind::Strong | TagKind::Emphasis | TagKind::Deleted | TagKind::Link(_) => {
                trimmed(std::mem::take(&mut self.inlines))
            }
        };
        match self.kind {
            TagKind::Group => {
                top.inlines.append(&mut self.inlines);
                top.blocks.append(&mut self.blocks);
            }
            TagKind::Paragraph => top.blocks.extend((!inlines.is_empty()).then_some(Block::Paragraph(inlines))),
            TagKind::Heading(level) => {
                top.blocks.extend((!inlines.is_empty()).then_some(Block::Heading(level, inlines)))
            }
            TagKind::Quote => {
                self.end_paragraph();
                top.blocks.extend((!self.blocks.is_empty()).then_some(Block::Quote(self.blocks)));
            }
            TagKind::Item => {
                self.end_paragraph();
                top.items.extend((!self.blocks.is_empty()).then_some(self.blocks));
            }
            TagKind::List(first) => {
                top.blocks.extend((!self.items.is_empty()).then_some(Block::List(first, self.items)))
            }
            TagKind::Code => top.blocks.push(Block::Code(code_lines(&inlines))),
            TagKind::Table => top.blocks.extend((!self.rows.is_empty()).then_some(Block::Table(self.rows))),
            TagKind::Row => top.rows.push(self.cells),
            TagKind::Cell => top.cells.push(inlines),
            TagKind::Strong => top.inlines.extend((!inlines.is_empty()).then_some(Inline::Strong(inlines))),
            TagKind::Emphasis => top.inlines.extend((!inlines.is_empty()).then_some(Inline::Emphasis(inlines))),
            TagKind::Deleted => top.inlines.extend((!inlines.is_empty()).then_some(Inline::Deleted(inlines))),
            TagKind::Link(to) if is_allowed(&to) => {
                let text = if inlines.is_empty() { vec![Inline::Text(to.clone())] } else { inlines };
                top.inlines.push(Inline::Link(to, text));
            }
            TagKind::Link(to) => {
                let is_named = plain_text(&inlines) == to || to.is_empty();
                top.inlines.extend(inlines);
                top.inlines.extend((!is_named).then(|| Inline::Text(line_shown(&format!(" ({to})")))));
            }
        }
    }
}

/// Inlines without breaks at either end.
fn trimmed(mut inlines: Vec<Inline>) -> Vec<Inline> {
    while inlines.last() == Some(&Inline::Break) {
        inlines.pop();
    }
    let breaks = inlines.iter().take_while(|inline| **inline == Inline::Break).count();
    inlines.drain(..breaks);
    inlines
}

/// The lines of a block of code.
fn code_lines(inlines: &[Inline]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for inline in inlines {
        match (inline, lines.last_mut()) {
            (Inline::Text(text) | Inline::Code(text), Some(line)) => line.push_str(text),
            (Inline::Break, _) => lines.push(String::new()),
            (_, _) => {}
        }
    }
    lines
}

fn plain_text(inlines: &[Inline]) -> String {
    let text = |inline: &Inline| match inline {
        Inline::Text(text) | Inline::Code(text) => text.clone(),
        Inline::Break => " ".to_owned(),
        Inline::Strong(of) | Inline::Emphasis(of) | Inline::Deleted(of) | Inline::Link(_, of) => plain_text(of),
    };
    inlines.iter().map(text).collect()
}

/// Whether a link may lead there: the address has a scheme of [`SCHEMES`], and nothing in it that a reader cannot see or that browsers
/// read as something else.
fn is_allowed(to: &str) -> bool {
    let has_scheme = |scheme: &&str| to.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    SCHEMES.iter().any(has_scheme)
        && line_shown(to) == to
        && !to.contains(|char: char| char.is_whitespace() || char == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Inline {
        Inline::Text(text.to_owned())
    }

    #[test]
    fn links_lead_to_the_web_or_are_text() {
        let check = |source: &str, expect: &[Inline]| {
            assert_eq!(blocks(source), Some(vec![Block::Paragraph(expect.to_vec())]), "{source}");
        };
        for to in ["http://a.b/?c=d&e", "HTTPS://a.b", "mailto:a@b.c"] {
            check(&format!("[x]({to})"), &[Inline::Link(to.to_owned(), vec![text("x")])]);
            check(&format!("![x]({to})"), &[Inline::Link(to.to_owned(), vec![text("x")])]);
        }
        for to in [
            "javascript:alert(1)",
            "JaVaScRiPt:x",
            "data:text/html,x",
            "file:///etc/x",
            "src/a.rs:7",
            "//a.b",
            "vbscript:x",
        ] {
            check(&format!("[x]({to})"), &[text("x"), text(&format!(" ({to})"))]);
        }
        check("[x](<http://a\u{202e}b>)", &[text("x"), text(r" (http://a\u{202e}b)")]);
        check("[](http://a.b)", &[Inline::Link("http://a.b".to_owned(), vec![text("http://a.b")])]);
    }

    #[test]
    fn html_is_text() {
        let paragraph = |parts: &[Inline]| Block::Paragraph(parts.to_vec());
        assert_eq!(
            blocks("<div>\n<img src=x>"),
            Some(vec![paragraph(&[text("<div>"), Inline::Break, text("<img src=x>")])])
        );
        let inline = [text("a "), text("<b>"), text("c"), text("</b>")];
        assert_eq!(blocks("a <b>c</b>"), Some(vec![paragraph(&inline)]));
    }

    #[test]
    fn deep_nesting_is_not_read() {
        assert_eq!(blocks(&format!("{}x", "> ".repeat(1_000))), None);
        assert_eq!(blocks(&format!("{}x", "- ".repeat(1_000))), None);
        assert!(blocks(&format!("{}x", "> ".repeat(9))).is_some());
    }
}
