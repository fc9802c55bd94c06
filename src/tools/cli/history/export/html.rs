//! A transcript as one HTML page: it loads nothing and runs nothing. Messages of the model are rendered from [`message`]; all other text
//! of others is nothing but text in it.
//!
//! Attributes have only words of ours, except the address of a link. The policy in the head allows one style, by its hash.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use super::super::super::screen::{Clock, Tone};
use super::super::below::{Below, Detail, TextKind, below, lines_of};
use super::super::entry::{Words, Written, words};
use super::message::{self, Block, Inline};
use super::shown::{Part, line_shown, parts};
use crate::api::{Content, Entry};
use crate::protocol::change::LineKind;

const STYLE: &str = "
:root{color-scheme:light dark;--back:#fff;--text:#1d2127;--faint:#636c76;--line:#d8dee4;--code:#f6f8fa;--user:#0a6b3d;--good:#116329;--bad:#b3261e;--warning:#8a5a00;--add:#dafbe1;--del:#ffebe9}
@media(prefers-color-scheme:dark){:root{--back:#14171b;--text:#e4e7eb;--faint:#9aa4ae;--line:#363d45;--code:#1c2127;--user:#5fd39a;--good:#6fd08c;--bad:#ff8f85;--warning:#e0b15c;--add:#12361f;--del:#451c1a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:0 0 .5rem}
h2{font-size:1rem;margin:1.5rem 0 .25rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:0 0 1rem;padding-bottom:1rem;border-bottom:1px solid var(--line);font-size:.9rem}
dt,time{color:var(--faint)}
dd{margin:0}
time{font-weight:400;font-size:.85rem;margin-left:.5rem}
p{margin:0 0 .75rem;white-space:pre-wrap}
pre{margin:0 0 .75rem;padding:.6rem .75rem;max-height:36rem;overflow:auto;background:var(--code);border:1px solid var(--line);border-radius:6px;font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap}
.did{margin:.5rem 0;font:14px/1.45 ui-monospace,monospace}
.note{margin:0 0 .25rem;color:var(--faint);font-size:.85rem}
h3,h4,h5,h6{font-size:1rem;margin:1rem 0 .25rem}
ul,ol{margin:0 0 .75rem;padding-left:1.75rem}
li>p{margin:0}
li>ul,li>ol{margin:0}
blockquote{margin:0 0 .75rem;padding-left:.75rem;border-left:3px solid var(--line)}
table{display:block;overflow:auto;margin:0 0 .75rem;border-collapse:collapse}
th,td{padding:.2rem .6rem;border:1px solid var(--line);text-align:left}
code{padding:0 .2rem;background:var(--code);border-radius:3px;font:.9em ui-monospace,monospace}
hr{border:0;border-top:1px solid var(--line)}
a{color:inherit}
.user h2{color:var(--user)}
.faint{color:var(--faint)}
.bad{color:var(--bad)}
.good{color:var(--good)}
.warning{color:var(--warning)}
.turn{padding-bottom:.75rem;border-bottom:1px solid var(--line)}
.add{background:var(--add)}
.del{background:var(--del)}
@media print{:root{--back:#fff;--text:#000;--faint:#444;--line:#999;--code:#fff;--user:#000;--good:#000;--bad:#000;--warning:#000;--add:#fff;--del:#fff}body{max-width:none;padding:0;font-size:11pt}pre{max-height:none;overflow:visible}h2{break-after:avoid}}
";

static HEAD: LazyLock<String> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; \
         form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"referrer\" content=\"no-referrer\">
<title>Codex conversation</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Codex conversation</h1>
"
    )
});

pub(super) const TAIL: &str = "</body>\n</html>\n";

/// The start of a page: everything before the first entry.
pub(super) fn head(facts: &[(&'static str, String)]) -> String {
    let mut page = HEAD.clone();
    page.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(&line_shown(value)));
    }
    page.push_str("</dl>\n");
    page
}

/// An entry of the page.
pub(super) fn entry(entry: &Entry<'_>, clock: &Clock, detail: &Detail) -> String {
    let at = escaped(&clock.text(&entry.ts));
    let mut page = String::new();
    match words(entry) {
        Words::Message { tone, written, text } => {
            let class = if let Content::User(_) = entry.content { "user" } else { class(tone) };
            let _ = writeln!(
                page,
                "<section class=\"{class}\">\n<h2>{}<time>{at}</time></h2>",
                escaped(entry.content.role())
            );
            let blocks = if written == Written::Markdown { message::blocks(&text) } else { None };
            match blocks {
                Some(blocks) => put_blocks(&mut page, &blocks),
                None => verbatim(&mut page, &text),
            }
            page.push_str("</section>\n");
        }
        Words::Action { tone, line } => {
            did(&mut page, class(tone), &line, &at);
            below(entry, detail).iter().for_each(|below| below_did(&mut page, below));
        }
        Words::TurnEnd { tone, line } => {
            let class = if tone == Tone::Bad { "turn bad" } else { "turn faint" };
            did(&mut page, class, &line, &at);
        }
    }
    page
}

/// A message whose signs stand for themselves, except the fences of its blocks of code.
fn verbatim(page: &mut String, text: &str) {
    for part in parts(text) {
        match part {
            Part::Prose(lines) => {
                let _ = writeln!(page, "<p>{}</p>", escaped(lines.join("\n").trim_matches('\n')));
            }
            Part::Code(lines) => pre(page, &lines.join("\n")),
        }
    }
}

/// The headings of a page that are ours have levels 1 and 2.
const OUR_LEVELS: usize = 2;

fn put_blocks(page: &mut String, blocks: &[Block]) {
    for block in blocks {
        // Writing to memory does not fail.
        let _ = match block {
            Block::Paragraph(inlines) => writeln!(page, "<p>{}</p>", inline(inlines)),
            Block::Heading(level, inlines) => {
                let level = (level + OUR_LEVELS).min(6);
                writeln!(page, "<h{level}>{}</h{level}>", inline(inlines))
            }
            Block::Quote(blocks) => {
                page.push_str("<blockquote>\n");
                put_blocks(page, blocks);
                writeln!(page, "</blockquote>")
            }
            Block::List(first, items) => {
                let name = if first.is_some() { "ol" } else { "ul" };
                match first.filter(|first| *first != 1) {
                    Some(first) => page.push_str(&format!("<ol start=\"{first}\">\n")),
                    None => page.push_str(&format!("<{name}>\n")),
                }
                for item in items {
                    page.push_str("<li>");
                    put_blocks(page, item);
                    page.push_str("</li>\n");
                }
                writeln!(page, "</{name}>")
            }
            Block::Code(lines) => {
                pre(page, &lines.join("\n"));
                Ok(())
            }
            Block::Table(rows) => {
                page.push_str("<table>\n");
                for (number, row) in rows.iter().enumerate() {
                    let name = if number == 0 { "th" } else { "td" };
                    let cells = row.iter().map(|cell| format!("<{name}>{}</{name}>", inline(cell)));
                    let _ = writeln!(page, "<tr>{}</tr>", cells.collect::<String>());
                }
                writeln!(page, "</table>")
            }
            Block::Rule => writeln!(page, "<hr>"),
        };
    }
}

fn inline(inlines: &[Inline]) -> String {
    let one = |part: &Inline| match part {
        Inline::Text(text) => escaped(text),
        Inline::Code(code) => format!("<code>{}</code>", escaped(code)),
        Inline::Break => "<br>".to_owned(),
        Inline::Strong(of) => format!("<strong>{}</strong>", inline(of)),
        Inline::Emphasis(of) => format!("<em>{}</em>", inline(of)),
        Inline::Deleted(of) => format!("<del>{}</del>", inline(of)),
        Inline::Link(to, of) => {
            format!("<a href=\"{}\" rel=\"noopener noreferrer\">{}</a>", escaped(to), inline(of))
        }
    };
    inlines.iter().map(one).collect()
}

fn did(page: &mut String, class: &'static str, line: &str, at: &str) {
    let _ = writeln!(page, "<div class=\"did {class}\">{}<time>{at}</time></div>", escaped(&line_shown(line)));
}

fn below_did(page: &mut String, below: &Below<'_>) {
    let title = Some(below.title.as_str()).filter(|title| !title.is_empty());
    for note in [title, below.missing.as_deref()].into_iter().flatten() {
        let _ = writeln!(page, "<div class=\"note\">{}</div>", escaped(&line_shown(note)));
    }
    match below.kind {
        TextKind::Output | TextKind::Command | TextKind::Json => {
            pre(page, &below.text.lines().map(line_shown).collect::<Vec<_>>().join("\n"))
        }
        TextKind::Diff(_) => {
            page.push_str("<pre>\n");
            for (kind, line) in lines_of(below) {
                let text = escaped(&line_shown(&line));
                let class = match kind {
                    LineKind::Added => Some("add"),
                    LineKind::Removed => Some("del"),
                    LineKind::File | LineKind::Header | LineKind::Hunk => None,
                    LineKind::Context | LineKind::Remark | LineKind::Outside => None,
                };
                let _ = match class {
                    Some(class) => writeln!(page, "<span class=\"{class}\">{text}</span>"),
                    None => writeln!(page, "{text}"),
                };
            }
            page.push_str("</pre>\n");
        }
    }
}

/// Text with its line breaks. A parser drops a first line break, so there is one.
fn pre(page: &mut String, text: &str) {
    let _ = writeln!(page, "<pre>\n{}</pre>", escaped(text));
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Strong => "strong",
        Tone::Faint => "faint",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warning => "warning",
    }
}

/// Text that a parser takes for text, between tags and in quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char => escaped.push(char),
        }
    }
    escaped
}
