//! The format of a value: an entry for each isolate that counts the key.
//!
//! A value is `tgk1` and its entries. An entry has the isolate's id for this key (8 bytes), when the isolate last charged (8),
//! how much it has charged (8), all little-endian, and its state in the core's encoding. The policy's shape determines the
//! state's length.

use tidegate_core::{Error, ErrorKind, Policy, PolicyState, UnixMillis};

/// The maximum number of entries in a value.
pub(crate) const ENTRIES_MAX: usize = 32;

const MAGIC: &[u8] = b"tgk1";
const HEAD_LEN: usize = 24;

/// Identifies an isolate (high half) and one of the accounts that it has had for a key (low half).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) u64);

impl Id {
    /// An id of another account of the same isolate.
    pub(crate) const fn renewed(self, draw: u64) -> Self {
        Self(self.0 & !0xffff_ffff | draw >> 32)
    }

    pub(crate) const fn isolate(self) -> u64 {
        self.0 >> 32
    }
}

/// What one isolate has admitted of a key. It contains nothing that the isolate has learned from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    pub(crate) at: UnixMillis,
    /// Grows with each charge, so the greater of two totals of one id is the newer one.
    pub(crate) total: u64,
    pub(crate) state: PolicyState,
}

pub(crate) fn encode<'a>(policy: &Policy, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for entry in entries {
        for word in [entry.id.0, entry.at.get(), entry.total] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(policy.encode(&entry.state));
    }
    bytes
}

pub(crate) fn decode(policy: &Policy, bytes: &[u8], now: UnixMillis) -> Result<Vec<Entry>, Error> {
    let entry_len = HEAD_LEN + policy.encode(&policy.initial_state()).len();
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| corrupt("does not start with tgk1"))?;
    if body.len() % entry_len != 0 || body.len() / entry_len > ENTRIES_MAX {
        return Err(corrupt("its length is not that of 0 to 32 entries"));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(body.len() / entry_len);
    for chunk in body.chunks_exact(entry_len) {
        let (head, state) = chunk.split_at(HEAD_LEN);
        let (words, _) = head.as_chunks();
        let word = |place: usize| u64::from_le_bytes(words[place]);
        if word(1) > UnixMillis::MAX.get() || entries.iter().any(|entry| entry.id.0 == word(0)) {
            return Err(corrupt("an entry has an invalid time, or the id of another entry"));
        }
        let state = policy.decode(state, now)?;
        entries.push(Entry { id: Id(word(0)), at: UnixMillis::new(word(1)), total: word(2), state });
    }
    Ok(entries)
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("stored counts: {what}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use tidegate_core::{Millis, Quota};
    use tidegate_testing::NOW;

    use super::*;

    fn policy() -> Policy {
        let minute = Quota::fixed_window(9, Millis::from_secs(60)).unwrap().named("minute").unwrap();
        let burst = Quota::token_bucket(5, 2, Millis::from_secs(1)).unwrap().named("burst").unwrap();
        Policy::new("api", [minute, burst]).unwrap()
    }

    fn entry(policy: &Policy, id: u64) -> Entry {
        let (mut state, at) = (policy.initial_state(), NOW);
        assert!(policy.decide(&mut state, at, 3).is_allowed());
        Entry { id: Id(id), at, total: 3, state }
    }

    #[test]
    fn a_value_round_trips() {
        let policy = policy();
        let entries: Vec<_> = (0..ENTRIES_MAX as u64).map(|id| entry(&policy, id)).collect();
        let bytes = encode(&policy, &entries);
        assert_eq!(bytes.len(), 4 + ENTRIES_MAX * (24 + 34));
        assert_eq!(decode(&policy, &bytes, NOW).unwrap(), entries);
        assert_eq!(decode(&policy, &encode(&policy, []), NOW).unwrap(), []);
    }

    #[test]
    fn foreign_values_are_corrupt() {
        let policy = policy();
        let twice = encode(&policy, [&entry(&policy, 7), &entry(&policy, 7)]);
        let too_many: Vec<_> = (0..=ENTRIES_MAX as u64).map(|id| entry(&policy, id)).collect();
        let whole = encode(&policy, [&entry(&policy, 7)]);
        for bytes in [&b""[..], b"tgk", b"tgk2", b"{}", &twice, &encode(&policy, &too_many), &whole[..whole.len() - 1]]
        {
            assert_eq!(decode(&policy, bytes, NOW).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let of = |at: u64| {
            let mut bytes = whole.clone();
            bytes[12..20].copy_from_slice(&at.to_le_bytes());
            decode(&policy, &bytes, NOW)
        };
        let last = UnixMillis::MAX.get();
        assert_eq!(of(last).unwrap()[0].at, UnixMillis::MAX);
        assert_eq!(of(last + 1).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    proptest! {
        #[test]
        fn no_bytes_make_decoding_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let policy = policy();
            let _ = decode(&policy, &tail, NOW);
            let _ = decode(&policy, &[MAGIC, &tail].concat(), NOW);
        }
    }
}
