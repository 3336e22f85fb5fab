use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step, checked_alone};
use crate::{Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// Fixed window: at most `limit` in each window. Windows are aligned to the Unix epoch.
///
/// `start = now - now % window`. A cost fits if `used + cost <= limit`. A new window starts with `used = 0`.
///
/// **At most**: `windows * limit` in an interval that touches that many windows. An interval as long as a window may touch
/// two of them and so admit `2 * limit`. If that is too much, use a [`SlidingWindow`](crate::algorithm::SlidingWindow).
/// (<https://redis.io/docs/latest/commands/incr/>, "Pattern: rate limiter 1".)
///
/// **Debt**: ends with the window. To have it repaid in full, use a [`TokenBucket`](crate::algorithm::TokenBucket).
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, FixedWindow, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let window = FixedWindow::new(100, Millis::from_secs(60))?;
/// let mut state = Default::default();
/// window.step(&mut state, UnixMillis::new(59_999), 100);
/// assert_eq!(window.ask(&state, UnixMillis::new(59_999), 1), Step::Denied { retry_after: Millis::new(1) });
/// assert_eq!(window.ask(&state, UnixMillis::new(60_000), 100), Step::Admitted { delay: Millis::ZERO });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u64,
    window_ms: u64,
}

/// The state of a fixed window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WindowState {
    /// The start of the window.
    pub start: UnixMillis,
    /// The units charged in it.
    pub used: u64,
}

impl FixedWindow {
    /// Admits `limit` in each `window`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn new(limit: u64, window: Millis) -> Result<Self, Error> {
        checked_alone("limit", limit, "window_ms", window)?;
        Ok(Self { limit, window_ms: window.get() })
    }

    /// The length of a window.
    #[must_use]
    pub const fn window(&self) -> Millis {
        Millis::new(self.window_ms)
    }

    /// The state at `now`.
    fn current(&self, state: &WindowState, now: UnixMillis) -> WindowState {
        let start = window_start(now, self.window_ms);
        if start > state.start { WindowState { start, used: 0 } } else { *state }
    }

    fn ends_after(&self, state: &WindowState, now: UnixMillis) -> Millis {
        Millis::new(state.start.get() + self.window_ms - now.get())
    }
}

pub(super) fn window_start(now: UnixMillis, window_ms: u64) -> UnixMillis {
    UnixMillis::new(now.get() - now.get() % window_ms)
}

/// The number of windows that an interval touches, including its ends.
pub(super) const fn windows_touched(first: UnixMillis, last: UnixMillis, window_ms: u64) -> u64 {
    (last.get() / window_ms).saturating_sub(first.get() / window_ms) + 1
}

impl Algorithm for FixedWindow {
    type State = WindowState;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        windows_touched(first, last, self.window_ms).saturating_mul(self.limit)
    }

    fn ask(&self, state: &WindowState, now: UnixMillis, cost: u64) -> Step {
        if cost > self.limit {
            return Step::Never;
        }
        let state = self.current(state, now);
        if state.used + cost <= self.limit {
            Step::Admitted { delay: Millis::ZERO }
        } else {
            Step::Denied { retry_after: self.ends_after(&state, now) }
        }
    }

    fn charge(&self, state: &mut WindowState, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        state.used = state.used.saturating_add(cost).min(self.limit).max(state.used);
    }

    fn refund(&self, state: &mut WindowState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        if window_start(charged_at, self.window_ms) == state.start {
            state.used = state.used.saturating_sub(cost);
        }
    }

    fn overdraw(&self, state: &mut WindowState, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        state.used = state.used.saturating_add(cost).min(MAX_UNITS).max(state.used);
    }

    #[inline]
    fn move_back(&self, state: &mut WindowState, now: UnixMillis) {
        let latest = now + MAX_CLOCK_SKEW;
        if state.start > latest {
            state.start = window_start(latest, self.window_ms);
        }
    }
}

impl Inspect for FixedWindow {
    fn standing(&self, state: &WindowState, now: UnixMillis) -> Standing {
        let state = self.current(state, now);
        Standing {
            limit: self.limit,
            room: self.limit.saturating_sub(state.used),
            unit: 1,
            used: if state.used == 0 { 0 } else { self.ends_after(&state, now).get() },
            drain: 1,
            lag: Millis::ZERO,
        }
    }
}
