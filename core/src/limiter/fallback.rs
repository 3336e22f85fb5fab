//! A bounded replacement for a store that does not answer.

mod backup_charges;
mod breaker;
mod health;

use std::sync::atomic::{AtomicBool, Ordering};

use self::backup_charges::BackupCharges;
use self::breaker::Breaker;
pub use self::health::Health;
use self::health::Observer;
#[cfg(feature = "metrics")]
pub(crate) use self::health::stores_down;
use super::{Accuracy, Block, Capabilities, Check, Drift, Limiter, MaybeSend, MaybeSync, Operation, Reply, Settle};
use crate::{Decision, Error, ErrorKind, MemoryLimiter, Millis, Origin, Policy, Status, UnixMillis};

/// Decides in place of a store that does not answer. Each process then admits a share of every limit from its own memory, or by
/// [another limiter](Self::backup), and for a limited time.
///
/// A check asks the store first. After a [failure of the store](ErrorKind::is_store_failure), it is decided here, by the same
/// policy with `percent` of each limit and rate, and at least 1 of each limit. The decision's [origin](Decision::origin) is then
/// [`Origin::Fallback`], and the response has the field `x-tidegate-origin: fallback`, with the limits of the share. A request that
/// costs more than the share, and not more than the limit, is denied until the store is asked again. Once the store has been down
/// for [longer than allowed](Self::at_most), every check fails with the store's error.
///
/// After [some failures](Self::breaker) in a row, checks do not ask the store for a while. Then one check asks it again. If it
/// answers, all do. The store's own deadline bounds how long each of these checks waits, so configure one.
/// [`observer`](Self::observer) is told when that begins and when it ends.
///
/// # Bound
/// While `n` processes decide, they admit in any interval at most
///
/// > admitted <= M + max(percent x M / 100, M / L) x n
///
/// where L is the limit, and M the most that the store admits in the interval: L in one window, 2 x L in two. The share is
/// counted in memory of its own that outlives outages, so repeated ones do not add up. [`Capabilities::accuracy`] states this, with
/// M and the store's own drift.
///
/// # Settlements
/// A check that the store does not answer may have been charged there, and is then charged here, too. So a settlement goes wherever
/// a charge may have been made. While the store does not answer, that of a charge which it may have fails with the store's error:
/// retry it, or the charge lasts as long as any other. A settlement is applied once, however often it is retried.
///
/// ```
/// use tidegate_core::{Check, Fallback, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// # let store = MemoryLimiter::new();
/// // In an outage, each process admits a tenth of every limit, for 5 minutes.
/// let limiter = Fallback::new(store, 10)?.at_most(Millis::from_secs(300));
/// let accuracy = limiter.capabilities().accuracy.to_string();
/// assert_eq!(accuracy, "approximate: 0 <= admitted <= limit + max(10 % x limit, 1) x locations");
/// # let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// # let key = Key::new("ip:192.0.2.1");
/// assert!(limiter.check(Check::new(&policy, &key, UnixMillis::new(0))).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Fallback<L, B = MemoryLimiter> {
    store: L,
    backup: B,
    percent: u8,
    breaker: Breaker,
    backup_charges: BackupCharges,
    observer: Observer,
    /// Whether `backup` has decided anything.
    is_used: AtomicBool,
}

/// The default of [`Fallback::at_most`].
pub(crate) const AT_MOST: Millis = Millis::from_secs(300);

impl<L: Limiter> Fallback<L> {
    /// The default of [`Fallback::at_most`]: five minutes.
    pub const DEFAULT_AT_MOST: Millis = AT_MOST;

    /// A limiter that admits `percent` of each limit while `store` does not answer.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a percentage of 0 or above 100.
    pub fn new(store: L, percent: u8) -> Result<Self, Error> {
        Self::by(store, percent, MemoryLimiter::new())
    }
}

