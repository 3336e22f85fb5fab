//! The server: gRPC, metrics, reloads and the end.

mod stores;
mod tls;

use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::counter;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_core::gate::{Event, EventSink, Events, Gate, MetricsSink, Notice};
use tidegate_core::{ClientIpSource, Millis, Platform};
use tidegate_envoy::RateLimitService;
use tidegate_harness::output::{errln, outln};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::{runtime::Runtime, sync::oneshot, time};
use tonic::transport::server::TcpIncoming;
use tonic_health::{ServingStatus::NotServing, server::health_reporter};
use tracing_subscriber::filter::LevelFilter;

use super::Args;
use crate::program::Failure;
use crate::program::rules::{read, text};

/// How often the rules file is compared with what was read.
const REREAD: Duration = Duration::from_secs(5);

/// How long requests may take to end. A stream of the health service never ends.
const DRAIN: Duration = Duration::from_secs(10);

/// The upper ends of the buckets of `tidegate_store_seconds`, around the deadline.
const SECONDS: [f64; 10] = [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.125, 0.25];

pub(in crate::commands) fn run(args: &Args) -> Result<(), Failure> {
    // The warnings of stores, such as of a Redis that evicts keys.
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(std::io::stderr).init();
    Runtime::new().map_err(wrong("runtime"))?.block_on(serve(args))
}

fn wrong<E: Display>(what: impl Display) -> impl Fn(E) -> Failure {
    move |error| Failure::Usage(format!("{what}: {error}"))
}

async fn serve(args: &Args) -> Result<(), Failure> {
    let file = args.rules.display();
    let stores = args.store.iter().map(|store| stores::open(store, Millis::new(args.deadline_ms)));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let gate = Gate::with_stores(read(&args.rules)?, stores, ClientIpSource::new(Platform::Direct));
    let events = Events::new((MetricsSink, Notices)).timer(micros);
    let gate = Arc::new(gate.map_err(wrong(&file))?.events(events));
    let service = RateLimitService::new(Arc::clone(&gate)).map_err(wrong(&file))?.shadow(args.shadow);
    if let Some(address) = args.metrics {
        let recorder = PrometheusBuilder::new().with_http_listener(address).set_buckets(&SECONDS);
        recorder.and_then(PrometheusBuilder::install).map_err(wrong(address))?;
        outln!("metrics on {address}");
    }

    let mut builder = tls::server(args)?;
    // Before anybody knows that it serves, and so may end it.
    let listen = |kind| signal(kind).map_err(wrong("signals"));
    let signals = [listen(SignalKind::hangup())?, listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?];
    // With Nagle's algorithm, an answer in several writes would wait for Envoy's acknowledgement, for longer than Envoy waits.
    let incoming = TcpIncoming::bind(args.rls).map_err(wrong(args.rls))?.with_nodelay(Some(true));
    outln!("rate limits on {}", incoming.local_addr().map_err(wrong(args.rls))?);
    let (health, healthy) = health_reporter();
    health.set_serving::<RateLimitService>().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = builder.add_service(healthy).add_service(service.clone());
    let stopped = async move { drop(stopped.await) };
    let serving = tokio::spawn(server.serve_with_incoming_shutdown(incoming, stopped));
    let ended = reload_until_stopped(args, &gate, &service, signals).await;
    health.set_service_status("", NotServing).await;
    health.set_not_serving::<RateLimitService>().await;
    drop(stop);
    let _ = time::timeout(DRAIN, serving).await;
    ended
}

/// Reads the rules again on SIGHUP and when their file has changed, until a signal ends the program.
async fn reload_until_stopped(
    args: &Args,
    gate: &Gate<'_>,
    service: &RateLimitService,
    [mut hangup, mut terminate, mut interrupt]: [Signal; 3],
) -> Result<(), Failure> {
    let (mut known, mut tick, file) = (text(&args.rules)?, time::interval(REREAD), args.rules.display());
    // A file that is gone stays so for a while.
    let mut told = String::new();
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Err(Failure::Interrupted),
            _ = hangup.recv() => told.clear(),
            _ = tick.tick() => count_shadows(gate),
        }
        let found = text(&args.rules);
        if found.as_ref().is_ok_and(|found| *found == known) {
            continue;
        }
        let reloaded = found.and_then(|found| {
            known = found;
            service.reload(read(&args.rules)?).map_err(wrong(&file))
        });
        let outcome = if reloaded.is_ok() { "ok" } else { "failed" };
        counter!("tidegate_reloads_total", "outcome" => outcome).increment(1);
        match reloaded {
            Err(Failure::Usage(error)) if error == told => {}
            Err(Failure::Usage(error)) => {
                errln!("{error}; the rules stay as they were");
                told = error;
            }
            _ => {
                outln!("{file}: read again");
                told.clear();
            }
        }
    }
}

/// Counts what proposed limits would have changed.
fn count_shadows(gate: &Gate<'_>) {
    for (store, limit, of) in gate.shadows() {
        let counts = [("denies", of.only_proposal_denies), ("admits", of.only_current_denies), ("failed", of.failed)];
        for (outcome, count) in counts {
            let (store, limit) = (store.to_string(), limit.to_string());
            let changes = counter!("tidegate_shadow_total", "store" => store, "limit" => limit, "proposal" => outcome);
            changes.absolute(count);
        }
    }
}

/// Microseconds, to measure how long stores take.
fn micros() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Prints that a store is down or back, and other failures.
struct Notices;

impl EventSink for Notices {
    fn event(&self, _: &Event<'_>) {}

    fn logs(&self) -> bool {
        true
    }

    fn notice(&self, notice: &Notice) {
        errln!("{notice}");
    }
}
