//! The store: the request of each operation, and the meaning of its answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::lending::Lease;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{Capabilities, Error, Operation};

use super::config::RestConfig;
use super::json::{self, Reply};
#[cfg(not(target_arch = "wasm32"))]
use super::native::Native;
use super::transport::Transport;
use super::{error, reply};
use crate::answered::refused;
use crate::call::Call;
use crate::overload::{Progress, Start};
use crate::script::{Script, batch_script};
use crate::scripts::{Carrier, Command, Scripts};

/// A limiter over Upstash's REST protocol: exact at any concurrency, with one HTTP request for a decision.
#[cfg(not(target_arch = "wasm32"))]
pub type RestLimiter = AtomicLimiter<Rest<Native>>;

/// A database behind Upstash's REST protocol as a store. It uses the same keys as [`Redis`](crate::Redis), so both may
/// share one database.
///
/// Natively, call it within a tokio runtime that has I/O and time enabled. Connections are kept for the next call. On
/// WebAssembly, and on hosts with their own HTTP client, a [`Transport`] sends the requests.
///
/// ```no_run
/// use tidegate_redis::{Check, Key, LimiterExt, Millis, Policy, Rest, RestConfig, UnixMillis};
/// # async fn run(url: String, token: String, policy: &Policy, now: UnixMillis) -> Result<(), tidegate_core::Error> {
/// let limiter = Rest::new(RestConfig::new(url, token))?.limiter();
/// let decision = limiter.check(Check::new(policy, &Key::new("ip:192.0.2.1"), now)).await?;
/// # Ok(())
/// # }
/// ```
pub struct Rest<T> {
    config: RestConfig,
    transport: T,
    progress: Progress,
    scripts: Scripts,
    /// Whether the database has run each [`Script`]. Until then, it is sent: the first decision must not take twice as long as others.
    has_script: [AtomicBool; 3],
}

#[cfg(not(target_arch = "wasm32"))]
impl Rest<Native> {
    /// Creates a store on the configured database. This sends nothing.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn new(config: RestConfig) -> Result<Self, Error> {
        config.check()?;
        Self::over(Native::new(&config)?, config)
    }
}

impl<T: Transport> Rest<T> {
    /// Creates a store on the configured database, over the host's own HTTP client. This sends nothing.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn over(transport: T, config: RestConfig) -> Result<Self, Error> {
        config.check()?;
        let scripts = Scripts::new(config.clock, config.min_ttl, config.locks_keys());
        Ok(Self { config, transport, progress: Progress::default(), scripts, has_script: Default::default() })
    }

    /// Wraps this store in a limiter.
    #[must_use]
    pub const fn limiter(self) -> AtomicLimiter<Self> {
        AtomicLimiter::new(self)
    }

    /// Wraps this store in a limiter that borrows parts of a limit from the database, and decides without a request as long as a loan
    /// or a denial holds. See [`LendingLimiter`].
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a lease that cannot be.
    pub fn lending<'s>(self, lease: Lease) -> Result<LendingLimiter<'s, AtomicLimiter<Self>>, Error>
    where
        T: 's,
    {
        LendingLimiter::new(self.limiter(), lease)
    }

    /// The script for several decisions in one command: see [`batch_script`](crate::batch_script).
    #[must_use]
    pub fn batch_script(&self) -> String {
        batch_script(self.config.locks_keys())
    }

    /// Checks that the database answers (`PING`), for example at start-up.
    ///
    /// # Errors
    /// Any error that keeps the database from answering.
    pub async fn ping(&self) -> Result<(), Error> {
        let (start, deadline) = self.begin().await?;
        match self.ask(json::command(|word| word("PING")), start, &deadline).await? {
            Reply::Text(text) if text == "PONG" => Ok(()),
            other => Err(self.not_what_was_asked_for(other, "")),
        }
    }

    /// Sends a command of a call, once. If the endpoint has answered the call or another one since the start, it is not down.
    async fn ask(&self, command: String, start: Start, deadline: &T::Deadline) -> Result<Reply, Error> {
        let answered = match self.transport.post(command, deadline).await {
            Ok(response) => reply::read(self.config.name(), &response, |text| self.shown(text)),
            Err(why) => Err(error::no_answer(self.config.name(), why, self.config.deadline)),
        };
        match answered {
            Ok(reply) => {
                self.progress.answered();
                Ok(reply)
            }
            Err(error) => Err(self.progress.failed(start, error)),
        }
    }

    /// The endpoint's text, shortened and without the token, for an error message.
    fn shown(&self, text: &str) -> String {
        let token = &self.config.token;
        let text = if token.is_empty() { text.into() } else { text.replace(token, "…") };
        text.chars().take(200).collect()
    }

    fn not_what_was_asked_for(&self, reply: Reply, key: &str) -> Error {
        let Reply::Error(text) = reply else {
            return error::nonsense(self.config.name(), &self.shown(&format!("{reply:?}")));
        };
        refused(&text, key)
    }
}

impl<T: Transport> Carrier for Rest<T> {
    type Begun = (Start, T::Deadline);

    async fn begin(&self) -> Result<Self::Begun, Error> {
        Ok((self.progress.start(), self.transport.deadline(self.config.deadline)))
    }

    async fn send(
        &self,
        (start, deadline): &Self::Begun,
        call: &Call<'_>,
        Command { name, text, script }: Command<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let command = json::command(|word| {
            word(name);
            word(text);
            call.words(script, word);
        });
        match self.ask(command, *start, deadline).await? {
            Reply::Text(text) => Ok(Some(text.into_bytes())),
            Reply::Error(text) if text.starts_with("NOSCRIPT") => Ok(None),
            other => Err(self.not_what_was_asked_for(other, &call.keys[0])),
        }
    }

    fn has(&self, script: Script, _: &Call<'_>) -> bool {
        self.has_script[script as usize].load(Ordering::Relaxed)
    }

    fn ran(&self, script: Script, _: &Call<'_>) {
        self.has_script[script as usize].store(true, Ordering::Relaxed);
    }
}

impl<T: Transport> Atomic for Rest<T> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.lends(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        self.scripts.apply(self, operation).await
    }
}

impl<T> fmt::Debug for Rest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rest").field(&self.config).finish()
    }
}
