//! The stores of a server, by their URLs.

use tidegate_core::{ErasedLimiter, Error, ErrorKind, MemoryLimiter, Millis};
use tidegate_postgres::Postgres;
use tidegate_redis::Redis;

use crate::program::Failure;

/// A store, such as `main=redis://127.0.0.1`. No message repeats a URL, which may have a password.
pub(super) fn open(text: &str, deadline: Millis) -> Result<(&str, Box<dyn ErasedLimiter>), Failure> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty() && is_name(name));
    let (name, url) = named.ok_or_else(|| Failure::Usage("--store: write NAME=URL, such as main=memory".into()))?;
    let store = at(url, deadline).map_err(|error| Failure::Usage(format!("--store {name}: {error}")))?;
    Ok((name, store))
}

fn at(url: &str, deadline: Millis) -> Result<Box<dyn ErasedLimiter>, Error> {
    let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
    let variable = url.strip_prefix("env:");
    let value = variable.map(|name| std::env::var(name).map_err(|error| invalid(format!("{name}: {error}"))));
    let url = &*value.transpose()?.unwrap_or_else(|| url.into());
    Ok(match url.split(':').next().unwrap_or_default() {
        "memory" => Box::new(MemoryLimiter::new()),
        "redis" | "rediss" => Box::new(Redis::new(tidegate_redis::Config::new(url).deadline(deadline))?.limiter()),
        "postgres" | "postgresql" => {
            Box::new(Postgres::new(tidegate_postgres::Config::new(url)?.deadline(deadline))?.limiter())
        }
        _ => {
            let known = "memory, redis://…, rediss://…, postgresql://… or env:VARIABLE";
            return Err(invalid(format!("no URL of a store; write {known}")));
        }
    })
}
