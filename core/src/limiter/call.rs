//! What a caller passes to a [`Limiter`](crate::Limiter).

use alloc::format;
use core::fmt;

use super::Lease;
#[cfg(feature = "std")]
use crate::Rule;
use crate::algorithm::MAX_UNITS;
use crate::quoted_text::Quoted;
use crate::sha256::sha256;
use crate::{Error, Keys, Millis, Policy, UnixMillis};

/// A request for a [`Limiter`](crate::Limiter) to decide on.
///
/// ```
/// use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("tokens", [Quota::token_bucket(10_000, 500, Millis::from_secs(1))?])?;
/// let key = Key::new("sub:alice");
/// let check = Check::new(&policy, &key, UnixMillis::new(0)).cost(750).idempotent("req-81f3", Millis::from_secs(60));
/// assert_eq!(check.cost, 750);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policy to decide by.
    pub policy: &'a Policy,
    /// The keys to count against, one for each dimension of the policy.
    pub keys: Keys<'a>,
    /// The cost of the request. The default is 1.
    pub cost: u64,
    /// The caller's clock. A limiter that uses its store's clock ignores it.
    pub now: UnixMillis,
    /// The token under which retries of this check are the same check.
    pub idempotency: Option<Idempotency<'a>>,
    /// The lease by which the check may be decided from a loan. A gate gives them to the checks of its limits that have a `lease`. A
    /// limiter that does not [borrow](super::Capabilities::borrows) ignores them.
    pub lease: Option<Lease>,
}

impl<'a> Check<'a> {
    /// A request of cost 1. `keys` is a `&Key`, or one for each dimension of the policy; see [`Keys`].
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), cost: 1, now, idempotency: None, lease: None }
    }

    /// Sets the cost.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets an idempotency token, for retries of a check whose answer was lost. Within `ttl` of the first check with this
    /// policy, key and token that was admitted and charged, every further one returns its answer, marked as a
    /// [replay](crate::Decision::is_replay), and is not charged. The token also identifies the charge to
    /// [`LimiterExt::settle`](crate::LimiterExt::settle). With another cost, it is an error:
    /// [`TokenReused`](crate::ErrorKind::TokenReused).
    ///
    /// Never pass on a token that a client chose: the client would send all its requests under one token, and all of them
    /// would repeat the first answer. Use one that the server makes, or accept at most as many replays as retries.
    ///
    /// A policy with a [concurrency limit](crate::algorithm::Concurrency) needs a token, which names the slot. The charge is
    /// then remembered for as long as the slot may be held, if that is longer than `ttl`.
    ///
    /// A token that is empty or blank is an error: [`Invalid`](crate::ErrorKind::Invalid). It would make every request a retry
    /// of the first.
    ///
    /// A check that was denied or costs 0 is not remembered, and a retry of it is decided anew. So the limit bounds the
    /// number of tokens that a store remembers.
    #[must_use]
    pub const fn idempotent(mut self, token: &'a str, ttl: Millis) -> Self {
        self.idempotency = Some(Idempotency { token, ttl });
        self
    }

    /// Checks that the token is one, that a policy with slots has it, and that the policy knows the window of the check.
    #[inline]
    pub(crate) fn verify(&self) -> Result<(), Error> {
        self.policy.covers(self.now)?;
        match self.idempotency {
            Some(idempotency) => verify_token(idempotency.token),
            None if self.policy.has_slots() => Err(Error::invalid(
                "idempotency: a policy with a concurrency limit needs a token, which names the slot; give one",
            )),
            None => Ok(()),
        }
    }

    /// The rule of a check without a token by a policy of this rule alone, whose state is a few numbers. Nothing of it is to be verified.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn rule_alone(&self) -> Option<&'a Rule> {
        let rule = self.policy.small_rule()?;
        if self.idempotency.is_none() { Some(rule) } else { None }
    }

    /// The token, and how long a store remembers its charge.
    #[must_use]
    #[inline]
    pub fn remembered(&self) -> Option<Idempotency<'a>> {
        let Idempotency { token, ttl } = self.idempotency?;
        Some(Idempotency { token, ttl: ttl.max(self.policy.longest_slot()) })
    }

    /// The identity of the charge, if the policy needs it.
    #[must_use]
    pub fn charge_id(&self) -> ChargeId {
        match self.idempotency {
            Some(idempotency) if self.policy.has_slots() => ChargeId::of(idempotency.token),
            _ => ChargeId::NONE,
        }
    }
}

/// Identifies a charge: the first 64 bits of its token's SHA-256.
///
/// ```
/// use tidegate_core::ChargeId;
/// assert_ne!(ChargeId::of("request-1"), ChargeId::of("request-2"));
/// assert_eq!(ChargeId::of("request-1").to_string(), "19f1064b619d49d3");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChargeId(u64);

impl ChargeId {
    /// Of a charge without a token.
    pub const NONE: Self = Self(0);

