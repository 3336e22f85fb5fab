//! Lenders that keep no contract: a borrower admits what they grant, and its grace, and nothing else.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::lending::{Answer, Borrowers, Lease, Loan, Verdict};
use tidegate_core::{Check, Decision, Key, Millis, Policy, Quota, UnixMillis};
use tidegate_testing::{NOW, SECOND, policy};

/// What a borrower hears, and when.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        key: usize,
        cost: u64,
    },
    /// An answer to the last question of a key, or to a question of another number.
    Answer {
        key: usize,
        other: Option<u64>,
        lie: Option<Lie>,
    },
    /// It tells what nobody waits for.
    Tell,
    Forward(u64),
    Set(u64),
}

/// The counts of another policy, a loan of any numbers, and how long a denial holds.
#[derive(Clone, Debug)]
struct Lie {
    of: usize,
    used: u64,
    loan: Option<(u64, u64, u64)>,
    denies_for: u64,
}

impl Lie {
    fn answer(&self) -> Answer {
        let huge = Millis::new(1 << 30);
        let second = Quota::fixed_window(1 << 20, huge).unwrap().named("second").unwrap();
        let policies = [
            policy(Quota::fixed_window(10, SECOND)),
            policy(Quota::token_bucket(1 << 20, 1, huge)),
            policy(Quota::sliding_log(3, SECOND)),
            policy(Quota::concurrency(3, SECOND)),
            Policy::new("two", [Quota::sliding_window(5, SECOND).unwrap(), second]).unwrap(),
        ];
        let policy = &policies[self.of];
        let mut state = policy.initial_state();
        (0..self.used).for_each(|_| drop(policy.decide(&mut state, NOW, 1)));
        let decision: Decision = policy.decide(&mut state, NOW, 1);
        let granted = self.loan.map(|(number, units, lasts)| Loan { number, units, lasts: Millis::new(lasts) });
        Answer { granted, denies_for: Millis::new(self.denies_for), ..decision.into() }
    }
}

const KEYS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![3 => 0..30u64, 1 => 0..100_000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let lie = (0..5usize, 0..12u64, prop::option::weighted(0.7, (number(), number(), number())), number())
        .prop_map(|(of, used, loan, denies_for)| Lie { of, used, loan, denies_for });
    let answer = (0..KEYS, prop::option::weighted(0.1, number()), prop::option::weighted(0.8, lie));
    prop_oneof![
        8 => (0..KEYS, prop_oneof![4 => Just(1), 1 => 0..6u64]).prop_map(|(key, cost)| Step::Ask { key, cost }),
        4 => answer.prop_map(|(key, other, lie)| Step::Answer { key, other, lie }),
        2 => Just(Step::Tell),
        3 => prop_oneof![0..2_000u64, 0..100_000u64].prop_map(Step::Forward),
        1 => prop_oneof![number(), 0..2 * NOW.get(), Just(UnixMillis::MAX.get() - 5)].prop_map(Step::Set),
    ]
}

/// What a key was admitted without the lender, and what it may be: the units of its loans, and a grace before each answer.
#[derive(Default)]
struct Held {
    admitted: u128,
    granted: u128,
    answers: u128,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(super::cases()) })]

    #[test]
    fn a_borrower_admits_what_any_lender_grants_and_a_grace_before_each_answer(
        grace in prop_oneof![Just(0u64), Just(1), Just(3)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let lease = Lease { in_background: true, grace, ..Lease::new(10, Millis::from_secs(10)) };
        let (mut here, policy) = (Borrowers::new(lease), policy(Quota::token_bucket(20, 1, SECOND)));
        let (mut now_ms, mut held, mut last) = (NOW.get(), BTreeMap::<String, Held>::new(), BTreeMap::new());
        for step in steps {
            let mut asked = None;
            match step {
                Step::Ask { key, cost } => {
                    let name = key.to_string();
                    let check_key = Key::new(&name);
                    let check = Check::new(&policy, &check_key, UnixMillis::new(now_ms)).cost(cost);
                    match here.decide(&name, &check, || ()) {
                        Verdict::Admit { then } => {
                            held.entry(name.clone()).or_default().admitted += u128::from(cost);
                            asked = then.map(|then| (name, then));
                        }
                        Verdict::Ask(question) => asked = Some((name, question)),
                        Verdict::Deny(_) | Verdict::AskPlainly => {}
                    }
                }
                Step::Answer { key, other, lie } => {
                    let name = key.to_string();
                    let nth = other.or(last.get(&name).copied()).unwrap_or_default();
                    let answer = lie.as_ref().map(Lie::answer);
                    // Also one that was given up may be answered.
                    let is_last = here.last_question(&name).is_some_and(|(last, _)| last == nth);
                    if let Some(answer) = answer.as_ref().filter(|_| is_last) {
                        let held = held.entry(name.clone()).or_default();
                        held.answers += 1;
                        held.granted += answer.granted.map_or(0, |loan| u128::from(loan.units));
                    }
                    here.answered(&name, nth, answer.as_ref());
                }
                Step::Tell => asked = here.due(UnixMillis::new(now_ms)).map(|(key, asked, ())| (key, asked)),
                Step::Forward(ms) => now_ms = now_ms.saturating_add(ms),
                Step::Set(ms) => now_ms = ms,
            }
            if let Some((key, asked)) = asked {
                prop_assert!(asked.question.owed <= grace, "{asked:?}");
                prop_assert!(asked.question.wanted <= lease.slice, "{asked:?}");
                last.insert(key, asked.nth);
            }
            for (key, Held { admitted, granted, answers }) in &held {
                let most = granted + u128::from(grace) * (1 + answers);
                prop_assert!(*admitted <= most, "{key}: {admitted} of at most {most}");
            }
        }
    }
}
