use alloc::format;

use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step, checked_amount};
use crate::{Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// The length of a minute in milliseconds: the unit of a window's bounds.
const MINUTE_MS: u64 = 60_000;

/// Lengths, in minutes, are below this: 2^20. A year is at most 366 days and a change of its zone's offset, about half of it.
const LENGTH_END: u64 = 1 << 20;

/// Calendar window: at most `limit` in each window of a calendar, such as a month in Berlin, and what the window before has left, up to
/// `carry_over`.
///
/// It knows two windows and no time zone: the one from `start`, and the next. Those before have the length of the first and those after
/// the length of the next, so that every instant lies in one window. A [`Calendar`](crate::Quota::calendar_window) finds the two
/// of an instant, and [`Policy::at`](crate::Policy::at) those of a later one.
///
/// A state holds the end of its window, what was used and what was carried into it. Its window lasts until that end, whatever the
/// rule says by then: a change of the zone or the unit takes effect in the next one, and forgets nothing that was used. A cost fits
/// if `used + cost <= limit + carried`. A new window carries `min(limit + carried - used, carry_over)` of the one before, or all of
/// `carry_over` if there was a window in between: a key that was not used has what a new key has.
///
/// **At most**: `windows * limit + carry_over` in an interval that touches that many windows. What is carried was not used before.
///
/// **Debt**: ends with the window, which then carries nothing.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, CalendarWindow, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let (february, day) = (UnixMillis::new(1_769_904_000_000), Millis::from_secs(86_400));
/// let (days_28, days_31) = (Millis::from_secs(28 * 86_400), Millis::from_secs(31 * 86_400));
/// let month = CalendarWindow::new(100, february, days_28, days_31, 20)?;
/// let mut state = Default::default();
/// // A new key has what it could have carried.
/// month.step(&mut state, february, 100);
/// month.step(&mut state, february, 15);
/// assert_eq!(month.ask(&state, february, 6), Step::Denied { retry_after: days_28 });
/// // 5 are left for March.
/// let march = february + days_28;
/// assert_eq!(month.step(&mut state, march, 100), Step::Admitted { delay: Millis::ZERO });
/// assert_eq!(month.ask(&state, march + day, 5), Step::Admitted { delay: Millis::ZERO });
/// assert_eq!(month.ask(&state, march + days_31, 6), Step::Admitted { delay: Millis::ZERO });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CalendarWindow {
    limit: u64,
    start_ms: u64,
    first_ms: u64,
    next_ms: u64,
    carry_over: u64,
}

/// The state of a calendar window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CalendarState {
    /// The end of the window.
    pub end: UnixMillis,
    /// The units charged in it.
    pub used: u64,
    /// The units that the window before has left to it.
    pub carried: u64,
}

impl CalendarWindow {
    /// The end of the units that may be carried over: 2^32.
    const CARRY_END: u64 = 1 << 32;

    /// Admits `limit` in a window from `start` that is `first` long, in the one after it, which is `next` long, and in those before and
    /// after, and up to `carry_over` more that the window before has left.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a limit of zero or above [`MAX_UNITS`](crate::algorithm::MAX_UNITS), a `carry_over`
    /// above the limit or from 2^32, and for times that are not whole minutes, or lengths that are zero or from 2^20 minutes.
    pub fn new(limit: u64, start: UnixMillis, first: Millis, next: Millis, carry_over: u64) -> Result<Self, Error> {
        checked_amount("limit", limit, MAX_UNITS)?;
        let most = limit.min(Self::CARRY_END - 1);
        if carry_over > most {
            return Err(Error::invalid(format!(
                "carry_over: {carry_over} is out of range; write a whole number from 0 to {most}"
            )));
        }
        for (name, span) in [("first", first), ("next", next)] {
            let minutes = span.get() / MINUTE_MS;
            if !span.get().is_multiple_of(MINUTE_MS) || minutes == 0 || minutes >= LENGTH_END {
                return Err(Error::invalid(format!(
                    "{name}: {span} is no window's length; write whole minutes, from 1 to {}",
                    LENGTH_END - 1
                )));
            }
        }
        if !start.get().is_multiple_of(MINUTE_MS) {
            return Err(Error::invalid(format!("start: {start} is no window's start; write a whole minute")));
        }
        Ok(Self { limit, start_ms: start.get(), first_ms: first.get(), next_ms: next.get(), carry_over })
    }

