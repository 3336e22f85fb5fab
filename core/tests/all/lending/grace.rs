//! What a borrower admits before it has heard of a key.

use tidegate_core::lending::{Borrowers, Lease, Lender, NumberedQuestion, Verdict};
use tidegate_core::{Check, Error, Key, Millis, Policy, PolicyState, Quota, UnixMillis};

use tidegate_testing::{MINUTE, SECOND, policy};

use super::breaks;
use super::world::{Fault, Step};

/// A store of one key, and borrowers of it.
struct Store {
    policy: Policy,
    state: PolicyState,
    lender: Lender,
    now: UnixMillis,
}

impl Store {
    fn new(quota: Result<Quota, Error>) -> Self {
        let policy = policy(quota);
        Self {
            state: policy.initial_state(),
            policy,
            lender: Lender::default(),
            now: UnixMillis::new(1_800_000_000_000),
        }
    }

    fn check(&self, borrowers: &mut Borrowers<()>, key: &str) -> Verdict {
        let name = Key::new(key);
        borrowers.decide(key, &Check::new(&self.policy, &name, self.now), || ())
    }

    /// Whether a check is admitted without the store.
    fn admits(&self, borrowers: &mut Borrowers<()>, key: &str) -> bool {
        matches!(self.check(borrowers, key), Verdict::Admit { .. })
    }

    fn asks(&self, borrowers: &mut Borrowers<()>, key: &str) -> NumberedQuestion {
        match self.check(borrowers, key) {
            Verdict::Ask(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    /// Answers a question. Returns whether its check is admitted.
    fn answer(&mut self, borrowers: &mut Borrowers<()>, key: &str, asked: NumberedQuestion, cost: u64) -> bool {
        self.lender.settle(&self.policy, &mut self.state, self.now);
        let answer = self.lender.decide(&self.policy, &mut self.state, self.now, cost, &asked.question);
        borrowers.answered(key, asked.nth, Some(&answer));
        answer.decision.is_allowed()
    }

    /// Answers all that a borrower tells. Returns what it owes.
    fn told(&mut self, borrowers: &mut Borrowers<()>) -> u64 {
        let mut owed = 0;
        while let Some((key, asked, ())) = borrowers.due(self.now) {
            owed += asked.question.owed;
            self.answer(borrowers, &key, asked, 0);
        }
        owed
    }

    /// Others use so much.
    fn used(&mut self, cost: u64) {
        assert!(self.policy.decide(&mut self.state, self.now, cost).is_allowed());
    }
}

fn borrowers(grace: u64) -> Borrowers<()> {
    Borrowers::new(Lease { in_background: true, grace, ..Lease::new(10, Millis::from_secs(10)) })
}

#[test]
fn the_first_units_of_a_key_wait_for_nobody_and_are_told_once() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(2));
    assert!(store.admits(&mut here, "k") && store.admits(&mut here, "k"));
    let third = store.asks(&mut here, "k");
    assert_eq!(third.question.owed, 2, "a check that asks tells it, too");
    assert!(store.answer(&mut here, "k", third, 1));
    assert_eq!(store.told(&mut here), 0);
    assert_eq!(store.policy.peek(&store.state, store.now, 1).binding().remaining(), Some(97 - 2));
}

#[test]
fn what_tells_of_a_key_asks_for_what_keys_usually_spend() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(3));
    for _ in 0..3 {
        assert!(store.admits(&mut here, "k0"));
    }
    assert_eq!(store.told(&mut here), 3);
    // Of two keys, one has spent two more. That is one for each, and its first request is admitted by grace.
    assert!(store.admits(&mut here, "k1"));
    let (key, asked, ()) = here.due(store.now).expect("a report");
    assert_eq!((key.as_str(), asked.question.owed, asked.question.wanted), ("k1", 1, 1));
    // A check that waits asks for nothing before more is known of its key.
    let mut there = borrowers(0);
    assert_eq!(store.asks(&mut there, "k2").question.wanted, 0);
}

