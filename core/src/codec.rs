//! Encodes states as bytes: for each quota one header byte (version, algorithm) and its integers, little-endian.
//!
//! | state | bytes after the header |
//! |-|-|
//! | fixed window | start (8), used (8) |
//! | sliding window | start (8), previous (8), current (8) |
//! | sliding log | number of entries (4), then for each: at (8), units (4) |
//! | token bucket, leaky bucket | level (8), at (8) |
//! | concurrency limit | number of slots (4), then for each: id (8), at (8), cost (8) |
//! | calendar window | end (8), used (8), carried (8) |
//! | penalty | violations (1), length of a block by hand (7), end of the block (8) |
//! | balance | debt (8), number of lots (4), then for each: units (8), expiry (8) |

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use crate::algorithm::{
    Balance, BalanceState, BucketState, CalendarState, Concurrency, LogEntry, Lot, MAX_UNITS, Penalty, PenaltyState,
    SlidingLog, SlidingState, TokenBucket, WindowState,
};
use crate::limiter::ChargeId;
use crate::policy::Policy;
use crate::policy_state::{Charge, PolicyState, QuotaState};
use crate::quota::Rule;
use crate::{Error, ErrorKind, Millis, UnixMillis};

const VERSION: u8 = 1;

/// 20 years; see [`Policy::verify`]. A host whose clock starts at the epoch finds the states of others implausible, and
/// does not touch them.
const IMPLAUSIBLE_AFTER: Millis = Millis::from_secs(20 * 365 * 86_400);

/// More violations than any penalty counts: its cap is less than 2^35 times its base.
const STRIKES_MAX: u64 = 64;

