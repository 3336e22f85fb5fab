//! How stores write counters.

/// A counter's value, in the form of the store that wrote it.
///
/// The two forms cannot be confused. Eight bytes that are all digits would be a binary counter above 3·10^18, which no
/// limiter reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Eight bytes, little-endian: the SQLite store, and most others.
    Binary(i64),
    /// Decimal digits: the Redis store.
    Decimal(i64),
}

impl Counter {
    /// Reads a value; `None` if it is not a counter of any store.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let decimal = || str::from_utf8(value).ok()?.parse().ok().map(Self::Decimal);
        let binary = || value.try_into().ok().map(|bytes| Self::Binary(i64::from_le_bytes(bytes)));
        decimal().or_else(binary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_recognized() {
        for count in [0, 1, -1, 255, 12_345_678, 99_999_999, 1 << 53, i64::MIN] {
            assert_eq!(Counter::read(&count.to_le_bytes()), Some(Counter::Binary(count)));
            assert_eq!(Counter::read(count.to_string().as_bytes()), Some(Counter::Decimal(count)));
        }
        for other in [&b""[..], b"1.5", b"x", b" 1", b"-", b"99999999999999999999", &[0; 7], &[0; 9]] {
            assert_eq!(Counter::read(other), None, "{other:?}");
        }
    }
}
