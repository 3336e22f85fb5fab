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

pub use atomic::{Applied, Atomic, AtomicLimiter, Operation};
pub use best_effort::{BestEffort, BestEffortLimiter, LastWriterWins};
pub use native::{Native, NativeLimiter};
pub use versioned::{Swap, Versioned, VersionedLimiter, VersionedValue};
