//! A row as the core would keep it.

use std::collections::BTreeMap;

use tidegate_core::lending::Lender;
use tidegate_core::{Charge, Millis, Policy, PolicyState, QuotaState, UnixMillis};

pub(crate) fn written(state: &PolicyState, lender: &Lender) -> String {
    let part = |part: &QuotaState| match part {
        QuotaState::Window(window) => format!("fw1 {} {};", window.start.get(), window.used),
        QuotaState::Sliding(window) => {
            format!("sw1 {} {} {};", window.start.get(), window.previous, window.current)
        }
        QuotaState::Bucket(bucket) => format!("tb1 {} {};", bucket.level, bucket.at.get()),
        QuotaState::Calendar(window) => {
            format!("cw1 {} {} {};", window.end.get(), window.used, window.carried)
        }
        other => unreachable!("{other:?}"),
    };
    let text: String = state.parts().iter().map(part).collect();
    text + &loans(&lender.numbers())
}

pub(crate) fn loans(numbers: &[u64]) -> String {
    let [last, borrowers, loans @ ..] = numbers else { return String::new() };
    let loans: String = loans.chunks(3).map(|loan| format!(" {}:{}:{}", loan[0], loan[1], loan[2])).collect();
    format!("ln1 {last} {borrowers}{loans};")
}

/// A row as the core would keep it.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) row: Option<(PolicyState, Lender)>,
    pub(crate) tokens: BTreeMap<String, (Charge, bool)>,
}

/// The row as a step finds it.
pub(crate) struct Found {
    pub(crate) state: PolicyState,
    pub(crate) lender: Lender,
    settled: PolicyState,
    pub(crate) changed: bool,
}

impl Model {
    /// `None` if the row is not plausible.
    pub(crate) fn find(&self, policy: &Policy, now: UnixMillis) -> Option<Found> {
        let (mut state, mut lender) = match &self.row {
            None => (policy.initial_state(), Lender::default()),
            Some(row) => row.clone(),
        };
        policy.verify(&state, now).ok()?;
        let changed = lender.settle(policy, &mut state, now);
        // The script checks both. Only loans that were never charged make a state implausible.
        policy.verify(&state, now).ok()?;
        Some(Found { settled: state.clone(), state, lender, changed })
    }

    pub(crate) fn keep(&mut self, policy: &Policy, found: Found, now: UnixMillis) {
        let Found { state, lender, settled, changed } = found;
        let is_unused = self.row.is_none() && policy.expires_after(&state, now) == Millis::ZERO;
        if (changed || state != settled) && !is_unused {
            self.row = Some((state, lender));
        }
    }
}
