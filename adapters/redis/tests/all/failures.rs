//! Every failure is an error of the right kind, in time, and never a denial.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{AT_ONCE, DEADLINE, Server, free_port};
use tidegate_core::{Check, Error, ErrorKind, Limiter, LimiterExt, Millis};
use tidegate_redis::{Config, Redis};
use tidegate_testing::{NOW, bucket, key};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn limiter(url: &str, deadline: Millis) -> tidegate_redis::RedisLimiter {
    Redis::new(Config::new(url).deadline(deadline)).unwrap().limiter()
}

/// The error of one check by a new limiter, and how long the check took.
async fn meet(url: &str) -> (Error, Duration) {
    let began = Instant::now();
    let limiter = limiter(url, DEADLINE);
    let error = limiter.check(Check::new(&bucket(5), &key(), NOW)).await.unwrap_err();
    (error, began.elapsed())
}

/// A server that reads once, sends `answer`, and then closes the connection or keeps it open.
async fn impostor(answer: Option<&'static [u8]>, close: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {
                    if let Some(answer) = answer {
                        let _ = stream.write_all(answer).await;
                    }
                    if close {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[test]
fn an_invalid_url_is_explained_without_showing_the_password() {
    for url in [
        "",
        "localhost:6379",
        "redis://",
        "redis:hunter2@host",
        "http://:hunter2@host:80",
        "https://default:hunter2@host.upstash.io",
        "redis://user:hunter2@host:notaport",
        "redis://user:hunter2@host/notadb",
        "redis://user:hunter2@host:0",
        "amqp://user:hunter2@host",
    ] {
        let error = Redis::new(Config::new(url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("write redis://"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    #[cfg(feature = "tls-rustls")]
    {
        let error = Redis::new(Config::new("rediss://user:hunter2@host/#insecure")).unwrap_err().to_string();
        assert!(error.contains("SSL_CERT_FILE") && !error.contains("hunter2"), "{error}");
    }
    for connections in [0, 65] {
        let error = Redis::new(Config::new("redis://host").connections(connections)).unwrap_err();
        assert!(error.to_string().contains("write 1 to 64"), "{error}");
    }
    for deadline in [Millis::ZERO, Millis::new(u64::MAX)] {
        let error = Redis::new(Config::new("redis://host").deadline(deadline)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let redis = Redis::new(Config::new("redis://user:hunter2@host:7000/3")).unwrap();
    assert!(format!("{redis:?}").contains("host:7000"));
    assert!(!format!("{redis:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_in_the_error() {
    let server = Server::start();
    let mut connection = server.connection();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right").exec(&mut connection).unwrap();
    for credentials in ["", ":hunter2@", "nobody:hunter2@"] {
        let (error, took) = meet(&format!("redis://{credentials}127.0.0.1:{}", server.port)).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(took < AT_ONCE, "{took:?}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    let right = limiter(&format!("redis://:right@127.0.0.1:{}", server.port), DEADLINE);
    assert!(right.check(Check::new(&bucket(5), &key(), NOW)).await.unwrap().is_allowed());
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("").exec(&mut connection).unwrap();
}

#[tokio::test]
async fn a_full_server_or_missing_permission_is_refused() {
    let server = Server::start();
    let mut connection = server.connection();
    let limiter = server.limiter();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut connection).unwrap();
    let (policy, key) = (bucket(5), key());
    let full = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Refused, "{full:?}");
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec(&mut connection).unwrap();

    redis::cmd("ACL").arg(&["SETUSER", "reader", "on", ">pw", "~*", "+get", "+ping"]).exec(&mut connection).unwrap();
    let reader = self::limiter(&format!("redis://reader:pw@127.0.0.1:{}", server.port), DEADLINE);
    let forbidden = reader.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(forbidden.kind(), ErrorKind::Refused, "{forbidden:?}");

    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(free_port()).exec(&mut connection).unwrap();
    let replica = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(replica.kind(), ErrorKind::Unavailable, "{replica:?}");
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_dead_port_is_unavailable_without_a_wait() {
    let (error, took) = meet(&format!("redis://127.0.0.1:{}", free_port())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_corrupt_without_a_wait() {
    for (answer, close) in [
        ("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", true),
        ("HTTP/1.1 400 Bad Request\r\nConnection: keep-alive\r\n\r\n", false),
        ("garbage\r\n", false),
        // Valid protocol, but the answers do not fit the commands.
        ("+OK\r\n+OK\r\n+OK\r\n", false),
        (":1\r\n:1\r\n:1\r\n", false),
        ("$2\r\nhi\r\n$2\r\nhi\r\n$2\r\nhi\r\n", false),
    ] {
        let (error, took) = meet(&impostor(Some(answer.as_bytes()), close).await).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{answer:?}: {error:?}");
        assert!(took < AT_ONCE, "{answer:?}: {took:?}");
    }
}

#[tokio::test]
async fn a_ping_tells_whether_the_server_answers() {
    let server = Server::start();
    limiter(&server.url(), DEADLINE).store().ping().await.unwrap();
    for (url, kind) in [
        (format!("redis://127.0.0.1:{}", free_port()), ErrorKind::Unavailable),
        (impostor(Some(b":1\r\n:1\r\n:1\r\n"), false).await, ErrorKind::Corrupt),
        (impostor(Some(b"-ERR no\r\n-ERR no\r\n-ERR no\r\n"), false).await, ErrorKind::Refused),
    ] {
        let error = limiter(&url, DEADLINE).store().ping().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_is_unavailable_without_a_wait() {
    let (error, took) = meet(&impostor(None, true).await).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_connection_lost_while_idle_is_not_an_error() {
    let server = Server::start();
    let limiter = server.limiter();
    let (policy, key) = (bucket(9), key());
    for remaining in [8, 7, 6] {
        let decision = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        assert_eq!(decision.binding().remaining(), Some(remaining));
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.connection()).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_never_answers_costs_at_most_the_deadline() {
    let url = impostor(None, false).await;
    let limiter = limiter(&url, Millis::from_secs(2));
    let began = Instant::now();
    let error = limiter.check(Check::new(&bucket(5), &key(), NOW)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
    assert!((2..AT_ONCE.as_secs()).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // From then on, one caller at a time waits for the server. The others fail at once.
    let limiter = Arc::new(limiter);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(15)).await;
                let began = Instant::now();
                limiter.check(Check::new(&bucket(5), &key(), NOW)).await.unwrap_err();
                began.elapsed()
            })
        })
        .collect();
    let mut waited = 0;
    for call in calls {
        waited += usize::from(call.await.unwrap() > Duration::from_secs(1));
    }
    assert_eq!(waited, 1);

    // A server that pauses after the connection is open: the answer is late, and the check may have been charged.
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.deadline(Millis::from_secs(1)));
    let (policy, key) = (bucket(5), key());
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    let mut connection = server.connection();
    redis::cmd("CLIENT").arg("PAUSE").arg(5_000).exec(&mut connection).unwrap();
    let began = Instant::now();
    let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("may have been charged"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    while began.elapsed() < AT_ONCE && limiter.check(Check::new(&policy, &key, NOW)).await.is_err() {}
    assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
}

/// A flood can keep a process busy. Then no deadline tells whether the server is down, so gates must not open.
#[tokio::test]
async fn a_process_without_time_for_an_answer_is_overloaded() {
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.deadline(Millis::from_secs(2)));
    let (policy, key) = (bucket(5), key());
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    let before = server.connections_received();
    let error = checked_by_a_busy_process(&limiter).await;
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    assert!(error.to_string().contains("this process is overloaded"), "{error}");
    assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    // The second look has a connection of its own.
    assert_eq!(server.connections_received(), before + 1, "the connection was dropped");

    // The same while it connects.
    let limiter = server.limiter_with(|config| config.deadline(Millis::from_secs(2)));
    let error = checked_by_a_busy_process(&limiter).await;
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    assert!(error.to_string().contains("nothing was charged"), "{error}");
    assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
}

/// The error of a check with a deadline of two seconds, whose process does other work for twice as long.
pub(crate) async fn checked_by_a_busy_process(limiter: &impl Limiter) -> Error {
    let (policy, key) = (bucket(5), key());
    let check = limiter.check(Check::new(&policy, &key, NOW));
    let (checked, ()) = tokio::join!(check, async { std::thread::sleep(Duration::from_secs(4)) });
    checked.unwrap_err()
}
