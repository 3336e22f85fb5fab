//! A limited page with as few calls of JavaScript as possible, and a page that shows what a client has left.

use tidegate_core::{
    BodyFormat, Check, ClientIpSource, Decision, Identity, Key, LimiterExt as _, Platform, Policy, Rejection,
    ResponseFields, UnixMillis,
};
use worker::Env;
use worker::js_sys::Date;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::web_sys::Request;

use crate::failed;
use crate::limiters::Store;
use crate::reply::{refuse, response};

#[wasm_bindgen(module = "/src/guest.js")]
extern "C" {
    fn record(env: &JsValue, dataset: &str, index: &str, key: &str, quota: &str);
}

pub(crate) struct App<'a> {
    pub(crate) store: &'a Store<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) env: &'a Env,
}

impl App<'_> {
    /// A page that each client gets as often as the policy allows. If the limiter fails, nobody gets it. To let
    /// requests through while the store is down, do so only if `error.kind().is_store_failure()`: a client can cause
    /// the other errors.
    pub(crate) async fn limited(&self, request: &Request) -> JsValue {
        let key = key(request);
        let decision = match self.store.check(Check::new(self.policy, &key, now())).await {
            Ok(decision) => decision,
            Err(error) => return failed(&error),
        };
        match Rejection::denied(self.policy, &decision, BodyFormat::Json) {
            Some(rejection) => {
                self.record(&key, &decision);
                refuse(&rejection)
            }
            None => response(200, ResponseFields::new(self.policy, &decision).iter(), "allowed\n"),
        }
    }

    /// Shows what the client has left, and charges nothing.
    pub(crate) async fn left(&self, request: &Request) -> JsValue {
        let key = key(request);
        match self.store.peek(Check::new(self.policy, &key, now())).await {
            Ok(decision) => {
                let fields = ResponseFields::new(self.policy, &decision);
                let left = decision.binding().remaining().map_or_else(|| "unknown".into(), |left| left.to_string());
                response(200, fields.iter(), &format!("{key}: {left} left\n"))
            }
            Err(error) => failed(&error),
        }
    }

    /// Records a denial as an event in Analytics Engine, if there is a dataset.
    fn record(&self, key: &Key, decision: &Decision) {
        let quota = &self.policy.quotas()[decision.binding_index()];
        record(self.env.as_ref(), "DENIALS", self.policy.name(), key.as_str(), quota.name());
    }
}

/// Only Cloudflare knows the client's address. An app that has verified a token adds its subject here.
fn key(request: &Request) -> Key {
    const FIELD: &str = "cf-connecting-ip";
    let field = request.headers().get(FIELD).ok().flatten().map(|value| (FIELD, value));
    let client_ip = ClientIpSource::new(Platform::Cloudflare).find(field, None).ok();
    Identity { client_ip, ..Identity::default() }.resolve()
}

fn now() -> UnixMillis {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number after the epoch")]
    UnixMillis::new(Date::now() as u64)
}
