//! Foreign text in an export never becomes markup.

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Value, json};

use super::super::super::screen::Clock;
use super::super::below::{Detail, More};
use super::clean::Cleaner;
use super::whole::WholeItems;
use super::{html, markdown};
use crate::api::Entry;

const ALL: Detail = Detail { output_lines_max: None, has_diffs: true, more: More::All };

fn said(role: &str, text: &str) -> Value {
    json!({"ts": text, "role": role, "text": text, "item_id": text, "event": text})
}

/// The messages of the model, which are Markdown.
fn in_text(entry: &Value) -> String {
    let json = entry.to_string();
    super::in_words(&Entry::read(&json).expect("BUG: a test gives entries"), &clock(), super::Screen::None, &ALL)
}

fn in_html(entry: &Value) -> String {
    html::entry(&Entry::read(&entry.to_string()).expect("BUG: a test gives entries"), &clock(), &ALL)
}

fn in_markdown(entry: &Value) -> String {
    markdown::entry(&Entry::read(&entry.to_string()).expect("BUG: a test gives entries"), &clock(), &ALL)
}

fn messages(text: &str) -> Vec<Value> {
    ["assistant", "reasoning", "plan"].map(|role| said(role, text)).into()
}

/// An entry of each other role, with a text of others in every member.
fn entries(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> = ["user", "diff", "error", "other"].map(|role| said(role, text)).into();
    all.push(json!({"ts": text, "role": text}));
    all.push(json!({"ts": text, "role": "plan", "steps": [{"step": text, "status": "completed"}]}));
    all.push(json!({
        "ts": text, "role": "command", "command": format!("{text}\n{text}"), "output": text, "status": "failed", "exit_code": 1,
        "error_message": text, "output_truncated_by_bytes": 7,
    }));
    all.push(
        json!({"ts": text, "role": "file_change", "changes": [{"path": text, "diff": format!("+{text}\n-{text}")}]}),
    );
    all.push(json!({
        "ts": text, "role": "tool", "server": text, "tool": text, "text": text, "status": text, "arguments": {text: text},
        "result": text,
    }));
    all.push(
        json!({"ts": text, "role": "approval", "command": text, "kind": text, "source": text, "decision": {"a": text}}),
    );
    all.push(json!({"ts": text, "role": "status", "status": text, "error_message": text}));
    all
}

fn clock() -> Clock {
    Clock::stopped("2026-01-02T03:04:05Z")
}

fn page(text: &str) -> String {
    let facts = vec![("folder", text.to_owned())];
    let all = entries(text).into_iter().chain(messages(text));
    let entries: String = all.map(|entry| in_html(&entry)).collect();
    html::head(&facts) + &entries + html::TAIL
}

/// The tags of a page, in order. Text between tags has no `<` or `>`, and `&` only in our own escapes.
fn tags(page: &str) -> Vec<&str> {
    let (mut tags, mut rest) = (Vec::new(), page);
    while let Some(at) = rest.find(['<', '>']) {
        check_text(&rest[..at]);
        assert!(rest[at..].starts_with('<'), "a stray > in {rest}");
        let end = rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at..=at + end];
        assert!(!tag[1..].contains('<'), "{tag}");
        tags.push(tag);
        rest = &rest[at + end + 1..];
        if tag == "<style>" {
            rest = &rest[rest.find("</style>").expect("it ends")..];
        }
    }
    check_text(rest);
    tags
}

fn check_text(text: &str) {
    for (at, _) in text.match_indices('&') {
        let ours = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(ours.iter().any(|escape| text[at..].starts_with(escape)), "{}", &text[at..]);
    }
}

const ALLOWED: &str = r#"^<(!DOCTYPE html|html lang="en"|/?(html|head|title|body|style|h[1-6]|dl|dt|dd|p|pre|time|span|div|section|ul|ol|li|blockquote|table|tr|th|td|code|strong|em|del|a)|br|hr|ol start="[0-9]+"|a href="(?i:https?|mailto):[^"<>\s]*" rel="noopener noreferrer"|meta (charset="utf-8"|http-equiv="Content-Security-Policy" content="[a-zA-Z0-9 ;'+/=-]+"|name="(viewport|referrer)" content="[a-z0-9 ,=-]+")|(section|div|span) class="[a-z ]+")>$"#;

