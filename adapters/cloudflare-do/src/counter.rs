//! The logic of an object: it decides on one call in one step.

use std::mem;

use tidegate_core::{Error, ErrorKind, Millis, Policy, PolicyState, UnixMillis};

use crate::bytes::{Reader, put, to_hex};
use crate::cache::Cache;
use crate::held::Held;
use crate::rows::{Row, Rows};
use crate::wire::{Action, Answer, Call, Granted, Known, Once, Reply, Returned};

/// The counts of one object: its rows, with recently used ones in memory.
///
/// Every change is written to the rows before it is kept in memory. So a counter may be dropped at any moment, and a new
/// one over the same rows continues where it was. At most some 2 MiB of rows are kept in memory.
#[derive(Debug)]
pub struct Counter<R> {
    rows: R,
    cache: Cache,
    /// When the pending alarm fires.
    alarm: Option<UnixMillis>,
    /// The least time between two sweeps.
    pause: Millis,
    sweeping: Option<Sweeping>,
    known: Known,
}

/// The least time between two sweeps.
const PAUSE_MIN: Millis = Millis::from_secs(60);

/// What [`Counter::sweep`] has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// There are more rows to look at. Let other events have a turn, then call it again.
    More,
    /// It is done. Rows remain, and if any of them expires, an alarm is set.
    RowsRemain,
    /// It is done, and no row remains: the object's storage can be deleted.
    Empty,
}

/// A sweep in progress.
#[derive(Debug, Default)]
struct Sweeping {
    /// The last key of the pages before.
    after: Option<String>,
    /// The rows that remain of those pages.
    kept: u64,
    /// When the first of them expires, and of those written since.
    next: Option<UnixMillis>,
}

impl<R: Rows> Counter<R> {
    /// A counter over `rows`, which may hold those of an earlier one. `alarm` is when the object's pending alarm fires.
    pub fn new(rows: R, alarm: Option<UnixMillis>) -> Self {
        Self { rows, cache: Cache::default(), alarm, pause: PAUSE_MIN, sweeping: None, known: Known::default() }
    }

    /// Executes the call in `body` at `clock`, the object's time.
    pub fn answer(&mut self, body: &[u8], clock: UnixMillis) -> Reply {
        let mut known = mem::take(&mut self.known);
        let reply = Reply::of(Call::decode(body, &mut known).and_then(|call| self.apply(&call, clock)));
        self.known = known;
        reply
    }

    /// Removes expired rows from the next page of rows. Call it when the alarm fires, and again as long as it returns
    /// [`Sweep::More`]; calls may be answered between. After the last page it sets the next alarm.
    ///
    /// A sweep reads every row, so the next one waits for at least a millisecond per row that remains: an object with a
    /// million rows is swept every 17 minutes.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering. The next call begins a new sweep.
    pub fn sweep(&mut self, clock: UnixMillis) -> Result<Sweep, Error> {
        let Sweeping { after, kept, next } = self.sweeping.take().unwrap_or_default();
        self.alarm = None;
        let page = self.rows.sweep(clock, after.as_deref())?;
        let (kept, next) = (kept + page.kept, earlier(next, page.next));
        if page.last.is_some() {
            self.sweeping = Some(Sweeping { after: page.last, kept, next });
            return Ok(Sweep::More);
        }
        self.pause = PAUSE_MIN.max(Millis::new(kept));
        if let Some(next) = next {
            self.wake_at(next.max(clock + self.pause))?;
        } else if kept == 0 {
            self.cache = Cache::default();
            return Ok(Sweep::Empty);
        }
        Ok(Sweep::RowsRemain)
    }

    /// The rows.
    pub const fn rows(&self) -> &R {
        &self.rows
    }

    /// Drops the counter and returns its rows, as an eviction does.
    pub fn into_rows(self) -> R {
        self.rows
    }

    fn apply(&mut self, call: &Call<'_>, clock: UnixMillis) -> Result<Answer, Error> {
        let now = call.now.unwrap_or(clock);
        match call.action {
            Action::Check | Action::Lease { .. } => self.check(call, now, clock),
            Action::Peek => {
                let found = self.find(call, now)?;
                Ok(found.answer(call.policy, now, call.cost, false))
            }
            Action::Refund { charged_at } => self.refund(call, charged_at, now, clock),
            Action::Settle { token } => self.settle(call, token, now, clock),
            Action::Delete => {
                self.delete(call, clock)?;
                Ok(Found::default().answer(call.policy, now, call.cost, false))
            }
        }
    }

