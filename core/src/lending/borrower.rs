//! What a borrower knows of one key.

use super::amount::{Usual, is_unmissed, wanted};
use super::grace::Grace;
use super::steady::JITTER;
use super::{Answer, Lease, Question, Returned};
use crate::{Check, Decision, Millis, Policy, Quota, Rule, UnixMillis};

/// What a borrower knows of one key: its loan, its last denial, and how much is requested.
///
/// All instants are by one clock that does not go back, the borrower's own. [`Borrowers`](super::Borrowers) makes one of a clock
/// that does, and keeps the borrowers of many keys.
#[derive(Clone, Debug)]
pub struct Borrower {
    /// What the loan and the denial are of.
    policy: u64,
    /// Whether it has a bucket.
    drains: bool,
    /// The number of the last question.
    nth: u64,
    /// Whether its answer has not come. Meanwhile, requests spend what is left, or ask plainly.
    waits: bool,
    asked_at: UnixMillis,
    /// When its answer has come at the latest, or is given up.
    answered_by: UnixMillis,
    /// When the question was asked that has the loan and the denial as its answer.
    known_from: UnixMillis,
    /// What its check costs, and by which policy it is.
    asked_cost: u64,
    asked_policy: u64,
    /// Whether its denial is kept.
    keeps_denial: bool,
    /// What it returns, in case that it does not arrive.
    back: Option<Returned>,
    loan: Option<Held>,
    /// The units of the last loan.
    lent: u64,
    /// What was left when the last answer was given, or the limit if there was none.
    left: u64,
    denial: Option<Denial>,
    demand: Demand,
    grace: Grace,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    units: u64,
    left: u64,
    /// The part of it that is for checks that have waited.
    reserved: u64,
    /// What was left of it when the last question was asked, if it was kept.
    kept: u64,
    until: UnixMillis,
    /// When it was last spent from.
    used_at: UnixMillis,
    /// Whether others would miss what is not spent of it.
    is_missed: bool,
    /// Whether something is left to return when it has ended: its windows have not.
    returns: bool,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    cost: u64,
    binding: usize,
    until: UnixMillis,
    /// When the check is admitted, if nothing else arrives.
    admitted_at: UnixMillis,
}

/// What requests cost.
#[derive(Clone, Copy, Debug)]
struct Demand {
    since: UnixMillis,
    /// The last request.
    at: UnixMillis,
    /// Since then, without the first request.
    spent: u64,
    /// During the last question.
    meanwhile: u64,
    /// The same for earlier questions. It decays.
    before: u64,
}

/// What a check gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is admitted, and charged already. If there is a question, it is asked with a cost of 0, in the background or not.
    Admit {
        /// The question for the next loan.
        then: Option<NumberedQuestion>,
    },
    /// It is denied, as the lender has said of an equal check.
    Deny(Denied),
    /// The lender decides on it, and grants a loan along with the decision.
    Ask(NumberedQuestion),
    /// The lender decides on it. Another check's question is under way.
    AskPlainly,
}

impl Verdict {
    /// The decision on a check at `now`, if the borrower makes it. It has no counts.
    #[must_use]
    pub fn decision(&self, policy: &Policy, now: UnixMillis) -> Option<Decision> {
        match self {
            Self::Admit { .. } => Some(Decision::without_store(policy, None, 0, now)),
            Self::Deny(Denied { retry_after, binding }) => {
                Some(Decision::without_store(policy, Some(*retry_after), *binding, now))
            }
            Self::Ask(_) | Self::AskPlainly => None,
        }
    }
}

/// A question, and the number that its answer is told with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedQuestion {
    /// Its number among the borrower's questions.
    pub nth: u64,
    /// What to ask.
    pub question: Question,
}

/// A denial that the borrower repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The time until the check is admitted, if nothing else arrives.
    pub retry_after: Millis,
    /// The index of the binding quota.
    pub binding: usize,
}

impl Borrower {
    /// A key's borrower, at its first request.
    pub(super) fn new(check: &Check<'_>, now: UnixMillis) -> Self {
        let demand = Demand { since: now, at: now, spent: 0, meanwhile: 0, before: 0 };
        let mut new = Self {
            policy: 0,
            drains: false,
            nth: 0,
            waits: false,
            asked_at: now,
            answered_by: now,
            known_from: now,
            asked_cost: 0,
            asked_policy: 0,
            keeps_denial: true,
            back: None,
            loan: None,
            lent: 0,
            left: 0,
            denial: None,
            demand,
            grace: Grace::default(),
        };
        new.change(check);
        new
    }

