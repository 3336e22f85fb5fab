//! The laws of lending: whatever borrowers, clocks and networks do, the ceiling is the limit itself, and what is broken on purpose
//! does not keep them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod after;
mod grace;
mod keys;
mod lies;
mod sizes;
pub(crate) mod store;
mod waiting;
mod world;

use proptest::prelude::*;
use tidegate_core::lending::{Borrowers, Lease, Lender, Question, Verdict, can_lend, supports};
use tidegate_core::{Check, ErrorKind, Key, Millis, Policy, Quota};
use tidegate_testing::{MINUTE, NOW, per_minute, policy};

use self::world::{ALL, Fault, Network, Step, WINDOWS, World, lease, lease_with_grace, policies, steps};

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_interval_admits_more_than_the_algorithms_maximum(
        policy in policies(ALL),
        lease in lease(),
        steps in steps(),
    ) {
        let mut world = World::new(policy, lease, Fault::None);
        steps.iter().for_each(|step| world.play(step));
        prop_assert_eq!(world.excess(), None);
    }

    #[test]
    fn nor_does_one_if_checks_wait_for_the_answers_to_others_questions(
        policy in policies(ALL),
        lease in lease(),
        steps in steps(),
    ) {
        let mut world = World::of_waiting(policy, lease, Fault::None);
        steps.iter().for_each(|step| world.play(step));
        prop_assert_eq!(world.excess(), None);
    }

    #[test]
    fn a_grace_admits_no_more_than_it_for_each_borrower(
        policy in policies(ALL),
        lease in lease_with_grace(),
        steps in steps(),
    ) {
        let mut world = World::new(policy, lease, Fault::None);
        steps.iter().for_each(|step| world.play(step));
        prop_assert_eq!(world.excess(), None);
    }

    #[test]
    fn a_denial_says_when_the_check_is_admitted(policy in policies(ALL), lease in lease(), steps in steps(), cost in 1..9u64) {
        let mut world = World::new(policy, lease, Fault::None);
        for step in &steps {
            world.play(step);
            world.waits_are_right(cost);
        }
    }

    /// Nothing is in flight, nothing is lost, and nobody else holds anything. A bucket that is lent drains less.
    #[test]
    fn a_lone_borrower_of_windows_decides_as_an_exact_limiter_does(
        policy in policies(WINDOWS),
        lease in lease(),
        asks in prop::collection::vec((0..400u64, prop_oneof![4 => Just(1), 1 => 0..9u64]), 1..200),
    ) {
        let (mut world, mut exact) = (World::new(policy.clone(), lease, Fault::None), policy.initial_state());
        for (after_ms, cost) in asks {
            world.play(&Step::Forward(after_ms));
            let due = policy.decide(&mut exact, world.now(), cost);
            if due.status() == tidegate_core::Status::NeverAdmissible {
                continue;
            }
            world.decided.clear();
            world.play(&Step::Ask { borrower: 0, cost, times: 1 });
            // A question for the next loan is a check of its own, of nothing.
            let got = world.decided[0];
            prop_assert_eq!((got.admitted, got.retry_after), (due.is_allowed(), due.retry_after()));
        }
    }

    #[test]
    fn any_bytes_are_loans_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match Lender::decode(&bytes) {
            Ok(lender) => prop_assert_eq!(lender.encode(), bytes),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
}

/// The answer to a later question has come meanwhile, whose loan ends by the clock that was set.
#[test]
fn a_check_that_waits_while_the_clock_is_set_forward_spends_no_later_loan() {
    let network = |out_ms, back_ms| Step::Network(Network { out_ms, back_ms, ..Network::default() });
    let steps = [
        Step::Forward(106),
        Step::Plain(1),
        ask(1, 2),
        Step::Plain(1),
        network(0, 656),
        ask(1, 3),
        network(0, 1),
        Step::Forward(300),
        Step::Set(1, 279),
        ask(1, 1),
        network(356, 0),
        ask(0, 6),
        ask(2, 19),
        Step::Forward(356),
    ];
    let lease = Lease { deadline: Millis::new(500), ..Lease::new(7, Millis::new(2_746)) };
    let mut world = World::of_waiting(policy(Quota::fixed_window(25, Millis::new(258))), lease, Fault::None);
    steps.iter().for_each(|step| world.play(step));
    assert_eq!(world.excess(), None);
}

/// As with two tiers of one client. The answer to one comes while the other is asked about.
#[test]
fn what_is_lent_by_one_policy_is_not_spent_by_another() {
    let (pro, free) = (per_minute(1_000), per_minute(10));
    let (key, now) = (Key::new("sub:alice"), NOW);
    let (mut lender, mut state) = (Lender::default(), pro.initial_state());
    let mut borrowers = Borrowers::new(Lease::new(50, MINUTE));
    let Verdict::Ask(first) = borrowers.decide("row", &Check::new(&pro, &key, now), || ()) else { panic!() };
    let answer = lender.decide(&pro, &mut state, now, 1, &Question { wanted: 50, ..first.question });
    let granted = answer.granted.unwrap();
    assert!(granted.units > 1, "{granted:?}");
    assert_eq!(borrowers.decide("row", &Check::new(&free, &key, now), || ()), Verdict::AskPlainly);
    borrowers.answered("row", first.nth, Some(&answer));
    let Verdict::Ask(second) = borrowers.decide("row", &Check::new(&free, &key, now), || ()) else {
        panic!("the loan of the other policy was spent")
    };
    let back = second.question.back.unwrap();
    assert_eq!((back.loan, back.unspent), (granted.number, granted.units), "it is returned");

    // Nor does a denial by the one hold for the other.
    borrowers.answered("row", second.nth, None);
    let Verdict::Ask(third) = borrowers.decide("row", &Check::new(&free, &key, now), || ()) else { panic!() };
    let mut full = free.initial_state();
    let _ = free.decide(&mut full, now, 10);
    let denied = Lender::default().decide(&free, &mut full, now, 1, &third.question);
    assert!(!denied.decision.is_allowed() && denied.denies_for > Millis::ZERO, "{denied:?}");
    assert_eq!(borrowers.decide("row", &Check::new(&pro, &key, now), || ()), Verdict::AskPlainly);
    borrowers.answered("row", third.nth, Some(&denied));
    assert!(matches!(borrowers.decide("row", &Check::new(&pro, &key, now), || ()), Verdict::Ask(_)));
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
}

