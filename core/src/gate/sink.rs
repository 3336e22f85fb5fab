//! Where events go: lines of JSON, `tracing` and `metrics`.

mod log_limit;

use std::io::Write;
use std::sync::{Mutex, PoisonError};

pub use self::log_limit::LogLimit;
#[cfg(feature = "tracing")]
use super::Notice;
use super::{Event, EventSink, Warning};
use crate::MaybeSend;

/// Writes each event and each [warning](Warning) as a line of JSON.
///
/// ```
/// use tidegate_core::gate::{Events, JsonLines};
/// let events = Events::new(JsonLines::new(std::io::stderr()));
/// ```
#[derive(Debug)]
pub struct JsonLines<W>(Mutex<W>);

impl<W: Write + MaybeSend> JsonLines<W> {
    /// Writes to this. Use a buffer for a file: an event is written while its request waits.
    pub const fn new(out: W) -> Self {
        Self(Mutex::new(out))
    }

    /// What the lines were written to.
    pub fn into_inner(self) -> W {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write + Send> EventSink for JsonLines<W> {
    fn event(&self, event: &Event<'_>) {
        self.write(event.to_json());
    }

    fn warning(&self, warning: &Warning<'_>) {
        self.write(warning.to_json());
    }
}

impl<W: Write> JsonLines<W> {
    fn write(&self, line: String) {
        let line = line + "\n";
        // A full disk must not refuse requests.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Sends each event to the subscriber of [`tracing`], with the target `tidegate`. Its level is `DEBUG` if the request was
/// allowed, and `INFO` if it was refused. A [warning](Warning) has the level `INFO`. Of failures, it sends the [notices](Notice) of the gate: one at level `WARN` when a store
/// goes down, one at `INFO` when it is back, and of others at most one a second for each kind of error.
#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
pub struct TracingSink(());

#[cfg(feature = "tracing")]
impl EventSink for TracingSink {
    fn event(&self, event: &Event<'_>) {
        // The gate gives notice of it.
        if event.error.is_some() {
            return;
        }
        macro_rules! send {
            ($level:ident) => {
                tracing::event!(
                    target: "tidegate",
                    tracing::Level::$level,
                    rule = event.rule,
                    policy = event.policy,
                    outcome = event.outcome.name(),
                    quota = event.quota,
                    key = event.key.map(|key| std::format!("{key:016x}")),
                    limit = event.limit,
                    remaining = event.remaining,
                    from_balance = (event.from_balance > 0).then_some(event.from_balance),
                    origin = event.origin.map(crate::Origin::name),
                    latency_us = event.latency_us,
                    weight = event.weight,
                )
            };
        }
        match event.outcome {
            super::Outcome::Allowed => send!(DEBUG),
            _ => send!(INFO),
        }
    }

    fn warning(&self, warning: &Warning<'_>) {
        tracing::event!(
            target: "tidegate",
            tracing::Level::INFO,
            rule = warning.rule,
            policy = warning.policy,
            warning = warning.percent,
            quota = warning.quota,
            key = warning.key.map(|key| std::format!("{key:016x}")),
            limit = warning.limit,
            used = warning.used,
            window_end_ms = warning.window_end.map(crate::UnixMillis::get),
            settled = warning.is_settled,
            may_repeat = warning.may_repeat,
        );
    }

    fn logs(&self) -> bool {
        true
    }

    fn notice(&self, notice: &Notice) {
        notice.log();
    }
}

/// Counts events with the recorder of [`metrics`]: `tidegate_requests_total` by `rule`, `outcome` and `origin` (the component that
/// decided, such as `store` or `fallback`, or `none` if nothing did), and the histogram
/// `tidegate_store_seconds` by `rule`, if there is a [timer](super::Events::timer). `tidegate_warnings_total` by `rule`, `quota` and `percent`
/// counts [warnings](Warning), and `tidegate_balance_units_total` by `rule` and `policy` what balances paid. No label has a key, so their number is
/// bounded.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsSink;

#[cfg(feature = "metrics")]
impl EventSink for MetricsSink {
    fn event(&self, event: &Event<'_>) {
        let rule = std::string::ToString::to_string(event.rule);
        let origin = event.origin.map_or("none", crate::Origin::name);
        let outcome = event.outcome.name();
        let counter = metrics::counter!("tidegate_requests_total", "rule" => rule.clone(), "outcome" => outcome, "origin" => origin);
        counter.increment(u64::from(event.weight));
        if event.from_balance > 0 {
            let policy = std::string::ToString::to_string(event.policy);
            metrics::counter!("tidegate_balance_units_total", "rule" => rule.clone(), "policy" => policy)
                .increment(event.from_balance.saturating_mul(u64::from(event.weight)));
        }
        if let Some(micros) = event.latency_us {
            metrics::histogram!("tidegate_store_seconds", "rule" => rule)
                .record(std::time::Duration::from_micros(micros).as_secs_f64());
        }
    }

    fn warning(&self, warning: &Warning<'_>) {
        let text = std::string::ToString::to_string;
        let (rule, quota, percent) = (text(warning.rule), text(warning.quota), std::format!("{}", warning.percent));
        metrics::counter!("tidegate_warnings_total", "rule" => rule, "quota" => quota, "percent" => percent)
            .increment(1);
    }
}
