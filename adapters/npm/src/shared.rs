//! What passes between WebAssembly and its host: numbers, and the bytes of texts, in memory that both know.
//!
//! A call of a function passes numbers at the cost of the call. A text or an object as an argument costs many times as much, also
//! in code.

use std::cell::{Cell, RefCell};
use std::error::Error as _;

use tidegate_core::{Decision, Error, Policy};
use wasm_bindgen::prelude::*;

use crate::numbers::{EACH, QUOTAS_AT, put, take};

/// Room for the decision of the longest policy.
const LENGTH: usize = QUOTAS_AT + EACH * Policy::MAX_QUOTAS;

/// The most bytes that are written at one place, which never moves. Most texts are no longer.
const SHORT_MAX: usize = 128;

thread_local! {
    /// A decision, and one more number.
    static NUMBERS: [Cell<f64>; LENGTH + 1] = const { [const { Cell::new(0.0) }; LENGTH + 1] };
    static WRITTEN: RefCell<Written> = const { RefCell::new(Written { short: [0; SHORT_MAX], long: Vec::new() }) };
    static LEFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static TEXTS: RefCell<Vec<Option<String>>> = const { RefCell::new(Vec::new()) };
}

/// What the host has written last. It writes only between calls.
struct Written {
    short: [u8; SHORT_MAX],
    long: Vec<u8>,
}

/// Where the numbers of the last decision are. After them comes one more number, which some functions leave.
#[wasm_bindgen(js_name = numbersAt)]
pub fn numbers_at() -> *const u8 {
    NUMBERS.with(|numbers| numbers.as_ptr().cast())
}

/// Where so many bytes are to be written.
#[wasm_bindgen(js_name = bytesAt)]
pub fn bytes_at(length: usize) -> *const u8 {
    WRITTEN.with_borrow_mut(|written| {
        if length <= SHORT_MAX {
            return written.short.as_mut_ptr();
        }
        if written.long.len() < length {
            written.long.resize(length, 0);
        }
        written.long.as_mut_ptr()
    })
}

/// Where the last bytes were left.
#[wasm_bindgen(js_name = leftAt)]
pub fn left_at() -> *const u8 {
    LEFT.with_borrow(|bytes| bytes.as_ptr())
}

/// Adds a text to those that the next function takes: so many bytes that were written, or none if the length is negative.
#[wasm_bindgen]
pub fn push(length: i32) {
    let text = usize::try_from(length).ok().map(|length| with_text(length, str::to_owned));
    TEXTS.with_borrow_mut(|texts| texts.push(text));
}

/// The texts that were added.
pub(crate) fn texts() -> Vec<Option<String>> {
    TEXTS.take()
}

/// Reads the bytes that the host has written.
pub(crate) fn with_bytes<T>(length: usize, read: impl FnOnce(&[u8]) -> T) -> T {
    WRITTEN.with_borrow(|written| {
        let all: &[u8] = if length <= SHORT_MAX { &written.short } else { &written.long };
        read(all.get(..length).unwrap_or_default())
    })
}

/// Reads the text that the host has written.
pub(crate) fn with_text<T>(length: usize, read: impl FnOnce(&str) -> T) -> T {
    // The host encodes texts as UTF-8.
    with_bytes(length, |bytes| read(str::from_utf8(bytes).unwrap_or_default()))
}

/// Leaves bytes for the host. Returns their number.
pub(crate) fn leave_bytes(bytes: &[u8]) -> i32 {
    LEFT.with_borrow_mut(|left| {
        left.clear();
        left.extend_from_slice(bytes);
    });
    i32::try_from(bytes.len()).unwrap_or_default()
}

/// Leaves a text for the host. Returns its length.
pub(crate) fn leave_text(text: &str) -> i32 {
    leave_bytes(text.as_bytes())
}

/// Leaves the kind and the message of an error for the host. Returns a negative number, which tells their length.
pub(crate) fn leave_error(error: &Error) -> i32 {
    let mut text = format!("{}\n{error}", error.kind().name());
    if let Some(source) = error.source() {
        text.push_str(" (");
        text.push_str(&source.to_string());
        text.push(')');
    }
    -1 - leave_text(&text)
}

/// What a function returns: 0 or a length, or a negative number after an error.
pub(crate) fn told(result: Result<i32, Error>) -> i32 {
    result.unwrap_or_else(|error| leave_error(&error))
}

/// The decision that the host has written, of so many quotas.
pub(crate) fn found(quotas: usize) -> Option<Decision> {
    let mut all = [0.0; LENGTH];
    let all = all.get_mut(..QUOTAS_AT + EACH * quotas)?;
    NUMBERS.with(|numbers| all.iter_mut().zip(numbers).for_each(|(number, written)| *number = written.get()));
    take(all)
}

/// Leaves a decision for the host.
pub(crate) fn leave(decision: &Decision) -> i32 {
    NUMBERS.with(|numbers| put(decision, |place, number| numbers[place].set(number)));
    0
}

/// A number for the host.
#[allow(clippy::cast_precision_loss, reason = "all are below 2^53")]
#[cfg_attr(feature = "memory", expect(dead_code, reason = "other stores do"))]
pub(crate) const fn number(number: u64) -> f64 {
    number as f64
}

/// Leaves one more number for the host.
pub(crate) fn leave_number(number: f64) {
    NUMBERS.with(|numbers| numbers[LENGTH].set(number));
}

/// A number that the TypeScript has checked: whole, not negative and below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}
