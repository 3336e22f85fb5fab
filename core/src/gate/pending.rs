//! A request between its rule and its decision.

use std::sync::Arc;

use super::responses::Responses;
use super::{OnFailure, Verdict};
use crate::dimension::OwnKeys;
use crate::lending::Lease;
use crate::{Check, Error, ErrorKind, Millis, Policy, UnixMillis};

/// What [`Gate::prepare`](super::Gate::prepare) finds.
#[derive(Debug)]
pub enum Prepared {
    /// The request needs no store: it is not limited, or its sender is on a list.
    Decided(Verdict),
    /// A store has to decide.
    Pending(Pending),
}

/// A request that a store has to [decide](super::Gate::decide) on.
#[derive(Debug)]
pub struct Pending {
    pub(super) rule: Arc<str>,
    pub(super) hold: Hold,
    pub(super) cost: u64,
    /// The lease by which it may be decided from a loan.
    pub(super) lease: Option<Lease>,
    pub(super) on_failure: OnFailure,
    /// If the rule says so.
    pub(super) settle_within: Option<Millis>,
    /// The gate's.
    pub(super) settle_within_usually: Millis,
    pub(super) settles_later: bool,
    /// Whether the cost is an estimate.
    pub(super) estimates: bool,
    /// The same for other rules that apply, and that one store cannot decide together with this.
    pub(super) others: Vec<Pending>,
    pub(super) responses: Responses,
    /// When the request was read.
    pub(super) now: UnixMillis,
}

impl Pending {
    /// Whether the request counts by an address that nobody knows. All such requests share one key.
    #[must_use]
    pub fn lacks_address(&self) -> bool {
        self.all().any(|one| one.hold.keys.any(|key| key.has_missing_ip()))
    }

    /// Whether a policy has a [concurrency limit](crate::algorithm::Concurrency), so that the request needs a token.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.all().any(|one| one.hold.policy.has_slots())
    }

    /// Whether one store decides by all rules that apply, so that a decision is by [`Pending::policy`].
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        [self].into_iter().chain(&self.others)
    }

    /// The name of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The policy, whose quotas are those of all limits that apply.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.hold.policy
    }

    /// Sets the token under which the request is charged; see [`Request::token`](super::Request::token).
    pub fn set_token(&mut self, token: impl Into<Box<str>>) {
        let token = token.into();
        for other in &mut self.others {
            other.hold.token = Some(token.clone());
        }
        self.hold.token = Some(token);
    }

    /// What the request costs.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Sets the cost.
    pub fn set_cost(&mut self, cost: u64) {
        for other in &mut self.others {
            other.cost = cost;
        }
        self.cost = cost;
    }

    /// Says that the charge is settled to another cost, perhaps after its slot's lifetime: its cost is an estimate, or it may be
    /// cancelled. See [`Gate::settle_within`](super::Gate::settle_within).
    pub fn settle_later(&mut self) {
        for other in &mut self.others {
            other.settles_later = true;
        }
        self.settles_later = true;
    }

    /// What a store is asked.
    pub(super) fn check(&self, now: UnixMillis) -> Check<'_> {
        let Self { hold: Hold { policy, keys, token, .. }, cost, lease, .. } = self;
        let check = Check { lease: *lease, ..Check::new(policy, keys.as_keys(), now).cost(*cost) };
        match token {
            Some(token) => check.idempotent(token, self.remembered_for()),
            None => check,
        }
    }

    /// How long a charge with a token can be settled. A slot is given back within its lifetime, and a store remembers its charge
    /// for at least that.
    pub(super) fn remembered_for(&self) -> Millis {
        match self.settle_within {
            Some(span) => span,
            None if self.settles_later || !self.policy().has_slots() => self.settle_within_usually,
            None => Millis::ZERO,
        }
    }

    /// Whether the rule gives an estimate of the cost, which is to be settled.
    #[must_use]
    pub const fn estimates(&self) -> bool {
        self.estimates
    }

    /// Whether a limit that applies has a [lease](super::Rules#leases), so that [`Gate::after`](super::Gate::after) may have something
    /// to do.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.all().any(|pending| pending.lease.is_some())
    }

    /// What the request is charged if it is admitted. `None` without a token.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let charged = |one: &Self| Hold { cost: one.cost, ..one.hold.clone() };
        let others = || self.others.iter().map(charged).collect();
        self.hold.token.is_some().then(|| Hold { others: others(), ..charged(self) })
    }
}

/// What a request is charged under its token, to be [settled](super::Gate::settle) or [released](super::Gate::release).
#[derive(Clone, Debug)]
pub struct Hold {
    /// The place of the store.
    pub(super) store: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) keys: OwnKeys,
    pub(super) token: Option<Box<str>>,
    pub(super) rule: Arc<str>,
    /// What it is charged, once it is [decided](Pending::hold).
    pub(super) cost: u64,
    /// What it is charged by other rules that apply, and that could not be decided together with this.
    pub(super) others: Vec<Hold>,
}

impl Hold {
    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether it may have slots.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        [self].into_iter().chain(&self.others).any(|hold| hold.policy.has_slots())
    }

    pub(super) fn token(&self) -> Result<&str, Error> {
        let missing = || Error::new(ErrorKind::UnknownCharge, "the request has no token, which names the charge");
        self.token.as_deref().ok_or_else(missing)
    }
}
