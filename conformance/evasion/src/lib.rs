//! Whatever reaches a route of a real server was charged to that route's rule, however a client writes the request.
//!
//! A test starts a server with the [`ROUTES`] behind a gate with their [`rules`], and calls [`http1::attack`]. The requests come from a
//! grammar of tricks, with a fresh seed that each test prints. `TIDEGATE_SEED` repeats them, and `TIDEGATE_REQUESTS` sets how many
//! there are for each server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it runs in tests only")]

pub mod http1;
pub mod requests;
mod seen;

pub use seen::{ROUTES, Seen, routes, rules};
