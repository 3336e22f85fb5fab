//! The memory of this process as the store.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::{Capabilities, Error, Limiter, MemoryLimiter, Operation, Policy};
use wasm_bindgen::prelude::*;

use crate::limit::{Limit, Question};
use crate::options::Options;
use crate::shared::{leave, with_text};

/// The most keys with a count of their own.
const KEYS_MAX: usize = 1_000_000;

thread_local! {
    /// The counts of all limiters, so that two of the same policy count together, as on every other store.
    static MEMORY: OnceCell<&'static MemoryLimiter> = const { OnceCell::new() };
}

/// Makes the counts, with 128 random bits. The host draws them before the first call, because Workers have no randomness
/// before their first request.
#[wasm_bindgen]
pub fn seed(a: u32, b: u32, c: u32, d: u32) {
    made([u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(d)]);
}

fn made(secret: [u64; 2]) -> &'static MemoryLimiter {
    let make = || &*Box::leak(Box::new(MemoryLimiter::with_shards(1).secret(secret).max_keys(KEYS_MAX)));
    MEMORY.with(|memory| *memory.get_or_init(make))
}

/// The counts are those of all limiters.
pub(crate) struct Store;

impl Store {
    #[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
    pub(crate) fn open(_: &mut Options, _: &Policy) -> Result<Self, Error> {
        Ok(Self)
    }

    #[expect(clippy::unused_self, reason = "the stores have one signature")]
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.grant(true).round_trips(0)
    }
}

#[wasm_bindgen]
impl Limit {
    /// Answers a question at once: see [`Limit::with`]. The key has so many bytes.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64) -> i32 {
        with_text(length, |key| self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut answer))
    }
}

/// Asks the counts. The host has drawn their secret.
fn answer(operation: Operation<'_>) -> Result<i32, Error> {
    let reply = pin!(made([0; 2]).apply(operation));
    // The memory waits for nothing.
    match reply.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Ok(reply?.decided().map_or(0, leave)),
        Poll::Pending => Err(operation.unsupported()),
    }
}