    /// Whether it is of another policy, such as the same one before a change of its limits.
    pub(super) fn is_of_another(&self, check: &Check<'_>) -> bool {
        self.policy != fingerprint(check.policy)
    }

    fn change(&mut self, check: &Check<'_>) {
        self.policy = fingerprint(check.policy);
        let rules = || check.policy.quotas().iter().map(Quota::rule);
        self.drains = rules().any(|rule| matches!(rule, Rule::TokenBucket(_)));
        self.left = rules().map(Rule::limit).min().unwrap_or_default();
        self.end();
    }

    /// Ends the denial and the loan, whose rest is returned with the next question.
    const fn end(&mut self) {
        self.denial = None;
        if let Some(loan) = &mut self.loan {
            loan.until = UnixMillis::new(0);
        }
    }

    /// What the key's first check gets: it is admitted by grace, or asked about.
    pub(super) fn first(&mut self, check: &Check<'_>, lease: &Lease, now: UnixMillis, nth: u64) -> Verdict {
        if self.grace.admits(check.cost, lease.grace, now) {
            return Verdict::Admit { then: None };
        }
        Verdict::Ask(self.give_up(check.cost, lease, now, nth, 0))
    }

    /// What a check gets at `now`. A question has the next number. A check that has waited for an answer says until when: it was
    /// counted when it came, in what keys usually spend, too.
    pub(super) fn decide(
        &mut self,
        check: &Check<'_>,
        lease: &Lease,
        now: UnixMillis,
        nth: u64,
        waited_until: Option<UnixMillis>,
        usual: &mut Usual,
    ) -> Verdict {
        let busy = self.is_waiting(lease, now);
        if waited_until.is_none() {
            self.demand.count(check.cost, busy, now, lease, usual);
        }
        let usual = usual.units();
        // What was granted may have ended during the wait. What is asked has the check's own time, as the lender sees it.
        let then = waited_until.unwrap_or(now);
        // If the clock was set forward during the wait, what was asked since looks newer than it is.
        let is_in_time = waited_until.is_none() || self.known_from <= now + JITTER;
        if self.is_of_another(check) {
            self.change(check);
            self.grace.change(now, now + lease.lifetime);
        }
        if let Some(loan) = &mut self.loan
            && is_in_time
            && loan.spend(check.cost, then, waited_until.is_some())
        {
            let (mark, free) = (self.demand.units().min(loan.units / 2), loan.free());
            // A request that comes long after this one is admitted by grace, and what tells it asks for the next loan, too.
            let is_in_no_hurry = self.demand.gap(now) >= IDLE && self.grace.would_admit(1, lease.grace, now);
            let low = free < mark || (free == mark && lease.in_background && !is_in_no_hurry);
            let then = (low && !busy).then(|| self.ask(0, lease, now, nth, usual));
            return Verdict::Admit { then };
        }
        if let Some(denial) =
            self.denial.filter(|denial| is_in_time && denial.cost == check.cost && then < denial.until)
        {
            return Verdict::Deny(Denied { retry_after: denial.admitted_at.since(then), binding: denial.binding });
        }
        if waited_until.is_none() && self.grace.admits(check.cost, lease.grace, now) {
            return Verdict::Admit { then: None };
        }
        if busy {
            return Verdict::AskPlainly;
        }
        let keeps = self.loan.is_some_and(|loan| loan.reserved > 0 && then < loan.until);
        Verdict::Ask(if keeps {
            self.ask(check.cost, lease, now, nth, usual)
        } else {
            self.give_up(check.cost, lease, now, nth, usual)
        })
    }

    /// A question whose request was cancelled may never end: the platform does not drop its future.
    fn is_waiting(&self, lease: &Lease, now: UnixMillis) -> bool {
        self.waits && now < self.asked_at + lease.deadline
    }

    /// Forgets the denial, because what denied may have been given back. Nor is the one kept that is under way.
    pub(super) fn forget_denial(&mut self) {
        self.denial = None;
        self.keeps_denial = false;
    }

