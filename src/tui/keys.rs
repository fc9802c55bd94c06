//! Every key, in one table: what it does, where, and how the help says so. The page in the documentation is held against it.
//!
//! Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Where a key is pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Everywhere,
    /// In the list of sessions.
    Sessions,
    /// In the composer.
    Chat,
    /// At a request that is answered by one key.
    Approval,
    /// At a question whether that is really meant.
    Sure,
    /// Where a reason, or what is searched for, is typed.
    Line,
    /// At a question.
    Input,
    /// In the timeline.
    History,
    /// At an entry that is open in full.
    Reading,
    /// In the list of threads.
    Threads,
}

impl Place {
    /// All of them, as the help tells them.
    pub const ALL: [Place; 10] = [
        Place::Everywhere,
        Place::Sessions,
        Place::Chat,
        Place::Approval,
        Place::Sure,
        Place::Input,
        Place::Line,
        Place::History,
        Place::Reading,
        Place::Threads,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Place::Everywhere => "everywhere",
            Place::Sessions => "sessions",
            Place::Chat => "chat",
            Place::Approval => "approval",
            Place::Sure => "asked again",
            Place::Line => "reason, search",
            Place::Input => "input",
            Place::History => "history",
            Place::Reading => "an entry in full",
            Place::Threads => "threads",
        }
    }
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The same wherever it is pressed.
    Global(Global),
    /// Moves.
    Move(Move),
    /// Answers.
    Answer(Answer),
    /// Finds something in the timeline, or does something with it.
    Browse(Browse),
    /// One step back to where one came from.
    Back,
    /// What Enter does here.
    Enter,
    /// Makes a new line in the composer.
    NewLine,
}

/// What a key does everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    /// Ends the program.
    Quit,
    /// Hands the terminal back to the shell for a while.
    Suspend,
    /// Draws all of it again.
    Redraw,
    /// Shows the help.
    Help,
    /// Leads to a request that waits; once more: to the next one.
    Request,
    /// Leads to the timeline, and back.
    History,
    /// Stops the turn that runs.
    Interrupt,
    /// Leads to the list of threads, and back.
    Threads,
}

/// Where a key moves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Up by one.
    Up,
    /// Down by one.
    Down,
    /// Up by a screen.
    PageUp,
    /// Down by a screen.
    PageDown,
    /// To the first.
    First,
    /// To the last.
    Last,
}

/// What a key answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The choice of that key.
    Choose,
    /// No, and why.
    Reason,
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nothing yet: back to the question before.
    Previous,
}

