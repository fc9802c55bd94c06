//! The demo's screen: 80 columns, colour where it is wanted.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::config::Environment;

/// Columns of a line.
const COLUMNS: usize = 78;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const CLIENT: &str = "\x1b[36m";
const CODEX: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

/// Where the demo is shown.
pub(super) struct Screen {
    style: Style,
    headings: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Coloured,
    Plain,
    /// Nothing is shown.
    Dark,
}

impl Screen {
    /// Our stdout; coloured where it is a terminal and nobody minds.
    pub(super) fn of_stdout() -> Screen {
        let coloured = std::io::stdout().is_terminal() && Environment::of_process().get("NO_COLOR").is_none();
        Screen { style: if coloured { Style::Coloured } else { Style::Plain }, headings: 0 }
    }

    /// A screen that shows nothing.
    pub(super) fn dark() -> Screen {
        Screen { style: Style::Dark, headings: 0 }
    }

    pub(super) fn title(&mut self, text: &str) {
        self.line(BOLD, text);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.headings += 1;
        self.line("", "");
        self.line(BOLD, &format!("{:>2}  {text}", self.headings));
    }

    /// What one of the two said, and when.
    pub(super) fn said(&mut self, after: Duration, who: &str, what: &str) {
        let colour = if who == "client" { CLIENT } else { CODEX };
        self.line(colour, &cut(&format!("    {:>5} ms  {who:>6}  {what}", after.as_millis())));
    }

    pub(super) fn row(&mut self, name: &str, value: &str) {
        self.line("", &cut(&format!("    {name:<24}  {value}")));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.line("", &format!("    {text}"));
    }

    pub(super) fn end(&mut self) {
        self.line(DIM, "");
    }

    fn line(&self, style: &str, text: &str) {
        let mut stdout = std::io::stdout().lock();
        // Nobody who looks away is waited for.
        let _ = match self.style {
            Style::Coloured if !text.is_empty() => writeln!(stdout, "{style}{text}{PLAIN}"),
            Style::Coloured | Style::Plain => writeln!(stdout, "{text}"),
            Style::Dark => Ok(()),
        };
        let _ = stdout.flush();
    }
}

fn cut(text: &str) -> String {
    let plain: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    if plain.chars().count() <= COLUMNS {
        return plain;
    }
    plain.chars().take(COLUMNS - 1).chain(['…']).collect()
}