#[test]
fn the_next_loan_of_a_key_that_comes_rarely_is_asked_for_with_its_next_grace() {
    for (gap, at_once) in [(Millis::from_secs(1), true), (Millis::from_secs(3), false)] {
        let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(1));
        for _ in 0..2 {
            assert!(store.admits(&mut here, "k"));
            assert_eq!(store.told(&mut here), 1);
            store.now = store.now + gap;
        }
        // This one spends all of the loan, which is of one unit.
        let verdict = store.check(&mut here, "k");
        let Verdict::Admit { then } = verdict else { panic!("{verdict:?}") };
        assert_eq!(then.is_some(), at_once, "{gap}");
        store.now = store.now + gap;
        if !at_once {
            assert!(store.admits(&mut here, "k"));
            let (_, asked, ()) = here.due(store.now).expect("a report");
            assert_eq!((asked.question.owed, asked.question.wanted), (1, 2));
        }
    }
}

#[test]
fn without_a_host_that_asks_in_the_background_there_is_no_grace() {
    let store = Store::new(Quota::fixed_window(100, MINUTE));
    let mut here = Borrowers::new(Lease { grace: 2, ..Lease::new(10, SECOND) });
    store.asks(&mut here, "k");
    here.in_background();
    assert!(store.admits(&mut here, "another"));
    assert!(matches!(
        here.decide("k0", &Check::new(&store.policy, &Key::new("k0"), store.now).cost(3), || ()),
        Verdict::Ask(_)
    ));
}

#[test]
fn a_bucket_repays_what_is_charged_beyond_its_capacity() {
    let mut store = Store::new(Quota::token_bucket(5, 1, SECOND));
    store.used(5);
    let mut all: Vec<_> = (0..3).map(|_| borrowers(1)).collect();
    for here in &mut all {
        assert!(store.admits(here, "k"));
        assert_eq!(store.told(here), 1);
    }
    // Three are owed, and the next one takes a fourth second.
    let denied = store.policy.peek(&store.state, store.now, 1);
    assert_eq!(denied.retry_after(), Some(Millis::from_secs(4)));
}

#[test]
fn a_key_at_its_limit_gets_no_other_grace_until_it_is_unused() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(5, MINUTE)), borrowers(1));
    store.used(5);
    assert!(store.admits(&mut here, "k"));
    assert_eq!(store.told(&mut here), 1);
    for _ in 0..3 {
        store.now = store.now + Millis::from_secs(15);
        let asked = store.asks(&mut here, "k");
        assert!(!store.answer(&mut here, "k", asked, 1));
    }
    // The answer may have come as late as the deadline of two seconds.
    store.now = store.now + Millis::from_secs(18);
    assert!(store.admits(&mut here, "k"), "its window has ended");
}

#[test]
fn a_key_near_its_limit_gets_none_until_it_is_seen_well_below_it() {
    let mut store = Store::new(Quota::token_bucket(10, 1, SECOND));
    let mut here = Borrowers::new(Lease { in_background: true, grace: 1, ..Lease::new(10, SECOND) });
    store.used(5);
    assert!(store.admits(&mut here, "k"));
    assert_eq!(store.told(&mut here), 1);
    store.now = store.now + SECOND;
    // Less than half was left.
    let asked = store.asks(&mut here, "k");
    assert!(store.answer(&mut here, "k", asked, 1));
    store.now = store.now + Millis::from_secs(5);
    let asked = store.asks(&mut here, "k");
    assert!(store.answer(&mut here, "k", asked, 1));
    store.now = store.now + Millis::from_secs(30);
    assert!(store.admits(&mut here, "k"));
}

#[test]
fn a_key_of_another_policy_gets_none_until_it_is_seen_by_it() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(2));
    assert!(store.admits(&mut here, "k"));
    store.policy = policy(Quota::fixed_window(10, MINUTE));
    let asked = store.asks(&mut here, "k");
    assert_eq!(asked.question.owed, 1);
    assert!(store.answer(&mut here, "k", asked, 1));
}

#[test]
fn nor_does_one_whose_last_sight_is_no_longer_true() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(10, MINUTE)), borrowers(1));
    store.used(6);
    assert!(store.admits(&mut here, "k"));
    assert_eq!(store.told(&mut here), 1);
    store.now = store.now + Millis::from_secs(63);
    store.policy = policy(Quota::fixed_window(5, MINUTE));
    store.asks(&mut here, "k");
}

