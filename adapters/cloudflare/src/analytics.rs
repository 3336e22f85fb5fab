//! Events for Analytics Engine.

use tidegate_core::gate::{Event, EventSink};
use tidegate_core::{ErrorKind, Origin};
use worker::{AnalyticsEngineDataPointBuilder, AnalyticsEngineDataset};

/// Writes each event as a data point, for `env.analytics_engine("DATASET")`.
///
/// | column | |
/// |-|-|
/// | `index1` | the rule |
/// | `blob1` to `blob6` | the outcome, the policy, the binding quota, the hashed key, the origin, the error |
/// | `double1` to `double4` | the weight, the limit, what remains, and the store's latency in microseconds; -1 if unknown |
///
/// A Worker may write 250 data points for each request.
#[derive(Debug)]
pub struct AnalyticsSink(AnalyticsEngineDataset);

impl AnalyticsSink {
    /// Writes to this dataset.
    #[must_use]
    pub const fn new(dataset: AnalyticsEngineDataset) -> Self {
        Self(dataset)
    }
}

impl EventSink for AnalyticsSink {
    fn event(&self, event: &Event<'_>) {
        #[expect(clippy::cast_precision_loss, reason = "limits above 2^53 lose their last digits")]
        let number = |value: Option<u64>| value.map_or(-1.0, |value| value as f64);
        let key = event.key.map(|key| format!("{key:016x}")).unwrap_or_default();
        let point = AnalyticsEngineDataPointBuilder::new()
            .indexes([event.rule])
            .add_blob(event.outcome.name())
            .add_blob(event.policy)
            .add_blob(event.quota.unwrap_or_default())
            .add_blob(key.as_str())
            .add_blob(event.origin.map(Origin::name).unwrap_or_default())
            .add_blob(event.error.map(ErrorKind::name).unwrap_or_default())
            .add_double(f64::from(event.weight))
            .add_double(number(event.limit))
            .add_double(number(event.remaining))
            .add_double(number(event.latency_us));
        // Nobody can be told of an error, and it must not refuse a request.
        let _ = point.write_to(&self.0);
    }
}
