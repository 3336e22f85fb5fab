//! Calls that the host resumes: see `call.rs` of the limiters.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::gate::{Credit, Gate, Prepared, Request, Verdict};
use tidegate_core::{Error, ErrorKind, Key, Millis, UnixMillis};
use wasm_bindgen::prelude::*;

use super::Shared;
use super::host_request::{Fields, HostRequest};
use super::told::{settled, text, verdict};
use super::verifier::reason;
use super::wire::{Met, failed, known, whole};
use crate::error::thrown;

type Run = Pin<Box<dyn Future<Output = Result<String, Error>>>>;

/// Makes calls, one after another. Each method that begins or resumes a call returns its next request to the host, a JSON array,
/// or its result, any other text.
#[wasm_bindgen]
pub struct RulesCaller {
    shared: Rc<Shared>,
    /// The request of the next call.
    next: HostRequest,
    run: Option<Run>,
}

impl RulesCaller {
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        Self { shared: Rc::clone(shared), next: HostRequest::default(), run: None }
    }

    fn begin(&mut self, run: impl Future<Output = Result<String, Error>> + 'static) -> Result<String, JsValue> {
        self.run = Some(Box::pin(run));
        self.go_on(None)
    }

    fn go_on(&mut self, met: Option<Met>) -> Result<String, JsValue> {
        let wire = &self.shared.wire;
        wire.met.set(met);
        let Some(run) = &mut self.run else { return Ok(String::new()) };
        match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(wire.wanted.take().unwrap_or_default()),
            Poll::Ready(result) => {
                self.run = None;
                result.map_err(thrown)
            }
        }
    }
}

#[wasm_bindgen]
impl RulesCaller {
    /// Tells a text of the next call's request: 0 for the peer, 1 for the subject, 2 for the API key, 3 for the key, 4 for the tier,
    /// 5 for the token of the charge and 6 for the fingerprint of the TLS handshake.
    pub fn tell(&mut self, what: u32, told: String) {
        let next = &mut self.next;
        match what {
            0 => next.peer = Some(told),
            1 => next.subject = Some(told),
            2 => next.api_key = Some(told),
            3 => next.key = Some(Key::new(told)),
            4 => next.tier = Some(told),
            5 => next.token = Some(told),
            _ => next.ja4 = Some(told),
        }
    }

    /// Tells the key of a dimension of the next call's request.
    pub fn key(&mut self, dimension: String, key: &str) {
        self.next.keys.push((dimension, Key::new(key)));
    }

    /// Tells a limit of the next call's request.
    pub fn limit(&mut self, name: String, number: f64) {
        self.next.limits.push((name, whole(number)));
    }

    /// Tells numbers of the next call's request: the bot score and the cost, negative if there is none, and whether the cost is an
    /// estimate, and a request without an address is a mistake of the application.
    pub fn numbers(&mut self, bot_score: f64, cost: f64, is_estimate: bool, needs_peer: bool) {
        let next = &mut self.next;
        next.bot_score = known(bot_score).map(|score| u8::try_from(score).unwrap_or(u8::MAX));
        next.cost = known(cost);
        (next.is_estimate, next.needs_peer) = (is_estimate, needs_peer);
    }

