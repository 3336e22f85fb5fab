//! The store: the request of each operation, and the meaning of its answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::internal::Batches;
use tidegate_core::lending::Lease;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{Capabilities, Error, Operation};
use tidegate_remote::{Progress, Start};

use super::config::RestConfig;
use super::json::{self, Reply};
#[cfg(not(target_arch = "wasm32"))]
use super::native::Native;
use super::transport::Transport;
use super::{error, reply};
use crate::answered::refused;
use crate::call::Call;
use crate::script::{Script, batch_script, batch_sha1};
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
    has_script: [AtomicBool; 4],
    has_batch_script: AtomicBool,
    batches: Batches<Told, Vec<u8>>,
}

/// What a borrower tells: the keys and arguments of [`Script::Lending`].
struct Told {
    keys: Vec<String>,
    arguments: Vec<String>,
}

/// The most that is told in a command, each in less than a kilobyte. The server does nothing else meanwhile.
const TOLD_MAX: usize = 64;

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
        Ok(Self {
            config,
            transport,
            progress: Progress::default(),
            scripts,
            has_script: Default::default(),
            has_batch_script: AtomicBool::new(false),
            batches: Batches::new(TOLD_MAX),
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

    /// Sends what a borrower tells, as one command with what others of the same task tell at once.
    async fn tell(&self, call: &Call<'_>, start: Start, deadline: &T::Deadline) -> Result<Vec<u8>, Error> {
        let mut words = Vec::new();
        call.words(Script::Lending, |word| words.push(word.to_owned()));
        let arguments = words.split_off(1 + call.keys.len());
        let told = Told { keys: words.split_off(1), arguments };
        self.batches.ask("", told, |all| self.tell_all(all, start, deadline)).await
    }

    /// Sends what borrowers tell, and returns the answer to each.
    async fn tell_all(
        &self,
        all: Vec<Told>,
        start: Start,
        deadline: &T::Deadline,
    ) -> Result<Vec<Result<Vec<u8>, Error>>, Error> {
        let command = |name: &str, text: &str| {
            let number = |count: usize, word: &mut dyn FnMut(&str)| word(&count.to_string());
            json::command(|word| {
                word(name);
                word(text);
                number(all.iter().map(|told| told.keys.len()).sum(), word);
                all.iter().flat_map(|told| &told.keys).for_each(|key| word(key));
                for Told { keys, arguments } in &all {
                    number(keys.len(), word);
                    number(arguments.len(), word);
                    arguments.iter().for_each(|argument| word(argument));
                }
            })
        };
        let mut reply = None;
        if self.has_batch_script.load(Ordering::Relaxed) {
            let command = command("EVALSHA", batch_sha1(self.config.locks_keys()));
            let answer = self.ask(command, start, deadline).await?;
            reply = (!answer.is_no_script()).then_some(answer);
        }
        let reply = match reply {
            Some(reply) => reply,
            None => self.ask(command("EVAL", &self.batch_script()), start, deadline).await?,
        };
        match reply {
            Reply::Texts(answers) if answers.len() == all.len() => {
                self.has_batch_script.store(true, Ordering::Relaxed);
                let answer = |(answer, told): (String, &Told)| match answer.strip_prefix('-') {
                    Some(error) => Err(refused(&self.shown(error), &told.keys[0])),
                    None => Ok(answer.into_bytes()),
                };
                Ok(answers.into_iter().zip(&all).map(answer).collect())
            }
            other => Err(self.not_what_was_asked_for(other, &all[0].keys[0])),
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
        if call.only_tells() {
            return self.tell(call, *start, deadline).await.map(Some);
        }
        let command = json::command(|word| {
            word(name);
            word(text);
            call.words(script, word);
        });
        match self.ask(command, *start, deadline).await? {
            reply if reply.is_no_script() => Ok(None),
            Reply::Text(text) => Ok(Some(text.into_bytes())),
            Reply::Error(text) => Err(call.refused(&text)),
            other => Err(self.not_what_was_asked_for(other, &call.keys[0])),
        }
    }

    fn has(&self, script: Script, call: &Call<'_>) -> bool {
        // What is told has a script of its own.
        call.only_tells() || self.has_script[script as usize].load(Ordering::Relaxed)
    }

    fn ran(&self, script: Script, _: &Call<'_>) {
        self.has_script[script as usize].store(true, Ordering::Relaxed);
    }
}

impl<T: Transport> Atomic for Rest<T> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.lends(true).grant(true)
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
