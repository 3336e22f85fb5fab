//! Events reach the subscriber of `tracing`, the recorder of `metrics`, and lines of JSON.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use pollster::block_on;
use tidegate_core::gate::{
    Credit, Event, EventSink, Events, Gate, Grantee, JsonLines, MetricsSink, OnFailure, Request, Rules, TracingSink,
};
use tidegate_core::{ClientIpSource, ErrorKind, Fallback, Limiter, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_testing::{Log, NOW, at, failing, per_minute};

/// Checks three requests, of which one is allowed.
fn three(sink: impl EventSink + 'static) {
    let policy = per_minute(1);
    let rules = Rules::all(policy, OnFailure::Closed);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let gate = gate.events(Events::new(sink).timer(|| 7));
    let request = Request::new("GET", "/", &[("host", "example.com")], NOW);
    for _ in 0..3 {
        block_on(gate.check(&request));
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_of_json() {
    let out = Shared::default();
    three(JsonLines::new(out.clone()));
    let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
    let outcomes: Vec<_> = text.lines().map(|line| line.contains(r#""outcome":"denied""#)).collect();
    assert_eq!(outcomes, [false, true, true], "{text}");
    // A writer that fails changes nothing.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    three(JsonLines::new(Full));
}

fn has_fields(line: &str, fields: &[&str]) -> bool {
    fields.iter().all(|field| line.split(' ').any(|word| word == *field))
}

#[test]
fn events_of_tracing() {
    let log = Log::default();
    let _guard = log.record();
    three(TracingSink::default());
    let lines = log.take_lines();
    let levels: Vec<_> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(levels, ["DEBUG", "INFO", "INFO"]);
    let denied = [r#"rule="api""#, r#"outcome="denied""#, "limit=1", "remaining=0"];
    assert!(has_fields(&lines[1], &denied) && !lines[1].contains(" error="), "{}", lines[1]);
}

/// Sends requests to a gate, 10 ms apart.
fn send(store: impl Limiter, sink: impl EventSink + 'static, count: u64) {
    let policy = per_minute(1_000);
    let rules = Rules::all(policy, OnFailure::Closed);
    let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Vercel)).unwrap().events(Events::new(sink));
    for nth in 0..count {
        let now = at(10 * nth);
        block_on(gate.check(&Request::new("GET", "/", &[("host", "example.com")], now)));
    }
}

#[test]
fn a_store_that_goes_down_is_one_line_that_names_it_and_one_metric() {
    let (log, recorder) = (Log::default(), Recorded::default());
    let _guard = log.record();
    let gauge = recorder.clone();
    let is_down = move |event: &Event<'_>| {
        assert!(event.error.is_some());
        assert_eq!(gauge.0.lock().unwrap()["tidegate_stores_down{store=default}"], 1.0);
    };
    let down = failing(ErrorKind::Timeout);
    metrics::with_local_recorder(&recorder, || send(down, (TracingSink::default(), is_down), 250));
    let lines = log.take_lines();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        has_fields(line, &["WARN", "store=default", r#"error="timeout""#]) && !line.contains("replaced="),
        "{line}"
    );
    // The gate is gone, and so is the store.
    assert_eq!(recorder.0.lock().unwrap()["tidegate_stores_down{store=default}"], 0.0);
}

#[test]
fn an_outage_behind_a_fallback_is_one_line_and_one_metric() {
    let (log, recorder) = (Log::default(), Recorded::default());
    let _guard = log.record();
    let fallback =
        Fallback::new(failing(ErrorKind::Timeout), 50).unwrap().breaker(3, Millis::from_secs(1)).named("main");
    metrics::with_local_recorder(&recorder, || send(fallback, MetricsSink, 50));
    let lines = log.take_lines();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(has_fields(line, &["WARN", r#"error="timeout""#, r#"store="main""#]), "{line}");
    let expected = [
        ("tidegate_requests_total{rule=api,outcome=allowed,origin=fallback}", 50.0),
        ("tidegate_stores_down{store=main}", 1.0),
    ];
    assert_eq!(*recorder.0.lock().unwrap(), expected.map(|(name, value)| (name.to_string(), value)).into());
}

/// The sum over all processes is what a client may get beyond a limit. A gate that asks nothing in the background gives no grace.
#[cfg(all(feature = "lending", feature = "toml"))]
#[test]
fn each_gate_that_gives_a_grace_adds_the_largest_one_of_its_store() {
    use tidegate_core::store::AtomicLimiter;

    let rules = |api: u64, login: u64| {
        let file = format!(
            r#"
            rules = [{{ limits = ["api"] }}, {{ path = "/login", limits = ["login"] }}]

            [limits.api]
            quotas = [{{ algorithm = "fixed_window", limit = 9, window_ms = 1000 }}]
            lease = {{ grace = {api} }}

            [limits.login]
            quotas = [{{ algorithm = "fixed_window", limit = 9, window_ms = 1000 }}]
            lease = {{ grace = {login} }}
            "#
        );
        Rules::parse("rules.toml", &file).unwrap()
    };
    let gate = |rules: Rules| {
        let store = AtomicLimiter::new(crate::lending::store::Store::default());
        Gate::new(rules, store, ClientIpSource::new(Platform::Direct)).unwrap()
    };
    let recorder = Recorded::default();
    let told = || recorder.0.lock().unwrap().get("tidegate_lease_grace{store=default}").copied();
    metrics::with_local_recorder(&recorder, || {
        let (one, other) = (gate(rules(1, 3)), gate(rules(2, 0)));
        assert_eq!(told(), None);
        one.in_background();
        one.in_background();
        assert_eq!(told(), Some(3.0));
        other.in_background();
        assert_eq!(told(), Some(5.0));
        one.reload(rules(1, 3)).unwrap();
        assert_eq!(told(), Some(5.0));
        one.reload(rules(1, 0)).unwrap();
        assert_eq!(told(), Some(3.0));
        drop(other);
        assert_eq!(told(), Some(1.0));
        one.reload(rules(0, 0)).unwrap();
        assert_eq!(told(), Some(0.0));
    });
}

/// Adds up what is counted, by the name and the labels.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>);

struct Series(Recorded, String);

impl Series {
    fn add(&self, value: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(f64::from(u32::try_from(value).unwrap()));
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value + 1.0);
    }
}

impl Recorded {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Series(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[test]
fn what_balances_paid_is_counted() {
    let recorder = Recorded::default();
    metrics::with_local_recorder(&recorder, || {
        let rules = Rules::all(Policy::new("api", [Quota::balance(9).unwrap()]).unwrap(), OnFailure::Closed);
        let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
        let gate = gate.events(Events::new(MetricsSink));
        block_on(gate.grant(&Credit::new("api", Grantee::Subject("alice"), 9, "order", NOW))).unwrap();
        for cost in [2, 3, 9] {
            block_on(gate.check(&Request::new("GET", "/", &[("host", "a")], NOW).subject("alice").cost(cost)));
        }
    });
    let series = recorder.0.lock().unwrap().clone();
    assert_eq!(series.get("tidegate_balance_units_total{rule=api,policy=api}"), Some(&5.0), "{series:?}");
}

#[test]
fn counters_of_metrics() {
    let recorder = Recorded::default();
    metrics::with_local_recorder(&recorder, || three(MetricsSink));
    let series = recorder.0.lock().unwrap().clone();
    let expected = [
        ("tidegate_requests_total{rule=api,outcome=allowed,origin=store}", 1.0),
        ("tidegate_requests_total{rule=api,outcome=denied,origin=store}", 2.0),
        // Three times no time, each counted as 1.
        ("tidegate_store_seconds{rule=api}", 3.0),
    ];
    assert_eq!(series, expected.map(|(name, value)| (name.to_string(), value)).into());
    let told = |event: &Event<'_>| assert!(event.latency_us == Some(0));
    three(told);
}
