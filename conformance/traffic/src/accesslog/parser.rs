//! Reads a line, in whichever format it is.

use super::entry::{Parsed, Unreadable};
use super::fields::Fields;
use super::time::Clock;
use super::{combined, json};

/// Reads lines of access logs: the common and the combined format, both also with a host in front or more fields behind, and
/// JSON. Each line may have another format.
///
/// ```
/// use tidegate_traffic::accesslog::{Fields, Parsed, Parser};
/// let mut parser = Parser::new(Fields::default());
/// let line = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.1" 200 2326 "-" "Mozilla/5.0""#;
/// let Ok(Parsed::Request(entry)) = parser.parse(line) else { panic!() };
/// assert_eq!((entry.at.get(), &*entry.method, &*entry.path), (971_211_336_000, "GET", "/index.html"));
/// ```
#[derive(Debug, Default)]
pub struct Parser {
    fields: Fields,
    clock: Clock,
}

impl Parser {
    /// A parser. `fields` are those of lines in JSON.
    #[must_use]
    pub fn new(fields: Fields) -> Self {
        Self { fields, clock: Clock::default() }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// [`Unreadable`] if it is not in a known format.
    pub fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Unreadable> {
        let line = line.trim_ascii();
        match line.as_bytes().first() {
            None => Ok(Parsed::Blank),
            Some(b'{') => json::parse(line, &self.fields, &mut self.clock),
            Some(_) => combined::parse(line, &mut self.clock),
        }
    }
}
