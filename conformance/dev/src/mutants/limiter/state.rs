//! The state that a broken limiter keeps for a key.

use std::collections::HashMap;

use tidegate_core::algorithm::{BucketState, Lot, PenaltyState};
use tidegate_core::{Charge, ChargeId, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};
use tidegate_guest_protocol::{Call, Decided, Outcome};

use super::Fault;

/// A key's count, and additional state for faults.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) state: PolicyState,
    /// The time of the first request.
    first_ms: u64,
    /// The time of the last request.
    pub(super) last_ms: u64,
    /// The limits of the last decision.
    limits: Vec<u64>,
    /// Refunded units that had no effect.
    pub(super) credit: u64,
    /// When the last block by hand was to end.
    pub(super) blocked_until: UnixMillis,
    /// Tokens gained beyond the capacity while idle.
    idle: u64,
    /// The charge of each token.
    pub(super) charges: HashMap<String, Remembered>,
    /// The lots that paid for the last request.
    pub(super) paid: Vec<Lot>,
}

/// A charge under a token.
#[derive(Clone)]
pub(super) struct Remembered {
    pub(super) until_ms: u64,
    pub(super) at: UnixMillis,
    pub(super) cost: u64,
    /// The lots that paid the balance's part.
    pub(super) paid: Vec<Lot>,
    /// The answer to the check that made the charge.
    pub(super) first: Decided,
    pub(super) is_settled: bool,
}

impl Kept {
    pub(super) fn new(call: &Call) -> Self {
        Self {
            state: call.policy.initial_state(),
            first_ms: call.now_ms,
            last_ms: call.now_ms,
            limits: limits(&call.policy),
            credit: 0,
            blocked_until: UnixMillis::new(0),
            idle: 0,
            charges: HashMap::new(),
            paid: Vec::new(),
        }
    }

    /// Forgets the counts, but not what was charged under tokens.
    pub(super) fn reset(&mut self, call: &Call) {
        *self = Self { charges: std::mem::take(&mut self.charges), ..Self::new(call) };
    }

    /// Applies the faults that change the state before a decision, and returns the instant of the decision.
    pub(super) fn now(&mut self, fault: Fault, call: &Call) -> UnixMillis {
        let lowered = || limits(&call.policy).iter().zip(&self.limits).any(|(new, old)| new < old);
        match fault {
            Fault::NeverResets => return UnixMillis::new(self.first_ms),
            Fault::WrongClockLocks if self.wrong_clock(call) => return UnixMillis::new(self.last_ms),
            Fault::WrongClockForgets if self.wrong_clock(call) => self.state = call.policy.initial_state(),
            Fault::StepBackRefills if call.now_ms < self.last_ms => self.state = call.policy.initial_state(),
            Fault::UnderflowsOnLoweredLimit if lowered() => self.state = call.policy.initial_state(),
            _ => {}
        }
        UnixMillis::new(call.now_ms)
    }

    /// Whether the last request's clock was too far ahead of this request's clock.
    pub(super) fn wrong_clock(&self, call: &Call) -> bool {
        self.last_ms > call.now_ms + MAX_CLOCK_SKEW.get()
    }

    pub(super) fn remember(&mut self, call: &Call) {
        self.last_ms = call.now_ms;
        self.limits = limits(&call.policy);
    }

    /// Decides and charges parts of a policy independently.
    pub(super) fn apart(&mut self, parts: &[Policy], now: UnixMillis, cost: u64, id: ChargeId) -> Decided {
        let (mut states, mut answers, mut left) = (Vec::new(), Vec::new(), self.state.parts());
        for part in parts {
            let (own, others) = left.split_at(part.quotas().len());
            let mut state = PolicyState::from_parts(own.to_vec());
            let mut answer = Decided::from(&part.decide_as(&mut state, now, cost, id));
            answer.binding += states.len();
            states.extend(state.parts().iter().cloned());
            answers.push(answer);
            left = others;
        }
        self.state = PolicyState::from_parts(states);
        let worst =
            (0..answers.len()).rev().max_by_key(|place| (answers[*place].status, answers[*place].retry_after_ms));
        let quotas: Vec<_> = answers.iter().flat_map(|answer| answer.quotas.clone()).collect();
        let remaining = |place: &usize| quotas[*place].remaining.unwrap_or(u64::MAX);
        let fewest = (0..quotas.len()).min_by_key(remaining).unwrap_or(0);
        let mut decided = answers.swap_remove(worst.unwrap_or(0));
        if decided.status == Outcome::Allowed {
            decided.binding = fewest;
        }
        decided.quotas = quotas;
        decided
    }

    /// The states of the penalties.
    pub(super) fn penalties(&self) -> Vec<PenaltyState> {
        let penalty = |part: &QuotaState| if let QuotaState::Penalty(state) = part { Some(*state) } else { None };
        self.state.parts().iter().filter_map(penalty).collect()
    }

    /// How long the key is still blocked.
    pub(super) fn blocked_for(&self, now: UnixMillis) -> Millis {
        self.penalties().iter().map(|state| state.until.since(now)).max().unwrap_or_default()
    }