    /// Keeps units of the loan that was just granted for checks that have waited for it.
    pub(super) fn reserve(&mut self, units: u64) {
        if let Some(loan) = &mut self.loan {
            loan.reserved = units.min(loan.left);
        }
    }

    /// The number of the last question, and what its answer probably grants: as many units as the last loan had.
    pub(super) const fn last_question(&self) -> (u64, u64) {
        (self.nth, self.lent)
    }

    pub(super) const fn is_waiting_for(&self, nth: u64) -> bool {
        self.waits && self.nth == nth
    }

    /// Asks for the next loan before this one is spent.
    fn ask(&mut self, cost: u64, lease: &Lease, now: UnixMillis, nth: u64, usual: u64) -> NumberedQuestion {
        self.back = self.loan.as_mut().map(|loan| {
            loan.kept = loan.left;
            Returned { loan: loan.number, unspent: 0, kept: loan.left }
        });
        self.asked(cost, lease, now, nth, usual)
    }

    /// Asks for the next loan, and returns what is left of this one.
    pub(super) fn give_up(
        &mut self,
        cost: u64,
        lease: &Lease,
        now: UnixMillis,
        nth: u64,
        usual: u64,
    ) -> NumberedQuestion {
        let back = self.loan.take().map(|loan| Returned { loan: loan.number, unspent: loan.left, kept: 0 });
        self.back = back.or(self.back);
        self.asked(cost, lease, now, nth, usual)
    }

    fn asked(&mut self, cost: u64, lease: &Lease, now: UnixMillis, nth: u64, usual: u64) -> NumberedQuestion {
        let owed = self.grace.tell(cost);
        let (spent, within) = match self.demand.spent {
            0 if owed > 0 && usual > 0 => (usual, lease.lifetime),
            spent => (spent, now.since(self.demand.since)),
        };
        let (wanted, within) = wanted(spent, within, self.left, lease);
        let question = Question { wanted, within, owed, lifetime: lease.lifetime, back: self.back };
        self.demand.ask(lease, now);
        (self.nth, self.waits, self.asked_at, self.keeps_denial) = (nth, true, now, true);
        self.answered_by = now + lease.deadline + JITTER;
        (self.asked_cost, self.asked_policy) = (cost, self.policy);
        NumberedQuestion { nth, question }
    }

    /// Takes the answer to a question, or `None` if there is none. If another question was asked since, the answer is late, and its
    /// loan is not spent.
    pub(super) fn answered(&mut self, nth: u64, answer: Option<&Answer>) {
        if nth != self.nth {
            return;
        }
        self.waits = false;
        self.grace.answered(answer, self.asked_at, self.answered_by);
        let Some(answer) = answer else { return };
        let from = self.asked_at;
        self.known_from = from;
        let spent = self.loan.map_or(0, |loan| loan.kept.saturating_sub(loan.left));
        let used_at = self.loan.map_or(from, |loan| loan.used_at.max(from));
        self.back = None;
        let quotas = answer.decision.quotas();
        let unused = quotas.iter().filter_map(|quota| quota.reset_after()).max();
        self.left = quotas.iter().filter_map(|quota| quota.remaining()).min().unwrap_or_default();
        self.lent = answer.granted.map_or(0, |granted| granted.units);
        self.loan = answer.granted.map(|granted| Held {
            number: granted.number,
            units: granted.units,
            left: granted.units.saturating_sub(spent),
            reserved: 0,
            kept: 0,
            until: from + Millis::new(granted.lasts.get().saturating_sub(JITTER.get())),
            used_at,
            is_missed: !is_unmissed(granted.units, self.left),
            returns: self.drains || unused.is_none_or(|unused| granted.lasts < unused),
        });
        let denied = answer.decision.retry_after().filter(|_| self.keeps_denial && answer.denies_for > Millis::ZERO);
        self.denial = denied.map(|wait| Denial {
            cost: self.asked_cost,
            binding: answer.decision.binding_index(),
            until: from + answer.denies_for,
            admitted_at: from + wait,
        });
        // The policy has changed since, as between two tiers of a client.
        if self.asked_policy != self.policy {
            self.end();
        }
    }

    /// When it has last asked, or its first request.
    pub(super) const fn asked_at(&self) -> UnixMillis {
        self.asked_at
    }

