//! Calls that wait for their host.
//!
//! A call runs until it wants something of the store. It then stops, and goes on when it is told what became of that. So
//! WebAssembly never waits, and needs none of the promises, closures and objects of JavaScript that waiting takes.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::{Check, Key, Limiter as _, Millis, Refund, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::error::thrown;
use crate::gate::Limit;
use crate::options::whole;
use crate::verdict::verdict;

/// What passes between a limiter's store and its host, for the one call that runs at a time.
#[derive(Default)]
pub(crate) struct Wire {
    wanted: Cell<Option<String>>,
    met: Cell<Option<Met>>,
}

/// What became of what was wanted.
pub(crate) enum Met {
    Answer(Answer),
    /// Something was thrown.
    Failed {
        name: String,
        message: String,
    },
    /// The deadline has passed.
    Late,
}

/// What the store answered.
pub(crate) struct Answer {
    /// As of HTTP.
    pub(crate) status: u16,
    /// Where the store tells versions apart, which one this is.
    #[cfg_attr(feature = "upstash", expect(dead_code, reason = "Upstash has none"))]
    pub(crate) version: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

impl Wire {
    /// Has the host do what is wanted, an array as JSON, and waits for what became of it.
    pub(crate) async fn ask(&self, wanted: String) -> Met {
        self.wanted.set(Some(wanted));
        poll_fn(|_| self.met.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}

type Run = Pin<Box<dyn Future<Output = Result<String, JsValue>>>>;

/// Makes calls, one after another. Each of its methods goes on with the call, and gives what that wants of the store next, an
/// array as JSON; or what came of it, anything else.
#[wasm_bindgen]
pub struct Caller {
    limit: Rc<Limit>,
    run: Option<Run>,
}

impl Caller {
    pub(crate) fn new(limit: &Rc<Limit>) -> Self {
        Self { limit: Rc::clone(limit), run: None }
    }

    fn begin(&mut self, run: impl Future<Output = Result<String, JsValue>> + 'static) -> Result<String, JsValue> {
        self.run = Some(Box::pin(run));
        self.go_on(None)
    }

    fn go_on(&mut self, met: Option<Met>) -> Result<String, JsValue> {
        let wire = &self.limit.wire;
        wire.met.set(met);
        let Some(run) = &mut self.run else { return Ok(String::new()) };
        match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(wire.wanted.take().unwrap_or_default()),
            Poll::Ready(result) => {
                self.run = None;
                result
            }
        }
    }
}

/// Of a sender, who was resolved, it is the key's own text; of anything else a text to make one of.
fn key_of(text: &str) -> Key {
    let of_sender = ["sub:", "key:", "ip:"].iter().any(|start| text.starts_with(start));
    Key::from_text(text).filter(|_| of_sender).unwrap_or_else(|| Key::new(text))
}

#[wasm_bindgen]
impl Caller {
    /// Decides on a request, or where it `peeks` says how it would: the verdict.
    pub fn check(
        &mut self,
        key: &str,
        cost: f64,
        now: f64,
        token: Option<String>,
        token_ttl: f64,
        peeks: bool,
    ) -> Result<String, JsValue> {
        let (limit, key) = (Rc::clone(&self.limit), key_of(key));
        self.begin(async move {
            let Limit { policy, limiter, body_format, .. } = &*limit;
            let mut check = Check::new(policy, &key, UnixMillis::new(whole(now))).cost(whole(cost));
            if let Some(token) = &token {
                check = check.idempotent(token, Millis::new(whole(token_ttl)));
            }
            let decision = if peeks { limiter.peek(check).await } else { limiter.check(check).await };
            Ok(verdict(policy, &decision.map_err(thrown)?, *body_format))
        })
    }

    /// Gives back what a request was charged.
    pub fn refund(&mut self, key: &str, cost: f64, charged_at: f64, now: f64) -> Result<String, JsValue> {
        let (limit, key) = (Rc::clone(&self.limit), key_of(key));
        self.begin(async move {
            let (charged_at, now) = (UnixMillis::new(whole(charged_at)), UnixMillis::new(whole(now)));
            let refund = Refund::new(&limit.policy, &key, whole(cost), charged_at, now);
            limit.limiter.refund(refund).await.map_err(thrown)?;
            Ok(String::new())
        })
    }

    /// Forgets what a key used.
    pub fn reset(&mut self, key: &str) -> Result<String, JsValue> {
        let (limit, key) = (Rc::clone(&self.limit), key_of(key));
        self.begin(async move {
            limit.limiter.reset(&limit.policy, &key).await.map_err(thrown)?;
            Ok(String::new())
        })
    }

    /// The store has answered.
    pub fn answered(&mut self, status: u16, bytes: Vec<u8>, version: Option<String>) -> Result<String, JsValue> {
        self.go_on(Some(Met::Answer(Answer { status, version, bytes })))
    }

    /// What asked the store has thrown.
    pub fn failed(&mut self, name: String, message: String) -> Result<String, JsValue> {
        self.go_on(Some(Met::Failed { name, message }))
    }

    /// The deadline has passed: ends the call.
    pub fn late(&mut self) -> Result<String, JsValue> {
        self.go_on(Some(Met::Late))
    }
}
