//! The binding, as crate `worker` sees it.

use tollgate_core::{Error, Millis};
use worker::js_sys::{Object, Reflect};
use worker::wasm_bindgen::{JsCast as _, JsValue};
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Env, RateLimiter, worker_sys};

use crate::error;
use crate::store::{Binding, RateLimit};

impl Binding for RateLimiter {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        let binding: &worker_sys::RateLimiter = self.as_ref().unchecked_ref();
        let answer = limit(binding, key).await;
        answer.map_err(|error| error::failed(&worker::Error::from(error).to_string()))
    }
}

impl RateLimit<RateLimiter> {
    /// A store over the binding `name` of a Worker's environment; see [`RateLimit::new`].
    ///
    /// # Errors
    /// [`Invalid`](tollgate_core::ErrorKind::Invalid) where there is no such binding, and as [`RateLimit::new`].
    pub fn from_env(env: &Env, name: &str, limit: u64, period: Millis) -> Result<Self, Error> {
        let binding =
            env.rate_limiter(name).map_err(|error| error::missing(name, limit, period, &error.to_string()))?;
        Self::new(binding, limit, period)
    }
}

/// Not `RateLimiter::limit`, which brings along serde for these two fields.
async fn limit(binding: &worker_sys::RateLimiter, key: &str) -> Result<bool, JsValue> {
    let asked = Object::new();
    Reflect::set(&asked, &JsValue::from_str("key"), &JsValue::from_str(key))?;
    let outcome = JsFuture::from(binding.limit(asked)?).await?;
    Reflect::get(&outcome, &JsValue::from_str("success")).map(|success| success.is_truthy())
}
