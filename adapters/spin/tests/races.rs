//! Concurrent requests: the first requests for a key, instances that end midway, resets and window boundaries.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use pollster::block_on;
use proptest::prelude::*;
use support::{Model, Next, Random, Tasks, take_turns};
use tidegate_core::{Check, Decision, Error, ErrorKind, Key, Limiter, LimiterExt, Millis, Policy};
use tidegate_spin::{SpinAtomics, SpinWindow};
use tidegate_testing::{MINUTE, NOW, in_every_order, per_minute};

/// `many` concurrent requests for one key.
fn burst<'a, L: Limiter>(
    limiter: &'a L,
    policy: &'a Policy,
    key: &'a Key,
    many: usize,
) -> Tasks<'a, Result<Decision, Error>> {
    (0..many).map(|_| Box::pin(limiter.check(Check::new(policy, key, NOW))) as _).collect()
}

fn admitted(answers: &[Result<Decision, Error>]) -> usize {
    answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count()
}

/// Runs `test` with each of the two exact limiters.
fn each(
    test: impl Fn(&dyn Fn(&Model, usize, &Policy, &Key, &mut dyn FnMut(usize) -> Next) -> Vec<Result<Decision, Error>>),
) {
    test(&|model, many, policy, key, next| {
        let limiter = SpinAtomics::new(model).limiter();
        take_turns(burst(&limiter, policy, key, many), next)
    });
    test(&|model, many, policy, key, next| {
        let limiter = SpinWindow::new(model);
        take_turns(burst(&limiter, policy, key, many), next)
    });
}

#[test]
fn a_window_is_exact_on_a_store_with_decimal_counters() {
    let (policy, key) = (per_minute(12), Key::new("k"));
    let model = Model { decimal: true, ..Model::default() };
    let limiter = SpinWindow::new(&model);
    let mut random = Random(7);
    let answers = take_turns(burst(&limiter, &policy, &key, 60), |among| Next::Goes(random.below(among)));
    assert_eq!((answers.len(), admitted(&answers)), (60, 12));
    let counted = model.rows.lock().unwrap().values().cloned().collect::<Vec<_>>();
    assert!(counted.contains(&b"12".to_vec()), "{counted:?}");
}

#[test]
fn compare_and_swap_rejects_a_store_with_decimal_counters() {
    let (policy, key) = (per_minute(12), Key::new("k"));
    let model = Model { decimal: true, ..Model::default() };
    let limiter = SpinAtomics::new(&model).limiter();
    for request in 0..12 {
        let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{request}: {error}");
        assert!(error.to_string().contains("use SpinWindow on this store, or SpinRedis"), "{request}: {error}");
    }
    // Concurrent requests get the same error.
    let mut random = Random(7);
    let other = Key::new("l");
    let answers = take_turns(burst(&limiter, &policy, &other, 20), |among| Next::Goes(random.below(among)));
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid)));
}

#[test]
fn two_concurrent_first_requests_are_exact_in_every_interleaving() {
    let (policy, key) = (per_minute(1), Key::new("k"));
    each(|run| {
        let orders = in_every_order(|choose| {
            let model = Model::default();
            let answers = run(&model, 2, &policy, &key, &mut |among| Next::Goes(choose(among)));
            assert_eq!(admitted(&answers), 1);
            assert!(!model.is_poisoned());
            assert!(model.keys().len() <= 2, "{:?}", model.keys());
        });
        assert!(orders > 50, "{orders}");
    });
}

#[test]
fn fifty_first_requests_in_lockstep_are_exact() {
    let (policy, key) = (per_minute(10), Key::new("k"));
    each(|run| {
        let model = Model::default();
        // Round robin: every request has read before any writes.
        let mut turn = 0;
        let answers = run(&model, 50, &policy, &key, &mut |among| {
            turn += 1;
            Next::Goes(turn % among)
        });
        assert_eq!((answers.len(), admitted(&answers)), (50, 10));
        assert!(!model.is_poisoned());
    });
}

