//! Keys: who is counted.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt::Write as _;

use crate::Policy;

/// Whom a request is counted against.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

impl Key {
    /// A key of the given text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The key as text: bounded, and free of characters that a store treats specially.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }

    /// The name a store keeps this key's state of a policy under.
    #[must_use]
    pub fn storage_key(&self, policy: &Policy) -> String {
        let mut out = "tg1:".to_string();
        let _ = write!(out, "{}:{}", policy.id(), self.0);
        out
    }
}
