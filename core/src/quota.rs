//! Quotas and policies, validated at construction.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Write as _;

use crate::algorithm::{Algorithm, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use crate::{Error, Millis, UnixMillis};

/// An algorithm and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
}

impl Rule {
    /// The algorithm's name in policies, fixtures and reports.
    ///
    /// ```
    /// use tidegate_core::{Millis, Quota};
    /// let quota = Quota::sliding_log(5, Millis::from_secs(1)).unwrap();
    /// assert_eq!(quota.rule().name(), "sliding_log");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
        }
    }

    /// Two letters that identify the algorithm in storage keys and stored states.
    ///
    /// ```
    /// use tidegate_core::{Millis, Quota};
    /// let quota = Quota::token_bucket(10, 3, Millis::from_secs(1)).unwrap();
    /// assert_eq!((quota.rule().code(), quota.rule().parameters()), ("tb", [10, 1_000, 3]));
    /// ```
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => "fw",
            Self::SlidingWindow(_) => "sw",
            Self::SlidingLog(_) => "sl",
            Self::TokenBucket(_) => "tb",
            Self::LeakyBucket(_) => "lb",
        }
    }

    /// The parameters as numbers, for stores that send them: the limit or capacity, the window or refill period in
    /// milliseconds, and the refill of a bucket. The refill of a window is 0.
    #[must_use]
    pub fn parameters(&self) -> [u64; 3] {
        let bucket = |bucket: &TokenBucket| [bucket.capacity(), bucket.per().get(), bucket.refill()];
        match self {
            Self::FixedWindow(rule) => [rule.limit(), rule.window().get(), 0],
            Self::SlidingWindow(rule) => [rule.limit(), rule.window().get(), 0],
            Self::SlidingLog(rule) => [rule.limit(), rule.window().get(), 0],
            Self::TokenBucket(rule) => bucket(rule),
            Self::LeakyBucket(rule) => bucket(rule.bucket()),
        }
    }

    /// The largest number of units that can be admitted at once: a window's limit or a bucket's capacity.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.limit(),
            Self::SlidingWindow(rule) => rule.limit(),
            Self::SlidingLog(rule) => rule.limit(),
            Self::TokenBucket(rule) => rule.limit(),
            Self::LeakyBucket(rule) => rule.limit(),
        }
    }

    /// The largest number of units that can be admitted from `first` to `last`, both inclusive; see [`Algorithm::maximum`].
    ///
    /// ```
    /// use tidegate_core::{Millis, Quota, UnixMillis};
    /// let quota = Quota::fixed_window(60, Millis::from_secs(60)).unwrap();
    /// let most = |first, last| quota.rule().maximum(UnixMillis::new(first), UnixMillis::new(last));
    /// assert_eq!((most(0, 59_999), most(59_999, 60_000)), (60, 120));
    /// ```
    #[must_use]
    pub fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.maximum(first, last),
            Self::SlidingWindow(rule) => rule.maximum(first, last),
            Self::SlidingLog(rule) => rule.maximum(first, last),
            Self::TokenBucket(rule) => rule.maximum(first, last),
            Self::LeakyBucket(rule) => rule.maximum(first, last),
        }
    }

    /// The time to which the limit refers: a window's length, or the time in which an empty bucket refills, rounded up.
    ///
    /// ```
    /// use tidegate_core::{Millis, Quota};
    /// let quota = Quota::token_bucket(10, 3, Millis::from_secs(1)).unwrap();
    /// assert_eq!(quota.rule().window(), Millis::new(3_334));
    /// ```
    #[must_use]
    pub fn window(&self) -> Millis {
        let fill =
            |bucket: &TokenBucket| Millis::new((bucket.capacity() * bucket.per().get()).div_ceil(bucket.refill()));
        match self {
            Self::FixedWindow(rule) => rule.window(),
            Self::SlidingWindow(rule) => rule.window(),
            Self::SlidingLog(rule) => rule.window(),
            Self::TokenBucket(rule) => fill(rule),
            Self::LeakyBucket(rule) => fill(rule.bucket()),
        }
    }

    /// How long a charge has an effect. A sliding window weighs it until the end of the next window.
    #[cfg(feature = "std")]
    fn retention(&self) -> Millis {
        match self {
            Self::SlidingWindow(rule) => rule.window() + rule.window(),
            _ => self.window(),
        }
    }
}