fn check_html(text: &str) {
    let allowed = regex::Regex::new(ALLOWED).expect("BUG: it is valid");
    let page = page(text);
    for tag in tags(&page) {
        assert!(allowed.is_match(tag), "{tag} of {text:?}");
    }
    let is_steering = |char: char| (char.is_control() && char != '\n') || crate::engine::deceives(char);
    assert!(!page.contains(is_steering), "{text:?}");
}

/// Parses the Markdown with all extensions and checks the events.
fn check_markdown(text: &str) {
    let facts = vec![("folder", text.to_owned())];
    let entries: String = entries(text).iter().map(in_markdown).collect();
    let file = markdown::head(&facts) + &entries;
    for event in Parser::new_ext(&file, Options::all()) {
        let is_allowed = matches!(
            event,
            Event::Start(Tag::Paragraph | Tag::CodeBlock(_) | Tag::Heading { .. } | Tag::List(None) | Tag::Item)
                | Event::End(_)
                | Event::Text(_)
                | Event::Code(_)
                | Event::SoftBreak
                | Event::HardBreak
        );
        assert!(is_allowed, "{event:?} of {text:?} in\n{file}");
    }
    for message in messages(text) {
        check_message(&in_markdown(&message), text);
    }
    // Text of others makes no heading and no block of ours more or less.
    let outline = |file: &str| {
        let parser = Parser::new_ext(file, Options::all());
        parser.filter(|event| matches!(event, Event::Start(Tag::Heading { .. } | Tag::List(_) | Tag::Item))).count()
    };
    let plain: String = self::entries("x").iter().map(in_markdown).collect();
    assert_eq!(
        outline(&file),
        outline(&(markdown::head(&[("folder", "x".to_owned())]) + &plain)),
        "{text:?} in\n{file}"
    );
}

