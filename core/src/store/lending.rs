use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::shared;
use super::under_way::{Questions, UnderWay};
use crate::lending::{Answer, Borrowers, Lease, NumberedQuestion, Verdict, can_borrow};
use crate::limiter::{BoxFuture, Capabilities, Check, LOANS, Limiter, LimiterExt, Operation, Reply};
use crate::{Accuracy, Decision, Drift, Error, ErrorKind, Floor, Key, Keys, Millis, Origin, Policy, UnixMillis};

/// A [`Limiter`] that borrows from one that [lends](Capabilities::lends), and decides without a call as long as a loan or a denial holds.
///
/// Keep one for the life of the isolate or process, because it holds the loans. Policies that
/// [cannot be lent](crate::lending#what-can-be-lent), checks with a token and settlements are plain calls.
///
/// - **Ceiling:** the limit, as without loans, and a [grace](crate::lending#grace) for each borrower, if there is one. **Floor:** [`lending_capabilities`].
/// - A decision from a loan has no `remaining`, because the borrower does not know what others have left.
/// - A check that finds the loan spent while the next one is under way waits for it, if that is probably enough: of many requests at
///   once for one key, one calls the store. It waits once at most, and then makes a call of its own, also if the other one has failed.
///   So a check takes the time of two calls at most, and its error is always that of its own. On WebAssembly, and
///   [apart](LendingLimiter::apart), no check waits.
/// - **What was asked is finished.** If a check is dropped while it asks, those that wait for the answer go on with the call, or
///   [`LendingLimiter::after`], or the key's next check. [Apart](LendingLimiter::apart), it is dropped, and its loan stays lent.
/// - If the store fails, what is left of a loan is still spent, and then checks return the error.
/// - A reset does not recall loans: lent units stay charged until the loan ends. After a change of the limit, the next check
///   returns the loan.
///
/// To keep requests from waiting for the next loan, run [`LendingLimiter::after`] after each response. Run it also when a check was
/// dropped, in a task of its own: it then finishes what the check has asked.
#[derive(Debug)]
pub struct LendingLimiter<'s, L> {
    lender: Arc<L>,
    lease: Lease,
    kept: Mutex<Shared<'s>>,
    pausing: Pausing,
}

#[derive(Debug)]
struct Shared<'s> {
    borrowers: Borrowers<Option<Whose>>,
    questions: Questions<'s>,
    /// The questions of checks that were dropped, in that order.
    dropped: VecDeque<Arc<UnderWay<'s>>>,
    /// Whether no check waits for another's question.
    apart: bool,
    /// The questions that nobody waits for.
    later: VecDeque<(String, NumberedQuestion, Whose)>,
    /// The policies of the keys.
    policies: Vec<Arc<Policy>>,
}

/// What to ask of, without a check.
type Whose = (Arc<Policy>, Key);

/// The most questions that are kept for later, and of the checks that were dropped. Further ones are not.
const LATER_MAX: usize = 256;

/// The most questions of [`LendingLimiter::after`] that are under way at once.
const TOLD_AT_ONCE_MAX: usize = 256;

/// What there is to tell the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ToTell {
    Nothing,
    Soon,
    Now,
}

/// Whether somebody waits for what can be told together.
#[derive(Debug, Default)]
pub(crate) struct Pausing(AtomicBool);

impl Pausing {
    /// Waits for a pause. Returns whether it has passed; false if somebody else waits already.
    pub(crate) async fn passed(&self, pause: impl Future<Output = ()>) -> bool {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.0.swap(true, Ordering::Acquire) {
            return false;
        }
        let _over = Over(&self.0);
        pause.await;
        true
    }
}

/// What a [`LendingLimiter`] can, over a store that is exact and can what `store` says.
///
/// It never admits more than the limit, but for a [grace](crate::lending#grace). Of requests of cost 1, it admits at least as many as an exact limiter whose limit is lower
/// by two slices per borrower, those that died included, within one lifetime of a key's first request. One slice may be unspent. The
/// other may be spent without the store knowing, which keeps a bucket from draining. In each further lifetime, each borrower that
/// falls silent may cost another slice. A refund, a settlement or a reset by another may go unseen for a lifetime.
///
/// ```
/// use tidegate_core::lending::Lease;
/// use tidegate_core::store::lending_capabilities;
/// use tidegate_core::{Capabilities, Load, Millis};
/// const LEASE: Lease = Lease::new(10, Millis::from_secs(2));
/// let can = lending_capabilities(Capabilities::EXACT, &LEASE);
/// let load = Load { limit: 1_000, quota: 1_000, in_flight: 500, locations: 3 };
/// assert_eq!((can.accuracy.floor(load), can.accuracy.ceiling(load)), (940, 1_000));
/// let can = lending_capabilities(Capabilities::EXACT, &Lease { grace: 2, ..LEASE });
/// assert_eq!(can.accuracy.ceiling(load), 1_006);
/// ```
#[must_use]
pub const fn lending_capabilities(store: Capabilities, lease: &Lease) -> Capabilities {
    let Lease { slice, lifetime, grace, .. } = *lease;
    let floor = Floor { held: slice.saturating_mul(2), within: Some(lifetime) };
    let accuracy = Accuracy::Approximate(Drift { floor, grace, unseen: Some(lifetime), ..Drift::WITHIN_LIMIT });
    store.accuracy(accuracy).refund(false).lends(false).borrows(false)
}

