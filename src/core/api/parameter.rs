//! Queries with parameters, which a client writes into a path and the relay reads from it, and `query!`, which makes one.
//!
//! A `query!` without `{…}` has no parameters; whoever answers it reads nothing from the path. One with a name in its path, as of a
//! thread, is written by hand.

use std::fmt;

use crate::history::{micros_of, rfc3339_millis};

/// The value of a parameter. `Display` writes it.
pub trait Parameter: fmt::Display + Sized {
    /// Reads it from a path.
    ///
    /// # Errors
    ///
    /// What it must be.
    fn read(text: &str) -> Result<Self, String>;
}

/// Parameters that a relay reads from the query string of a path.
pub trait Parameters: Sized {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// Why they are refused: the parameter, and what it must be or which ones the path takes.
    fn read(query: &str) -> Result<Self, String>;
}

/// A type of queries, with their document, their path below that of the session, and their parameters.
macro_rules! query {
    ($(#[$doc:meta])* $name:ident -> $document:ty = $path:literal $({
        $($(#[$about:meta])* $member:ident: $type:ty,)*
    })?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name { $($($(#[$about])* pub $member: Option<$type>,)*)? }

        impl $name {
            /// The path of its route.
            pub const ROUTE: &str = concat!("/sessions/{id}/", $path);
        }

        impl $crate::api::Query for $name {
            type Document = $document;

            fn path(&self) -> String {
                let parameters: &[(&str, Option<&dyn std::fmt::Display>)] =
                    &[$($((stringify!($member), self.$member.as_ref().map(|it| it as _)),)*)?];
                $crate::api::parameter::path(concat!("/sessions/self/", $path), parameters)
            }
        }

        $(impl $crate::api::parameter::Parameters for $name {
            fn read(query: &str) -> Result<$name, String> {
                let mut read = $name::default();
                for (name, value) in $crate::api::parameter::pairs(query) {
                    match name {
                        $(stringify!($member) => read.$member = Some($crate::api::parameter::value(name, value)?),)*
                        _ => return Err(format!("`{name}`: this path takes {}", [$(stringify!($member)),*].join(", "))),
                    }
                }
                Ok(read)
            }
        })?
    };
}
pub(super) use query;

pub(super) fn path(path: &str, parameters: &[(&str, Option<&dyn fmt::Display>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    let given: Vec<String> = given.collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

pub(super) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

pub(super) fn value<T: Parameter>(name: &str, value: &str) -> Result<T, String> {
    T::read(value).map_err(|why| format!("`{name}={value}`: {why}"))
}

impl Parameter for u64 {
    fn read(text: &str) -> Result<u64, String> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number beyond u64 is beyond every event number too.
        is_number
            .then(|| text.parse().unwrap_or(u64::MAX))
            .ok_or_else(|| "it must be a whole number, 0 or more".to_owned())
    }
}

impl Parameter for bool {
    fn read(text: &str) -> Result<bool, String> {
        match text {
            "true" | "" => Ok(true),
            "false" => Ok(false),
            _ => Err("it must be true or false".to_owned()),
        }
    }
}

/// A number of rows, 1 to `MOST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit<const MOST: u64>(pub u64);

impl<const MOST: u64> fmt::Display for Limit<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MOST: u64> Parameter for Limit<MOST> {
    fn read(text: &str) -> Result<Self, String> {
        let limit = u64::read(text)?;
        (1..=MOST).contains(&limit).then_some(Limit(limit)).ok_or_else(|| format!("it must be 1 to {MOST}"))
    }
}

/// A time, in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339_millis(self.0))
    }
}

impl Parameter for Moment {
    fn read(text: &str) -> Result<Moment, String> {
        micros_of(text).map(Moment).ok_or_else(|| "it must be a time in UTC, such as 2026-11-01T09:30:00Z".to_owned())
    }
}

/// Longest accepted epoch; ours have 12 digits.
const EPOCH_DIGITS_MAX: usize = 32;

/// The epoch of event numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochId(pub String);

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Parameter for EpochId {
    fn read(text: &str) -> Result<EpochId, String> {
        let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let epoch = (is_hex && text.len() <= EPOCH_DIGITS_MAX).then(|| EpochId(text.to_ascii_lowercase()));
        epoch.ok_or_else(|| "not an epoch; give the `epoch` of a page or an event".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{EpochId, EventsQuery, Limit, Parameters as _, Query as _};

    #[test]
    fn query_parameters_are_parsed_and_bounded() {
        let number = |text: &str| EventsQuery::read(text).map(|query| query.since_seq);
        assert_eq!(number("since_seq=7&limit=2"), Ok(Some(7)));
        assert_eq!(number(""), Ok(None));
        assert_eq!(number("since_seq=99999999999999999999999"), Ok(Some(u64::MAX)));
        for wrong in ["since_seq=", "since_seq=-1", "since_seq=+1", "since_seq=x", "sinceseq=1", "since_seq=1.5"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        let limit = |text: &str| EventsQuery::read(text).map(|query| query.limit);
        assert_eq!((limit(""), limit("limit=500")), (Ok(None), Ok(Some(Limit(500)))));
        assert!(limit("limit=0").is_err() && limit("limit=501").is_err());
    }

    #[test]
    fn queries_are_read_as_written() {
        for query in [
            EventsQuery::default(),
            EventsQuery { since_seq: Some(7), since_epoch: Some(EpochId("ab".to_owned())), limit: Some(Limit(2)) },
        ] {
            let path = query.path();
            let (_, parameters) = path.split_once('?').unwrap_or((&path, ""));
            assert_eq!(EventsQuery::read(parameters), Ok(query));
        }
    }
}
