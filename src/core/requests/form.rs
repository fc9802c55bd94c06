//! Elicitation forms: the fields that a server asks for, reading what a person types into one, and validation.
//!
//! Pure. The schema is untrusted: it comes from an MCP server. What is not valid in it is ignored, so that the request can still be
//! answered. Errors never repeat the value of a secret field.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::schema::{Rule, violation};
use crate::api::Request;
use crate::engine::one_line;
use crate::secrets::holds_secret;

/// Longest message about one field, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// Most errors that are reported of one form.
const ERRORS_MAX: usize = 64;

/// Longest part of a value in a message, in characters.
const VALUE_CHARS_MAX: usize = 80;

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    /// Title and description from the schema.
    pub about: Option<String>,
    pub is_required: bool,
    /// The allowed values; empty if any value is allowed.
    pub choices: Vec<FieldChoice>,
    /// Takes several of the choices.
    pub takes_many: bool,
    /// Range, length or format in words.
    pub limits: Option<String>,
    /// Its value if none is given.
    pub default: Option<Value>,
    /// Holds a password or another secret, so input is not echoed.
    pub is_secret: bool,
    /// `type` of the schema; `string` if it has none.
    pub json_type: String,
}

/// An allowed value of a field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChoice {
    pub value: Value,
    /// The text to display.
    pub label: String,
}

/// A field whose value violates the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field; `None` if the form as a whole is invalid.
    pub field: Option<String>,
    /// The problem, and what would be valid.
    pub message: String,
}

/// The fields of the form in a ledger row, in the schema's order.
pub fn fields(row: &Request) -> Vec<Field> {
    let schema = row.form();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let order = row.field_order.iter().flatten().map(String::as_str);
    let named: Vec<&str> = order.filter(|name| properties.contains_key(*name)).collect();
    // Relays of older versions do not store the order.
    let unnamed = properties.keys().map(String::as_str).filter(|name| !named.contains(name));
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let field = |name: &str| Field::new(name, &properties[name], required.contains(&json!(name)));
    named.iter().copied().chain(unnamed).map(field).collect()
}

impl Field {
    fn new(name: &str, schema: &Value, is_required: bool) -> Field {
        let json_type = schema["type"].as_str().unwrap_or("string").to_owned();
        let text = |member: &str| schema[member].as_str().map(one_line).filter(|text| !text.is_empty());
        let about = match (text("title"), text("description")) {
            (Some(title), Some(description)) => Some(format!("{title}: {description}")),
            (title, description) => title.or(description),
        };
        let takes_many = json_type == "array";
        let choices = match &*json_type {
            "boolean" => [true, false].map(FieldChoice::yes_or_no).to_vec(),
            _ if takes_many => FieldChoice::of(&schema["items"]),
            _ => FieldChoice::of(schema),
        };
        Field {
            name: name.to_owned(),
            about,
            is_required,
            choices,
            takes_many,
            limits: limits(schema, &json_type),
            default: Some(schema["default"].clone()).filter(|default| !default.is_null()),
            is_secret: holds_secret(name, schema),
            json_type,
        }
    }

    /// Reads typed text, or the values of several `--answer` options.
    ///
    /// # Errors
    ///
    /// The message says what is wrong and what would be valid.
    pub fn read(&self, typed: &[&str]) -> Result<Value, String> {
        match (self.takes_many, typed) {
            (true, [one]) => match serde_json::from_str::<Vec<Value>>(one) {
                Ok(values) => Ok(Value::Array(values)),
                Err(_) => one.split(',').map(|part| self.read_one(part.trim())).collect(),
            },
            (true, many) => many.iter().map(|one| self.read_one(one)).collect(),
            (false, [one]) => self.read_one(one),
            (false, _) => Err("takes one value".to_owned()),
        }
    }

