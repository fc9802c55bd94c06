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
use crate::control::form::{self, Field};
use crate::control::shown::offered;
use crate::protocol::RequestKind;

/// How many times an invalid input may be retried.
const TRIES_MAX: u32 = 5;

/// The message if the user leaves without an answer.
const NO_ANSWER: &str = "nothing was sent; the request is still pending";

pub(super) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks for the answer to a request; returns the body to send.
///
/// # Errors
///
/// The reason why there is no answer.
pub(super) fn ask(row: &Value) -> Result<Value, String> {
    match kind_of(row) {
        RequestKind::Command | RequestKind::FileChange | RequestKind::OldCommand | RequestKind::OldPatch => {
            choose(row, &approval(row))
        }
        RequestKind::Permissions => choose(row, &[ACCEPT, ACCEPT_FOR_SESSION, DECLINE]),
        RequestKind::Elicitation => {
            let accept =
                if form::fields(row).is_empty() { ACCEPT } else { ('a', "accept, and fill in the form", Choice::Fill) };
            choose(row, &[accept, DECLINE, ('c', "cancel", word(Word::Cancel))])
        }
        RequestKind::UserInput => questions(row),
        RequestKind::Other => Err(format!(
            "codex-shim does not know this method; answer it with `codex-shim respond {} --json '{{\"result\":…}}'`",
            text(row, "request_id")
        )),
    }
}

const ACCEPT: (char, &str, Choice) = ('a', "accept", word(Word::Accept));
const ACCEPT_FOR_SESSION: (char, &str, Choice) = ('s', "accept for session", word(Word::AcceptForSession));
const DECLINE: (char, &str, Choice) = ('d', "decline", word(Word::Decline));

/// The meaning of a choice.
#[derive(Debug, Clone, PartialEq)]
enum Choice {
    Word(Word),
    /// Decline with a reason.
    Reason,
    /// Accept and fill in the form.
    Fill,
    /// A further decision that the server offers.
    Offered(Value),
}

const fn word(word: Word) -> Choice {
    Choice::Word(word)
}

/// The choices of an approval. Decisions that only this server offers have a number but no letter.
fn approval(row: &Value) -> Vec<(char, &'static str, Choice)> {
    let offered = row["available_decisions"].as_array().into_iter().flatten().filter(|decision| decision.is_object());
    let mut choices = vec![ACCEPT, ACCEPT_FOR_SESSION];
    choices.extend(offered.map(|decision| (' ', "", Choice::Offered(decision.clone()))));
    choices.extend([
        DECLINE,
        ('r', "decline, and say why", Choice::Reason),
        ('c', "cancel, and end the turn", word(Word::Cancel)),
    ]);
    choices
}

/// Lists the choices and reads one by number, letter or name.
fn choose(row: &Value, choices: &[(char, &str, Choice)]) -> Result<Value, String> {
    let mut listed = String::from("\n");
    for (number, (letter, name, choice)) in choices.iter().enumerate() {
        listed.push_str(&format!("  {} {letter}  {}\n", number + 1, in_words(name, choice)));
    }
    screen::print(&listed);
    for _ in 0..TRIES_MAX {
        let typed = read_line("Your answer (number or letter; Enter alone leaves the request pending): ")?;
        if typed.trim().is_empty() {
            return Err(NO_ANSWER.to_owned());
        }
        let Some(choice) = chosen(&typed, choices) else {
            let letters: Vec<String> =
                choices.iter().filter(|(letter, ..)| *letter != ' ').map(|(letter, ..)| letter.to_string()).collect();
            screen::print(&format!(
                "`{}` is not a choice; type 1 to {} or one of {}\n",
                screen::plain(typed.trim()),
                choices.len(),
                letters.join(", ")
            ));
            continue;
        };
        return match choice {
            Choice::Word(word) => body::of_word(row, *word, None),
            Choice::Reason => body::of_word(row, Word::Decline, Some(&read_line("Why not: ")?)),
            Choice::Fill => fill(row),
            Choice::Offered(decision) => Ok(json!({ "decision": decision })),
        };
    }
    Err(NO_ANSWER.to_owned())
}

/// The choice for typed text: a number from 1, a letter, or the name.
fn chosen<'a>(typed: &str, choices: &'a [(char, &str, Choice)]) -> Option<&'a Choice> {
    let typed = typed.trim().to_lowercase();
    if let Some((.., choice)) = numbered(&typed, choices) {
        return Some(choice);
    }
    let is_meant = |(letter, name, _): &&(char, &str, Choice)| {
        !name.is_empty() && (typed == letter.to_string() || typed == *name || typed == name.replace(' ', "-"))
    };
    choices.iter().find(is_meant).map(|(.., choice)| choice)
}

/// A choice in the list.
fn in_words(name: &str, choice: &Choice) -> String {
    match choice {
        Choice::Offered(decision) => screen::plain(&offered(decision)),
        Choice::Word(_) | Choice::Reason | Choice::Fill => name.to_owned(),
    }
}

/// The element with the typed number, counted from 1.
fn numbered<'a, T>(typed: &str, choices: &'a [T]) -> Option<&'a T> {
    typed.trim().parse::<usize>().ok()?.checked_sub(1).and_then(|index| choices.get(index))
}

