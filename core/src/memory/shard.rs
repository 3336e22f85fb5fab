use std::boxed::Box;

use super::answers::{Answers, no_room};
use super::table::{self, Fingerprint, Table};
use crate::algorithm::{BucketState, WindowState};
use crate::limiter::{Check, Settle};
use crate::policy_state::decide_alone;
use crate::{Charge, Decision, Error, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

/// Buckets that a call visits in a table that it uses.
const VISIT: usize = 8;

/// Buckets that a call visits in each table of a shard that it does not use.
const VISIT_OTHER: usize = 256;

/// The states and first answers of a part of all keys, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    states: Table<Entry>,
    answers: Answers,
    /// The answers whose charge holds slots. Others cannot crowd them out.
    slots: Answers,
    /// Whether the shard was ever full, so that keys may have shared a state.
    was_full: bool,
    calls: usize,
}

/// One key's state of one policy. It takes half a cache line, because with many keys the time of a decision is the time to
/// fetch it.
#[derive(Debug)]
struct Entry {
    fingerprint: Fingerprint,
    kept: Kept,
}

/// A state in its smallest form, and when it expires.
#[derive(Debug)]
enum Kept {
    Bucket(Expiry, BucketState),
    Window(Expiry, WindowState),
    Other(Expiry, Box<PolicyState>),
}

/// Whole seconds since the epoch, rounded up. The largest value means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry(u32);

/// How much a shard stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Keys with a state of their own.
    pub(super) keys: usize,
    /// Answers to tokens, and as many to those that hold slots.
    pub(super) answers: usize,
}

/// Where the state of a key is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The fingerprint of the key's own state.
    pub(super) own: Fingerprint,
    /// The digest of the policy's dimension.
    pub(super) digest: u64,
}

impl Row {
    /// The fingerprint of the state that a key without one of its own shares with others while the shard is full. There is one
    /// for each eighth key of the capacity, for each policy.
    fn shared(self, capacity: usize) -> Fingerprint {
        let shares = u64::try_from(capacity / 8).unwrap_or(u64::MAX).max(1);
        // An odd factor maps different numbers to different ones, and spreads them over all bits.
        ((self.own % shares) ^ self.digest).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.states.allocated_bytes() + self.answers.allocated_bytes() + self.slots.allocated_bytes()
    }

    #[inline]
    pub(super) fn decide(&mut self, row: Row, check: &Check<'_>, capacity: usize) -> Decision {
        self.states.tend(check.now, check.policy.retention(), VISIT);
        match self.states.get_mut(row.own) {
            Some(entry) => entry.kept.decide(check),
            None => self.decide_first(row, check, capacity),
        }
    }

    /// Decides on a key that has no state of its own.
    #[cold]
    #[inline(never)]
    fn decide_first(&mut self, row: Row, check: &Check<'_>, capacity: usize) -> Decision {
        let is_full = self.states.len() >= capacity;
        self.was_full |= is_full;
        if is_full && let Some(entry) = self.states.get_mut(row.shared(capacity)) {
            return entry.kept.decide(check);
        }
        // A key that shared a state starts with the shared usage, so that getting its own state does not reset it.
        let mut state = self.state(row, capacity).unwrap_or_else(|| check.policy.initial_state());
        let decision = check.policy.decide_as(&mut state, check.now, check.cost, check.charge_id());
        if check.policy.expires_after(&state, check.now) > Millis::ZERO {
            let fingerprint = if is_full { row.shared(capacity) } else { row.own };
            self.states.insert(Entry { fingerprint, kept: Kept::new(state, Expiry::of(check)) });
        }
        decision
    }

    /// The state that a key has or shares.
    pub(super) fn state(&self, row: Row, capacity: usize) -> Option<PolicyState> {
        let shared = || if self.was_full { self.states.get(row.shared(capacity)) } else { None };
        self.states.get(row.own).or_else(shared).map(|entry| entry.kept.state())
    }

