//! The targets of the conformance suite: limiters on their platforms or on local emulators of them, with the guests that use
//! them.
//!
//! This is what the programs of this repository are made of. An adapter of your own is checked with the crate
//! [`tidegate_conformance`] alone.
//!
//! | module | |
//! |-|-|
//! | [`target`] | what runs a limiter: its store, its guests, and the programs that emulate its platform |
//! | [`http`] | sends requests to guests |
//! | [`run`] | runs fixtures on whole targets |
//! | [`soak`] | the same with random traffic and faults |
//! | [`report`] | the results, for people, programs and CI |

// A full pipe makes the standard library's macros panic; see `output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod http;
pub mod report;
pub mod run;
pub mod soak;
pub mod target;

// What only the programs of this repository use.
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod setup;
