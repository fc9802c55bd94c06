//! A search query: its terms, the words that an index looks up, and its matches in a text.
//!
//! The index only holds which words an entry has. Whether an entry matches is decided here, by its text: so the index needs
//! no positions, and a path or an option matches only as it was typed.
//!
//! A *word* is a run of letters and digits, in lower case. The parts of a word in camel case are words, too, and so is each
//! ideograph. Everything else separates words.
//!
//! An accented letter can be one character or a letter and a combining mark (the normal forms NFC and NFD of Unicode); the latter
//! are usual in names of files on macOS. A term matches both.

use std::ops::Range;

use regex::{Regex, RegexBuilder};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::searchable::{SearchKind, Searchable};

/// Longest word that is indexed, in bytes; of a longer one the beginning is.
const WORD_BYTES_MAX: usize = 64;

/// Most words and phrases of a query.
const TERMS_MAX: usize = 64;

/// Most memory of a compiled pattern, and of its cache, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const PATTERN_CACHE_BYTES_MAX: usize = 8 << 20;

/// Most matches that are marked in a line.
const MARKS_MAX: usize = 100;

/// Begins the word that stands for a kind. No text has such a word, because the character is for private use.
const KIND_MARK: char = '\u{e000}';

/// Appends the words of an entry, separated by blanks.
pub fn add_words(searchable: &Searchable, words: &mut String) {
    words.push_str(&kind_word(searchable.kind));
    for run in runs(&searchable.text) {
        words.push(' ');
        add_lower(run, words);
        if !run.bytes().skip(1).any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            continue;
        }
        let mut parts = parts(run).peekable();
        let Some(first) = parts.next().filter(|_| parts.peek().is_some()) else { continue };
        for part in std::iter::once(first).chain(parts) {
            words.push(' ');
            add_lower(part, words);
        }
    }
}

fn kind_word(kind: SearchKind) -> String {
    format!("{KIND_MARK}{}", kind.name())
}

/// The query for all entries of a kind, in the language of FTS5.
pub fn kind_for_index(kind: SearchKind) -> String {
    format!("\"{}\"", kind_word(kind))
}

fn add_lower(word: &str, words: &mut String) {
    let word = &word[..word.floor_char_boundary(WORD_BYTES_MAX)];
    if word.is_ascii() {
        let from = words.len();
        words.push_str(word);
        words[from..].make_ascii_lowercase();
    } else {
        words.extend(word.chars().flat_map(char::to_lowercase));
    }
}

/// Runs of letters and digits; an ideograph is a run of its own.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(char::is_alphanumeric)?..];
        let first = rest.chars().next()?;
        let ends = |char: char| !char.is_alphanumeric() || is_ideograph(char);
        let end = if is_ideograph(first) { first.len_utf8() } else { rest.find(ends).unwrap_or(rest.len()) };
        let (run, after) = rest.split_at(end);
        rest = after;
        Some(run)
    })
}

