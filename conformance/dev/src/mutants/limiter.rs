//! Limiters that count wrongly.

mod aborted;
mod credits;
mod fault;
mod rows;
mod state;

pub(super) use fault::{ALL, Fault};

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use tidegate_conformance::fixture::{Disturb, longest_slot_ms};
use tidegate_core::algorithm::MAX_UNITS;
use tidegate_core::{Charge, ChargeId, Error, ErrorKind, MemoryLimiter, Millis, Policy, UnixMillis};
use tidegate_guest_protocol::{Answer, Call, Decided, Failure, Outcome, Reply, Route};

use self::credits::Grants;
use self::rows::{Place, Rows};
use self::state::{Kept, Remembered};
use super::policy;

/// A limiter with one fault.
pub(super) struct Bench {
    fault: Fault,
    kept: RefCell<HashMap<String, Kept>>,
    rows: RefCell<Rows>,
    grants: RefCell<Grants>,
    /// How many more requests the restarting store does not answer.
    down_for: Cell<u32>,
    /// How many more requests are performed without an answer.
    lost_for: Cell<u32>,
    replay_next: Cell<bool>,
    /// The replies that nobody has read.
    unread: RefCell<VecDeque<Reply>>,
    /// The correct limiter, for mutants that count correctly.
    pub(super) honest: MemoryLimiter,
}

