//! How the responses of a gate look.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{BodyFormat, Decision, ExtraFields, Millis};

/// How responses look, the table `responses` of a rules file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Responses {
    pub(super) format: BodyFormat,
    /// The longest time that is added to `Retry-After`.
    pub(super) spread: Millis,
    pub(super) extra: ExtraFields,
    /// Whether a denial for want of credits is a 402.
    pub(super) payment_required: bool,
}

/// Draws how much later than necessary each denied client may retry, so that not all return in the same second.
#[derive(Debug)]
pub(super) struct Draws(AtomicU64);

impl Default for Draws {
    fn default() -> Self {
        // The standard library's source of random numbers.
        Self(AtomicU64::new(RandomState::new().build_hasher().finish()))
    }
}

impl Draws {
    pub(super) const fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The denial to show a client, if it is not the decision itself.
    pub(super) fn later(&self, decision: &Decision, most: Millis) -> Option<Decision> {
        if most == Millis::ZERO || decision.retry_after().is_none() {
            return None;
        }
        Some(decision.clone().retry_later_by(Millis::new(self.next() % (most.get() + 1))))
    }

    /// SplitMix64: <https://doi.org/10.1145/2714064.2660195>.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
