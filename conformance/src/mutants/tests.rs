//! That approximate limiters are held to their bounds by the fixtures that there are.

use std::path::Path;

use tidegate_core::{Accuracy, Drift};

use super::limiter::Fault;
use super::{Kind, Mistaken};
use crate::fixture::{Case, load};
use crate::judge::{Verdict, judge};
use crate::replay::replay;
use crate::run::{Prepared, prepare};

const WITHIN: Accuracy = Accuracy::Approximate(Drift::WITHIN_LIMIT);

/// Mutants that admit too much, or deny a lone client early: what an approximate limiter may not either.
const ADMIT_WRONGLY: [Fault; 17] = [
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
async fn what_a_soft_limiter_may_not_do_is_caught_by_its_bounds() {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")).expect("the fixtures load");
    let cases = prepare(cases).await.expect("the fixtures agree with the reference");
    assert_eq!(failed(Fault::None, &cases).await, Vec::<&str>::new(), "the right limiter");
    for fault in ADMIT_WRONGLY {
        assert_ne!(failed(fault, &cases).await, Vec::<&str>::new(), "{fault:?}");
    }
}