    /// Resets the counts, even if the row cannot be read. Units that are lent may still be spent, so they stay charged.
    fn delete(&mut self, call: &Call<'_>, clock: UnixMillis) -> Result<(), Error> {
        let row = match self.row(&call.key) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            row => row?.filter(|row| !row.leased.is_empty()).cloned(),
        };
        // A reset carries no time, so leases that had not ended by the last call count as lent.
        let found = self.find(call, UnixMillis::new(0)).ok();
        let kept = row.zip(found).and_then(|(row, Found { state, held, .. })| {
            let (held, state) = held.reset(call.policy, &state?)?;
            Some(Row { value: call.policy.encode(&state), leased: held.encode(), ..row })
        });
        match kept {
            Some(row) => self.save(vec![(call.key.as_str(), row)], clock),
            None => {
                self.rows.remove(&call.key)?;
                self.cache.remove(&call.key);
                Ok(())
            }
        }
    }

    fn check(&mut self, call: &Call<'_>, now: UnixMillis, clock: UnixMillis) -> Result<Answer, Error> {
        let once = call.once.map(|once| (once.key(&call.key), once.ttl));
        if let Some((key, _)) = &once
            && let Some((_, first)) = self.first_answer(key, now)?
        {
            return match first.cost == call.cost {
                true => Ok(Answer { replayed: true, settled: false, ..first }),
                false => Err(Error::token_reused()),
            };
        }
        let mut found = self.find(call, now)?;
        let lease = match call.action {
            Action::Lease { want, lifetime, back } => Some((want, lifetime, found.take_back(call.policy, now, back))),
            _ => None,
        };
        let (mut state, mut held) = (found.state_or_unused(call.policy), found.held.clone());
        let decision = call.policy.decide(&mut state, now, call.cost);
        let mut answer = found.answer(call.policy, now, call.cost, decision.is_allowed());
        if let Some((want, lifetime, kept)) = lease {
            let lent = match decision.is_allowed() {
                true => held.lend(call.policy, &mut state, now, want, lifetime, kept),
                false => None,
            };
            answer.lease = lent.or(kept);
        }
        let mut rows = Vec::<(&str, Row)>::new();
        if let Some(row) = found.row_after(call, &state, &held, now, clock) {
            rows.push((&call.key, row));
        }
        // Only a check that was admitted and charged gets a row for its token, so that the limit bounds the number of
        // these rows.
        if let Some((key, ttl)) = &once
            && decision.is_allowed()
            && call.cost > 0
        {
            rows.push((key, first_answer_row(&answer, now + *ttl, clock + (*ttl).max(call.min_ttl))));
        }
        self.save(rows, clock)?;
        Ok(answer)
    }

    fn refund(
        &mut self,
        call: &Call<'_>,
        charged_at: UnixMillis,
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Result<Answer, Error> {
        let found = self.find(call, now)?;
        if let Some(mut state) = found.state.clone() {
            call.policy.refund(&mut state, charged_at, now, call.cost);
            if let Some(row) = found.row_after(call, &state, &found.held, now, clock) {
                self.save(vec![(call.key.as_str(), row)], clock)?;
            }
        }
        Ok(found.answer(call.policy, now, call.cost, false))
    }

    fn settle(
        &mut self,
        call: &Call<'_>,
        token: [u8; 16],
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Result<Answer, Error> {
        let once = Once { token, ttl: Millis::ZERO }.key(&call.key);
        let (until, charge) = self.first_answer(&once, now)?.ok_or_else(Error::unknown_charge)?;
        let found = self.find(call, now)?;
        if charge.settled {
            return Ok(Answer { replayed: true, ..found.answer(call.policy, now, call.cost, false) });
        }
        let mut state = found.state_or_unused(call.policy);
        call.policy.settle(&mut state, charge.now, now, charge.cost, call.cost);
        let mut rows = Vec::<(&str, Row)>::new();
        if let Some(row) = found.row_after(call, &state, &found.held, now, clock) {
            rows.push((&call.key, row));
        }
        let expires = self.row(&once)?.map_or(clock, |row| row.expires);
        rows.push((&once, first_answer_row(&Answer { settled: true, ..charge }, until, expires)));
        self.save(rows, clock)?;
        Ok(Found { state: Some(state), ..found }.answer(call.policy, now, call.cost, false))
    }

    /// The state of a key, with its leases taken into account.
    fn find(&mut self, call: &Call<'_>, now: UnixMillis) -> Result<Found, Error> {
        let Some(row) = self.row(&call.key)? else {
            return Ok(Found::default());
        };
        // A reset carries no time, so it checks no state for plausibility, and bounds no lease.
        let reset = call.action == Action::Delete;
        let mut state = call.policy.decode(&row.value, if reset { UnixMillis::MAX } else { now })?;
        let mut held = Held::decode(&row.leased)?;
        let changed = !reset && held.bound(now);
        let held = held.settle(call.policy, &mut state, now);
        Ok(Found { state: Some(state), held, changed })
    }

    /// The first answer under a token, and until when it holds.
    fn first_answer(&mut self, key: &str, now: UnixMillis) -> Result<Option<(UnixMillis, Answer)>, Error> {
        let Some(row) = self.row(key)? else { return Ok(None) };
        let mut rest = Reader { bytes: &row.value, kind: ErrorKind::Corrupt };
        let until = rest.instant()?;
        let first = Answer::decode(rest.bytes)?;
        Ok((until > now).then_some((until, first)))
    }

    /// Returns a row from memory, or reads it from storage into memory.
    fn row(&mut self, key: &str) -> Result<Option<&Row>, Error> {
        if self.cache.get(key).is_none()
            && let Some(row) = self.rows.load(key)?
        {
            self.cache.insert(key, row);
        }
        Ok(self.cache.get(key))
    }

    fn save(&mut self, rows: Vec<(&str, Row)>, clock: UnixMillis) -> Result<(), Error> {
        let Some(expiry) = rows.iter().map(|(_, row)| row.expires).min() else { return Ok(()) };
        self.rows.save(&rows)?;
        for (key, row) in rows {
            self.cache.insert(key, row);
        }
        if let Some(sweeping) = &mut self.sweeping {
            // It sets the alarm when it is done.
            sweeping.next = earlier(sweeping.next, Some(expiry));
            return Ok(());
        }
        let wake = expiry.max(clock + self.pause);
        // A pending alarm stays, unless these rows would wait for it more than twice as long as necessary.
        let late = |pending: UnixMillis| pending.since(clock).get() / 2 > wake.since(clock).get();
        if self.alarm.is_none_or(late) {
            // The request is charged already. If this fails, the next write tries again.
            let _ = self.wake_at(wake);
        }
        Ok(())
    }

    fn wake_at(&mut self, at: UnixMillis) -> Result<(), Error> {
        self.rows.set_alarm(at)?;
        self.alarm = Some(at);
        Ok(())
    }
}

fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    a.into_iter().chain(b).min()
}

