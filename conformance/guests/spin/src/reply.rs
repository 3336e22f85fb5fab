use spin_sdk::http::Response;
use tidegate_core::Refusal;

pub(crate) fn refuse(refusal: &Refusal) -> Response {
    response(refusal.status_code(), refusal.fields().iter(), refusal.body().into())
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
