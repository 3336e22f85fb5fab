//! The access rules that the guide names are enough, and none of them is too many.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use crate::support::{NOW, Server, key};
use tidegate_core::{Check, Error, ErrorKind, Limiter, Millis, Policy, Quota, Refund, Settle};
use tidegate_redis::{Config, Redis};

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

#[tokio::test]
async fn the_rules_in_the_guide_are_what_the_limiter_needs() {
    let server = Server::start();
    let mut connection = server.connection();
    let line = GUIDE.lines().find(|line| line.trim_start().starts_with("ACL SETUSER")).unwrap();
    let words: Vec<String> = line.split_whitespace().map(|word| word.replace("PASSWORD", "pw")).collect();
    let limiter = |user: &str| {
        let url = server.url().replace("redis://", &format!("redis://{user}:pw@"));
        Redis::new(Config::new(url)).unwrap().limiter()
    };
    redis::cmd(&words[0]).arg(&words[1..]).exec(&mut connection).unwrap();
    all_calls(&limiter("tidegate")).await.unwrap();

    let commands: Vec<&String> = words.iter().filter(|word| word.starts_with('+')).collect();
    assert_eq!(commands.len(), 6);
    for (place, missing) in commands.iter().enumerate() {
        let user = format!("less{place}");
        let fewer: Vec<String> =
            words.iter().filter(|word| word != missing).map(|word| word.replace("tidegate", &user)).collect();
        redis::cmd(&fewer[0]).arg(&fewer[1..]).exec(&mut connection).unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        let kind = all_calls(&limiter(&user)).await.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Refused), "without {missing}");
    }
}
