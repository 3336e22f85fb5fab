//! Leases never admit more than the quota, and never less than the floor, whatever fails.

use std::future::{Future, poll_fn, ready};
use std::num::NonZero;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::support::{Loss, Rig, virtual_time};
use pollster::block_on;
use proptest::prelude::*;
use tidegate_cloudflare::durable_objects::{Address, Config, DurableObjects, Leases, Namespace, Placement, Reply};
use tidegate_core::lending::Lease;
use tidegate_core::{
    Block, Check, Decision, Error, ErrorKind, Key, Limiter, LimiterExt, Load, Millis, Origin, Policy, Quota, Rule,
    Settle, UnixMillis,
};
use tidegate_testing::{at, in_every_order, per_minute, policy, together};

fn isolate(rig: &Rig, slice: u64, lifetime_ms: u64) -> Leases<'_, &Rig> {
    let store = DurableObjects::with_config(rig, virtual_time());
    Leases::new(store, NonZero::new(slice).unwrap(), Millis::new(lifetime_ms)).unwrap()
}

/// A namespace that answers each call only after some further polls: from 1 to the given number.
struct Later<'a>(&'a Rig, u64);

impl Namespace for Later<'_> {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let reply = self.0.call(object, body).await;
        let mut wait = 1 + self.0.calls() % self.1;
        let answered = poll_fn(|_| match wait.checked_sub(1) {
            None => Poll::Ready(()),
            Some(less) => {
                wait = less;
                Poll::Pending
            }
        });
        answered.await;
        reply
    }
}

/// What can happen to a fleet of isolates.
#[derive(Clone, Debug)]
enum Step {
    /// Requests of a cost at one isolate, at once.
    Ask {
        isolate: usize,
        cost: u64,
        times: u64,
    },
    /// An isolate does what is left to do after its responses.
    After(usize),
    /// An isolate dies with what it holds. Another takes its place.
    Die(usize),
    /// All objects leave memory.
    Evict,
    /// An isolate resets the key.
    Reset(usize),
    /// From now on calls are answered, or their answers are lost, or they do not arrive.
    Lose(u8),
    Forward(u64),
}

#[derive(Clone, Debug)]
struct Story {
    /// Which quotas, of 5 kinds.
    kind: u8,
    limit: u64,
    refill: u64,
    span_ms: u64,
    slice: u64,
    lifetime_ms: u64,
    grace: u64,
    /// How far each isolate's clock is ahead.
    ahead_ms: [i64; ISOLATES],
    steps: Vec<Step>,
}

/// A request and its result.
struct Asked {
    at: UnixMillis,
    cost: u64,
    admitted: bool,
    /// How many resets came before it.
    resets: u32,
}

const ISOLATES: usize = 4;

fn step(cost: impl Strategy<Value = u64> + 'static, losses: bool, forward_ms: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..ISOLATES, cost, 1..30u64).prop_map(|(isolate, cost, times)| Step::Ask { isolate, cost, times }),
        1 => (0..ISOLATES).prop_map(Step::Die),
        1 => Just(Step::Evict),
        8 => prop_oneof![0..20u64, 0..forward_ms / 10, 0..forward_ms].prop_map(Step::Forward),
        1 => if losses { (0..3u8).prop_map(Step::Lose).boxed() } else { Just(Step::Evict).boxed() },
        1 => if losses { (0..ISOLATES).prop_map(Step::Reset).boxed() } else { Just(Step::Evict).boxed() },
    ]
}

fn story<S: Strategy<Value = Step>>(
    step: S,
    kinds: Range<u8>,
    limits: Range<u64>,
    lifetimes_ms: Range<u64>,
) -> impl Strategy<Value = Story> {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let numbers = (kinds, limits, 1..30u64, 1..3_000u64, 1..20u64, lifetimes_ms);
    let ahead_ms = prop_oneof![4 => Just(0), 2 => -2_000..2_000i64, 1 => Just(-YEAR_MS), 1 => Just(YEAR_MS)];
    let ahead_ms = [(); ISOLATES].map(|()| ahead_ms.clone());
    (numbers, ahead_ms, prop::collection::vec(step, 1..80)).prop_map(|(numbers, ahead_ms, steps)| {
        let (kind, limit, refill, span_ms, slice, lifetime_ms) = numbers;
        Story { kind, limit, refill, span_ms, slice, lifetime_ms, grace: 0, ahead_ms, steps }
    })
}

