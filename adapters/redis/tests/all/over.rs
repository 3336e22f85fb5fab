//! The store over a connection that the host provides.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Mutex;

use crate::support::Server;
use tidegate_core::{Check, Error, ErrorKind, LimiterExt, Millis, UnixMillis};
use tidegate_redis::{Answer, Clock, Connection, RedisOver};
use tidegate_testing::{NOW, bucket, key};

/// A blocking client.
struct Blocking(Mutex<redis::Connection>);

impl Connection for Blocking {
    async fn send(&self, command: &str, arguments: Vec<String>) -> Result<Answer, Error> {
        let answer = redis::cmd(command).arg(arguments).query(&mut *self.0.lock().unwrap());
        Ok(match answer {
            Ok(redis::Value::BulkString(bytes)) => Answer::Text(bytes),
            Ok(redis::Value::Int(number)) => Answer::Integer(number),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Answer::Error {
                code: error.code().unwrap().to_owned(),
                detail: error.detail().unwrap_or_default().to_owned(),
            },
        })
    }
}

#[tokio::test]
async fn it_counts_with_other_clients_in_one_database() {
    let server = Server::start();
    let (policy, key) = (bucket(3), key());
    let over = || RedisOver::new(Blocking(Mutex::new(server.connection())));
    let (mut connection, own) = (server.connection(), server.limiter());
    let limiter = over().clock(Clock::Caller).min_ttl(Millis::from_secs(9_000)).limiter();
    let check = |now| Check::new(&policy, &key, now);
    assert_eq!(limiter.check(check(NOW)).await.unwrap().binding().remaining(), Some(2));
    let ttl: u64 = redis::cmd("PTTL").arg("{tg1:api:tb60000:ip:192.0.2.1}").query(&mut connection).unwrap();
    assert!((8_900_000..=9_000_000).contains(&ttl), "{ttl}");
    assert_eq!(own.check(check(NOW)).await.unwrap().binding().remaining(), Some(1));
    assert_eq!(limiter.peek(check(NOW)).await.unwrap().binding().remaining(), Some(1));
    // The caller's clock decides: a minute has passed.
    assert_eq!(limiter.peek(check(NOW + Millis::from_secs(60))).await.unwrap().binding().remaining(), Some(2));
    limiter.reset(&policy, (&key).into()).await.unwrap();
    assert_eq!(own.peek(check(NOW)).await.unwrap().binding().remaining(), Some(3));
    // By default, the server's does.
    let decided = over().limiter().check(check(UnixMillis::new(0))).await.unwrap();
    assert!(decided.decided_at() > UnixMillis::new(1_700_000_000_000), "{}", decided.decided_at());

    redis::cmd("SET").arg("{tg1:api:tb60000:ip:192.0.2.1}").arg("foreign").exec(&mut connection).unwrap();
    assert_eq!(limiter.check(check(NOW)).await.unwrap_err().kind(), ErrorKind::Corrupt);
}
