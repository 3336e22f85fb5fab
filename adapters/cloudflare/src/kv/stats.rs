//! What an isolate has done and seen.

/// Counts since the isolate started; see [`Isolate::stats`](crate::kv::Isolate::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that the isolate holds now.
    pub keys: u64,
    /// Keys that the isolate has forgotten to hold others; see [Capacity](crate::kv#capacity).
    pub keys_forgotten: u64,
    /// Requests that the isolate has denied because of what forgotten keys of their group had used.
    pub denied_by_group: u64,
    /// Reads started.
    pub reads: u64,
    /// Reads that failed. The isolate decided by its own counts.
    pub reads_failed: u64,
    /// Values that Tidegate did not write. The isolate ignored them.
    pub corrupt: u64,
    /// Writes started.
    pub writes: u64,
    /// Writes that Workers KV rejected with 429 because other isolates wrote the key in the same second. They are retried.
    pub writes_throttled: u64,
    /// Writes that failed for another reason. They are retried.
    pub writes_failed: u64,
}
