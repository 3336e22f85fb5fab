//! The store over a connection that the host provides.

use std::future::Future;

use tidegate_core::store::{Applied, Atomic, AtomicLimiter};
use tidegate_core::{Capabilities, Error, ErrorKind, MaybeSend, MaybeSync, Millis, Operation};

use crate::answered::answered;
use crate::call::Call;
use crate::scripts::{Carrier, Command, Scripts};
use crate::settings::Clock;

/// A connection to a Redis server, on hosts that bring their own Redis client.
pub trait Connection: MaybeSend + MaybeSync {
    /// Sends one command, once, and returns the server's answer.
    ///
    /// # Errors
    /// The reason why there is no answer. An error that the server returned is an [`Answer::Error`].
    fn send(&self, command: &str, arguments: Vec<String>) -> impl Future<Output = Result<Answer, Error>> + MaybeSend;
}

/// The answer of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// A bulk string.
    Text(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// An error: `NOSCRIPT No matching script.` has the code `NOSCRIPT`.
    Error {
        /// The first word.
        code: String,
        /// The rest.
        detail: String,
    },
}

/// A Redis server as a store of counts, over any [`Connection`]: exact at any concurrency, one round trip per decision.
/// It stores what `Redis` stores, so both may count in one database.
///
/// ```
/// use tidegate_redis::{Answer, Check, Connection, Error, Key, LimiterExt, Millis, Policy, Quota, RedisOver, UnixMillis};
///
/// /// A server that answers every check as if it were the key's first.
/// struct Admits;
///
/// impl Connection for Admits {
///     async fn send(&self, command: &str, _: Vec<String>) -> Result<Answer, Error> {
///         assert_eq!(command, "EVALSHA");
///         Ok(Answer::Text(b"a@1800000000000 1 ".to_vec()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let limiter = RedisOver::new(Admits).clock(tidegate_redis::Clock::Server).limiter();
/// let policy = Policy::new("api", [Quota::fixed_window(10, Millis::from_secs(1))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// assert!(limiter.check(Check::new(&policy, &key, UnixMillis::new(0))).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisOver<C> {
    connection: C,
    clock: Clock,
    min_ttl: Millis,
}

impl<C: Connection> RedisOver<C> {
    /// A store over `connection`.
    pub fn new(connection: C) -> Self {
        Self { connection, clock: Clock::default(), min_ttl: Millis::ZERO }
    }

    /// Sets the clock that decides. The default is [`Clock::default`].
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Keeps every state for at least this long. This is for tests, whose virtual time stands still while the server's
    /// TTLs run. Leave it at zero otherwise.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn min_ttl(self, min_ttl: Millis) -> Self {
        Self { min_ttl, ..self }
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> AtomicLimiter<Self> {
        AtomicLimiter::new(self)
    }

    fn scripts(&self) -> Scripts {
        Scripts::new(self.clock, self.min_ttl, false)
    }
}

impl<C: Connection> Carrier for RedisOver<C> {
    type Begun = ();

    async fn begin(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn send(&self, (): &(), call: &Call<'_>, command: Command<'_>) -> Result<Option<Vec<u8>>, Error> {
        let mut words = vec![command.text.to_owned()];
        call.words(command.script, |word| words.push(word.to_owned()));
        match self.connection.send(command.name, words).await? {
            Answer::Text(bytes) => Ok(Some(bytes)),
            Answer::Error { code, .. } if code == "NOSCRIPT" => Ok(None),
            other => Err(unexpected(&other, &call.keys[0])),
        }
    }
}

/// It lends nothing: such hosts run an instance for each request, and a loan would be lost with it.
impl<C: Connection> Atomic for RedisOver<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.grant(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        self.scripts().apply(self, operation).await
    }
}

fn unexpected(answer: &Answer, key: &str) -> Error {
    match answer {
        Answer::Error { code, detail } => answered(code, detail, key),
        Answer::Text(_) | Answer::Integer(_) => Error::new(
            ErrorKind::Corrupt,
            "redis: the server's answer is not one to this command; is it a Redis server?",
        ),
    }
}
