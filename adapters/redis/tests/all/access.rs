//! The access rules that the guide names are enough, and none of them is too many.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use crate::support::Server;
use tidegate_core::{Check, Error, ErrorKind, Limiter, LimiterExt, Millis, Policy, Quota, Refund, Settle};
use tidegate_redis::{Config, Redis, RedisLimiter};
use tidegate_testing::{NOW, key};

const GUIDE: &str = include_str!("../../../../core/docs/replicas.md");

/// Every call of a limiter.
async fn all_calls(limiter: &impl Limiter) -> Result<(), Error> {
    let policy = Policy::new("api", [Quota::token_bucket(10, 1, Millis::from_secs(1))?])?;
    let key = key();
    let check = Check::new(&policy, &key, NOW);
    limiter.check(check.cost(2).idempotent("token", Millis::from_secs(60))).await?;
    limiter.peek(check).await?;
    limiter.settle(Settle::new(&policy, &key, "token", 3, NOW)).await?;
    limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW)).await?;
    limiter.reset(&policy, (&key).into()).await
}

/// The words of the guide's line for a user.
fn line(user: &str) -> Vec<String> {
    let begin = format!("ACL SETUSER {user} ");
    let line = GUIDE.lines().find(|line| line.trim_start().starts_with(&begin)).unwrap();
    line.split_whitespace().map(|word| word.replace("PASSWORD", "pw")).collect()
}

/// Makes a user on each server, with the words of the guide's line but one.
fn make(servers: &[Server], words: &[String], user: &str, missing: Option<&String>) {
    let words: Vec<_> = words.iter().filter(|word| Some(*word) != missing).map(String::as_str).collect();
    for server in servers {
        let mut connection = server.connection();
        redis::cmd("ACL").arg("SETUSER").arg(user).arg(&words[3..]).exec(&mut connection).unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    }
}

/// Makes all calls as a user with all rules of a line, and as users that lack one of them each.
async fn each_rule_is_needed(servers: &[Server], user: &str, limiter: impl Fn(&str) -> RedisLimiter) {
    let words = line(user);
    make(servers, &words, user, None);
    all_calls(&limiter(user)).await.unwrap();
    let commands: Vec<&String> = words.iter().filter(|word| word.starts_with('+')).collect();
    assert!(commands.len() >= 6);
    for (place, missing) in commands.into_iter().enumerate() {
        let user = format!("less{place}");
        make(servers, &words, &user, Some(missing));
        let kind = all_calls(&limiter(&user)).await.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Refused), "without {missing}");
    }
}

fn of_user(server: &Server, user: &str) -> String {
    server.url().replace("redis://", &format!("redis://{user}:pw@"))
}

#[tokio::test]
async fn the_rules_in_the_guide_are_what_the_limiter_needs() {
    let server = [Server::start()];
    let limiter = |user: &str| Redis::new(Config::new(of_user(&server[0], user))).unwrap().limiter();
    each_rule_is_needed(&server, "tidegate", limiter).await;
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_in_the_guide_are_what_a_cluster_needs() {
    let nodes = crate::cluster::cluster();
    let limiter = |user: &str| {
        let urls = nodes.iter().map(|node| of_user(node, user));
        Redis::new(Config::cluster(urls).deadline(crate::support::DEADLINE)).unwrap().limiter()
    };
    each_rule_is_needed(&nodes, "tidegate-cluster", limiter).await;
}

#[tokio::test]
async fn a_password_is_rotated_as_the_guide_says() {
    let server = [Server::start()];
    make(&server, &line("tidegate"), "tidegate", None);
    let is_let_in = async |password: &str| {
        let url = of_user(&server[0], "tidegate").replace(":pw@", &format!(":{password}@"));
        let kind = all_calls(&Redis::new(Config::new(url)).unwrap().limiter()).await.map_err(|error| error.kind());
        assert!(kind == Ok(()) || kind == Err(ErrorKind::Refused), "{kind:?}");
        kind.is_ok()
    };
    let printed: Vec<_> =
        GUIDE.lines().map(str::trim).filter(|line| line.starts_with("ACL SETUSER tidegate ")).collect();
    let [_, adds, removes] = printed[..] else { panic!("{printed:?}") };
    let run = |line: &str| {
        let line = line.replace("NEW-PASSWORD", "new").replace("PASSWORD", "pw");
        let words: Vec<_> = line.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut server[0].connection()).unwrap();
    };
    assert_eq!([is_let_in("pw").await, is_let_in("new").await], [true, false]);
    run(adds);
    assert_eq!([is_let_in("pw").await, is_let_in("new").await], [true, true]);
    run(removes);
    assert_eq!([is_let_in("pw").await, is_let_in("new").await], [false, true]);
}
