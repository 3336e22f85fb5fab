use std::fmt::Write as _;

use tollgate_core::Refusal;
use worker::js_sys::JSON;
use worker::web_sys::{Response, ResponseInit};

pub(crate) fn refuse(refusal: &Refusal) -> worker::Result<Response> {
    response(refusal.status_code(), refusal.fields().iter(), refusal.body())
}

/// The fields go as one text: each by itself would be as many calls of JavaScript.
pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl IntoIterator<Item = (&'n str, &'v str)>,
    body: &str,
) -> worker::Result<Response> {
    let mut json = String::with_capacity(256);
    let mut before = '{';
    for (name, value) in fields {
        // No field holds what Rust escapes in another way than JSON.
        let _ = write!(json, "{before}{name:?}:{value:?}");
        before = ',';
    }
    let init = ResponseInit::new();
    init.set_status(status);
    if !json.is_empty() {
        json.push('}');
        init.set_headers(&JSON::parse(&json)?);
    }
    Ok(Response::new_with_opt_str_and_init(Some(body), &init)?)
}
