//! What a limiter says when the database fails.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use tidegate_core::{Check, Error, ErrorKind, Key, LimiterExt, Millis};
use tidegate_postgres::{Config, Postgres, PostgresLimiter};
use tidegate_testing::{NOW, key, per_minute};

use crate::support::{PASSWORD, Server};

async fn check(limiter: &PostgresLimiter) -> Result<bool, Error> {
    let decided = limiter.check(Check::new(&per_minute(1_000), &key(), NOW)).await;
    if let Err(error) = &decided {
        assert!(!format!("{error} {error:?} {error:#?}").contains(PASSWORD));
    }
    decided.map(|decision| decision.is_allowed())
}

#[tokio::test]
async fn a_table_that_is_missing_or_anothers_is_told_with_the_statement_to_run() {
    let server = Server::start();
    let (limiter, client) = (server.limiter(), server.client().await);
    let error = check(&limiter).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS tidegate (\n"), "{error}");
    assert!(error.advice().unwrap().contains("create_table"));
    for other in [
        "CREATE TABLE tidegate (name text PRIMARY KEY, state text, expires_at timestamptz)",
        "CREATE TABLE tidegate (name text PRIMARY KEY, state bytea)",
        "CREATE TABLE tidegate (name text, state bytea, expires_at timestamptz)",
        "CREATE TABLE tidegate (id bigint PRIMARY KEY)",
        "CREATE TABLE tidegate (name text PRIMARY KEY, state bytea, expires_at timestamptz, tenant int NOT NULL)",
    ] {
        client.execute(other, &[]).await.unwrap();
        let error = check(&limiter).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Corrupt), "{other}: {error:?}");
        assert!(error.to_string().contains("is not the one in the README"), "{other}: {error}");
        client.execute("DROP TABLE tidegate", &[]).await.unwrap();
    }
    limiter.store().create_table().await.unwrap();
    limiter.store().ping().await.unwrap();
    assert!(check(&limiter).await.unwrap());
}

#[tokio::test]
async fn a_state_that_is_not_tidegates_is_corrupt_and_stays() {
    let (server, limiter) = Server::with_table().await;
    let client = server.client().await;
    let name = key().storage_key(&per_minute(1_000));
    for bytes in [&b""[..], b"\x14", b"not a state", &[0xff; 300]] {
        let put =
            "INSERT INTO tidegate VALUES ($1, $2, now() + interval '1 h') ON CONFLICT (name) DO UPDATE SET state = $2";
        client.execute(put, &[&name, &bytes]).await.unwrap();
        assert_eq!(check(&limiter).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let kept: Vec<u8> = client.query_one("SELECT state FROM tidegate", &[]).await.unwrap().get(0);
        assert_eq!(kept, bytes);
    }
    limiter.reset(&per_minute(1_000), (&key()).into()).await.unwrap();
    assert!(check(&limiter).await.unwrap());
}

#[tokio::test]
async fn who_may_not_connect_is_refused() {
    let (server, _) = Server::with_table().await;
    let client = server.client().await;
    client.batch_execute("CREATE ROLE poor LOGIN PASSWORD 'hunter2'").await.unwrap();
    client.batch_execute("CREATE ROLE one LOGIN SUPERUSER PASSWORD 'hunter2'").await.unwrap();
    let of = |user: &str, password: &str| {
        Postgres::new(Config::new(server.url_of(user, password)).unwrap().deadline(Millis::from_secs(20)))
            .unwrap()
            .limiter()
    };
    for (user, password) in [("tidegate", "hunter3"), ("nobody", PASSWORD), ("poor", PASSWORD)] {
        let error = check(&of(user, password)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{user}: {error:?}");
    }
    client.batch_execute("ALTER ROLE poor CONNECTION LIMIT 0").await.unwrap();
    let error = check(&of("poor", PASSWORD)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "too many connections are contention: {error:?}");
    client.batch_execute("ALTER ROLE one SET default_transaction_read_only = on").await.unwrap();
    let error = check(&of("one", PASSWORD)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("primary"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_and_is_used_again_when_it_is_back() {
    let (mut server, limiter) = Server::with_table().await;
    assert!(check(&limiter).await.unwrap());
    server.crash();
    for _ in 0..3 {
        assert_eq!(check(&limiter).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    server.start_again();
    // The first call may find a connection that has ended.
    let _ = check(&limiter).await;
    assert!(check(&limiter).await.unwrap());
    let client = server.client().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    client.execute(end, &[]).await.unwrap();
    // The server ends them a moment later.
    let mut again = check(&limiter).await;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        again = check(&limiter).await;
    }
    assert!(again.unwrap());
}

#[tokio::test]
async fn a_server_that_hangs_is_a_timeout_and_one_that_answers_others_is_contended() {
    let (server, _) = Server::with_table().await;
    let config = || server.config().deadline(Millis::new(400));
    let limiter = Postgres::new(config()).unwrap().limiter();
    assert!(check(&limiter).await.unwrap());
    server.halt(true);
    let error = check(&limiter).await.unwrap_err();
    // The process may have been too busy to know.
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Contended), "{error:?}");
    server.halt(false);
    let mut again = check(&limiter).await;
    for _ in 0..20 {
        if again.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        again = check(&limiter).await;
    }
    assert!(again.unwrap());
    // Somebody holds the row. The server answers the checks of other keys meanwhile.
    let mut locking = server.client().await;
    let locked = locking.transaction().await.unwrap();
    locked.query("SELECT 1 FROM tidegate FOR UPDATE", &[]).await.unwrap();
    let others = async {
        loop {
            let other = Key::new("other");
            limiter.check(Check::new(&per_minute(1_000_000), &other, NOW)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        checked = check(&limiter) => {
            assert_eq!(checked.unwrap_err().kind(), ErrorKind::Contended);
        }
        () = others => {}
    }
    locked.rollback().await.unwrap();
    assert!(check(&limiter).await.is_ok());
}

#[test]
fn a_configuration_that_cannot_work_is_invalid_and_says_so_without_the_password() {
    for url in [
        "redis://user:hunter2@127.0.0.1",
        "postgresql://user:hunter2@127.0.0.1:notaport/db",
        "postgresql://user:hunter2@127.0.0.1/db?sslmode=hunter2",
        "hunter2",
        "user=hunter2",
        "",
    ] {
        let error = Config::new(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains("write postgresql://"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    let config = || Config::new("postgresql://user:hunter2@127.0.0.1/db").unwrap();
    for config in [config().connections(0), config().connections(65), config().deadline(Millis::ZERO)] {
        assert!(!format!("{config:?}").contains("hunter2"));
        assert_eq!(Postgres::new(config).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let tls = Config::new("postgresql://user:hunter2@127.0.0.1/db?sslmode=require").unwrap();
    assert_eq!(Postgres::new(tls).is_ok(), cfg!(feature = "tls-rustls"));
}