impl<L: Limiter, B: Limiter> Fallback<L, B> {
    /// One with another limiter that decides in an outage; see [`Fallback::backup`].
    pub(crate) fn by(store: L, percent: u8, backup: B) -> Result<Self, Error> {
        if !(1..=100).contains(&percent) {
            return Err(Error::new(
                ErrorKind::Invalid,
                alloc::format!("percent: {percent} is out of range; write 1 to 100"),
            ));
        }
        let accuracy = backup.capabilities().accuracy;
        if !accuracy.is_within_limit_of_each_location() {
            let message =
                alloc::format!("backup: its accuracy is \"{accuracy}\"; use one of at most the limit x locations");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let (breaker, backup_charges, observer) =
            (Breaker::new(AT_MOST), BackupCharges::default(), Observer::default());
        Ok(Self { store, backup, percent, breaker, backup_charges, observer, is_used: AtomicBool::new(false) })
    }

    /// Sets how long after its first failure a store is replaced. Checks then fail with the store's error, until it answers
    /// again.
    #[must_use]
    pub const fn at_most(mut self, span: Millis) -> Self {
        self.breaker.at_most = span;
        self
    }

    /// Sets after how many failures in a row checks do not ask the store, and for how long. The defaults are 3 failures and 1 s.
    #[must_use]
    pub fn breaker(mut self, failures: u32, pause: Millis) -> Self {
        self.breaker.failures_max = failures.max(1);
        self.breaker.pause = pause;
        self
    }

    /// Sets the limiter that decides in an outage: a memory of another [size](MemoryLimiter::max_keys), or another store. A
    /// check that it does not support fails with the store's error.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a limiter that may admit more than the limit at each location, because the
    /// bound would not hold.
    pub fn backup<O: Limiter>(self, backup: O) -> Result<Fallback<L, O>, Error> {
        let Self { store, percent, breaker, backup_charges, observer, .. } = self;
        Ok(Fallback { breaker, backup_charges, observer, ..Fallback::by(store, percent, backup)? })
    }

    /// Names the store in the log and the metric. The default is `default`.
    #[must_use]
    pub fn named(mut self, store: &str) -> Self {
        self.observer = self.observer.named(store);
        self
    }

    /// Tells nobody of the store's health, because the gate does.
    #[cfg(feature = "gate")]
    pub(crate) fn unobserved(mut self) -> Self {
        self.observer = Observer::none();
        self
    }

    /// Calls a function when the store has failed too often to be asked, and when it answers again.
    ///
    /// With the feature `tracing`, these are logged besides: one event at level `WARN`, and one at `INFO` that says how long the
    /// store was down and how many decisions were made without it. With the feature `metrics`, the gauge `tidegate_stores_down`
    /// has the number of stores that are down, by their [name](Self::named) in the label `store`.
    ///
    /// ```
    /// use tidegate_core::{Fallback, Health, MemoryLimiter};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # let store = MemoryLimiter::new();
    /// let limiter = Fallback::new(store, 10)?.observer(|health| match health {
    ///     Health::Down { error } => println!("the store is down: {error}"),
    ///     Health::Up { after, decisions } => println!("back after {after:?}, {decisions} decisions without it"),
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(Health) + MaybeSend + MaybeSync + 'static) -> Self {
        self.observer = self.observer.also(observer);
        self
    }

    /// The store.
    pub const fn store(&self) -> &L {
        &self.store
    }

    /// How long the store has been down, by the clock of `now`. `None` if it answered last.
    pub fn down_for(&self, now: UnixMillis) -> Option<Millis> {
        self.breaker.down_for(now)
    }

    /// Asks the store, if the breaker lets it.
    async fn ask(&self, operation: Operation<'_>) -> Attempt {
        let now = operation.now();
        if !self.breaker.may_ask(now) {
            let message = "the store has failed repeatedly, and is not asked at the moment";
            return Attempt::Spared(Error::new(ErrorKind::Unavailable, message));
        }
        if let Operation::Check(check) = &operation {
            self.backup_charges.forget(check);
        }
        let answered = self.store.apply(operation).await;
        let change = match &answered {
            // These say nothing about the store, and neither does a borrower that decides by itself.
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported) => None,
            Ok(Reply::Decided(decision)) if decision.origin() == Origin::Lease => None,
            Err(error) if error.kind().is_store_failure() => self.breaker.failed(now, error.kind()),
            _ => self.breaker.answered(now),
        };
        if let Some(health) = change {
            self.observer.tell(health);
        }
        match answered {
            Err(error) if error.kind().is_store_failure() => Attempt::Failed(error),
            answered => Attempt::Answered(answered),
        }
    }

    /// The part of a policy that is admitted without the store. `None` if it has none, or the outage is too long.
    fn share(&self, policy: &Policy, now: UnixMillis) -> Option<Policy> {
        let share = if self.breaker.may_replace(now) { policy.share(u64::from(self.percent), 100, 1) } else { None };
        self.is_used.fetch_or(share.is_some(), Ordering::Relaxed);
        share
    }

    /// Decides in place of the store, which has failed or was spared. It lends nothing. A refund that does not reach the store is
    /// lost: the charge then lasts as long as any other.
    async fn replace(&self, operation: Operation<'_>, error: Error, is_spared: bool) -> Result<Reply, Error> {
        let (Operation::Check(check) | Operation::Lend(check, _) | Operation::Peek(check)) = operation else {
            return Err(error);
        };
        let Some(share) = self.share(check.policy, check.now) else { return Err(error) };
        let shared = Check { policy: &share, lease: None, ..check };
        let is_peek = matches!(operation, Operation::Peek(_));
        let shared = if is_peek { Operation::Peek(shared) } else { Operation::Check(shared) };
        if shared.verify(&self.backup.capabilities()).is_err() {
            return Err(error);
        }
        let decided = self.backup.apply(shared).await?.decision()?;
        if !is_peek {
            self.breaker.replaced();
            // A replay may be of a charge that the store has, too.
            if is_spared && decided.is_allowed() && !decided.is_replay() {
                self.backup_charges.add(&check);
            }
        }
        Ok(operation.reply(self.alone(&check, decided)))
    }

    /// The decision of `backup` on a check. A cost that only the store can admit is denied until the store is asked again.
    fn alone(&self, check: &Check<'_>, decided: Decision) -> Decision {
        let decided = decided.with_origin(Origin::Fallback);
        if decided.status() == Status::NeverAdmissible && check.policy.can_hold(check.cost) {
            return decided.denied_for(self.breaker.asks_after(check.now).max(Millis::new(1)));
        }
        decided
    }

    /// The same part, if anything may have been charged by it.
    fn used_share(&self, policy: &Policy) -> Option<Policy> {
        if self.is_used.load(Ordering::Relaxed) { policy.share(u64::from(self.percent), 100, 1) } else { None }
    }
}