    fn read_one(&self, typed: &str) -> Result<Value, String> {
        if !self.choices.is_empty() {
            let of_same_text = |choice: &&FieldChoice| choice.value.as_str() == Some(typed) || choice.label == typed;
            let of_same_letters = |choice: &&FieldChoice| choice.label.eq_ignore_ascii_case(typed);
            let found = self.choices.iter().find(of_same_text).or_else(|| self.choices.iter().find(of_same_letters));
            return match (found, &*self.json_type, &*typed.to_ascii_lowercase()) {
                (Some(choice), _, _) => Ok(choice.value.clone()),
                (None, "boolean", "true" | "y") => Ok(json!(true)),
                (None, "boolean", "false" | "n") => Ok(json!(false)),
                (None, _, _) => Err(format!("{} is not one of {}", self.quoted(typed), self.choice_list())),
            };
        }
        match &*self.json_type {
            "number" | "integer" => {
                let read = serde_json::from_str::<Value>(typed.trim()).ok().filter(Value::is_number);
                let article = if self.json_type == "integer" { "an integer" } else { "a number" };
                read.ok_or_else(|| format!("{} is not {article}", self.quoted(typed)))
            }
            "object" => serde_json::from_str(typed).map_err(|_| format!("{} is not JSON", self.quoted(typed))),
            _ => Ok(json!(typed)),
        }
    }

    fn quoted(&self, typed: &str) -> String {
        if self.is_secret { "the value".to_owned() } else { format!("`{}`", one_line(typed)) }
    }

