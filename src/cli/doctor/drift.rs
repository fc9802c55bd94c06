//! Compares the parts of the protocol that we use with the schema that codex writes.

use std::cell::Cell;
use std::path::Path;

use serde_json::Value;

use crate::protocol::{Method, RESPONSES};

/// A message or response, and the fields of it that are used.
struct Touched {
    /// The schema file, without `.json`.
    file: &'static str,
    /// The method, in files that cover several kinds of messages; `None` in the file of one response.
    method: Option<&'static str>,
    /// Paths of the used fields.
    fields: &'static [&'static str],
}

/// All messages and responses that this program uses and that a schema can describe, grouped by file.
fn all_touched() -> impl Iterator<Item = Touched> {
    let messages = Method::ALL.iter().filter_map(|method| {
        Some(Touched { file: method.listed().file()?, method: Some(method.name()), fields: method.fields() })
    });
    messages.chain(RESPONSES.iter().map(|response| Touched {
        file: response.file,
        method: None,
        fields: response.fields,
    }))
}

/// Most schemas visited for one field, and the greatest depth. codex's own need a few hundred, and less than twenty. A schema
/// may refer to itself.
const STEPS_MAX: usize = 10_000;
const DEPTH_MAX: usize = 40;

/// The number of methods and fields that we use.
pub(super) fn touched() -> (usize, usize) {
    let methods = all_touched().filter(|touched| touched.method.is_some()).count();
    (methods, all_touched().map(|touched| touched.fields.len()).sum())
}

/// The methods, and fields as `METHOD: FIELD`, that the schema in `folder` lacks; `None` if there is no schema.
pub(super) fn missing(folder: &Path) -> Option<Vec<String>> {
    let mut missing = Vec::new();
    let mut last: Option<(&str, Value)> = None;
    for touched in all_touched() {
        if last.as_ref().is_none_or(|(file, _)| *file != touched.file) {
            last = read(folder, touched.file).map(|schema| (touched.file, schema));
        }
        match (&last, touched.method) {
            (Some((_, schema)), method) => lacks(schema, &touched, method, &mut missing),
            // A missing response file belongs to a request that is reported already.
            (None, None) => {}
            (None, Some(_)) => return None,
        }
    }
    Some(missing)
}

fn read(folder: &Path, file: &str) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join(format!("{file}.json"))).ok()?).ok()
}

fn lacks(schema: &Value, touched: &Touched, method: Option<&str>, missing: &mut Vec<String>) {
    let within = match method {
        None => Some(schema),
        Some(method) => kind(schema, method).map(|kind| kind.get("params").unwrap_or(&Value::Bool(true))),
    };
    let name = method.unwrap_or_else(|| touched.file.trim_start_matches("v2/"));
    let Some(within) = within else {
        missing.push(name.to_owned());
        return;
    };
    for field in touched.fields {
        let path: Vec<&str> = field.split('.').collect();
        if !Search::of(schema).finds(within, &path, DEPTH_MAX) {
            missing.push(format!("{name}: {field}"));
        }
    }
}

/// The properties of the message kind with this method: `{"method": {"enum": [NAME]}, "params": …}`.
fn kind<'a>(schema: &'a Value, method: &str) -> Option<&'a Value> {
    let kinds = schema["oneOf"].as_array()?;
    kinds.iter().map(|kind| &kind["properties"]).find(|properties| {
        properties["method"]["enum"].as_array().is_some_and(|names| names.iter().any(|n| n == method))
    })
}

/// A search for one field.
struct Search<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

impl<'a> Search<'a> {
    fn of(root: &'a Value) -> Search<'a> {
        Search { root, steps_left: Cell::new(STEPS_MAX) }
    }

    /// Whether `schema` allows a field at `path`.
    fn finds(&self, schema: &Value, path: &[&str], depth: usize) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let (Some(depth), Some(steps)) = (depth.checked_sub(1), self.steps_left.get().checked_sub(1)) else {
            return false;
        };
        self.steps_left.set(steps);
        // The schema `true` allows anything.
        let Some(object) = schema.as_object() else { return schema == &Value::Bool(true) };
        let says_nothing = !["$ref", "allOf", "anyOf", "oneOf", "items", "properties", "type", "enum"]
            .iter()
            .any(|keyword| object.contains_key(*keyword));
        let refers = object.get("$ref").and_then(Value::as_str);
        let referred = refers.and_then(|to| self.root.pointer(to.trim_start_matches('#')));
        let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|of| object.get(of)?.as_array()).flatten();
        let within = object.get("properties").and_then(|fields| fields.get(first));
        says_nothing
            || within.is_some_and(|within| self.finds(within, rest, depth))
            || parts.chain(referred).chain(object.get("items")).any(|part| self.finds(part, path, depth))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A schema with everything that we use, except `without`.
    fn written(without: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::create_dir(folder.path().join("v2")).expect("create");
        for touched in all_touched() {
            let alike = all_touched().filter(|other| other.file == touched.file);
            let kinds: Vec<Value> = alike
                .filter(|other| other.method.is_some_and(|method| method != without))
                .map(|other| json!({"properties": {"method": {"enum": [other.method]}, "params": object(&other, without)}}))
                .collect();
            let schema = if touched.method.is_some() { json!({ "oneOf": kinds }) } else { object(&touched, without) };
            std::fs::write(folder.path().join(format!("{}.json", touched.file)), schema.to_string()).expect("write");
        }
        folder
    }

    fn object(touched: &Touched, without: &str) -> Value {
        let mut schema = json!({"type": "object"});
        for field in touched.fields.iter().filter(|field| **field != without) {
            let mut at = &mut schema;
            for step in field.split('.') {
                at = &mut at["properties"][step];
            }
            at["type"] = json!("string");
        }
        schema
    }

    #[test]
    fn missing_schema_parts_are_named() {
        let none = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(missing(none.path()), None);
        assert_eq!(missing(written("").path()), Some(Vec::new()));
        assert_eq!(missing(written("turn/steer").path()), Some(vec!["turn/steer".to_owned()]));
        assert_eq!(
            missing(written("questions.isSecret").path()),
            Some(vec!["item/tool/requestUserInput: questions.isSecret".to_owned()])
        );
        assert_eq!(missing(written("data.preview").path()), Some(vec!["ThreadListResponse: data.preview".to_owned()]));
    }

    #[test]
    fn fields_are_found_through_references() {
        let root = json!({"definitions": {
            "Turn": {"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "#/definitions/Item"}}}},
            "Item": {"oneOf": [
                {"type": "object", "properties": {"command": {"type": "string"}}},
                {"anyOf": [{"type": "null"}, {"allOf": [{"type": "object", "properties": {"text": {}}}]}]},
            ]},
            "Round": {"oneOf": [{"$ref": "#/definitions/Round"}, {"$ref": "#/definitions/Round"}]},
        }});
        let turn = json!({"$ref": "#/definitions/Turn"});
        let found = |path: &str| Search::of(&root).finds(&turn, &path.split('.').collect::<Vec<_>>(), DEPTH_MAX);
        assert!(found("items.command"));
        assert!(found("items.text"));
        assert!(found("items.text.anything"), "a field of which the schema says nothing");
        assert!(!found("items.command.deeper"));
        assert!(!found("items.no"));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/Round"}), &["x"], DEPTH_MAX));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/None"}), &["x"], DEPTH_MAX));
    }
}
