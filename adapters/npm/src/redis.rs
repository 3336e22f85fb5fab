//! Redis as the store: Upstash over REST, or any server behind a client of JavaScript.

use tidegate_core::store::Operation;
use tidegate_core::{Capabilities, Error, Key, Millis, Policy};
use tidegate_redis::wire::{Call, Script, answer, keys, nonsense, refused, status};
use tidegate_redis::{Clock, batch_script};
use wasm_bindgen::prelude::*;

use crate::limit::{Asked, Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_error, leave_number, leave_text, with_bytes, with_text};

/// How long a text of the server is shown.
const SHOWN_MAX: usize = 200;

pub(crate) struct Store {
    clock: Clock,
    min_ttl: Millis,
    key_locking: bool,
    /// What errors call the database.
    name: &'static str,
}

impl Store {
    #[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
    pub(crate) fn open(options: &mut Options, _: &Policy) -> Result<Self, Error> {
        let name = if options.flag() { "upstash" } else { "redis" };
        let key_locking = options.flag();
        let clock = if options.flag() { Clock::Server } else { Clock::Caller };
        Ok(Self { clock, min_ttl: options.millis(), key_locking, name })
    }

    #[expect(clippy::unused_self, reason = "the stores have one signature")]
    pub(crate) const fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    /// The scripts: 4 and 5 the general one and its SHA-1, 6 and 7 the one for plain checks, 8 that for several decisions.
    pub(crate) fn text(&self, which: u32) -> i32 {
        let locking = self.key_locking;
        match which {
            4 => leave_text(Script::General.text(locking)),
            5 => leave_text(Script::General.sha1(locking)),
            6 => leave_text(Script::Plain.text(locking)),
            7 => leave_text(Script::Plain.sha1(locking)),
            _ => leave_text(&batch_script(locking)),
        }
    }
}

#[wasm_bindgen]
impl Limit {
    /// Leaves what a question asks: the words after the script in a command, one on each line. The one more number is 1 for the
    /// script for plain checks, and 0 for the general one, which takes every question if `is_general` is set. For a reset, the
    /// words are those after `DEL`.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, is_general: bool) -> i32 {
        let Store { clock, min_ttl, .. } = self.store;
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, key, &mut |asked| {
                let operation = match asked {
                    Asked::Operation(operation) => operation,
                    Asked::Reset(all) => return Ok(leave_text(&keys(&self.policy, all)?.join("\n"))),
                };
                let call = Call::new(operation, clock, min_ttl)?;
                let script = if is_general { Script::General } else { call.script() };
                let mut words = String::with_capacity(256);
                call.words(script, |word| {
                    words.push_str(word);
                    words.push('\n');
                });
                words.pop();
                leave_number(f64::from(u8::from(script == Script::Plain)));
                Ok(leave_text(&words))
            })
        })
    }

    /// Reads an answer of so many bytes. Returns 0 if there is a decision, and 1 if the general script has to decide. The key of a
    /// plain check is not needed.
    pub fn read(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64, is_plain: bool) -> i32 {
        let script = if is_plain { Script::Plain } else { Script::General };
        self.with(Question { kind, cost, now, extra }, Key::missing_ip().as_str(), &mut |asked| {
            let Asked::Operation(operation) = asked else { return Ok(0) };
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
        let mut texts = crate::shared::texts().into_iter().map(Option::unwrap_or_default);
        let (text, key) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        leave_error(&match what {
            0 => nonsense(self.store.name, &shown),
            1 => refused(&shown, &key),
            code => status(code, &shown),
        })
    }
}
