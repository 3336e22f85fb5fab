//! The traits that an adapter implements, and the drivers that turn each into a [`Limiter`](crate::Limiter).
//!
//! | Tier | The store can | Driver |
//! |-|-|-|
//! | [`Atomic`] | apply a whole policy in one indivisible step | [`AtomicLimiter`] |
//! | [`Atomic`] that [lends](crate::Capabilities::lends) | lend parts of a policy's quotas in that step | `LendingLimiter`, with the feature `lending` |
//! | [`Versioned`] | compare and swap | [`VersionedLimiter`], or with a memory [`RememberingLimiter`](VersionedLimiter::remembering) |
//! | [`BestEffort`] | get and put | [`BestEffortLimiter`] |
//! | [`Native`] | decide by itself | [`NativeLimiter`] |
//!
//! # Contract
//!
//! **Keys.** `Versioned` and `BestEffort` stores get [storage keys](crate::Key::storage_key) and opaque bytes. An `Atomic`
//! store derives both itself, so that it can change the state in one step.
//!
//! **Clock.** Each [`Check`](crate::Check) and [`Refund`](crate::Refund) carries the caller's clock. An `Atomic` store may use
//! its own clock instead and reports the one it used in [`Applied`]. The other tiers always use the caller's.
//!
//! **Lifetime.** A `ttl` is a span, which the store measures with its own clock from the moment of the write. The driver
//! computes it from the caller's clock: the state has no effect from ten seconds before the end of its `ttl`, for requests that are
//! under way then and for clocks that differ. The store must keep the value for at least the whole `ttl`, and may keep it longer:
//! an old state decides like an absent one. If the store removes a value early, its key starts unused.
//!
//! An `Atomic` store that stores states itself has no `ttl`. It may remove a state when
//! [`Policy::expires_after`](crate::Policy::expires_after) has passed since the step, by the clock that decided, and an answer when its
//! token's `ttl` has. A state for which it is zero needs no row.
//!
//! **Removal.** A store must remove what it may remove, within a bounded time and without being asked about the same key again.
//! Clients choose their keys, such as addresses, so a store that keeps every row grows without bound. Use the platform's expiry, or
//! remove a few rows with each write: a write that removes all of them makes one request wait. No decision shows whether
//! a store does so. `Suite::check_expiry` of the crate `tidegate-conformance` does.
//!
//! **Errors.** A store returns [`Timeout`](crate::ErrorKind::Timeout) if it does not know whether it applied a call, and
//! [`Unavailable`](crate::ErrorKind::Unavailable) if it could not reach the store. These are the kinds on which a caller may
//! fail open, so contention and values that cannot be read must have another kind:
//! [`Contended`](crate::ErrorKind::Contended), [`Corrupt`](crate::ErrorKind::Corrupt).
//!
//! **Idempotency tokens.** Only `Atomic` stores support them. A store remembers the first answer under the policy, the key and
//! the token, for the token's `ttl`. The answer holds while `now < first + ttl`; at `first + ttl`, the check is a new one. The
//! clock is the one that decided: the caller's in memory, the store's where it has one. Only an
//! answer that charged something is remembered: denials and checks of cost 0 are decided anew. `reset`, refunds and
//! settlements keep remembered answers: a retry after a reset returns the first answer and charges nothing. A token is
//! bound to its policy, key and cost, and its charge is settled once.
//!
//! **Round trips.** [`Capabilities::round_trips`](crate::Capabilities::round_trips) counts the messages that a decision
//! sends to another process and waits for, one after another, in the usual case. A store in the caller's process has 0.
//! Attempts that a conflict repeats, and connections that must be opened, do not count.

mod atomic;
mod best_effort;
#[cfg(feature = "lending")]
mod lending;
mod native;
#[cfg(feature = "std")]
mod remembering;
#[cfg(any(feature = "lending", feature = "std"))]
mod tasks;
#[cfg(feature = "lending")]
mod under_way;
mod versioned;

pub use atomic::{Applied, Atomic, AtomicLimiter};
pub use best_effort::{BestEffort, BestEffortLimiter};
#[cfg(feature = "lending")]
pub use lending::{LendingLimiter, lending_capabilities};
#[cfg(all(feature = "lending", feature = "gate"))]
pub(crate) use lending::{Pausing, ToTell};
pub use native::{Native, NativeLimiter};
#[cfg(feature = "std")]
pub use remembering::RememberingLimiter;
pub use versioned::{Changed, Swap, Swapped, Versioned, VersionedLimiter, VersionedValue};

#[cfg(any(feature = "lending", feature = "std"))]
use alloc::{sync::Arc, vec::Vec};

#[cfg(any(feature = "lending", feature = "std"))]
use crate::{Policy, UnixMillis};

/// The most policies that a limiter keeps for calls that outlive the check.
#[cfg(any(feature = "lending", feature = "std"))]
const POLICIES_MAX: usize = 256;

/// A policy that is kept, or `None` if there is no room for it.
#[cfg(any(feature = "lending", feature = "std"))]
fn shared(policies: &mut Vec<Arc<Policy>>, policy: &Policy, now: UnixMillis) -> Option<Arc<Policy>> {
    let known = policies.iter().find(|known| ***known == *policy).cloned();
    known.or_else(|| {
        policies.retain(|policy| policy.covers(now).is_ok());
        (policies.len() < POLICIES_MAX).then(|| {
            policies.push(Arc::new(policy.clone()));
            policies[policies.len() - 1].clone()
        })
    })
}
