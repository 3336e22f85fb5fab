use proptest::collection::vec;
use proptest::prelude::{prop_assert_eq, proptest};
use proptest::sample::select;
use serde_json::json;
use tidegate_core::{Accuracy, Ceiling, Drift, Floor, Millis};
use tidegate_guest_protocol::{Answer, Failure, Outcome};

use super::{Judgement, Verdict, judge};
use crate::fixture::{Case, Fixture, parse};
use crate::reference;
use crate::replay::{ABORTED, Answered, Replay};

const BURST: &str = r#"{ "id": "a/b", "about": "x", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 10, "key": "k" }] }"#;

const APPROXIMATE: Accuracy = Accuracy::Approximate(Drift {
    ceiling: Ceiling::Other { formula: "limit + in_flight / 2", of: |load| load.limit + load.in_flight / 2 },
    ..Drift::WITHIN_LIMIT
});

fn fixture(text: &str) -> Box<Fixture> {
    match parse("a/b", text, None) {
        Ok(Case::Decision(fixture)) => fixture,
        _ => panic!("no decision fixture"),
    }
}

fn reference(fixture: &Fixture) -> Replay {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(reference::answers(fixture))
}

/// Judges a subject that gives the reference's answers, after `change` has modified them.
fn judged(accuracy: &Accuracy, text: &str, change: impl FnOnce(&mut Vec<Vec<Answered>>)) -> Judgement {
    let fixture = fixture(text);
    let reference = reference(&fixture);
    let mut found = reference.clone();
    change(&mut found.steps);
    judge(accuracy, 1, &fixture, &reference, &found)
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
fn an_exact_limiter_gives_the_reference_answers_in_any_order() {
    let same = judged(&Accuracy::Exact, BURST, |steps| steps[0].reverse());
    assert_eq!((same.verdict, same.offered, same.admitted), (Verdict::Pass, 10, 3));
    assert!(same.ceiling_tested);
    let more = judged(&Accuracy::Exact, BURST, |steps| admit(&mut steps[0], 1));
    assert_eq!(more.verdict, Verdict::Fail);
    assert!(more.reasons[0].starts_with("steps[0] (0 ms, check x10, \"k\"): expected 1 x denied"), "{more:?}");
}

#[test]
fn an_error_is_not_a_denial() {
    let down = judged(&Accuracy::Exact, BURST, |steps| fail(&mut steps[0], 3..5, "unavailable"));
    assert_eq!((down.verdict, down.errors), (Verdict::Fail, 2));
    assert!(down.reasons[0].starts_with("2 x error unavailable"), "{down:?}");
    let blamed = judged(&Accuracy::Exact, BURST, |steps| {
        fail(&mut steps[0], 3..4, "timeout");
        steps[0][3].status = 429;
    });
    assert!(blamed.reasons[0].contains("blames the client"), "{blamed:?}");
}

const SETTLED: &str = r#"{ "at_ms": 0, "cost": 4, "key": "k", "token": "t", "token_ttl_ms": 60000 },
    { "at_ms": 0, "op": "settle", "burst": 3, "cost": 9, "key": "k", "token": "u", "expect": { "error": "unknown_charge" } },
    { "at_ms": 0, "op": "settle", "burst": 3, "cost": 1, "key": "k", "token": "t", "expect": { "replayed": 2 } }"#;

#[test]
fn an_expected_error_is_the_only_right_answer() {
    let text = steps(r#"{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000 }"#, SETTLED);
    for accuracy in [Accuracy::Exact, WITHIN] {
        let right = judged(&accuracy, &text, |_| ());
        assert_eq!((right.verdict, right.errors), (Verdict::Pass, 0), "{right:?}");
        let missing = judged(&accuracy, &text, |steps| steps[1][2] = steps[2][0].clone());
        let expected = "steps[1] (0 ms, settle x3 of cost 9, \"k\"): expect.error: expected unknown_charge, found none";
        assert_eq!(missing.reasons[0], expected);
        let another = judged(&accuracy, &text, |steps| fail(&mut steps[1], 0..1, "invalid"));
        assert!(another.reasons[0].ends_with("expected unknown_charge, found invalid"), "{another:?}");
        let unexpected = judged(&accuracy, &text, |steps| steps[2][1] = steps[1][0].clone());
        assert!(unexpected.reasons[0].starts_with("1 x error unknown_charge"), "{unexpected:?}");
        let as_success = judged(&accuracy, &text, |steps| steps[1][0].status = 200);
        assert!(as_success.reasons[0].contains("an error (unknown_charge) was answered with 200"), "{as_success:?}");
    }
    let unexpected = SETTLED.replace(r#", "expect": { "error": "unknown_charge" }"#, "");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let fixture = fixture(&steps(r#"{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000 }"#, &unexpected));
    let rejected = runtime.block_on(reference::agreed(&fixture)).expect_err("the reference answers with an error");
    assert!(rejected[0].starts_with("3 x error unknown_charge"), "{rejected:?}");
}

#[test]
fn a_limiter_that_holds_units_back_knows_no_charge_that_it_denied() {
    let text = steps(
        r#"{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000 }"#,
        r#"{ "at_ms": 0, "key": "k" }, { "at_ms": 0, "cost": 8, "key": "k", "token": "t", "token_ttl_ms": 60000 },
        { "at_ms": 0, "op": "settle", "cost": 2, "key": "k", "token": "t" }"#,
    );
    let unknown = |steps: &mut Vec<Vec<Answered>>| fail(&mut steps[2], 0..1, "unknown_charge");
    let denied = |steps: &mut Vec<Vec<Answered>>| {
        let Answer::Decision(decision) = &mut steps[1][0].answer else { panic!("no decision") };
        decision.status = Outcome::Denied;
        steps[1][0].status = 429;
        unknown(steps);
    };
    assert_eq!(judged(&LEASES, &text, denied).verdict, Verdict::Pass);
    assert_eq!(judged(&LEASES, &text, unknown).verdict, Verdict::Fail);
    assert_eq!(judged(&Accuracy::Exact, &text, denied).verdict, Verdict::Fail);
}

#[test]
fn a_replay_must_be_marked() {
    let text = steps(r#"{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000 }"#, SETTLED);
    let hidden = judged(&Accuracy::Exact, &text, |steps| {
        for one in &mut steps[2] {
            let Answer::Decision(decision) = &mut one.answer else { panic!("no decision") };
            decision.replayed = false;
        }
    });
    assert!(hidden.reasons[0].contains("expected 2 x allowed (8 of 9 remaining"), "{hidden:?}");
    assert!(hidden.reasons[0].contains("; an earlier answer)"), "{hidden:?}");
}

#[test]
fn retry_after_must_be_whole_seconds_rounded_up() {
    let fractional = judged(&Accuracy::Exact, BURST, |steps| {
        for (name, value) in &mut steps[0][9].headers {
            if name == "retry-after" {
                *value = "0.5".into();
            }
        }
    });
    assert!(fractional.reasons[0].contains("Retry-After is 0.5, expected 1"), "{fractional:?}");
}

#[test]
fn an_approximate_limiter_stays_between_floor_and_ceiling() {
    let at = judged(&APPROXIMATE, BURST, |steps| admit(&mut steps[0], 5));
    assert_eq!((at.verdict, at.floor, at.ceiling, at.ceiling_tested), (Verdict::Pass, 3, 8, true));
    let above = judged(&APPROXIMATE, BURST, |steps| admit(&mut steps[0], 6));
    assert_eq!(above.verdict, Verdict::Fail);
    assert!(above.reasons[0].contains("admitted 9 from 0 ms to 0 ms, but the ceiling is 8"), "{above:?}");
}

#[test]
fn a_single_sequential_client_is_never_denied_early() {
    let alone = BURST.replace(
        r#"{ "at_ms": 0, "burst": 10, "key": "k" }"#,
        r#"{ "at_ms": 0, "key": "k" }, { "at_ms": 1, "key": "k" }"#,
    );
    let even = judged(&APPROXIMATE, &alone, |_| ());
    assert_eq!((even.verdict, even.floor, even.ceiling_tested), (Verdict::Pass, 2, false));
    let denied = judged(&APPROXIMATE, &alone, |steps| fail(&mut steps[1], 0..1, "contended"));
    assert!(denied.reasons[0].contains("admitted 1, but the floor is 2"), "{denied:?}");
}

#[test]
fn each_window_has_its_own_ceiling() {
    let later = BURST.replace("10, \"key\": \"k\" }", "10, \"key\": \"k\" }, { \"at_ms\": 1000, \"key\": \"k\" }");
    assert_eq!(judged(&APPROXIMATE, &later, |_| ()).ceiling, 8 + 1);
}

#[test]
fn the_per_location_ceiling_is_the_limit_times_the_locations_used() {
    let elsewhere = r#"10, "key": "k" }, { "at_ms": 0, "location": 1, "burst": 10, "key": "k" }"#;
    let twice = BURST.replace("\"policy\"", "\"locations\": 3, \"policy\"").replace(r#"10, "key": "k" }"#, elsewhere);
    let allowed = |steps: &[Vec<Answered>]| steps[0][0].clone();
    let at = judged(&Accuracy::PerLocation, &twice, |steps| {
        let allowed = allowed(steps);
        steps[1][..3].fill(allowed);
    });
    assert_eq!((at.verdict, at.admitted, at.ceiling, at.ceiling_tested), (Verdict::Pass, 6, 6, true), "{at:?}");
    let above = judged(&Accuracy::PerLocation, &twice, |steps| {
        let allowed = allowed(steps);
        steps[1][..4].fill(allowed);
    });
    assert!(above.reasons[0].contains("admitted 4 from 0 ms to 0 ms, but the ceiling is 3"), "{above:?}");
}

#[test]
fn an_isolate_that_replaces_an_evicted_one_counts_as_one_more_location() {
    let evicted = r#"10, "key": "k" }, { "at_ms": 0, "burst": 10, "key": "k", "disturb": "evict" }"#;
    let twice = BURST.replace(r#"10, "key": "k" }"#, evicted);
    let forgotten = admitting(&Accuracy::PerLocation, &twice, &[3, 3]);
    assert_eq!((forgotten.verdict, forgotten.ceiling), (Verdict::Pass, 6), "{forgotten:?}");
    let above = admitting(&Accuracy::PerLocation, &twice, &[3, 4]);
    assert!(above.reasons[0].contains("admitted 4 from 0 ms to 0 ms, but the ceiling is 3"), "{above:?}");
    let exact = admitting(&Accuracy::Exact, &twice, &[3, 3]);
    assert_eq!(exact.verdict, Verdict::Fail, "what an exact limiter has stored is not evicted");
}

/// A window that has been left is forgotten, so after the clock has stepped back, the reference admits 4 in a window of 3.
#[test]
fn another_limiter_may_admit_what_the_reference_admits_after_the_clock_has_stepped_back() {
    let text = r#"{ "id": "a/b", "about": "The clock steps back.", "start_ms": 1805875200000, "policy": { "name": "p", "quotas":
        [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 60000 }] }, "steps": [
        { "at_ms": -11787, "key": "k" }, { "at_ms": 1044, "key": "k" }, { "at_ms": -67088, "burst": 5, "key": "k" }] }"#;
    let as_much = admitting(&Accuracy::PerLocation, text, &[1, 1, 2]);
    assert_eq!((as_much.verdict, as_much.exact), (Verdict::Pass, 4), "{as_much:?}");
    let more = admitting(&Accuracy::PerLocation, text, &[1, 1, 3]);
    assert!(more.reasons[0].contains("admitted 4 from -7088 ms to -7088 ms, but the ceiling is 3"), "{more:?}");
}

/// The previous window weighs more again after the clock has stepped back.
#[test]
fn no_limiter_must_admit_more_than_the_reference_after_the_clock_has_stepped_back() {
    let text = r#"{ "id": "a/b", "about": "The clock steps back.", "start_ms": 1831968000000, "policy": { "name": "p", "quotas":
        [{ "algorithm": "sliding_window", "limit": 38, "window_ms": 60000 }] }, "steps": [
        { "at_ms": -34329, "burst": 7, "key": "k" }, { "at_ms": 54518, "key": "k" }, { "at_ms": 50203, "burst": 36, "key": "k" }] }"#;
    let as_many = admitting(&Accuracy::PerLocation, text, &[7, 1, 35]);
    assert_eq!((as_many.verdict, as_many.exact, as_many.floor), (Verdict::Pass, 43, 43), "{as_many:?}");
    let fewer = admitting(&Accuracy::PerLocation, text, &[7, 1, 34]);
    assert!(fewer.reasons[0].contains("admitted 42, but the floor is 43"), "{fewer:?}");
}

proptest! {
    /// An exact limiter is within the bounds of every limiter that holds nothing back, wherever the clock jumps.
    #[test]
    fn the_reference_is_within_every_bound(
        algorithm in select(vec!["fixed_window", "sliding_window", "sliding_log"]),
        limit in 1_u64..40,
        steps in vec((0_i64..200_000, 1_u64..40), 1..6),
    ) {
        let steps: Vec<_> = steps.iter().map(|(at_ms, burst)| json!({ "at_ms": at_ms, "burst": burst, "key": "k" })).collect();
        let quotas = json!([{ "algorithm": algorithm, "limit": limit, "window_ms": 60_000 }]);
        let text = json!({ "id": "a/b", "about": "A clock.", "policy": { "name": "p", "quotas": quotas }, "steps": steps });
        for accuracy in [Accuracy::Approximate(Drift::WITHIN_LIMIT), Accuracy::PerLocation] {
            let found = judged(&accuracy, &text.to_string(), |_| ());
            prop_assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.reasons);
        }
    }
}

