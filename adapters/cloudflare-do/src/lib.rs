//! Exact rate limiting on Cloudflare Durable Objects: one object, one synchronous step, one row a decision.
//!
//! [`DurableObjects`] is an [`Atomic`](tidegate_core::store::Atomic) store: each key lives in one object, which decides
//! by the core's own [`Policy::decide`](tidegate_core::Policy::decide) in a step that nothing interrupts, and answers
//! with the state before it. One line exports the object's class, and one makes the limiter:
//!
//! ```ignore
//! tidegate_cloudflare_do::durable_object!(Tidegate);
//!
//! let limiter = DurableObjects::new(env.durable_object("TIDEGATE")?).limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &key, UnixMillis::new(Date::now().as_millis()))).await?;
//! ```
//!
//! # What is stored
//! One row a policy and key in the object's SQLite storage, under the core's storage key: when it expires, what is
//! leased of it, and the state's bytes. An admitted request writes one row, a denied one none. A token's first answer is
//! a row of its own.
//! Expired rows are removed by the object's alarm, of which at most one is pending.
//!
//! # Leases
//! [`Leases`] borrows parts of a quota for an isolate, and admits from them without a round trip. The ceiling stays the
//! limit.
//!
//! # Errors
//! An object that is overloaded or cannot be reached is [`Unavailable`](tidegate_core::ErrorKind::Unavailable); one
//! that was lost before it answered is [`Timeout`](tidegate_core::ErrorKind::Timeout), for it may have charged. A row
//! that Tidegate did not write is [`Corrupt`](tidegate_core::ErrorKind::Corrupt) and left as it is.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bytes;
#[cfg(target_arch = "wasm32")]
mod calls;
mod config;
mod counter;
mod error;
mod held;
mod leases;
#[cfg(target_arch = "wasm32")]
mod namespace;
#[cfg(target_arch = "wasm32")]
mod object;
mod rows;
#[cfg(target_arch = "wasm32")]
mod storage;
mod store;
mod wire;

pub use config::{Clock, Config, Placement};
pub use counter::Counter;
pub use error::Thrown;
pub use leases::{Leases, lease_capabilities};
#[cfg(target_arch = "wasm32")]
pub use object::{Object, derive};
pub use rows::{Row, Rows};
#[cfg(target_arch = "wasm32")]
pub use storage::ObjectStorage;
pub use store::{Address, DurableObjects, DurableObjectsLimiter, Namespace};
pub use wire::Reply;

/// Exports a Durable Object class that counts, under the name that the wrangler configuration gives it. For crates that
/// depend on `worker` 0.8; expands to nothing but on WebAssembly.
///
/// ```
/// tidegate_cloudflare_do::durable_object!(Tidegate);
/// ```
#[macro_export]
macro_rules! durable_object {
    ($name:ident) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(missing_docs, unreachable_pub)]
        const _: () = {
            use ::worker::wasm_bindgen::{self, prelude::wasm_bindgen};

            // Not `worker::durable_object`, which answers fetches, and those take an object longer than a call of a method.
            #[wasm_bindgen(wasm_bindgen = ::worker::wasm_bindgen)]
            pub struct $name {
                object: $crate::Object,
            }

            #[wasm_bindgen(wasm_bindgen = ::worker::wasm_bindgen)]
            impl $name {
                #[wasm_bindgen(constructor)]
                pub fn new(state: ::worker::worker_sys::DurableObjectState, _env: ::worker::Env) -> Self {
                    Self { object: $crate::Object::new(state.into()) }
                }

                pub fn answer(&self, question: &str) -> wasm_bindgen::JsValue {
                    self.object.answer(question)
                }

                pub fn alarm(&self) -> wasm_bindgen::JsValue {
                    self.object.alarm()
                }
            }

            #[wasm_bindgen(start, private, wasm_bindgen = ::worker::wasm_bindgen)]
            fn derive() {
                use wasm_bindgen::{JsCast as _, JsValue};
                let nothing = || JsValue::UNDEFINED;
                $crate::derive(&$name::new(nothing().unchecked_into(), nothing().unchecked_into()).into());
            }
        };
    };
}
