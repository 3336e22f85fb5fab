//! Grants, and what a limiter does wrongly with a balance.

use std::collections::HashMap;

use tidegate_core::algorithm::{BalanceState, Lot, MAX_UNITS};
use tidegate_core::{ChargeId, Error, ErrorKind, Millis, Policy, PolicyState, Quota, QuotaState, Rule, UnixMillis};
use tidegate_guest_protocol::{Call, Decided, Outcome};

use super::Fault;
use super::rows::Place;
use super::state::Kept;
use crate::mutants::policy::limits;

/// Until when a grant is remembered and its units, by the balance's row and the token.
pub(super) type Grants = HashMap<(String, String), (u64, u64)>;

impl Kept {
    /// Adds units to the balance, once for each token.
    pub(super) fn grant(
        &mut self,
        fault: Fault,
        call: &Call,
        grants: &mut Grants,
        place: &Place,
    ) -> Result<Decided, Error> {
        let (policy, now) = (&call.policy, UnixMillis::new(call.now_ms));
        let token = call.token.as_ref().filter(|token| call.cost > 0 && !token.text.trim().is_empty());
        let token = token.ok_or_else(|| Error::new(ErrorKind::Invalid, "a grant has units and a token"))?;
        let name = (place.of_balance(policy).to_string(), token.text.clone());
        let first = grants.get(&name).filter(|(until_ms, _)| *until_ms > call.now_ms);
        if let Some((_, units)) = first.filter(|_| fault != Fault::GrantsAgain) {
            if *units != call.cost && fault != Fault::GrantTokenForOtherUnits {
                return Err(Error::token_reused());
            }
            return Ok(Decided { replayed: fault != Fault::HidesReplays, ..self.granted(policy, now) });
        }
        let mut balance = self.balance();
        if fault == Fault::GrantForgivesDebt {
            balance.debt = 0;
            self.set_balance(balance);
        }
        let applied = if fault == Fault::GrantPassesMax { limits(policy, |limit| limit + 100) } else { policy.clone() };
        let expires = call.expires_at_ms.map_or(UnixMillis::MAX, UnixMillis::new);
        applied.grant(&mut self.state, call.cost, expires, now)?;
        grants.insert(name, (call.now_ms + token.ttl_ms, call.cost));
        Ok(self.granted(policy, now))
    }

    /// The answer to a grant: of the quotas that count by the balance's dimension, or of all in a group.
    fn granted(&self, policy: &Policy, now: UnixMillis) -> Decided {
        let of_balance = policy.dimensions().iter().map(|dimension| dimension.quotas());
        let own = of_balance
            .filter(|_| policy.group().is_none())
            .find(|own| policy.quotas()[own.clone()].iter().any(is_balance));
        let part =
            own.and_then(|own| Some((Policy::new(policy.name(), policy.quotas()[own.clone()].to_vec()).ok()?, own)));
        match part {
            Some((part, own)) => {
                let state = PolicyState::from_parts(self.state.parts()[own].to_vec());
                Decided::from(&part.peek(&state, now, 0))
            }
            None => Decided::from(&policy.peek(&self.state, now, 0)),
        }
    }