    /// Decides on a request, or explains what applies to it. `fields` are the values of the fields that the rules read.
    pub fn check(
        &mut self,
        method: String,
        url: String,
        fields: &str,
        now: f64,
        explains: bool,
    ) -> Result<String, JsValue> {
        let (shared, mut given) = (Rc::clone(&self.shared), mem::take(&mut self.next));
        let fields = Fields::new(&shared.fields.borrow(), fields);
        (given.method, given.url, given.fields, given.now) = (method, url, fields, whole(now));
        self.begin(async move {
            let gate = shared.gate()?;
            let (named, limits) = (given.keys(), given.limits());
            for (name, _) in &named {
                gate.rules().declares(name)?;
            }
            let request = given.request(&named, &limits);
            if let Some(token) = gate.token(&request) {
                let mut wanted = String::from(r#"["verify","#);
                text(&mut wanted, &token);
                wanted.push(']');
                let found = match shared.wire.ask(wanted).await {
                    Met::Text(payload) => Ok(payload),
                    Met::Failed(error) if error.kind() == ErrorKind::Invalid => Err(reason(&error.to_string())),
                    Met::Failed(error) => return Err(error),
                    Met::Numbers(_) => Err(reason("")),
                };
                shared.verifier.set(found);
            }
            if explains {
                return Ok(gate.rules().explain(&request, gate.client_ip()).to_string());
            }
            decide(&shared, &gate, &given, &request).await
        })
    }

    /// What a request would be charged: a place, as a verdict has it as `hold`. `undefined` if it needs no store or has no token.
    pub fn hold(&mut self, method: String, url: String, fields: &str, now: f64) -> Result<Option<usize>, JsValue> {
        let mut given = mem::take(&mut self.next);
        let fields = Fields::new(&self.shared.fields.borrow(), fields);
        (given.method, given.url, given.fields, given.now) = (method, url, fields, whole(now));
        let gate = self.shared.gate().map_err(thrown)?;
        let (named, limits) = (given.keys(), given.limits());
        let Prepared::Pending(pending) = gate.prepare(&given.request(&named, &limits)) else { return Ok(None) };
        Ok(pending.hold().map(|held| {
            let mut holds = self.shared.holds.borrow_mut();
            holds.push((held, pending.is_alone()));
            holds.len() - 1
        }))
    }

    /// Adds units to the balance of a limit, for the subject, the API key, the key or the peer of the next call's request, under its token.
    /// Their end is negative if they have none.
    pub fn grant(
        &mut self,
        limit: String,
        store: Option<String>,
        units: f64,
        expires: f64,
        ttl: f64,
        now: f64,
    ) -> Result<String, JsValue> {
        let (shared, given) = (Rc::clone(&self.shared), mem::take(&mut self.next));
        self.begin(async move {
            let (gate, named) = (shared.gate()?, given.keys());
            let token = given.token.as_deref().unwrap_or_default();
            let credit = Credit::new(&limit, given.grantee()?, whole(units), token, UnixMillis::new(whole(now)));
            let mut credit = credit.keys(&named).remembered_for(Millis::new(whole(ttl)));
            if let Some(tier) = &given.tier {
                credit = credit.tier(tier);
            }
            if let Some(store) = &store {
                credit = credit.store(store);
            }
            if let Some(expires) = known(expires) {
                credit = credit.expires(UnixMillis::new(expires));
            }
            Ok(settled(&gate.grant(&credit).await?, None))
        })
    }

    /// Settles what a verdict has as `hold` to its actual cost, or to what was charged if `cost` is negative.
    pub fn settle(&mut self, hold: usize, cost: f64, now: f64) -> Result<String, JsValue> {
        let shared = Rc::clone(&self.shared);
        self.begin(async move {
            let held = shared.holds.borrow().get(hold).cloned();
            let (hold, is_alone) = held.ok_or_else(|| failed("invalid", "not a charge".into()))?;
            let (gate, now) = (shared.gate()?, UnixMillis::new(whole(now)));
            let made = match known(cost) {
                Some(cost) => gate.settle(&hold, cost, now).await,
                None => gate.release(&hold, now).await,
            };
            Ok(settled(&made?, is_alone.then(|| hold.policy())))
        })
    }

    /// Resumes the call with a decision.
    pub fn decided(&mut self, numbers: Vec<f64>) -> Result<String, JsValue> {
        self.go_on(Some(Met::Numbers(numbers)))
    }

    /// Resumes the call with a text.
    pub fn told(&mut self, text: String) -> Result<String, JsValue> {
        self.go_on(Some(Met::Text(text)))
    }

    /// Resumes the call with an error.
    pub fn failed(&mut self, kind: &str, message: String) -> Result<String, JsValue> {
        self.go_on(Some(Met::Failed(failed(kind, message))))
    }
}

async fn decide(shared: &Shared, gate: &Gate<'_>, given: &HostRequest, request: &Request<'_>) -> Result<String, Error> {
    let mut pending = match gate.prepare(request) {
        Prepared::Decided(made) => return Ok(told(shared, &made, None, 0)),
        Prepared::Pending(pending) => pending,
    };
    if given.needs_peer && gate.client_ip().reads_peer() && pending.lacks_address() {
        let message = "peer: the platform needs the address of the connection; write limit(gate, { peer }) or { check: () => ({ peer }) }";
        let made = Verdict::misconfigured(Error::new(ErrorKind::Invalid, message));
        return Ok(told(shared, &made, Some(&pending), 0));
    }
    if given.is_estimate {
        pending.settle_later();
    }
    let needs_token = given.is_estimate || pending.estimates() || pending.needs_token();
    if needs_token && given.token.is_none() {
        // The server makes the token: a client that chooses it could repeat a request for free.
        if let Met::Text(token) = shared.wire.ask(r#"["token"]"#.into()).await {
            pending.set_token(token);
        }
    }
    let made = gate.decide(&pending).await;
    Ok(told(shared, &made, Some(&pending), pending.cost()))
}

fn told(shared: &Shared, made: &Verdict, pending: Option<&tidegate_core::gate::Pending>, cost: u64) -> String {
    let events = shared.events.take();
    verdict(made, pending, (&shared.holds, cost), &events)
}
