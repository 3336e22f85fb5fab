//! Writes concurrent requests in one system call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The number of requests in flight on one connection.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

/// One request in flight, until it is dropped.
pub(crate) struct Request(InFlight);

impl InFlight {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn request(&self) -> Request {
        self.0.fetch_add(1, Ordering::Relaxed);
        Request(self.clone())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that yields to the runtime before each write while other requests are in flight. Tasks that the last answers
/// woke then add their requests, and one write sends them all. This has the effect of Nagle's algorithm without its wait
/// for an acknowledgement. A lone request is written at once.
pub(crate) struct Batched<S> {
    stream: S,
    in_flight: InFlight,
    has_yielded: bool,
}

impl<S> Batched<S> {
    pub(crate) const fn new(stream: S, in_flight: InFlight) -> Self {
        Self { stream, in_flight, has_yielded: false }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Batched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.has_yielded && self.in_flight.count() > 1 {
            self.has_yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.has_yielded = false;
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Batched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tokio::io::AsyncWrite;

    use super::{Batched, InFlight};

    /// What was done to a stream.
    #[derive(Default)]
    struct Stream(Vec<&'static str>);

    impl AsyncWrite for Stream {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.push("written");
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.push("flushed");
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.push("shut down");
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_lone_request_is_written_at_once_and_others_after_one_turn() {
        let in_flight = InFlight::default();
        let mut batched = Batched::new(Stream::default(), in_flight.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let mut write = || Pin::new(&mut batched).poll_write(&mut cx, b"PING").is_ready();
        let first = in_flight.request();
        assert_eq!([write(), write()], [true, true]);
        let second = in_flight.request();
        assert_eq!([write(), write(), write(), write()], [false, true, false, true]);
        drop(second);
        assert!(write());
        drop(first);
        assert_eq!(in_flight.count(), 0);
        assert!(Pin::new(&mut batched).poll_flush(&mut cx).is_ready());
        assert!(Pin::new(&mut batched).poll_shutdown(&mut cx).is_ready());
        assert_eq!(batched.stream.0, ["written", "written", "written", "written", "written", "flushed", "shut down"]);
    }
}
