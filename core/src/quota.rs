//! Quotas, validated at construction.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::algorithm::{
    Algorithm, Balance, CalendarWindow, Concurrency, FixedWindow, LeakyBucket, Penalty, SlidingLog, SlidingWindow,
    TokenBucket,
};
#[cfg(feature = "calendar")]
use crate::calendar::Calendar;
use crate::quoted_text::Quoted;
use crate::warn_at::WarnAt;
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
    /// See [`Concurrency`].
    Concurrency(Concurrency),
    /// See [`Penalty`].
    Penalty(Penalty),
    /// See [`CalendarWindow`].
    CalendarWindow(CalendarWindow),
    /// See [`Balance`].
    Balance(Balance),
}

impl Rule {
    /// The algorithm's name in policies, fixtures and reports. A penalty that [blocks only](Penalty::blocks_only) by hand is a
    /// `block`.
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
            Self::Concurrency(_) => "concurrency",
            Self::Penalty(rule) if !rule.punishes() => "block",
            Self::Penalty(_) => "penalty",
            Self::CalendarWindow(_) => "calendar_window",
            Self::Balance(_) => "balance",
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
            Self::Concurrency(_) => "cc",
            Self::Penalty(_) => "pn",
            Self::CalendarWindow(_) => "cw",
            Self::Balance(_) => "ba",
        }
    }

    /// The number that identifies the algorithm in encoded states, from 1.
    #[must_use]
    pub const fn number(&self) -> u8 {
        match self {
            Self::FixedWindow(_) => 1,
            Self::SlidingWindow(_) => 2,
            Self::SlidingLog(_) => 3,
            Self::TokenBucket(_) => 4,
            Self::LeakyBucket(_) => 5,
            Self::Concurrency(_) => 6,
            Self::Penalty(_) => 7,
            Self::CalendarWindow(_) => 8,
            Self::Balance(_) => 9,
        }
    }

    /// The parameters as numbers, for stores that send them: the limit or capacity, the window or refill period in
    /// milliseconds, and the refill of a bucket. The refill of a window is 0. For a concurrency limit: the limit, the lifetime,
    /// and 1 if it returns the cost. For a penalty: the cap, the base, and the factor. For a calendar window, with times in
    /// minutes: the limit, `start * 2^20 + first length`, and `carry_over * 2^20 + next length`. For a balance: its most, 0, and 1
    /// if it covers another quota.
    #[must_use]
    pub fn parameters(&self) -> [u64; 3] {
        let bucket = |bucket: &TokenBucket| [bucket.capacity(), bucket.per().get(), bucket.refill()];
        match self {
            Self::FixedWindow(rule) => [rule.limit(), rule.window().get(), 0],
            Self::SlidingWindow(rule) => [rule.limit(), rule.window().get(), 0],
            Self::SlidingLog(rule) => [rule.limit(), rule.window().get(), 0],
            Self::TokenBucket(rule) => bucket(rule),
            Self::LeakyBucket(rule) => bucket(rule.bucket()),
            Self::Concurrency(rule) => [rule.limit(), rule.lifetime().get(), u64::from(rule.returns())],
            Self::Penalty(rule) => [rule.cap().get(), rule.base().get(), rule.factor()],
            Self::CalendarWindow(rule) => rule.parameters(),
            // The second is part of the stored state's name, and whether it covers is not.
            Self::Balance(rule) => [rule.max(), 0, u64::from(rule.covers())],
        }
    }

    /// The largest number of units that can be admitted at once: a window's limit or a bucket's capacity. For a concurrency
    /// limit, the requests in flight. 1 for a penalty, which admits or blocks. What a balance can hold.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.limit(),
            Self::SlidingWindow(rule) => rule.limit(),
            Self::SlidingLog(rule) => rule.limit(),
            Self::TokenBucket(rule) => rule.limit(),
            Self::LeakyBucket(rule) => rule.limit(),
            Self::Concurrency(rule) => rule.limit(),
            Self::Penalty(rule) => rule.limit(),
            Self::CalendarWindow(rule) => rule.limit(),
            Self::Balance(rule) => rule.limit(),
        }
    }

    /// The largest number of units that can ever be left at once: of a calendar window, also those that it has carried over.
    pub(crate) fn most(&self) -> u64 {
        match self {
            Self::CalendarWindow(rule) => rule.limit() + rule.carry_over(),
            rule => rule.limit(),
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
            Self::Concurrency(rule) => rule.maximum(first, last),
            Self::Penalty(rule) => rule.maximum(first, last),
            Self::CalendarWindow(rule) => rule.maximum(first, last),
            Self::Balance(rule) => rule.maximum(first, last),
        }
    }

    /// The time to which the limit refers: a window's length, or the time in which an empty bucket refills, rounded up. The
    /// lifetime of a concurrency limit's slots, the cap of a penalty, and the first window of a calendar. Zero for a balance.
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
            Self::Concurrency(rule) => rule.lifetime(),
            Self::Penalty(rule) => rule.cap(),
            Self::CalendarWindow(rule) => rule.window(),
            Self::Balance(_) => Millis::ZERO,
        }
    }

    /// How long a charge has an effect. A sliding window weighs it until the end of the next window.
    #[cfg(feature = "std")]
    pub(crate) fn retention(&self) -> Millis {
        match self {
            Self::SlidingWindow(rule) => rule.window() + rule.window(),
            Self::Penalty(rule) => rule.retention(),
            Self::CalendarWindow(rule) => rule.retention(),
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
    dimension: Box<str>,
    rule: Rule,
    /// What a calendar window follows, so that its rule can be found again.
    #[cfg(feature = "calendar")]
    calendar: Option<Box<Calendar>>,
    warn_at: WarnAt,
}

impl Quota {
    /// Admits `limit` in each window aligned to the epoch. See [`FixedWindow`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn fixed_window(limit: u64, window: Millis) -> Result<Self, Error> {
        FixedWindow::new(limit, window).map(|rule| Rule::FixedWindow(rule).into())
    }

    /// Admits `limit` in any window, estimated from two counters. See [`SlidingWindow`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn sliding_window(limit: u64, window: Millis) -> Result<Self, Error> {
        SlidingWindow::new(limit, window).map(|rule| Rule::SlidingWindow(rule).into())
    }

    /// Admits `limit` in any window, exactly. For small limits. See [`SlidingLog`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit above [`SlidingLog::MAX_LIMIT`].
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

    /// Admits `limit` requests at once. A slot that is not given back is free after `lifetime`. See [`Concurrency`].
    ///
    /// # Errors
    /// Those of [`Concurrency::new`].
    pub fn concurrency(limit: u64, lifetime: Millis) -> Result<Self, Error> {
        Concurrency::new(limit, lifetime).map(|rule| Rule::Concurrency(rule).into())
    }

    /// Blocks a key that violates the policy for `base`, `factor` times longer after each further violation, and at most for
    /// `cap`. See [`Penalty`].
    ///
    /// # Errors
    /// Those of [`Penalty::new`].
    pub fn penalty(base: Millis, factor: u64, cap: Millis) -> Result<Self, Error> {
        Penalty::new(base, factor, cap).map(|rule| Rule::Penalty(rule).into())
    }

    /// Blocks a key by hand, and at most for `cap`: it has an effect only after [`Policy::block`](crate::Policy::block). See
    /// [`Penalty::blocks_only`].
    ///
    /// # Errors
    /// Those of [`Penalty::blocks_only`].
    pub fn block(cap: Millis) -> Result<Self, Error> {
        Penalty::blocks_only(cap).map(|rule| Rule::Penalty(rule).into())
    }

    /// Admits `limit` in each window of a calendar, and up to `carry_over` more that the window before has left. It knows the window of
    /// `now` and the next one; [`Policy::at`](crate::Policy::at) finds others. See [`CalendarWindow`](crate::algorithm::CalendarWindow).
    ///
    /// ```
    /// use tidegate_core::{Calendar, Every, Millis, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let day = Calendar::new(Every::Day).zone("America/New_York")?;
    /// // The clocks go forward on 8 March 2026.
    /// let quota = Quota::calendar_window(100, &day, 0, UnixMillis::new(1_772_974_800_000))?;
    /// assert_eq!(quota.rule().window(), Millis::from_secs(23 * 3_600));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a limit of zero or above [`MAX_UNITS`](crate::algorithm::MAX_UNITS), a `carry_over` above
    /// the limit or from 2^32, and an instant beyond the year 9998.
    #[cfg(feature = "calendar")]
    pub fn calendar_window(limit: u64, calendar: &Calendar, carry_over: u64, now: UnixMillis) -> Result<Self, Error> {
        let rule = calendar.rule(limit, carry_over, now)?;
        Ok(Self { calendar: Some(calendar.clone().into()), ..Rule::CalendarWindow(rule).into() })
    }

    /// Admits what was granted, up to `max` at a time. See [`Balance`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a number above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn balance(max: u64) -> Result<Self, Error> {
        Balance::new(max).map(|rule| Rule::Balance(rule).into())
    }

    /// The same balance, which pays only what the quota before it does not admit. See [`Balance::covers_excess`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a quota that is no balance.
    pub fn covers_excess(mut self) -> Result<Self, Error> {
        let Rule::Balance(rule) = self.rule else {
            return Err(Error::invalid(format!("covers: a {} pays nothing; write a balance", self.rule.name())));
        };
        self.rule = Rule::Balance(rule.covers_excess(true));
        Ok(self)
    }

    /// The quota whose algorithm has this [number](Rule::number) and these [parameters](Rule::parameters).
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for another number, and those of the algorithm's constructor.
    pub fn from_parameters(number: u8, [limit, span, last]: [u64; 3]) -> Result<Self, Error> {
        let span = Millis::new(span);
        match number {
            1 => Self::fixed_window(limit, span),
            2 => Self::sliding_window(limit, span),
            3 => Self::sliding_log(limit, span),
            4 => Self::token_bucket(limit, last, span),
            5 => Self::leaky_bucket(limit, last, span),
            6 => Concurrency::new(limit, span).map(|rule| Rule::Concurrency(rule.returns_cost(last == 1)).into()),
            7 if span == Millis::ZERO => Self::block(Millis::new(limit)),
            7 => Self::penalty(span, last, Millis::new(limit)),
            8 => {
                CalendarWindow::from_parameters([limit, span.get(), last]).map(|rule| Rule::CalendarWindow(rule).into())
            }
            9 => Balance::new(limit).map(|rule| Rule::Balance(rule.covers_excess(last == 1)).into()),
            _ => Err(Error::invalid(format!("quota: no algorithm has the number {number}; write 1 to 9"))),
        }
    }

    /// Counts by the key of this dimension, such as `user` or `tenant`. A [`Check`](crate::Check) has one key for each
    /// dimension of its policy. Quotas without a dimension share one that has no name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name that is not 1 to 32 of the characters `a-z A-Z 0-9 - _ .`
    pub fn by(mut self, dimension: &str) -> Result<Self, Error> {
        self.dimension = checked_name("by", dimension)?;
        Ok(self)
    }

    /// Counts by one key that is made of the keys of several dimensions: each combination of them has counts of its own. The name of this
    /// dimension is the names of its parts, joined by `+`, such as `ip+ja4`. One part is the same as [`by`](Self::by).
    ///
    /// A gate finds the key of each part and joins them. Without a gate, a [`Check`](crate::Check) has the key of the whole, from
    /// [`Key::joined`](crate::Key::joined).
    ///
    /// ```
    /// use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let quota = Quota::fixed_window(100, Millis::from_secs(60))?.by_all(["user", "model"])?;
    /// assert_eq!(quota.dimension(), "user+model");
    /// let policy = Policy::new("tokens", [quota])?;
    /// let key = Key::joined(&[Key::subject("alice"), Key::new("model:large")]);
    /// let keys = [("user+model", &key)];
    /// let check = Check::new(&policy, &keys, UnixMillis::new(0));
    /// assert_eq!(check.keys.storage_keys(&policy)?.place(), Some("tg1:tokens@user+model:fw60000:sub:alice%7Cmodel:large"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for no part, a part that is written twice, one that is not 1 to 32 of the characters
    /// `a-z A-Z 0-9 - _ .`, and if the name of the whole is longer than 32.
    pub fn by_all<'a>(mut self, parts: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut joined = String::new();
        for part in parts {
            let part = checked_name("by", part)?;
            if joined.split(PART_MARK).any(|known| known == &*part) {
                return Err(Error::invalid(format!("by: {} is written twice; write it once", Quoted(&part))));
            }
            if !joined.is_empty() {
                joined.push(PART_MARK);
            }
            joined.push_str(&part);
        }
        if joined.is_empty() {
            return Err(Error::invalid("by: an empty list; write the name of a dimension"));
        }
        checked_length(&joined)?;
        self.dimension = joined.into();
        Ok(self)
    }

    /// Sets the quota's name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name that is not 1 to 32 of the characters `a-z A-Z 0-9 - _ .`
    pub fn named(mut self, name: &str) -> Result<Self, Error> {
        self.name = Some(checked_name("name", name)?);
        Ok(self)
    }

    /// Sets at which parts of its limit a decision warns, in whole percents from 1 to 100, ascending, at most eight. A gate sends a
    /// [`Warning`](crate::gate::Warning) for each part that a charge crosses, and its verdicts have a
    /// [level](crate::gate::Verdict::level). A limiter's caller asks [`Policy::level`](crate::Policy::level).
    ///
    /// A part of a limit is rounded up: 80 % of 7 is reached when 6 are used. What is stored does not depend on it.
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(10, Millis::from_secs(60))?.warn_at([80, 100])?])?;
    /// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    /// let levels = [7, 1, 2, 1].map(|cost| policy.level(&policy.decide(&mut state, now, cost)));
    /// assert_eq!(levels, [None, Some(80), Some(100), Some(100)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for other numbers, and for a penalty and a balance, which have no limit.
    pub fn warn_at(mut self, percents: impl AsRef<[u64]>) -> Result<Self, Error> {
        if let Rule::Penalty(_) | Rule::Balance(_) = self.rule {
            return Err(Error::invalid("warn_at: a penalty and a balance have no limit; leave it out"));
        }
        self.warn_at = WarnAt::new(percents.as_ref())?;
        Ok(self)
    }

    /// The parts of its limit at which a decision [warns](Self::warn_at), in percent.
    pub fn warns_at(&self) -> impl Iterator<Item = u8> + '_ {
        self.warn_at.percents()
    }

    #[cfg(any(feature = "std", feature = "serde"))]
    pub(crate) const fn warn_at_percents(&self) -> &WarnAt {
        &self.warn_at
    }

    /// Returns the same quota with another limit or capacity. Both share their stored state: usage carries over. A penalty has
    /// no limit and stays the same.
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
        let rule = match &self.rule {
            Rule::Penalty(_) => return Ok(self.clone()),
            Rule::Balance(rule) => {
                let changed = Balance::new(limit)?.covers_excess(rule.covers());
                return Ok(Self { rule: Rule::Balance(changed), ..self.clone() });
            }
            Rule::Concurrency(rule) => {
                let changed = Concurrency::new(limit, rule.lifetime())?.returns_cost(rule.returns());
                return Ok(Self { rule: Rule::Concurrency(changed), ..self.clone() });
            }
            Rule::CalendarWindow(rule) => {
                return Ok(Self { rule: Rule::CalendarWindow(rule.with_limit(limit)?), ..self.clone() });
            }
            Rule::FixedWindow(rule) => Self::fixed_window(limit, rule.window()),
            Rule::SlidingWindow(rule) => Self::sliding_window(limit, rule.window()),
            Rule::SlidingLog(rule) => Self::sliding_log(limit, rule.window()),
            Rule::TokenBucket(rule) => Self::token_bucket(limit, rule.refill(), rule.per()),
            Rule::LeakyBucket(rule) => Self::leaky_bucket(limit, rule.bucket().refill(), rule.bucket().per()),
        }?
        .rule;
        Ok(Self { rule, ..self.clone() })
    }

    /// The same quota with another limit, and the same stored state. The rate of a bucket changes as its capacity does, rounded down, but is
    /// at least 1 unit.
    #[cfg(feature = "gate")]
    pub(crate) fn numbered(&self, limit: u64) -> Result<Self, Error> {
        let refill = |bucket: &TokenBucket| {
            let refill = u128::from(bucket.refill()) * u128::from(limit) / u128::from(bucket.capacity());
            u64::try_from(refill).unwrap_or(u64::MAX).max(1)
        };
        let numbered = match &self.rule {
            Rule::TokenBucket(rule) => Self::token_bucket(limit, refill(rule), rule.per())?.rule,
            Rule::LeakyBucket(rule) => {
                let bucket = rule.bucket();
                Self::leaky_bucket(limit, refill(bucket), bucket.per())?.rule
            }
            _ => return self.with_limit(limit),
        };
        let [[_, unit, _], [_, other, _]] = [self.rule.parameters(), numbered.parameters()];
        if unit != other {
            // A bucket of so many units would be stored in another unit.
            return Err(Error::invalid(format!(
                "capacity: {limit} is out of range; write a whole number from 1 to {}",
                crate::algorithm::MAX_UNITS / unit
            )));
        }
        Ok(Self { rule: numbered, ..self.clone() })
    }

    /// The same quota with `part / of` of its limit and rate, rounded down, but at least `least`. `None` if its limit would be zero.
    #[cfg(feature = "std")]
    pub(crate) fn share(&self, part: u64, of: u64, least: u64) -> Option<Self> {
        // Limits are below 2^52, `part` is at most 100, and `of` at most 2^16.
        let scaled = |limit: u64| (limit.saturating_mul(part) / of).max(least);
        let bucket = |bucket: &TokenBucket, build: fn(u64, u64, Millis) -> Result<Self, Error>| {
            let capacity = scaled(bucket.capacity());
            let (refill, per) = (bucket.refill().checked_mul(part)?, bucket.per().get().checked_mul(of)?);
            let slowly = || build(capacity, 1, Millis::new(per.div_ceil(refill)));
            // If the products of the exact rate are too large, one unit in a longer time.
            build(capacity, refill, Millis::new(per)).or_else(|_| slowly()).ok()
        };
        let rule = match &self.rule {
            Rule::TokenBucket(rule) => bucket(rule, Self::token_bucket)?.rule,
            Rule::LeakyBucket(rule) => bucket(rule.bucket(), Self::leaky_bucket)?.rule,
            // What is granted is in the store, and a share of it would be nothing.
            Rule::Penalty(_) | Rule::Balance(_) => return Some(self.clone()),
            _ => return self.with_limit(scaled(self.rule.limit())).ok(),
        };
        Some(Self { rule, ..self.clone() })
    }

    pub(crate) const fn is_unnamed(&self) -> bool {
        self.name.is_none()
    }

    pub(crate) fn name_it(&mut self, name: String) {
        self.name = Some(name.into());
    }

    /// The name. In a policy, an unnamed quota gets a name made of the policy's name and its position.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The dimension by whose key it counts. Empty if it has none.
    #[must_use]
    pub const fn dimension(&self) -> &str {
        &self.dimension
    }

    /// The calendar that a [calendar window](Quota::calendar_window) follows. One from its [parameters](Quota::from_parameters) has none.
    #[cfg(feature = "calendar")]
    #[must_use]
    pub fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_deref()
    }

    /// The same quota with its calendar.
    #[cfg(all(feature = "calendar", feature = "gate"))]
    pub(crate) fn following(self, calendar: Calendar) -> Self {
        Self { calendar: Some(calendar.into()), ..self }
    }

    /// The same quota with the window of an instant. `None` if it has this one already, or no calendar.
    #[cfg(feature = "calendar")]
    pub(crate) fn at(&self, now: UnixMillis) -> Option<Self> {
        let (Rule::CalendarWindow(rule), Some(calendar)) = (&self.rule, &self.calendar) else { return None };
        if rule.is_of(now) {
            return None;
        }
        let found = calendar.rule(rule.limit(), rule.carry_over(), now).ok().filter(|found| found != rule)?;
        Some(Self { rule: Rule::CalendarWindow(found), ..self.clone() })
    }

    /// The algorithm and its parameters.
    #[must_use]
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl From<Rule> for Quota {
    fn from(rule: Rule) -> Self {
        Self {
            name: None,
            dimension: Box::default(),
            rule,
            warn_at: WarnAt::default(),
            #[cfg(feature = "calendar")]
            calendar: None,
        }
    }
}

/// Joins the names of the dimensions whose keys make one key. No name has it.
pub(crate) const PART_MARK: char = '+';

const NAME_LEN_MAX: usize = 32;

/// Checks the name of a dimension that is made of several.
pub(crate) fn checked_length(joined: &str) -> Result<(), Error> {
    if joined.len() <= NAME_LEN_MAX {
        return Ok(());
    }
    let message = format!(
        "by: the names have {} characters when they are joined by {PART_MARK}; shorten them to {NAME_LEN_MAX}",
        joined.len()
    );
    Err(Error::invalid(message))
}

pub(crate) fn checked_name(field: &str, name: &str) -> Result<Box<str>, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(fits) {
        let shown: String = name.chars().take(40).collect();
        return Err(Error::invalid(format!(
            "{field}: {} cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ .",
            Quoted(&shown)
        )));
    }
    Ok(name.into())
}
