//! Random policies and histories of requests. An adapter's tests replay them on its store and on the reference, and the
//! answers must be the same.

use proptest::prelude::*;
use tidegate_core::algorithm::{MAX_UNITS, SlidingLog, TokenBucket};
use tidegate_core::{Error, ErrorKind, Millis, Policy, Quota, Rule, UnixMillis};

use crate::NOW;

/// The last instant of a history. The reference keeps what ends after now, and nothing ends after the very last instant.
pub const LAST: UnixMillis = UnixMillis::new(UnixMillis::MAX.get() - 1);

/// The numbers of a quota. They are clamped to what its algorithm accepts.
#[derive(Clone, Debug)]
pub struct Numbers {
    algorithm: u8,
    limit: u64,
    unit: u64,
    refill: u64,
}

/// What a request costs.
#[derive(Clone, Debug)]
pub enum Cost {
    /// In units.
    Units(u64),
    /// In sixteenths of the first quota's limit.
    Sixteenths(u64),
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// A check.
    Check(Cost),
    /// A check with one of four tokens, and how long its answer is kept, in milliseconds.
    Once(u8, Cost, u64),
    /// A settlement of the charge with one of the four tokens.
    Settle(u8, Cost),
    /// A peek.
    Peek(Cost),
    /// A refund of what was charged this many checks ago.
    Refund(usize, Cost),
    /// A reset.
    Reset,
    /// Time passes, in milliseconds.
    Forward(u64),
    /// The clock steps back, in milliseconds.
    Back(u64),
    /// A change of the limit and the refill of every quota. The shape of the policy stays the same.
    Limits(u64, u64),
    /// The store's process loses its memory.
    Evict,
}

/// Which steps a history has besides requests and the passing of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Whether the clock steps back and the limits change.
    pub changes: bool,
    /// Whether the store's process loses its memory.
    pub evictions: bool,
}

/// A policy, and what happens to one of its keys.
#[derive(Clone, Debug)]
pub struct History {
    /// The quotas of the policy.
    pub quotas: Vec<Numbers>,
    /// Whether the policy charges denied requests.
    pub charge_denied: bool,
    /// The instant of the first step, in milliseconds.
    pub start_ms: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl History {
    /// The policy with these quotas, which are those of the history, or those after [`Step::Limits`].
    #[must_use]
    pub fn policy(&self, quotas: &[Numbers]) -> Policy {
        policy(quotas, self.charge_denied)
    }
}

impl Numbers {
    /// Changes the limit and the refill.
    pub fn change(&mut self, limit: u64, refill: u64) {
        (self.limit, self.refill) = (limit, refill);
    }
}

/// Integers up to 2^`bits`, with every bit length equally likely.
fn magnitude(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>()).prop_map(|(bits, number)| number >> (63 - bits).min(63) >> 1)
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let tiny = (0..5u8, 1..6u64, 1..20u64, 1..5u64);
    let plain = (0..5u8, 1..100u64, 1_000..60_000u64, 1..50u64);
    let any = (0..5u8, magnitude(51), magnitude(51), magnitude(51));
    let full = (0..5u8, Just(u64::MAX), magnitude(51), magnitude(51));
    prop_oneof![4 => tiny, 3 => plain, 2 => any, 2 => full].prop_map(|(algorithm, limit, unit, refill)| Numbers {
        algorithm,
        limit,
        unit,
        refill,
    })
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => Just(Cost::Units(1)),
        1 => Just(Cost::Units(0)),
        2 => (1..5u64).prop_map(Cost::Units),
        4 => (0..20u64).prop_map(Cost::Sixteenths),
        1 => prop_oneof![Just(u64::MAX), magnitude(63)].prop_map(Cost::Units),
    ]
}

fn step(steps: Steps) -> impl Strategy<Value = Step> {
    let span = || prop_oneof![4 => 0..30u64, 2 => 0..60_000u64, 1 => magnitude(48)];
    let (changes, evictions) = (u32::from(steps.changes), u32::from(steps.evictions));
    prop_oneof![
        10 => cost().prop_map(Step::Check),
        2 => (0..4u8, cost(), magnitude(48)).prop_map(|(token, cost, ttl)| Step::Once(token, cost, ttl)),
        2 => (0..4u8, cost()).prop_map(|(token, cost)| Step::Settle(token, cost)),
        1 => cost().prop_map(Step::Peek),
        2 => (0..6usize, cost()).prop_map(|(ago, cost)| Step::Refund(ago, cost)),
        1 => Just(Step::Reset),
        5 => span().prop_map(Step::Forward),
        2 * evictions => Just(Step::Evict),
        2 * changes => span().prop_map(Step::Back),
        changes => (magnitude(51), magnitude(51)).prop_map(|(limit, refill)| Step::Limits(limit, refill)),
    ]
}

