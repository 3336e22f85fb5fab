//! The rules that apply to one request.

use std::sync::Arc;

use super::{Rule, Rules};
use crate::few::Few;
use crate::gate::OnFailure;
use crate::{Error, ErrorKind, Policy};

/// The rules that apply to one request: one, unless readings of its path have different ones.
pub(in crate::gate) struct Applied<'r>(Few<&'r Rule>);

impl<'r> Applied<'r> {
    pub(super) const fn new(first: &'r Rule) -> Self {
        Self(Few::one(first))
    }

    /// Adds the rule of another reading, unless it applies already.
    pub(super) fn add(&mut self, rule: &'r Rule) {
        if !self.rules().any(|known| std::ptr::eq(known, rule)) {
            self.0 = self.rules().chain([rule]).collect();
        }
    }

    /// The rules, that of the first reading first.
    pub(in crate::gate) fn rules(&self) -> impl Iterator<Item = &'r Rule> {
        self.0.iter().copied()
    }

    pub(in crate::gate) fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// The rule of the first reading.
    pub(in crate::gate) fn first(&self) -> &'r Rule {
        self.0[0]
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

    /// The highest cost of the rules that limit a tier.
    pub(in crate::gate) fn cost(&self, tier: Option<usize>) -> u64 {
        self.limiting(tier).map(|rule| rule.cost).max().unwrap_or(self.first().cost)
    }

    /// Open if all rules that limit a tier are.
    pub(in crate::gate) fn on_failure(&self, tier: Option<usize>) -> OnFailure {
        if self.limiting(tier).all(|rule| rule.on_failure == OnFailure::Open) {
            OnFailure::Open
        } else {
            OnFailure::Closed
        }
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
