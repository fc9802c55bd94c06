//! The protocol of one codex, from the JSON schemas that `codex app-server generate-json-schema --experimental` writes.
//!
//! `schemars` writes them in draft 7: references lead into `definitions`, unions are `oneOf` or `anyOf`, constants are in `enum`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most references and unions on the way to a member: definitions may refer to themselves.
const DEPTH_MAX: usize = 32;

/// Keywords without a rule.
const NOTES: [&str; 8] = ["$schema", "title", "description", "default", "format", "examples", "deprecated", "minimum"];

/// The protocol of one codex.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Calls of clients.
    calls: Messages,
    /// Requests to clients.
    asks: Messages,
    /// Notifications to clients.
    tells: Messages,
    /// The types of results, by the names of their files.
    results: BTreeMap<String, Document>,
}

/// A type, with the types in its references.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Document {
    schema: Value,
    definitions: Map<String, Value>,
}

/// Messages of one kind: their parameters by method.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Messages {
    params: BTreeMap<String, Value>,
    definitions: Map<String, Value>,
}

/// The fate of a message. In a union the greatest one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The message fails.
    Rejected,
    /// The member has no effect.
    Ignored,
    Taken,
}

/// A schema with its definitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    schema: &'a Value,
    definitions: &'a Map<String, Value>,
}

impl Schema {
    /// Reads the files of the folder that codex has written: their names below it, and their texts. `None` if they are not a protocol.
    #[must_use]
    pub fn of(files: impl Iterator<Item = (String, Vec<u8>)>) -> Option<Schema> {
        let mut schema = Schema::default();
        for (name, bytes) in files {
            let name = name.rsplit('/').next().unwrap_or_default();
            let Some(name) = name.strip_suffix(".json") else { continue };
            let messages = match name {
                "ClientRequest" => Some(&mut schema.calls),
                "ServerRequest" => Some(&mut schema.asks),
                "ServerNotification" => Some(&mut schema.tells),
                _ => None,
            };
            if messages.is_none() && !name.ends_with("Response") {
                continue;
            }
            let mut document: Value = serde_json::from_slice(&bytes).ok()?;
            shorten(&mut document);
            match messages {
                Some(messages) => *messages = Messages::of(document)?,
                None => {
                    let definitions = definitions(&mut document);
                    schema.results.insert(name.to_owned(), Document { schema: document, definitions });
                }
            }
        }
        (!schema.calls.params.is_empty() && !schema.tells.params.is_empty()).then_some(schema)
    }

    /// The parameters of a call.
    pub(super) fn call(&self, method: &str) -> Option<Node<'_>> {
        self.calls.params(method)
    }

    /// The parameters of a request to a client.
    pub(super) fn asked(&self, method: &str) -> Option<Node<'_>> {
        self.asks.params(method)
    }

    /// The methods of requests to clients.
    pub fn requests(&self) -> impl Iterator<Item = &str> {
        self.asks.params.keys().map(String::as_str)
    }

    /// The methods of calls.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.calls.params.keys().map(String::as_str)
    }

    /// The methods of notifications.
    pub fn notifications(&self) -> impl Iterator<Item = &str> {
        self.tells.params.keys().map(String::as_str)
    }

    /// The result of a call, or the answer to a request: `XParams` has `XResponse`.
    pub(super) fn result_of(&self, method: &str) -> Option<Node<'_>> {
        let params = self.calls.params.get(method).or_else(|| self.asks.params.get(method))?;
        let name = params.get("$ref")?.as_str()?.rsplit('/').next()?.strip_suffix("Params")?;
        let Document { schema, definitions } = self.results.get(&format!("{name}Response"))?;
        Some(Node { schema, definitions })
    }

    /// The members of the parameters of all messages, by method: their names at all depths.
    pub fn members(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        [&self.calls, &self.asks, &self.tells].into_iter().flat_map(Messages::members)
    }
}

impl Messages {
    /// Reads a union of messages.
    fn of(mut document: Value) -> Option<Messages> {
        let mut params = BTreeMap::new();
        for message in document.get("oneOf")?.as_array()? {
            let properties = message.get("properties")?;
            let method = properties.pointer("/method/enum/0")?.as_str()?;
            let of_method = properties.get("params").filter(|params| params.get("type") != Some(&Value::from("null")));
            params.insert(method.to_owned(), of_method.cloned().unwrap_or(Value::Bool(true)));
        }
        Some(Messages { params, definitions: definitions(&mut document) })
    }

    fn members(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.params.keys().filter_map(|method| Some((&**method, self.params(method)?.names())))
    }

    fn params(&self, method: &str) -> Option<Node<'_>> {
        Some(Node { schema: self.params.get(method)?, definitions: &self.definitions })
    }
}

