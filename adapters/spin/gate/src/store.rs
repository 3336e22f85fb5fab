//! Where the gate counts.

use tidegate_core::store::Swap;
use tidegate_core::{ErasedLimiter, Error, ErrorKind};
use tidegate_redis::{Answer, Connection, RedisOver};
use tidegate_spin::{Atomics, Bucket, RedisConnection, SpinAtomics, WasiBucket};

/// A store, as the variable `tidegate_store` names it.
pub(crate) enum Store {
    /// The atomics of a key-value store with this label.
    Atomics(String),
    /// A Redis server.
    Redis(String),
}

impl Store {
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the text names no store. It may be a password, so the error does not repeat it.
    pub(crate) fn of(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("atomics", label)) if !label.is_empty() && !label.starts_with('/') => Ok(Self::Atomics(label.into())),
            Some(("redis" | "rediss", rest)) if rest.starts_with("//") => Ok(Self::Redis(text.into())),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "tidegate_store: it names no store; write \"atomics:default\" for the key-value store with the label \
                 default, or the address of a Redis server, as \"redis://redis.example.com:6379\"",
            )),
        }
    }

    /// The limiter on this store. A store that is down is no error here: its decisions fail, and each rule says what then happens.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the app may not use the store, with what to write in spin.toml.
    pub(crate) fn limiter(&self) -> Result<Box<dyn ErasedLimiter>, Error> {
        match self {
            Self::Atomics(label) => {
                unless_down(WasiBucket::open(label).map(drop))?;
                Ok(Box::new(SpinAtomics::new(Reopened(label.clone())).limiter()))
            }
            Self::Redis(url) => {
                unless_down(RedisConnection::open(url).map(drop))?;
                Ok(Box::new(RedisOver::new(Reconnected(url.clone())).limiter()))
            }
        }
    }
}

fn unless_down(opened: Result<(), Error>) -> Result<(), Error> {
    opened.or_else(|error| if error.kind().is_store_failure() { Ok(()) } else { Err(error) })
}

/// A key-value store that each operation opens, so that one that was down once is used again.
struct Reopened(String);

impl Bucket for Reopened {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        WasiBucket::open(&self.0)?.get(key).await
    }

    async fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        WasiBucket::open(&self.0)?.set(key, value).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        WasiBucket::open(&self.0)?.delete(key).await
    }
}

impl Atomics for Reopened {
    type Cas = <WasiBucket as Atomics>::Cas;

    async fn increment(&self, key: &str, delta: i64) -> Result<i64, Error> {
        WasiBucket::open(&self.0)?.increment(key, delta).await
    }

    async fn compare(&self, key: &str) -> Result<(Self::Cas, Option<Vec<u8>>), Error> {
        WasiBucket::open(&self.0)?.compare(key).await
    }

    async fn swap(&self, cas: Self::Cas, value: &[u8]) -> Result<Swap, Error> {
        WasiBucket::open(&self.0)?.swap(cas, value).await
    }
}

/// A Redis server to which each command opens a connection. A decision is one command, and an idle connection that the server has closed
/// would fail a decision.
struct Reconnected(String);

impl Connection for Reconnected {
    async fn send(&self, command: &str, arguments: Vec<String>) -> Result<Answer, Error> {
        RedisConnection::open(&self.0)?.send(command, arguments).await
    }
}
