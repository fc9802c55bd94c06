//! `codex-shim respond`: answers a request, from the command line or by asking a person at the terminal, and says whose answer
//! won.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use super::super::complete;
use super::super::hub_tool::Down;
use super::super::kept_back::KeptBack;
use super::super::offline;
use super::super::screen::Clock;
use super::super::screen::Times;
use super::super::screen::{self, Screen};
use super::super::select_session::SessionFlag;
use super::super::{FAILED, NOT_RUNNING};
use super::names::may_answer_unseen;
use super::{CliError, Done, body, named, print_json, show};
use crate::api::{Command, OneRequest, Request, RequestDocument, Responded};
use crate::config::Environment;
use crate::control::RequestOrigin;
use crate::control::client::{Refused, Unanswered};
use crate::engine::RequestType;
use crate::os::polling::{PollFlags, poll_one};
use crate::os::{self, Errno, terminals};
use crate::protocol::Word;
use crate::requests::answer::argument;
use crate::requests::form::{self, Field};
use crate::requests::given::{Decision, Given};
use crate::requests::view::{Choice, Gives, Question, RequestView, ending, own_ending, size_of_changes};
use crate::sessions::request_names::NotNamed;
use crate::store::Found;
use crate::tui::Pager;

/// Rows that the choices and the prompt take.
const CHOICES_ROWS: usize = 9;

/// Rows before the names of changed files.
const HEAD_ROWS: usize = 10;

pub(in crate::cli) fn run_respond(arguments: &RespondArguments, environment: &Environment) -> Done {
    let given = arguments.given.get()?;
    let clock = Clock::of(&arguments.times);
    let (session, RequestDocument { request: row, .. }) =
        named(arguments.session.name(), &arguments.request, environment)?;
    if !session.live {
        return Err(not_running(&session, &row));
    }
    let as_json = arguments.given.as_json();
    if given.is_some() {
        may_answer_unseen(arguments.session.name(), &arguments.request, (&session, &row), environment)?;
    }
    let body = match &given {
        Some(given) => given.body(&row).map_err(CliError::usage)?,
        None => asked(&session, &row, &clock, environment)?,
    };
    if !arguments.sure.is_sure {
        let by = match (as_json, given.is_some()) {
            (true, _) => By::Script,
            (false, true) => By::CommandLine,
            (false, false) => By::Prompt,
        };
        let id = &*row.request_id;
        let name = match by {
            // What is answered is not on the screen.
            By::CommandLine if by.is_asked() => format!("{id} of {}", RequestOrigin::of(&session, &row).exact_name),
            By::Prompt | By::CommandLine | By::Script => id.to_owned(),
        };
        make_sure(&name, &row, &body, by)?;
    }
    answer(&session, &row, &body, &clock, as_json)
}

/// How an answer was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum By {
    /// The request is on the screen.
    Prompt,
    /// It is not, and there may be no terminal.
    CommandLine,
    Script,
}

impl By {
    /// Whether its giver can be asked once more.
    pub(in crate::cli) fn is_asked(self) -> bool {
        self != By::Script && is_there()
    }
}

/// Asks once more at the terminal before a risky answer is sent; without one it says why on stderr, because a script has decided
/// already. `name` is that of the request.
///
/// # Errors
///
/// The user does not confirm the answer.
pub(in crate::cli) fn make_sure(name: &str, row: &Request, body: &Value, by: By) -> Result<(), CliError> {
    let danger = RequestView::of(row).asked_again(row, body).filter(|_| row.is_pending());
    match danger {
        None => Ok(()),
        Some(danger) if by.is_asked() => {
            if by == By::CommandLine {
                say(&format!("{name}: {}", row.summary));
            }
            confirmed(&danger).map_err(CliError::failed)
        }
        Some(danger) => {
            super::super::say(&screen::plain(&format!("request {name}: {danger}")));
            Ok(())
        }
    }
}

/// Asks whether an answer is meant.
///
/// # Errors
///
/// It is not.
fn confirmed(danger: &str) -> Result<(), String> {
    say(&format!("{danger}."));
    screen::forget_typed_ahead();
    match read_line("Really? (y sends it; anything else leaves the request pending): ")?.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(NO_ANSWER.to_owned()),
    }
}