    /// The rule with these [parameters](crate::Rule::parameters).
    pub(crate) fn from_parameters([limit, first, next]: [u64; 3]) -> Result<Self, Error> {
        let minutes = |minutes: u64| minutes.saturating_mul(MINUTE_MS);
        let length = |word: u64| Millis::new(minutes(word % LENGTH_END));
        let start = minutes(first / LENGTH_END);
        if start > UnixMillis::MAX.get() {
            return Err(Error::invalid(format!("start: {start} lies past {}", UnixMillis::MAX)));
        }
        Self::new(limit, UnixMillis::new(start), length(first), length(next), next / LENGTH_END)
    }

    pub(crate) fn parameters(&self) -> [u64; 3] {
        let word = |high: u64, length_ms: u64| high * LENGTH_END + length_ms / MINUTE_MS;
        [self.limit, word(self.start_ms / MINUTE_MS, self.first_ms), word(self.carry_over, self.next_ms)]
    }

    /// The same with another limit. Not more than that is carried over.
    pub(crate) fn with_limit(&self, limit: u64) -> Result<Self, Error> {
        Self::new(limit, self.start(), self.window(), Millis::new(self.next_ms), self.carry_over.min(limit))
    }

    /// The start of the first window that it knows.
    #[must_use]
    pub const fn start(&self) -> UnixMillis {
        UnixMillis::new(self.start_ms)
    }

    /// The length of the first window.
    #[must_use]
    pub const fn window(&self) -> Millis {
        Millis::new(self.first_ms)
    }

    /// The length of the window after it.
    #[must_use]
    pub const fn next_window(&self) -> Millis {
        Millis::new(self.next_ms)
    }

    /// How many unused units of a window the next one has in addition.
    #[must_use]
    pub const fn carry_over(&self) -> u64 {
        self.carry_over
    }

    /// The end of the windows that it knows.
    pub(crate) const fn known_until(&self) -> UnixMillis {
        UnixMillis::new(self.start_ms + self.first_ms + self.next_ms)
    }

    /// Whether an instant lies in the first window.
    #[cfg(feature = "calendar")]
    pub(crate) const fn is_of(&self, now: UnixMillis) -> bool {
        self.start_ms <= now.get() && now.get() < self.start_ms + self.first_ms
    }

    /// A letter for the unit, which the first length tells: hour, day, week, month or year.
    pub(crate) const fn unit(&self) -> char {
        match self.first_ms / MINUTE_MS {
            0..720 => 'h',
            720..5_760 => 'd',
            5_760..20_160 => 'w',
            20_160..100_000 => 'm',
            _ => 'y',
        }
    }

    /// How long a charge has an effect: until its window ends, and if something is carried over, until the next one does.
    #[cfg(feature = "std")]
    pub(crate) fn retention(&self) -> Millis {
        let longest = self.first_ms.max(self.next_ms);
        Millis::new(if self.carry_over > 0 { 2 * longest } else { longest })
    }

    /// The start and the end of an instant's window, and its number; the first window's is 2^32. A window before the epoch starts there,
    /// and one after the last instant ends there.
    fn bounds(&self, now: UnixMillis) -> (UnixMillis, UnixMillis, u64) {
        const FIRST: u64 = 1 << 32;
        let (now, start, end) = (now.get(), self.start_ms, self.start_ms + self.first_ms);
        let (start, end, number) = if now < start {
            let windows = (start - now - 1) / self.first_ms;
            let end = start - windows * self.first_ms;
            (end.saturating_sub(self.first_ms), end, FIRST - 1 - windows)
        } else if now < end {
            (start, end, FIRST)
        } else {
            let windows = (now - end) / self.next_ms;
            let start = end + windows * self.next_ms;
            (start, start + self.next_ms, FIRST + 1 + windows)
        };
        (UnixMillis::new(start), UnixMillis::new(end), number)
    }

