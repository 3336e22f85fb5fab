//! What a layer adds to a request that it admits, beside `tower_governor` in the same run.
//!
//! `cargo bench -p tidegate-tower --bench layers`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::convert::Infallible;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response};
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_tower::RateLimitLayer;
use tower::util::service_fn;
use tower::{Service, ServiceExt as _};
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_layer::Layer as _;

const ROUNDS: usize = 40;
const REQUESTS: u32 = 5_000;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The address of every request, as the server would insert it.
#[derive(Clone, Debug)]
struct Peer;

impl KeyExtractor for Peer {
    type Key = IpAddr;

    fn extract<T>(&self, request: &Request<T>) -> Result<IpAddr, GovernorError> {
        request.extensions().get::<IpAddr>().copied().ok_or(GovernorError::UnableToExtractKey)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let app = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    // Nobody is denied: the limits differ only in how they are written.
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::from_secs(1)).unwrap();
    let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let tidegate = RateLimitLayer::with_peer(gate, |extensions| extensions.get::<IpAddr>().copied()).layer(app);
    let mut plain = GovernorConfigBuilder::default().key_extractor(Peer);
    let plain = plain.per_nanosecond(1).burst_size(1_000_000_000).finish().unwrap();
    let plain = GovernorLayer::new(plain).layer(app);
    let mut fields = GovernorConfigBuilder::default().key_extractor(Peer).use_headers();
    let fields = fields.per_nanosecond(1).burst_size(1_000_000_000).finish().unwrap();
    let fields = GovernorLayer::new(fields).layer(app);

    println!("What a layer adds to an admitted request (ns, best of {ROUNDS} rounds)");
    let bare = best(app).await;
    for (name, nanos) in [
        ("tidegate-tower: rules, headers of the IETF draft", best(tidegate).await),
        ("tower_governor 0.8 with use_headers", best(fields).await),
        ("tower_governor 0.8 without headers", best(plain).await),
    ] {
        println!("{name:<52} {:>7.0}", nanos - bare);
    }
}

/// The time of a request.
async fn best<S>(service: S) -> f64
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
{
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..REQUESTS {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(CLIENT);
            black_box(service.clone().oneshot(black_box(request)).await.is_ok());
        }
        best = best.min(began.elapsed());
    }
    best.as_secs_f64() * 1e9 / f64::from(REQUESTS)
}
