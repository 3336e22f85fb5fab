//! The binding, as crate `worker` sees it.

use tidegate_core::{Error, Millis};
use worker::js_sys::{Promise, Reflect};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Env, RateLimiter};

use crate::error;
use crate::store::{Binding, RateLimit};

// Not `RateLimiter::limit`, which brings along serde for an object of one field.
#[wasm_bindgen(module = "/src/rate_limit.js")]
extern "C" {
    fn limit(binding: &JsValue, key: &str) -> Promise;
}

impl Binding for RateLimiter {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        match JsFuture::from(limit(self.as_ref(), key)).await {
            Ok(success) => Ok(success.is_truthy()),
            Err(error) => Err(error::failed(&worker::Error::from(error).to_string())),
        }
    }
}

impl RateLimit<RateLimiter> {
    /// A store over the binding `name` of a Worker's environment; see [`RateLimit::new`].
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) where there is no such binding, and as [`RateLimit::new`].
    pub fn from_env(env: &Env, name: &str, limit: u64, period: Millis) -> Result<Self, Error> {
        // Not `Env::rate_limiter`, which is large for what else it tells of a binding that is none.
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let binding = property(env.as_ref(), name);
        if !property(&binding, "limit").is_function() {
            return Err(error::missing(name, limit, period, "there is no such binding"));
        }
        Self::new(binding.unchecked_into(), limit, period)
    }
}
