use std::boxed::Box;

use super::table::{Fingerprint, Row, Table};
use crate::algorithm::{BucketState, WindowState};
use crate::limiter::{Check, Idempotency, Refund, Settle};
use crate::policy_state::decide_alone;
use crate::{Decision, Error, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

/// Buckets that a call visits in a table that it uses.
const VISIT: usize = 8;

/// Buckets that a call visits in each table of a shard that it does not use.
const VISIT_OTHER: usize = 256;

/// The states and first answers of a part of all keys, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    states: Table<Entry>,
    answers: Table<Answer>,
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

/// The first answer to a check with an idempotency token, and what it charged.
#[derive(Debug)]
struct Answer {
    token: Fingerprint,
    until: UnixMillis,
    decision: Decision,
    cost: u64,
    is_settled: bool,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.states.allocated_bytes() + self.answers.allocated_bytes()
    }

    #[inline]
    pub(super) fn decide(&mut self, fingerprint: Fingerprint, check: &Check<'_>, capacity: usize) -> Decision {
        self.states.tend(check.now, check.policy.retention(), VISIT);
        match self.states.get_mut(fingerprint) {
            Some(entry) => entry.kept.decide(check),
            None => self.decide_first(fingerprint, check, capacity),
        }
    }

    /// Decides on a key that has no state of its own.
    #[cold]
    #[inline(never)]
    fn decide_first(&mut self, fingerprint: Fingerprint, check: &Check<'_>, capacity: usize) -> Decision {
        let shared = share(fingerprint, check.policy, capacity);
        let is_full = self.states.len() >= capacity;
        self.was_full |= is_full;
        let fingerprint = if is_full { shared } else { fingerprint };
        if is_full && let Some(entry) = self.states.get_mut(shared) {
            return entry.kept.decide(check);
        }
        // A key that shared a state starts with the shared usage, so that getting its own state does not reset it.
        let mut state = self.shared_state(shared).unwrap_or_else(|| check.policy.initial_state());
        let decision = check.policy.decide(&mut state, check.now, check.cost);
        if check.policy.expires_after(&state, check.now) > Millis::ZERO {
            let kept = Kept::new(state, Expiry::of(check));
            self.states.insert(Entry { fingerprint, kept });
        }
        decision
    }

    /// Decides on the first check with a token, and answers later ones as the first.
    pub(super) fn decide_once(
        &mut self,
        fingerprint: Fingerprint,
        token: Fingerprint,
        check: &Check<'_>,
        Idempotency { ttl, .. }: Idempotency<'_>,
        capacity: usize,
    ) -> Result<Decision, Error> {
        self.answers.tend(check.now, ttl, VISIT);
        if let Some(first) = self.answers.get(token)
            && !first.has_expired(check.now)
        {
            return match first.cost == check.cost {
                true => Ok(first.decision.clone().replayed(true)),
                false => Err(Error::token_reused()),
            };
        }
        let decision = self.decide(fingerprint, check, capacity);
        // A check that charged nothing is not stored, and is decided anew. So the limit bounds the tokens of a key.
        if decision.is_allowed() && check.cost > 0 && self.answers.len() < capacity {
            let (until, cost) = (check.now + ttl, check.cost);
            self.answers.insert(Answer { token, until, decision: decision.clone(), cost, is_settled: false });
        }
        Ok(decision)
    }

    pub(super) fn peek(&self, fingerprint: Fingerprint, check: &Check<'_>, capacity: usize) -> Decision {
        let state = match self.states.get(fingerprint) {
            Some(entry) => Some(entry.kept.state()),
            None => self.shared_state(share(fingerprint, check.policy, capacity)),
        };
        check.policy.peek(&state.unwrap_or_else(|| check.policy.initial_state()), check.now, check.cost)
    }

    pub(super) fn refund(&mut self, fingerprint: Fingerprint, refund: &Refund<'_>, capacity: usize) {
        let Refund { policy, charged_at, now, cost, .. } = *refund;
        self.correct(fingerprint, policy, now, capacity, |state| policy.refund(state, charged_at, now, cost));
    }

    pub(super) fn settle(
        &mut self,
        fingerprint: Fingerprint,
        token: Fingerprint,
        settle: &Settle<'_>,
        capacity: usize,
    ) -> Result<Decision, Error> {
        let Settle { policy, cost, now, .. } = *settle;
        let charge = self.answers.get_mut(token).filter(|charge| !charge.has_expired(now));
        let charge = charge.ok_or_else(Error::unknown_charge)?;
        let (charged_at, charged, is_replay) = (charge.decision.decided_at(), charge.cost, charge.is_settled);
        charge.is_settled = true;
        if !is_replay {
            self.correct(fingerprint, policy, now, capacity, |state| {
                policy.settle(state, charged_at, now, charged, cost)
            });
        }
        let standing = Check::new(policy, settle.key, now).cost(0);
        Ok(self.peek(fingerprint, &standing, capacity).replayed(is_replay))
    }

    /// Changes the state that a key has or shares. A key without a state starts with an unused one.
    fn correct(
        &mut self,
        fingerprint: Fingerprint,
        policy: &Policy,
        now: UnixMillis,
        capacity: usize,
        change: impl FnOnce(&mut PolicyState),
    ) {
        let shared = share(fingerprint, policy, capacity);
        let has_own = self.states.get(fingerprint).is_some();
        let shares = !has_own && (self.states.get(shared).is_some() || self.states.len() >= capacity);
        let fingerprint = if shares { shared } else { fingerprint };
        let found = self.states.get(fingerprint).map(|entry| (entry.kept.state(), entry.kept.expiry()));
        let is_new = found.is_none();
        let (mut state, expiry) = found.unwrap_or_else(|| (policy.initial_state(), Expiry::at(now)));
        change(&mut state);
        let used = policy.expires_after(&state, now);
        if is_new && used == Millis::ZERO {
            return;
        }
        // A debt may outlast the policy's retention.
        self.states.tend(now, used, VISIT);
        let kept = Kept::new(state, expiry.max(Expiry::at(now + used)));
        self.states.insert(Entry { fingerprint, kept });
    }

    pub(super) fn reset(&mut self, fingerprint: Fingerprint) {
        self.states.remove(fingerprint);
    }

    pub(super) fn sweep(&mut self, now: UnixMillis) {
        self.states.sweep(now);
        self.answers.sweep(now);
    }

    /// Continues a pass over both tables, or begins one if it is due.
    pub(super) fn tend(&mut self, now: UnixMillis) {
        self.states.tend(now, Millis::ZERO, VISIT_OTHER);
        self.answers.tend(now, Millis::ZERO, VISIT_OTHER);
    }

    /// Counts a call. Every 64th call gets its number, and must visit another shard.
    #[inline]
    pub(super) fn count_call(&mut self) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(64).then_some(self.calls / 64)
    }

    fn shared_state(&self, shared: Fingerprint) -> Option<PolicyState> {
        if !self.was_full {
            return None;
        }
        self.states.get(shared).map(|entry| entry.kept.state())
    }
}

/// The fingerprint of the state that a key shares with others while the shard is full. There is one for each eighth key
/// of the capacity, for each policy.
fn share(fingerprint: Fingerprint, policy: &Policy, capacity: usize) -> Fingerprint {
    let shares = u64::try_from(capacity / 8).unwrap_or(u64::MAX).max(1);
    // An odd factor maps different numbers to different ones, and spreads them over all bits.
    ((fingerprint % shares) ^ policy.digest()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Row for Entry {
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

impl Row for Answer {
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
            _ => self.update(self.expiry().renewed(check), |state| check.policy.decide(state, now, cost)),
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