/// The session of a request has no relay. The server of a hub that is down still waits for the answer.
fn not_running(session: &Found, row: &Request) -> CliError {
    match Down::of(session).filter(|down| down.server.is_some() && row.is_pending()) {
        None => CliError::not_running(session),
        Some(down) => {
            let told = format!("request {} waits, and nothing was sent: {}", row.request_id, down.what());
            CliError::exits(NOT_RUNNING, told).with_remedy(format!("{}; then answer again", down.remedy()))
        }
    }
}

/// An answer on the command line.
#[derive(Debug, Args)]
pub(in crate::cli) struct GivenFlags {
    /// accept, accept-for-session, decline or cancel
    #[arg(value_name = "DECISION", value_parser = word_parser(), hide_possible_values = true)]
    word: Option<Word>,
    /// Reason to tell the model; with decline and cancel
    #[arg(long, value_name = "TEXT", requires = "word", allow_hyphen_values = true)]
    reason: Option<String>,
    /// Answer to a question, or value of a field of a form; repeatable
    #[arg(long = "answer", value_name = "ID=TEXT", value_parser = parse_answer, conflicts_with = "word")]
    answers: Vec<(String, String)>,
    /// Print JSON; with a value, send it as the whole answer
    #[arg(long = "json", value_name = "JSON", num_args = 0..=1)]
    json: Option<Option<String>>,
}

impl GivenFlags {
    pub(in crate::cli) fn as_json(&self) -> bool {
        self.json.is_some()
    }

    /// The answer, if there is one.
    pub(in crate::cli) fn get(&self) -> Result<Option<Given>, CliError> {
        match (self.json.as_ref().and_then(Option::as_deref), self.word, &self.answers[..]) {
            (None, Some(word), _) => Ok(Some(Given::Decision(Decision::new(word, self.reason.as_deref())))),
            (None, None, answers @ [_, ..]) => Ok(Some(Given::Texts { answers: answers.to_vec() })),
            (None, None, []) => Ok(None),
            (Some(whole), None, []) => match serde_json::from_str::<Value>(whole) {
                Ok(body @ Value::Object(_)) => Ok(Some(Given::Whole { body })),
                Ok(_) | Err(_) => Err(CliError::usage(
                    "the value of --json must be a JSON object, such as '{\"decision\":\"accept\"}'",
                )),
            },
            (Some(_), _, _) => {
                let message = "--json JSON is the whole answer; do not combine it with a decision or --answer";
                Err(CliError::usage(message))
            }
        }
    }
}

/// Shows the whole request and asks the user at the terminal.
fn asked(session: &Found, row: &Request, clock: &Clock, environment: &Environment) -> Result<Value, CliError> {
    if !is_there() {
        let id = &row.request_id;
        if !row.is_pending() {
            return Err(CliError::usage(format!("no answer given, and request {id} is not pending")));
        }
        let ways = body::respond_arguments(row).into_iter().map(|way| format!("`codex-shim respond {id} {way}`"));
        let ways = ways.collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(format!("no answer given, and no terminal to ask at; use one of {ways}")));
    }
    let screen = Screen::of_stdout(environment);
    let whole = show::question(row, clock, screen);
    let rows_max = screen::rows().unwrap_or(usize::MAX);
    let is_long = whole.lines().count() + CHOICES_ROWS > rows_max;
    let changes = size_of_changes(&RequestView::of(row).files);
    let diff = changes.filter(|_| is_long).map(|summary| {
        let below = &RequestOrigin::of(session, row).cwd;
        let names_max = rows_max.saturating_sub(CHOICES_ROWS + HEAD_ROWS).max(1);
        let names = show::Diffs::Names { below, names_max };
        may_be_lost(screen::print_exactly(&show::question_with(row, names, clock, screen)));
        LongDiff {
            summary,
            whole: &whole,
            pager: Pager::of(environment.get("PAGER"), environment.get("LESS").as_ref()),
        }
    });
    if diff.is_none() {
        may_be_lost(screen::print_exactly(&whole));
    }
    if !row.is_pending() {
        let id = &row.request_id;
        return Err(CliError::failed(format!("request {id} is not pending any more; it was {}", ending(row))));
    }
    ask(row, diff.as_ref()).map_err(CliError::failed)
}

