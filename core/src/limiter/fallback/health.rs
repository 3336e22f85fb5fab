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
pub(super) struct Observer {
    /// The store's name in the log and the metric. `None` if others tell of it.
    name: Option<Box<str>>,
    also: Option<Box<dyn Observe>>,
}

trait Observe: Fn(Health) + MaybeSend + MaybeSync {}

impl<F: Fn(Health) + MaybeSend + MaybeSync> Observe for F {}

impl Observer {
    pub(super) fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    pub(super) fn also(self, observer: impl Fn(Health) + MaybeSend + MaybeSync + 'static) -> Self {
        Self { also: Some(Box::new(observer)), ..self }
    }

    /// Tells nobody.
    pub(super) const fn none() -> Self {
        Self { name: None, also: None }
    }

    pub(super) fn tell(&self, health: Health) {
        #[cfg(feature = "tracing")]
        if let Some(name) = &self.name {
            log(name, health);
        }
        #[cfg(feature = "metrics")]
        if let Some(name) = &self.name {
            match health {
                Health::Down { .. } => stores_down(name).increment(1.0),
                Health::Up { .. } => stores_down(name).decrement(1.0),
            }
        }
        if let Some(observer) = &self.also {
            observer(health);
        }
    }
}

impl Default for Observer {
    /// A gate with one store calls it so, too.
    fn default() -> Self {
        Self::none().named("default")
    }
}

/// The number of stores of this name that are down.
#[cfg(feature = "metrics")]
pub(crate) fn stores_down(name: &str) -> metrics::Gauge {
    metrics::gauge!("tidegate_stores_down", "store" => std::string::ToString::to_string(name))
}

#[cfg(feature = "tracing")]
fn log(store: &str, health: Health) {
    match health {
        Health::Down { error } => tracing::warn!(
            target: "tidegate",
            store,
            error = error.name(),
            "the store does not answer; this process admits its share of the limits by itself"
        ),
        Health::Up { after, decisions } => tracing::info!(
            target: "tidegate",
            store,
            down_ms = after.get(),
            decisions,
            "the store answers again; these decisions were made without it"
        ),
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.name).finish_non_exhaustive()
    }
}
