//! What a gate tells when a key reaches a part of its limit.

use std::fmt::Write as _;

use super::{EventSink, Hold};
use crate::{Decision, MaybeSend, MaybeSync, Origin, Policy, Quota, Rule, UnixMillis};

/// A charge has taken a key from below a part of its limit to it, or beyond: one of those in [`warn_at`](crate::Quota::warn_at).
///
/// A sink takes it by [`EventSink::warning`], or [`OnWarning`] makes a sink of a function. Each charge that crosses a part is one warning, decided
/// by the counts of that decision. After a refund, a drained bucket or a new window, the next crossing is another.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Warning<'a> {
    /// When the request was checked, or its charge settled.
    pub at: UnixMillis,
    /// The rule.
    pub rule: &'a str,
    /// The policy: the names of its limits.
    pub policy: &'a str,
    /// The quota.
    pub quota: &'a str,
    /// The part that is reached, in percent.
    pub percent: u8,
    /// A hash of the key that the quota counts by; see [`Events::key_secret`](super::Events::key_secret).
    pub key: Option<u64>,
    /// The quota's limit.
    pub limit: u64,
    /// How much of it is used. A debt counts as all.
    pub used: u64,
    /// When the window ends, for a fixed or a calendar window: a key that reaches the same part in two windows has two ends.
    pub window_end: Option<UnixMillis>,
    /// Whether a settlement has charged it.
    pub is_settled: bool,
    /// Whether this may have been told before: the settlement has ended in debt, which does not tell what was used before.
    pub may_repeat: bool,
}

impl Warning<'_> {
    /// One line of JSON, without a line end. Unknown values are left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { at, rule, policy, quota, percent, key, limit, used, window_end, is_settled, may_repeat } = self;
        let mut out = String::with_capacity(192);
        // The names of rules, policies and quotas need no escapes.
        let _ = write!(
            out,
            r#"{{"at_ms":{},"rule":"{rule}","policy":"{policy}","warning":{percent},"quota":"{quota}""#,
            at.get()
        );
        if let Some(key) = key {
            let _ = write!(out, r#","key":"{key:016x}""#);
        }
        let _ = write!(out, r#","limit":{limit},"used":{used}"#);
        if let Some(end) = window_end {
            let _ = write!(out, r#","window_end_ms":{}"#, end.get());
        }
        for (name, is_so) in [("settled", is_settled), ("may_repeat", may_repeat)] {
            if *is_so {
                let _ = write!(out, r#","{name}":true"#);
            }
        }
        out.push('}');
        out
    }
}

/// A sink that calls a function with each [`Warning`], and takes no events.
///
/// ```
/// use tidegate_core::gate::{Events, JsonLines, OnWarning, Warning};
/// let warned = OnWarning(|warning: &Warning<'_>| println!("{} % of {} is used", warning.percent, warning.quota));
/// let events = Events::new((JsonLines::new(std::io::stderr()), warned));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OnWarning<F>(
    /// The function. It must not block: the request waits for it.
    pub F,
);

impl<F: Fn(&Warning<'_>) + MaybeSend + MaybeSync> EventSink for OnWarning<F> {
    fn event(&self, _: &super::Event<'_>) {}

    fn warning(&self, warning: &Warning<'_>) {
        (self.0)(warning);
    }
}

/// What was charged when a decision was made.
#[derive(Clone, Copy)]
pub(super) enum Charged {
    /// A check of this cost, which was admitted.
    Check(u64),
    /// A settlement to so much more than the estimate.
    Settlement(u64),
}

impl Charged {
    /// The units of a quota.
    fn of(self, quota: &Quota) -> u64 {
        match (self, quota.rule()) {
            // A request holds one slot, whatever it costs.
            (Self::Check(cost), Rule::Concurrency(_)) => cost.min(1),
            (Self::Settlement(_), Rule::Concurrency(_)) => 0,
            (Self::Check(units) | Self::Settlement(units), _) => units,
        }
    }
}

/// Calls `tell` with each part of a limit that a charge has crossed. Its key is not yet in it.
pub(super) fn warnings<'a>(
    hold: &'a Hold,
    at: UnixMillis,
    decision: &Decision,
    charged: Charged,
    tell: &mut dyn FnMut(Warning<'a>, &'a Quota),
) {
    let policy: &Policy = &hold.policy;
    // Only a store's counts are of the whole limit. A replay has charged nothing.
    if !policy.warns()
        || policy.warns_of_what_is_covered()
        || decision.origin() != Origin::Store
        || decision.is_replay()
    {
        return;
    }
    let is_settled = matches!(charged, Charged::Settlement(_));
    if !is_settled && !decision.is_allowed() {
        return;
    }
    // A charge may be settled in a later window of its calendar.
    let current = policy.at(at);
    for ((quota, now), status) in policy.quotas().iter().zip(current.quotas()).zip(decision.quotas()) {
        let (limit, Some(remaining)) = (status.limit(), status.remaining()) else { continue };
        let before = limit.min(remaining.saturating_add(charged.of(quota)));
        let window_end = match (now.rule(), status.reset_after()) {
            (Rule::FixedWindow(_), Some(span)) => Some(decision.decided_at() + span),
            (Rule::CalendarWindow(window), _) => {
                Some(window.start() + window.window()).filter(|end| decision.decided_at() < *end)
            }
            _ => None,
        };
        for percent in quota.warn_at_percents().crossed(limit, before, remaining) {
            let warning = Warning {
                at,
                rule: &hold.terms.rule,
                policy: policy.name(),
                quota: quota.name(),
                percent,
                key: None,
                limit,
                used: limit.saturating_sub(remaining),
                window_end,
                is_settled,
                may_repeat: remaining == 0 && !decision.is_allowed(),
            };
            tell(warning, quota);
        }
    }
}
