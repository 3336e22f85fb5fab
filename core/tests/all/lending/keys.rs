//! What a borrower knows of its keys: when it asks for the next loan, what it tells, what it returns, and what it forgets.

use tidegate_core::lending::{Answer, Borrowers, Lease, Lender, Loan, NumberedQuestion, Question, Returned, Verdict};
use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
use tidegate_testing::{MINUTE, NOW, SECOND, per_minute, policy};

/// The borrowers of keys that one policy counts.
struct Keys {
    borrowers: Borrowers<()>,
    policy: Policy,
    now: u64,
}

impl Keys {
    fn new(lease: Lease) -> Self {
        let policy = per_minute(1_000_000);
        Self { borrowers: Borrowers::new(lease), policy, now: 1_800_000_000_000 }
    }

    fn check(&mut self, key: &str) -> Verdict {
        let name = Key::new(key);
        self.borrowers.decide(key, &Check::new(&self.policy, &name, UnixMillis::new(self.now)), || ())
    }

    /// The question that a check asks.
    fn asks(&mut self, key: &str) -> NumberedQuestion {
        match self.check(key) {
            Verdict::Ask(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    /// Answers a question with a loan.
    fn grant(&mut self, key: &str, asked: NumberedQuestion, units: u64, lasts: Millis) {
        let decision = self.policy.decide(&mut self.policy.initial_state(), UnixMillis::new(self.now), 1);
        let granted = Some(Loan { number: asked.nth, units, lasts });
        self.borrowers.answered(key, asked.nth, Some(&Answer { granted, ..decision.into() }));
    }

    /// Answers a question with a denial that holds for so long.
    fn deny(&mut self, key: &str, asked: NumberedQuestion, denies_for: Millis) {
        let mut full = self.policy.initial_state();
        let decision = self.policy.decide(&mut full, UnixMillis::new(self.now), 1_000_000);
        assert!(decision.is_allowed());
        let decision = self.policy.decide(&mut full, UnixMillis::new(self.now), 1);
        self.borrowers.answered(key, asked.nth, Some(&Answer { denies_for, ..decision.into() }));
    }

    fn due(&mut self) -> Option<(String, NumberedQuestion)> {
        self.borrowers.due(UnixMillis::new(self.now)).map(|(key, asked, ())| (key, asked))
    }

    fn knows(&self, key: &str) -> bool {
        self.borrowers.last_question(key).is_some()
    }
}

fn lease(lifetime: Millis) -> Lease {
    Lease::new(1_000, lifetime)
}

#[test]
fn no_more_than_32_768_keys_are_kept() {
    let mut keys = Keys::new(lease(MINUTE));
    for nth in 0..32_768 {
        keys.asks(&nth.to_string());
    }
    for nth in 32_768..36_000 {
        assert_eq!(keys.check(&nth.to_string()), Verdict::AskPlainly);
    }
    assert!(keys.knows("32767") && !keys.knows("32768"));
    // Those that were in use within a lifetime stay.
    keys.now += MINUTE.get() - 1;
    assert_eq!(keys.check("late"), Verdict::AskPlainly);
    keys.asks("7");
    keys.now += 1;
    keys.asks("late");
    assert!(keys.knows("7") && !keys.knows("8"));
}

#[test]
fn keys_that_are_of_no_use_are_dropped_when_their_number_has_doubled() {
    let mut keys = Keys::new(lease(Millis::from_secs(10)));
    // The window ends with its loans, so they are not returned.
    keys.now += 50_000;
    let asked = keys.asks("spent");
    keys.grant("spent", asked, 1, Millis::from_secs(10));
    assert_eq!(keys.check("spent"), Verdict::Admit { then: None });
    // A bucket's loan is returned, also after its end.
    let (bucket, window) = (policy(Quota::token_bucket(1_000, 1, SECOND)), keys.policy.clone());
    for (key, policy) in [("bucket", bucket), ("window", window)] {
        keys.policy = policy;
        let asked = keys.asks(key);
        keys.grant(key, asked, 100, Millis::from_secs(10));
    }
    let waiting = keys.asks("denied");
    keys.deny("denied", waiting, Millis::from_secs(10));
    for nth in 4..64 {
        keys.asks(&nth.to_string());
    }
    keys.now += 10_000;
    assert!(keys.knows("spent"));
    keys.asks("new");
    let all = ["spent", "bucket", "window", "denied", "63", "new"];
    assert_eq!(all.map(|key| keys.knows(key)), [false, true, false, false, false, true]);
    // Two remain, and fewer than 64 are never swept.
    keys.now += 10_000;
    for nth in 2..64 {
        keys.asks(&format!("next {nth}"));
    }
    assert!(keys.knows("bucket"));
    keys.asks("the 65th");
    assert!(!keys.knows("bucket"), "its loan has ended a lifetime ago");
}

#[test]
fn a_key_whose_question_is_on_its_way_is_kept() {
    let mut keys = Keys::new(Lease { deadline: Millis::from_secs(20), ..lease(Millis::from_secs(10)) });
    for nth in 0..64 {
        keys.asks(&nth.to_string());
    }
    keys.now += 19_999;
    keys.asks("new");
    assert!(keys.knows("0"));
    for nth in 65..128 {
        keys.asks(&nth.to_string());
    }
    keys.now += 1;
    keys.asks("newer");
    assert_eq!(["0", "63", "new", "127"].map(|key| keys.knows(key)), [false, false, true, true]);
}

/// The checks until the one that asks for the next loan.
fn until_asked(keys: &mut Keys) -> (usize, Option<NumberedQuestion>) {
    let mut count = 0;
    loop {
        count += 1;
        match keys.check("key") {
            Verdict::Admit { then: None } => {}
            Verdict::Admit { then } => return (count, then),
            Verdict::Ask(asked) => return (count, Some(asked)),
            other => panic!("{other:?}"),
        }
    }
}

/// The next loan is asked for when as much is left as was spent during a question, of late: an eighth of it is forgotten each time.
#[test]
fn the_next_loan_is_asked_for_when_a_questions_worth_is_left() {
    let mut keys = Keys::new(lease(MINUTE));
    let first = keys.asks("key");
    for _ in 0..10 {
        assert_eq!(keys.check("key"), Verdict::AskPlainly);
    }
    keys.grant("key", first, 100, MINUTE);
    let mut counts = Vec::new();
    for _ in 0..12 {
        let (count, asked) = until_asked(&mut keys);
        counts.push(count);
        keys.grant("key", asked.unwrap(), 100, MINUTE);
    }
    assert_eq!(counts, [91, 91, 93, 94, 95, 96, 97, 98, 99, 100, 101, 101]);
    // However many that are, a loan is half spent by then.
    let (_, asked) = until_asked(&mut keys);
    for _ in 0..30 {
        assert_eq!(keys.check("key"), Verdict::AskPlainly);
    }
    keys.grant("key", asked.unwrap(), 20, MINUTE);
    assert_eq!(until_asked(&mut keys).0, 11);
}

#[test]
fn a_borrower_wants_what_it_has_spent_and_forgets_half_after_two_lifetimes() {
    let mut keys = Keys::new(lease(Millis::from_secs(10)));
    keys.policy = per_minute(1_000);
    let mut told = Vec::new();
    for _ in 0..32 {
        let asked = keys.asks("key");
        told.push((asked.question.wanted, asked.question.within.get()));
        keys.borrowers.answered("key", asked.nth, None);
        keys.now += 1_000;
    }
    // Two thirds of what was spent, for 20 units are few. One is spent in a second.
    let wanted = |spent: u64| (2 * spent).div_ceil(3);
    let grow = |from, to| (from..=to).map(|nth: u64| (wanted(nth), 1_000 * wanted(nth)));
    assert_eq!(told, grow(0, 20).chain(grow(11, 20)).chain(grow(11, 11)).collect::<Vec<_>>());
    // A pause of a lifetime begins anew, and one that is shorter does not.
    for (pause, expected) in
        [(9_999, (8, 13_999)), (10_000, (0, 0)), (1_000, (1, 1_000)), (10_000, (0, 0)), (9_999, (1, 9_999))]
    {
        keys.now += pause - 1_000;
        let asked = keys.asks("key");
        assert_eq!((asked.question.wanted, asked.question.within.get()), expected, "{pause}");
        keys.borrowers.answered("key", asked.nth, None);
        keys.now += 1_000;
    }
}

#[test]
fn a_denial_a_loan_and_a_wait_end_at_their_instants() {
    let mut keys = Keys::new(lease(Millis::from_secs(10)));
    let asked = keys.asks("key");
    // A question that was not answered is asked again after its deadline.
    keys.now += 1_999;
    assert_eq!(keys.check("key"), Verdict::AskPlainly);
    assert!(keys.borrowers.is_waiting("key", asked.nth) && !keys.borrowers.is_waiting("key", asked.nth + 1));
    keys.now += 1;
    let asked = keys.asks("key");
    keys.deny("key", asked, Millis::new(500));
    assert!(!keys.borrowers.is_waiting("key", asked.nth));
    keys.now += 499;
    assert!(matches!(keys.check("key"), Verdict::Deny(_)));
    keys.now += 1;
    let asked = keys.asks("key");
    // Threads may read the clock in the wrong order, by up to 20 ms.
    keys.grant("key", asked, 100, SECOND);
    keys.now += 979;
    assert_eq!(keys.check("key"), Verdict::Admit { then: None });
    keys.now += 1;
    let back = keys.asks("key").question.back;
    assert_eq!(back, Some(Returned { loan: asked.nth, unspent: 99, kept: 0 }));
}

#[test]
fn a_loan_is_returned_once_it_is_idle() {
    let mut keys = Keys::new(lease(MINUTE));
    let asked = keys.asks("key");
    keys.grant("key", asked, 100, MINUTE);
    for _ in 0..64 {
        keys.now += 250;
        assert_eq!(keys.check("key"), Verdict::Admit { then: None });
    }
    // The pause is then 16 times the mean of 333 ms, which the pause is a part of.
    keys.now += 5_327;
    assert_eq!(keys.due(), None);
    let other = keys.asks("other");
    keys.now += 1_000;
    let (key, due) = keys.due().unwrap();
    assert_eq!((key.as_str(), due.question.wanted), ("key", 0));
    assert_eq!(due.question.back, Some(Returned { loan: asked.nth, unspent: 36, kept: 0 }));
    // Each question has a number of its own.
    assert!(due.nth > other.nth);
    assert!(keys.asks("another").nth > due.nth);
    assert_eq!(keys.due(), None);
}

/// A loan that ends with its window has nothing to return: the window is over, too.
#[test]
fn a_loan_that_ends_before_its_window_is_returned_at_its_end() {
    for (into_the_window, returns) in [(49_999, true), (50_000, false)] {
        let mut keys = Keys::new(lease(MINUTE));
        keys.now += into_the_window;
        let asked = keys.asks("key");
        keys.grant("key", asked, 100, Millis::from_secs(10));
        // It ends for the borrower 20 ms earlier. Until then, it is in use.
        keys.now += 9_979;
        assert_eq!(keys.check("key"), Verdict::Admit { then: None });
        keys.now += 1;
        assert_eq!(keys.due().map(|(_, due)| due.question.back.unwrap().unspent), returns.then_some(99));
    }
}

#[test]
fn a_denial_that_was_on_its_way_when_units_were_given_back_is_not_repeated() {
    let mut keys = Keys::new(lease(MINUTE));
    let asked = keys.asks("key");
    keys.borrowers.forget_denial("key");
    keys.deny("key", asked, SECOND);
    keys.asks("key");
}

#[test]
fn a_check_of_no_cost_is_not_decided_from_a_loan_that_is_spent() {
    let mut keys = Keys::new(lease(MINUTE));
    let asked = keys.asks("key");
    keys.grant("key", asked, 1, MINUTE);
    assert_eq!(keys.check("key"), Verdict::Admit { then: None });
    let (name, policy) = (Key::new("key"), keys.policy.clone());
    let free = Check::new(&policy, &name, UnixMillis::new(keys.now)).cost(0);
    assert!(matches!(keys.borrowers.decide("key", &free, || ()), Verdict::Ask(_)));
}

#[test]
fn nothing_is_returned_of_a_loan_that_is_spent() {
    let mut keys = Keys::new(lease(MINUTE));
    let asked = keys.asks("key");
    keys.grant("key", asked, 9, MINUTE);
    for _ in 0..9 {
        assert_eq!(keys.check("key"), Verdict::Admit { then: None });
    }
    for _ in 0..90 {
        keys.now += 1_000;
        assert_eq!(keys.due(), None);
    }
}

#[test]
fn policies_that_differ_in_a_number_do_not_share_loans() {
    let mut keys = Keys::new(lease(MINUTE));
    let policies: Vec<_> = (1..200).map(per_minute).collect();
    for policy in &policies {
        keys.policy = policy.clone();
        // It asks: what is lent by the policy before is not spent.
        let asked = keys.asks("key");
        keys.grant("key", asked, 1, MINUTE);
    }
}

/// A bucket that refills fast and is lent out. What denies is the loan, so the wait is its life and not the next refill.
#[test]
fn a_bucket_that_is_lent_out_denies_until_the_loan_ends() {
    let bucket = policy(Quota::token_bucket(10, 1, Millis::new(1)));
    let (mut lender, mut state) = (Lender::default(), bucket.initial_state());
    let start = NOW;
    let question = Question { wanted: 1_000, within: SECOND, owed: 0, lifetime: MINUTE, back: None };
    let mut lent = 0;
    for _ in 0..10 {
        let answer = lender.decide(&bucket, &mut state, start, 0, &question);
        lent += answer.granted.map_or(0, |granted| granted.units);
    }
    assert!(lent > 5, "{lent}");
    let ends = lender.last_end().since(start);
    let denied = lender.decide(&bucket, &mut state, start, 10, &question);
    let wait = denied.decision.retry_after().unwrap();
    assert!(wait >= ends && wait <= ends + Millis::new(10), "{wait} of {ends}");
    assert_eq!(denied.denies_for, wait.min(ends));

    // After its end, the loan ends no denial.
    let ended = start + ends;
    lender.settle(&bucket, &mut state, ended);
    let _ = bucket.decide(&mut state, ended, 10);
    let denied = lender.decide(&bucket, &mut state, ended, 10, &Question { wanted: 0, ..question });
    let wait = denied.decision.retry_after().unwrap();
    assert!(wait > Millis::ZERO);
    assert_eq!(denied.denies_for, wait);
}

/// A clock may be wrong for a moment. What was lent has ended then, and what is lent afterwards lives no longer than it may.
#[test]
fn a_clock_that_tells_the_end_of_time_neither_keeps_loans_alive_nor_stops_lending() {
    let end_ms = UnixMillis::MAX.get();
    for told in [end_ms - 1, end_ms, u64::MAX] {
        let mut keys = Keys::new(Lease { in_background: true, ..lease(Millis::from_secs(10)) });
        let asked = keys.asks("key");
        keys.grant("key", asked, 100, Millis::from_secs(10));
        assert_eq!(keys.check("key"), Verdict::Admit { then: None });
        // The look for idle keys reads it.
        let before = std::mem::replace(&mut keys.now, told);
        let mut due = keys.due().map(|(_, asked)| asked);
        assert_eq!(due.is_some(), told < end_ms);
        keys.now = before + 1_000;
        keys.check("another");
        let asked = due.take().unwrap_or_else(|| keys.asks("key"));
        assert_eq!(asked.question.back.unwrap().unspent, 99, "the loan has ended");
        keys.grant("key", asked, 100, Millis::from_secs(10));
        keys.now += 9_979;
        assert_eq!(keys.check("key"), Verdict::Admit { then: None });
        keys.now += 1;
        keys.asks("key");
    }
}

#[test]
fn while_a_clock_stands_still_at_the_end_of_time_all_is_asked_plainly() {
    let mut keys = Keys::new(Lease { in_background: true, grace: 1, ..lease(MINUTE) });
    keys.now = u64::MAX;
    for key in ["a", "a", "b"] {
        assert_eq!(keys.check(key), Verdict::AskPlainly);
    }
}
