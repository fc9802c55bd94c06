//! Arguments that several tools have: the session, and numbers, with errors in words.
//!
//! Most tools accept the session as their first word; every tool accepts `--session`.

use clap::Args;

use super::complete;

/// The session as a word or as `--session`.
#[derive(Debug, Args)]
pub(super) struct SessionWord {
    /// Session: its name, a unique beginning of it, or `latest`
    #[arg(value_name = "SESSION", id = "session_word", conflicts_with = "session", add = complete::sessions())]
    word: Option<String>,
    /// The same as SESSION
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionWord {
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

#[derive(Debug, Args)]
pub(super) struct SessionFlag {
    /// Session: its name, a unique beginning of it, or `latest`
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionFlag {
    pub(super) fn name(&self) -> Option<&str> {
        self.flag.as_deref()
    }
}

/// A whole number, 0 or more.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "it must be a whole number, 0 or more".to_owned())
}

/// A whole number that may be negative.
pub(super) fn signed(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "it must be a whole number".to_owned())
}

/// A whole number, 1 or more.
pub(super) fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it must be a whole number, 1 or more".to_owned())
}

/// A whole number from 1 to 200.
pub(super) fn up_to_200(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| (1..=200).contains(count));
    count.ok_or_else(|| "it must be a whole number from 1 to 200".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_numbers_are_refused_in_words() {
        assert_eq!((whole("0"), signed("-1"), positive("7"), up_to_200("200")), (Ok(0), Ok(-1), Ok(7), Ok(200)));
        for text in ["x", "1.5", "", "99999999999999999999"] {
            assert!(whole(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(signed(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(positive(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(up_to_200(text).is_err_and(|why| why.contains("1 to 200")), "{text}");
        }
        assert!(whole("-1").is_err() && positive("0").is_err() && up_to_200("0").is_err() && up_to_200("201").is_err());
    }
}
