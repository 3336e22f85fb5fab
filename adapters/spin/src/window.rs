//! A fixed window on `increment` alone, for stores without a reliable compare-and-swap.
//!
//! Each window has a counter of its own, so a late request counts in its own window and in no other. One more row names the
//! last two windows. The first request of a new window deletes the counter of the older one, then writes that row, then
//! counts. So every counter in use is named, and is deleted in the end. A counter is left behind only if clocks differ by a
//! window at the moment when the window turns.

use tidegate_core::algorithm::WindowState;
use tidegate_core::{
    Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, MAX_CLOCK_SKEW, Policy, PolicyState, QuotaState,
    Refund, UnixMillis,
};

use crate::ballot::MARK;
use crate::bucket::Atomics;
use crate::counter::Counter;
use crate::error;

/// The capabilities of [`SpinWindow`]: one fixed window, and requests of cost 1. Larger costs are not possible, because a
/// counter shows only after an increment whether the cost fits.
pub const CAPABILITIES_WINDOW: Capabilities = Capabilities::EXACT
    .algorithms(&["fixed_window"])
    .max_quotas(1)
    .costs(false)
    .charge_denied(false)
    .refund(false)
    .idempotency(false)
    .round_trips(3);

/// A fixed window that needs `increment` and no compare-and-swap.
///
/// A decision takes two reads, and an increment if there is room. If several requests race for the last unit, the late
/// ones take back what they added. It is exact as long as no request takes longer than a window. A client has at most
/// three rows.
///
/// It works on stores that keep a counter as 8 bytes, such as Spin's SQLite store, and on stores that keep it as decimal
/// digits, such as Spin's Redis store.
#[derive(Clone, Debug)]
pub struct SpinWindow<B> {
    bucket: B,
}

/// The current window, and the one before it. The two are equal if there was none before.
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
        Self { bucket }
    }

    async fn windows(&self, key: &str) -> Result<Option<Windows>, Error> {
        let name = windows_name(key);
        self.bucket.get(&name).await?.map(|value| Windows::of(&name, &value)).transpose()
    }

    /// Returns a window's count. This must precede the first increment: see [`Atomics`].
    async fn counted(&self, counter: &str) -> Result<u64, Error> {
        let Some(value) = self.bucket.get(counter).await? else { return Ok(0) };
        match Counter::read(&value) {
            Some(Counter::Binary(found) | Counter::Decimal(found)) => count(counter, found),
            None => Err(error::no_counter(counter, &value)),
        }
    }

    /// Makes `start` the current window, and deletes the counter of the window before the previous one.
    async fn turn_to(&self, key: &str, start: UnixMillis, was: Option<Windows>) -> Result<(), Error> {
        if let Some(Windows { last, before }) = was
            && last != before
        {
            self.bucket.delete(&counter_name(key, before)).await?;
        }
        let before = was.map_or(start, |was| was.last);
        self.bucket.set(&windows_name(key), &Windows { last: start, before }.bytes()).await
    }

    /// Charges 1 in the window if there is room, and returns what was used before.
    async fn charge(&self, counter: &str, limit: u64) -> Result<u64, Error> {
        let used = self.counted(counter).await?;
        if used >= limit {
            return Ok(used);
        }
        let before = count(counter, self.bucket.increment(counter, 1).await? - 1)?;
        if before >= limit {
            // Other requests were faster. If the increment stayed, it would count against a limit that is raised later.
            self.bucket.increment(counter, -1).await?;
        }
        Ok(before)
    }

    /// Moves a window that a wrong clock began too far ahead back to `start`, with the `used` units that it counted.
    /// Requests that do this at the same time may each add it, so that window may admit less, but never more.
    async fn move_back(&self, key: &str, start: UnixMillis, ahead: Windows, used: u64) -> Result<(), Error> {
        let counter = counter_name(key, start);
        let missing = used.saturating_sub(self.counted(&counter).await?);
        self.bucket.increment(&counter, i64::try_from(missing).unwrap_or(i64::MAX)).await?;
        self.bucket.set(&windows_name(key), &Windows { last: start, before: start }.bytes()).await?;
        for abandoned in [ahead.last, ahead.before] {
            if abandoned != start {
                self.bucket.delete(&counter_name(key, abandoned)).await?;
            }
        }
        Ok(())
    }

    async fn decide(&self, check: Check<'_>, charge: bool) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        let Check { policy, now, .. } = check;
        let (rule, key) = (policy.quotas()[0].rule(), check.key.storage_key(policy));
        let window_of = |at: UnixMillis| UnixMillis::new(at.get() - at.get() % rule.window().get());
        let (own, latest) = (window_of(now), now + MAX_CLOCK_SKEW);
        let windows = self.windows(&key).await?;
        // A request whose clock is behind counts in the window that has begun, as in every store.
        let begun = windows.map_or(own, |windows| windows.last.max(own));
        let start = if begun > latest { window_of(latest) } else { begun };
        let used = match windows {
            _ if !charge => self.counted(&counter_name(&key, begun)).await?,
            Some(ahead) if begun > latest => {
                let used = self.counted(&counter_name(&key, begun)).await?;
                self.move_back(&key, start, ahead, used).await?;
                self.charge(&counter_name(&key, start), rule.limit()).await?
            }
            _ => {
                if windows.is_none_or(|windows| windows.last < start) {
                    self.turn_to(&key, start, windows).await?;
                }
                self.charge(&counter_name(&key, start), rule.limit()).await?
            }
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
        Err(Error::new(ErrorKind::Unsupported, "SpinWindow cannot refund: a fixed window on increments only counts up"))
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
