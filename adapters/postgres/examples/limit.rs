//! Limits a client by its address, and prints what is left:
//!
//! ```text
//! cargo run -p tidegate-postgres --example limit -- postgresql://app:secret@127.0.0.1/app 192.0.2.1
//! ```

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_postgres::{Check, Config, Key, LimiterExt, Millis, Policy, Postgres, Quota, UnixMillis};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address] = arguments.as_slice() else { return Err("usage: limit URL ADDRESS".into()) };
    let postgres = Postgres::new(Config::new(url)?.deadline(Millis::from_secs(2)))?;
    postgres.create_table().await?;
    let limiter = postgres.limiter();
    let policy = Policy::new("api", [Quota::sliding_window(5, Millis::from_secs(60))?])?;
    let key = Key::new(format!("ip:{address}"));
    let now = UnixMillis::new(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?);
    let decision = limiter.check(Check::new(&policy, &key, now)).await?;
    match decision.retry_after() {
        None => println!("admitted, {} left", decision.binding().remaining().unwrap_or_default()),
        Some(after) => println!("denied for {after}"),
    }
    Ok(())
}