impl Story {
    fn policy(&self, limit: u64) -> Policy {
        let span = Millis::new(self.span_ms);
        let bucket = || Quota::token_bucket(limit, self.refill, span).unwrap();
        let longer = || Quota::fixed_window(2 * limit, Millis::new(3 * self.span_ms)).unwrap().named("long").unwrap();
        let quotas = match self.kind {
            0 => vec![Quota::fixed_window(limit, span).unwrap()],
            1 => vec![bucket()],
            2 => vec![Quota::sliding_window(limit, span).unwrap()],
            3 => vec![Quota::sliding_window(limit, span).unwrap(), longer()],
            _ => vec![bucket(), longer()],
        };
        Policy::new("api", quotas).unwrap()
    }

    /// Plays the story by the objects' clock, and reports each request. Returns the number of deaths.
    fn play(&self, mut each: impl FnMut(Asked)) -> u64 {
        let (rig, policy, key) = (Rig::default(), self.policy(self.limit), Key::new("user:1"));
        let fresh = || {
            let lease = Lease::new(self.slice, Millis::new(self.lifetime_ms));
            let lease = Lease { in_background: self.grace > 0, grace: self.grace, ..lease };
            Leases::with_lease(DurableObjects::new(Later(&rig, 3)), lease).unwrap()
        };
        let mut isolates: Vec<_> = (0..ISOLATES).map(|_| fresh()).collect();
        let (mut now_ms, mut deaths, mut resets) = (0, 0, 0);
        for step in &self.steps {
            match *step {
                Step::Ask { isolate, cost, times } => {
                    let told = UnixMillis::new(at(now_ms).get().saturating_add_signed(self.ahead_ms[isolate]));
                    let check = Check::new(&policy, &key, told).cost(cost);
                    for decision in together((0..times).map(|_| isolates[isolate].check(check))) {
                        let admitted = decision.is_ok_and(|decision| decision.is_allowed());
                        each(Asked { at: at(now_ms), cost, admitted, resets });
                    }
                }
                Step::After(isolate) => {
                    let told = UnixMillis::new(at(now_ms).get().saturating_add_signed(self.ahead_ms[isolate]));
                    together([isolates[isolate].after(|| told, ready(()))]);
                }
                Step::Die(isolate) => {
                    isolates[isolate] = fresh();
                    deaths += 1;
                }
                Step::Evict => rig.evict(),
                Step::Reset(isolate) => {
                    // If the answer was lost, the reset may have happened.
                    together([isolates[isolate].reset(&policy, (&key).into())]);
                    resets += 1;
                }
                Step::Lose(what) => rig.lose([Loss::None, Loss::Answers, Loss::Calls][usize::from(what)]),
                Step::Forward(ms) => {
                    now_ms += ms;
                    rig.set_clock(at(now_ms));
                }
            }
        }
        deaths
    }

