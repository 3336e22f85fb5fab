//! The events of a gate: one for each decision, without personal data.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use tidegate_core::gate::{
    Credit, Event, EventSink, Events, Gate, Grantee, LogLimit, OnFailure, Outcome, Request, Rules, Tally,
};
use tidegate_core::{ClientIpSource, ErasedLimiter, ErrorKind, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_testing::{NOW, at, failing};

use crate::gate::{gate, outcome, parse, request};

#[test]
fn each_decision_is_one_event_without_personal_data() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (telling, tally) = (Arc::clone(&lines), Tally::new(10));
    let counted = tally.clone();
    let events = Events::new(move |event: &Event<'_>| {
        counted.event(event);
        telling.lock().unwrap().push(event.to_json());
    });
    let gate = gate().events(events.key_secret([7; 16]).timer(|| 5));
    let post = || request("POST", "/login").subject("alice");
    for request in
        [post(), post(), post(), request("GET", "/health"), request("GET", "/").peer("203.0.113.7".parse().ok())]
    {
        outcome(&gate, &request);
    }
    let lines = lines.lock().unwrap().clone();
    let at = r#"{"at_ms":1800000000000,"rule":"#;
    let expected = [
        r#""login","policy":"login+site","outcome":"allowed","quota":"login","key":"KEY","limit":2,"remaining":1,"latency_us":0,"origin":"store"}"#,
        r#""login","policy":"login+site","outcome":"allowed","quota":"login","key":"KEY","limit":2,"remaining":0,"latency_us":0,"origin":"store"}"#,
        r#""login","policy":"login+site","outcome":"denied","quota":"login","key":"KEY","limit":2,"remaining":0,"latency_us":0,"origin":"store"}"#,
        r#""site","outcome":"listed"}"#,
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    let hash = lines[0].split(r#""key":""#).nth(1).unwrap().split('"').next().unwrap();
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(*line, format!("{at}{}", expected.replace("KEY", hash)));
    }
    let counts = tally.read();
    assert_eq!((counts.allowed, counts.near_limit, counts.denied, counts.listed, counts.failed), (2, 1, 1, 1, 0));
    assert_eq!(format!("{:016x}", counts.top[0].key), hash);
}

/// What was taken is told once.
#[test]
fn an_event_has_what_a_balance_paid() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&lines);
    let events = Events::new(move |event: &Event<'_>| telling.lock().unwrap().push(event.to_json()));
    let quotas =
        [Quota::fixed_window(3, Millis::from_secs(60)).unwrap(), Quota::balance(9).unwrap().covers_excess().unwrap()];
    let rules = Rules::all(Policy::new("api", quotas).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap().events(events);
    let credit = Credit::new("api", Grantee::Subject("alice"), 9, "order", NOW);
    pollster::block_on(gate.grant(&credit)).unwrap();
    let alice = |cost| request("GET", "/").subject("alice").cost(cost);
    for request in [alice(2), alice(5).token("a"), alice(5).token("a"), alice(9)] {
        outcome(&gate, &request);
    }
    let paid =
        |line: &String| line.split(r#""from_balance":"#).nth(1).map(|rest| rest.split(',').next().unwrap().to_owned());
    let lines = lines.lock().unwrap();
    assert_eq!(lines.iter().map(paid).collect::<Vec<_>>(), [None, Some("4".into()), None, None], "{lines:?}");
}

#[test]
fn allowed_requests_are_sampled_and_failures_are_all_told() {
    let of = |limiter: Box<dyn ErasedLimiter>, tally: &Tally| {
        let policy = Quota::fixed_window(100, Millis::from_secs(60)).unwrap();
        let rules = Rules::all(Policy::new("api", [policy]).unwrap(), OnFailure::Open);
        let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Direct)).unwrap();
        gate.events(Events::new(tally.clone()).sample_allowed(NonZero::new(10).unwrap()))
    };
    let (up, down, tally) = (Box::new(MemoryLimiter::new()), Box::new(failing(ErrorKind::Timeout)), Tally::new(10));
    let (up, down) = (of(up, &tally), of(down, &tally));
    for _ in 0..120 {
        outcome(&up, &request("GET", "/"));
    }
    for _ in 0..7 {
        outcome(&down, &request("GET", "/"));
    }
    let counts = tally.read();
    assert_eq!((counts.allowed, counts.denied, counts.failed), (100, 20, 7));
}

