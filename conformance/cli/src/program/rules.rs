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

/// Reads and checks a rules file, as data.
pub(crate) fn data(file: &Path) -> Result<Value, Failure> {
    read(file)?;
    let text = text(file)?;
    match serde_json::from_str::<Value>(&text) {
        Ok(rules) => Ok(rules),
        Err(_) => toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", file.display()))),
    }
}

/// Reads a rules file as data, for a target: one store, which answers every call. Nothing is lent: a fixture says exactly what a limit
/// admits, and with loans that is the most. Of what is around a store, only the limit that is asked first can change an answer.
pub(crate) fn for_target(file: &Path) -> Result<Value, Failure> {
    let mut rules = data(file)?;
    for limit in tables(&mut rules, "limits") {
        limit.remove("lease");
    }
    for store in tables(&mut rules, "stores") {
        store.retain(|field, _| field == "near");
    }
    Ok(rules)
}

/// The tables in a table.
fn tables<'a>(rules: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let all = rules.get_mut(name).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    all.filter_map(Value::as_object_mut)
}

pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}