    /// Of the charge with a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        let hash = sha256(token.as_bytes());
        Self(u64::from_be_bytes(core::array::from_fn(|place| hash[place])))
    }

    /// From the number that [`ChargeId::get`] returned.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Sixteen hexadecimal digits.
impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A token that identifies the retries of a check; see [`Check::idempotent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency<'a> {
    /// A text that is unique to the request, of any length.
    pub token: &'a str,
    /// How long the first answer is remembered. It holds while `now < first + ttl`.
    pub ttl: Millis,
}

/// A charge to return; see [`Policy::refund`].
///
/// A store cannot tell whether a charge without a token was refunded before. So every refund is applied, and a key never has
/// more left than its limit. A policy with a [balance](crate::algorithm::Balance) takes no refund, because only a token tells what the
/// balance paid. Refund only what was charged: a [replay](crate::Decision::is_replay) charged nothing. A charge
/// that has a token is refunded by [`LimiterExt::settle`](crate::LimiterExt::settle), which pays out once.
///
/// ```
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Refund, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("tokens", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:alice"), UnixMillis::new(0));
/// let charged = limiter.check(Check::new(&policy, &key, now).cost(80)).await?;
/// // It cost 30 in the end: give back 50.
/// limiter.refund(Refund::new(&policy, &key, 50, charged.decided_at(), UnixMillis::new(400))).await?;
/// let left = limiter.peek(Check::new(&policy, &key, UnixMillis::new(400))).await?;
/// assert_eq!(left.binding().remaining(), Some(70));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refund<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The keys of the charge.
    pub keys: Keys<'a>,
    /// The amount to return.
    pub cost: u64,
    /// The instant of the charge: [`Decision::decided_at`](crate::Decision::decided_at).
    pub charged_at: UnixMillis,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Refund<'a> {
    /// A refund of `cost` that was charged at `charged_at`.
    #[must_use]
    pub fn new(
        policy: &'a Policy,
        keys: impl Into<Keys<'a>>,
        cost: u64,
        charged_at: UnixMillis,
        now: UnixMillis,
    ) -> Self {
        Self { policy, keys: keys.into(), cost, charged_at, now }
    }

    pub(crate) fn verify(&self) -> Result<(), Error> {
        if self.policy.has_balance() {
            return Err(Error::invalid(
                "refund: only a token tells what a balance paid; give the check a token, and settle it",
            ));
        }
        Ok(())
    }
}

/// The actual cost of a charge, once it is known: a request of unknown cost is charged an estimate, and settled afterwards.
///
/// What the request cost less than charged is returned, less what time has replenished since. What it cost more is charged
/// now, also beyond the limit; see [`Policy::settle`]. A cost of 0 cancels the charge. A slot of a
/// [concurrency limit](crate::algorithm::Concurrency) is given back.
///
/// The charge is the one of the check with this policy, key and [token](Check::idempotent). It is settled once: a further
/// settlement changes nothing, whatever its cost, so it can be retried after a lost answer. If it is never settled, because
/// the caller died, the estimate stays charged.
///
/// ```
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Settle, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("tokens", [Quota::token_bucket(1_000, 10, Millis::from_secs(1))?])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:alice"), UnixMillis::new(0));
/// let estimate = Check::new(&policy, &key, now).cost(300).idempotent("req-81f3", Millis::from_secs(600));
/// assert!(limiter.check(estimate).await?.is_allowed());
/// // The answer has 120 tokens.
/// let settled = limiter.settle(Settle::new(&policy, &key, "req-81f3", 120, now)).await?;
/// assert_eq!(settled.binding().remaining(), Some(880));
/// assert!(limiter.settle(Settle::new(&policy, &key, "req-81f3", 0, now)).await?.is_replay());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settle<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The keys of the charge.
    pub keys: Keys<'a>,
    /// The token of the charge.
    pub token: &'a str,
    /// What the request cost. `None` if it cost what was charged.
    pub cost: Option<u64>,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Settle<'a> {
    /// Settles the charge with this `token` to `cost`.
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, token: &'a str, cost: u64, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), token, cost: Some(cost), now }
    }

    /// Settles the charge with this `token` to what was charged: it gives back only the request's slots.
    #[must_use]
    pub fn release(policy: &'a Policy, keys: impl Into<Keys<'a>>, token: &'a str, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), token, cost: None, now }
    }

    /// The identity of the charge, if the policy needs it.
    #[must_use]
    pub fn charge_id(&self) -> ChargeId {
        if self.policy.has_slots() { ChargeId::of(self.token) } else { ChargeId::NONE }
    }

    pub(crate) fn verify(&self) -> Result<(), Error> {
        verify_token(self.token)?;
        match self.cost {
            Some(cost) if cost > MAX_UNITS => {
                Err(Error::invalid(format!("cost: {cost} is out of range; write a whole number from 0 to {MAX_UNITS}")))
            }
            _ => Ok(()),
        }
    }
}

