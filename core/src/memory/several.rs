//! Decisions over several keys, whose states may lie in several shards.

#[cfg(not(loom))]
use std::sync::MutexGuard;

#[cfg(loom)]
use loom::sync::MutexGuard;

use std::vec::Vec;

use super::answers::no_room;
use super::shard::{Bounds, Row, Shard};
use super::table::Fingerprint;
use super::{MemoryLimiter, lock, no_own_state};
use crate::algorithm::Lot;
use crate::limiter::{Block, Check, Grant, Operation, Refund, Reply, Settle};
use crate::{Charge, Decision, Dimension, Error, Keys, Millis, Policy, PolicyState, Rule, UnixMillis};

/// The rows of one request, with their shards locked.
struct Locked<'a> {
    policy: &'a Policy,
    /// In ascending order, so that two requests never wait for each other.
    shards: Vec<(usize, MutexGuard<'a, Shard>)>,
    /// For each of the policy's rows: where it is, and the place of its shard among the locked ones.
    rows: Vec<(Row<'a>, usize)>,
    bounds: Bounds<'a>,
}

impl MemoryLimiter {
    pub(super) fn decide_several(&self, check: &Check<'_>) -> Result<Decision, Error> {
        let mut locked = self.lock(check.policy, check.keys)?;
        let Some(idempotency) = check.remembered() else { return locked.decide(check) };
        let token = self.token(self.together(&locked), idempotency.token);
        if let Some(first) = locked.first().recall(token, check, idempotency.ttl) {
            return first;
        }
        let bounds = locked.bounds;
        if locked.first().has_no_slot(check, bounds)
            && check.policy.peek(&locked.state(), check.now, check.cost).is_allowed()
        {
            return Err(no_room());
        }
        let before = check.policy.has_balance().then(|| locked.state());
        let decision = locked.decide(check)?;
        let paid = before.map(|before| check.policy.paid(&before, &decision).into());
        locked.first().remember(token, check, idempotency.ttl, &decision, paid, bounds);
        Ok(decision)
    }

    /// Applies what is not a check.
    pub(super) fn correct_several(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Peek(check) => self.peek_several(&check).map(Reply::from),
            Operation::Refund(refund) => self.refund_several(&refund).map(Reply::from),
            Operation::Settle(settle) => self.settle_several(&settle).map(Reply::from),
            Operation::Block(block) => self.block_several(&block).map(Reply::from),
            Operation::Grant(grant) => self.grant_several(&grant).map(Reply::from),
            Operation::Reset { policy, keys } => self.reset_several(policy, keys).map(Reply::from),
            _ => Err(operation.unsupported()),
        }
    }

    fn peek_several(&self, check: &Check<'_>) -> Result<Decision, Error> {
        let locked = self.lock(check.policy, check.keys)?;
        Ok(check.policy.peek(&locked.state(), check.now, check.cost))
    }

    fn refund_several(&self, refund: &Refund<'_>) -> Result<(), Error> {
        refund.verify()?;
        let Refund { policy, keys, charged_at, now, cost } = *refund;
        self.lock(policy, keys)?.change(now, |state| policy.refund(state, charged_at, now, cost))
    }

    fn settle_several(&self, settle: &Settle<'_>) -> Result<Decision, Error> {
        settle.verify()?;
        let mut locked = self.lock(settle.policy, settle.keys)?;
        let token = self.token(self.together(&locked), settle.token);
        let bounds = locked.bounds;
        locked.rooms(settle.now, |_| true)?;
        let charge = locked.first().take_charge(token, settle, bounds)?;
        if let Some((charge, paid)) = &charge {
            locked.settle(settle, charge, paid)?;
        }
        let standing = settle.policy.peek(&locked.state(), settle.now, 0);
        Ok(standing.replayed(charge.is_none()))
    }

    fn grant_several(&self, grant: &Grant<'_>) -> Result<Decision, Error> {
        grant.verify()?;
        let Grant { policy, keys, now, .. } = *grant;
        let mut locked = self.lock(policy, keys)?;
        let own = policy.balance_row().ok_or_else(|| policy.no_balance())?;
        let (bounds, (row, place)) = (locked.bounds, locked.rows[own]);
        // The other quotas may change before the grant is repeated.
        let token = self.token(row.own, grant.token);
        let shard = &mut locked.shards[place].1;
        let replayed = shard.was_granted(token, grant)?;
        if !replayed {
            if shard.would_share(row, bounds) {
                return Err(no_own_state("a grant"));
            }
            shard.has_room_for_grant(grant, bounds)?;
            locked.change(now, |state| policy.grant(state, grant.units, grant.expires, now))??;
            locked.shards[place].1.remember_grant(token, grant);
        }
        Ok(policy.peek(&locked.state(), now, 0).replayed(replayed))
    }

    fn block_several(&self, block: &Block<'_>) -> Result<(), Error> {
        block.verify()?;
        let Block { policy, keys, span, now } = *block;
        let mut locked = self.lock(policy, keys)?;
        let blocks = |row: &Dimension| {
            policy.quotas()[row.quotas()].iter().any(|quota| matches!(quota.rule(), Rule::Penalty(_)))
        };
        let mut blocked = policy.rows().iter().zip(&locked.rows).filter(|(row, _)| blocks(row));
        if blocked.any(|(_, (row, shard))| locked.shards[*shard].1.would_share(*row, locked.bounds)) {
            return Err(no_own_state("a block"));
        }
        locked.change(now, |state| policy.block(state, now, span))
    }

    fn reset_several(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        let mut locked = self.lock(policy, keys)?;
        for place in 0..locked.rows.len() {
            let (row, shard) = locked.rows[place];
            locked.shards[shard].1.reset(row.own);
        }
        Ok(())
    }

    fn lock<'a>(&'a self, policy: &'a Policy, keys: Keys<'_>) -> Result<Locked<'a>, Error> {
        let group = policy.group().map(|group| Ok::<_, Error>((group, keys.of(group)?))).transpose()?;
        let mut rows = Vec::with_capacity(policy.rows().len());
        for row in policy.rows() {
            let key = keys.of_row(policy, row)?;
            let scope = group.filter(|(group, _)| group.name() != row.name()).map(|(_, key)| key);
            rows.push(self.place(row, key, scope));
        }
        // In order, so that no two checks wait for each other.
        let mut shards: Vec<(usize, MutexGuard<'_, Shard>)> = Vec::with_capacity(rows.len());
        let is_next = |index: &usize, last: Option<usize>| last.is_none_or(|last| *index > last);
        let mut last = None;
        while let Some(index) = rows.iter().map(|(_, index)| *index).filter(|index| is_next(index, last)).min() {
            shards.push((index, lock(&self.shards[index].0)));
            last = Some(index);
        }
        for (_, shard) in &mut rows {
            *shard = shards.iter().position(|(index, _)| index == shard).unwrap_or_default();
        }
        Ok(Locked { policy, shards, rows, bounds: self.bounds() })
    }

    /// What stands for all keys together.
    fn together(&self, locked: &Locked<'_>) -> Fingerprint {
        locked.rows.iter().fold(0, |fingerprint, (row, _)| self.mix(fingerprint, row.own))
    }
}

