//! Balances: what is granted is spent once, whatever happens in between.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::num::NonZero;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::algorithm::{Balance, BalanceState, CalendarWindow, Lot, MAX_UNITS};
use tidegate_core::{
    Charge, ChargeId, Check, DenyCache, Dimensions, Error, ErrorKind, Grant, Key, Keys, Limiter, LimiterExt,
    MemoryLimiter, Millis, Operation, Origin, Policy, PolicyState, Quota, QuotaState, Refund, Rule, Settle, Sharded,
    Status, UnixMillis, WhenFull,
};
use tidegate_testing::{Declaring, NOW};

const MINUTE: Millis = Millis::from_secs(60);
const HOUR: Millis = Millis::from_secs(3_600);

fn covered(quota: Quota, max: u64) -> Policy {
    Policy::new("api", [quota, Quota::balance(max).unwrap().covers_excess().unwrap()]).unwrap()
}

fn daily(limit: u64, max: u64) -> Policy {
    covered(Quota::fixed_window(limit, MINUTE).unwrap(), max)
}

fn alone(max: u64) -> Policy {
    Policy::new("api", [Quota::balance(max).unwrap()]).unwrap()
}

fn balance(state: &PolicyState) -> BalanceState {
    match state.parts().last() {
        Some(QuotaState::Balance(balance)) => balance.clone(),
        other => unreachable!("{other:?}"),
    }
}

/// A balance as a ledger keeps it: what is left by its expiry, and sums of all that happened.
#[derive(Default)]
struct Ledger {
    left: BTreeMap<UnixMillis, u64>,
    debt: u64,
    granted: u64,
    spent: u64,
    expired: u64,
}

impl Ledger {
    fn expire(&mut self, now: UnixMillis) {
        let live = self.left.split_off(&(now + Millis::new(1)));
        self.expired += self.left.values().sum::<u64>();
        self.left = live;
    }

    fn live(&self) -> u64 {
        self.left.values().sum()
    }

    /// Takes units one by one, each from the lot that expires first. Returns the expiry of each, and makes the rest a debt.
    fn take(&mut self, units: u64) -> Vec<UnixMillis> {
        let mut taken = Vec::new();
        for _ in 0..units {
            let Some(mut first) = self.left.first_entry() else {
                self.debt += 1;
                continue;
            };
            taken.push(*first.key());
            *first.get_mut() -= 1;
            if *first.get() == 0 {
                first.remove();
            }
        }
        taken
    }

    fn add(&mut self, expires: UnixMillis) {
        *self.left.entry(expires).or_default() += 1;
    }