/// The parts of a run in camel case: `http`, `Server`, `2`, `Config`.
fn parts(run: &str) -> impl Iterator<Item = &str> {
    let mut rest = run;
    std::iter::from_fn(move || {
        let end = (1..rest.len()).find(|at| rest.is_char_boundary(*at) && is_word_boundary(rest, *at));
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Whether a script does not separate its words, so that each character is one.
fn is_ideograph(char: char) -> bool {
    matches!(char, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether a word, or a part of one, can begin or end at this byte of a text.
fn is_word_boundary(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let mut after = text[at..].chars();
    let (Some(before), Some(first)) = (before, after.next()) else { return true };
    if is_combining_mark(first) {
        return false;
    }
    let ends_letter = before.is_alphanumeric() || is_combining_mark(before);
    if !ends_letter || !first.is_alphanumeric() || is_ideograph(before) || is_ideograph(first) {
        return true;
    }
    let begins_name = before.is_uppercase() && after.next().is_some_and(char::is_lowercase);
    first.is_uppercase() && (!before.is_uppercase() || begins_name)
}

/// A query. All terms must match.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    terms: Vec<Term>,
}

#[derive(Debug, Clone)]
struct Term {
    /// The words that an index can look up, in each normal form of the term; empty for a pattern, or a term without letters.
    forms: Vec<Vec<String>>,
    /// The last word of a form is the beginning of one.
    is_beginning: bool,
    pattern: Regex,
    /// The pattern matches only whole words.
    is_words: bool,
}

/// A line of a text that matches a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The command or path that the line belongs to; `None` for a message, or if it is the line itself.
    pub head: Option<String>,
    pub line: String,
    /// The matches in the line, in bytes.
    pub marks: Vec<Range<usize>>,
}

impl SearchQuery {
    /// Reads words, `"phrases"` and `beginnings*`.
    ///
    /// # Errors
    ///
    /// Why nothing can be searched for, as text for the user.
    pub fn of_words(text: &str) -> Result<SearchQuery, String> {
        let mut terms = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let term = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let (phrase, after) = quoted.split_once('"').unwrap_or((quoted, ""));
                    let is_beginning = after.starts_with('*');
                    rest = after.strip_prefix('*').unwrap_or(after);
                    Term::of(phrase, is_beginning)
                }
                None => {
                    let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
                    rest = after;
                    let beginning = word.strip_suffix('*').filter(|beginning| !beginning.is_empty());
                    Term::of(beginning.unwrap_or(word), beginning.is_some())
                }
            };
            terms.extend(term?);
            rest = rest.trim_start();
            if terms.len() > TERMS_MAX {
                return Err(format!("it has more than {TERMS_MAX} words"));
            }
        }
        if terms.is_empty() { Err("there is nothing to search for".to_owned()) } else { Ok(SearchQuery { terms }) }
    }

    /// Reads a regular expression, in which `^` and `$` match at lines.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as text for the user.
    pub fn of_pattern(pattern: &str) -> Result<SearchQuery, String> {
        if pattern.is_empty() {
            return Err("there is nothing to search for".to_owned());
        }
        let pattern = built(RegexBuilder::new(pattern).multi_line(true))?;
        Ok(SearchQuery { terms: vec![Term { forms: Vec::new(), is_beginning: false, pattern, is_words: false }] })
    }

    /// The query for an index of words, in the language of FTS5; `None` if the index cannot narrow it down. Each word is
    /// quoted, and has only letters and digits.
    pub fn for_index(&self, kinds: &[SearchKind]) -> Option<String> {
        let kinds = SearchQuery::for_index_of_kinds(kinds);
        let all: Vec<String> = kinds.into_iter().chain(self.terms.iter().filter_map(Term::for_index)).collect();
        (!all.is_empty()).then(|| all.join(" AND "))
    }

    /// The same for entries of these kinds, whatever their words; `None` if all are meant.
    pub fn for_index_of_kinds(kinds: &[SearchKind]) -> Option<String> {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("\"{}\"", kind_word(*kind))).collect();
        (!kinds.is_empty()).then(|| format!("({})", kinds.join(" OR ")))
    }

    /// Whether the index narrows the query down by its words.
    pub fn has_words(&self) -> bool {
        self.terms.iter().any(|term| !term.forms.is_empty())
    }

    /// Whether all terms match in a text.
    pub fn matches(&self, text: &str) -> bool {
        self.terms.iter().all(|term| term.next(text, 0).is_some())
    }

    /// The line with the most terms, if all terms match in the text.
    pub fn find(&self, searchable: &Searchable) -> Option<Excerpt> {
        let text = &*searchable.text;
        let firsts: Vec<Range<usize>> = self.terms.iter().map(|term| term.next(text, 0)).collect::<Option<_>>()?;
        let mut best: Option<(usize, Range<usize>, Vec<Range<usize>>)> = None;
        for first in &firsts {
            let line = line_at(text, first.start);
            let (terms, marks) = self.marks(text, &line);
            let is_better =
                |(most, of, _): &(usize, Range<usize>, _)| terms > *most || (terms == *most && line.start < of.start);
            if best.as_ref().is_none_or(is_better) {
                best = Some((terms, line, marks));
            }
        }
        let (_, line, marks) = best?;
        let head = searchable.heads.iter().copied().filter(|head| *head <= line.start).max();
        let head = head.map(|head| line_at(text, head)).filter(|head| *head != line);
        Some(Excerpt {
            head: head.map(|head| text[head].to_owned()),
            marks: marks.into_iter().map(|mark| mark.start - line.start..mark.end - line.start).collect(),
            line: text[line].to_owned(),
        })
    }

    /// How many terms match in a line, and where; without overlaps.
    fn marks(&self, text: &str, line: &Range<usize>) -> (usize, Vec<Range<usize>>) {
        let (mut terms, mut marks) = (0, Vec::new());
        for term in &self.terms {
            let (mut at, before) = (line.start, marks.len());
            while at <= line.end && marks.len() - before < MARKS_MAX {
                let Some(found) = term.next(text, at).filter(|found| found.start <= line.end) else { break };
                at = found.end.max(found.start + text[found.start..].chars().next().map_or(1, char::len_utf8));
                marks.push(found.start..found.end.min(line.end));
            }
            terms += usize::from(marks.len() > before);
        }
        marks.sort_by_key(|mark| mark.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for mark in marks.into_iter().filter(|mark| !mark.is_empty()) {
            match apart.last_mut() {
                Some(last) if mark.start <= last.end => last.end = last.end.max(mark.end),
                Some(_) | None => apart.push(mark),
            }
        }
        (terms, apart)
    }
}

