//! What a test logs.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Records each event of Tidegate as one line of text: its level and its fields.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tidegate"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn Debug| line.push_str(&format!(" {field}={value:?}")));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    /// Records what this thread logs, until the guard is dropped.
    #[must_use]
    pub fn record(&self) -> DefaultGuard {
        // While there is one subscriber, tracing asks whether anyone listens only on the thread that logs an event first, and
        // keeps the answer for all threads. That may be a thread of another test.
        static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));
        LazyLock::force(&ANOTHER);
        set_default(self.clone())
    }

    /// The lines since this was asked last.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
