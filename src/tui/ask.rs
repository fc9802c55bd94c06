//! A request that waits: what exactly is asked, how it can be answered, and what makes an answer worth a second thought.
//!
//! Pure. What the words of an answer mean for each kind of request stands in [`crate::control::answer`], and what of it is shown
//! to a person in [`crate::control::shown`].

use serde_json::{Value, json};

use crate::control::answer::{self, Word, kind_name, kind_of};
use crate::control::shown::{self, Row, Shown, shown};
pub use crate::control::shown::{Meant, meant};
use crate::engine::RequestKind;

/// A request that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Its name in the ledger.
    pub id: String,
    /// What kind of request it is.
    pub kind: RequestKind,
    /// Since when, in microseconds since the Unix epoch.
    pub asked_us: u64,
    /// Its row.
    pub row: Value,
}

/// Something that can be answered with one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The key.
    pub key: char,
    /// What it says.
    pub label: String,
    /// What is sent.
    pub body: Value,
    /// Why it is asked again before it is sent.
    pub danger: Option<String>,
}

/// A question that is answered by an option or by text.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Under what the answer is sent.
    pub id: String,
    /// The question.
    pub question: String,
    /// Labels, and what they mean.
    pub options: Vec<(String, String)>,
    /// Whether something else may be typed.
    pub takes_text: bool,
    /// Nobody is to see what is typed.
    pub is_secret: bool,
}

/// Under what name the first step of an elicitation is answered.
const ACTION: &str = "\u{0}action";

impl Ask {
    /// Whether a human is waited for.
    #[must_use]
    pub fn is_for_human(&self) -> bool {
        self.kind.request_type().is_for_human()
    }

    /// The thread that waits for it.
    #[must_use]
    pub fn thread_id(&self) -> Option<&str> {
        self.row["thread_id"].as_str()
    }

