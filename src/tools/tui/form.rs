//! Text that is being typed, the questions of a request, and the answers so far.
//!
//! Pure. Moving between questions changes no answer. With more than one question, a list of all answers is shown before they
//! are sent. A text may be a secret, so it is never shown in debug output.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::sessions::ask::Step;

/// Text that is being typed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: String,
    /// The cursor's byte offset.
    at: usize,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Field({} bytes)", self.text.len())
    }
}

/// Longest text that can be typed or pasted, in bytes: the control socket takes bodies up to 1 MiB.
pub(crate) const TYPED_BYTES_MAX: usize = 900 << 10;

impl Field {
    /// A field with the cursor at the end of `text`.
    pub(crate) fn of(text: String) -> Field {
        let at = text.len();
        Field { text, at }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn before_cursor(&self) -> &str {
        &self.text[..self.at]
    }

    /// Removes and returns the text.
    pub(crate) fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts text at the cursor while there is room; control characters other than line breaks and tabs are dropped.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let kept: String = text.chars().filter(|char| matches!(char, '\n' | '\t') || !char.is_control()).collect();
        let room = TYPED_BYTES_MAX.saturating_sub(self.text.len());
        let kept = &kept[..kept.floor_char_boundary(room)];
        self.text.insert_str(self.at, kept);
        self.at += kept.len();
    }

    /// Deletes the letter before the cursor.
    pub(crate) fn backspace(&mut self) {
        let from = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Deletes the word before the cursor.
    pub(crate) fn backspace_word(&mut self) {
        let kept = self.text[..self.at].trim_end();
        let from = kept.rfind([' ', '\n']).map_or(0, |at| at + 1);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Deletes everything before the cursor.
    pub(crate) fn clear_before(&mut self) {
        self.text.replace_range(..self.at, "");
        self.at = 0;
    }

    /// Moves the cursor to the left.
    pub(crate) fn left(&mut self) {
        self.at = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
    }

    /// Moves the cursor to the right.
    pub(crate) fn right(&mut self) {
        self.at += self.text[self.at..].graphemes(true).next().map_or(0, str::len);
    }

    /// Moves the cursor to the start.
    pub(crate) fn home(&mut self) {
        self.at = 0;
    }

    /// Moves the cursor to the end.
    pub(crate) fn end(&mut self) {
        self.at = self.text.len();
    }
}

/// The answer to one question, so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    /// The chosen option; after the last one comes the text.
    pub chosen: usize,
    pub text: Field,
    /// Enter confirmed it.
    pub is_given: bool,
    /// Enter was pressed without a text; a second Enter leaves the question unanswered.
    pub is_left_empty: bool,
    /// Its error.
    pub error: Option<String>,
}

/// A position in a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    Step(usize),
    /// In the list of all answers, on this row. The row after the last answer sends them.
    Summary(usize),
}

/// The effect of Enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Another question, or the list of answers.
    Moved,
    /// Everything was answered.
    Complete,
    /// Refused; the reason.
    Refused(String),
}

/// Questions and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    steps: Vec<Step>,
    drafts: Vec<Draft>,
    stand: Stand,
}

impl Form {
    /// A form without answers.
    pub(crate) fn new(steps: Vec<Step>) -> Form {
        let draft = |step: &Step| Draft { chosen: step.first, text: Field::of(step.text.clone()), ..Draft::default() };
        let drafts = steps.iter().map(draft).collect();
        Form { steps, drafts, stand: Stand::Step(0) }
    }

    pub(crate) fn stand(&self) -> Stand {
        self.stand
    }

    /// The number of questions that apply. If the first one asks whether to answer at all, only that one applies until it is
    /// accepted.
    pub(crate) fn len(&self) -> usize {
        match (self.steps.first(), self.drafts.first()) {
            (Some(first), Some(draft)) if first.decides && draft.chosen != 0 => 1,
            (_, _) => self.steps.len(),
        }
    }

    /// The question and the answer so far.
    pub(crate) fn current(&self) -> Option<(&Step, &Draft)> {
        match self.stand {
            Stand::Step(at) => self.steps.get(at).zip(self.drafts.get(at)),
            Stand::Summary(_) => None,
        }
    }

    /// The answer so far, to be changed.
    pub(crate) fn draft(&mut self) -> Option<&mut Draft> {
        match self.stand {
            Stand::Step(at) => self.drafts.get_mut(at),
            Stand::Summary(_) => None,
        }
    }

