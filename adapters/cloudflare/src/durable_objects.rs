#![doc = include_str!("../docs/durable_objects.md")]

mod bytes;
mod cache;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod calls;
mod config;
mod counter;
mod decision;
mod error;
mod found;
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

pub use config::{Clock, Config, Jurisdiction, Placement};
pub use counter::{Counter, Sweep};
pub use error::Thrown;
pub use leases::Leases;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use object::{Object, derive};
pub use rows::{Page, Row, Rows};
#[cfg(target_arch = "wasm32")]
pub use storage::{HostRows, ObjectStorage};
pub use store::{Address, CAPABILITIES, DurableObjects, DurableObjectsLimiter, Namespace};
pub use tidegate_core::lending::Lease;
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