/// The row of a key, decoded.
#[derive(Default)]
struct Found {
    state: Option<PolicyState>,
    held: Held,
    /// Whether the call has already changed it.
    changed: bool,
}

impl Found {
    fn state_or_unused(&self, policy: &Policy) -> PolicyState {
        self.state.clone().unwrap_or_else(|| policy.initial_state())
    }

    fn take_back(&mut self, policy: &Policy, now: UnixMillis, back: Option<Returned>) -> Option<Granted> {
        let (state, back) = (self.state.as_mut()?, back?);
        let before = (state.clone(), self.held.clone());
        let kept = self.held.take_back(policy, state, now, back);
        self.changed |= before.0 != *state || before.1 != self.held;
        kept
    }

    fn answer(&self, policy: &Policy, now: UnixMillis, cost: u64, admitted: bool) -> Answer {
        let before = self.state.as_ref().map(|state| policy.encode(state));
        Answer { admitted, replayed: false, settled: false, now, cost, lease: None, before }
    }

    /// The row to write for a new state; `None` if the stored row says the same.
    fn row_after(
        &self,
        call: &Call<'_>,
        state: &PolicyState,
        held: &Held,
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Option<Row> {
        if !self.changed && self.state.as_ref() == Some(state) && self.held == *held {
            return None;
        }
        let used = call.policy.expires_after(state, now);
        if self.state.is_none() && used == Millis::ZERO {
            return None;
        }
        // Lent units may be spent until the last lease ends, and drain from then on.
        let ttl = used + held.last_end().since(now);
        let expires = clock + ttl.max(Millis::new(1)).max(call.min_ttl);
        Some(Row { value: call.policy.encode(state), leased: held.encode(), expires })
    }
}

impl Once {
    /// The key of the row with the first answer. No storage key begins like this.
    fn key(&self, key: &str) -> String {
        format!("once:{}:{key}", to_hex(&self.token))
    }
}

fn first_answer_row(answer: &Answer, until: UnixMillis, expires: UnixMillis) -> Row {
    let mut value = Vec::new();
    put(&mut value, [until.get()]);
    value.extend(answer.encode());
    Row { value, leased: Vec::new(), expires }
}
