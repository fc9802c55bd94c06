//! Validation of a value in a form against the schema of its field.
//!
//! Pure. It checks what a form of MCP can ask for: type, choices, range, length, format, number of choices (`PrimitiveSchemaDefinition`,
//! 2025-11-25; codex passes on nothing else). Other keywords of JSON Schema appear only in forms of OpenAI's own mode; the server that
//! asked checks them. The schema is untrusted.

use jiff::{Timestamp, civil::Date};
use serde_json::{Number, Value};

/// The rule that a value violates.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rule<'a> {
    Type(&'a str),
    /// The value is not one of the choices.
    Choice,
    Minimum(&'a Number),
    Maximum(&'a Number),
    /// In characters.
    MinLength(u64),
    /// In characters.
    MaxLength(u64),
    MinItems(u64),
    MaxItems(u64),
    Format(&'a str),
}

/// The first rule of a schema that `value` violates, with the value: `value` itself or one of its items. A keyword with an invalid value
/// is no rule.
pub(super) fn violation<'a>(schema: &'a Value, value: &'a Value) -> Option<(&'a Value, Rule<'a>)> {
    let wrong = |rule| Some((value, rule));
    if let Some(name) = schema["type"].as_str()
        && !has_type(value, name)
    {
        return wrong(Rule::Type(name));
    }
    if !is_choice(schema, value) {
        return wrong(Rule::Choice);
    }
    match value {
        Value::Number(number) => match (&schema["minimum"], &schema["maximum"]) {
            (Value::Number(least), _) if is_less(number, least) => wrong(Rule::Minimum(least)),
            (_, Value::Number(most)) if is_less(most, number) => wrong(Rule::Maximum(most)),
            _ => None,
        },
        Value::String(text) => {
            let length = text.chars().count() as u64;
            let format = schema["format"].as_str().filter(|format| !has_format(text, format));
            match (schema["minLength"].as_u64(), schema["maxLength"].as_u64()) {
                (Some(least), _) if length < least => wrong(Rule::MinLength(least)),
                (_, Some(most)) if length > most => wrong(Rule::MaxLength(most)),
                _ => format.and_then(|format| wrong(Rule::Format(format))),
            }
        }
        Value::Array(items) => match (schema["minItems"].as_u64(), schema["maxItems"].as_u64()) {
            (Some(least), _) if (items.len() as u64) < least => wrong(Rule::MinItems(least)),
            (_, Some(most)) if items.len() as u64 > most => wrong(Rule::MaxItems(most)),
            // The items of items are values of no form.
            _ => items.iter().filter(|item| !item.is_array()).find_map(|item| violation(&schema["items"], item)),
        },
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

/// Whether a schema offers a value; one without choices offers all.
fn is_choice(schema: &Value, value: &Value) -> bool {
    if let Some(values) = schema["enum"].as_array() {
        return values.contains(value);
    }
    let titled = ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array());
    // Members that are not constants are schemas of another kind.
    titled.is_none_or(|options| options.iter().any(|option| option.get("const").is_none_or(|offered| offered == value)))
}

/// Whole numbers are compared exactly, others as floating point.
fn is_less(left: &Number, right: &Number) -> bool {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => left < right,
        _ => left.as_f64().zip(right.as_f64()).is_some_and(|(left, right)| left < right),
    }
}

/// Whether a text has a format. The check rejects what is certainly wrong, and accepts every unknown format.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "email" => is_email(text),
        "uri" => is_uri(text),
        "date" => text.len() == "2026-01-31".len() && text.parse::<Date>().is_ok(),
        "date-time" => text.contains(['T', 't']) && !text.ends_with(']') && text.parse::<Timestamp>().is_ok(),
        _ => true,
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, host)) = text.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_plain = !local.is_empty() && !local.contains(|sign: char| sign == '@' || sign.is_whitespace());
    (is_quoted || is_plain) && host.split('.').all(|label| !label.is_empty() && !label.contains(char::is_whitespace))
}

