//! Leases: never more than the quota, whatever dies; never less than the floor.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pollster::block_on;
use proptest::prelude::*;
use support::{Loss, Rig, START_MS};
use tidegate_cloudflare_do::{Address, Clock, Config, DurableObjects, Leases, Namespace, Reply};
use tidegate_core::{Check, Decision, Error, ErrorKind, Key, Limiter, Load, Millis, Origin, Policy, Quota, UnixMillis};

fn at(ms: u64) -> UnixMillis {
    UnixMillis::new(START_MS + ms)
}

fn isolate(rig: &Rig, slice: u64, lifetime_ms: u64) -> Leases<&Rig> {
    Leases::new(DurableObjects::new(rig), NonZero::new(slice).unwrap(), Millis::new(lifetime_ms)).unwrap()
}

/// A namespace whose objects answer when they are polled again: after one more time, up to so many.
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

/// What all come to, each polled in turn.
fn at_once<T>(asked: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut context = Context::from_waker(Waker::noop());
    let mut asked: Vec<_> = asked.into_iter().map(|one| (Box::pin(one), None)).collect();
    while asked.iter().any(|(_, answer)| answer.is_none()) {
        for (one, answer) in asked.iter_mut().filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(ready) = one.as_mut().poll(&mut context) {
                *answer = Some(ready);
            }
        }
    }
    asked.into_iter().filter_map(|(_, answer)| answer).collect()
}

/// What happens to a fleet of isolates.
#[derive(Clone, Debug)]
enum Step {
    /// So many requests of a cost at one isolate, at once.
    Ask {
        isolate: usize,
        cost: u64,
        times: u64,
    },
    /// An isolate dies with what it holds, and another takes its place.
    Die(usize),
    /// All objects leave memory.
    Evict,
    /// An isolate resets the key.
    Reset(usize),
    /// The next requests' answers, or they themselves, are lost.
    Lose(u8),
    Forward(u64),
}

#[derive(Clone, Debug)]
struct Story {
    bucket: bool,
    limit: u64,
    refill: u64,
    span_ms: u64,
    slice: u64,
    lifetime_ms: u64,
    steps: Vec<Step>,
}

/// A request, and what became of it.
struct Asked {
    at: UnixMillis,
    cost: u64,
    admitted: bool,
    /// How many resets came before it.
    resets: u32,
}

const ISOLATES: usize = 4;

fn step(cost: impl Strategy<Value = u64> + 'static, losses: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..ISOLATES, cost, 1..30u64).prop_map(|(isolate, cost, times)| Step::Ask { isolate, cost, times }),
        1 => (0..ISOLATES).prop_map(Step::Die),
        1 => Just(Step::Evict),
        8 => prop_oneof![0..20u64, 0..400u64, 0..4_000u64].prop_map(Step::Forward),
        1 => if losses { (0..3u8).prop_map(Step::Lose).boxed() } else { Just(Step::Evict).boxed() },
        1 => if losses { (0..ISOLATES).prop_map(Step::Reset).boxed() } else { Just(Step::Evict).boxed() },
    ]
}

fn story<S: Strategy<Value = Step>>(
    step: S,
    limits: Range<u64>,
    lifetimes_ms: Range<u64>,
) -> impl Strategy<Value = Story> {
    let numbers = (any::<bool>(), limits, 1..30u64, 1..3_000u64, 1..20u64, lifetimes_ms);
    (numbers, prop::collection::vec(step, 1..80)).prop_map(|(numbers, steps)| {
        let (bucket, limit, refill, span_ms, slice, lifetime_ms) = numbers;
        Story { bucket, limit, refill, span_ms, slice, lifetime_ms, steps }
    })
}

impl Story {
    fn policy(&self, limit: u64) -> Policy {
        let span = Millis::new(self.span_ms);
        let quota = match self.bucket {
            true => Quota::token_bucket(limit, self.refill, span),
            false => Quota::fixed_window(limit, span),
        };
        Policy::new("api", [quota.unwrap()]).unwrap()
    }

