//! The fields of a form: their order, and which of them hold a secret, by what the form says of them.

use serde_json::Value;
use serde_json::value::RawValue;

use super::redaction::names_secret;
use crate::wire::Members;

/// The member of a ledger row that lists the fields of a form in schema order.
pub(crate) const FIELD_ORDER: &str = "field_order";

/// The names of the form fields in the order of the elicitation's schema.
pub(crate) fn field_order(params: &RawValue) -> Vec<String> {
    let schema = Members::of(params).and_then(|params| params.get("requestedSchema")).and_then(Members::of);
    let Some(properties) = schema.and_then(|schema| schema.get("properties")).and_then(Members::of) else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for (name, _) in properties.iter() {
        if !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The fields of a form whose content is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecretFields {
    All,
    Named(Vec<String>),
}

impl SecretFields {
    /// Those that a request for a form says are secret: by `format: "password"` or the like, or by their names.
    pub(super) fn of(params: &str) -> SecretFields {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        // The answer is the proof that a person has approved something.
        if params["mode"] == "openai/userVerification" {
            return SecretFields::All;
        }
        let mut names = Vec::new();
        secret_fields(&params["requestedSchema"], &mut names);
        SecretFields::Named(names)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            SecretFields::All => true,
            SecretFields::Named(names) => names.iter().any(|named| named == name),
        }
    }
}

/// The names of secret fields in a schema, whichever way it lists them: `{NAME: {…}}` or `[{"id": NAME, …}]`.
fn secret_fields(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, field) in members {
                if is_secret_field(field) {
                    names.push(name.clone());
                }
                secret_fields(field, names);
            }
            if is_secret_field(schema) {
                let named = ["id", "name", "key"].into_iter().filter_map(|name| schema[name].as_str());
                names.extend(named.map(str::to_owned));
            }
        }
        Value::Array(fields) => fields.iter().for_each(|field| secret_fields(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a field of a form holds a secret, by its name or its schema.
pub(crate) fn holds_secret(name: &str, schema: &Value) -> bool {
    is_secret_name(name) || is_secret_field(schema)
}

/// Whether the schema of one field marks its content as secret.
fn is_secret_field(field: &Value) -> bool {
    let says = |name: &str| field[name].as_str().unwrap_or_default().to_lowercase();
    let is_typed =
        ["format", "type", "inputType", "widget", "ui:widget"].iter().any(|name| says(name).contains("password"));
    let is_marked = ["writeOnly", "isSecret", "secret", "sensitive"].iter().any(|name| field[*name] == true);
    let is_text = field["type"].as_str().is_none_or(|kind| kind == "string") && field["enum"].is_null();
    let is_described = || ["title", "description", "label"].iter().any(|name| asks_for_secret(&says(name)));
    is_typed || is_marked || is_secret_name(&says("title").replace(' ', "_")) || (is_text && is_described())
}

/// Whether a title or a description asks for a secret: "Your API key", "the password of the database". A sentence that asks
/// for the name, the number or the file of one does not.
fn asks_for_secret(text: &str) -> bool {
    const SECRETS: [&str; 10] =
        ["password", "passphrase", "passcode", "token", "secret", "pin", "otp", "psk", "credential", "credentials"];
    const ABOUT: [&str; 18] = [
        "name", "names", "number", "many", "count", "length", "size", "file", "path", "url", "type", "kind", "label",
        "id", "max", "maximum", "limit", "policy",
    ];
    let words: Vec<&str> = text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_about = |from: usize, to: usize| {
        let near = words[from.saturating_sub(3)..from].iter().chain(words.get(to));
        near.into_iter().any(|word| ABOUT.contains(word))
    };
    let is_pair = |pair: &[&str]| {
        let [first, last] = pair else { return false };
        matches!(*last, "key" | "token" | "code")
            && is_secret_name(&format!("{first}{}{}", last[..1].to_uppercase(), &last[1..]))
    };
    let of_word = || (0..words.len()).any(|at| SECRETS.contains(&words[at]) && !is_about(at, at + 1));
    of_word() || words.windows(2).enumerate().any(|(at, pair)| is_pair(pair) && !is_about(at, at + 2))
}

/// Whether the value of a member of this name is a credential itself: not the name of a variable or a file that holds one.
pub(super) fn is_secret_name(name: &str) -> bool {
    const REFERENCES: [&str; 6] = ["envvar", "envkey", "store", "file", "instructions", "url"];
    const CODES: [&str; 7] = ["pairingcode", "usercode", "sdp", "pin", "pat", "otp", "totp"];
    let plain: String = name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let is_code = CODES.iter().any(|code| if code.len() > 4 { plain.ends_with(code) } else { plain == *code });
    is_code || (names_secret(name) && !REFERENCES.iter().any(|end| plain.ends_with(end)))
}
