//! Reduces a fixture that fails to a smaller one that still fails.

use std::time::{Duration, Instant};

use tidegate_core::Capabilities;

use crate::fixture::{Expect, Fixture};
use crate::judge::{Verdict, judge, unanswered};
use crate::reference;
use crate::replay::replay;
use crate::report::Counterexample;
use crate::subject::Subject;

/// The longest time that is spent on one fixture.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Returns the smallest fixture that was found to fail, or `None` if the fixture itself did not fail again. Without the
/// expectations that it states, other than errors: its answers are compared with the reference's.
///
/// Leaves out steps and requests of a burst as long as the rest fails. A fixture that disturbs its store is not reduced.
pub(super) async fn smallest(
    declared: &Capabilities,
    fixture: &Fixture,
    subject: &impl Subject,
    prefix: &str,
) -> Option<Counterexample> {
    if fixture.steps.iter().any(|step| step.disturb.is_some()) {
        return None;
    }
    let (began, mut replays) = (Instant::now(), 0_u32);
    let mut fails = async |candidate: &Fixture| {
        replays += 1;
        fails(declared, candidate, subject, &format!("{prefix}s{replays}.")).await
    };
    let mut smallest = without_expectations(fixture);
    let mut reason = fails(&smallest).await?;
    'smaller: loop {
        for candidate in smaller(&smallest) {
            if began.elapsed() > TIME_MAX {
                break 'smaller;
            }
            if let Some(why) = fails(&candidate).await {
                (smallest, reason) = (candidate, why);
                continue 'smaller;
            }
        }
        break;
    }
    Some(Counterexample { fixture: serde_json::to_value(&smallest).unwrap_or_default(), reason })
}

fn without_expectations(fixture: &Fixture) -> Fixture {
    let mut bare = fixture.clone();
    for step in &mut bare.steps {
        let error = step.expect.as_ref().and_then(|expect| expect.error);
        step.expect = error.map(|error| Expect { error: Some(error), ..Expect::default() });
    }
    bare
}

/// Returns why a fixture fails, if it does. One to which the reference itself answers with errors says nothing.
async fn fails(declared: &Capabilities, fixture: &Fixture, subject: &impl Subject, prefix: &str) -> Option<String> {
    let reference = reference::answers(fixture).await;
    if !unanswered(fixture, &reference).is_empty() {
        return None;
    }
    let found = replay(fixture, subject, prefix).await;
    let judged = judge(&declared.accuracy, subject.isolates(), fixture, &reference, &found);
    (judged.verdict == Verdict::Fail).then(|| judged.reasons.into_iter().next().unwrap_or_default())
}

/// The fixtures that are one step smaller, the smallest first: without some consecutive steps, or with a smaller burst.
fn smaller(fixture: &Fixture) -> Vec<Fixture> {
    let mut found = Vec::new();
    let steps = fixture.steps.len();
    let lengths = std::iter::successors(Some(steps / 2), |length| (*length > 1).then_some(length / 2));
    for length in lengths.filter(|length| *length > 0) {
        for first in (0..steps).step_by(length).rev() {
            let last = (first + length).min(steps);
            // A step that sets the policy of the steps after it stays.
            if fixture.steps[first..last].iter().all(|step| step.policy.is_none()) {
                let mut candidate = fixture.clone();
                candidate.steps.drain(first..last);
                found.push(candidate);
            }
        }
    }
    for (place, step) in fixture.steps.iter().enumerate() {
        let mut sizes = vec![1, step.burst / 2, step.burst - step.burst / 4, step.burst.saturating_sub(1)];
        sizes.retain(|size| (1..step.burst).contains(size));
        sizes.dedup();
        for burst in sizes {
            let mut candidate = fixture.clone();
            candidate.steps[place].burst = burst;
            found.push(candidate);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_core::MemoryLimiter;
    use tidegate_guest_protocol::{Reply, Route};

    use super::*;
    use crate::fixture::{Case, parse};
    use crate::subject::{InProcess, Place};

    /// Counts correctly, and answers each denial like an admission.
    struct NeverDenies(InProcess<MemoryLimiter>);

    impl Subject for NeverDenies {
        async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
            Ok(Reply { status: 200, ..self.0.send(route, body, place).await? })
        }
    }

    #[tokio::test]
    async fn a_failure_is_reduced_to_what_still_fails() {
        const CASE: &str = r#"{ "id": "a/b", "about": "x", "policy": { "name": "p", "quotas":
        [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] }, "steps": [
        { "at_ms": 0, "burst": 2, "key": "other" },
        { "at_ms": 0, "burst": 500, "key": "k", "expect": { "admitted": 3 } },
        { "at_ms": 500, "op": "peek", "key": "k" },
        { "at_ms": 900, "burst": 20, "key": "k" }] }"#;
        let Ok(Case::Decision(fixture)) = parse("a/b", CASE, None) else { panic!("no decision fixture") };
        let declared = Capabilities::EXACT;
        let honest = InProcess::new(MemoryLimiter::with_shards(1));
        let broken = NeverDenies(InProcess::new(MemoryLimiter::with_shards(1)));
        let smallest = smallest(&declared, &fixture, &broken, "").await.expect("a counterexample");
        let steps = &smallest.fixture["steps"];
        assert_eq!(steps, &serde_json::json!([{ "at_ms": 0, "burst": 4, "key": "k" }]), "{smallest:?}");
        let reason = "steps[0] (0 ms, check x4, \"k\"): answered with status 200, expected 429";
        assert_eq!(smallest.reason, reason);
        let again = parse("a/b", &smallest.fixture.to_string(), None);
        assert!(matches!(again, Ok(Case::Decision(_))), "it is no fixture: {smallest:?}");
        assert_eq!(super::smallest(&declared, &fixture, &honest, "").await, None);
    }
}