/// The keys' hashes in the events of these requests by `subject`.
fn hashes(secret: [u8; 16], subjects: &[&str]) -> Vec<u64> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::clone(&found);
    let gate =
        gate().events(Events::new(move |event: &Event<'_>| keys.lock().unwrap().extend(event.key)).key_secret(secret));
    for subject in subjects {
        outcome(&gate, &request("POST", "/api/users").subject(subject));
    }
    found.lock().unwrap().clone()
}

#[test]
fn a_hash_tells_keys_apart_and_depends_on_the_whole_secret() {
    let (low, high) = ([1; 16], std::array::from_fn(|place| if place < 8 { 1 } else { 2 }));
    let found = hashes(low, &["alice", "bob", "alice"]);
    assert_eq!((found.len(), found[0] == found[2], found[0] == found[1]), (3, true, false));
    assert_eq!(hashes(low, &["alice"]), found[..1]);
    assert_ne!(hashes(high, &["alice"]), found[..1]);
}

#[test]
fn each_outcome_has_its_event_and_its_count() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (tally, tell) = (Tally::new(10), Arc::clone(&told));
    let sink = move |event: &Event<'_>| tell.lock().unwrap().push(event.outcome);
    let text = "[limits.api]
        quotas = [{ algorithm = 'fixed_window', limit = 20, window_ms = 60_000 }]
        [[rules]]
        limits = ['api']
        [[rules]]
        path = '/export'
        limits = ['api']
        cost = 21
        [[rules]]
        path = '/bots'
        challenge = '/challenge'";
    let gate = Gate::new(parse(text).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    // A pair gives each event to both.
    let gate = gate.events(Events::new((sink, tally.clone())));
    for path in ["/bots", "/bots", "/export"].into_iter().chain(std::iter::repeat_n("/", 21)) {
        outcome(&gate, &request("GET", path));
    }
    let mut expected = vec![Outcome::Challenged, Outcome::Challenged, Outcome::NeverAdmissible];
    expected.extend([Outcome::Allowed; 20]);
    expected.push(Outcome::Denied);
    assert_eq!(*told.lock().unwrap(), expected);
    let counts = tally.read();
    assert_eq!((counts.challenged, counts.allowed, counts.denied), (2, 20, 2));
    // With less than a tenth of 20 remaining: the last two.
    assert_eq!(counts.near_limit, 2);
}

/// Without the weight, who reads the lines would take a sample for all.
#[test]
fn a_sampled_event_says_how_many_it_stands_for() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&lines);
    let events = Events::new(move |event: &Event<'_>| telling.lock().unwrap().push(event.to_json()));
    let gate = gate().events(events.sample_allowed(NonZero::new(2).unwrap()));
    for _ in 0..8 {
        outcome(&gate, &request("GET", "/"));
    }
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line.ends_with(r#","weight":2}"#)), "{lines:?}");
}

#[test]
fn a_sink_that_logs_says_so_for_its_pair() {
    struct Logs(bool);
    impl EventSink for Logs {
        fn event(&self, _: &Event<'_>) {}

        fn logs(&self) -> bool {
            self.0
        }
    }
    assert!(!gate().logs() && !gate().events(Events::new(|_: &Event<'_>| ())).logs());
    for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
        let gate = gate().events(Events::new((Logs(one), Logs(other))));
        assert_eq!(gate.logs(), one || other, "{one} {other}");
    }
}

#[test]
fn failures_of_each_kind_are_logged_once_a_second() {
    let limit = LogLimit::default();
    let admit = |kind, ms| limit.admit(kind, at(ms));
    assert_eq!([admit(ErrorKind::Timeout, 0), admit(ErrorKind::Corrupt, 0)], [Some(0), Some(0)]);
    assert_eq!([admit(ErrorKind::Timeout, 999), admit(ErrorKind::Timeout, 1_000)], [None, Some(1)]);
    assert_eq!(admit(ErrorKind::Corrupt, 1_000), Some(0));
}

#[test]
fn a_tally_tells_a_bounded_number_of_rules_apart() {
    let rules: String = (0..6).map(|nth| format!("[[rules]]\npath = \"/{nth}\"\nlimits = [\"api\"]\n")).collect();
    let limit = "limits.api.quotas = [{ algorithm = \"fixed_window\", limit = 100, window_ms = 60_000 }]\n";
    let rules = Rules::parse("rules.toml", &format!("{limit}{rules}")).unwrap();
    let tally = Tally::new(10).rules_max(4);
    let events = Events::new(tally.clone()).sample_allowed(NonZero::new(2).unwrap());
    let gate =
        Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap().events(events);
    for path in ["/0", "/1", "/2", "/3", "/4", "/5"] {
        for address in ["192.0.2.1", "192.0.2.2"] {
            let headers = [("cf-connecting-ip", address)];
            pollster::block_on(gate.check(&Request::new("GET", path, &headers, NOW)));
        }
    }
    let rules = tally.read().rules;
    let told: Vec<_> = rules.iter().map(|tally| (&*tally.rule, tally.decided, tally.busiest.len())).collect();
    // One event in two is sent, and stands for both.
    assert_eq!(told, [("", 6, 1), ("/0", 2, 1), ("/1", 2, 1), ("/2", 2, 1)]);
    assert_eq!((rules[0].busiest[0].count, rules[0].busiest[0].error, rules[0].most_denied.len()), (6, 0, 0));
}
