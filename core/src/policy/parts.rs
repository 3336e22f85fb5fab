//! A policy in parts, which pass the boundary between two programs.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::Policy;
use crate::dimension::{Dimension, is_balance};
use crate::{Error, Quota, Rule};

/// All that a [`Policy`] is made of. It can express policies that no application writes: [joined](Policy::join) ones, and the
/// shares and proposals of limiters around limiters.
#[derive(Clone, Debug)]
pub struct PolicyParts {
    /// The name.
    pub name: String,
    /// The quotas, in the policy's order.
    pub quotas: Vec<Quota>,
    /// What the id of each quota's dimension begins with.
    pub scopes: Vec<String>,
    /// The place of the group among the dimensions.
    pub group: Option<usize>,
    /// [`Policy::place_by_key`].
    pub place_by_key: bool,
    /// [`Policy::charge_denied`].
    pub charge_denied: bool,
}

impl PolicyParts {
    /// The parts of a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let scope = |dimension: &Dimension| dimension.quotas().map(|_| dimension.scope().to_string()).collect();
        Self {
            name: policy.name.to_string(),
            quotas: policy.quotas.to_vec(),
            scopes: policy.dimensions.iter().flat_map(|dimension| -> Vec<String> { scope(dimension) }).collect(),
            group: policy.group,
            place_by_key: policy.place_by_key,
            charge_denied: policy.charge_denied,
        }
    }

    /// A quota with the name that a policy gave it. That may be longer than one that a caller gives.
    #[must_use]
    pub fn named(mut quota: Quota, name: &str) -> Quota {
        quota.name_it(name.to_string());
        quota
    }

    /// The policy with these parts, which are those of a policy.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for parts of no policy.
    pub fn join(self) -> Result<Policy, Error> {
        let Self { name, quotas, scopes, group, place_by_key, charge_denied } = self;
        let (mut dimensions, mut id, mut first) = (Vec::new(), String::new(), 0);
        for scope in scopes.chunk_by(|one, other| one == other) {
            let own = quotas.get(first..first + scope.len()).unwrap_or_default();
            if own.is_empty() {
                break;
            }
            let dimension = Dimension::of_scope(scope[0].clone(), first, own);
            if first > 0 {
                id.push('+');
            }
            id.push_str(dimension.id());
            first += own.len();
            dimensions.push(dimension);
        }
        let fits = first == quotas.len() && (1..=Policy::MAX_QUOTAS).contains(&first);
        if !fits || group.is_some_and(|place| place >= dimensions.len()) {
            return Err(Error::invalid("policy: these are the parts of none"));
        }
        Ok(Policy {
            name: name.into(),
            retention: quotas.iter().map(|quota| quota.rule().retention()).max().unwrap_or_default(),
            has_slots: quotas.iter().any(|quota| matches!(quota.rule(), Rule::Concurrency(_))),
            known_until: super::known_until(&quotas),
            balance: quotas.iter().position(is_balance),
            rows: crate::dimension::rows(&dimensions, &quotas),
            dimensions: dimensions.into(),
            group,
            place_by_key,
            charge_denied,
            field: crate::headers::policy_field(&quotas),
            quotas: quotas.into(),
            id: Box::from(id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::PolicyParts;
    use crate::{Error, Millis, Policy, Quota};

    #[test]
    fn the_parts_of_a_policy_make_the_same_policy() -> Result<(), Error> {
        let minute = Millis::from_secs(60);
        let window = |limit, name: &str| Quota::fixed_window(limit, minute).and_then(|quota| quota.named(name));
        let login = Policy::new("login", [window(5, "a")?.by("ip")?, window(9, "b")?.by("ip")?])?;
        let site = Policy::new("site", [window(7, "c")?.by("ip")?])?;
        let both = Policy::join([&login, &site])?;
        let grouped = Policy::new("x", [window(1, "d")?, window(2, "e")?.by("tenant")?])?.group_by("tenant")?;
        let placed = both.clone().place_by_key()?;
        let share = login.share(1, 2, 1).ok_or_else(|| Error::invalid("no share"))?;
        for policy in [login.with_own_counts("~"), login, both, grouped.charge_denied(true), placed, share] {
            let same = PolicyParts::of(&policy).join()?;
            // The proposal of a shadow has another id than its dimensions.
            if policy.id().ends_with('~') {
                assert_eq!(same.dimensions(), policy.dimensions());
                continue;
            }
            assert_eq!(same, policy);
        }
        let mut wrong = PolicyParts::of(&site);
        wrong.scopes.clear();
        assert!(wrong.join().is_err());
        Ok(())
    }
    /// What is stored of a bucket is in a unit of its period, which is in the name of its row.
    #[test]
    fn a_share_is_stored_and_kept_as_a_policy_of_its_quotas() -> Result<(), Error> {
        let second = Millis::from_secs(1);
        for quota in [Quota::token_bucket(100, 3, second)?, Quota::leaky_bucket(100, 3, second)?] {
            let policy = Policy::new("api", [quota])?;
            let share = policy.share(1, 10, 1).ok_or_else(|| Error::invalid("no share"))?;
            let same = Policy::new("api", share.quotas().to_vec())?;
            assert_ne!(share.dimensions(), policy.dimensions());
            assert_eq!((share.dimensions(), share.retention()), (same.dimensions(), same.retention()));
        }
        Ok(())
    }
}
