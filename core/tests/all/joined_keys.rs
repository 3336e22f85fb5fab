//! Quotas that count by one key of several dimensions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidegate_core::gate::{Gate, OnFailure, Prepared, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, Key, MemoryLimiter, Millis, Platform, Policy, Quota, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const NO_HEADERS: [(&str, &str); 0] = [];

fn minute(limit: u64) -> Quota {
    Quota::fixed_window(limit, Millis::from_secs(60)).unwrap()
}

/// A gate whose only quota admits one request of each key.
fn gate(parts: &[&str]) -> Gate<'static> {
    let policy = Policy::new("api", [minute(1).by_all(parts.iter().copied()).unwrap()]).unwrap();
    let own = parts.iter().copied().filter(|name| !["sender", "ip", "ja4", "global"].contains(name));
    let rules = Rules::all(policy, OnFailure::Closed).with_dimensions(own);
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
}

fn passes(gate: &Gate<'_>, request: &Request<'_>) -> bool {
    matches!(pollster::block_on(gate.check(request)), Verdict::Pass(_))
}

#[test]
fn a_list_of_one_is_the_name_and_its_errors_say_what_to_write() {
    assert_eq!(minute(1).by_all(["ip"]).unwrap(), minute(1).by("ip").unwrap());
    assert_eq!(minute(1).by_all(["ip", "ja4"]).unwrap().dimension(), "ip+ja4");
    for (parts, expected) in [
        (&[][..], "by: an empty list; write the name of a dimension"),
        (&["ip", "ip"], "by: \"ip\" is written twice; write it once"),
        (&["ip", ""], "by: \"\" cannot be a name"),
        (&["ip+ja4"], "by: \"ip+ja4\" cannot be a name"),
        (&["seventeen-letters", "sixteen-letters."], "by: the names have 34 characters"),
    ] {
        let error = minute(1).by_all(parts.iter().copied()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(minute(1).by_all(["sixteen-letters-", "fifteen-letters"]).is_ok());
}

#[test]
fn each_combination_has_counts_of_its_own() {
    let gate = gate(&["ip", "ja4"]);
    let from = |address: [u8; 4], ja4| Request::new("GET", "/", &NO_HEADERS, NOW).peer(Some(address.into())).ja4(ja4);
    assert!(passes(&gate, &from([192, 0, 2, 1], "a")));
    assert!(!passes(&gate, &from([192, 0, 2, 1], "a")));
    assert!(passes(&gate, &from([192, 0, 2, 1], "b")));
    assert!(passes(&gate, &from([192, 0, 2, 2], "a")));
    // Without a fingerprint, the clients of an address share one count, however the lack is told.
    assert!(passes(&gate, &from([192, 0, 2, 1], "")));
    assert!(!passes(&gate, &Request::new("GET", "/", &NO_HEADERS, NOW).peer(Some([192, 0, 2, 1].into()))));
    assert!(passes(&gate, &Request::new("GET", "/", &NO_HEADERS, NOW)));
    assert!(!passes(&gate, &Request::new("GET", "/", &NO_HEADERS, NOW).ja4("")));
}

#[test]
fn a_joined_key_without_an_address_lacks_it_as_one_alone_does() {
    let gate = gate(&["ja4", "ip"]);
    let lacks = |request: &Request<'_>| match gate.prepare(request) {
        Prepared::Pending(pending) => pending.lacks_address(),
        Prepared::Decided(_) => panic!("the store was not asked"),
    };
    let request = Request::new("GET", "/", &NO_HEADERS, NOW).ja4("t13d");
    assert!(lacks(&request));
    assert!(!lacks(&request.clone().peer(Some([192, 0, 2, 1].into()))));
}

#[test]
fn two_quotas_count_each_key_alone_and_a_list_counts_the_pair() {
    let rules = |quotas: &str| {
        let text = format!("dimensions = ['user']\nrules = [{{ limits = ['a'] }}]\nlimits.a.quotas = [{quotas}]");
        let rules = Rules::parse("rules.toml", &text).unwrap();
        assert!(rules.warnings().is_empty(), "{:?}", rules.warnings());
        Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
    };
    let quota = |by: &str| format!("{{ algorithm = 'fixed_window', limit = 1, window_ms = 60000, by = {by} }}");
    let (pair, each) = (rules(&quota("['user', 'ip']")), rules(&[quota("'user'"), quota("'ip'")].join(", ")));
    let (alice, bob) = (Key::new("user:alice"), Key::new("user:bob"));
    for (user, address, expected) in [(&alice, 1, (true, true)), (&alice, 2, (true, false)), (&bob, 1, (true, false))] {
        let keys = [("user", user)];
        let request = Request::new("GET", "/", &NO_HEADERS, NOW).peer(Some([192, 0, 2, address].into())).keys(&keys);
        assert_eq!((passes(&pair, &request), passes(&each, &request)), expected, "{user} {address}");
    }
}

#[test]
fn an_explanation_has_the_whole_key_and_names_a_missing_part() {
    let text = "dimensions = ['tenant']\nrules = [{ limits = ['a'] }]\n\
                limits.a.quotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 60000, by = ['tenant', 'ja4'] }]";
    let rules = Rules::parse("rules.toml", text).unwrap();
    let (tenant, source) = (Key::new("tenant:a*"), ClientIpSource::new(Platform::Direct));
    let keys = [("tenant", &tenant)];
    let request = Request::new("GET", "/", &NO_HEADERS, NOW);
    let told = rules.explain(&request.clone().keys(&keys).ja4("t13d"), &source).to_string();
    assert!(told.contains(", by tenant+ja4 = tenant:a%252A%7Cja4:t13d\n"), "{told}");
    let told = rules.explain(&request.clone().keys(&keys), &source).to_string();
    assert!(told.contains(", by tenant+ja4 = tenant:a%252A%7Cja4:unknown\n"), "{told}");
    let explanation = rules.explain(&request, &source);
    let error = explanation.error().expect("no key of the tenant").to_string();
    assert_eq!(error, "keys: the dimension \"tenant\" has no key; give one for each dimension");
}

#[test]
fn an_explanation_has_the_override_of_one_key_where_another_is_missing() {
    let rules = Rules::parse(
        "rules.json",
        r#"{
            "dimensions": ["tenant"],
            "limits": {
                "l0": { "quotas": [{ "algorithm": "fixed_window", "limit": 5, "window_ms": 60000 }] },
                "l1": { "quotas": [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 60000, "by": ["sender", "tenant"] }] }
            },
            "overrides": { "sub:alice": { "l0": { "limit": 17 } } },
            "rules": [{ "limits": ["l0", "l1"] }]
        }"#,
    );
    let request = Request::new("GET", "/", &NO_HEADERS, NOW).subject("alice");
    let told = rules.unwrap().explain(&request, &ClientIpSource::new(Platform::Direct)).to_string();
    assert!(told.contains("l0: fixed_window of 17 in 60 s, by sender = sub:alice, by an override\n"), "{told}");
    assert!(told.contains("by sender+tenant: keys: the dimension \"tenant\" has no key"), "{told}");
}

