//! What a decision adds to a call over gRPC, beside the same service that decides nothing.
//!
//! `cargo bench -p tidegate-envoy --bench grpc`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::future::{Ready, ready};

use rustix::time::{ClockId, clock_gettime};
use tidegate_envoy::proto::{Code, RateLimitRequest, RateLimitResponse};
use tidegate_envoy::{ClientIpSource, Gate, MemoryLimiter, Platform, RateLimitService, Rules};
use tidegate_measured::{Measurement, ROUNDS, Unit, shortened};
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const RULES: &str = r#"
dimensions = ["a", "b"]
[limits.a]
quotas = [{ algorithm = "token_bucket", capacity = 1_000_000_000, refill = 1_000_000, per_ms = 1_000, by = "a" }]
[limits.b]
quotas = [{ algorithm = "token_bucket", capacity = 1_000_000_000, refill = 1_000_000, per_ms = 1_000, by = "b" }]
[limits.none]
quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 86_400_000, by = "a" }]
[[rules]]
path = "/d/a/{a}"
limits = ["a"]
[[rules]]
path = "/d/b/{b}"
limits = ["b"]
[[rules]]
path = "/d/none/x/a/{a}"
limits = ["none"]
"#;

/// Calls of a round.
const CALLS: u32 = 4_000;

fn main() -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let floor = runtime.block_on(serve(Floor));
    let channel = runtime.block_on(serve(RateLimitService::new(gate).unwrap()));
    let calls = [
        (&floor, support::request("d", &[&[("a", "192.0.2.1")]])),
        (&channel, support::request("d", &[&[("a", "192.0.2.1")]])),
        (&channel, support::request("d", &[&[("a", "192.0.2.1")], &[("b", "alice")]])),
        (&channel, support::request("d", &[&[("none", "x"), ("a", "192.0.2.1")]])),
    ];
    let mut found = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        for (found, (channel, request)) in found.iter_mut().zip(&calls) {
            let us = us(&runtime, channel, request);
            // The first round is a warm-up.
            if round > 0 {
                found.push(us);
            }
        }
    }
    let [without, all @ ..] = &found;
    for (name, all) in ["one descriptor", "two descriptors, decided as one", "a denial"].into_iter().zip(all) {
        let peer = "the same call without a decision";
        Measurement::new("envoy", name, Unit::Us).record_beside(all, peer, without)?;
    }
    Ok(())
}

async fn serve<S>(service: S) -> Channel
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + NamedService,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap().with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    support::connect(address).await
}

/// The same service without a gate: each answer is the same.
#[derive(Clone)]
struct Floor;

impl NamedService for Floor {
    const NAME: &'static str = RateLimitService::NAME;
}

impl UnaryService<RateLimitRequest> for Floor {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        let overall_code = Code::Ok.into();
        ready(Ok(Response::new(RateLimitResponse { overall_code, ..RateLimitResponse::default() })))
    }
}

impl Service<http::Request<Body>> for Floor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(Floor, request).await) })
    }
}

/// What a call takes of the processor's time, with the client's part, one after another.
fn us(runtime: &Runtime, channel: &Channel, request: &RateLimitRequest) -> f64 {
    let calls = shortened(CALLS);
    let start = clock_gettime(ClockId::ProcessCPUTime);
    runtime.block_on(async {
        for _ in 0..calls {
            let response = support::ask(channel, request.clone()).await.unwrap();
            assert_ne!(response.overall_code, i32::from(Code::Unknown));
        }
    });
    let end = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "less than a minute")]
    let seconds = (end.tv_sec - start.tv_sec) as f64 + (end.tv_nsec - start.tv_nsec) as f64 / 1e9;
    seconds * 1e6 / f64::from(calls)
}
