//! While one connection is open, no call depends on another: a server may not accept it, or not answer on it.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::support::{AT_ONCE, DEADLINE, MIN_TTL, Server, admitted, burst, deaf_proxy, delaying_proxy, lying_proxy};
use tidegate_core::{Check, Error, ErrorKind, LimiterExt, Millis};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter};
use tidegate_testing::{NOW, bucket, key};
use tokio::net::{TcpListener, TcpStream};

/// A limiter whose server is at the address of a proxy.
fn through(address: SocketAddr, connections: usize) -> RedisLimiter {
    let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
    Redis::new(config.connections(connections)).unwrap().limiter()
}

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
    let address = listener.local_addr().unwrap();
    let port = server.port;
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // The system completes further connections to the listener, which nothing reads.
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    decides_on_all(through(address, 2)).await;
}

/// The connections that a server has, without the one that asks.
fn connections(server: &Server) -> usize {
    let list: String =
        redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query(&mut server.connection()).unwrap();
    list.lines().count() - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_in_use_opens_one_more_up_to_as_many_as_configured() {
    let server = Server::start();
    let policy = bucket(10_000);
    let limiter = Arc::new(server.limiter_with(|config| config.connections(3)));
    // One call at a time needs one.
    for _ in 0..20 {
        limiter.check(Check::new(&policy, &key(), NOW)).await.unwrap();
    }
    assert_eq!(connections(&server), 1);
    let (limiters, began) = ([limiter], Instant::now());
    while connections(&server) < 3 {
        assert!(began.elapsed() < AT_ONCE, "there are {} connections", connections(&server));
        burst(&limiters, &policy, 100).await;
    }
    burst(&limiters, &policy, 100).await;
    assert_eq!(connections(&server), 3);
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_an_answer_that_does_not_fit() {
    for (instead, kind) in [
        ("+what\r\n", ErrorKind::Corrupt),
        (":1\r\n", ErrorKind::Corrupt),
        // The primary has become a replica. Its name may lead elsewhere by now.
        ("-READONLY You can't write against a read only replica.\r\n", ErrorKind::Unavailable),
        // An error of one command is none of the connection.
        ("-ERR unknown command\r\n", ErrorKind::Refused),
    ] {
        let server = Server::start();
        let (address, lies) = lying_proxy(server.port, instead.as_bytes()).await;
        let limiter = through(address, 1);
        let (policy, key) = (bucket(9), key());
        let check = || limiter.check(Check::new(&policy, &key, NOW));
        check().await.unwrap();
        // What the limiter asks beside its checks is answered.
        limiter.store().ping().await.unwrap();
        let opened = server.connections_received();
        lies.store(true, Ordering::Relaxed);
        assert_eq!(check().await.unwrap_err().kind(), kind, "{instead}");
        lies.store(false, Ordering::Relaxed);
        check().await.unwrap();
        let reopened = server.connections_received() - opened - 1;
        assert_eq!(reopened, u64::from(kind != ErrorKind::Refused), "{instead}");
    }
}

#[tokio::test]
async fn more_than_4_096_calls_in_flight_are_contention_at_once() {
    let server = Server::start();
    let (address, deaf) = deaf_proxy(server.port).await;
    let limiter = through(address, 2);
    let (policy, key) = (bucket(9), key());
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    limiter.store().ping().await.unwrap();
    deaf.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let mut waiting: Vec<_> = (0..4_096).map(|_| Box::pin(limiter.check(Check::new(&policy, &key, NOW)))).collect();
    // Polled once, each of them is in flight.
    for call in &mut waiting {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Contended, "redis: 4096 calls are in flight already; nothing was charged")
    );
    assert!(began.elapsed() < AT_ONCE);
    // Those that are dropped are in flight no more.
    drop(waiting);
    deaf.store(false, Ordering::Relaxed);
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.connection()).unwrap();
    let began = Instant::now();
    while limiter.check(Check::new(&policy, &key, NOW)).await.is_err() {
        assert!(began.elapsed() < AT_ONCE);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_may_listen_on_a_socket_of_the_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let _server = Server::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    let limiter =
        Redis::new(Config::new(format!("redis+unix://{}", socket.display())).deadline(DEADLINE)).unwrap().limiter();
    limiter.store().ping().await.unwrap();
    assert!(limiter.check(Check::new(&bucket(1), &key(), NOW)).await.unwrap().is_allowed());
    assert!(!limiter.check(Check::new(&bucket(1), &key(), NOW)).await.unwrap().is_allowed());
}

/// A client can cause it with a flood that starts more and more processes.
#[tokio::test]
async fn a_server_without_a_connection_left_is_contended() {
    let server = Server::start();
    let mut connection = server.connection();
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).exec(&mut connection).unwrap();
    let (limiter, policy) = (server.limiter(), bucket(9));
    for _ in 0..5 {
        let error = limiter.check(Check::new(&policy, &key(), NOW)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each answer takes most of the deadline, and the first call needs a connection.
#[tokio::test]
async fn a_first_call_has_as_much_time_as_others() {
    let server = Server::start();
    let address = delaying_proxy(server.port, Duration::from_millis(600)).await;
    let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).deadline(Millis::from_secs(1));
    let limiter = Arc::new(Redis::new(config).unwrap().limiter());
    let answers = burst(&[limiter], &bucket(5), 8).await;
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(admitted(&answers), 5);
}

/// The server is asked twice for one decision, and each answer is in time.
#[tokio::test]
async fn a_server_that_has_answered_a_call_is_not_down() {
    let server = Server::start();
    let address = delaying_proxy(server.port, Duration::from_millis(600)).await;
    let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).deadline(Millis::from_secs(1));
    let limiter = Redis::new(config).unwrap().limiter();
    let (policy, key) = (bucket(5), key());
    let check = || limiter.check(Check::new(&policy, &key, NOW));
    check().await.unwrap();
    // The server forgets the script.
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
    assert_eq!(check().await.unwrap_err().kind(), ErrorKind::Contended);
    check().await.unwrap();
}

/// After `NOSCRIPT`, the second command of a call has less than a deadline, so its silence is no reason to give up the connection, on which
/// another call is about to send its second command.
#[tokio::test]
async fn a_connection_is_given_up_after_a_whole_deadline_of_silence() {
    let server = Server::start();
    let address = delaying_proxy(server.port, Duration::from_millis(1_200)).await;
    let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).deadline(Millis::from_secs(2));
    let limiter = Redis::new(config.connections(1)).unwrap().limiter();
    let (policy, key) = (bucket(5), key());
    let check = || limiter.check(Check::new(&policy, &key, NOW));
    check().await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        check().await
    };
    let (one, other) = tokio::join!(check(), later);
    assert_eq!([one, other].map(|answer| answer.map_err(|error| error.kind()).err()), [Some(ErrorKind::Contended); 2]);
}
