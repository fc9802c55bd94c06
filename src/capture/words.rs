//! Quotes the words of a command.

use std::ffi::OsString;

/// Joins words so that a shell would split them the same way. Bytes that are not UTF-8 become U+FFFD.
#[must_use]
pub(crate) fn as_typed(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "-_./=:,@%+~^".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::as_typed;

    #[test]
    fn words_are_quoted_if_necessary() {
        let check = |words: &[&str], expect: &str| {
            let words: Vec<_> = words.iter().map(Into::into).collect();
            assert_eq!(as_typed(&words), expect);
        };
        check(&["cargo", "test", "--lib"], "cargo test --lib");
        check(&["sh", "-c", "echo 'a b'; exit 3"], r"sh -c 'echo '\''a b'\''; exit 3'");
        check(&["echo", "", "ä", "$x"], "echo '' ä '$x'");
    }
}
