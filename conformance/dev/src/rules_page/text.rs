//! Values of JSON as they are written in TOML and in JavaScript.

use serde_json::{Map, Value};

/// A value of TOML on one line.
pub(super) fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(_) => table(fields(value)),
        other => scalar(other),
    }
}

/// A table of TOML on one line.
pub(super) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Value)>) -> String {
    let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("{name} = {}", toml(value))).collect();
    format!("{{ {} }}", fields.join(", "))
}

/// A quota of a rules file as an option of the npm package.
pub(super) fn javascript(quota: &[(&str, &Value)]) -> String {
    let of = |name: &str| quota.iter().find(|(field, _)| *field == name).and_then(|(_, value)| value.as_str());
    let numbers = quota.iter().filter(|(name, _)| *name != "algorithm");
    let numbers: Vec<_> = numbers.map(|(name, value)| format!("{}: {}", camel(name), scalar(value))).collect();
    format!("{{ {}: {{ {} }} }}", camel(of("algorithm").unwrap_or_default()), numbers.join(", "))
}

/// A name such as `window_ms` as JavaScript has it, `windowMs`.
pub(super) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_string();
    words.fold(first, |text, word| {
        let (letter, rest) = word.split_at(word.len().min(1));
        text + &letter.to_uppercase() + rest
    })
}

/// A number with its digits in groups, or another value as in JSON.
fn scalar(value: &Value) -> String {
    value.as_u64().map_or_else(|| value.to_string(), grouped)
}

/// A number with its digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// The fields of an object, or none.
pub(super) fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}
