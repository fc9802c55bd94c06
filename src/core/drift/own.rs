//! Methods of another codex that codex-shim itself would have to know: with a person's words, with a question to a person, or with a
//! credential.

use std::collections::BTreeSet;

use super::compare::{Finding, FindingKind};
use super::schema::Schema;
use crate::protocol::{Method, Secrecy};

/// Names of members with credentials, in lower case; parts of names.
const CREDENTIALS: [&str; 8] =
    ["accesstoken", "refreshtoken", "idtoken", "secret", "password", "apikey", "credential", "privatekey"];

/// Methods that were looked at. Words that a client queues become the message of a turn that the server starts, without context, as those
/// of an agent do; a sample is a call of the model beside all threads.
const JUDGED: [&str; 3] = ["thread/queue/add", "thread/queue/update", "thread/sample"];

/// The methods of `to` that codex-shim should know and does not, without the methods of `from`.
#[must_use]
pub fn unknown_to_us(from: Option<&Schema>, to: &Schema) -> Vec<Finding> {
    let known: BTreeSet<&str> = from.into_iter().flat_map(|from| from.members().map(|(method, _)| method)).collect();
    let asks: BTreeSet<&str> = to.requests().collect();
    let calls: BTreeSet<&str> = to.calls().collect();
    let mut found = Vec::new();
    for (method, members) in to.members() {
        let is_open = Method::of(method).is_none() && Secrecy::of_resolved(None, method) == Secrecy::Open;
        if known.contains(method) || !is_open || JUDGED.contains(&method) {
            continue;
        }
        let has = |name: &str| members.iter().any(|member| member == name);
        let is_credential = |member: &&String| {
            let member = member.to_ascii_lowercase();
            CREDENTIALS.iter().any(|part| member.contains(part))
        };
        let (member, advice) = if let Some(member) = members.iter().find(is_credential) {
            (Some(member.clone()), "it may carry a credential, and codex-shim would record it")
        } else if asks.contains(method) {
            (None, "it may ask a person, and codex-shim only passes it on")
        } else if calls.contains(method) && (has("prompt") || (has("input") && has("text"))) {
            (None, "it may carry a person's words, and codex-shim adds no context to them")
        } else {
            continue;
        };
        found.push(Finding {
            client: String::new(),
            version: String::new(),
            kind: FindingKind::UnknownToUs,
            method: method.to_owned(),
            member,
            value: None,
            count: 0,
            last_used_at: None,
            advice: format!("{advice}: update codex-shim first"),
        });
    }
    found
}
