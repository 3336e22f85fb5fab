//! Exact rate limiting on Cloudflare Durable Objects.
//!
//! Each key lives in one object, which decides in one synchronous step with the core's own
//! [`Policy::decide_as`](tidegate_core::Policy::decide_as), and answers with its decision. [`DurableObjects`] is an
//! [`Atomic`](tidegate_core::store::Atomic) store. One macro exports the object's class:
//!
//! ```ignore
//! tidegate_cloudflare::durable_object!(Tidegate);
//!
//! let limiter = DurableObjects::from_env(&env, "TIDEGATE", Config::default())?.limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &key, UnixMillis::new(Date::now().as_millis()))).await?;
//! ```
//!
//! # Clock
//! By default the object's clock decides ([`Clock::Object`]) and [`Check::now`](tidegate_core::Check::now) is not read. A
//! Worker whose clock is wrong cannot lock a key.
//!
//! # Storage
//! The object stores one row per policy and key in its SQLite storage: the expiry, the leases and the encoded state. An
//! admitted request writes one row. A denied request writes none, unless the policy charges denials or counts a violation.
//! A request that is admitted and charged under an idempotency token writes a second row, with the token's first answer.
//! An alarm removes expired rows.
//!
//! # Dimensions
//! A policy of several [dimensions](tidegate_core::Policy#dimensions) needs a group: one object owns it, and has a row for
//! each key. Without one, it is [`Unsupported`](tidegate_core::ErrorKind::Unsupported).
//!
//! # Leases
//! [`Leases`] borrows parts of a quota for an isolate and admits from them without a round trip. The ceiling stays the
//! limit.
//!
//! # Errors
//! | kind | when |
//! |-|-|
//! | [`Timeout`](tidegate_core::ErrorKind::Timeout) | the platform lost the object, or no object answers; the request may have been charged |
//! | [`Contended`](tidegate_core::ErrorKind::Contended) | the object is overloaded, exceeded a limit, or did not answer in time while others did |
//! | [`Corrupt`](tidegate_core::ErrorKind::Corrupt) | a row or an answer is not Tidegate's; the row is left as it is |
//! | [`Refused`](tidegate_core::ErrorKind::Refused) | the class or the binding is wrong, or the storage is full |
//! | [`Invalid`](tidegate_core::ErrorKind::Invalid) | the binding is missing, or the object runs another version of this crate |
//!
//! A caller may fail open on [`Timeout`](tidegate_core::ErrorKind::Timeout) only. A client that floods its key causes
//! [`Contended`](tidegate_core::ErrorKind::Contended).

mod bytes;
mod cache;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod calls;
mod config;
mod counter;
mod error;
mod found;
mod held;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod host;
mod leases;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod object;
mod rows;
#[cfg(target_arch = "wasm32")]
mod storage;
mod store;
mod token;
mod wire;

pub use config::{Clock, Config, Placement};
pub use counter::{Counter, Sweep};
pub use error::Thrown;
pub use leases::{Leases, lease_capabilities};
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use object::{Object, derive};
pub use rows::{Page, Row, Rows};
#[cfg(target_arch = "wasm32")]
pub use storage::{HostRows, ObjectStorage};
pub use store::{Address, DurableObjects, DurableObjectsLimiter, Namespace};
pub use wire::Reply;

/// Exports a Durable Object class that counts. The argument is the class's name in the wrangler configuration.
///
/// The calling crate must depend on `worker` 0.8. On targets other than WebAssembly it expands to nothing.
///
/// ```
/// tidegate_cloudflare::durable_object!(Tidegate);
/// ```
#[macro_export]
macro_rules! durable_object {
    ($name:ident) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(missing_docs, unreachable_pub)]
        const _: () = {
            use ::worker::wasm_bindgen::{self, prelude::wasm_bindgen};

            // `worker::durable_object` would answer fetches, which take an object longer than method calls.
            #[wasm_bindgen(wasm_bindgen = ::worker::wasm_bindgen)]
            pub struct $name {
                object: $crate::durable_objects::Object,
            }

            #[wasm_bindgen(wasm_bindgen = ::worker::wasm_bindgen)]
            impl $name {
                #[wasm_bindgen(constructor)]
                pub fn new(state: ::worker::worker_sys::DurableObjectState, _env: ::worker::Env) -> Self {
                    Self { object: $crate::durable_objects::Object::new(state.into()) }
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
                $crate::durable_objects::derive(
                    &$name::new(nothing().unchecked_into(), nothing().unchecked_into()).into(),
                );
            }
        };
    };
}
