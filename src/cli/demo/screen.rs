//! Output of the demo: text in 80 columns, in colour if the terminal takes it, or one JSON document.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::cli::requests::print_json;
use crate::cli::screen::{Screen, Tone, plain};
use crate::config::Environment;

/// Line width in columns.
const COLUMNS: usize = 78;

/// Destination of the demo's output.
pub(super) struct Stage {
    shown: Shown,
    headings: u32,
}

enum Shown {
    /// Printed while the demo runs.
    OnScreen(Screen),
    /// Collected for one document at the end.
    Kept(Vec<Part>),
    Nowhere,
}

/// A heading with its rows.
#[derive(Serialize)]
struct Part {
    heading: String,
    said: Vec<Said>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Said {
    after_ms: u64,
    who: String,
    what: String,
}

#[derive(Serialize)]
struct Row {
    name: String,
    value: String,
}

impl Stage {
    /// Prints to stdout.
    pub(super) fn of_stdout(environment: &Environment) -> Stage {
        Stage { shown: Shown::OnScreen(Screen::of_stdout(environment)), headings: 0 }
    }

    /// Collects a document.
    pub(super) fn kept() -> Stage {
        Stage { shown: Shown::Kept(Vec::new()), headings: 0 }
    }

    /// Discards the output.
    pub(super) fn dark() -> Stage {
        Stage { shown: Shown::Nowhere, headings: 0 }
    }

    pub(super) fn title(&mut self, text: &str) {
        self.line(Tone::Strong, text);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.headings += 1;
        self.line(Tone::Faint, "");
        self.line(Tone::Strong, &format!("{:>2}  {text}", self.headings));
        if let Shown::Kept(parts) = &mut self.shown {
            parts.push(Part { heading: text.to_owned(), said: Vec::new(), rows: Vec::new() });
        }
    }

    /// A line of the conversation with its time.
    pub(super) fn said(&mut self, after: Duration, who: &str, what: &str) {
        let tone = match who {
            "codex" => Tone::Good,
            "model" => Tone::Faint,
            _ => Tone::Warning,
        };
        self.line(tone, &cut(&format!("    {:>5} ms  {who:>8}  {what}", after.as_millis())));
        if let Some(part) = self.last() {
            part.said.push(Said { after_ms: after.as_millis() as u64, who: who.to_owned(), what: what.to_owned() });
        }
    }

    pub(super) fn row(&mut self, name: &str, value: &str) {
        self.write(&cut(&format!("    {name:<24}  {value}")));
        if let Some(part) = self.last() {
            part.rows.push(Row { name: name.to_owned(), value: value.to_owned() });
        }
    }

    /// Prints the end, with the reason if the demo stopped early; returns the exit status.
    pub(super) fn end(self, why: Option<&str>) -> i32 {
        match &self.shown {
            Shown::Kept(parts) => {
                let shim = env!("CARGO_PKG_VERSION");
                // Advice is only for people.
                let parts: Vec<&Part> =
                    parts.iter().filter(|part| !part.rows.is_empty() || !part.said.is_empty()).collect();
                print_json(&json!({ "shim": shim, "held": why.is_none(), "error": why, "parts": parts }))
            }
            Shown::OnScreen(_) | Shown::Nowhere => {
                if why.is_none() {
                    self.write("");
                }
                0
            }
        }
    }

    fn last(&mut self) -> Option<&mut Part> {
        match &mut self.shown {
            Shown::Kept(parts) => parts.last_mut(),
            Shown::OnScreen(_) | Shown::Nowhere => None,
        }
    }

    fn line(&self, tone: Tone, text: &str) {
        if let Shown::OnScreen(screen) = self.shown {
            self.write(&if text.is_empty() { String::new() } else { screen.paint(tone, text) });
        }
    }

    fn write(&self, text: &str) {
        if matches!(self.shown, Shown::OnScreen(_)) {
            let mut stdout = std::io::stdout().lock();
            // A closed stdout does not stop the demo.
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
