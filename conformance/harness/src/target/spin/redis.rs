//! `spin-redis`: a Spin app that counts on a redis-server, over Spin's outbound Redis.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::report::Emulator;
use tidegate_core::Capabilities;

use super::{Host, NO_DELAY, emulator, real, spin_up};
use crate::http::{Http, Version};
use crate::target::Group;
use crate::target::redis::server::{self, Servers};
use crate::target::{Facts, Running, Target};

/// Outbound Redis.
pub(in crate::target) const REDIS: SpinRedis = SpinRedis;

#[derive(Debug)]
pub(in crate::target) struct SpinRedis;

impl Declares for SpinRedis {
    fn declared(&self) -> Declared {
        Declared::new(Capabilities::EXACT.grant(true))
    }

    fn can(&self, disturb: Disturb) -> bool {
        server::can(disturb)
    }
}

impl Target for SpinRedis {
    fn facts(&self) -> Facts<'_> {
        let about = "one redis-server over Spin's outbound Redis, a fresh instance for each request";
        Facts { needs: &[Group::Redis, Group::Spin], ..Facts::new("spin-redis", about) }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        server::version()?;
        emulator()
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let servers = Servers::start(1).await?;
            let url = servers.urls().next().unwrap_or_default();
            let variable = format!("REDIS_URL={url}");
            let (app, address, version) = if real().is_some() {
                let (app, address) = spin_up(&[variable]).await?;
                (app, address, Version::Http1)
            } else {
                let Host { process, base, .. } = Host::start(&[NO_DELAY.into(), format!("--env={variable}")]).await?;
                (process, base, Version::Http2)
            };
            let http = Http::new(&[format!("{address}/redis")], version);
            Ok(Running::new(http, vec![app], Some(Box::new(servers))))
        }
        .boxed_local()
    }
}
