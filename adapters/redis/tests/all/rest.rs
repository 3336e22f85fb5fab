//! Upstash's REST protocol in front of a real server: exact, one request per decision, and a retry is charged once.

#![cfg(feature = "rest")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::support::rest::{Endpoint, TOKEN};
use crate::support::{Server, admitted, burst, deaf_proxy, free_port};
use tidegate_core::{Check, ErrorKind, Key, LimiterExt, Millis, Refund, UnixMillis};
use tidegate_redis::{Clock, Rest, RestConfig};
use tidegate_testing::{MINUTE, NOW, bucket, key, of_each_algorithm};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_protocols_and_both_scripts_share_exact_counts() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let redis = [Arc::new(server.limiter())];
    let plain = [Arc::new(endpoint.limiter_with(|config| config))];
    let locking = [Arc::new(endpoint.limiter_with(|config| config.key_locking(true)))];
    for policy in of_each_algorithm(100, 100, MINUTE) {
        let (first, second, third) =
            tokio::join!(burst(&redis, &policy, 100), burst(&plain, &policy, 100), burst(&locking, &policy, 100));
        let answers: Vec<_> = [first, second, third].into_iter().flatten().collect();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(admitted(&answers), 100, "{policy:?}");
        let mut remaining: Vec<_> = answers
            .iter()
            .flatten()
            .filter(|answer| answer.is_allowed())
            .map(|answer| answer.binding().remaining())
            .collect();
        remaining.sort_unstable();
        assert_eq!(remaining, (0..100).map(Some).collect::<Vec<_>>(), "{policy:?}");
    }
}

#[tokio::test]
async fn a_decision_takes_one_request_and_one_command() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config.key_locking(true));
    let mut connection = server.connection();
    let (policy, key) = (bucket(5), key());
    let check = Check::new(&policy, &key, NOW);
    // The first run brings the script. The first one after a flush learns that it has to.
    for first in [1, 2] {
        let before = endpoint.front.requests();
        limiter.check(check).await.unwrap();
        assert_eq!(endpoint.front.requests() - before, first);
        limiter.check(check).await.unwrap();
        assert_eq!(endpoint.front.requests() - before, first + 1);
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
    }
    limiter.reset(&policy, (&key).into()).await.unwrap();
    limiter.check(check).await.unwrap();
    limiter.peek(check).await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
    let before = endpoint.front.requests();
    for place in 0..10 {
        let token = format!("request-{}", place / 2);
        limiter.check(check).await.unwrap();
        limiter.check(check.idempotent(&token, Millis::from_secs(60))).await.unwrap();
        limiter.peek(check).await.unwrap();
        limiter.refund(Refund::new(&policy, &key, 0, NOW, NOW)).await.unwrap();
    }
    assert_eq!(endpoint.front.requests() - before, 40);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    assert!(stats.contains("cmdstat_evalsha:calls=40,"), "{stats}");
    assert!(!stats.contains("cmdstat_eval:") && !stats.contains("cmdstat_multi"), "{stats}");
}

/// Each script is sent when it is missing, also if the short one has no answer.
#[tokio::test]
async fn a_state_that_is_ahead_takes_one_request_more() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config.key_locking(true));
    let mut connection = server.connection();
    let (policy, key) = (bucket(5), key());
    for requests in [2, 2, 4, 2] {
        if requests == 4 {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        }
        let ahead = format!("tb1 60000 {}", NOW.get() + 90_000);
        redis::cmd("SET").arg("{tg1:api:tb60000:ip:192.0.2.1}").arg(ahead + ";").exec(&mut connection).unwrap();
        let before = endpoint.front.requests();
        assert_eq!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().binding().remaining(), Some(3));
        assert_eq!(endpoint.front.requests() - before, requests);
    }
}

