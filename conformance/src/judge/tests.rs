use tollgate_core::{Accuracy, Drift};
use tollgate_guest_protocol::{Answer, Failure};

use super::{Judgement, Verdict, judge};
use crate::fixture::{Case, Fixture, parse};
use crate::oracle;
use crate::replay::{Answered, Replay};

const BURST: &str = r#"{ "id": "a/b", "about": "x", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 10, "key": "k" }] }"#;

const SOFT: Accuracy =
    Accuracy::Soft(Drift { formula: "limit + in_flight / 2", ceiling: |load| load.limit + load.in_flight / 2 });

fn fixture(text: &str) -> Box<Fixture> {
    match parse("a/b", text) {
        Ok(Case::Decision(fixture)) => fixture,
        _ => panic!("no decision fixture"),
    }
}

fn reference(fixture: &Fixture) -> Replay {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(oracle::reference(fixture))
}

/// What is said of a subject that answers as the reference does, but for what is done to its answers.
fn judged(accuracy: &Accuracy, text: &str, change: impl FnOnce(&mut Vec<Vec<Answered>>)) -> Judgement {
    let fixture = fixture(text);
    let reference = reference(&fixture);
    let mut found = reference.clone();
    change(&mut found.steps);
    judge(accuracy, &fixture, &reference, &found)
}

fn admit(answers: &mut [Answered], more: usize) {
    let allowed = answers[0].clone();
    answers[3..3 + more].fill(allowed);
}

fn fail(answers: &mut [Answered], places: std::ops::Range<usize>, kind: &str) {
    let failure = Failure { kind: kind.into(), message: "down".into() };
    answers[places].fill(Answered { status: 503, headers: Vec::new(), answer: Answer::Error(failure) });
}

#[test]
fn exact_is_the_reference_in_any_order() {
    let same = judged(&Accuracy::Exact, BURST, |steps| steps[0].reverse());
    assert_eq!((same.verdict, same.offered, same.admitted), (Verdict::Pass, 10, 3));
    assert!(same.ceiling_tested);
    let more = judged(&Accuracy::Exact, BURST, |steps| admit(&mut steps[0], 1));
    assert_eq!(more.verdict, Verdict::Fail);
    assert!(more.reasons[0].starts_with("steps[0] (0 ms, check x10, \"k\"): expected 1 x denied"), "{more:?}");
}

#[test]
fn an_error_is_no_denial() {
    let down = judged(&Accuracy::Exact, BURST, |steps| fail(&mut steps[0], 3..5, "unavailable"));
    assert_eq!((down.verdict, down.errors), (Verdict::Fail, 2));
    assert!(down.reasons[0].starts_with("2 x error unavailable"), "{down:?}");
    let blamed = judged(&Accuracy::Exact, BURST, |steps| {
        fail(&mut steps[0], 3..4, "timeout");
        steps[0][3].status = 429;
    });
    assert!(blamed.reasons[0].contains("blames the client"), "{blamed:?}");
}

#[test]
fn retry_after_is_whole_seconds_rounded_up() {
    let fractional = judged(&Accuracy::Exact, BURST, |steps| {
        for (name, value) in &mut steps[0][9].headers {
            if name == "retry-after" {
                *value = "0.5".into();
            }
        }
    });
    assert!(fractional.reasons[0].contains("Retry-After is 0.5 where 1 belongs"), "{fractional:?}");
}

#[test]
fn soft_stays_between_floor_and_ceiling() {
    let at = judged(&SOFT, BURST, |steps| admit(&mut steps[0], 5));
    assert_eq!((at.verdict, at.floor, at.ceiling, at.ceiling_tested), (Verdict::Pass, 1, 8, true));
    let above = judged(&SOFT, BURST, |steps| admit(&mut steps[0], 6));
    assert_eq!(above.verdict, Verdict::Fail);
    assert!(above.reasons[0].contains("admitted 9 where the ceiling is 8"), "{above:?}");
}

#[test]
fn a_lone_client_is_never_denied_early() {
    let alone = BURST.replace(
        r#"{ "at_ms": 0, "burst": 10, "key": "k" }"#,
        r#"{ "at_ms": 0, "key": "k" }, { "at_ms": 1, "key": "k" }"#,
    );
    let even = judged(&SOFT, &alone, |_| ());
    assert_eq!((even.verdict, even.floor, even.ceiling_tested), (Verdict::Pass, 2, false));
    let denied = judged(&SOFT, &alone, |steps| fail(&mut steps[1], 0..1, "contended"));
    assert!(denied.reasons[0].contains("admitted 1 where the floor is 2"), "{denied:?}");
}

#[test]
fn each_window_has_a_ceiling_of_its_own() {
    let later = BURST.replace("10, \"key\": \"k\" }", "10, \"key\": \"k\" }, { \"at_ms\": 1000, \"key\": \"k\" }");
    assert_eq!(judged(&SOFT, &later, |_| ()).ceiling, 8 + 1);
}

#[test]
fn locations_multiply_a_native_limit() {
    let twice = BURST.replace("\"policy\"", "\"locations\": 2, \"policy\"");
    let at = judged(&Accuracy::PerLocation, &twice, |steps| admit(&mut steps[0], 3));
    assert_eq!((at.verdict, at.ceiling), (Verdict::Pass, 6));
    let above = judged(&Accuracy::PerLocation, &twice, |steps| admit(&mut steps[0], 4));
    assert_eq!(above.verdict, Verdict::Fail);
}

#[test]
fn a_restart_neither_loses_nor_doubles_a_charge() {
    let restart = BURST.replace("\"burst\": 10", "\"burst\": 10, \"disturb\": \"restart\"");
    let down = judged(&Accuracy::Exact, &restart, |steps| fail(&mut steps[0], 1..6, "unavailable"));
    assert_eq!((down.verdict, down.admitted, down.errors), (Verdict::Pass, 1, 5));
    let doubled = judged(&Accuracy::Exact, &restart, |steps| fail(&mut steps[0], 2..3, "timeout"));
    assert_eq!(doubled.verdict, Verdict::Pass);
    let doubled = judged(&Accuracy::Exact, &restart, |steps| {
        let denied = steps[0][9].clone();
        steps[0][1..3].fill(denied);
        fail(&mut steps[0], 3..4, "timeout");
    });
    assert_eq!(doubled.verdict, Verdict::Fail);
    let lost = judged(&Accuracy::Exact, &restart, |steps| admit(&mut steps[0], 1));
    assert!(lost.reasons[0].contains("admitted 4 across the restart"), "{lost:?}");
    let corrupt = judged(&Accuracy::Exact, &restart, |steps| fail(&mut steps[0], 3..4, "corrupt"));
    assert_eq!(corrupt.verdict, Verdict::Fail);
}
