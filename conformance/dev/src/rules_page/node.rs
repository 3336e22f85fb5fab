//! The schema, read as tables and their keys.

use serde_json::Value;

use super::text::{fields, grouped};

/// A part of the schema.
#[derive(Clone, Copy)]
pub(super) struct Node<'s> {
    root: &'s Value,
    /// What stands where the part is used.
    here: &'s Value,
    /// What that refers to, or the same.
    meant: &'s Value,
}

/// A key of a table.
pub(super) struct Key<'s> {
    pub(super) name: &'s str,
    pub(super) node: Node<'s>,
    is_required: bool,
}

impl<'s> Node<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root, here: root, meant: root }
    }

    fn of(self, here: &'s Value) -> Self {
        let mut meant = here;
        while let Some(target) = meant["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            // `$ref` beside other keywords has them, too: those are words, which are looked up from the outside in.
            meant = &self.root["$defs"][target];
        }
        Self { root: self.root, here, meant }
    }

    /// The part at a path such as `stores.*.fallback`.
    pub(super) fn at(self, path: &str) -> Result<Self, String> {
        let missing = || format!("the schema has no {path}");
        let mut node = self;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
            node = match name {
                "*" => node.of(&node.meant["additionalProperties"]),
                name => node.keys().into_iter().find(|key| key.name == name).ok_or_else(missing)?.node,
            };
            if is_list {
                node = node.of(&node.meant["items"]);
            }
        }
        Ok(node)
    }

    /// The forms that this part can have, if each of them has a title.
    pub(super) fn shapes(self) -> impl Iterator<Item = Self> {
        let forms = self.meant["oneOf"].as_array().into_iter().flatten();
        forms.filter(|form| form["title"].is_string()).map(move |form| self.of(form))
    }

    /// This part, or each of the forms that it can have.
    fn forms(self) -> Vec<Self> {
        let forms = self.meant["oneOf"].as_array().or_else(|| self.meant["anyOf"].as_array());
        forms.map_or_else(|| vec![self], |forms| forms.iter().map(|form| self.of(form)).collect())
    }

    /// The keys, if this is a table with names of its own, in all of its forms: those that it must have, then by their names.
    pub(super) fn keys(self) -> Vec<Key<'s>> {
        let forms = self.forms();
        let is_one = forms.iter().filter(|form| form.meant["properties"].is_object()).count() == 1;
        let mut found: Vec<Key<'s>> = Vec::new();
        for form in forms {
            // A file of rules must have more than one of overrides alone.
            let required = [&form.meant["required"], &form.meant["else"]["required"]];
            let required: Vec<_> = required.into_iter().filter_map(Value::as_array).flatten().collect();
            let place = |name: &str| required.iter().position(|one| *one == name).unwrap_or(usize::MAX);
            let mut all: Vec<_> = fields(&form.meant["properties"]).collect();
            // A map has no order of its own.
            all.sort_by_key(|(name, _)| (place(name), *name));
            for (name, node) in all {
                if !found.iter().any(|key| key.name == name) {
                    found.push(Key { name, node: form.of(node), is_required: is_one && place(name) < usize::MAX });
                }
            }
        }
        found
    }

    /// Collects the paths of the tables from here on.
    pub(super) fn tables(self, path: &str, found: &mut Vec<String>) {
        let below = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        if let Some(shape) = self.shapes().next() {
            found.push(path.to_string());
            // What it shares with the other shapes.
            for key in shape.keys() {
                key.node.tables(&below(key.name), found);
            }
            return;
        }
        let keys = self.keys();
        if !keys.is_empty() {
            found.push(path.to_string());
        }
        for key in keys {
            // A tier has quotas as its limit has them.
            if !path.ends_with(".tiers.*") {
                key.node.tables(&below(key.name), found);
            }
        }
        for form in self.forms() {
            if form.meant["additionalProperties"].is_object() {
                form.of(&form.meant["additionalProperties"]).tables(&below("*"), found);
            }
            if form.meant["items"].is_object() {
                form.of(&form.meant["items"]).tables(&format!("{path}[]"), found);
            }
        }
    }

    fn word(self, name: &str) -> Option<&'s Value> {
        let mut value = self.here;
        loop {
            if let Some(found) = value.get(name) {
                return Some(found);
            }
            value = &self.root["$defs"][value["$ref"].as_str()?.strip_prefix("#/$defs/")?];
        }
    }

    pub(super) fn title(self) -> Option<&'s str> {
        self.word("title")?.as_str()
    }

    pub(super) fn words(self) -> Option<&'s str> {
        self.word("description")?.as_str()
    }

    /// The examples of a form, with the fields in the order of its keys.
    pub(super) fn ordered_examples(self) -> impl Iterator<Item = Vec<(&'s str, &'s Value)>> {
        let order: Vec<_> = self.keys().into_iter().map(|key| key.name).collect();
        self.examples().map(move |example| order.iter().filter_map(|name| Some((*name, example.get(*name)?))).collect())
    }

    fn examples(self) -> impl Iterator<Item = &'s Value> {
        self.word("examples").and_then(Value::as_array).into_iter().flatten()
    }

    pub(super) fn example(self) -> Option<&'s Value> {
        self.examples().next()
    }

    /// What a value is, in words.
    pub(super) fn kind(self) -> String {
        let forms = self.forms();
        if forms.len() > 1 {
            let mut kinds: Vec<_> = forms.into_iter().map(|form| form.kind()).collect();
            kinds.dedup();
            return kinds.join(" or ");
        }
        let is_text = |value: &Value| value.as_str() == Some("string");
        if let Some(values) = self.meant["enum"].as_array() {
            return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
        }
        match self.meant["type"].as_str() {
            Some("boolean") => "boolean".into(),
            Some("integer") => format!("number{}", self.bounds()),
            Some("string") => "text".into(),
            Some("array") => format!("list of {}", plural(&self.of(&self.meant["items"]).kind())),
            Some("object") if is_text(&self.meant["additionalProperties"]["type"]) => "table of texts".into(),
            Some("object") => "table".into(),
            _ if self.meant["const"].is_boolean() => "boolean".into(),
            _ => "table".into(),
        }
    }

    fn bounds(self) -> String {
        let bound = |name: &str| self.meant[name].as_u64().map(number);
        match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!(", {least} to {most}"),
            (Some(least), None) => format!(" from {least}"),
            _ => String::new(),
        }
    }
}

