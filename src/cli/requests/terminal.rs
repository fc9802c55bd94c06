//! Asks a person at the terminal for the answer to a request.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::super::kept_back::KeptBack;
use super::super::screen;
use super::{body, kind_of, text};
use crate::control::answer::Word;
use crate::control::shown::offered;
use crate::engine::RequestKind;

/// How often something is asked again that was not understood.
const TRIES_MAX: u32 = 3;

/// What is said where there will be no answer.
const NO_ANSWER: &str = "nothing was answered; the request still waits";

/// Whether there is somebody to ask.
pub(super) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The body of the answer that somebody gives.
///
/// # Errors
///
/// Why there is none.
pub(super) fn ask(row: &Value) -> Result<Value, String> {
    let payload = &row["request_payload"];
    match kind_of(row) {
        RequestKind::Command | RequestKind::FileChange | RequestKind::OldCommand | RequestKind::OldPatch => {
            choose(row, &approval(row))
        }
        RequestKind::Permissions => {
            choose(row, &[("accept", word(Word::Accept)), ("accept for the session", word(Word::AcceptForSession)), NO])
        }
        RequestKind::Elicitation => {
            let fields = payload["requestedSchema"]["properties"].as_object().is_some_and(|fields| !fields.is_empty());
            let yes = if fields { Choice::Fill } else { word(Word::Accept) };
            choose(row, &[("accept", yes), NO, ("cancel", word(Word::Cancel))])
        }
        RequestKind::UserInput => questions(row),
        RequestKind::Other => Err(format!(
            "this is a request that we do not know; answer it with `codex-shim respond {} --json '{{\"result\":…}}'`",
            text(row, "request_id")
        )),
    }
}

const NO: (&str, Choice) = ("decline", word(Word::Decline));

/// What can be chosen.
#[derive(Debug, Clone, PartialEq)]
enum Choice {
    Word(Word),
    /// Decline, and say why.
    Reason,
    /// Fill in what is asked for.
    Fill,
    /// What the server offers besides.
    Offered(Value),
}

const fn word(word: Word) -> Choice {
    Choice::Word(word)
}

fn approval(row: &Value) -> Vec<(&'static str, Choice)> {
    let mut choices = vec![("accept", word(Word::Accept)), ("accept for the session", word(Word::AcceptForSession))];
    let more = row["available_decisions"].as_array().into_iter().flatten().filter(|decision| decision.is_object());
    choices.extend(more.map(|decision| ("", Choice::Offered(decision.clone()))));
    choices.extend([NO, ("decline, and say why", Choice::Reason), ("cancel: end the turn", word(Word::Cancel))]);
    choices
}

/// Lists the choices, and asks for the number of one.
fn choose(row: &Value, choices: &[(&str, Choice)]) -> Result<Value, String> {
    let mut listed = String::from("\n");
    for (number, (name, choice)) in choices.iter().enumerate() {
        listed.push_str(&format!("  {}. {}\n", number + 1, in_words(name, choice)));
    }
    screen::print(&listed);
    for _ in 0..TRIES_MAX {
        let typed = read_line("Your answer, by its number (nothing to leave it): ")?;
        if typed.is_empty() {
            return Err(NO_ANSWER.to_owned());
        }
        let Some((_, choice)) = numbered(&typed, choices) else { continue };
        return match choice {
            Choice::Word(word) => body::of_word(row, *word, None),
            Choice::Reason => body::of_word(row, Word::Decline, Some(&read_line("Why not: ")?)),
            Choice::Fill => fields(row),
            Choice::Offered(decision) => Ok(json!({ "decision": decision })),
        };
    }
    Err(NO_ANSWER.to_owned())
}

/// A choice as it is listed.
fn in_words(name: &str, choice: &Choice) -> String {
    match choice {
        Choice::Offered(decision) => screen::plain(&offered(decision)),
        Choice::Word(_) | Choice::Reason | Choice::Fill => name.to_owned(),
    }
}

/// What has the number that was typed, counted from 1.
fn numbered<'a, T>(typed: &str, choices: &'a [T]) -> Option<&'a T> {
    typed.trim().parse::<usize>().ok()?.checked_sub(1).and_then(|index| choices.get(index))
}

