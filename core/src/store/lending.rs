use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Waker;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::waiting::{Questions, Wait, Waits};
use crate::lending::{Answer, Asked, Borrowers, Terms, Verdict, can_borrow};
use crate::limiter::{Block, Capabilities, Check, Limiter, Refund, Settle};
use crate::{Accuracy, Decision, Drift, Error, ErrorKind, Floor, Key, Keys, Millis, Origin, Policy, UnixMillis};

/// A [`Limiter`] that borrows from one that [lends](Capabilities::lends), and decides without a call as long as a loan or a denial holds.
///
/// Keep one for the life of the isolate or process, because it holds the loans. Policies that
/// [cannot be lent](crate::lending#what-can-be-lent), checks with a token and settlements are plain calls.
///
/// - **Ceiling:** the limit, as without loans. **Floor:** [`lending_capabilities`].
/// - A decision from a loan has no `remaining`, because the borrower does not know what others have left.
/// - A check that finds the loan spent while the next one is under way waits for it, if that is probably enough: of many requests at
///   once for one key, one calls the store. It waits three times at most, and fails if the call does. Poll each check to its end, or drop
///   it: a call that nobody polls keeps other checks waiting, as a held async lock does. On WebAssembly, and
///   [apart](LendingLimiter::apart), no check waits.
/// - If the store fails, what is left of a loan is still spent, and then checks return the error.
/// - A reset does not recall loans: lent units stay charged until the loan ends. After a change of the limit, the next check
///   returns the loan.
///
/// To keep requests from waiting for the next loan, run [`LendingLimiter::after`] after each response.
#[derive(Debug)]
pub struct LendingLimiter<L> {
    lender: L,
    terms: Terms,
    kept: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    borrowers: Borrowers<Option<Whose>>,
    questions: Questions,
    /// Whether no check waits for another's question.
    apart: bool,
    /// The questions that nobody waits for.
    later: VecDeque<(String, Asked, Whose)>,
    /// The policies of the keys.
    policies: Vec<Arc<Policy>>,
}

/// What to ask of, without a check.
type Whose = (Arc<Policy>, Key);

/// The most policies and questions that are kept for later. Further ones are not.
const LATER_MAX: usize = 256;

/// What a [`LendingLimiter`] can, over a store that is exact and can what `store` says.
///
/// It never admits more than the limit. Of requests of cost 1, it admits at least as many as an exact limiter whose limit is lower
/// by two slices per borrower, those that died included, within one lifetime of a key's first request. One slice may be unspent. The
/// other may be spent without the store knowing, which keeps a bucket from draining. In each further lifetime, each borrower that
/// falls silent may cost another slice. A refund, a settlement or a reset by another may go unseen for a lifetime.
///
/// ```
/// use tidegate_core::store::lending_capabilities;
/// use tidegate_core::{Capabilities, Load, Millis};
/// let can = lending_capabilities(Capabilities::EXACT, 10, Millis::from_secs(2));
/// let load = Load { limit: 1_000, quota: 1_000, in_flight: 500, locations: 3 };
/// assert_eq!((can.accuracy.floor(load), can.accuracy.ceiling(load)), (940, 1_000));
/// ```
#[must_use]
pub const fn lending_capabilities(store: Capabilities, slice: u64, lifetime: Millis) -> Capabilities {
    let floor = Floor { held: slice.saturating_mul(2), within: Some(lifetime) };
    let accuracy = Accuracy::Approximate(Drift { floor, unseen: Some(lifetime), ..Drift::WITHIN_LIMIT });
    store.accuracy(accuracy).refund(false).lends(false).borrows(false)
}

