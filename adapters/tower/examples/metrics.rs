//! A rate-limited service whose metrics Prometheus reads. Its rules are in `rules.toml`, and `core/docs/prometheus` has a scrape, alerts and a
//! dashboard for Grafana.
//!
//! ```text
//! cargo run -p tidegate-tower --features metrics --example metrics
//! curl -i http://127.0.0.1:8080/ && curl http://127.0.0.1:9464/metrics
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Instant;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tidegate_core::gate::{Events, MetricsSink, TracingSink};
use tidegate_tower::{ClientIpSource, Gate, Limiter, MemoryLimiter, Platform, RateLimitLayer, Rules};
use tokio::net::TcpListener;

/// The upper ends of the buckets of `tidegate_store_seconds`, around the deadline.
const SECONDS: [f64; 10] = [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.125, 0.25];

/// The recorder of all metrics of the process.
pub fn recorder() -> Result<PrometheusHandle, Box<dyn Error>> {
    let seconds = Matcher::Full("tidegate_store_seconds".into());
    Ok(PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?.install_recorder()?)
}

/// Microseconds, to measure how long the store takes.
fn micros() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The service. Pass another limiter, for example `tidegate_redis::RedisLimiter`, to count in another store.
pub fn app(limiter: impl Limiter + 'static) -> Result<Router, tidegate_tower::Error> {
    let rules = Rules::parse("rules.toml", include_str!("rules.toml"))?;
    let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Direct))?;
    let gate = gate.events(Events::new((MetricsSink, TracingSink::default())).timer(micros));
    let limited = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    });
    Ok(Router::new().route("/", get(|| async { "hello\n" })).layer(limited))
}

/// What Prometheus reads. Clients have no business here, so it listens at an address of its own.
pub fn metrics(handle: PrometheusHandle) -> Router {
    Router::new().route("/metrics", get(move || async move { handle.render() }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = metrics(recorder()?);
    let inside = TcpListener::bind("127.0.0.1:9464").await?;
    tokio::spawn(async move { serve(inside, metrics).await });

    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let app = app(MemoryLimiter::new())?;
    serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
