//! The store: what each operation sends, and what its answer means.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tollgate_core::store::{Atomic, AtomicLimiter, Before, Operation};
use tollgate_core::{Capabilities, Error, ErrorKind, Key, Policy};

use super::config::RestConfig;
use super::error;
use super::http::{Deadline, Http};
use super::json::{self, Reply};
use super::reply::{self, bytes};
use crate::answered::answered;
use crate::script::{Call, state_key};
use crate::settings::Clock;

/// A limiter over Upstash's REST protocol: exact at any concurrency, in one HTTP request.
pub type RestLimiter = AtomicLimiter<Rest>;

/// A database behind Upstash's REST protocol as a store of counts. It keeps what [`Redis`](crate::Redis) keeps, so both
/// may count in one database.
///
/// Natively its calls must run within a tokio runtime with I/O and time, and connections are kept for the next call; on
/// WebAssembly they are the host's `fetch`: a Vercel edge function, Netlify's, Deno, Node.js 20 or a Worker.
///
/// ```no_run
/// use tollgate_core::{Check, Key, Limiter, Millis, Policy, UnixMillis};
/// use tollgate_upstash::{Rest, RestConfig};
/// # async fn run(url: String, token: String, policy: &Policy, now: UnixMillis) -> Result<(), tollgate_core::Error> {
/// let limiter = Rest::new(RestConfig::new(url, token))?.limiter();
/// let decision = limiter.check(Check::new(policy, &Key::new("ip:192.0.2.1"), now)).await?;
/// # Ok(())
/// # }
/// ```
pub struct Rest {
    config: RestConfig,
    http: Http,
    /// The last [`SYNC_TOKEN`](super::SYNC_TOKEN) that was answered.
    sync_token: Mutex<Option<String>>,
}

impl Rest {
    /// A store on the configured database. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Invalid`](tollgate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn new(config: RestConfig) -> Result<Self, Error> {
        config.check()?;
        Ok(Self { http: Http::new(&config)?, config, sync_token: Mutex::default() })
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> RestLimiter {
        AtomicLimiter::new(self)
    }

    /// Asks the database whether it is there (`PING`): for a start-up check.
    ///
    /// # Errors
    /// Whatever keeps it from answering.
    pub async fn ping(&self) -> Result<(), Error> {
        match self.ask(json::command(|word| word("PING")), &self.http.deadline()).await? {
            Reply::Text(text) if text == "PONG" || *bytes(&text) == *b"PONG" => Ok(()),
            other => Err(self.not_what_was_asked_for(other, "")),
        }
    }

    /// Sends a command, once.
    async fn ask(&self, command: String, deadline: &Deadline) -> Result<Reply, Error> {
        let known = self.sync_token().clone();
        let response = self.http.post(command, known.as_deref(), deadline).await?;
        if let Some(token) = &response.sync_token {
            *self.sync_token() = Some(token.clone());
        }
        reply::read(&response, |text| self.shown(text))
    }

    fn sync_token(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.sync_token.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Atomic for Rest {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    /// One `EVALSHA`; and one `EVAL`, which keeps the script in the database, where that answers that it has not seen it.
    async fn apply(&self, operation: Operation<'_>) -> Result<Before, Error> {
        let call = Call::new(operation, self.config.clock == Clock::Server, self.config.min_ttl);
        let deadline = self.http.deadline();
        let (script, sha1) = self.config.script();
        let run = |name, script| self.ask(json::command(|word| call.words(name, script, word)), &deadline);
        let mut reply = run("EVALSHA", sha1).await?;
        if matches!(&reply, Reply::Error(text) if text.starts_with("NOSCRIPT")) {
            reply = run("EVAL", script).await?;
        }
        match reply {
            Reply::Text(text) => call.answer(&bytes(&text)),
            other => Err(self.not_what_was_asked_for(other, &call.key)),
        }
    }

    async fn delete(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let key = state_key(policy, key);
        let command = json::command(|word| ["DEL", &key].into_iter().for_each(word));
        match self.ask(command, &self.http.deadline()).await? {
            Reply::Integer => Ok(()),
            other => Err(self.not_what_was_asked_for(other, &key)),
        }
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rest").field(&self.config).finish()
    }
}
