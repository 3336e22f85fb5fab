//! Shows the stored state of a key:
//!
//! ```text
//! cargo run -p tidegate-redis --example peek -- redis://127.0.0.1:6379 policy.json ip:192.0.2.1
//! ```
//!
//! The policy is JSON: `{"name":"api","quotas":[{"algorithm":"token_bucket","capacity":10,"refill":5,"per_ms":1000}]}`.

use std::error::Error;

use tidegate_redis::{Config, Key, Millis, Policy, Redis};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, policy, key] = arguments.as_slice() else {
        return Err("usage: peek URL POLICY.json KEY".into());
    };
    let policy: Policy = serde_json::from_str(&std::fs::read_to_string(policy)?)?;
    let redis = Redis::new(Config::new(url).deadline(Millis::from_secs(2)))?;
    print!("{}", redis.explain(&policy, &Key::new(key)).await?);
    Ok(())
}
