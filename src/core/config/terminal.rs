//! The escape sequence for notifications on the user's terminal.
//!
//! codex-shim recognizes a terminal by `TERM_PROGRAM`, which the terminal sets, or by `TERM`, which ssh passes on. An unknown terminal
//! gets no sequence, because it might print it.

use std::fmt;

use super::Environment;

/// The setting `tui_notify`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoticeChoice {
    /// The sequence of a known terminal.
    #[default]
    Auto,
    Off,
    Sequence(NoticeSequence),
}

/// An escape sequence for notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeSequence {
    /// A text. Source: iTerm2.
    Osc9,
    /// A title and a text. Source: rxvt-unicode.
    Osc777,
}

impl std::str::FromStr for NoticeChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<NoticeChoice, String> {
        match text {
            "auto" => Ok(NoticeChoice::Auto),
            "off" => Ok(NoticeChoice::Off),
            "osc9" => Ok(NoticeChoice::Sequence(NoticeSequence::Osc9)),
            "osc777" => Ok(NoticeChoice::Sequence(NoticeSequence::Osc777)),
            _ => Err(format!("`{text}` is not one of `auto`, `off`, `osc9` and `osc777`")),
        }
    }
}

impl fmt::Display for NoticeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoticeChoice::Auto => "auto",
            NoticeChoice::Off => "off",
            NoticeChoice::Sequence(NoticeSequence::Osc9) => "osc9",
            NoticeChoice::Sequence(NoticeSequence::Osc777) => "osc777",
        })
    }
}

impl NoticeChoice {
    /// The sequence for the terminal of this environment, if any.
    #[must_use]
    pub fn sequence(self, environment: &Environment) -> Option<NoticeSequence> {
        let text =
            |name: &str| environment.get(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        match self {
            NoticeChoice::Auto => known(&text("TERM_PROGRAM"), &text("TERM")),
            NoticeChoice::Off => None,
            NoticeChoice::Sequence(sequence) => Some(sequence),
        }
    }
}

/// The sequence of a known terminal.
fn known(program: &str, term: &str) -> Option<NoticeSequence> {
    // A multiplexer drops both sequences, and `TERM_PROGRAM` may name the terminal around it.
    if ["tmux", "screen"].iter().any(|name| term.starts_with(name)) {
        return None;
    }
    let is_term = |names: &[&str]| names.iter().any(|name| term == *name || term.starts_with(&format!("{name}-")));
    match program {
        "iTerm.app" | "WarpTerminal" => Some(NoticeSequence::Osc9),
        "ghostty" | "WezTerm" => Some(NoticeSequence::Osc777),
        _ if is_term(&["xterm-kitty"]) => Some(NoticeSequence::Osc9),
        _ if is_term(&["xterm-ghostty", "wezterm", "foot", "rxvt-unicode"]) => Some(NoticeSequence::Osc777),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_terminals_get_their_sequence() {
        let check = |program: &str, term: &str, expect| assert_eq!(known(program, term), expect, "{program} {term}");
        check("iTerm.app", "xterm-256color", Some(NoticeSequence::Osc9));
        check("WezTerm", "xterm-256color", Some(NoticeSequence::Osc777));
        check("", "xterm-kitty", Some(NoticeSequence::Osc9));
        check("", "xterm-ghostty", Some(NoticeSequence::Osc777));
        check("", "foot", Some(NoticeSequence::Osc777));
        check("", "foot-extra", Some(NoticeSequence::Osc777));
        check("", "rxvt-unicode-256color", Some(NoticeSequence::Osc777));
        check("", "footer", None);
        check("", "xterm-256color", None);
        check("Apple_Terminal", "xterm-256color", None);
        check("vscode", "xterm-256color", None);
        check("tmux", "tmux-256color", None);
        check("iTerm.app", "screen-256color", None);
        check("", "", None);
    }

    #[test]
    fn choices_round_trip() {
        for text in ["auto", "off", "osc9", "osc777"] {
            assert_eq!(text.parse::<NoticeChoice>().map(|choice| choice.to_string()).as_deref(), Ok(text));
        }
        assert!("osc99".parse::<NoticeChoice>().is_err_and(|why| why.contains("osc777")));
    }
}
