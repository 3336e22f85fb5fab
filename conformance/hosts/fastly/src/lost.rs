//! Answers that KV Store loses.
//!
//! Viceroy's store fails only before it writes. So the host marks a request, the guest loses the answer to what it writes
//! for it, and marks its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::HeaderValue;
use hyper::service::Service;
use hyper::{Body, Request, Response};
use viceroy_lib::{Error, body};

/// The field of a request whose write gets no answer, and of the response to it.
const LOST: &str = "tidegate-lost";

/// How many answers are still to be lost, and how many were.
#[derive(Default)]
pub(crate) struct Answers {
    to_lose: AtomicU64,
    lost: AtomicU64,
}

impl Answers {
    /// Returns the answer to a line of standard input.
    pub(crate) fn tell(&self, line: &str) -> String {
        match line.split_once(' ') {
            Some(("lose", count)) if let Ok(count) = count.parse() => self.to_lose.store(count, Ordering::Relaxed),
            None if line == "lost" => {}
            _ => return format!("{line:?} is not a command; write `lose COUNT` or `lost`"),
        }
        self.lost.load(Ordering::Relaxed).to_string()
    }

    /// Asks the app, which loses the answer of the store if one is to be lost.
    pub(crate) async fn ask<S>(self: Arc<Self>, mut app: S, mut request: Request<Body>) -> Result<S::Response, Error>
    where
        S: Service<Request<Body>, Response = Response<body::Body>, Error = Error>,
    {
        let one_less = |left: u64| left.checked_sub(1);
        if self.to_lose.try_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            request.headers_mut().insert(LOST, HeaderValue::from_static("1"));
        }
        let response = app.call(request).await?;
        if response.headers().contains_key(LOST) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(response)
    }
}
