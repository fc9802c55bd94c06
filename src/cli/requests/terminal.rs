//! Asks a person at the terminal for the answer to a request.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::super::kept_back::KeptBack;
use super::super::screen;
use super::{body, text};
use crate::control::answer::Word;
use crate::control::form::{self, Field};
use crate::control::request_view::{Choice, Gives, Question, RequestView};
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
    let request = RequestView::of(row);
    match request.kind {
        RequestKind::UserInput => questions(row, &request.questions),
        RequestKind::Other => Err(format!(
            "codex-shim does not know this method; answer it with `codex-shim respond {} --json '{{\"result\":…}}'`",
            text(row, "request_id")
        )),
        RequestKind::Command
        | RequestKind::FileChange
        | RequestKind::OldCommand
        | RequestKind::OldPatch
        | RequestKind::Permissions
        | RequestKind::Elicitation => choose(row, &request),
    }
}

/// Lists the choices and reads one by number, letter or name.
fn choose(row: &Value, request: &RequestView) -> Result<Value, String> {
    screen::print(&format!("\n{}", listed(&request.choices)));
    for _ in 0..TRIES_MAX {
        let typed = read_line("Your answer (number or letter; Enter alone leaves the request pending): ")?;
        if typed.trim().is_empty() {
            return Err(NO_ANSWER.to_owned());
        }
        let Some(choice) = chosen(&typed, &request.choices) else {
            let letters: Vec<String> = request.choices.iter().filter_map(letter).map(String::from).collect();
            screen::print(&format!(
                "`{}` is not a choice; type 1 to {} or one of {}\n",
                screen::plain(typed.trim()),
                request.choices.len(),
                letters.join(", ")
            ));
            continue;
        };
        return match &choice.gives {
            Gives::Body(body) => Ok(body.clone()),
            Gives::Reason => body::of_word(row, Word::Decline, Some(&read_line("Why not: ")?)),
            Gives::Form => fill(row, &request.fields),
        };
    }
    Err(NO_ANSWER.to_owned())
}

/// The letter of a choice. Digits are the numbers of the list.
fn letter(choice: &Choice) -> Option<char> {
    Some(choice.key).filter(|key| !key.is_ascii_digit())
}

/// The choices, one a line.
fn listed(choices: &[Choice]) -> String {
    let line = |(number, choice): (usize, &Choice)| {
        format!("  {} {}  {}\n", number + 1, letter(choice).unwrap_or(' '), screen::plain(&choice.label))
    };
    choices.iter().enumerate().map(line).collect()
}

/// The choice for typed text: a number from 1, a letter, or the name.
fn chosen<'a>(typed: &str, choices: &'a [Choice]) -> Option<&'a Choice> {
    let typed = typed.trim().to_lowercase();
    let of_letter = |choice: &&Choice| letter(choice).is_some_and(|letter| typed == letter.to_string());
    let words = typed.replace('-', " ");
    let of_name = |choice: &&Choice| {
        letter(choice).is_some() && (choice.label == words || choice.label.replace(" the ", " ") == words)
    };
    let named = || choices.iter().find(of_letter).or_else(|| choices.iter().find(of_name));
    numbered(&typed, choices).or_else(named)
}

/// The element with the typed number, counted from 1.
fn numbered<'a, T>(typed: &str, choices: &'a [T]) -> Option<&'a T> {
    typed.trim().parse::<usize>().ok()?.checked_sub(1).and_then(|index| choices.get(index))
}

/// Asks each question; options can be chosen by number.
fn questions(row: &Value, questions: &[Question]) -> Result<Value, String> {
    let mut answers = Vec::new();
    for question in questions {
        let answer = answer_to(question)?;
        if !answer.is_empty() {
            answers.push((question.id.clone(), answer));
        }
    }
    if answers.is_empty() {
        return Err(NO_ANSWER.to_owned());
    }
    body::of_answers(row, &answers)
}

/// The answer to one question; empty if the user skips it. An unknown number is asked for again, unless the question takes any
/// text.
fn answer_to(question: &Question) -> Result<String, String> {
    let prompt = format!("{}: ", screen::plain(&question.id));
    for _ in 0..TRIES_MAX {
        let typed = if question.is_secret { read_secret(&prompt)? } else { read_line(&prompt)? };
        let of_label = || question.options.iter().find(|(label, _)| label.eq_ignore_ascii_case(typed.trim()));
        if let Some((label, _)) = numbered(&typed, &question.options).or_else(of_label) {
            return Ok(label.clone());
        }
        if typed.is_empty() || question.takes_text {
            return Ok(typed);
        }
        let (typed, last) = (screen::plain(typed.trim()), question.options.len());
        screen::print(&format!("`{typed}` is not an option; type 1 to {last}\n"));
    }
    Err(NO_ANSWER.to_owned())
}

/// Asks for each field of a form in the schema's order. Only invalid values are asked for again. An empty field gets its
/// default or is left out.
fn fill(row: &Value, fields: &[Field]) -> Result<Value, String> {
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

    fn approval(offers: &Value) -> Vec<Choice> {
        let method = "item/commandExecution/requestApproval";
        RequestView::of(&json!({ "request_method": method, "available_decisions": offers })).choices
    }

    #[test]
    fn numbers_letters_and_names_choose() {
        let choices = approval(&json!([{ "x": 1 }]));
        let check = |typed: &str, expect: Option<&str>| {
            assert_eq!(chosen(typed, &choices).map(|choice| &*choice.label), expect, "{typed}");
        };
        check("1", Some("accept"));
        check(" A ", Some("accept"));
        check("accept", Some("accept"));
        check("accept-for-session", Some("accept for the session"));
        check("Accept for session", Some("accept for the session"));
        check("3", Some("{\"x\":1}"));
        check("r", Some("decline with a reason"));
        check("7", None);
        check("y", None);
        check(" ", None);
    }

    #[test]
    fn offers_are_listed_in_words() {
        let always =
            json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["touch", "\u{202e}x\u{1b}"] } });
        let expect = "  1 a  accept\n  2 s  accept for the session\n  3    accept, and do not ask again for `touch \\u{202e}x\u{fffd}`\n  \
                      4 d  decline\n  5 r  decline with a reason\n  6 c  cancel, which ends the turn\n";
        assert_eq!(listed(&approval(&json!(["accept", always]))), expect);
        assert_eq!(approval(&Value::Null).len(), 5);
    }
}
