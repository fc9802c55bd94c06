//! Recognizes our own texts: a whole envelope or projection, or a piece that codex cut from one.
//!
//! A text is ours only if it parses as one. A user's words that merely begin with a marker stay the user's.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::envelope::{MARKER_END, MARKER_START};
use super::inject::TURN_CHARS_MAX;
use crate::engine::assembly::projection::{self, Cut};

/// The `type` of an envelope.
const ENVELOPE_TYPE: &str = "user_cmd_context";

/// The first members of every envelope, without blanks. Source: the contract of the envelope.
const ENVELOPE_HEAD: &str = r#"{"v":1,"type":"user_cmd_context","#;

/// The last member of every envelope without tools, without blanks.
const ENVELOPE_TAIL: &str = r#"],"mcp":[]}"#;

/// Prefixes to prepend when parsing a piece whose first character is inside a string of an envelope.
const LOST_BEGINNINGS: [&str; 6] = [
    r#"{"v":1,"type":"user_cmd_context","conversation_id":""#,
    r#"{"v":1,"type":"user_cmd_context","shell_id":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"cmd":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"cwd":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"block_id":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"preview":{"lines":[""#,
];

/// The members that identify an envelope. Others may be present, as earlier builds and pushers wrote them.
#[derive(Deserialize)]
struct Known<'a> {
    v: u64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "commands")]
    _commands: Vec<IgnoredAny>,
    #[serde(rename = "mcp", default)]
    _mcp: Option<Vec<IgnoredAny>>,
}

/// Whether a text is exactly one envelope or projection, from marker to marker.
pub(super) fn is_ours(text: &str) -> bool {
    is_envelope(text) || projection::is_projection(text)
}

/// Likewise for a snippet, in which codex may replace line ends with blanks.
pub(super) fn is_ours_in_snippet(text: &str) -> bool {
    is_envelope(text) || projection::is_projection_in_snippet(text)
}

/// Whether a text is the beginning of an envelope or projection without its end, possibly with an ellipsis.
pub(super) fn is_cut_off(text: &str) -> bool {
    if text.contains(MARKER_END) {
        return false;
    }
    let shown = text.trim_end_matches(['.', '…']);
    is_cut_envelope(shown) || is_cut_envelope(shown.trim_end()) || projection::is_cut_projection(shown)
}

/// Whether a text is the end of an envelope or projection, without the marker, as in a preview that lost its beginning:
/// codex shows only the text after its own heading, even if that heading was inside our string.
pub(super) fn is_end_of_ours(shown: &str) -> bool {
    let is_end_of_envelope = || LOST_BEGINNINGS.iter().any(|lost| is_envelope_json(&format!("{lost}{shown}")));
    projection::ends_projection(shown) || is_end_of_envelope()
}