/// Sends the answer and prints who answered first.
fn answer(session: &Found, row: &Request, body: &Value, clock: &Clock, as_json: bool) -> Done {
    let id = &row.request_id;
    let one = OneRequest::of(id).ok_or_else(|| NotNamed::Gone(id.clone()))?;
    let in_words = |error: &Unanswered| match error {
        // A hung relay may still take the answer later.
        Unanswered::NoAnswer(error) if !error.is_unsent() && session.is_still_live() => {
            let told = error.message(session);
            Some(CliError::failed(format!("{told}; `codex-shim show {id}` then shows which answer won")))
        }
        Unanswered::Refused(Refused { code, message, .. }) => Some(match code.as_str() {
            "request_not_found" => CliError::from(NotNamed::Gone(id.clone())),
            "invalid_response" => CliError::usage(format!(
                "{message}; nothing was sent; `codex-shim show {id}` lists the valid answers to request {id}"
            )),
            "request_unavailable" => {
                CliError::failed(format!("{message}; nothing was sent; see `codex-shim show {id}`"))
            }
            _ => return None,
        }),
        Unanswered::NoAnswer(_) | Unanswered::Invalid(_) => None,
    };
    let mut document: Responded = offline::command(session, &Command::Respond(one, body.clone()), in_words)?;
    // The relay has answered the call; this tool reports whether the answer counts, or an identical one.
    document.ok = !document.idempotent || body::is_stored(&document.request, body);
    let is_ours = document.ok;
    let line = verdict(&document, clock);
    let printed = if as_json { print_json(&document) } else { screen::print(&format!("{}\n", screen::plain(&line))) };
    Ok(if is_ours { printed } else { FAILED })
}

/// Who answered first, in words; `ok` says whether the answer counts.
pub(in crate::cli) fn verdict(Responded { idempotent, ok, request: row }: &Responded, clock: &Clock) -> String {
    let id = &row.request_id;
    if !idempotent {
        return format!("request {id} {}", own_ending(row));
    }
    let so = if *ok { "the same as your answer" } else { "your answer was not sent" };
    format!("request {id} was {} at {}; {so}", ending(row), clock.text(row.resolved_at.as_deref().unwrap_or_default()))
}

/// How many times an invalid input may be retried.
const TRIES_MAX: u32 = 5;

/// The message if the user leaves without an answer.
const NO_ANSWER: &str = "nothing was sent; the request is still pending";

/// A diff that does not fit the terminal.
struct LongDiff<'a> {
    /// The size of the changes, repeated above the choices.
    summary: String,
    /// The request with the whole diff.
    whole: &'a str,
    pager: Pager,
}

/// The prompt for a reason to decline.
const WHY: &str = "Why not (Enter alone declines without a reason): ";

/// The choice that shows a long diff.
const VIEW: &str = "    v  view the whole diff\n";

fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks for the answer to a request; returns the body to send.
///
/// # Errors
///
/// The reason why there is no answer.
fn ask(row: &Request, diff: Option<&LongDiff<'_>>) -> Result<Value, String> {
    screen::forget_typed_ahead();
    let request = RequestView::of(row);
    match request.kind.request_type() {
        RequestType::UserInput => questions(row, &request.questions),
        RequestType::Other => Err(format!(
            "codex-shim does not know this method; answer it with `codex-shim respond {} --json '{{\"result\":…}}'`",
            row.request_id
        )),
        RequestType::Approval | RequestType::Permissions | RequestType::Elicitation => choose(row, &request, diff),
    }
}

