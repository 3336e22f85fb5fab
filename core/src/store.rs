//! Store tiers: what an adapter implements, by what its store can do, and the driver that makes a [`Limiter`](crate::Limiter) of
//! each.
//!
//! | tier | the store can | driver |
//! |-|-|-|
//! | [`Atomic`] | apply a whole policy in one indivisible step | [`AtomicLimiter`] |
//! | [`Versioned`] | compare-and-swap | [`VersionedLimiter`] |
//! | [`BestEffort`] | get and put | [`BestEffortLimiter`] |
//! | [`Native`] | decide by itself | [`NativeLimiter`] |

mod atomic;
mod best_effort;
mod native;
mod versioned;

pub use atomic::{Atomic, AtomicLimiter, Before, Operation};
pub use best_effort::{BestEffort, BestEffortLimiter};
pub use native::{Native, NativeLimiter};
pub use versioned::{Found, Swap, Versioned, VersionedLimiter};

use alloc::vec::Vec;

use crate::{Error, Millis, Policy, PolicyState, UnixMillis};

/// The state of a key from its stored bytes; unused where there are none.
fn stored_state(policy: &Policy, bytes: Option<&[u8]>) -> Result<PolicyState, Error> {
    bytes.map_or_else(|| Ok(policy.unused()), |bytes| policy.decode(bytes))
}

/// What to write back: the bytes of a state and how long they matter.
struct Record {
    bytes: Vec<u8>,
    ttl: Millis,
}

impl Record {
    fn of(policy: &Policy, state: &PolicyState, now: UnixMillis) -> Self {
        // A state that is unused already still has to overwrite what is stored.
        let ttl = policy.expires_after(state, now).max(Millis::new(1));
        Self { bytes: policy.encode(state), ttl }
    }
}
