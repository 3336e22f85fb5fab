//! What an isolate did and met.

/// Counts since the isolate began; see [`Isolate::stats`](crate::Isolate::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub keys: u64,
    /// Reads begun.
    pub reads: u64,
    /// Reads that failed: the isolate decided alone.
    pub reads_failed: u64,
    /// Values read that Tidegate did not write; each counted as nothing found.
    pub corrupt: u64,
    /// Writes tried.
    pub writes: u64,
    /// Writes that Workers KV refused with 429: others wrote the key in that second. They are tried again later.
    pub writes_throttled: u64,
    /// Writes that failed otherwise. They are tried again later.
    pub writes_failed: u64,
}
