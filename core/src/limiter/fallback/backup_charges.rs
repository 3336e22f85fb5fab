//! The charges that only the backup has.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Check, Keys, Policy, Settle, UnixMillis};

/// The most charges that are remembered, in up to 2 MB. The store is asked about all others.
const MOST: usize = 1 << 16;

/// The charges about which the store was not asked, each until the backup has forgotten it.
#[derive(Debug, Default)]
pub(super) struct BackupCharges {
    /// Whether there may be any, for the usual case without a lock.
    has_any: AtomicBool,
    hasher: RandomState,
    until: Mutex<HashMap<u64, UnixMillis>>,
}

impl BackupCharges {
    /// Remembers a charge of the backup.
    pub(super) fn add(&self, check: &Check<'_>) {
        let Some(idempotency) = check.remembered() else { return };
        let Some(charge) = self.charge(check.policy, check.keys, idempotency.token) else { return };
        let mut until = self.until();
        if until.len() >= MOST {
            until.retain(|_, until| *until > check.now);
        }
        if until.len() < MOST {
            until.insert(charge, check.now + idempotency.ttl);
            self.has_any.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets a charge about which the store is asked.
    pub(super) fn forget(&self, check: &Check<'_>) {
        if let Some(idempotency) = check.idempotency {
            self.take(check.policy, check.keys, idempotency.token);
        }
    }

    /// Whether only the backup has a charge, which is settled.
    pub(super) fn has(&self, settle: &Settle<'_>) -> bool {
        let has = |charge| self.until().get(&charge).is_some_and(|until| *until > settle.now);
        self.has_any.load(Ordering::Relaxed) && self.charge(settle.policy, settle.keys, settle.token).is_some_and(has)
    }

    fn take(&self, policy: &Policy, keys: Keys<'_>, token: &str) {
        if !self.has_any.load(Ordering::Relaxed) {
            return;
        }
        let Some(charge) = self.charge(policy, keys, token) else { return };
        let mut until = self.until();
        until.remove(&charge);
        self.has_any.store(!until.is_empty(), Ordering::Relaxed);
    }

    fn until(&self) -> MutexGuard<'_, HashMap<u64, UnixMillis>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hash of what identifies a charge, by a secret of this process.
    fn charge(&self, policy: &Policy, keys: Keys<'_>, token: &str) -> Option<u64> {
        let mut hasher = self.hasher.build_hasher();
        keys.storage_keys(policy).ok()?.rows().hash(&mut hasher);
        token.hash(&mut hasher);
        Some(hasher.finish())
    }
}
