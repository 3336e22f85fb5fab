//! The body of a response, which holds the request's slot until it has been sent.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Charge;

pin_project! {
    /// The service's body, or the text of a rejection. If the policy has a
    /// [concurrency limit](tidegate_core::algorithm::Concurrency), it holds the request's slot until it has ended or is dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    // Small, because a response is moved from layer to layer.
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Service { #[pin] body: B, slot: Option<Charge> },
        Text { text: Box<str> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn new(body: B, slot: Option<Charge>) -> Self {
        Self { kind: Kind::Service { body, slot } }
    }

    /// A body that holds no slot.
    pub(crate) const fn of_text(text: Box<str>) -> Self {
        Self { kind: Kind::Text { text } }
    }

    /// The service's body, or one made of a rejection's text. This gives the request's slot back.
    pub fn into_inner(self) -> B
    where
        B: From<String>,
    {
        match self.kind {
            Kind::Service { body, .. } => body,
            Kind::Text { text } => String::from(text).into(),
        }
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

impl<B: Body> Body for ResponseBody<B>
where
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project().kind.project() {
            KindProj::Service { body, slot } => {
                let polled = body.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *slot = None;
                }
                polled
            }
            KindProj::Text { text } => {
                let text = Some(mem::take(text)).filter(|text| !text.is_empty());
                Poll::Ready(text.map(|text| Ok(Frame::data(Bytes::from(text.into_boxed_bytes()).into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body, .. } => body.is_end_stream(),
            Kind::Text { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body, .. } => body.size_hint(),
            Kind::Text { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
