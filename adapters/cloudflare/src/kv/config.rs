//! How often an isolate reads and writes, and how many keys it holds.

use tidegate_core::{Error, ErrorKind, Millis};

/// How often an isolate reads and writes a key, and how many keys it holds.
///
/// ```
/// use tidegate_cloudflare::Millis;
/// use tidegate_cloudflare::kv::Config;
/// let frugal = Config::default().refresh(Millis::from_secs(30)).write_spacing(Millis::from_secs(10));
/// assert_eq!(frugal.operations(10).writes_per_1000_decisions, 10);
/// assert_eq!(frugal.operations(10).reads_per_1000_decisions, 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) refresh: Millis,
    pub(crate) write_spacing: Millis,
    pub(crate) keys_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { refresh: Millis::from_secs(1), write_spacing: Self::WRITE_SPACING_MIN, keys_max: 20_000 }
    }
}

impl Config {
    /// The minimum time between two writes of a key. Workers KV rejects more than one write per second.
    pub const WRITE_SPACING_MIN: Millis = Millis::from_secs(1);

    /// The minimum time to live of a value in Workers KV.
    pub const TTL_MIN: Millis = Millis::from_secs(60);

    /// The minimum time for which a location caches a value that it has read: Workers KV's least `cacheTtl`.
    pub const CACHE_TTL_MIN: Millis = Millis::from_secs(30);

    /// Sets how long an isolate uses what it has read of a key before it reads the key again. The default is 1 s.
    #[must_use]
    pub const fn refresh(mut self, refresh: Millis) -> Self {
        self.refresh = refresh;
        self
    }

    /// Sets the minimum time between two writes of a key by this isolate. The default is 1 s, which is also the minimum.
    #[must_use]
    pub fn write_spacing(mut self, spacing: Millis) -> Self {
        self.write_spacing = spacing.max(Self::WRITE_SPACING_MIN);
        self
    }

    /// Sets the maximum number of keys that an isolate holds. The default is 20,000, which takes about 10 MB of the 128 MB
    /// that an isolate has.
    ///
    /// An isolate that is full forgets a key to hold another one. See [Capacity](crate::kv#capacity).
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for zero.
    pub fn keys_max(mut self, keys: usize) -> Result<Self, Error> {
        if keys == 0 {
            return Err(Error::new(ErrorKind::Invalid, "keys_max: 0 is out of range; use at least 1"));
        }
        self.keys_max = keys;
        Ok(self)
    }

    /// Returns the maximum cost of decisions in the long run, for one key in one isolate at a steady rate of admitted requests.
    ///
    /// ```
    /// use tidegate_cloudflare::kv::{Config, Operations};
    /// let most = Operations { reads_per_1000_decisions: 100, writes_per_1000_decisions: 100 };
    /// assert_eq!(Config::default().operations(10), most);
    /// ```
    #[must_use]
    pub const fn operations(&self, decisions_per_second: u64) -> Operations {
        Operations {
            reads_per_1000_decisions: per_1000(decisions_per_second, self.refresh),
            writes_per_1000_decisions: per_1000(decisions_per_second, self.write_spacing),
        }
    }
}

/// One operation per `spacing`, and at most one per decision.
const fn per_1000(decisions_per_second: u64, spacing: Millis) -> u64 {
    let decisions = decisions_per_second.saturating_mul(spacing.get());
    if decisions <= 1_000 { 1_000 } else { 1_000_000u64.div_ceil(decisions) }
}

/// The cost of decisions, in operations of Workers KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// Reads per 1,000 decisions.
    pub reads_per_1000_decisions: u64,
    /// Writes per 1,000 decisions.
    pub writes_per_1000_decisions: u64,
}
