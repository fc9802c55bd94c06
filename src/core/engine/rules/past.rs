//! Rules and the requests of the past: the decisions that a list of rules would have made, and rules that agree with the answers of people.
//!
//! The ledger has the answers of people, so a rule can be compared with them. It lacks the file of the program, links in folders and the
//! sandbox of the thread, which an accept rule checks too. So it is never certain that such a rule would have answered.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Asked, AskedCommand, Decides, Does, ExactCommand, InThread, Matcher, Rule, RuleAction, Trust, Words, Workspace,
    runs_repository_files,
};
use crate::engine::model::RequestSource;
use crate::engine::requests::{UNANSWERED, decided};
use crate::protocol::{Word, of_name};
use crate::secrets::has_mask;

/// The answer of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonsAnswer {
    Accepts,
    Declines,
    /// Something else, such as an answer to a question.
    Answers,
}

impl PersonsAnswer {
    /// The answer of a stored request by its source and payload; `None` if no person has given it, or if it answers nothing.
    #[must_use]
    pub fn of(source: &str, payload: &str) -> Option<PersonsAnswer> {
        match of_name(source)? {
            RequestSource::Client
            | RequestSource::Api
            | RequestSource::Cli
            | RequestSource::Tui
            | RequestSource::Web => {}
            RequestSource::Policy | RequestSource::Server => return None,
        }
        let Some(word) = decided(payload) else { return Some(PersonsAnswer::Answers) };
        match (Word::named(&word), &*word) {
            (Some(Word::Decline | Word::Cancel), _) => Some(PersonsAnswer::Declines),
            (_, UNANSWERED | "error") => None,
            // An object that a request offers accepts more than the request.
            (Some(Word::Accept | Word::AcceptForSession) | None, _) => Some(PersonsAnswer::Accepts),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            PersonsAnswer::Accepts => "accept",
            PersonsAnswer::Declines => "decline",
            PersonsAnswer::Answers => "answer",
        }
    }
}

/// A stored request.
#[derive(Debug, Clone)]
pub struct PastRequest {
    /// RFC 3339.
    pub at: String,
    /// `None` if no rule decides on it.
    pub asked: Option<Asked>,
    pub answer: Option<PersonsAnswer>,
    /// The name of the person.
    pub by: String,
    /// Something makes it riskier than it looks.
    pub is_risky: bool,
}

/// The decision of a rule about a stored request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WouldDo<'a> {
    pub rule: &'a Rule,
    /// Whether all that the rule looks at is on record.
    pub is_certain: bool,
}

impl WouldDo<'_> {
    /// Whether the rule would have answered as the person did; `None` if the rule holds it, or if no person has answered.
    #[must_use]
    pub fn agrees(&self, answer: Option<PersonsAnswer>) -> Option<bool> {
        let wanted = match self.rule.action() {
            RuleAction::Accept => PersonsAnswer::Accepts,
            RuleAction::Decline => PersonsAnswer::Declines,
            RuleAction::Hold => return None,
        };
        answer.map(|answer| answer == wanted)
    }
}

/// The first of the rules that matches a request.
#[must_use]
pub fn would_do<'a>(rules: &'a [Rule], request: &PastRequest) -> Option<WouldDo<'a>> {
    let asked = request.asked.clone()?.in_usual_thread();
    rules.iter().find_map(|rule| {
        let decides = rule.check(&asked).ok()?;
        Some(WouldDo { rule, is_certain: !matches!(decides, Decides::Accept(_)) })
    })
}

impl Asked {
    /// A command in a thread that began in the command's folder, whose sandbox is known, with a codex that asks about input.
    #[must_use]
    pub fn in_usual_thread(mut self) -> Asked {
        if let Asked::Command(AskedCommand { cwd, .. }) = &self {
            let cwd = cwd.clone().unwrap_or_default();
            let workspace = Ok(Workspace { cwd, places: Vec::new() });
            self.is_in(|| InThread { workspace, asks_about_input: true });
        }
        self
    }
}

/// A rule that answers as people have answered so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub rule: Rule,
    /// Number of answers that it would have given.
    pub count: usize,
    /// The names of the people.
    pub by: BTreeSet<String>,
    pub first_at: String,
    pub last_at: String,
}

/// Longest name of a suggested rule, in bytes.
const NAME_BYTES_MAX: usize = 48;

