//! Targets: a limiter on its platform or a local stand-in for it, with the guests that use it.
//!
//! To add one, write a file with a [`Target`] and list it in [`ALL`].

mod build;
pub mod cloudflare;
mod edge;
mod fastly;
mod memory;
mod netlify_blobs;
mod outside;
mod process;
mod redis;
mod spin;
mod upstash_rest;
mod wasm;

pub use build::workspace;
pub(crate) use outside::Outside;
pub use process::guard;

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use tidegate_core::{Capabilities, ErrorKind, Policy};
use tidegate_guest_protocol::{Able, Answer, Failure, Reply, Route};

use crate::fixture::{Disturb, Fixture};
use crate::setup::Group;
use crate::subject::{Http, Place, Subject};

/// Every target, in the order they run.
pub const ALL: &[&dyn Target] = &[
    &memory::Memory,
    &redis::SINGLE,
    &redis::CLUSTER,
    &upstash_rest::UpstashRest,
    &edge::VERCEL,
    &edge::VERCEL_NODE,
    &edge::NETLIFY,
    &netlify_blobs::NetlifyBlobs,
    &cloudflare::DURABLE_OBJECT,
    &cloudflare::LEASED,
    &cloudflare::KV,
    &cloudflare::RATE_LIMIT,
    &spin::KV,
    &spin::ATOMICS,
    &spin::WINDOW,
    &spin::REDIS,
    &fastly::KV,
    &fastly::ERL,
];

/// Keys that are asked for until all are answered: enough to meet every node of a cluster, over every connection.
const PROBES: u64 = 24;

/// A guest whose store is back recovers within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// Why a fixture whose time passes says nothing of a store.
const OWN_CLOCK: &str = "the store goes by its own clock, which virtual time does not move";

/// What guests and fixtures are run on.
pub trait Target: Sync {
    /// Its stable name.
    fn name(&self) -> &str;

    /// What it is, in a few words.
    fn about(&self) -> &str;

    /// What its adapter declares. The guest must declare the same.
    fn capabilities(&self) -> Capabilities;

    /// Whether something can be done to its store.
    fn can(&self, _: Disturb) -> bool {
        false
    }

    /// Whether its store forgets idempotency tokens by the caller's clock. Where it goes by its own, a fixture that
    /// lets a token's time pass says nothing of it.
    fn forgets_on_virtual_time(&self) -> bool {
        false
    }

    /// Whether it takes a policy, of those that its capabilities allow. What it does not take it must answer by
    /// `Unsupported`.
    fn takes(&self, _: &Policy) -> bool {
        true
    }

    /// Why what stands in for the platform shows nothing of what it admits, where that is so. What is asked of it must still
    /// be answered, and in the right form.
    fn stub(&self) -> Option<&'static str> {
        None
    }

    /// Why a fixture says nothing of it, where that is so.
    fn unverified(&self, fixture: &Fixture) -> Option<&'static str> {
        (fixture.outlives_a_token() && !self.forgets_on_virtual_time()).then_some(OWN_CLOCK)
    }

    /// What the setup installs for it.
    fn needs(&self) -> &'static [Group] {
        Group::ALL
    }

    /// What stands in for the platform here.
    ///
    /// # Errors
    /// Why it is not here, and how to get it.
    fn emulator(&self) -> Result<Emulator, String>;

    /// Starts the store and the guests.
    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>>;
}

/// What stands in for a platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulator {
    /// The program.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A target, running. Dropping it ends everything that it started, the guests before their store.
pub struct Running {
    http: Http,
    guests: Vec<process::Process>,
    store: Option<Box<dyn Store>>,
    /// Whether its guests are down, for they live where the store does, and that is being restarted.
    down: Cell<bool>,
}

/// The store behind running guests, seen from outside.
pub trait Store {
    /// Does something to it, and waits until it answers again.
    ///
    /// # Errors
    /// That it cannot be done; asked only where [`Target::can`] says that it can.
    fn disturb(&self, _: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async { Err("the target's store cannot be disturbed from outside".into()) }.boxed_local()
    }

    /// Round trips that decisions took since it started, all guests together.
    fn round_trips(&self) -> LocalBoxFuture<'_, Result<u64, String>>;

    /// Ends it, and waits until it has.
    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}

