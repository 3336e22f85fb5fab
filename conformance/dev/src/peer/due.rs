//! What is due in each step of a fixture.

use std::collections::BTreeMap;

use tidegate_conformance::fixture::Fixture;
use tidegate_conformance::replay::Replay;
use tidegate_guest_protocol::Answer;

/// What is due in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// How many requests are admitted.
    pub(super) admitted: u64,
    /// The shortest and the longest wait of a denial, in milliseconds.
    pub(super) waits: Option<(u64, u64)>,
}

impl Due {
    fn denied(&mut self, wait_ms: Option<u64>) {
        let Some(wait_ms) = wait_ms else { return };
        let (least, most) = self.waits.unwrap_or((wait_ms, wait_ms));
        self.waits = Some((least.min(wait_ms), most.max(wait_ms)));
    }
}

/// The reference's answers.
pub(super) fn of(reference: &Replay) -> Vec<Due> {
    let step = |answers: &Vec<tidegate_conformance::replay::Answered>| {
        let mut due = Due::default();
        for one in answers {
            match &one.answer {
                _ if one.is_allowed() => due.admitted += 1,
                Answer::Decision(decision) => due.denied(decision.retry_after_ms),
                _ => {}
            }
        }
        due
    };
    reference.steps.iter().map(step).collect()
}

/// A fixed window that begins with the first request that is counted in it, and ends `late_ms` late.
pub(super) fn from_first_requests(fixture: &Fixture, charge_denied: bool, late_ms: u64) -> Vec<Due> {
    let (limit, window_ms) =
        fixture.policy.quotas().first().map_or((0, 0), |quota| (quota.rule().limit(), quota.rule().window().get()));
    let mut windows: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let steps = fixture.steps.iter().map(|step| {
        let now = fixture.instant(step.at_ms);
        let key = step.key.as_deref().unwrap_or_default();
        let mut due = Due::default();
        for _ in 0..step.burst {
            let (start, count) =
                windows.get(key).copied().filter(|(start, _)| now - start < window_ms + late_ms).unwrap_or((now, 0));
            let allowed = count.saturating_add(step.cost) <= limit;
            if allowed {
                due.admitted += 1;
            } else {
                due.denied((step.cost <= limit).then_some((start + window_ms).saturating_sub(now)));
            }
            if allowed || charge_denied {
                windows.insert(key, (start, count.saturating_add(step.cost)));
            }
        }
        due
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(steps: &str) -> Fixture {
        let quotas = r#"[{ "algorithm": "fixed_window", "limit": 3, "window_ms": 60000 }]"#;
        let text = format!(
            r#"{{ "id": "a/b", "about": "A test.", "policy": {{ "name": "p", "quotas": {quotas} }}, "steps": [{steps}] }}"#
        );
        serde_json::from_str(&text).expect("a fixture")
    }

    #[test]
    fn a_window_begins_with_the_first_request_that_is_counted() {
        let fixture = fixture(
            r#"{ "at_ms": 50000, "burst": 4, "key": "k" }, { "at_ms": 70000, "key": "k" }, { "at_ms": 110000, "key": "k" }"#,
        );
        let due = |admitted, wait_ms| Due { admitted, waits: Option::map(wait_ms, |ms| (ms, ms)) };
        let expected = [due(3, Some(60_000)), due(0, Some(40_000)), due(1, None)];
        assert_eq!(from_first_requests(&fixture, false, 0), expected);
    }

    #[test]
    fn a_denied_cost_is_charged_only_if_denials_are() {
        let fixture = fixture(
            r#"{ "at_ms": 0, "key": "k", "cost": 2 }, { "at_ms": 0, "key": "k", "cost": 2 }, { "at_ms": 0, "key": "k" }"#,
        );
        let admitted = |charge_denied| {
            from_first_requests(&fixture, charge_denied, 0).iter().map(|due| due.admitted).collect::<Vec<_>>()
        };
        assert_eq!((admitted(false), admitted(true)), (vec![1, 0, 1], vec![1, 0, 0]));
    }
}