/// Judges a subject that admits these numbers of requests in each step.
fn admitting(accuracy: &Accuracy, text: &str, admitted: &[usize]) -> Judgement {
    judged(accuracy, text, |steps| {
        let all = || steps.iter().flatten();
        let (yes, no) = (all().find(|one| one.is_allowed()).cloned(), all().find(|one| !one.is_allowed()).cloned());
        let (yes, no) = (yes.expect("an admission"), no.expect("a denial"));
        for (step, admitted) in steps.iter_mut().zip(admitted) {
            let (first, rest) = step.split_at_mut(*admitted);
            first.fill(yes.clone());
            rest.fill(no.clone());
        }
    })
}

fn steps(quota: &str, steps: &str) -> String {
    format!(r#"{{ "id": "a/b", "about": "x", "policy": {{ "name": "p", "quotas": [{quota}] }}, "steps": [{steps}] }}"#)
}

const WITHIN: Accuracy = Accuracy::Approximate(Drift::WITHIN_LIMIT);
const LEASES: Accuracy =
    Accuracy::Approximate(Drift { floor: Floor { held: 1, within: Some(Millis::new(500)) }, ..Drift::WITHIN_LIMIT });

const BUCKET: &str = r#"{ "algorithm": "token_bucket", "capacity": 4, "refill": 1, "per_ms": 1000 }"#;

#[test]
fn units_spent_late_stay_within_the_maximum_of_the_interval() {
    // The whole bucket is refilled in four seconds: the reference admits 4, 3 and 1.
    let text = steps(
        BUCKET,
        r#"{ "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 3999, "burst": 9, "key": "k" },
        { "at_ms": 4000, "burst": 9, "key": "k" }"#,
    );
    let late = admitting(&LEASES, &text, &[4, 2, 2]);
    assert_eq!((late.verdict, late.ceiling, late.ceiling_tested), (Verdict::Pass, 8, true), "{late:?}");
    let more = admitting(&LEASES, &text, &[4, 3, 2]);
    assert!(more.reasons[0].contains("admitted 5 from 3999 ms to 4000 ms, but the ceiling is 4"), "{more:?}");
    let log = text.replace(BUCKET, r#"{ "algorithm": "sliding_log", "limit": 4, "window_ms": 4000 }"#);
    assert_eq!(admitting(&WITHIN, &log, &[4, 0, 4]).verdict, Verdict::Pass);
    let early = admitting(&WITHIN, &log, &[4, 1, 3]);
    assert!(early.reasons[0].contains("admitted 5 from 0 ms to 3999 ms, but the ceiling is 4"), "{early:?}");
}

#[test]
fn leased_units_may_be_spent_later_in_the_same_window() {
    let window = r#"{ "algorithm": "fixed_window", "limit": 4, "window_ms": 1000 }"#;
    let text = steps(
        window,
        r#"{ "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 999, "burst": 9, "key": "k" },
        { "at_ms": 1000, "burst": 9, "key": "k" }"#,
    );
    let late = admitting(&LEASES, &text, &[3, 1, 4]);
    // Each window owes three.
    assert_eq!((late.verdict, late.floor, late.ceiling), (Verdict::Pass, 6, 8), "{late:?}");
    assert!(!admitting(&LEASES, &text, &[3, 2, 3]).reasons.is_empty());
    let early = admitting(&LEASES, &text, &[2, 2, 4]);
    assert!(early.reasons[0].contains("admitted 2, but the floor is 3"), "{early:?}");
}

#[test]
fn the_floor_holds_again_when_the_key_is_unused_again() {
    let window = r#"{ "algorithm": "fixed_window", "limit": 4, "window_ms": 1000 }"#;
    let text = steps(window, r#"{ "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 1000, "burst": 9, "key": "k" }"#);
    // What the first window admits beyond its floor does not pay for the second one.
    let under = admitting(&LEASES, &text, &[4, 2]);
    assert!(under.reasons[0].contains("admitted 2, but the floor is 3 from 1000 ms on"), "{under:?}");
    // A bucket is full four seconds after it was drained, and loans of the first burst end half a second after it.
    let at = |ms: u64| {
        steps(
            BUCKET,
            &format!(r#"{{ "at_ms": 0, "burst": 9, "key": "k" }}, {{ "at_ms": {ms}, "burst": 9, "key": "k" }}"#),
        )
    };
    assert_eq!(admitting(&LEASES, &at(8_499), &[4, 2]).verdict, Verdict::Pass);
    assert!(!admitting(&LEASES, &at(8_500), &[4, 2]).reasons.is_empty());
    assert_eq!(admitting(&LEASES, &at(8_500), &[4, 3]).verdict, Verdict::Pass);
}

#[test]
fn each_borrower_that_has_replaced_a_killed_one_holds_as_much() {
    let window = r#"{ "algorithm": "fixed_window", "limit": 8, "window_ms": 1000 }"#;
    let killed = |at_ms: u64| {
        let first = r#"{ "at_ms": 0, "burst": 2, "key": "k" }"#;
        steps(window, &format!(r#"{first}, {{ "at_ms": {at_ms}, "burst": 20, "key": "k", "disturb": "kill" }}"#))
    };
    let (as_many, fewer) = (admitting(&LEASES, &killed(0), &[2, 4]), admitting(&LEASES, &killed(0), &[2, 3]));
    assert_eq!((as_many.verdict, as_many.floor), (Verdict::Pass, 6), "{as_many:?}");
    assert!(fewer.reasons[0].contains("admitted 5, but the floor is 6"), "{fewer:?}");
    // The next window is not that of the dead.
    assert!(!admitting(&LEASES, &killed(1_000), &[2, 6]).reasons.is_empty());
    assert_eq!(admitting(&LEASES, &killed(1_000), &[2, 7]).verdict, Verdict::Pass);
}

#[test]
fn after_a_fault_the_floor_holds_again_when_the_key_is_unused_again() {
    let window = r#"{ "algorithm": "fixed_window", "limit": 4, "window_ms": 1000 }"#;
    let text = steps(
        window,
        r#"{ "at_ms": 0, "burst": 9, "key": "k", "disturb": "hang" }, { "at_ms": 1000, "burst": 9, "key": "k" }"#,
    );
    assert_eq!(admitting(&LEASES, &text, &[1, 3]).verdict, Verdict::Pass);
    assert!(!admitting(&LEASES, &text, &[4, 2]).reasons.is_empty());
}

/// Aborts a request of the second step in place of each answer to it.
fn abort(steps: &mut [Vec<Answered>]) {
    let failure = Failure { kind: ABORTED.into(), message: String::new() };
    steps[1].fill(Answered { status: 0, headers: Vec::new(), answer: Answer::Error(failure) });
}

#[test]
fn each_request_that_is_aborted_lowers_the_floor_of_its_key_by_one() {
    let window = r#"{ "algorithm": "fixed_window", "limit": 8, "window_ms": 1000 }"#;
    let text = steps(
        window,
        r#"{ "at_ms": 0, "burst": 2, "key": "k" }, { "at_ms": 0, "burst": 3, "key": "k", "disturb": "abort" },
        { "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 0, "burst": 9, "key": "other" }"#,
    );
    let aborted = |accuracy: &Accuracy, more: u64, others: u64| {
        judged(accuracy, &text, |steps| {
            abort(steps);
            let (allowed, denied) = (steps[0][0].clone(), steps[2][8].clone());
            for (answers, count) in steps[2..].iter_mut().zip([more, others]) {
                let as_many =
                    |(nth, one): (u64, &mut Answered)| *one = if nth < count { &allowed } else { &denied }.clone();
                (0..).zip(answers).for_each(as_many);
            }
        })
    };
    let is_said = |judgement: Judgement, expected: String| {
        assert!(judgement.reasons.last().is_some_and(|said| said.contains(&expected)), "{expected}: {judgement:?}");
    };
    for (accuracy, least) in [(Accuracy::Exact, 8), (LEASES, 7)] {
        let all_charged = aborted(&accuracy, least - 5, least);
        assert_eq!((all_charged.verdict, all_charged.errors), (Verdict::Pass, 3), "{all_charged:?}");
        assert_eq!(aborted(&accuracy, 6, 8).verdict, Verdict::Pass, "none is charged");
        let lost = format!("admitted {}, but the floor is {}", least - 4, least - 3);
        is_said(aborted(&accuracy, least - 6, 8), lost);
        // What may be charged to one key lowers the floor of no other.
        is_said(aborted(&accuracy, 6, least - 1), format!("\"other\": admitted {}, but the floor is", least - 1));
        is_said(aborted(&accuracy, 7, 8), "admitted 9 from 0 ms to 0 ms, but the ceiling is 8".into());
    }
}

/// Answers a step with so many admissions, and denials or errors otherwise.
fn answer(answers: &mut [Answered], admitted: usize, allowed: &Answered, other: &Answered) {
    answers.iter_mut().enumerate().for_each(|(nth, one)| *one = if nth < admitted { allowed } else { other }.clone());
}

#[test]
fn an_admission_whose_answer_was_lost_is_owed_no_more() {
    let log = r#"{ "algorithm": "sliding_log", "limit": 3, "window_ms": 1000 }"#;
    let text = steps(
        log,
        r#"{ "at_ms": 0, "burst": 5, "key": "k", "disturb": "lose_answers" }, { "at_ms": 1, "burst": 5, "key": "k" }"#,
    );
    let denied = |errors: usize| {
        judged(&LEASES, &text, |steps| {
            let denied = steps[0][4].clone();
            steps.iter_mut().for_each(|answers| answers.fill(denied.clone()));
            fail(&mut steps[0], 0..errors, "timeout");
        })
    };
    assert_eq!(denied(5).verdict, Verdict::Pass, "{:?}", denied(5));
    assert_eq!(denied(1).verdict, Verdict::Pass);
    let none = denied(0);
    assert!(none.reasons.iter().any(|said| said.contains("admitted 0, but the floor is 1")), "{none:?}");
}

#[test]
fn a_borrower_that_takes_the_place_of_another_has_a_grace_of_its_own() {
    let accuracy = Accuracy::Approximate(Drift { grace: 1, ..LEASES.drift() });
    for disturb in ["kill", "restart"] {
        let window = r#"{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 }"#;
        let text = steps(
            window,
            &format!(
                r#"{{ "at_ms": 0, "burst": 5, "key": "k" }}, {{ "at_ms": 1, "burst": 5, "key": "k", "disturb": "{disturb}" }},
            {{ "at_ms": 2, "burst": 5, "key": "k" }}"#
            ),
        );
        let admitted = |counts: [usize; 3]| {
            judged(&accuracy, &text, |steps| {
                let (allowed, denied) = (steps[0][0].clone(), steps[0][4].clone());
                steps.iter_mut().zip(counts).for_each(|(answers, count)| answer(answers, count, &allowed, &denied));
            })
        };
        // The limit, and a grace before and after.
        for counts in [[2, 1, 0], [2, 0, 1], [1, 2, 0]] {
            assert_eq!(admitted(counts).verdict, Verdict::Pass, "{disturb} {counts:?}: {:?}", admitted(counts));
        }
        for counts in [[3, 0, 0], [2, 2, 0], [2, 0, 2]] {
            assert_eq!(admitted(counts).verdict, Verdict::Fail, "{disturb} {counts:?}");
        }
    }
}

#[test]
fn each_algorithm_is_held_to_its_own_maximum() {
    for (quota, three) in [
        (r#"{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }"#, [3, 0, 3]),
        (r#"{ "algorithm": "sliding_window", "limit": 3, "window_ms": 1000 }"#, [3, 0, 0]),
        (r#"{ "algorithm": "sliding_log", "limit": 3, "window_ms": 1000 }"#, [3, 0, 3]),
        (r#"{ "algorithm": "token_bucket", "capacity": 3, "refill": 3, "per_ms": 1000 }"#, [3, 2, 1]),
        (r#"{ "algorithm": "leaky_bucket", "capacity": 3, "refill": 3, "per_ms": 1000 }"#, [3, 2, 1]),
    ] {
        let text = steps(
            quota,
            r#"{ "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 999, "burst": 9, "key": "k" },
            { "at_ms": 1000, "burst": 9, "key": "k" }"#,
        );
        let right = admitting(&WITHIN, &text, &three);
        assert_eq!((right.verdict, right.ceiling), (Verdict::Pass, right.exact), "{quota}: {right:?}");
        for place in 0..3 {
            let mut more = three;
            more[place] += 1;
            assert_eq!(admitting(&WITHIN, &text, &more).verdict, Verdict::Fail, "{quota}: {more:?}");
        }
    }
}

#[test]
fn each_quota_bounds_the_cost_admitted() {
    let two = r#"{ "algorithm": "fixed_window", "limit": 9, "window_ms": 1000 },
        { "algorithm": "token_bucket", "capacity": 20, "refill": 1, "per_ms": 60000 }"#;
    let text = steps(
        two,
        r#"{ "at_ms": 0, "burst": 5, "cost": 4, "key": "k" }, { "at_ms": 0, "burst": 5, "key": "k" },
        { "at_ms": 1000, "burst": 5, "cost": 4, "key": "k" }, { "at_ms": 2000, "burst": 5, "cost": 4, "key": "k" }"#,
    );
    // Limits: 9 per window, and 20 in total.
    let right = admitting(&WITHIN, &text, &[2, 1, 2, 0]);
    assert_eq!((right.verdict, right.ceiling), (Verdict::Pass, 1 + 5 + 2), "{right:?}");
    let by_window = admitting(&WITHIN, &text, &[2, 2, 2, 0]);
    assert!(by_window.reasons[0].contains("admitted 10 from 0 ms to 0 ms, but the ceiling is 9"), "{by_window:?}");
    let by_bucket = admitting(&WITHIN, &text, &[2, 1, 2, 1]);
    assert!(by_bucket.reasons[0].contains("admitted 21 from 0 ms to 2000 ms, but the ceiling is 20"), "{by_bucket:?}");
}

#[test]
fn a_reset_starts_over_and_a_refund_makes_room() {
    let day = r#"{ "algorithm": "fixed_window", "limit": 3, "window_ms": 86400000 }"#;
    let text = steps(
        day,
        r#"{ "at_ms": 0, "burst": 9, "key": "k" }, { "at_ms": 1, "op": "reset", "key": "k" },
        { "at_ms": 1, "burst": 9, "key": "k" }, { "at_ms": 2, "op": "refund", "cost": 2, "charged_at_ms": 1, "key": "k" },
        { "at_ms": 2, "burst": 9, "key": "k" }"#,
    );
    let right = judged(&WITHIN, &text, |_| ());
    assert_eq!((right.verdict, right.admitted, right.ceiling), (Verdict::Pass, 3 + 3 + 2, 8), "{right:?}");
    for more in [[4, 3, 2], [3, 4, 1], [3, 3, 3]] {
        let more = judged(&WITHIN, &text, |steps| {
            let allowed = steps[0][0].clone();
            for (place, count) in [0, 2, 4].into_iter().zip(more) {
                steps[place][..count].fill(allowed.clone());
            }
        });
        assert_eq!(more.verdict, Verdict::Fail, "{more:?}");
    }
}

#[test]
fn a_settlement_makes_as_much_room_as_it_returns_and_a_debt_lowers_the_floor() {
    let day = r#"{ "algorithm": "fixed_window", "limit": 10, "window_ms": 86400000 }"#;
    let text = |actual: u64| {
        steps(
            day,
            &format!(
                r#"{{ "at_ms": 0, "cost": 8, "key": "k", "token": "t", "token_ttl_ms": 60000 }},
        {{ "at_ms": 0, "op": "settle", "burst": 5, "cost": {actual}, "key": "k", "token": "t" }},
        {{ "at_ms": 0, "burst": 20, "key": "k" }}"#
            ),
        )
    };
    let right = judged(&WITHIN, &text(2), |_| ());
    assert_eq!((right.verdict, right.admitted, right.ceiling), (Verdict::Pass, 1 + 8, 1 + 10), "{right:?}");
    let more = judged(&WITHIN, &text(2), |steps| steps[2][8] = steps[2][0].clone());
    assert!(more.reasons[0].contains("admitted 17 from 0 ms to 0 ms, but the ceiling is 16"), "{more:?}");
    let debt = judged(&WITHIN, &text(15), |_| ());
    assert_eq!((debt.verdict, debt.admitted), (Verdict::Pass, 1), "{debt:?}");
}

#[test]
fn a_changed_limit_applies_from_then_on() {
    let bucket = |capacity| BUCKET.replace('4', capacity);
    let text = steps(
        &bucket("4"),
        &format!(
            r#"{{ "at_ms": 0, "burst": 9, "key": "k" }},
        {{ "at_ms": 1, "burst": 9, "key": "k", "policy": {{ "name": "p", "quotas": [{}] }} }}"#,
            bucket("6")
        ),
    );
    let right = admitting(&WITHIN, &text, &[4, 2]);
    assert_eq!((right.verdict, right.ceiling), (Verdict::Pass, 6), "{right:?}");
    assert_eq!(admitting(&WITHIN, &text, &[4, 3]).verdict, Verdict::Fail);
    assert_eq!(admitting(&WITHIN, &text, &[5, 1]).verdict, Verdict::Fail);
}

#[test]
fn a_clock_that_steps_back_gives_a_single_limiter_no_extra_room() {
    let text = steps(
        BUCKET,
        r#"{ "at_ms": 9000, "burst": 9, "key": "k" }, { "at_ms": 5000, "burst": 9, "key": "k" },
        { "at_ms": 9000, "burst": 9, "key": "k" }"#,
    );
    assert_eq!(admitting(&WITHIN, &text, &[4, 0, 0]).verdict, Verdict::Pass);
    for more in [[4, 1, 0], [4, 0, 1]] {
        assert_eq!(admitting(&WITHIN, &text, &more).verdict, Verdict::Fail);
    }
}

#[test]
fn a_clock_that_was_too_far_ahead_raises_no_ceiling_and_locks_no_key() {
    let text = steps(
        BUCKET,
        r#"{ "at_ms": 9000000, "burst": 9, "key": "k" }, { "at_ms": 5000, "burst": 9, "key": "k" },
        { "at_ms": 64999, "burst": 9, "key": "k" }, { "at_ms": 66000, "burst": 9, "key": "k" }"#,
    );
    assert_eq!(admitting(&WITHIN, &text, &[4, 0, 0, 1]).verdict, Verdict::Pass);
    for wrong in [[4, 0, 0, 0], [4, 0, 0, 2]] {
        assert_eq!(admitting(&WITHIN, &text, &wrong).verdict, Verdict::Fail, "{wrong:?}");
    }
}

#[test]
fn a_token_is_charged_once() {
    let day = r#"{ "algorithm": "fixed_window", "limit": 2, "window_ms": 86400000 }"#;
    let text = steps(
        day,
        r#"{ "at_ms": 0, "burst": 9, "key": "k", "token": "t", "token_ttl_ms": 60000 },
        { "at_ms": 1, "burst": 9, "key": "k", "token": "t", "token_ttl_ms": 60000 }, { "at_ms": 2, "burst": 9, "key": "k" }"#,
    );
    let right = judged(&WITHIN, &text, |_| ());
    assert_eq!((right.verdict, right.admitted, right.ceiling), (Verdict::Pass, 9 + 9 + 1, 19), "{right:?}");
    assert_eq!(admitting(&WITHIN, &text, &[9, 9, 2]).verdict, Verdict::Fail);
}

#[test]
fn admitted_max_does_not_apply_to_a_limiter_that_loses_racing_updates() {
    let known = r#"{ "at_ms": 0, "burst": 6, "key": "k", "expect": { "admitted": 4, "admitted_max": 4 } }"#;
    let known = steps(BUCKET, known);
    // Both stay within their own ceilings, which are six or more.
    let late =
        Drift { ceiling: Ceiling::Other { formula: "limit x 2", of: |load| load.limit * 2 }, ..Drift::WITHIN_LIMIT };
    let late = admitting(&Accuracy::Approximate(late), &known, &[5]);
    assert!(late.reasons[0].ends_with("expect.admitted_max: expected at most 4, found 5"), "{late:?}");
    let racing = admitting(&APPROXIMATE, &known, &[5]);
    assert_eq!(racing.verdict, Verdict::Pass, "{racing:?}");
}

#[test]
fn a_ceiling_is_not_tested_if_no_more_than_it_was_offered() {
    let few = judged(&WITHIN, &steps(BUCKET, r#"{ "at_ms": 0, "burst": 4, "key": "k" }"#), |_| ());
    assert_eq!((few.verdict, few.ceiling, few.ceiling_tested), (Verdict::Pass, 4, false));
    let more = judged(&WITHIN, &steps(BUCKET, r#"{ "at_ms": 0, "burst": 5, "key": "k" }"#), |_| ());
    assert_eq!((more.verdict, more.ceiling, more.ceiling_tested), (Verdict::Pass, 4, true));
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
    assert!(lost.reasons[0].contains("admitted 4 across the fault"), "{lost:?}");
    let corrupt = judged(&Accuracy::Exact, &restart, |steps| fail(&mut steps[0], 3..4, "corrupt"));
    assert_eq!(corrupt.verdict, Verdict::Fail);
}
