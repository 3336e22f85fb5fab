//! The store: what each operation sends, and what its answer means.

use std::fmt;

use tidegate_core::store::{Applied, Atomic, AtomicLimiter, Operation};
use tidegate_core::{Capabilities, Error, ErrorKind, Key, Policy};

use super::config::RestConfig;
use super::json::{self, Reply};
#[cfg(not(target_arch = "wasm32"))]
use super::native::Native;
use super::transport::Transport;
use super::{error, reply};
use crate::answered::answered;
use crate::script::{Call, state_key};
use crate::settings::Clock;

/// A limiter over Upstash's REST protocol: exact at any concurrency, in one HTTP request.
#[cfg(not(target_arch = "wasm32"))]
pub type RestLimiter = AtomicLimiter<Rest<Native>>;

/// A database behind Upstash's REST protocol as a store of counts. It keeps what [`Redis`](crate::Redis) keeps, so both
/// may count in one database.
///
/// Natively its calls must run within a tokio runtime with I/O and time, and connections are kept for the next call. On
/// WebAssembly, and wherever the host has an HTTP client of its own, a [`Transport`] makes them over that.
///
/// ```no_run
/// use tidegate_core::{Check, Key, Limiter, Millis, Policy, UnixMillis};
/// use tidegate_redis::{Rest, RestConfig};
/// # async fn run(url: String, token: String, policy: &Policy, now: UnixMillis) -> Result<(), tidegate_core::Error> {
/// let limiter = Rest::new(RestConfig::new(url, token))?.limiter();
/// let decision = limiter.check(Check::new(policy, &Key::new("ip:192.0.2.1"), now)).await?;
/// # Ok(())
/// # }
/// ```
pub struct Rest<T> {
    config: RestConfig,
    transport: T,
}

#[cfg(not(target_arch = "wasm32"))]
impl Rest<Native> {
    /// A store on the configured database. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn new(config: RestConfig) -> Result<Self, Error> {
        config.check()?;
        Ok(Self { transport: Native::new(&config)?, config })
    }
}

impl<T: Transport> Rest<T> {
    /// A store on the configured database, over a host's own HTTP client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn over(transport: T, config: RestConfig) -> Result<Self, Error> {
        config.check()?;
        Ok(Self { config, transport })
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> AtomicLimiter<Self> {
        AtomicLimiter::new(self)
    }

    /// Asks the database whether it is there (`PING`): for a start-up check.
    ///
    /// # Errors
    /// Whatever keeps it from answering.
    pub async fn ping(&self) -> Result<(), Error> {
        match self.ask(json::command(|word| word("PING")), &self.deadline()).await? {
            Reply::Text(text) if text == "PONG" => Ok(()),
            other => Err(self.not_what_was_asked_for(other, "")),
        }
    }

    fn deadline(&self) -> T::Deadline {
        self.transport.deadline(self.config.deadline)
    }

    /// Sends a command, once.
    async fn ask(&self, command: String, deadline: &T::Deadline) -> Result<Reply, Error> {
        match self.transport.post(command, deadline).await {
            Ok(response) => reply::read(&response, |text| self.shown(text)),
            Err(why) => Err(error::no_answer(why, self.config.deadline)),
        }
    }

    /// What the endpoint said, short and without the token, should it repeat that.
    fn shown(&self, text: &str) -> String {
        text.replace(&self.config.token, "…").chars().take(200).collect()
    }

    fn not_what_was_asked_for(&self, reply: Reply, key: &str) -> Error {
        let Reply::Error(text) = reply else { return error::nonsense(&self.shown(&format!("{reply:?}"))) };
        if text.contains("shebang") || text.contains("compiling script") {
            let message = format!(
                "key_locking: the database does not take the script's flag ({text}); write key_locking(false); nothing \
                 was charged"
            );
            return Error::new(ErrorKind::Refused, message);
        }
        let (code, detail) = text.split_once(' ').unwrap_or((&text, ""));
        answered(code, detail, key)
    }
}

impl<T: Transport> Atomic for Rest<T> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    /// One `EVALSHA`; and one `EVAL`, which keeps the script in the database, where that answers that it has not seen it.
    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let call = Call::new(operation, self.config.clock == Clock::Server, self.config.min_ttl);
        let deadline = self.deadline();
        let (script, sha1) = self.config.script();
        let run = |name, script| self.ask(json::command(|word| call.words(name, script, word)), &deadline);
        let mut reply = run("EVALSHA", sha1).await?;
        if matches!(&reply, Reply::Error(text) if text.starts_with("NOSCRIPT")) {
            reply = run("EVAL", script).await?;
        }
        match reply {
            Reply::Text(text) => call.answer(text.as_bytes()),
            other => Err(self.not_what_was_asked_for(other, &call.key)),
        }
    }

    async fn delete(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let key = state_key(policy, key);
        let command = json::command(|word| ["DEL", &key].into_iter().for_each(word));
        match self.ask(command, &self.deadline()).await? {
            Reply::Integer => Ok(()),
            other => Err(self.not_what_was_asked_for(other, &key)),
        }
    }
}

impl<T> fmt::Debug for Rest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rest").field(&self.config).finish()
    }
}