/// One limit of a policy: an algorithm, its parameters, and the name that response fields show.
///
/// ```
/// use tidegate_core::{Millis, Quota};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let daily = Quota::fixed_window(10_000, Millis::from_secs(86_400))?.named("daily")?;
/// assert_eq!(daily.rule().limit(), 10_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    name: Option<Box<str>>,
    rule: Rule,
}

impl Quota {
    /// Admits `limit` in each window aligned to the epoch. See [`FixedWindow`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit x window above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn fixed_window(limit: u64, window: Millis) -> Result<Self, Error> {
        FixedWindow::new(limit, window).map(|rule| Rule::FixedWindow(rule).into())
    }

    /// Admits `limit` in any window, estimated from two counters. See [`SlidingWindow`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit x window above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn sliding_window(limit: u64, window: Millis) -> Result<Self, Error> {
        SlidingWindow::new(limit, window).map(|rule| Rule::SlidingWindow(rule).into())
    }

    /// Admits `limit` in any window, exactly. For small limits. See [`SlidingLog`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, a limit above [`SlidingLog::MAX_LIMIT`], or a limit x window above
    /// [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn sliding_log(limit: u64, window: Millis) -> Result<Self, Error> {
        SlidingLog::new(limit, window).map(|rule| Rule::SlidingLog(rule).into())
    }

    /// Admits bursts of up to `capacity`, and `refill` more in each `per`. See [`TokenBucket`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a capacity x per above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn token_bucket(capacity: u64, refill: u64, per: Millis) -> Result<Self, Error> {
        TokenBucket::new(capacity, refill, per).map(|rule| Rule::TokenBucket(rule).into())
    }

    /// Queues up to `capacity` requests and forwards `refill` of them in each `per`. See [`LeakyBucket`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a capacity x per above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn leaky_bucket(capacity: u64, refill: u64, per: Millis) -> Result<Self, Error> {
        LeakyBucket::new(capacity, refill, per).map(|rule| Rule::LeakyBucket(rule).into())
    }

    /// Sets the quota's name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name that is not 1 to 32 of the characters `a-z A-Z 0-9 - _ .`
    pub fn named(mut self, name: &str) -> Result<Self, Error> {
        self.name = Some(checked_name("name", name)?);
        Ok(self)
    }

    /// Returns the same quota with another limit or capacity. Both share their stored state: usage carries over.
    ///
    /// # Errors
    /// Those of the quota's constructor.
    ///
    /// ```
    /// use tidegate_core::{Millis, Quota};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let raised = Quota::fixed_window(60, Millis::from_secs(60))?.with_limit(100)?;
    /// assert_eq!(raised, Quota::fixed_window(100, Millis::from_secs(60))?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_limit(&self, limit: u64) -> Result<Self, Error> {
        let Self { rule, .. } = match &self.rule {
            Rule::FixedWindow(rule) => Self::fixed_window(limit, rule.window()),
            Rule::SlidingWindow(rule) => Self::sliding_window(limit, rule.window()),
            Rule::SlidingLog(rule) => Self::sliding_log(limit, rule.window()),
            Rule::TokenBucket(rule) => Self::token_bucket(limit, rule.refill(), rule.per()),
            Rule::LeakyBucket(rule) => Self::leaky_bucket(limit, rule.bucket().refill(), rule.bucket().per()),
        }?;
        Ok(Self { name: self.name.clone(), rule })
    }

    /// The name. In a policy, an unnamed quota gets a name made of the policy's name and its position.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The algorithm and its parameters.
    #[must_use]
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl From<Rule> for Quota {
    fn from(rule: Rule) -> Self {
        Self { name: None, rule }
    }
}

