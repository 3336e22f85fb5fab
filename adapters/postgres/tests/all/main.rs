//! The tests of the adapter. They are one program, because each program would be compiled and linked with everything again.

mod connections;
mod differential;
mod exactness;
mod expiry;
mod failures;
mod pooler;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tls;
mod together;
