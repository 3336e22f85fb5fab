//! A Spin app of WASI 0.3 that knows nothing of Tidegate: it answers each request with its body and its trailers. It runs behind the gate.
#![cfg(target_arch = "wasm32")]

use spin_sdk::http::{HeaderName, HeaderValue, IntoResponse, Request, Response, StatusCode};
use spin_sdk::http_service;

/// Answers every request.
#[http_service]
async fn handle(request: Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    eprintln!("the app ran");
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str()).to_string();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::CREATED;
    let fields = response.headers_mut();
    fields.extend(HeaderValue::try_from(path).map(|path| (HeaderName::from_static("x-path"), path)));
    // A field that occurs twice, and is not the gate's.
    fields.append("set-cookie", HeaderValue::from_static("a=1"));
    fields.append("set-cookie", HeaderValue::from_static("b=2"));
    // What the app says of its own limits does not reach a client that the gate limits.
    fields.append("x-ratelimit-limit", HeaderValue::from_static("1000000"));
    fields.append("ratelimit", HeaderValue::from_static("\"own\";r=1000000"));
    response
}