/// Lists the choices and reads one by number, letter or name.
fn choose(row: &Request, request: &RequestView, diff: Option<&LongDiff<'_>>) -> Result<Value, String> {
    let list = || {
        let summary = diff.map(|diff| format!("{}\n", diff.summary)).unwrap_or_default();
        let view = if diff.is_some() { VIEW } else { "" };
        may_be_lost(screen::print(&format!("\n{summary}{}{view}", listed(&request.choices))));
    };
    list();
    let mut tries = 0;
    while tries < TRIES_MAX {
        screen::forget_typed_ahead();
        let typed = read_line("Your answer (number or letter; Enter alone leaves the request pending): ")?;
        if typed.trim().is_empty() {
            return Err(NO_ANSWER.to_owned());
        }
        if let Some(diff) = diff.filter(|_| matches!(typed.trim(), "v" | "V" | "view")) {
            if diff.pager.show(|mut stdin| stdin.write_all(diff.whole.as_bytes())).is_err() {
                may_be_lost(screen::print_exactly(diff.whole));
            }
            list();
            continue;
        }
        tries += 1;
        let Some(choice) = chosen(&typed, &request.choices) else {
            let letters = request.choices.iter().filter_map(letter).chain(diff.map(|_| 'v')).map(String::from);
            say(&format!(
                "`{}` is not a choice; type 1 to {} or one of {}",
                typed.trim(),
                request.choices.len(),
                letters.collect::<Vec<_>>().join(", ")
            ));
            continue;
        };
        return match &choice.gives {
            Gives::Body(body) => Ok(body.clone()),
            Gives::Reason => body::of_word(row, Word::Decline, reason(&read_line(WHY)?)),
            Gives::Form => fill(row, &request.fields),
        };
    }
    Err(NO_ANSWER.to_owned())
}

/// Prints a line for the user.
fn say(text: &str) {
    may_be_lost(screen::print(&format!("{}\n", screen::plain(text))));
}

/// Goes on after a text for the terminal, even if it was not printed: at a terminal that is gone, the question that follows fails.
fn may_be_lost(_status: i32) {}

/// The reason that was typed; `None` if it is empty.
fn reason(typed: &str) -> Option<&str> {
    Some(typed.trim()).filter(|reason| !reason.is_empty())
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
fn questions(row: &Request, questions: &[Question]) -> Result<Value, String> {
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
    if answers.len() < questions.len() {
        may_be_lost(screen::print(&format!("\nYour answers:\n{}", given(questions, &answers))));
        let typed = read_line("Enter sends them, n leaves the request pending: ")?;
        if !matches!(typed.trim(), "" | "y" | "Y" | "yes") {
            return Err(NO_ANSWER.to_owned());
        }
    }
    body::of_answers(row, &answers).map_err(|errors| form::in_one_line(&errors))
}

/// The answers, one a line, with the questions that have none.
fn given(questions: &[Question], answers: &[(String, String)]) -> String {
    let line = |question: &Question| {
        let answer = answers.iter().find(|(id, _)| *id == question.id).map(|(_, answer)| answer.as_str());
        let told = match (answer, question.is_secret) {
            (None, _) => "not answered",
            (Some(_), true) => "(not shown)",
            (Some(answer), false) => answer,
        };
        format!("  {}: {}\n", screen::plain(&question.id), screen::plain(told))
    };
    questions.iter().map(line).collect()
}

/// The answer to one question; empty if the user skips it. An unknown number is asked for again, unless the question takes any
/// text.
fn answer_to(question: &Question) -> Result<String, String> {
    let prompt = format!("{} (Enter skips it): ", screen::plain(&question.id));
    for _ in 0..TRIES_MAX {
        let typed = if question.is_secret { read_secret(&prompt)? } else { read_line(&prompt)? };
        let of_label = || question.options.iter().find(|(label, _)| label.eq_ignore_ascii_case(typed.trim()));
        if let Some((label, _)) = numbered(&typed, &question.options).or_else(of_label) {
            return Ok(label.clone());
        }
        if typed.is_empty() || question.takes_text {
            return Ok(typed);
        }
        say(&format!("`{}` is not an option; type 1 to {}", typed.trim(), question.options.len()));
    }
    Err(NO_ANSWER.to_owned())
}

/// Asks for each field of a form in the schema's order. An invalid value is asked for again at once. An empty field gets its
/// default or is left out.
fn fill(row: &Request, fields: &[Field]) -> Result<Value, String> {
    let mut answers: Vec<(String, String)> = Vec::new();
    for field in fields {
        fill_one(row, field, &mut answers)?;
    }
    match form::content(row, &answers) {
        Ok(content) => Ok(json!({ "action": "accept", "content": content })),
        // The schema may forbid a combination of valid fields.
        Err(errors) => Err(format!("{}; {NO_ANSWER}", form::in_one_line(&errors))),
    }
}

/// Asks for one field until its value is valid, and adds it to the answers.
fn fill_one(row: &Request, field: &Field, answers: &mut Vec<(String, String)>) -> Result<(), String> {
    for _ in 0..TRIES_MAX {
        for (number, choice) in field.choices.iter().enumerate() {
            say(&format!("  {}  {}", number + 1, choice.label));
        }
        let prompt = format!("{}: ", screen::plain(&format!("{}{}", field.name, described(field))));
        let typed = if field.is_secret { read_secret(&prompt)? } else { read_line(&prompt)? };
        let had = answers.len();
        if !typed.is_empty() {
            answers.push((field.name.clone(), of_numbers(&typed, field)));
        }
        let errors = form::content(row, answers).err().unwrap_or_default();
        let Some(error) = errors.iter().find(|error| error.field.as_ref() == Some(&field.name)) else {
            return Ok(());
        };
        answers.truncate(had);
        say(&format!("{}: {}", field.name, error.message));
    }
    Err(NO_ANSWER.to_owned())
}

/// Typed text with the labels of choices in place of their numbers.
fn of_numbers(typed: &str, field: &Field) -> String {
    let label = |typed: &str| numbered(typed, &field.choices).map_or(typed.to_owned(), |choice| choice.label.clone());
    match field.takes_many {
        true => typed.split(',').map(|part| label(part.trim())).collect::<Vec<_>>().join(","),
        false => label(typed),
    }
}

/// The description and accepted values of a field, in brackets, and the effect of Enter alone.
fn described(field: &Field) -> String {
    let enter = match (&field.default, field.is_required) {
        (Some(_), _) => Some("Enter takes the default".to_owned()),
        (None, false) => Some("Enter skips it".to_owned()),
        (None, true) => None,
    };
    let parts = [field.about.clone(), Some(field.hint_beside_choices()), enter].into_iter().flatten();
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(" · ")) }
}