    /// Makes one decision, with a fault in what the balance pays.
    pub(super) fn spend(&mut self, fault: Fault, policy: &Policy, now: UnixMillis, cost: u64, id: ChargeId) -> Decided {
        if fault == Fault::SpendsExpired {
            let mut balance = self.balance();
            let expired: u64 = balance.lots.iter().filter(|lot| lot.expires <= now).map(|lot| lot.units).sum();
            balance.lots.retain(|lot| lot.expires > now);
            if expired > 0 {
                balance.lots.insert(0, Lot { units: expired, expires: now + Millis::new(1) });
            }
            self.set_balance(balance);
        }
        let before = self.clone();
        let mut decided = self.decide(policy, now, cost, id);
        let (live, is_denied) = (before.balance().live(now), decided.status == Outcome::Denied);
        match fault {
            Fault::BalancePaysFirst if decided.status == Outcome::Allowed => {
                *self = before;
                decided.from_balance = self.pay(policy, now, cost, cost.min(live), id);
            }
            Fault::BalancePaysAll if decided.from_balance > 0 => {
                *self = before;
                decided.from_balance = self.pay(policy, now, cost, cost.min(live), id);
            }
            Fault::LastLotPays if decided.from_balance > 0 => {
                let (mut balance, mut left) = (before.balance(), decided.from_balance);
                for lot in balance.lots.iter_mut().rev() {
                    let taken = lot.units.min(left);
                    (lot.units, left) = (lot.units - taken, left - taken);
                }
                balance.lots.retain(|lot| lot.units > 0);
                self.set_balance(balance);
            }
            Fault::DenialTakesQuota if is_denied => {
                let left = decided.quotas.iter().zip(policy.quotas());
                let left = left.filter(|(_, quota)| !is_balance(quota)).filter_map(|(counted, _)| counted.remaining);
                let all = left.min().unwrap_or(0);
                self.pay(policy, now, all, 0, id);
            }
            Fault::DenialTakesBalance if is_denied => {
                let told = decided.clone();
                self.pay(policy, now, cost.min(live), cost.min(live), id);
                return told;
            }
            Fault::CoversBeyond if is_denied && live > 0 => {
                decided = Decided { status: Outcome::Allowed, retry_after_ms: None, ..decided };
                decided.from_balance = self.pay(policy, now, live, live, id);
            }
            _ => return decided,
        }
        decided.quotas = Decided::from(&policy.peek(&self.state, now, 0)).quotas;
        decided
    }

    /// Decides, and keeps which lots paid.
    pub(super) fn decide(&mut self, policy: &Policy, now: UnixMillis, cost: u64, id: ChargeId) -> Decided {
        let before = self.state.clone();
        let decision = policy.decide_as(&mut self.state, now, cost, id);
        self.paid = policy.paid(&before, &decision);
        Decided::from(&decision)
    }

    /// Charges `own` of a cost to the balance, and the rest to all others. Returns `own`.
    fn pay(&mut self, policy: &Policy, now: UnixMillis, cost: u64, own: u64, id: ChargeId) -> u64 {
        let mut parts = self.state.parts().to_vec();
        for (quota, part) in policy.quotas().iter().zip(&mut parts) {
            let (units, alone) = match quota.rule() {
                Rule::Balance(_) => (own, Quota::balance(MAX_UNITS).ok()),
                _ => (cost - own, Some(quota.clone())),
            };
            let Some(alone) = alone.and_then(|quota| Policy::new("alone", [quota]).ok()) else { continue };
            let mut state = PolicyState::from_parts(vec![part.clone()]);
            let _charged = alone.decide_as(&mut state, now, units, id);
            *part = state.parts()[0].clone();
        }
        self.state = PolicyState::from_parts(parts);
        own
    }

    fn balance(&self) -> BalanceState {
        let balance =
            |part: &QuotaState| if let QuotaState::Balance(state) = part { Some(state.clone()) } else { None };
        self.state.parts().iter().find_map(balance).unwrap_or_default()
    }

    fn set_balance(&mut self, balance: BalanceState) {
        let mut parts = self.state.parts().to_vec();
        for part in &mut parts {
            if let QuotaState::Balance(state) = part {
                *state = balance.clone();
            }
        }
        self.state = PolicyState::from_parts(parts);
    }
}

/// What a settlement takes for the lots that paid.
pub(super) fn payers(fault: Fault, paid: &[Lot], charged: u64, actual: u64) -> Vec<Lot> {
    let mut paid = paid.to_vec();
    match fault {
        Fault::ReturnsToFirstLot => paid.reverse(),
        Fault::ReturnedNeverExpire => paid.iter_mut().for_each(|lot| lot.expires = UnixMillis::MAX),
        Fault::ReturnsNothingToBalance => paid.clear(),
        Fault::ReturnsToQuotaFirst => {
            let by_balance: u64 = paid.iter().map(|lot| lot.units).sum();
            let returned = charged.saturating_sub(actual);
            let mut left = returned - returned.min(charged - by_balance);
            for lot in paid.iter_mut().rev() {
                lot.units = lot.units.min(left);
                left -= lot.units;
            }
        }
        _ => {}
    }
    paid
}

fn is_balance(quota: &Quota) -> bool {
    matches!(quota.rule(), Rule::Balance(_))
}
