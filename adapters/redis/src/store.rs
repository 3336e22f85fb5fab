//! The store: the command of each operation, and the meaning of its answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{Cmd, ServerError, ServerErrorKind, Value};
use tidegate_core::lending::Lease;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{Capabilities, Dimensions, Error, Key, Operation, Policy};
use tidegate_remote::{Deadline, Start};

use crate::answered::answered;
use crate::call::Call;
use crate::config::Config;
use crate::connection::Links;
use crate::error;
use crate::explain::Explanation;
use crate::names::state_keys;
use crate::script::Script;
use crate::scripts::{Carrier, Command, Scripts};

/// A limiter on Redis: exact at any concurrency, in one round trip.
pub type RedisLimiter = AtomicLimiter<Redis>;

/// A Redis server or cluster as a store.
///
/// It multiplexes the calls of all tasks over a few [connections](Config::connections). Share it by reference or in an
/// `Arc`. It connects on the first call, and reconnects on the first call after a connection was lost. Call it within a
/// tokio runtime that has I/O and time enabled.
///
/// ```no_run
/// use tidegate_redis::{Config, Key, LimiterExt, Millis, Policy, Quota, Redis, Refund, UnixMillis};
/// # async fn run(policy: &Policy, key: &Key) -> Result<(), tidegate_core::Error> {
/// let limiter = Redis::new(Config::new("redis://127.0.0.1:6379").deadline(Millis::new(20)))?.limiter();
/// limiter.reset(policy, key.into()).await?;
/// println!("{}", limiter.store().explain(policy, key).await?);
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    config: Config,
    links: Links,
    scripts: Scripts,
    /// Whether each [`Script`] was sent to the server. The first call sends it, and those behind it on the connection find it there.
    sent: [AtomicBool; 4],
    loaded: Loaded,
}

/// Where the short script has run in a cluster, by the key's hash: that is a node. A call for any other key sends the script. It is
/// small, and a burst at a node without it would make two round trips for each call.
#[derive(Default)]
struct Loaded([AtomicU64; 16]);

impl Loaded {
    fn place(call: &Call<'_>) -> (usize, u64) {
        let bits = call.keys[0].bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        ((bits >> 6) as usize % 16, 1 << (bits % 64))
    }

    fn has(&self, call: &Call<'_>) -> bool {
        let (word, bit) = Self::place(call);
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }

    fn add(&self, call: &Call<'_>) {
        let (word, bit) = Self::place(call);
        self.0[word].fetch_or(bit, Ordering::Relaxed);
    }
}

impl Redis {
    /// Creates a store on the configured server. This sends nothing.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn new(config: Config) -> Result<Self, Error> {
        let scripts = Scripts::new(config.clock, config.min_ttl, false);
        Ok(Self { links: Links::new(&config)?, config, scripts, sent: Default::default(), loaded: Loaded::default() })
    }

    /// Wraps this store in a limiter.
    #[must_use]
    pub const fn limiter(self) -> RedisLimiter {
        AtomicLimiter::new(self)
    }

    /// Wraps this store in a limiter that borrows parts of a limit from the server, and decides without a call as long as a loan or a
    /// denial holds. See [`LendingLimiter`].
    ///
    /// ```
    /// use tidegate_redis::{Config, Millis, Redis, Lease};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let limiter = Redis::new(Config::new("redis://127.0.0.1:6379"))?.lending(Lease::new(50, Millis::from_secs(10)))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a lease that cannot be.
    pub fn lending(self, lease: Lease) -> Result<LendingLimiter<'static, RedisLimiter>, Error> {
        LendingLimiter::new(self.limiter(), lease)
    }

    /// Checks that the server answers (`PING`), for example at start-up. Connects if necessary.
    ///
    /// # Errors
    /// Any error that keeps the server from answering.
    pub async fn ping(&self) -> Result<(), Error> {
        match self.command(&redis::cmd("PING")).await? {
            Value::SimpleString(_) | Value::Okay => Ok(()),
            Value::ServerError(error) => Err(refused(&error, "")),
            other => Err(self.nonsense(&other)),
        }
    }

    /// Describes the stored state of a key, and what it means now, for people.
    ///
    /// # Errors
    /// Any error that keeps the server from answering.
    pub async fn explain(&self, policy: &Policy, key: &Key) -> Result<Explanation, Error> {
        let mut rows = Vec::new();
        for key in state_keys(policy, key.into())? {
            let ttl = self.ask(redis::cmd("PTTL").arg(&key), &key).await?;
            let state = self.ask(redis::cmd("GET").arg(&key), &key).await?;
            rows.push((key, state, ttl));
        }
        let time = self.ask(&redis::cmd("TIME"), &rows[0].0).await?;
        Explanation::new(policy, rows, &time)
    }

    /// Sends a command. An error that the server returns is an error of the call.
    async fn ask(&self, command: &Cmd, key: &str) -> Result<Value, Error> {
        match self.command(command).await? {
            Value::ServerError(error) => Err(refused(&error, key)),
            value => Ok(value),
        }
    }

    async fn command(&self, command: &Cmd) -> Result<Value, Error> {
        let (start, deadline) = self.begin().await?;
        self.links.send(command, start, deadline).await
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.config.deadline)
    }

    fn nonsense(&self, answer: &Value) -> Error {
        self.links.distrust();
        error::nonsense(answer)
    }
}

impl Carrier for Redis {
    type Begun = (Start, Deadline);

    async fn begin(&self) -> Result<Self::Begun, Error> {
        let start = self.links.begin().await?;
        Ok((start, self.deadline()))
    }

    async fn send(
        &self,
        (start, deadline): &Self::Begun,
        call: &Call<'_>,
        command: Command<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        match self.links.send(&words(call, command), *start, *deadline).await? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript) => Ok(None),
            Value::ServerError(error) => Err(refused(&error, call.key_of(error.details().unwrap_or_default()))),
            other => Err(self.nonsense(&other)),
        }
    }

    fn has(&self, script: Script, call: &Call<'_>) -> bool {
        if !self.config.cluster {
            return self.sent[script as usize].swap(true, Ordering::Relaxed);
        }
        script != Script::Plain || self.loaded.has(call)
    }

    fn ran(&self, _: Script, call: &Call<'_>) {
        self.loaded.add(call);
    }
}

impl Atomic for Redis {
    /// A cluster needs a [group](Policy::group_by) for several dimensions, because a script runs on the keys of one slot.
    fn capabilities(&self) -> Capabilities {
        let dimensions = if self.config.cluster { Dimensions::Grouped } else { Dimensions::Any };
        Capabilities::EXACT.dimensions(dimensions).lends(true).grant(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        self.scripts.apply(self, operation).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.config).finish()
    }
}

fn refused(error: &ServerError, key: &str) -> Error {
    answered(error.code(), error.details().unwrap_or_default(), key)
}

fn words(call: &Call<'_>, Command { name, text, script }: Command<'_>) -> Cmd {
    let count = 2 + call.word_count(script);
    let mut command = Cmd::with_capacity(count, text.len() + 2 * call.keys[0].len() + 16 * count);
    command.arg(name).arg(text);
    call.words(script, |word| {
        command.arg(word);
    });
    command
}
