//! Tests that the fixtures hold approximate limiters to their bounds.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::{Case, Disturb, load, shipped};
use tidegate_conformance::judge::{Verdict, judge};
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::replay::replay;
use tidegate_conformance::report::{Emulator, FixtureReport};
use tidegate_conformance::run::prepare;
use tidegate_conformance::subject::{InProcess, Subject};
use tidegate_core::{Accuracy, Capabilities, Drift, Limiter as _, MemoryLimiter};
use tidegate_harness::soak::{Round, Tally};
use tidegate_harness::target::{Facts, Running, Target};

use super::lending::Borrowed;
use super::limiter::Fault;
use super::{Kind, Mistaken, lending};

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

/// The first fixture that fails.
async fn failed(fault: Fault, cases: &[Prepared]) -> Option<&str> {
    for Prepared { case, reference, .. } in cases {
        let Case::Decision(fixture) = case else { continue };
        let found = replay(fixture, &Mistaken::new(Kind::Counts(fault)), "").await;
        if judge(&WITHIN, 1, fixture, reference, &found).verdict == Verdict::Fail {
            return Some(case.id());
        }
    }
    None
}

/// A target in this process.
struct Here {
    declared: Declared,
    /// Whether its borrowers can be killed, and asked by clients that abort their requests.
    lends: bool,
}

impl Declares for Here {
    fn declared(&self) -> Declared {
        self.declared
    }

    fn can(&self, disturb: Disturb) -> bool {
        self.lends && lending::can_be_disturbed(disturb)
    }
}

impl Target for Here {
    fn facts(&self) -> Facts<'_> {
        Facts::new("here", "a limiter in this process")
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Err("it is in this process".into())
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async { Err("it is in this process".into()) }.boxed_local()
    }
}

/// The first of 20 rounds that fails.
async fn first_violation(subject: &impl Subject) -> Option<FixtureReport> {
    first_violation_of(MemoryLimiter::new().capabilities(), false, subject).await
}

async fn first_violation_of(can: Capabilities, lends: bool, subject: &impl Subject) -> Option<FixtureReport> {
    let target = Here { declared: Declared::new(can), lends };
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
async fn random_traffic_with_kills_and_aborts_finds_loans_that_are_lost() {
    let found = async |fault| {
        let borrowed = Borrowed::new(fault, fault.lease()).expect("terms that can be");
        first_violation_of(borrowed.capabilities(), true, &borrowed).await
    };
    assert_eq!(found(lending::Fault::None).await, None);
    for fault in [lending::Fault::DeadKeepTheirs, lending::Fault::LostWithItsRequest] {
        let reasons = found(fault).await.map(|report| report.reasons);
        assert!(reasons.is_some_and(|reasons| reasons[0].contains("but the floor is")), "{fault:?}");
    }
}

#[tokio::test]
async fn the_bounds_of_an_approximate_limiter_catch_wrong_admissions() {
    let cases = load(shipped(), None).expect("the fixtures load");
    let cases = prepare(cases).await.expect("the fixtures agree with the reference");
    assert_eq!(failed(Fault::None, &cases).await, None, "the correct limiter");
    for fault in ADMIT_WRONGLY {
        assert_ne!(failed(fault, &cases).await, None, "{fault:?}");
    }
}
