//! Requests by the host's `fetch`.
//!
//! Nothing is asked whether it is an instance of a class: a host may run this beside classes of another realm.

use js_sys::{Function, Promise, Reflect};
use tollgate_core::{Error, Millis};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Headers, Request, RequestCache, RequestInit, RequestRedirect};

use super::config::RestConfig;
use super::{ANSWER_LEN_MAX, HEADERS, Response, SYNC_TOKEN, error};
use crate::settings::invalid;

#[wasm_bindgen]
extern "C" {
    /// The bytes of base64 as characters of a text.
    #[wasm_bindgen(catch)]
    fn atob(text: &str) -> Result<String, JsValue>;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &Function, ms: u32) -> JsValue;

    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);

    type AbortController;

    #[wasm_bindgen(constructor)]
    fn new() -> AbortController;

    #[wasm_bindgen(method, getter)]
    fn signal(this: &AbortController) -> AbortSignal;

    #[wasm_bindgen(method, getter)]
    fn abort(this: &AbortController) -> Function;
}

pub(crate) struct Http {
    url: JsValue,
    token: String,
    deadline: Millis,
    /// What all requests have in common. `fetch` reads it before it returns, so that the next may change it.
    init: RequestInit,
    headers: Headers,
}

/// Ends a call, its second request included, when its time is over. An `AbortSignal.timeout` would be shorter, but its
/// timers cannot be stopped: each runs out, and makes an error that nobody sees.
pub(crate) struct Deadline {
    signal: AbortSignal,
    timer: JsValue,
}

impl Drop for Deadline {
    fn drop(&mut self) {
        clear_timeout(&self.timer);
    }
}

impl Http {
    pub(crate) fn new(config: &RestConfig) -> Result<Self, Error> {
        let init = RequestInit::new();
        Request::new_with_str_and_init(&config.url, &init)
            .map_err(|_| invalid("url: no URL; write https://<database>.upstash.io"))?;
        // Next.js caches what `fetch` brings unless told not to; an older Workers runtime refuses to be told.
        init.set_cache(RequestCache::NoStore);
        if Request::new_with_str_and_init(&config.url, &init).is_err() {
            let _ = Reflect::set(&init, &"cache".into(), &JsValue::UNDEFINED);
        }
        init.set_method("POST");
        init.set_redirect(RequestRedirect::Manual);
        let no_header = |_| invalid("token: no value of a header; write the database's UPSTASH_REDIS_REST_TOKEN");
        let headers = Headers::new().map_err(no_header)?;
        for (name, value) in HEADERS {
            headers.set(name, value).map_err(no_header)?;
        }
        headers.set("authorization", &format!("Bearer {}", config.token)).map_err(no_header)?;
        init.set_headers(&headers);
        let (url, token) = (config.url.as_str().into(), config.token.clone());
        Ok(Self { url, token, deadline: config.deadline, init, headers })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        let controller = AbortController::new();
        // An hour at most, by the configuration's check.
        let ms = u32::try_from(self.deadline.get()).unwrap_or(u32::MAX);
        let timer = set_timeout(&controller.abort().bind0(&controller), ms);
        Deadline { signal: controller.signal(), timer }
    }

    /// Sends one request, once.
    pub(crate) async fn post(
        &self,
        body: String,
        sync_token: Option<&str>,
        deadline: &Deadline,
    ) -> Result<Response, Error> {
        let failed = |thrown: JsValue| {
            if deadline.signal.aborted() { error::timeout(self.deadline) } else { error::lost(self.said(&thrown)) }
        };
        let response = self.send(&body, sync_token, &deadline.signal).await.map_err(failed)?;
        let length = response.headers().get("content-length").ok().flatten().and_then(|length| length.parse().ok());
        if length.is_some_and(|length: usize| length > ANSWER_LEN_MAX) {
            return Err(error::nonsense("an answer of more than a megabyte"));
        }
        let text = async { JsFuture::from(response.text()?).await }.await.map_err(failed)?;
        Ok(Response {
            status: response.status(),
            sync_token: response.headers().get(SYNC_TOKEN).ok().flatten(),
            body: text.as_string().unwrap_or_default().into_bytes(),
        })
    }

    async fn send(
        &self,
        body: &str,
        sync_token: Option<&str>,
        signal: &AbortSignal,
    ) -> Result<web_sys::Response, JsValue> {
        if let Some(token) = sync_token {
            self.headers.set(SYNC_TOKEN, token)?;
        }
        self.init.set_body(&JsValue::from_str(body));
        self.init.set_signal(Some(signal));
        let global = js_sys::global();
        let fetch: Function = Reflect::get(&global, &"fetch".into())?.unchecked_into();
        let promise: Promise = fetch.call2(&global, &self.url, &self.init)?.unchecked_into();
        JsFuture::from(promise).await.map(JsValue::unchecked_into)
    }

    /// What was thrown, without the token, should it repeat that.
    fn said(&self, thrown: &JsValue) -> String {
        let message = Reflect::get(thrown, &"message".into()).ok().and_then(|message| message.as_string());
        message.unwrap_or_default().replace(&self.token, "…")
    }
}

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    atob(text).ok()?.chars().map(|byte| u8::try_from(byte).ok()).collect()
}
