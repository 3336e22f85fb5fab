use std::boxed::Box;

use super::answers::{Answers, Charged, Grants, no_room};
use super::full::{Full, Shape, Shapes, WhenFull};
use super::table::{self, Fingerprint, Table};
use crate::algorithm::{BucketState, Inspect as _, Lot, Standing, Step, WindowState};
use crate::limiter::{Check, Grant, Settle};
use crate::policy_state::{admits_all, charge_all};
use crate::{
    Decision, Dimension, Error, Millis, Policy, PolicyState, Quota, QuotaState, QuotaStatus, Rule, UnixMillis,
};

/// Buckets that a call visits in a table that it uses.
const VISIT: usize = 8;

/// Buckets that a call visits in each table of a shard that it does not use.
const VISIT_OTHER: usize = 256;

/// The states and first answers of a part of all keys, behind one lock. What each check uses comes first, on the cache line of the lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    calls: usize,
    states: Table<Entry>,
    answers: Answers,
    /// The answers whose charge holds slots. Others cannot crowd them out.
    slots: Answers,
    /// The tokens of grants.
    grants: Grants,
    /// Whether keys have shared a state.
    has_shared: bool,
    /// The rules of the states, by which those that have used little are found.
    shapes: Shapes,
}

/// One key's state of one policy. It takes half a cache line, because with many keys the time of a decision is the time to
/// fetch it.
#[derive(Debug)]
struct Entry {
    fingerprint: Fingerprint,
    kept: Kept,
}

/// A state in its smallest form, when it expires, and its rules.
#[derive(Debug)]
enum Kept {
    Bucket(Expiry, Shape, BucketState),
    Window(Expiry, Shape, WindowState),
    Other(Expiry, Shape, PolicyState),
    /// A balance, which no wrong clock makes expire earlier.
    Balance(Expiry, Shape, PolicyState),
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Whole seconds since the epoch, rounded up. The largest value means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry(u32);

/// How much a shard stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// Keys with a state of their own.
    pub(super) keys: usize,
    /// Answers to tokens, and as many to those that hold slots.
    pub(super) answers: usize,
    /// What happens to further keys.
    pub(super) full: &'a Full,
}

/// Where the state of a key is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// The fingerprint of the key's own state.
    pub(super) own: Fingerprint,
    /// The row of the policy.
    pub(super) dimension: &'a Dimension,
}