/// A block of keys by hand, for an operator who has seen enough, or the end of one; see [`Policy::block`].
///
/// The block lies in the state of the policy's [penalty](crate::algorithm::Penalty), or of its [`Quota::block`](crate::Quota::block)
/// if violations do not block. So it is decided in the same step as all else, and checks by policies without one cost nothing
/// more. It is at most the quota's cap long. The keys of all dimensions that have such a quota are blocked.
///
/// ```
/// use tidegate_core::{Block, Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("api", [
///     Quota::fixed_window(100, Millis::from_secs(60))?,
///     Quota::block(Millis::from_secs(30 * 86_400))?,
/// ])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:mallory"), UnixMillis::new(0));
/// let day = Millis::from_secs(86_400);
/// limiter.block(Block::new(&policy, &key, day, now)).await?;
/// assert_eq!(limiter.check(Check::new(&policy, &key, now)).await?.retry_after(), Some(day));
/// limiter.block(Block::end(&policy, &key, now)).await?;
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Block<'a> {
    /// The policy by which the keys are checked.
    pub policy: &'a Policy,
    /// The keys to block.
    pub keys: Keys<'a>,
    /// How long from now on. Zero ends a block.
    pub span: Millis,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Block<'a> {
    /// Blocks keys for `span`, whatever block there is.
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, span: Millis, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), span, now }
    }

    /// Ends a block, also one by a violation.
    #[must_use]
    pub fn end(policy: &'a Policy, keys: impl Into<Keys<'a>>, now: UnixMillis) -> Self {
        Self::new(policy, keys, Millis::ZERO, now)
    }

    pub(crate) fn verify(&self) -> Result<(), Error> {
        if self.policy.has_blocks() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "block: the policy {} has no quota that blocks; add a `block`, or a `penalty` if violations are to block, too",
            Quoted(self.policy.name())
        )))
    }
}

/// Units to add to the [balance](crate::algorithm::Balance) of a policy, such as credits that a customer has bought.
///
/// The token is unique to the grant, such as the number of the order. While it is remembered, a further grant with it changes
/// nothing and replies with what the balance has then, marked as a [replay](crate::Decision::is_replay), so a grant whose answer was lost can be
/// repeated. With another number of units it is an error: [`TokenReused`](crate::ErrorKind::TokenReused).
///
/// A policy of several dimensions needs the key of the balance's dimension, and with a [group](Policy::group_by) all of them.
///
/// ```
/// use tidegate_core::{Check, Grant, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("api", [
///     Quota::fixed_window(1_000, Millis::from_secs(86_400))?,
///     Quota::balance(1_000_000)?.covers_excess()?,
/// ])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:alice"), UnixMillis::new(0));
/// let order = Grant::new(&policy, &key, 5_000, "order-1817", now);
/// assert_eq!(limiter.grant(order).await?.quotas()[1].remaining(), Some(5_000));
/// assert!(limiter.grant(order).await?.is_replay());
/// let decision = limiter.check(Check::new(&policy, &key, now).cost(1_200)).await?;
/// assert_eq!(decision.from_balance(), 200);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Grant<'a> {
    /// The policy with the balance.
    pub policy: &'a Policy,
    /// The keys by which the policy counts.
    pub keys: Keys<'a>,
    /// How many units to add.
    pub units: u64,
    /// A text that is unique to the grant, of any length.
    pub token: &'a str,
    /// How long the token is remembered. The default is [`Grant::REMEMBERED`].
    pub ttl: Millis,
    /// The units count before this instant. The default is [`UnixMillis::MAX`]: they do not expire.
    pub expires: UnixMillis,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Grant<'a> {
    /// How long a token is remembered by default: 90 days.
    pub const REMEMBERED: Millis = Millis::from_secs(90 * 86_400);

    /// A grant of `units` that do not expire.
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, units: u64, token: &'a str, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), units, token, ttl: Self::REMEMBERED, expires: UnixMillis::MAX, now }
    }

    /// Sets when the units expire: they count before this instant.
    #[must_use]
    pub const fn expires(mut self, at: UnixMillis) -> Self {
        self.expires = at;
        self
    }

    /// Sets how long the token is remembered. A grant that is repeated later grants again.
    #[must_use]
    pub const fn remembered_for(mut self, ttl: Millis) -> Self {
        self.ttl = ttl;
        self
    }

    pub(crate) fn verify(&self) -> Result<(), Error> {
        verify_token(self.token)?;
        if !self.policy.has_balance() {
            return Err(self.policy.no_balance());
        }
        if self.units == 0 || self.units > MAX_UNITS {
            return Err(Error::invalid(format!(
                "units: {} is out of range; write a whole number from 1 to {MAX_UNITS}",
                self.units
            )));
        }
        Ok(())
    }
}

fn verify_token(token: &str) -> Result<(), Error> {
    if token.trim().is_empty() {
        return Err(Error::invalid("idempotency: the token is empty; give one that is unique to the request, or none"));
    }
    Ok(())
}
