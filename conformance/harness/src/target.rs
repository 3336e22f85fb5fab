//! Targets: a limiter on its platform or a local emulator, with the guests that use it.
//!
//! To add a target, implement [`Target`] in a new file and list it in [`ALL`]. By what it [declares](Declares), fixtures are chosen for
//! it and judged.

mod build;
mod checkout;
pub mod cloudflare;
mod facts;
pub mod fastly;
mod group;
mod javascript;
mod live;
mod logs;
mod losing;
mod memory;
mod outside;
#[doc(hidden)]
pub mod peer;
mod postgres;
mod process;
mod redis;
pub mod spin;
mod upstash_rest;
mod wasm;

pub(crate) use build::alone;
pub use build::{apart_from_this, program};
pub use checkout::workspace;
pub use facts::Facts;
pub use group::Group;
pub use live::{Deployment, Live, PLATFORMS, Platform};
pub(crate) use logs::logged;
pub use logs::logs_in;
pub use outside::Outside;
pub use process::guard;
pub(crate) use process::told;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::Declares;
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::Operations;
use tidegate_conformance::report::Emulator;
use tidegate_conformance::subject::{Place, Subject};
use tidegate_core::{Capabilities, ErrorKind};
use tidegate_guest_protocol::{Able, Answer, Failure, Reply, Route};

use crate::http::Http;

/// All targets, in the order of the report.
pub const ALL: &[&dyn Target] = &[
    &memory::Memory,
    &redis::SINGLE,
    &redis::CLUSTER,
    &redis::LEASED,
    &redis::GRACED,
    &redis::FALLBACK,
    &upstash_rest::REST,
    &upstash_rest::LEASED,
    &upstash_rest::GRACED,
    &postgres::POSTGRES,
    &javascript::VERCEL,
    &javascript::VERCEL_NODE,
    &javascript::NETLIFY,
    &javascript::NETLIFY_BLOBS,
    &javascript::DENO_KV,
    &javascript::REDIS,
    &javascript::REDIS_GRACED,
    &javascript::POSTGRES,
    &javascript::MEMORY,
    &cloudflare::DURABLE_OBJECT,
    &cloudflare::LEASED,
    &cloudflare::GRACED,
    &cloudflare::KV,
    &cloudflare::RATE_LIMIT,
    &cloudflare::JS_OBJECT,
    &cloudflare::JS_KV,
    &spin::KV,
    &spin::ATOMICS,
    &spin::WINDOW,
    &spin::MIDDLEWARE,
    &spin::REDIS,
    &fastly::KV,
    &fastly::ERL,
];

/// The number of keys that must be answered before a guest counts as ready. They reach every node of a cluster over
/// every connection.
const PROBES: u64 = 24;

/// How long a guest may take to recover after its store has restarted.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// How long guests may take to know what was sent to a store that is halted.
const LEARN_MAX: Duration = Duration::from_millis(200);

/// How long the requests that will be aborted may take to open connections of their own, and to ask the store.
const GATHER: Duration = Duration::from_millis(30);

/// A platform, or a local emulator of it, on which the suite runs fixtures.
pub trait Target: Declares + Sync {
    /// What is known of the target before it runs.
    fn facts(&self) -> Facts<'_>;

    /// The stable name.
    fn name(&self) -> &str {
        self.facts().name
    }

    /// Returns the program that emulates the platform on this machine.
    ///
    /// # Errors
    /// Says what is missing and how to install it.
    fn emulator(&self) -> Result<Emulator, String>;

    /// Starts the store and the guests.
    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>>;
}

/// A running target. Dropping it ends every process that it started, the guests before their store.
pub struct Running {
    http: Http,
    guests: RefCell<Vec<process::Process>>,
    /// How to start the guests again, if they can be killed.
    again: Option<process::Again>,
    store: Option<Box<dyn Store>>,
    /// Whether the guests may be down. This is so while they are replaced, or while the store restarts or is evicted, if the guests
    /// run in the same process.
    down: Cell<bool>,
}

/// The store of a running target, controlled from outside the guests.
pub trait Store {
    /// Waits until a fixture may begin: not if the store counts by its own clock, and one of its windows is about to end.
    fn begin(&self) -> LocalBoxFuture<'_, ()> {
        async {}.boxed_local()
    }

    /// Prepares a disturbance that must have begun when the first request arrives. [`Store::disturb`] follows.
    ///
    /// # Errors
    /// Fails if the store cannot be disturbed.
    fn prepare(&self, _: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async { Ok(()) }.boxed_local()
    }

    /// Disturbs the store, and waits until it answers again. Called only if [`Declares::can`] returns true.
    ///
    /// # Errors
    /// Fails if the store cannot be disturbed.
    fn disturb(&self, _: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async { Err("the target's store cannot be disturbed from outside".into()) }.boxed_local()
    }

    /// The operations of all guests' decisions since the store started.
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>>;

    /// Stops the store, and waits until it has ended.
    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}

impl Running {
    /// `store` is `None` if the store cannot be controlled from outside. `guests` is empty if they run in the store's
    /// process.
    fn new(http: Http, guests: Vec<process::Process>, store: Option<Box<dyn Store>>) -> Self {
        Self { http, guests: RefCell::new(guests), again: None, store, down: Cell::new(false) }
    }