impl Locked<'_> {
    /// The shard that remembers the answers to tokens.
    fn first(&mut self) -> &mut Shard {
        &mut self.shards[self.rows[0].1].1
    }

    fn state(&self) -> PolicyState {
        let mut parts = Vec::with_capacity(self.policy.quotas().len());
        for (of, (row, shard)) in self.policy.rows().iter().zip(&self.rows) {
            match self.shards[*shard].1.state(*row, self.bounds) {
                Some(state) => parts.extend(state.0),
                None => parts.extend_from_slice(&self.policy.initial_state().0[of.quotas()]),
            }
        }
        PolicyState::from_parts(parts)
    }

    fn decide(&mut self, check: &Check<'_>) -> Result<Decision, Error> {
        if let Some(decision) = self.charge(check) {
            return Ok(decision);
        }
        self.change(check.now, |state| check.policy.decide_as(state, check.now, check.cost, check.charge_id()))
    }

    /// Charges a request in place, which is what most are: each key has a state of its own, and each quota admits the request. Otherwise it
    /// changes nothing.
    fn charge(&mut self, check: &Check<'_>) -> Option<Decision> {
        if !self.policy.is_counted_alone() {
            return None;
        }
        let mut delay = Millis::ZERO;
        for (row, shard) in &self.rows {
            delay = delay.max(self.shards[*shard].1.admits(*row, check)?);
        }
        let mut decision = Decision::admitted(delay, self.policy.quotas().len(), check.now);
        for (row, shard) in &self.rows {
            self.shards[*shard].1.charge(*row, check, &mut decision.quotas_mut()[row.dimension.quotas()]);
        }
        Some(decision)
    }

    fn settle(&mut self, settle: &Settle<'_>, charge: &Charge, paid: &[Lot]) -> Result<(), Error> {
        let actual = settle.cost.unwrap_or(charge.cost);
        self.change(settle.now, |state| settle.policy.settle_paid(state, charge, paid, settle.now, actual))
    }

    /// What makes room for each row that is stored, as [`Shard::room_for`]: none of the request's own rows, and no row twice.
    fn rooms(&self, now: UnixMillis, is_stored: impl Fn(usize) -> bool) -> Result<Vec<Option<Fingerprint>>, Error> {
        let mut stay: Vec<Fingerprint> = self.rows.iter().map(|(row, _)| row.own).collect();
        let mut rooms = Vec::with_capacity(self.rows.len());
        for (nth, (row, place)) in self.rows.iter().enumerate() {
            if !is_stored(nth) {
                rooms.push(None);
                continue;
            }
            let shard = &self.shards[*place].1;
            // The rows before it fill the shard first.
            let before = self.rows[..nth].iter().enumerate().filter(|(nth, _)| is_stored(*nth));
            let added = before.filter(|(_, (other, its))| its == place && !shard.has(*other)).count();
            let bounds = Bounds { keys: self.bounds.keys.saturating_sub(added), ..self.bounds };
            let room = shard.room_for(*row, now, bounds, &stay)?;
            stay.extend(room);
            rooms.push(room);
        }
        Ok(rooms)
    }

    /// Changes the states of all rows, and stores those that have changed. A row that nothing has used is not stored.
    fn change<T>(&mut self, now: UnixMillis, change: impl FnOnce(&mut PolicyState) -> T) -> Result<T, Error> {
        let before = self.state();
        let mut after = before.clone();
        let answer = change(&mut after);
        if after == before {
            return Ok(answer);
        }
        // Each row for its own time: a balance may last for years, and keys beside it come from anyone.
        let lasts = |nth: usize| self.policy.part_expires_after(self.policy.rows()[nth].quotas(), &after, now);
        let is_stored = |nth: usize| {
            let (part, (row, shard)) = (self.policy.rows()[nth].quotas(), self.rows[nth]);
            let is_known = || self.shards[shard].1.state(row, self.bounds).is_some();
            before.0[part.clone()] != after.0[part] && (lasts(nth) > Millis::ZERO || is_known())
        };
        let stored: Vec<bool> = (0..self.rows.len()).map(is_stored).collect();
        let rooms = self.rooms(now, |nth| stored[nth])?;
        for (nth, room) in rooms.into_iter().enumerate().filter(|(nth, _)| stored[*nth]) {
            let (row, shard) = self.rows[nth];
            let state = PolicyState(after.0[self.policy.rows()[nth].quotas()].into());
            self.shards[shard].1.store(row, state, self.policy, now, lasts(nth), self.bounds, room);
        }
        Ok(answer)
    }
}
