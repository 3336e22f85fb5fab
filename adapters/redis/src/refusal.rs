//! Hears a server that refuses a new connection because it has too many.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::RedisError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What such a server says before it closes the connection, without an end.
const SAID: &[u8] = b"-ERR max number of clients";

const MESSAGE: &str = "the server has max number of clients";

/// Whether a connection could not be opened because the server has too many.
pub(crate) fn is_of_too_many(error: &RedisError) -> bool {
    error.to_string().contains(MESSAGE)
}

/// A connection on which the server may say so. It then closes the connection, so that the first request may fail before its answer
/// is read.
pub(crate) struct Heard<S> {
    stream: S,
    is_new: bool,
}

impl<S> Heard<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, is_new: true }
    }
}

fn checked(said: &[u8]) -> io::Result<()> {
    if said.starts_with(SAID) { Err(io::Error::new(io::ErrorKind::ConnectionRefused, MESSAGE)) } else { Ok(()) }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let is_first = std::mem::replace(&mut self.is_new, false);
        Poll::Ready(if is_first { checked(&into.filled()[before..]) } else { Ok(()) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        if self.is_new && written.is_err() {
            let mut said = [0; SAID.len()];
            let mut said = ReadBuf::new(&mut said);
            // What came before the connection was closed is still there.
            if ready!(Pin::new(&mut self.stream).poll_read(cx, &mut said)).is_ok() {
                checked(said.filled())?;
            }
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
