use tidegate_core::store::AtomicLimiter;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::{Answer, Connection, RedisOver};

use self::bindings::fermyon::spin::redis::{self as spin, RedisParameter, RedisResult};
use super::server_error;
use crate::error;

mod bindings {
    wit_bindgen::generate!({ world: "outbound-redis", path: "wit", generate_all });
}

/// A Redis server as a store of counts, over Spin's outbound Redis. A decision takes one round trip.
///
/// ```
/// use tidegate_spin::{Error, Limiter, RedisConnection, SpinRedis};
///
/// fn limiter() -> Result<impl Limiter, Error> {
///     Ok(SpinRedis::new(RedisConnection::open("redis://redis.example.com:6379")?).limiter())
/// }
/// ```
pub type SpinRedis = RedisOver<RedisConnection>;

/// A limiter over outbound Redis: exact, for every algorithm.
pub type SpinRedisLimiter = AtomicLimiter<SpinRedis>;

/// A connection that the host made.
#[derive(Debug)]
pub struct RedisConnection(spin::Connection);

impl RedisConnection {
    /// Connects to `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS. The component must list the server
    /// in spin.toml: `allowed_outbound_hosts = ["redis://redis.example.com:6379"]`.
    ///
    /// The host makes a new connection per call, and an app runs a new instance per request, so a request pays for one.
    /// Spin gives no way to set a deadline.
    ///
    /// # Errors
    /// - [`Invalid`](ErrorKind::Invalid) if the address is not one, or spin.toml does not list the server.
    /// - [`Contended`](ErrorKind::Contended) if too many connections are open.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server does not answer.
    pub fn open(url: &str) -> Result<Self, Error> {
        spin::Connection::open(url).map(Self).map_err(|error| match error {
            spin::Error::Other(text) => error::not_connected(&text),
            error => failed("open", error),
        })
    }
}

impl Connection for RedisConnection {
    async fn send(&self, command: &str, arguments: Vec<String>) -> Result<Answer, Error> {
        let arguments: Vec<_> =
            arguments.into_iter().map(|argument| RedisParameter::Binary(argument.into_bytes())).collect();
        let results = match self.0.execute(command, &arguments) {
            Ok(results) => results,
            Err(spin::Error::Other(text)) => {
                return server_error(&text).ok_or_else(|| error::no_answer(command, &text));
            }
            Err(error) => return Err(failed(command, error)),
        };
        match <[RedisResult; 1]>::try_from(results) {
            Ok([RedisResult::Binary(bytes)]) => Ok(Answer::Text(bytes)),
            Ok([RedisResult::Status(text)]) => Ok(Answer::Text(text.into_bytes())),
            Ok([RedisResult::Int64(number)]) => Ok(Answer::Integer(number)),
            _ => Err(Error::new(
                ErrorKind::Corrupt,
                format!("redis: {command} has not one answer; is it a Redis server?"),
            )),
        }
    }
}

fn failed(command: &str, error: spin::Error) -> Error {
    match error {
        spin::Error::InvalidAddress => error::no_server(),
        spin::Error::TooManyConnections => error::too_many_connections(),
        spin::Error::TypeError => {
            Error::new(ErrorKind::Corrupt, format!("redis: {command} answered another type; is it a Redis server?"))
        }
        spin::Error::Other(text) => error::no_answer(command, &text),
    }
}
