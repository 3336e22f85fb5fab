//! Rules files.

use std::path::Path;

use serde_json::{Map, Value};
use tidegate_core::gate::Rules;

use super::Failure;
use crate::export::Source;

/// Reads and checks a rules file, in TOML or JSON.
pub(crate) fn read(file: &Path) -> Result<Rules, Failure> {
    Rules::parse(&file.display().to_string(), &text(file)?).map_err(|error| Failure::Usage(error.to_string()))
}

/// Reads and checks a rules file, to translate it.
pub(crate) fn source(file: &Path) -> Result<Source, Failure> {
    let name = file.display().to_string();
    Source::parse(&name, &text(file)?).map_err(Failure::Usage)
}

/// Reads a rules file as data, and has all its limits count in one store, because a target is one store. None is lent: a fixture says
/// exactly what a limit admits, and with loans that is the most.
pub(crate) fn for_one_store(file: &Path) -> Result<Value, Failure> {
    read(file)?;
    let text = text(file)?;
    let mut rules = match serde_json::from_str::<Value>(&text) {
        Ok(rules) => rules,
        Err(_) => toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?,
    };
    for rule in rules.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        rule.as_object_mut().map(|rule| rule.remove("store"));
    }
    for limit in rules.get_mut("limits").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        limit.as_object_mut().map(|limit| limit.remove("lease"));
    }
    Ok(rules)
}

pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}
