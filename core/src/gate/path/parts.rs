//! The segments of a path, and the forms in which each may be written.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The segments of a path, without the first separator.
pub(super) struct Parts<'a> {
    pub(super) texts: Vec<&'a str>,
    /// The place of each one's kind in [`Kind::ALL`].
    pub(super) kinds: Vec<u8>,
    /// Whether a segment has each of the kinds in [`Kind::ALL`].
    pub(super) found: [bool; 6],
    /// The forms of those that a reading keeps, by their place: a few of a long path.
    pub(super) forms: BTreeMap<usize, Forms<'a>>,
    /// How far each is compared.
    bytes: usize,
}

/// A segment in each [`Form`].
pub(super) struct Forms<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) normal: Cow<'a, str>,
    /// If a character needs an escape.
    pub(super) escaped: Option<String>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(path: &'a str, takes_backslashes: bool, bytes: usize) -> Self {
        let other = if takes_backslashes { b'\\' } else { b'/' };
        let is_separator = |byte: &u8| (*byte == b'/') | (*byte == other);
        let most = path.as_bytes().iter().filter(|byte| is_separator(byte)).count() + 1;
        let (mut texts, mut kinds, mut found) = (Vec::with_capacity(most), Vec::with_capacity(most), [false; 6]);
        let mut rest = if path.as_bytes().first().is_some_and(is_separator) { &path[1..] } else { path };
        loop {
            let end = rest.as_bytes().iter().position(is_separator);
            let text = &rest[..end.unwrap_or(rest.len())];
            let kind = Kind::of(text);
            texts.push(text);
            kinds.push(kind);
            found[usize::from(kind)] = true;
            let Some(end) = end else { break };
            rest = &rest[end + 1..];
        }
        Self { texts, kinds, found, forms: BTreeMap::new(), bytes }
    }

    pub(super) fn forms(&mut self, place: usize) -> &Forms<'a> {
        let whole = self.texts.get(place).copied().unwrap_or_default();
        let end = (self.bytes..whole.len()).find(|end| whole.is_char_boundary(*end));
        let text = &whole[..end.unwrap_or(whole.len())];
        let escaped = || (!whole.bytes().all(is_fine)).then(|| with_escapes(text));
        let forms = || Forms { text: text.into(), normal: normal(text), escaped: escaped() };
        self.forms.entry(place).or_insert_with(forms)
    }
}

/// How a segment is written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// With its escapes in their normal form.
    Normal,
    /// As it arrived.
    Text,
    /// As it arrived, with an escape for each character that needs one.
    Escaped,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Empty,
    Dots { are_two: bool, is_escaped: bool },
}

impl Kind {
    /// The place of [`Kind::Empty`] in [`Kind::ALL`].
    pub(super) const EMPTY: u8 = 1;

    pub(super) const ALL: [Self; 6] = [
        Self::Text,
        Self::Empty,
        Self::Dots { are_two: false, is_escaped: false },
        Self::Dots { are_two: false, is_escaped: true },
        Self::Dots { are_two: true, is_escaped: false },
        Self::Dots { are_two: true, is_escaped: true },
    ];

    /// The place of a segment's kind in [`Kind::ALL`].
    fn of(segment: &str) -> u8 {
        match dots(segment) {
            Some((count, is_escaped)) => 2 * count + u8::from(is_escaped),
            None if segment.is_empty() => Self::EMPTY,
            None => 0,
        }
    }
}

/// How many dots a segment is, if it is one or two, and whether one is escaped.
fn dots(segment: &str) -> Option<(u8, bool)> {
    let (mut rest, mut count, mut is_escaped) = (segment.as_bytes(), 0, false);
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'.', after) => after,
            (b'%', [b'2', b'e' | b'E', after @ ..]) => {
                is_escaped = true;
                after
            }
            _ => return None,
        };
        count += 1;
        if count > 2 {
            return None;
        }
    }
    (count > 0).then_some((count, is_escaped))
}

/// Whether a byte has no escape in the normal form, and is neither a separator nor the start of something else.
pub(super) const fn stays(byte: u8) -> bool {
    // No comparison is skipped, so that a loop may compare several bytes at once.
    let is_mark = (byte == b'%') | (byte == b'\\') | (byte == b'"') | (byte == b'#') | (byte == b'?') | (byte == b'`');
    let is_bracket = (byte == b'<') | (byte == b'>') | (byte == b'{') | (byte == b'}');
    byte.is_ascii_graphic() & !is_mark & !is_bracket
}

/// A segment with its escapes in the normal form. A percent sign that begins no escape stays as it is.
pub(super) fn normal(segment: &str) -> Cow<'_, str> {
    if segment.bytes().all(stays) {
        return Cow::Borrowed(segment);
    }
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(character) = rest.chars().next() {
        if let Some((byte, next)) = escape(rest) {
            match byte {
                _ if stays(byte) && byte != b'/' => out.push(char::from(byte)),
                _ => push_escape(byte, &mut out),
            }
            rest = next;
            continue;
        }
        let (bytes, next) = rest.split_at(character.len_utf8());
        bytes.bytes().for_each(|byte| push(byte, &mut out));
        rest = next;
    }
    Cow::Owned(out)
}

/// A segment with an escape for each character that needs one, and with its own escapes as they are.
fn with_escapes(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    segment.bytes().for_each(|byte| push(byte, &mut out));
    out
}

/// Whether a byte has no escape, or begins one.
const fn is_fine(byte: u8) -> bool {
    stays(byte) || matches!(byte, b'%' | b'\\')
}

fn push(byte: u8, out: &mut String) {
    if is_fine(byte) {
        out.push(char::from(byte));
    } else {
        push_escape(byte, out);
    }
}

fn push_escape(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The byte of the escape with which a text begins, and what follows.
pub(super) fn escape(text: &str) -> Option<(u8, &str)> {
    let (digits, rest) = text.strip_prefix('%')?.split_at_checked(2)?;
    let mut digits = digits.chars().map(|digit| digit.to_digit(16));
    let (high, low) = (digits.next()??, digits.next()??);
    Some((u8::try_from(high << 4 | low).ok()?, rest))
}
