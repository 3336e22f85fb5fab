//! The rules that apply to one request.

use std::sync::Arc;

use super::{Rule, Rules};
use crate::gate::OnFailure;
use crate::small_vec::SmallVec;
use crate::{Error, ErrorKind, Millis, Policy};

/// What several rules say together.
pub(in crate::gate) struct RuleTerms<'r> {
    /// That of the first reading of the path.
    pub(in crate::gate) first: &'r Rule,
    /// The highest.
    pub(in crate::gate) cost: u64,
    /// Open if all rules are.
    pub(in crate::gate) on_failure: OnFailure,
    /// Whether the cost is an estimate.
    pub(in crate::gate) estimates: bool,
    /// The longest.
    pub(in crate::gate) settle_within: Option<Millis>,
}

impl<'r> RuleTerms<'r> {
    pub(in crate::gate) const fn of(rule: &'r Rule) -> Self {
        let Rule { cost, on_failure, settle_within, .. } = *rule;
        Self { first: rule, cost, on_failure, estimates: rule.estimate.is_some(), settle_within }
    }

    fn add(&mut self, rule: &Rule) {
        self.cost = self.cost.max(rule.cost);
        if rule.on_failure == OnFailure::Closed {
            self.on_failure = OnFailure::Closed;
        }
        self.estimates |= rule.estimate.is_some();
        self.settle_within = self.settle_within.max(rule.settle_within);
    }
}

/// The rules that apply to one request: one, unless readings of its path have different ones.
pub(in crate::gate) struct Applied<'r> {
    rules: &'r [Rule],
    /// Their places.
    places: SmallVec<usize>,
}

impl<'r> Applied<'r> {
    pub(super) const fn new(rules: &'r [Rule], first: usize) -> Self {
        Self { rules, places: SmallVec::one(first) }
    }

    /// Adds the rule of another reading, unless it applies already.
    pub(super) fn add(&mut self, place: usize) {
        if !self.places.contains(&place) {
            self.places = self.places.iter().copied().chain([place]).collect();
        }
    }

    /// The rules, that of the first reading first.
    pub(in crate::gate) fn rules(&self) -> impl Iterator<Item = &'r Rule> {
        self.places.iter().map(|place| &self.rules[*place])
    }

    pub(in crate::gate) fn is_one(&self) -> bool {
        self.places.len() == 1
    }

    /// The place of the only rule.
    pub(in crate::gate) fn only_place(&self) -> Option<usize> {
        if let [place] = *self.places { Some(place) } else { None }
    }

    /// The rule of the first reading.
    pub(in crate::gate) fn first(&self) -> &'r Rule {
        &self.rules[self.places[0]]
    }

    /// The rules that limit a tier.
    pub(in crate::gate) fn limiting(&self, tier: Option<usize>) -> impl Iterator<Item = &'r Rule> {
        self.rules().filter(move |rule| rule.policy(tier).is_some())
    }

    /// The first rule that refuses invalid tokens.
    pub(in crate::gate) fn refusing_invalid_tokens(&self) -> Option<&'r Rule> {
        self.rules().find(|rule| rule.refuses_invalid_tokens)
    }

    /// The first rule with a challenge, and its address.
    pub(in crate::gate) fn challenge(&self) -> Option<(&'r Rule, &'r str)> {
        self.rules().find_map(|rule| Some((rule, rule.challenge()?)))
    }

    /// What the rules that limit a tier say together. `None` if no rule does.
    pub(in crate::gate) fn terms(&self, tier: Option<usize>) -> Option<RuleTerms<'r>> {
        let mut rules = self.limiting(tier);
        let mut all = RuleTerms::of(rules.next()?);
        for rule in rules {
            all.add(rule);
        }
        Some(all)
    }

    /// The policy of all limits for a tier, each once. `None` if there is none.
    ///
    /// # Errors
    /// If no policy can be of all of them. A store decides by a limit that it lends alone.
    pub(in crate::gate) fn policy(&self, rules: &Rules, tier: Option<usize>) -> Result<Option<Arc<Policy>>, Error> {
        if self.is_one() {
            return Ok(self.first().policy(tier).cloned());
        }
        if self.rules().any(|rule| rule.lease.is_some()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a limit with a lease does not decide together with others",
            ));
        }
        let mut limits = Vec::new();
        for limit in self.rules().flat_map(|rule| &rule.limits) {
            if !limits.contains(limit) {
                limits.push(*limit);
            }
        }
        if let Some(all) = self.rules().find(|rule| rule.limits.len() == limits.len()) {
            return Ok(all.policy(tier).cloned());
        }
        let place = tier.map_or(0, |tier| tier + 1);
        let policies: Vec<&Policy> = limits.iter().filter_map(|limit| rules.limits[*limit][place].as_ref()).collect();
        if policies.is_empty() { Ok(None) } else { Policy::join(policies).map(|policy| Some(Arc::new(policy))) }
    }
}