/// Histories with these steps.
pub fn history(steps: Steps) -> impl Strategy<Value = History> {
    let start = prop_oneof![0..100u64, Just(NOW.get()), magnitude(48)];
    let quotas = prop_oneof![3 => prop::collection::vec(numbers(), 1..2), 2 => prop::collection::vec(numbers(), 1..=8)];
    (quotas, any::<bool>(), start, prop::collection::vec(step(steps), 1..40))
        .prop_map(|(quotas, charge_denied, start_ms, steps)| History { quotas, charge_denied, start_ms, steps })
}

fn policy(quotas: &[Numbers], charge_denied: bool) -> Policy {
    let quotas = quotas.iter().map(|&Numbers { algorithm, limit, unit, refill }| {
        let unit = unit.clamp(1, MAX_UNITS);
        // Windows compute no product of limit and window, or one of any size.
        let limit = limit.clamp(1, if algorithm <= 1 { MAX_UNITS } else { MAX_UNITS / unit });
        let (window, refill) = (Millis::new(unit), refill.clamp(1, MAX_UNITS));
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, window),
            1 => Quota::sliding_window(limit, window),
            2 => Quota::sliding_log(limit.min(SlidingLog::MAX_LIMIT), window),
            3 => Quota::token_bucket(limit, refill, window),
            _ => Quota::leaky_bucket(limit, refill, window),
        };
        quota.unwrap()
    });
    Policy::new("api", quotas).unwrap().charge_denied(charge_denied)
}

/// States whose clocks or limits differ by more are treated as corrupt. See [`Policy::verify`].
const TWENTY_YEARS: Millis = Millis::from_secs(20 * 365 * 86_400);

/// Whether the policy could have written the state by now. The reference trusts the states in its memory. A store reports an
/// implausible state as corrupt.
#[derive(Debug)]
pub struct Plausibility {
    latest: UnixMillis,
    fullest: u64,
}

impl Plausibility {
    /// Of a history that begins at `start`.
    #[must_use]
    pub const fn new(start: UnixMillis) -> Self {
        Self { latest: start, fullest: 0 }
    }

    /// Takes a step into account.
    pub fn observe(&mut self, policy: &Policy, now: UnixMillis) {
        self.latest = self.latest.max(now);
        self.fullest = self.fullest.max(most_units(policy));
    }

    /// Takes a settlement into account, which may leave a debt.
    pub fn observe_debt(&mut self, policy: &Policy) {
        let debt = |bucket: TokenBucket| {
            (bucket.capacity() * bucket.per().get())
                .saturating_add(TokenBucket::MAX_DEBT.get().saturating_mul(bucket.refill()))
        };
        let most = buckets(policy).map(debt).max().unwrap_or_default().min(MAX_UNITS);
        self.fullest = self.fullest.max(most);
    }

    /// How far the clock has been ahead of `now`.
    #[must_use]
    pub fn ahead_of(&self, now: UnixMillis) -> Millis {
        self.latest.since(now)
    }

    /// Whether a store may answer this error at `now`.
    #[must_use]
    pub fn explains(&self, error: &Error, policy: &Policy, now: UnixMillis) -> bool {
        let implausible = self.ahead_of(now) > TWENTY_YEARS || self.fullest > least_implausible_level(policy);
        implausible && error.kind() == ErrorKind::Corrupt
    }
}

/// The most units that a bucket of the policy holds.
fn most_units(policy: &Policy) -> u64 {
    buckets(policy).map(|bucket| bucket.capacity() * bucket.per().get()).max().unwrap_or_default()
}

/// Any bucket level below this is plausible.
fn least_implausible_level(policy: &Policy) -> u64 {
    let most = |bucket: TokenBucket| {
        (bucket.capacity() * bucket.per().get()).saturating_add(TWENTY_YEARS.get().saturating_mul(bucket.refill()))
    };
    buckets(policy).map(most).min().unwrap_or(u64::MAX)
}

fn buckets(policy: &Policy) -> impl Iterator<Item = TokenBucket> {
    policy.quotas().iter().filter_map(|quota| match quota.rule() {
        Rule::TokenBucket(bucket) => Some(*bucket),
        Rule::LeakyBucket(bucket) => Some(*bucket.bucket()),
        _ => None,
    })
}

impl Cost {
    /// In units, of this policy.
    #[must_use]
    pub fn of(&self, policy: &Policy) -> u64 {
        match *self {
            Self::Units(units) => units,
            Self::Sixteenths(share) => {
                u64::try_from(u128::from(policy.quotas()[0].rule().limit()) * u128::from(share) / 16).unwrap()
            }
        }
    }
}