    /// Changes the state of each penalty.
    pub(super) fn change_penalties(&mut self, change: impl Fn(usize, &mut PenaltyState)) {
        let (mut parts, mut place) = (self.state.parts().to_vec(), 0);
        for part in &mut parts {
            if let QuotaState::Penalty(state) = part {
                change(place, state);
                place += 1;
            }
        }
        self.state = PolicyState::from_parts(parts);
    }

    /// Begins the block again if the key was blocked already.
    pub(super) fn extend_block(&mut self, policy: &Policy, before: &PolicyState, now: UnixMillis) {
        let parts = policy.quotas().iter().zip(self.state.parts()).zip(before.parts());
        let parts = parts.map(|((quota, part), before)| match (quota.rule(), part, before) {
            (Rule::Penalty(rule), QuotaState::Penalty(state), QuotaState::Penalty(before)) if before.until > now => {
                let grown = (1..state.strikes).fold(rule.base().get(), |ms, _| ms.saturating_mul(rule.factor()));
                let grown = if state.length > Millis::ZERO { state.length.get() } else { grown };
                QuotaState::Penalty(PenaltyState { until: now + Millis::new(grown).min(rule.cap()), ..*state })
            }
            _ => part.clone(),
        });
        self.state = PolicyState::from_parts(parts.collect());
    }

    /// Drops the fraction of a token that has been refilled so far.
    pub(super) fn round_up(&mut self, policy: &Policy, now: UnixMillis) {
        let parts = policy.quotas().iter().zip(self.state.parts()).map(|(quota, part)| match (quota.rule(), part) {
            (Rule::TokenBucket(bucket), QuotaState::Bucket(state)) => {
                let drained = now.since(state.at).get() * bucket.refill();
                let level = state.level.saturating_sub(drained).next_multiple_of(bucket.per().get());
                QuotaState::Bucket(BucketState { level, at: now.max(state.at) })
            }
            _ => part.clone(),
        });
        self.state = PolicyState::from_parts(parts.collect());
    }

    /// Returns the tokens gained beyond the capacity: up to 70 % of the capacity, refilled while the bucket was full.
    pub(super) fn idle_credit(&mut self, policy: &Policy, now: UnixMillis) -> u64 {
        for (quota, part) in policy.quotas().iter().zip(self.state.parts()) {
            if let (Rule::TokenBucket(bucket), QuotaState::Bucket(state)) = (quota.rule(), part)
                && now > state.at
                && state.at > UnixMillis::default()
            {
                let gained = now.since(state.at).get().saturating_mul(bucket.refill());
                let over = gained.saturating_sub(state.level) / bucket.per().get();
                self.idle = over.min(bucket.capacity() * 7 / 10);
            }
        }
        self.idle
    }

    /// Corrects a charge, with the fault.
    pub(super) fn correct(
        &mut self,
        fault: Fault,
        policy: &Policy,
        charge: Charge,
        paid: &[Lot],
        now: UnixMillis,
        cost: u64,
    ) {
        let (state, charged) = (&mut self.state, charge.cost);
        match fault {
            Fault::ForgetsDebt => policy.settle_paid(state, &charge, paid, now, cost.min(charged)),
            Fault::CapsDebt if cost > charged => {
                let most = limits(policy).into_iter().min().unwrap_or(0);
                let _denied = policy.clone().charge_denied(true).decide(state, now, (cost - charged).min(most));
            }
            Fault::ReturnsReplenished => policy.settle_paid(state, &Charge { at: now, ..charge }, paid, now, cost),
            Fault::FreesAnotherHoldersSlot => {
                let held = slots(state);
                policy.settle_paid(state, &charge, paid, now, cost);
                if slots(state) == held {
                    *state = PolicyState::from_parts(state.parts().iter().map(without_oldest).collect());
                }
            }
            _ => policy.settle_paid(state, &charge, paid, now, cost),
        }
    }

    /// Admits a denied request if refunds that had no effect cover its cost.
    pub(super) fn with_credit(&mut self, mut decided: Decided, cost: u64) -> Decided {
        if decided.status == Outcome::Denied && self.credit >= cost {
            self.credit -= cost;
            (decided.status, decided.retry_after_ms) = (Outcome::Allowed, None);
        }
        decided
    }

    /// Charges everything that remains.
    pub(super) fn fill(&mut self, call: &Call) {
        let now = UnixMillis::new(call.now_ms);
        let peeked = Decided::from(&call.policy.peek(&self.state, now, 1));
        let left = peeked.quotas.iter().filter_map(|quota| quota.remaining).min().unwrap_or(0);
        let _filled = call.policy.decide(&mut self.state, now, left);
    }
}

/// The number of slots in use.
fn slots(state: &PolicyState) -> usize {
    let slots = state.parts().iter().map(|part| if let QuotaState::Slots(slots) = part { slots.len() } else { 0 });
    slots.sum()
}

fn without_oldest(part: &QuotaState) -> QuotaState {
    match part {
        QuotaState::Slots(slots) => QuotaState::Slots(slots.iter().skip(1).copied().collect()),
        part => part.clone(),
    }
}

fn limits(policy: &Policy) -> Vec<u64> {
    policy.quotas().iter().map(|quota| quota.rule().limit()).collect()
}
