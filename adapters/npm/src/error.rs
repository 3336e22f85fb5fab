//! Errors as JavaScript gets them.

use std::error::Error as _;

use tidegate_core::Error;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// An array of an error's kind and its message, which the TypeScript converts to a `TidegateError`.
    #[wasm_bindgen(js_name = Array)]
    fn pair(kind: &str, message: &str) -> JsValue;
}

/// The error of a call.
pub(crate) fn thrown(error: Error) -> JsValue {
    match error.source() {
        Some(source) => pair(error.kind().name(), &format!("{error} ({source})")),
        None => pair(error.kind().name(), &error.to_string()),
    }
}
