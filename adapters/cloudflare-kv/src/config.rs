//! How often an isolate reads and writes, and how much it holds.

use tidegate_core::{Error, ErrorKind, Millis};

/// What an isolate may spend.
///
/// ```
/// use tidegate_cloudflare_kv::Config;
/// use tidegate_core::Millis;
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
    /// The least time between two writes of a key: Workers KV refuses more than one a second.
    pub const WRITE_SPACING_MIN: Millis = Millis::from_secs(1);

    /// The least time to live that Workers KV takes.
    pub const TTL_MIN: Millis = Millis::from_secs(60);

    /// How long what was read of a key is used before it is read again: 1 s. Within it, a key costs one read.
    #[must_use]
    pub const fn refresh(mut self, refresh: Millis) -> Self {
        self.refresh = refresh;
        self
    }

    /// The least time between two writes of a key by this isolate: 1 s, and never less.
    #[must_use]
    pub fn write_spacing(mut self, spacing: Millis) -> Self {
        self.write_spacing = spacing.max(Self::WRITE_SPACING_MIN);
        self
    }

    /// The most keys whose counts an isolate holds: 20,000, which is some 10 MB of an isolate's 128. A check of a further
    /// key is [`Refused`](ErrorKind::Refused) while all of them still matter: to forget one would be to admit it anew.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for zero.
    pub fn keys_max(mut self, keys: usize) -> Result<Self, Error> {
        if keys == 0 {
            return Err(Error::new(ErrorKind::Invalid, "keys_max: 0 is out of range; write at least 1"));
        }
        self.keys_max = keys;
        Ok(self)
    }

    /// The most that decisions cost in the long run, at a steady rate of admitted requests of one key in one isolate.
    ///
    /// ```
    /// use tidegate_cloudflare_kv::{Config, Operations};
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

/// One operation every `spacing`, and at most one a decision.
const fn per_1000(decisions_per_second: u64, spacing: Millis) -> u64 {
    let decisions = decisions_per_second.saturating_mul(spacing.get());
    if decisions <= 1_000 { 1_000 } else { 1_000_000u64.div_ceil(decisions) }
}

/// What decisions cost in operations of Workers KV, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// Reads a thousand decisions.
    pub reads_per_1000_decisions: u64,
    /// Writes a thousand decisions.
    pub writes_per_1000_decisions: u64,
}
