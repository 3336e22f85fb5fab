use crate::algorithm::fixed_window::{window_start, windows_touched};
use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step, checked_alone};
use crate::{Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// Sliding window with two counters: the previous window is weighted by the share of it that the sliding window overlaps.
///
/// A cost fits if `previous * (window - elapsed) <= (limit - current - cost) * window`, where `elapsed` is the time since the
/// current window began. This is the published estimate `previous * (1 - elapsed / window) + current`, multiplied by the window
/// so that all terms are integers. The products are compared exactly, however large they are.
/// (<https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>: 0.003 % of 400 million requests decided
/// wrongly.)
///
/// **At most**: `windows * limit - floor(windows / 2)` in an interval that touches that many windows: `limit` in a window
/// aligned to the epoch, and `2 * limit - 1` in two consecutive ones. The estimate assumes that the requests of the previous
/// window were spread evenly. If that is too much, use a [`SlidingLog`](crate::algorithm::SlidingLog).
///
/// **Debt**: weighs in the next window, like all that was charged, and ends with it.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, SlidingState, SlidingWindow, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// // 42 in the previous minute, 18 in this one, 15 s into it: 42 * 45/60 + 18 = 49.5.
/// let window = SlidingWindow::new(50, Millis::from_secs(60))?;
/// let state = SlidingState { start: UnixMillis::new(60_000), previous: 42, current: 18 };
/// let now = UnixMillis::new(75_000);
/// // One more would make it 50.5. Half a request leaves the window 715 ms later.
/// assert_eq!(window.ask(&state, now, 1), Step::Denied { retry_after: Millis::new(715) });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    limit: u64,
    window_ms: u64,
}

/// The state of a sliding window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlidingState {
    /// The start of the current window.
    pub start: UnixMillis,
    /// The units charged in the previous window.
    pub previous: u64,
    /// The units charged in the current window.
    pub current: u64,
}

/// A state at an instant.
struct View {
    state: SlidingState,
    /// The time left in the current window, from the later of the caller's instant and the window's start.
    left_ms: u64,
    /// How far the window's start is ahead of the caller's clock.
    lag: Millis,
}

impl SlidingWindow {
    /// Admits `limit` in any `window`, estimated from two counters.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a limit above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn new(limit: u64, window: Millis) -> Result<Self, Error> {
        checked_alone("limit", limit, "window_ms", window)?;
        Ok(Self { limit, window_ms: window.get() })
    }

    /// The length of the window.
    #[must_use]
    pub const fn window(&self) -> Millis {
        Millis::new(self.window_ms)
    }

    fn view(&self, state: &SlidingState, now: UnixMillis) -> View {
        let start = window_start(now, self.window_ms);
        let state = if start <= state.start {
            *state
        } else if start.since(state.start) == self.window() {
            SlidingState { start, previous: state.current, current: 0 }
        } else {
            SlidingState { start, previous: 0, current: 0 }
        };
        View { left_ms: self.window_ms - now.since(state.start).get(), lag: state.start.since(now), state }
    }

    /// Whether the weight of the previous window leaves room for the cost.
    fn fits(&self, view: &View, cost: u64) -> bool {
        let SlidingState { previous, current, .. } = view.state;
        let room = self.limit.checked_sub(current.saturating_add(cost));
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        room.is_some_and(|room| product(previous, view.left_ms) <= product(room, self.window_ms))
    }

    fn retry_after(&self, view: &View, cost: u64) -> Millis {
        let SlidingState { previous, current, .. } = view.state;
        let wait_ms = match self.limit.checked_sub(current + cost) {
            // The request fits before this window ends, when the weight of the previous one has fallen far enough.
            Some(room) => view.left_ms - share(room, self.window_ms, previous),
            // The request fits in the next window, when the weight of this one has fallen far enough.
            None => {
                let next_left_ms = share(self.limit - cost, self.window_ms, current).min(self.window_ms);
                view.left_ms + self.window_ms - next_left_ms
            }
        };
        view.lag + Millis::new(wait_ms)
    }
}

/// `amount * part / whole`, rounded down.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let product = || u128::from(amount) * u128::from(part) / u128::from(whole);
    amount.checked_mul(part).map_or_else(|| u64::try_from(product()).unwrap_or(u64::MAX), |product| product / whole)
}

impl Algorithm for SlidingWindow {
    type State = SlidingState;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        let windows = windows_touched(first, last, self.window_ms);
        windows.saturating_mul(self.limit) - windows / 2
    }

    fn ask(&self, state: &SlidingState, now: UnixMillis, cost: u64) -> Step {
        if cost > self.limit {
            return Step::Never;
        }
        let view = self.view(state, now);
        if self.fits(&view, cost) {
            Step::Admitted { delay: Millis::ZERO }
        } else {
            Step::Denied { retry_after: self.retry_after(&view, cost) }
        }
    }

    fn charge(&self, state: &mut SlidingState, now: UnixMillis, cost: u64) {
        *state = self.view(state, now).state;
        state.current = state.current.saturating_add(cost).min(self.limit).max(state.current);
    }

    fn refund(&self, state: &mut SlidingState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        *state = self.view(state, now).state;
        let charged_in = window_start(charged_at, self.window_ms);
        if charged_in == state.start {
            state.current = state.current.saturating_sub(cost);
        } else if state.start.since(charged_in) == self.window() {
            state.previous = state.previous.saturating_sub(cost);
        }
    }

    fn overdraw(&self, state: &mut SlidingState, now: UnixMillis, cost: u64) {
        *state = self.view(state, now).state;
        state.current = state.current.saturating_add(cost).min(MAX_UNITS).max(state.current);
    }

    #[inline]
    fn move_back(&self, state: &mut SlidingState, now: UnixMillis) {
        let latest = now + MAX_CLOCK_SKEW;
        if state.start > latest {
            state.start = window_start(latest, self.window_ms);
        }
    }
}

impl Inspect for SlidingWindow {
    fn standing(&self, state: &SlidingState, now: UnixMillis) -> Standing {
        let view = self.view(state, now);
        let SlidingState { previous, current, .. } = view.state;
        // What is left of the previous window, rounded up.
        let weight = previous - share(previous, self.window_ms - view.left_ms, self.window_ms);
        Standing {
            limit: self.limit,
            room: self.limit.saturating_sub(current + weight),
            unit: 1,
            used: match view.state {
                SlidingState { current: 0, previous: 0, .. } => 0,
                SlidingState { current: 0, .. } => view.left_ms,
                _ => view.left_ms + self.window_ms,
            },
            drain: 1,
            lag: view.lag,
        }
    }
}