    /// Stores a state that has an effect for as long as `lasts`, which a debt makes longer than the policy's retention.
    pub(super) fn store(
        &mut self,
        row: Row,
        state: PolicyState,
        policy: &Policy,
        now: UnixMillis,
        lasts: Millis,
        capacity: usize,
    ) {
        let lasts = lasts.max(policy.retention());
        self.states.tend(now, lasts, VISIT);
        let has_own = self.states.get(row.own).is_some();
        let is_full = self.states.len() >= capacity;
        self.was_full |= is_full && !has_own;
        let fingerprint = if is_full && !has_own { row.shared(capacity) } else { row.own };
        let known = self.states.get(fingerprint).map(|entry| entry.kept.expiry());
        let until = Expiry::at(now + lasts);
        let kept = Kept::new(state, known.map_or(until, |known| known.max(until)));
        self.states.insert(Entry { fingerprint, kept });
    }

    /// Decides on the first check with a token, and answers later ones as the first.
    pub(super) fn decide_once(
        &mut self,
        row: Row,
        token: Fingerprint,
        check: &Check<'_>,
        ttl: Millis,
        bounds: Bounds,
    ) -> Result<Decision, Error> {
        if let Some(first) = self.recall(token, check, ttl) {
            return first;
        }
        if self.has_no_slot(check, bounds) && self.peek(row, check, bounds.keys).is_allowed() {
            return Err(no_room());
        }
        let decision = self.decide(row, check, bounds.keys);
        self.remember(token, check, ttl, &decision, bounds);
        Ok(decision)
    }

    /// The first answer to a check with a token, if it is remembered.
    pub(super) fn recall(
        &mut self,
        token: Fingerprint,
        check: &Check<'_>,
        ttl: Millis,
    ) -> Option<Result<Decision, Error>> {
        let answers = self.answers(check.policy);
        answers.tend(check.now, ttl, VISIT);
        answers.recall(token, check)
    }

    /// Whether the check would take a slot that cannot be remembered, and so not be given back.
    pub(super) fn has_no_slot(&mut self, check: &Check<'_>, bounds: Bounds) -> bool {
        check.policy.has_slots() && check.cost > 0 && !self.slots.has_room(check.now, bounds.answers)
    }

    /// Remembers the answer to a check with a token. A check that charged nothing is decided anew, so that the limit bounds the
    /// tokens of a key.
    pub(super) fn remember(
        &mut self,
        token: Fingerprint,
        check: &Check<'_>,
        ttl: Millis,
        decision: &Decision,
        bounds: Bounds,
    ) {
        if decision.is_allowed() && check.cost > 0 {
            self.answers(check.policy).remember(token, check, ttl, decision, bounds.answers);
        }
    }

    /// The charge with a token, which counts as settled from now on. `None` if it was settled before.
    pub(super) fn take_charge(
        &mut self,
        token: Fingerprint,
        settle: &Settle<'_>,
        bounds: Bounds,
    ) -> Result<Option<Charge>, Error> {
        self.answers(settle.policy).take_charge(token, settle, bounds.answers)
    }

    const fn answers(&mut self, policy: &Policy) -> &mut Answers {
        if policy.has_slots() { &mut self.slots } else { &mut self.answers }
    }

    pub(super) fn peek(&self, row: Row, check: &Check<'_>, capacity: usize) -> Decision {
        let state = self.state(row, capacity).unwrap_or_else(|| check.policy.initial_state());
        check.policy.peek(&state, check.now, check.cost)
    }

    /// Whether a key has no state of its own, and would not get one.
    pub(super) fn would_share(&self, row: Row, capacity: usize) -> bool {
        self.states.len() >= capacity && self.states.get(row.own).is_none()
    }

    /// Changes the state that a key has or shares. A key without a state starts with an unused one.
    pub(super) fn correct(
        &mut self,
        row: Row,
        policy: &Policy,
        now: UnixMillis,
        capacity: usize,
        change: impl FnOnce(&mut PolicyState),
    ) {
        let found = self.state(row, capacity);
        let mut state = found.clone().unwrap_or_else(|| policy.initial_state());
        change(&mut state);
        let lasts = policy.expires_after(&state, now);
        if found.is_some() || lasts > Millis::ZERO {
            self.store(row, state, policy, now, lasts, capacity);
        }
    }

    pub(super) fn reset(&mut self, fingerprint: Fingerprint) {
        self.states.remove(fingerprint);
    }