impl Policy {
    /// Encodes a state, for stores of bytes.
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// let mut state = policy.initial_state();
    /// policy.decide(&mut state, UnixMillis::new(1_000), 3);
    /// let bytes = policy.encode(&state);
    /// assert_eq!(bytes.len(), 17);
    /// assert_eq!(policy.decode(&bytes, UnixMillis::new(1_000))?, state);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn encode(&self, state: &PolicyState) -> Vec<u8> {
        let mut out = Vec::with_capacity(25 * state.0.len());
        for (quota, state) in self.quotas().iter().zip(state.0.iter()) {
            out.push(header(quota.rule()));
            match state {
                QuotaState::Window(WindowState { start, used }) => put(&mut out, [start.get(), *used]),
                QuotaState::Sliding(SlidingState { start, previous, current }) => {
                    put(&mut out, [start.get(), *previous, *current]);
                }
                QuotaState::Bucket(BucketState { level, at }) => put(&mut out, [*level, at.get()]),
                QuotaState::Log(entries) => {
                    out.extend(low_u32(entries.len() as u64));
                    for entry in entries {
                        put(&mut out, [entry.at.get()]);
                        out.extend(low_u32(entry.units));
                    }
                }
                QuotaState::Slots(slots) => {
                    out.extend(low_u32(slots.len() as u64));
                    for slot in slots {
                        put(&mut out, [slot.id.get(), slot.at.get(), slot.cost]);
                    }
                }
                QuotaState::Penalty(PenaltyState { strikes, until, length }) => {
                    // At most 64 violations, and at most a year.
                    put(&mut out, [strikes | length.get() << 8, until.get()]);
                }
                QuotaState::Calendar(CalendarState { end, used, carried }) => {
                    put(&mut out, [end.get(), *used, *carried]);
                }
                QuotaState::Balance(BalanceState { debt, lots }) => {
                    put(&mut out, [*debt]);
                    out.extend(low_u32(lots.len() as u64));
                    for lot in lots {
                        put(&mut out, [lot.units, lot.expires.get()]);
                    }
                }
            }
        }
        out
    }

    /// Decodes what [`Policy::encode`] wrote, at the instant `now`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for bytes of another version or of a policy with another shape, for too few or too many
    /// bytes, and for a state that [`Policy::verify`] rejects. The caller must not treat a corrupt state as
    /// an unused one.
    pub fn decode(&self, bytes: &[u8], now: UnixMillis) -> Result<PolicyState, Error> {
        let mut rest = StateReader { bytes, at: 0 };
        let mut parts = Vec::with_capacity(self.quotas().len());
        for quota in self.quotas() {
            let found = rest.take::<1>()?[0];
            let expected = header(quota.rule());
            if found != expected {
                return Err(rest.corrupt(format_args!(
                    "header {found:#04x} where {expected:#04x} ({}, version {VERSION}) belongs",
                    quota.rule().name()
                )));
            }
            parts.push(match quota.rule() {
                Rule::FixedWindow(_) => QuotaState::Window(WindowState { start: rest.instant()?, used: rest.u64()? }),
                Rule::SlidingWindow(_) => QuotaState::Sliding(SlidingState {
                    start: rest.instant()?,
                    previous: rest.u64()?,
                    current: rest.u64()?,
                }),
                Rule::SlidingLog(_) => {
                    let count = rest.u32()?;
                    if u64::from(count) > SlidingLog::MAX_LIMIT {
                        return Err(
                            rest.corrupt(format_args!("{count} log entries, {} at most", SlidingLog::MAX_LIMIT))
                        );
                    }
                    let mut entries = Vec::new();
                    for _ in 0..count {
                        entries.push(LogEntry { at: rest.instant()?, units: u64::from(rest.u32()?) });
                    }
                    QuotaState::Log(entries)
                }
                Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                    QuotaState::Bucket(BucketState { level: rest.u64()?, at: rest.instant()? })
                }
                Rule::Concurrency(_) => {
                    let count = rest.u32()?;
                    if u64::from(count) > Concurrency::MAX_LIMIT {
                        return Err(rest.corrupt(format_args!("{count} slots, {} at most", Concurrency::MAX_LIMIT)));
                    }
                    let mut slots = Vec::new();
                    for _ in 0..count {
                        slots.push(Charge { id: ChargeId::new(rest.u64()?), at: rest.instant()?, cost: rest.u64()? });
                    }
                    QuotaState::Slots(slots)
                }
                Rule::Penalty(_) => {
                    let word = rest.u64()?;
                    let (strikes, length) = (word & 0xff, Millis::new(word >> 8));
                    QuotaState::Penalty(PenaltyState { strikes, until: rest.instant()?, length })
                }
                Rule::CalendarWindow(_) => QuotaState::Calendar(CalendarState {
                    end: rest.instant()?,
                    used: rest.u64()?,
                    carried: rest.u64()?,
                }),
                Rule::Balance(_) => {
                    let (debt, count) = (rest.u64()?, rest.u32()?);
                    if count as usize > Balance::MAX_LOTS {
                        return Err(rest.corrupt(format_args!("{count} lots, {} at most", Balance::MAX_LOTS)));
                    }
                    let mut lots = Vec::new();
                    for _ in 0..count {
                        lots.push(Lot { units: rest.u64()?, expires: rest.instant()? });
                    }
                    QuotaState::Balance(BalanceState { debt, lots })
                }
            });
        }
        let left = bytes.len() - rest.at;
        if left > 0 {
            return Err(rest.corrupt(format_args!("{left} bytes more than the policy's quotas have")));
        }
        let state = PolicyState::from_parts(parts);
        self.verify(&state, now)?;
        Ok(state)
    }

    /// Checks that this policy, or the same policy with other limits, can have written a state by `now`.
    ///
    /// A state that lies ahead of `now`, or that takes longer than its quota's window until it is unused, is accepted up
    /// to 20 years: clocks are wrong by that much, and a lowered limit leaves that much to drain. Beyond that the state
    /// would lock the key for good.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it cannot.
    pub fn verify(&self, state: &PolicyState, now: UnixMillis) -> Result<(), Error> {
        if state.0.len() != self.quotas().len() {
            return Err(corrupt(format_args!("{} parts where {} belong", state.0.len(), self.quotas().len())));
        }
        for (place, (quota, state)) in self.quotas().iter().zip(state.0.iter()).enumerate() {
            let latest = now + IMPLAUSIBLE_AFTER;
            let fits = match (quota.rule(), state) {
                (Rule::FixedWindow(rule), QuotaState::Window(state)) => {
                    aligned(state.start, rule.window().get()) && state.start <= latest && state.used <= MAX_UNITS
                }
                (Rule::SlidingWindow(rule), QuotaState::Sliding(state)) => {
                    aligned(state.start, rule.window().get())
                        && state.start <= latest
                        && state.previous.max(state.current) <= MAX_UNITS
                }
                (Rule::SlidingLog(_), QuotaState::Log(state)) => log_fits(state, latest),
                (Rule::TokenBucket(rule), QuotaState::Bucket(state)) => bucket_fits(rule, state, latest),
                (Rule::LeakyBucket(rule), QuotaState::Bucket(state)) => bucket_fits(rule.bucket(), state, latest),
                (Rule::Concurrency(_), QuotaState::Slots(state)) => slots_fit(state, latest),
                (Rule::Penalty(_), QuotaState::Penalty(state)) => {
                    state.strikes <= STRIKES_MAX && state.until <= latest && state.length <= Penalty::MAX_CAP
                }
                (Rule::CalendarWindow(_), QuotaState::Calendar(state)) => {
                    state.end <= latest && state.used.max(state.carried) <= MAX_UNITS
                }
                (Rule::Balance(_), QuotaState::Balance(state)) => balance_fits(state),
                _ => false,
            };
            if !fits {
                return Err(corrupt(format_args!(
                    "quotas[{place}]: {} is not a state of a {}",
                    Shown(state),
                    quota.rule().name()
                )));
            }
        }
        Ok(())
    }
}

