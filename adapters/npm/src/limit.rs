//! A limiter of one policy, as functions of numbers: what a question asks its store, and what the store's answer means. The host
//! carries both, so WebAssembly never waits, and needs no promises, closures or objects of JavaScript.

use tidegate_core::{Block, Check, Error, Grant, Key, Keys, Millis, Operation, Policy, Refund, Settle, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::options::{Options, misplaced};
use crate::shared::{self, leave_error, leave_text, told, whole};
use crate::store::Store;

/// A limiter of one policy.
#[wasm_bindgen]
pub struct Limit {
    #[cfg(feature = "reference")]
    pub(crate) sender: crate::sender::Sender,
    pub(crate) policy: Policy,
    /// Whether a gate made the policy, and makes the keys.
    is_of_gate: bool,
    pub(crate) store: Store,
}

impl Limit {
    fn open() -> Result<Self, Error> {
        let mut options = Options::taken();
        #[cfg(feature = "reference")]
        let sender = crate::sender::Sender::open(&mut options)?;
        let (policy, is_of_gate) = options.policy()?;
        let store = Store::open(&mut options, &policy)?;
        store.capabilities().supports_policy(&policy).map_err(|error| misplaced("policy: ", &error))?;
        Ok(Self {
            #[cfg(feature = "reference")]
            sender,
            policy,
            is_of_gate,
            store,
        })
    }

    /// A sender's text is a key already, and so is every one that a gate sends. Any other text becomes one.
    pub(crate) fn key_of(&self, text: &str) -> Key {
        let is_key = self.is_of_gate || ["sub:", "key:", "ip:"].iter().any(|start| text.starts_with(start));
        let key = if is_key { Key::from_text(text) } else { None };
        key.unwrap_or_else(|| Key::new(text))
    }
}

#[wasm_bindgen]
impl Limit {
    /// Makes a limiter of the texts that were pushed. If they are wrong, the one more number is the length of the error.
    pub fn make() -> Option<Limit> {
        Self::open().map_err(|error| shared::leave_number(f64::from(-1 - leave_error(&error)))).ok()
    }

    /// Leaves the store's capabilities, as JSON.
    pub fn capabilities(&self) -> i32 {
        let can = self.store.capabilities();
        let algorithms = can.algorithms.join(r#"",""#);
        let drift = can.accuracy.drift();
        let beyond = if drift.grace > 0 { format!(" + {} x locations", drift.grace) } else { String::new() };
        leave_text(&format!(
            concat!(
                r#"{{"class":"{}","ceiling":"{}{}","held":{},"grace":{},"accuracy":"{}","algorithms":["{}"],"max_quotas":{},"dimensions":"{}","costs":{},"charge_denied":{},"#,
                r#""peek":{},"refund":{},"reset":{},"block":{},"grant":{},"idempotency":{},"round_trips":{}}}"#,
            ),
            can.accuracy.name(),
            drift.ceiling,
            beyond,
            drift.floor.held,
            drift.grace,
            can.accuracy,
            algorithms,
            can.max_quotas,
            can.dimensions.name(),
            can.costs,
            can.charge_denied,
            can.peek,
            can.refund,
            can.reset,
            can.block,
            can.grant,
            can.idempotency,
            can.round_trips,
        ))
    }
}

/// A question of the host's.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    /// See [`Limit::with`].
    pub(crate) kind: u32,
    pub(crate) cost: f64,
    pub(crate) now: f64,
    /// How long a token is remembered, when a refund's cost was charged, or how long to block.
    pub(crate) extra: f64,
}

/// Answers a question.
type Answer<'a> = dyn FnMut(Operation<'_>) -> Result<i32, Error> + 'a;

impl Limit {
    /// Answers a question: 0 check, 1 peek, 2 settle, to what was charged if the cost is negative, 3 refund, 4 block, 5 reset, 6 grant.
    /// The token of a grant comes after the instant at which the units expire and a space.
    ///
    /// If no text was pushed, the key is `key`. Otherwise the texts are a token, if there is one, and a key for each dimension of the
    /// policy, in order.
    pub(crate) fn with(&self, question: Question, key: Key, answer: &mut Answer<'_>) -> i32 {
        let mut texts = shared::texts();
        if texts.is_empty() {
            return told(self.operate(question, Keys::from(&key), None, answer));
        }
        let dimensions = self.policy.dimensions();
        let token = if texts.len() > dimensions.len() { texts.remove(0) } else { None };
        let keys: Vec<Key> = texts.into_iter().map(|text| self.key_of(&text.unwrap_or_default())).collect();
        let named: Vec<(&str, &Key)> = dimensions.iter().map(|dimension| dimension.name()).zip(&keys).collect();
        told(self.operate(question, Keys::from(&named[..]), token.as_deref(), answer))
    }

    pub(crate) fn operate(
        &self,
        question: Question,
        keys: Keys<'_>,
        token: Option<&str>,
        answer: &mut Answer<'_>,
    ) -> Result<i32, Error> {
        let policy = &self.policy;
        let (cost, now, extra) = (whole(question.cost), UnixMillis::new(whole(question.now)), whole(question.extra));
        let check = Check::new(policy, keys, now).cost(cost);
        let check = token.map_or(check, |token| check.idempotent(token, Millis::new(extra)));
        let operation = match question.kind {
            0 => Operation::Check(check),
            1 => Operation::Peek(check),
            2 => {
                let token = token.unwrap_or_default();
                let is_release = question.cost < 0.0;
                Operation::Settle(if is_release {
                    Settle::release(policy, keys, token, now)
                } else {
                    Settle::new(policy, keys, token, cost, now)
                })
            }
            3 => Operation::Refund(Refund::new(policy, keys, cost, UnixMillis::new(extra), now)),
            6 => {
                let (expires, token) = token.and_then(|token| token.split_once(' ')).unwrap_or_default();
                let expires = UnixMillis::new(expires.parse().unwrap_or_default());
                Operation::Grant(
                    Grant::new(policy, keys, cost, token, now).expires(expires).remembered_for(Millis::new(extra)),
                )
            }
            4 => Operation::Block(Block::new(policy, keys, Millis::new(extra), now)),
            _ => Operation::Reset { policy, keys },
        };
        // The memory does so by itself.
        #[cfg(not(feature = "memory"))]
        operation.verify(&self.store.capabilities())?;
        answer(operation)
    }
}
