//! A server of your own with Envoy's rate limit service, beside whatever else it answers. Its rules are in `rules.toml`.
//!
//! ```text
//! cargo run -p tidegate-envoy --example server
//! ```

use std::error::Error;

use tidegate_envoy::{ClientIpSource, Gate, MemoryLimiter, Platform, RateLimitService, Rules};
use tonic::transport::Server;

/// The service. Pass another limiter, for example that of `tidegate_redis::Redis`, to count in another store.
pub fn service() -> Result<RateLimitService, tidegate_envoy::Error> {
    let rules = Rules::parse("rules.toml", include_str!("rules.toml"))?;
    RateLimitService::new(Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    Server::builder().add_service(service()?).serve("127.0.0.1:8081".parse()?).await?;
    Ok(())
}