    /// Plays it out: what was admitted when, after how many resets, and the deaths.
    fn play(&self, mut each: impl FnMut(Asked)) -> u64 {
        let (rig, policy, key) = (Rig::default(), self.policy(self.limit), Key::new("user:1"));
        let fresh = || {
            let (slice, lifetime) = (NonZero::new(self.slice).unwrap(), Millis::new(self.lifetime_ms));
            Leases::new(DurableObjects::new(Later(&rig, 3)), slice, lifetime).unwrap()
        };
        let mut isolates: Vec<_> = (0..ISOLATES).map(|_| fresh()).collect();
        let (mut now_ms, mut deaths, mut resets) = (0, 0, 0);
        for step in &self.steps {
            match *step {
                Step::Ask { isolate, cost, times } => {
                    let check = Check::new(&policy, &key, at(now_ms)).cost(cost);
                    for decision in at_once((0..times).map(|_| isolates[isolate].check(check))) {
                        let admitted = decision.is_ok_and(|decision| decision.is_allowed());
                        each(Asked { at: at(now_ms), cost, admitted, resets });
                    }
                }
                Step::Die(isolate) => {
                    isolates[isolate] = fresh();
                    deaths += 1;
                }
                Step::Evict => rig.evict(),
                Step::Reset(isolate) => {
                    // Where the answer is lost, it may have happened.
                    at_once([isolates[isolate].reset(&policy, &key)]);
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
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 20_000,
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn no_interval_admits_more_than_the_algorithms_maximum(
        story in story(step(prop_oneof![3 => Just(1), 1 => 0..9u64], true), 1..60, 1..3_000),
    ) {
        let mut admitted = Vec::new();
        story.play(|asked| if asked.admitted { admitted.push(asked) });
        let policy = story.policy(story.limit);
        for (place, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in admitted[place..].iter().take_while(|last| last.resets == first.resets) {
                sum += last.cost;
                let most = policy.quotas()[0].rule().maximum(first.at, last.at);
                prop_assert!(sum <= most, "{sum} of at most {most} from {} to {}", first.at, last.at);
            }
        }
    }

    #[test]
    fn never_stricter_than_an_exact_limiter_of_the_floor(
        story in story(step(Just(1), false), 150..600, 400_000..500_000),
    ) {
        let mut asked = Vec::new();
        // The lifetime is longer than the story: two leases for each isolate.
        let deaths = story.play(|one| asked.push(one));
        let can = isolate(&Rig::default(), story.slice, story.lifetime_ms).capabilities();
        let floor = can.accuracy.floor(Load { limit: story.limit, in_flight: 1, locations: ISOLATES as u64 + deaths });
        prop_assume!(floor > 0);
        let policy = story.policy(floor);
        let mut exact = policy.initial_state();
        let (mut by_leases, mut by_exact) = (0u64, 0u64);
        for Asked { at, admitted, .. } in asked {
            by_leases += u64::from(admitted);
            by_exact += u64::from(policy.decide(&mut exact, at, 1).is_allowed());
            prop_assert!(by_leases >= by_exact, "{by_leases} where a limit of {floor} admits {by_exact}, at {at}");
        }
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}

#[test]
fn a_lone_isolate_spends_a_window_to_the_last_with_few_calls() {
    let policy = Policy::new("api", [Quota::fixed_window(1_000, Millis::from_secs(60)).unwrap()]).unwrap();
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
fn a_lease_that_is_spent_frees_its_bucket_at_the_next_call() {
    // 100 a second: leases of 10 for ten seconds would hold the whole bucket within one, if none were given back.
    let policy = Policy::new("api", [Quota::token_bucket(100, 100, Millis::from_secs(1)).unwrap()]).unwrap();
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = isolate(&rig, 10, 10_000);
    for request in 0..2_000 {
        let check = Check::new(&policy, &key, at(request * 10));
        assert!(block_on(leases.check(check)).unwrap().is_allowed(), "{request}");
    }
    assert!(rig.calls() <= 200, "{}", rig.calls());
}

#[test]
fn one_asks_for_a_lease_at_a_time_and_a_call_that_is_dropped_lets_the_next_one_ask() {
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60)).unwrap()]).unwrap();
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
    // The second one in a lifetime asks for a lease, and is dropped with the lease of 1 that it would have had.
    let mut dropped = ask();
    assert!(dropped.as_mut().poll(&mut context).is_pending());
    drop(dropped);
    // Of three at once, one asks for a lease, of 1; the others' calls are plain.
    let mut three = [ask(), ask(), ask()];
    assert!(three.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    assert!(three.iter_mut().all(|one| decided(one.as_mut().poll(&mut context))));
    assert_eq!(rig.calls(), 5);
    // Which is spent without a call.
    assert!(decided(ask().as_mut().poll(&mut context)));
    assert_eq!(rig.calls(), 5);
}

#[test]
fn requests_that_outrun_a_lease_have_the_next_one_asked_for_earlier() {
    let policy = Policy::new("api", [Quota::fixed_window(100_000, Millis::from_secs(60)).unwrap()]).unwrap();
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let slice = NonZero::new(100).unwrap();
    let leases = Leases::new(DurableObjects::new(Later(&rig, 1)), slice, Millis::from_secs(10)).unwrap();
    let fifty = || at_once((0..50).map(|_| leases.check(Check::new(&policy, &key, at(0)))));
    let mut calls = Vec::new();
    for _ in 0..40 {
        assert!(fifty().iter().all(|decision| decision.as_ref().is_ok_and(Decision::is_allowed)));
        calls.push(rig.calls());
    }
    assert!(calls[39] - calls[9] <= 150, "fewer than a tenth of 1,500 from then on: {calls:?}");
}

#[test]
fn what_is_left_of_a_lease_is_spent_where_the_object_does_not_answer() {
    let policy = Policy::new("api", [Quota::fixed_window(100_000, Millis::from_secs(60)).unwrap()]).unwrap();
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let slice = NonZero::new(100).unwrap();
    let leases = Leases::new(DurableObjects::new(Later(&rig, 1)), slice, Millis::from_secs(10)).unwrap();
    let ask = |times| at_once((0..times).map(|_| leases.check(Check::new(&policy, &key, at(0)))));
    for _ in 0..40 {
        ask(50);
    }
    rig.lose(Loss::Calls);
    // By now some are left, between half a lease and a whole one, and the call for more keeps nobody from them.
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
fn a_reset_leaves_charged_what_others_may_spend_yet() {
    let span = Millis::from_secs(60);
    for quota in [Quota::fixed_window(100, span).unwrap(), Quota::token_bucket(100, 1, span).unwrap()] {
        let policy = Policy::new("api", [quota]).unwrap();
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let fleet = [isolate(&rig, 10, 10_000), isolate(&rig, 10, 10_000)];
        let ask = |isolate: &Leases<&Rig>, times: u64| {
            let check = || block_on(isolate.check(Check::new(&policy, &key, at(0)))).unwrap();
            (0..times).map(|_| check()).filter(Decision::is_allowed).count()
        };
        // 1 by a plain call, 1 with a lease of 1, that, and 1 with a lease of 2.
        assert_eq!(ask(&fleet[0], 4), 4);
        block_on(fleet[1].reset(&policy, &key)).unwrap();
        rig.evict();
        assert_eq!(ask(&fleet[1], 200), 98);
        let spent = block_on(fleet[0].check(Check::new(&policy, &key, at(0)))).unwrap();
        assert_eq!((spent.is_allowed(), spent.origin()), (true, Origin::Lease));
        assert_eq!(ask(&fleet[0], 200), 1);
    }
}

#[test]
fn what_cannot_be_leased_is_a_plain_call() {
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = isolate(&rig, 10, 10_000);
    let window = Quota::fixed_window(100, Millis::from_secs(60)).unwrap();
    let sliding = Quota::sliding_window(100, Millis::from_secs(60)).unwrap();
    let bucket = Quota::token_bucket(100, 1, Millis::from_secs(60)).unwrap();
    let policies = [
        Policy::new("two", [window.clone(), bucket]).unwrap(),
        Policy::new("sliding", [sliding]).unwrap(),
        Policy::new("charging", [window.clone()]).unwrap().charge_denied(true),
    ];
    for policy in &policies {
        for request in 1..=5 {
            let decision = block_on(leases.check(Check::new(policy, &key, at(0)))).unwrap();
            assert_eq!(decision.quotas()[0].remaining(), Some(100 - request), "{}", policy.name());
        }
    }
    let policy = Policy::new("window", [window]).unwrap();
    let once = Check::new(&policy, &key, at(0)).idempotent("request-1", Millis::from_secs(60));
    assert_eq!(block_on(leases.check(once)).unwrap(), block_on(leases.check(once)).unwrap());
    assert_eq!(rig.calls(), 17);
}

#[test]
fn what_it_declares() {
    let rig = Rig::default();
    let leases = isolate(&rig, 10, 10_000);
    let can = leases.capabilities();
    assert_eq!(can.accuracy.ceiling(Load { limit: 100, in_flight: 50, locations: 3 }), 100);
    let told = "approximate: limit - 20 x locations (in the first 10000 ms) <= admitted <= limit";
    assert_eq!(can.accuracy.to_string(), told);
    let by_object = DurableObjects::with_config(&rig, Config::default().clock(Clock::Object));
    let refused = Leases::new(by_object, NonZero::new(1).unwrap(), Millis::new(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let refused = Leases::new(DurableObjects::new(&rig), NonZero::new(1).unwrap(), Millis::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
