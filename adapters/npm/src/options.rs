//! The options, as texts. The TypeScript has checked their types and filled in the defaults.

use std::vec;

use tidegate_core::algorithm::Concurrency;
use tidegate_core::internal::PolicyParts;
use tidegate_core::{Error, Millis, Policy, Quota, Rule};

use crate::shared;

/// The options that are not read yet, in the order in which `test/reference.mjs` writes them, and after them those of the store.
pub(crate) struct Options(vec::IntoIter<Option<String>>);

impl Options {
    pub(crate) fn taken() -> Self {
        Self(shared::texts().into_iter())
    }

    pub(crate) fn some_text(&mut self) -> Option<String> {
        self.0.next().flatten()
    }

    pub(crate) fn text(&mut self) -> String {
        self.some_text().unwrap_or_default()
    }

    pub(crate) fn some_number(&mut self) -> Option<u64> {
        self.some_text()?.parse().ok()
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.some_number().unwrap_or_default()
    }

    pub(crate) fn millis(&mut self) -> Millis {
        Millis::new(self.number())
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.number() == 1
    }

    /// The policy, and whether a gate made it: then it has scopes, separated by commas.
    pub(crate) fn policy(&mut self) -> Result<(Policy, bool), Error> {
        let (name, charge_denied, group_by) = (self.text(), self.flag(), self.some_text());
        let (scopes, group, place_by_key) = (self.some_text(), self.some_number(), self.flag());
        let mut quotas = Vec::new();
        for nth in 0..self.number() {
            quotas.push(self.quota(&format!("policy.quotas[{nth}]."), scopes.is_some())?);
        }
        let place = |error| misplaced("policy.", &error);
        if let Some(scopes) = scopes {
            let parts = PolicyParts {
                name,
                quotas,
                scopes: scopes.split(',').map(Into::into).collect(),
                group: group.and_then(|place| usize::try_from(place).ok()),
                place_by_key,
                charge_denied,
            };
            return Ok((parts.join().map_err(place)?, true));
        }
        let policy = Policy::new(&name, quotas).map_err(place)?.charge_denied(charge_denied);
        match group_by {
            Some(dimension) => Ok((policy.group_by(&dimension).map_err(place)?, false)),
            None => Ok((policy, false)),
        }
    }

    /// A quota. If `made`, a policy gave it its name.
    fn quota(&mut self, place: &str, made: bool) -> Result<Quota, Error> {
        let (name, by, algorithm) = (self.some_text(), self.some_text(), self.number());
        // The limit, the capacity, or a penalty's cap; then the window, the bucket's period, the lifetime of a slot, or a penalty's
        // base; then the refill, a penalty's factor, or 1 if a concurrency limit returns the cost.
        let (inner, amount, span, last) = (self.text(), self.number(), self.millis(), self.number());
        let quota = match algorithm {
            0 => Quota::fixed_window(amount, span),
            1 => Quota::sliding_window(amount, span),
            2 => Quota::sliding_log(amount, span),
            3 => Quota::token_bucket(amount, last, span),
            4 => Quota::leaky_bucket(amount, last, span),
            5 => Concurrency::new(amount, span).map(|rule| Rule::Concurrency(rule.returns_cost(last == 1)).into()),
            6 => Quota::penalty(span, last, Millis::new(amount)),
            8 => Quota::from_parameters(8, [amount, span.get(), last]),
            9 => Quota::from_parameters(9, [amount, 0, last]),
            _ => Quota::block(Millis::new(amount)),
        };
        let named = |quota: Quota| {
            let quota = match name {
                Some(name) if made => PolicyParts::named(quota, &name),
                Some(name) => quota.named(&name)?,
                None => quota,
            };
            if let Some(dimension) = by { quota.by(&dimension) } else { Ok(quota) }
        };
        let quota = quota.map_err(|error| misplaced(&format!("{place}{inner}"), &error))?;
        named(quota).map_err(|error| misplaced(place, &error))
    }
}

/// An error about an option. Its message begins with the option's place, which is below `place`, and a colon.
pub(crate) fn misplaced(place: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{place}{error}"))
}
