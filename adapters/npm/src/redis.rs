//! Redis as the store: Upstash over REST, or any server behind a client of JavaScript.

use tidegate_core::{Capabilities, Check, Error, Key, Millis, Operation, Policy, UnixMillis};
use tidegate_redis::Clock;
use tidegate_redis::wire::{Call, Script, answer, nonsense, question, refused, status};
use wasm_bindgen::prelude::*;

use crate::borrowing::{Begun, Borrowing, call_of, nth_of};
use crate::limit::{Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_error, leave_number, leave_text, texts, told, whole, with_bytes, with_text};

/// How long a text of the server is shown.
const SHOWN_MAX: usize = 200;

/// The scripts, by their numbers.
const SCRIPTS: [Script; 4] = [Script::General, Script::Plain, Script::Lending, Script::Balance];
const LENDING: u64 = Script::Lending as u64;

pub(crate) struct Store {
    clock: Clock,
    min_ttl: Millis,
    pub(crate) borrowing: Option<Borrowing>,
    /// What errors call the database.
    name: &'static str,
}

impl Store {
    pub(crate) fn open(options: &mut Options, _: &Policy) -> Result<Self, Error> {
        let name = if options.flag() { "upstash" } else { "redis" };
        let clock = if options.flag() { Clock::Server } else { Clock::Caller };
        Ok(Self { clock, min_ttl: options.millis(), borrowing: Borrowing::open(options)?, name })
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let exact = Capabilities::EXACT.grant(true);
        self.borrowing.as_ref().map_or(exact, |borrowing| borrowing.capabilities(exact))
    }
}

#[wasm_bindgen]
impl Limit {
    /// Leaves the words after a script, one on each line. The one more number is that of the call, and negative if the check is decided
    /// and nobody waits for the answer. Returns 0 if nothing is to be asked. If `is_lent` is set, the state has loans, which
    /// only one script takes.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, is_lent: bool) -> i32 {
        let Store { clock, min_ttl, borrowing, .. } = &self.store;
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut |operation| {
                if let (Operation::Check(check), Some(borrowing), false) = (operation, borrowing, is_lent) {
                    match borrowing.begin(&check)? {
                        Begun::Decided(decision, None) => return Ok(leave(&decision)),
                        Begun::Decided(decision, Some(asked)) => {
                            leave(&decision);
                            let call = Call::new(Operation::Lend(check.cost(0), &asked.question), *clock, *min_ttl)?;
                            let length = leave_words(None, &call, Script::Lending, asked.nth);
                            leave_number(-call_of(asked.nth, LENDING));
                            return Ok(length);
                        }
                        Begun::Ask(asked) => {
                            let call = Call::new(Operation::Lend(check, &asked.question), *clock, *min_ttl)?;
                            return Ok(leave_words(None, &call, Script::Lending, asked.nth));
                        }
                        Begun::AskPlainly => {}
                    }
                }
                let call = Call::new(operation, *clock, *min_ttl)?;
                let script = if is_lent { Script::Lending } else { call.script_where(borrowing.is_some()) };
                Ok(leave_words(None, &call, script, 0))
            })
        })
    }

    /// Reads an answer of so many bytes to the call of which [`Limit::ask`] left this number, without its sign. Returns 0 if there is a
    /// decision, and 1 if the state has loans. The keys are pushed if there is a token, or the limiter borrows. The
    /// answer to a borrower's question comes after that question, which is a word of the call, and a line end.
    pub fn read(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, call: f64) -> i32 {
        let (nth, place) = (nth_of(call), (whole(call) & 3) as usize);
        let script = SCRIPTS.get(place).copied().unwrap_or(Script::Lending);
        self.with(Question { kind, cost, now, extra }, Key::missing_ip(), &mut |operation| {
            if let Operation::Reset { .. } = operation {
                return Ok(0);
            }
            if let (Operation::Check(check), Some(borrowing), true) = (operation, &self.store.borrowing, nth > 0) {
                let answer = with_text(length, |text| {
                    let (asked, answer) = text.split_once('\n').unwrap_or_default();
                    let question = question(asked).unwrap_or_default();
                    let lend = Operation::Lend(check, &question);
                    let call = Call::new(lend, self.store.clock, self.store.min_ttl)?;
                    let applied = call.answer(Script::Lending, answer.as_bytes())?;
                    lend.replied(applied.expect("the script takes every call"))?.answer()
                })?;
                borrowing.answered(&self.policy, check.keys.single(&self.policy)?, nth, Some(&answer));
                return Ok(leave(&answer.decision));
            }
            let has_token = matches!(&operation, Operation::Check(check) if check.idempotency.is_some());
            let tells = self.store.clock == Clock::Server
                || has_token
                || matches!(operation, Operation::Settle(_) | Operation::Grant(_));
            match with_bytes(length, |bytes| answer(&operation, tells, script, bytes))? {
                Some(applied) => {
                    // The package has a decision of a refund and a block, too.
                    let (policy, keys) = (operation.policy(), operation.keys());
                    let standing = Operation::Peek(Check::new(policy, keys, operation.now()).cost(0));
                    let is_done = matches!(operation, Operation::Refund(_) | Operation::Block(_));
                    let reply = if is_done { standing } else { operation }.replied(applied)?;
                    Ok(reply.decided().map_or(0, leave))
                }
                None => Ok(1),
            }
        })
    }

    /// Leaves the error of an answer whose text is pushed: an HTTP status of the endpoint, 1 for an error of the server, and 0 for an
    /// answer that no script gives. The first of the keys is pushed, too, if it is known.
    pub fn failed(&self, what: u16) -> i32 {
        let mut texts = texts().into_iter().map(Option::unwrap_or_default);
        let (text, key) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        leave_error(&match what {
            0 => nonsense(self.store.name, &shown),
            1 => refused(&shown, &key),
            code => status(code, &shown),
        })
    }

    /// Leaves a key that is idle, and then what [`Limit::ask`] leaves, each on a line. Returns 0 if there is none.
    pub fn due(&self, now: f64) -> i32 {
        let Some(borrowing) = &self.store.borrowing else { return 0 };
        let now = UnixMillis::new(whole(now));
        let Some((key, asked)) = borrowing.due(now) else { return 0 };
        let check = Check::new(&self.policy, &key, now).cost(0);
        told(
            Call::new(Operation::Lend(check, &asked.question), self.store.clock, self.store.min_ttl)
                .map(|call| leave_words(Some(&key), &call, Script::Lending, asked.nth)),
        )
    }
}

/// Leaves a key, if there is one, and the words after a script, one on each line. The one more number is that of the call.
fn leave_words(key: Option<&Key>, call: &Call<'_>, script: Script, nth: u64) -> i32 {
    let mut words = String::with_capacity(256);
    let mut push = |word: &str| {
        words.push_str(word);
        words.push('\n');
    };
    if let Some(key) = key {
        push(key.as_str());
    }
    call.words(script, push);
    words.pop();
    leave_number(call_of(nth, script as u64));
    leave_text(&words)
}