/// What a key does in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Browse {
    /// Searches.
    Search,
    /// Searches on, further back.
    SearchOn,
    /// Searches on, forward.
    SearchForward,
    /// Shows one kind of entries only; the next one.
    Filter,
    /// To the error before.
    Error,
    /// To the request before.
    Asked,
    /// Copies what is chosen.
    Copy,
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// A letter.
    Letter(char),
    /// Any digit but 0.
    Digit,
    /// A letter with Ctrl.
    Ctrl(char),
    /// A key with Alt.
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

    /// As the help writes it.
    #[must_use]
    pub fn name(self) -> String {
        let key = |code: KeyCode| {
            if let KeyCode::F(number) = code {
                return format!("F{number}");
            }
            format!("{code:?}").replace("PageUp", "PgUp").replace("PageDown", "PgDn")
        };
        match self {
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
pub struct Binding {
    /// Where.
    pub place: Place,
    /// Which keys.
    pub keys: &'static [Press],
    /// What they do.
    pub does: Action,
    /// The same for a person.
    pub says: &'static str,
}

const fn row(place: Place, keys: &'static [Press], does: Action, says: &'static str) -> Binding {
    Binding { place, keys, does, says }
}

use Press::{Alt, Ctrl, Digit, Key, Letter};

const UP: &[Press] = &[Key(KeyCode::Up), Letter('k')];
const DOWN: &[Press] = &[Key(KeyCode::Down), Letter('j')];
const PAGE_UP: &[Press] = &[Key(KeyCode::PageUp), Ctrl('b')];
const PAGE_DOWN: &[Press] = &[Key(KeyCode::PageDown), Ctrl('f')];
const FIRST: &[Press] = &[Key(KeyCode::Home), Letter('g')];
const LAST: &[Press] = &[Key(KeyCode::End), Letter('G')];
const ENTER: &[Press] = &[Key(KeyCode::Enter)];
const ESC: &[Press] = &[Key(KeyCode::Esc)];

/// The table.
pub const BINDINGS: &[Binding] = &[
    row(Place::Everywhere, &[Ctrl('c'), Ctrl('q')], Action::Global(Global::Quit), "end; the session goes on"),
    row(Place::Everywhere, &[Ctrl('z')], Action::Global(Global::Suspend), "back to the shell; `fg` returns"),
    row(Place::Everywhere, &[Ctrl('l')], Action::Global(Global::Redraw), "draw the screen again"),
    row(
        Place::Everywhere,
        &[Key(KeyCode::F(1)), Letter('?')],
        Action::Global(Global::Help),
        "this list; `?` where no text is typed",
    ),
    row(
        Place::Everywhere,
        &[Ctrl('r')],
        Action::Global(Global::Request),
        "to what waits for an answer; again: to the next one",
    ),
    row(Place::Everywhere, &[Key(KeyCode::Tab)], Action::Global(Global::History), "to the timeline, and back"),
    row(Place::Everywhere, &[Ctrl('x')], Action::Global(Global::Interrupt), "stop the turn that runs"),
    row(
        Place::Everywhere,
        &[Ctrl('t')],
        Action::Global(Global::Threads),
        "choose the thread that is shown and spoken to",
    ),
    row(Place::Sessions, UP, Action::Move(Move::Up), "up"),
    row(Place::Sessions, DOWN, Action::Move(Move::Down), "down"),
    row(Place::Sessions, ENTER, Action::Enter, "attach to the session"),
    row(Place::Sessions, &[Letter('q')], Action::Global(Global::Quit), "end"),
    row(Place::Chat, ENTER, Action::Enter, "send; not while a request waits"),
    row(Place::Chat, &[Alt(KeyCode::Enter), Ctrl('j')], Action::NewLine, "a new line"),
    row(Place::Chat, &[Key(KeyCode::PageUp)], Action::Move(Move::PageUp), "to the timeline, and up in it"),
    row(Place::Chat, ESC, Action::Back, "back to the sessions"),
    row(
        Place::Approval,
        &[Letter('a'), Letter('s'), Letter('d'), Letter('c')],
        Action::Answer(Answer::Choose),
        "accept, accept for the session, decline, cancel and end the turn",
    ),
    row(Place::Approval, &[Letter('r')], Action::Answer(Answer::Reason), "decline and say why"),
    row(Place::Approval, &[Digit], Action::Answer(Answer::Choose), "what the server offers besides, by its number"),
    row(
        Place::Approval,
        &[Key(KeyCode::Up), Key(KeyCode::PageUp)],
        Action::Move(Move::PageUp),
        "scroll up in what is asked",
    ),
    row(
        Place::Approval,
        &[Key(KeyCode::Down), Key(KeyCode::PageDown)],
        Action::Move(Move::PageDown),
        "scroll down in it",
    ),
    row(Place::Approval, ENTER, Action::Enter, "nothing; where it was answered: on to the next"),
    row(Place::Approval, ESC, Action::Back, "back to chat; the request waits"),
    row(Place::Sure, &[Letter('y')], Action::Answer(Answer::Yes), "yes, do that"),
    row(Place::Sure, &[Letter('n'), Key(KeyCode::Esc)], Action::Answer(Answer::No), "no"),
    row(Place::Input, &[Key(KeyCode::Up)], Action::Move(Move::Up), "the option above"),
    row(Place::Input, &[Key(KeyCode::Down)], Action::Move(Move::Down), "the option below"),
    row(Place::Input, &[Digit], Action::Answer(Answer::Choose), "an option by its number, where no text is typed"),
    row(Place::Input, ENTER, Action::Enter, "take this answer; after the last one: send"),
    row(Place::Input, &[Ctrl('b')], Action::Answer(Answer::Previous), "back to the question before"),
    row(Place::Input, ESC, Action::Back, "back to chat; the question waits"),
    row(Place::Line, ENTER, Action::Enter, "take it"),
    row(Place::Line, ESC, Action::Back, "leave it"),
    row(Place::History, UP, Action::Move(Move::Up), "up by an entry"),
    row(Place::History, DOWN, Action::Move(Move::Down), "down by an entry"),
    row(Place::History, PAGE_UP, Action::Move(Move::PageUp), "up by a screen"),
    row(Place::History, PAGE_DOWN, Action::Move(Move::PageDown), "down by a screen"),
    row(Place::History, FIRST, Action::Move(Move::First), "to the oldest of what is shown; again: further back"),
    row(Place::History, LAST, Action::Move(Move::Last), "to what happens now"),
    row(Place::History, ENTER, Action::Enter, "open the entry in full"),
    row(Place::History, &[Letter('/')], Action::Browse(Browse::Search), "search, back from here"),
    row(Place::History, &[Letter('n')], Action::Browse(Browse::SearchOn), "the same again"),
    row(Place::History, &[Letter('N')], Action::Browse(Browse::SearchForward), "the same again, forward"),
    row(Place::History, &[Letter('f')], Action::Browse(Browse::Filter), "only one kind of entries; the next kind"),
    row(Place::History, &[Letter('e')], Action::Browse(Browse::Error), "to the error before"),
    row(Place::History, &[Letter('r')], Action::Browse(Browse::Asked), "to the request before"),
    row(Place::History, &[Letter('y')], Action::Browse(Browse::Copy), "copy the entry"),
    row(Place::History, ESC, Action::Back, "back to chat"),
    row(Place::Reading, UP, Action::Move(Move::Up), "up"),
    row(Place::Reading, DOWN, Action::Move(Move::Down), "down"),
    row(Place::Reading, PAGE_UP, Action::Move(Move::PageUp), "up by a screen"),
    row(
        Place::Reading,
        &[Key(KeyCode::PageDown), Ctrl('f'), Letter(' ')],
        Action::Move(Move::PageDown),
        "down by a screen",
    ),
    row(Place::Reading, FIRST, Action::Move(Move::First), "to its start"),
    row(Place::Reading, LAST, Action::Move(Move::Last), "to its end"),
    row(Place::Reading, &[Letter('y')], Action::Browse(Browse::Copy), "copy it"),
    row(Place::Reading, &[Key(KeyCode::Esc), Letter('q'), Key(KeyCode::Enter)], Action::Back, "back"),
    row(Place::Threads, UP, Action::Move(Move::Up), "up"),
    row(Place::Threads, DOWN, Action::Move(Move::Down), "down"),
    row(Place::Threads, ENTER, Action::Enter, "show and speak to this one; in the first row: to all"),
    row(Place::Threads, ESC, Action::Back, "leave it as it was"),
];

/// Whether letters are typed there, so that they do nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// They are text.
    Typed,
    /// They are keys.
    Keys,
}

/// What a key does in a place.
#[must_use]
pub fn action(place: Place, letters: Letters, event: &KeyEvent) -> Option<Action> {
    let is_text = |press: &Press| matches!(press, Press::Letter(_) | Press::Digit);
    let does = |binding: &&Binding, of: Place| {
        let taken = |press: &&Press| !(letters == Letters::Typed && is_text(press)) && press.is(event);
        binding.place == of && binding.keys.iter().any(|press| taken(&press))
    };
    let here = BINDINGS.iter().find(|binding| does(binding, place));
    here.or_else(|| BINDINGS.iter().find(|binding| does(binding, Place::Everywhere))).map(|binding| binding.does)
}

/// The keys of a row.
#[must_use]
pub fn names(binding: &Binding) -> String {
    binding.keys.iter().map(|press| press.name()).collect::<Vec<_>>().join(" ")
}

/// The table as the documentation has it.
#[must_use]
pub fn as_markdown() -> String {
    let mut text = String::from("| where | key | |\n|---|---|---|\n");
    for place in Place::ALL {
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
    fn no_key_does_two_things_in_one_place() {
        let mut seen = Vec::new();
        for binding in BINDINGS {
            for press in binding.keys {
                assert!(!seen.contains(&(binding.place, *press)), "{:?} {press:?}", binding.place);
                seen.push((binding.place, *press));
            }
        }
    }

    #[test]
    fn letters_are_text_where_text_is_typed() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let check = |place, letters, code, expect| assert_eq!(action(place, letters, &key(code)), expect, "{code:?}");
        check(Place::Approval, Letters::Keys, KeyCode::Char('a'), Some(Action::Answer(Answer::Choose)));
        check(Place::Chat, Letters::Typed, KeyCode::Char('a'), None);
        check(Place::Chat, Letters::Typed, KeyCode::Char('?'), None);
        check(Place::Chat, Letters::Keys, KeyCode::Char('?'), Some(Action::Global(Global::Help)));
        check(Place::Chat, Letters::Typed, KeyCode::Tab, Some(Action::Global(Global::History)));
        check(Place::Sure, Letters::Keys, KeyCode::Enter, None);
    }
}
