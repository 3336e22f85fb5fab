//! A server that may evict counts is warned of, once, if it tells.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::time::Duration;

use crate::support::Server;
use tidegate_core::{Check, LimiterExt};
use tidegate_redis::Config;
use tidegate_testing::{Log, NOW, bucket, key};

/// The warnings after some checks over two connections, one of which the server has closed.
async fn warnings(server: &Server, configure: impl FnOnce(Config) -> Config) -> Vec<String> {
    let log = Log::default();
    let _guard = log.record();
    let limiter = server.limiter_with(configure);
    let (policy, key) = (bucket(1_000), key());
    for round in 0..3 {
        let checks = [(); 2].map(|()| limiter.check(Check::new(&policy, &key, NOW)));
        for check in checks {
            assert!(check.await.unwrap().is_allowed());
        }
        if round == 1 {
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.connection()).unwrap();
            // The next check finds the connection closed.
            while limiter.check(Check::new(&policy, &key, NOW)).await.is_err() {}
        }
    }
    // The server answers in order, so what it was asked beside the checks is answered.
    for _ in 0..20 {
        limiter.store().ping().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    log.take_lines().into_iter().filter(|line| line.starts_with("WARN")).collect()
}

#[tokio::test]
async fn a_server_that_may_evict_counts_is_warned_of_once() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = Server::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
        let told = warnings(&server, |config| config).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(policy) && told[0].contains("104857600"), "{told:?}");
        assert!(told[0].contains("noeviction"), "{told:?}");
    }
}

#[tokio::test]
async fn a_server_that_evicts_nothing_or_does_not_tell_is_not_warned_of() {
    let bounded = ["--maxmemory", "100mb", "--maxmemory-policy"];
    for arguments in [&[][..], &["--maxmemory-policy", "allkeys-lru"], &[&bounded[..], &["noeviction"]].concat()] {
        assert_eq!(warnings(&Server::start_with(arguments), |config| config).await, [""; 0], "{arguments:?}");
    }
    // A user who may only count: the limiter works, and nothing is said.
    let server = Server::start_with(&[&bounded[..], &["allkeys-lru"]].concat());
    let rights = "on >secret ~{tg1:* -@all +evalsha +eval +getrange +set +del +time +ping";
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg("counter")
        .arg(rights.split(' ').collect::<Vec<_>>())
        .exec(&mut server.connection())
        .unwrap();
    let url = format!("redis://counter:secret@127.0.0.1:{}", server.port);
    let configured = |_| Config::new(url).clock(tidegate_redis::Clock::Caller).deadline(crate::support::DEADLINE);
    assert_eq!(warnings(&server, configured).await, [""; 0]);
}
