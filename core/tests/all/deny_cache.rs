//! The deny cache: it answers as the limiter behind it would, with fewer checks of that limiter.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Capabilities, Check, DenyCache, Error, ErrorKind, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Operation,
    Origin, Policy, Quota, Refund, Reply, UnixMillis,
};
use tidegate_testing::{NOW, at, key};

/// A limiter that counts its checks, and can be made to answer late or to fail.
#[derive(Default)]
struct Store {
    counts: MemoryLimiter,
    checks: AtomicU64,
    answers_late: AtomicBool,
    fails: AtomicBool,
}

impl Limiter for &Store {
    fn capabilities(&self) -> Capabilities {
        self.counts.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.counts.apply(operation).await;
        match operation {
            Operation::Check(_) => {
                self.checks.fetch_add(1, Ordering::Relaxed);
                std::future::poll_fn(|_| {
                    if self.answers_late.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
            }
            Operation::Refund(_) if self.fails.load(Ordering::Relaxed) => {
                return Err(Error::new(ErrorKind::Timeout, "late"));
            }
            _ => {}
        }
        reply
    }
}

fn policies(limit: u64) -> Vec<Policy> {
    let (second, named) =
        (Millis::from_secs(1), |quota: Result<Quota, Error>, name| quota.unwrap().named(name).unwrap());
    let one = |name: &str, quota: Result<Quota, Error>| Policy::new(name, [quota.unwrap()]).unwrap();
    vec![
        one("fixed", Quota::fixed_window(limit, second)),
        one("sliding", Quota::sliding_window(limit, second)),
        one("log", Quota::sliding_log(limit, second)),
        one("bucket", Quota::token_bucket(limit, 2, second)),
        one("shaper", Quota::leaky_bucket(limit, 2, second)),
        Policy::new(
            "both",
            [
                named(Quota::token_bucket(limit, 3, second), "burst"),
                named(Quota::fixed_window(2 * limit, Millis::from_secs(3)), "more"),
            ],
        )
        .unwrap(),
        one("charging", Quota::sliding_window(limit, second)).charge_denied(true),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Ask { after_ms: i64, policy: usize, limit: u64, cost: u64, token: Option<u8> },
    Refund { policy: usize, limit: u64, cost: u64 },
    Reset { policy: usize, limit: u64 },
}

/// Most steps use the same policy and limit, so that the cache has denials to return.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (0..7usize, 2..5u64).prop_flat_map(|(policy, limit)| prop::collection::vec(step(policy, limit), 1..160))
}

fn step(policy: usize, limit: u64) -> impl Strategy<Value = Step> {
    let after_ms = prop_oneof![4 => 0..60i64, 2 => 60..700i64, 1 => -900..0i64];
    let policy = prop_oneof![6 => Just(policy), 1 => 0..7usize];
    let limit = prop_oneof![6 => Just(limit), 1 => 2..5u64];
    prop_oneof![
        16 => (after_ms, policy.clone(), limit.clone(), prop_oneof![4 => Just(1u64), 1 => 0..7u64], prop_oneof![8 => Just(None), 1 => (0..3u8).prop_map(Some)])
            .prop_map(|(after_ms, policy, limit, cost, token)| Step::Ask { after_ms, policy, limit, cost, token }),
        1 => (policy.clone(), limit.clone(), 1..4u64).prop_map(|(policy, limit, cost)| Step::Refund { policy, limit, cost }),
        1 => (policy, limit).prop_map(|(policy, limit)| Step::Reset { policy, limit }),
    ]
}

#[test]
fn any_sequence_is_answered_as_by_the_limiter() {
    static RECALLED: AtomicU64 = AtomicU64::new(0);
    proptest!(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }, |(steps in steps())| {
        let (store, alone) = (Store::default(), MemoryLimiter::new());
        let cached = DenyCache::new(&store);
        let (key, mut now) = (key(), NOW);
        for step in steps {
            match step {
                Step::Ask { after_ms, policy, limit, cost, token } => {
                    now = UnixMillis::new(now.get().saturating_add_signed(after_ms));
                    let (policy, token) = (&policies(limit)[policy], token.map(|token| token.to_string()));
                    let mut check = Check::new(policy, &key, now).cost(cost);
                    if let Some(token) = &token {
                        // Longer than all the steps together, because the store and not the cache expires tokens.
                        check = check.idempotent(token, Millis::from_secs(3_600));
                    }
                    let (expected, decision) = match (alone.decide(check), block_on(cached.check(check))) {
                        (Ok(expected), Ok(decision)) => (expected, decision),
                        (expected, decision) => {
                            prop_assert_eq!(expected.unwrap_err().kind(), decision.unwrap_err().kind());
                            continue;
                        }
                    };
                    if decision.origin() == Origin::Store {
                        prop_assert_eq!(decision, expected);
                    } else {
                        RECALLED.fetch_add(1, Ordering::Relaxed);
                        prop_assert_eq!(decision.status(), expected.status());
                        prop_assert_eq!(decision.decided_at(), now);
                        // Requests admitted meanwhile at another cost or limit may have made the wait longer.
                        prop_assert!(decision.retry_after().is_some());
                        prop_assert!(decision.retry_after() <= expected.retry_after());
                    }
                }
                Step::Refund { policy, limit, cost } => {
                    let policies = policies(limit);
                    let refund = Refund::new(&policies[policy], &key, cost, now, now);
                    block_on(cached.refund(refund)).unwrap();
                    block_on(alone.refund(refund)).unwrap();
                }
                Step::Reset { policy, limit } => {
                    block_on(cached.reset(&policies(limit)[policy], (&key).into())).unwrap();
                    block_on(alone.reset(&policies(limit)[policy], (&key).into())).unwrap();
                }
            }
        }
    });
    assert!(RECALLED.load(Ordering::Relaxed) > 300, "the cache answered too few checks");
}

#[test]
fn a_blocked_key_does_not_reach_the_store_until_its_wait_ends() {
    let (store, policy, key) = (Store::default(), &policies(2)[0], key());
    let limiter = DenyCache::new(&store);
    let ask = |ms| block_on(limiter.check(Check::new(policy, &key, at(ms)))).unwrap();
    let admitted = (0..1_000).filter(|&ms| ask(ms).is_allowed()).count();
    assert_eq!((admitted, store.checks.load(Ordering::Relaxed)), (2, 3));
    assert!(ask(1_000).is_allowed());
}

#[test]
fn a_reset_elsewhere_takes_effect_when_the_hold_ends() {
    let (store, policy, key) = (Store::default(), &policies(2)[0], key());
    let limiter = DenyCache::new(&store).hold(Millis::new(100));
    let ask = |ms| block_on(limiter.check(Check::new(policy, &key, at(ms)))).unwrap();
    assert_eq!([0, 0, 0].map(ask).map(|decision| decision.is_allowed()), [true, true, false]);
    block_on(store.counts.reset(policy, (&key).into())).unwrap();
    assert!(!ask(99).is_allowed());
    assert!(ask(100).is_allowed());
}

#[test]
fn a_denial_in_flight_during_a_refund_is_not_cached() {
    let (store, policy, key) = (Store::default(), &policies(2)[0], key());
    let limiter = DenyCache::new(&store);
    let check = Check::new(policy, &key, NOW);
    assert_eq!([1, 2].map(|_| block_on(limiter.check(check)).unwrap().is_allowed()), [true, true]);

    store.answers_late.store(true, Ordering::Relaxed);
    let mut late = pin!(limiter.check(check));
    assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    store.fails.store(true, Ordering::Relaxed);
    block_on(limiter.refund(Refund::new(policy, &key, 1, NOW, NOW))).unwrap_err();
    store.answers_late.store(false, Ordering::Relaxed);

    assert!(!block_on(late).unwrap().is_allowed());
    assert!(block_on(limiter.check(check)).unwrap().is_allowed());
}

#[test]
fn the_cache_holds_no_more_keys_than_its_capacity() {
    let (store, policy) = (Store::default(), &policies(2)[0]);
    let limiter = DenyCache::new(&store).capacity(8);
    let ask = |client: u64| {
        let key = Key::new(format!("ip:192.0.2.{client}"));
        block_on(limiter.check(Check::new(policy, &key, NOW).cost(2))).unwrap()
    };
    for client in 0..9 {
        assert!(ask(client).is_allowed());
        assert!(!ask(client).is_allowed());
    }
    // The ninth key had no room until the others were evicted.
    assert_eq!(ask(8).origin(), Origin::DenyCache);
    assert_eq!(ask(0).origin(), Origin::Store);
}

#[test]
fn a_full_cache_evicts_denials_that_have_ended_before_any_other() {
    let (store, policy) = (Store::default(), &policies(2)[0]);
    let limiter = DenyCache::new(&store).capacity(2);
    let ask = |client: u64, ms| {
        let key = Key::new(format!("ip:192.0.2.{client}"));
        block_on(limiter.check(Check::new(policy, &key, at(ms)).cost(2))).unwrap()
    };
    // The first denial ends with its window. The second and the third begin in the next window.
    for (client, ms) in [(0, 0), (0, 0), (1, 1_000), (1, 1_000), (2, 1_000), (2, 1_000)] {
        ask(client, ms);
    }
    assert_eq!([1, 2].map(|client| ask(client, 1_001).origin()), [Origin::DenyCache; 2]);
}

/// A client's units return to all of its tenant.
#[test]
fn a_refund_ends_the_denials_of_all_that_share_a_key_and_of_no_others() {
    let (store, minute) = (Store::default(), Millis::from_secs(60));
    let limiter = DenyCache::new(&store);
    let by = |dimension| Quota::fixed_window(2, minute).unwrap().by(dimension).unwrap();
    let policy = Policy::new("api", [by("user"), by("tenant")]).unwrap();
    let (tenant, users) = (Key::new("tenant:1"), ["user:1", "user:2"].map(Key::new));
    let keys = users.each_ref().map(|user| [("user", user), ("tenant", &tenant)]);
    let ask = |user: usize| block_on(limiter.check(Check::new(&policy, &keys[user], NOW))).unwrap();
    assert_eq!([0, 0, 1].map(|user| ask(user).is_allowed()), [true, true, false]);
    assert_eq!(ask(1).origin(), Origin::DenyCache);
    block_on(limiter.refund(Refund::new(&policy, &keys[0], 1, NOW, NOW))).unwrap();
    assert!(ask(1).is_allowed());

    let (policy, [one, other]) = (&policies(1)[0], ["ip:192.0.2.1", "ip:192.0.2.2"].map(Key::new));
    let ask = |key| block_on(limiter.check(Check::new(policy, key, NOW))).unwrap();
    for key in [&one, &other] {
        assert_eq!([ask(key), ask(key)].map(|decision| decision.is_allowed()), [true, false]);
    }
    block_on(limiter.refund(Refund::new(policy, &one, 1, NOW, NOW))).unwrap();
    assert_eq!((ask(&one).is_allowed(), ask(&other).origin()), (true, Origin::DenyCache));
}

/// A denial that is charged extends the wait, a token may have been answered before, and another cost may fit.
#[test]
fn a_check_whose_answer_may_differ_reaches_the_store() {
    let (store, policy, key) = (Store::default(), &policies(4)[0], key());
    let limiter = DenyCache::new(&store);
    let check = Check::new(policy, &key, at(500));
    let ask = |check| block_on(limiter.check(check)).unwrap();
    assert_eq!(
        [check.cost(3), check.cost(2), check.cost(2)].map(|check| ask(check).is_allowed()),
        [true, false, false]
    );
    assert_eq!(store.checks.swap(0, Ordering::Relaxed), 2);
    assert!(!ask(check.cost(2).idempotent("a", Millis::from_secs(1))).is_allowed());
    assert!(!ask(Check::new(policy, &key, NOW).cost(2)).is_allowed());
    assert_eq!(store.checks.swap(0, Ordering::Relaxed), 2);
    assert!(ask(check).is_allowed());

    let charging = policy.clone().charge_denied(true);
    let key = Key::new("ip:192.0.2.2");
    let check = Check::new(&charging, &key, NOW).cost(3);
    assert_eq!([(); 4].map(|()| ask(check).is_allowed()), [true, false, false, false]);
    assert_eq!(store.checks.load(Ordering::Relaxed), 5);
}
