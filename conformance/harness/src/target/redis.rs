//! `redis`, `redis-cluster`, `redis-leased` and `redis-leased-grace`: real servers on loopback, three guests on one store.

pub(super) mod server;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::Emulator;
use tidegate_core::lending::Lease;
use tidegate_core::store::lending_capabilities;
use tidegate_core::{Capabilities, Dimensions, Millis};

use self::server::{Counts, Servers};
use super::process::{self, Again};
use super::{Facts, Running, Store, Target, build};
use crate::http::{Http, Version};
use crate::target::Group;

/// The number of guests that share one store. A limiter that is exact in only one process fails.
pub(super) const GUESTS: usize = 3;

/// The package of the guest that counts in Redis.
pub(super) const GUEST: &str = "tidegate-guest-redis";

/// One server.
pub(super) const SINGLE: Redis =
    Redis { name: "redis", about: "one redis-server, three guests", nodes: 1, fallback_percent: 0, lends: None };

/// Three servers that share the slots.
pub(super) const CLUSTER: Redis =
    Redis { name: "redis-cluster", about: "a Redis cluster of three nodes, three guests", nodes: 3, ..SINGLE };

/// One server, from which guests borrow.
pub(super) const LEASED: Redis = Redis {
    name: "redis-leased",
    about: "one redis-server, with loans of ten for each of three guests",
    lends: Some(LEASE),
    ..SINGLE
};

/// The same with a grace.
pub(super) const GRACED: Redis = Redis {
    name: "redis-leased-grace",
    about: "the same, and each guest admits one unit of a key before the store has heard of it",
    lends: Some(GRACE),
    ..SINGLE
};

/// What a guest borrows of a key, for two seconds of virtual time.
pub(super) const LEASE: Lease = Lease::new(10, Millis::from_secs(2));

/// The same with a grace.
pub(super) const GRACE: Lease = Lease { in_background: true, grace: 1, ..LEASE };

/// The options of a guest with this lease.
pub(super) fn lend(lease: &Lease) -> [String; 4] {
    ["--lend".to_string(), lease.slice.to_string(), "--grace".to_string(), lease.grace.to_string()]
}

/// One server, whose guests decide themselves while it does not answer.
pub(super) const FALLBACK: Redis = Redis {
    name: "fallback",
    about: "one redis-server; while it is down, each of three guests admits 10 % of every limit",
    fallback_percent: 10,
    ..SINGLE
};

#[derive(Debug)]
pub(super) struct Redis {
    name: &'static str,
    about: &'static str,
    nodes: usize,
    /// What each guest admits of a limit while the store does not answer. 0 without a fallback.
    fallback_percent: u8,
    lends: Option<Lease>,
}

impl Declares for Redis {
    fn declared(&self) -> Declared {
        let dimensions = if self.nodes > 1 { Dimensions::Grouped } else { Dimensions::Any };
        let exact = Capabilities::EXACT.dimensions(dimensions).grant(true);
        let capabilities = match (&self.lends, self.fallback_percent) {
            (Some(lease), _) => lending_capabilities(exact, lease),
            (None, 0) => exact,
            (None, percent) => exact.accuracy(exact.accuracy.with_fallback(percent)),
        };
        Declared::new(capabilities)
    }

    fn can(&self, disturb: Disturb) -> bool {
        disturb == Disturb::Kill || server::can(disturb)
    }
}

impl Target for Redis {
    fn facts(&self) -> Facts<'_> {
        Facts { needs: &[Group::Redis], ..Facts::new(self.name, self.about) }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let version = server::version()?;
        Ok(Emulator { name: "redis-server".into(), version })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let program = build::program(GUEST).await?;
            let servers = Servers::start(self.nodes).await?;
            let store = if self.nodes > 1 { "redis-cluster" } else { "redis" };
            let mut args = vec!["--store".to_string(), store.to_string()];
            if self.fallback_percent > 0 {
                args.extend(["--fallback".to_string(), self.fallback_percent.to_string()]);
            }
            args.extend(self.lends.iter().flat_map(lend));
            args.extend(servers.urls().flat_map(|url| ["--url".to_string(), url]));
            let (guests, addresses) = process::guests(GUESTS, &program, &args).await?;
            let again = Again::new(&program, &args, &addresses);
            Ok(Running::new(Http::new(&addresses, Version::Http2), guests, Some(Box::new(servers))).replaceable(again))
        }
        .boxed_local()
    }
}

impl Store for Servers {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async move { if disturb == Disturb::Abort { self.halt().await } else { Ok(()) } }.boxed_local()
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        match disturb {
            Disturb::ScriptFlush => self.script_flush().boxed_local(),
            Disturb::Restart => self.restart().boxed_local(),
            Disturb::Hang => self.hang().boxed_local(),
            Disturb::LoseAnswers => self.lose_answers().boxed_local(),
            Disturb::Abort => self.resume().boxed_local(),
            Disturb::Evict | Disturb::Kill => async { Err("a server is not evicted".into()) }.boxed_local(),
        }
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let Counts { scripts, commands } = self.counts().await?;
            Ok([(Operation::ScriptCall, scripts), (Operation::RedisCommand, commands)].into())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.end().boxed_local()
    }
}