/// Removes the notes.
fn shorten(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        // Below `properties` these are names of members.
        for (name, member) in members.iter_mut() {
            match (&**name, member.as_object_mut()) {
                ("properties" | "definitions", Some(named)) => named.values_mut().for_each(shorten),
                _ => shorten(member),
            }
        }
        members.retain(|name, _| !NOTES.contains(&&**name));
    } else if let Some(elements) = schema.as_array_mut() {
        elements.iter_mut().for_each(shorten);
    }
}

/// Takes the definitions out of a document.
fn definitions(document: &mut Value) -> Map<String, Value> {
    let definitions = document.as_object_mut().and_then(|document| document.remove("definitions"));
    match definitions {
        Some(Value::Object(definitions)) => definitions,
        Some(_) | None => Map::new(),
    }
}

impl<'a> Node<'a> {
    fn at(self, schema: &'a Value) -> Node<'a> {
        Node { schema, ..self }
    }

    /// The alternatives, without references and unions; `None` if the nesting is too deep.
    fn alternatives(self) -> Option<Vec<Node<'a>>> {
        let mut found = Vec::new();
        self.collect(&mut found, DEPTH_MAX).then_some(found)
    }

    fn collect(self, found: &mut Vec<Node<'a>>, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        if let Some(name) = self.schema.get("$ref").and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap_or_default();
            return self.definitions.get(name).is_some_and(|schema| self.at(schema).collect(found, depth));
        }
        match self.schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) if self.schema.get("properties").is_none() => return self.at(only).collect(found, depth),
            Some(_) => return false,
            None => {}
        }
        let unions = ["oneOf", "anyOf"].map(|word| self.schema.get(word).and_then(Value::as_array));
        let branches: Vec<&Value> = unions.into_iter().flatten().flatten().collect();
        if branches.is_empty() {
            found.push(self);
            return true;
        }
        // The members beside a union belong to each branch.
        if self.schema.get("properties").is_some() {
            found.push(self);
        }
        branches.into_iter().all(|branch| self.at(branch).collect(found, depth))
    }

    /// The fate of a member. `value` is a type or a constant in quotes.
    pub(super) fn fit(self, member: &str, value: &str) -> Fit {
        let parts: Vec<&str> = member.split('.').flat_map(elements).filter(|part| !part.is_empty()).collect();
        self.fit_at(&parts, value)
    }

    fn fit_at(self, parts: &[&str], value: &str) -> Fit {
        let Some(alternatives) = self.alternatives() else { return Fit::Taken };
        let fits = alternatives.into_iter().map(|node| match parts.split_first() {
            None => node.fit_value(value),
            Some((part, rest)) => node.fit_part(part, rest, value),
        });
        fits.max().unwrap_or(Fit::Taken)
    }

    fn fit_part(self, part: &str, rest: &[&str], value: &str) -> Fit {
        let has_type = |name| self.types().is_none_or(|types| types.contains(&name));
        if part == "[]" {
            return match self.schema.get("items") {
                Some(items) if has_type("array") => self.at(items).fit_at(rest, value),
                Some(_) | None if has_type("array") => Fit::Taken,
                Some(_) | None => Fit::Rejected,
            };
        }
        if !has_type("object") {
            return Fit::Rejected;
        }
        if let Some(member) = self.schema.get("properties").and_then(|properties| properties.get(part)) {
            return self.at(member).fit_at(rest, value);
        }
        match self.schema.get("additionalProperties") {
            Some(Value::Bool(false)) => Fit::Rejected,
            Some(Value::Bool(true)) => Fit::Taken,
            Some(members) => self.at(members).fit_at(rest, value),
            // An object without any rule, such as `{}`.
            None if self.types().is_none() && self.schema.get("properties").is_none() => Fit::Taken,
            None => Fit::Ignored,
        }
    }

    /// The types that it allows; `None` if it says nothing about types.
    fn types(self) -> Option<Vec<&'a str>> {
        match self.schema.get("type")? {
            Value::String(one) => Some(vec![one]),
            Value::Array(several) => Some(several.iter().filter_map(Value::as_str).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        }
    }

    fn fit_value(self, value: &str) -> Fit {
        if *self.schema == Value::Bool(false) {
            return Fit::Rejected;
        }
        let constant = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let of = constant.map_or(value, |_| "string");
        let allows = |name: &str| name == of || (name == "number" && of == "integer");
        if self.types().is_some_and(|types| !types.into_iter().any(allows)) {
            return Fit::Rejected;
        }
        match (constant, self.constants()) {
            (Some(constant), Some(constants)) if !constants.contains(&constant) => Fit::Rejected,
            (Some(_) | None, _) => Fit::Taken,
        }
    }

    /// The texts that it allows, if only some.
    fn constants(self) -> Option<Vec<&'a str>> {
        let constants = self.schema.get("enum").and_then(Value::as_array)?;
        Some(constants.iter().filter_map(Value::as_str).collect())
    }

    /// The constants that a member may have, over all alternatives.
    pub(super) fn constants_at(self, member: &str) -> Vec<&'a str> {
        let all = self.all_at(member).into_iter().filter_map(Node::constants).flatten();
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The types that a member may have, over all alternatives.
    pub(super) fn types_at(self, member: &str) -> Option<Vec<&'a str>> {
        let types: Option<Vec<_>> = self.all_at(member).into_iter().map(Node::types).collect();
        Some(types?.into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn all_at(self, member: &str) -> Vec<Node<'a>> {
        let mut nodes = self.alternatives().unwrap_or_default();
        for part in member.split('.').flat_map(elements).filter(|part| !part.is_empty()) {
            let next = nodes.into_iter().filter_map(|node| match part {
                "[]" => Some(node.at(node.schema.get("items")?)),
                name => Some(node.at(node.schema.get("properties")?.get(name)?)),
            });
            nodes = next.filter_map(Node::alternatives).flatten().collect();
        }
        nodes
    }

    /// The members that an object at a path must have, whichever alternative it is.
    pub(super) fn required(self, member: &str) -> BTreeSet<&'a str> {
        let is_null = |node: &Node<'a>| node.types().is_some_and(|types| types == ["null"]);
        let alternatives = self.all_at(member).into_iter().filter(|node| !is_null(node));
        let of = |node: Node<'a>| -> BTreeSet<&'a str> {
            let required = node.schema.get("required").and_then(Value::as_array);
            required.into_iter().flatten().filter_map(Value::as_str).collect()
        };
        alternatives.map(of).reduce(|all, of| &all & &of).unwrap_or_default()
    }

    /// The only alternative beside `null`.
    fn only(self) -> Option<Node<'a>> {
        let is_null = |node: &Node<'a>| node.types().is_some_and(|types| types == ["null"]);
        let mut alternatives = self.alternatives()?.into_iter().filter(|node| !is_null(node));
        let only = alternatives.next()?;
        alternatives.next().is_none().then_some(only)
    }

    /// The members that an object always has, with the types and constants that they may have.
    pub(super) fn certain(self) -> BTreeMap<&'a str, Node<'a>> {
        let Some(node) = self.only() else { return BTreeMap::new() };
        let required = node.schema.get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        let member = |name: &'a str| Some((name, node.at(node.schema.get("properties")?.get(name)?)));
        names.filter_map(member).collect()
    }

    /// A member of an object: `Err` if the object lacks it, `Ok(None)` if the schema does not say.
    pub(super) fn member(self, name: &str) -> Result<Option<Node<'a>>, ()> {
        let Some(node) = self.only() else { return Ok(None) };
        match node.schema.get("properties").map(|properties| properties.get(name)) {
            Some(Some(member)) => Ok(Some(node.at(member))),
            Some(None) if node.schema.get("additionalProperties").is_none() => Err(()),
            Some(None) | None => Ok(None),
        }
    }

    /// All types of a value; `None` if the schema does not say.
    pub(super) fn all_types(self) -> Option<Vec<&'a str>> {
        let mut all = Vec::new();
        for node in self.alternatives()? {
            all.extend(node.types()?);
        }
        all.sort_unstable();
        all.dedup();
        Some(all)
    }

    /// The names of its members at all depths, and constants.
    fn names(self) -> Vec<String> {
        let (mut names, mut seen) = (Vec::new(), Vec::new());
        self.add_names(&mut names, &mut seen);
        names.sort_unstable();
        names.dedup();
        names
    }

    fn add_names(self, names: &mut Vec<String>, seen: &mut Vec<&'a str>) {
        if let Some(name) = self.schema.get("$ref").and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap_or_default();
            if !seen.contains(&name)
                && let Some(schema) = self.definitions.get(name)
            {
                seen.push(name);
                self.at(schema).add_names(names, seen);
            }
            return;
        }
        if let Some(properties) = self.schema.get("properties").and_then(Value::as_object) {
            for (name, schema) in properties {
                names.push(name.clone());
                self.at(schema).add_names(names, seen);
            }
        }
        for word in ["items", "additionalProperties"] {
            self.schema.get(word).into_iter().for_each(|schema| self.at(schema).add_names(names, seen));
        }
        for word in ["oneOf", "anyOf", "allOf"] {
            let branches = self.schema.get(word).and_then(Value::as_array);
            branches.into_iter().flatten().for_each(|schema| self.at(schema).add_names(names, seen));
        }
    }
}

/// `input[]` is `input` and `[]`.
fn elements(part: &str) -> impl Iterator<Item = &str> {
    let name = part.find("[]").map_or(part, |at| &part[..at]);
    std::iter::once(name).chain(part.match_indices("[]").map(|(_, brackets)| brackets))
}
