//! Decisions of different keys that one statement makes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use tidegate_core::{Check, Decision, Error, ErrorKind, Key, LimiterExt, UnixMillis};
use tidegate_postgres::{Postgres, PostgresLimiter};
use tidegate_testing::{NOW, per_minute};

use crate::support::Server;

/// A limiter with one connection, so that all decisions but the first wait and go together.
fn on_one_connection(server: &Server) -> Arc<PostgresLimiter> {
    Arc::new(Postgres::new(server.config().connections(1)).unwrap().limiter())
}

/// Checks these keys at once, in this order.
async fn at_once(limiter: &Arc<PostgresLimiter>, limit: u64, keys: &[String]) -> Vec<Result<Decision, Error>> {
    let checks = keys.iter().map(|key| {
        let (limiter, key) = (Arc::clone(limiter), Key::new(key));
        tokio::spawn(async move { limiter.check(Check::new(&per_minute(limit), &key, NOW)).await })
    });
    let checks: Vec<_> = checks.collect();
    let mut decided = Vec::new();
    for check in checks {
        decided.push(check.await.unwrap());
    }
    decided
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("k{nth:03}")).collect()
}

fn left(decided: &Result<Decision, Error>) -> Option<u64> {
    decided.as_ref().unwrap().binding().remaining()
}

#[tokio::test]
async fn what_one_statement_finds_of_each_key_is_told_to_its_own_decision() {
    let (server, other) = Server::with_table().await;
    let (limiter, client, keys) = (on_one_connection(&server), server.client().await, keys(50));
    // It remembers 40 of them: ten are new.
    for decided in at_once(&limiter, 9, &keys[..40]).await {
        assert_eq!(left(&decided), Some(8));
    }
    let policy = per_minute(9);
    let (charged, reset, broken) = (0..10, 10..20, 20..25);
    for nth in charged.clone().chain(40..45) {
        other.check(Check::new(&policy, &Key::new(&keys[nth]), NOW)).await.unwrap();
    }
    for nth in reset.clone() {
        other.reset(&policy, (&Key::new(&keys[nth])).into()).await.unwrap();
    }
    let name = |nth: usize| Key::new(&keys[nth]).storage_key(&policy);
    for nth in broken.clone() {
        let broken = "UPDATE tidegate SET state = '' WHERE name = $1";
        assert_eq!(client.execute(broken, &[&name(nth)]).await.unwrap(), 1);
    }
    // From the last to the first: the statement has an order of its own.
    let backwards: Vec<_> = keys.iter().rev().cloned().collect();
    let mut decided = at_once(&limiter, 9, &backwards).await;
    decided.reverse();
    for (nth, decided) in decided.iter().enumerate() {
        if broken.contains(&nth) {
            assert_eq!(decided.as_ref().unwrap_err().kind(), ErrorKind::Corrupt, "{nth}");
            continue;
        }
        let expected = match nth {
            nth if charged.contains(&nth) => 6,
            nth if reset.contains(&nth) => 8,
            nth if nth < 45 => 7,
            _ => 8,
        };
        assert_eq!(left(decided), Some(expected), "{nth}");
    }
    // Nothing is left of how the statement learns that a row has gone.
    let placed = "SELECT count(*) FROM tidegate WHERE expires_at = '-infinity'";
    assert_eq!(client.query_one(placed, &[]).await.unwrap().get::<_, i64>(0), 0);
    // Another process finds what was written.
    for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| !broken.contains(nth)) {
        let seen = other.check(Check::new(&policy, &Key::new(key), NOW)).await;
        assert_eq!(left(&seen), left(&decided[nth]).map(|left| left - 1), "{nth}");
    }
}

#[tokio::test]
async fn a_row_that_has_gone_is_absent_to_all_until_it_is_created() {
    let (server, other) = Server::with_table().await;
    let (policy, client) = (per_minute(5), server.client().await);
    let name = Key::new("k").storage_key(&policy);
    let gone = "INSERT INTO tidegate VALUES ($1, '', '-infinity')";
    client.execute(gone, &[&name]).await.unwrap();
    let peeked = other.peek(Check::new(&policy, &Key::new("k"), NOW)).await.unwrap();
    assert_eq!(peeked.binding().remaining(), Some(5));
    assert_eq!(left(&other.check(Check::new(&policy, &Key::new("k"), NOW)).await), Some(4));
    // One that remembers a state does not write over it either.
    client.execute("UPDATE tidegate SET state = '', expires_at = '-infinity'", &[]).await.unwrap();
    assert_eq!(left(&other.check(Check::new(&policy, &Key::new("k"), NOW)).await), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_write_many_keys_at_once_admit_each_limit_and_never_wait_for_each_other_in_a_circle() {
    const LIMIT: u64 = 7;
    let (server, _) = Server::with_table().await;
    let processes: Vec<_> = (0..4).map(|_| on_one_connection(&server)).collect();
    let policy = per_minute(LIMIT);
    let mut bursts = Vec::new();
    for (nth, limiter) in processes.iter().enumerate() {
        // Each in an order of its own.
        let mut keys = keys(100);
        keys.rotate_left(nth * 31);
        if nth % 2 == 1 {
            keys.reverse();
        }
        let limiter = Arc::clone(limiter);
        bursts.push(tokio::spawn(async move {
            let mut admitted = Vec::new();
            for _ in 0..4 {
                for (key, decided) in keys.iter().zip(at_once(&limiter, LIMIT, &keys).await) {
                    if decided.unwrap().is_allowed() {
                        admitted.push(key.clone());
                    }
                }
            }
            admitted
        }));
    }
    let mut admitted = Vec::new();
    for burst in bursts {
        admitted.extend(burst.await.unwrap());
    }
    admitted.sort_unstable();
    let expected: Vec<_> = keys(100)
        .into_iter()
        .flat_map(|key| [key.clone(), key.clone(), key.clone(), key.clone(), key.clone(), key.clone(), key])
        .collect();
    assert_eq!(admitted, expected);
    let client = server.client().await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(client.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
    let later = UnixMillis::new(NOW.get() + 120_000);
    let again = processes[0].check(Check::new(&policy, &Key::new("k000"), later)).await;
    assert_eq!(left(&again), Some(LIMIT - 1));
}

#[tokio::test]
async fn a_statement_that_fails_fails_those_that_wait_for_it() {
    let (server, _) = Server::with_table().await;
    let (limiter, client) = (on_one_connection(&server), server.client().await);
    client.execute("ALTER TABLE tidegate RENAME TO another", &[]).await.unwrap();
    for decided in at_once(&limiter, 5, &keys(20)).await {
        let error = decided.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS tidegate"), "{error}");
    }
    client.execute("ALTER TABLE another RENAME TO tidegate", &[]).await.unwrap();
    // One that the database does not take leaves the others alone.
    client.execute("ALTER TABLE tidegate ADD CONSTRAINT but_one CHECK (name NOT LIKE '%k007')", &[]).await.unwrap();
    for (nth, decided) in at_once(&limiter, 5, &keys(20)).await.iter().enumerate() {
        match decided {
            Ok(decided) => assert_eq!((nth != 7, decided.binding().remaining()), (true, Some(4))),
            Err(error) => assert_eq!((nth, error.kind()), (7, ErrorKind::Refused), "{error}"),
        }
    }
}
