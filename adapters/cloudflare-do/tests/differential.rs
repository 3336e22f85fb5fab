//! Compares objects with the reference: random policies, random histories, evictions at any point. Every answer must be
//! the same, and no more rows may be written than documented.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::collections::HashMap;
use std::num::NonZero;

use pollster::block_on;
use proptest::prelude::*;
use support::{Rig, START_MS, virtual_time};
use tidegate_cloudflare_do::{DurableObjects, Placement};
use tidegate_core::algorithm::{MAX_UNITS, SlidingLog, TokenBucket};
use tidegate_core::{
    Check, Error, ErrorKind, Key, Limiter, MAX_CLOCK_SKEW, MemoryLimiter, Millis, Policy, Quota, Refund, Rule,
    UnixMillis,
};

/// The last instant of a history. The reference keeps what ends after now, and nothing ends after the very last instant.
const LAST: UnixMillis = UnixMillis::new(UnixMillis::MAX.get() - 1);

/// The numbers of a quota. They are clamped to what its algorithm accepts.
#[derive(Clone, Debug)]
struct Numbers {
    algorithm: u8,
    limit: u64,
    unit: u64,
    refill: u64,
}

#[derive(Clone, Debug)]
enum Cost {
    Units(u64),
    /// In sixteenths of the first quota's limit.
    Sixteenths(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Check(Cost),
    /// A check with one of four tokens, and how long its answer is kept, in milliseconds.
    Once(u8, Cost, u64),
    Peek(Cost),
    /// A refund of what was charged this many checks ago.
    Refund(usize, Cost),
    Reset,
    Forward(u64),
    Back(u64),
    /// A change of the limits.
    Limits(u64, u64),
    Evict,
}

#[derive(Clone, Debug)]
struct History {
    quotas: Vec<Numbers>,
    charge_denied: bool,
    start_ms: u64,
    steps: Vec<Step>,
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

/// `settled`: time only goes forward and limits do not change, as the removal of expired rows assumes.
fn step(settled: bool) -> impl Strategy<Value = Step> {
    let span = || prop_oneof![4 => 0..30u64, 2 => 0..60_000u64, 1 => magnitude(48)];
    let odd = u32::from(!settled);
    prop_oneof![
        10 => cost().prop_map(Step::Check),
        2 => (0..4u8, cost(), magnitude(48)).prop_map(|(token, cost, ttl)| Step::Once(token, cost, ttl)),
        1 => cost().prop_map(Step::Peek),
        2 => (0..6usize, cost()).prop_map(|(ago, cost)| Step::Refund(ago, cost)),
        1 => Just(Step::Reset),
        5 => span().prop_map(Step::Forward),
        2 => Just(Step::Evict),
        2 * odd => span().prop_map(Step::Back),
        odd => (magnitude(51), magnitude(51)).prop_map(|(limit, refill)| Step::Limits(limit, refill)),
    ]
}

fn history(settled: bool) -> impl Strategy<Value = History> {
    let start = prop_oneof![0..100u64, Just(START_MS), magnitude(48)];
    let quotas = prop_oneof![3 => prop::collection::vec(numbers(), 1..2), 2 => prop::collection::vec(numbers(), 1..=8)];
    (quotas, any::<bool>(), start, prop::collection::vec(step(settled), 1..40))
        .prop_map(|(quotas, charge_denied, start_ms, steps)| History { quotas, charge_denied, start_ms, steps })
}

fn policy(quotas: &[Numbers], charge_denied: bool) -> Policy {
    let quotas = quotas.iter().map(|&Numbers { algorithm, limit, unit, refill }| {
        let unit = unit.clamp(1, MAX_UNITS);
        let limit = limit.clamp(1, MAX_UNITS / unit);
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
    fn of(&self, policy: &Policy) -> u64 {
        match *self {
            Self::Units(units) => units,
            Self::Sixteenths(share) => {
                u64::try_from(u128::from(policy.quotas()[0].rule().limit()) * u128::from(share) / 16).unwrap()
            }
        }
    }
}

/// Replays a history on objects and on the reference. `sweeping`: the objects' clock follows the history, and alarms fire.
fn replay(history: &History, placement: Placement, sweeping: bool) -> Result<(), TestCaseError> {
    let (rig, memory, key) = (Rig::default(), MemoryLimiter::with_shards(1), Key::new("user:1"));
    let limiter = DurableObjects::with_config(&rig, virtual_time().placement(placement)).limiter();
    let mut quotas = history.quotas.clone();
    let mut policy = policy(&quotas, history.charge_denied);
    let mut now = UnixMillis::new(history.start_ms).min(LAST);
    let mut charged_at = vec![now];
    // A replayed answer is explained by the policy of the retry. So a token is used with one configuration only.
    let mut epoch = 0;
    let (mut latest, mut fullest) = (now, 0);
    // The first answer of each token that was admitted and charged, and until when it is kept.
    let mut answers = HashMap::new();
    if sweeping {
        rig.set_clock(now);
    }
    for (place, step) in history.steps.iter().enumerate() {
        let about = || format!("step {place}, {step:?}, at {now:?}, of {policy:?}");
        let written = rig.rows_written();
        (latest, fullest) = (latest.max(now), fullest.max(most_units(&policy)));
        // The reference trusts the states in its memory. Here, the same state may be implausible, which is an error.
        let implausible = latest.since(now) > TWENTY_YEARS || fullest > least_implausible_level(&policy);
        let corrupt = |error: &Error| implausible && error.kind() == ErrorKind::Corrupt;
        // A denial moves a state that lies too far ahead back, and writes it.
        let mut due = u64::from(latest.since(now) > MAX_CLOCK_SKEW);
        match step {
            Step::Check(cost) => {
                let check = Check::new(&policy, &key, now).cost(cost.of(&policy));
                let decided = match block_on(limiter.check(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.unwrap(),
                };
                prop_assert_eq!(&decided, &memory.decide(check), "{}", about());
                charged_at.push(now);
                due = due.max(u64::from(decided.is_allowed() || policy.charges_denied()));
            }
            Step::Once(token, cost, ttl) => {
                let token = format!("{epoch}-{token}");
                let plain = Check::new(&policy, &key, now).cost(cost.of(&policy));
                let check = plain.idempotent(&token, Millis::new(*ttl));
                let decided = match block_on(limiter.check(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.unwrap(),
                };
                let replayed = answers.get(&token).filter(|(until, _)| *until > now).map(|(_, first)| first);
                if let Some(first) = replayed {
                    prop_assert_eq!(&decided, first, "{}", about());
                } else {
                    let first = memory.decide(plain);
                    prop_assert_eq!(&decided, &first, "{}", about());
                    due = due.max(u64::from(decided.is_allowed() || policy.charges_denied()));
                    if decided.is_allowed() && check.cost > 0 {
                        answers.insert(token, (now + Millis::new(*ttl), first));
                        due += 1;
                    }
                }
            }
            Step::Peek(cost) => {
                let check = Check::new(&policy, &key, now).cost(cost.of(&policy));
                let decided = match block_on(limiter.peek(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.unwrap(),
                };
                prop_assert_eq!(&decided, &block_on(memory.peek(check)).unwrap(), "{}", about());
            }
            Step::Refund(ago, cost) => {
                let then = charged_at[charged_at.len().saturating_sub(ago + 1)];
                let refund = Refund::new(&policy, &key, cost.of(&policy), then, now);
                match block_on(limiter.refund(refund)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    refunded => refunded.unwrap(),
                }
                block_on(memory.refund(refund)).unwrap();
                due = 1;
            }
            Step::Reset => {
                block_on(limiter.reset(&policy, &key)).unwrap();
                block_on(memory.reset(&policy, &key)).unwrap();
                due = 1;
            }
            Step::Forward(span) => {
                now = (now + Millis::new(*span)).min(LAST);
                if sweeping {
                    rig.set_clock(now);
                    // Expired rows are removed.
                    due = 5;
                }
            }
            Step::Back(span) => now = UnixMillis::new(now.get().saturating_sub(*span)),
            Step::Limits(limit, refill) => {
                for numbers in &mut quotas {
                    (numbers.limit, numbers.refill) = (*limit, *refill);
                }
                policy = self::policy(&quotas, history.charge_denied);
                epoch += 1;
            }
            Step::Evict => rig.evict(),
        }
        let rows = rig.rows_written() - written;
        prop_assert!(
            rows <= due,
            "{rows} rows were written, {due} at most are due; step {place}, {step:?}, of {policy:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn an_object_decides_as_the_reference_does(history in history(false)) {
        replay(&history, Placement::PerKey, false)?;
    }

    #[test]
    fn the_removal_of_expired_rows_changes_no_decision(history in history(true)) {
        replay(&history, Placement::Shards(NonZero::new(3).unwrap()), true)?;
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}
