//! `upstash-rest`, `upstash-leased` and `upstash-leased-grace`: Upstash's REST protocol over a real redis-server, three guests on one endpoint.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::Emulator;
use tidegate_core::Capabilities;
use tidegate_core::lending::Lease;
use tidegate_core::store::lending_capabilities;
use tokio::sync::Mutex;

use super::process::{self, Again, Process};
use super::redis::server::{self, Counts, Servers};
use super::redis::{GRACE, GUEST, GUESTS, LEASE, lend};
use super::{Facts, Running, Store, Target, build};
use crate::http::{Http, Version};
use crate::target::Group;

/// The package of the host that emulates Upstash.
const FRONT: &str = "tidegate-host-upstash-rest";

pub(super) const TOKEN: &str = "conformance";

/// The limit of open files of each process: a connection for each request of the largest burst, and more.
const FILES: u64 = 16_384;

/// Guests that ask for each decision.
pub(super) const REST: UpstashRest = UpstashRest {
    name: "upstash-rest",
    about: "Upstash's REST protocol over one redis-server, three guests",
    lends: None,
};

/// Guests that borrow from the database.
pub(super) const LEASED: UpstashRest = UpstashRest {
    name: "upstash-leased",
    about: "the same, with loans of ten for each of the guests",
    lends: Some(LEASE),
};

/// The same with a grace.
pub(super) const GRACED: UpstashRest = UpstashRest {
    name: "upstash-leased-grace",
    about: "the same, and each guest admits one unit of a key before the database has heard of it",
    lends: Some(GRACE),
};

#[derive(Debug)]
pub(super) struct UpstashRest {
    name: &'static str,
    about: &'static str,
    lends: Option<Lease>,
}

impl Declares for UpstashRest {
    fn declared(&self) -> Declared {
        let exact = Capabilities::EXACT.grant(true);
        Declared::new(self.lends.map_or(exact, |lease| lending_capabilities(exact, &lease)))
    }

    fn can(&self, disturb: Disturb) -> bool {
        disturb == Disturb::Kill || server::can(disturb)
    }
}

impl Target for UpstashRest {
    fn facts(&self) -> Facts<'_> {
        Facts { provider: Some("upstash"), needs: &[Group::Redis], ..Facts::new(self.name, self.about) }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Fronted::emulator()
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let guest = build::program(GUEST).await?;
            let (store, url) = Fronted::start().await?;
            let mut args = ["--store", REST.name, "--url", &url, "--token", TOKEN].map(str::to_string).to_vec();
            args.extend(self.lends.iter().flat_map(lend));
            let (guests, addresses) = process::guests(GUESTS, &guest, &args).await?;
            let again = Again::new(&guest, &args, &addresses);
            Ok(Running::new(Http::new(&addresses, Version::Http2), guests, Some(Box::new(store))).replaceable(again))
        }
        .boxed_local()
    }
}

/// A Redis server with a REST endpoint in front.
pub(super) struct Fronted {
    front: Process,
    servers: Box<Servers>,
    counted: Mutex<Counted>,
}

/// The counts at the last call of [`Fronted::count`], and what they add up to.
#[derive(Default)]
struct Counted {
    server: Counts,
    requests: u64,
    trips: u64,
    commands: u64,
}

impl Fronted {
    pub(super) fn emulator() -> Result<Emulator, String> {
        let version = server::version()?;
        Ok(Emulator { name: format!("{FRONT} over redis-server"), version })
    }

    /// Starts both, and returns the endpoint's URL.
    pub(super) async fn start() -> Result<(Self, String), String> {
        Self::over(Servers::start(1).await?).await
    }

    /// Starts an endpoint over a server, and returns its URL.
    pub(super) async fn over(servers: Servers) -> Result<(Self, String), String> {
        let _as_it_was = rlimit::increase_nofile_limit(FILES);
        let front = build::program(FRONT).await?;
        let mut args = vec!["--token".to_string(), TOKEN.to_string()];
        args.extend(servers.urls().flat_map(|url| ["--redis".to_string(), url]));
        let (front, url) = process::guest(&front, &args).await?;
        Ok((Self { front, servers: Box::new(servers), counted: Mutex::default() }, url))
    }

    async fn lose_answers(&self) -> Result<(), String> {
        match self.front.tell("lose").await?.as_str() {
            "0" => Err("no request arrived, so no answer was lost".into()),
            _ => Ok(()),
        }
    }

    /// Counts the round trips and the commands. A decision must take one script call at the server and one request at the
    /// endpoint, so the larger of the two counts.
    async fn count(&self) -> Result<Operations, String> {
        let mut counted = self.counted.lock().await;
        let server = self.servers.counts().await?;
        let said = self.front.tell("count").await?;
        let requests = said.parse::<u64>().map_err(|_| format!("{FRONT} answered {said:?}, expected a count"))?;
        let scripts = more(counted.server.scripts, server.scripts);
        let trips = counted.trips + scripts.max(more(counted.requests, requests));
        let commands = counted.commands + more(counted.server.commands, server.commands);
        *counted = Counted { server, requests, trips, commands };
        Ok([(Operation::ScriptCall, trips), (Operation::RedisCommand, commands)].into())
    }
}

/// What came on top of an earlier count. A restarted server counts from zero.
fn more(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

impl Store for Fronted {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.servers.prepare(disturb)
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        match disturb {
            Disturb::LoseAnswers => self.lose_answers().boxed_local(),
            _ => self.servers.disturb(disturb),
        }
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        self.count().boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async {
            self.front.stop().await;
            self.servers.end().await;
        }
        .boxed_local()
    }
}
