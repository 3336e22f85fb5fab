//! Random policies, and what happens to a row.

use proptest::prelude::*;
use tidegate_core::algorithm::CalendarWindow;
use tidegate_core::lending::Question;
use tidegate_core::{Millis, Policy, Quota, Rule, UnixMillis};

use tidegate_testing::NOW;

/// A quota: its kind, limit, span and refill.
pub(crate) type Numbers = (u8, u64, u64, u64);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A check along with a question, and what becomes of a loan, which is counted from the last to end.
    Lend(u64, Question, Option<(usize, u64, u64)>),
    Check(u64),
    /// A check that charges denials.
    CheckCharging(u64),
    Once(u8, u64),
    Settle(u8, u64),
    Peek(u64),
    Refund(u64, u64),
    Reset,
    Forward(u64),
    /// To the end of a loan, which is counted from the last to end.
    ForwardToEnd(usize),
    Back(u64),
    Limits(u64, u64),
    /// Other loans: the units of each, when it ends, and how far its number is below the last one; the borrowers, and what is wrong.
    Put(Vec<(u64, u64, u64)>, u64, Flaw),
}

/// What makes loans corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    Order,
    End,
    Number,
}

#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) quotas: Vec<Numbers>,
    pub(crate) start_ms: u64,
    pub(crate) steps: Vec<Step>,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    prop_oneof![
        2 => (0..4_u8, 1..60_u64, 1..20_u64, 1..30_u64),
        5 => (0..4_u8, 1..60_u64, 1..5_000_u64, 1..30_u64),
        3 => (0..4_u8, 1..100_000_u64, 1_000..100_000_u64, 1..10_000_u64),
        1 => (0..3_u8, 1..1_u64 << 40, 1_000..1_u64 << 10, 1..1_u64 << 40),
        1 => (2..3_u8, 1_u64 << 30..1 << 50, 1_u64 << 20..1 << 40, Just(1)),
    ]
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![5 => 0..4_u64, 5 => 0..80_u64, 3 => 0..100_000_u64, 1 => any::<u64>().prop_map(|number| number >> 12)]
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 0..10_u64, 3 => 0..1_000_u64, 3 => 0..70_000_u64, 1 => 0..10_000_000_u64]
}

fn step() -> impl Strategy<Value = Step> {
    let owed = prop_oneof![4 => Just(0), 1 => amount()];
    let question = (amount(), span(), owed, prop_oneof![4 => span(), 1 => Just(u64::MAX)]);
    let back = prop::option::weighted(0.8, (0..4_usize, amount(), amount()));
    let lend = (amount(), question, back).prop_map(|(cost, (wanted, within, owed, lifetime), back)| {
        let (within, lifetime) = (Millis::new(within), Millis::new(lifetime));
        Step::Lend(cost, Question { wanted, within, owed, lifetime, back: None }, back)
    });
    let flaw =
        prop_oneof![40 => Just(Flaw::None), 1 => Just(Flaw::Order), 1 => Just(Flaw::End), 1 => Just(Flaw::Number)];
    let loan = (amount(), prop_oneof![0..5_000_u64, 0..200_000_u64], 0..100_000_u64);
    let live = (amount(), 5_000..60_000_u64, 80_000..100_000_u64);
    let loans = prop_oneof![
        3 => prop::collection::vec(loan, 0..70),
        1 => prop::collection::vec(live, 1..9),
        2 => prop::collection::vec((0..2_u64, 5_000..60_000_u64, 80_000..100_000_u64), 62..66),
    ];
    let borrowers = prop_oneof![4 => 0..100_u64, 2 => 0..=1_040_u64, 1 => Just(1_040), 1 => Just(1_041)];
    prop_oneof![
        20 => lend,
        4 => amount().prop_map(Step::Check),
        1 => amount().prop_map(Step::CheckCharging),
        2 => (0..3_u8, amount()).prop_map(|(token, cost)| Step::Once(token, cost)),
        2 => (0..3_u8, amount()).prop_map(|(token, cost)| Step::Settle(token, cost)),
        2 => amount().prop_map(Step::Peek),
        2 => (amount(), span()).prop_map(|(cost, ago)| Step::Refund(cost, ago)),
        1 => Just(Step::Reset),
        10 => span().prop_map(Step::Forward),
        1 => prop_oneof![0..50_u64, 0..200_000_u64].prop_map(Step::Back),
        1 => (1..100_u64, 1..30_u64).prop_map(|(limit, refill)| Step::Limits(limit, refill)),
        3 => (loans, borrowers, flaw).prop_map(|(loans, borrowers, flaw)| Step::Put(loans, borrowers, flaw)),
        3 => (0..4_usize).prop_map(Step::ForwardToEnd),
    ]
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    let start = prop_oneof![6 => Just(NOW.get()), 1 => 0..100_000_u64, 1 => Just(UnixMillis::MAX.get() - 10_000_000)];
    (prop::collection::vec(numbers(), 1..3), start, prop::collection::vec(step(), 1..120))
        .prop_map(|(quotas, start_ms, steps)| Story { quotas, start_ms, steps })
}

pub(crate) fn policy(quotas: &[Numbers]) -> Option<Policy> {
    let quotas = quotas.iter().enumerate().map(|(place, (kind, limit, span, refill))| {
        let span = Millis::new(*span);
        let quota = match kind {
            0 => Quota::fixed_window(*limit, span),
            1 => Quota::sliding_window(*limit, span),
            2 => Quota::token_bucket(*limit, *refill, span),
            // Of minutes, so that loans end with a window.
            _ => {
                let minutes = |number: u64| Millis::from_secs(60 * (1 + number % 3));
                let (first, next) = (minutes(span.get()), minutes(*refill));
                CalendarWindow::new(*limit, NOW, first, next, refill % (limit + 1))
                    .map(|window| Rule::CalendarWindow(window).into())
            }
        };
        quota.ok()?.named(&format!("q{place}")).ok()
    });
    Policy::new("lent", quotas.collect::<Option<Vec<_>>>()?).ok()
}
