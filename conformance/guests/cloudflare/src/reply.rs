use tidegate_core::Rejection;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};

#[wasm_bindgen(module = "/src/guest.js")]
extern "C" {
    fn respond(status: u16, text: &str) -> JsValue;
}

pub(crate) fn refuse(rejection: &Rejection) -> JsValue {
    response(rejection.status_code(), rejection.fields().iter(), rejection.body())
}

/// Passes fields and body as one string. Passing each separately would take a call to JavaScript each.
pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl IntoIterator<Item = (&'n str, &'v str)>,
    body: &str,
) -> JsValue {
    let mut text = String::with_capacity(384);
    for (name, value) in fields {
        [name, ": ", value, "\n"].into_iter().for_each(|part| text.push_str(part));
    }
    text.push('\n');
    text.push_str(body);
    respond(status, &text)
}
