//! The table of all keys: their place, their action and their help text. A test compares the table in the documentation with
//! it.
//!
//! Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The part of the UI that receives a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    Everywhere,
    Sessions,
    /// At the requests of all sessions.
    Inbox,
    Chat,
    /// At a request that one key answers.
    Approval,
    /// At the confirmation of a risky answer.
    Sure,
    /// While a reason or a search text is typed.
    Line,
    Input,
    /// At the list of all answers, before they are sent.
    Summary,
    /// In a diff under review.
    Review,
    History,
    /// At an entry that is open in full.
    Reading,
    Threads,
}

impl KeyPlace {
    /// All places, in the order of the documentation.
    pub(crate) const ALL: [KeyPlace; 13] = [
        KeyPlace::Everywhere,
        KeyPlace::Sessions,
        KeyPlace::Inbox,
        KeyPlace::Chat,
        KeyPlace::Approval,
        KeyPlace::Sure,
        KeyPlace::Review,
        KeyPlace::Input,
        KeyPlace::Summary,
        KeyPlace::Line,
        KeyPlace::History,
        KeyPlace::Reading,
        KeyPlace::Threads,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyPlace::Everywhere => "everywhere",
            KeyPlace::Sessions => "sessions",
            KeyPlace::Inbox => "requests",
            KeyPlace::Chat => "chat",
            KeyPlace::Approval => "approval",
            KeyPlace::Sure => "asked again",
            KeyPlace::Line => "reason, search",
            KeyPlace::Input => "question",
            KeyPlace::Summary => "your answers",
            KeyPlace::Review => "review",
            KeyPlace::History => "timeline",
            KeyPlace::Reading => "an entry in full",
            KeyPlace::Threads => "threads",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The same wherever it is pressed.
    Global(Global),
    Move(Move),
    Answer(AnswerKey),
    /// Finds, filters or opens something.
    Browse(Browse),
    Back,
    /// The place's own meaning of Enter.
    Enter,
    /// Inserts a line break in the composer.
    NewLine,
}

/// Actions of keys that work everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Global {
    /// Ends the program.
    Quit,
    /// Hands the terminal to the shell until `fg`.
    Suspend,
    Redraw,
    Help,
    /// Shows a pending request; pressed again, the next one.
    Request,
    /// Shows a pending request of another session.
    Elsewhere,
    /// Shows the requests of all sessions, or closes them.
    Inbox,
    /// Moves to the timeline, and back.
    History,
    Interrupt,
    /// Shows the list of threads, or closes it.
    Threads,
    /// Gives the mouse to the terminal, or takes it.
    Mouse,
}

/// Directions of movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Move {
    /// The entry of a list that is chosen after this, from entry `at` on. `page` is in entries.
    pub(crate) fn in_list(self, at: usize, last: usize, page: usize) -> usize {
        let to = match self {
            Move::Up => at.saturating_sub(1),
            Move::Down => at + 1,
            Move::PageUp => at.saturating_sub(page),
            Move::PageDown => at + page,
            Move::First => 0,
            Move::Last => last,
        };
        to.min(last)
    }
}

/// Ways to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKey {
    /// The choice with that key.
    Choose,
    Reason,
    Yes,
    /// Cancels the confirmation.
    No,
    /// Returns to the previous question.
    Previous,
}

/// Ways to find and open entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Browse {
    Search,
    /// Completes the search that is being typed.
    Complete,
    /// Repeats the search backwards.
    SearchOn,
    SearchForward,
    /// Switches the filter to the next kind of entries.
    Filter,
    /// Shows the threads that no person speaks in, or folds them away.
    Unfold,
    /// Moves to the previous error.
    Error,
    /// Moves to the previous request.
    Asked,
    /// Overrules the denial of codex's own reviewer.
    Overrule,
    Copy,
    /// Opens the review of the diff.
    Review,
    /// Opens the text in the user's pager.
    Pager,
    /// Moves to the list of files, and back.
    Files,
    NextFile,
    PreviousFile,
    NextHunk,
    PreviousHunk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Press {
    Letter(char),
    /// Any digit but 0.
    Digit,
    Ctrl(char),
    Alt(KeyCode),
    /// Any other key.
    Key(KeyCode),
}

