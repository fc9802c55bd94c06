//! How context gets to the model.

use std::fmt;

/// How context gets to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Carrier {
    /// In front of the user's words.
    #[default]
    Envelope,
    /// By a call of our own ahead of the turn.
    InjectItems,
    /// By a call of our own, and in front of the user's words once the server has refused that.
    Auto,
    /// Not at all; it waits.
    Off,
}

impl Carrier {
    /// The name that it has in settings.
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
