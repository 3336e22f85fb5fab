use std::boxed::Box;
use std::collections::VecDeque;
use std::mem;

use super::table::{self, Fingerprint, Table};
use crate::algorithm::Lot;
use crate::limiter::{Check, Grant, Settle};
use crate::{Charge, Decision, Error, ErrorKind, Millis, UnixMillis};

/// Buckets that a call visits in a full table to find answers that have expired.
const VISIT_FULL: usize = 256;

/// Settled answers that a sweep forgets at a time.
const FORGET_MOST: usize = 1_000;

/// The first answers to checks with an idempotency token, of a bounded number. When they are full, settled ones make room, the
/// one that was settled first before the others.
#[derive(Debug, Default)]
pub(super) struct Answers {
    rows: Table<Answer>,
    /// The answers that were settled, in that order. Those that have expired since stay for a while, but there are never more
    /// than the bound.
    settled: VecDeque<Fingerprint>,
}

/// A charge, and what a balance paid of it.
pub(super) type Charged = (Charge, Box<[Lot]>);

/// The first answer to a check with an idempotency token, and what it charged.
#[derive(Debug)]
struct Answer {
    token: Fingerprint,
    until: UnixMillis,
    decision: Decision,
    cost: u64,
    is_settled: bool,
    /// What a balance paid.
    paid: Option<Box<[Lot]>>,
}

/// The tokens of grants. None makes room for another: it could be granted twice.
#[derive(Debug, Default)]
pub(super) struct Grants(Table<Granted>);

#[derive(Debug)]
struct Granted {
    token: Fingerprint,
    until: UnixMillis,
    units: u64,
}

impl Answers {
    pub(super) fn allocated_bytes(&self) -> usize {
        self.rows.allocated_bytes() + self.settled.capacity() * mem::size_of::<Fingerprint>()
    }

    /// The first answer to a check with a token, if it is remembered.
    pub(super) fn recall(&self, token: Fingerprint, check: &Check<'_>) -> Option<Result<Decision, Error>> {
        let first = self.rows.get(token).filter(|first| !table::Row::has_expired(*first, check.now))?;
        Some(match first.cost == check.cost {
            true => Ok(first.decision.clone().replayed(true)),
            false => Err(Error::token_reused()),
        })
    }

    /// Whether one more answer can be remembered.
    pub(super) fn has_room(&mut self, now: UnixMillis, bound: usize) -> bool {
        if self.rows.len() < bound {
            return true;
        }
        self.forget_expired(VISIT_FULL);
        if self.is_first_stored() != Some(true) {
            self.rows.visit(now, VISIT_FULL);
        }
        self.rows.len() < bound || self.is_first_stored() == Some(true)
    }

    /// Remembers the answer to a check with a token, if there is room.
    pub(super) fn remember(
        &mut self,
        token: Fingerprint,
        check: &Check<'_>,
        ttl: Millis,
        decision: &Decision,
        paid: Option<Box<[Lot]>>,
        bound: usize,
    ) {
        // One in force would have been repeated, so this one has expired.
        self.rows.remove(token);
        if !self.has_room(check.now, bound) {
            return;
        }
        if self.rows.len() >= bound
            && let Some(oldest) = self.settled.pop_front()
        {
            self.rows.remove(oldest);
        }
        let (until, cost, decision) = (check.now + ttl, check.cost, decision.clone());
        self.rows.insert(Answer { token, until, decision, cost, is_settled: false, paid });
    }

    /// The charge with a token and what a balance paid of it, which counts as settled from now on. `None` if it was settled before.
    pub(super) fn take_charge(
        &mut self,
        token: Fingerprint,
        settle: &Settle<'_>,
        bound: usize,
    ) -> Result<Option<Charged>, Error> {
        let answer = self.rows.get_mut(token).filter(|answer| !table::Row::has_expired(*answer, settle.now));
        let answer = answer.ok_or_else(Error::unknown_charge)?;
        let (at, cost) = (answer.decision.decided_at(), answer.cost);
        if mem::replace(&mut answer.is_settled, true) {
            return Ok(None);
        }
        let paid = answer.paid.take().unwrap_or_default();
        self.forget_expired(2);
        if self.settled.len() >= bound
            && let Some(oldest) = self.settled.pop_front()
        {
            self.rows.remove(oldest);
        }
        self.settled.push_back(token);
        Ok(Some((Charge { id: settle.charge_id(), at, cost }, paid)))
    }

