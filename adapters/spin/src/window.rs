//! A fixed window on `increment` alone, for stores without a reliable compare-and-swap.
//!
//! Each window has a counter of its own, so a late request counts in its own window and in no other. One more row names the
//! last two windows. The first request of a new window deletes the counter of the older one, then writes that row, then
//! counts. So every counter in use is named, and is deleted in the end. A counter is left behind only if clocks differ by a
//! window at the moment when the window turns.

use tidegate_core::algorithm::WindowState;
use tidegate_core::{
    Capabilities, Check, Decision, Dimensions, Error, Limiter, MAX_CLOCK_SKEW, Operation, PolicyState, QuotaState,
    Reply, UnixMillis,
};

use crate::ballot::MARK;
use crate::bucket::Atomics;
use crate::counter::Counter;
use crate::error;

/// The capabilities of [`SpinWindow`]: one fixed window, and requests of cost 1. Larger costs are not possible, because a
/// counter shows only after an increment whether the cost fits.
pub const CAPABILITIES: Capabilities = Capabilities::EXACT
    .algorithms(&["fixed_window"])
    .max_quotas(1)
    .dimensions(Dimensions::One)
    .costs(false)
    .charge_denied(false)
    .refund(false)
    .block(false)
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

/// The row that counts a window.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Row {
    /// The start of the window that the row was made for.
    start: UnixMillis,
    /// How often the key had been moved back by then, so that a row which was moved back is not used again in its own time.
    moves: u64,
}

/// The current window of a key.
#[derive(Clone, Copy)]
struct Windows {
    start: UnixMillis,
    /// How often a window was moved back.
    moves: u64,
    row: Row,
    /// The row of the window before. It equals `row` if there was none.
    before: Row,
}

impl Row {
    fn name(self, key: &str) -> String {
        let Self { start, moves } = self;
        let start = start.get();
        if moves == 0 { format!("{key}{MARK}w{start}") } else { format!("{key}{MARK}w{start}.{moves}") }
    }
}

impl Windows {
    fn of(name: &str, value: &[u8]) -> Result<Self, Error> {
        let (numbers, []) = value.as_chunks() else { return Err(error::no_windows(name, value)) };
        let numbers: Vec<_> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let [start, moves, row, row_moves, before, before_moves] = numbers[..] else {
            return Err(error::no_windows(name, value));
        };
        if start.max(row).max(before) > UnixMillis::MAX.get() {
            return Err(error::no_windows(name, value));
        }
        let row_of = |start, moves| Row { start: UnixMillis::new(start), moves };
        let (row, before) = (row_of(row, row_moves), row_of(before, before_moves));
        Ok(Self { start: UnixMillis::new(start), moves, row, before })
    }

    fn bytes(self) -> Vec<u8> {
        let Self { start, moves, row, before } = self;
        let numbers = [start.get(), moves, row.start.get(), row.moves, before.start.get(), before.moves];
        numbers.map(u64::to_le_bytes).concat()
    }

    /// The window that follows.
    fn next(was: Option<Self>, start: UnixMillis) -> Self {
        let moves = was.map_or(0, |was| was.moves);
        let row = Row { start, moves };
        Self { start, moves, row, before: was.map_or(row, |was| was.row) }
    }

    /// The same count, in a window that begins at `start`. Requests that do this at the same time write the same.
    fn moved_back(self, start: UnixMillis) -> Self {
        Self { start, moves: self.moves.saturating_add(1), ..self }
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

    /// Makes a window the current one, and deletes the row of the window before the previous one.
    async fn turn_to(&self, key: &str, windows: Windows, was: Option<Windows>) -> Result<(), Error> {
        if let Some(Windows { row, before, .. }) = was
            && row != before
            && windows.before == row
        {
            self.bucket.delete(&before.name(key)).await?;
        }
        self.bucket.set(&windows_name(key), &windows.bytes()).await
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

    async fn reset_key(&self, key: &str) -> Result<(), Error> {
        let Some(Windows { row, before, .. }) = self.windows(key).await? else { return Ok(()) };
        for name in [before.name(key), row.name(key), windows_name(key)] {
            self.bucket.delete(&name).await?;
        }
        Ok(())
    }

    async fn decide(&self, check: Check<'_>, charge: bool) -> Result<Decision, Error> {
        let Check { policy, now, .. } = check;
        let (rule, key) = (policy.quotas()[0].rule(), check.keys.single(policy)?.storage_key(policy));
        let window_of = |at: UnixMillis| UnixMillis::new(at.get() - at.get() % rule.window().get());
        let (own, latest) = (window_of(now), now + MAX_CLOCK_SKEW);
        let was = self.windows(&key).await?;
        let (windows, begins) = match was {
            // A wrong clock began it.
            Some(was) if was.start > latest => (was.moved_back(window_of(latest)), true),
            // A request whose clock is behind counts in the window that has begun, as in every store.
            Some(was) if was.start >= own => (was, false),
            _ => (Windows::next(was, own), true),
        };
        if begins && charge {
            self.turn_to(&key, windows, was).await?;
        }
        let (start, row) = (windows.start, windows.row.name(&key));
        let used = if charge { self.charge(&row, rule.limit()).await? } else { self.counted(&row).await? };
        let mut state = PolicyState::from_parts(vec![QuotaState::Window(WindowState { start, used })]);
        policy.verify(&state, now)?;
        Ok(if charge { policy.decide(&mut state, now, 1) } else { policy.peek(&state, now, 1) })
    }
}

impl<B: Atomics> Limiter for SpinWindow<B> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// A refund is unsupported, because a fixed window on increments only counts up.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&CAPABILITIES)?;
        match operation {
            Operation::Check(check) => self.decide(check, true).await.map(Reply::from),
            Operation::Peek(check) => self.decide(check, false).await.map(Reply::from),
            Operation::Reset { policy, keys } => {
                self.reset_key(&keys.single(policy)?.storage_key(policy)).await.map(Reply::from)
            }
            _ => Err(operation.unsupported()),
        }
    }
}

fn windows_name(key: &str) -> String {
    format!("{key}{MARK}w")
}

fn count(counter: &str, found: i64) -> Result<u64, Error> {
    u64::try_from(found).map_err(|_| error::no_count(counter, found))
}
