//! Responses.

use spin_sdk::http::Response;
use tidegate_core::Rejection;

pub(crate) fn refuse(rejection: &Rejection) -> Response {
    response(rejection.status_code(), rejection.fields().iter(), rejection.body().into())
}

pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl IntoIterator<Item = (&'n str, &'v str)>,
    body: Vec<u8>,
) -> Response {
    let mut response = Response::builder();
    response.status(status);
    for (name, value) in fields {
        response.header(name, value);
    }
    response.body(body).build()
}

pub(crate) fn not_found() -> Response {
    response(404, [], "not found\n".into())
}
