//! Concurrent requests are admitted exactly up to the limit, across script flushes and restarts, with one command each.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Server, admitted, burst};
use tidegate_core::algorithm::MAX_UNITS;
use tidegate_core::{Check, ErrorKind, Key, LimiterExt, MAX_CLOCK_SKEW, Millis, Policy, Quota, UnixMillis};
use tidegate_redis::{Config, Redis};
use tidegate_testing::{MINUTE, NOW, bucket, key, of_each_algorithm, per_minute, policy};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_concurrent_requests_admit_exactly_the_limit() {
    let server = Server::start();
    let limiters: Vec<_> = (0..4).map(|_| Arc::new(server.limiter())).collect();
    for policy in of_each_algorithm(100, 100, MINUTE) {
        let answers = burst(&limiters, &policy, 1_000).await;
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
        let answers = burst(&limiters, &bucket(700), 400).await;
        assert!(answers.iter().all(Result::is_ok));
        admissions += admitted(&answers);
    }
    flusher.join().unwrap();
    assert_eq!(admissions, 700);
}

/// The short script has no answer for a state that is far ahead. The general one has, loaded or not.
#[tokio::test]
async fn a_state_that_is_ahead_is_decided_on_by_the_general_script() {
    let server = Server::start();
    let (limiter, mut connection) = (server.limiter(), server.connection());
    let (policy, key, name) = (bucket(5), key(), "{tg1:api:tb60000:ip:192.0.2.1}");
    for is_flushed in [true, false, true] {
        if is_flushed {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        }
        let ahead = format!("tb1 60000 {};", NOW.get() + 90_000);
        redis::cmd("SET").arg(name).arg(ahead).exec(&mut connection).unwrap();
        assert_eq!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().binding().remaining(), Some(3));
        let moved_back: String = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(moved_back, format!("tb1 120000 {};", NOW.get() + 60_000));
        // Up to a minute ahead, it is usual between hosts.
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
        assert_eq!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().binding().remaining(), Some(2));
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        assert!(stats.contains("cmdstat_evalsha:calls=1,"), "{stats}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_is_unavailable_without_a_wait_and_never_overadmits() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let limiters: Vec<_> = (0..2).map(|_| Arc::new(server.limiter())).collect();
    let policy = bucket(3_000);
    // Fifty callers run until their first error.
    let so_far = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..50)
        .map(|place| {
            let (limiter, policy, so_far) = (Arc::clone(&limiters[place % 2]), policy.clone(), Arc::clone(&so_far));
            tokio::spawn(async move {
                let (key, mut admitted) = (key(), 0);
                loop {
                    match limiter.check(Check::new(&policy, &key, NOW)).await {
                        Ok(decision) => {
                            admitted += usize::from(decision.is_allowed());
                            so_far.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => return (admitted, error),
                    }
                }
            })
        })
        .collect();
    while so_far.load(Ordering::Relaxed) < 100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.kill();
    let killed_at = Instant::now();
    let (mut admissions, mut errors) = (0, 0);
    for caller in callers {
        let (admitted, error) = caller.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        admissions += admitted;
        errors += 1;
    }
    assert!(killed_at.elapsed() < crate::support::AT_ONCE, "{:?}", killed_at.elapsed());
    assert!(0 < admissions && admissions < 3_000, "the server was not killed during the burst: {admissions}");

    // While the server is down, every call fails at once and not at the deadline.
    let down_at = Instant::now();
    for answer in burst(&limiters, &policy, 500).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(down_at.elapsed() < crate::support::AT_ONCE, "{:?}", down_at.elapsed());

    server.restart();
    let up_at = Instant::now();
    for limiter in &limiters {
        while limiter.peek(Check::new(&policy, &key(), NOW)).await.is_err() {
            assert!(up_at.elapsed() < crate::support::AT_ONCE, "not up again after {:?}", up_at.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let answers = burst(&limiters, &policy, 3_100).await;
    assert!(answers.iter().all(Result::is_ok));
    admissions += admitted(&answers);
    // A request whose answer was lost may have been charged.
    assert!((3_000 - errors..=3_000).contains(&admissions), "{admissions}");
}

/// More concurrent requests than can be served within the deadline. Fail-open must not apply, so this is not a store
/// failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_is_contention_and_not_a_store_failure() {
    let server = Server::start();
    let policy = per_minute(100);
    let limiter = Arc::new(server.limiter_with(|config| config.deadline(Millis::from_secs(2))));
    assert!(limiter.check(Check::new(&policy, &key(), NOW)).await.unwrap().is_allowed());
    let answers = burst(&[limiter], &policy, 60_000).await;
    let failures =
        |kind| answers.iter().filter(|answer| answer.as_ref().is_err_and(|error| error.kind() == kind)).count();
    let [contended, timeout, unavailable] =
        [ErrorKind::Contended, ErrorKind::Timeout, ErrorKind::Unavailable].map(failures);
    assert!(contended > 1_000, "only {contended} requests of the flood were rejected");
    assert_eq!((timeout, unavailable), (0, 0));
    assert!(admitted(&answers) <= 99);
}

#[tokio::test]
async fn a_decision_is_one_command() {
    let server = Server::start();
    let limiter = server.limiter();
    let mut connection = server.connection();
    let (policy, key) = (bucket(6), key());
    // The first run of each script loads it. The short one is sent at once, without a question whether the server has it.
    for evalshas in [None, Some("cmdstat_evalsha:calls=1,")] {
        limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        assert!(stats.contains("cmdstat_eval:calls=1,"), "{stats}");
        assert!(evalshas.map_or(!stats.contains("evalsha"), |calls| stats.contains(calls)), "{stats}");
    }
    limiter.peek(Check::new(&policy, &key, NOW)).await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
    for place in 0..10 {
        let token = format!("request-{}", place / 2);
        limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        limiter.check(Check::new(&policy, &key, NOW).idempotent(&token, Millis::from_secs(60))).await.unwrap();
        limiter.peek(Check::new(&policy, &key, NOW)).await.unwrap();
    }
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    // The statistics count the commands of clients and those within scripts.
    let calls = |command: &str| {
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next()?.parse::<u32>().ok())
            .unwrap_or(0)
    };
    assert_eq!((calls("evalsha"), calls("eval"), calls("script|load")), (30, 0, 0), "{stats}");
    assert_eq!((calls("multi"), calls("watch"), calls("ping")), (0, 0, 0), "{stats}");
    // A denial writes nothing. Six requests were admitted: two before the statistics were reset, and one with a token,
    // which writes twice.
    assert_eq!(calls("set"), 4 + 1, "{stats}");
}

/// By default, a host whose clock is wrong can neither lock a key nor evade its limit.
#[tokio::test]
async fn the_servers_clock_decides_and_the_callers_is_ignored() {
    let server = Server::start();
    let limiter = Redis::new(Config::new(server.url()).deadline(crate::support::DEADLINE)).unwrap().limiter();
    let policy = bucket(2);
    let now = || {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap())
    };
    let first = limiter.check(Check::new(&policy, &key(), UnixMillis::MAX)).await.unwrap();
    let second = limiter.check(Check::new(&policy, &key(), NOW).idempotent("a", Millis::from_secs(60))).await.unwrap();
    let again = limiter.check(Check::new(&policy, &key(), NOW).idempotent("a", Millis::from_secs(60))).await.unwrap();
    let third = limiter.check(Check::new(&policy, &key(), UnixMillis::new(0))).await.unwrap();
    assert!(now().get().abs_diff(first.decided_at().get()) < 5_000);
    assert_eq!((second.is_replay(), again.is_replay()), (false, true));
    assert_eq!((second.quotas(), second.decided_at()), (again.quotas(), again.decided_at()));
    assert_eq!(second.binding().remaining(), Some(0));
    assert!(!third.is_allowed());
    assert!(third.retry_after().unwrap() <= policy.quotas()[0].rule().window());
    assert!(!limiter.peek(Check::new(&policy, &key(), UnixMillis::MAX)).await.unwrap().is_allowed());
}