    /// What was admitted in an interval over the most that it may be, if anything. Each isolate may add its grace in each window, and a
    /// bucket repays it.
    fn excess(&self) -> Option<String> {
        let mut admitted = Vec::new();
        let deaths = self.play(|asked| {
            if asked.admitted {
                admitted.push(asked)
            }
        });
        let (policy, graces) = (self.policy(self.limit), self.grace * (ISOLATES as u64 + deaths));
        for (place, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in admitted[place..].iter().take_while(|last| last.resets == first.resets) {
                sum += last.cost;
                for quota in policy.quotas() {
                    let span_ms = quota.rule().window().get();
                    let windows = match quota.rule() {
                        Rule::TokenBucket(_) => 1,
                        Rule::FixedWindow(_) => 1 + last.at.get() / span_ms - first.at.get() / span_ms,
                        _ => 1 + last.at.since(first.at).get() / span_ms,
                    };
                    let most = quota.rule().maximum(first.at, last.at) + graces * windows;
                    if sum > most {
                        return Some(format!("{sum} of at most {most} from {} to {}", first.at, last.at));
                    }
                }
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 20_000,
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn no_interval_admits_more_than_the_algorithms_maximum(
        story in story(step(prop_oneof![3 => Just(1), 1 => 0..9u64], true, 4_000), 0..5, 1..60, 1..3_000),
    ) {
        prop_assert_eq!(story.excess(), None);
    }

    #[test]
    fn a_grace_admits_no_more_than_it_for_each_isolate_whatever_fails(
        story in story(
            prop_oneof![
                4 => step(prop_oneof![3 => Just(1), 1 => 0..9u64], true, 4_000),
                1 => (0..ISOLATES).prop_map(Step::After),
            ],
            0..5, 1..60, 1..3_000,
        ),
        grace in prop_oneof![Just(1u64), Just(3)],
    ) {
        prop_assert_eq!(Story { grace, ..story }.excess(), None);
    }

    #[test]
    fn leases_admit_at_least_as_much_as_an_exact_limiter_of_the_floor(
        story in story(step(Just(1), false, 500), 0..2, 150..600, 50_000..60_000),
    ) {
        let mut asked = Vec::new();
        // The lifetime is longer than the story.
        let deaths = story.play(|one| asked.push(one));
        let can = isolate(&Rig::default(), story.slice, story.lifetime_ms).capabilities();
        let floor = can.accuracy.floor(Load { limit: story.limit, quota: story.limit, in_flight: 1, locations: ISOLATES as u64 + deaths });
        prop_assume!(floor > 0);
        let policy = story.policy(floor);
        let mut exact = policy.initial_state();
        let (mut by_leases, mut by_exact) = (0u64, 0u64);
        for Asked { at, admitted, .. } in asked {
            by_leases += u64::from(admitted);
            by_exact += u64::from(policy.decide(&mut exact, at, 1).is_allowed());
            prop_assert!(by_leases >= by_exact, "{by_leases}, but a limit of {floor} admits {by_exact}, at {at}");
        }
    }
}

/// All stories of five events: requests at two isolates, a death, lost calls and answers, evictions, and waits shorter and
/// longer than a lease.
#[test]
fn in_every_order_of_events_leases_stay_within_the_limit() {
    let ask = |isolate, times| Step::Ask { isolate, cost: 1, times };
    let events = [
        ask(0, 1),
        ask(0, 3),
        ask(1, 2),
        Step::Die(0),
        Step::Evict,
        Step::Lose(0),
        Step::Lose(1),
        Step::Forward(400),
        Step::Forward(1_100),
    ];
    for kind in 0..5 {
        let stories = in_every_order(|choose| {
            let steps: Vec<_> = (0..5).map(|_| events[choose(events.len())].clone()).collect();
            let story = Story {
                kind,
                limit: 4,
                refill: 1,
                span_ms: 2_000,
                slice: 2,
                lifetime_ms: 1_000,
                grace: 0,
                ahead_ms: [0; ISOLATES],
                steps,
            };
            let policy = story.policy(story.limit);
            let mut admitted = Vec::new();
            story.play(|asked| {
                if asked.admitted {
                    admitted.push(asked.at)
                }
            });
            for (place, first) in admitted.iter().enumerate() {
                for (more, last) in admitted[place..].iter().enumerate() {
                    for quota in policy.quotas() {
                        let most = quota.rule().maximum(*first, *last);
                        assert!((more as u64) < most, "more than {most} from {first} to {last}: {:?}", story.steps);
                    }
                }
            }
        });
        assert_eq!(stories, (events.len() as u64).pow(5));
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}

#[test]
fn a_lone_isolate_spends_a_whole_window_with_few_calls() {
    let policy = per_minute(1_000);
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = isolate(&rig, 100, 10_000);
    let mut calls_when_spent = 0;
    for request in 0..1_100 {
        let decision = block_on(leases.check(Check::new(&policy, &key, at(request)))).unwrap();
        assert_eq!(decision.is_allowed(), request < 1_000, "{request}");
        if request == 999 {
            calls_when_spent = rig.calls();
        }
    }
    assert!(calls_when_spent <= 28, "{calls_when_spent}");
    assert!(rig.rows_written() <= 28, "{}", rig.rows_written());
}

#[test]
fn the_call_after_a_spent_lease_lets_its_bucket_drain() {
    // At 100 a second, leases of 10 for ten seconds would hold the whole bucket within a second if none were returned.
    let policy = policy(Quota::token_bucket(100, 100, Millis::from_secs(1)));
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = isolate(&rig, 10, 10_000);
    for request in 0..2_000 {
        let check = Check::new(&policy, &key, at(request * 10));
        assert!(block_on(leases.check(check)).unwrap().is_allowed(), "{request}");
    }
    assert!(rig.calls() <= 200, "{}", rig.calls());
}

#[test]
fn one_call_at_a_time_asks_for_a_lease_and_a_dropped_call_lets_the_next_one_ask() {
    let policy = per_minute(100);
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let slice = NonZero::new(10).unwrap();
    let leases = Leases::new(DurableObjects::new(Later(&rig, 1)), slice, Millis::from_secs(10)).unwrap();
    let ask = || Box::pin(leases.check(Check::new(&policy, &key, at(0))));
    let mut context = Context::from_waker(Waker::noop());
    let decided = |answer: Poll<Result<Decision, Error>>| match answer {
        Poll::Ready(decision) => decision.unwrap().is_allowed(),
        Poll::Pending => false,
    };
    assert!(block_within(&mut context, ask()));
    // The second request in a lifetime asks for a lease. It is dropped, and its lease of 1 with it.
    let mut dropped = ask();
    assert!(dropped.as_mut().poll(&mut context).is_pending());
    drop(dropped);
    // Of three requests at once, one asks for a lease of 1. The others make plain calls.
    let mut three = [ask(), ask(), ask()];
    assert!(three.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    assert!(three.iter_mut().all(|one| decided(one.as_mut().poll(&mut context))));
    assert_eq!(rig.calls(), 5);
    // The lease is spent without a call.
    assert!(decided(ask().as_mut().poll(&mut context)));
    assert_eq!(rig.calls(), 5);
}

#[test]
fn an_isolate_whose_requests_outrun_a_lease_asks_for_the_next_one_earlier() {
    let policy = per_minute(100_000);
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let slice = NonZero::new(100).unwrap();
    let leases = Leases::new(DurableObjects::new(Later(&rig, 1)), slice, Millis::from_secs(10)).unwrap();
    let fifty = || together((0..50).map(|_| leases.check(Check::new(&policy, &key, at(0)))));
    let mut calls = Vec::new();
    for _ in 0..40 {
        assert!(fifty().iter().all(|decision| decision.as_ref().is_ok_and(Decision::is_allowed)));
        calls.push(rig.calls());
    }
    assert!(calls[39] - calls[9] <= 150, "fewer than a tenth of 1,500 from then on: {calls:?}");
}

#[test]
fn a_lease_is_spent_to_the_end_and_nothing_more_if_the_object_does_not_answer() {
    let policy = per_minute(100_000);
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let slice = NonZero::new(100).unwrap();
    let leases = Leases::new(DurableObjects::new(Later(&rig, 1)), slice, Millis::from_secs(10)).unwrap();
    let ask = |times| together((0..times).map(|_| leases.check(Check::new(&policy, &key, at(0)))));
    for _ in 0..40 {
        ask(50);
    }
    rig.lose(Loss::Calls);
    // Between half a lease and a whole one is left. The failing calls for more do not keep requests from spending it.
    let admitted = (0..150).map(|_| ask(1)[0].is_ok()).collect::<Vec<_>>();
    let left = admitted.iter().filter(|admitted| **admitted).count();
    assert!((40..=100).contains(&left) && admitted[..left].iter().all(|admitted| *admitted), "{admitted:?}");
}

fn block_within(context: &mut Context<'_>, mut check: impl Future<Output = Result<Decision, Error>> + Unpin) -> bool {
    loop {
        if let Poll::Ready(decision) = Pin::new(&mut check).poll(context) {
            return decision.unwrap().is_allowed();
        }
    }
}

#[test]
fn a_reset_keeps_lent_units_charged() {
    let span = Millis::from_secs(60);
    for quota in [Quota::fixed_window(100, span).unwrap(), Quota::token_bucket(100, 1, span).unwrap()] {
        let policy = Policy::new("api", [quota]).unwrap();
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let fleet = [isolate(&rig, 10, 10_000), isolate(&rig, 10, 10_000)];
        let ask = |place: usize, times: u64| {
            let check = || block_on(fleet[place].check(Check::new(&policy, &key, at(0)))).unwrap();
            (0..times).map(|_| check()).filter(Decision::is_allowed).count()
        };
        // A plain call, a call for a lease of 1, that lease, and a call for a lease of 2.
        assert_eq!(ask(0, 4), 4);
        block_on(fleet[1].reset(&policy, (&key).into())).unwrap();
        rig.evict();
        assert_eq!(ask(1, 200), 98);
        let spent = block_on(fleet[0].check(Check::new(&policy, &key, at(0)))).unwrap();
        assert_eq!((spent.is_allowed(), spent.origin()), (true, Origin::Lease));
        assert_eq!(ask(0, 200), 1);
    }
}

#[test]
fn the_settlement_of_a_charge_from_before_a_reset_keeps_lent_units_charged() {
    let span = Millis::from_secs(60);
    for quota in [Quota::fixed_window(100, span).unwrap(), Quota::token_bucket(100, 1, span).unwrap()] {
        let policy = Policy::new("api", [quota]).unwrap();
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let leases = isolate(&rig, 40, 10_000);
        let ask = |times: u64| {
            let check = || block_on(leases.check(Check::new(&policy, &key, at(0)))).unwrap();
            (0..times).map(|_| check()).filter(Decision::is_allowed).count()
        };
        // A plain call, and calls for leases of 1, 2, 4, 8 and 16, the last of which is not spent.
        assert_eq!(ask(21), 21);
        let once = Check::new(&policy, &key, at(0)).cost(50).idempotent("request-1", span);
        assert!(block_on(leases.check(once)).unwrap().is_allowed());
        block_on(leases.reset(&policy, (&key).into())).unwrap();
        block_on(leases.settle(Settle::new(&policy, &key, "request-1", 0, at(0)))).unwrap();
        let others = isolate(&rig, 1, 10_000);
        let check = || block_on(others.check(Check::new(&policy, &key, at(0)))).unwrap();
        let by_others = (0..200).map(|_| check()).filter(Decision::is_allowed).count();
        let by_lease = ask(200);
        assert!(by_lease > 0 && by_others + by_lease <= 100, "{by_others} + {by_lease}");
    }
}

#[test]
fn a_check_that_cannot_be_leased_is_a_plain_call() {
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = isolate(&rig, 10, 10_000);
    let window = Quota::fixed_window(100, Millis::from_secs(60)).unwrap();
    let log = Quota::sliding_log(100, Millis::from_secs(60)).unwrap();
    let shaper = Quota::leaky_bucket(100, 1, Millis::from_secs(60)).unwrap();
    let policies = [
        Policy::new("shaping", [window.clone(), shaper]).unwrap(),
        Policy::new("log", [log]).unwrap(),
        Policy::new("charging", [window.clone()]).unwrap().charge_denied(true),
        Policy::new("punishing", [window.clone(), Quota::penalty(Millis::new(1), 1, Millis::new(1)).unwrap()]).unwrap(),
    ];
    for policy in &policies {
        for request in 1..=5 {
            let decision = block_on(leases.check(Check::new(policy, &key, at(0)))).unwrap();
            assert_eq!(decision.quotas()[0].remaining(), Some(100 - request), "{}", policy.name());
        }
    }
    let policy = Policy::new("window", [window]).unwrap();
    let once = Check::new(&policy, &key, at(0)).idempotent("request-1", Millis::from_secs(60));
    let [first, again] = [(); 2].map(|()| block_on(leases.check(once)).unwrap());
    assert_eq!((first.is_replay(), again.is_replay()), (false, true));
    assert_eq!(first.quotas(), again.quotas());
    let settled = block_on(leases.settle(Settle::new(&policy, &key, "request-1", 0, at(0)))).unwrap();
    assert_eq!(settled.quotas()[0].remaining(), Some(100));
    // Slots, and several dimensions.
    let slots = Policy::new("slots", [Quota::concurrency(1, Millis::from_secs(60)).unwrap()]).unwrap();
    for request in 0..3 {
        let token = request.to_string();
        let held = Check::new(&slots, &key, at(0)).idempotent(&token, Millis::ZERO);
        assert!(block_on(leases.check(held)).unwrap().is_allowed());
        block_on(leases.settle(Settle::release(&slots, &key, &token, at(0)))).unwrap();
    }
    let by = |name: &str| Quota::fixed_window(100, Millis::from_secs(60)).unwrap().by(name).unwrap();
    let grouped = Policy::new("grouped", [by("user"), by("tenant")]).unwrap().group_by("tenant").unwrap();
    for request in 1..=5 {
        let keys = [("user", &key), ("tenant", &key)];
        let decision = block_on(leases.check(Check::new(&grouped, &keys, at(0)))).unwrap();
        assert_eq!(decision.quotas()[1].remaining(), Some(100 - request));
    }
    assert_eq!(rig.calls(), 20 + 2 + 1 + 6 + 5);
}

#[test]
fn a_block_by_an_isolate_holds_for_all_of_them() {
    let (rig, key, minute) = (Rig::default(), Key::new("user:1"), Millis::from_secs(60));
    let window = Quota::fixed_window(100, minute).unwrap();
    let policy = Policy::new("api", [window.clone(), Quota::block(minute).unwrap()]).unwrap();
    let fleet = [isolate(&rig, 10, 10_000), isolate(&rig, 10, 10_000)];
    let waits =
        |now| fleet.each_ref().map(|one| block_on(one.check(Check::new(&policy, &key, now))).unwrap().retry_after());
    let block = |span, now| block_on(fleet[0].block(Block::new(&policy, &key, span, now))).unwrap();
    // Isolates that know the key well, and then a denial.
    assert!((0..20).all(|ms| waits(at(ms)) == [None; 2]));
    block(Millis::from_secs(10), at(20));
    assert_eq!(waits(at(21)), [Some(Millis::new(9_999)); 2]);
    rig.evict();
    assert_eq!(waits(at(10_019)), [Some(Millis::new(1)); 2]);
    block(minute, at(10_020));
    assert_eq!(waits(at(10_020)), [Some(minute); 2]);
    block(Millis::ZERO, at(10_021));
    assert_eq!(waits(at(10_021)), [None; 2]);
    // A policy without a block says so, and its loans stay.
    let lent = Policy::new("lent", [window]).unwrap();
    let ask = |now| block_on(fleet[0].check(Check::new(&lent, &key, now))).unwrap();
    let _ = [30, 31, 32].map(|ms| ask(at(ms)));
    let refused = block_on(fleet[0].block(Block::new(&lent, &key, minute, at(33)))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!((33..80).all(|ms| ask(at(ms)).is_allowed()));
}

#[test]
fn the_declared_capabilities() {
    let rig = Rig::default();
    let leases = isolate(&rig, 10, 10_000);
    let can = leases.capabilities();
    assert_eq!(can.accuracy.ceiling(Load { limit: 100, quota: 100, in_flight: 50, locations: 3 }), 100);
    let told = "approximate: limit - 20 x locations (in the first 10000 ms) <= admitted <= limit";
    assert_eq!(can.accuracy.to_string(), told);
    for lifetime in [Millis::ZERO, Millis::new(60_001)] {
        let refused = Leases::new(DurableObjects::new(&rig), NonZero::new(1).unwrap(), lifetime).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}

/// How many units of each key its object has charged.
fn charged(rig: &Rig, config: &Config, policy: &Policy, keys: &[Key]) -> Vec<u64> {
    let limiter = DurableObjects::with_config(rig, config.clone()).limiter();
    let peek = |key| block_on(limiter.peek(Check::new(policy, key, at(0)))).unwrap().binding().remaining().unwrap();
    keys.iter().map(|key| 100 - peek(key)).collect()
}

#[test]
fn what_keys_of_one_shard_tell_is_one_call() {
    let policy = per_minute(100);
    let keys: Vec<_> = (0..200).map(|nth| Key::new(format!("user:{nth}"))).collect();
    let shards = |count| Placement::Shards(NonZero::new(count).unwrap());
    // 64 in a call, and a call for each key of an object that takes no several ones, which refuses three calls first.
    for (placement, loss, calls) in [
        (shards(1), Loss::None, 4),
        (shards(4), Loss::None, 4),
        (Placement::PerKey, Loss::None, 200),
        (shards(1), Loss::Several, 204),
    ] {
        let (rig, config) = (Rig::default(), virtual_time().placement(placement));
        rig.lose(loss);
        let lease = Lease { grace: 1, in_background: true, ..Lease::new(10, Millis::from_secs(10)) };
        let isolate = Leases::with_lease(DurableObjects::with_config(&rig, config.clone()), lease).unwrap();
        for key in &keys {
            let decision = block_on(isolate.check(Check::new(&policy, key, at(0)))).unwrap();
            assert_eq!((decision.is_allowed(), decision.origin()), (true, Origin::Lease));
        }
        assert_eq!(rig.calls(), 0);
        block_on(isolate.after(|| at(0), async {}));
        assert_eq!(rig.calls(), calls, "{placement:?}, {loss:?}");
        assert_eq!(charged(&rig, &config, &policy, &keys), [1; 200], "{placement:?}, {loss:?}");
    }
}

#[test]
fn a_row_that_cannot_be_read_fails_only_its_own_key_among_several() {
    let policy = per_minute(100);
    let keys: Vec<_> = (0..9).map(|nth| Key::new(format!("user:{nth}"))).collect();
    let (rig, config) = (Rig::default(), virtual_time().placement(Placement::Shards(NonZero::<u32>::MIN)));
    let lease = Lease { grace: 1, in_background: true, ..Lease::new(10, Millis::from_secs(10)) };
    let isolate = Leases::with_lease(DurableObjects::with_config(&rig, config.clone()), lease).unwrap();
    let ask = || {
        for key in &keys {
            assert!(block_on(isolate.check(Check::new(&policy, key, at(0)))).unwrap().is_allowed());
        }
    };
    ask();
    block_on(isolate.after(|| at(0), async {}));
    let broken = keys[4].storage_key(&policy);
    let mut kept = None;
    rig.edit(|memory| {
        let row = memory.rows.get_mut(&broken).unwrap();
        kept = Some(std::mem::replace(&mut row.value, vec![0xff]));
    });
    ask();
    block_on(isolate.after(|| at(0), async {}));
    rig.edit(|memory| memory.rows.get_mut(&broken).unwrap().value = kept.take().unwrap());
    let charged = charged(&rig, &config, &policy, &keys);
    assert!(charged.iter().enumerate().all(|(place, units)| (*units == 1) == (place == 4)), "{charged:?}");
}
