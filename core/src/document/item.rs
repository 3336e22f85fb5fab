//! The values of a document, as its tables are read.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Node, Source, Value};
use crate::Error;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;

/// A value of a document.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    source: Source<'a>,
    node: &'a Node,
}

impl<'a> Item<'a> {
    pub(crate) const fn of(source: Source<'a>, node: &'a Node) -> Self {
        Self { source, node }
    }

    /// A message about this value, with its position.
    pub(crate) fn message(&self, what: fmt::Arguments<'_>) -> String {
        self.source.at(self.node, what)
    }

    pub(crate) fn invalid(&self, what: fmt::Arguments<'_>) -> Error {
        Error::invalid(self.message(what))
    }

    /// An error about a text that is written here, which begins its message.
    pub(crate) fn wrong(&self, text: &str, what: fmt::Arguments<'_>) -> Error {
        self.invalid(format_args!("{} {what}", Quoted(text)))
    }

    /// An error about what is written here, with its position.
    pub(crate) fn at(&self, error: &Error) -> Error {
        self.invalid(format_args!("{error}"))
    }

    fn expected(&self, what: &str) -> Error {
        let found = match &self.node.value {
            Value::Bare(text) if text == "true" || text == "false" => "true or false",
            Value::Bare(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => "a number",
            Value::Bare(text) => text,
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        };
        self.invalid(format_args!("expected {what}, found {found}"))
    }

    pub(crate) fn flag(&self) -> Result<bool, Error> {
        match &self.node.value {
            Value::Bare(text) if text == "true" => Ok(true),
            Value::Bare(text) if text == "false" => Ok(false),
            _ => Err(self.expected("true or false")),
        }
    }

    pub(crate) fn number(&self) -> Result<u64, Error> {
        let Value::Bare(text) = &self.node.value else { return Err(self.expected("a whole number")) };
        if text.starts_with('-') {
            return Err(self.invalid(format_args!("{text} is negative; write a whole number from 0")));
        }
        text.parse().map_err(|_| self.expected("a whole number"))
    }

    /// A number, `true`, `false` or `null`, as it is written.
    #[cfg(feature = "gate")]
    pub(crate) fn bare(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Bare(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Error> {
        self.node.as_text().ok_or_else(|| self.expected("a text"))
    }

    /// The flag of a field. False without it.
    pub(crate) fn has(&self, name: &str) -> Result<bool, Error> {
        self.field(name).map_or(Ok(false), |item| item.flag())
    }

    /// Reads each value of a list.
    pub(crate) fn each<T>(&self, read: &mut dyn FnMut(&Item<'a>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let Value::List(list) = &self.node.value else { return Err(self.expected("a list")) };
        let mut found = Vec::with_capacity(list.len());
        for node in list {
            found.push(read(&Item::of(self.source, node))?);
        }
        Ok(found)
    }

    /// Reads a value, or each of a list.
    pub(crate) fn one_or_each<T>(&self, read: &mut dyn FnMut(&Item<'a>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        if matches!(self.node.value, Value::List(_)) { self.each(read) } else { Ok(Vec::from([read(self)?])) }
    }

    /// Calls `read` with the name and the value of each entry of a table.
    pub(crate) fn entries(&self, read: &mut dyn FnMut(&'a str, &Item<'a>) -> Result<(), Error>) -> Result<(), Error> {
        let Value::Table(table) = &self.node.value else { return Err(self.expected("a table")) };
        for (name, node) in table {
            read(name, &Item::of(self.source, node))?;
        }
        Ok(())
    }

    /// Checks that a table has no other fields than these.
    pub(crate) fn only(&self, fields: &[&str]) -> Result<(), Error> {
        self.entries(&mut |name, item| {
            if fields.contains(&name) {
                return Ok(());
            }
            Err(item.invalid(format_args!("unknown field `{name}`; {}", Suggestion::of(name, fields))))
        })
    }

    /// A field of a table.
    pub(crate) fn field(&self, name: &str) -> Option<Item<'a>> {
        self.node.get(name).map(|node| Item::of(self.source, node))
    }

    /// A field that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<Item<'a>, Error> {
        self.field(name).ok_or_else(|| self.invalid(format_args!("missing field `{name}`")))
    }
}

/// What only rules files have.
#[cfg(feature = "gate")]
impl<'a> Item<'a> {
    /// The number of a field, if it is there, which must be in a range.
    pub(crate) fn number_in(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Error> {
        let Some(item) = self.field(name) else { return Ok(None) };
        let number = item.number()?;
        if number < least || number > most {
            return Err(
                item.invalid(format_args!("{number} is out of range; write a whole number from {least} to {most}"))
            );
        }
        Ok(Some(number))
    }
}
