//! Tests that the fixtures hold approximate limiters to their bounds.

use std::path::Path;

use tidegate_core::{Accuracy, Capabilities, Drift, Limiter as _, MemoryLimiter};

use super::limiter::Fault;
use super::{Kind, Mistaken};
use crate::fixture::{Case, load, parse};
use crate::judge::{Verdict, judge};
use crate::reference::Prepared;
use crate::replay::replay;
use crate::report::FixtureReport;
use crate::run::{prepare, smallest};
use crate::soak::{Round, Tally};
use crate::subject::{InProcess, Subject};
use crate::target::Outside;

const WITHIN: Accuracy = Accuracy::Approximate(Drift::WITHIN_LIMIT);

/// Faults that admit too much, or deny a single sequential client early. Approximate limiters must not do this either.
const ADMIT_WRONGLY: [Fault; 18] = [
    Fault::OneMore,
    Fault::OneLess,
    Fault::LimitOneDenied,
    Fault::ReallyFixed,
    Fault::Race,
    Fault::ChargesDenials,
    Fault::NeverChargesDenials,
    Fault::ChargesTheOthers,
    Fault::NeverResets,
    Fault::ForgetsOnLimitChange,
    Fault::UnderflowsOnLoweredLimit,
    Fault::DropsRefillFraction,
    Fault::IdleBurst,
    Fault::ChargesOversized,
    Fault::IgnoresCost,
    Fault::RefundsBelowUnused,
    Fault::SettlesTwice,
    Fault::StepBackRefills,
];

async fn failed(fault: Fault, cases: &[Prepared]) -> Vec<&str> {
    let mut failed = Vec::new();
    for Prepared { case, reference, .. } in cases {
        let Case::Decision(fixture) = case else { continue };
        let found = replay(fixture, &Mistaken::new(Kind::Counts(fault)), "").await;
        if judge(&WITHIN, 1, fixture, reference, &found).verdict == Verdict::Fail {
            failed.push(case.id());
        }
    }
    failed
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
    let broken = Mistaken::new(Kind::Says(|reply| reply.status = 200));
    let smallest = smallest(&declared, &fixture, &broken, "").await.expect("a counterexample");
    let steps = &smallest.fixture["steps"];
    assert_eq!(steps, &serde_json::json!([{ "at_ms": 0, "burst": 4, "key": "k" }]), "{smallest:?}");
    let reason = "steps[0] (0 ms, check x4, \"k\"): answered with status 200, expected 429";
    assert_eq!(smallest.reason, reason);
    let again = parse("a/b", &smallest.fixture.to_string(), None);
    assert!(matches!(again, Ok(Case::Decision(_))), "it is no fixture: {smallest:?}");
    let honest = Mistaken::new(Kind::Says(|_| ()));
    assert_eq!(crate::run::smallest(&declared, &fixture, &honest, "").await, None);
}

/// The first of 20 rounds that fails.
async fn first_violation(subject: &impl Subject) -> Option<FixtureReport> {
    let target = Outside::here("soaked", MemoryLimiter::new().capabilities());
    let mut tally = Tally::default();
    for number in 0..20 {
        let report = Round { seed: 7, number }.play(&target, subject, &mut tally).await.expect("a round");
        if report.verdict == Verdict::Fail {
            return Some(report);
        }
    }
    assert_eq!((tally.rounds, tally.violations), (20, 0));
    assert!(tally.keys > 100 && tally.admitted > 100 && tally.decisions > tally.admitted, "{tally:?}");
    None
}

#[tokio::test]
async fn random_traffic_finds_what_is_broken_and_nothing_else() {
    assert_eq!(first_violation(&InProcess::new(MemoryLimiter::with_shards(1))).await, None);
    let found = first_violation(&Mistaken::new(Kind::Says(|reply| reply.status = 200))).await.expect("a violation");
    let again = first_violation(&Mistaken::new(Kind::Says(|reply| reply.status = 200))).await.expect("a violation");
    assert_eq!((&found.id, &found.smallest), (&again.id, &again.smallest));
    let steps = found.smallest.expect("a counterexample").fixture["steps"].as_array().map_or(0, Vec::len);
    assert!(steps <= 2, "{steps}");
}

#[tokio::test]
async fn the_bounds_of_an_approximate_limiter_catch_wrong_admissions() {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures"), None).expect("the fixtures load");
    let cases = prepare(cases).await.expect("the fixtures agree with the reference");
    assert_eq!(failed(Fault::None, &cases).await, Vec::<&str>::new(), "the correct limiter");
    for fault in ADMIT_WRONGLY {
        assert_ne!(failed(fault, &cases).await, Vec::<&str>::new(), "{fault:?}");
    }
}
