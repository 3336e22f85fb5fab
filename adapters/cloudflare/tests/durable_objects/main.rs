//! The objects, their rows and their leases, on any host.
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod balance;
mod bounds;
mod differential;
mod gate;
mod groups;
mod leases;
mod rows;
mod several;
mod support;