impl Running {
    /// Guests, and the store behind them where it can be seen from outside. With no guests of their own the guests live
    /// where the store does.
    fn new(http: Http, guests: Vec<process::Process>, store: Option<Box<dyn Store>>) -> Self {
        Self { http, guests, store, down: Cell::new(false) }
    }

    /// Opens all connections and makes sure that the guests declare what the target does.
    ///
    /// # Errors
    /// No answer, or another declaration.
    pub async fn check(&self, declared: &Capabilities) -> Result<(), String> {
        self.http.warm_up().await?;
        let declared = Able::from(declared);
        for process in 0..self.http.processes() as u64 {
            let place = Place { location: Some(process), nth: 0 };
            let Reply { body, .. } = self.http.send(Route::Capabilities, Bytes::new(), place).await?;
            match serde_json::from_slice(&body) {
                Ok(Answer::Capabilities(able)) if able == declared => {}
                Ok(Answer::Capabilities(able)) => return Err(differing(&declared, &able)),
                _ => return Err("the guest does not tell its capabilities".into()),
            }
        }
        Ok(())
    }

    /// Ends everything that it started, and waits until it has.
    pub async fn stop(self) {
        for guest in self.guests {
            guest.stop().await;
        }
        if let Some(store) = self.store {
            store.stop().await;
        }
    }
}

/// Whether a guest answers that its store does not. One that cannot peek has no store to ask.
fn is_down(reply: &Reply) -> bool {
    let unsupported = |failure: &Failure| failure.kind == ErrorKind::Unsupported.name();
    let answer = serde_json::from_slice(&reply.body);
    reply.status == 503 && !matches!(answer, Ok(Answer::Error(failure)) if unsupported(&failure))
}

/// What whoever stands before a guest that is down answers for it.
fn gone(message: String) -> Reply {
    let answer = Answer::Error(Failure { kind: ErrorKind::Unavailable.name().into(), message });
    Reply { status: 503, headers: Vec::new(), body: serde_json::to_vec(&answer).unwrap_or_default() }
}

/// Which declarations differ.
fn differing(target: &Able, guest: &Able) -> String {
    let fields = |able: &Able| serde_json::to_value(able).unwrap_or_default();
    let (target, guest) = (fields(target), fields(guest));
    let differ = target.as_object().into_iter().flatten().filter(|(name, value)| guest[*name] != **value);
    let differ = differ.map(|(name, value)| format!("{name} is {} in the guest, {value} here", guest[name]));
    format!("the guest declares other capabilities: {}", differ.collect::<Vec<_>>().join("; "))
}

fn probe(nth: u64) -> Bytes {
    let quotas = r#"[{"algorithm":"fixed_window","limit":1,"window_ms":1000}]"#;
    format!(r#"{{"policy":{{"name":"probe","quotas":{quotas}}},"key":"probe:{nth}","now_ms":0}}"#).into()
}

impl Subject for Running {
    async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
        let sent = self.http.send(route, body, place).await;
        if self.down.get() { sent.or_else(|error| Ok(gone(error))) } else { sent }
    }

    /// Connections that broke are opened anew, and the store has its scripts.
    async fn settle(&self) -> Result<(), String> {
        for process in 0..self.http.processes() as u64 {
            let began = Instant::now();
            let mut settled = 0;
            while settled < PROBES {
                let place = Place { location: Some(process), nth: settled };
                let reply = self.http.send(Route::Peek, probe(settled), place).await?;
                settled = if is_down(&reply) { 0 } else { settled + 1 };
                if settled == 0 && began.elapsed() > RECOVERY_MAX {
                    let said = String::from_utf8_lossy(&reply.body).into_owned();
                    return Err(format!("after {RECOVERY_MAX:?} a guest still answers {said}"));
                }
            }
        }
        Ok(())
    }

    fn isolates(&self) -> u64 {
        self.http.sharing() as u64
    }

    async fn round_trips(&self) -> Option<u64> {
        self.store.as_ref()?.round_trips().await.ok()
    }

    async fn disturb(&self, disturb: Disturb) -> Result<(), String> {
        let Some(store) = &self.store else {
            return Err("the target has no store that can be reached from outside".into());
        };
        self.down.set(disturb == Disturb::Restart && self.guests.is_empty());
        store.disturb(disturb).await?;
        // The steps after it show what the store kept, not how fast the guests find it again.
        if disturb == Disturb::Restart {
            self.settle().await?;
        }
        self.down.set(false);
        Ok(())
    }
}