    /// All questions that apply, with their answers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Step, &Draft)> {
        self.steps.iter().zip(&self.drafts).take(self.len())
    }

    /// Whether letters are text now.
    pub(crate) fn types_text(&self) -> bool {
        self.current().is_some_and(|(step, draft)| step.takes_text && draft.chosen >= step.options.len())
    }

    /// Whether anything was typed or chosen.
    pub(crate) fn is_touched(&self) -> bool {
        let is_touched = |(step, draft): (&Step, &Draft)| {
            draft.is_given || draft.chosen != step.first || draft.text.text() != step.text
        };
        self.steps.iter().zip(&self.drafts).any(is_touched)
    }

    /// Moves among the options, or in the list of answers.
    pub(crate) fn step_by(&mut self, forward: bool) {
        let last_row = self.len();
        let moved = |at: usize, last: usize| if forward { (at + 1).min(last) } else { at.saturating_sub(1) };
        match &mut self.stand {
            Stand::Summary(row) => *row = moved(*row, last_row),
            Stand::Step(at) => {
                if let (Some(step), Some(draft)) = (self.steps.get(*at), self.drafts.get_mut(*at)) {
                    draft.is_left_empty = false;
                    let last = step.choices().saturating_sub(1);
                    // If nothing is chosen yet, the first move chooses an end of the list.
                    draft.chosen = match draft.chosen <= last {
                        true => moved(draft.chosen, last),
                        false if forward => 0,
                        false => last,
                    };
                }
            }
        }
    }

    /// Chooses an option by its number, or an answer to be changed. Returns `false` for an invalid number.
    pub(crate) fn choose(&mut self, number: usize) -> bool {
        let len = self.len();
        match self.stand {
            Stand::Summary(_) => {
                let is_there = (1..=len).contains(&number);
                if is_there {
                    self.stand = Stand::Step(number - 1);
                }
                is_there
            }
            Stand::Step(at) => {
                let is_there = self.steps.get(at).is_some_and(|step| (1..=step.choices()).contains(&number));
                if let Some(draft) = self.drafts.get_mut(at).filter(|_| is_there) {
                    draft.chosen = number - 1;
                    draft.is_left_empty = false;
                }
                is_there
            }
        }
    }

    /// Returns to the previous question and keeps all answers.
    pub(crate) fn back(&mut self) {
        self.stand = match self.stand {
            Stand::Step(at) => Stand::Step(at.saturating_sub(1)),
            Stand::Summary(_) => Stand::Step(self.len().saturating_sub(1)),
        };
    }

    /// Marks an answer as wrong and selects it in the list. All answers are kept.
    pub(crate) fn refuse(&mut self, id: &str, error: String) {
        if let Some(at) = self.steps.iter().position(|step| step.id == id) {
            self.drafts[at].error = Some(error);
            if let Stand::Summary(row) = &mut self.stand {
                *row = (*row).min(at);
            }
        }
    }

    /// Enter: takes the answer to this question, or carries out the selected row of the list. `refuses` returns the error in
    /// an answer, by the id of its question.
    pub(crate) fn enter(&mut self, refuses: impl Fn(&str, &str) -> Option<String>) -> Taken {
        let types_text = self.types_text();
        match self.stand {
            Stand::Summary(row) if row < self.len() => {
                self.stand = Stand::Step(row);
                Taken::Moved
            }
            Stand::Summary(_) => Taken::Complete,
            Stand::Step(at) => {
                let Some(draft) = self.drafts.get_mut(at) else { return Taken::Complete };
                let step = &self.steps[at];
                if draft.chosen >= step.choices() && step.choices() > 0 {
                    let last = step.choices();
                    return Taken::Refused(format!("choose an answer first: 1 to {last}, or Up and Down"));
                }
                let is_empty = types_text && draft.text.text().is_empty();
                if is_empty && step.is_required && step.text.is_empty() {
                    return Taken::Refused("a value is required".to_owned());
                }
                if is_empty && !step.is_field && !draft.is_left_empty {
                    draft.is_left_empty = true;
                    return Taken::Refused("nothing is typed: Enter again leaves this one unanswered".to_owned());
                }
                draft.error = refuses(&step.id, answer(step, draft));
                if let Some(error) = &draft.error {
                    return Taken::Refused(error.clone());
                }
                draft.is_left_empty = false;
                draft.is_given = true;
                let len = self.len();
                if len == 1 {
                    return Taken::Complete;
                }
                // After a correction the list is shown again.
                let next = (at + 1..len).find(|next| !self.drafts[*next].is_given);
                self.stand = next.map_or(Stand::Summary(len), Stand::Step);
                Taken::Moved
            }
        }
    }

    /// The confirmed answers by the ids of their questions.
    pub(crate) fn answers(&self) -> Vec<(String, String)> {
        let given = self.all().filter(|(_, draft)| draft.is_given);
        given.map(|(step, draft)| (step.id.clone(), answer(step, draft).to_owned())).collect()
    }
}