/// Asks each question; an option can be given by its number.
fn questions(row: &Value) -> Result<Value, String> {
    let mut answers = Vec::new();
    for question in row["request_payload"]["questions"].as_array().into_iter().flatten() {
        let id = text(question, "id");
        let prompt = format!("{}: ", screen::plain(id));
        let typed = if question["isSecret"] == true { read_secret(&prompt)? } else { read_line(&prompt)? };
        let options = question["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        let chosen = numbered(&typed, options).and_then(|option| option["label"].as_str());
        let answer = chosen.map_or(typed.clone(), str::to_owned);
        if !answer.is_empty() {
            answers.push((id.to_owned(), answer));
        }
    }
    if answers.is_empty() {
        return Err(NO_ANSWER.to_owned());
    }
    body::of_answers(row, &answers)
}

/// Asks for each field of an elicitation; one that is left empty is left out.
fn fields(row: &Value) -> Result<Value, String> {
    let schema = &row["request_payload"]["requestedSchema"]["properties"];
    let mut answers = Vec::new();
    for (name, about) in schema.as_object().into_iter().flatten() {
        let about = about["description"].as_str().or(about["title"].as_str()).map(|about| format!(" ({about})"));
        let typed = read_line(&screen::plain(&format!("{name}{}: ", about.unwrap_or_default())))?;
        if !typed.is_empty() {
            answers.push((name.clone(), typed));
        }
    }
    body::of_answers(row, &answers)
}

fn unasked(error: std::io::Error) -> String {
    format!("ask at the terminal: {error}")
}

fn show(prompt: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    stdout.write_all(prompt.as_bytes()).and_then(|()| stdout.flush()).map_err(unasked)
}

/// A line that is typed, without its end.
fn read_line(prompt: &str) -> Result<String, String> {
    show(prompt)?;
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line).map_err(unasked)? {
        0 => Err(NO_ANSWER.to_owned()),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

/// The same, and nobody sees it.
fn read_secret(prompt: &str) -> Result<String, String> {
    let stdin = std::io::stdin();
    let failed = |error: Errno| format!("keep a secret from the terminal: {error}");
    let before: Termios = tcgetattr(&stdin).map_err(failed)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let kept_back = KeptBack::begin().map_err(|error| format!("listen for signals: {error}"))?;
    tcsetattr(&stdin, OptionalActions::Now, &silent).map_err(failed)?;
    let typed = show(prompt).and_then(|()| match has_been_typed(kept_back) {
        Ok(true) => read_line(""),
        Ok(false) => Err(NO_ANSWER.to_owned()),
        Err(error) => Err(failed(error)),
    });
    let again = tcsetattr(&stdin, OptionalActions::Now, &before).map_err(failed);
    kept_back.let_go();
    again?;
    screen::print("\n");
    typed
}

/// Waits until a line has been typed, or there will be none; false when we are to end instead.
fn has_been_typed(kept_back: &KeptBack) -> rustix::io::Result<bool> {
    let stdin = std::io::stdin();
    let look_again = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !kept_back.has_come() {
        let mut typed = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut typed, Some(&look_again)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_from_one() {
        let check = |typed: &str, expect: Option<&char>| assert_eq!(numbered(typed, &['a', 'b']), expect, "{typed}");
        check("1", Some(&'a'));
        check(" 2 ", Some(&'b'));
        check("0", None);
        check("3", None);
        check("x", None);
    }

    #[test]
    fn what_the_server_offers_can_be_chosen() {
        let row = json!({ "available_decisions": ["accept", { "x": 1 }] });
        assert!(approval(&row).contains(&("", Choice::Offered(json!({ "x": 1 })))));
        assert_eq!(approval(&json!({})).len(), 5);
    }

    #[test]
    fn what_the_server_offers_is_told_in_words() {
        let always =
            json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["touch", "\u{202e}x\u{1b}"] } });
        let row = json!({ "available_decisions": ["accept", always] });
        let listed: Vec<String> = approval(&row).iter().map(|(name, choice)| in_words(name, choice)).collect();
        let expect = [
            "accept",
            "accept for the session",
            "accept, and do not ask again for `touch \\u{202e}x\u{fffd}`",
            "decline",
            "decline, and say why",
            "cancel: end the turn",
        ];
        assert_eq!(listed, expect);
    }
}