/// A message of the model may be more than text, but nothing that loads or runs, and no heading like ours.
fn check_message(file: &str, text: &str) {
    let mut headings = 0;
    for event in Parser::new_ext(file, Options::all()) {
        let runs = matches!(
            event,
            Event::Html(_)
                | Event::InlineHtml(_)
                | Event::FootnoteReference(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Start(Tag::Image { .. } | Tag::HtmlBlock | Tag::FootnoteDefinition(_) | Tag::MetadataBlock(_))
        );
        let mut is_allowed = !runs;
        if let Event::Start(Tag::Link { dest_url, .. }) = &event {
            let to = dest_url.to_lowercase();
            is_allowed &= ["http:", "https:", "mailto:"].iter().any(|scheme| to.starts_with(scheme));
        }
        headings += usize::from(matches!(&event, Event::Start(Tag::Heading { level, .. }) if (*level as usize) < 3));
        assert!(is_allowed, "{event:?} of {text:?} in\n{file}");
    }
    assert_eq!(headings, 1, "{text:?} in\n{file}");
    let is_steering = |char: char| (char.is_control() && char != '\n') || crate::engine::deceives(char);
    assert!(!file.contains(is_steering), "{text:?}");
}

const HOSTILE: [&str; 42] = [
    "<script>alert(1)</script>",
    "</style><script>x</script>",
    "</pre></p></section><img src=x onerror=x>",
    "\"><a href='javascript:x'>",
    "' onmouseover='x",
    "&lt;script&gt; &amp; &#60;b&#62;",
    "<!-- x --> <![CDATA[x]]> <?php x ?> <!DOCTYPE x>",
    "<div>\n\n<b>x</b>\n\n</div>",
    "rm \u{202e}txt.exe\u{2066}",
    "\u{1b}[31mred\u{1b}[0m \u{1b}]8;;http://evil\u{7}x\u{1b}]8;;\u{7} \u{9b}2J \0 \u{7f}",
    "`` ``` ```` ````` `",
    "```\n```html\n<script>x</script>\n```",
    "~~~\n<script>x</script>\n~~~",
    "[x](javascript:alert(1)) ![x](http://evil/x.png) [x]: http://evil\n\n[x]",
    "<http://evil> https://evil www.evil.com a@b.c",
    "# h\n## h\nh\n===\nh\n---\n* * *",
    "- a\n+ b\n* c\n1. d\n2) e\n> q",
    "| a | b |\n|---|---|\n| c | d |",
    "    code\n\tcode",
    "a  \nb\\\nc\\",
    "[^1]\n\n[^1]: note",
    "- [ ] task",
    "$x$ $$y$$ ~x~ ~~x~~ ^x^ ==x== {#id} :smile:",
    "term\n: definition",
    "---\ntitle: x\n---",
    "+++\nx\n+++",
    "> [!NOTE]\n> x",
    "&nbsp;&#0;&#x202e;",
    "\\<b> \\\\<b> \\`x`",
    "__x__ **x** _x_",
    "[[wiki|x]]",
    "\r\n\r <b>\r",
    "\u{feff}\u{200b}\u{2028}<b>",
    "[a](http://x/`<>$y$|{z}^&amp;\"'\\) !\\[b](http://x) ![c](https://x/c.png) ![[d]](d) \\![e](mailto:a@b)",
    "&#x202e;x &#27;[2J &#0; &lt;b&gt; &#96;&#96;&#96; &#42;&#32;a &#35; h\n&#45; b\n&#32;&#32;&#32;&#32;c",
    "~~~~a ~b~~~~ ~~ *&#32;a* **&#32;** _&nbsp;_",
    "- - - a\n\n      b\n-\n- ---\n1)\n2) # h\n> # q\n> ```\n> x",
    "a\n  -\nb\n| `|` |\n|-|\n| <b> \\| [x](http://y|z) |",
    " - a",
    "     code",
    "18446744073709551615. a\n999999999. b\n0. c",
    "",
];

#[test]
fn hostile_text_is_only_text() {
    for text in HOSTILE {
        check_html(text);
        check_markdown(text);
    }
    for pair in HOSTILE.windows(2) {
        let text = pair.join("\n");
        check_html(&text);
        check_markdown(&text);
    }
}

#[test]
fn style_is_allowed_by_its_hash_alone() {
    use base64::Engine as _;
    use sha2::Digest as _;
    let page = page("x");
    let (_, style) = page.split_once("<style>").expect("there is one");
    let (style, _) = style.split_once("</style>").expect("it ends");
    let hash = base64::prelude::BASE64_STANDARD.encode(sha2::Sha256::digest(style));
    let policy =
        format!("content=\"default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\"");
    assert!(page.contains(&policy), "{page}");
    for loading in ["url(", "@import", "http://", "https://", "src=", "href="] {
        assert!(!page.contains(loading), "{loading}");
    }
}

#[test]
fn text_is_read_as_it_was_written() {
    let text = "a < b && c > d \"e\" 'f' \\ `g` *h* _i_ #1 [j](k)\n  indented\n\n1. x";
    let entry = json!({"ts": "2026-01-01T23:04:05.678Z", "role": "user", "text": text});
    let page = in_html(&entry);
    let shown = page
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&");
    assert!(shown.contains(&format!("<p>{text}</p>")), "{page}");
    let file = in_markdown(&entry);
    let read: String = Parser::new(&file)
        .map(|event| {
            let begins_line = matches!(event, Event::HardBreak | Event::SoftBreak | Event::Start(Tag::Paragraph));
            if let Event::Text(text) = event { text.into_string() } else { "\n".repeat(usize::from(begins_line)) }
        })
        .collect();
    assert_eq!(
        read.replace('\u{a0}', " "),
        "user · 2026-01-01 23:04:05 UTC\na < b && c > d \"e\" 'f' \\ `g` *h* _i_ #1 [j](k)\n  indented\n1. x"
    );
}

/// A message as a model writes it.
const WRITTEN: &str = "\
# Done

Fixed **two** _bugs_ in `a|b.rs`, ~~three~~:
see [the issue](https://a.b/c?d=e&f=g_h) and <b>.

1. one
   - nested

     ```rust
     let x = 1 < 2;
     ```
2. two!

> quoted

| name | `n` |
|---|---|
| a | **1** |

- [x] done
- [ ] open

---
#3 and 1. x";

#[test]
fn messages_of_the_model_are_rendered() {
    let entry = |role: &str| json!({"ts": "T", "role": role, "text": WRITTEN});
    for role in ["assistant", "reasoning", "plan"] {
        let page = in_html(&entry(role));
        for part in [
            "<h3>Done</h3>",
            "<p>Fixed <strong>two</strong> <em>bugs</em> in <code>a|b.rs</code>, <del>three</del>:<br>see <a href=\"https://a.b/c?d=e&amp;f=g_h\" \
             rel=\"noopener noreferrer\">the issue</a> and &lt;b&gt;.</p>",
            "<ol>\n<li><p>one</p>\n<ul>\n<li><p>nested</p>\n<pre>\nlet x = 1 &lt; 2;</pre>\n</li>\n</ul>\n</li>\n<li><p>two!</p>\n</li>\n</ol>",
            "<blockquote>\n<p>quoted</p>\n</blockquote>",
            "<tr><th>name</th><th><code>n</code></th></tr>\n<tr><td>a</td><td><strong>1</strong></td></tr>",
            "<li><p>[x] done</p>\n</li>",
            "<hr>\n<p>#3 and 1. x</p>",
        ] {
            assert!(page.contains(part), "{role}: {part}\n{page}");
        }
        let file = in_markdown(&entry(role));
        let (_, message) = file.split_once("\n\n").expect("a heading");
        let (told, written) = (super::message::blocks(message), super::message::blocks(WRITTEN));
        let lowered = |blocks: Option<Vec<super::message::Block>>| {
            let mut blocks = blocks.expect("it is not deep");
            if let Some(super::message::Block::Heading(level, _)) = blocks.first_mut() {
                *level += 2;
            }
            blocks
        };
        assert_eq!(merged(&told.expect("it is not deep")), merged(&lowered(written)), "{role}: {file}");
    }
    // What a person has typed stands as it was typed.
    assert!(in_html(&entry("user")).contains("Fixed **two** _bugs_"));
}

/// The blocks with adjacent texts as one: escapes split a text.
fn merged(blocks: &[super::message::Block]) -> String {
    format!("{blocks:?}").replace("\"), Text(\"", "")
}

#[test]
fn content_of_files_has_its_signs() {
    let shapes = [json!("add"), json!({"type": "add"}), json!("delete"), json!({"type": "delete"})];
    for kind in shapes {
        let sign = if kind.to_string().contains("add") { "+" } else { "-" };
        let change = json!({"path": "a", "kind": kind, "diff": "one\n-two\n"});
        let entry = json!({"ts": "T", "role": "file_change", "changes": [change]});
        for shown in [in_html(&entry), in_markdown(&entry), in_text(&entry)] {
            assert!(shown.contains(&format!("{sign}one")) && shown.contains(&format!("{sign}-two")), "{shown}");
        }
    }
}

#[test]
fn secrets_and_homes_are_in_no_format() {
    let cleaner = Cleaner::of_home(Some(["/home/ann".to_owned()]));
    let text =
        "/home/ann/x TOKEN=hunter2hunter2 {\"p\":\"/home/ann/y\",\"q\":\"a\\n/home/bob\"} sk-abcdefghijklmnopqrst";
    for entry in entries(text) {
        let entry = WholeItems::none().complete(&entry.to_string(), &cleaner).expect("there is no journal");
        let all = [entry.to_string(), in_html(&entry), in_markdown(&entry), in_text(&entry)];
        for text in all {
            for word in ["hunter2", "sk-abc", "/home/ann", "ann/", "bob"] {
                assert!(!text.contains(word), "{word} is in {text}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_only_text(text in "(?s)([<>&\"'`~*_#\\[\\]()!|\\\\$+=:.\\-{}^ \n\t\r]|[a-c1]|\u{202e}|\u{1b}|<b>|</|```|\n\n|    |<!--){0,24}") {
        check_html(&text);
        check_markdown(&text);
    }
}
