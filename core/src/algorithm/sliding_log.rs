use alloc::format;
use alloc::vec::Vec;

use crate::algorithm::{Algorithm, Inspect, Standing, Step, checked_alone};
use crate::{Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// Sliding log: keeps every admitted request for one window, and is therefore exact in every interval.
///
/// A cost fits if the units charged in `(now - window, now]` plus the cost are at most `limit`. The state grows with the
/// limit, by 12 bytes for each instant, so the limit may be at most [`SlidingLog::MAX_LIMIT`].
///
/// **At most**: `(floor(interval_ms / window_ms) + 1) * limit` in any interval: `limit` if it is shorter than a window.
/// (<https://www.figma.com/blog/an-alternative-approach-to-rate-limiting/>, "sliding window log".)
///
/// **Debt**: ends one window after it was charged.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, SlidingLog, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let log = SlidingLog::new(2, Millis::from_secs(60))?;
/// let mut state = Default::default();
/// log.step(&mut state, UnixMillis::new(59_000), 1);
/// log.step(&mut state, UnixMillis::new(61_000), 1);
/// // There is room again when the first request is one window old, not at a window boundary.
/// let now = UnixMillis::new(62_000);
/// assert_eq!(log.ask(&state, now, 1), Step::Denied { retry_after: Millis::new(57_000) });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    limit: u64,
    window_ms: u64,
}

/// The units charged at one instant. A sliding log's state is these, oldest first, one for each instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogEntry {
    /// The instant.
    pub at: UnixMillis,
    /// The units.
    pub units: u64,
}

impl SlidingLog {
    /// The largest limit: a log's state is as long as its limit.
    pub const MAX_LIMIT: u64 = 1_000;

    /// The most units of a log, with its debt.
    pub(crate) const MAX_UNITS: u64 = u32::MAX as u64;

    /// Admits `limit` in any `window`, exactly.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, a limit above [`SlidingLog::MAX_LIMIT`], or a window above
    /// [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn new(limit: u64, window: Millis) -> Result<Self, Error> {
        checked_alone("limit", limit, "window_ms", window)?;
        if limit > Self::MAX_LIMIT {
            return Err(Error::invalid(format!(
                "limit: {limit} is out of range for a sliding log, which remembers every request; write at most {} \
                 or take a sliding window",
                Self::MAX_LIMIT
            )));
        }
        Ok(Self { limit, window_ms: window.get() })
    }

    /// The length of the window.
    #[must_use]
    pub const fn window(&self) -> Millis {
        Millis::new(self.window_ms)
    }

    /// The instant at which a request at `now` is charged: never before the newest entry.
    fn instant(state: &[LogEntry], now: UnixMillis) -> UnixMillis {
        state.last().map_or(now, |newest| newest.at.max(now))
    }

    /// The entries in the window that ends at `instant`.
    fn in_sight<'a>(&self, state: &'a [LogEntry], instant: UnixMillis) -> &'a [LogEntry] {
        let gone = state.partition_point(|entry| instant.since(entry.at) >= self.window());
        &state[gone..]
    }

    fn expires_after(&self, entry: &LogEntry, now: UnixMillis) -> Millis {
        Millis::new(entry.at.get() + self.window_ms - now.get())
    }
}

fn units(entries: &[LogEntry]) -> u64 {
    entries.iter().map(|entry| entry.units).sum()
}

impl Algorithm for SlidingLog {
    type State = Vec<LogEntry>;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        (last.since(first).get() / self.window_ms + 1).saturating_mul(self.limit)
    }

    fn ask(&self, state: &Vec<LogEntry>, now: UnixMillis, cost: u64) -> Step {
        if cost > self.limit {
            return Step::Never;
        }
        let entries = self.in_sight(state, Self::instant(state, now));
        let mut used = units(entries);
        if used + cost <= self.limit {
            return Step::Admitted { delay: Millis::ZERO };
        }
        let mut retry_after = Millis::ZERO;
        for entry in entries {
            if used + cost <= self.limit {
                break;
            }
            used -= entry.units;
            retry_after = self.expires_after(entry, now);
        }
        Step::Denied { retry_after }
    }

    fn charge(&self, state: &mut Vec<LogEntry>, now: UnixMillis, cost: u64) {
        if cost == 0 {
            return;
        }
        let instant = Self::instant(state, now);
        let gone = state.len() - self.in_sight(state, instant).len();
        state.drain(..gone);
        let before = units(state);
        match state.last_mut() {
            Some(newest) if newest.at == instant => newest.units = newest.units.saturating_add(cost),
            _ => state.push(LogEntry { at: instant, units: cost }),
        }
        // Only a charged denial exceeds the limit. It replaces the oldest entries.
        let most = self.limit.max(before);
        let mut excess = before.saturating_add(cost).saturating_sub(most);
        let mut dropped = 0;
        for entry in &mut *state {
            let part = entry.units.min(excess);
            entry.units -= part;
            excess -= part;
            dropped += usize::from(entry.units == 0);
        }
        state.drain(..dropped);
    }

    fn refund(&self, state: &mut Vec<LogEntry>, charged_at: UnixMillis, _now: UnixMillis, cost: u64) {
        if let Some(index) = state.iter().position(|entry| entry.at == charged_at) {
            let entry = &mut state[index];
            entry.units = entry.units.saturating_sub(cost);
            if entry.units == 0 {
                state.remove(index);
            }
        }
    }

    fn overdraw(&self, state: &mut Vec<LogEntry>, now: UnixMillis, cost: u64) {
        let instant = Self::instant(state, now);
        let gone = state.len() - self.in_sight(state, instant).len();
        state.drain(..gone);
        let cost = cost.min(Self::MAX_UNITS.saturating_sub(units(state)));
        match state.last_mut() {
            _ if cost == 0 => {}
            Some(newest) if newest.at == instant => newest.units += cost,
            _ => state.push(LogEntry { at: instant, units: cost }),
        }
    }

    fn move_back(&self, state: &mut Vec<LogEntry>, now: UnixMillis) {
        let latest = now + MAX_CLOCK_SKEW;
        let after = state.partition_point(|entry| entry.at < latest);
        let moved = units(&state[after..]);
        if moved > 0 {
            state.truncate(after);
            state.push(LogEntry { at: latest, units: moved });
        }
    }
}

impl Inspect for SlidingLog {
    fn standing(&self, state: &Vec<LogEntry>, now: UnixMillis) -> Standing {
        let entries = self.in_sight(state, Self::instant(state, now));
        Standing {
            limit: self.limit,
            room: self.limit.saturating_sub(units(entries)),
            unit: 1,
            used: entries.last().map_or(0, |newest| self.expires_after(newest, now).get()),
            drain: 1,
            lag: Millis::ZERO,
        }
    }
}