    /// Whether it owes units, which the store is to be told.
    pub(super) const fn owes(&self) -> bool {
        self.grace.owed > 0
    }

    /// Whether it owes units that no question tells.
    pub(super) const fn is_silent(&self) -> bool {
        self.grace.owed > self.grace.told
    }

    /// Until when its key gets no grace, if it has seen the key near its limit.
    pub(super) const fn suspects_until(&self) -> UnixMillis {
        self.grace.until
    }

    /// Whether it has something to tell: units that it owes, or that it is idle and returns its loan.
    pub(super) fn is_due(&self, lease: &Lease, now: UnixMillis) -> bool {
        if self.is_waiting(lease, now) {
            return false;
        }
        if self.owes() {
            return !self.grace.is_lost || now >= self.asked_at + AGAIN;
        }
        let is_held = |loan: &Held| loan.left > 0 && loan.is_missed;
        let Some(loan) = self.loan.filter(is_held) else { return false };
        let gaps = Millis::new(self.demand.gap(now).get().saturating_mul(IDLE_GAPS));
        let idle = now >= loan.used_at + IDLE.max(gaps);
        if now < loan.until { idle } else { loan.returns }
    }

    /// Whether it knows anything that matters after `now`. A denial and a loan that may be spent end within a lifetime of the last
    /// request.
    pub(super) fn is_of_use(&self, lease: &Lease, now: UnixMillis) -> bool {
        let returns = |loan: &Held| loan.left > 0 && loan.returns && now < loan.until + lease.lifetime;
        let known = now < self.demand.at + lease.lifetime;
        known || self.owes() || self.loan.as_ref().is_some_and(returns) || self.is_waiting(lease, now)
    }
}

/// A borrower is idle after this time without a request, and after so many times of the usual time between two requests.
const IDLE: Millis = Millis::from_secs(2);
const IDLE_GAPS: u64 = 16;

/// When what it owes is told again, if an answer is lost.
const AGAIN: Millis = Millis::from_secs(4);

impl Held {
    /// What is left for checks that have not waited.
    const fn free(&self) -> u64 {
        self.left - self.reserved
    }

    /// Spends a cost. Returns whether the loan was enough.
    fn spend(&mut self, cost: u64, now: UnixMillis, has_waited: bool) -> bool {
        let left = if has_waited { self.left } else { self.free() };
        let enough = now < self.until && left > 0 && left >= cost;
        if enough {
            if has_waited {
                self.reserved = self.reserved.saturating_sub(cost);
            }
            self.left -= cost;
            self.used_at = now;
        }
        enough
    }
}

impl Demand {
    fn count(&mut self, cost: u64, busy: bool, now: UnixMillis, lease: &Lease, usual: &mut Usual) {
        if now >= self.at + lease.lifetime {
            *self = Self { since: now, at: now, spent: 0, ..*self };
            usual.begin();
            return;
        }
        // The first request begins the time.
        usual.count(self.spent, cost);
        self.spent = self.spent.saturating_add(cost);
        self.at = now;
        if busy {
            self.meanwhile = self.meanwhile.saturating_add(cost);
        }
    }

    /// A question begins. What is long ago counts less and less.
    fn ask(&mut self, lease: &Lease, now: UnixMillis) {
        self.before = self.meanwhile.max(self.before - self.before.div_ceil(8));
        self.meanwhile = 0;
        let within = now.since(self.since);
        if within.get() / 2 >= lease.lifetime.get() {
            self.spent /= 2;
            self.since = self.since + Millis::new(within.get() / 2);
        }
    }

    /// The usual time between two requests.
    fn gap(&self, now: UnixMillis) -> Millis {
        Millis::new(now.since(self.since).get() / self.spent.max(1))
    }

    /// What requests cost during a question.
    fn units(&self) -> u64 {
        self.meanwhile.max(self.before)
    }
}

/// A number that differs for policies that count differently.
fn fingerprint(policy: &Policy) -> u64 {
    let numbers = policy.quotas().iter().flat_map(|quota| {
        let [a, b, c] = quota.rule().parameters();
        [quota.rule().number().into(), a, b, c]
    });
    // FNV-1a, with a word in place of each byte.
    numbers.fold(0xcbf2_9ce4_8422_2325, |hash, number| (hash ^ number).wrapping_mul(0x0100_0000_01b3))
}
