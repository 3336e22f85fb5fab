//! The memory of this process as the store.

use std::cell::OnceCell;
use std::rc::Rc;

use tidegate_core::{Capabilities, MemoryLimiter};
use wasm_bindgen::prelude::*;

use crate::options::Options;
use crate::seeded::Seeded;
use crate::wire::Wire;

/// The most keys with a count of their own.
const KEYS_MAX: usize = 1_000_000;

thread_local! {
    /// The counts of all limiters, so that two of the same policy count together, as on every other store.
    static MEMORY: OnceCell<&'static MemoryLimiter> = const { OnceCell::new() };
}

pub(crate) type Store = Seeded<&'static MemoryLimiter>;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(_: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    Ok(Seeded::new(wire, Capabilities::EXACT.round_trips(0), |secret| {
        let make = || &*Box::leak(Box::new(MemoryLimiter::with_shards(1).secret(secret).capacity(KEYS_MAX)));
        MEMORY.with(|memory| *memory.get_or_init(make))
    }))
}
