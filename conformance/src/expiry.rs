//! Whether a store removes the rows of keys that are unused.

use std::future::Future;

use tidegate_core::{Check, Error, ErrorKind, Key, Limiter, LimiterExt, Millis, Policy, Quota, UnixMillis};

use crate::Suite;

/// Keys with a row each. A client can use any number of addresses, so a store that keeps them all grows without bound.
const KEYS: u64 = 256;

/// Calls of one more key, for stores that remove some rows with each call.
const CALLS: u64 = 1_000;

/// The window of all limits, and the time to live of all tokens.
const WINDOW: Millis = Millis::from_secs(1);

/// When the rows may be removed: a sliding window counts for two windows, and the drivers add ten seconds; see the contract of
/// [stores](tidegate_core::store#contract).
const PASSES: Millis = Millis::from_secs(15);

const START: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// A store's rows, for [`Suite::check_expiry`].
pub trait Rows {
    /// How many rows the store has: states, and answers to tokens. A row that has expired counts until it is removed.
    fn count(&self) -> impl Future<Output = Result<u64, String>>;

    /// Lets a time pass by the clock that rows expire by. A store that uses the caller's clock has nothing to do, because later
    /// calls are at a later time. A store with a job that removes rows may run it.
    fn pass(&self, span: Millis) -> impl Future<Output = Result<(), String>>;
}

impl Suite {
    /// Checks that a store removes the rows of keys without effect, which no decision shows. It makes checks of 256 keys under
    /// all algorithms that the limiter declares, lets 15 seconds pass, and makes 1,000 checks of another key. At most a tenth
    /// of the rows may then be left. Give it a new store.
    ///
    /// # Errors
    /// Says how many rows are left, or why it could not find out: the limiter failed, or [`Rows::count`] does not count the
    /// rows.
    ///
    /// ```
    /// use tidegate_conformance::{Rows, Suite};
    /// use tidegate_core::{MemoryLimiter, Millis};
    ///
    /// struct Stored<'a>(&'a MemoryLimiter);
    ///
    /// impl Rows for Stored<'_> {
    ///     async fn count(&self) -> Result<u64, String> {
    ///         Ok(self.0.len() as u64)
    ///     }
    ///     async fn pass(&self, _: Millis) -> Result<(), String> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), String> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    /// # runtime.block_on(async {
    /// let limiter = MemoryLimiter::with_shards(1);
    /// Suite::check_expiry(&limiter, &Stored(&limiter)).await
    /// # })
    /// # }
    /// ```
    pub async fn check_expiry(limiter: &impl Limiter, rows: &impl Rows) -> Result<(), String> {
        let policies = policies(limiter).map_err(|error| error.to_string())?;
        let before = rows.count().await?;
        for (nth, policy) in (0..KEYS).zip(policies.iter().cycle()) {
            check(limiter, policy, nth, START).await?;
        }
        let stored = rows.count().await?.saturating_sub(before);
        if stored < KEYS {
            return Err(format!("{KEYS} keys have {stored} rows: count every row, or admit the checks"));
        }
        rows.pass(PASSES).await?;
        for call in 0..CALLS {
            // Each is a second after the one before, so that the key is never denied.
            check(limiter, &policies[0], KEYS, START + PASSES + Millis::from_secs(call)).await?;
        }
        let left = rows.count().await?.saturating_sub(before);
        if left > stored / 10 {
            return Err(format!(
                "{left} of {stored} rows are left of keys that have been unused for {PASSES}; remove a state after its ttl or \
                 `Policy::expires_after`, and an answer after its token's time to live"
            ));
        }
        Ok(())
    }
}

/// A policy for each algorithm that the limiter declares.
fn policies(limiter: &impl Limiter) -> Result<Vec<Policy>, Error> {
    let quotas = [
        Quota::fixed_window(5, WINDOW)?,
        Quota::sliding_window(5, WINDOW)?,
        Quota::sliding_log(5, WINDOW)?,
        Quota::token_bucket(5, 5, WINDOW)?,
        Quota::leaky_bucket(5, 5, WINDOW)?,
        Quota::concurrency(5, WINDOW)?,
    ];
    let capabilities = limiter.capabilities();
    let mut fitting = Vec::new();
    for quota in quotas {
        let policy = Policy::new("expiry", [quota])?;
        if capabilities.supports_policy(&policy).is_ok() {
            fitting.push(policy);
        }
    }
    match fitting.is_empty() {
        true => Err(Error::new(ErrorKind::Unsupported, "the limiter declares no algorithm that stores a row")),
        false => Ok(fitting),
    }
}

/// A check of a key, with a token if the limiter remembers tokens.
async fn check(limiter: &impl Limiter, policy: &Policy, key: u64, now: UnixMillis) -> Result<(), String> {
    let (key, token) = (Key::new(format!("ip:expiry-{key}")), format!("{}", now.get()));
    let mut check = Check::new(policy, &key, now);
    if limiter.capabilities().idempotency {
        check = check.idempotent(&token, WINDOW);
    }
    let decided = limiter.check(check).await;
    decided.map(drop).map_err(|error| format!("a check of {} failed: {error}", key.as_str()))
}
