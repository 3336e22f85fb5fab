//! A file as a tree, which one visitor reads. A type for each table would take several times as much code in WebAssembly.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Source, Step};
use crate::Error;
use crate::gate::names::Instead;

/// A value of a file.
#[derive(Debug)]
pub(super) enum Node {
    Flag(bool),
    Number(u64),
    Text(String),
    List(Vec<Node>),
    /// No two have the same name.
    Table(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, a list, a text, true or false, or a whole number")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        let negative = |_| E::custom(format_args!("{number} is negative; write a whole number from 0"));
        u64::try_from(number).map(Node::Number).map_err(negative)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut found = Vec::new();
        while let Some(value) = list.next_element()? {
            found.push(value);
        }
        Ok(Node::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Node, A::Error> {
        let mut found: Vec<(String, Node)> = Vec::new();
        while let Some(name) = table.next_key::<String>()? {
            // JSON allows this.
            if found.iter().any(|(known, _)| *known == name) {
                return Err(de::Error::custom(format_args!("{name:?} is written twice; write it once")));
            }
            found.push((name, table.next_value()?));
        }
        Ok(Node::Table(found))
    }
}

/// A value and its place in the file.
#[derive(Clone, Copy)]
pub(in crate::gate) struct Item<'a> {
    source: Source<'a>,
    node: &'a Node,
    parent: Option<(&'a Item<'a>, Step<'a>)>,
}

impl<'a> Item<'a> {
    pub(super) const fn root(source: Source<'a>, node: &'a Node) -> Self {
        Self { source, node, parent: None }
    }

    /// A message about this value, with its position.
    pub(in crate::gate) fn message(&self, what: fmt::Arguments<'_>) -> String {
        let mut path = Vec::new();
        let mut here = self;
        while let Some((parent, step)) = here.parent {
            path.push(step);
            here = parent;
        }
        path.reverse();
        self.source.at(&path, what)
    }

    pub(in crate::gate) fn invalid(&self, what: fmt::Arguments<'_>) -> Error {
        Error::invalid(self.message(what))
    }

    fn expected(&self, what: &str) -> Error {
        let found = match self.node {
            Node::Flag(_) => "true or false",
            Node::Number(_) => "a number",
            Node::Text(_) => "a text",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
        };
        self.invalid(format_args!("expected {what}, found {found}"))
    }

    pub(in crate::gate) fn flag(&self) -> Result<bool, Error> {
        if let Node::Flag(flag) = self.node { Ok(*flag) } else { Err(self.expected("true or false")) }
    }

    pub(in crate::gate) fn number(&self) -> Result<u64, Error> {
        if let Node::Number(number) = self.node { Ok(*number) } else { Err(self.expected("a whole number")) }
    }

    pub(in crate::gate) fn text(&self) -> Result<&'a str, Error> {
        if let Node::Text(text) = self.node { Ok(text) } else { Err(self.expected("a text")) }
    }

    /// Reads each value of a list.
    pub(in crate::gate) fn each<T>(
        &self,
        mut read: impl FnMut(&Item<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let Node::List(list) = self.node else { return Err(self.expected("a list")) };
        let mut found = Vec::with_capacity(list.len());
        for (place, node) in list.iter().enumerate() {
            found.push(read(&Item { source: self.source, node, parent: Some((self, Step::Place(place))) })?);
        }
        Ok(found)
    }

    /// Reads a value, or each of a list.
    pub(in crate::gate) fn one_or_each<T>(
        &self,
        mut read: impl FnMut(&Item<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        if matches!(self.node, Node::List(_)) { self.each(read) } else { Ok(vec![read(self)?]) }
    }

    /// Calls `read` with the name and the value of each entry of a table.
    pub(in crate::gate) fn entries(
        &self,
        read: &mut dyn FnMut(&str, &Item<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Node::Table(table) = self.node else { return Err(self.expected("a table")) };
        for (name, node) in table {
            read(name, &Item { source: self.source, node, parent: Some((self, Step::Key(name))) })?;
        }
        Ok(())
    }

    /// Checks that a table has no other fields than these.
    pub(in crate::gate) fn only(&self, fields: &[&str]) -> Result<(), Error> {
        self.entries(&mut |name, item| {
            if fields.contains(&name) {
                return Ok(());
            }
            Err(item.invalid(format_args!("unknown field `{name}`; {}", Instead::of(name, fields))))
        })
    }

    /// A field of a table.
    pub(in crate::gate) fn field<'b>(&'b self, name: &'b str) -> Option<Item<'b>> {
        let Node::Table(table) = self.node else { return None };
        let (_, node) = table.iter().find(|(known, _)| known == name)?;
        Some(Item { source: self.source, node, parent: Some((self, Step::Key(name))) })
    }

    /// A field that must be there.
    pub(in crate::gate) fn required<'b>(&'b self, name: &'b str) -> Result<Item<'b>, Error> {
        self.field(name).ok_or_else(|| self.invalid(format_args!("missing field `{name}`")))
    }
}
