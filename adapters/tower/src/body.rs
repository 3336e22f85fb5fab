//! The body of a response, which holds the request's slot until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Charge;

pin_project! {
    /// The service's body. If the policy has a [concurrency limit](tidegate_core::algorithm::Concurrency), it holds the request's
    /// slot until it has ended or is dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: B,
        slot: Option<Charge>,
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn new(inner: B, slot: Option<Charge>) -> Self {
        Self { inner, slot }
    }

    /// The service's body. This gives the request's slot back.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

/// A body that holds no slot.
impl<B: From<String>> From<String> for ResponseBody<B> {
    fn from(text: String) -> Self {
        Self::new(text.into(), None)
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let polled = this.inner.poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            *this.slot = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
