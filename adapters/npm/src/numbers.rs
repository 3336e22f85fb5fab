//! The numbers that pass between WebAssembly and its host, in memory that both know.
//!
//! A call of a function passes numbers at the cost of the call. A text or an object costs many times as much.

use std::cell::Cell;

use tidegate_core::internal::numbers::{EACH, QUOTAS_AT, put, take};
use tidegate_core::{Decision, Policy};
use wasm_bindgen::prelude::*;

/// Room for the decision of the longest policy.
const LENGTH: usize = QUOTAS_AT + EACH * Policy::MAX_QUOTAS;

/// The longest text that is passed as bytes.
#[cfg(any(feature = "memory", feature = "redis", feature = "object"))]
const BYTES_MAX: usize = 1_024;

thread_local! {
    static NUMBERS: [Cell<f64>; LENGTH] = const { [const { Cell::new(0.0) }; LENGTH] };
    #[cfg(any(feature = "memory", feature = "redis", feature = "object"))]
    static BYTES: [Cell<u8>; BYTES_MAX] = const { [const { Cell::new(0) }; BYTES_MAX] };
}

/// Where the numbers of the last decision are.
#[wasm_bindgen(js_name = numbersAt)]
pub fn numbers_at() -> *const u8 {
    NUMBERS.with(|numbers| numbers.as_ptr().cast())
}

/// Where the host writes the bytes of a key or of an answer.
#[cfg(any(feature = "memory", feature = "redis", feature = "object"))]
#[wasm_bindgen(js_name = bytesAt)]
pub fn bytes_at() -> *const u8 {
    BYTES.with(|bytes| bytes.as_ptr().cast())
}

/// Reads the bytes that the host has written.
#[cfg(any(feature = "memory", feature = "redis", feature = "object"))]
pub(crate) fn with_bytes<T>(length: usize, read: impl FnOnce(&[u8]) -> T) -> T {
    BYTES.with(|written| {
        // Most are short, and what is not used need not be cleared.
        let (mut few, mut many);
        let bytes: &mut [u8] = if length <= 128 {
            few = [0; 128];
            &mut few[..length]
        } else {
            many = [0; BYTES_MAX];
            &mut many[..length.min(BYTES_MAX)]
        };
        for (byte, cell) in bytes.iter_mut().zip(written) {
            *byte = cell.get();
        }
        read(bytes)
    })
}

/// Leaves a decision for the host.
pub(crate) fn leave(decision: &Decision) {
    NUMBERS.with(|numbers| put(decision, |place, number| numbers[place].set(number)));
}

/// Leaves a time to wait, if there is one, in place of a decision.
#[cfg(feature = "kv")]
pub(crate) fn leave_wait(wait: Option<tidegate_core::Millis>) {
    #[allow(clippy::cast_precision_loss, reason = "seconds at most")]
    NUMBERS.with(|numbers| numbers[0].set(wait.map_or(-1.0, |wait| wait.get() as f64)));
}

/// The decision that the host has written, of so many quotas.
pub(crate) fn found(quotas: usize) -> Option<Decision> {
    let mut all = [0.0; LENGTH];
    let all = all.get_mut(..QUOTAS_AT + EACH * quotas)?;
    NUMBERS.with(|numbers| all.iter_mut().zip(numbers).for_each(|(number, written)| *number = written.get()));
    take(all)
}
