//! Exactness on a cluster of three nodes, while a slot moves and after a node dies.

#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{MIN_TTL, Server};
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::lending::Lease;
use tidegate_core::{
    Check, ClientIpSource, ErrorKind, Grant, Key, Keys, LimiterExt, Millis, Origin, Platform, Policy, Quota,
};
use tidegate_redis::{Config, Redis, RedisLimiter};
use tidegate_testing::{MINUTE, NOW, bucket, key, of_each_algorithm, policy};

fn cli(port: u16, arguments: &[&str]) -> String {
    let output =
        Command::new("redis-cli").args(["-p", &port.to_string()]).args(arguments).stderr(Stdio::null()).output();
    String::from_utf8(output.expect("redis-cli comes with redis-server").stdout).unwrap()
}

/// Three nodes that know each other and serve all slots.
pub(crate) fn cluster() -> Vec<Server> {
    let nodes: Vec<_> =
        (0..3).map(|_| Server::start_with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "10000"])).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "0", "--cluster-yes"]);
    cli(nodes[0].port, &create);
    let until = Instant::now() + Duration::from_secs(20);
    while !nodes.iter().all(|node| cli(node.port, &["CLUSTER", "INFO"]).contains("cluster_state:ok")) {
        assert!(Instant::now() < until, "the cluster did not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
    nodes
}

fn limiter(nodes: &[Server]) -> RedisLimiter {
    let config = Config::cluster(nodes.iter().map(Server::url)).min_ttl(MIN_TTL).deadline(crate::support::DEADLINE);
    Redis::new(config).unwrap().limiter()
}

fn owner<'a>(nodes: &'a [Server], key: &str) -> &'a Server {
    nodes.iter().find(|node| !cli(node.port, &["GET", key]).contains("MOVED")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_is_exact_and_keeps_a_keys_parts_together() {
    let mut nodes = cluster();
    let limiters: Vec<_> = (0..3).map(|_| Arc::new(limiter(&nodes))).collect();
    for policy in of_each_algorithm(20, 20, MINUTE) {
        let tasks: Vec<_> = (0..1_000)
            .map(|place| {
                let (limiter, policy) = (Arc::clone(&limiters[place % 3]), policy.clone());
                tokio::spawn(async move {
                    let key = Key::new(format!("user-{}", place % 10));
                    let token = format!("token-{place}");
                    let check = Check::new(&policy, &key, NOW).idempotent(&token, Millis::from_secs(60));
                    limiter.check(check).await.unwrap().is_allowed()
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += usize::from(task.await.unwrap());
        }
        assert_eq!(admitted, 200, "{policy:?}");
    }
    // Every node has keys.
    for node in &nodes {
        assert!(cli(node.port, &["DBSIZE"]).trim().parse::<u64>().unwrap() > 100);
    }

    // A slot moves. Clients with the old map are redirected during and after the move.
    let (policy, key) = (bucket(10), Key::new("mover"));
    let name = "{tg1:api:tb60000:mover}";
    assert!(limiters[0].check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    let slot = cli(nodes[0].port, &["CLUSTER", "KEYSLOT", name]).trim().to_owned();
    let from = owner(&nodes, name).port;
    let to = nodes.iter().find(|node| node.port != from).unwrap().port;
    let (from_id, to_id) = (cli(from, &["CLUSTER", "MYID"]), cli(to, &["CLUSTER", "MYID"]));
    let (from_id, to_id) = (from_id.trim(), to_id.trim());
    cli(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", from_id]);
    cli(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", to_id]);
    assert_eq!(cli(from, &["MIGRATE", "127.0.0.1", &to.to_string(), name, "0", "5000"]).trim(), "OK");
    let asked = limiters[1].check(Check::new(&policy, &key, NOW)).await.unwrap();
    assert_eq!(asked.binding().remaining(), Some(8));
    for node in &nodes {
        cli(node.port, &["CLUSTER", "SETSLOT", &slot, "NODE", to_id]);
    }
    for (limiter, remaining) in limiters.iter().zip([7, 6, 5]) {
        let moved = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        assert_eq!(moved.binding().remaining(), Some(remaining));
    }

    // After a node dies, a check of one of its keys fails fast.
    let dead = nodes.iter().position(|node| node.port == to).unwrap();
    nodes[dead].kill();
    let began = Instant::now();
    let error = limiters[0].check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(began.elapsed() < crate::support::AT_ONCE, "{:?}", began.elapsed());
    nodes[dead].restart();
    let until = Instant::now() + crate::support::AT_ONCE;
    while limiters[0].check(Check::new(&policy, &key, NOW)).await.is_err() {
        assert!(Instant::now() < until, "the node did not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_dead_cluster_is_unavailable_without_a_wait() {
    let url = format!("redis://127.0.0.1:{}", crate::support::free_port());
    let limiter = Redis::new(Config::cluster([url]).deadline(crate::support::DEADLINE)).unwrap().limiter();
    let began = Instant::now();
    let error = limiter.check(Check::new(&bucket(1), &key(), NOW)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(began.elapsed() < crate::support::AT_ONCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_cluster_that_is_up_again_is_used_again_over_one_connection_to_each_node() {
    let mut nodes = cluster();
    let limiter = limiter(&nodes);
    let policy = bucket(100);
    let ask = async |nth: u64| {
        let key = Key::new(format!("user-{nth}"));
        limiter.check(Check::new(&policy, &key, NOW)).await
    };
    for nth in 0..20 {
        assert!(ask(nth).await.unwrap().is_allowed());
    }
    for node in &nodes {
        let of_this_limiter = cli(node.port, &["CLIENT", "LIST", "TYPE", "normal"]).lines().count() - 1;
        assert_eq!(of_this_limiter, 1);
    }
    nodes.iter_mut().for_each(Server::kill);
    let down = Instant::now();
    for nth in 0..20 {
        assert_eq!(ask(nth).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(down.elapsed() < crate::support::AT_ONCE, "{:?}", down.elapsed());
    nodes.iter_mut().for_each(Server::restart);
    let until = Instant::now() + crate::support::AT_ONCE;
    for nth in 0..20 {
        while ask(nth).await.is_err() {
            assert!(Instant::now() < until, "the cluster is not used again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limiters_borrow_from_every_node() {
    let nodes = cluster();
    let config = || Config::cluster(nodes.iter().map(Server::url)).min_ttl(MIN_TTL).deadline(crate::support::DEADLINE);
    let lease = Lease::new(20, Millis::from_secs(10));
    let limiters: Vec<_> = (0..2).map(|_| Redis::new(config()).unwrap().lending(lease).unwrap()).collect();
    let policy = policy(Quota::fixed_window(500, Millis::from_secs(86_400)));
    for user in 0..8 {
        let (key, mut admitted, mut lent) = (Key::new(format!("user-{user}")), 0, 0);
        for place in 0..1_200 {
            let decision = limiters[place / 20 % 2].check(Check::new(&policy, &key, NOW)).await.unwrap();
            admitted += u64::from(decision.is_allowed());
            lent += u64::from(decision.is_allowed() && decision.origin() == Origin::Lease);
        }
        assert!((460..=500).contains(&admitted) && lent > 250, "{admitted}, {lent} of them lent");
    }
    for node in &nodes {
        assert_ne!(cli(node.port, &["DBSIZE"]).trim(), "0");
    }
}

/// A gate places what it counts by its key, so that a node decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_borrows_from_every_node() {
    const NO_HEADERS: [(&str, &str); 0] = [];
    let nodes = cluster();
    let gate = || {
        let rules = r#"{ "limits": { "api": { "lease": { "slice": 20, "lifetime_ms": 10000 },
            "quotas": [{ "algorithm": "fixed_window", "limit": 500, "window_ms": 86400000 }] } }, "rules": [{ "limits": ["api"] }] }"#;
        let config = Config::cluster(nodes.iter().map(Server::url)).min_ttl(MIN_TTL).deadline(crate::support::DEADLINE);
        let store = Redis::new(config).unwrap().limiter();
        Gate::new(Rules::parse("rules.json", rules).unwrap(), store, ClientIpSource::new(Platform::Direct)).unwrap()
    };
    let gates = [gate(), gate()];
    for user in 0..8 {
        let (subject, mut passed, mut lent) = (format!("user-{user}"), 0, 0);
        for place in 0..1_200 {
            let request = Request::new("GET", "/", &NO_HEADERS, NOW).subject(&subject);
            let verdict = gates[place / 20 % 2].check(&request).await;
            let is_lent = verdict.decision().is_some_and(|decision| decision.origin() == Origin::Lease);
            let passes = matches!(verdict, Verdict::Pass(_));
            (passed, lent) = (passed + u64::from(passes), lent + u64::from(passes && is_lent));
        }
        assert!((460..=500).contains(&passed) && lent > 250, "{passed}, {lent} of them lent");
    }
    for node in &nodes {
        assert_ne!(cli(node.port, &["DBSIZE"]).trim(), "0");
    }
}

/// All rows of a group are in one slot, so one script decides on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn users_of_a_tenant_share_its_limit_on_a_cluster() {
    let nodes = cluster();
    let limiters: Vec<_> = (0..3).map(|_| Arc::new(limiter(&nodes))).collect();
    let quota = |limit, dimension| Quota::fixed_window(limit, Millis::from_secs(60)).unwrap().by(dimension).unwrap();
    let policy = Policy::new("api", [quota(10, "user"), quota(25, "tenant")]).unwrap();
    let (user, tenant) = (Key::new("user:1"), Key::new("tenant:1"));
    let keys = [("user", &user), ("tenant", &tenant)];
    let ungrouped = limiters[0].check(Check::new(&policy, &keys, NOW)).await.unwrap_err();
    assert_eq!(ungrouped.kind(), ErrorKind::Unsupported);
    assert!(ungrouped.to_string().contains("write group_by"), "{ungrouped}");

    let policy = Arc::new(policy.group_by("tenant").unwrap());
    let tasks: Vec<_> = (0..400)
        .map(|place| {
            let (limiter, policy) = (Arc::clone(&limiters[place % 3]), Arc::clone(&policy));
            tokio::spawn(async move {
                let user = Key::new(format!("user:{}", place % 40));
                let tenant = Key::new(format!("tenant:{}", place % 2));
                let keys = [("user", &user), ("tenant", &tenant)];
                u64::from(limiter.check(Check::new(&policy, &keys, NOW)).await.unwrap().is_allowed())
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 50);
}

/// A balance and the quotas beside it are in one slot, and a change of the quotas moves neither to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_balance_is_spent_in_one_step_on_a_cluster() {
    let nodes = cluster();
    let limiter = limiter(&nodes);
    let own = || Quota::balance(1_000).unwrap().covers_excess().unwrap();
    for nth in 0..20 {
        let (user, tenant) = (Key::new(format!("user:{nth}")), Key::new(format!("tenant:{nth}")));
        let keys = [("user", &user), ("tenant", &tenant)];
        for group in ["", "user", "tenant"] {
            for (place, seconds) in [60, 3_600].into_iter().enumerate() {
                let quota = Quota::fixed_window(10, Millis::from_secs(seconds)).unwrap();
                let (policy, keys) = if group.is_empty() {
                    (Policy::new("api", [quota, own()]).unwrap(), Keys::from(&user))
                } else {
                    let of_tenant = Quota::fixed_window(500, Millis::from_secs(60)).unwrap().by("tenant").unwrap();
                    let quotas = [quota.by("user").unwrap(), own().by("user").unwrap(), of_tenant];
                    (Policy::new(&format!("by-{group}"), quotas).unwrap().group_by(group).unwrap(), Keys::from(&keys))
                };
                let granted = limiter.grant(Grant::new(&policy, keys, 100, "order", NOW)).await.unwrap();
                assert_eq!(granted.is_replay(), place > 0);
                let decision = limiter.check(Check::new(&policy, keys, NOW).cost(40)).await.unwrap();
                assert_eq!(decision.from_balance(), 30);
                assert_eq!(decision.quotas()[1].remaining(), Some(if place == 0 { 70 } else { 40 }));
                limiter.reset(&policy, keys).await.unwrap();
            }
        }
    }
}
