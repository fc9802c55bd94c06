//! Styles, and the one way for text to the screen.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::super::model::Colours;
use super::super::text::plain;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Plain,
    /// Less than what stands beside it.
    Faint,
    /// More than that.
    Strong,
    Good,
    Bad,
    Warning,
    Info,
    /// The mode.
    Reversed,
}

/// How it is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brush {
    pub(super) colours: Colours,
    /// Columns of the screen.
    pub(super) width: usize,
}

impl Brush {
    /// A text in a role, and nothing in it that could steer the terminal.
    pub(super) fn span(self, text: &str, role: Role) -> Span<'static> {
        Span::styled(plain(text), self.style(role))
    }

    fn style(self, role: Role) -> Style {
        let style = Style::new();
        let coloured = |color: Color, otherwise: Modifier| match self.colours {
            Colours::Some => style.fg(color),
            Colours::None => style.add_modifier(otherwise),
        };
        match role {
            Role::Plain => style,
            Role::Faint => style.add_modifier(Modifier::DIM),
            Role::Strong => style.add_modifier(Modifier::BOLD),
            Role::Good => coloured(Color::Green, Modifier::empty()),
            Role::Bad => coloured(Color::Red, Modifier::BOLD),
            Role::Warning => coloured(Color::Yellow, Modifier::BOLD),
            Role::Info => coloured(Color::Cyan, Modifier::empty()),
            Role::Reversed => style.add_modifier(Modifier::REVERSED),
        }
    }
}
