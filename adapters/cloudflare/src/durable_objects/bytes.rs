//! Little-endian integers, a reader for untrusted bytes, and hexadecimal text.

use tidegate_core::{Error, ErrorKind, Millis, UnixMillis};

pub(crate) fn put<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    for value in values {
        out.extend(value.to_le_bytes());
    }
}

/// Reads bytes in order. Returns an error if they end too early.
pub(crate) struct CallReader<'a> {
    pub(crate) bytes: &'a [u8],
    /// The kind of its errors.
    pub(crate) kind: ErrorKind,
}

impl<'a> CallReader<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.error("the bytes end too early"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn split(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(|| self.error("the bytes end too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn instant(&mut self) -> Result<UnixMillis, Error> {
        match self.u64()? {
            ms if ms <= UnixMillis::MAX.get() => Ok(UnixMillis::new(ms)),
            _ => Err(self.error("an instant is out of range")),
        }
    }

    pub(crate) fn millis(&mut self) -> Result<Millis, Error> {
        self.u64().map(Millis::new)
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.error("there are bytes after the end")) }
    }

    pub(crate) fn error(&self, what: &str) -> Error {
        Error::new(self.kind, format!("durable object: {what} ({} bytes were left to read)", self.bytes.len()))
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Bytes in hexadecimal, two digits each.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(2 * bytes.len());
    push_hex(&mut out, bytes);
    String::from_utf8(out).unwrap_or_default()
}

pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(&[byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
}

/// The bytes of a hexadecimal text, up to the first pair that is not hexadecimal.
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, _) = text.as_bytes().as_chunks();
    let mut bytes = Vec::with_capacity(pairs.len());
    for &[high, low] in pairs {
        let (Some(high), Some(low)) = (value(high), value(low)) else { break };
        bytes.push(high << 4 | low);
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn bytes_round_trip_through_hexadecimal() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(to_hex(&all[..18]), "000102030405060708090a0b0c0d0e0f1011");
        assert_eq!(from_hex(&to_hex(&all)), all);
        assert_eq!(from_hex("0a1"), [10]);
        assert_eq!(from_hex("0aé0"), [10]);
    }

    #[test]
    fn an_instant_is_at_most_the_last_one() {
        let instant = |ms: u64| CallReader { bytes: &ms.to_le_bytes(), kind: ErrorKind::Corrupt }.instant();
        let last = UnixMillis::MAX;
        assert_eq!(instant(last.get()).ok(), Some(last));
        assert_eq!(instant(last.get() + 1).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
