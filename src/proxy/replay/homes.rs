//! Home folders in texts of others: their names tell who worked on a machine.
//!
//! Pure: the caller says which home is its own.

use std::sync::LazyLock;

use regex::Regex;

use super::anonymizer::pattern;

/// The name of a user's folder.
pub(super) const USER_NAME: &str = r"\w(?:[\w.-]*\w)?";

/// Stands for the home of any other user.
const ANY_USER: &str = "user";

/// Places of home folders, also in JSON within a text, and as a Windows machine shows its own to Linux.
static OF_SOMEONE: LazyLock<Regex> = LazyLock::new(|| {
    let before = r"^|file://|\\[nrt]|(?:^|\s)-[A-Za-z]|[^\w./~-]";
    let parents = r"(?:\\?/(?:mnt\\?/[a-z]|var|usr|export|private|System\\?/Volumes\\?/Data))?\\?/(?:home|Users)\\?/";
    pattern(&format!(r"(?<before>{before})(?<parents>{parents})\w(?:[\w.@+-]*\w)?"))
});

static OF_SOMEONE_ON_WINDOWS: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"(?i)(?<before>^|\W|\\[nrt])(?<parents>[a-z]:[\\/]+Users[\\/]+){USER_NAME}")));

/// Replaces home folders: the own one by `~`, and the names in all others by one name.
#[derive(Debug)]
pub struct Homes {
    /// Ways to write the own home, longest first.
    own: Vec<String>,
}

impl Homes {
    /// The paths of the own home, for example with and without its links.
    #[must_use]
    pub fn new(own: impl IntoIterator<Item = String>) -> Homes {
        let mut all: Vec<String> = Vec::new();
        for path in own {
            let path = path.trim_end_matches('/');
            if path.len() > 1 && path.starts_with('/') {
                all.extend([path.to_owned(), path.replace('/', "\\/")]);
            }
        }
        all.sort_by_key(|path| (std::cmp::Reverse(path.len()), path.clone()));
        all.dedup();
        Homes { own: all }
    }

    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for own in &self.own {
            // A path of one part may well be a part of another one.
            let begins = if own.matches('/').count() > 1 { Begins::Anywhere } else { Begins::AtPath };
            text = replace_path(&text, own, "~", begins);
        }
        let other = format!("${{before}}${{parents}}{ANY_USER}");
        text = OF_SOMEONE.replace_all(&text, &other).into_owned();
        OF_SOMEONE_ON_WINDOWS.replace_all(&text, &other).into_owned()
    }
}

/// The places of a text at which a path may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    Anywhere,
    /// Not after another part of a path.
    AtPath,
}

/// Replaces a path if it is complete or a `/` follows.
pub(super) fn replace_path(text: &str, path: &str, by: &str, begins: Begins) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let after = &rest[at + path.len()..];
        // A dot or a dash belongs to the name only if more of the name follows: a sentence may end with a path.
        let name_goes_on = after.starts_with(['-', '.']) && after[1..].starts_with(in_a_word);
        let goes_on = after.starts_with(in_a_word) || name_goes_on;
        let began_before = begins == Begins::AtPath && ends_with_part(&rest[..at]);
        replaced.push_str(&rest[..at]);
        replaced.push_str(if goes_on || began_before { path } else { by });
        rest = after;
    }
    replaced + rest
}

fn in_a_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Whether a text ends with a part of a path, other than an escape (`\n`) and an option (`-I`).
fn ends_with_part(text: &str) -> bool {
    let before = text.trim_end_matches(|char| in_a_word(char) || matches!(char, '.' | '-'));
    let part = &text[before.len()..];
    let is_option = part.len() == 2 && part.starts_with('-') && part.ends_with(|char: char| char.is_ascii_alphabetic());
    let is_escape = before.ends_with('\\') && matches!(part, "n" | "r" | "t");
    !(part.is_empty() || is_option || is_escape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expect: &str) {
        assert_eq!(Homes::new(["/home/ann/".to_owned()]).text(text), expect, "{text}");
    }

    #[test]
    fn own_home_is_replaced_wherever_it_is_written() {
        check("cd /home/ann && ls /home/ann/x", "cd ~ && ls ~/x");
        check("PATH=/home/ann/bin:/usr/bin -I/home/ann/include", "PATH=~/bin:/usr/bin -I~/include");
        check("file:///home/ann/a see (/home/ann). \"/home/ann\"", "file://~/a see (~). \"~\"");
        check(r#"{"a":"{\"p\":\"x\\n/home/ann/y\"}"}"#, r#"{"a":"{\"p\":\"x\\n~/y\"}"}"#);
        check(r"\/home\/ann\/x", r"~\/x");
        check("--- a/home/ann/x\n/mnt/disk/home/ann/x", "--- a~/x\n/mnt/disk~/x");
        check("/home/ann\u{301} /home/annabel /home/ann-2 /home/ann.old", "~\u{301} /home/user /home/user /home/user");
    }

    #[test]
    fn names_of_other_users_are_replaced() {
        check("/home/bob/x:/Users/Bob.B/y -I/home/bob/z", "/home/user/x:/Users/user/y -I/home/user/z");
        check(r#"{"x":"a\n/home/bob","y":"\/Users\/bob\/a"}"#, r#"{"x":"a\n/home/user","y":"\/Users\/user\/a"}"#);
        check(
            "/mnt/c/Users/bob/x /var/home/bob /export/home/b@corp.com/",
            "/mnt/c/Users/user/x /var/home/user /export/home/user/",
        );
        check(
            r#"C:\Users\bob\x "c:\\Users\\bob\\x" C:/Users/bob"#,
            r#"C:\Users\user\x "c:\\Users\\user\\x" C:/Users/user"#,
        );
        check("*/home/bob* **/home/bob** @/home/bob", "*/home/user* **/home/user** @/home/user");
    }

    #[test]
    fn other_paths_stay() {
        let text =
            "src/home/page.tsx components/Users/List.tsx https://x.dev/home/about /homes/x ~/home/x ./home/x /home/";
        check(text, text);
        let root = Homes::new(["/root".to_owned()]);
        let text = r"/root/x app/root/x -I/root/x a\n/root x.root /rooted";
        assert_eq!(root.text(text), r"~/x app/root/x -I~/x a\n~ x.root /rooted");
        assert_eq!(Homes::new(["/".to_owned(), String::new()]).text("/x"), "/x");
    }

    proptest! {
        #[test]
        fn own_home_is_nowhere_afterwards(before in ".{0,8}", after in "[^\\w.-]?.{0,8}") {
            let after = if after.starts_with(|char: char| in_a_word(char) || "-.".contains(char)) { String::new() } else { after };
            let text = Homes::new(["/home/ann".to_owned()]).text(&format!("{before}/home/ann{after}"));
            prop_assert!(!text.contains("/home/ann"), "{text}");
        }
    }
}
