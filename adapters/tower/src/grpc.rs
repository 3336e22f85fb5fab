//! Rejections as gRPC clients read them: a status in the header fields, without a body (`Trailers-Only`).
//!
//! See <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tidegate_core::Millis;
use tidegate_core::gate::{Reason, Refusal};
use tidegate_core::internal::leb128;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whether a request is a gRPC call.
pub(crate) fn is_call(head: &Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Writes the status of a refusal, in place of the status code and the body.
pub(crate) fn write(refusal: &Refusal, headers: &mut HeaderMap) {
    let (code, message) = match refusal.rejection().status_code() {
        429 => (8, "rate limit exceeded"),
        401 => (16, "invalid token"),
        403 => (7, "forbidden"),
        503 => (14, "the rate limiter is unavailable"),
        _ => (13, "the rate limiter is misconfigured"),
    };
    let wait = match refusal.reason() {
        Reason::Denied(decision) => decision.retry_after(),
        _ => None,
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code));
    // Only spaces and visible ASCII without `%`, so it needs no escapes.
    headers.insert(MESSAGE, HeaderValue::from_static(message));
    let details = wait.map(|wait| STANDARD_NO_PAD.encode(status(code, message, wait)));
    if let Some(details) = details.and_then(|details| HeaderValue::from_str(&details).ok()) {
        headers.insert(DETAILS, details);
    }
}

/// A `google.rpc.Status` with a `google.rpc.RetryInfo`, in the protobuf wire format.
fn status(code: u16, message: &str, wait: Millis) -> Vec<u8> {
    let (mut delay, mut info, mut any, mut status) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // google.protobuf.Duration
    number(&mut delay, 1, wait.get() / 1_000);
    number(&mut delay, 2, wait.get() % 1_000 * 1_000_000);
    bytes(&mut info, 1, &delay);
    // google.protobuf.Any
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &info);
    number(&mut status, 1, u64::from(code));
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// Appends a field of the wire type 0. Zero is the default and is left out.
fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        out.push(field << 3);
        leb128::put(out, value);
    }
}

/// Appends a field of the wire type 2.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    leb128::put(out, value.len() as u64);
    out.extend_from_slice(value);
}
