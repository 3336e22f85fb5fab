//! Lending: exact limits without a round trip for each request.
//!
//! A borrower, such as an isolate or a process, takes a loan of a row's units, spends it without asking, and returns the rest
//! with its next question. A denial is a loan, too: until its end, only a refund, a settlement, a reset or the return of another
//! loan changes it. The lender is the step of a store that decides on a question; the borrower is what an isolate keeps of a key.
//! Both are pure: they have no clock, no randomness and no futures, so JavaScript drives the same code with numbers.
//!
//! # Words
//!
//! | word | meaning |
//! |-|-|
//! | lease | what a limit allows: the most units of a loan (its slice) and its longest life; `lease` in rules files, [`Lease`] here |
//! | loan | units that are taken from a limit and spent without asking: [`Loan`] |
//! | borrower | an isolate or a process that asks for loans: [`Borrowers`] keeps what it knows of each key |
//! | lender | the store's side of a key: [`Lender`] |
//!
//! # Ceiling
//!
//! The limit itself, in every interval, whatever borrowers, clocks and networks do, unless there is a [grace](self#grace):
//!
//! - A loan is charged when it is granted. A bucket does not drain below what is lent, since it would then admit both the loan
//!   and the refill. A loan ends with the window that it is charged in, and with the first one if there are several.
//! - Times of a loan are lengths. The borrower measures them by its own clock, from before it asked, so the loan ends there
//!   before it ends at the lender, and no two clocks need agree. A clock that is seen to be set back is corrected by that much. One that
//!   is set forward ends loans early; a day is the most that one reading adds, so that a wrong one does not stop lending for good.
//! - Each loan has a number that is never used again, and whatever becomes of the loan uses the number up: a return that arrives
//!   twice, late, or in another order returns nothing. If the answer that grants a loan is lost, its units are never spent.
//! - If the lender's clock is set forward, windows end and buckets drain early, as without loans. A loan from before the step may be
//!   spent after it, beside the limit of the next window; both together are what an exact limiter admits before and after the step.
//!
//! # Floor
//!
//! What lending costs: each borrower may hold [`Lease::slice`] units that the others cannot use, and as much again that it has
//! spent without the lender's knowledge, which keeps a bucket from draining. If it dies, or the answer that grants a loan is lost,
//! the units of its loan stay used: those of a window until the window ends, and those of a bucket until the loan ends, after
//! [`Lease::lifetime`] at most, from when on they drain as others do. A lender's clock that was ahead and is set back makes each of
//! them later by as much, and by [`MAX_CLOCK_SKEW`](crate::MAX_CLOCK_SKEW) at most. A denial may miss a refund, a settlement or a reset elsewhere for as long.
//!
//! # Sizes
//!
//! The borrower decides how much it asks for: what its requests will probably spend in a loan's longest life. It sees what they have
//! cost in which time. A key's first request asks for nothing, and then loans double as they are spent: a few requests tell little of
//! those to come. What tells of a key that was admitted by [grace](self#grace) asks for what the last keys have usually spent within a
//! lifetime. If a key's requests come seldom, a loan that is spent is followed by a grace, which asks for the next loan.
//!
//! The lender only bounds that. It sees what is left and how many borrow. Far from the limit it lends what is wanted, for the longest
//! life. Near the limit it lends a borrower's share of half of what is left, for about twice the time that it takes to spend it, and
//! the last units not at all: they are spent one by one, where they are asked for. So borrowers of several versions, which ask for
//! other amounts, share a store, and the ceiling depends on none of them.
//!
//! Of a large limit, nobody misses a small part. A borrower asks for 1/4,096 of what is left at its first request, and does not return
//! a loan of less than 1/64 of that, because the call would cost more than the units are worth.
//!
//! # Grace
//!
//! The first request of a key waits for the store, and most requests of many keys are first ones. With a [grace](Lease::grace) of `g`
//! units, a borrower that knows nothing bad of a key admits its first `g` units at once, and tells the store
//! [in the background](Lease::in_background): it [owes](Question::owed) them. The lender charges what is owed also beyond the limit.
//!
//! | interval | admitted, at most |
//! |-|-|
//! | any, of token buckets alone | what an exact limiter admits, and `g` for each borrower |
//! | a window, fixed or sliding | the limit, and `g` for each borrower |
//!
//! - The borrowers are those that meet the key before they have heard that it is at its limit: at most one for each isolate or process
//!   of the interval, those that died included. What a borrower has not told when it dies is never charged.
//! - A bucket repays: what is charged beyond its capacity has to drain before anything else is admitted. So in the long run only
//!   borrowers that die admit more than an exact limiter.
//! - A window takes no excess into the next one. So a borrower whose grace has found a key at its limit gives that key none until the
//!   key is unused: a client gets it again from the same borrower only after a whole window in which it has admitted nothing there.
//! - Near the limit nothing changes. A borrower that has last seen a key with less than half of a limit left gives it no grace until
//!   it has seen it with half left. What it must forget for want of room ends the grace of new keys for as long.
//! - What is owed is told until it is answered. If an answer is lost, it may be charged twice, as the units of a lost loan stay used.
//! - While the store does not answer, no key gets a grace. Once a second, one question finds out whether it is back.
//!
//! # What can be lent
//!
//! Policies of one key whose quotas are fixed windows, sliding windows of two counters and token buckets, and that do not charge
//! denials: [`can_lend`]. Logs, shapers, slots, penalties and several keys cannot. Checks with an idempotency token are asked for
//! one by one, too.
//!
//! ```
//! use tidegate_core::lending::{Borrowers, Lender, Lease, Verdict};
//! use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
//! # fn main() -> Result<(), tidegate_core::Error> {
//! let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
//! let key = Key::new("user:1");
//! // The store's side: the state of a row, and what is lent of it.
//! let (mut state, mut lender) = (policy.initial_state(), Lender::default());
//! // The borrower's side.
//! let mut borrowers = Borrowers::new(Lease::new(50, Millis::from_secs(10)));
//! let mut questions = 0;
//! for second in 0..10 {
//!     let check = Check::new(&policy, &key, UnixMillis::new(second * 1_000));
//!     match borrowers.decide("user:1", &check, || ()) {
//!         Verdict::Admit { .. } => {}
//!         Verdict::Ask(asked) => {
//!             questions += 1;
//!             lender.settle(&policy, &mut state, check.now);
//!             let answer = lender.decide(&policy, &mut state, check.now, check.cost, &asked.question);
//!             borrowers.answered("user:1", asked.nth, Some(&answer));
//!             assert!(answer.decision.is_allowed());
//!         }
//!         Verdict::AskPlainly | Verdict::Deny(_) => unreachable!(),
//!     }
//! }
//! assert_eq!(questions, 4);
//! # Ok(())
//! # }
//! ```