/// With the callers' clocks, a host a year ahead locks a key for at most a minute longer than the policy does.
#[tokio::test]
async fn a_callers_clock_a_year_ahead_adds_at_most_a_minute_to_a_wait() {
    let server = Server::start();
    let mut connection = server.connection();
    let limiter = server.limiter_with(|config| config.min_ttl(Millis::ZERO));
    let key = key();
    let (second, year) = (Millis::from_secs(1), Millis::from_secs(365 * 86_400));
    let quotas = [
        Quota::token_bucket(10, 1, second),
        Quota::leaky_bucket(10, 1, second),
        Quota::fixed_window(10, Millis::from_secs(10)),
        Quota::sliding_window(10, Millis::from_secs(10)),
        Quota::sliding_log(10, Millis::from_secs(10)),
    ]
    .map(Result::unwrap);
    for quota in quotas {
        let name = quota.rule().name();
        let bound = MAX_CLOCK_SKEW + quota.rule().window() + quota.rule().window();
        let policy = Policy::new(name, [quota]).unwrap();
        let check = |now| Check::new(&policy, &key, now);
        assert!(limiter.check(check(NOW + year).cost(10)).await.unwrap().is_allowed());
        // Checked twice: the first denial moves the state back, and the second reads the moved state.
        let denied = limiter.check(check(NOW)).await.unwrap();
        let wait = denied.retry_after().unwrap();
        assert!(wait <= bound, "{name}: denied for {wait}");
        let later = limiter.check(check(NOW + second)).await.unwrap();
        assert_eq!(later.retry_after().unwrap() + second, wait, "{name}");
        let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*{name}*")).query(&mut connection).unwrap();
        let ttl_ms: u64 = redis::cmd("PTTL").arg(&keys).query(&mut connection).unwrap();
        assert!(ttl_ms <= bound.get(), "{name}: expires after {ttl_ms} ms");
        assert!(limiter.check(check(NOW + wait)).await.unwrap().is_allowed(), "{name}");
    }
}

#[tokio::test]
async fn a_sliding_window_compares_products_beyond_a_double_to_the_unit() {
    let server = Server::start();
    let limiter = server.limiter();
    // A prime, so that the share of the window before is never whole.
    let window = 1_000_003;
    let policy = policy(Quota::sliding_window(MAX_UNITS, Millis::new(window)));
    for user in 1..200 {
        let key = Key::new(format!("user:{user}"));
        let before = MAX_UNITS - user * 7_919;
        let at = |ms: u64| Check::new(&policy, &key, UnixMillis::new(window * 1_800_000 + ms));
        assert!(limiter.check(at(0).cost(before)).await.unwrap().is_allowed());
        let (half, elapsed) = (window * 3 / 2 + user, window / 2 + user);
        let weight = (u128::from(before) * u128::from(window - elapsed)).div_ceil(window.into());
        let room = MAX_UNITS - u64::try_from(weight).unwrap();
        assert!(!limiter.check(at(half).cost(room + 1)).await.unwrap().is_allowed(), "{user}");
        let last = limiter.check(at(half).cost(room)).await.unwrap();
        assert!(last.is_allowed() && last.binding().remaining() == Some(0), "{user}: {last:?}");
    }
}