#[test]
fn a_policy_keeps_its_list_in_json_and_in_bytes() {
    let policy = Policy::new("api", [minute(1).by_all(["ip", "ja4"]).unwrap(), minute(2).by("ip").unwrap()]);
    let policy = policy.unwrap().group_by("ip+ja4").unwrap();
    let json = serde_json::to_value(&policy).unwrap();
    assert_eq!(
        (&json["quotas"][0]["by"], &json["group_by"]),
        (&serde_json::json!(["ip", "ja4"]), &serde_json::json!(["ip", "ja4"]))
    );
    assert_eq!(serde_json::from_value::<Policy>(json).unwrap(), policy);
    let text = r#"{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1, "by": "ip+ja4" }"#;
    assert!(serde_json::from_str::<Quota>(text).unwrap_err().to_string().contains("cannot be a name"));
    let rules = Rules::all(policy.clone(), OnFailure::Closed);
    let same = Rules::from_bytes(&rules.to_bytes()).unwrap();
    assert_eq!(same.rules()[0].policies().next(), Some(&policy));
}

/// Texts that look like what separates keys, what encodes it, or the parts themselves.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 14] =
        [b"|", b"%7C", b"%257C", b"%", b"~", b"ip:", b"a", b"/", b":", b"unknown", b"+", b"\0", b"\xff", &[b'x'; 60]];
    let piece = prop::sample::select(pieces.to_vec());
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_two_lists_have_one_key(
        one in prop::collection::vec(part(), 1..4),
        other in prop::collection::vec(part(), 1..4),
    ) {
        let keys = |list: &[Vec<u8>]| list.iter().map(Key::new).collect::<Vec<_>>();
        let (one, other) = (keys(&one), keys(&other));
        let (joined, others) = (Key::joined(&one), Key::joined(&other));
        // The key of one is that key, and a quota by one dimension is not stored beside one by several.
        if one.len() > 1 && other.len() > 1 {
            prop_assert_eq!(joined == others, one == other, "{:?} {:?}", one, other);
        }
        prop_assert!(joined.as_str().len() <= Key::LEN_MAX);
        prop_assert_eq!(Key::from_text(joined.as_str()), Some(joined));
    }

    /// What a client sends moves nothing from one part to another.
    #[test]
    fn a_gate_admits_one_request_of_each_list(
        lists in prop::collection::vec((part(), part(), part()), 1..8),
    ) {
        let gate = gate(&["tenant", "sender", "ja4"]);
        let mut seen = std::collections::BTreeSet::new();
        for (tenant, subject, ja4) in lists {
            let (subject, ja4) = (String::from_utf8_lossy(&subject).into_owned(), String::from_utf8_lossy(&ja4).into_owned());
            let tenant = Key::new(tenant);
            let keys = [("tenant", &tenant)];
            let request = Request::new("GET", "/", &NO_HEADERS, NOW).keys(&keys).subject(&subject).ja4(&ja4);
            let shared = if ja4.is_empty() { "unknown".to_string() } else { ja4.clone() };
            prop_assert_eq!(passes(&gate, &request), seen.insert((tenant.clone(), subject.clone(), shared)));
        }
    }
}
