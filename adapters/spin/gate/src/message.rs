//! Requests and responses of `wasi:http@0.3.0`.

use spin_sdk::wasip3::http::types::{ErrorCode, Fields, Method, Request, Response};
use spin_sdk::wasip3::wit_bindgen::spawn;
use spin_sdk::wasip3::{wit_future, wit_stream};
use tidegate_core::gate::Request as GateRequest;
use tidegate_core::{ResponseFields, UnixMillis};

/// What a gate reads of a request.
pub(crate) struct Incoming {
    method: String,
    path: String,
    host: Option<String>,
    // Spin adds the client's address after any field of the same name that the client sent. So all are kept, in their order.
    fields: Vec<(String, Vec<u8>)>,
}

impl Incoming {
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            method: method(request.get_method()),
            path: request.get_path_with_query().unwrap_or_default(),
            host: request.get_authority(),
            fields: request.get_headers().copy_all(),
        }
    }

    /// The request as the gate sees it, now.
    pub(crate) fn asked(&self) -> GateRequest<'_> {
        let asked = GateRequest::new(&self.method, &self.path, &self.fields, UnixMillis::now()).clock(&UnixMillis::now);
        match &self.host {
            Some(host) => asked.with_host(host),
            None => asked,
        }
    }
}

fn method(method: Method) -> String {
    let known = match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(method) => return method,
    };
    known.into()
}

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

/// A response of the gate's own.
pub(crate) fn response<'n, 'v>(
    status: u16,
    fields: impl Iterator<Item = (&'n str, &'v str)>,
    body: Vec<u8>,
) -> Result<Response, ErrorCode> {
    let fields: Vec<_> = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let fields = Fields::from_list(&fields).map_err(|error| internal(&format!("the fields: {error:?}")))?;
    let (mut writer, contents) = wit_stream::new();
    let (trailers, no_trailers) = wit_future::new(|| Ok(None));
    let (response, _sent) = Response::new(fields, Some(contents), no_trailers);
    response.set_status_code(status).map_err(|()| internal(&format!("{status} is not a status")))?;
    spawn(async move {
        // A client that disconnects is not an error.
        let _unsent = writer.write_all(body).await;
        drop(writer);
        let _gone = trailers.write(Ok(None)).await;
    });
    Ok(response)
}

fn internal(why: &str) -> ErrorCode {
    ErrorCode::InternalError(Some(why.into()))
}
