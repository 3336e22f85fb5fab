use std::num::NonZero;

use tidegate_core::lending::Lease;

/// How decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `tidegate-cloudflare`: one object for each key.
    Objects,
    /// The same, with a deny cache in each isolate.
    DenyCache,
    /// The same, with leases.
    Leases(Lease),
    /// The same, with so many objects for all keys.
    ShardedLeases(Lease, NonZero<u32>),
    /// `tidegate-cloudflare` on Workers KV, refreshed after so many seconds.
    WorkersKv(u64),
    /// `tidegate-cloudflare` on the Rate Limiting binding.
    Binding,
    /// A script at one place, which decides as the core does: `tidegate-redis`.
    Exact,
    /// The same, with a deny cache in each isolate.
    ExactDenyCache,
    /// The same, with leases: `tidegate-redis` that lends.
    ExactLeases(Lease),
    /// The same over REST, where what several keys tell is one script.
    RestLeases(Lease),
    /// In memory that all isolates share.
    Memory,
    /// In the memory of each isolate or process, without the others: the core's `MemoryLimiter`.
    PerProcess,
    /// The core's driver on a store with compare-and-swap at one place, such as Deno KV or Netlify Blobs.
    Versioned,
    /// A script at one place, and this percentage of the limit in each isolate while it does not answer.
    Fallback(u8),
    /// A script at each place, without the others.
    PerPlace,
    /// `tidegate-fastly` on the KV Store.
    FastlyKv,
    /// `tidegate-spin` on get and put.
    SpinKv,
    /// `tidegate-spin` on compare-and-swap.
    SpinAtomics,
    /// `tidegate-spin` on increments.
    SpinWindow,
    /// A counter in Workers KV, as in tutorials.
    NaiveKv,
    /// Counts that are synchronized every so many milliseconds.
    Synchronized(u64),
}

impl Model {
    /// Whether decisions are made by the clocks of isolates, and not by the store's.
    pub(super) const fn takes_callers_time(self) -> bool {
        !matches!(
            self,
            Self::Objects
                | Self::DenyCache
                | Self::Leases(_)
                | Self::ShardedLeases(..)
                | Self::Exact
                | Self::ExactDenyCache
                | Self::ExactLeases(_)
                | Self::RestLeases(_)
                | Self::Fallback(_)
                | Self::PerPlace
        )
    }
}
