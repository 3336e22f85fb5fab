//! The tests of the adapter, as one program: each of its own would be linked with everything again.

mod access;
mod clients;
mod cluster;
mod corruption;
mod differential;
mod eviction;
mod exactness;
mod expiry;
mod failures;
mod fallback;
mod gate;
mod lending;
mod plain;
mod rest;
mod rest_failures;
mod retries;
#[path = "../support/mod.rs"]
mod support;
mod tls;
