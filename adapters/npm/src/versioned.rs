//! A store with conditional writes: Netlify Blobs, or Deno KV. The host reads and writes.

use tidegate_core::store::Changed;
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift, Error, Key, Millis, Operation, Policy};
use wasm_bindgen::prelude::*;

use crate::limit::{Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_bytes, leave_number, leave_text, number, with_bytes, with_text};

/// One value for each key of a policy.
pub(crate) struct Store {
    /// Whether every read returns the last write.
    is_exact: bool,
    min_ttl: Millis,
}

impl Store {
    #[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
    pub(crate) fn open(options: &mut Options, _: &Policy) -> Result<Self, Error> {
        Ok(Self { is_exact: options.flag(), min_ttl: options.millis() })
    }

    /// A request whose writes conflict too often is an error. A request that reads an old value is denied too long.
    pub(crate) const fn capabilities(&self) -> Capabilities {
        let accuracy = if self.is_exact { Accuracy::Exact } else { Accuracy::Approximate(Drift::WITHIN_LIMIT) };
        Capabilities::EXACT
            .accuracy(accuracy)
            .algorithms(Capabilities::COUNTING)
            .dimensions(Dimensions::One)
            .block(false)
            .idempotency(false)
            .round_trips(2)
    }
}

#[wasm_bindgen]
impl Limit {
    /// Leaves the name of the value that a question is about.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64) -> i32 {
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut |operation| {
                Ok(leave_text(&operation.keys().single(&self.policy)?.storage_key(&self.policy)))
            })
        })
    }

    /// Decides by a stored value of so many bytes, or by none if the length is negative. The key is pushed. Leaves the decision, and
    /// the bytes to be stored in the value's place; the one more number is how long to keep them. Returns 0 if nothing is to
    /// be stored. The decision counts once they are.
    pub fn read(&self, kind: u32, length: i32, cost: f64, now: f64, extra: f64) -> i32 {
        self.with(Question { kind, cost, now, extra }, Key::missing_ip(), &mut |operation| {
            if let Operation::Reset { .. } = operation {
                return Ok(0);
            }
            let Changed { decision, value } = changed(&operation, length)?;
            leave(&decision);
            let Some((bytes, ttl)) = value else { return Ok(0) };
            leave_number(number(ttl.max(self.store.min_ttl).get()));
            Ok(leave_bytes(&bytes))
        })
    }
}

fn changed(operation: &Operation<'_>, length: i32) -> Result<Changed, Error> {
    match usize::try_from(length) {
        Ok(length) => with_bytes(length, |bytes| operation.change(Some(bytes))),
        Err(_) => operation.change(None),
    }
}