    /// Continues a pass over the answers, or begins one if it is due.
    pub(super) fn tend(&mut self, now: UnixMillis, ttl: Millis, buckets: usize) {
        self.rows.tend(now, ttl, buckets);
        self.forget_expired(buckets);
    }

    /// Removes every expired answer of a segment, and forgets a part of those that were settled. `false` if there is no such segment
    /// and none is left to forget.
    pub(super) fn sweep(&mut self, segment: usize, now: UnixMillis) -> bool {
        let is_one = self.rows.sweep(segment, now);
        let is_left = self.forget_expired(FORGET_MOST);
        is_one || is_left
    }

    /// Forgets the first of the settled answers that are not stored any more, at most `count`, and returns their memory. Whether
    /// another one is left to forget.
    fn forget_expired(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.is_first_stored() != Some(false) {
                break;
            }
            self.settled.pop_front();
        }
        if self.settled.capacity() > 64 && self.settled.len() < self.settled.capacity() / 4 {
            self.settled.shrink_to(self.settled.len() * 2);
        }
        self.is_first_stored() == Some(false)
    }

    /// Whether the first of the settled answers is still stored. `None` if none is settled.
    fn is_first_stored(&self) -> Option<bool> {
        let first = self.settled.front()?;
        Some(self.rows.get(*first).is_some_and(|answer| answer.is_settled))
    }
}

impl Grants {
    pub(super) fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }

    /// Whether the units were granted before.
    pub(super) fn has(&mut self, token: Fingerprint, grant: &Grant<'_>) -> Result<bool, Error> {
        self.0.tend(grant.now, grant.ttl, VISIT_FULL);
        match self.0.get(token).filter(|first| !table::Row::has_expired(*first, grant.now)) {
            Some(first) if first.units != grant.units => Err(Error::token_reused()),
            first => Ok(first.is_some()),
        }
    }

    /// Checks that one more token can be remembered.
    pub(super) fn has_room(&mut self, now: UnixMillis, bound: usize) -> Result<(), Error> {
        if self.0.len() >= bound {
            self.0.visit(now, VISIT_FULL);
        }
        if self.0.len() < bound {
            return Ok(());
        }
        let message = "the memory limiter remembers no further grant, and nothing was granted; raise `MemoryLimiter::answers`, or \
                       remember grants for a shorter time";
        Err(Error::new(ErrorKind::Refused, message))
    }

    pub(super) fn remember(&mut self, token: Fingerprint, grant: &Grant<'_>) {
        self.0.insert(Granted { token, until: grant.now + grant.ttl, units: grant.units });
    }

    pub(super) fn tend(&mut self, now: UnixMillis, buckets: usize) {
        self.0.tend(now, Millis::ZERO, buckets);
    }

    /// Removes every expired token of a segment. `false` if there is no such segment.
    pub(super) fn sweep(&mut self, segment: usize, now: UnixMillis) -> bool {
        self.0.sweep(segment, now)
    }
}

impl table::Row for Granted {
    fn fingerprint(&self) -> Fingerprint {
        self.token
    }

    fn has_expired(&self, now: UnixMillis) -> bool {
        self.until <= now
    }

    /// Does nothing: a clock that is wrong for a moment must not make a grant possible twice.
    fn expire_by(&mut self, _: UnixMillis) {}
}

/// The error of a check whose slot could not be given back, because it cannot be remembered.
pub(super) fn no_room() -> Error {
    Error::new(
        ErrorKind::Refused,
        "the memory limiter remembers no further slot, and nothing was charged; raise `MemoryLimiter::answers`, or release \
         slots as soon as requests end",
    )
}

impl table::Row for Answer {
    fn fingerprint(&self) -> Fingerprint {
        self.token
    }

    fn has_expired(&self, now: UnixMillis) -> bool {
        self.until <= now
    }

    fn expire_by(&mut self, latest: UnixMillis) {
        self.until = self.until.min(latest);
    }
}