    fn end_of(&self, now: UnixMillis) -> UnixMillis {
        self.bounds(now).1
    }

    /// The start of a state's window, by this rule. The epoch for an unused one.
    pub(crate) fn started(&self, state: &CalendarState) -> UnixMillis {
        self.start_of(UnixMillis::new(state.end.get().saturating_sub(1)))
    }

    /// The start of an instant's window.
    pub(crate) fn start_of(&self, now: UnixMillis) -> UnixMillis {
        self.bounds(now).0
    }

    /// The state at `now`. A window that ends at the last instant never ends.
    fn current(&self, state: &CalendarState, now: UnixMillis) -> CalendarState {
        if now < state.end || state.end == UnixMillis::MAX {
            return *state;
        }
        let (start, end, _) = self.bounds(now);
        let carried = if state.end < start { self.carry_over } else { self.left(state).min(self.carry_over) };
        CalendarState { end, used: 0, carried }
    }

    /// The time until a window has this many units left, if nothing is charged. The next window has what this one leaves to it, and the
    /// one after it the most.
    pub(crate) fn wait_for(&self, state: &CalendarState, now: UnixMillis, units: u64) -> Option<Millis> {
        let state = self.current(state, now);
        let left = self.left(&state);
        if units <= left {
            return Some(Millis::ZERO);
        }
        let never_ends = state.end == UnixMillis::MAX;
        if units > self.limit + self.carry_over || never_ends {
            return None;
        }
        let starts = if units <= self.limit + left.min(self.carry_over) { state.end } else { self.end_of(state.end) };
        Some(starts.since(now))
    }

    /// What a state has left of its window.
    const fn left(&self, state: &CalendarState) -> u64 {
        (self.limit + state.carried).saturating_sub(state.used)
    }
}

impl Algorithm for CalendarWindow {
    type State = CalendarState;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        let touched = (self.bounds(last).2 + 1).saturating_sub(self.bounds(first).2).max(1);
        touched.saturating_mul(self.limit).saturating_add(self.carry_over)
    }

    fn ask(&self, state: &CalendarState, now: UnixMillis, cost: u64) -> Step {
        if cost > self.limit {
            return Step::Never;
        }
        let state = self.current(state, now);
        if state.used + cost <= self.limit + state.carried {
            Step::Admitted { delay: Millis::ZERO }
        } else {
            Step::Denied { retry_after: state.end.since(now) }
        }
    }

    fn charge(&self, state: &mut CalendarState, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        let full = self.limit + state.carried;
        state.used = state.used.saturating_add(cost).min(full).max(state.used);
    }

    fn refund(&self, state: &mut CalendarState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        if self.end_of(charged_at) == state.end {
            state.used = state.used.saturating_sub(cost);
        }
    }

    fn overdraw(&self, state: &mut CalendarState, now: UnixMillis, cost: u64) {
        *state = self.current(state, now);
        state.used = state.used.saturating_add(cost).min(MAX_UNITS).max(state.used);
    }

    #[inline]
    fn move_back(&self, state: &mut CalendarState, now: UnixMillis) {
        state.end = state.end.min(self.end_of(now + MAX_CLOCK_SKEW));
    }
}

impl Inspect for CalendarWindow {
    fn standing(&self, state: &CalendarState, now: UnixMillis) -> Standing {
        let state = self.current(state, now);
        let room = self.left(&state);
        let unused_at = if state.used == 0 && state.carried == self.carry_over {
            now
        } else if room >= self.carry_over {
            state.end
        } else {
            self.end_of(state.end)
        };
        Standing {
            limit: self.limit + state.carried,
            room,
            unit: 1,
            used: unused_at.since(now).get(),
            drain: 1,
            lag: Millis::ZERO,
        }
    }
}
