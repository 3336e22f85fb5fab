//! A retried check under a token gets the first answer and is charged once; nothing is retried by itself.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::{NOW, Server, bucket, key, one_of_each};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::{Check, ErrorKind, Limiter, Millis, Refund};
use tollgate_upstash::{Config, Redis};

#[tokio::test]
async fn a_retry_of_what_was_charged_unheard_is_charged_once() {
    let server = Server::start();
    // Passes everything on, until told to keep the answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (port, deaf) = (server.port, Arc::new(AtomicBool::new(false)));
    let heard = Arc::clone(&deaf);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
            let deaf = Arc::clone(&heard);
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while let Ok(length @ 1..) = far_read.read(&mut buffer).await {
                    if !deaf.load(Ordering::Relaxed) {
                        near_write.write_all(&buffer[..length]).await.unwrap();
                    }
                }
            });
        }
    });
    let limiter = Redis::new(Config::new(url).deadline(Millis::new(150)).min_ttl(support::MIN_TTL)).unwrap().limiter();
    let (policy, key) = (bucket(10), key());
    let check = Check::new(&policy, &key, NOW);
    let once = check.cost(3).idempotent("request-1", Millis::from_secs(60));
    assert_eq!(limiter.check(check).await.unwrap().binding().remaining(), Some(9));

    deaf.store(true, Ordering::Relaxed);
    assert_eq!(limiter.check(once).await.unwrap_err().kind(), ErrorKind::Timeout);
    deaf.store(false, Ordering::Relaxed);
    let retried = limiter.check(once).await.unwrap();
    assert_eq!(retried.binding().remaining(), Some(6));
    assert_eq!(limiter.check(once).await.unwrap(), retried);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(6));

    // Without a token the charge stays, and nothing but the caller sends a check twice.
    deaf.store(true, Ordering::Relaxed);
    assert_eq!(limiter.check(check).await.unwrap_err().kind(), ErrorKind::Timeout);
    deaf.store(false, Ordering::Relaxed);
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(5));
}

#[tokio::test]
async fn a_token_of_a_denial_keeps_the_denial() {
    let server = Server::start();
    let limiter = server.limiter();
    for policy in one_of_each(2) {
        let key = key();
        let token = "a token of any length, and with any characters: {}*\u{e9}\n".repeat(40);
        let once = Check::new(&policy, &key, NOW).cost(2).idempotent(&token, Millis::from_secs(60));
        limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        let denied = limiter.check(once).await.unwrap();
        assert!(!denied.is_allowed());
        limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW)).await.unwrap();
        assert_eq!(limiter.check(once).await.unwrap(), denied);
        // Another token is another request, and may last.
        let other = once.idempotent("other", Millis::new(u64::MAX));
        let admitted = limiter.check(other).await.unwrap();
        assert!(admitted.is_allowed());
        assert_eq!(limiter.check(other).await.unwrap(), admitted);
    }
}
