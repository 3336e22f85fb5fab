//! Replays a story on a server, and compares each answer and what is stored with the model.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use redis::ConnectionLike as _;
use tidegate_core::lending::{Lender, Question, Returned};
use tidegate_core::store::Applied;
use tidegate_core::{Charge, ChargeId, Check, Key, Millis, Operation, Policy, Refund, Settle, UnixMillis};
use tidegate_redis::Clock;
use tidegate_redis::wire::{Call, Script};

use super::lent;
use super::model::{Found, Model, loans, written};
use super::story::{Flaw, Step, Story, policy};

/// No row expires while the time of a story stands still.
const MIN_TTL: Millis = Millis::from_secs(3_600);
const TOKEN_TTL: Millis = Millis::new(1 << 40);

pub(crate) struct Replay<'a> {
    pub(crate) connection: &'a mut redis::Connection,
    /// Those of the general and the lending script.
    pub(crate) sha1s: [&'a str; 2],
    pub(crate) key: Key,
    policy: Policy,
    now: UnixMillis,
    /// The latest time so far.
    latest: UnixMillis,
    model: Model,
    /// A token is used with one configuration only.
    epoch: u32,
}

/// What a script has answered, what is stored then, and for how long.
struct Outcome {
    answer: redis::RedisResult<String>,
    stored: Option<String>,
    ttl_ms: i64,
}

/// Whether a story goes on. It ends with a row that is corrupt.
enum Then {
    GoesOn,
    Ends,
}

