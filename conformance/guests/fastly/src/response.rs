use fastly::Response;

pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl IntoIterator<Item = (&'n str, &'v str)>,
    body: impl Into<fastly::Body>,
) -> Response {
    let mut response = Response::from_body(body).with_status(status);
    for (name, value) in fields {
        response.append_header(name, value);
    }
    response
}
