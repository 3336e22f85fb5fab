//! A state expires when its key is unused again, by the server's real clock.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::time::Duration;

use crate::support::Server;
use tidegate_core::{Check, LimiterExt, Millis, Policy, Quota, Settle, UnixMillis};
use tidegate_testing::{MINUTE, NOW, key, of_each_algorithm, policy};

fn keys(connection: &mut redis::Connection) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(connection).unwrap()
}

#[tokio::test]
async fn a_key_expires_when_it_is_unused_again() {
    let server = Server::start();
    let mut connection = server.connection();
    let limiter = server.limiter_with(|config| config.min_ttl(Millis::ZERO));
    for policy in of_each_algorithm(10, 10, MINUTE) {
        let decision = limiter.check(Check::new(&policy, &key(), NOW).cost(3)).await.unwrap();
        let life_ms = i64::try_from(decision.binding().reset_after().unwrap().get()).unwrap();
        let stored = keys(&mut connection);
        let [name] = stored.as_slice() else { panic!("{stored:?}") };
        let ttl_ms: i64 = redis::cmd("PTTL").arg(name).query(&mut connection).unwrap();
        assert!((life_ms - 500..=life_ms).contains(&ttl_ms), "{policy:?}: {ttl_ms} of {life_ms} ms");
        limiter.reset(&policy, (&key()).into()).await.unwrap();
        assert!(keys(&mut connection).is_empty());
    }
}

/// Nothing of a request with a slot is stored for longer than the slot may be held, whether it is released or not.
#[tokio::test]
async fn the_answer_of_a_slot_expires_with_the_slot() {
    let server = Server::start();
    let (limiter, mut connection) = (server.limiter_with(|config| config.min_ttl(Millis::ZERO)), server.connection());
    let policy = policy(Quota::concurrency(2, Millis::from_secs(30)));
    let key = key();
    for token in ["held", "released"] {
        let check = Check::new(&policy, &key, NOW).idempotent(token, Millis::ZERO);
        assert!(limiter.check(check).await.unwrap().is_allowed());
    }
    limiter.settle(Settle::release(&policy, &key, "released", NOW)).await.unwrap();
    let stored = keys(&mut connection);
    assert_eq!(stored.len(), 3, "{stored:?}");
    for name in stored {
        let ttl_ms: i64 = redis::cmd("PTTL").arg(&name).query(&mut connection).unwrap();
        assert!((20_000..=30_000).contains(&ttl_ms), "{name}: {ttl_ms}");
    }
}

#[tokio::test]
async fn the_longest_quota_decides_the_expiry() {
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.min_ttl(Millis::ZERO));
    let quotas = [
        Quota::token_bucket(5, 5, Millis::from_secs(1)).unwrap(),
        Quota::fixed_window(5, Millis::from_secs(1_000)).unwrap(),
        Quota::sliding_log(5, Millis::from_secs(7)).unwrap(),
    ];
    let policy = Policy::new("api", quotas).unwrap();
    limiter.check(Check::new(&policy, &key(), UnixMillis::new(1_000_000_100_000))).await.unwrap();
    let ttl_ms: i64 = redis::cmd("PTTL")
        .arg("{tg1:api:tb1000.fw1000000.sl7000:ip:192.0.2.1}")
        .query(&mut server.connection())
        .unwrap();
    assert!((899_500..=900_000).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn expired_keys_are_gone() {
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.min_ttl(Millis::ZERO));
    let policy = policy(Quota::token_bucket(1, 1, Millis::new(60)));
    let key = key();
    let check = Check::new(&policy, &key, NOW).idempotent("token", Millis::new(80));
    assert!(limiter.check(check).await.unwrap().is_allowed());
    assert_eq!(keys(&mut server.connection()).len(), 2);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(keys(&mut server.connection()).is_empty());
    assert!(limiter.check(check).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_request_of_cost_zero_stores_nothing() {
    let server = Server::start();
    let limiter = server.limiter();
    for policy in of_each_algorithm(3, 3, MINUTE) {
        assert!(limiter.check(Check::new(&policy, &key(), NOW).cost(0)).await.unwrap().is_allowed());
        assert!(!limiter.check(Check::new(&policy, &key(), NOW).cost(4)).await.unwrap().is_allowed());
    }
    assert!(keys(&mut server.connection()).is_empty());
}