impl Term {
    /// A term for this text; `None` if that is empty.
    fn of(text: &str, is_beginning: bool) -> Result<Option<Term>, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let mut spellings: Vec<String> = vec![text.nfc().collect(), text.nfd().collect()];
        spellings.dedup();
        let escaped = |text: &String| text.split_whitespace().map(regex::escape).collect::<Vec<_>>().join(r"\s+");
        let patterns: Vec<String> = spellings.iter().map(escaped).collect();
        let pattern = built(RegexBuilder::new(&patterns.join("|")).case_insensitive(true))?;
        let words = |text: &String| -> Vec<String> {
            let word = |run: &str| {
                let mut word = String::new();
                add_lower(run, &mut word);
                word
            };
            runs(text).map(word).collect()
        };
        let forms = spellings.iter().map(words).filter(|words| !words.is_empty()).collect();
        Ok(Some(Term { forms, is_beginning, pattern, is_words: true }))
    }

    /// What an index looks up; `None` if it cannot.
    fn for_index(&self) -> Option<String> {
        let form = |words: &Vec<String>| {
            let star = |at: usize| if self.is_beginning && at + 1 == words.len() { " *" } else { "" };
            let words: Vec<String> =
                words.iter().enumerate().map(|(at, word)| format!("\"{word}\"{}", star(at))).collect();
            words.join(" AND ")
        };
        let forms: Vec<String> = self.forms.iter().map(form).collect();
        match forms.as_slice() {
            [] => None,
            [form] => Some(form.clone()),
            forms => Some(format!("(({}))", forms.join(") OR ("))),
        }
    }

    /// The first match from this byte on.
    fn next(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let mut at = from;
        loop {
            let found = self.pattern.find_at(text, at)?.range();
            let is_whole =
                is_word_boundary(text, found.start) && (self.is_beginning || is_word_boundary(text, found.end));
            if !self.is_words || is_whole {
                return Some(found);
            }
            at = found.start + text[found.start..].chars().next()?.len_utf8();
        }
    }
}

fn built(pattern: &mut RegexBuilder) -> Result<Regex, String> {
    let built = pattern.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_CACHE_BYTES_MAX).build();
    built.map_err(|error| match matches!(error, regex::Error::CompiledTooBig(_)) {
        true => "the text to search for is too long".to_owned(),
        false => format!("it is not a valid regular expression: {error}"),
    })
}

/// The line around this byte.
fn line_at(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    start..text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}

#[cfg(test)]
mod tests {
    use super::super::facts::OwnFacts;
    use super::*;

    fn entry(text: &str) -> Searchable {
        let kind = SearchKind::Command;
        let (at, entry) = (String::new(), OwnFacts::default());
        Searchable { kind, entry, at, turn_id: None, item_id: None, text: text.to_owned(), heads: vec![0] }
    }

    #[test]
    fn texts_have_words_and_their_parts() {
        let check = |text: &str, expect: &str| {
            let mut words = String::new();
            add_words(&entry(text), &mut words);
            assert_eq!(words.strip_prefix("\u{e000}command ").unwrap_or_default(), expect, "{text}");
        };
        check("rm -rf ./Build_dir/a.rs", "rm rf build dir a rs");
        check("HTTPServer2Config", "httpserver2config http server2 config");
        check("Ärger ÜberGang 请删build", "ärger übergang über gang 请 删 build");
        check("\u{e000}message", "message");
        check(&"x".repeat(99), &"x".repeat(WORD_BYTES_MAX));
    }

    /// `expect` is the line, with the matches in brackets, after the head of its part if that is another line.
    fn check(query: &str, text: &str, expect: Option<&str>) {
        let query = SearchQuery::of_words(query).expect("it can be searched for");
        assert_eq!(found(&query, text).as_deref(), expect, "{query:?} in {text}");
        let mut words = String::new();
        add_words(&entry(text), &mut words);
        let has = |word: &String, is_beginning: bool| {
            words
                .split(' ')
                .any(|word_of_text| word_of_text == word || (is_beginning && word_of_text.starts_with(word.as_str())))
        };
        let has_all = |term: &Term, words: &Vec<String>| words.iter().all(|word| has(word, term.is_beginning));
        let is_looked_up =
            query.terms.iter().all(|term| term.forms.is_empty() || term.forms.iter().any(|words| has_all(term, words)));
        assert!(is_looked_up || expect.is_none(), "an index of words would hide it");
    }

