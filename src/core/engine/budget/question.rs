//! What is asked about a turn beyond a budget, and what an answer decides.

use serde_json::{Value, json};

use crate::protocol::{named, of_name};

named! {
    /// A limit of `[budget]`.
    pub enum BudgetLimit {
        /// Of all sessions on one day.
        Day = "tokens_per_day",
        /// Of one client on one day.
        Client = "per_client",
        /// Of the last turn of a thread.
        Turn = "per_turn",
    }
}

/// The limits of a user, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    pub per_day: Option<u64>,
    pub per_client: Option<u64>,
    pub per_turn: Option<u64>,
}

impl BudgetLimits {
    /// Whether there is one.
    #[must_use]
    pub fn are_set(&self) -> bool {
        *self != BudgetLimits::default()
    }
}

named! {
    /// What a person decides about a turn beyond the budget.
    pub enum BudgetAnswer {
        Continue = "continue once",
        Stop = "stop",
    }
}

/// The turn for which the budget is looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetQuery {
    pub thread_id: Option<String>,
    /// The name of the client that wants it, as in the usage.
    pub client: Option<String>,
}

impl BudgetQuery {
    /// Whether the turn may not begin because of this limit.
    #[must_use]
    pub fn has_reached(&self, spent: &Spent) -> bool {
        let is_its = match spent.limit {
            BudgetLimit::Client => self.client.is_some() && self.client == spent.client,
            BudgetLimit::Day | BudgetLimit::Turn => true,
        };
        is_its && spent.used >= spent.most
    }
}

/// The result of a look at the budget for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetFound {
    /// No limit is reached.
    Allows,
    /// This limit is.
    Reached(Spent),
    /// The usage cannot be read now.
    Unknown,
}

/// A limit, and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    pub limit: BudgetLimit,
    /// The client, of a limit that is one client's.
    pub client: Option<String>,
    /// The local day that the limit is of, such as `2026-01-02`.
    pub day: String,
    /// In tokens.
    pub used: u64,
    pub most: u64,
}

impl Spent {
    /// As `on_budget` and other documents have it.
    #[must_use]
    pub fn document(&self) -> Value {
        let Spent { limit, client, day, used, most } = self;
        let percent = self.percent();
        json!({ "limit": limit, "client": client, "day": day, "used_tokens": used, "limit_tokens": most, "percent": percent })
    }

    /// How much of the limit is used.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = (u128::from(self.used) * 100).checked_div(u128::from(self.most)).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// The limit that an answer suggests instead: half as much again, and more than is used.
    fn more(&self) -> u64 {
        self.most.saturating_add(self.most / 2).max(self.used.saturating_add(self.used / 4)).max(1)
    }

    /// In words.
    fn what(&self) -> String {
        let Spent { limit, client, used, most, day: _ } = self;
        let (used, most) = (grouped(*used), grouped(*most));
        match (limit, client) {
            (BudgetLimit::Day, _) => format!("{used} of the {most} tokens for today are used"),
            (BudgetLimit::Client, client) => {
                let client = client.as_deref().unwrap_or("without a name");
                format!("client {client} has used {used} of its {most} tokens for today")
            }
            (BudgetLimit::Turn, _) => {
                format!("the last turn of this thread used {used} tokens, and the limit is {most}")
            }
        }
    }
}

/// The parameters of the question about a turn.
/// Without a limit, the usage is unknown.
pub(super) fn question(spent: Option<&Spent>, thread_id: &str, prompt: Option<&str>) -> Value {
    let of_turn = prompt.map(|prompt| format!(" The turn: {prompt}")).unwrap_or_default();
    let why = spent.map_or_else(|| "what is used of the token budget cannot be read now".to_owned(), Spent::what);
    let once = json!({ "label": BudgetAnswer::Continue, "description": "This turn begins. The next one is asked about again." });
    let raised = spent.map(|spent| {
        json!({ "label": spent.more().to_string(), "description": "The limit in tokens from now on, until midnight. Another number is valid too." })
    });
    let stop = json!({ "label": BudgetAnswer::Stop, "description": "The client gets an error, and no turn begins." });
    let budget = spent.map(|Spent { limit, client, day, used, most }| {
        json!({ "limit": limit, "client": client, "day": day, "used": used, "most": most })
    });
    let options: Vec<Value> = [Some(once), raised, Some(stop)].into_iter().flatten().collect();
    json!({
        "threadId": thread_id,
        "budget": budget,
        "questions": [{
            "id": QUESTION,
            "header": "Budget",
            "question": format!("Let the next turn begin? {}.{of_turn}", capitalized(&why)),
            "isOther": spent.is_some(),
            "isSecret": false,
            "options": options,
        }],
    })
}

/// The id of the only question.
const QUESTION: &str = "budget";

/// What an answer decides: a word, or a new limit in tokens. `None` if it is none of these.
pub(in crate::engine) fn decided(result: &Value) -> Option<(BudgetAnswer, Option<u64>)> {
    let [text] = result["answers"][QUESTION]["answers"].as_array()?.as_slice() else { return None };
    let text = text.as_str()?.trim();
    if let Some(word) = of_name(text) {
        return Some((word, None));
    }
    let digits: String = text.chars().filter(|char| !matches!(char, ',' | '_' | ' ' | '\u{202f}')).collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let raised = digits.parse().ok().filter(|raised| is_number && *raised > 0)?;
    Some((BudgetAnswer::Continue, Some(raised)))
}

/// The limit that a stored answer has raised to; `None` if it has not.
#[must_use]
pub fn raised_to(answer: &Value) -> Option<u64> {
    decided(answer)?.1
}

/// A number with commas between groups of three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_other_clients_stop_no_turn() {
        let query = BudgetQuery { thread_id: None, client: Some("a".to_owned()) };
        let spent = |limit, client: Option<&str>, used| Spent {
            limit,
            client: client.map(str::to_owned),
            day: String::new(),
            used,
            most: 10,
        };
        assert!(query.has_reached(&spent(BudgetLimit::Client, Some("a"), 10)));
        assert!(!query.has_reached(&spent(BudgetLimit::Client, Some("b"), 10)));
        assert!(!BudgetQuery::default().has_reached(&spent(BudgetLimit::Client, None, 10)));
        assert!(query.has_reached(&spent(BudgetLimit::Day, None, 10)));
        assert!(!query.has_reached(&spent(BudgetLimit::Day, None, 9)));
    }
}
