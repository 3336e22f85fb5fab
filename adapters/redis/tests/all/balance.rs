//! Balances: random histories of grants, requests and settlements get the same answers as from the reference.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Server, runtime};
use proptest::prop_assert_eq;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::{
    Check, ErrorKind, Grant, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Settle, UnixMillis,
};
use tidegate_testing::{NOW, balances};
use tokio::runtime::Runtime;

const HOUR: Millis = Millis::from_secs(3_600);

fn replay_all(limiter: &impl Limiter, runtime: &Runtime, cases: u32) {
    let nth = AtomicU64::new(0);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&balances::history(), |(mut policy, steps)| {
        let prefix = format!("balance-{}:", nth.fetch_add(1, Ordering::Relaxed));
        let (memory, mut now) = (MemoryLimiter::with_shards(4), NOW);
        for (place, step) in steps.iter().enumerate() {
            now = balances::clock(now, step);
            let told = runtime.block_on(balances::take(limiter, &policy, step, now, &prefix));
            let expected = runtime.block_on(balances::take(&memory, &policy, step, now, &prefix));
            prop_assert_eq!(told, expected, "step {}, {:?}, at {:?}, of {:?}", place, step, now, policy);
            policy = balances::policy_after(policy, step);
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn redis_grants_and_spends_as_the_reference_does() {
    replay_all(&Server::start().limiter(), &runtime(), 2_000);
}

#[cfg(feature = "rest")]
#[test]
fn rest_grants_and_spends_as_the_reference_does() {
    let (server, runtime) = (Server::start(), runtime());
    let front = runtime.block_on(crate::support::rest::Endpoint::start(&server));
    replay_all(&front.limiter_with(|config| config.key_locking(true)), &runtime, 200);
}

/// The server's clock, and the time that the row and the token are kept.
#[test]
fn a_balance_is_kept_until_it_expires_and_its_token_for_its_time() {
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.clock(tidegate_redis::Clock::Server).min_ttl(Millis::new(1)));
    let (runtime, mut connection) = (runtime(), server.connection());
    let quota = |dimension: &str| Quota::fixed_window(5, Millis::from_secs(60)).unwrap().by(dimension).unwrap();
    let own = Quota::balance(1_000).unwrap().covers_excess().unwrap().by("user").unwrap();
    let policy = Policy::new("api", [quota("ip"), quota("user"), own]).unwrap();
    let (user, ip) = (Key::new("user:1"), Key::new("ip:192.0.2.1"));
    let keys = [("user", &user), ("ip", &ip)];
    let now = UnixMillis::now();
    runtime.block_on(async {
        let order = Grant::new(&policy, &keys, 50, "order-1", now).expires(now + HOUR);
        assert_eq!(limiter.grant(order).await.unwrap().quotas()[1].remaining(), Some(50));
        assert!(limiter.grant(order).await.unwrap().is_replay());
        let check = Check::new(&policy, &keys, now).cost(5);
        assert!(limiter.check(check).await.unwrap().is_allowed());
    });
    let mut lasts = |pattern: &str| -> i64 {
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut connection).unwrap();
        assert_eq!(keys.len(), 1, "{pattern}: {keys:?}");
        redis::cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap()
    };
    let (row, address, token) = (lasts("*user:1}"), lasts("*ip:192.0.2.1}"), lasts("*:grant:*"));
    let beside = lasts("*user:1}|api@user:fw60000");
    assert!((1..=60_000).contains(&beside), "{beside}");
    assert!((1..=3_600_000).contains(&row) && row > 3_000_000, "{row}");
    assert!((1..=60_000).contains(&address), "{address}");
    assert!(token > 89 * 86_400_000, "{token}");
}

/// Connections that grant and spend at once, and repeat each call, move each unit once.
#[test]
fn a_crowd_spends_each_unit_once() {
    let server = Server::start();
    let policy = Policy::new("api", [Quota::balance(100_000).unwrap()]).unwrap();
    let key = Key::new("user:1");
    let spent: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (limiter, policy, key) = (server.limiter(), &policy, &key);
                scope.spawn(move || {
                    runtime().block_on(async {
                        let mut spent = 0;
                        for nth in 0..100u64 {
                            let order = format!("order-{}", nth % 50);
                            limiter.grant(Grant::new(policy, key, 10, &order, NOW)).await.unwrap();
                            let (cost, token) = (1 + nth % 7, format!("request-{thread}-{nth}"));
                            let check = Check::new(policy, key, NOW).cost(cost).idempotent(&token, HOUR);
                            if limiter.check(check).await.unwrap().is_allowed() {
                                let again = limiter.check(check).await.unwrap();
                                assert_eq!((again.is_replay(), again.from_balance()), (true, cost));
                                let settle = Settle::new(policy, key, &token, cost / 2, NOW);
                                limiter.settle(settle).await.unwrap();
                                assert!(limiter.settle(settle).await.unwrap().is_replay());
                                spent += cost / 2;
                            }
                        }
                        spent
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let left = runtime().block_on(server.limiter().peek(Check::new(&policy, &key, NOW).cost(0))).unwrap();
    assert_eq!(Some(50 * 10 - spent), left.binding().remaining());
}

#[test]
fn a_balance_that_this_library_did_not_write_is_corrupt_and_stays() {
    let server = Server::start();
    let (limiter, policy, key) =
        (server.limiter(), Policy::new("api", [Quota::balance(100).unwrap()]).unwrap(), Key::new("user:1"));
    let mut connection = server.connection();
    let name = "{tg1:api:ba0:user:1}";
    for wrong in [
        "ba1 0 5:10 5:10;",
        "ba1 0 5:20 5:10;",
        "ba1 0 0:10;",
        "ba1 1 5:10;",
        "ba1 0 5:10",
        "ba1 x;",
        "ba1 2251799813685249;",
        "ba1 0 1:281474976710656;",
        "ba1 0;x",
    ] {
        let _: () = redis::cmd("SET").arg(name).arg(wrong).query(&mut connection).unwrap();
        let checked = runtime().block_on(limiter.check(Check::new(&policy, &key, NOW)));
        assert_eq!(checked.unwrap_err().kind(), ErrorKind::Corrupt, "{wrong}");
        let granted = runtime().block_on(limiter.grant(Grant::new(&policy, &key, 1, wrong, NOW)));
        assert_eq!(granted.unwrap_err().kind(), ErrorKind::Corrupt, "{wrong}");
        let stored: String = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(stored, wrong);
    }
}
