//! Compares Redis with the reference over both protocols: random policies and random histories must get the same
//! answers.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{MIN_TTL, Server, runtime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_core::algorithm::CalendarWindow;
use tidegate_core::{
    Check, Error, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Refund, Rule, Settle, UnixMillis,
};
use tidegate_testing::crowd::{self, Crowd};
use tidegate_testing::{History, LAST, NOW, Plausibility, Step, Steps, history};
use tokio::runtime::Runtime;

async fn replay(redis: &impl Limiter, key: &Key, history: &History) -> Result<(), TestCaseError> {
    let memory = MemoryLimiter::with_shards(1);
    let mut quotas = history.quotas.clone();
    let mut policy = history.policy(&quotas);
    let mut now = UnixMillis::new(history.start_ms).min(LAST);
    let mut charged_at = vec![now];
    // A replayed answer is explained by the policy of the retry, so a token is used with one configuration only.
    let mut epoch = 0;
    let mut plausibility = Plausibility::new(now);
    for (place, step) in history.steps.iter().enumerate() {
        let about = || format!("step {place}, {step:?}, at {now:?}, of {policy:?}");
        plausibility.observe(&policy, now);
        let corrupt = |error: &Error| plausibility.explains(error, &policy, now);
        match step {
            Step::Check(cost) => {
                let check = Check::new(&policy, key, now).cost(cost.of(&policy));
                let decided = match redis.check(check).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| TestCaseError::fail(format!("{error:?}; {}", about())))?,
                };
                prop_assert_eq!(&decided, &memory.decide(check).unwrap(), "{}", about());
                charged_at.push(now);
            }
            Step::Once(token, cost, _) => {
                let token = format!("{epoch}-{token}");
                let cost = cost.of(&policy);
                let check = Check::new(&policy, key, now).cost(cost).idempotent(&token, Millis::new(1 << 49));
                let decided = match redis.check(check).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| error.kind()),
                };
                prop_assert_eq!(decided, memory.decide(check).map_err(|error| error.kind()), "{}", about());
            }
            Step::Settle(token, cost) => {
                let token = format!("{epoch}-{token}");
                let settle = Settle::new(&policy, key, &token, cost.of(&policy), now);
                let settled = match redis.settle(settle).await {
                    Err(error) if corrupt(&error) => return Ok(()),
                    settled => settled.map_err(|error| error.kind()),
                };
                let expected = memory.settle(settle).await.map_err(|error| error.kind());
                prop_assert_eq!(settled, expected, "{}", about());
                plausibility.observe_debt(&policy);
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
                redis.reset(&policy, key.into()).await.unwrap();
                memory.reset(&policy, key.into()).await.unwrap();
            }
            Step::Forward(span) => now = (now + Millis::new(*span)).min(LAST),
            Step::Back(span) => now = UnixMillis::new(now.get().saturating_sub(*span)),
            Step::Limits(limit, refill) => {
                quotas.iter_mut().for_each(|numbers| numbers.change(*limit, *refill));
                policy = history.policy(&quotas);
                epoch += 1;
            }
            Step::Evict => unreachable!("not among the steps"),
        }
    }
    Ok(())
}

