use tollgate_core::Refusal;
use worker::{Headers, Response};

pub(crate) fn refuse(refusal: &Refusal) -> worker::Result<Response> {
    response(refusal.status_code(), refusal.fields().iter(), refusal.body().into())
}

pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl IntoIterator<Item = (&'n str, &'v str)>,
    body: Vec<u8>,
) -> worker::Result<Response> {
    let headers = Headers::new();
    for (name, value) in fields {
        headers.append(name, value)?;
    }
    Ok(Response::from_bytes(body)?.with_status(status).with_headers(headers))
}