    /// The same, with guests that can be killed.
    fn replaceable(self, again: process::Again) -> Self {
        Self { again: Some(again), ..self }
    }

    /// Opens all connections, and checks that the guests declare the target's capabilities.
    ///
    /// # Errors
    /// Fails if a guest does not answer or declares other capabilities.
    pub async fn check(&self, declared: &Capabilities) -> Result<(), String> {
        self.http.warm_up().await?;
        let declared = Able::from(declared);
        for process in 0..self.http.processes() as u64 {
            let place = Place { location: Some(process), nth: 0 };
            let Reply { body, .. } = self.http.send(Route::Capabilities, Bytes::new(), place).await?;
            match serde_json::from_slice(&body) {
                Ok(Answer::Capabilities(able)) if able == declared => {}
                Ok(Answer::Capabilities(able)) => return Err(differing(&declared, &able)),
                _ => return Err("the guest does not report its capabilities".into()),
            }
        }
        Ok(())
    }

    /// Waits until the guests know what was sent: a question that comes after it over the same connection is answered after it. A guest
    /// that opens its store for each question answers none while the store is halted.
    async fn learn(&self) {
        let _answered = tokio::time::timeout(LEARN_MAX, self.http.warm_up()).await;
    }

    /// Stops every process that it started, and waits until they have ended.
    pub async fn stop(self) {
        for guest in self.guests.into_inner() {
            guest.stop().await;
        }
        if let Some(store) = self.store {
            store.stop().await;
        }
    }
}

/// Whether a guest's reply says that its store is down. `Unsupported` does not: the guest cannot peek.
fn is_down(reply: &Reply) -> bool {
    let unsupported = |failure: &Failure| failure.kind == ErrorKind::Unsupported.name();
    let answer = serde_json::from_slice(&reply.body);
    reply.status == 503 && !matches!(answer, Ok(Answer::Error(failure)) if unsupported(&failure))
}

/// The reply of a proxy in front of a guest that is down.
fn gone(message: String) -> Reply {
    let answer = Answer::Error(Failure { kind: ErrorKind::Unavailable.name().into(), message });
    Reply { status: 503, headers: Vec::new(), body: serde_json::to_vec(&answer).unwrap_or_default() }
}

/// Describes the capabilities that differ.
fn differing(target: &Able, guest: &Able) -> String {
    let fields = |able: &Able| serde_json::to_value(able).unwrap_or_default();
    let (target, guest) = (fields(target), fields(guest));
    let differ = target.as_object().into_iter().flatten().filter(|(name, value)| guest[*name] != **value);
    let differ =
        differ.map(|(name, value)| format!("{name} is {} in the guest and {value} in the target", guest[name]));
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

    async fn begin(&self) {
        if let Some(store) = &self.store {
            store.begin().await;
        }
    }

    /// Reopens broken connections, and loads the store's scripts.
    async fn settle(&self) -> Result<(), String> {
        for process in 0..self.http.processes() as u64 {
            let began = Instant::now();
            let mut settled = 0;
            while settled < PROBES {
                let place = Place { location: Some(process), nth: settled };
                let reply = self.send(Route::Peek, probe(settled), place).await?;
                settled = if is_down(&reply) { 0 } else { settled + 1 };
                if settled == 0 && began.elapsed() > RECOVERY_MAX {
                    let said = String::from_utf8_lossy(&reply.body).into_owned();
                    return Err(format!("after {RECOVERY_MAX:?} a guest still answers {said}"));
                }
            }
        }
        Ok(())
    }

    async fn alive(&self) -> Result<(), String> {
        let answered = self.http.warm_up().await;
        answered.map_err(|error| {
            let ended = self.guests.borrow_mut().iter_mut().find_map(process::Process::ended);
            ended.unwrap_or(error)
        })
    }

    fn isolates(&self) -> u64 {
        self.http.sharing() as u64
    }

    async fn operations(&self) -> Option<Operations> {
        self.store.as_ref()?.operations().await.ok()
    }

    async fn prepare(&self, disturb: Disturb) -> Result<(), String> {
        match &self.store {
            Some(store) => store.prepare(disturb).await,
            None => Ok(()),
        }
    }

    async fn arrived(&self) {
        self.learn().await;
        tokio::time::sleep(GATHER).await;
    }

    async fn disturb(&self, disturb: Disturb) -> Result<(), String> {
        if disturb == Disturb::Abort {
            // The guests learn of it before the store answers.
            self.learn().await;
        }
        let together = matches!(disturb, Disturb::Restart | Disturb::Evict) && self.guests.borrow().is_empty();
        let ends_guests = together || disturb == Disturb::Kill;
        self.down.set(ends_guests);
        match (&self.again, &self.store) {
            (Some(again), _) if disturb == Disturb::Kill => {
                let guests = again.replace(self.guests.take()).await?;
                self.guests.replace(guests);
            }
            (_, Some(store)) => store.disturb(disturb).await?,
            (_, None) => return Err("the target has no store that can be reached from outside".into()),
        }
        // The next steps test what the store kept, not how fast the guests reconnect.
        if disturb.fails_the_store() || ends_guests {
            self.settle().await?;
        }
        self.down.set(false);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
