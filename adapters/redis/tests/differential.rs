//! Compares Redis with the reference over both protocols: random policies and random histories must get the same
//! answers.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use support::{MIN_TTL, Server, runtime};
use tidegate_core::algorithm::{MAX_UNITS, SlidingLog, TokenBucket};
use tidegate_core::{
    Check, Error, ErrorKind, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, Refund, Rule, UnixMillis,
};
use tokio::runtime::Runtime;

/// The last time of a history. The reference keeps what ends after now, and nothing ends after the very last instant.
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
    /// A check with one of four tokens.
    Once(u8, Cost),
    Peek(Cost),
    /// A refund of what was charged this many checks ago.
    Refund(usize, Cost),
    Reset,
    Forward(u64),
    Back(u64),
    /// A change of the limits that keeps the shape.
    Limits(u64, u64),
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

fn step() -> impl Strategy<Value = Step> {
    let span = || prop_oneof![4 => 0..30u64, 2 => 0..60_000u64, 1 => magnitude(48)];
    prop_oneof![
        10 => cost().prop_map(Step::Check),
        2 => (0..4u8, cost()).prop_map(|(token, cost)| Step::Once(token, cost)),
        1 => cost().prop_map(Step::Peek),
        2 => (0..6usize, cost()).prop_map(|(ago, cost)| Step::Refund(ago, cost)),
        1 => Just(Step::Reset),
        5 => span().prop_map(Step::Forward),
        2 => span().prop_map(Step::Back),
        1 => (magnitude(51), magnitude(51)).prop_map(|(limit, refill)| Step::Limits(limit, refill)),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let start = prop_oneof![0..100u64, Just(1_800_000_000_000), magnitude(48)];
    let quotas = prop_oneof![3 => prop::collection::vec(numbers(), 1..2), 2 => prop::collection::vec(numbers(), 1..=8)];
    (quotas, any::<bool>(), start, prop::collection::vec(step(), 1..40))
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

async fn replay(redis: &impl Limiter, key: &Key, history: &History) -> Result<(), TestCaseError> {
    let memory = MemoryLimiter::with_shards(1);
    let mut quotas = history.quotas.clone();
    let mut policy = policy(&quotas, history.charge_denied);
    let mut now = UnixMillis::new(history.start_ms).min(LAST);
    let mut charged_at = vec![now];
    // A replayed answer is explained by the policy of the retry, so a token is used with one configuration only.
    let mut epoch = 0;
    let (mut latest, mut fullest) = (now, 0);
    for (place, step) in history.steps.iter().enumerate() {
        let about = || format!("step {place}, {step:?}, at {now:?}, of {policy:?}");
        (latest, fullest) = (latest.max(now), fullest.max(most_units(&policy)));
        // The reference trusts the states in its memory. Here, the same state may be implausible, which is an error.
        let implausible = latest.since(now) > TWENTY_YEARS || fullest > least_implausible_level(&policy);
        let corrupt = |error: &Error| implausible && error.kind() == ErrorKind::Corrupt;
        match step {
            Step::Check(cost) => {
                let check = Check::new(&policy, key, now).cost(cost.of(&policy));
                let decided = match redis.check(check).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| TestCaseError::fail(format!("{error:?}; {}", about())))?,
                };
                prop_assert_eq!(&decided, &memory.decide(check), "{}", about());
                charged_at.push(now);
            }
            Step::Once(token, cost) => {
                let token = format!("{epoch}-{token}");
                let cost = cost.of(&policy);
                let check = Check::new(&policy, key, now).cost(cost).idempotent(&token, Millis::new(1 << 49));
                let decided = match redis.check(check).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| TestCaseError::fail(format!("{error:?}; {}", about())))?,
                };
                prop_assert_eq!(&decided, &memory.decide(check), "{}", about());
            }
            Step::Peek(cost) => {
                let check = Check::new(&policy, key, now).cost(cost.of(&policy));
                let decided = match redis.peek(check).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| TestCaseError::fail(format!("{error:?}; {}", about())))?,
                };
                prop_assert_eq!(&decided, &memory.peek(check).await.unwrap(), "{}", about());
            }
            Step::Refund(ago, cost) => {
                let then = charged_at[charged_at.len().saturating_sub(ago + 1)];
                // Charges fit each quota, so refund at most a few times the smallest limit.
                let most = policy.quotas().iter().map(|quota| 4 * quota.rule().limit()).min().unwrap();
                let refund = Refund::new(&policy, key, cost.of(&policy).min(most), then, now);
                match redis.refund(refund).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    given => given.map_err(|error| TestCaseError::fail(format!("{error:?}; {}", about())))?,
                }
                memory.refund(refund).await.unwrap();
            }
            Step::Reset => {
                redis.reset(&policy, key).await.unwrap();
                memory.reset(&policy, key).await.unwrap();
            }
            Step::Forward(span) => now = (now + Millis::new(*span)).min(LAST),
            Step::Back(span) => now = UnixMillis::new(now.get().saturating_sub(*span)),
            Step::Limits(limit, refill) => {
                for numbers in &mut quotas {
                    (numbers.limit, numbers.refill) = (*limit, *refill);
                }
                policy = self::policy(&quotas, history.charge_denied);
                epoch += 1;
            }
        }
    }
    Ok(())
}

/// Replays random histories, each with its own key.
fn replay_all(redis: &impl Limiter, runtime: &Runtime, cases: u32) {
    let nth = AtomicU64::new(0);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&history(), |history| {
        let key = Key::new(format!("case-{}", nth.fetch_add(1, Ordering::Relaxed)));
        runtime.block_on(replay(redis, &key, &history))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn redis_decides_as_the_reference_does() {
    let server = Server::start();
    replay_all(&server.limiter(), &runtime(), 600);

    // Every key expires. For one that does not, Redis returns -1.
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert!(keys.len() > 100, "{}", keys.len());
    for key in keys {
        let ttl_ms: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        assert!(ttl_ms > 60_000, "{key} expires after {ttl_ms} ms instead of {MIN_TTL}");
    }
}

#[cfg(feature = "rest")]
#[test]
fn rest_decides_as_the_reference_does() {
    let (server, runtime) = (Server::start(), runtime());
    let front = runtime.block_on(support::rest::Endpoint::start(&server));
    replay_all(&front.limiter_with(|config| config.key_locking(true)), &runtime, 300);
}