mod amount;
mod borrower;
mod borrowers;
mod grace;
mod lender;
mod steady;

pub use borrower::{Borrower, Denied, NumberedQuestion, Verdict};
pub use borrowers::Borrowers;
pub use lender::Lender;

use alloc::format;

pub use crate::limiter::{Answer, LIFETIME_MAX, Lease, Loan, Question, Returned};
use crate::{Check, Error, ErrorKind, Millis, Policy, Rule};

/// The most loans of one key at a time. Further borrowers get none.
pub const LOANS_MAX: usize = 64;

/// How long a host may keep what can be told together; see [`LendingLimiter::after`](crate::store::LendingLimiter::after).
pub const PAUSE: Millis = Millis::new(100);

/// No loan is larger, so that a script computes with exact integers in doubles.
const UNITS_MAX: u64 = 1 << 32;

/// No borrower looks further back or ahead: it forgets half when it has asked for two lifetimes.
const WITHIN_MAX: Millis = Millis::new(1 << 18);

/// Whether loans of a policy can be granted; see the [module](self#what-can-be-lent).
#[must_use]
pub fn can_lend(policy: &Policy) -> bool {
    policy.dimensions().len() == 1
        && !policy.charges_denied()
        && policy.quotas().iter().all(|quota| is_lendable(quota.rule()))
}

/// Whether a check may be decided from a loan: it has no token, and no more costs than [can be lent](can_lend).
#[must_use]
pub fn can_borrow(check: &Check<'_>) -> bool {
    let fits = || check.policy.quotas().iter().all(|quota| check.cost <= quota.rule().limit());
    check.idempotency.is_none() && can_lend(check.policy) && fits()
}

const fn is_lendable(rule: &Rule) -> bool {
    matches!(rule, Rule::TokenBucket(_) | Rule::FixedWindow(_) | Rule::SlidingWindow(_) | Rule::CalendarWindow(_))
}

/// Checks that loans of a policy can be granted. Call it when the policy is loaded: otherwise its checks are asked for one by one.
///
/// # Errors
/// [`ErrorKind::Unsupported`] that names what cannot be lent, and what to write instead.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, lending};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let log = Policy::new("api", [Quota::sliding_log(100, Millis::from_secs(60))?])?;
/// let refused = lending::supports(&log).unwrap_err();
/// assert!(refused.to_string().contains("sliding_log"));
/// # Ok(())
/// # }
/// ```
pub fn supports(policy: &Policy) -> Result<(), Error> {
    let refused =
        |what: &str, fix: &str| Err(Error::new(ErrorKind::Unsupported, format!("{what} cannot be lent; {fix}")));
    if let Some(quota) = policy.quotas().iter().find(|quota| !is_lendable(quota.rule())) {
        return refused(quota.rule().name(), "write token_bucket, fixed_window or sliding_window");
    }
    match policy.dimensions().len() {
        1 if policy.charges_denied() => refused("a policy that charges denials", "delete charge_denied"),
        1 => Ok(()),
        _ => refused("a policy of several keys", "count all its quotas by one dimension"),
    }
}