impl Bench {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            fault,
            kept: RefCell::default(),
            rows: RefCell::default(),
            grants: RefCell::default(),
            down_for: Cell::new(0),
            lost_for: Cell::new(0),
            replay_next: Cell::new(false),
            unread: RefCell::default(),
            honest: MemoryLimiter::with_shards(1),
        }
    }

    pub(super) fn disturb(&self, disturb: Disturb) {
        match disturb {
            Disturb::Restart if self.fault == Fault::ForgetsOnRestart => self.forget(),
            Disturb::Evict if self.fault == Fault::ForgetsOnEviction => self.forget(),
            Disturb::Restart => self.down_for.set(20),
            Disturb::LoseAnswers => self.lost_for.set(20),
            Disturb::ScriptFlush => self.replay_next.set(true),
            // It answers late or counts on, and it answers. Nothing is kept outside of it.
            Disturb::Hang | Disturb::Evict | Disturb::Kill | Disturb::Abort => {}
        }
    }

    fn forget(&self) {
        self.kept.borrow_mut().clear();
        self.rows.borrow_mut().clear();
        self.grants.borrow_mut().clear();
    }

    /// Returns the error of a store that is down, while it is down.
    pub(super) fn down(&self) -> Option<Reply> {
        take_one(&self.down_for).then(|| unavailable("the store is down"))
    }

    /// Returns the error of a store whose answer is lost, while that is so.
    pub(super) fn lost(&self) -> Option<Reply> {
        take_one(&self.lost_for).then(|| unavailable("the answer is lost"))
    }

    pub(super) async fn answer(&self, route: Route, call: &Call) -> Reply {
        if let Some(down) = self.down() {
            return down;
        }
        let reply = self.perform(route, call).await;
        let reply = match self.fault {
            Fault::AnswersTheAborted => self.oldest(reply).await,
            Fault::RepeatsTheAborted => self.again_if_aborted(route, call, reply).await,
            _ => reply,
        };
        match self.lost() {
            Some(_) if self.fault == Fault::ResendsLostAnswers => self.perform(route, call).await,
            Some(lost) => lost,
            None => reply,
        }
    }

    async fn perform(&self, route: Route, call: &Call) -> Reply {
        let call = &Call { policy: self.policy(&call.policy), ..call.clone() };
        let place = match self.place(call) {
            Ok(place) => place,
            Err(error) => return Reply::error(&error),
        };
        match route {
            Route::Check if self.fault == Fault::Race => self.race(&place, call).await,
            Route::Check => reply(&self.change(&place, call, |kept| self.check(kept, call))),
            Route::Peek if self.fault == Fault::PeekCharges => {
                reply(&self.change(&place, call, |kept| Ok(self.decide(kept, call))))
            }
            Route::Peek => reply(&self.change(&place, call, |kept| Ok(self.peek(kept, call)))),
            Route::Settle => reply(&self.change(&place, call, |kept| self.settle(kept, call, Some(call.cost)))),
            Route::Release => reply(&self.change(&place, call, |kept| self.settle(kept, call, None))),
            Route::Refund => {
                self.change(&place, call, |kept| self.refund(kept, call));
                Reply::new(200, &Answer::Done)
            }
            Route::Block => {
                self.change(&place, call, |kept| self.block(kept, call));
                Reply::new(200, &Answer::Done)
            }
            Route::Grant => reply(
                &self.change(&place, call, |kept| kept.grant(self.fault, call, &mut self.grants.borrow_mut(), &place)),
            ),
            _ => {
                self.reset(&place, call);
                Reply::new(200, &Answer::Done)
            }
        }
    }

    /// The policy that the fault really applies.
    fn policy(&self, policy: &Policy) -> Policy {
        match self.fault {
            Fault::OneMore => policy::limits(policy, |limit| limit + 1),
            Fault::OneLess => policy::limits(policy, |limit| (limit - 1).max(1)),
            Fault::ReallyFixed => policy::fixed(policy),
            Fault::DropsRefillFraction => policy::whole_intervals(policy),
            Fault::ChargesDenials => policy.clone().charge_denied(true),
            Fault::NeverChargesDenials => policy.clone().charge_denied(false),
            Fault::SlotsNeverExpire => policy::held_for_a_year(policy),
            Fault::PenaltyIgnoresCap => policy::without_cap(policy),
            Fault::CarriesNothing => policy::without_carry(policy),
            Fault::MonthsOf30Days => policy::of_equal_length(policy, 28, 31, 30),
            Fault::DaysOf24Hours => policy::of_equal_length(policy, 0, 2, 1),
            _ => policy.clone(),
        }
    }

    /// Where a request is counted.
    fn place(&self, call: &Call) -> Result<Place, Error> {
        let mut place = Place::of(call)?;
        if self.fault == Fault::ForgetsOnLimitChange {
            let limits = call.policy.quotas().iter().map(|quota| format!(":{}", quota.rule().limit()));
            place.name.extend(limits);
        }
        Ok(place)
    }

    fn change<T>(&self, place: &Place, call: &Call, act: impl FnOnce(&mut Kept) -> T) -> T {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.entry(place.name.clone()).or_insert_with(|| Kept::new(call));
        self.rows.borrow().read(place, &call.policy, &mut kept.state);
        let answer = act(kept);
        self.rows.borrow_mut().write(place, &call.policy, &kept.state);
        answer
    }

    async fn race(&self, place: &Place, call: &Call) -> Reply {
        let mut kept = self.change(place, call, |kept| kept.clone());
        tokio::task::yield_now().await;
        let decided = self.check(&mut kept, call);
        self.rows.borrow_mut().write(place, &call.policy, &kept.state);
        self.kept.borrow_mut().insert(place.name.clone(), kept);
        reply(&decided)
    }

    fn check(&self, kept: &mut Kept, call: &Call) -> Result<Decided, Error> {
        if call.policy.has_slots() && call.token.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "idempotency: a slot needs a token"));
        }
        let is_blank = |token: &str| token.trim().is_empty() && self.fault != Fault::TokenMayBeBlank;
        if call.token.as_ref().is_some_and(|token| is_blank(&token.text)) {
            return Err(Error::new(ErrorKind::Invalid, "idempotency: the token is blank"));
        }
        if let Some(token) = call.token.as_ref().filter(|_| self.fault != Fault::TokenChargedTwice) {
            if let Some(charge) = kept.charges.get(&token.text)
                && charge.until_ms > call.now_ms
            {
                let same = charge.cost == call.cost || self.fault == Fault::TokenAtAnotherCost;
                let replayed = self.fault != Fault::HidesReplays;
                return if same {
                    Ok(Decided { replayed, ..charge.first.clone() })
                } else {
                    Err(Error::token_reused())
                };
            }
            let first = self.decide(kept, call);
            if first.status == Outcome::Allowed && call.cost > 0 {
                let ttl_ms = token.ttl_ms.max(longest_slot_ms(&call.policy));
                let (until_ms, at) = (call.now_ms + ttl_ms, UnixMillis::new(call.now_ms));
                let (first, paid) = (first.clone(), kept.paid.clone());
                let charge = Remembered { until_ms, at, cost: call.cost, paid, first, is_settled: false };
                kept.charges.insert(token.text.clone(), charge);
            }
            return Ok(first);
        }
        if self.fault == Fault::ReplaysAfterScriptFlush && self.replay_next.take() {
            let _lost = self.decide(kept, call);
        }
        Ok(self.decide(kept, call))
    }

    /// Settles a charge to what the request cost, or `None` if it cost what was charged.
    fn settle(&self, kept: &mut Kept, call: &Call, actual: Option<u64>) -> Result<Decided, Error> {
        if call.cost > MAX_UNITS {
            return Err(Error::new(ErrorKind::Invalid, "cost: out of range"));
        }
        let now = UnixMillis::new(call.now_ms);
        let token = call.settles.as_deref().unwrap_or_default();
        if token.trim().is_empty() && self.fault != Fault::TokenMayBeBlank {
            return Err(Error::new(ErrorKind::Invalid, "idempotency: the token is blank"));
        }
        let is_kept = |charge: &&mut Remembered| charge.until_ms > call.now_ms || self.fault == Fault::SettlesExpired;
        let Some(charge) = kept.charges.get_mut(token).filter(is_kept) else {
            if self.fault == Fault::SettlesWithoutCharge {
                call.policy.settle(&mut kept.state, &Charge { id: ChargeId::NONE, at: now, cost: 0 }, now, call.cost);
            }
            return Err(Error::unknown_charge());
        };
        let (replayed, paid) = (charge.is_settled, charge.paid.clone());
        let charge_id = if call.policy.has_slots() { ChargeId::of(token) } else { ChargeId::NONE };
        let (actual, charged) =
            (actual.unwrap_or(charge.cost), Charge { id: charge_id, at: charge.at, cost: charge.cost });
        charge.is_settled = true;
        if self.fault == Fault::SettlingForgetsToken {
            kept.charges.remove(token);
        }
        if !replayed || self.fault == Fault::SettlesTwice {
            let paid = credits::payers(self.fault, &paid, charged.cost, actual);
            kept.correct(self.fault, &call.policy, charged, &paid, now, actual);
        }
        let standing = Decided::from(&call.policy.peek(&kept.state, now, 0));
        Ok(Decided { replayed: replayed && self.fault != Fault::HidesReplays, ..standing })
    }

    /// Makes one decision, with the fault.
    fn decide(&self, kept: &mut Kept, call: &Call) -> Decided {
        let (policy, cost) = (&call.policy, call.cost);
        let now = kept.now(self.fault, call);
        let id = match &call.token {
            Some(token) if policy.has_slots() => ChargeId::of(&token.text),
            _ => ChargeId::NONE,
        };
        let plain = |kept: &mut Kept, policy: &Policy| kept.decide(policy, now, cost, id);
        let mut decided = match self.fault {
            Fault::ChargesTheOthers => kept.apart(&policy::alone(policy), now, cost, id),
            Fault::ChargesTenantOnUsersDenial => kept.apart(&policy::by_dimension(policy), now, cost, id),
            Fault::BlockExtendsItself => {
                let before = kept.state.clone();
                match plain(kept, policy) {
                    Decided { status: Outcome::Denied, .. } => {
                        kept.extend_block(policy, &before, now);
                        Decided::from(&policy.peek(&kept.state, now, cost))
                    }
                    decided => decided,
                }
            }
            Fault::PollLosesFraction => {
                let decided = plain(kept, policy);
                kept.round_up(policy, now);
                decided
            }
            Fault::IdleBurst => {
                let extra = kept.idle_credit(policy, now);
                let mut decided = plain(kept, &policy::limits(policy, |limit| limit + extra));
                told_by(&mut decided, |limit| limit.saturating_sub(extra), extra);
                decided
            }
            Fault::DropsMovedState => {
                let before = kept.state.clone();
                let decided = plain(kept, policy);
                if decided.status == Outcome::Denied {
                    kept.state = before;
                }
                decided
            }
            Fault::IgnoresCost => Decided::from(&policy.decide_as(&mut kept.state, now, cost.min(1), id)),
            Fault::RefundsBelowUnused => {
                let decided = plain(kept, policy);
                kept.with_credit(decided, cost)
            }
            fault if policy.has_balance() => kept.spend(fault, policy, now, cost, id),
            _ => plain(kept, policy),
        };
        self.misreport(kept, call, &mut decided);
        kept.remember(call);
        decided
    }

    fn misreport(&self, kept: &mut Kept, call: &Call, decided: &mut Decided) {
        let reset_ms = decided.quotas[decided.binding].reset_after_ms;
        let denied = decided.status == Outcome::Denied;
        match self.fault {
            Fault::OneMore => told_by(decided, |limit| limit - 1, 1),
            Fault::OneLess => told_by(decided, |limit| limit + 1, 0),
            Fault::LimitOneDenied if call.policy.quotas().iter().any(|quota| quota.rule().limit() == 1) => {
                deny(decided, Some(1));
            }
            Fault::StepBackLocksOut if call.now_ms < kept.last_ms => deny(decided, Some(kept.last_ms - call.now_ms)),
            Fault::WrongClockLocks if denied && kept.wrong_clock(call) => {
                decided.retry_after_ms = decided.retry_after_ms.map(|wait_ms| wait_ms + kept.last_ms - call.now_ms);
            }
            Fault::ChargesOversized if decided.status == Outcome::NeverAdmissible => kept.fill(call),
            Fault::DeniesOversized if decided.status == Outcome::NeverAdmissible => deny(decided, reset_ms),
            Fault::StepBackExtendsBlock if kept.blocked_until.get() > call.now_ms => {
                let left_ms = kept.blocked_until.get() - call.now_ms;
                deny(decided, Some(decided.retry_after_ms.unwrap_or(0).max(left_ms)));
            }
            Fault::WaitsForTheEdge if denied => decided.retry_after_ms = reset_ms,
            Fault::WaitsTooShort if denied => {
                decided.retry_after_ms = decided.retry_after_ms.map(|wait_ms| wait_ms.saturating_sub(1));
            }
            Fault::RemainingOneMore => {
                for quota in &mut decided.quotas {
                    quota.remaining = quota.remaining.map(|remaining| remaining + 1);
                }
            }
            Fault::NoDelay => decided.delay_ms = 0,
            _ => {}
        }
    }

    fn peek(&self, kept: &mut Kept, call: &Call) -> Decided {
        let mut copy = kept.clone();
        let now = copy.now(self.fault, call);
        let mut asked = Decided::from(&call.policy.peek(&copy.state, now, call.cost));
        // A peek charges nothing, so it shows only faults in the reported decision.
        if !matches!(self.fault, Fault::ChargesOversized) {
            self.misreport(&mut copy, call, &mut asked);
        }
        asked
    }

    fn refund(&self, kept: &mut Kept, call: &Call) {
        if self.fault == Fault::RefundsNothing {
            return;
        }
        let charged_at = UnixMillis::new(call.charged_at_ms.unwrap_or(call.now_ms));
        let now = UnixMillis::new(call.now_ms);
        let left = |kept: &Kept| {
            let peeked = Decided::from(&call.policy.peek(&kept.state, now, 1));
            peeked.quotas[peeked.binding].remaining.unwrap_or(0)
        };
        let before = left(kept);
        call.policy.refund(&mut kept.state, charged_at, now, call.cost);
        kept.credit += call.cost.saturating_sub(left(kept).saturating_sub(before));
    }

    fn block(&self, kept: &mut Kept, call: &Call) {
        let (now, before) = (UnixMillis::new(call.now_ms), kept.penalties());
        let (asked, longest) = (call.block_ms.unwrap_or(0), kept.blocked_for(now));
        let span = match self.fault {
            Fault::BlocksNothing => return,
            Fault::BlockNeverEnds if asked == 0 => return,
            Fault::BlockOnlyExtends if asked > 0 => Millis::new(asked).max(longest),
            _ => Millis::new(asked),
        };
        call.policy.block(&mut kept.state, now, span);
        kept.blocked_until = if asked > 0 { now + kept.blocked_for(now) } else { UnixMillis::new(0) };
        match self.fault {
            Fault::BlockForgetsViolations => kept.change_penalties(|_, state| state.strikes = 0),
            Fault::BlockIsAViolation if asked > 0 => {
                kept.change_penalties(|place, state| state.strikes = before[place].strikes + 1);
            }
            _ => {}
        }
    }

    fn reset(&self, place: &Place, call: &Call) {
        self.rows.borrow_mut().remove(place, &call.policy, self.fault == Fault::ResetsBalance);
        let mut kept = self.kept.borrow_mut();
        if let Some(kept) = kept.get_mut(&place.name) {
            kept.reset(call);
        }
        if let (Fault::GlobReset, Some((start, _))) = (self.fault, call.key.split_once('*')) {
            let start = format!("tg1:{}:{start}", call.policy.id());
            kept.retain(|name, _| !name.starts_with(&start));
        }
    }
}

