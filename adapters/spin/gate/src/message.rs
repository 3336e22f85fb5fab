//! What passes the gate, as `wasi:http@0.3.0` has it.

use spin_sdk::wasip3::http::types::{ErrorCode, Request, Response};
use spin_sdk::wasip3::wit_bindgen::spawn;
use spin_sdk::wasip3::wit_future;
use tidegate_core::ResponseFields;

/// Passes the request on as it came, and returns the response of the component behind.
pub(crate) async fn next(request: Request) -> Result<Response, ErrorCode> {
    let response = spin_sdk::http::next(request).await?;
    response.into_body().take_unstarted().ok_or_else(|| internal("the response has begun"))
}

/// Adds fields to a response, in place of those of the same names. Its body and trailers pass as they are.
pub(crate) fn with_fields(response: Response, fields: &ResponseFields) -> Response {
    if fields.iter().next().is_none() {
        return response;
    }
    let status = response.get_status_code();
    let headers = response.get_headers().clone();
    for (name, value) in fields.iter() {
        if let Err(error) = headers.set(name, &[value.as_bytes().to_vec()]) {
            eprintln!("tidegate: the response takes no field {name}: {error:?}");
        }
    }
    let (received, is_received) = wit_future::new(|| Ok(()));
    let (body, trailers) = Response::consume_body(response, is_received);
    let (response, sent) = Response::new(headers, Some(body), trailers);
    // The status comes from a response, so it is valid.
    let _ = response.set_status_code(status);
    // The component behind learns whether its body was sent.
    spawn(async move {
        let _ = received.write(sent.await).await;
    });
    response
}

fn internal(why: &str) -> ErrorCode {
    ErrorCode::InternalError(Some(why.into()))
}
