//! What a rules file says, or what `serde` reads, as a tree of values with their places.

mod item;
#[cfg(feature = "serde")]
mod serde;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub(crate) use self::item::Item;
#[cfg(feature = "serde")]
use crate::quoted_text::Quoted;

/// A value, and where it begins in the text, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A number, `true`, `false` or `null`, as it is written.
    Bare(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Node {
    /// A value of a table by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Table(table) = &self.value else { return None };
        table.iter().rfind(|(known, _)| known == name).map(|(_, node)| node)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The path to a value in this one, such as `.quotas[0].limit`.
    #[cfg(feature = "serde")]
    fn path_to(&self, wanted: &Self) -> Option<String> {
        if core::ptr::eq(self, wanted) {
            return Some(String::new());
        }
        match &self.value {
            Value::List(list) => list.iter().enumerate().find_map(|(place, node)| {
                let rest = node.path_to(wanted)?;
                Some(format!("[{place}]{rest}"))
            }),
            Value::Table(table) => table.iter().find_map(|(name, node)| {
                let rest = node.path_to(wanted)?;
                let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
                Some(if is_plain { format!(".{name}{rest}") } else { format!("[{}]{rest}", Quoted(name)) })
            }),
            _ => None,
        }
    }
}

/// A file's name and text.
#[cfg(feature = "gate")]
#[derive(Clone, Copy)]
pub(crate) struct FileText<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

#[cfg(feature = "gate")]
impl FileText<'_> {
    /// A message about what is at this byte, with its line and its column in characters, both from 1.
    pub(crate) fn at(self, place: usize, what: fmt::Arguments<'_>) -> String {
        let (mut line, mut column) = (1_usize, 1_usize);
        for character in self.text.get(..place).unwrap_or_default().chars() {
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        format!("{}:{line}:{column}: {what}", self.name)
    }
}

/// What a value is part of.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    #[cfg(feature = "gate")]
    File(FileText<'a>),
    /// A tree whose text nobody has seen.
    #[cfg(feature = "serde")]
    Tree(&'a Node),
}

impl Source<'_> {
    /// A message about a value, with its position in the file, or its path in the tree.
    fn at(&self, node: &Node, what: fmt::Arguments<'_>) -> String {
        match self {
            #[cfg(feature = "gate")]
            Self::File(file) => file.at(node.at, what),
            #[cfg(feature = "serde")]
            Self::Tree(root) => match root.path_to(node).unwrap_or_default() {
                path if path.is_empty() => format!("{what}"),
                path => format!("{}: {what}", path.strip_prefix('.').unwrap_or(&path)),
            },
        }
    }
}