impl<L: Limiter> LendingLimiter<L> {
    /// A limiter that borrows from `lender`, such as an [`AtomicLimiter`](super::AtomicLimiter) of a store that lends.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it does not lend, and [`ErrorKind::Invalid`] if the lifetime is zero or longer than a minute, or
    /// the slice is zero.
    pub fn new(lender: L, terms: Terms) -> Result<Self, Error> {
        lender.capabilities().requires_loans()?;
        terms.verify()?;
        let (borrowers, questions) = (Borrowers::new(terms), Questions::default());
        let apart = cfg!(target_family = "wasm");
        let kept = Shared { borrowers, questions, apart, later: VecDeque::new(), policies: Vec::new() };
        Ok(Self { lender, terms, kept: Mutex::new(kept) })
    }

    /// Has no check wait for another's call, for hosts that serve each request apart, such as Workers. Meanwhile, checks ask plainly.
    #[must_use]
    pub fn apart(self) -> Self {
        self.kept().apart = true;
        self
    }

    /// The limiter that lends.
    pub const fn lender(&self) -> &L {
        &self.lender
    }

    /// Asks what nobody waits for: for the next loans of busy keys, and to return those of idle ones. Run it after each response if
    /// the terms are [in the background](Terms::in_background). `now` is the caller's clock.
    pub async fn after(&self, now: UnixMillis) {
        loop {
            let Some((name, asked, whose)) = self.kept().later(now) else { return };
            let check = Check::new(&whose.0, &whose.1, now).cost(0);
            // If it fails, the units stay lent until the loan ends.
            let _ = self.ask(&name, check, asked).await;
        }
    }

    /// Keeps questions for [`LendingLimiter::after`] from now on, as with [`Terms::in_background`].
    pub fn in_background(&self) {
        self.kept().borrowers.in_background();
    }

    async fn ask(&self, name: &str, check: Check<'_>, asked: Asked) -> Result<Decision, Error> {
        self.kept().questions.begin(asked.nth);
        let mut asking = Asking { limiter: self, name, nth: asked.nth, outcome: None };
        let answer = match self.lender.lend(check, asked.question).await {
            Ok(answer) => answer,
            Err(error) => {
                asking.outcome = Some(Err(error.kind()));
                return Err(error);
            }
        };
        let decision = answer.decision.clone();
        // What decides in place of a store that is down does not know the loans. They go on as if the question had failed.
        asking.outcome = (decision.origin() != Origin::Fallback).then_some(Ok(answer));
        Ok(decision)
    }

    /// Waits until a question has ended, and returns the time that took.
    async fn wait(&self, mut wait: Wait) -> Result<Millis, Error> {
        let began = Instant::now();
        poll_fn(|context| self.kept().questions.poll(&mut wait, context)).await;
        wait.result()?;
        // Rounded up, because what was granted may have ended within the last part.
        Ok(Millis::new(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)))
    }

    /// Forgets a denial even if the call has failed, because it may have been applied.
    pub(crate) fn forget_denial(&self, policy: &Policy, keys: Keys<'_>) {
        if let Ok(key) = keys.sole(policy) {
            self.kept().borrowers.forget_denial(&key.storage_key(policy));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Shared> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn decide(&mut self, name: &str, check: &Check<'_>, waited: Option<Millis>) -> Verdict {
        let Self { borrowers, policies, .. } = self;
        let in_background = borrowers.terms().in_background;
        let beside = || if in_background { whose(policies, check) } else { None };
        match waited {
            None => borrowers.decide(name, check, beside),
            Some(waited) => borrowers.decide_after(name, check, waited, beside),
        }
    }

    /// What a check gets, and what it may wait for in place of asking plainly.
    fn decide_or_join(&mut self, name: &str, check: &Check<'_>, waits: Waits) -> (Verdict, Option<Wait>) {
        let verdict = self.decide(name, check, waits.time());
        if verdict != Verdict::AskPlainly || self.apart || waits.are_over() {
            return (verdict, None);
        }
        let question = self.borrowers.last_question(name);
        (verdict, question.and_then(|(nth, expected)| self.questions.join(nth, check.cost, expected)))
    }

    /// Keeps a question for later. Returns whether it has: there may be no later, or no room.
    fn keep(&mut self, name: &str, check: &Check<'_>, asked: Asked) -> bool {
        let has_room = self.borrowers.terms().in_background && self.later.len() < LATER_MAX;
        let whose = if has_room { whose(&mut self.policies, check) } else { None };
        let Some(whose) = whose else { return false };
        self.later.push_back((name.into(), asked, whose));
        true
    }

    fn later(&mut self, now: UnixMillis) -> Option<(String, Asked, Whose)> {
        while let Some((name, asked, whose)) = self.later.pop_front() {
            if self.borrowers.is_waiting(&name, asked.nth) {
                return Some((name, asked, whose));
            }
        }
        if !self.borrowers.terms().in_background {
            return None;
        }
        while let Some((name, asked, whose)) = self.borrowers.due(now) {
            if let Some(whose) = whose.clone() {
                return Some((name, asked, whose));
            }
        }
        None
    }
}

fn whose(policies: &mut Vec<Arc<Policy>>, check: &Check<'_>) -> Option<Whose> {
    let key = check.keys.sole(check.policy).ok()?.clone();
    let known = policies.iter().find(|policy| ***policy == *check.policy).cloned();
    let policy = known.or_else(|| {
        (policies.len() < LATER_MAX).then(|| {
            policies.push(Arc::new(check.policy.clone()));
            policies[policies.len() - 1].clone()
        })
    })?;
    Some((policy, key))
}

/// A question under way.
struct Asking<'a, L: Limiter> {
    limiter: &'a LendingLimiter<L>,
    name: &'a str,
    nth: u64,
    /// Its answer, or its error. None as long as there is neither.
    outcome: Option<Result<Answer, ErrorKind>>,
}