/// Rules that would have answered at least `count_min` requests, and each as its person did. An accept rule is for one exact command, that
/// was never declined and never came with something risky.
#[must_use]
pub fn suggestions(past: &[PastRequest], count_min: usize) -> Vec<Suggestion> {
    let mut all: Vec<Suggestion> = Vec::new();
    let mut covered = BTreeSet::new();
    for does in accepts(past).into_iter().chain(declines(past)) {
        let rule = Rule { name: name_of(&does, &all), does };
        let matched: Vec<usize> =
            (0..past.len()).filter(|at| would_do(std::slice::from_ref(&rule), &past[*at]).is_some()).collect();
        let agrees = |at: &usize| would_do(std::slice::from_ref(&rule), &past[*at])?.agrees(past[*at].answer);
        let answered: Vec<usize> = matched.iter().copied().filter(|at| past[*at].answer.is_some()).collect();
        let is_safe = rule.action() != RuleAction::Accept || !matched.iter().any(|at| past[*at].is_risky);
        // A wider rule that answers nothing more than those before it is not needed.
        let is_new = answered.iter().any(|at| !covered.contains(at));
        if answered.len() < count_min || !is_safe || !is_new || !answered.iter().all(|at| agrees(at) == Some(true)) {
            continue;
        }
        covered.extend(answered.iter().copied());
        let times = || answered.iter().map(|at| past[*at].at.clone());
        all.push(Suggestion {
            rule,
            count: answered.len(),
            by: answered.iter().map(|at| past[*at].by.clone()).collect(),
            first_at: times().min().unwrap_or_default(),
            last_at: times().max().unwrap_or_default(),
        });
    }
    all
}

/// Each command that was accepted, in its folder.
fn accepts(past: &[PastRequest]) -> Vec<Does> {
    let mut commands = BTreeSet::new();
    for request in past.iter().filter(|request| request.answer == Some(PersonsAnswer::Accepts)) {
        if let Some(Asked::Command(AskedCommand { plain: Ok(plain), cwd: Some(cwd), bar: None, .. })) = &request.asked {
            // A masked command is not the one that ran.
            if !plain.argv.iter().any(|word| has_mask(word)) {
                commands.insert((plain.argv.clone(), cwd.clone()));
            }
        }
    }
    let does = |(argv, cwd): (Vec<String>, String)| {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        let trust = Trust { path: !program.contains('/'), repository: runs_repository_files(name), ..Trust::default() };
        ExactCommand::new(argv, cwd, trust, None).ok().map(Does::Accept)
    };
    commands.into_iter().filter_map(does).collect()
}

/// Kinds of requests that were declined, the narrowest first: a whole command, its beginning, the folder of changed files, and
/// the kinds that have no narrower form.
fn declines(past: &[PastRequest]) -> Vec<Does> {
    let mut commands: BTreeMap<Vec<String>, Vec<Vec<String>>> = BTreeMap::new();
    let (mut whole, mut folders, mut kinds) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for request in past.iter().filter(|request| request.answer == Some(PersonsAnswer::Declines)) {
        match &request.asked {
            Some(Asked::Command(AskedCommand { words: Some(words), .. })) if !words.is_empty() => {
                whole.insert(words.clone());
                commands.entry(words.iter().take(2).cloned().collect()).or_default().push(words.clone());
            }
            Some(Asked::FileChange { paths }) => {
                folders.extend(paths.iter().filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned())));
            }
            Some(Asked::Permissions { .. }) => kinds.push(Matcher::Permissions { cwd: None }),
            Some(Asked::Elicitation) => kinds.push(Matcher::Elicitation),
            Some(Asked::Command(_) | Asked::Questions) | None => {}
        }
    }
    let whole = whole.into_iter().map(|words| Matcher::Command { argv: Some(Words::All(words)), cwd: None });
    let begins = commands.into_values().map(|all| {
        let first = all.into_iter().reduce(|one, other| {
            one.into_iter().zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
        });
        Matcher::Command { argv: first.map(Words::First), cwd: None }
    });
    // Longer paths are narrower.
    let mut folders: Vec<String> = folders.into_iter().filter(|folder| super::is_whole_path(folder)).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.matches('/').count()));
    let folders = folders.into_iter().map(|below| Matcher::FileChange { below: Some(below) });
    let all = whole.chain(begins).chain(folders).chain(kinds);
    all.map(|of| Does::Decline { of, reason: None }).collect()
}