    /// Whether it is answered by text or options.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        matches!(self.kind, RequestKind::UserInput | RequestKind::Elicitation)
    }

    /// What it asks, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.row["summary"].as_str().filter(|summary| !summary.is_empty()) {
            Some(summary) => summary.to_owned(),
            None => format!("{} {}", kind_name(self.kind), self.row["request_method"].as_str().unwrap_or_default()),
        }
    }

    /// All that one needs to decide.
    #[must_use]
    pub fn lines(&self) -> Vec<(Meant, String)> {
        let Shown { members, changes } = shown(&self.row);
        let one = |row: Row| {
            let text = match row.label.as_str() {
                "command" => format!("$ {}", row.text),
                "cwd" => format!("in {}", row.text),
                "reason" => format!("because {}", row.text),
                "message" | "file" | "" => row.text,
                label => format!("{label}: {}", row.text),
            };
            (row.meant, text)
        };
        let mut lines: Vec<(Meant, String)> = members.into_iter().map(one).collect();
        lines.extend(self.dangers().into_iter().map(|danger| (Meant::Warning, format!("! {danger}"))));
        if self.row["request_payload"]["url"].is_string() {
            lines.push((Meant::Warning, "! open that address only if you trust who asks".to_owned()));
        }
        lines.extend(changes.into_iter().map(one));
        lines
    }

    /// What can be answered with one key. None for what is answered by text.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        if self.wants_input() || self.kind == RequestKind::Other {
            return Vec::new();
        }
        let dangers = self.dangers();
        let danger = (!dangers.is_empty()).then(|| dangers.join("; "));
        let words = [
            ('a', "accept", Word::Accept, danger.clone()),
            ('s', "accept for the session", Word::AcceptForSession, danger),
            ('d', "decline", Word::Decline, None),
            ('c', "cancel, which ends the turn", Word::Cancel, None),
        ];
        let word = |(key, label, word, danger): (char, &str, Word, Option<String>)| {
            let body = answer::of_word(&self.row, word, None).ok()?;
            let widely = self.kind == RequestKind::Permissions && word == Word::AcceptForSession;
            let danger = danger.or_else(|| widely.then(|| "it holds for the whole session".to_owned()));
            Some(Choice { key, label: label.to_owned(), body, danger })
        };
        let mut choices: Vec<Choice> = words.into_iter().filter_map(word).collect();
        let offered =
            self.row["available_decisions"].as_array().into_iter().flatten().filter(|offer| offer.is_object());
        for (key, offer) in ('1'..='9').zip(offered) {
            let label = shown::offered(offer);
            let danger = Some("it changes what is asked about from now on".to_owned());
            choices.push(Choice { key, label, body: json!({ "decision": offer }), danger });
        }
        choices
    }

    /// What is sent to decline, where a reason is taken.
    #[must_use]
    pub fn declined(&self, reason: &str) -> Option<Value> {
        let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
        answer::of_word(&self.row, Word::Decline, reason).ok()
    }

    /// Whether a reason is taken.
    #[must_use]
    pub fn takes_reason(&self) -> bool {
        !self.wants_input() && self.kind != RequestKind::Other && self.declined("x").is_some()
    }

    /// What the request itself says that makes it more than it looks like.
    fn dangers(&self) -> Vec<String> {
        let payload = &self.row["request_payload"];
        let mut dangers = Vec::new();
        let mut say = |danger: String| dangers.push(danger);
        if let Some(root) = payload["grantRoot"].as_str() {
            say(format!("all below {root} may be written to from then on"));
        }
        if !payload["additionalPermissions"].is_null() {
            say("it is given more than the sandbox allows".to_owned());
        }
        if !payload["networkApprovalContext"].is_null() {
            let host = payload["networkApprovalContext"]["host"].as_str().unwrap_or("the network");
            say(format!("it reaches {host}"));
        }
        let risk = &payload["risk"];
        let level = [&risk["riskLevel"], &risk["risk_level"]].into_iter().find_map(Value::as_str);
        if let Some(level) = level.filter(|level| *level != "low") {
            say(format!("codex calls its risk {level}"));
        }
        dangers
    }

    /// The questions, one after the other.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let payload = &self.row["request_payload"];
        match self.kind {
            RequestKind::UserInput => payload["questions"].as_array().into_iter().flatten().map(question).collect(),
            RequestKind::Elicitation => vec![Step {
                id: ACTION.to_owned(),
                question: payload["message"].as_str().unwrap_or_default().to_owned(),
                options: ["accept", "decline", "cancel"].map(|word| (word.to_owned(), String::new())).to_vec(),
                takes_text: false,
                is_secret: false,
            }],
            RequestKind::Command
            | RequestKind::FileChange
            | RequestKind::OldCommand
            | RequestKind::OldPatch
            | RequestKind::Permissions
            | RequestKind::Other => Vec::new(),
        }
    }

    /// What is asked next, once an elicitation was accepted.
    #[must_use]
    pub fn fields(&self) -> Vec<Step> {
        let schema = &self.row["request_payload"]["requestedSchema"]["properties"];
        let step = |(name, about): (&String, &Value)| {
            let words = |value: &Value| {
                value.as_array().map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
            };
            let options = match about["type"].as_str() {
                Some("boolean") => vec!["yes".to_owned(), "no".to_owned()],
                Some(_) | None => words(&about["enum"]).unwrap_or_default(),
            };
            let more = [&about["description"], &about["title"]].into_iter().find_map(Value::as_str);
            Step {
                id: name.clone(),
                question: more.map_or(name.clone(), |more| format!("{name}: {more}")),
                takes_text: options.is_empty(),
                options: options.into_iter().map(|option| (option, String::new())).collect(),
                is_secret: false,
            }
        };
        schema.as_object().into_iter().flatten().map(step).collect()
    }

    /// Whether the answers that were given so far ask for more.
    #[must_use]
    pub fn asks_on(&self, answers: &[(String, String)]) -> bool {
        answers.len() == 1 && answers[0] == (ACTION.to_owned(), "accept".to_owned()) && !self.fields().is_empty()
    }

    /// What is sent.
    ///
    /// # Errors
    ///
    /// Why these cannot be answers.
    pub fn answered(&self, answers: &[(String, String)]) -> Result<Value, String> {
        let action = answers.iter().find(|(id, _)| id == ACTION).map(|(_, word)| word.as_str());
        match action {
            Some("decline") => answer::of_word(&self.row, Word::Decline, None),
            Some("cancel") => answer::of_word(&self.row, Word::Cancel, None),
            Some(_) if answers.len() == 1 => answer::of_word(&self.row, Word::Accept, None),
            Some(_) | None => {
                let given: Vec<(String, String)> = answers.iter().filter(|(id, _)| id != ACTION).cloned().collect();
                let given: Vec<_> = given.into_iter().filter(|(_, text)| !text.is_empty()).collect();
                match given.is_empty() && self.kind == RequestKind::UserInput {
                    true => Err("nothing was answered, so nothing was sent".to_owned()),
                    false => answer::of_answers(&self.row, &given),
                }
            }
        }
    }
}

fn question(question: &Value) -> Step {
    let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let options: Vec<(String, String)> = question["options"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|option| (text(option, "label"), text(option, "description")))
        .collect();
    Step {
        id: text(question, "id"),
        question: text(question, "question"),
        takes_text: options.is_empty() || question["isOther"] == true,
        options,
        is_secret: question["isSecret"] == true,
    }
}

/// What ended a request, in a line: who was first, and with what.
#[must_use]
pub fn ending(row: &Value) -> String {
    format!("request {} was {}", row["request_id"].as_str().unwrap_or_default(), shown::ending(row))
}

/// That of a row.
#[must_use]
pub fn of_row(row: Value, asked_us: u64) -> Ask {
    Ask { id: row["request_id"].as_str().unwrap_or_default().to_owned(), kind: kind_of(&row), asked_us, row }
}
