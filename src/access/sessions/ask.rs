//! A pending request: its content, its possible answers, and the answers that need a confirmation.
//!
//! Pure. Everything that other places show too is in [`RequestView`]; here it becomes documents and steps.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Request;
use crate::control::RequestOrigin;
use crate::engine::RequestType;
use crate::protocol::change::Form;
use crate::protocol::{Word, item_id};
use crate::requests::answer;
use crate::requests::form::{self, FieldError};
use crate::requests::view::{self, Choice, Gives, Meant, Question, RequestView, Row, answer_until};
use crate::sessions::diff::{Diff, listed, relative};
use crate::text::doc::{Doc, Role};
use crate::text::{exact, exact_lines};

/// Lines of a diff that the request itself shows; a longer one is reviewed on the whole screen.
const DIFF_LINES_MAX: usize = 200;

/// Longest question that fits on any screen, in bytes.
const QUESTION_BYTES_SHORT: usize = 120;

/// Files that the request itself lists.
const FILES_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub id: String,
    pub view: RequestView,
    /// Arrival time, in microseconds since the Unix epoch.
    pub asked_us: u64,
    pub row: Request,
}

/// A question that is answered by an option or by text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    pub id: String,
    pub question: String,
    /// Labels, and their descriptions.
    pub options: Vec<(String, String)>,
    /// Whether another text may be typed.
    pub takes_text: bool,
    /// The UI must hide the typed text.
    pub is_secret: bool,
    /// Asks whether to answer at all: any option but the first ends the form.
    pub decides: bool,
    /// Belongs to a form.
    pub is_field: bool,
    /// The form needs a value.
    pub is_required: bool,
    /// Valid values in words.
    pub hint: String,
    /// The preselected option; none if it is the number of options.
    pub first: usize,
    pub text: String,
    /// The option that leaves the field out.
    pub leaves_out: Option<usize>,
}

impl Step {
    fn of(question: &Question) -> Step {
        Step {
            id: question.id.clone(),
            question: question.text.clone(),
            takes_text: question.takes_text,
            options: question.options.clone(),
            is_secret: question.is_secret,
            ..Step::default()
        }
    }

    fn of_field(field: &form::Field) -> Step {
        // Several choices at once are typed, with commas.
        let choices = if field.takes_many { &[][..] } else { &field.choices[..] };
        let mut options: Vec<(String, String)> =
            choices.iter().map(|choice| (choice.label.clone(), String::new())).collect();
        let chosen = choices.iter().position(|choice| field.default.as_ref() == Some(&choice.value));
        let leaves_out = (!choices.is_empty() && !field.is_required && chosen.is_none()).then_some(options.len());
        options.extend(leaves_out.map(|_| ("leave it out".to_owned(), String::new())));
        Step {
            question: field.about.as_ref().map_or(field.name.clone(), |about| format!("{}: {about}", field.name)),
            takes_text: options.is_empty(),
            hint: field.hint(),
            first: chosen.or(leaves_out).unwrap_or(0),
            text: field.default.as_ref().map(|value| field.label_of(value)).unwrap_or_default(),
            leaves_out,
            is_field: true,
            is_required: field.is_required,
            is_secret: field.is_secret,
            id: field.name.clone(),
            options,
            decides: false,
        }
    }

    /// Whether the question may be too long for a small screen.
    pub fn is_long(&self) -> bool {
        self.question.len() > QUESTION_BYTES_SHORT
    }

    /// The number of options; free text counts as one more.
    pub fn choices(&self) -> usize {
        self.options.len() + usize::from(self.takes_text)
    }
}

/// The visible part of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// Everything needed for a decision. A long diff is listed only by its files.
    pub doc: Doc,
    pub diff: Option<Arc<Diff>>,
}

/// The id of the first step of an elicitation.
const ACTION: &str = "\u{0}action";

impl Ask {
    /// Whether the request waits for a person.
    pub fn is_for_human(&self) -> bool {
        self.view.kind.request_type().is_for_human()
    }

    pub fn thread_id(&self) -> Option<&str> {
        self.row.thread_id.as_deref()
    }

    /// Whether the request is answered by text or options.
    pub fn wants_input(&self) -> bool {
        matches!(self.view.kind.request_type(), RequestType::UserInput | RequestType::Elicitation)
    }

    /// The subject on one line.
    pub fn summary(&self) -> String {
        match &*self.row.summary {
            "" => format!("{} {}", self.view.kind.name(), self.row.request_method),
            summary => summary.to_owned(),
        }
    }