impl<L: Limiter> Drop for Asking<'_, L> {
    /// Lets the next check ask, even if this question failed or its future was dropped.
    fn drop(&mut self) {
        let (answer, failure) = match &self.outcome {
            Some(Ok(answer)) => (Some(answer), None),
            Some(Err(kind)) => (None, Some(*kind)),
            None => (None, None),
        };
        let mut kept = self.limiter.kept();
        kept.borrowers.answered(self.name, self.nth, answer);
        let (cost, wakers) = kept.questions.end(self.nth, failure);
        // Others may run before those that have waited.
        kept.borrowers.reserve(self.name, cost);
        drop(kept);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<L: Limiter> Limiter for LendingLimiter<L> {
    fn capabilities(&self) -> Capabilities {
        lending_capabilities(self.lender.capabilities(), self.terms.slice, self.terms.lifetime)
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        if !can_borrow(&check) {
            return self.lender.check(check).await;
        }
        let name = check.keys.sole(check.policy)?.storage_key(check.policy);
        let mut waits = Waits::default();
        let verdict = loop {
            let (verdict, wait) = self.kept().decide_or_join(&name, &check, waits);
            let Some(wait) = wait else { break verdict };
            waits.add(self.wait(wait).await?);
        };
        if let Some(decision) = verdict.decision(check.policy, check.now) {
            if let Verdict::Admit { then: Some(asked) } = verdict
                && !self.kept().keep(&name, &check, asked)
            {
                // What is spent is charged already, whatever the answer is.
                let _ = self.ask(&name, check.cost(0), asked).await;
            }
            return Ok(decision);
        }
        match verdict {
            Verdict::Ask(asked) => self.ask(&name, check, asked).await,
            _ => self.lender.check(check).await,
        }
    }

    /// Returns the store's counts, in which lent units count as used.
    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.lender.peek(check).await
    }

    /// Unsupported: the store cannot tell spent units from lent ones, and would return both.
    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "loans do not support refunds: a refund would also give back what is lent",
        ))
    }

    /// Settles the charge of a check with a token, which was a plain call. Its own denial is forgotten.
    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        let result = self.lender.settle(settle).await;
        self.forget_denial(settle.policy, settle.keys);
        result
    }

    /// Blocks keys in the store. A policy that can block is never lent, so there is no denial to forget.
    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        self.lender.block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        let result = self.lender.reset(policy, keys).await;
        self.forget_denial(policy, keys);
        result
    }
}