/// Reports a decision that was made with other limits as if it had been made with the right ones.
fn told_by(decided: &mut Decided, limit: impl Fn(u64) -> u64, fewer: u64) {
    for quota in &mut decided.quotas {
        quota.limit = limit(quota.limit);
        quota.remaining = quota.remaining.map(|remaining| remaining.saturating_sub(fewer));
    }
}

/// Counts down to zero. Returns whether it was above.
fn take_one(left: &Cell<u32>) -> bool {
    let before = left.get();
    left.set(before.saturating_sub(1));
    before > 0
}

fn unavailable(message: &str) -> Reply {
    Reply::new(503, &Answer::Error(Failure { kind: "unavailable".into(), message: message.into() }))
}

fn deny(decided: &mut Decided, retry_after_ms: Option<u64>) {
    (decided.status, decided.retry_after_ms, decided.delay_ms) = (Outcome::Denied, retry_after_ms, 0);
}

fn reply(decided: &Result<Decided, Error>) -> Reply {
    let decided = match decided {
        Ok(decided) => decided,
        Err(error) => return Reply::error(error),
    };
    let status = if decided.status == Outcome::Allowed { 200 } else { 429 };
    let mut reply = Reply::new(status, &Answer::Decision(decided.clone()));
    let secs = decided.retry_after_ms.map(|wait_ms| Millis::new(wait_ms).as_secs_ceil().max(1));
    reply.headers.extend(secs.map(|secs| ("retry-after".to_string(), secs.to_string())));
    reply
}