#[tokio::test]
async fn a_retry_after_a_lost_answer_is_charged_once() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let (address, deaf) = deaf_proxy(endpoint.port).await;
    let config =
        RestConfig::new(format!("http://{address}"), TOKEN).clock(Clock::Caller).min_ttl(crate::support::MIN_TTL);
    let limiter = Rest::new(config.deadline(Millis::from_secs(2))).unwrap().limiter();
    let (policy, key) = (bucket(10), key());
    let check = Check::new(&policy, &key, NOW);
    let once = check.cost(3).idempotent("request-1", Millis::from_secs(60));
    assert_eq!(limiter.check(check).await.unwrap().binding().remaining(), Some(9));

    deaf.store(true, Ordering::Relaxed);
    let lost = limiter.check(once).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Timeout);
    assert!(lost.to_string().contains("may have been charged"), "{lost}");
    deaf.store(false, Ordering::Relaxed);
    let retried = limiter.check(once).await.unwrap();
    assert_eq!(retried.binding().remaining(), Some(6));
    assert_eq!(limiter.check(once).await.unwrap(), retried);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(6));

    // Without a token, the charge stays, and the client does not retry by itself.
    deaf.store(true, Ordering::Relaxed);
    let before = endpoint.front.requests();
    assert_eq!(limiter.check(check).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(endpoint.front.requests() - before, 1);
    deaf.store(false, Ordering::Relaxed);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(5));
}

#[tokio::test]
async fn keys_with_any_characters_are_counted_separately() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config);
    let policy = bucket(3);
    let long = "k".repeat(100_000);
    let quotes = "\"\\\n\r\t\u{0}\u{1f}{}*[]'";
    for (place, text) in
        ["größe", "日本語", "\u{1f600}", quotes, &long, &format!("{long}k"), ""].into_iter().enumerate()
    {
        let key = Key::new(text);
        let token = format!("{text}{place}");
        let once = Check::new(&policy, &key, NOW).idempotent(&token, Millis::from_secs(60));
        for _ in 0..2 {
            assert_eq!(limiter.check(once).await.unwrap().binding().remaining(), Some(2), "{text:.20}");
        }
        assert_eq!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().binding().remaining(), Some(1));
        limiter.reset(&policy, (&key).into()).await.unwrap();
        assert_eq!(limiter.peek(Check::new(&policy, &key, NOW)).await.unwrap().binding().remaining(), Some(3));
    }
}

#[tokio::test]
async fn a_foreign_value_is_corrupt_and_left_unchanged() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config);
    let mut connection = server.connection();
    let (policy, key, name) = (bucket(10), key(), "{tg1:api:tb60000:ip:192.0.2.1}");
    for stored in [&b"\xff\xfe"[..], b"tb1 1", b"tb1 1 1;\0", b"{\"a\":1}"] {
        redis::cmd("SET").arg(name).arg(stored).exec(&mut connection).unwrap();
        let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
        let after: Vec<u8> = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(after, stored);
    }
    redis::cmd("DEL").arg(name).exec(&mut connection).unwrap();
    redis::cmd("RPUSH").arg(name).arg("1").exec(&mut connection).unwrap();
    let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
}

#[tokio::test]
async fn the_servers_clock_can_decide() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config.clock(Clock::Server));
    let decided = limiter.check(Check::new(&bucket(2), &key(), UnixMillis::new(0))).await.unwrap();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(clock.abs_diff(u128::from(decided.decided_at().get())) < 5_000);
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_not_in_the_error() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let rest = Rest::new(RestConfig::new(endpoint.url(), "AXm3wrong").deadline(Millis::from_secs(2))).unwrap();
    let error = rest.ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("UPSTASH_REDIS_REST_TOKEN"), "{error}");
    assert!(!format!("{error:?} {rest:?}").contains("AXm3wrong"), "{error:?} {rest:?}");
    endpoint.limiter_with(|config| config).store().ping().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_until_it_is_up_again() {
    let mut server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = endpoint.limiter_with(|config| config);
    let (policy, key) = (bucket(5), key());
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    server.kill();
    for _ in 0..3 {
        let began = Instant::now();
        let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(began.elapsed() < crate::support::AT_ONCE, "{:?}", began.elapsed());
    }
    server.restart();
    assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());

    let nobody = RestConfig::new(format!("http://127.0.0.1:{}", free_port()), TOKEN).deadline(crate::support::DEADLINE);
    let began = Instant::now();
    let error = Rest::new(nobody).unwrap().ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("nothing was charged"), "{error}");
    assert!(began.elapsed() < crate::support::AT_ONCE, "{:?}", began.elapsed());
}