    fn repay(&mut self) {
        let debt = std::mem::take(&mut self.debt);
        self.take(debt);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    /// Units, and after how many milliseconds they expire. 0 if they do not.
    Grant(u64, u64),
    /// A cost, and what it is settled to.
    Check(u64, u64),
    /// Settles one of the charges in flight.
    Settle(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..40u64).prop_map(Step::Wait),
        2 => (1..20u64, prop_oneof![Just(0), 1..120u64]).prop_map(|(units, expires)| Step::Grant(units, expires)),
        4 => (0..12u64, 0..20u64).prop_map(|(cost, actual)| Step::Check(cost, actual)),
        3 => any::<usize>().prop_map(Step::Settle),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The quota that is covered, or none.
fn included() -> impl Strategy<Value = Option<Quota>> {
    prop_oneof![
        Just(None),
        (1..8u64, 0..9u64, 0..4u64, 1..4u64, 1..4u64).prop_map(|(limit, carry_over, since, first, next)| {
            let (start, minutes) = (UnixMillis::new(NOW.get() - since * 60_000), |count| Millis::new(count * 60_000));
            let window = CalendarWindow::new(limit, start, minutes(first), minutes(next), carry_over.min(limit));
            Some(Rule::CalendarWindow(window.unwrap()).into())
        }),
        (1..8u64, 1..50u64).prop_map(|(n, w)| Some(Quota::fixed_window(n, Millis::new(w)).unwrap())),
        (1..8u64, 1..4u64, 1..50u64).prop_map(|(n, r, w)| Some(Quota::token_bucket(n, r, Millis::new(w)).unwrap())),
    ]
}

/// How many milliseconds a step of time has: calendars have no window below a minute.
fn scale(quota: Option<&Quota>) -> u64 {
    if matches!(quota.map(Quota::rule), Some(Rule::CalendarWindow(_))) { 3_011 } else { 1 }
}

/// Charges units one by one: a calendar window admits no cost above its limit, but units that it has carried over.
fn charge_units(policy: &Policy, state: &mut PolicyState, now: UnixMillis, units: u64) -> bool {
    (0..units).all(|_| policy.decide(state, now, 1).is_allowed())
}

struct InFlight {
    charge: Charge,
    paid: Vec<Lot>,
    /// The expiry of each unit that the balance paid, in the order in which they were taken.
    taken: Vec<UnixMillis>,
    actual: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A ledger that moves single units decides the same, and what was granted is what was spent, left and expired, less the debt.
    #[test]
    fn every_granted_unit_is_accounted_for(quota in included(), max in 20..60u64, steps in steps()) {
        let scale = scale(quota.as_ref());
        let policy = quota.clone().map_or_else(|| alone(max), |quota| covered(quota, max));
        let without = quota.map(|quota| Policy::new("without", [quota]).unwrap());
        let (mut state, mut now, mut ledger) = (policy.initial_state(), NOW, Ledger::default());
        let mut quota_state = without.as_ref().map(Policy::initial_state);
        let mut in_flight: Vec<InFlight> = Vec::new();
        for step in steps {
            ledger.expire(now);
            match step {
                Step::Wait(ms) => now = now + Millis::new(ms * scale),
                Step::Grant(units, lasts) => {
                    let expires = if lasts == 0 { UnixMillis::MAX } else { now + Millis::new(lasts * scale) };
                    let fits = ledger.live() + units.saturating_sub(ledger.debt) <= max;
                    let before = state.clone();
                    let granted = policy.grant(&mut state, units, expires, now);
                    prop_assert_eq!(granted.is_ok(), fits);
                    if fits {
                        ledger.granted += units;
                        for _ in 0..units {
                            ledger.add(expires);
                        }
                        ledger.repay();
                    } else {
                        prop_assert_eq!(granted.unwrap_err().kind(), ErrorKind::Invalid);
                        prop_assert_eq!(&state, &before);
                    }
                }
                Step::Check(cost, actual) => {
                    let room = without.as_ref().zip(quota_state.as_ref()).map_or(0, |(policy, state)| {
                        policy.peek(state, now, 0).binding().remaining().unwrap()
                    });
                    let owed = cost - room.min(cost);
                    let fits = owed <= ledger.live() && !(cost == 0 && ledger.debt > 0 && room == 0);
                    let before = state.clone();
                    prop_assert_eq!(policy.peek(&state, now, cost).is_allowed(), fits);
                    let decision = policy.decide(&mut state, now, cost);
                    prop_assert_eq!(decision.is_allowed(), fits, "{:?}", decision);
                    prop_assert_eq!(decision.from_balance(), if fits { owed } else { 0 });
                    if fits {
                        if let (Some(policy), Some(state)) = (&without, &mut quota_state) {
                            prop_assert!(charge_units(policy, state, now, cost - owed));
                        }
                        let taken = ledger.take(owed);
                        ledger.spent += owed;
                        let charge = Charge { id: ChargeId::NONE, at: now, cost };
                        in_flight.push(InFlight { charge, paid: policy.paid(&before, &decision), taken, actual });
                    } else {
                        prop_assert_eq!(&state, &before);
                    }
                    prop_assert_eq!(decision.quotas().last().unwrap().remaining(), Some(ledger.live()));
                }
                Step::Settle(which) => {
                    if in_flight.is_empty() {
                        continue;
                    }
                    let InFlight { charge, paid, mut taken, actual } = in_flight.remove(which % in_flight.len());
                    policy.settle_paid(&mut state, &charge, &paid, now, actual);
                    if actual <= charge.cost {
                        let mut back = charge.cost - actual;
                        while back > 0 && let Some(expires) = taken.pop() {
                            back -= 1;
                            ledger.spent -= 1;
                            if expires > now { ledger.add(expires) } else { ledger.expired += 1 }
                        }
                        ledger.repay();
                        if let (Some(policy), Some(state)) = (&without, &mut quota_state) {
                            policy.refund(state, charge.at, now, back);
                        }
                    } else {
                        let more = actual - charge.cost;
                        let room = without.as_ref().zip(quota_state.as_ref()).map_or(0, |(policy, state)| {
                            policy.peek(state, now, 0).binding().remaining().unwrap()
                        });
                        if let (Some(policy), Some(state)) = (&without, &mut quota_state) {
                            prop_assert!(charge_units(policy, state, now, more.min(room)));
                        }
                        ledger.take(more - more.min(room));
                        ledger.spent += more - more.min(room);
                    }
                }
            }
            ledger.expire(now);
            let own = balance(&state);
            prop_assert_eq!((own.live(now), own.debt), (ledger.live(), ledger.debt));
            let live = own.lots.iter().filter(|lot| lot.expires > now).map(|lot| (lot.expires, lot.units));
            prop_assert_eq!(live.collect::<BTreeMap<_, _>>(), ledger.left.clone());
            prop_assert_eq!(ledger.granted + ledger.debt, ledger.spent + ledger.live() + ledger.expired);
            prop_assert!(policy.verify(&state, now).is_ok());
            prop_assert_eq!(policy.decode(&policy.encode(&state), now).unwrap(), state.clone());
            if let (Some(policy), Some(quota_state)) = (&without, &quota_state) {
                let left = |policy: &Policy, state| policy.peek(state, now, 0).quotas()[0].remaining();
                prop_assert_eq!(left(policy, quota_state), policy_left(&state, now, policy));
            }
        }
    }

    /// Law 2, with units that expire while the request waits.
    #[test]
    fn a_wait_is_exact_if_nothing_is_granted(
        quota in included(), steps in steps(), cost in 0..15u64
    ) {
        let scale = scale(quota.as_ref());
        let policy = quota.map_or_else(|| alone(1_000), |quota| covered(quota, 1_000));
        let (mut state, mut now) = (policy.initial_state(), NOW);
        for step in steps {
            match step {
                Step::Wait(ms) => now = now + Millis::new(ms % 10 * scale),
                Step::Grant(units, lasts) => {
                    let expires = if lasts == 0 { UnixMillis::MAX } else { now + Millis::new(lasts * scale) };
                    let _ = policy.grant(&mut state, units, expires, now);
                }
                Step::Check(cost, actual) => {
                    let before = state.clone();
                    let decision = policy.decide(&mut state, now, cost);
                    if decision.is_allowed() && actual > cost {
                        let charge = Charge { id: ChargeId::NONE, at: now, cost };
                        policy.settle_paid(&mut state, &charge, &policy.paid(&before, &decision), now, actual);
                    }
                }
                Step::Settle(_) => {}
            }
        }
        let decision = policy.peek(&state, now, cost);
        match decision.retry_after() {
            Some(wait) => {
                let every = usize::try_from(scale).unwrap();
                for waited in (0..wait.get()).step_by(every).chain([wait.get() - 1]) {
                    let early = policy.peek(&state, now + Millis::new(waited), cost);
                    prop_assert_eq!(early.retry_after(), Some(Millis::new(wait.get() - waited)));
                }
                prop_assert!(policy.peek(&state, now + wait, cost).is_allowed());
            }
            None if decision.status() == Status::Denied => {
                for waited in 0..500 {
                    prop_assert!(!policy.peek(&state, now + Millis::new(waited * scale), cost).is_allowed());
                }
            }
            None => {}
        }
    }
}

/// What the first quota of a state with a balance has left, by a policy of this quota alone.
fn policy_left(state: &PolicyState, now: UnixMillis, policy: &Policy) -> Option<u64> {
    let own = PolicyState::from_parts(state.parts()[..1].to_vec());
    policy.peek(&own, now, 0).quotas()[0].remaining()
}

#[test]
fn a_denial_takes_nothing_even_if_denials_are_charged() -> Result<(), Error> {
    let policy = daily(10, 100).charge_denied(true);
    let mut state = policy.initial_state();
    policy.grant(&mut state, 5, UnixMillis::MAX, NOW)?;
    let denied = policy.decide(&mut state, NOW, 16);
    assert_eq!((denied.status(), denied.from_balance()), (Status::Denied, 0));
    assert_eq!(denied.quotas()[0].remaining(), Some(0));
    assert_eq!(balance(&state).live(NOW), 5);
    Ok(())
}

#[test]
fn another_quota_denies_both_and_neither_is_charged() -> Result<(), Error> {
    let quotas =
        [Quota::fixed_window(10, MINUTE)?, Quota::balance(100)?.covers_excess()?, Quota::fixed_window(12, HOUR)?];
    let policy = Policy::new("api", quotas)?;
    let mut state = policy.initial_state();
    policy.grant(&mut state, 50, UnixMillis::MAX, NOW)?;
    let before = state.clone();
    let denied = policy.decide(&mut state, NOW, 13);
    assert_eq!((denied.status(), denied.binding_index()), (Status::NeverAdmissible, 0));
    assert_eq!(state, before);
    assert_eq!(policy.decide(&mut state, NOW, 12).from_balance(), 2);
    Ok(())
}

#[test]
fn the_response_shows_the_included_usage_and_then_the_balance() -> Result<(), Error> {
    let policy = daily(10, 100);
    let mut state = policy.initial_state();
    policy.grant(&mut state, 50, UnixMillis::MAX, NOW)?;
    let shown = |decision: tidegate_core::Decision| (decision.binding_index(), decision.binding().remaining());
    assert_eq!(shown(policy.decide(&mut state, NOW, 4)), (0, Some(6)));
    assert_eq!(shown(policy.decide(&mut state, NOW, 6)), (1, Some(50)));
    assert_eq!(shown(policy.decide(&mut state, NOW, 7)), (1, Some(43)));
    Ok(())
}

#[test]
fn a_cost_is_never_admissible_only_beyond_the_limit_and_the_most_of_the_balance() {
    let policy = daily(10, 100);
    let state = policy.initial_state();
    assert_eq!(policy.peek(&state, NOW, 110).status(), Status::Denied);
    assert_eq!(policy.peek(&state, NOW, 111).status(), Status::NeverAdmissible);
    assert_eq!(alone(100).peek(&alone(100).initial_state(), NOW, 101).status(), Status::NeverAdmissible);
}

/// A month with what the last one has left, then credits.
#[test]
fn a_month_is_used_with_what_it_has_carried_and_then_the_balance() -> Result<(), Error> {
    let days = |count: u64| Millis::from_secs(count * 86_400);
    let (february, march, april) = (NOW, NOW + days(28), NOW + days(28 + 31));
    let month = Rule::CalendarWindow(CalendarWindow::new(100, february, days(28), days(31), 20)?);
    let policy = covered(month.into(), 1_000);
    let mut state = policy.initial_state();
    policy.grant(&mut state, 500, UnixMillis::MAX, february)?;
    let left = |state: &PolicyState, now| {
        let peeked = policy.peek(state, now, 0);
        [0, 1].map(|place| peeked.quotas()[place].remaining().unwrap())
    };
    // More than the limit: 100, 20 that a new key could have carried, and 50 of the balance.
    let decision = policy.decide(&mut state, february, 170);
    assert_eq!((decision.is_allowed(), decision.from_balance(), left(&state, february)), (true, 50, [0, 450]));
    assert_eq!(left(&state, march), [100, 450]);
    assert_eq!(left(&state, april), [120, 450]);
    assert!(policy.decide(&mut state, march, 90).is_allowed());
    assert_eq!(left(&state, april), [110, 450]);
    // Never more than the limit, what may be carried and the most of the balance.
    assert_eq!(policy.peek(&state, march, 1_120).status(), Status::Denied);
    assert_eq!(policy.peek(&state, march, 1_121).status(), Status::NeverAdmissible);
    // 110 and 450 in April. 120 and 450 after it, when April has left 20.
    assert_eq!(policy.peek(&state, march, 560).retry_after(), Some(days(31)));
    assert_eq!(policy.peek(&state, march, 561).retry_after(), Some(days(31 + 31)));
    assert_eq!(policy.peek(&state, march, 571).retry_after(), None);
    // A debt is the balance's, and the month begins with what is included.
    let charge = Charge { id: ChargeId::NONE, at: march, cost: 0 };
    policy.settle_paid(&mut state, &charge, &[], march, 500);
    assert_eq!((balance(&state).debt, left(&state, april)), (40, [100, 0]));
    assert!(policy.decide(&mut state, april, 100).is_allowed());
    Ok(())
}

#[test]
fn a_debt_denies_beyond_the_included_usage_until_a_grant_repays_it() -> Result<(), Error> {
    let policy = daily(10, 100);
    let mut state = policy.initial_state();
    assert!(policy.decide(&mut state, NOW, 10).is_allowed());
    let charge = Charge { id: ChargeId::NONE, at: NOW, cost: 10 };
    policy.settle_paid(&mut state, &charge, &[], NOW, 40);
    assert_eq!(balance(&state).debt, 30);
    assert_eq!(policy.peek(&state, NOW, 0).status(), Status::Denied);
    // The next window admits what is included, and no more.
    let next = NOW + MINUTE;
    assert!(policy.peek(&state, next, 10).is_allowed());
    assert!(!policy.peek(&state, next, 11).is_allowed());
    policy.grant(&mut state, 35, UnixMillis::MAX, next)?;
    assert_eq!((balance(&state).debt, balance(&state).live(next)), (0, 5));
    Ok(())
}

#[test]
fn a_policy_says_what_is_wrong_with_a_balance() -> Result<(), Error> {
    let covers = || Quota::balance(10)?.covers_excess();
    let window = || Quota::fixed_window(1, MINUTE);
    let wrong = |quotas: Vec<Quota>| Policy::new("api", quotas).unwrap_err().to_string();
    assert_eq!(
        wrong(vec![covers()?, window()?]),
        "quotas[0].covers: before it in its dimension is no quota; write a fixed_window, a token_bucket or a calendar_window there, or leave this out"
    );
    assert!(wrong(vec![Quota::sliding_log(1, MINUTE)?, covers()?]).contains("is a sliding_log; write"));
    assert!(wrong(vec![window()?.by("user")?, covers()?.by("tenant")?]).contains("is no quota"));
    assert!(wrong(vec![window()?, covers()?, Quota::balance(1)?]).contains("quotas[1] is a balance already"));
    let slots = Quota::from_parameters(6, [1, 1_000, 1])?;
    assert!(Policy::new("api", [slots, window()?, covers()?]).unwrap_err().to_string().contains("returns_cost"));
    assert!(window()?.covers_excess().is_err());
    // A penalty is put after the balance.
    let penalty = Quota::penalty(Millis::new(1), 2, MINUTE)?;
    assert_eq!(Policy::new("api", [penalty, window()?, covers()?])?.quotas()[2].rule().name(), "penalty");
    let (one, two) = (Policy::new("a", [Quota::balance(1)?])?, Policy::new("b", [Quota::balance(1)?])?);
    assert!(Policy::join([&one, &two]).unwrap_err().to_string().contains("a balance each"));
    assert_eq!(Quota::balance(0).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(Quota::balance(MAX_UNITS + 1).is_err());
    Ok(())
}

/// A balance is money: it must outlive a change of its most, and of what it covers.
#[test]
fn the_stored_state_is_the_same_whether_it_covers_or_not() -> Result<(), Error> {
    let id = |quota: Quota| {
        Policy::new("api", [Quota::fixed_window(5, MINUTE)?, quota]).map(|policy| policy.id().to_owned())
    };
    assert_eq!(id(Quota::balance(5)?.covers_excess()?)?, id(Quota::balance(900)?)?);
    Ok(())
}

#[test]
fn states_that_no_balance_has_are_corrupt() {
    let policy = alone(100);
    let state = |debt, lots: &[(u64, u64)]| {
        let lots = lots.iter().map(|(units, at)| Lot { units: *units, expires: UnixMillis::new(*at) }).collect();
        PolicyState::from_parts(vec![QuotaState::Balance(BalanceState { debt, lots })])
    };
    assert!(policy.verify(&state(0, &[(1, 5), (2, 6)]), NOW).is_ok());
    for wrong in [
        state(0, &[(1, 6), (2, 5)]),
        state(0, &[(1, 5), (2, 5)]),
        state(0, &[(0, 5)]),
        state(1, &[(1, 5)]),
        state(MAX_UNITS + 1, &[]),
        state(0, &[(MAX_UNITS, 5), (1, 6)]),
        state(0, &(0..65).map(|at| (1, at)).collect::<Vec<_>>()),
    ] {
        assert_eq!(policy.verify(&wrong, NOW).unwrap_err().kind(), ErrorKind::Corrupt, "{wrong:?}");
        assert!(policy.decode(&policy.encode(&wrong), NOW).is_err());
    }
}

#[test]
fn a_grant_is_made_once_for_each_token() -> Result<(), Error> {
    block_on(async {
        let (limiter, policy, key) = (MemoryLimiter::new(), daily(10, 100), Key::new("user:1"));
        let grant = |units, token, now| Grant::new(&policy, &key, units, token, now);
        let first = limiter.grant(grant(40, "order-1", NOW)).await?;
        assert_eq!((first.is_replay(), first.quotas()[1].remaining()), (false, Some(40)));
        // A check with the same token is something else.
        let check = Check::new(&policy, &key, NOW).cost(12).idempotent("order-1", HOUR);
        let spent = limiter.check(check).await?;
        assert_eq!((spent.is_replay(), spent.from_balance()), (false, 2));
        let again = limiter.grant(grant(40, "order-1", NOW + HOUR)).await?;
        assert_eq!((again.is_replay(), again.quotas()[1].remaining()), (true, Some(38)));
        let other = limiter.grant(grant(41, "order-1", NOW)).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::TokenReused);
        // A replay says so also if the units have expired, or would not fit any more.
        let replay = limiter.grant(grant(40, "order-1", NOW + HOUR).expires(NOW)).await?;
        assert!(replay.is_replay());
        // Ninety days later, the token is a new one.
        let late = NOW + Grant::REMEMBERED;
        assert!(limiter.grant(grant(40, "order-1", UnixMillis::new(late.get() - 1))).await?.is_replay());
        assert!(!limiter.grant(grant(40, "order-1", late)).await?.is_replay());
        Ok(())
    })
}

#[test]
fn a_grant_that_is_not_made_changes_nothing_and_can_be_repeated() -> Result<(), Error> {
    block_on(async {
        let (limiter, policy, key) = (MemoryLimiter::new(), alone(100), Key::new("user:1"));
        let grant = |units, token| Grant::new(&policy, &key, units, token, NOW);
        limiter.grant(grant(90, "a")).await?;
        let refused = limiter.grant(grant(11, "b")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(
            refused.to_string(),
            "units: the balance would pass its max; write at most 10, or raise the max of the balance"
        );
        assert!(limiter.grant(grant(5, "c").expires(NOW)).await.is_err());
        limiter.check(Check::new(&policy, &key, NOW).cost(50)).await?;
        assert_eq!(limiter.grant(grant(11, "b")).await?.binding().remaining(), Some(51));
        for wrong in [grant(0, "d"), grant(MAX_UNITS + 1, "d"), grant(1, " ")] {
            assert_eq!(limiter.grant(wrong).await.unwrap_err().kind(), ErrorKind::Invalid);
        }
        let without = Policy::new("without", [Quota::fixed_window(1, MINUTE)?])?;
        let error = limiter.grant(Grant::new(&without, &key, 1, "e", NOW)).await.unwrap_err();
        assert_eq!(error.to_string(), "grant: the policy \"without\" has no balance; add a quota of this kind");
        Ok(())
    })
}

#[test]
fn a_balance_has_at_most_64_lots_and_a_settlement_does_not_fail_for_it() -> Result<(), Error> {
    let policy = alone(1_000);
    let mut state = policy.initial_state();
    let at = |nth: u64| NOW + Millis::new(1_000 + nth);
    for nth in 0..64 {
        policy.grant(&mut state, 2, at(nth), NOW)?;
    }
    assert!(policy.grant(&mut state, 1, at(64), NOW).unwrap_err().to_string().contains("64 lots"));
    policy.grant(&mut state, 1, at(63), NOW)?;
    // The first lot is spent, another takes its place, and the charge is cancelled.
    let before = state.clone();
    let decision = policy.decide(&mut state, NOW, 2);
    policy.grant(&mut state, 1, at(64), NOW)?;
    let charge = Charge { id: ChargeId::NONE, at: NOW, cost: 2 };
    policy.settle_paid(&mut state, &charge, &policy.paid(&before, &decision), NOW, 0);
    assert_eq!(balance(&state).live(NOW), 2 * 64 + 2);
    assert_eq!(balance(&state).lots.len(), Balance::MAX_LOTS);
    // Lots that have expired make room.
    let later = at(0) + Millis::new(10);
    policy.grant(&mut state, 1, at(1_000), later)?;
    policy.verify(&state, later)
}

#[test]
fn a_settlement_returns_to_the_balance_first_and_to_the_lots_that_paid() -> Result<(), Error> {
    block_on(async {
        let (limiter, policy, key) = (MemoryLimiter::new(), daily(10, 1_000), Key::new("user:1"));
        let soon = NOW + Millis::new(500);
        limiter.grant(Grant::new(&policy, &key, 20, "promotion", NOW).expires(soon)).await?;
        limiter.grant(Grant::new(&policy, &key, 100, "order", NOW)).await?;
        let check = Check::new(&policy, &key, NOW).cost(60).idempotent("request", HOUR);
        assert_eq!(limiter.check(check).await?.from_balance(), 50);
        // It cost 25: 35 return, of which 30 to the order and 5 to the promotion. That has expired.
        let settled = limiter.settle(Settle::new(&policy, &key, "request", 25, soon)).await?;
        assert_eq!(settled.quotas()[1].remaining(), Some(100));
        assert_eq!(settled.quotas()[0].remaining(), Some(0));
        assert!(limiter.settle(Settle::new(&policy, &key, "request", 0, soon)).await?.is_replay());
        // What the balance did not pay returns to the quota.
        let check = Check::new(&policy, &key, soon).cost(7).idempotent("other", HOUR);
        assert_eq!(limiter.check(check).await?.from_balance(), 7);
        let later = soon + MINUTE;
        let check = Check::new(&policy, &key, later).cost(12).idempotent("third", HOUR);
        assert_eq!(limiter.check(check).await?.from_balance(), 2);
        let settled = limiter.settle(Settle::new(&policy, &key, "third", 3, later)).await?;
        assert_eq!(settled.quotas().iter().map(|quota| quota.remaining()).collect::<Vec<_>>(), [Some(7), Some(93)]);
        Ok(())
    })
}

#[test]
fn a_replayed_check_says_what_the_balance_paid() -> Result<(), Error> {
    block_on(async {
        let (limiter, policy, key) = (MemoryLimiter::new(), daily(10, 1_000), Key::new("user:1"));
        limiter.grant(Grant::new(&policy, &key, 20, "order", NOW)).await?;
        let check = Check::new(&policy, &key, NOW).cost(15).idempotent("request", HOUR);
        for replay in [false, true] {
            let decision = limiter.check(check).await?;
            assert_eq!((decision.is_replay(), decision.from_balance()), (replay, 5));
        }
        Ok(())
    })
}

#[test]
fn a_refund_needs_a_token() -> Result<(), Error> {
    let (limiter, policy, key) = (MemoryLimiter::new(), daily(10, 1_000), Key::new("user:1"));
    let error = Operation::Refund(Refund::new(&policy, &key, 1, NOW, NOW)).verify(&limiter.capabilities()).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("settle it")), (ErrorKind::Invalid, true));
    let refused = block_on(limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    Ok(())
}

/// What no check could spend is not granted.
#[test]
fn a_store_grants_by_the_policies_that_it_decides_by() -> Result<(), Error> {
    let (user, ip) = (Key::new("user:1"), Key::new("ip:192.0.2.1"));
    let keys = [("user", &user), ("ip", &ip)];
    let quotas = [Quota::fixed_window(5, MINUTE)?.by("ip")?, Quota::balance(1_000)?.by("user")?];
    let one_place = MemoryLimiter::new().capabilities().dimensions(Dimensions::Grouped);
    let (limiter, policy) = (Declaring(one_place, MemoryLimiter::new()), Policy::new("api", quotas)?);
    let refused = block_on(limiter.grant(Grant::new(&policy, &keys, 50, "order", NOW))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let grouped = policy.group_by("user")?;
    assert!(block_on(limiter.grant(Grant::new(&grouped, &keys, 50, "order", NOW)))?.is_allowed());
    Ok(())
}

/// Several dimensions: the balance is of the user, and a grant needs no other key.
#[test]
fn a_balance_of_one_dimension_is_granted_by_its_key() -> Result<(), Error> {
    block_on(async {
        let policy = Policy::new(
            "api",
            [
                Quota::fixed_window(100, MINUTE)?.by("ip")?,
                Quota::fixed_window(5, MINUTE)?.by("user")?,
                Quota::balance(1_000)?.covers_excess()?.by("user")?,
            ],
        )?;
        let limiter = MemoryLimiter::new();
        let (user, ip) = (Key::new("user:1"), Key::new("ip:192.0.2.1"));
        let by_user = [("user", &user)];
        let granted = limiter.grant(Grant::new(&policy, &by_user, 50, "order", NOW)).await?;
        assert_eq!(granted.quotas().last().and_then(|quota| quota.remaining()), Some(50));
        assert!(limiter.grant(Grant::new(&policy, &by_user, 50, "order", NOW)).await?.is_replay());
        let keys = [("user", &user), ("ip", &ip)];
        let check = Check::new(&policy, &keys, NOW).cost(30).idempotent("request", HOUR);
        assert_eq!(limiter.check(check).await?.from_balance(), 25);
        let settled = limiter.settle(Settle::new(&policy, &keys, "request", 10, NOW)).await?;
        assert_eq!(
            settled.quotas().iter().map(|quota| quota.remaining()).collect::<Vec<_>>(),
            [Some(90), Some(0), Some(45)]
        );
        // The address does not last as long as the balance does.
        limiter.sweep(NOW + HOUR);
        assert_eq!(limiter.len(), 1);
        // It is the same balance with a group of its dimension.
        let by_group = policy.clone().group_by("user")?;
        let again = limiter.grant(Grant::new(&by_group, &by_user, 50, "order", NOW)).await?;
        assert_eq!((again.is_replay(), again.quotas()[1].remaining()), (true, Some(45)));
        // A group of another dimension selects where the balance is.
        let by_group = policy.group_by("ip")?;
        let without = limiter.grant(Grant::new(&by_group, &by_user, 50, "order", NOW)).await.unwrap_err();
        assert_eq!(without.kind(), ErrorKind::Invalid);
        let granted = limiter.grant(Grant::new(&by_group, &keys, 50, "order", NOW)).await?;
        assert_eq!((granted.is_replay(), granted.quotas()[2].remaining()), (false, Some(50)));
        Ok(())
    })
}

/// A plan changes, and with it the names of the rows of its quotas. What was bought stays, and a grant that is repeated is found.
#[test]
fn a_change_of_the_other_quotas_leaves_the_balance() -> Result<(), Error> {
    block_on(async {
        let (limiter, key) = (MemoryLimiter::new(), Key::new("user:1"));
        let plans = [
            daily(10, 1_000),
            covered(Quota::fixed_window(10, HOUR)?, 1_000),
            covered(Quota::token_bucket(10, 1, MINUTE)?, 1_000),
            alone(1_000),
            Policy::new("api", [Quota::sliding_window(500, HOUR)?, Quota::balance(1_000)?, Quota::block(HOUR)?])?,
        ];
        let mut left = 500;
        for (nth, policy) in plans.iter().enumerate() {
            let granted = limiter.grant(Grant::new(policy, &key, 500, "order", NOW)).await?;
            assert_eq!(
                (granted.is_replay(), granted.quotas().iter().find_map(|quota| quota.remaining())),
                (nth > 0, {
                    Some(if nth < 3 {
                        10
                    } else if nth == 3 {
                        left
                    } else {
                        500
                    })
                })
            );
            let decision = limiter.check(Check::new(policy, &key, NOW).cost(50)).await?;
            assert!(decision.is_allowed());
            left -= decision.from_balance();
            let place = policy.quotas().iter().position(|quota| matches!(quota.rule(), Rule::Balance(_))).unwrap();
            assert_eq!(decision.quotas()[place].remaining(), Some(left));
            assert_eq!(decision.from_balance(), if nth < 3 { 40 } else { 50 });
        }
        // Each row for its own time.
        limiter.sweep(NOW + HOUR + HOUR);
        assert_eq!(limiter.len(), 1);
        Ok(())
    })
}

#[test]
fn a_balance_and_a_penalty_come_after_the_other_quotas_of_their_dimension() -> Result<(), Error> {
    let quotas = [
        Quota::penalty(MINUTE, 2, HOUR)?,
        Quota::fixed_window(10, MINUTE)?,
        Quota::balance(100)?.covers_excess()?,
        Quota::fixed_window(20, MINUTE)?,
        Quota::fixed_window(30, MINUTE)?.by("tenant")?,
    ];
    let policy = Policy::new("api", quotas)?;
    let limits: Vec<_> = policy.quotas().iter().map(|quota| (quota.rule().name(), quota.rule().limit())).collect();
    let names = [("fixed_window", 20), ("fixed_window", 10), ("balance", 100)];
    assert_eq!(limits[..3], names);
    assert_eq!((limits[3].0, limits[4]), ("penalty", ("fixed_window", 30)));
    let rows: Vec<_> = policy.rows().iter().map(|row| (row.id(), row.quotas())).collect();
    assert_eq!(
        rows,
        [("api:fw60000.fw60000", 0..2), ("api:ba0", 2..3), ("api:pn60000", 3..4), ("api@tenant:fw60000", 4..5)]
    );
    // A denial by the balance is a violation, and one of another dimension is none.
    let mut state = policy.initial_state();
    assert!(policy.decide(&mut state, NOW, 10).is_allowed());
    let denied = policy.decide(&mut state, NOW, 5);
    assert_eq!(denied.status(), Status::Denied);
    assert!(matches!(&state.parts()[3], QuotaState::Penalty(penalty) if penalty.strikes == 1), "{state:?}");
    Ok(())
}

#[test]
fn a_reset_leaves_the_balance() -> Result<(), Error> {
    block_on(async {
        let (limiter, key) = (MemoryLimiter::new(), Key::new("user:1"));
        let several = Policy::new(
            "several",
            [
                Quota::fixed_window(10, MINUTE)?.by("user")?,
                Quota::balance(1_000)?.covers_excess()?.by("user")?,
                Quota::fixed_window(50, MINUTE)?.by("tenant")?,
            ],
        )?;
        for policy in [daily(10, 1_000), several] {
            let keys = [("user", &key), ("tenant", &key)];
            let keys = if policy.dimensions().len() == 1 { Keys::from(&key) } else { Keys::from(&keys) };
            limiter.grant(Grant::new(&policy, keys, 20, "order", NOW)).await?;
            assert!(limiter.check(Check::new(&policy, keys, NOW).cost(15)).await?.is_allowed());
            limiter.reset(&policy, keys).await?;
            let after = limiter.peek(Check::new(&policy, keys, NOW).cost(0)).await?;
            assert_eq!((after.quotas()[0].remaining(), after.quotas()[1].remaining()), (Some(10), Some(15)));
        }
        Ok(())
    })
}

#[test]
fn a_full_memory_forgets_no_balance_and_shares_none() -> Result<(), Error> {
    block_on(async {
        let policy = daily(10, 1_000);
        let keys: Vec<Key> = (0..50).map(|nth| Key::new(format!("user:{nth}"))).collect();
        let limiter = MemoryLimiter::with_shards(1).max_keys(8);
        for (nth, key) in keys[..8].iter().enumerate() {
            limiter.grant(Grant::new(&policy, key, 20, &format!("order-{nth}"), NOW)).await?;
        }
        for key in &keys[8..] {
            assert_eq!(limiter.check(Check::new(&policy, key, NOW)).await.unwrap_err().kind(), ErrorKind::Refused);
        }
        for key in &keys[..8] {
            assert_eq!(limiter.peek(Check::new(&policy, key, NOW)).await?.quotas()[1].remaining(), Some(20));
        }
        let limiter = MemoryLimiter::with_shards(1).max_keys(1).when_full(WhenFull::Share);
        limiter.check(Check::new(&policy, &keys[0], NOW)).await?;
        let shared = limiter.grant(Grant::new(&policy, &keys[1], 20, "order", NOW)).await.unwrap_err();
        assert_eq!(shared.kind(), ErrorKind::Refused);
        // Tokens of grants make room for none.
        let limiter = MemoryLimiter::with_shards(1).answers(2);
        for token in ["1", "2"] {
            limiter.grant(Grant::new(&policy, &keys[0], 20, token, NOW).remembered_for(MINUTE)).await?;
        }
        let third = Grant::new(&policy, &keys[0], 20, "3", NOW);
        assert_eq!(limiter.grant(third).await.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(limiter.peek(Check::new(&policy, &keys[0], NOW)).await?.quotas()[1].remaining(), Some(40));
        let later = Grant::new(&policy, &keys[0], 20, "3", NOW + MINUTE);
        assert_eq!(limiter.grant(later).await?.quotas()[1].remaining(), Some(60));
        Ok(())
    })
}

#[test]
fn a_row_lasts_until_nothing_of_it_has_an_effect() -> Result<(), Error> {
    block_on(async {
        let (limiter, policy, key) = (MemoryLimiter::with_shards(1), alone(1_000), Key::new("user:1"));
        let century = Millis::from_secs(100 * 365 * 86_400);
        limiter.grant(Grant::new(&policy, &key, 20, "order", NOW)).await?;
        limiter.sweep(NOW + century);
        assert_eq!(limiter.len(), 1);
        // What is spent does not last.
        limiter.check(Check::new(&policy, &key, NOW).cost(20)).await?;
        limiter.sweep(NOW + Millis::from_secs(2));
        assert_eq!(limiter.len(), 0);
        limiter.grant(Grant::new(&policy, &key, 20, "other", NOW).expires(NOW + HOUR)).await?;
        limiter.sweep(NOW + MINUTE);
        assert_eq!(limiter.len(), 1);
        limiter.sweep(NOW + HOUR + Millis::from_secs(1));
        assert_eq!(limiter.len(), 0);
        Ok(())
    })
}

#[test]
fn a_deny_cache_does_not_hide_a_grant() -> Result<(), Error> {
    block_on(async {
        let (policy, key) = (daily(1, 100), Key::new("user:1"));
        let store = std::sync::Arc::new(MemoryLimiter::new());
        let cache = DenyCache::new(store.clone());
        let check = Check::new(&policy, &key, NOW);
        assert!(cache.check(check).await?.is_allowed());
        let denied = cache.check(check).await?;
        assert!(denied.retry_after().is_some(), "the window ends");
        store.grant(Grant::new(&policy, &key, 5, "order", NOW)).await?;
        let admitted = cache.check(check).await?;
        assert_eq!((admitted.is_allowed(), admitted.origin()), (true, Origin::Store));
        Ok(())
    })
}

#[test]
fn a_limiter_without_grants_refuses_the_policy() -> Result<(), Error> {
    let (policy, key) = (daily(10, 100), Key::new("user:1"));
    let sharded = Sharded::new(MemoryLimiter::new(), NonZero::new(2).unwrap());
    assert_eq!(sharded.capabilities().supports_policy(&policy).unwrap_err().kind(), ErrorKind::Unsupported);
    let refused = block_on(sharded.check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let refused = block_on(sharded.grant(Grant::new(&policy, &key, 1, "order", NOW))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    Ok(())
}

/// Many threads grant and spend one balance, and retry each call.
#[test]
fn threads_spend_each_unit_once() -> Result<(), Error> {
    let (limiter, policy, key) = (MemoryLimiter::new(), alone(100_000), Key::new("user:1"));
    let spent: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (limiter, policy, key) = (&limiter, &policy, &key);
                scope.spawn(move || {
                    let mut spent = 0;
                    for nth in 0..200u64 {
                        for _ in 0..2 {
                            let token = format!("order-{}", nth % 100);
                            block_on(limiter.grant(Grant::new(policy, key, 10, &token, NOW))).unwrap();
                        }
                        let token = format!("request-{thread}-{nth}");
                        let check = Check::new(policy, key, NOW).cost(nth % 7).idempotent(&token, HOUR);
                        let decision = block_on(limiter.check(check)).unwrap();
                        if decision.is_allowed() {
                            spent += nth % 7;
                        }
                        assert_eq!(
                            block_on(limiter.check(check)).unwrap().is_allowed(),
                            decision.is_allowed() || nth % 7 == 0
                        );
                    }
                    spent
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let left = block_on(limiter.peek(Check::new(&policy, &key, NOW).cost(0)))?.binding().remaining().unwrap();
    assert_eq!(spent + left, 100 * 10);
    Ok(())
}
