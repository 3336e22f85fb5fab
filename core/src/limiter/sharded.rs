//! A hot key, spread over several rows of a store.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Accuracy, Capabilities, Check, Dimensions, Drift, Floor, Limiter, Operation, Reply};
use crate::{Error, Key, Keys, Policy};

/// Spreads a key over several rows, each with a part of every limit, for a key that is too hot for one: a global limit in
/// Durable Objects, of which one serves some 1,000 requests a second.
///
/// Checks take the rows in turn. The parts are rounded down, so
///
/// > admitted <= limit
///
/// at any concurrency. Some units may be in rows whose turn it is not. So a denial may come early: with `n` rows and requests
/// of the same cost from `p` processes, as many are admitted as by an exact limiter with a limit of `limit - 2 x n x p`.
///
/// A limit below the number of rows has no part, and is [`Invalid`](crate::ErrorKind::Invalid). A decision has no counts, because the
/// other rows are unknown. Its `retry_after` is that of its row. There are no peeks, refunds, blocks, balances or tokens: the rows do not know each
/// other's charges.
///
/// ```
/// use std::num::NonZero;
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Sharded, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let limiter = Sharded::new(MemoryLimiter::new(), NonZero::new(4).unwrap());
/// let policy = Policy::new("all", [Quota::fixed_window(100, Millis::from_secs(1))?])?;
/// let key = Key::new("everyone");
/// let mut admitted = 0;
/// for _ in 0..1_000 {
///     admitted += u32::from(limiter.check(Check::new(&policy, &key, UnixMillis::new(0))).await?.is_allowed());
/// }
/// assert_eq!(admitted, 100);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Sharded<L> {
    limiter: L,
    rows: NonZero<u16>,
    next: AtomicU64,
}

impl<L: Limiter> Sharded<L> {
    /// A limiter that spreads each key over `rows` rows.
    pub const fn new(limiter: L, rows: NonZero<u16>) -> Self {
        Self { limiter, rows, next: AtomicU64::new(0) }
    }

    fn key(&self, key: &Key, row: u64) -> Key {
        Key::new([key.as_str(), "~", &alloc::format!("{row}")].concat())
    }

    fn part(&self, policy: &Policy) -> Result<Policy, Error> {
        policy.share(1, u64::from(self.rows.get()), 0).ok_or_else(|| {
            Error::invalid(alloc::format!(
                "policy: a limit is below the number of rows, {}; write a higher one",
                self.rows
            ))
        })
    }
}

impl<L: Limiter> Limiter for Sharded<L> {
    fn capabilities(&self) -> Capabilities {
        let can = self.limiter.capabilities();
        let floor = Floor { held: 2 * u64::from(self.rows.get()), within: None };
        let accuracy = match can.accuracy {
            Accuracy::Exact => Accuracy::Approximate(Drift { floor, ..Drift::WITHIN_LIMIT }),
            other => other.without_floor(),
        };
        let can = can.accuracy(accuracy).dimensions(Dimensions::One);
        can.peek(false)
            .refund(false)
            .block(false)
            .grant(false)
            .idempotency(false)
            .lends(false)
            .borrows(false)
            .algorithms(Capabilities::COUNTING)
    }

    /// A reset is of all rows.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.capabilities())?;
        let (policy, rows) = (operation.policy(), u64::from(self.rows.get()));
        let (part, key) = (self.part(policy)?, operation.keys().single(policy)?);
        match operation {
            Operation::Check(check) => {
                let key = self.key(key, self.next.fetch_add(1, Ordering::Relaxed) % rows);
                let check = Operation::Check(Check { policy: &part, keys: Keys::from(&key), ..check });
                Ok(self.limiter.apply(check).await?.decision()?.without_counts(policy).into())
            }
            Operation::Reset { .. } => {
                for row in 0..rows {
                    let keys = self.key(key, row);
                    self.limiter.apply(Operation::Reset { policy: &part, keys: Keys::from(&keys) }).await?;
                }
                Ok(Reply::Done)
            }
            _ => Err(operation.unsupported()),
        }
    }
}
