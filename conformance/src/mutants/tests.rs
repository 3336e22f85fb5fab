//! Tests that the fixtures hold approximate limiters to their bounds.

use std::path::Path;

use tidegate_core::{Accuracy, Drift};

use super::limiter::Fault;
use super::{Kind, Mistaken};
use crate::fixture::{Case, load};
use crate::judge::{Verdict, judge};
use crate::replay::replay;
use crate::run::{Prepared, prepare};

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
    for Prepared { case, reference } in cases {
        let Case::Decision(fixture) = case else { continue };
        let found = replay(fixture, &Mistaken::new(Kind::Counts(fault)), "").await;
        if judge(&WITHIN, 1, fixture, reference, &found).verdict == Verdict::Fail {
            failed.push(case.id());
        }
    }
    failed
}

#[tokio::test]
async fn the_bounds_of_an_approximate_limiter_catch_wrong_admissions() {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")).expect("the fixtures load");
    let cases = prepare(cases).await.expect("the fixtures agree with the reference");
    assert_eq!(failed(Fault::None, &cases).await, Vec::<&str>::new(), "the correct limiter");
    for fault in ADMIT_WRONGLY {
        assert_ne!(failed(fault, &cases).await, Vec::<&str>::new(), "{fault:?}");
    }
}
