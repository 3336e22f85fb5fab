//! The limits that count for a sender, whatever it asks for.

use std::sync::Arc;

use super::{Rule, Rules};
use crate::Policy;

/// A limit that a rule counts by.
pub(in crate::gate) struct CountedLimit<'r> {
    /// The first rule that counts by it in its store.
    pub(in crate::gate) rule: &'r Rule,
    pub(in crate::gate) policy: Arc<Policy>,
}

impl Rules {
    /// The limits by which rules count the requests of a tier, each once in each store.
    pub(in crate::gate) fn every_limit(&self, tier: Option<usize>) -> Vec<CountedLimit<'_>> {
        let place = tier.map_or(0, |tier| tier + 1);
        let mut found: Vec<CountedLimit<'_>> = Vec::new();
        for rule in &self.rules {
            let limits = rule.limits.iter().filter_map(|limit| self.limits[*limit][place].as_ref());
            // The policy of a rule that is made in code is its only limit.
            let made = rule.policies[place].iter().filter(|_| rule.limits.is_empty());
            for policy in limits.map(|policy| Arc::new(policy.clone())).chain(made.cloned()) {
                let is_same =
                    |known: &CountedLimit<'_>| known.rule.store == rule.store && known.policy.name() == policy.name();
                if !found.iter().any(is_same) {
                    found.push(CountedLimit { rule, policy });
                }
            }
        }
        found
    }

    /// Whether a rule refuses requests whose token is invalid.
    pub(in crate::gate) fn refuse_invalid_tokens(&self) -> bool {
        self.rules.iter().any(|rule| rule.refuses_invalid_tokens)
    }
}
