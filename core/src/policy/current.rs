//! Policies with the calendar windows of an instant, for who checks by the same ones again and again.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use crate::{Policy, UnixMillis};

/// How many policies are kept: a gate joins those of the rules that apply.
const KEPT_MAX: usize = 256;

/// The policies as they are in their current windows, each beside the one that it was made of. So a request takes no allocation while
/// a window lasts.
#[derive(Debug, Default)]
pub(crate) struct CurrentPolicies(RwLock<Vec<(Arc<Policy>, Arc<Policy>)>>);

impl CurrentPolicies {
    /// A policy with the calendar windows of an instant.
    pub(crate) fn at(&self, policy: &Arc<Policy>, now: UnixMillis) -> Arc<Policy> {
        if !policy.has_calendars() {
            return Arc::clone(policy);
        }
        let found = {
            let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
            kept.iter().find(|(of, _)| of == policy).map(|(_, current)| Arc::clone(current))
        };
        let known = found.as_ref().unwrap_or(policy);
        let Cow::Owned(current) = known.at(now) else { return Arc::clone(known) };
        let current = Arc::new(current);
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match kept.iter_mut().find(|(of, _)| of == policy) {
            Some((_, known)) => *known = Arc::clone(&current),
            None => {
                kept.truncate(KEPT_MAX - 1);
                kept.push((Arc::clone(policy), Arc::clone(&current)));
            }
        }
        current
    }
}
