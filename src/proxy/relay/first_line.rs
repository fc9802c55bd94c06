//! The first line of a script: the interpreter that the kernel starts, and the words that `env` starts in its place.
//!
//! A line that says more than this room reads is an error, since then nobody knows what runs. It never looks for a program.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::server_environment::is_watched;
use crate::files::{self, InReach, is_missing};

/// Bytes of a script that the kernel looks at. Source: `BINPRM_BUF_SIZE` of Linux.
const HEAD_BYTES: usize = 256;

const REMEDY: &str = "let it name an absolute path, or `env` and a name";

/// What the kernel starts for a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FirstLine {
    pub(super) interpreter: String,
    /// The rest of the line: one argument on Linux, several on macOS.
    pub(super) rest: String,
}

/// The first line of a program; `None` if it is not a script.
pub(super) fn of(program: &Path) -> Result<Option<FirstLine>, InReach> {
    let unseen = |error: io::Error| InReach::unseen(program, &error);
    let opened = match files::open_named(program) {
        // A program that can be run but not read is not a script.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) if is_missing(&error) => return Ok(None),
        opened => opened.map_err(unseen)?,
    };
    let head = head(opened).map_err(unseen)?;
    parse(&head).map_err(|why| InReach::Unclear(format!("the first line of {} {why}; {REMEDY}", program.display())))
}

fn head(file: File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn parse(head: &[u8]) -> Result<Option<FirstLine>, &'static str> {
    let Some(rest) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => &rest[..end],
        None if head.len() == HEAD_BYTES => return Err("is too long"),
        None => rest,
    };
    let line = std::str::from_utf8(line).map_err(|_| "is not text")?.trim_matches(BLANKS);
    let (interpreter, rest) = line.split_once(BLANKS).unwrap_or((line, ""));
    if interpreter.is_empty() {
        return Ok(None);
    }
    if !interpreter.starts_with('/') {
        return Err("names its interpreter by a relative path");
    }
    Ok(Some(FirstLine { interpreter: interpreter.to_owned(), rest: rest.trim_matches(BLANKS).to_owned() }))
}

const BLANKS: [char; 2] = [' ', '\t'];

impl FirstLine {
    /// The words that start, from the interpreter on; those of `env` if that is the interpreter.
    pub(super) fn words(&self) -> Result<Vec<String>, String> {
        let is_env = self.interpreter.rsplit('/').next() == Some("env");
        if is_env {
            return of_env(&self.rest).map_err(|why| format!("{why}; {REMEDY}"));
        }
        let options = self.rest.split(BLANKS).filter(|word| !word.is_empty()).map(str::to_owned);
        Ok([self.interpreter.clone()].into_iter().chain(options).collect())
    }
}

/// The words that `env` starts for its argument: a name, or `-S` and a line. Source: `env(1)` of the GNU coreutils.
fn of_env(argument: &str) -> Result<Vec<String>, String> {
    let line = ["-S", "-vS", "--split-string="].iter().find_map(|option| argument.strip_prefix(option));
    let words = match line {
        Some(line) => split(line)?,
        None if argument.contains(BLANKS) => return Err("has more words than `env` and a name".to_owned()),
        None => vec![argument.to_owned()],
    };
    let mut words = words.into_iter().peekable();
    words.next_if(|word| line.is_some() && word == "--");
    while let Some(word) = words.next_if(|word| word.contains('=') && !word.starts_with('-')) {
        let name = word.split('=').next().unwrap_or_default();
        if is_watched(name) {
            return Err(format!("sets {name}"));
        }
    }
    let words: Vec<String> = words.collect();
    match words.first() {
        None => Err("names no program".to_owned()),
        Some(first) if first.is_empty() => Err("names no program".to_owned()),
        Some(option) if option.starts_with('-') => Err(format!("has the option `{option}` of `env`")),
        Some(path) if path.contains('/') && !path.starts_with('/') => {
            Err("names its interpreter by a relative path".to_owned())
        }
        Some(_) => Ok(words),
    }
}

/// Splits the line of `-S`. Escapes and variables are not followed.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for char in line.chars() {
        match (quote, char) {
            (Some(open), _) if char == open => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(char),
            (_, '\\' | '$') => return Err(format!("has `{char}` for `env`")),
            (Some(_), _) => word.get_or_insert_default().push(char),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if char.is_ascii_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(char),
        }
    }
    if quote.is_some() {
        return Err("has a quote without its end".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_start() {
        let check = |line: &str, expect: Result<&[&str], &str>| {
            let parsed = parse(line.as_bytes()).map_err(str::to_owned);
            let words = parsed.and_then(|line| line.map_or(Ok(Vec::new()), |line| line.words()));
            let words = words.map_err(|why| why.split(';').next().unwrap_or_default().to_owned());
            let expect = expect.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
            assert_eq!(words, expect.map_err(str::to_owned), "{line:?}");
        };
        check("echo", Ok(&[]));
        check("#!", Ok(&[]));
        check("#! /bin/sh \t-e \nx", Ok(&["/bin/sh", "-e"]));
        check("#!/bin/bash -e -x", Ok(&["/bin/bash", "-e", "-x"]));
        check("#!/usr/bin/env node\n", Ok(&["node"]));
        check("#!/usr/bin/env /opt/node\n", Ok(&["/opt/node"]));
        check("#!/usr/bin/env -S node --flag=\"a b\" 'c d'\n", Ok(&["node", "--flag=a b", "c d"]));
        check("#!/usr/bin/env -Snode ''\n", Ok(&["node", ""]));
        check("#!/usr/bin/env -S A=b node a#b #c\n", Ok(&["node", "a#b"]));
        check("#!/usr/bin/env -S node '$x'\n", Ok(&["node", "$x"]));
        check("#!/usr/bin/env -S node \"$x\"\n", Err("has `$` for `env`"));
        check("#!/usr/bin/env -S node a\\_b\n", Err("has `\\` for `env`"));
        check("#!/usr/bin/env -S PATH=/x node\n", Err("sets PATH"));
        check("#!/usr/bin/env -S -u A node\n", Err("has the option `-u` of `env`"));
        check("#!/usr/bin/env -\n", Err("has the option `-` of `env`"));
        check("#!/usr/bin/env node --flag\n", Err("has more words than `env` and a name"));
        check("#!/usr/bin/env\n", Err("names no program"));
        check("#!/usr/bin/env A=b\n", Err("names no program"));
        check("#!bin/sh\n", Err("names its interpreter by a relative path"));
        check("#!/usr/bin/env bin/sh\n", Err("names its interpreter by a relative path"));
    }
}