fn unasked(error: std::io::Error) -> String {
    format!("ask at the terminal: {error}")
}

fn print_prompt(prompt: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    let prompt = screen::fitted(prompt, screen::columns(Screen::of_stdout_plain()));
    stdout.write_all(prompt.as_bytes()).and_then(|()| stdout.flush()).map_err(unasked)
}

/// A typed line without its line break.
fn read_line(prompt: &str) -> Result<String, String> {
    print_prompt(prompt)?;
    typed_line()
}

fn typed_line() -> Result<String, String> {
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
    let before = terminals::mode(&stdin).map_err(failed)?;
    let kept_back = KeptBack::begin().map_err(|error| format!("listen for signals: {error}"))?;
    terminals::set_mode(&stdin, &terminals::silent(&before)).map_err(failed)?;
    let typed = print_prompt(prompt).and_then(|()| match has_been_typed(kept_back) {
        Ok(true) => typed_line(),
        Ok(false) => Err(NO_ANSWER.to_owned()),
        Err(error) => Err(failed(error)),
    });
    let again = terminals::set_mode(&stdin, &before).map_err(failed);
    kept_back.let_go();
    again?;
    may_be_lost(screen::print("\n"));
    typed
}

/// How often a signal that ends us is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Waits until input can be read or has ended; false if a signal ends us.
fn has_been_typed(kept_back: &KeptBack) -> os::Result<bool> {
    let stdin = std::io::stdin();
    while !kept_back.has_come() {
        match poll_one(&stdin, PollFlags::IN, Some(LOOK_AGAIN)) {
            Ok(typed) if !typed.is_empty() => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Reads a decision on a command line.
fn word_parser() -> impl TypedValueParser<Value = Word> {
    let possible = |word: Word| {
        let help = match word {
            Word::Accept => "Allow it once",
            Word::AcceptForSession => "Allow it, and the same again in this session",
            Word::Decline => "Refuse it; the turn goes on",
            Word::Cancel => "Refuse it, and end the turn",
        };
        PossibleValue::new(argument(word)).help(help)
    };
    let word_of = |text: String| Word::ALL.into_iter().find(|word| argument(*word) == text);
    PossibleValuesParser::new(Word::ALL.map(possible)).map(move |text| word_of(text).expect("BUG: it is one of them"))
}

/// Answer a request
///
/// The first answer wins, here or at the client; the output says whose it was. Without an answer on the command line it shows
/// the request and asks, if there is a terminal. At a terminal it asks once more before an answer that deletes, reaches outside the
/// folder, lasts, or looks dangerous otherwise; without one, and with --json, it says why on stderr and sends the answer.
///
/// With an answer on the command line, `latest` means no request of another folder if a session or a thread is open in this one.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Decisions:
  accept               allow it once
  accept-for-session   allow it, and the same again in this session
  decline              refuse it; the turn goes on
  cancel               refuse it, and end the turn

Exit status:
  0  your answer won, or an identical one
  1  another answer won, or the relay refused yours
  2  not a valid answer to this request
  3  no such request or session
  4  the session is not running

Examples:
  codex-shim respond latest                     show it, and ask
  codex-shim respond 0c4e-0 accept
  codex-shim respond 0c4e-0 decline --reason 'use the staging database'
  codex-shim respond 0c4e-2 --answer color=Red --answer size=L
  codex-shim respond latest accept --json | jq -r .request.resolved_by
  codex-shim respond latest --json '{\"decision\":\"acceptForSession\"}'")]
pub(in crate::cli) struct RespondArguments {
    /// Request: its name in the list, its id or a part of it, or `latest`
    #[arg(value_name = "REQUEST", add = complete::requests())]
    pub(in crate::cli) request: String,
    #[command(flatten)]
    pub(in crate::cli) given: GivenFlags,
    #[command(flatten)]
    pub(in crate::cli) sure: SureFlag,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    #[command(flatten)]
    pub(in crate::cli) times: Times,
}

/// The flag that answers the question about a risky answer in advance.
#[derive(Debug, Clone, Copy, Args)]
pub(in crate::cli) struct SureFlag {
    /// Do not ask once more about a risky answer
    #[arg(short = 'y', long = "yes")]
    pub(in crate::cli) is_sure: bool,
}

fn parse_answer(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, answer)) if !id.is_empty() => Ok((id.to_owned(), answer.to_owned())),
        Some(_) | None => Err("it must be ID=TEXT; `codex-shim show REQUEST` lists the ids".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_the_winner() {
        let check = |idempotent: bool, code: Value, expect: &str, is_ours: bool| {
            let mut document: Responded = serde_json::from_value(json!({ "ok": true, "idempotent": idempotent, "request": {
                "request_id": "g-0", "status": "resolved", "request_method": "item/commandExecution/requestApproval", "request_payload": {},
                "resolved_payload": if code.is_null() { json!({ "decision": "accept" }) } else { Value::Null },
                "resolution_source": "client", "resolved_by": "ide", "resolved_at": "T", "error_code": code,
            }}))
            .expect("BUG: it is a reply");
            let said = json!({ "decision": if is_ours { "accept" } else { "decline" } });
            document.ok = !idempotent || body::is_stored(&document.request, &said);
            assert_eq!(document.ok, is_ours);
            assert_eq!(verdict(&document, &Clock::stopped("2026-01-02T03:04:05Z")), expect);
        };
        check(false, Value::Null, "request g-0 answered: accept", true);
        let first = "request g-0 was answered by client (ide): accept at T; the same as your answer";
        check(true, Value::Null, first, true);
        let other = "request g-0 was answered by client (ide): accept at T; your answer was not sent";
        check(true, Value::Null, other, false);
        let gone = "request g-0 was withdrawn by the server before there was an answer at T; your answer was not sent";
        check(true, json!("withdrawn_by_server"), gone, false);
    }

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
        RequestView::of(&json!({ "request_method": method, "available_decisions": offers }).into()).choices
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

    #[test]
    fn skipped_questions_are_listed() {
        let question = |id: &str, is_secret| Question { id: id.to_owned(), is_secret, ..Question::default() };
        let questions = [question("color", false), question("key", true), question("size", false)];
        let answer = |id: &str, text: &str| (id.to_owned(), text.to_owned());
        let told = given(&questions, &[answer("color", "Red\u{1b}"), answer("key", "hunter2")]);
        assert_eq!(told, "  color: Red\u{fffd}\n  key: (not shown)\n  size: not answered\n");
    }

    #[test]
    fn answers_name_their_question() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let expect = expect.map(|(id, answer)| (id.to_owned(), answer.to_owned()));
            assert_eq!(parse_answer(text).ok(), expect, "{text}");
        };
        check("a=b", Some(("a", "b")));
        check("a=b=c", Some(("a", "b=c")));
        check("a=", Some(("a", "")));
        check("=b", None);
        check("a", None);
    }
}
