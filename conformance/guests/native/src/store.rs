//! Where it counts, chosen on the command line.

use clap::ValueEnum;
use tollgate_core::{Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, MemoryLimiter, Policy, Refund};

/// A store by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// In this process.
    Memory,
    /// One Redis server.
    Redis,
    /// A Redis cluster.
    RedisCluster,
}

/// A store, opened.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(MemoryLimiter),
}

/// Shards of the memory store in test mode: so many that no fixture's clock sweeps away what another still counts.
const TEST_SHARDS: usize = 1_024;

impl Store {
    pub(crate) async fn open(name: StoreName, _urls: &[String], test_mode: bool) -> Result<Self, Error> {
        match name {
            StoreName::Memory if test_mode => Ok(Self::Memory(MemoryLimiter::with_shards(TEST_SHARDS))),
            StoreName::Memory => Ok(Self::Memory(MemoryLimiter::new())),
            StoreName::Redis | StoreName::RedisCluster => {
                Err(Error::new(ErrorKind::Unsupported, "this build has no Redis store"))
            }
        }
    }
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Memory(memory) => memory.capabilities(),
        }
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        match self {
            Self::Memory(memory) => memory.check(check).await,
        }
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        match self {
            Self::Memory(memory) => memory.peek(check).await,
        }
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        match self {
            Self::Memory(memory) => memory.refund(refund).await,
        }
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        match self {
            Self::Memory(memory) => memory.reset(policy, key).await,
        }
    }
}