impl Row<'_> {
    /// The fingerprint of the state that a key without one of its own shares with others while the shard is full. There is one
    /// for each eighth key of the capacity, for each policy.
    fn shared(self, capacity: usize) -> Fingerprint {
        let shares = u64::try_from(capacity / 8).unwrap_or(u64::MAX).max(1);
        // An odd factor maps different numbers to different ones, and spreads them over all bits.
        ((self.own % shares) ^ self.dimension.digest()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn rules(self, policy: &Policy) -> &[Quota] {
        policy.quotas().get(self.dimension.quotas()).unwrap_or_default()
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let answers = self.answers.allocated_bytes() + self.slots.allocated_bytes();
        self.states.allocated_bytes() + answers + self.grants.allocated_bytes()
    }

    /// Decides by the [rule](Check::rule_alone) of a check on a key that has a state of its own. A step returns numbers in registers: the
    /// decision is written once, where the caller wants it.
    #[inline]
    pub(super) fn step_alone(&mut self, row: Row<'_>, rule: &Rule, check: &Check<'_>) -> Option<(Step, Standing)> {
        self.states.tend(check.now, check.policy.retention(), VISIT);
        self.states.get_mut(row.own)?.kept.step_alone(rule, check)
    }

    /// Decides by all rules of a policy.
    pub(super) fn decide(&mut self, row: Row<'_>, check: &Check<'_>, bounds: Bounds<'_>) -> Result<Decision, Error> {
        self.states.tend(check.now, check.policy.retention(), VISIT);
        match self.states.get_mut(row.own) {
            Some(entry) => Ok(entry.kept.decide(check)),
            None => self.decide_first(row, check, bounds),
        }
    }

    /// How long to delay a request that all quotas of a key with a state of its own admit. `None` if one does not, or if the key has none.
    pub(super) fn admits(&mut self, row: Row<'_>, check: &Check<'_>) -> Option<Millis> {
        self.states.tend(check.now, check.policy.retention(), VISIT);
        let kept = &mut self.states.get_mut(row.own)?.kept;
        // Now, because the question for the next row may remove one that has expired before this is charged.
        kept.expiry_mut().renew(check);
        kept.with_parts(|parts| admits_all(row.rules(check.policy), parts, check.now, check.cost))
    }

    /// Charges a request that is [admitted](Self::admits), and says what is left.
    pub(super) fn charge(&mut self, row: Row<'_>, check: &Check<'_>, left: &mut [QuotaStatus]) {
        let Some(Entry { kept, .. }) = self.states.get_mut(row.own) else { return };
        kept.with_parts(|parts| charge_all(row.rules(check.policy), parts, check.now, check.cost, left));
    }

    /// Decides on a key that has no state of its own.
    #[cold]
    #[inline(never)]
    fn decide_first(&mut self, row: Row<'_>, check: &Check<'_>, bounds: Bounds<'_>) -> Result<Decision, Error> {
        let shares = self.would_share(row, bounds);
        if shares && let Some(entry) = self.states.get_mut(row.shared(bounds.keys)) {
            return Ok(entry.kept.decide(check));
        }
        let room = self.room_for(row, check.now, bounds, &[])?;
        // A key that shared a state starts with the shared usage, so that getting its own state does not reset it.
        let mut state = self.state(row, bounds).unwrap_or_else(|| check.policy.initial_state());
        let decision = check.policy.decide_as(&mut state, check.now, check.cost, check.charge_id());
        if check.policy.expires_after(&state, check.now) > Millis::ZERO {
            let fingerprint = if shares { row.shared(bounds.keys) } else { row.own };
            self.has_shared |= shares;
            self.insert(row, fingerprint, state, Expiry::of(check), check.policy, room);
        }
        Ok(decision)
    }

    /// The state that a key has or shares.
    pub(super) fn state(&self, row: Row<'_>, bounds: Bounds<'_>) -> Option<PolicyState> {
        let shared = || if self.has_shared { self.states.get(row.shared(bounds.keys)) } else { None };
        self.states.get(row.own).or_else(shared).map(|entry| entry.kept.state())
    }

    /// What has to make room if a key gets a state, but for those that `stay`. `None` if it has one or shares one, or if there is room.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) if nothing makes room.
    pub(super) fn room_for(
        &self,
        row: Row<'_>,
        now: UnixMillis,
        bounds: Bounds<'_>,
        stay: &[Fingerprint],
    ) -> Result<Option<Fingerprint>, Error> {
        if !self.is_full_for(row, bounds) {
            return Ok(None);
        }
        match bounds.full.met(bounds.keys) {
            WhenFull::Share => Ok(None),
            WhenFull::Deny => Err(bounds.full.refused()),
            WhenFull::Evict => {
                let left = |entry: &Entry| {
                    if table::Row::has_expired(entry, now) {
                        return Some(u64::MAX);
                    }
                    match &entry.kept {
                        Kept::Bucket(_, shape, state) => self.shapes.left(*shape, &[QuotaState::Bucket(*state)], now),
                        Kept::Window(_, shape, state) => self.shapes.left(*shape, &[QuotaState::Window(*state)], now),
                        Kept::Other(_, shape, state) | Kept::Balance(_, shape, state) => {
                            self.shapes.left(*shape, state.parts(), now)
                        }
                    }
                };
                // The fingerprint is secret, and the number of calls moves on.
                let drawn = self.states.drawn(row.own ^ (self.calls as u64));
                let drawn = drawn.filter(|entry| !stay.contains(&entry.fingerprint));
                let most =
                    drawn.filter_map(|entry| Some((left(entry)?, entry.fingerprint))).max_by_key(|(left, _)| *left);
                most.map(|(_, fingerprint)| Some(fingerprint)).ok_or_else(|| bounds.full.refused())
            }
        }
    }

    fn insert(
        &mut self,
        row: Row<'_>,
        fingerprint: Fingerprint,
        state: PolicyState,
        until: Expiry,
        policy: &Policy,
        room: Option<Fingerprint>,
    ) {
        if let Some(room) = room {
            self.states.remove(room);
        }
        let shape = self.shapes.shape(row.dimension.digest(), row.rules(policy));
        self.states.insert(Entry { fingerprint, kept: Kept::new(state, until, shape) });
    }

    /// Stores a state that has an effect for as long as `lasts`, which a debt makes longer than the policy's retention. `room` is
    /// that of [`Shard::room_for`].
    #[allow(clippy::too_many_arguments, reason = "all of them are what a row is stored by")]
    pub(super) fn store(
        &mut self,
        row: Row<'_>,
        state: PolicyState,
        policy: &Policy,
        now: UnixMillis,
        lasts: Millis,
        bounds: Bounds<'_>,
        room: Option<Fingerprint>,
    ) {
        let lasts = lasts.max(policy.retention());
        let is_balance = matches!(state.parts(), [QuotaState::Balance(_)]);
        // How long a balance lasts says nothing about the other rows.
        self.states.tend(now, if is_balance { policy.retention() } else { lasts }, VISIT);
        let shares = self.would_share(row, bounds);
        self.has_shared |= shares;
        let fingerprint = if shares { row.shared(bounds.keys) } else { row.own };
        let known = self.states.get(fingerprint).map(|entry| entry.kept.expiry());
        let until = Expiry::at(now + lasts);
        let until = known.filter(|_| !is_balance).map_or(until, |known| known.max(until));
        self.insert(row, fingerprint, state, until, policy, room);
    }

    /// Decides on the first check with a token, and answers later ones as the first.
    pub(super) fn decide_once(
        &mut self,
        row: Row<'_>,
        token: Fingerprint,
        check: &Check<'_>,
        ttl: Millis,
        bounds: Bounds<'_>,
    ) -> Result<Decision, Error> {
        if let Some(first) = self.recall(token, check, ttl) {
            return first;
        }
        if self.has_no_slot(check, bounds) && self.peek(row, check, bounds).is_allowed() {
            return Err(no_room());
        }
        let before = if check.policy.has_balance() { self.state(row, bounds) } else { None };
        let decision = self.decide(row, check, bounds)?;
        let paid = before.map(|before| check.policy.paid(&before, &decision).into());
        self.remember(token, check, ttl, &decision, paid, bounds);
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
    pub(super) fn has_no_slot(&mut self, check: &Check<'_>, bounds: Bounds<'_>) -> bool {
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
        paid: Option<Box<[Lot]>>,
        bounds: Bounds<'_>,
    ) {
        if decision.is_allowed() && check.cost > 0 {
            self.answers(check.policy).remember(token, check, ttl, decision, paid, bounds.answers);
        }
    }

    /// Whether a grant with this token was made before.
    pub(super) fn was_granted(&mut self, token: Fingerprint, grant: &Grant<'_>) -> Result<bool, Error> {
        self.grants.has(token, grant)
    }

    /// Checks that the token of a grant can be remembered.
    pub(super) fn has_room_for_grant(&mut self, grant: &Grant<'_>, bounds: Bounds<'_>) -> Result<(), Error> {
        self.grants.has_room(grant.now, bounds.answers)
    }

    pub(super) fn remember_grant(&mut self, token: Fingerprint, grant: &Grant<'_>) {
        self.grants.remember(token, grant);
    }

    /// The charge with a token and what a balance paid of it, which counts as settled from now on. `None` if it was settled before.
    pub(super) fn take_charge(
        &mut self,
        token: Fingerprint,
        settle: &Settle<'_>,
        bounds: Bounds<'_>,
    ) -> Result<Option<Charged>, Error> {
        self.answers(settle.policy).take_charge(token, settle, bounds.answers)
    }

    const fn answers(&mut self, policy: &Policy) -> &mut Answers {
        if policy.has_slots() { &mut self.slots } else { &mut self.answers }
    }

    pub(super) fn peek(&self, row: Row<'_>, check: &Check<'_>, bounds: Bounds<'_>) -> Decision {
        let state = self.state(row, bounds).unwrap_or_else(|| check.policy.initial_state());
        check.policy.peek(&state, check.now, check.cost)
    }

    /// Whether a key has no state of its own, and there is no room for one.
    fn is_full_for(&self, row: Row<'_>, bounds: Bounds<'_>) -> bool {
        self.states.len() >= bounds.keys && !self.has(row)
    }

    /// Whether a key has a state of its own.
    pub(super) fn has(&self, row: Row) -> bool {
        self.states.get(row.own).is_some()
    }

    /// Whether a key has no state of its own, and would share one.
    pub(super) fn would_share(&self, row: Row<'_>, bounds: Bounds<'_>) -> bool {
        bounds.full.when() == WhenFull::Share && self.is_full_for(row, bounds)
    }

    /// Changes the state that a key has or shares. A key without a state starts with an unused one, and `room` makes room for it.
    pub(super) fn correct(
        &mut self,
        row: Row<'_>,
        policy: &Policy,
        now: UnixMillis,
        bounds: Bounds<'_>,
        room: Option<Fingerprint>,
        change: impl FnOnce(&mut PolicyState),
    ) {
        let found = self.state(row, bounds);
        let mut state = found.clone().unwrap_or_else(|| policy.initial_state());
        change(&mut state);
        let lasts = policy.expires_after(&state, now);
        if found.is_some() || lasts > Millis::ZERO {
            self.store(row, state, policy, now, lasts, bounds, room);
        }
    }

    /// Removes a state, unless it is a balance.
    pub(super) fn reset(&mut self, fingerprint: Fingerprint) {
        if !matches!(self.states.get(fingerprint), Some(Entry { kept: Kept::Balance(..), .. })) {
            self.states.remove(fingerprint);
        }
    }

    /// Removes what has expired from one segment of each table. `false` if no table has such a segment.
    pub(super) fn sweep(&mut self, segment: usize, now: UnixMillis) -> bool {
        let states = self.states.sweep(segment, now);
        let answers = self.answers.sweep(segment, now);
        let grants = self.grants.sweep(segment, now);
        self.slots.sweep(segment, now) || states || answers || grants
    }

    /// Continues a pass over the tables, or begins one if it is due.
    pub(super) fn tend(&mut self, now: UnixMillis) {
        self.states.tend(now, Millis::ZERO, VISIT_OTHER);
        self.answers.tend(now, Millis::ZERO, VISIT_OTHER);
        self.slots.tend(now, Millis::ZERO, VISIT_OTHER);
        self.grants.tend(now, VISIT_OTHER);
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
        if matches!(self.kept, Kept::Balance(..)) {
            return;
        }
        let expiry = self.kept.expiry_mut();
        *expiry = (*expiry).min(Expiry::at(latest));
    }
}

impl Kept {
    fn new(state: PolicyState, expiry: Expiry, shape: Shape) -> Self {
        match state.parts() {
            [QuotaState::Bucket(state)] => Self::Bucket(expiry, shape, *state),
            [QuotaState::Window(state)] => Self::Window(expiry, shape, *state),
            [QuotaState::Balance(_)] => Self::Balance(expiry, shape, state),
            _ => Self::Other(expiry, shape, state),
        }
    }

    fn state(&self) -> PolicyState {
        match self {
            Self::Bucket(_, _, state) => PolicyState::of_one(QuotaState::Bucket(*state)),
            Self::Window(_, _, state) => PolicyState::of_one(QuotaState::Window(*state)),
            Self::Other(_, _, state) | Self::Balance(_, _, state) => state.clone(),
        }
    }

    /// Changes the states of the quotas in place.
    fn with_parts<T>(&mut self, change: impl FnOnce(&mut [QuotaState]) -> T) -> T {
        match self {
            Self::Bucket(_, _, state) => {
                let mut parts = [QuotaState::Bucket(*state)];
                let answer = change(&mut parts);
                if let [QuotaState::Bucket(changed)] = parts {
                    *state = changed;
                }
                answer
            }
            Self::Window(_, _, state) => {
                let mut parts = [QuotaState::Window(*state)];
                let answer = change(&mut parts);
                if let [QuotaState::Window(changed)] = parts {
                    *state = changed;
                }
                answer
            }
            Self::Other(_, _, state) | Self::Balance(_, _, state) => change(&mut state.0),
        }
    }

    const fn expiry(&self) -> Expiry {
        match self {
            Self::Bucket(expiry, ..)
            | Self::Window(expiry, ..)
            | Self::Other(expiry, ..)
            | Self::Balance(expiry, ..) => *expiry,
        }
    }

    const fn expiry_mut(&mut self) -> &mut Expiry {
        match self {
            Self::Bucket(expiry, ..)
            | Self::Window(expiry, ..)
            | Self::Other(expiry, ..)
            | Self::Balance(expiry, ..) => expiry,
        }
    }

    /// The step of a policy's only rule. `None` if its state is not a small one.
    #[inline]
    fn step_alone(&mut self, rule: &Rule, check: &Check<'_>) -> Option<(Step, Standing)> {
        let (now, cost) = (check.now, check.cost);
        self.expiry_mut().renew(check);
        match (rule, self) {
            (Rule::TokenBucket(rule), Self::Bucket(_, _, state)) => Some(rule.step_alone(state, now, cost)),
            (Rule::LeakyBucket(rule), Self::Bucket(_, _, state)) => Some(rule.step_alone(state, now, cost)),
            (Rule::FixedWindow(rule), Self::Window(_, _, state)) => Some(rule.step_alone(state, now, cost)),
            _ => None,
        }
    }

    fn decide(&mut self, check: &Check<'_>) -> Decision {
        let (now, cost) = (check.now, check.cost);
        if let Some(rule) = check.policy.small_rule()
            && let Some((step, left)) = self.step_alone(rule, check)
        {
            return Decision::of_one(step, left, now);
        }
        self.expiry_mut().renew(check);
        match &mut *self {
            Self::Balance(until, _, state) => {
                let decision = check.policy.decide_as(state, now, cost, check.charge_id());
                // What is spent does not last any more.
                *until = Expiry::at(now + check.policy.expires_after(state, now).max(check.policy.retention()));
                decision
            }
            Self::Other(_, _, state) => check.policy.decide_as(state, now, cost, check.charge_id()),
            // One small state of a policy that charges denials.
            Self::Bucket(until, shape, _) | Self::Window(until, shape, _) => {
                let (until, shape) = (*until, *shape);
                let mut state = self.state();
                let decision = check.policy.decide_as(&mut state, now, cost, check.charge_id());
                *self = Self::new(state, until, shape);
                decision
            }
        }
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

    /// Sets the expiry after another check. It never moves back: a sweep corrects one that a wrong clock has set.
    #[inline]
    fn renew(&mut self, check: &Check<'_>) {
        // Most checks of a key come in the same second as another.
        if check.now.get() + check.policy.retention().get() > u64::from(self.0) * 1_000 {
            *self = Self::of(check);
        }
    }

    fn has_passed(self, now: UnixMillis) -> bool {
        self.0 < u32::MAX && u64::from(self.0) * 1_000 <= now.get()
    }
}
