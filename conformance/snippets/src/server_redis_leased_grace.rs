use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tidegate_redis::{Config, Error, Lease, Limiter, Millis, Policy, Quota, Redis, UnixMillis};

pub fn limiter(url: &str) -> Result<(impl Limiter, Policy), Error> {
    let lease = Lease { grace: 2, in_background: true, ..Lease::new(50, Millis::from_secs(60)) };
    let limiter = Arc::new(Redis::new(Config::new(url))?.lending(lease)?);
    // In a runtime of tokio: the store is told what was admitted before it was asked.
    let told = Arc::downgrade(&limiter);
    tokio::spawn(async move {
        while let Some(limiter) = told.upgrade() {
            limiter.after(UnixMillis::now, ready(())).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
