//! Calls that the host resumes.
//!
//! A call runs until it needs the store. It then returns its request to the host, which resumes it with the answer. So
//! WebAssembly never waits, and needs no promises, closures or objects of JavaScript.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::{Block, Check, Key, Keys, Limiter as _, Millis, Policy, Refund, Settle, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::error::thrown;
use crate::limit::Limit;
use crate::numbers;
use crate::options::whole;
use crate::wire::{Answer, Met};

/// What a call asks the limiter.
enum Question {
    Check,
    Peek,
    Settle,
}

type Run = Pin<Box<dyn Future<Output = Result<(), JsValue>>>>;

/// Makes calls, one after another. Each method resumes the call, and returns whether it is done. If it is, its decision is in the
/// numbers; otherwise [`Caller::wanted`] is its next request to the store.
#[wasm_bindgen]
pub struct Caller {
    limit: Rc<Limit>,
    /// The keys of the next call, in the order of the policy's dimensions.
    keys: Vec<Key>,
    run: Option<Run>,
}

impl Caller {
    pub(crate) fn new(limit: &Rc<Limit>) -> Self {
        Self { limit: Rc::clone(limit), keys: Vec::new(), run: None }
    }

    /// Runs a future until it asks the host or ends.
    pub(crate) fn begin(&mut self, run: impl Future<Output = Result<(), JsValue>> + 'static) -> Result<bool, JsValue> {
        self.run = Some(Box::pin(run));
        self.go_on(None)
    }

    #[cfg(feature = "kv")]
    pub(crate) fn limit(&self) -> Rc<Limit> {
        Rc::clone(&self.limit)
    }

    /// The limit, and the keys of the call whose last key this is.
    fn take(&mut self, key: &str) -> (Rc<Limit>, Vec<Key>) {
        self.beside(key);
        (Rc::clone(&self.limit), mem::take(&mut self.keys))
    }

    /// Asks for a decision. There is one future for all questions, because each would be a copy of much of it.
    fn decide(
        &mut self,
        question: Question,
        key: &str,
        cost: f64,
        now: f64,
        token: Option<String>,
        token_ttl: f64,
    ) -> Result<bool, JsValue> {
        let (limit, keys) = self.take(key);
        self.begin(async move {
            let Limit { policy, limiter, .. } = &*limit;
            let named = named(policy, &keys);
            let keys = Keys::from(&named[..]);
            let (units, now) = (whole(cost), UnixMillis::new(whole(now)));
            let mut check = Check::new(policy, keys, now).cost(units);
            if let Some(token) = &token {
                check = check.idempotent(token, Millis::new(whole(token_ttl)));
            }
            let decision = match question {
                Question::Check => limiter.check(check).await,
                Question::Peek => limiter.peek(check).await,
                Question::Settle => {
                    let token = token.as_deref().unwrap_or_default();
                    let settle = Settle::new(policy, keys, token, units, now);
                    let release = Settle::release(policy, keys, token, now);
                    limiter.settle(if cost < 0.0 { release } else { settle }).await
                }
            };
            numbers::leave(&decision.map_err(thrown)?);
            Ok(())
        })
    }

    fn go_on(&mut self, met: Option<Met>) -> Result<bool, JsValue> {
        let wire = &self.limit.wire;
        wire.met.set(met);
        let Some(run) = &mut self.run else { return Ok(true) };
        match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => {
                self.run = None;
                result.map(|()| true)
            }
        }
    }
}

/// Each key with the name of its dimension.
fn named<'a>(policy: &'a Policy, keys: &'a [Key]) -> Vec<(&'a str, &'a Key)> {
    policy.dimensions().iter().map(|dimension| dimension.name()).zip(keys).collect()
}

/// A sender's text is a key already, and so is every one that a gate sends. Any other text becomes one.
pub(crate) fn key_of(text: &str, is_of_gate: bool) -> Key {
    let is_key = is_of_gate || ["sub:", "key:", "ip:"].iter().any(|start| text.starts_with(start));
    let key = if is_key { Key::from_text(text) } else { None };
    key.unwrap_or_else(|| Key::new(text))
}

#[wasm_bindgen]
impl Caller {
    /// The call's next request to the store, a JSON array.
    pub fn wanted(&self) -> String {
        self.limit.wire.wanted.take().unwrap_or_default()
    }

    /// Adds a key to the next call, for each dimension of the policy but the last, in order.
    pub fn beside(&mut self, key: &str) {
        self.keys.push(key_of(key, self.limit.is_of_gate));
    }

    /// Decides on a request. If `peeks` is set, charges nothing.
    pub fn check(
        &mut self,
        key: &str,
        cost: f64,
        now: f64,
        token: Option<String>,
        token_ttl: f64,
        peeks: bool,
    ) -> Result<bool, JsValue> {
        let question = if peeks { Question::Peek } else { Question::Check };
        self.decide(question, key, cost, now, token, token_ttl)
    }

    /// Settles the charge with this token to its actual cost, or to what was charged if `cost` is negative. Decides on a request of cost 0.
    pub fn settle(&mut self, key: &str, token: String, cost: f64, now: f64) -> Result<bool, JsValue> {
        self.decide(Question::Settle, key, cost, now, Some(token), 0.0)
    }

    /// Refunds what a request was charged.
    pub fn refund(&mut self, key: &str, cost: f64, charged_at: f64, now: f64) -> Result<bool, JsValue> {
        let (limit, keys) = self.take(key);
        self.begin(async move {
            let named = named(&limit.policy, &keys);
            let (charged_at, now) = (UnixMillis::new(whole(charged_at)), UnixMillis::new(whole(now)));
            let refund = Refund::new(&limit.policy, &named[..], whole(cost), charged_at, now);
            limit.limiter.refund(refund).await.map_err(thrown)?;
            Ok(())
        })
    }

    /// Blocks the keys for so many milliseconds. Zero ends a block.
    pub fn block(&mut self, key: &str, span: f64, now: f64) -> Result<bool, JsValue> {
        let (limit, keys) = self.take(key);
        self.begin(async move {
            let named = named(&limit.policy, &keys);
            let (span, now) = (Millis::new(whole(span)), UnixMillis::new(whole(now)));
            limit.limiter.block(Block::new(&limit.policy, &named[..], span, now)).await.map_err(thrown)?;
            Ok(())
        })
    }

    /// Resets the counts of the keys.
    pub fn reset(&mut self, key: &str) -> Result<bool, JsValue> {
        let (limit, keys) = self.take(key);
        self.begin(async move {
            let named = named(&limit.policy, &keys);
            limit.limiter.reset(&limit.policy, Keys::from(&named[..])).await.map_err(thrown)?;
            Ok(())
        })
    }

    /// Resumes the call with the store's answer.
    pub fn answered(&mut self, status: u16, bytes: Vec<u8>, version: Option<String>) -> Result<bool, JsValue> {
        self.go_on(Some(Met::Answer(Answer { status, version, bytes })))
    }

    /// Resumes the call after the request to the store threw.
    pub fn failed(&mut self, name: String, message: String) -> Result<bool, JsValue> {
        self.go_on(Some(Met::Failed { name, message }))
    }

    /// Ends the call because its deadline has passed.
    pub fn late(&mut self) -> Result<bool, JsValue> {
        self.go_on(Some(Met::Late))
    }
}
