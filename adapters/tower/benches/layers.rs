//! What a layer adds to a request that it admits, beside `tower_governor` in the same run.
//!
//! `cargo bench -p tidegate-tower --bench layers`. `conformance/bench/instructions.sh layer tower_governor app` counts their instructions.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::convert::Infallible;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_measured::{Aim, Measurement, ROUNDS, Unit, counted, ns_per_call};
use tidegate_tower::RateLimitLayer;
use tokio::runtime::{Builder, Runtime};
use tower::util::service_fn;
use tower::{Service, ServiceExt as _};
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_layer::Layer as _;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const DAY: Millis = Millis::from_secs(86_400);

/// The address of every request, as the server would insert it.
#[derive(Clone, Debug)]
struct Peer;

impl KeyExtractor for Peer {
    type Key = IpAddr;

    fn extract<T>(&self, request: &Request<T>) -> Result<IpAddr, GovernorError> {
        request.extensions().get::<IpAddr>().copied().ok_or(GovernorError::UnableToExtractKey)
    }
}

fn main() -> std::io::Result<()> {
    let app = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let ours = |quota| {
        let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
        let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
        RateLimitLayer::with_peer(gate, |extensions| extensions.get::<IpAddr>().copied()).layer(app)
    };
    let theirs = |period, burst| {
        let mut config = GovernorConfigBuilder::default().key_extractor(Peer).use_headers();
        GovernorLayer::new(config.period(period).burst_size(burst).finish().unwrap()).layer(app)
    };
    // Nobody is denied: the limits differ only in how they are written.
    let tidegate = ours(Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::from_secs(1)).unwrap());
    let fields = theirs(Duration::from_nanos(1), 1_000_000_000);
    let mut plain = GovernorConfigBuilder::default().key_extractor(Peer);
    let plain = plain.per_nanosecond(1).burst_size(1_000_000_000).finish().unwrap();
    let plain = GovernorLayer::new(plain).layer(app);
    // All but the first request are denied.
    let (refusing, fields_refusing) =
        (ours(Quota::fixed_window(1, DAY).unwrap()), theirs(Duration::from_millis(DAY.get()), 1));

    let runtime = Builder::new_current_thread().enable_all().build()?;
    if counted(&mut [
        ("app", &mut || _ = ask(&runtime, &app)),
        ("layer", &mut || _ = ask(&runtime, &tidegate)),
        ("layer-refused", &mut || _ = ask(&runtime, &refusing)),
        ("tower_governor", &mut || _ = ask(&runtime, &fields)),
        ("tower_governor-refused", &mut || _ = ask(&runtime, &fields_refusing)),
    ]) {
        return Ok(());
    }
    let (mut ours, mut with_fields, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let of = [ns(&runtime, &app), ns(&runtime, &tidegate), ns(&runtime, &fields), ns(&runtime, &plain)];
        // The first round is a warm-up.
        if round > 0 {
            ours.push(of[1] - of[0]);
            with_fields.push(of[2] - of[0]);
            without.push(of[3] - of[0]);
        }
    }
    let measured = Measurement::new("layer", "what a layer adds to a request, headers in both", Unit::Ns);
    measured.aim(Aim::Ratio(1.2)).record_beside(&ours, "tower_governor 0.8 with use_headers", &with_fields)?;
    let measured = Measurement::new("layer", "what a layer adds to a request, headers only in ours", Unit::Ns);
    measured.record_beside(&ours, "tower_governor 0.8", &without)
}

/// The time of a request.
fn ns<S>(runtime: &Runtime, service: &S) -> f64
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
{
    // A part takes less than a time slice, so that on a busy machine nothing interrupts the fastest.
    ns_per_call(1_000, || ask(runtime, service))
}

fn ask<S>(runtime: &Runtime, service: &S) -> bool
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
{
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(CLIENT);
    runtime.block_on(service.clone().oneshot(black_box(request))).is_ok()
}
