//! Texts in messages.

use core::fmt::{self, Write as _};

/// A text in quotes, with escapes for quotes, line ends and what cannot be seen. The npm package writes the same, which
/// would need Unicode's tables for what `Debug` does with texts.
#[derive(Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                // Controls, and characters that change the direction or the width of others.
                '\0'..' '
                | '\u{7f}'..='\u{9f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => {
                    write!(f, "\\u{{{:x}}}", u32::from(character))?;
                }
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::Quoted;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for (text, quoted) in [
            ("", r#""""#),
            ("api é 😀", r#""api é 😀""#),
            ("a\"b\\\n", r#""a\"b\\\n""#),
            ("\u{1b}[31m\u{85}\u{202e}x\u{feff}", r#""\u{1b}[31m\u{85}\u{202e}x\u{feff}""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }
}