#[test]
fn attempts_are_bounded_and_exhausting_them_is_contended() {
    let model = Model { always_lost: true, ..Model::default() };
    let (policy, key) = (per_minute(10), Key::new("k"));
    let error = block_on(SpinAtomics::new(&model).limiter().check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    // The row exists, but another client always writes to it first.
    let seeded = Model::default();
    block_on(SpinAtomics::new(&seeded).limiter().check(Check::new(&policy, &key, NOW))).unwrap();
    let rows = seeded.rows.into_inner().unwrap();
    let model = Model { always_lost: true, ..Model::holding(rows) };
    let error = block_on(SpinAtomics::new(&model).limiter().check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
}

proptest! {
    #[test]
    fn any_interleaving_is_exact(seed: u64, many in 2..60usize, limit in 1..20u64) {
        let (policy, key) = (per_minute(limit), Key::new("k"));
        each(|run| {
            let (model, mut random) = (Model::default(), Random(seed));
            let answers = run(&model, many, &policy, &key, &mut |among| Next::Goes(random.below(among)));
            assert_eq!(admitted(&answers), many.min(limit.try_into().unwrap()));
            assert!(!model.is_poisoned());
            assert!(model.keys().len() <= 2, "{:?}", model.keys());
        });
    }

    /// An instance that ends before it answers may have charged its request. Nothing else is charged, and no key is
    /// locked.
    #[test]
    fn instances_that_end_midway_cost_at_most_one_request_each(seed: u64, many in 2..30usize, limit in 1..20u64) {
        let (policy, key) = (per_minute(limit), Key::new("k"));
        let limit = usize::try_from(limit).unwrap();
        each(|run| {
            let (model, mut random) = (Model::default(), Random(seed));
            let mut ended = 0;
            let answers = run(&model, many, &policy, &key, &mut |among| {
                let place = random.below(among);
                if random.below(10) > 0 {
                    return Next::Goes(place);
                }
                ended += 1;
                Next::Ends(place)
            });
            let mut next = |among| Next::Goes(random.below(among));
            let all = admitted(&answers) + admitted(&run(&model, limit + 1, &policy, &key, &mut next));
            assert!(all <= limit && all + ended >= limit, "{all} of {limit}, {ended} ended");
            assert!(!model.is_poisoned());
            assert!(model.keys().len() <= 2 + ended, "{:?}", model.keys());
        });
    }

    #[test]
    fn a_concurrent_reset_clears_the_count_and_breaks_nothing(seed: u64, many in 2..30usize, limit in 1..10u64) {
        let (policy, key) = (per_minute(limit), Key::new("k"));
        let (model, mut random) = (Model::default(), Random(seed));
        let limiter = SpinAtomics::new(&model).limiter();
        let mut tasks: Tasks<'_, Result<bool, Error>> = Vec::new();
        for _ in 0..many {
            tasks.push(Box::pin(async { Ok(limiter.check(Check::new(&policy, &key, NOW)).await?.is_allowed()) }));
        }
        tasks.push(Box::pin(async { limiter.reset(&policy, (&key).into()).await.map(|()| false) }));
        let answers = take_turns(tasks, |among| Next::Goes(random.below(among)));
        let admitted = answers.into_iter().filter(|answer| *answer.as_ref().unwrap()).count();
        let limit = usize::try_from(limit).unwrap();
        prop_assert!(admitted >= many.min(limit) && admitted <= many.min(2 * limit));
        prop_assert!(!model.is_poisoned());
        block_on(limiter.reset(&policy, (&key).into())).unwrap();
        let left = block_on(limiter.peek(Check::new(&policy, &key, NOW))).unwrap();
        prop_assert_eq!(left.binding().remaining(), Some(limit as u64));
    }

    /// Concurrent requests in two windows: neither window admits more than its limit.
    #[test]
    fn a_race_at_a_window_boundary_is_exact(seed: u64, before in 1..20usize, after in 1..20usize, limit in 1..10u64) {
        let (policy, key) = (per_minute(limit), Key::new("k"));
        let (model, mut random) = (Model::default(), Random(seed));
        let limiter = SpinWindow::new(&model);
        let mut tasks: Tasks<'_, (bool, bool)> = Vec::new();
        for (late, many) in [(false, before), (true, after)] {
            let now = if late { NOW + MINUTE } else { NOW };
            for _ in 0..many {
                let (limiter, policy, key) = (&limiter, &policy, &key);
                tasks.push(Box::pin(async move {
                    (late, limiter.check(Check::new(policy, key, now)).await.unwrap().is_allowed())
                }));
            }
        }
        let answers = take_turns(tasks, |among| Next::Goes(random.below(among)));
        let admitted = |late| answers.iter().filter(|answer| **answer == (late, true)).count() as u64;
        // A late request of the first window may be counted in the second.
        prop_assert!(admitted(false) <= limit + limit && admitted(false) + admitted(true) <= 2 * limit);
        prop_assert!(admitted(true) <= limit);
        prop_assert!(!model.is_poisoned());
        prop_assert!(model.keys().len() <= 3, "{:?}", model.keys());
    }
    /// A wrong clock counted some requests. Concurrent requests with a correct clock share what is left of the limit.
    #[test]
    fn a_race_to_move_a_window_back_is_exact(seed: u64, ahead in 0..12u64, many in 1..20usize, limit in 1..10u64) {
        let (policy, key) = (per_minute(limit), Key::new("k"));
        let (model, mut random) = (Model::default(), Random(seed));
        let limiter = SpinWindow::new(&model);
        let year = Millis::from_secs(365 * 86_400);
        for _ in 0..ahead {
            block_on(limiter.check(Check::new(&policy, &key, NOW + year))).unwrap();
        }
        let answers = take_turns(burst(&limiter, &policy, &key, many), |among| Next::Goes(random.below(among)));
        let left = usize::try_from(limit.saturating_sub(ahead)).unwrap();
        prop_assert_eq!(admitted(&answers), many.min(left));
        prop_assert!(!model.is_poisoned());
        prop_assert!(model.keys().len() <= 3, "{:?}", model.keys());

        // The window of the wrong clock starts at zero when its time comes.
        let answers: Vec<_> = (0..=limit).map(|_| block_on(limiter.check(Check::new(&policy, &key, NOW + year)))).collect();
        prop_assert_eq!(admitted(&answers) as u64, limit);
    }
}