    fn choice_list(&self) -> String {
        self.choices.iter().map(|choice| choice.label.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What the field takes, in words: `required · dev, test, prod · default dev`.
    pub fn hint(&self) -> String {
        self.hint_with(&self.choice_list())
    }

    /// [`Field::hint`] below a numbered list of the choices.
    #[must_use]
    pub fn hint_beside_choices(&self) -> String {
        self.hint_with(&format!("1 to {}", self.choices.len()))
    }

    fn hint_with(&self, choices: &str) -> String {
        let mut parts = Vec::new();
        parts.extend(self.is_required.then(|| "required".to_owned()));
        let kind = match &*self.json_type {
            "integer" | "number" => Some(self.json_type.clone()),
            "array" if !self.choices.is_empty() => Some("any of".to_owned()),
            _ => None,
        };
        let choices = (!self.choices.is_empty()).then(|| choices.to_owned());
        let takes = [kind, choices.or_else(|| self.limits.clone())];
        let takes: Vec<String> = takes.into_iter().flatten().collect();
        parts.extend((!takes.is_empty()).then(|| takes.join(" ")));
        parts.extend(self.limits.clone().filter(|_| !self.choices.is_empty()));
        parts.extend(
            self.default.as_ref().filter(|_| !self.is_secret).map(|value| format!("default {}", self.label_of(value))),
        );
        parts.join(" · ")
    }

    /// The display text of a value.
    pub fn label_of(&self, value: &Value) -> String {
        let one = |value: &Value| {
            let choice = self.choices.iter().find(|choice| choice.value == *value);
            let bare = || value.as_str().map_or_else(|| value.to_string(), one_line);
            choice.map_or_else(bare, |choice| choice.label.clone())
        };
        match value.as_array() {
            Some(values) => values.iter().map(one).collect::<Vec<_>>().join(", "),
            None => one(value),
        }
    }
}

impl FieldChoice {
    fn yes_or_no(value: bool) -> FieldChoice {
        FieldChoice { value: json!(value), label: if value { "yes" } else { "no" }.to_owned() }
    }

    /// The choices of a schema: `enum` with or without `enumNames`, or titled constants.
    fn of(schema: &Value) -> Vec<FieldChoice> {
        let label = |value: &Value, title: Option<&str>| {
            title.map(one_line).or_else(|| value.as_str().map(one_line)).unwrap_or_else(|| value.to_string())
        };
        if let Some(values) = schema["enum"].as_array() {
            let names = |index: usize| schema["enumNames"][index].as_str();
            let choice = |(index, value): (usize, &Value)| FieldChoice {
                value: value.clone(),
                label: label(value, names(index)),
            };
            return values.iter().enumerate().map(choice).collect();
        }
        let titled = ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array());
        let constants = titled.into_iter().flatten().filter(|option| !option["const"].is_null());
        let choice = |option: &Value| FieldChoice {
            value: option["const"].clone(),
            label: label(&option["const"], option["title"].as_str()),
        };
        constants.map(choice).collect()
    }
}

/// The range, length or format of a field in words.
fn limits(schema: &Value, json_type: &str) -> Option<String> {
    let number = |name: &str| Some(&schema[name]).filter(|limit| limit.is_number()).map(ToString::to_string);
    let between = |least: Option<String>, most: Option<String>, unit: &str| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    match json_type {
        "number" | "integer" => between(number("minimum"), number("maximum"), ""),
        "array" => between(number("minItems"), number("maxItems"), " of them"),
        "string" => {
            let format = schema["format"].as_str().filter(|format| *format != "password").map(format_in_words);
            let length = between(number("minLength"), number("maxLength"), " characters");
            let parts: Vec<String> = [format, length].into_iter().flatten().collect();
            (!parts.is_empty()).then(|| parts.join(", "))
        }
        _ => None,
    }
}

/// A format of JSON Schema in words.
fn format_in_words(format: &str) -> String {
    match format {
        "email" => "an email address".to_owned(),
        "uri" => "a URI".to_owned(),
        "date" => "a date, YYYY-MM-DD".to_owned(),
        "date-time" => "a date and time, such as 2026-01-31T12:00:00Z".to_owned(),
        other => one_line(other),
    }
}

/// The content of a form from named texts, in the form's order. Unnamed fields get their defaults.
///
/// # Errors
///
/// One error for each field that cannot be read or violates the schema.
pub fn content(row: &Request, answers: &[(String, String)]) -> Result<Value, Vec<FieldError>> {
    let fields = fields(row);
    let mut errors = Vec::new();
    for (name, _) in answers {
        if !fields.iter().any(|field| field.name == *name) {
            let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            errors.push(FieldError {
                field: Some(name.clone()),
                message: format!("unknown field; the fields are {}", names.join(", ")),
            });
        }
    }
    let mut content = Map::new();
    for field in &fields {
        let typed: Vec<&str> =
            answers.iter().filter(|(name, _)| *name == field.name).map(|(_, text)| text.as_str()).collect();
        let value = match &typed[..] {
            [] => Ok(field.default.clone()),
            typed => field.read(typed).map(Some),
        };
        match value {
            Ok(value) => content.extend(value.map(|value| (field.name.clone(), value))),
            Err(message) => errors.push(FieldError { field: Some(field.name.clone()), message }),
        }
    }
    let content = Value::Object(content);
    let unread: Vec<Option<String>> = errors.iter().map(|error| error.field.clone()).collect();
    let broken = check(row.form(), &content);
    errors.extend(broken.into_iter().filter(|error| !unread.contains(&error.field)));
    if errors.is_empty() { Ok(content) } else { Err(errors) }
}

/// Validates the content of an accepted form against its schema, and returns the first [`ERRORS_MAX`] errors. An empty list means that no
/// rule is violated.
pub fn check(schema: &Value, content: &Value) -> Vec<FieldError> {
    let content = if content.is_null() { &json!({}) } else { content };
    if !content.is_object() {
        return vec![FieldError { field: None, message: "`content` is not an object".to_owned() }];
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let invalid = properties.filter_map(|(name, schema)| {
        let (value, rule) = violation(schema, content.get(name)?)?;
        Some(FieldError::of(&Field::new(name, schema, false), value, &rule))
    });
    let mut seen = HashSet::new();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing = required
        .filter(|name| content.get(*name).is_none() && seen.insert(*name))
        .map(|name| FieldError { field: Some(name.to_owned()), message: "a value is required".to_owned() });
    invalid.chain(missing).take(ERRORS_MAX).collect()
}

/// `errors` on one line: `env: "mars" is not one of …; replicas: …`.
pub fn in_one_line(errors: &[FieldError]) -> String {
    let one = |error: &FieldError| match &error.field {
        Some(field) => format!("{}: {}", one_line(field), error.message),
        None => error.message.clone(),
    };
    errors.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl FieldError {
    fn of(field: &Field, value: &Value, rule: &Rule<'_>) -> FieldError {
        let short: String =
            one_line(value.as_str().unwrap_or(&value.to_string())).chars().take(VALUE_CHARS_MAX).collect();
        let value = if value.is_string() || field.is_secret { field.quoted(&short) } else { short };
        let items = |count: u64| format!("{count} {}", if count == 1 { "choice" } else { "choices" });
        let characters = |count: u64| format!("{count} {}", if count == 1 { "character" } else { "characters" });
        let problem = match rule {
            Rule::Type(name) => format!("is not {}", type_in_words(name)),
            Rule::Choice => format!("is not one of {}", field.choice_list()),
            Rule::Minimum(least) => format!("is less than the minimum of {least}"),
            Rule::Maximum(most) => format!("is greater than the maximum of {most}"),
            Rule::MinLength(least) => format!("is shorter than {}", characters(*least)),
            Rule::MaxLength(most) => format!("is longer than {}", characters(*most)),
            Rule::MinItems(least) => format!("has fewer than {}", items(*least)),
            Rule::MaxItems(most) => format!("has more than {}", items(*most)),
            Rule::Format(format) => format!("is not {}", format_in_words(format)),
        };
        let message = format!("{value} {problem}").chars().take(MESSAGE_CHARS_MAX).collect();
        FieldError { field: Some(field.name.clone()), message }
    }
}

/// A type of JSON Schema in words.
fn type_in_words(name: &str) -> &str {
    match name {
        "string" => "text",
        "number" => "a number",
        "integer" => "an integer",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::engine::field_order;

    /// A row whose form has one field of each kind.
    fn row() -> Request {
        let params = r#"{"requestedSchema":{"type":"object","properties":{
            "replicas":{"type":"integer","minimum":1,"maximum":9,"default":3},
            "env":{"type":"string","title":"Environment","enum":["dev","prod"],"enumNames":["Development","Production"]},
            "owner":{"type":"string","format":"email","maxLength":null},
            "dry":{"type":"boolean","description":"only show it"},
            "zones":{"type":"array","items":{"anyOf":[{"const":"a","title":"Zone A"},{"const":"b","title":"Zone B"}]},"minItems":1,"maxItems":2},
            "api_token":{"type":"string","minLength":8}},
            "required":["env","replicas"]}}"#;
        let raw: &RawValue = serde_json::from_str(params).expect("BUG: test parameters are JSON");
        json!({
            "request_method": "mcpServer/elicitation/request",
            "request_payload": serde_json::from_str::<Value>(params).expect("BUG: test parameters are JSON"),
            "field_order": field_order(raw),
        })
        .into()
    }

    fn given(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn secret_fields_match_masking_rules() {
        let is_secret = |name: &str, schema: Value| Field::new(name, &schema, false).is_secret;
        assert!(is_secret("pat", json!({"type": "string"})));
        assert!(is_secret("value", json!({"type": "string", "description": "Your API key"})));
        assert!(is_secret("x", json!({"type": "string", "writeOnly": true})));
        assert!(!is_secret("file", json!({"type": "string", "description": "the path of the key file"})));
    }

    #[test]
    fn fields_keep_the_order_of_the_schema() {
        let names: Vec<String> = fields(&row()).into_iter().map(|field| field.name).collect();
        assert_eq!(names, ["replicas", "env", "owner", "dry", "zones", "api_token"]);
        let mut old = row();
        old.field_order = None;
        assert_eq!(fields(&old).len(), 6, "an older relay names no order");
    }

    #[test]
    fn hints_name_choices_ranges_and_defaults() {
        let hints: Vec<String> = fields(&row()).iter().map(Field::hint).collect();
        let expect = [
            "required · integer 1 to 9 · default 3",
            "required · Development, Production",
            "an email address",
            "yes, no",
            "any of Zone A, Zone B · 1 to 2 of them",
            "at least 8 characters",
        ];
        assert_eq!(hints, expect);
    }

    #[test]
    fn typed_values_become_schema_values() {
        let check = |pairs: &[(&str, &str)], expect: Value| assert_eq!(content(&row(), &given(pairs)), Ok(expect));
        check(&[("env", "dev")], json!({ "env": "dev", "replicas": 3 }));
        check(&[("env", "production"), ("replicas", "9")], json!({ "env": "prod", "replicas": 9 }));
        check(
            &[("env", "dev"), ("dry", "y"), ("zones", "a, Zone B")],
            json!({ "env": "dev", "replicas": 3, "dry": true, "zones": ["a", "b"] }),
        );
        check(
            &[("env", "dev"), ("zones", "a"), ("zones", "b")],
            json!({ "env": "dev", "replicas": 3, "zones": ["a", "b"] }),
        );
    }

    #[test]
    fn each_invalid_field_gets_an_error() {
        let check = |pairs: &[(&str, &str)], expect: &[(&str, &str)]| {
            let errors = content(&row(), &given(pairs)).expect_err("the content is invalid");
            let told: Vec<(&str, &str)> = errors
                .iter()
                .map(|error| (error.field.as_deref().unwrap_or_default(), error.message.as_str()))
                .collect();
            assert_eq!(told, expect);
        };
        check(
            &[("env", "mars"), ("replicas", "99")],
            &[
                ("env", "`mars` is not one of Development, Production"),
                ("replicas", "99 is greater than the maximum of 9"),
            ],
        );
        check(&[("replicas", "two")], &[("replicas", "`two` is not an integer"), ("env", "a value is required")]);
        check(&[("env", "dev"), ("replicas", "1.5")], &[("replicas", "1.5 is not an integer")]);
        check(&[("env", "dev"), ("owner", "ada")], &[("owner", "`ada` is not an email address")]);
        check(&[("env", "dev"), ("zones", "[]")], &[("zones", "[] has fewer than 1 choice")]);
        check(
            &[("env", "dev"), ("planet", "mars")],
            &[("planet", "unknown field; the fields are replicas, env, owner, dry, zones, api_token")],
        );
    }

    #[test]
    fn errors_are_reported_once_and_have_a_bound() {
        let missing = |names: Vec<String>| check(&json!({ "required": names }), &json!({})).len();
        assert_eq!(missing(vec!["a".to_owned(); 9]), 1);
        assert_eq!(missing((0..999).map(|number| number.to_string()).collect()), ERRORS_MAX);
    }

    #[test]
    fn errors_never_repeat_a_secret() {
        let errors = content(&row(), &given(&[("env", "dev"), ("api_token", "hunter2")])).expect_err("it is short");
        assert_eq!(in_one_line(&errors), "api_token: the value is shorter than 8 characters");
    }

    #[test]
    fn unusable_schemas_validate_nothing() {
        for schema in [
            json!({ "type": "object", "properties": { "a": { "type": "no such type", "enum": 1 } } }),
            json!({ "properties": { "a": true }, "required": [7] }),
            json!({ "$ref": "http://example.com/schema.json" }),
            json!({ "type": "no such type" }),
            json!("text"),
            Value::Null,
        ] {
            assert_eq!(check(&schema, &json!({ "a": 1 })), [], "{schema}");
        }
        assert_eq!(check(&json!({}), &json!([])).len(), 1, "content is an object whatever the schema");
    }
}