/// RFC 3986: a scheme, and only characters that a URI may contain.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    scheme.starts_with(|sign: char| sign.is_ascii_alphabetic())
        && scheme.chars().all(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign))
        && rest.chars().all(|sign| sign.is_ascii_graphic() && !"\"<>\\^`{|}".contains(sign))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn valid_values_violate_nothing() {
        for (schema, value) in [
            (json!({ "type": "integer", "minimum": 1, "maximum": 3 }), json!(3)),
            (json!({ "type": "integer" }), json!(3.0)),
            (json!({ "type": "number", "maximum": 0.5 }), json!(0.5)),
            (json!({ "type": "integer", "maximum": u64::MAX }), json!(u64::MAX)),
            (json!({ "type": "string", "minLength": 2, "maxLength": 2 }), json!("äö")),
            (json!({ "type": "string", "enum": ["a", "b"] }), json!("b")),
            (json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }] }), json!("a")),
            (json!({ "type": "array", "items": { "anyOf": [{ "const": "a" }] }, "maxItems": 1 }), json!(["a"])),
            (json!({ "type": "string", "format": "email" }), json!("ada@example.org")),
            (json!({ "type": "string", "format": "email" }), json!("\"a b\"@example.org")),
            (json!({ "type": "string", "format": "uri" }), json!("mailto:ada@example.org")),
            (json!({ "type": "string", "format": "uri" }), json!("https://[::1]:80/a?b=%20#c")),
            (json!({ "type": "string", "format": "date" }), json!("2024-02-29")),
            (json!({ "type": "string", "format": "date-time" }), json!("2026-01-31T12:00:00Z")),
            (json!({ "type": "string", "format": "date-time" }), json!("2026-01-31T12:00:00.5+02:00")),
            (json!({ "type": "string", "format": "of another kind" }), json!("x")),
            // Keywords without a valid value, and those of other forms.
            (json!({ "type": 7, "minimum": "1", "maxLength": -1, "enum": "a", "pattern": "(" }), json!("x")),
            (json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }), json!("x")),
            (json!(true), json!("x")),
        ] {
            assert_eq!(violation(&schema, &value), None, "{schema} {value}");
        }
    }

    #[test]
    fn invalid_values_violate_one_rule() {
        let check = |schema: Value, value: Value, expect: &str| {
            let rule = violation(&schema, &value).map(|(value, rule)| format!("{value} {rule:?}"));
            assert_eq!(rule.as_deref(), Some(expect), "{schema}");
        };
        check(json!({ "type": "integer" }), json!(1.5), "1.5 Type(\"integer\")");
        check(json!({ "type": "string" }), json!(1), "1 Type(\"string\")");
        check(json!({ "type": "boolean" }), json!("true"), "\"true\" Type(\"boolean\")");
        check(json!({ "minimum": 1 }), json!(0.9), "0.9 Minimum(Number(1))");
        check(
            json!({ "maximum": u64::MAX - 1 }),
            json!(u64::MAX),
            &format!("{} Maximum(Number({}))", u64::MAX, u64::MAX - 1),
        );
        check(json!({ "minLength": 3 }), json!("äö"), "\"äö\" MinLength(3)");
        check(json!({ "maxLength": 1 }), json!("äö"), "\"äö\" MaxLength(1)");
        check(json!({ "enum": ["a"] }), json!("A"), "\"A\" Choice");
        check(json!({ "oneOf": [{ "const": "a" }] }), json!("b"), "\"b\" Choice");
        check(json!({ "minItems": 1 }), json!([]), "[] MinItems(1)");
        check(json!({ "maxItems": 1 }), json!([1, 2]), "[1,2] MaxItems(1)");
        check(json!({ "items": { "enum": ["a"] } }), json!(["a", "b"]), "\"b\" Choice");
        for (format, texts) in [
            ("email", &["ada", "@example.org", "a da@example.org", "ada@", "ada@a..b"][..]),
            ("uri", &["example.org", "://x", "1a:b", "a:b c", "a:<b>"]),
            ("date", &["2023-02-29", "2024-2-9", "20240229", "2024-02-29T00:00:00Z"]),
            ("date-time", &["2026-01-31", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T25:00:00Z"]),
        ] {
            for text in texts {
                check(json!({ "format": format }), json!(text), &format!("\"{text}\" Format({format:?})"));
            }
        }
    }
}
