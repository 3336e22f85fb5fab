//! Integers of few bytes (LEB128): seven bits in each byte, the lowest first.

use alloc::vec::Vec;

/// Appends an integer: 1 to 10 bytes.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes an integer from the front of `rest`. `None` if these are not the bytes of one.
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *rest = &rest[place + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{put, take};

    #[test]
    fn integers_round_trip() {
        for (value, length) in [(0, 1), (127, 1), (128, 2), (1 << 53, 8), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), length);
            assert_eq!(take(&mut &bytes[..length - 1]), None);
            bytes.push(7);
            let mut rest = &bytes[..];
            assert_eq!((take(&mut rest), rest), (Some(value), &[7][..]));
        }
        assert_eq!(take(&mut &[0x80; 11][..]), None);
    }
}
