//! What an object does: one call, one step, one answer.

use std::mem;

use tidegate_core::internal::SortedMap;
use tidegate_core::{Error, ErrorKind, Millis, Policy, PolicyState, UnixMillis};

use crate::bytes::{Reader, put, to_hex};
use crate::held::Held;
use crate::rows::{Row, Rows};
use crate::wire::{Action, Answer, Call, Granted, Known, Once, Reply, Returned};

/// The counts of one object: its rows, those in use kept in memory as well.
///
/// Every change is written before it is in memory, and what is in memory was read from a row or written to one: a
/// counter may be dropped at any moment, and one made anew over the same rows goes on where it was.
#[derive(Debug)]
pub struct Counter<R> {
    rows: R,
    cache: SortedMap<Row>,
    /// When the pending alarm fires.
    alarm: Option<UnixMillis>,
    known: Known,
}

/// The least time from setting an alarm to its firing: with traffic that never ends, an alarm a minute.
const ALARM_AFTER_MIN: Millis = Millis::from_secs(60);

impl<R: Rows> Counter<R> {
    /// A counter over `rows`, which may hold those of an earlier one; `alarm` is when the object's pending alarm fires.
    pub fn new(rows: R, alarm: Option<UnixMillis>) -> Self {
        Self { rows, cache: SortedMap::new(), alarm, known: Known::default() }
    }

    /// Carries out a call: the body of a request, at the object's time.
    pub fn answer(&mut self, body: &[u8], clock: UnixMillis) -> Reply {
        let mut known = mem::take(&mut self.known);
        let reply = Reply::of(Call::decode(body, &mut known).and_then(|call| self.apply(&call, clock)));
        self.known = known;
        reply
    }

    /// Removes the rows that have expired, and sets the next alarm if any remain. To be called when the alarm fires.
    ///
    /// Answers whether any remain: where none do, the storage can be given back, and the counter is made anew when it
    /// is next needed.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering; the platform then fires the alarm again.
    pub fn sweep(&mut self, clock: UnixMillis) -> Result<bool, Error> {
        self.alarm = None;
        let next = self.rows.sweep(clock)?;
        self.cache.retain(|row| row.expires > clock);
        let Some(expiry) = next else { return Ok(false) };
        self.wake_at(expiry.max(clock + ALARM_AFTER_MIN))?;
        Ok(true)
    }

    /// The rows.
    pub const fn rows(&self) -> &R {
        &self.rows
    }

    /// The rows, the counter dropped: what an eviction leaves.
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
            Action::Delete => {
                self.delete(call, clock)?;
                Ok(Answer { admitted: false, now, cost: call.cost, lease: None, before: None })
            }
        }
    }

    /// Forgets what was used, and a row that cannot be read. What is lent may be spent yet: it stays charged.
    fn delete(&mut self, call: &Call<'_>, clock: UnixMillis) -> Result<(), Error> {
        let row = match self.row(&call.key) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            row => row?.filter(|row| !row.leased.is_empty()).cloned(),
        };
        // A reset comes with no time: what had not ended by the last call counts as lent.
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
            && let Some(first) = self.first_answer(key, now)?
        {
            return Ok(first);
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
        let row = found.row_after(call, &state, &held, now, clock);
        let first = once.as_ref().map(|(key, ttl)| (key, first_answer_row(&answer, now, *ttl, call.min_ttl, clock)));
        let mut rows = Vec::<(&str, Row)>::new();
        if let Some(row) = row {
            rows.push((&call.key, row));
        }
        if let Some((key, row)) = first {
            rows.push((key, row));
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

    /// What a key has, with its leases taken into account.
    fn find(&mut self, call: &Call<'_>, now: UnixMillis) -> Result<Found, Error> {
        let Some(row) = self.row(&call.key)? else {
            return Ok(Found { state: None, held: Held::default(), changed: false });
        };
        let mut state = call.policy.decode(&row.value, now)?;
        let held = Held::decode(&row.leased)?.settle(call.policy, &mut state, now);
        Ok(Found { state: Some(state), held, changed: false })
    }

    fn first_answer(&mut self, key: &str, now: UnixMillis) -> Result<Option<Answer>, Error> {
        let Some(row) = self.row(key)? else { return Ok(None) };
        let mut rest = Reader { bytes: &row.value, kind: ErrorKind::Corrupt };
        let until = rest.instant()?;
        let first = Answer::decode(rest.bytes)?;
        Ok((until > now).then_some(first))
    }

    /// A row from memory, or from storage to memory.
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
        let wake = expiry.max(clock + ALARM_AFTER_MIN);
        // A pending alarm stays, unless rows that come and go would wait for it more than twice as long as they need.
        let late = |pending: UnixMillis| pending.since(clock).get() / 2 > wake.since(clock).get();
        if self.alarm.is_none_or(late) {
            // The request is charged by now. If this fails, the next one that writes tries again.
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

/// A key's row, read.
struct Found {
    state: Option<PolicyState>,
    held: Held,
    /// Whether the call itself has changed it already.
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
        self.changed = before.0 != *state || before.1 != self.held;
        kept
    }

    fn answer(&self, policy: &Policy, now: UnixMillis, cost: u64, admitted: bool) -> Answer {
        let before = self.state.as_ref().map(|state| policy.encode(state));
        Answer { admitted, now, cost, lease: None, before }
    }

    /// The row to write for a new state; `None` where what is stored says the same.
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
        // What is lent may be spent until the last lease ends, and drains from then on.
        let ttl = used + held.last_end().since(now);
        let expires = clock + ttl.max(Millis::new(1)).max(call.min_ttl);
        Some(Row { value: call.policy.encode(state), leased: held.encode(), expires })
    }
}

impl Once {
    /// The row that keeps the first answer. No storage key begins so.
    fn key(&self, key: &str) -> String {
        format!("once:{}:{key}", to_hex(&self.token))
    }
}

fn first_answer_row(answer: &Answer, now: UnixMillis, ttl: Millis, min_ttl: Millis, clock: UnixMillis) -> Row {
    let mut value = Vec::new();
    put(&mut value, [(now + ttl).get()]);
    value.extend(answer.encode());
    Row { value, leased: Vec::new(), expires: clock + ttl.max(min_ttl) }
}
