//! Durable Objects as the store, and the object itself. The host calls objects, and carries the events of one.

use std::num::NonZero;

use tidegate_cloudflare::durable_objects::{
    CAPABILITIES, Clock, Config, Counter, HostRows, ObjectStorage, Placement, Reply, Sweep, Thrown,
};
use tidegate_core::{Capabilities, Check, Error, ErrorKind, Operation, Policy, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::borrowing::{Begun, Borrowing, call_of, nth_of};
use crate::limit::{Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_error, leave_number, leave_text, texts, told, whole, with_text};

pub(crate) struct Store {
    config: Config,
    pub(crate) borrowing: Option<Borrowing>,
}

impl Store {
    pub(crate) fn open(options: &mut Options, _: &Policy) -> Result<Self, Error> {
        let clock = if options.flag() { Clock::Object } else { Clock::Caller };
        let placement = u32::try_from(options.number()).ok().and_then(NonZero::new);
        let placement = placement.map_or(Placement::PerKey, Placement::Shards);
        let config = Config::default().placement(placement).clock(clock).min_ttl(options.millis());
        Ok(Self { config, borrowing: Borrowing::open(options)? })
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.borrowing.as_ref().map_or(CAPABILITIES, |borrowing| borrowing.capabilities(CAPABILITIES))
    }
}

#[wasm_bindgen]
impl Limit {
    /// Leaves an object's name, a question mark and what it is asked. Nothing in either needs an escape. The one more number is that
    /// of a loan's question, or 0. It is negative if the check is decided, and nobody waits for the answer. Returns 0 if
    /// nothing is to be asked.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64) -> i32 {
        let Store { config, borrowing } = &self.store;
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut |operation| {
                leave_number(0.0);
                let question = match (operation, borrowing) {
                    (Operation::Check(check), Some(borrowing)) => match borrowing.begin(&check)? {
                        Begun::Decided(decision, then) => {
                            leave(&decision);
                            let Some(asked) = then else { return Ok(0) };
                            leave_number(-call_of(asked.nth, 0));
                            config.question(Operation::Lend(check.cost(0), &asked.question))?
                        }
                        Begun::Ask(asked) => {
                            leave_number(call_of(asked.nth, 0));
                            config.question(Operation::Lend(check, &asked.question))?
                        }
                        Begun::AskPlainly => config.question(Operation::Check(check))?,
                    },
                    _ => config.question(operation)?,
                };
                Ok(leave_text(&question))
            })
        })
    }

    /// Reads an object's answer of so many bytes to the call with this number. The key is pushed if the limiter borrows.
    pub fn read(&self, length: usize, call: f64) -> i32 {
        let answer = with_text(length, Reply::from_text).answer(&self.policy);
        if let (Some(borrowing), Some(Some(key)), Ok(answer)) = (&self.store.borrowing, texts().pop(), &answer) {
            borrowing.answered(&self.policy, &self.key_of(&key), nth_of(call), Some(answer));
        }
        told(answer.map(|answer| leave(&answer.decision)))
    }

    /// Leaves the error of a call without an answer, for which a text of this length is the reason. `how` has the bits 1, 2 and 4 for the
    /// properties `overloaded`, `retryable` and `remote` of what was thrown, 8 if the namespace did not take the call, and 16 if no object has
    /// answered yet.
    pub fn failed(&self, how: u32, length: usize) -> i32 {
        let is = |bit: u32| how & bit != 0;
        leave_error(&with_text(length, |message| {
            if is(8) {
                let what =
                    format!("durable object: the namespace did not take the call: {message}; nothing was charged");
                return Error::new(ErrorKind::Refused, what);
            }
            let message = message.to_owned();
            Thrown { message, overloaded: is(1), retryable: is(2), remote: is(4), is_first: is(16) }.into()
        }))
    }

    /// Leaves a key that is idle, a line end, and what [`Limit::ask`] leaves, with its number. Returns 0 if there is none.
    pub fn due(&self, now: f64) -> i32 {
        let Some(borrowing) = &self.store.borrowing else { return 0 };
        let Some((key, asked)) = borrowing.due(instant(now)) else { return 0 };
        leave_number(call_of(asked.nth, 0));
        let check = Check::new(&self.policy, &key, instant(now)).cost(0);
        told(
            self.store
                .config
                .question(Operation::Lend(check, &asked.question))
                .map(|question| leave_text(&[key.as_str(), "\n", &question].concat())),
        )
    }
}

/// The counts of one object.
#[wasm_bindgen]
pub struct ObjectCounter(Counter<ObjectStorage>);

#[wasm_bindgen]
impl ObjectCounter {
    /// Over the rows of an object whose pending alarm fires at `alarm_ms`.
    #[wasm_bindgen(constructor)]
    pub fn new(rows: HostRows, alarm_ms: Option<f64>) -> Self {
        Self(Counter::new(ObjectStorage::new(rows), alarm_ms.map(instant)))
    }

    /// Answers a question of so many bytes. Leaves the answer.
    pub fn answer(&mut self, length: usize, now: f64) -> i32 {
        let answer = with_text(length, |question| self.0.answer_text(question, instant(now)));
        leave_text(&answer)
    }

    /// Removes a page of expired rows. Returns 2 if there are more, 1 if rows remain, and 0 if none do.
    pub fn sweep(&mut self, now: f64) -> i32 {
        told(self.0.sweep(instant(now)).map(|swept| match swept {
            Sweep::More => 2,
            Sweep::RowsRemain => 1,
            Sweep::Empty => 0,
        }))
    }
}

fn instant(ms: f64) -> UnixMillis {
    UnixMillis::new(whole(ms))
}