    /// The subject on one line, with the files of its diff.
    pub fn headline(&self, details: &Details) -> String {
        match details.diff.as_deref().map(|diff| &diff.files[..]) {
            Some([one]) => format!("change {}", one.path),
            Some([_, ..]) => format!("change {} files", details.diff.as_ref().map_or(0, |diff| diff.files.len())),
            Some([]) | None => self.summary(),
        }
    }

    /// The folder in which its thread works; that of the session if it is not known.
    pub fn folder<'a>(&'a self, of_session: &'a str) -> &'a str {
        self.row.thread().and_then(|thread| thread.cwd.as_deref()).unwrap_or(of_session)
    }

    /// The handle of the entry of the action that waits for it.
    pub fn handle(&self) -> Option<String> {
        let payload = &self.row.request_payload;
        let item = item_id(payload)?;
        let thread = self.thread_id().or(payload["threadId"].as_str()).unwrap_or_default();
        Some(format!("{thread}:{item}"))
    }

    /// The thread that asks, if it works in another folder than the session.
    pub fn origin(&self, of_session: &str) -> Option<RequestOrigin> {
        RequestOrigin::elsewhere(self.row.thread()?.clone(), of_session)
    }

    /// Everything needed for a decision, with paths relative to a folder.
    pub fn details(&self, cwd: &str) -> Details {
        let mut doc = Doc::default();
        for Row { label, text, meant } in &self.view.members {
            let text = &exact_lines(text);
            let role = if *meant == Meant::Asked { Role::Strong } else { Role::Plain };
            match label.as_str() {
                "message" => doc.push(text, role),
                "command" => {
                    for (number, line) in text.split('\n').enumerate() {
                        doc.push_pieces(&[(if number == 0 { "$ " } else { "  " }, Role::Info), (line, role)], 2);
                    }
                }
                "cwd" if text.trim_end_matches('/') == cwd.trim_end_matches('/') => {}
                "cwd" => doc.push_pieces(&[("in ", Role::Faint), (relative(text, cwd), role)], 3),
                "reason" => doc.push_pieces(&[("because ", Role::Faint), (text, role)], 2),
                label => {
                    for (number, line) in text.split('\n').enumerate() {
                        let name = if number == 0 { format!("{label}: ") } else { "  ".to_owned() };
                        doc.push_pieces(&[(&name, Role::Faint), (line, role)], 2);
                    }
                }
            }
        }
        // A small screen cuts a long question, but the details scroll.
        for step in self.steps().iter().filter(|step| step.is_long()) {
            doc.push(&exact_lines(&step.question), Role::Strong);
        }
        let diff = listed(&self.view.files).map(|text| Arc::new(Diff::read(Form::Listed, &text, cwd)));
        for text in &self.view.warnings {
            let role = if self.view.dangers.contains(text) { Role::Bad } else { Role::Warning };
            doc.push_pieces(&[("! ", role), (&exact(text), role)], 2);
        }
        if let Some(diff) = &diff {
            show(diff, &mut doc);
        }
        Details { doc, diff }
    }

    /// The answers that one key gives, those that only this request offers last; empty for questions.
    pub fn choices(&self) -> impl Iterator<Item = &Choice> {
        let all = if self.wants_input() { &[] } else { &self.view.choices[..] };
        let (own, offered): (Vec<&Choice>, Vec<&Choice>) = all.iter().partition(|choice| !choice.key.is_ascii_digit());
        own.into_iter().chain(offered)
    }

    /// The choice to confirm before this answer to a form is sent, if it is risky.
    pub fn confirmation(&self, body: &Value) -> Option<Choice> {
        let danger = self.view.asked_again(&self.row, body)?;
        let gives = Gives::Body(body.clone());
        let offered = self.view.choices.iter().find(|choice| choice.gives == gives);
        let label = offered.map_or("accept with these values", |choice| &choice.label).to_owned();
        Some(Choice { key: 'a', label, gives, danger: Some(danger) })
    }

    /// How long it can still be answered, in microseconds, if not for ever.
    pub fn left_us(&self, now_us: u64) -> Option<u64> {
        Some(answer_until(&self.row)?.saturating_sub(now_us))
    }

    /// The keys of the choices; the one that asks for a reason is last.
    pub fn keys(&self) -> Vec<char> {
        let mut keys: Vec<char> = self.choices().map(|choice| choice.key).collect();
        keys.sort_by_key(|key| *key == 'r');
        keys
    }