impl Key<'_> {
    /// How a table of this name begins.
    pub(super) fn header(&self, path: &str) -> String {
        let path = path.replace("[]", "").replace('*', "NAME").replace('.', if path == "." { "" } else { "." });
        let whole = if path.is_empty() { self.name.to_string() } else { format!("{path}.{}", self.name) };
        match self.node.meant["type"].as_str() {
            Some("array") => format!("[[{whole}]]"),
            _ if self.node.meant["additionalProperties"].is_object() => format!("[{whole}.NAME]"),
            _ => format!("[{whole}]"),
        }
    }

    pub(super) fn default(&self) -> String {
        match self.node.word("default") {
            Some(default) => format!("`{}`", super::toml(default)),
            None if self.is_required => "required".into(),
            None => "none".into(),
        }
    }

    /// What it does.
    pub(super) fn words(&self, path: &str) -> Result<String, String> {
        let words = self.node.words().ok_or_else(|| format!("{path}: the key {} has no description", self.name))?;
        Ok(words.to_string())
    }
}

/// A bound. The largest number of units is a power.
fn number(value: u64) -> String {
    if value == 1 << 51 { "2^51".into() } else { grouped(value).replace('_', ",") }
}

fn plural(kind: &str) -> String {
    match kind {
        "text" => "texts".into(),
        "table" => "tables".into(),
        other => other.strip_prefix("number").map_or_else(|| other.into(), |bounds| format!("numbers{bounds}")),
    }
}
