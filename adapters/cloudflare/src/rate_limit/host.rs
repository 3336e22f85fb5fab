//! [`Binding`] for the `RateLimiter` of crate `worker`.

use tidegate_core::{Error, Millis};
use worker::js_sys::{Promise, Reflect};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Env, RateLimiter};

use crate::rate_limit::error;
use crate::rate_limit::store::{Binding, RateLimit};

// `RateLimiter::limit` would add serde to the module to read an object with one field.
#[wasm_bindgen(module = "/src/rate_limit/host.js")]
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
    /// Creates a store over the binding `name` of a Worker's environment. See [`RateLimit::new`].
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the binding does not exist, and the errors of
    /// [`RateLimit::new`].
    pub fn from_env(env: &Env, name: &str, limit: u64, period: Millis) -> Result<Self, Error> {
        // `Env::rate_limiter` would add the text of all its errors to the module.
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let binding = property(env.as_ref(), name);
        if !property(&binding, "limit").is_function() {
            return Err(error::missing(name, limit, period));
        }
        Self::new(binding.unchecked_into(), limit, period)
    }
}
