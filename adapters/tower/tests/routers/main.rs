//! Whatever reaches a route of a real server was charged to that route's rule, however a client writes the request.
//!
//! The requests come from a grammar of tricks, with a fresh seed that each test prints. `TIDEGATE_SEED` repeats them, and
//! `TIDEGATE_REQUESTS` sets how many there are for each server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod actix;
mod axum;
mod http1;
mod http2;
mod requests;
mod salvo;
mod seen;
mod tonic;