#[test]
fn what_is_owed_is_told_until_it_is_answered_and_fails_no_check() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(1));
    assert!(store.admits(&mut here, "k"));
    let (_, lost, ()) = here.due(store.now).unwrap();
    assert_eq!(lost.question.owed, 1);
    here.answered("k", lost.nth, None);
    // The store may refuse a question with units that are owed, so a check asks without them.
    let asked = store.asks(&mut here, "k");
    assert_eq!(asked.question.owed, 0);
    assert!(store.answer(&mut here, "k", asked, 1));
    assert!(here.due(store.now).is_none(), "not at once");
    store.now = store.now + Millis::from_secs(4);
    assert_eq!(store.told(&mut here), 1);
    store.now = store.now + Millis::from_secs(4);
    assert_eq!(store.told(&mut here), 0);
}

#[test]
fn while_the_store_does_not_answer_no_key_gets_a_grace() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(1));
    for key in ["a", "b", "c"] {
        assert!(store.admits(&mut here, key));
    }
    while let Some((key, lost, ())) = here.due(store.now) {
        here.answered(&key, lost.nth, None);
    }
    let asked = store.asks(&mut here, "d");
    here.answered("d", asked.nth, None);
    // One question at a time finds out whether it is back, and not always of the same key.
    let mut asked = Vec::new();
    for _ in 0..3 {
        store.now = store.now + Millis::from_secs(4);
        let (key, probe, ()) = here.due(store.now).unwrap();
        assert!(here.due(store.now).is_none());
        here.answered(&key, probe.nth, None);
        asked.push(key);
    }
    asked.sort();
    assert_eq!(asked, ["a", "b", "c"]);
    store.now = store.now + Millis::from_secs(4);
    let (key, probe, ()) = here.due(store.now).unwrap();
    store.answer(&mut here, &key, probe, 0);
    assert!(store.admits(&mut here, "e"));
    store.now = store.now + SECOND;
    assert_eq!(store.told(&mut here), 3);
}

/// A question that was given up fails late. The store has answered since.
#[test]
fn a_failure_from_before_the_last_answer_ends_no_grace() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(100, MINUTE)), borrowers(1));
    assert!(store.admits(&mut here, "a"));
    let given_up = store.asks(&mut here, "a");
    store.now = store.now + Millis::from_secs(2);
    let next = store.asks(&mut here, "a");
    assert!(store.answer(&mut here, "a", next, 1));
    here.answered("a", given_up.nth, None);
    assert!(store.admits(&mut here, "b"));
    // Of those that were asked since, none is answered.
    let later = store.asks(&mut here, "b");
    here.answered("a", given_up.nth, None);
    here.answered("b", later.nth, None);
    store.asks(&mut here, "c");
}

#[test]
fn what_is_forgotten_for_want_of_room_ends_the_grace_of_new_keys() {
    let (mut store, mut here) = (Store::new(Quota::fixed_window(5, MINUTE)), borrowers(1));
    store.used(5);
    for nth in 0..32_768 {
        let key = nth.to_string();
        if !store.admits(&mut here, &key) {
            panic!("{key}");
        }
    }
    store.told(&mut here);
    store.now = store.now + Millis::from_secs(11);
    // Each may have been forgotten, and is at its limit until the window ends.
    for nth in 32_768..32_784 {
        store.asks(&mut here, &nth.to_string());
    }
    store.now = UnixMillis::new(1_800_000_063_000);
    assert!(store.admits(&mut here, "new"));
}

#[test]
fn a_grace_that_is_never_charged_exceeds_its_ceiling() {
    let policy = policy(Quota::fixed_window(3, MINUTE));
    let lease = Lease { in_background: true, grace: 1, ..Lease::new(1, SECOND) };
    let mut steps = Vec::new();
    for _ in 0..20 {
        let ask = |borrower| Step::Ask { borrower, cost: 1, times: 1 };
        steps.extend([ask(0), Step::Return(0), Step::Forward(1_500)]);
    }
    breaks(Fault::OwedForNothing, &policy, lease, &steps, |world| world.excess().is_none());
}
