//! Foreign text in an export never becomes markup.

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Value, json};

use super::super::super::screen::Clock;
use super::super::below::{Detail, More};
use super::clean::Cleaner;
use super::whole::WholeItems;
use super::{html, markdown};

const ALL: Detail = Detail { output_lines_max: None, has_diffs: true, more: More::All };

/// An entry of each role, with a text of others in every member.
fn entries(text: &str) -> Vec<Value> {
    let said = |role: &str| json!({"ts": text, "role": role, "text": text, "item_id": text, "event": text});
    let mut all: Vec<Value> = ["user", "assistant", "reasoning", "plan", "diff", "error", "other"].map(said).into();
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
    let entries: String = entries(text).iter().map(|entry| html::entry(entry, &clock(), &ALL)).collect();
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

const ALLOWED: &str = r#"^<(!DOCTYPE html|html lang="en"|/?(html|head|title|body|style|h1|h2|dl|dt|dd|p|pre|time|span|div|section)|meta (charset="utf-8"|http-equiv="Content-Security-Policy" content="[a-zA-Z0-9 ;'+/=-]+"|name="(viewport|referrer)" content="[a-z0-9 ,=-]+")|(section|div|span) class="[a-z ]+")>$"#;

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
    let entries: String = entries(text).iter().map(|entry| markdown::entry(entry, &clock(), &ALL)).collect();
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
    // Text of others makes no heading and no block of ours more or less.
    let outline = |file: &str| {
        let parser = Parser::new_ext(file, Options::all());
        parser.filter(|event| matches!(event, Event::Start(Tag::Heading { .. } | Tag::List(_) | Tag::Item))).count()
    };
    let plain: String = self::entries("x").iter().map(|entry| markdown::entry(entry, &clock(), &ALL)).collect();
    assert_eq!(
        outline(&file),
        outline(&(markdown::head(&[("folder", "x".to_owned())]) + &plain)),
        "{text:?} in\n{file}"
    );
}

const HOSTILE: [&str; 34] = [
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
    let page = html::entry(&entry, &clock(), &ALL);
    let shown = page
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&");
    assert!(shown.contains(&format!("<p>{text}</p>")), "{page}");
    let file = markdown::entry(&entry, &clock(), &ALL);
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

#[test]
fn secrets_and_homes_are_in_no_format() {
    let cleaner = Cleaner::of_home(Some(["/home/ann".to_owned()]));
    let text =
        "/home/ann/x TOKEN=hunter2hunter2 {\"p\":\"/home/ann/y\",\"q\":\"a\\n/home/bob\"} sk-abcdefghijklmnopqrst";
    for entry in entries(text) {
        let entry = WholeItems::none().complete(&entry.to_string(), &cleaner).expect("there is no journal");
        let all = [
            entry.to_string(),
            html::entry(&entry, &clock(), &ALL),
            markdown::entry(&entry, &clock(), &ALL),
            super::in_words(&entry, &clock(), super::Screen::None, &ALL),
        ];
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
