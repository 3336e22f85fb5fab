//! Redis as the store: Upstash over REST, or any server behind a client of JavaScript.

use tidegate_core::store::Operation;
use tidegate_core::{Capabilities, Check, Error, ErrorKind, Key, Millis, Policy, UnixMillis};
use tidegate_redis::wire::{Call, Script, answer, nonsense, refused, status};
use tidegate_redis::{Clock, batch_script};
use wasm_bindgen::prelude::*;

use crate::borrowing::{Begun, Borrowing};
use crate::limit::{Asked, Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_error, leave_number, leave_text, number, texts, told, whole, with_bytes, with_text};

/// How long a text of the server is shown.
const SHOWN_MAX: usize = 200;

/// The scripts, by their numbers.
const SCRIPTS: [Script; 3] = [Script::General, Script::Plain, Script::Lending];

pub(crate) struct Store {
    clock: Clock,
    min_ttl: Millis,
    key_locking: bool,
    pub(crate) borrowing: Option<Borrowing>,
    /// What errors call the database.
    name: &'static str,
}

impl Store {
    pub(crate) fn open(options: &mut Options, _: &Policy) -> Result<Self, Error> {
        let name = if options.flag() { "upstash" } else { "redis" };
        let key_locking = options.flag();
        let clock = if options.flag() { Clock::Server } else { Clock::Caller };
        Ok(Self { clock, min_ttl: options.millis(), key_locking, borrowing: Borrowing::open(options)?, name })
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let exact = Capabilities::EXACT;
        self.borrowing.as_ref().map_or(exact, |borrowing| borrowing.capabilities(exact))
    }

    /// From 4 on, the scripts and their SHA-1 by turns, and at last the script for several decisions.
    pub(crate) fn text(&self, which: u32) -> i32 {
        let locking = self.key_locking;
        match SCRIPTS.get((which / 2 - 2) as usize) {
            Some(script) if which.is_multiple_of(2) => leave_text(&script.text(locking)),
            Some(script) => leave_text(script.sha1(locking)),
            None => leave_text(&batch_script(locking)),
        }
    }
}

#[wasm_bindgen]
impl Limit {
    /// Leaves what a question asks: see [`leave_words`], whose line is empty. The one more number is negative if the check is decided, and nobody
    /// waits for the answer. Returns 0 if nothing is to be asked. If `is_lent` is set, the state has loans, which only one script takes.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, is_lent: bool) -> i32 {
        let Store { clock, min_ttl, borrowing, .. } = &self.store;
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, key, &mut |asked| {
                let operation = match asked {
                    Asked::Operation(operation) => operation,
                    Asked::Reset(keys) => {
                        let call = Call::reset(&self.policy, keys)?;
                        return Ok(leave_words("", &call, Script::Lending, 0.0));
                    }
                };
                if let (Operation::Check(check), Some(borrowing), false) = (operation, borrowing, is_lent) {
                    let (check, asked, sign) = match borrowing.begin(&check)? {
                        Begun::Decided(decision, None) => return Ok(leave(&decision)),
                        Begun::Decided(decision, Some(asked)) => {
                            leave(&decision);
                            (check.cost(0), Some(asked), -1.0)
                        }
                        Begun::Ask(asked) => (check, Some(asked), 1.0),
                        Begun::AskPlainly => (check, None, 0.0),
                    };
                    if let Some(asked) = asked {
                        let call = Call::lend(check, asked.question, *clock, *min_ttl)?;
                        return Ok(leave_words("", &call, Script::Lending, sign * number(asked.nth)));
                    }
                }
                let call = Call::new(operation, *clock, *min_ttl)?;
                let script = if is_lent { Script::Lending } else { call.script_where(borrowing.is_some()) };
                Ok(leave_words("", &call, script, 0.0))
            })
        })
    }

    /// Reads an answer of so many bytes to the script of this number, and to the borrower's question of this number. Returns 0 if there
    /// is a decision, and 1 if the state has loans. The keys are pushed, unless it is a plain check.
    pub fn read(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, script: usize, nth: f64) -> i32 {
        let script = SCRIPTS.get(script).copied().unwrap_or(Script::General);
        self.with(Question { kind, cost, now, extra }, Key::missing_ip().as_str(), &mut |asked| {
            let Asked::Operation(operation) = asked else { return Ok(0) };
            if let (Operation::Check(check), Some(borrowing), true) = (operation, &self.store.borrowing, nth > 0.0) {
                let question = borrowing.question(whole(nth)).ok_or_else(too_late)?;
                let call = Call::lend(check, question, self.store.clock, self.store.min_ttl)?;
                let answer = with_bytes(length, |bytes| call.lent(bytes))?;
                borrowing.answered(&self.policy, check.keys.sole(&self.policy)?, whole(nth), Some(&answer));
                return Ok(leave(&answer.decision));
            }
            let has_token = matches!(&operation, Operation::Check(check) if check.idempotency.is_some());
            let tells = self.store.clock == Clock::Server || has_token || matches!(operation, Operation::Settle(_));
            match with_bytes(length, |bytes| answer(&operation, tells, script, bytes))? {
                Some(applied) => Ok(leave(&operation.decided(applied)?)),
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
        told(Call::lend(check, asked.question, self.store.clock, self.store.min_ttl).map(|call| {
            leave_words(key.as_str(), &call, Script::Lending, number(asked.nth))
        }))
    }
}

/// Leaves a line, and the words after a script, one on each line. The one more number is that of the script, and four times that
/// of the borrower's question.
fn leave_words(line: &str, call: &Call<'_>, script: Script, nth: f64) -> i32 {
    let mut words = String::with_capacity(256);
    words.push_str(line);
    words.push('\n');
    call.words(script, |word| {
        words.push_str(word);
        words.push('\n');
    });
    words.pop();
    let place = SCRIPTS.iter().position(|known| *known == script).unwrap_or_default();
    let script = number(place as u64).copysign(nth);
    leave_number(4.0 * nth + script);
    leave_text(&words)
}

fn too_late() -> Error {
    Error::new(ErrorKind::Timeout, "the answer came after its question was given up; the request may have been charged")
}