impl Press {
    fn is(self, event: &KeyEvent) -> bool {
        let held = event.modifiers - KeyModifiers::SHIFT;
        match (self, event.code) {
            (Press::Letter(letter), KeyCode::Char(pressed)) => held.is_empty() && letter == pressed,
            (Press::Digit, KeyCode::Char(pressed)) => held.is_empty() && ('1'..='9').contains(&pressed),
            (Press::Ctrl(letter), KeyCode::Char(pressed)) => {
                held == KeyModifiers::CONTROL && letter == pressed.to_ascii_lowercase()
            }
            (Press::Alt(code), pressed) => held == KeyModifiers::ALT && code == pressed,
            (Press::Key(code), pressed) => held.is_empty() && code == pressed,
            (Press::Letter(_) | Press::Digit | Press::Ctrl(_), _) => false,
        }
    }

    /// The key as the help writes it.
    pub(crate) fn name(self) -> String {
        let key = |code: KeyCode| {
            if let KeyCode::F(number) = code {
                return format!("F{number}");
            }
            format!("{code:?}").replace("PageUp", "PgUp").replace("PageDown", "PgDn")
        };
        match self {
            Press::Letter(' ') => "Space".to_owned(),
            Press::Letter(letter) => letter.to_string(),
            Press::Digit => "1…9".to_owned(),
            Press::Ctrl(letter) => format!("^{}", letter.to_ascii_uppercase()),
            Press::Alt(code) => format!("Alt-{}", key(code)),
            Press::Key(code) => key(code),
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    pub place: KeyPlace,
    pub keys: &'static [Press],
    pub does: Action,
    /// The action in words.
    pub says: &'static str,
}

const fn row(place: KeyPlace, keys: &'static [Press], does: Action, says: &'static str) -> Binding {
    Binding { place, keys, does, says }
}

use Press::{Alt, Ctrl, Digit, Key, Letter};

const UP: &[Press] = &[Key(KeyCode::Up), Letter('k')];
const DOWN: &[Press] = &[Key(KeyCode::Down), Letter('j')];
const PAGE_UP: &[Press] = &[Key(KeyCode::PageUp), Ctrl('b')];
const PAGE_DOWN: &[Press] = &[Key(KeyCode::PageDown), Ctrl('f')];
const PAGE_DOWN_OR_SPACE: &[Press] = &[Key(KeyCode::PageDown), Ctrl('f'), Letter(' ')];
const FIRST: &[Press] = &[Key(KeyCode::Home), Letter('g')];
const LAST: &[Press] = &[Key(KeyCode::End), Letter('G')];
const ENTER: &[Press] = &[Key(KeyCode::Enter)];
const ESC: &[Press] = &[Key(KeyCode::Esc)];
const ANSWERS: &[Press] = &[Letter('a'), Letter('s'), Letter('d'), Letter('c')];
const ANSWERS_MEAN: &str = "accept, accept for the session, decline, cancel and end the turn";

const fn everywhere(keys: &'static [Press], does: Global, says: &'static str) -> Binding {
    row(KeyPlace::Everywhere, keys, Action::Global(does), says)
}

const fn moves(place: KeyPlace, keys: &'static [Press], to: Move, says: &'static str) -> Binding {
    row(place, keys, Action::Move(to), says)
}

const fn browses(place: KeyPlace, keys: &'static [Press], does: Browse, says: &'static str) -> Binding {
    row(place, keys, Action::Browse(does), says)
}

const fn answers(place: KeyPlace, keys: &'static [Press], does: AnswerKey, says: &'static str) -> Binding {
    row(place, keys, Action::Answer(does), says)
}

/// The table.
pub(crate) const BINDINGS: &[Binding] = &[
    everywhere(&[Ctrl('r')], Global::Request, "show a pending request; again: the next one"),
    everywhere(&[Ctrl('n')], Global::Elsewhere, "show a request that waits in another session"),
    everywhere(&[Ctrl('p')], Global::Inbox, "list the requests of all sessions, and back"),
    everywhere(&[Key(KeyCode::Tab)], Global::History, "to the timeline, and back"),
    everywhere(&[Ctrl('t')], Global::Threads, "choose the thread to show and to write to"),
    everywhere(&[Ctrl('x')], Global::Interrupt, "interrupt the turn"),
    everywhere(&[Key(KeyCode::F(1)), Letter('?')], Global::Help, "this list; `?` if no text is being typed"),
    everywhere(&[Key(KeyCode::F(2))], Global::Mouse, "mouse on or off; off: the terminal selects text"),
    everywhere(&[Ctrl('l')], Global::Redraw, "draw the screen again"),
    everywhere(&[Ctrl('z')], Global::Suspend, "back to the shell; `fg` returns"),
    everywhere(&[Ctrl('c'), Ctrl('q')], Global::Quit, "quit; the session continues"),
    moves(KeyPlace::Sessions, UP, Move::Up, "up"),
    moves(KeyPlace::Sessions, DOWN, Move::Down, "down"),
    moves(KeyPlace::Sessions, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::Sessions, PAGE_DOWN, Move::PageDown, "down by a screen"),
    moves(KeyPlace::Sessions, FIRST, Move::First, "to the first"),
    moves(KeyPlace::Sessions, LAST, Move::Last, "to the last"),
    row(KeyPlace::Sessions, ENTER, Action::Enter, "attach to the session"),
    row(KeyPlace::Sessions, &[Letter('q')], Action::Global(Global::Quit), "quit"),
    moves(KeyPlace::Inbox, UP, Move::Up, "up"),
    moves(KeyPlace::Inbox, DOWN, Move::Down, "down"),
    moves(KeyPlace::Inbox, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::Inbox, PAGE_DOWN, Move::PageDown, "down by a screen"),
    moves(KeyPlace::Inbox, FIRST, Move::First, "to the oldest"),
    moves(KeyPlace::Inbox, LAST, Move::Last, "to the newest"),
    row(KeyPlace::Inbox, ENTER, Action::Enter, "show the request in its session"),
    row(KeyPlace::Inbox, &[Key(KeyCode::Esc), Letter('q')], Action::Back, "back"),
    row(KeyPlace::Chat, ENTER, Action::Enter, "send; not while a request is pending"),
    row(KeyPlace::Chat, &[Alt(KeyCode::Enter), Ctrl('j')], Action::NewLine, "a new line"),
    moves(KeyPlace::Chat, &[Key(KeyCode::PageUp)], Move::PageUp, "to the timeline, and up in it"),
    row(KeyPlace::Chat, ESC, Action::Back, "back to the sessions"),
    answers(KeyPlace::Approval, ANSWERS, AnswerKey::Choose, ANSWERS_MEAN),
    answers(KeyPlace::Approval, &[Letter('r')], AnswerKey::Reason, "decline with a reason"),
    answers(KeyPlace::Approval, &[Digit], AnswerKey::Choose, "another answer that the server offers, by its number"),
    browses(
        KeyPlace::Approval,
        &[Letter('v'), Key(KeyCode::Enter)],
        Browse::Review,
        "review the diff on the whole screen",
    ),
    browses(KeyPlace::Approval, &[Letter('o')], Browse::Pager, "open it in $PAGER"),
    moves(KeyPlace::Approval, UP, Move::Up, "scroll up"),
    moves(KeyPlace::Approval, DOWN, Move::Down, "scroll down"),
    moves(KeyPlace::Approval, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::Approval, PAGE_DOWN_OR_SPACE, Move::PageDown, "down by a screen"),
    moves(KeyPlace::Approval, FIRST, Move::First, "to its start"),
    moves(KeyPlace::Approval, LAST, Move::Last, "to its end"),
    row(KeyPlace::Approval, ESC, Action::Back, "back to chat; the request stays pending"),
    answers(KeyPlace::Sure, &[Letter('y')], AnswerKey::Yes, "yes, do that"),
    answers(KeyPlace::Sure, &[Letter('n'), Key(KeyCode::Esc)], AnswerKey::No, "no"),
    moves(KeyPlace::Review, UP, Move::Up, "up"),
    moves(KeyPlace::Review, DOWN, Move::Down, "down"),
    moves(KeyPlace::Review, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::Review, PAGE_DOWN_OR_SPACE, Move::PageDown, "down by a screen"),
    moves(KeyPlace::Review, FIRST, Move::First, "to the start"),
    moves(KeyPlace::Review, LAST, Move::Last, "to the end"),
    browses(KeyPlace::Review, &[Letter(']')], Browse::NextHunk, "next hunk"),
    browses(KeyPlace::Review, &[Letter('[')], Browse::PreviousHunk, "previous hunk"),
    browses(KeyPlace::Review, &[Letter('n'), Letter('}'), Key(KeyCode::Right)], Browse::NextFile, "next file"),
    browses(KeyPlace::Review, &[Letter('p'), Letter('{'), Key(KeyCode::Left)], Browse::PreviousFile, "previous file"),
    browses(KeyPlace::Review, &[Key(KeyCode::Tab), Letter('f')], Browse::Files, "to the list of files, and back"),
    row(KeyPlace::Review, ENTER, Action::Enter, "in the list of files: show this file"),
    answers(KeyPlace::Review, ANSWERS, AnswerKey::Choose, "answer the request, as in approval"),
    answers(KeyPlace::Review, &[Letter('r')], AnswerKey::Reason, "decline with a reason"),
    answers(KeyPlace::Review, &[Digit], AnswerKey::Choose, "another answer that the server offers"),
    browses(KeyPlace::Review, &[Letter('o')], Browse::Pager, "open the diff in $PAGER"),
    browses(KeyPlace::Review, &[Letter('y')], Browse::Copy, "copy the diff"),
    row(KeyPlace::Review, &[Key(KeyCode::Esc), Letter('q')], Action::Back, "back"),
    moves(KeyPlace::Input, &[Key(KeyCode::Up)], Move::Up, "the option above"),
    moves(KeyPlace::Input, &[Key(KeyCode::Down)], Move::Down, "the option below"),
    moves(KeyPlace::Input, &[Key(KeyCode::PageUp)], Move::PageUp, "scroll the request up"),
    moves(KeyPlace::Input, &[Key(KeyCode::PageDown)], Move::PageDown, "scroll the request down"),
    answers(KeyPlace::Input, &[Digit], AnswerKey::Choose, "an option by its number, if no text is being typed"),
    row(KeyPlace::Input, ENTER, Action::Enter, "next question; a single answer is sent"),
    answers(KeyPlace::Input, &[Ctrl('b')], AnswerKey::Previous, "the question before; no answer is lost"),
    row(KeyPlace::Input, ESC, Action::Back, "back to chat; no answer is lost"),
    moves(KeyPlace::Summary, UP, Move::Up, "up"),
    moves(KeyPlace::Summary, DOWN, Move::Down, "down"),
    answers(KeyPlace::Summary, &[Digit], AnswerKey::Choose, "change the answer with this number"),
    row(KeyPlace::Summary, ENTER, Action::Enter, "send all, or change the chosen answer"),
    answers(KeyPlace::Summary, &[Ctrl('b')], AnswerKey::Previous, "back to the last question"),
    row(KeyPlace::Summary, ESC, Action::Back, "back to chat; no answer is lost"),
    row(KeyPlace::Line, ENTER, Action::Enter, "take it"),
    browses(KeyPlace::Line, &[Key(KeyCode::Tab)], Browse::Complete, "complete a search; from a reason to the timeline"),
    row(KeyPlace::Line, ESC, Action::Back, "leave it"),
    moves(KeyPlace::History, UP, Move::Up, "up by an entry"),
    moves(KeyPlace::History, DOWN, Move::Down, "down by an entry"),
    moves(KeyPlace::History, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::History, PAGE_DOWN_OR_SPACE, Move::PageDown, "down by a screen"),
    moves(KeyPlace::History, FIRST, Move::First, "to the start of the session"),
    moves(KeyPlace::History, LAST, Move::Last, "to the newest"),
    row(KeyPlace::History, ENTER, Action::Enter, "open the entry in full"),
    browses(KeyPlace::History, &[Letter('/')], Browse::Search, "search, back from here"),
    browses(KeyPlace::History, &[Letter('n')], Browse::SearchOn, "the same search, further back"),
    browses(KeyPlace::History, &[Letter('N')], Browse::SearchForward, "the same search, forward"),
    browses(KeyPlace::History, &[Letter('f')], Browse::Filter, "only one kind of entries; the next kind"),
    browses(
        KeyPlace::History,
        &[Letter('a')],
        Browse::Unfold,
        "show all threads, also of agents and for titles; again: fold them",
    ),
    browses(KeyPlace::History, &[Letter('e')], Browse::Error, "to the error before"),
    browses(KeyPlace::History, &[Letter('r')], Browse::Asked, "to the request before"),
    browses(KeyPlace::History, &[Letter('o')], Browse::Overrule, "approve what codex's own reviewer has denied"),
    browses(KeyPlace::History, &[Letter('y')], Browse::Copy, "copy the entry"),
    row(KeyPlace::History, &[Key(KeyCode::Esc), Letter('q')], Action::Back, "back"),
    moves(KeyPlace::Reading, UP, Move::Up, "up"),
    moves(KeyPlace::Reading, DOWN, Move::Down, "down"),
    moves(KeyPlace::Reading, PAGE_UP, Move::PageUp, "up by a screen"),
    moves(KeyPlace::Reading, PAGE_DOWN_OR_SPACE, Move::PageDown, "down by a screen"),
    moves(KeyPlace::Reading, FIRST, Move::First, "to its start"),
    moves(KeyPlace::Reading, LAST, Move::Last, "to its end"),
    browses(KeyPlace::Reading, &[Letter('o')], Browse::Pager, "open it in $PAGER"),
    browses(KeyPlace::Reading, &[Letter('y')], Browse::Copy, "copy it"),
    row(KeyPlace::Reading, &[Key(KeyCode::Esc), Letter('q'), Key(KeyCode::Enter)], Action::Back, "back"),
    moves(KeyPlace::Threads, UP, Move::Up, "up"),
    moves(KeyPlace::Threads, DOWN, Move::Down, "down"),
    moves(KeyPlace::Threads, FIRST, Move::First, "to the first row"),
    moves(KeyPlace::Threads, LAST, Move::Last, "to the last row"),
    row(KeyPlace::Threads, ENTER, Action::Enter, "show this thread and write to it; first row: all threads"),
    row(KeyPlace::Threads, &[Key(KeyCode::Esc), Letter('q')], Action::Back, "leave it as it was"),
];

/// Whether letters are text or keys in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letters {
    /// Letters are text.
    Typed,
    Keys,
}

pub(crate) fn action(place: KeyPlace, letters: Letters, event: &KeyEvent) -> Option<Action> {
    let is_text = |press: &Press| matches!(press, Press::Letter(_) | Press::Digit);
    let does = |binding: &&Binding, of: KeyPlace| {
        let taken = |press: &&Press| !(letters == Letters::Typed && is_text(press)) && press.is(event);
        binding.place == of && binding.keys.iter().any(|press| taken(&press))
    };
    let here = BINDINGS.iter().find(|binding| does(binding, place));
    here.or_else(|| BINDINGS.iter().find(|binding| does(binding, KeyPlace::Everywhere))).map(|binding| binding.does)
}

/// The keys of a row.
pub(crate) fn names(binding: &Binding) -> String {
    binding.keys.iter().map(|press| press.name()).collect::<Vec<_>>().join(" ")
}

/// The valid keys of a place, for the note after an invalid key, without those that move. The note names the answers of an
/// approval itself, because they depend on the request.
pub(crate) fn valid(place: KeyPlace) -> String {
    let is_approval = matches!(place, KeyPlace::Approval | KeyPlace::Review);
    let is_left_out = |does| matches!(does, Action::Move(_)) || is_approval && matches!(does, Action::Answer(_));
    let keys = BINDINGS.iter().filter(|binding| binding.place == place).filter(|binding| !is_left_out(binding.does));
    keys.filter_map(|binding| binding.keys.first()).map(|press| press.name()).collect::<Vec<_>>().join(" ")
}

/// The table in the format of the documentation.
#[cfg(test)]
pub(crate) fn as_markdown() -> String {
    let mut text = String::from("| where | key | |\n|---|---|---|\n");
    for place in KeyPlace::ALL {
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let keys = binding.keys.iter().map(|press| format!("`{}`", press.name())).collect::<Vec<_>>().join(" ");
            text.push_str(&format!("| {} | {keys} | {} |\n", place.name(), binding.says));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_actions_in_a_place() {
        let mut seen = Vec::new();
        for binding in BINDINGS {
            for press in binding.keys {
                assert!(!seen.contains(&(binding.place, *press)), "{:?} {press:?}", binding.place);
                seen.push((binding.place, *press));
            }
        }
    }

    #[test]
    fn letters_are_text_while_typing() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let check = |place, letters, code, expect| assert_eq!(action(place, letters, &key(code)), expect, "{code:?}");
        check(KeyPlace::Approval, Letters::Keys, KeyCode::Char('a'), Some(Action::Answer(AnswerKey::Choose)));
        check(KeyPlace::Chat, Letters::Typed, KeyCode::Char('a'), None);
        check(KeyPlace::Chat, Letters::Typed, KeyCode::Char('?'), None);
        check(KeyPlace::Chat, Letters::Keys, KeyCode::Char('?'), Some(Action::Global(Global::Help)));
        check(KeyPlace::Chat, Letters::Typed, KeyCode::Tab, Some(Action::Global(Global::History)));
        check(KeyPlace::Sure, Letters::Keys, KeyCode::Enter, None);
    }
}
