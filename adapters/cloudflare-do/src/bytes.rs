//! Integers, little-endian, and a reader that no bytes can surprise.

use tollgate_core::{Error, ErrorKind, Millis, UnixMillis};

pub(crate) fn put<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    for value in values {
        out.extend(value.to_le_bytes());
    }
}

/// Reads what the other side wrote, and fails on all else.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    /// What it is when it fails.
    pub(crate) kind: ErrorKind,
}

impl<'a> Reader<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.error("an end too early"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn split(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(|| self.error("an end too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn instant(&mut self) -> Result<UnixMillis, Error> {
        match self.u64()? {
            ms if ms <= UnixMillis::MAX.get() => Ok(UnixMillis::new(ms)),
            _ => Err(self.error("an instant past the last one")),
        }
    }

    pub(crate) fn millis(&mut self) -> Result<Millis, Error> {
        self.u64().map(Millis::new)
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.error("more than belongs there")) }
    }

    pub(crate) fn error(&self, what: &str) -> Error {
        Error::new(self.kind, format!("durable object: {what}, {} bytes before the end", self.bytes.len()))
    }
}
