//! What a fixture is replayed against: guests over HTTP, or a limiter in this process.

mod http;
mod in_process;

pub use http::{Http, Version};
pub use in_process::InProcess;

use std::future::Future;

use bytes::Bytes;
use tidegate_guest_protocol::{Reply, Route};

use crate::fixture::Disturb;

/// A limiter behind the guests' protocol.
pub trait Subject {
    /// Carries one request to it. An `Err` means that there was no answer at all.
    fn send(&self, route: Route, body: Bytes, place: Place) -> impl Future<Output = Result<Reply, String>>;

    /// Does something to the store behind it.
    fn disturb(&self, _: Disturb) -> impl Future<Output = Result<(), String>> {
        async { Err("the store cannot be disturbed from outside".into()) }
    }

    /// Waits until it answers from its store again.
    fn settle(&self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// How many isolates or processes serve a fixture of one location.
    fn isolates(&self) -> u64 {
        1
    }

    /// Round trips that decisions took so far, where they can be counted from outside.
    fn round_trips(&self) -> impl Future<Output = Option<u64>> {
        async { None }
    }
}

/// Where a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The location, where the fixture has several.
    pub location: Option<u64>,
    /// Its place in the burst, by which it is spread over processes and connections.
    pub nth: u64,
}