/// Whether each fault breaks its law, and the honest one does not.
fn breaks(fault: Fault, policy: &Policy, lease: Lease, steps: &[Step], law: impl Fn(&World) -> bool) {
    for fault in [Fault::None, fault] {
        let mut world = World::new(policy.clone(), lease, fault);
        steps.iter().for_each(|step| world.play(step));
        assert_eq!(law(&world), fault == Fault::None, "{fault:?}: {:?}", world.excess());
    }
}

fn ask(borrower: usize, times: u64) -> Step {
    Step::Ask { borrower, cost: 1, times }
}

#[test]
fn a_loan_that_is_spent_after_its_end_exceeds_the_limit() {
    // A loan of one window is spent in the next one, beside the whole limit.
    let policy = policy(Quota::fixed_window(100, Millis::from_secs(10)));
    let steps = [ask(0, 12), Step::Forward(10_000), ask(1, 200), ask(0, 200)];
    let keeps = |world: &World| world.excess().is_none();
    breaks(Fault::SpentAfterItsEnd, &policy, Lease::new(50, Millis::from_secs(10)), &steps, keeps);
}

#[test]
fn a_loan_that_is_taken_back_twice_exceeds_the_limit() {
    let policy = per_minute(100);
    let mut steps = vec![ask(0, 12)];
    // Costs that the loan does not hold return it.
    steps.extend([(); 3].map(|()| Step::Ask { borrower: 0, cost: 20, times: 1 }));
    steps.extend([ask(0, 40), Step::Ask { borrower: 0, cost: 20, times: 1 }, ask(1, 200), ask(0, 200)]);
    let keeps = |world: &World| world.excess().is_none();
    breaks(Fault::ReturnedTwice, &policy, Lease::new(50, MINUTE), &steps, keeps);
}

#[test]
fn a_bucket_that_drains_below_its_loans_exceeds_the_limit() {
    let policy = policy(Quota::token_bucket(100, 10, Millis::from_secs(1)));
    // The loan is not spent until the bucket has drained.
    let steps = [ask(0, 12), Step::Forward(10_000), ask(1, 200), ask(0, 200)];
    let keeps = |world: &World| world.excess().is_none();
    breaks(Fault::DrainsBelowLoans, &policy, Lease::new(50, MINUTE), &steps, keeps);
}

#[test]
fn a_denial_that_is_kept_past_a_refill_denies_what_is_due() {
    let policy = policy(Quota::fixed_window(5, Millis::from_secs(1)));
    let steps = [ask(0, 20), Step::Forward(1_000), ask(0, 5)];
    let keeps = |world: &World| world.decided.iter().filter(|one| one.admitted && one.cost > 0).count() == 10;
    breaks(Fault::DenialKept, &policy, Lease::new(50, MINUTE), &steps, keeps);
}

#[test]
fn a_call_that_arrives_twice_returns_nothing_twice() {
    let policy = per_minute(100);
    let mut world = World::new(policy, Lease::new(50, MINUTE), Fault::None);
    world.play(&ask(0, 12));
    world.play(&ask(1, 12));
    world.play(&Step::Network(Network { again_ms: Some(5), ..Network::default() }));
    world.play(&Step::Ask { borrower: 0, cost: 20, times: 1 });
    world.play(&Step::Forward(10));
    for borrower in [1, 0, 2] {
        world.play(&ask(borrower, 200));
    }
    assert_eq!(world.excess(), None);
}

#[test]
fn what_can_be_lent() {
    let second = Millis::from_secs(1);
    let window = || Quota::fixed_window(5, second).unwrap();
    let lendable = [
        policy(Ok(window())),
        policy(Quota::sliding_window(5, second)),
        policy(Quota::token_bucket(5, 1, second)),
        Policy::new("api", [window().named("a").unwrap(), Quota::fixed_window(50, MINUTE).unwrap()]).unwrap(),
    ];
    assert!(lendable.iter().all(|policy| can_lend(policy) && supports(policy).is_ok()));
    let by = |name: &str| window().by(name).unwrap();
    let others = [
        policy(Quota::sliding_log(5, second)),
        policy(Quota::leaky_bucket(5, 1, second)),
        policy(Quota::concurrency(5, second)),
        policy(Ok(window())).charge_denied(true),
        Policy::new("api", [window(), Quota::penalty(second, 2, MINUTE).unwrap()]).unwrap(),
        Policy::new("api", [by("user"), by("tenant")]).unwrap(),
    ];
    let refused = |policy: &Policy| supports(policy).is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    assert!(others.iter().all(|policy| !can_lend(policy) && refused(policy)));
}
