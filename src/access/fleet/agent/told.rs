//! Reports failures to the user: each kind once, until it is mended. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Number of causes of one kind that the user hears of before the trouble ends. Further ones are not news.
const CAUSES_MAX: usize = 4;

/// A kind of failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// Events are not shipped.
    Events,
    /// A stopped session cannot be read.
    Session(String),
    /// The sessions cannot be listed.
    Listing,
    /// The host is not described.
    Description,
    /// The pending requests are not listed in the server.
    Pending,
    /// The cursors are not on disk.
    Cursors,
    /// Questions are not accepted.
    Questions,
    /// Answers that wait cannot be read.
    Answers,
    /// The server is not reached.
    Link,
    /// The server refuses something.
    Refusal,
    /// Another agent has the name of this host.
    Name,
}

impl Trouble {
    /// The message at its end, if the user gets one.
    pub(super) fn end(&self) -> Option<String> {
        match self {
            Trouble::Events => Some("events are shipped again".to_owned()),
            Trouble::Session(id) => Some(format!("session {id} is shipped again")),
            Trouble::Listing => Some("the sessions of this host can be listed again".to_owned()),
            Trouble::Description => Some("this host is described again".to_owned()),
            Trouble::Pending => Some("the pending requests are listed again".to_owned()),
            Trouble::Cursors => Some("the cursors are written again".to_owned()),
            Trouble::Questions => Some("questions are accepted again".to_owned()),
            Trouble::Answers => Some("answers that wait can be read again".to_owned()),
            Trouble::Name => Some("no other agent uses the name of this host any more".to_owned()),
            // The user hears of a new connection in any case.
            Trouble::Link | Trouble::Refusal => None,
        }
    }
}

/// The failures that the user knows of and that are not mended.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Trouble, BTreeSet<String>>);

impl Told {
    /// Whether the user does not know this yet.
    pub(super) fn is_news(&mut self, trouble: Trouble, cause: &str) -> bool {
        let causes = self.0.entry(trouble).or_default();
        causes.len() < CAUSES_MAX && causes.insert(cause.to_owned())
    }

    /// Notes the end of a failure; returns whether the user knew of it.
    pub(super) fn ends(&mut self, trouble: &Trouble) -> bool {
        self.0.remove(trouble).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_once_until_it_is_mended() {
        let mut told = Told::default();
        assert!(told.is_news(Trouble::Events, "no stream"));
        assert!(!told.is_news(Trouble::Events, "no stream"));
        // Another kind between two attempts makes nothing news again.
        assert!(told.is_news(Trouble::Cursors, "no space"));
        assert!(!told.is_news(Trouble::Events, "no stream") && !told.is_news(Trouble::Cursors, "no space"));
        assert!(
            told.is_news(Trouble::Session("a".to_owned()), "x") && told.is_news(Trouble::Session("b".to_owned()), "x")
        );
        assert!(told.ends(&Trouble::Events) && !told.ends(&Trouble::Events));
        assert!(told.is_news(Trouble::Events, "no stream") && !told.is_news(Trouble::Cursors, "no space"));
    }

    #[test]
    fn causes_of_one_kind_are_bounded() {
        let mut told = Told::default();
        let news = (0..100).filter(|attempt| told.is_news(Trouble::Link, &format!("attempt {attempt}"))).count();
        assert_eq!(news, CAUSES_MAX);
    }
}
