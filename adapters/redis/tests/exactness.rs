//! Exactly the limit, at concurrency, across script flushes and restarts; one command a decision.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{NOW, Server, bucket, key, one_of_each};
use tidegate_core::{Check, Decision, Error, ErrorKind, Key, Limiter, Millis, Policy, UnixMillis};
use tidegate_redis::{Clock, RedisLimiter};

/// `count` checks at once, spread over the limiters.
async fn burst(
    limiters: &[Arc<RedisLimiter>],
    policy: &Policy,
    key: &Key,
    count: usize,
) -> Vec<Result<Decision, Error>> {
    let tasks: Vec<_> = (0..count)
        .map(|place| {
            let (limiter, policy, key) = (Arc::clone(&limiters[place % limiters.len()]), policy.clone(), key.clone());
            tokio::spawn(async move { limiter.check(Check::new(&policy, &key, NOW)).await })
        })
        .collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn admitted(answers: &[Result<Decision, Error>]) -> usize {
    answers.iter().filter(|answer| answer.as_ref().is_ok_and(Decision::is_allowed)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_at_once_admit_exactly_the_limit() {
    let server = Server::start();
    let limiters: Vec<_> = (0..4).map(|_| Arc::new(server.limiter())).collect();
    for policy in one_of_each(100) {
        let answers = burst(&limiters, &policy, &key(), 1_000).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flushed_script_changes_nothing() {
    let server = Server::start();
    let limiters: Vec<_> = (0..2).map(|_| Arc::new(server.limiter())).collect();
    let mut connection = server.connection();
    let flusher = std::thread::spawn(move || {
        for _ in 0..200 {
            redis::cmd("SCRIPT").arg("FLUSH").arg("SYNC").exec(&mut connection).unwrap();
        }
    });
    let mut admissions = 0;
    for _ in 0..5 {
        let answers = burst(&limiters, &bucket(700), &key(), 400).await;
        assert!(answers.iter().all(Result::is_ok));
        admissions += admitted(&answers);
    }
    flusher.join().unwrap();
    assert_eq!(admissions, 700);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_is_unavailable_at_once_and_never_admits_more() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let limiters: Vec<_> = (0..2).map(|_| Arc::new(server.limiter())).collect();
    let policy = bucket(3_000);
    // Fifty callers, each until its first error.
    let callers: Vec<_> = (0..50)
        .map(|place| {
            let (limiter, policy) = (Arc::clone(&limiters[place % 2]), policy.clone());
            tokio::spawn(async move {
                let (key, mut admitted) = (key(), 0);
                loop {
                    match limiter.check(Check::new(&policy, &key, NOW)).await {
                        Ok(decision) => admitted += usize::from(decision.is_allowed()),
                        Err(error) => return (admitted, error),
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(30)).await;
    server.kill();
    let killed_at = Instant::now();
    let (mut admissions, mut errors) = (0, 0);
    for caller in callers {
        let (admitted, error) = caller.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        admissions += admitted;
        errors += 1;
    }
    assert!(killed_at.elapsed() < Duration::from_millis(500), "{:?}", killed_at.elapsed());
    assert!(0 < admissions && admissions < 3_000, "not killed amid the burst: {admissions}");

    // While it is down every call fails at once, not at the deadline of five seconds.
    let down_at = Instant::now();
    for answer in burst(&limiters, &policy, &key(), 500).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(down_at.elapsed() < Duration::from_millis(500), "{:?}", down_at.elapsed());

    server.restart();
    let up_at = Instant::now();
    for limiter in &limiters {
        while limiter.peek(Check::new(&policy, &key(), NOW)).await.is_err() {
            assert!(up_at.elapsed() < Duration::from_millis(500), "not back after {:?}", up_at.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let answers = burst(&limiters, &policy, &key(), 3_100).await;
    assert!(answers.iter().all(Result::is_ok));
    admissions += admitted(&answers);
    // Whose answer was lost may have been charged.
    assert!((3_000 - errors..=3_000).contains(&admissions), "{admissions}");
}

#[tokio::test]
async fn a_decision_is_one_command() {
    let server = Server::start();
    let limiter = server.limiter();
    let mut connection = server.connection();
    let (policy, key) = (bucket(5), key());
    // The first run teaches the server the script.
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
    for place in 0..10 {
        let token = format!("request-{}", place / 2);
        limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        limiter.check(Check::new(&policy, &key, NOW).idempotent(&token, Millis::from_secs(60))).await.unwrap();
        limiter.peek(Check::new(&policy, &key, NOW)).await.unwrap();
    }
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    // Commands of a script are counted too; those of clients are these.
    let calls = |command: &str| {
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next()?.parse::<u32>().ok())
            .unwrap_or(0)
    };
    assert_eq!((calls("evalsha"), calls("eval"), calls("script|load")), (30, 0, 0), "{stats}");
    assert_eq!((calls("multi"), calls("watch"), calls("ping")), (0, 0, 0), "{stats}");
    // A denial writes nothing: five were admitted, one of them before the count began, and five first answers kept.
    assert_eq!(calls("set"), 4 + 5, "{stats}");
}

#[tokio::test]
async fn the_servers_clock_can_decide() {
    let server = Server::start();
    let limiter = server.limiter_with(|config| config.clock(Clock::Server));
    let policy = bucket(2);
    // What the caller takes for now is not read.
    let first = limiter.check(Check::new(&policy, &key(), UnixMillis::new(0))).await.unwrap();
    let second = limiter.check(Check::new(&policy, &key(), NOW).idempotent("a", Millis::from_secs(60))).await.unwrap();
    let again = limiter.check(Check::new(&policy, &key(), NOW).idempotent("a", Millis::from_secs(60))).await.unwrap();
    let third = limiter.check(Check::new(&policy, &key(), UnixMillis::MAX)).await.unwrap();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(clock.abs_diff(u128::from(first.decided_at().get())) < 5_000);
    assert_eq!(second, again);
    assert_eq!(second.binding().remaining(), Some(0));
    assert!(!third.is_allowed());
    assert!(!limiter.peek(Check::new(&policy, &key(), UnixMillis::MAX)).await.unwrap().is_allowed());
}
