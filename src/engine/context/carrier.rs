//! The ways to deliver context to the model.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The way to deliver context to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// In front of the user's words.
    #[default]
    Envelope,
    /// A call of our own before the turn.
    InjectItems,
    /// A call of our own, or in front of the user's words once the server has rejected such calls.
    Auto,
    /// Not at all; commands stay queued.
    Off,
}

impl Carrier {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Envelope => "envelope",
            Carrier::InjectItems => "inject_items",
            Carrier::Auto => "auto",
            Carrier::Off => "off",
        }
    }
}

impl std::str::FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Carrier, String> {
        let all = [Carrier::Envelope, Carrier::InjectItems, Carrier::Auto, Carrier::Off];
        all.into_iter()
            .find(|carrier| carrier.name() == text)
            .ok_or_else(|| format!("`{text}` is none of envelope, inject_items, auto and off"))
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