impl<'a> Replay<'a> {
    /// Returns the number of questions that were asked.
    pub(crate) fn run(
        connection: &'a mut redis::Connection,
        sha1s: [&'a str; 2],
        key: Key,
        story: &Story,
    ) -> Result<u64, TestCaseError> {
        let (mut quotas, mut asked) = (story.quotas.clone(), 0);
        let Some(first) = policy(&quotas) else { return Ok(0) };
        let now = UnixMillis::new(story.start_ms);
        let mut replay =
            Self { connection, sha1s, key, policy: first, now, latest: now, model: Model::default(), epoch: 0 };
        for step in &story.steps {
            match step {
                Step::Forward(span) => {
                    replay.now = (replay.now + Millis::new(*span)).min(UnixMillis::new(UnixMillis::MAX.get() - 1_000));
                }
                Step::ForwardToEnd(nth) => {
                    let numbers = replay.model.row.as_ref().map(|(_, lender)| lender.numbers()).unwrap_or_default();
                    let ends: Vec<_> = numbers.iter().skip(4).step_by(3).rev().collect();
                    let end = ends.get(*nth).map_or(replay.now, |end| UnixMillis::new(**end));
                    replay.now = replay.now.max(end);
                }
                Step::Back(span) => replay.now = UnixMillis::new(replay.now.get().saturating_sub(*span)),
                Step::Limits(limit, refill) => {
                    quotas.iter_mut().for_each(|numbers| (numbers.1, numbers.3) = (*limit, *refill));
                    let Some(changed) = policy(&quotas) else { return Ok(asked) };
                    (replay.policy, replay.epoch) = (changed, replay.epoch + 1);
                }
                step => {
                    asked += u64::from(matches!(step, Step::Lend(..)));
                    if let Then::Ends = replay.step(step).map_err(|error| replay.told(step, &error))? {
                        return Ok(asked);
                    }
                }
            }
        }
        Ok(asked)
    }

    fn told(&self, step: &Step, error: &TestCaseError) -> TestCaseError {
        TestCaseError::fail(format!("{step:?} at {:?} of {:?}: {error}", self.now, self.policy))
    }

    fn step(&mut self, step: &Step) -> Result<Then, TestCaseError> {
        let before = self.stored();
        let outcome = match step {
            Step::Lend(cost, question, back) => self.lend(*cost, question, *back)?,
            Step::Check(cost) => self.check(&self.policy.clone(), *cost, None)?,
            Step::CheckCharging(cost) => self.check(&self.policy.clone().charge_denied(true), *cost, None)?,
            Step::Once(token, cost) => {
                self.check(&self.policy.clone(), *cost, Some(format!("{}-{token}", self.epoch)))?
            }
            Step::Settle(token, cost) => self.settle(&format!("{}-{token}", self.epoch), *cost)?,
            Step::Peek(cost) => self.peek(*cost)?,
            Step::Refund(cost, ago) => self.refund(*cost % (1 << 32), *ago)?,
            Step::Reset => Some(self.reset()?),
            Step::Put(loans, borrowers, flaw) => return self.put(loans, *borrowers, *flaw),
            Step::Forward(_) | Step::ForwardToEnd(_) | Step::Back(_) | Step::Limits(..) => unreachable!("not a call"),
        };
        let Some(Outcome { stored, ttl_ms, .. }) = outcome else { return Ok(Then::Ends) };
        let expected = self.stored();
        prop_assert_eq!(&stored, &expected, "stored, before it {:?}", before);
        self.latest = self.latest.max(self.now);
        // After a clock steps back, a row that is not written has less time left than it says.
        let is_kept = before != expected && *step != Step::Reset && self.now == self.latest;
        if let Some((state, lender)) = self.model.row.as_ref().filter(|_| is_kept) {
            let least = self.policy.expires_after(state, self.now).get() + lender.last_end().since(self.now).get();
            // Some time has passed since the step.
            prop_assert!(ttl_ms + 60_000 > i64::try_from(least).unwrap(), "a TTL of {ttl_ms}, but used for {least}");
        }
        Ok(Then::GoesOn)
    }

    fn stored(&self) -> Option<String> {
        self.model.row.as_ref().map(|(state, lender)| written(state, lender))
    }

    /// `None` if the row is not plausible, and the script says so, too.
    fn find(&self, policy: &Policy, outcome: &Outcome) -> Result<Option<Found>, TestCaseError> {
        let found = self.model.find(policy, self.now);
        match &outcome.answer {
            Err(error) => prop_assert!(found.is_none(), "{error}"),
            Ok(answer) => prop_assert!(found.is_some(), "it is not plausible: {answer}"),
        }
        Ok(found)
    }

    fn call<'b>(&self, operation: Operation<'b>) -> Call<'b> {
        Call::new(operation, Clock::Caller, MIN_TTL).unwrap()
    }

    fn send(&mut self, call: &Call<'_>, script: Script) -> Outcome {
        let (mut words, [general, lending]) = (Vec::new(), self.sha1s);
        call.words(script, |word| words.push(word.to_owned()));
        let (name, sha1) = (words[1].clone(), if script == Script::General { general } else { lending });
        let mut pipeline = redis::pipe();
        pipeline.cmd("EVALSHA").arg(sha1).arg(&words).cmd("GET").arg(&name).cmd("PTTL").arg(&name);
        let values = self.connection.req_packed_commands(&pipeline.get_packed_pipeline(), 0, 3).unwrap();
        let answer = match &values[0] {
            redis::Value::ServerError(error) => Err(error.clone().into()),
            value => redis::from_redis_value_ref::<String>(value).map_err(Into::into),
        };
        let stored = redis::from_redis_value_ref(&values[1]).unwrap();
        Outcome { answer, stored, ttl_ms: redis::from_redis_value_ref(&values[2]).unwrap() }
    }

    /// Runs the general script, and the lending one if that has no answer, as a plain client does.
    fn apply(&mut self, call: &Call<'_>) -> Result<(Outcome, Option<Applied>), TestCaseError> {
        let (mut outcome, mut script) = (self.send(call, Script::General), Script::General);
        if outcome.answer.as_ref().is_ok_and(String::is_empty) {
            let is_lent = self.model.row.as_ref().is_some_and(|(_, lender)| !lender.is_unused());
            prop_assert!(is_lent, "there are no loans");
            (outcome, script) = (self.send(call, Script::Lending), Script::Lending);
        }
        let Ok(text) = &outcome.answer else { return Ok((outcome, None)) };
        let applied = call.answer(script, text.as_bytes()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(applied.is_some(), "no answer");
        Ok((outcome, applied))
    }

    fn lend(
        &mut self,
        cost: u64,
        question: &Question,
        back: Option<(usize, u64, u64)>,
    ) -> Result<Option<Outcome>, TestCaseError> {
        let numbers = self.model.row.as_ref().map(|(_, lender)| lender.numbers()).unwrap_or_default();
        let loans: Vec<_> = numbers.iter().skip(2).step_by(3).rev().copied().collect();
        let returned = |(nth, unspent, kept): (usize, _, _)| Returned {
            loan: loans.get(nth).copied().unwrap_or(7),
            unspent,
            kept,
        };
        let question = Question { back: back.map(returned), ..*question };
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let call = self.call(Operation::Lend(Check::new(&policy, &key, self.now).cost(cost), &question));
        let outcome = self.send(&call, Script::Lending);
        let Some(mut found) = self.find(&policy, &outcome)? else { return Ok(None) };
        let text = outcome.answer.as_ref().unwrap();
        let answer = lent(&call, text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let before = found.lender.clone();
        let expected = found.lender.decide(&policy, &mut found.state, self.now, cost, &question);
        found.changed |= before != found.lender;
        prop_assert_eq!(answer, expected);
        self.model.keep(&policy, found, self.now);
        Ok(Some(outcome))
    }

    fn check(&mut self, policy: &Policy, cost: u64, token: Option<String>) -> Result<Option<Outcome>, TestCaseError> {
        let key = self.key.clone();
        let mut check = Check::new(policy, &key, self.now).cost(cost);
        if let Some(token) = &token {
            check = check.idempotent(token, TOKEN_TTL);
        }
        let (outcome, applied) = self.apply(&self.call(Operation::Check(check)))?;
        if token.as_ref().is_some_and(|token| self.model.tokens.contains_key(token)) {
            return Ok(Some(outcome));
        }
        let Some(mut found) = self.find(policy, &outcome)? else { return Ok(None) };
        let decision = policy.decide(&mut found.state, self.now, cost);
        let expected = found.lender.corrected(policy, &found.state, self.now, cost, decision);
        prop_assert_eq!(&applied.unwrap().decision(&check).unwrap(), &expected);
        if let Some(token) = token.filter(|_| expected.is_allowed() && cost > 0) {
            self.model.tokens.insert(token, (Charge { id: ChargeId::NONE, at: self.now, cost }, false));
        }
        self.model.keep(policy, found, self.now);
        Ok(Some(outcome))
    }

    fn settle(&mut self, token: &str, cost: u64) -> Result<Option<Outcome>, TestCaseError> {
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let call = self.call(Operation::Settle(Settle::new(&policy, &key, token, cost, self.now)));
        let Some((charge, is_settled)) = self.model.tokens.get(token).copied() else {
            let outcome = self.send(&call, Script::General);
            prop_assert!(outcome.answer.as_ref().is_err_and(|error| error.to_string().contains("UNKNOWN")));
            return Ok(Some(outcome));
        };
        let (outcome, applied) = self.apply(&call)?;
        let Some(mut found) = self.find(&policy, &outcome)? else { return Ok(None) };
        let Some(Applied::Before { replayed, previous, .. }) = applied else { unreachable!("{applied:?}") };
        prop_assert_eq!(replayed, is_settled);
        if !is_settled {
            policy.settle(&mut found.state, &charge, self.now, cost);
            let told = previous.unwrap_or_else(|| policy.initial_state());
            prop_assert_eq!(policy.peek(&told, self.now, 1), policy.peek(&found.state, self.now, 1));
            self.model.tokens.insert(token.to_owned(), (charge, true));
            self.model.keep(&policy, found, self.now);
        }
        Ok(Some(outcome))
    }

    fn peek(&mut self, cost: u64) -> Result<Option<Outcome>, TestCaseError> {
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let check = Check::new(&policy, &key, self.now).cost(cost);
        let (outcome, applied) = self.apply(&self.call(Operation::Peek(check)))?;
        let Some(found) = self.find(&policy, &outcome)? else { return Ok(None) };
        let told = match applied.unwrap() {
            Applied::Replied(reply) => reply.decision().unwrap(),
            Applied::Before { previous, .. } => {
                policy.peek(&previous.unwrap_or_else(|| policy.initial_state()), self.now, cost)
            }
        };
        let peeked = policy.peek(&found.state, self.now, cost);
        prop_assert_eq!(told, found.lender.corrected(&policy, &found.state, self.now, cost, peeked));
        Ok(Some(outcome))
    }

    fn refund(&mut self, cost: u64, ago_ms: u64) -> Result<Option<Outcome>, TestCaseError> {
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let then = UnixMillis::new(self.now.get().saturating_sub(ago_ms));
        let (outcome, _) =
            self.apply(&self.call(Operation::Refund(Refund::new(&policy, &key, cost, then, self.now))))?;
        let Some(mut found) = self.find(&policy, &outcome)? else { return Ok(None) };
        policy.refund(&mut found.state, then, self.now, cost);
        self.model.keep(&policy, found, self.now);
        Ok(Some(outcome))
    }

    fn reset(&mut self) -> Result<Outcome, TestCaseError> {
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let outcome = self.send(&self.call(Operation::Reset { policy: &policy, keys: (&key).into() }), Script::Lending);
        prop_assert_eq!(outcome.answer.as_deref().ok(), Some("a"));
        let readable = self.model.row.take().filter(|(state, _)| policy.verify(state, UnixMillis::MAX).is_ok());
        self.model.row =
            readable.and_then(|(state, lender)| lender.reset(&policy, &state).map(|(lender, state)| (state, lender)));
        Ok(outcome)
    }

    /// Replaces the loans of the row. If they are corrupt, puts the old ones back.
    fn put(&mut self, units: &[(u64, u64, u64)], borrowers: u64, flaw: Flaw) -> Result<Then, TestCaseError> {
        let Some((state, _)) = self.model.row.clone() else { return Ok(Then::GoesOn) };
        let last = 16 * self.now.get() + 100_000;
        let end = |loan: &(u64, u64, u64)| (self.now.get() + loan.1).saturating_sub(4_000);
        let mut ends: Vec<_> = units.iter().map(end).collect();
        if flaw != Flaw::Order {
            ends.sort_unstable();
        }
        let mut numbers = vec![last, borrowers];
        for ((units, _, below), end) in units.iter().zip(ends) {
            let number = if flaw == Flaw::Number { last + 1 + below } else { last - below };
            numbers.extend([number, *units, if flaw == Flaw::End { end + (1 << 49) } else { end }]);
        }
        let text = written(&state, &Lender::default()) + &loans(&numbers);
        let (policy, key) = (self.policy.clone(), self.key.clone());
        let check = Check::new(&policy, &key, self.now);
        let (question, mut name) = (Question { wanted: 9, ..Question::default() }, None);
        let lend = self.call(Operation::Lend(check, &question));
        lend.words(Script::Lending, |word| {
            name = name.take().or_else(|| word.starts_with('{').then(|| word.to_owned()))
        });
        redis::cmd("SET").arg(&name).arg(&text).arg("PX").arg(1_u64 << 46).exec(self.connection).unwrap();
        if let Ok(lender) = Lender::from_numbers(&numbers) {
            self.model.row = Some((state, lender));
            return Ok(Then::GoesOn);
        }
        for call in [lend, self.call(Operation::Check(check)), self.call(Operation::Peek(check))] {
            let Outcome { answer, stored, .. } = self.send(&call, Script::Lending);
            prop_assert!(answer.is_err_and(|error| error.to_string().contains("CORRUPT")), "not corrupt: {}", text);
            prop_assert_eq!(stored.as_deref(), Some(&*text));
        }
        let before = self.stored();
        redis::cmd("SET").arg(name).arg(before).arg("PX").arg(1_u64 << 46).exec(self.connection).unwrap();
        Ok(Then::GoesOn)
    }
}
