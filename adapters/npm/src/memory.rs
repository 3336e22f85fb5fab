//! The memory of this process as the store.

use std::cell::OnceCell;
use std::rc::Rc;

use tidegate_core::{
    Block, Capabilities, Check, Decision, Error, Keys, Limiter, MemoryLimiter, Policy, Refund, Settle, UnixMillis,
};
use wasm_bindgen::prelude::*;

use crate::call::key_of;
use crate::gate::Gate;
use crate::numbers;
use crate::options::{Options, whole};
use crate::wire::Wire;

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
    let make = || &*Box::leak(Box::new(MemoryLimiter::with_shards(1).secret(secret).capacity(KEYS_MAX)));
    MEMORY.with(|memory| *memory.get_or_init(make))
}

/// The counts of all limiters.
pub(crate) struct Store;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(_: &Options, _: Rc<Wire>) -> Result<Store, JsValue> {
    Ok(Store)
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.round_trips(0)
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        made([0; 2]).decide(check)
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        made([0; 2]).peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        made([0; 2]).refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        made([0; 2]).settle(settle).await
    }

    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        made([0; 2]).block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        made([0; 2]).reset(policy, keys).await
    }
}

#[wasm_bindgen]
impl Gate {
    /// Decides on a request of the key whose bytes the host has written. Returns whether it is decided: if not, a [`Caller`]
    /// finds out why.
    ///
    /// [`Caller`]: crate::Caller
    pub fn decide(&self, length: usize, cost: f64, now: f64) -> bool {
        let policy = &self.limit.policy;
        let key =
            numbers::with_bytes(length, |bytes| str::from_utf8(bytes).map(|text| key_of(text, self.limit.is_of_gate)));
        let Ok(key) = key else { return false };
        let check = Check::new(policy, &key, UnixMillis::new(whole(now))).cost(whole(cost));
        let decision = made([0; 2]).decide(check);
        decision.as_ref().inspect(|decision| numbers::leave(decision)).is_ok()
    }
}