    /// Removes what has expired from one segment of each table. `false` if no table has such a segment.
    pub(super) fn sweep(&mut self, segment: usize, now: UnixMillis) -> bool {
        let states = self.states.sweep(segment, now);
        let answers = self.answers.sweep(segment, now);
        self.slots.sweep(segment, now) || states || answers
    }

    /// Continues a pass over the tables, or begins one if it is due.
    pub(super) fn tend(&mut self, now: UnixMillis) {
        self.states.tend(now, Millis::ZERO, VISIT_OTHER);
        self.answers.tend(now, Millis::ZERO, VISIT_OTHER);
        self.slots.tend(now, Millis::ZERO, VISIT_OTHER);
    }

    /// Counts a call. Every 64th call gets its number, and must visit another shard.
    #[inline]
    pub(super) fn count_call(&mut self) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(64).then_some(self.calls / 64)
    }
}

impl table::Row for Entry {
    #[inline]
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn has_expired(&self, now: UnixMillis) -> bool {
        self.kept.expiry().has_passed(now)
    }

    fn expire_by(&mut self, latest: UnixMillis) {
        let expiry = self.kept.expiry_mut();
        *expiry = (*expiry).min(Expiry::at(latest));
    }
}

impl Kept {
    fn new(state: PolicyState, expiry: Expiry) -> Self {
        match state.parts() {
            [QuotaState::Bucket(state)] => Self::Bucket(expiry, *state),
            [QuotaState::Window(state)] => Self::Window(expiry, *state),
            _ => Self::Other(expiry, Box::new(state)),
        }
    }

    fn state(&self) -> PolicyState {
        match self {
            Self::Bucket(_, state) => PolicyState::of_one(QuotaState::Bucket(*state)),
            Self::Window(_, state) => PolicyState::of_one(QuotaState::Window(*state)),
            Self::Other(_, state) => PolicyState::clone(state),
        }
    }

    const fn expiry(&self) -> Expiry {
        match self {
            Self::Bucket(expiry, _) | Self::Window(expiry, _) | Self::Other(expiry, _) => *expiry,
        }
    }

    const fn expiry_mut(&mut self) -> &mut Expiry {
        match self {
            Self::Bucket(expiry, _) | Self::Window(expiry, _) | Self::Other(expiry, _) => expiry,
        }
    }

    #[inline]
    fn decide(&mut self, check: &Check<'_>) -> Decision {
        let (now, cost) = (check.now, check.cost);
        match (&mut *self, check.policy.sole_rule()) {
            (Self::Bucket(expiry, state), Some(Rule::TokenBucket(rule))) => {
                *expiry = expiry.renewed(check);
                decide_alone(rule, state, now, cost)
            }
            (Self::Bucket(expiry, state), Some(Rule::LeakyBucket(rule))) => {
                *expiry = expiry.renewed(check);
                decide_alone(rule, state, now, cost)
            }
            (Self::Window(expiry, state), Some(Rule::FixedWindow(rule))) => {
                *expiry = expiry.renewed(check);
                decide_alone(rule, state, now, cost)
            }
            _ => self.update(self.expiry().renewed(check), |state| {
                check.policy.decide_as(state, now, cost, check.charge_id())
            }),
        }
    }

    /// Changes the state and sets its expiry.
    #[inline]
    fn update<T>(&mut self, expiry: Expiry, change: impl FnOnce(&mut PolicyState) -> T) -> T {
        if let Self::Other(until, state) = self {
            *until = expiry;
            return change(state);
        }
        let mut state = self.state();
        let answer = change(&mut state);
        *self = Self::new(state, expiry);
        answer
    }
}

impl Expiry {
    fn at(instant: UnixMillis) -> Self {
        Self(u32::try_from(instant.as_secs_ceil()).unwrap_or(u32::MAX))
    }

    /// When the charge of a check has no effect any more, at the latest.
    #[inline]
    fn of(check: &Check<'_>) -> Self {
        Self::at(check.now + check.policy.retention())
    }

    /// The expiry after another check. It never moves back: a sweep corrects one that a wrong clock has set.
    #[inline]
    fn renewed(self, check: &Check<'_>) -> Self {
        self.max(Self::of(check))
    }

    fn has_passed(self, now: UnixMillis) -> bool {
        self.0 < u32::MAX && u64::from(self.0) * 1_000 <= now.get()
    }
}