/// Whether the text of a snippet up to an end marker, which it does not include, is the end of ours. Without an ellipsis the
/// snippet shows the beginning of the message, so a short piece is the user's.
pub(super) fn is_end_in_snippet(text: &str) -> bool {
    let shown = text.trim_start_matches(['.', '…', ' ']);
    let has_ellipsis = text.starts_with("...") || text.starts_with('…');
    let compact: String = shown.chars().filter(|char| !char.is_whitespace()).collect();
    let is_long = compact.len() >= ENVELOPE_TAIL.len();
    let is_end_of_envelope = match compact.rfind(r#"],"mcp":["#) {
        Some(at) => is_list_of_names(&compact[at + r#"],"mcp":"#.len()..]),
        None => ENVELOPE_TAIL.ends_with(&*compact) || (compact.ends_with("\"]}") && is_names_cut_off(&compact)),
    };
    let cut = if has_ellipsis { Cut::Yes } else { Cut::No };
    ((has_ellipsis || is_long) && is_end_of_envelope) || projection::is_end_of_projection(shown, cut)
}

/// Whether a text is `["NAME",…]}`.
fn is_list_of_names(text: &str) -> bool {
    text.strip_suffix('}').is_some_and(|list| serde_json::from_str::<Vec<String>>(list).is_ok())
}

/// Whether a text is the end of `"mcp":["NAME",…]}`, cut anywhere.
fn is_names_cut_off(text: &str) -> bool {
    let is_of_name =
        |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '"' | ',' | '[' | ':');
    text.strip_suffix("]}").is_some_and(|names| names.chars().all(is_of_name))
}

fn is_envelope(text: &str) -> bool {
    let json = text.strip_prefix(MARKER_START).and_then(|text| text.strip_suffix(MARKER_END));
    json.is_some_and(is_envelope_json)
}

/// Whether a text is the JSON of an envelope on one line.
fn is_envelope_json(json: &str) -> bool {
    // A character has up to four bytes.
    let is_bounded = json.len() <= 4 * TURN_CHARS_MAX && !json.contains(['\n', '\r', MARKER_END]);
    is_bounded && serde_json::from_str::<Known<'_>>(json).is_ok_and(|known| known.v >= 1 && known.kind == ENVELOPE_TYPE)
}

/// Whether a text is the beginning of an envelope, cut off after its first character or later.
fn is_cut_envelope(shown: &str) -> bool {
    let Some(json) = shown.strip_prefix(MARKER_START) else {
        return shown.len() > 1 && MARKER_START.starts_with(shown);
    };
    let head: String = json.chars().filter(|char| !char.is_whitespace()).take(ENVELOPE_HEAD.len()).collect();
    let has_head = head == ENVELOPE_HEAD || ENVELOPE_HEAD.starts_with(&*head);
    has_head && !json.contains(['\n', '\r']) && is_beginning_of_json(json)
}

/// Whether a text is JSON, or JSON that is cut off.
fn is_beginning_of_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).map_or_else(|error| error.is_eof(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = concat!(
        r#"{"v":1,"type":"user_cmd_context","conversation_id":"t","shell_id":null,"total_commands_run":1,"kept":1,"dropped":0,"#,
        r#""commands":[{"cmd":"make","exit_code":2,"cwd":"/w","block_id":null,"ts":5,"#,
        r#""preview":{"lines":["é [1]"],"truncated":false}}],"mcp":["pty_read_screen"]}"#
    );

    fn envelope() -> String {
        format!("{MARKER_START}{JSON}{MARKER_END}")
    }

    #[test]
    fn envelopes_are_known_by_their_json() {
        for json in [
            JSON.to_owned(),
            // A pusher that adds a member writes blanks; a later build may too.
            JSON.replacen("{\"v\"", "{\"by\":\"x\",\"v\"", 1),
            JSON.replace("\":", "\": "),
            JSON.replacen("\"v\":1", "\"v\":2", 1),
            r#"{"v":1,"type":"user_cmd_context","commands":[]}"#.to_owned(),
        ] {
            assert!(is_ours(&format!("{MARKER_START}{json}{MARKER_END}")), "{json}");
        }
        for json in [
            "",
            "hello",
            "{}",
            "[]",
            r#"{"v":1}"#,
            r#"{"v":1,"type":"note","commands":[]}"#,
            r#"{"v":0,"type":"user_cmd_context","commands":[]}"#,
            r#"{"v":1,"type":"user_cmd_context","commands":{}}"#,
            r#"{"v":1,"type":"user_cmd_context","commands":[]} and more"#,
            "{\"v\":1,\n\"type\":\"user_cmd_context\",\"commands\":[]}",
        ] {
            assert!(!is_ours(&format!("{MARKER_START}{json}{MARKER_END}")), "{json}");
        }
        assert!(!is_ours(&format!(" {}", envelope())) && !is_ours(&format!("{} ", envelope())));
    }

    #[test]
    fn any_envelope_prefix_counts_as_cut_off() {
        let text = envelope();
        for (at, _) in text.char_indices().skip(2) {
            for ellipsis in ["", "...", "…", " …"] {
                let cut = format!("{}{ellipsis}", &text[..at]);
                assert!(is_cut_off(&cut), "{cut}");
            }
        }
        for whole in
            [&*text, "\u{1e}", "\u{1e}x", "\u{1e}CODEX_METAL", "\u{1e}CODEX_META no end", "\u{1e}CODEX_META {}"]
        {
            assert!(!is_cut_off(whole), "{whole}");
        }
    }

    #[test]
    fn any_envelope_suffix_matches_in_snippet() {
        let text = &envelope()[..envelope().len() - 1];
        for (at, _) in text.char_indices().skip(1) {
            assert!(is_end_in_snippet(&format!("… {}", &text[at..])), "{}", &text[at..]);
        }
        for mine in ["", "}", "a[0]}", "see ]}", "{\"a\":[]}", "… a[0]}", "... what ", "my request:"] {
            assert!(!is_end_in_snippet(mine), "{mine}");
        }
    }

    #[test]
    fn preview_suffix_must_close_envelope_string() {
        let whole = [" x\"],\"truncated\":false}}],\"mcp\":[]}", " x\",\"exit_code\":0}],\"mcp\":[]}"];
        assert!(whole.iter().all(|end| is_end_of_ours(end)));
        for mine in ["a \"],\"mcp\":[]}", "],\"mcp\":[]}", "{}", "\"commands\":[],\"mcp\":[]}"] {
            assert!(!is_end_of_ours(mine), "{mine}");
        }
    }
}
