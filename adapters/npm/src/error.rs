//! Errors on their way to JavaScript.

use std::error::Error as _;

use tidegate_core::{Error, ErrorKind};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// A plain array of an error's kind and its message, of which the package makes a `TidegateError`.
    #[wasm_bindgen(js_name = Array)]
    fn pair(kind: &str, message: &str) -> JsValue;
}

/// An error of a decision's.
pub(crate) fn thrown(error: Error) -> JsValue {
    match error.source() {
        Some(source) => pair(error.kind().name(), &format!("{error} ({source})")),
        None => pair(error.kind().name(), &error.to_string()),
    }
}

/// An error about a value of the caller's, which the message names before a colon, below `place`.
pub(crate) fn misplaced(place: &str, error: Error) -> JsValue {
    pair(error.kind().name(), &format!("{place}{error}"))
}

/// A value of the caller's that cannot be right; the message names it before a colon.
pub(crate) fn invalid(message: &str) -> JsValue {
    pair(ErrorKind::Invalid.name(), message)
}