/// A name that no other suggestion has.
fn name_of(does: &Does, others: &[Suggestion]) -> String {
    let words = match does {
        Does::Accept(exact) => exact.argv().join(" "),
        Does::Decline { of, reason: _ } | Does::Hold { of } => match of {
            Matcher::Command { argv: Some(Words::All(words) | Words::First(words)), .. } => {
                format!("no {}", words.join(" "))
            }
            Matcher::Command { argv: None, .. } => "no commands".to_owned(),
            Matcher::FileChange { below } => format!("no changes in {}", below.as_deref().unwrap_or("/")),
            Matcher::Permissions { .. } => "no wider permissions".to_owned(),
            Matcher::Questions => "no questions".to_owned(),
            Matcher::Elicitation => "nothing for tool servers".to_owned(),
        },
    };
    let plain: String = words.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let plain = plain[..plain.floor_char_boundary(NAME_BYTES_MAX)].trim().to_owned();
    let is_taken = |name: &str| others.iter().any(|other| other.rule.name == name);
    let numbered = (2..).map(|number| format!("{plain} {number}"));
    std::iter::once(plain.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::asked;
    use super::*;
    use crate::engine::RequestKind;

    /// A command of a small world, who answered it how, and whether it was risky.
    fn request(script: &str, cwd: &str, answer: Option<PersonsAnswer>, is_risky: bool, minute: usize) -> PastRequest {
        let line = shlex::try_join(["/bin/bash", "-lc", script]).expect("BUG: no NUL");
        let params = json!({
            "kind": "command", "threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1, "environmentId": "local",
            "command": line, "cwd": cwd, "commandActions": [], "availableDecisions": ["accept"],
        });
        PastRequest {
            at: format!("2026-11-01T00:{minute:02}:00Z"),
            asked: asked(RequestKind::Command, &params, None, None),
            answer,
            by: "ann".to_owned(),
            is_risky,
        }
    }

    const SCRIPTS: [&str; 5] = ["/bin/ls -l", "/usr/bin/wc -l x", "rm -rf build", "rm -rf x", "/bin/ls -l && rm x"];

    proptest! {
        /// A suggestion never accepts a command that was declined or risky once, and never declines one that was accepted once.
        #[test]
        fn no_suggestion_contradicts_a_person(
            past in prop::collection::vec((0..SCRIPTS.len(), 0..2_usize, 0..4_usize, prop::bool::weighted(0.05)), 0..60),
            count_min in 1..4_usize,
        ) {
            let answers = [Some(PersonsAnswer::Accepts), Some(PersonsAnswer::Declines), Some(PersonsAnswer::Accepts), None];
            let requests: Vec<PastRequest> = past.iter().enumerate().map(|(minute, (script, cwd, answer, is_risky))| {
                request(SCRIPTS[*script], ["/p", "/q"][*cwd], answers[*answer], *is_risky, minute % 60)
            }).collect();
            for suggestion in suggestions(&requests, count_min) {
                // Compared by the words of the test alone.
                let met = |script: &str, cwd: &str| match suggestion.rule.does() {
                    Does::Accept(exact) => exact.argv().join(" ") == script && exact.cwd() == cwd,
                    Does::Decline { of: Matcher::Command { argv: Some(Words::All(all)), .. }, .. } => all.join(" ") == script,
                    Does::Decline { of: Matcher::Command { argv: Some(Words::First(first)), .. }, .. } => {
                        format!("{script} ").starts_with(&format!("{} ", first.join(" ")))
                    }
                    other @ (Does::Decline { .. } | Does::Hold { .. }) => panic!("{other:?}"),
                };
                let accepts = suggestion.rule.action() == RuleAction::Accept;
                let mut count = 0;
                for (script, cwd, answer, is_risky) in &past {
                    if met(SCRIPTS[*script], ["/p", "/q"][*cwd]) {
                        let expect = if accepts { PersonsAnswer::Accepts } else { PersonsAnswer::Declines };
                        prop_assert!(answers[*answer].is_none_or(|answer| answer == expect), "{suggestion:?} {past:?}");
                        prop_assert!(!accepts || !is_risky, "{suggestion:?} {past:?}");
                        count += usize::from(answers[*answer].is_some());
                    }
                }
                prop_assert!(count >= count_min && count == suggestion.count, "{suggestion:?} {past:?}");
            }
        }
    }

    #[test]
    fn only_answers_of_people_count() {
        let accept = r#"{"decision":"accept"}"#;
        for (source, payload, expect) in [
            ("client", accept, Some(PersonsAnswer::Accepts)),
            ("tui", r#"{"decision":"acceptForSession"}"#, Some(PersonsAnswer::Accepts)),
            ("api", r#"{"decision":{"acceptWithExecpolicyAmendment":{}}}"#, Some(PersonsAnswer::Accepts)),
            ("web", r#"{"decision":"approved"}"#, Some(PersonsAnswer::Accepts)),
            ("cli", r#"{"decision":"cancel"}"#, Some(PersonsAnswer::Declines)),
            ("client", r#"{"decision":"abort"}"#, Some(PersonsAnswer::Declines)),
            ("client", r#"{"permissions":{},"scope":"turn"}"#, Some(PersonsAnswer::Declines)),
            ("client", r#"{"action":"accept"}"#, Some(PersonsAnswer::Accepts)),
            ("client", r#"{"answers":{"q":{"answers":["a"]}}}"#, Some(PersonsAnswer::Answers)),
            ("client", r#"{"answers":{}}"#, None),
            ("client", r#"{"error":{"code":1}}"#, None),
            ("policy", accept, None),
            ("server", accept, None),
            ("of tomorrow", accept, None),
        ] {
            assert_eq!(PersonsAnswer::of(source, payload), expect, "{source} {payload}");
        }
    }
}