/// Replays random histories, each with its own key.
fn replay_all(redis: &impl Limiter, runtime: &Runtime, cases: u32) {
    let nth = AtomicU64::new(0);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&history(Steps { changes: true, evictions: false }), |history| {
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

/// Several users and tenants, with policies of several dimensions, concurrency limits and penalties.
async fn replay_crowd(redis: &impl Limiter, crowd: &Crowd, prefix: &str) -> Result<(), TestCaseError> {
    let (memory, mut now) = (MemoryLimiter::with_shards(4), NOW);
    for (place, step) in crowd.moves.iter().enumerate() {
        now = crowd::clock(now, step.1);
        let told = crowd::take(redis, &crowd.policy, *step, now, prefix).await;
        let expected = crowd::take(&memory, &crowd.policy, *step, now, prefix).await;
        prop_assert_eq!(told, expected, "step {}, {:?}, at {:?}", place, step, now);
    }
    Ok(())
}

#[test]
fn a_crowd_is_decided_on_as_the_reference_does() {
    let (server, runtime, nth) = (Server::start(), runtime(), AtomicU64::new(0));
    let limiter = server.limiter();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_000);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&crowd::crowd(), |crowd| {
        let prefix = format!("crowd-{}:", nth.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(replay_crowd(&limiter, &crowd, &prefix))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[cfg(feature = "rest")]
#[test]
fn rest_decides_as_the_reference_does() {
    let (server, runtime) = (Server::start(), runtime());
    let front = runtime.block_on(crate::support::rest::Endpoint::start(&server));
    replay_all(&front.limiter_with(|config| config.key_locking(true)), &runtime, 300);
}

/// Calendar windows: what a caller does at an instant of some minutes around the start of one.
#[derive(Clone, Debug)]
enum Call {
    Check(u64),
    Peek(u64),
    Refund(u64, u64),
    Once(u8, u64),
    Settle(u8, u64),
    /// From now on, with another limit, other windows and another carry.
    Change(u64, u64, u64, u64, u64),
}

fn calls() -> impl Strategy<Value = Vec<(u64, Call)>> {
    let call = prop_oneof![
        8 => (0..9u64).prop_map(Call::Check),
        2 => (0..9u64).prop_map(Call::Peek),
        2 => (0..5u64, 0..600_000u64).prop_map(|(cost, ago)| Call::Refund(cost, ago)),
        2 => (0..3u8, 0..9u64).prop_map(|(token, cost)| Call::Once(token, cost)),
        2 => (0..3u8, 0..20u64).prop_map(|(token, cost)| Call::Settle(token, cost)),
        1 => (1..9u64, 0..20u64, 1..6u64, 1..6u64, 0..9u64)
            .prop_map(|(limit, start, first, next, carry)| Call::Change(limit, start, first, next, carry)),
    ];
    let instant = prop_oneof![4 => 0..900_000u64, 1 => (0..15u64).prop_map(|minute| 60_000 * minute)];
    prop::collection::vec((instant, call), 1..40)
}

/// The instants go up, with some steps back over boundaries.
async fn replay_calendar(
    redis: &impl Limiter,
    key: &Key,
    calls: &[(u64, Call)],
    beside: bool,
) -> Result<(), TestCaseError> {
    let memory = MemoryLimiter::with_shards(1);
    let minutes = |minutes| Millis::from_secs(60 * minutes);
    let policy = |limit: u64, start, first, next, carry: u64| {
        let (first, next) = (minutes(first), minutes(next));
        let window = CalendarWindow::new(limit, NOW + minutes(start), first, next, carry.min(limit)).unwrap();
        let mut quotas = vec![Quota::from(Rule::CalendarWindow(window))];
        quotas.extend(beside.then(|| Quota::fixed_window(12, minutes(2)).unwrap().named("beside").unwrap()));
        Policy::new("calendar", quotas).unwrap()
    };
    let (mut by, mut epoch, mut now) = (policy(5, 5, 3, 2, 3), 0, NOW);
    for (instant, call) in calls {
        // Mostly forward.
        let instant = NOW + Millis::new(*instant);
        now = if instant.get().is_multiple_of(4) { instant } else { now.max(instant) };
        let about = || format!("{call:?} at {now} of {by:?}");
        match *call {
            Call::Check(cost) | Call::Peek(cost) => {
                let check = Check::new(&by, key, now).cost(cost);
                let (one, other) = match call {
                    Call::Check(_) => (redis.check(check).await, memory.decide(check)),
                    _ => (redis.peek(check).await, memory.peek(check).await),
                };
                prop_assert_eq!(one.map_err(|error| error.kind()), other.map_err(|error| error.kind()), "{}", about());
            }
            Call::Refund(cost, ago) => {
                let then = UnixMillis::new(now.get() - ago);
                let refund = Refund::new(&by, key, cost, then, now);
                let (one, other) = (redis.refund(refund).await, memory.refund(refund).await);
                prop_assert_eq!(one.map_err(|error| error.kind()), other.map_err(|error| error.kind()), "{}", about());
            }
            Call::Once(token, cost) => {
                let token = format!("{epoch}-{token}");
                let check = Check::new(&by, key, now).cost(cost).idempotent(&token, Millis::new(1 << 49));
                let (one, other) = (redis.check(check).await, memory.decide(check));
                prop_assert_eq!(one.map_err(|error| error.kind()), other.map_err(|error| error.kind()), "{}", about());
            }
            Call::Settle(token, cost) => {
                let token = format!("{epoch}-{token}");
                let settle = Settle::new(&by, key, &token, cost, now);
                let (one, other) = (redis.settle(settle).await, memory.settle(settle).await);
                prop_assert_eq!(one.map_err(|error| error.kind()), other.map_err(|error| error.kind()), "{}", about());
            }
            Call::Change(limit, start, first, next, carry) => {
                by = policy(limit, start, first, next, carry);
                epoch += 1;
            }
        }
    }
    Ok(())
}

#[test]
fn calendar_windows_are_decided_as_in_memory() {
    let server = Server::start();
    let (redis, runtime, nth) = (server.limiter(), runtime(), AtomicU64::new(0));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(calls(), any::<bool>()), |(calls, beside)| {
        let key = Key::new(format!("calendar-{}", nth.fetch_add(1, Ordering::Relaxed)));
        runtime.block_on(replay_calendar(&redis, &key, &calls, beside))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