/// One to eight quotas that are decided together, all or nothing. If one of them denies, none is charged.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [
///     Quota::token_bucket(20, 10, Millis::from_secs(1))?.named("burst")?,
///     Quota::fixed_window(10_000, Millis::from_secs(86_400))?.named("daily")?,
/// ])?;
/// assert_eq!(policy.id(), "api:tb1000.fw86400000");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Box<str>,
    quotas: Box<[Quota]>,
    charge_denied: bool,
    id: Box<str>,
    /// The first 64 bits of the id's SHA-256.
    #[cfg(feature = "std")]
    digest: u64,
    /// The longest time that any charge has an effect.
    #[cfg(feature = "std")]
    retention: Millis,
}

impl Policy {
    /// The largest number of quotas in a policy.
    pub const MAX_QUOTAS: usize = 8;

    /// Creates a policy. An unnamed quota gets the policy's name, followed by its position if there are several quotas.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for no quota or more than eight, two quotas of one name, or a policy name that
    /// is not 1 to 32 of the characters `a-z A-Z 0-9 - _ .`
    pub fn new(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, Error> {
        Self::of(name, quotas.into_iter().collect())
    }

    fn of(name: &str, mut quotas: Box<[Quota]>) -> Result<Self, Error> {
        let policy_name = checked_name("name", name)?;
        let count = quotas.len();
        if count == 0 || count > Self::MAX_QUOTAS {
            return Err(Error::invalid(format!(
                "quotas: {count} is out of range; write 1 to {} quotas",
                Self::MAX_QUOTAS
            )));
        }
        for place in 0..count {
            if quotas[place].name.is_none() {
                let name = if count == 1 { name.to_string() } else { format!("{name}-{}", place + 1) };
                quotas[place].name = Some(name.into());
            }
            if let Some(first) = quotas[..place].iter().position(|quota| quota.name == quotas[place].name) {
                return Err(Error::invalid(format!(
                    "quotas[{place}].name: {:?} is the name of quotas[{first}] already; write another",
                    quotas[place].name()
                )));
            }
        }
        let mut id = String::from(name);
        for (place, quota) in quotas.iter().enumerate() {
            let [_, unit, _] = quota.rule.parameters();
            id.push(if place == 0 { ':' } else { '.' });
            // A stored state keeps its meaning only while these stay the same.
            let _ = write!(id, "{}{unit}", quota.rule.code());
        }
        Ok(Self {
            name: policy_name,
            #[cfg(feature = "std")]
            digest: digest(&id),
            #[cfg(feature = "std")]
            retention: quotas.iter().map(|quota| quota.rule().retention()).max().unwrap_or_default(),
            quotas,
            charge_denied: false,
            id: id.into(),
        })
    }

    /// Sets whether denied requests are charged, so that a client that keeps retrying stays denied. Off by default.
    ///
    /// A denied request is then charged like an admitted one, up to each quota's limit. A request that is
    /// [`NeverAdmissible`](crate::Status::NeverAdmissible) is never charged.
    #[must_use]
    pub fn charge_denied(mut self, yes: bool) -> Self {
        self.charge_denied = yes;
        self
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    /// The quotas, in the order of construction.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Whether denied requests are charged.
    #[must_use]
    pub const fn charges_denied(&self) -> bool {
        self.charge_denied
    }

    /// The policy's part of a storage key: its name and its shape. It changes with an algorithm, a window or a bucket's
    /// period, because the stored counts then change their meaning. It does not change with a limit, so that a new limit
    /// keeps the usage.
    #[must_use]
    pub const fn id(&self) -> &str {
        &self.id
    }

    /// The longest time from a key's last request until it is unused, with the current limits.
    #[cfg(feature = "std")]
    pub(crate) const fn retention(&self) -> Millis {
        self.retention
    }

    /// A digest of the id, to be hashed further.
    #[cfg(feature = "std")]
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }
}

#[cfg(feature = "std")]
fn digest(id: &str) -> u64 {
    let hash = crate::sha256::sha256(id.as_bytes());
    u64::from_le_bytes(core::array::from_fn(|place| hash[place]))
}

fn checked_name(field: &str, name: &str) -> Result<Box<str>, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        let shown: String = name.chars().take(40).collect();
        return Err(Error::invalid(format!(
            "{field}: {shown:?} cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ ."
        )));
    }
    Ok(name.into())
}
