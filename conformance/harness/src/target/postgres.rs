//! `postgres`: a real server on loopback, three guests on one table.

pub(super) mod server;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::Emulator;
use tidegate_core::{Capabilities, Dimensions};

use self::server::Server;
use super::process::{self, Again};
use super::{Facts, Running, Store, Target, build};
use crate::http::{Http, Version};
use crate::target::Group;

/// The number of guests that share one table. A limiter that is exact in only one process fails.
const GUESTS: usize = 3;

/// The package of the guest.
const GUEST: &str = "tidegate-guest-postgres";

/// One server.
pub(super) const POSTGRES: Postgres = Postgres;

#[derive(Debug)]
pub(super) struct Postgres;

/// Whether the server can be disturbed so.
pub(super) fn can(disturb: Disturb) -> bool {
    matches!(disturb, Disturb::Restart | Disturb::Hang | Disturb::Abort)
}

impl Declares for Postgres {
    fn declared(&self) -> Declared {
        let remembering = Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(1);
        Declared::new(remembering)
    }

    fn can(&self, disturb: Disturb) -> bool {
        disturb == Disturb::Kill || can(disturb)
    }
}

impl Target for Postgres {
    fn facts(&self) -> Facts<'_> {
        Facts { needs: &[Group::Postgres], ..Facts::new("postgres", "one PostgreSQL server, three guests") }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Ok(Emulator { name: "postgres".into(), version: server::version()? })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let program = build::program(GUEST).await?;
            let server = Server::start().await?;
            // A restart must lose nothing that was decided.
            let args = ["--url".to_string(), server.url(), "--durable".to_string()];
            let (guests, addresses) = process::guests(GUESTS, &program, &args).await?;
            let again = Again::new(&program, &args, &addresses);
            Ok(Running::new(Http::new(&addresses, Version::Http2), guests, Some(Box::new(server))).replaceable(again))
        }
        .boxed_local()
    }
}

impl Store for Server {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async move { if disturb == Disturb::Abort { self.halt().await } else { Ok(()) } }.boxed_local()
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        match disturb {
            Disturb::Restart => self.restart().boxed_local(),
            Disturb::Hang => self.hang().boxed_local(),
            Disturb::Abort => self.resume().boxed_local(),
            other => async move { Err(format!("this server cannot do {}", other.name())) }.boxed_local(),
        }
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async { Ok([(Operation::SqlStatement, self.statements().await?)].into()) }.boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.end().boxed_local()
    }
}
