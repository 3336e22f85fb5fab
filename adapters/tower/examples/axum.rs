//! A rate-limited service. Its rules are in `rules.toml`.
//!
//! ```text
//! cargo run -p tidegate-tower --example axum
//! curl -i http://127.0.0.1:8080/
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Extension};
use axum::routing::{get, post};
use axum::{Router, serve};
use tidegate_tower::{ClientIpSource, Gate, Limiter, MemoryLimiter, Platform, RateLimitLayer, Rules, Verdict};
use tokio::net::TcpListener;

/// The service. Pass another limiter, for example `tidegate_redis::RestLimiter`, to count in another store.
pub fn app(limiter: impl Limiter + 'static, platform: Platform) -> Result<Router, tidegate_tower::Error> {
    let rules = Rules::parse("rules.toml", include_str!("rules.toml"))?;
    let gate = Gate::new(rules, limiter, ClientIpSource::new(platform))?;
    let limited = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    });
    let health = get(|| async { "ok\n" });
    Ok(Router::new().route("/", get(home)).route("/login", post(home)).route("/health", health).layer(limited))
}

async fn home(Extension(verdict): Extension<Verdict>) -> &'static str {
    if let Some(error) = verdict.error() {
        eprintln!("admitted without a limit: {error:?}");
    }
    "hello\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let app = app(MemoryLimiter::new(), Platform::Direct)?;
    serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
