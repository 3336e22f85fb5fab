//! A limiter of one policy, as functions of numbers: what a question asks its store, and what the store's answer means. The host
//! carries both, so WebAssembly never waits, and needs no promises, closures or objects of JavaScript.

use std::net::IpAddr;

use tidegate_core::store::Operation;
use tidegate_core::{
    Block, BodyFormat, Check, ClientIpSource, Error, Identity, Key, Keys, Millis, Policy, Refund, Settle, UnixMillis,
};
use wasm_bindgen::prelude::*;

use crate::options::{Options, misplaced};
use crate::shared::{self, leave_error, leave_text, told, whole};
use crate::store::Store;
use crate::verdict;

/// A limiter of one policy.
#[wasm_bindgen]
pub struct Limit {
    source: ClientIpSource,
    pub(crate) policy: Policy,
    body_format: BodyFormat,
    /// Whether a gate made the policy, and makes the keys.
    is_of_gate: bool,
    pub(crate) store: Store,
}

impl Limit {
    fn open() -> Result<Self, Error> {
        let mut options = Options::taken();
        let source = options.source()?;
        let body_format = if options.flag() { BodyFormat::Problem } else { BodyFormat::Json };
        let (policy, is_of_gate) = options.policy()?;
        let store = Store::open(&mut options, &policy)?;
        store.capabilities().supports_policy(&policy).map_err(|error| misplaced("policy: ", &error))?;
        Ok(Self { source, policy, body_format, is_of_gate, store })
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

    /// Leaves a text: 0 the names of the policy's dimensions, 1 those of its quotas, and 2 the header fields that contain the
    /// client's address, all separated by commas; 3 the store's capabilities, as JSON; from 4 on those of the store.
    pub fn text(&self, which: u32) -> i32 {
        match which {
            0 => leave_list(self.policy.dimensions().iter().map(|dimension| dimension.name())),
            1 => leave_list(self.policy.quotas().iter().map(|quota| quota.name())),
            2 => leave_list(self.source.fields().iter().copied()),
            3 => leave_text(&verdict::capabilities(&self.store.capabilities())),
            _ => self.store.text(which),
        }
    }

    /// Leaves the key that a request counts against. The texts are the values of two header fields, the address of the connection, a
    /// subject, and an API key.
    pub fn key(&self) -> i32 {
        let mut texts = shared::texts().into_iter();
        let mut next = || texts.next().flatten();
        let (first, second, peer, subject, api_key) = (next(), next(), next(), next(), next());
        // Anything but one address counts as missing: a list may contain what the client wrote.
        let peer = peer.and_then(|peer| peer.parse::<IpAddr>().ok());
        let values = [first.as_deref(), second.as_deref()];
        let headers = self.source.fields().iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        let client_ip = self.source.find(headers, peer).ok();
        let identity = Identity { subject: subject.as_deref(), api_key: api_key.as_deref(), client_ip };
        leave_text(identity.resolve().as_str())
    }

    /// Leaves what the client of the decision in the numbers is sent: see [`undecided`](crate::undecided).
    pub fn told(&self) -> i32 {
        let decision = shared::found(self.policy.quotas().len());
        leave_text(
            &decision.map_or_else(String::new, |decision| verdict::text(&self.policy, &decision, self.body_format)),
        )
    }
}

/// Leaves texts with commas between them.
fn leave_list<'a>(texts: impl Iterator<Item = &'a str>) -> i32 {
    let mut list = String::new();
    for (place, text) in texts.enumerate() {
        if place > 0 {
            list.push(',');
        }
        list.push_str(text);
    }
    leave_text(&list)
}

/// A question of the host's.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    /// See [`Limit::with`].
    pub(crate) kind: u32,
    pub(crate) cost: f64,
    pub(crate) now: f64,
    /// How long a check's token is remembered, when a refund's cost was charged, or how long to block.
    pub(crate) extra: f64,
}

/// What is asked of the store.
pub(crate) enum Asked<'a> {
    Operation(Operation<'a>),
    Reset(Keys<'a>),
}

impl<'a> Asked<'a> {
    /// The keys that it is about.
    #[cfg(any(feature = "kv", feature = "rate-limit", feature = "versioned"))]
    pub(crate) const fn keys(&self) -> Keys<'a> {
        match self {
            Self::Operation(operation) => operation.keys(),
            Self::Reset(keys) => *keys,
        }
    }
}

/// Answers a question.
type Answer<'a> = dyn FnMut(Asked<'_>) -> Result<i32, Error> + 'a;

impl Limit {
    /// Answers a question: 0 check, 1 peek, 2 settle, to what was charged if the cost is negative, 3 refund, 4 block, 5 reset.
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
            4 => Operation::Block(Block::new(policy, keys, Millis::new(extra), now)),
            _ => {
                self.store.capabilities().supports_reset(policy)?;
                return answer(Asked::Reset(keys));
            }
        };
        // The memory does so by itself.
        #[cfg(not(feature = "memory"))]
        operation.verify(&self.store.capabilities())?;
        answer(Asked::Operation(operation))
    }
}
