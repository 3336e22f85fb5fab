//! What an isolate holds of one key.

use tidegate_core::{Millis, Origin, UnixMillis};

use crate::kv::account::Account;
use crate::kv::config::Config;
use crate::kv::pace::{Freshness, Pace};
use crate::kv::record;
use crate::kv::value::Value;

/// A key's counts, and when to read and write them.
pub(crate) struct Slot {
    pub(crate) account: Account,
    /// The value that was read last.
    pub(crate) last_read: Value,
    pub(crate) freshness: Freshness,
    pub(crate) pace: Pace,
    /// Whether the key is in `unwritten`.
    pub(crate) waits: bool,
    /// Whether the last read failed, so that the isolate decides by its own counts.
    pub(crate) alone: bool,
}

/// A value to write.
#[derive(Debug)]
pub struct Put {
    /// The storage key whose value it is.
    pub key: String,
    /// Which of the key's values.
    pub value: Value,
    /// What to write.
    pub bytes: Vec<u8>,
    /// How long to keep it.
    pub ttl: Millis,
}

impl Slot {
    pub(crate) fn new(account: Account, now: UnixMillis) -> Self {
        let last_read = account.value(now);
        let (freshness, pace) = (Freshness::default(), Pace::default());
        Self { account, last_read, freshness, pace, waits: false, alone: false }
    }

    /// Whether nothing is lost by dropping the slot: it counts nothing, and its last read is too old to use.
    pub(crate) fn is_idle(&self, now: UnixMillis) -> bool {
        self.account.is_unused(now) && self.freshness.is_over(now)
    }

    pub(crate) fn origin(&self) -> Origin {
        if self.alone { Origin::Fallback } else { Origin::Store }
    }

    pub(crate) fn put(&self, key: String, now: UnixMillis) -> Put {
        let ttl = self.account.expires_after(now).max(Config::TTL_MIN);
        let bytes = record::encode(&self.account.policy, self.account.entries());
        Put { key, value: self.account.value(now), bytes, ttl }
    }
}
