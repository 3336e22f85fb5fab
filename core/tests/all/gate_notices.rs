//! What a gate tells of failures: one notice when a store goes down and one when it is back, and of others one a second.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "gate")]

use pollster::block_on;
use tidegate_core::gate::{Gate, Notice, Prepared, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, ErasedLimiter, Error, ErrorKind, Millis, Platform};
use tidegate_testing::{ADVICE, FlakyStore, NOW, at};

/// A gate with the stores `main` and `other`, and this table `stores`.
fn gate(stores: &str, main: &FlakyStore) -> Gate<'static> {
    let text = format!(
        r#"{{ "stores": {stores},
            "limits": {{ "api": {{ "quotas": [{{ "algorithm": "fixed_window", "limit": 1000000, "window_ms": 86400000, "by": "ip" }}] }} }},
            "rules": [{{ "name": "all", "limits": ["api"], "on_failure": "open" }}] }}"#
    );
    let [main, other] = [main.clone(), FlakyStore::default()].map(|store| Box::new(store) as Box<dyn ErasedLimiter>);
    let rules = Rules::parse("rules.json", &text).unwrap();
    Gate::with_stores(rules, [("main", main), ("other", other)], ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

/// The notices of requests that are 100 ms apart.
fn notices(gate: &Gate<'_>, at_ms: impl Iterator<Item = u64>) -> Vec<Notice> {
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let ask = |ms| block_on(gate.check(&Request::new("GET", "/", &headers, at(100 * ms))));
    at_ms.map(ask).filter_map(|verdict| verdict.notice().cloned()).collect()
}

#[test]
fn a_store_that_goes_down_is_one_notice_and_so_is_its_return_in_each_outage() {
    for (stores, replaced) in [
        ("{}", None),
        (r#"{ "main": { "fallback": "other" } }"#, Some("other")),
        (r#"{ "main": { "deny_cache": true, "fallback": { "store": "other", "at_most_ms": 2000 } } }"#, Some("other")),
    ] {
        let main = FlakyStore::default();
        let gate = gate(stores, &main);
        let mut told = notices(&gate, 0..100);
        for (begin, kind) in [(100, ErrorKind::Timeout), (300, ErrorKind::Unavailable), (500, ErrorKind::Timeout)] {
            main.fail(kind);
            told.extend(notices(&gate, begin..begin + 100));
            main.fail(None);
            told.extend(notices(&gate, begin + 100..begin + 200));
        }
        let kinds: Vec<_> = told
            .iter()
            .map(|notice| match notice {
                Notice::Down { store, error, replaced: other, advice } => {
                    assert_eq!((&**store, other.as_deref(), *advice), ("main", replaced, Some(ADVICE)));
                    assert!(notice.to_string().ends_with(&format!("; {ADVICE}")), "{notice}");
                    Some(*error)
                }
                Notice::Up { store, after, failures } => {
                    assert!(**store == *"main" && *failures > 0 && after.get() >= 10_000, "{notice}");
                    None
                }
                other => panic!("{other}"),
            })
            .collect();
        let (timeout, unavailable) = (Some(ErrorKind::Timeout), Some(ErrorKind::Unavailable));
        assert_eq!(kinds, [timeout, None, unavailable, None, timeout, None], "{stores}");
        for notice in &told {
            assert!(!notice.to_string().contains("hunter2") && !format!("{notice:?}").contains("hunter2"), "{notice}");
        }
    }
}

#[test]
fn a_store_that_flaps_is_at_most_two_notices_a_second() {
    let main = FlakyStore::default();
    let gate = gate("{}", &main);
    let mut told = Vec::new();
    for ms in 0..100 {
        main.fail((ms % 2 == 0).then_some(ErrorKind::Timeout));
        told.extend(notices(&gate, ms..ms + 1));
    }
    let downs = told.iter().filter(|notice| matches!(notice, Notice::Down { .. })).count();
    let ups = told.iter().filter(|notice| matches!(notice, Notice::Up { .. })).count();
    assert_eq!((downs, ups, told.len()), (10, 10, 20));
}

#[test]
fn a_store_that_is_asked_first_goes_down_in_no_silence() {
    let near = FlakyStore::default();
    let text = r#"{ "stores": { "main": { "near": { "store": "near", "limit": "flood" } } },
        "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1000, "window_ms": 1000, "by": "ip" }] },
                    "flood": { "quotas": [{ "algorithm": "fixed_window", "limit": 1000, "window_ms": 1000, "by": "ip" }] } },
        "rules": [{ "limits": ["api"] }] }"#;
    let stores = [("main", FlakyStore::default()), ("near", near.clone())];
    let stores = stores.map(|(name, store)| (name, Box::new(store) as Box<dyn ErasedLimiter>));
    let rules = Rules::parse("rules.json", text).unwrap();
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    near.fail(ErrorKind::Timeout);
    let told = notices(&gate, 0..50);
    assert_eq!(
        told,
        [Notice::Down { store: "near".into(), error: ErrorKind::Timeout, replaced: None, advice: Some(ADVICE) }]
    );
    near.fail(None);
    assert!(matches!(&notices(&gate, 50..60)[..], [Notice::Up { .. }]));
}

#[test]
fn other_failures_are_told_once_a_second_for_each_kind_also_those_of_the_application() {
    let main = FlakyStore::default();
    let gate = gate("{}", &main);
    for kind in ErrorKind::ALL.into_iter().filter(|kind| !kind.is_store_failure()) {
        main.fail(kind);
        let told = notices(&gate, 0..25);
        let expected = [0, 9, 9].map(|suppressed| Notice::Failed {
            rule: "all".into(),
            error: kind,
            suppressed,
            advice: Some(ADVICE),
        });
        assert_eq!(told, expected);
        assert!(!told[1].to_string().contains("hunter2") && told[1].to_string().ends_with(ADVICE), "{}", told[1]);
    }
    main.fail(None);
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let request = Request::new("GET", "/", &headers, NOW + Millis::from_secs(60));
    let Prepared::Pending(pending) = gate.prepare(&request) else { panic!() };
    let wrong = || gate.failed(&pending, Error::new(ErrorKind::Invalid, "estimate: 0 charges nothing"));
    let (first, second) = (wrong(), wrong());
    assert!(matches!(first, Verdict::Refuse(_)) && second.notice().is_none());
    assert_eq!(
        first.notice().unwrap().to_string(),
        "the rule \"all\": the limiter failed (invalid), and 4 times since the last line"
    );
}