/// Shows a state in an error message. `Debug` would add the text of every kind of state to the binary.
struct Shown<'a>(&'a QuotaState);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            QuotaState::Window(state) => write!(f, "{} used in a window from {}", state.used, state.start),
            QuotaState::Sliding(state) => {
                write!(
                    f,
                    "{} used in a window from {}, {} in the one before",
                    state.current, state.start, state.previous
                )
            }
            QuotaState::Log(state) => write!(f, "a log of {}", state.len()),
            QuotaState::Bucket(state) => write!(f, "a level of {} at {}", state.level, state.at),
            QuotaState::Slots(state) => write!(f, "{} slots", state.len()),
            QuotaState::Penalty(state) => write!(f, "{} violations and a block until {}", state.strikes, state.until),
            QuotaState::Calendar(state) => {
                write!(f, "{} used in a window until {}, {} carried into it", state.used, state.end, state.carried)
            }
            QuotaState::Balance(state) => write!(f, "{} lots and a debt of {}", state.lots.len(), state.debt),
        }
    }
}

fn aligned(start: UnixMillis, window_ms: u64) -> bool {
    start.get().is_multiple_of(window_ms)
}

fn bucket_fits(bucket: &TokenBucket, state: &BucketState, latest: UnixMillis) -> bool {
    let full = bucket.capacity() * bucket.per().get();
    state.at <= latest
        && state.level <= MAX_UNITS
        && state.level.saturating_sub(full) <= IMPLAUSIBLE_AFTER.get().saturating_mul(bucket.refill())
}

fn log_fits(entries: &[LogEntry], latest: UnixMillis) -> bool {
    let ordered = entries.is_sorted_by(|a, b| a.at < b.at) && entries.last().is_none_or(|newest| newest.at <= latest);
    let units = entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.units));
    let used = entries.iter().all(|entry| entry.units > 0);
    ordered && used && units.is_some_and(|units| units <= SlidingLog::MAX_UNITS)
}

fn slots_fit(slots: &[Charge], latest: UnixMillis) -> bool {
    slots.is_sorted_by(|a, b| a.at <= b.at)
        && slots.last().is_none_or(|newest| newest.at <= latest)
        && slots.iter().all(|slot| slot.cost <= MAX_UNITS)
}

fn balance_fits(state: &BalanceState) -> bool {
    let units = state.lots.iter().try_fold(0u64, |sum, lot| sum.checked_add(lot.units));
    state.lots.is_sorted_by(|a, b| a.expires < b.expires)
        && state.lots.len() <= Balance::MAX_LOTS
        && state.lots.iter().all(|lot| lot.units > 0)
        && state.debt.max(units.unwrap_or(u64::MAX)) <= MAX_UNITS
        && (state.debt == 0 || state.lots.is_empty())
}

fn header(rule: &Rule) -> u8 {
    VERSION << 4 | rule.number()
}

fn put<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    for value in values {
        out.extend(value.to_le_bytes());
    }
}

/// The low four bytes. A log's counts and units are at most [`SlidingLog::MAX_LIMIT`].
fn low_u32(value: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = value.to_le_bytes();
    [a, b, c, d]
}

fn corrupt(what: fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Corrupt, format!("stored state: {what}; delete the key, or find what else writes to it"))
}

struct StateReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl StateReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let taken = *taken.ok_or_else(|| self.short(N))?;
        self.at += N;
        Ok(taken)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_le_bytes)
    }

    fn instant(&mut self) -> Result<UnixMillis, Error> {
        let ms = self.u64()?;
        if ms > UnixMillis::MAX.get() {
            return Err(self.corrupt(format_args!("instant {ms} lies past {}", UnixMillis::MAX.get())));
        }
        Ok(UnixMillis::new(ms))
    }

    fn short(&self, missing: usize) -> Error {
        self.corrupt(format_args!("ends where {missing} more bytes belong"))
    }

    fn corrupt(&self, what: fmt::Arguments<'_>) -> Error {
        corrupt(format_args!("byte {} of {}: {what}", self.at, self.bytes.len()))
    }
}
