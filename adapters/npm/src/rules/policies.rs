//! Policies as the host gets them: once each. Afterwards they have numbers.

use std::cell::RefCell;
use std::fmt::Write as _;

use tidegate_core::internal::PolicyParts;
use tidegate_core::lending::Lease;
use tidegate_core::{Policy, Rule};

/// The policies that were named so far, and their leases.
#[derive(Default)]
pub(super) struct Policies(RefCell<Vec<(Policy, Option<Lease>)>>);

impl Policies {
    /// Appends the place of a policy, a comma, and the policy if the host does not have it yet, or else null.
    pub(super) fn write_place(&self, out: &mut String, policy: &Policy, lease: Option<Lease>) {
        let mut known = self.0.borrow_mut();
        match known.iter().position(|(known, one)| *one == lease && known == policy) {
            Some(place) => _ = write!(out, "{place},null"),
            None => {
                let _ = write!(out, "{},", known.len());
                write(out, policy, lease);
                known.push((policy.clone(), lease));
            }
        }
    }
}

/// Appends a policy as JSON: its name, whether it charges denials, the group's place or -1, whether it is placed by its key,
/// for each quota the algorithm, the three parameters, the name, the dimension and the scope, and the slice and the lifetime of its
/// loans or null. Nothing in them needs an escape.
fn write(out: &mut String, policy: &Policy, lease: Option<Lease>) {
    let PolicyParts { name, quotas, scopes, group, place_by_key, charge_denied } = PolicyParts::of(policy);
    let group = group.map_or_else(|| "-1".into(), |place| place.to_string());
    let _ = write!(out, r#"["{name}",{charge_denied},{group},{place_by_key},["#);
    for (place, (quota, scope)) in quotas.iter().zip(scopes).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let algorithm = match quota.rule() {
            Rule::FixedWindow(_) => 0,
            Rule::SlidingWindow(_) => 1,
            Rule::SlidingLog(_) => 2,
            Rule::TokenBucket(_) => 3,
            Rule::LeakyBucket(_) => 4,
            Rule::Concurrency(_) => 5,
            Rule::Penalty(penalty) if !penalty.punishes() => 7,
            Rule::CalendarWindow(_) => 8,
            Rule::Balance(_) => 9,
            _ => 6,
        };
        let [amount, span, refill] = quota.rule().parameters();
        let (name, by) = (quota.name(), quota.dimension());
        let _ = write!(out, r#"{comma}[{algorithm},{amount},{span},{refill},"{name}","{by}","{scope}"]"#);
    }
    let _ = match lease {
        Some(lease) => write!(out, "],[{},{},{}]]", lease.slice, lease.lifetime.get(), lease.grace),
        None => write!(out, "],null]"),
    };
}
