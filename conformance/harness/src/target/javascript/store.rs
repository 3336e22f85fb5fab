//! The stores of the npm package.

use std::path::Path;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::Emulator;
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift};

use super::version;
use crate::target::losing::Losing;
use crate::target::memory::SameProcess;
use crate::target::postgres;
use crate::target::redis::server::{self, Servers};
use crate::target::upstash_rest::{Fronted, TOKEN};
use crate::target::{Store, process};

/// A store of the npm package.
#[derive(Debug)]
pub(super) enum Kind {
    /// A redis-server behind a REST endpoint.
    Upstash,
    /// A redis-server.
    Redis,
    /// A PostgreSQL server.
    Postgres,
    /// The server of `@netlify/blobs`.
    Blobs,
    /// A file of Deno KV.
    DenoKv,
    /// The guest's own memory.
    Memory,
}

/// A running store, and the environment variables that tell a guest where it is.
type Started = (Box<dyn Store>, Vec<(&'static str, String)>);

impl Kind {
    /// The guest that uses the store.
    pub(super) const fn guest(&self) -> &'static str {
        match self {
            Self::Upstash => "upstash.mjs",
            Self::Redis => "redis.mjs",
            Self::Postgres => "postgres.mjs",
            Self::Blobs => "blobs.mjs",
            Self::DenoKv => "deno-kv.mjs",
            Self::Memory => "memory.mjs",
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let exact = Capabilities::EXACT.grant(true);
        let compare_and_swap = exact
            .algorithms(Capabilities::COUNTING)
            .dimensions(Dimensions::One)
            .block(false)
            .grant(false)
            .idempotency(false)
            .round_trips(2);
        match self {
            Self::Upstash | Self::Redis => exact,
            Self::Memory => exact.round_trips(0),
            Self::Blobs => compare_and_swap.accuracy(Accuracy::Approximate(Drift::WITHIN_LIMIT)),
            Self::DenoKv => compare_and_swap,
            Self::Postgres => compare_and_swap.round_trips(1),
        }
    }

    pub(super) fn can(&self, disturb: Disturb) -> bool {
        match self {
            Self::Upstash | Self::Redis => server::can(disturb),
            Self::Postgres => postgres::can(disturb),
            Self::Blobs => disturb == Disturb::LoseAnswers,
            Self::DenoKv | Self::Memory => false,
        }
    }

    /// The program that emulates the store, if there is one beside the runtime.
    pub(super) fn emulator(&self) -> Result<Option<Emulator>, String> {
        match self {
            Self::Upstash => Fronted::emulator().map(Some),
            Self::Redis => {
                let (ioredis, version) = (version("ioredis")?, server::version()?);
                let name = "ioredis and redis-server".into();
                Ok(Some(Emulator { name, version: format!("{ioredis}, {version}") }))
            }
            Self::Postgres => {
                let version = format!("{}, {}", version("pg")?, postgres::server::version()?);
                Ok(Some(Emulator { name: "pg and postgres".into(), version }))
            }
            Self::Blobs => {
                let name = "BlobsServer of @netlify/blobs with ETags added, one request at a time".into();
                Ok(Some(Emulator { name, version: version("@netlify/blobs")? }))
            }
            Self::DenoKv | Self::Memory => Ok(None),
        }
    }

    pub(super) async fn start(&self, hosts: &Path) -> Result<Started, String> {
        match self {
            Self::Upstash => {
                let (store, url) = Fronted::start().await?;
                let variables = [("UPSTASH_REDIS_REST_URL", url), ("UPSTASH_REDIS_REST_TOKEN", TOKEN.into())];
                Ok((Box::new(store), variables.into()))
            }
            Self::Redis => {
                let servers = Servers::start(1).await?;
                let url = servers.urls().next().unwrap_or_default();
                Ok((Box::new(servers), vec![("REDIS_URL", url)]))
            }
            Self::Postgres => {
                let server = postgres::server::Server::start().await?;
                let url = server.url();
                Ok((Box::new(server), vec![("POSTGRES_URL", url)]))
            }
            Self::Blobs => {
                let script = hosts.join("blobs-server.mjs").to_string_lossy().into_owned();
                let (server, url) = process::guest("node".as_ref(), &[script]).await?;
                Ok((Box::new(Blobs { server, losing: Losing::default() }), vec![("BLOBS_URL", url)]))
            }
            Self::DenoKv => {
                // Not in memory: a Deno app may open files below /dev only with all permissions.
                let folder = tempfile::Builder::new().prefix("tidegate-deno-kv-").tempdir();
                let folder = folder.map_err(|error| error.to_string())?;
                let file = folder.path().join("kv.sqlite3").to_string_lossy().into_owned();
                Ok((Box::new(DenoKv(folder)), vec![("DENO_KV", file)]))
            }
            Self::Memory => Ok((Box::new(SameProcess), Vec::new())),
        }
    }
}

struct Blobs {
    server: process::Process,
    losing: Losing,
}

impl Store for Blobs {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.prepare(&self.server, disturb)
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.disturb(&self.server, disturb)
    }

    /// Counts all requests: one for a denial, and two for an admission without conflicts.
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let said = self.server.tell("count").await?;
            let count = said.parse().map_err(|_| format!("the server answered {said:?}, expected a count"))?;
            Ok([(Operation::BlobRequest, count)].into())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.server.stop().boxed_local()
    }
}

/// The folder of the file, which is removed with this value.
struct DenoKv(tempfile::TempDir);

impl Store for DenoKv {
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async { Err("Deno KV counts no operations".into()) }.boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async move { drop(self.0) }.boxed_local()
    }
}