    /// The body that declines, with a reason if there is one.
    pub fn declined(&self, reason: &str) -> Option<Value> {
        let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
        answer::of_word(&self.row, Word::Decline, reason).ok()
    }

    /// The questions, in order. Those of an elicitation follow the question whether to answer it.
    pub fn steps(&self) -> Vec<Step> {
        match self.view.kind.request_type() {
            RequestType::UserInput => self.view.questions.iter().map(Step::of).collect(),
            RequestType::Elicitation => {
                let options = self.view.choices.iter().map(Ask::action).collect::<Vec<_>>();
                let action = Step {
                    id: ACTION.to_owned(),
                    question: "Answer it?".to_owned(),
                    // Without fields, accepting sends the answer at once, so Enter alone must not accept.
                    first: if self.view.fields.is_empty() { options.len() } else { 0 },
                    options,
                    decides: true,
                    ..Step::default()
                };
                std::iter::once(action).chain(self.view.fields.iter().map(Step::of_field)).collect()
            }
            RequestType::Approval | RequestType::Permissions | RequestType::Other => Vec::new(),
        }
    }

    /// A way to answer an elicitation, and what it leads to.
    fn action(choice: &Choice) -> (String, String) {
        match &choice.gives {
            Gives::Form => ("accept".to_owned(), String::new()),
            Gives::Body(_) | Gives::Reason => (choice.label.clone(), choice.danger.clone().unwrap_or_default()),
        }
    }

    /// The error in an answer to one field of a form, if it has one.
    pub fn refuses(&self, id: &str, answer: &str) -> Option<String> {
        if self.view.kind.request_type() != RequestType::Elicitation || id == ACTION || answer.is_empty() {
            return None;
        }
        let errors = form::content(&self.row, &[(id.to_owned(), answer.to_owned())]).err()?;
        errors.into_iter().find(|error| error.field.as_deref() == Some(id)).map(|error| error.message)
    }

    /// The body for these answers.
    ///
    /// # Errors
    ///
    /// One error for each invalid field, or one about the answers as a whole.
    pub fn answered(&self, answers: &[(String, String)]) -> Result<Value, Vec<FieldError>> {
        let whole = |message: &str| vec![FieldError { field: None, message: message.to_owned() }];
        let action = answers.iter().find(|(id, _)| id == ACTION);
        let chosen =
            action.and_then(|(_, label)| self.view.choices.iter().find(|choice| Ask::action(choice).0 == *label));
        if let Some(Choice { gives: Gives::Body(body), .. }) = chosen {
            return Ok(body.clone());
        }
        let given: Vec<(String, String)> =
            answers.iter().filter(|(id, text)| id != ACTION && !text.is_empty()).cloned().collect();
        if self.view.kind.request_type() == RequestType::UserInput && given.is_empty() {
            return Err(whole("no question was answered, so nothing was sent"));
        }
        answer::of_answers(&self.row, &given)
    }
}

/// The files of a diff, and its lines if there are few.
fn show(diff: &Diff, doc: &mut Doc) {
    let is_long = diff.doc.len() > DIFF_LINES_MAX;
    if diff.files.len() > 1 || is_long {
        doc.push(&diff.summary(), Role::Strong);
        for file in diff.files.iter().take(FILES_MAX) {
            let (added, removed) = (format!("  +{}", file.added), format!(" -{}", file.removed));
            let sign = format!("{} ", file.sign);
            let pieces = [(&*sign, Role::Info), (&file.path, Role::Plain), (&added, Role::Good), (&removed, Role::Bad)];
            doc.push_pieces(&pieces, 2);
        }
        match diff.files.len().saturating_sub(FILES_MAX) {
            0 => {}
            more => doc.push(&format!("and {more} more files"), Role::Faint),
        }
        doc.push("", Role::Plain);
    }
    match is_long {
        true => doc.push(&format!("{} lines: v shows them on the whole screen", diff.doc.len()), Role::Info),
        false => doc.extend(&diff.doc),
    }
}

/// How a request ended, on one line: who answered first, and how.
pub fn ending(row: &Request) -> String {
    format!("request {} was {}", row.request_id, view::ending(row))
}

/// How a request ended that was answered here, on one line.
pub fn own_ending(row: &Request) -> String {
    format!("request {} was {}", row.request_id, view::own_ending(row))
}

pub fn of_row(row: Request, asked_us: u64) -> Ask {
    Ask { id: row.request_id.clone(), view: RequestView::of(&row), asked_us, row }
}
