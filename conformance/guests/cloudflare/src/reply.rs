use tollgate_core::{Error, Refusal};
use worker::{Headers, Response, console_error};

pub(crate) fn refuse(refusal: &Refusal) -> worker::Result<Response> {
    response(refusal.status_code(), refusal.fields().iter(), refusal.body().into())
}

/// Where the store does not answer. The client learns that it is not to blame, and the log why.
pub(crate) fn unavailable(error: &Error) -> worker::Result<Response> {
    console_error!("{error}");
    refuse(&Refusal::unavailable(error.kind()))
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
