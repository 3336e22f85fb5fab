//! A limiter that needs random numbers.

use std::cell::OnceCell;
use std::rc::Rc;

use tidegate_core::{Capabilities, Check, Decision, Error, Keys, Limiter, Policy, Refund, Settle};

use crate::wire::{Met, Wire};

/// A limiter that is made by its first call, because Workers have no randomness before their first request.
pub(crate) struct Seeded<L> {
    wire: Rc<Wire>,
    capabilities: Capabilities,
    make: Box<dyn Fn([u64; 2]) -> L>,
    made: OnceCell<L>,
}

impl<L> Seeded<L> {
    pub(crate) fn new(wire: Rc<Wire>, capabilities: Capabilities, make: impl Fn([u64; 2]) -> L + 'static) -> Self {
        Self { wire, capabilities, make: Box::new(make), made: OnceCell::new() }
    }

    pub(crate) async fn made(&self) -> &L {
        if let Some(made) = self.made.get() {
            return made;
        }
        let mut drawn = [0; 2];
        if let Met::Answer(answer) = self.wire.ask("[\"random\"]".into()).await {
            for (number, bytes) in drawn.iter_mut().zip(answer.bytes.as_chunks().0) {
                *number = u64::from_le_bytes(*bytes);
            }
        }
        self.made.get_or_init(|| (self.make)(drawn))
    }
}

impl<L: Limiter> Limiter for Seeded<L> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.made().await.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.made().await.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.made().await.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.made().await.settle(settle).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.made().await.reset(policy, keys).await
    }
}