    fn found(query: &SearchQuery, text: &str) -> Option<String> {
        let Excerpt { head, line, marks } = query.find(&entry(text))?;
        let mut marked = line;
        for mark in marks.into_iter().rev() {
            marked.insert(mark.end, ']');
            marked.insert(mark.start, '[');
        }
        Some(head.map(|head| format!("{head} > ")).unwrap_or_default() + &marked)
    }

    #[test]
    fn all_words_must_match_as_typed() {
        check("rm build", "rm -rf build", Some("[rm] -rf [build]"));
        check("RM \"-rf  Build\"", "rm -rf build", Some("[rm] [-rf build]"));
        check("\"rm build\"", "rm -rf build", None);
        check("rm missing", "rm -rf build", None);
        check("--force", "git push --force", Some("git push [--force]"));
        check("--force", "brute force", None);
        check("src/a.rs", "cat src/a.rs\nsrc a rs", Some("cat [src/a.rs]"));
        check("cat", "concatenate\ncat x", Some("concatenate > [cat] x"));
        check("b c", "b\nb c\nc", Some("b > [b] [c]"));
        check("->", "a -> b", Some("a [->] b"));
        check("删", "请删build", Some("请[删]build"));
    }

    #[test]
    fn parts_and_beginnings_of_names_match() {
        check("bounds", "RetentionBounds", Some("Retention[Bounds]"));
        check("retention", "RETENTION_MAX", Some("[RETENTION]_MAX"));
        check("retentionbounds", "RetentionBounds", Some("[RetentionBounds]"));
        check("ounds", "RetentionBounds", None);
        check("reten", "RetentionBounds", None);
        check("reten*", "RetentionBounds", Some("[Reten]tionBounds"));
        check("src/in*", "src/index/mod.rs", Some("[src/in]dex/mod.rs"));
        check("\"let mut x\"*", "let mut xyz", Some("[let mut x]yz"));
        check("*", "a * b", Some("a [*] b"));
    }

    #[test]
    fn both_normal_forms_match() {
        let nfd = "cafe\u{301}s/nai\u{308}ve.txt";
        check("cafés/naïve.txt", nfd, Some(&format!("[{nfd}]")));
        check(nfd, "a cafés/naïve.txt b", Some("a [cafés/naïve.txt] b"));
        check("NAÏVE", nfd, Some("cafe\u{301}s/[nai\u{308}ve].txt"));
        check("caf*", nfd, Some("[caf]e\u{301}s/nai\u{308}ve.txt"));
        // A letter with a mark is neither the letter nor the end of a word.
        check("cafe", "cafe\u{301}", None);
        check("café", nfd, None);
        check("s", nfd, None);
        check("ve", nfd, None);
    }

    #[test]
    fn patterns_match_in_the_text() {
        let check = |pattern: &str, text: &str, expect: Option<&str>| {
            let query = SearchQuery::of_pattern(pattern).expect("it is valid");
            assert_eq!(found(&query, text).as_deref(), expect, "{pattern} in {text}");
        };
        check("^b.d", "a\nbcd bad", Some("a > [bcd] bad"));
        check("B", "abc", None);
        check("b\\nc", "ab\ncd", Some("a[b]"));
        check("$", "ab", Some("ab"));
        check("x*", "", Some(""));
        for (pattern, expect) in [("(", "not a valid"), ("", "nothing"), ("(a{999}){999}", "too long")] {
            let error = SearchQuery::of_pattern(pattern).expect_err("it is not valid");
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn no_text_is_an_error_of_the_index() {
        let check = |text: &str, kinds: &[SearchKind], expect: Option<&str>| {
            let query = SearchQuery::of_words(text).expect("it can be searched for");
            assert_eq!(query.for_index(kinds).as_deref(), expect, "{text}");
        };
        check("a-b \"c d\"* e*", &[], Some(r#""a" AND "b" AND "c" AND "d" * AND "e" *"#));
        check("OR NEAR(x) '; DROP--", &[], Some(r#""or" AND "near" AND "x" AND "drop""#));
        check("é", &[], Some(r#"(("é") OR ("e"))"#));
        check("->", &[], None);
        let kinds = [SearchKind::Diff, SearchKind::Request];
        check("->", &kinds, Some("(\"\u{e000}diff\" OR \"\u{e000}request\")"));
        check("\"unclosed x", &[], Some(r#""unclosed" AND "x""#));
        for text in ["", "  ", "\"\"", "\" \" \"\"*", &"a ".repeat(TERMS_MAX + 1)] {
            assert!(SearchQuery::of_words(text).is_err(), "{text}");
        }
    }
}
