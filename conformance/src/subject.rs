//! What fixtures are replayed against, such as a limiter in this process.

mod in_process;

pub use in_process::InProcess;

use std::future::Future;

use bytes::Bytes;
use tidegate_guest_protocol::{Reply, Route};

use crate::fixture::Disturb;
use crate::operation::Operations;

/// A limiter that speaks the guests' protocol.
pub trait Subject {
    /// Sends one request. `Err` means that there was no answer.
    fn send(&self, route: Route, body: Bytes, place: Place) -> impl Future<Output = Result<Reply, String>>;

    /// Waits until a fixture may begin.
    fn begin(&self) -> impl Future<Output = ()> {
        async {}
    }

    /// Prepares a disturbance that must have begun when the first request arrives.
    fn prepare(&self, _: Disturb) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// Waits until what was sent has arrived. Requests that ask a store which does not answer are then aborted.
    fn arrived(&self) -> impl Future<Output = ()> {
        tokio::task::yield_now()
    }

    /// Disturbs the store behind the limiter.
    fn disturb(&self, _: Disturb) -> impl Future<Output = Result<(), String>> {
        async { Err("the store cannot be disturbed from outside".into()) }
    }

    /// Waits until the limiter can reach its store again.
    fn settle(&self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// Whether it still answers at all. Asked after a fixture has failed.
    fn alive(&self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// How many isolates or processes serve a fixture with one location.
    fn isolates(&self) -> u64 {
        1
    }

    /// The operations at the store so far, if they are counted.
    fn operations(&self) -> impl Future<Output = Option<Operations>> {
        async { None }
    }
}

/// Where a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The location, if the fixture has several.
    pub location: Option<u64>,
    /// The request's index in the burst. It selects the process and the connection.
    pub nth: u64,
}
