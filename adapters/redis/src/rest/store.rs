//! The store: the request of each operation, and the meaning of its answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::lending::{self, Question, Terms, can_lend};
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter, Operation};
use tidegate_core::{Capabilities, Check, Error, Keys, Policy};

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
/// use tidegate_redis::{Check, Key, Limiter, Millis, Policy, Rest, RestConfig, UnixMillis};
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
    /// Whether the database has run each [`Script`] before, so that its SHA-1 suffices.
    has_script: [AtomicBool; 3],
    /// Whether borrowers ask: then plain checks probably find loans.
    lends: AtomicBool,
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
        Ok(Self {
            config,
            transport,
            progress: Progress::default(),
            has_script: Default::default(),
            lends: AtomicBool::new(false),
        })
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
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for terms that cannot be.
    pub fn lending<'s>(self, terms: Terms) -> Result<LendingLimiter<'s, AtomicLimiter<Self>>, Error>
    where
        T: 's,
    {
        LendingLimiter::new(self.limiter(), terms)
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
        let start = self.progress.start();
        match self.ask(json::command(|word| word("PING")), start, &self.deadline()).await? {
            Reply::Text(text) if text == "PONG" => Ok(()),
            other => Err(self.not_what_was_asked_for(other, "")),
        }
    }

    fn deadline(&self) -> T::Deadline {
        self.transport.deadline(self.config.deadline)
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

    /// Sends one `EVALSHA`. If the database does not have the script, or until it has answered once, sends one `EVAL`, which also
    /// loads it: the first decision must not take twice as long as others. If the script has no answer to read, does the same with the
    /// one that takes every call.
    async fn run<R>(
        &self,
        call: &Call<'_>,
        mut script: Script,
        read: impl Fn(Script, &[u8]) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let (start, deadline) = (self.progress.start(), self.deadline());
        loop {
            match self.run_once(call, script, start, &deadline).await? {
                Reply::Text(text) => match read(script, text.as_bytes())? {
                    Some(answer) => return Ok(answer),
                    None => script = Script::Lending,
                },
                other => return Err(self.not_what_was_asked_for(other, &call.keys[0])),
            }
        }
    }

    async fn run_once(
        &self,
        call: &Call<'_>,
        script: Script,
        start: Start,
        deadline: &T::Deadline,
    ) -> Result<Reply, Error> {
        let (has_script, key_locking) = (&self.has_script[script as usize], self.config.locks_keys());
        let command = |name, text: &str| {
            json::command(|word| {
                word(name);
                word(text);
                call.words(script, word);
            })
        };
        if has_script.load(Ordering::Relaxed) {
            let reply = self.ask(command("EVALSHA", script.sha1(key_locking)), start, deadline).await?;
            if !matches!(&reply, Reply::Error(text) if text.starts_with("NOSCRIPT")) {
                return Ok(reply);
            }
        }
        let reply = self.ask(command("EVAL", &script.text(key_locking)), start, deadline).await?;
        if matches!(reply, Reply::Text(_)) {
            has_script.store(true, Ordering::Relaxed);
        }
        Ok(reply)
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

impl<T: Transport> Atomic for Rest<T> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.lends(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let call = Call::new(operation, self.config.clock, self.config.min_ttl)?;
        let script = call.script_where(self.lends.load(Ordering::Relaxed));
        self.run(&call, script, |script, bytes| call.answer(script, bytes)).await
    }

    async fn lend(&self, check: Check<'_>, question: Question) -> Result<lending::Answer, Error> {
        if !can_lend(check.policy) {
            return Ok(self.apply(Operation::Check(check)).await?.decision(&check)?.into());
        }
        self.lends.store(true, Ordering::Relaxed);
        let call = Call::lend(check, question, self.config.clock, self.config.min_ttl)?;
        self.run(&call, Script::Lending, |_, bytes| call.lent(bytes).map(Some)).await
    }

    async fn delete(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        let call = Call::reset(policy, keys)?;
        self.run(&call, Script::Lending, |script, bytes| call.answer(script, bytes)).await.map(drop)
    }
}

impl<T> fmt::Debug for Rest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rest").field(&self.config).finish()
    }
}
