//! A fixed window by `increment` alone, for stores whose compare-and-swap is none.
//!
//! Each window has a counter of its own, under a name that no other window shares, so a late request counts where it belongs
//! and nowhere else. One row more names the last two windows. Whoever comes to a new window removes the counter before
//! the last two, then writes that row, then counts: a counter that anyone adds to is named, and in the end removed. One is left
//! behind only where clocks differ by a window while it turns.

use tidegate_core::algorithm::WindowState;
use tidegate_core::{
    Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, Policy, PolicyState, QuotaState, Refund, UnixMillis,
};

use crate::ballot::MARK;
use crate::bucket::Atomics;
use crate::error;

/// What [`SpinWindow`] can do: one fixed window, and requests of cost 1. Which of several costs fit what is left is no
/// question that a counter answers before it has counted.
pub const CAPABILITIES_WINDOW: Capabilities = Capabilities {
    algorithms: &["fixed_window"],
    max_quotas: 1,
    costs: false,
    charge_denied: false,
    refund: false,
    idempotency: false,
    round_trips: 3,
    ..Capabilities::EXACT
};

/// How a store writes down what it counts: it is read before it is added to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counters {
    /// As 8 bytes, little-endian: the SQLite store, and whatever else does not say otherwise.
    #[default]
    Binary,
    /// As decimal digits: the Redis store.
    Decimal,
}

impl Counters {
    fn read(self, value: &[u8]) -> Option<i64> {
        match self {
            Self::Binary => value.try_into().ok().map(i64::from_le_bytes),
            Self::Decimal => str::from_utf8(value).ok()?.parse().ok(),
        }
    }
}

/// A fixed window that needs `increment` and no compare-and-swap.
///
/// A decision is two reads, and an increment if there is room. Where several race for the last of it, those that come too late
/// take back what they added. Exact as long as no request is under way for longer than a window. A client has at most three
/// rows.
#[derive(Clone, Debug)]
pub struct SpinWindow<B> {
    bucket: B,
    counters: Counters,
}

/// The window that is counted in, and the one before it: the same where there was none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Windows {
    last: UnixMillis,
    before: UnixMillis,
}

impl Windows {
    fn of(name: &str, value: &[u8]) -> Result<Self, Error> {
        let halves = value.split_first_chunk::<8>().and_then(|(last, rest)| Some((*last, rest.try_into().ok()?)));
        let (last, before) = halves.ok_or_else(|| error::no_windows(name, value))?;
        let [last, before] = [last, before].map(u64::from_le_bytes);
        if last.max(before) > UnixMillis::MAX.get() {
            return Err(error::no_windows(name, value));
        }
        Ok(Self { last: UnixMillis::new(last), before: UnixMillis::new(before) })
    }

    fn bytes(self) -> Vec<u8> {
        [self.last, self.before].map(|start| start.get().to_le_bytes()).concat()
    }
}

impl<B: Atomics> SpinWindow<B> {
    /// A limiter over `bucket`.
    pub const fn new(bucket: B) -> Self {
        Self { bucket, counters: Counters::Binary }
    }

    /// The same limiter over a store that counts in another form.
    #[must_use]
    pub const fn counters(mut self, counters: Counters) -> Self {
        self.counters = counters;
        self
    }

    async fn windows(&self, key: &str) -> Result<Option<Windows>, Error> {
        let name = windows_name(key);
        self.bucket.get(&name).await?.map(|value| Windows::of(&name, &value)).transpose()
    }

    /// What was counted in a window. Looked at before anything is added: see [`Atomics`].
    async fn counted(&self, counter: &str) -> Result<u64, Error> {
        let Some(value) = self.bucket.get(counter).await? else { return Ok(0) };
        let found = self.counters.read(&value).ok_or_else(|| error::no_counter(counter, &value))?;
        count(counter, found)
    }

    /// Makes `start` the last window, and forgets what was before the one that was it.
    async fn turn_to(&self, key: &str, start: UnixMillis, was: Option<Windows>) -> Result<(), Error> {
        if let Some(Windows { last, before }) = was
            && last != before
        {
            self.bucket.delete(&counter_name(key, before)).await?;
        }
        let before = was.map_or(start, |was| was.last);
        self.bucket.set(&windows_name(key), &Windows { last: start, before }.bytes()).await
    }

    /// Charges one in the window, if there is room: what had been used before.
    async fn charge(&self, counter: &str, limit: u64) -> Result<u64, Error> {
        let used = self.counted(counter).await?;
        if used >= limit {
            return Ok(used);
        }
        let before = count(counter, self.bucket.increment(counter, 1).await? - 1)?;
        if before >= limit {
            // Others were faster. What is added beyond the limit would weigh on a limit that is raised.
            self.bucket.increment(counter, -1).await?;
        }
        Ok(before)
    }

    async fn decide(&self, check: Check<'_>, charge: bool) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        let Check { policy, now, .. } = check;
        let (rule, key) = (policy.quotas()[0].rule(), check.key.storage_key(policy));
        let own = UnixMillis::new(now.get() - now.get() % rule.window().get());
        let windows = self.windows(&key).await?;
        // Of a clock that is behind, as everywhere: it is judged by the window that was begun.
        let start = windows.map_or(own, |windows| windows.last.max(own));
        let counter = counter_name(&key, start);
        let used = if charge {
            if windows.is_none_or(|windows| windows.last < start) {
                self.turn_to(&key, start, windows).await?;
            }
            self.charge(&counter, rule.limit()).await?
        } else {
            self.counted(&counter).await?
        };
        let mut state = PolicyState::from_parts(vec![QuotaState::Window(WindowState { start, used })]);
        policy.verify(&state, now)?;
        Ok(if charge { policy.decide(&mut state, now, 1) } else { policy.peek(&state, now, 1) })
    }
}

impl<B: Atomics> Limiter for SpinWindow<B> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES_WINDOW
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.decide(check, true).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.decide(check, false).await
    }

    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unsupported, "a window that only counts up cannot do refund"))
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let key = key.storage_key(policy);
        let Some(Windows { last, before }) = self.windows(&key).await? else { return Ok(()) };
        for row in [counter_name(&key, before), counter_name(&key, last), windows_name(&key)] {
            self.bucket.delete(&row).await?;
        }
        Ok(())
    }
}

fn windows_name(key: &str) -> String {
    format!("{key}{MARK}w")
}

fn counter_name(key: &str, start: UnixMillis) -> String {
    format!("{key}{MARK}w{}", start.get())
}

fn count(counter: &str, found: i64) -> Result<u64, Error> {
    u64::try_from(found).map_err(|_| error::no_count(counter, found))
}
