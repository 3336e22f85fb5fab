//! The logic of an object: it decides on one call in one step.

use std::mem;

use tidegate_core::lending::{Answer, Lender};
use tidegate_core::{Charge, Error, ErrorKind, Millis, Policy, UnixMillis};

use crate::durable_objects::bytes::from_hex;
use crate::durable_objects::cache::Cache;
use crate::durable_objects::found::Found;
use crate::durable_objects::rows::{Row, Rows};
use crate::durable_objects::token::{First, Granted, Token};
use crate::durable_objects::wire::{Action, Call, Known, Reply, apart};

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

    /// Executes the call in `body` at `clock`, the object's time, or the calls, if there are several.
    pub fn answer(&mut self, body: &[u8], clock: UnixMillis) -> Reply {
        match apart(body) {
            None => self.answer_one(body, clock),
            Some(Ok(calls)) => Reply::together(calls.into_iter().map(|call| self.answer_one(call, clock))),
            Some(Err(error)) => Reply::error(error),
        }
    }

    fn answer_one(&mut self, body: &[u8], clock: UnixMillis) -> Reply {
        let mut known = mem::take(&mut self.known);
        let reply = Reply::of(Call::decode(body, &mut known).and_then(|call| self.apply(&call, clock)));
        self.known = known;
        reply
    }

    /// Executes a call in hexadecimal, and returns the reply [as text](Reply::to_text), for hosts that carry texts.
    pub fn answer_text(&mut self, question: &str, clock: UnixMillis) -> String {
        self.answer(&from_hex(question), clock).to_text()
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
            Action::Check | Action::Lend(_) => self.check(call, now, clock),
            Action::Peek => {
                let found = self.find(call, now)?;
                let state = found.state();
                let decision = call.policy.peek(&state, now, call.cost);
                Ok(found.corrected(call, &state, now, decision).into())
            }
            Action::Refund { charged_at } => self.refund(call, charged_at, now, clock),
            Action::Settle { token } => self.settle(call, token, Some(call.cost), now, clock),
            Action::Release { token } => self.settle(call, token, None, now, clock),
            Action::Block { span } => self.block(call, span, now, clock),
            Action::Grant { token, ttl, expires } => self.grant(call, token, ttl, expires, now, clock),
            Action::Delete => self.delete(call, now, clock),
        }
    }

    fn check(&mut self, call: &Call<'_>, now: UnixMillis, clock: UnixMillis) -> Result<Answer, Error> {
        let once = call.once.map(|once| (once.token.row(&call.rows), once.ttl));
        if let Some((name, _)) = &once
            && let Some((first, _)) = self.first(name, call.policy, now)?
        {
            return match first.cost == call.cost {
                true => Ok(first.decision.replayed(true).into()),
                false => Err(Error::token_reused()),
            };
        }
        let mut found = self.find(call, now)?;
        let mut state = found.state();
        let before = (once.is_some() && call.policy.has_balance()).then(|| state.clone());
        let answer = match call.action {
            Action::Lend(question) => found.lend(call, &mut state, now, &question),
            _ => {
                let decision = call.policy.decide_as(&mut state, now, call.cost, call.charge_id());
                found.corrected(call, &state, now, decision).into()
            }
        };
        let mut rows = found.rows_after(call, &state, now, clock);
        // Only a check that was admitted and charged gets a row for its token, so that the limit bounds the number of
        // these rows.
        if let Some((name, ttl)) = &once
            && answer.decision.is_allowed()
            && call.cost > 0
        {
            let decision = answer.decision.clone();
            let paid = before.map_or_else(Vec::new, |before| call.policy.paid(&before, &decision));
            let first = First { until: now + *ttl, cost: call.cost, settled: false, decision, paid };
            rows.push((name, first.row(clock + (*ttl).max(call.min_ttl))));
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
        let mut state = found.state();
        call.policy.refund(&mut state, charged_at, now, call.cost);
        self.save(found.rows_after(call, &state, now, clock), clock)?;
        Ok(call.policy.peek(&state, now, 0).into())
    }

    /// Settles a charge to its actual cost, or to what it was.
    fn settle(
        &mut self,
        call: &Call<'_>,
        token: Token,
        actual: Option<u64>,
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Result<Answer, Error> {
        let name = token.row(&call.rows);
        let (first, expires) = self.first(&name, call.policy, now)?.ok_or_else(Error::unknown_charge)?;
        let found = self.find(call, now)?;
        let mut state = found.state();
        if first.settled {
            return Ok(call.policy.peek(&state, now, 0).replayed(true).into());
        }
        let charge = Charge { id: token.charge_id(), at: first.decision.decided_at(), cost: first.cost };
        call.policy.settle_paid(&mut state, &charge, &first.paid, now, actual.unwrap_or(charge.cost));
        let mut rows = found.rows_after(call, &state, now, clock);
        rows.push((&name, First { settled: true, ..first }.row(expires)));
        self.save(rows, clock)?;
        Ok(call.policy.peek(&state, now, 0).into())
    }

    fn block(&mut self, call: &Call<'_>, span: Millis, now: UnixMillis, clock: UnixMillis) -> Result<Answer, Error> {
        let found = self.find(call, now)?;
        let mut state = found.state();
        call.policy.block(&mut state, now, span);
        self.save(found.rows_after(call, &state, now, clock), clock)?;
        Ok(call.policy.peek(&state, now, 0).into())
    }

    /// Grants units, unless the token is remembered.
    fn grant(
        &mut self,
        call: &Call<'_>,
        token: Token,
        ttl: Millis,
        expires: UnixMillis,
        now: UnixMillis,
        clock: UnixMillis,
    ) -> Result<Answer, Error> {
        let row = call.policy.balance_row().ok_or_else(without_a_balance)?;
        // The other quotas may change before the grant is repeated.
        let name = token.grant_row(call.rows[row]);
        let before = self.row(&name)?.map(|row| Granted::decode(&row.value)).transpose()?;
        let found = self.find(call, now)?;
        let mut state = found.state();
        if let Some(before) = before.filter(|before| before.until > now) {
            return match before.units == call.cost {
                true => Ok(call.policy.peek(&state, now, 0).replayed(true).into()),
                false => Err(Error::token_reused()),
            };
        }
        call.policy.grant(&mut state, call.cost, expires, now)?;
        let mut rows = found.rows_after(call, &state, now, clock);
        let granted = Granted { until: now + ttl, units: call.cost };
        rows.push((&name, granted.row(clock + ttl.max(call.min_ttl))));
        self.save(rows, clock)?;
        Ok(call.policy.peek(&state, now, 0).into())
    }

    /// Resets the counts, even of a row that cannot be read, but for a balance: it is money.
    fn delete(&mut self, call: &Call<'_>, now: UnixMillis, clock: UnixMillis) -> Result<Answer, Error> {
        for (place, name) in call.rows.iter().enumerate().filter(|(place, _)| !call.part(*place).has_balance()) {
            match self.lent(call.part(place), name)? {
                Some(row) => self.save(vec![(name, row)], clock)?,
                None => {
                    self.rows.remove(name)?;
                    self.cache.remove(name);
                }
            }
        }
        Ok(call.policy.peek(&call.policy.initial_state(), now, 0).into())
    }

    /// What a reset keeps of a row: units that are lent may still be spent, so they stay charged.
    fn lent(&mut self, policy: &Policy, name: &str) -> Result<Option<Row>, Error> {
        let row = match self.row(name) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            row => row?.filter(|row| !row.leased.is_empty()),
        };
        // A reset carries no time, so it checks no state for plausibility, and leases that had not ended by the last call
        // count as lent.
        Ok(row.and_then(|row| {
            let state = policy.decode(&row.value, UnixMillis::MAX).ok()?;
            let (lender, state) = Lender::decode(&row.leased).ok()?.reset(policy, &state)?;
            Some(Row { value: policy.encode(&state), leased: lender.encode(), expires: row.expires })
        }))
    }

    fn find(&mut self, call: &Call<'_>, now: UnixMillis) -> Result<Found, Error> {
        let mut found = Found::with_capacity(call.rows.len());
        for (place, name) in call.rows.iter().enumerate() {
            found.add(call.part(place), self.row(name)?, now)?;
        }
        Ok(found)
    }

    /// The first answer in the row of a token, if it still holds, and when the row expires.
    fn first(&mut self, name: &str, policy: &Policy, now: UnixMillis) -> Result<Option<(First, UnixMillis)>, Error> {
        let Some(row) = self.row(name)? else { return Ok(None) };
        let first = First::decode(&row.value, policy)?;
        Ok((first.until > now).then_some((first, row.expires)))
    }

    /// Returns a row from memory, or reads it from storage into memory.
    fn row(&mut self, name: &str) -> Result<Option<&Row>, Error> {
        if self.cache.get(name).is_none()
            && let Some(row) = self.rows.load(name)?
        {
            self.cache.insert(name, row);
        }
        Ok(self.cache.get(name))
    }

    fn save(&mut self, rows: Vec<(&str, Row)>, clock: UnixMillis) -> Result<(), Error> {
        let Some(expiry) = rows.iter().map(|(_, row)| row.expires).min() else { return Ok(()) };
        self.rows.save(&rows)?;
        for (name, row) in rows {
            self.cache.insert(name, row);
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

fn without_a_balance() -> Error {
    Error::new(ErrorKind::Invalid, "durable object: a grant to a policy without a balance")
}

fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    a.into_iter().chain(b).min()
}
