//! The reference part of `core/docs/rules.md`, made from the schema of rules files.
//!
//! The page has a pair of comments for each table of a file, `<!-- schema: rules[] -->` and `<!-- end of rules[] -->`. What is between
//! them is made here. A path names a table: `.` is the file, `limits.*` any limit,
//! `rules[]` an item of a list.

mod node;
mod text;

use std::fmt::Write as _;

use serde_json::Value;

use self::node::{Key, Node};
use self::text::{camel, javascript, table, toml};

/// The page that has the words of the schema in the place of those it has.
///
/// # Errors
/// A message if the page names a table that the schema does not have, or if a key of the schema has no words.
pub fn page(page: &str, schema: &Value) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once("<!-- schema: ") {
        let (path, after) = after.split_once(" -->").ok_or("a comment has no end")?;
        let end = format!("<!-- end of {path} -->");
        let (_, after) = after.split_once(&end).ok_or_else(|| format!("{end} is missing"))?;
        let node = Node::new(schema).at(path)?;
        let reference = if node.shapes().next().is_some() { shapes(&node)? } else { keys(&node.keys(), path)? };
        made += &format!("{before}<!-- schema: {path} -->\n\n{reference}\n{end}");
        rest = after;
    }
    Ok(made + rest)
}

/// The tables of a file that the page has, in its order.
pub fn tables(page: &str) -> impl Iterator<Item = &str> {
    page.split("<!-- schema: ").skip(1).filter_map(|part| Some(part.split_once(" -->")?.0))
}

/// All tables of a file, by the schema.
#[must_use]
pub fn tables_of(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Node::new(schema).tables("", &mut found);
    found.into_iter().map(|path| if path.is_empty() { ".".into() } else { path }).collect()
}

/// The keys of a table, as rows.
fn keys(keys: &[Key<'_>], path: &str) -> Result<String, String> {
    let mut rows = String::from("| key | type | default | what it does |\n|-|-|-|-|\n");
    for key in keys {
        let written = match key.node.example() {
            Some(example) => format!("{} = {}", key.name, toml(example)),
            None => key.header(path),
        };
        let (written, kind, default) = (cell(&written), key.node.kind(), key.default());
        let _ = writeln!(rows, "| `{written}` | {} | {} | {} |", cell(&kind), cell(&default), cell(&key.words(path)?));
    }
    Ok(rows)
}

/// The forms that a quota can have, and how each is written in a file and in the options of the npm package.
fn shapes(node: &Node<'_>) -> Result<String, String> {
    let mut made = String::from("Each quota may have:\n\n");
    let is_shared = |key: &Key<'_>| ["name", "by", "limit_from", "warn_at"].contains(&key.name);
    let first = node.shapes().next().ok_or("there is no form")?;
    let shared: Vec<_> = first.keys().into_iter().filter(is_shared).collect();
    made += &keys(&shared, "a quota")?;
    for shape in node.shapes() {
        let (title, words) = (shape.title().ok_or("a form has no title")?, shape.words().ok_or("a form has no words")?);
        let _ = write!(made, "\n**{title}.** {words}\n\n| field | type | default | what it is |\n|-|-|-|-|\n");
        for key in shape.keys().iter().filter(|key| !is_shared(key) && key.name != "algorithm") {
            let (kind, default, words) = (key.node.kind(), key.default(), key.words(title)?);
            let _ = writeln!(made, "| `{}`, npm `{}` | {kind} | {default} | {words} |", key.name, camel(key.name));
        }
        made += "\n| in a rules file | in the options of the npm package |\n|-|-|\n";
        for example in shape.ordered_examples() {
            let (file, options) = (table(example.iter().copied()), javascript(&example));
            let _ = writeln!(made, "| `{file}` | `{options}` |");
        }
    }
    Ok(made)
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
