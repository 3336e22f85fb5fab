//! The tests of the adapter. They are one program, because each program would be compiled and linked with everything again.

mod access;
mod balance;
mod clients;
mod cluster;
mod connections;
mod corruption;
mod differential;
mod eviction;
mod exactness;
mod expiry;
mod failures;
mod fallback;
mod gate;
mod lending;
mod over;
mod plain;
mod rest;
mod rest_failures;
mod retries;
#[path = "../support/mod.rs"]
mod support;
mod tls;
