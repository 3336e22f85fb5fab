//! Decides which parts of a response are sent together.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

type Polled = Poll<Option<Result<Frame<Bytes>, ErrorCode>>>;

/// A body that is sent together with its head if the instance wrote it before setting the head, and separately
/// otherwise.
///
/// In Spin, a concurrent task sends the response, and sends the head before the instance continues. Here, the instance
/// might write its body first, which would hide the cost of the second segment.
struct Segments {
    /// The first poll, made when the head was set.
    first: Option<Polled>,
    body: HyperOutgoingBody,
}

/// Call this when the head is set.
pub(crate) fn of(mut body: HyperOutgoingBody) -> HyperOutgoingBody {
    let first = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    Segments { first: Some(first), body }.boxed_unsync()
}

impl Body for Segments {
    type Data = Bytes;
    type Error = ErrorCode;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        match self.first.take() {
            // A pending body makes the server send the head now.
            Some(Poll::Pending) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Some(ready) => ready,
            None => Pin::new(&mut self.body).poll_frame(context),
        }
    }
}
