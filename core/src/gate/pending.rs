//! A request between its rule and its decision.

use std::sync::Arc;

use super::responses::Responses;
use super::rules::{Rule, RuleTerms};
use super::{OnFailure, Request, Verdict};
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

/// What is known of the requests of a rule and a tier before they come.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The name of the rule.
    pub(super) rule: Arc<str>,
    /// The place of the store.
    pub(super) store: usize,
    /// The policy that the rules have. A request may have its own, with other numbers.
    pub(super) policy: Arc<Policy>,
    pub(super) cost: u64,
    /// The lease by which a request may be decided from a loan.
    pub(super) lease: Option<Lease>,
    pub(super) on_failure: OnFailure,
    /// If the rule says so.
    pub(super) settle_within: Option<Millis>,
    /// Whether the cost is an estimate.
    pub(super) estimates: bool,
    /// Whether a quota warns.
    pub(super) warns: bool,
    /// Whether a request needs a token, for its slot or to be settled.
    pub(super) needs_token: bool,
    /// Whether it counts by the address of the client, unless the request names its sender.
    pub(super) by_address: bool,
    pub(super) responses: Responses,
}

impl Terms {
    /// Those of a rule that is decided by a policy in a store. `all` are those of all rules that apply.
    pub(super) fn new(
        rule: &Rule,
        all: &RuleTerms<'_>,
        cost: u64,
        (store, policy): (usize, Arc<Policy>),
        responses: Responses,
    ) -> Self {
        let RuleTerms { on_failure, estimates, settle_within, .. } = *all;
        Self {
            rule: rule.shared_name(),
            store,
            warns: policy.warns(),
            needs_token: estimates || policy.has_slots(),
            by_address: false,
            policy,
            cost,
            lease: rule.lease,
            on_failure,
            settle_within,
            estimates,
            responses,
        }
    }
}

/// A request that a store has to [decide](super::Gate::decide) on.
#[derive(Debug)]
pub struct Pending {
    pub(super) hold: Hold,
    pub(super) settles_later: bool,
    /// The same for other rules that apply, and that one store cannot decide together with this.
    pub(super) others: Vec<Pending>,
    /// When the request was read.
    pub(super) now: UnixMillis,
}

// Compilers move so many bytes without a call.
const _: () = assert!(size_of::<Pending>() <= 128);

impl Pending {
    /// A request by the terms of the rules that apply.
    #[inline]
    pub(super) fn new(request: &Request<'_>, terms: &Arc<Terms>, policy: Arc<Policy>, keys: OwnKeys) -> Self {
        let (token, cost) = (request.token.map(Into::into), request.cost.unwrap_or(terms.cost));
        let hold = Hold { terms: Arc::clone(terms), policy, keys, token, cost, others: Vec::new() };
        Self { hold, settles_later: terms.estimates, others: Vec::new(), now: request.now() }
    }

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
        &self.hold.terms.rule
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
        self.hold.cost
    }

    /// Sets the cost.
    pub fn set_cost(&mut self, cost: u64) {
        for other in &mut self.others {
            other.hold.cost = cost;
        }
        self.hold.cost = cost;
    }

    /// Says that the charge is settled to another cost, perhaps after its slot's lifetime: its cost is an estimate, or it may be
    /// cancelled. See [`Gate::settle_within`](super::Gate::settle_within).
    pub fn settle_later(&mut self) {
        for other in &mut self.others {
            other.settles_later = true;
        }
        self.settles_later = true;
    }

    /// What a store is asked. `settle_within` is the gate's, for a rule without its own.
    #[inline]
    pub(super) fn check(&self, now: UnixMillis, settle_within: Millis) -> Check<'_> {
        let Hold { terms, policy, keys, token, cost, .. } = &self.hold;
        let check = Check { lease: terms.lease, ..Check::new(policy, keys.as_keys(), now).cost(*cost) };
        match token {
            Some(token) => check.idempotent(token, self.remembered_for(settle_within)),
            None => check,
        }
    }

    /// How long a charge with a token can be settled. A slot is given back within its lifetime, and a store remembers its charge
    /// for at least that.
    fn remembered_for(&self, usually: Millis) -> Millis {
        match self.hold.terms.settle_within {
            Some(span) => span,
            None if self.settles_later || !self.policy().has_slots() => usually,
            None => Millis::ZERO,
        }
    }

    /// Whether the rule gives an estimate of the cost, which is to be settled.
    #[must_use]
    pub fn estimates(&self) -> bool {
        self.hold.terms.estimates
    }

    /// Whether a limit that applies has a [lease](super::Rules#leases), so that [`Gate::after`](super::Gate::after) may have something
    /// to do.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.all().any(|pending| pending.hold.terms.lease.is_some())
    }

    /// What the request is charged if it is admitted. `None` without a token.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let others = || self.others.iter().map(|other| other.hold.clone()).collect();
        self.hold.token.is_some().then(|| Hold { others: others(), ..self.hold.clone() })
    }
}

/// What a request is charged under its token, to be [settled](super::Gate::settle) or [released](super::Gate::release).
#[derive(Clone, Debug)]
pub struct Hold {
    pub(super) terms: Arc<Terms>,
    /// The policy, with the numbers of the request.
    pub(super) policy: Arc<Policy>,
    pub(super) keys: OwnKeys,
    pub(super) token: Option<Box<str>>,
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
