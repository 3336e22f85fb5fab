//! Files in TOML.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::{Node, Value};
use crate::gate::json::Wrong;

/// Reads a text.
pub(super) fn read(text: &str) -> Result<Node, Wrong> {
    match DeTable::parse(text) {
        Ok(root) => Ok(Node { at: 0, value: table(root.into_inner()) }),
        Err(error) => Err(Wrong { at: error.span().map_or(0, |span| span.start), what: error.message().to_string() }),
    }
}

fn table(table: DeTable<'_>) -> Value {
    Value::Table(table.into_iter().map(|(name, value)| (name.into_inner().into_owned(), node(value))).collect())
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    let at = value.span().start;
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            Value::Bare(decimal.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        DeValue::Float(number) => Value::Bare(number.to_string()),
        DeValue::Boolean(flag) => Value::Bare(flag.to_string()),
        DeValue::Datetime(date) => Value::Bare(date.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(node).collect()),
        DeValue::Table(fields) => table(fields),
    };
    Node { at, value }
}
