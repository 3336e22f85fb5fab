//! A retried check with a token gets the first answer and is charged once. The client retries nothing by itself.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::{Server, deaf_proxy};
use tidegate_core::{Check, ErrorKind, LimiterExt, Millis, Refund};
use tidegate_redis::{Clock, Config, Redis};
use tidegate_testing::{MINUTE, NOW, at, bucket, key, of_each_algorithm};
use tokio::task::JoinSet;

#[tokio::test]
async fn a_retry_after_a_lost_answer_is_charged_once() {
    let server = Server::start();
    let (address, deaf) = deaf_proxy(server.port).await;
    let url = format!("redis://{address}");
    let limiter =
        Redis::new(Config::new(url).deadline(Millis::new(150)).clock(Clock::Caller).min_ttl(crate::support::MIN_TTL))
            .unwrap()
            .limiter();
    let (policy, key) = (bucket(10), key());
    let check = Check::new(&policy, &key, NOW);
    let once = check.cost(3).idempotent("request-1", Millis::from_secs(60));
    assert_eq!(limiter.check(check).await.unwrap().binding().remaining(), Some(9));
    // This loads the general script, which a check with a token runs.
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(9));

    deaf.store(true, Ordering::Relaxed);
    assert_eq!(limiter.check(once).await.unwrap_err().kind(), ErrorKind::Timeout);
    deaf.store(false, Ordering::Relaxed);
    let retried = limiter.check(once).await.unwrap();
    assert_eq!(retried.binding().remaining(), Some(6));
    assert_eq!(limiter.check(once).await.unwrap(), retried);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(6));

    // Without a token, the charge stays, and the client does not retry by itself.
    deaf.store(true, Ordering::Relaxed);
    assert_eq!(limiter.check(check).await.unwrap_err().kind(), ErrorKind::Timeout);
    deaf.store(false, Ordering::Relaxed);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(5));
}

#[tokio::test]
async fn a_denial_is_not_stored_for_its_token() {
    let server = Server::start();
    let limiter = server.limiter();
    for policy in of_each_algorithm(2, 2, MINUTE) {
        let key = key();
        let token = "a token of any length, and with any characters: {}*\u{e9}\n".repeat(40);
        let once = Check::new(&policy, &key, NOW).cost(2).idempotent(&token, Millis::from_secs(60));
        limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        let denied = limiter.check(once).await.unwrap();
        assert!(!denied.is_allowed());
        limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW)).await.unwrap();
        assert!(limiter.check(once).await.unwrap().is_allowed());
        limiter.refund(Refund::new(&policy, &key, 2, NOW, NOW)).await.unwrap();
        // A different token is a different request. Its lifetime may be any number.
        let other = once.idempotent("other", Millis::new(u64::MAX));
        let admitted = limiter.check(other).await.unwrap();
        assert!(admitted.is_allowed());
        assert_eq!(limiter.check(other).await.unwrap(), admitted.replayed(true));
    }
}

/// Of many clients at once and in another process, one uses a token first, also after the server has lost its scripts. An answer that was
/// lost used it, too.
#[tokio::test]
async fn a_token_is_first_once_for_all_clients() {
    let server = Server::start();
    let limiters = [(); 3].map(|()| Arc::new(server.limiter()));
    let minute = Millis::from_secs(60);
    let mut asked = JoinSet::new();
    for nth in 0..300 {
        let limiter = Arc::clone(&limiters[nth % 3]);
        asked.spawn(async move { limiter.once("webhooks", "event-1", minute, NOW).await.unwrap() });
    }
    assert_eq!(asked.join_all().await.into_iter().filter(|first| *first).count(), 1);
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection()).unwrap();
    assert!(!limiters[0].once("webhooks", "event-1", minute, NOW).await.unwrap());
    assert!(limiters[1].once("webhooks", "event-2", minute, NOW).await.unwrap());
    assert!(limiters[1].once("logins", "event-1", minute, NOW).await.unwrap());
    // Exactly after its time, it is first again.
    assert!(!limiters[2].once("webhooks", "event-1", minute, at(59_999)).await.unwrap());
    assert!(limiters[2].once("webhooks", "event-1", minute, at(60_000)).await.unwrap());

    let (address, deaf) = deaf_proxy(server.port).await;
    let config = Config::new(format!("redis://{address}")).deadline(Millis::new(150));
    let limiter = Redis::new(config.clock(Clock::Caller).min_ttl(crate::support::MIN_TTL)).unwrap().limiter();
    // This loads the script.
    assert!(limiter.once("webhooks", "event-3", minute, NOW).await.unwrap());
    deaf.store(true, Ordering::Relaxed);
    assert_eq!(limiter.once("webhooks", "event-4", minute, NOW).await.unwrap_err().kind(), ErrorKind::Timeout);
    deaf.store(false, Ordering::Relaxed);
    assert!(!limiters[0].once("webhooks", "event-4", minute, NOW).await.unwrap());
}
