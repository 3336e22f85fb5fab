//! The body of a response, which holds the request's slot until it has been sent.

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
        inner: Option<B>,
        // In place of the body of the service.
        text: Option<String>,
        slot: Option<Charge>,
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn new(inner: B, slot: Option<Charge>) -> Self {
        Self { inner: Some(inner), text: None, slot }
    }

    /// A body that holds no slot.
    pub(crate) const fn of_text(text: String) -> Self {
        Self { inner: None, text: Some(text), slot: None }
    }

    /// The service's body, or one made of a rejection's text. This gives the request's slot back.
    pub fn into_inner(self) -> B
    where
        B: From<String>,
    {
        self.inner.unwrap_or_else(|| self.text.unwrap_or_default().into())
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
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else {
            let text = this.text.take().filter(|text| !text.is_empty());
            return Poll::Ready(text.map(|text| Ok(Frame::data(Bytes::from(text).into()))));
        };
        let polled = inner.poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            *this.slot = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Some(inner) => inner.is_end_stream(),
            None => self.text.as_ref().is_none_or(String::is_empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(self.text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}