impl<'s, L: Limiter + 's> LendingLimiter<'s, L> {
    /// A limiter that borrows from `lender`, such as an [`AtomicLimiter`](super::AtomicLimiter) of a store that lends.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it does not lend, and [`ErrorKind::Invalid`] if the lifetime is zero or longer than a minute, or
    /// the slice is zero.
    pub fn new(lender: L, lease: Lease) -> Result<Self, Error> {
        let can = lender.capabilities();
        can.require(can.lends, LOANS)?;
        lease.verify()?;
        let (borrowers, questions) = (Borrowers::new(lease), Questions::default());
        let (later, dropped, policies) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let apart = cfg!(target_family = "wasm");
        let kept = Shared { borrowers, questions, dropped, apart, later, policies };
        Ok(Self { lender: Arc::new(lender), lease, kept: Mutex::new(kept), pausing: Pausing::default() })
    }

    /// Has no check wait for another's call, for hosts that serve each request apart, such as Workers. Meanwhile, checks ask plainly.
    #[must_use]
    pub fn apart(self) -> Self {
        self.kept().apart = true;
        self
    }

    /// The limiter that lends.
    pub fn lender(&self) -> &L {
        &self.lender
    }

    /// Asks what nobody waits for: finishes the questions of checks that were dropped, asks for the next loans of busy keys, tells what
    /// was admitted by [grace](Lease::grace), and returns the loans of idle keys. Run it after each response if the lease is
    /// [in the background](Lease::in_background), and when a check was dropped. `clock` is the caller's clock.
    ///
    /// `pause` is a timer of the host's, of [`PAUSE`](crate::lending::PAUSE) or less. What can wait, waits for it, and is then told at
    /// once: a store that takes several calls in one trip takes these. Whoever drives one of them drives all. While one call of this waits, others leave it to that one.
    pub async fn after(&self, clock: impl Fn() -> UnixMillis, pause: impl Future<Output = ()>) {
        let has = self.has_to_tell(clock());
        if has == ToTell::Now || has == ToTell::Soon && self.pausing.passed(pause).await {
            self.tell(clock()).await;
        }
    }

    /// What is left to tell.
    pub(crate) fn has_to_tell(&self, now: UnixMillis) -> ToTell {
        let mut kept = self.kept();
        match () {
            () if !kept.dropped.is_empty() || !kept.later.is_empty() => ToTell::Now,
            () if kept.borrowers.lease().in_background && kept.borrowers.may_be_due(now) => ToTell::Soon,
            () => ToTell::Nothing,
        }
    }

    /// Tells it.
    pub(crate) async fn tell(&self, now: UnixMillis) {
        loop {
            let (mut told, later) = {
                let mut kept = self.kept();
                let told: Vec<_> = mem::take(&mut kept.dropped).into();
                let later = core::iter::from_fn(|| kept.later(now)).take(TOLD_AT_ONCE_MAX);
                (told, later.collect::<Vec<_>>())
            };
            let is_last = later.len() < TOLD_AT_ONCE_MAX;
            // Of those that fail, the units stay lent until the loans end, and what is owed is told again.
            told.extend(self.begin(later, now, 0));
            self.finish(&told).await;
            if is_last {
                return;
            }
        }
    }

    /// Keeps questions for [`LendingLimiter::after`] from now on, as with [`Lease::in_background`].
    #[cfg(feature = "gate")]
    pub(crate) fn in_background(&self) {
        self.kept().borrowers.in_background();
    }

    /// Asks a borrower's question along with a check of this cost.
    async fn ask(
        &self,
        name: &str,
        whose: Whose,
        now: UnixMillis,
        cost: u64,
        asked: NumberedQuestion,
    ) -> Result<Decision, Error> {
        let questions = self.begin([(name.into(), asked, whose)], now, cost);
        self.finish(&questions).await;
        questions[0].take().unwrap_or_else(|| {
            let message = "the call has ended without an answer; the request may have been charged";
            Err(Error::new(ErrorKind::Contended, message))
        })
    }

    /// Begins to ask borrowers' questions, each along with a check of this cost.
    fn begin(
        &self,
        questions: impl IntoIterator<Item = (String, NumberedQuestion, Whose)>,
        now: UnixMillis,
        cost: u64,
    ) -> Vec<Arc<UnderWay<'s>>> {
        let questions = UnderWay::all(questions.into_iter().map(|(name, asked, whose)| {
            let lender = Arc::clone(&self.lender);
            let call = async move {
                let (policy, key) = whose;
                // It may be told of an earlier window.
                let policy = policy.at(now);
                lender.lend(Check::new(&policy, &key, now).cost(cost), asked.question).await
            };
            (name, asked.nth, Box::pin(call) as BoxFuture<'s, _>)
        }));
        let mut kept = self.kept();
        questions.iter().for_each(|question| kept.questions.begin(Arc::clone(question)));
        questions
    }

    /// Waits until questions have ended. If this is dropped before, they are kept.
    async fn finish(&self, questions: &[Arc<UnderWay<'s>>]) {
        let asking = Asking { limiter: self, questions };
        let mut left: Vec<_> = questions.iter().collect();
        poll_fn(|context| {
            let mut last = None::<&UnderWay<'s>>;
            left.retain(|question| {
                let drives = !last.is_some_and(|last| last.began_with(question));
                last = Some(question);
                asking.limiter.poll(question, drives, context).is_pending()
            });
            if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn poll(&self, question: &UnderWay<'s>, drives: bool, context: &Context<'_>) -> Poll<()> {
        question.poll(context, drives, |answer| {
            // What decides in place of a store that is down does not know the loans. They go on as if the question had failed.
            let lent = answer.as_ref().ok().filter(|answer| answer.decision.origin() != Origin::Fallback);
            self.kept().answered(question, lent);
            answer.map(|answer| answer.decision)
        })
    }

    /// Waits until another check's question has ended, and returns the time that took.
    async fn wait(&self, question: &UnderWay<'s>) -> Millis {
        let began = Instant::now();
        poll_fn(|context| self.poll(question, true, context)).await;
        // Rounded up, because what was granted may have ended within the last part.
        Millis::new(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// Takes the answer to the question of a check that was dropped, if it has come.
    async fn look_for_answer(&self, name: &str) {
        let Some(question) = self.kept().dropped_question(name) else { return };
        poll_fn(|context| {
            if self.poll(&question, true, context).is_ready() {
                self.kept().dropped.retain(|other| !Arc::ptr_eq(other, &question));
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Forgets a denial even if the call has failed, because it may have been applied.
    pub(crate) fn forget_denial(&self, policy: &Policy, keys: Keys<'_>) {
        if let Ok(key) = keys.single(policy) {
            self.kept().borrowers.forget_denial(&key.storage_key(policy));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Shared<'s>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'s> Shared<'s> {
    fn decide(&mut self, name: &str, check: &Check<'_>, waited: Option<Millis>) -> Verdict {
        let Self { borrowers, policies, .. } = self;
        let in_background = borrowers.lease().in_background;
        let beside = || if in_background { whose(policies, check) } else { None };
        match waited {
            None => borrowers.decide(name, check, beside),
            Some(waited) => borrowers.decide_after(name, check, waited, beside),
        }
    }

    /// What a check gets, and what it may wait for in place of asking plainly, if it has not waited yet.
    fn decide_or_join(
        &mut self,
        name: &str,
        check: &Check<'_>,
        waited: Option<Millis>,
    ) -> (Verdict, Option<Arc<UnderWay<'s>>>) {
        let verdict = self.decide(name, check, waited);
        if verdict != Verdict::AskPlainly || self.apart || waited.is_some() {
            return (verdict, None);
        }
        let question = self.borrowers.last_question(name);
        (verdict, question.and_then(|(nth, expected)| self.questions.join(nth, check.cost, expected)))
    }

    /// Takes the answer to a question, or `None` if there is none.
    fn answered(&mut self, UnderWay { name, nth, .. }: &UnderWay<'s>, answer: Option<&Answer>) {
        let is_late = !self.borrowers.is_waiting(name, *nth);
        self.borrowers.answered(name, *nth, answer);
        let cost = self.questions.end(*nth);
        if !is_late {
            // Others may run before those that have waited.
            self.borrowers.reserve(name, cost);
        }
    }

    /// Keeps a question whose check was dropped, unless its answer is lost.
    fn keep_dropped(&mut self, question: &Arc<UnderWay<'s>>) {
        if self.apart {
            return self.answered(question, None);
        }
        // A later question of the key makes an earlier one late, and there is room for so many.
        let earlier = self.dropped.iter().position(|other| other.name == question.name);
        if earlier.is_some_and(|place| self.dropped[place].nth > question.nth) {
            return self.answered(question, None);
        }
        let full = (self.dropped.len() >= LATER_MAX).then_some(0);
        if let Some(lost) = earlier.or(full).and_then(|place| self.dropped.remove(place)) {
            self.answered(&lost, None);
        }
        self.dropped.push_back(Arc::clone(question));
    }

    fn dropped_question(&self, name: &str) -> Option<Arc<UnderWay<'s>>> {
        self.dropped.iter().find(|question| question.name == name).cloned()
    }

    /// Keeps a question for later. Returns whether it has: there may be no later, or no room.
    fn keep(&mut self, name: &str, check: &Check<'_>, asked: NumberedQuestion) -> bool {
        let has_room = self.borrowers.lease().in_background && self.later.len() < LATER_MAX;
        let whose = if has_room { whose(&mut self.policies, check) } else { None };
        let Some(whose) = whose else { return false };
        self.later.push_back((name.into(), asked, whose));
        true
    }

    fn later(&mut self, now: UnixMillis) -> Option<(String, NumberedQuestion, Whose)> {
        while let Some((name, asked, whose)) = self.later.pop_front() {
            if self.borrowers.is_waiting(&name, asked.nth) {
                return Some((name, asked, whose));
            }
        }
        if !self.borrowers.lease().in_background {
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
    let key = check.keys.single(check.policy).ok()?.clone();
    Some((shared(policies, check.policy, check.now)?, key))
}

/// The policy and the key of a check.
fn own(policies: &mut Vec<Arc<Policy>>, check: &Check<'_>) -> Result<Whose, Error> {
    if let Some(whose) = whose(policies, check) {
        return Ok(whose);
    }
    Ok((Arc::new(check.policy.clone()), check.keys.single(check.policy)?.clone()))
}

/// Who waits for the end of questions.
struct Asking<'a, 's, L: Limiter + 's> {
    limiter: &'a LendingLimiter<'s, L>,
    questions: &'a [Arc<UnderWay<'s>>],
}

impl<'s, L: Limiter + 's> Drop for Asking<'_, 's, L> {
    /// Keeps the questions, even if what waits for them is dropped.
    fn drop(&mut self) {
        for question in self.questions {
            // Not while the questions are locked: an answer that comes locks them, too.
            if !question.has_ended() {
                self.limiter.kept().keep_dropped(question);
            }
        }
    }
}

impl<'s, L: Limiter + 's> LendingLimiter<'s, L> {
    async fn decide(&self, check: Check<'_>) -> Result<Reply, Error> {
        let plain = Operation::Check(check);
        plain.verify(&self.capabilities())?;
        if !can_borrow(&check) {
            return self.lender.apply(plain).await;
        }
        let name = check.keys.single(check.policy)?.storage_key(check.policy);
        self.look_for_answer(&name).await;
        let mut waited = None;
        let verdict = loop {
            let (verdict, question) = self.kept().decide_or_join(&name, &check, waited);
            let Some(question) = question else { break verdict };
            waited = Some(self.wait(&question).await);
        };
        if let Some(decision) = verdict.decision(check.policy, check.now) {
            if let Verdict::Admit { then: Some(asked) } = verdict
                && !self.kept().keep(&name, &check, asked)
            {
                // What is spent is charged already, whatever the answer is.
                let whose = own(&mut self.kept().policies, &check)?;
                let _ = self.ask(&name, whose, check.now, 0, asked).await;
            }
            return Ok(decision.into());
        }
        let Verdict::Ask(asked) = verdict else { return self.lender.apply(plain).await };
        let whose = own(&mut self.kept().policies, &check)?;
        self.ask(&name, whose, check.now, check.cost, asked).await.map(Reply::from)
    }
}

impl<'s, L: Limiter + 's> Limiter for LendingLimiter<'s, L> {
    fn capabilities(&self) -> Capabilities {
        lending_capabilities(self.lender.capabilities(), &self.lease)
    }

    /// A peek returns the store's counts, in which lent units count as used. A refund is unsupported: the store cannot tell spent
    /// units from lent ones, and would return both. A settlement is of a check with a token, which was a plain call.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Check(check) => self.decide(check).await,
            Operation::Lend(..) | Operation::Refund(_) => Err(operation.unsupported()),
            _ => {
                let reply = self.lender.apply(operation).await;
                // A policy that can block is never lent, so there is no denial to forget.
                if let Operation::Settle(_) | Operation::Reset { .. } = operation {
                    self.forget_denial(operation.policy(), operation.keys());
                }
                reply
            }
        }
    }
}
