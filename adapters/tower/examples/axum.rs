//! A rate-limited service.
//!
//! ```text
//! cargo run -p tidegate-tower --example axum
//! curl -i http://127.0.0.1:8080/
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Extension};
use axum::routing::get;
use axum::{Router, serve};
use tidegate_core::{ClientIpSource, Limiter, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_tower::{FailMode, KeyExtractor, RateLimitLayer, Verdict};
use tokio::net::TcpListener;

/// The service. Pass another limiter, for example `tidegate_redis::RestLimiter`, to count in another store.
pub fn app(limiter: impl Limiter + 'static, platform: Platform) -> Result<Router, tidegate_core::Error> {
    let policy = Policy::new("api", [Quota::token_bucket(5, 1, Millis::from_secs(60))?])?;
    let key_extractor = KeyExtractor::new(ClientIpSource::new(platform))
        .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
    let limited = RateLimitLayer::new(Arc::new(limiter), policy, key_extractor, FailMode::Open)?;
    Ok(Router::new().route("/", get(home)).layer(limited).route("/health", get(|| async { "ok\n" })))
}

async fn home(Extension(verdict): Extension<Verdict>) -> &'static str {
    match verdict {
        Verdict::FailedOpen(error) => {
            eprintln!("admitted without a limit: {error:?}");
            "hello, whoever you are\n"
        }
        _ => "hello\n",
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let app = app(MemoryLimiter::new(), Platform::Direct)?;
    serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
