//! What to write in place of an unknown name.

use core::fmt;

#[cfg(feature = "std")]
use strsim::osa_distance;

use crate::quoted_text::Quoted;

/// What measures distances needs the standard library. Without it, no name is near.
#[cfg(not(feature = "std"))]
const fn osa_distance(_: &str, _: &str) -> usize {
    usize::MAX
}

/// The end of a message about an unknown name: the nearest known name, if one is near, and all of them.
#[derive(Debug)]
pub struct Suggestion<'a> {
    unknown: &'a str,
    known: &'a [&'a str],
}

impl<'a> Suggestion<'a> {
    /// The end of a message about a name that is none of these.
    #[must_use]
    pub const fn of(unknown: &'a str, known: &'a [&'a str]) -> Self {
        Self { unknown, known }
    }

    /// The known name that takes the fewest changes, if these are at most a third of its letters, and not all of them.
    pub(crate) fn nearest(&self) -> Option<&'a str> {
        let distance = |name: &&'a str| (osa_distance(self.unknown, name), *name);
        // Longer than any name: not worth the time.
        let near = self.known.iter().filter(|_| self.unknown.len() <= 64).map(distance).min()?;
        let is_near = |(changes, name): &(usize, &str)| *changes <= name.len().div_ceil(3) && *changes < name.len();
        Some(near).filter(is_near).map(|(_, name)| name)
    }
}

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.nearest() {
            write!(f, "did you mean {}? ", Quoted(name))?;
        }
        f.write_str(if self.nearest().is_some() { "Write one of " } else { "write one of " })?;
        for (place, name) in self.known.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, Quoted(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Suggestion;

    #[test]
    fn a_near_name_is_named_first() {
        let said = |unknown: &str| Suggestion::of(unknown, &["sender", "ip", "global"]).to_string();
        assert_eq!(said("ipp"), r#"did you mean "ip"? Write one of "sender", "ip", "global""#);
        assert_eq!(said("gloabl"), r#"did you mean "global"? Write one of "sender", "ip", "global""#);
        assert_eq!(said("tenant"), r#"write one of "sender", "ip", "global""#);
        assert_eq!(said(&"ip".repeat(99)), r#"write one of "sender", "ip", "global""#);
    }
}
