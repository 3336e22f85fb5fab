//! The memory of this process as the store.

use std::cell::OnceCell;
use std::rc::Rc;

use tidegate_core::MemoryLimiter;
use wasm_bindgen::prelude::*;

use crate::call::Wire;
use crate::options::Options;

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter in memory.
    #[wasm_bindgen(extends = Options)]
    type Memory;

    /// Four random numbers.
    #[wasm_bindgen(method, getter)]
    fn secret(this: &Memory) -> Vec<u32>;
}

/// The most keys with a count of their own.
const KEYS_MAX: usize = 1_000_000;

thread_local! {
    /// The counts of all limiters, so that two of the same policy count together, as on every other store.
    static MEMORY: OnceCell<&'static MemoryLimiter> = const { OnceCell::new() };
}

pub(crate) type Store = &'static MemoryLimiter;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(options: &Options, _: Rc<Wire>) -> Result<Store, JsValue> {
    let memory: &Memory = options.unchecked_ref();
    Ok(MEMORY.with(|limiter| *limiter.get_or_init(|| Box::leak(Box::new(made(&memory.secret()))))))
}

fn made(drawn: &[u32]) -> MemoryLimiter {
    let number = |place: usize| drawn.get(place).map_or(0, |number| u64::from(*number));
    let secret = [number(0) << 32 | number(1), number(2) << 32 | number(3)];
    MemoryLimiter::with_shards(1).secret(secret).capacity(KEYS_MAX)
}
