//! The demo's screen: 80 columns, colour where it is wanted.

use std::io::Write as _;
use std::time::Duration;

use crate::cli::screen::{Screen, Tone, plain};
use crate::config::Environment;

/// Columns of a line.
const COLUMNS: usize = 78;

/// Where the demo is shown.
pub(super) struct Stage {
    /// `None` shows nothing.
    screen: Option<Screen>,
    headings: u32,
}

impl Stage {
    /// On our stdout.
    pub(super) fn of_stdout(environment: &Environment) -> Stage {
        Stage { screen: Some(Screen::of_stdout(environment)), headings: 0 }
    }

    /// Nowhere.
    pub(super) fn dark() -> Stage {
        Stage { screen: None, headings: 0 }
    }

    pub(super) fn title(&mut self, text: &str) {
        self.line(Tone::Strong, text);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.headings += 1;
        self.line(Tone::Faint, "");
        self.line(Tone::Strong, &format!("{:>2}  {text}", self.headings));
    }

    /// What one of the two said, and when.
    pub(super) fn said(&mut self, after: Duration, who: &str, what: &str) {
        let tone = if who == "codex" { Tone::Good } else { Tone::Warning };
        self.line(tone, &cut(&format!("    {:>5} ms  {who:>8}  {what}", after.as_millis())));
    }

    pub(super) fn row(&mut self, name: &str, value: &str) {
        self.write(&cut(&format!("    {name:<24}  {value}")));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.write(&format!("    {text}"));
    }

    pub(super) fn end(&mut self) {
        self.write("");
    }

    fn line(&self, tone: Tone, text: &str) {
        if let Some(screen) = self.screen {
            self.write(&if text.is_empty() { String::new() } else { screen.paint(tone, text) });
        }
    }

    fn write(&self, text: &str) {
        if self.screen.is_some() {
            let mut stdout = std::io::stdout().lock();
            // Nobody who looks away is waited for.
            let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        }
    }
}

fn cut(text: &str) -> String {
    let plain = plain(text);
    if plain.chars().count() <= COLUMNS {
        return plain;
    }
    plain.chars().take(COLUMNS - 1).chain(['…']).collect()
}
