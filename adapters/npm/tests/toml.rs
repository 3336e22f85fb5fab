//! TOML as JSON. On this target the crate is empty, so the test includes the module.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use proptest::prelude::*;

#[path = "../src/toml.rs"]
mod toml;

use self::toml::to_json;

/// The JSON that a value is to become.
fn expected(text: &str, node: &Spanned<DeValue<'_>>) -> serde_json::Value {
    let (kind, value) = match node.get_ref() {
        DeValue::String(text) => (1, serde_json::json!(text)),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let decimal = i64::from_str_radix(digits, number.radix()).map(|number| number.to_string());
            (0, serde_json::json!(decimal.unwrap_or_else(|_| digits.to_string())))
        }
        DeValue::Float(number) => (0, serde_json::json!(number.as_str())),
        DeValue::Boolean(flag) => (0, serde_json::json!(flag.to_string())),
        DeValue::Datetime(date) => (0, serde_json::json!(date.to_string())),
        DeValue::Array(list) => (2, list.iter().map(|node| expected(text, node)).collect()),
        DeValue::Table(table) => (3, pairs(text, table)),
    };
    serde_json::json!([utf16(text, node.span().start), kind, value])
}

fn pairs(text: &str, table: &DeTable<'_>) -> serde_json::Value {
    table.iter().map(|(name, node)| serde_json::json!([name.get_ref(), expected(text, node)])).collect()
}

fn utf16(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().encode_utf16().count()
}

fn is_written_as_it_is_read(text: &str) {
    let expected = match DeTable::parse(text) {
        Ok(root) => serde_json::json!([0, 3, pairs(text, root.get_ref())]),
        Err(wrong) => {
            let at = wrong.span().map_or(0, |span| span.start);
            serde_json::json!({ "at": utf16(text, at), "what": wrong.message() })
        }
    };
    assert_eq!(serde_json::from_str(&to_json(text)).ok(), Some(expected), "{text}");
}

#[test]
fn a_file_has_the_places_that_javascript_counts() {
    assert_eq!(
        to_json("a = 'é😀'\n\"é\" = [0x10, true]"),
        r#"[0,3,[["a",[4,1,"é😀"]],["é",[16,2,[[17,0,"16"],[23,0,"true"]]]]]]"#
    );
    assert_eq!(to_json("# é😀\na = 1\na = 2"), r#"{"at":12,"what":"duplicate key"}"#);
    assert_eq!(to_json(r#"a = "\u0001\"\\\n""#), r#"[0,3,[["a",[4,1,"\u0001\"\\\u000a"]]]]"#);
}

#[test]
fn values_of_each_kind_are_written() {
    for text in [
        "",
        "\u{feff}a = 1",
        "a = 1_000\nb = -0.5e3\nc = inf\nd = nan\ne = 0o17\nf = 99999999999999999999",
        "a = 2026-01-01T00:00:00Z\nb = 07:32:00",
        "a.b.c = {d = [1, [\"x\"], {}]}\n[e]\n[[f]]\ng = '''\n é'''\n[[f]]",
        "a = ",
        "a = \"\\q\"",
        "é = 1",
        "a = 'é",
        "[a]\n[a]",
    ] {
        is_written_as_it_is_read(text);
    }
}

proptest! {
    #[test]
    fn any_text_is_written_as_it_is_read(text in r#"([abé😀]( ?= ?|\.)?|[\[\]{}",'\\#\n]|[0-9]|"[aé😀\\n]{0,2}"){0,24}"#) {
        is_written_as_it_is_read(&text);
    }

    #[test]
    fn any_value_is_written_as_it_is_read(names in prop::collection::vec(("[aé😀]{1,3}", ".*"), 0..4)) {
        let lines = names.iter().map(|(name, text)| format!("\"{name}\" = {}\n", serde_json::json!(text)));
        is_written_as_it_is_read(&lines.collect::<String>());
    }
}