/// Asks each question; options can be chosen by number.
fn questions(row: &Value) -> Result<Value, String> {
    let mut answers = Vec::new();
    for question in row["request_payload"]["questions"].as_array().into_iter().flatten() {
        let id = text(question, "id");
        let answer = answer_to(question)?;
        if !answer.is_empty() {
            answers.push((id.to_owned(), answer));
        }
    }
    if answers.is_empty() {
        return Err(NO_ANSWER.to_owned());
    }
    body::of_answers(row, &answers)
}

/// The answer to one question; empty if the user skips it. An unknown number is asked for again, unless the question takes any
/// text.
fn answer_to(question: &Value) -> Result<String, String> {
    let options = question["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let takes_text = options.is_empty() || question["isOther"] == true || question["isSecret"] == true;
    let prompt = format!("{}: ", screen::plain(text(question, "id")));
    for _ in 0..TRIES_MAX {
        let typed = if question["isSecret"] == true { read_secret(&prompt)? } else { read_line(&prompt)? };
        let of_label = || options.iter().find(|option| text(option, "label").eq_ignore_ascii_case(typed.trim()));
        if let Some(option) = numbered(&typed, options).or_else(of_label) {
            return Ok(text(option, "label").to_owned());
        }
        if typed.is_empty() || takes_text {
            return Ok(typed);
        }
        screen::print(&format!("`{}` is not an option; type 1 to {}\n", screen::plain(typed.trim()), options.len()));
    }
    Err(NO_ANSWER.to_owned())
}

/// Asks for each field of a form in the schema's order. Only invalid values are asked for again. An empty field gets its
/// default or is left out.
fn fill(row: &Value) -> Result<Value, String> {
    let fields = form::fields(row);
    let mut answers: Vec<(String, String)> = Vec::new();
    let mut asked: Vec<&Field> = fields.iter().collect();
    for _ in 0..TRIES_MAX {
        for field in asked {
            answers.retain(|(name, _)| *name != field.name);
            let prompt = format!("{}{}: ", screen::plain(&field.name), screen::plain(&described(field)));
            let typed = if field.is_secret { read_secret(&prompt)? } else { read_line(&prompt)? };
            let typed = numbered(&typed, &field.choices).map_or(typed.clone(), |choice| choice.label.clone());
            if !typed.is_empty() {
                answers.push((field.name.clone(), typed));
            }
        }
        let errors = match form::content(row, &answers) {
            Ok(content) => return Ok(json!({ "action": "accept", "content": content })),
            Err(errors) => errors,
        };
        screen::print(&format!("{}\n", screen::plain(&form::in_one_line(&errors))));
        asked = fields
            .iter()
            .filter(|field| errors.iter().any(|error| error.field.as_ref() == Some(&field.name)))
            .collect();
        if asked.is_empty() {
            return Err(format!("{}; {NO_ANSWER}", form::in_one_line(&errors)));
        }
    }
    Err(NO_ANSWER.to_owned())
}

/// The description and accepted values of a field, in brackets.
fn described(field: &Field) -> String {
    let parts: Vec<String> = [field.about.clone(), Some(field.hint())].into_iter().flatten().collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(" · ")) }
}

fn unasked(error: std::io::Error) -> String {
    format!("ask at the terminal: {error}")
}

fn show(prompt: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    stdout.write_all(prompt.as_bytes()).and_then(|()| stdout.flush()).map_err(unasked)
}

/// A typed line without its line break.
fn read_line(prompt: &str) -> Result<String, String> {
    show(prompt)?;
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line).map_err(unasked)? {
        0 => Err(NO_ANSWER.to_owned()),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

/// [`read_line`] without echo.
fn read_secret(prompt: &str) -> Result<String, String> {
    let stdin = std::io::stdin();
    let failed = |error: Errno| format!("turn off the terminal's echo: {error}");
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

/// Waits until input can be read or has ended; false if a signal ends us.
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
    fn approvals_list_the_offers_of_the_server() {
        let row = json!({ "available_decisions": ["accept", { "x": 1 }] });
        assert!(approval(&row).contains(&(' ', "", Choice::Offered(json!({ "x": 1 })))));
        assert_eq!(approval(&json!({})).len(), 5);
    }

    #[test]
    fn numbers_letters_and_names_choose() {
        let row = json!({ "available_decisions": [{ "x": 1 }] });
        let check = |typed: &str, expect: Option<Choice>| {
            assert_eq!(chosen(typed, &approval(&row)).cloned(), expect, "{typed}");
        };
        check("1", Some(word(Word::Accept)));
        check(" A ", Some(word(Word::Accept)));
        check("accept", Some(word(Word::Accept)));
        check("accept-for-session", Some(word(Word::AcceptForSession)));
        check("Accept for session", Some(word(Word::AcceptForSession)));
        check("3", Some(Choice::Offered(json!({ "x": 1 }))));
        check("r", Some(Choice::Reason));
        check("7", None);
        check("y", None);
        check(" ", None);
    }

    #[test]
    fn offers_are_shown_in_words() {
        let always =
            json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["touch", "\u{202e}x\u{1b}"] } });
        let row = json!({ "available_decisions": ["accept", always] });
        let listed: Vec<String> = approval(&row).iter().map(|(_, name, choice)| in_words(name, choice)).collect();
        let expect = [
            "accept",
            "accept for session",
            "accept, and do not ask again for `touch \\u{202e}x\u{fffd}`",
            "decline",
            "decline, and say why",
            "cancel, and end the turn",
        ];
        assert_eq!(listed, expect);
    }
}
