//! Whatever reaches a route of a real server was charged to that route's rule, however a client writes the request.
//!
//! See [`tidegate_evasion`] for the requests, and for the variables that repeat them and set their number.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod actix;
mod axum;
mod gate;
mod http2;
mod salvo;
mod tonic;