/// The text of an answer; empty if the user left it out.
pub(crate) fn answer<'a>(step: &'a Step, draft: &'a Draft) -> &'a str {
    if step.leaves_out == Some(draft.chosen) {
        return "";
    }
    step.options.get(draft.chosen).map_or(draft.text.text(), |(label, _)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_can_be_edited() {
        let mut field = Field::default();
        field.insert("one two\x1b[31m");
        assert_eq!(field.text(), "one two[31m");
        let mut pasted = Field::default();
        pasted.insert("all:\r\n\tmake");
        assert_eq!(pasted.text(), "all:\n\tmake");
        field.backspace_word();
        field.insert("é👩‍👩‍👧");
        field.backspace();
        field.left();
        field.insert("x");
        assert_eq!(field.text(), "one xé");
        field.home();
        field.right();
        field.clear_before();
        assert_eq!((field.text(), field.before_cursor()), ("ne xé", ""));
        field.end();
        field.insert(&"y".repeat(TYPED_BYTES_MAX));
        assert_eq!(field.text().len(), TYPED_BYTES_MAX);
        assert_eq!(field.take().len(), TYPED_BYTES_MAX);
        assert_eq!(format!("{field:?}"), "Field(0 bytes)");
    }

    fn step(id: &str, options: &[&str], takes_text: bool) -> Step {
        Step {
            id: id.to_owned(),
            question: id.to_owned(),
            options: options.iter().map(|label| ((*label).to_owned(), String::new())).collect(),
            takes_text,
            ..Step::default()
        }
    }

    fn answers(form: &Form) -> String {
        form.answers().iter().map(|(id, text)| format!("{id}={text}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn moving_back_keeps_every_answer() {
        let mut form =
            Form::new(vec![step("a", &["x", "y"], true), step("b", &[], true), step("c", &["u", "v"], false)]);
        form.choose(3);
        form.draft().expect("a question").text.insert("typed");
        assert_eq!(form.enter(|_, _| None), Taken::Moved);
        form.draft().expect("a question").text.insert("half");
        form.back();
        assert_eq!(form.current().map(|(step, draft)| answer(step, draft)), Some("typed"));
        form.back();
        assert_eq!(form.enter(|_, _| None), Taken::Moved);
        assert_eq!(form.current().map(|(_, draft)| draft.text.text()), Some("half"));
        form.enter(|_, _| None);
        form.step_by(true);
        assert_eq!(form.enter(|_, _| None), Taken::Moved);
        assert_eq!(form.stand(), Stand::Summary(3));
        assert!(form.choose(2) && !form.choose(9));
        form.draft().expect("a question").text.insert(" done");
        assert_eq!(form.enter(|_, _| None), Taken::Moved);
        assert_eq!((form.stand(), form.enter(|_, _| None)), (Stand::Summary(3), Taken::Complete));
        assert_eq!(answers(&form), "a=typed b=half done c=v");
    }

    #[test]
    fn a_refused_answer_loses_no_other() {
        let mut form = Form::new(vec![step("a", &[], true), step("b", &[], true)]);
        let refuses = |_: &str, text: &str| (text == "bad").then(|| "it is bad".to_owned());
        form.draft().expect("a question").text.insert("good");
        assert_eq!(form.enter(refuses), Taken::Moved);
        form.draft().expect("a question").text.insert("bad");
        assert_eq!(form.enter(refuses), Taken::Refused("it is bad".to_owned()));
        form.draft().expect("a question").text.insert("ger");
        assert_eq!(form.enter(refuses), Taken::Moved);
        form.refuse("a", "not with b".to_owned());
        assert_eq!(form.stand(), Stand::Summary(0));
        assert_eq!(answers(&form), "a=good b=badger");
    }

    #[test]
    fn one_question_has_no_summary() {
        let mut form = Form::new(vec![step("a", &["x", "y"], false)]);
        form.choose(2);
        assert_eq!((form.enter(|_, _| None), &*answers(&form)), (Taken::Complete, "a=y"));
        let mut action = step("action", &["accept", "decline"], false);
        action.decides = true;
        let mut form = Form::new(vec![action, step("n", &[], true)]);
        assert_eq!(form.len(), 2);
        form.choose(2);
        assert_eq!((form.enter(|_, _| None), &*answers(&form)), (Taken::Complete, "action=decline"));
    }
}