/// What comes of asking a store.
enum Attempt {
    Answered(Result<Reply, Error>),
    /// It was asked and failed, so nobody knows what it has done.
    Failed(Error),
    /// It was not asked, because it has failed before.
    Spared(Error),
}

impl<L: Limiter, B: Limiter> Fallback<L, B> {
    /// Settles the charge wherever it may have been made: here, in the store, or in both.
    async fn settle_both(&self, settle: Settle<'_>) -> Result<Reply, Error> {
        let here = match self.used_share(settle.policy) {
            Some(share) => match self.backup.apply(Operation::Settle(Settle { policy: &share, ..settle })).await {
                Err(error) if matches!(error.kind(), ErrorKind::UnknownCharge | ErrorKind::Unsupported) => None,
                settled => Some(settled?.decision()?.with_origin(Origin::Fallback).into()),
            },
            None => None,
        };
        match (self.ask(Operation::Settle(settle)).await, here) {
            (Attempt::Answered(Err(error)), here) if error.kind() == ErrorKind::UnknownCharge => here.ok_or(error),
            (Attempt::Answered(answer), _) => answer,
            (_, Some(here)) if self.backup_charges.has(&settle) => Ok(here),
            (Attempt::Failed(error) | Attempt::Spared(error), _) => Err(error),
        }
    }

    /// Blocks the keys in the store, and also here if that is possible, so that an outage does not end the block in this process. If
    /// the store fails, so does the block: repeat it.
    async fn block_both(&self, block: Block<'_>) -> Result<Reply, Error> {
        let failed = match self.ask(Operation::Block(block)).await {
            Attempt::Answered(Err(error)) => return Err(error),
            Attempt::Answered(Ok(_)) => None,
            Attempt::Failed(error) | Attempt::Spared(error) => Some(error),
        };
        if self.backup.capabilities().block
            && let Some(share) = block.policy.share(u64::from(self.percent), 100, 1)
        {
            self.is_used.store(true, Ordering::Relaxed);
            self.backup.apply(Operation::Block(Block { policy: &share, ..block })).await?;
        }
        failed.map_or(Ok(Reply::Done), Err)
    }
}

impl<L: Limiter, B: Limiter> Limiter for Fallback<L, B> {
    fn capabilities(&self) -> Capabilities {
        let can = self.store.capabilities();
        can.accuracy(can.accuracy.with_fallback(self.percent))
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Settle(settle) => self.settle_both(settle).await,
            Operation::Block(block) => self.block_both(block).await,
            Operation::Reset { policy, .. } => {
                if let Some(share) = self.used_share(policy).filter(|_| self.backup.capabilities().reset) {
                    self.backup.apply(operation.with_policy(&share)).await?;
                }
                self.store.apply(operation).await
            }
            _ => match self.ask(operation).await {
                Attempt::Answered(answer) => answer,
                Attempt::Failed(error) => self.replace(operation, error, false).await,
                Attempt::Spared(error) => self.replace(operation, error, true).await,
            },
        }
    }
}

impl Accuracy {
    /// The accuracy of a limiter with this one as its store: see [`Fallback`].
    ///
    /// ```
    /// use tidegate_core::Accuracy;
    /// let accuracy = Accuracy::Exact.with_fallback(10);
    /// assert_eq!(accuracy.to_string(), "approximate: 0 <= admitted <= limit + max(10 % x limit, 1) x locations");
    /// ```
    #[must_use]
    pub fn with_fallback(self, percent: u8) -> Self {
        match self.without_floor() {
            Self::Approximate(drift) => Self::Approximate(Drift { fallback_percent: percent, ..drift }),
            other => other,
        }
    }
}
