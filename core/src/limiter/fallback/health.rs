//! Tells when a store goes down, and when it is back.

use std::boxed::Box;
use std::fmt;

use crate::limiter::{MaybeSend, MaybeSync};
use crate::{ErrorKind, Millis};

/// A change of a store's health; see [`Fallback::observer`](super::Fallback::observer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has failed too often to be asked.
    Down {
        /// The kind of its last failure.
        error: ErrorKind,
    },
    /// It has answered again.
    Up {
        /// How long after its first failure.
        after: Millis,
        /// How many decisions were made without it.
        decisions: u64,
    },
}

/// Whom to tell.
#[derive(Default)]
pub(super) struct Observer(Option<Box<dyn Observe>>);

trait Observe: Fn(Health) + MaybeSend + MaybeSync {}

impl<F: Fn(Health) + MaybeSend + MaybeSync> Observe for F {}

impl Observer {
    pub(super) fn new(observer: impl Fn(Health) + MaybeSend + MaybeSync + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    pub(super) fn tell(&self, health: Health) {
        #[cfg(feature = "tracing")]
        log(health);
        #[cfg(feature = "metrics")]
        match health {
            Health::Down { .. } => metrics::gauge!("tidegate_stores_down").increment(1.0),
            Health::Up { .. } => metrics::gauge!("tidegate_stores_down").decrement(1.0),
        }
        if let Some(observer) = &self.0 {
            observer(health);
        }
    }
}

#[cfg(feature = "tracing")]
fn log(health: Health) {
    match health {
        Health::Down { error } => tracing::warn!(
            target: "tidegate",
            error = error.name(),
            "the store does not answer; this process admits its share of the limits by itself"
        ),
        Health::Up { after, decisions } => tracing::info!(
            target: "tidegate",
            down_ms = after.get(),
            decisions,
            "the store answers again; these decisions were made without it"
        ),
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(…)" } else { "None" })
    }
}
