//! While one connection is open, no call depends on another: a server may not accept it, or not answer on it.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::time::Instant;

use crate::support::{AT_ONCE, DEADLINE, MIN_TTL, NOW, Server, admitted, bucket, burst, key};
use tidegate_core::{Check, Error, Limiter};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter};
use tokio::net::{TcpListener, TcpStream};

/// Decides once, which opens the first connection, and then on more calls at once than the limit, several times.
async fn decides_on_all(limiter: RedisLimiter) {
    let policy = bucket(150);
    assert!(limiter.check(Check::new(&policy, &key(), NOW)).await.unwrap().is_allowed());
    let (limiters, began) = ([Arc::new(limiter)], Instant::now());
    let mut total = 1;
    for _ in 0..3 {
        let answers = burst(&limiters, &policy, 100).await;
        let failed: Vec<&Error> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(failed.is_empty(), "{} calls failed, the first by: {}", failed.len(), failed[0]);
        total += admitted(&answers);
    }
    assert_eq!(total, 150);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_accepts_no_second_connection_decides_on_all_calls() {
    let server = Server::start();
    let mut connection = server.connection();
    // One for this test, and one for the limiter.
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(2).exec(&mut connection).unwrap();
    decides_on_all(server.limiter()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_silent_on_a_second_connection_decides_on_all_calls() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let port = server.port;
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // The system completes further connections to the listener, which nothing reads.
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    let config = Config::new(url).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
    decides_on_all(Redis::new(config).unwrap().limiter()).await;
}
