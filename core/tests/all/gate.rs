//! The gate: rules files, their errors and warnings, matching, and verdicts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::gate::{
    Event, EventSink as _, Events, Gate, OnFailure, Prepared, Reason, Request, Rule, Rules, Tally, Verdict,
};
use tidegate_core::{
    Block, ClientIpSource, Decision, Error, ErrorKind, Key, Limiter, MemoryLimiter, Millis, Platform, ResponseFields,
    UnixMillis,
};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

const RULES: &str = r#"
[api_keys]
header = "x-api-key"
tiers = { 2bb80d537b1da3e38bd30361aa855686 = "pro" } # "secret"

[lists]
allow = ["198.51.100.0/24", "sub:ops"]
deny = ["203.0.113.7", "2001:db8:bad::/48"]

[limits.site]
quotas = [{ algorithm = "fixed_window", limit = 100, window_ms = 60_000, by = "ip" }]

[limits.login]
quotas = [{ algorithm = "sliding_log", limit = 2, window_ms = 60_000, by = "ip" }]

[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }]
tiers.pro.quotas = [{ algorithm = "fixed_window", limit = 20, window_ms = 60_000 }]
tiers.staff.unlimited = true

[[rules]]
name = "site"
limits = ["site"]

[[rules]]
name = "login"
path = "/login"
methods = ["POST"]
limits = ["login", "site"]

[[rules]]
name = "api"
path = "/api/*"
limits = ["api"]

[[rules]]
name = "export"
path = "/api/{kind}/export"
limits = ["api"]
cost = 5

[[rules]]
name = "health"
path = "/health"
"#;

fn parse(text: &str) -> Result<Rules, Error> {
    Rules::parse("rules.toml", text)
}

fn gate() -> Gate<'static> {
    Gate::new(parse(RULES).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
}

const NO_HEADERS: [(&str, &str); 0] = [];

fn request<'a>(method: &'a str, path: &'a str) -> Request<'a> {
    Request::new(method, path, &NO_HEADERS, NOW).peer("192.0.2.1".parse().ok())
}

/// The limit and what remains, or the status code.
fn outcome(gate: &Gate<'_>, request: &Request<'_>) -> String {
    match block_on(gate.check(request)) {
        Verdict::Pass(pass) => match pass.decision() {
            Some(decision) => format!("{} of {}", decision.binding().remaining().unwrap(), decision.binding().limit()),
            None => "unlimited".into(),
        },
        Verdict::Refuse(refusal) => refusal.rejection().status_code().to_string(),
    }
}

#[test]
fn each_request_has_the_limits_of_its_most_specific_rule() {
    let gate = gate();
    for (method, path, expected) in [
        ("GET", "/", "99 of 100"),
        ("GET", "/api", "9 of 10"),
        ("GET", "/api/users?page=2", "8 of 10"),
        ("GET", "/api/users/export", "3 of 10"),
        ("GET", "/api/users/export", "429"),
        ("GET", "/health", "unlimited"),
        ("GET", "/login", "98 of 100"),
        // Both limits: the site counts it too.
        ("POST", "/login", "1 of 2"),
        ("GET", "/", "96 of 100"),
        ("POST", "/login", "0 of 2"),
        ("POST", "/login", "429"),
        ("POST", "//log%69n/", "429"),
        // A denial charges neither.
        ("GET", "/", "94 of 100"),
    ] {
        assert_eq!(outcome(&gate, &request(method, path)), expected, "{method} {path}");
    }
}

#[test]
fn tiers_have_their_own_numbers_and_the_same_counts() {
    let gate = gate();
    let bad = [("x-api-key", "guess")];
    let key = [("X-Api-Key", "secret")];
    let peer = "192.0.2.1".parse::<IpAddr>().ok();
    let anonymous = Request::new("GET", "/api", &bad, NOW).peer(peer);
    let pro = Request::new("GET", "/api", &key, NOW).peer(peer);
    let alice = || request("GET", "/api").subject("alice");
    assert_eq!(outcome(&gate, &anonymous), "9 of 10");
    assert_eq!(outcome(&gate, &pro), "19 of 20");
    assert_eq!(outcome(&gate, &alice()), "9 of 10");
    assert_eq!(outcome(&gate, &alice().tier("pro")), "18 of 20");
    assert_eq!(outcome(&gate, &alice().tier("staff")), "unlimited");
    assert_eq!(outcome(&gate, &alice().tier("unknown")), "7 of 10");
}

#[test]
fn lists_are_by_network_and_by_key() {
    let gate = gate();
    let from = |peer: &str| request("GET", "/").peer(peer.parse().ok());
    assert_eq!(outcome(&gate, &from("198.51.100.200")), "unlimited");
    assert_eq!(outcome(&gate, &from("::ffff:198.51.100.200")), "unlimited");
    assert_eq!(outcome(&gate, &from("203.0.113.7")), "403");
    assert_eq!(outcome(&gate, &from("203.0.113.8")), "99 of 100");
    assert_eq!(outcome(&gate, &from("2001:db8:bad:1::5")), "403");
    assert_eq!(outcome(&gate, &from("2001:db8:bae::5")), "99 of 100");
    assert_eq!(outcome(&gate, &from("203.0.113.8").subject("ops")), "unlimited");
    // The list of denials comes first.
    assert_eq!(outcome(&gate, &from("203.0.113.7").subject("ops")), "403");
}

#[test]
fn a_store_failure_opens_only_where_the_rule_says_so() {
    for (on_failure, expected) in [("open", "unlimited"), ("closed", "503")] {
        for (kind, opens) in ErrorKind::ALL.map(|kind| (kind, kind.is_store_failure())) {
            let text = format!(
                r#"rules = [{{ limits = ["a"], on_failure = "{on_failure}" }}]
                limits.a.quotas = [{{ algorithm = "fixed_window", limit = 1, window_ms = 1000 }}]"#
            );
            let source = ClientIpSource::new(Platform::Direct);
            let gate = Gate::new(parse(&text).unwrap(), Failing(kind), source).unwrap();
            assert_eq!(outcome(&gate, &request("GET", "/")), if opens { expected } else { "503" }, "{kind}");
        }
    }
}

#[test]
fn a_reload_keeps_counts_and_changes_nothing_if_it_is_invalid() {
    let gate = gate();
    assert_eq!(outcome(&gate, &request("GET", "/api")), "9 of 10");
    gate.reload(parse(&RULES.replace("limit = 10,", "limit = 12,")).unwrap()).unwrap();
    assert_eq!(outcome(&gate, &request("GET", "/api")), "10 of 12");
    let nowhere = parse(&RULES.replace("cost = 5", "store = \"redis\"")).unwrap();
    let error = gate.reload(nowhere).unwrap_err();
    assert_eq!(error.to_string(), r#"rule "export": there is no store "redis"; write one of "default""#);
    assert_eq!(outcome(&gate, &request("GET", "/api")), "9 of 12");
}

/// A slot's charge is remembered for as long as the slot, unless it is settled later.
#[test]
fn a_charge_that_takes_a_slot_is_forgotten_with_the_slot() {
    let rules = |settle_within: &str| {
        format!(
            r#"
            [limits.slots]
            quotas = [
                {{ algorithm = "concurrency", limit = 2, lifetime_ms = 30_000 }},
                {{ algorithm = "fixed_window", limit = 9, window_ms = 3_600_000 }},
            ]
            [[rules]]
            limits = ["slots"]
            {settle_within}
            "#
        )
    };
    let forgets = |rules: &str, settles_later: bool, after_ms: u64| {
        let rules = Rules::parse("rules.toml", rules).unwrap();
        let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap();
        let request = request("GET", "/").token("one");
        let Prepared::Pending(mut pending) = gate.prepare(&request) else { panic!() };
        if settles_later {
            pending.settle_later();
        }
        assert!(matches!(block_on(gate.decide(&pending)), Verdict::Pass(_)));
        let settled = block_on(gate.settle(&pending.hold().unwrap(), 0, NOW + Millis::new(after_ms)));
        settled.is_err_and(|error| error.kind() == ErrorKind::UnknownCharge)
    };
    for (within, settles_later, after_ms, expected) in [
        ("", false, 29_999, false),
        ("", false, 30_000, true),
        ("", true, 30_000, false),
        ("", true, 599_999, false),
        ("", true, 600_000, true),
        ("settle_within_ms = 60_000", false, 59_999, false),
        ("settle_within_ms = 60_000", false, 60_000, true),
        ("settle_within_ms = 60_000", true, 60_000, true),
        // A slot can always be given back.
        ("settle_within_ms = 1", false, 29_999, false),
    ] {
        assert_eq!(forgets(&rules(within), settles_later, after_ms), expected, "{within:?} {settles_later} {after_ms}");
    }
}

#[test]
fn a_charge_with_a_token_is_settled() {
    let gate = gate();
    let Verdict::Pass(pass) = block_on(gate.check(&request("GET", "/api").cost(6).token("one"))) else { panic!() };
    let settled = block_on(gate.settle(pass.hold().unwrap(), 2, NOW)).unwrap();
    assert_eq!(settled.binding().remaining(), Some(8));
    assert_eq!(pass.fields().get(ResponseFields::X_RATELIMIT_REMAINING), Some("4"));
}

#[test]
fn a_key_of_the_application_is_required_if_a_quota_counts_by_it() {
    let text = r#"dimensions = ["tenant"]
        rules = [{ limits = ["a"], on_failure = "open" }]
        limits.a.quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 1000, by = "tenant" }]"#;
    let source = ClientIpSource::new(Platform::Direct);
    let gate = Gate::new(parse(text).unwrap(), MemoryLimiter::new(), source).unwrap();
    let acme = Key::new("tenant:acme");
    assert_eq!(outcome(&gate, &request("GET", "/").keys(&[("tenant", &acme)])), "0 of 1");
    let Verdict::Refuse(refusal) = block_on(gate.check(&request("GET", "/"))) else { panic!() };
    let Reason::Failed(error) = refusal.reason() else { panic!() };
    assert_eq!(error.to_string(), r#"keys: the dimension "tenant" has no key; give one for each dimension"#);
}

#[test]
fn errors_name_the_file_the_line_the_value_and_the_fix() {
    let quota = r#"{ algorithm = "fixed_window", limit = 1, window_ms = 1000 }"#;
    let cases = [
        (
            "[[rules]]\nlimits = [\n  'a',\n  'b',\n]\n[limits.a]\nquotas = [QUOTA]",
            r#"4:3: "b" is not a limit; write one of "a""#,
        ),
        ("[[rules]]\npath = 'api'", r#"2:8: "api": is not a path; begin it with a slash, as in /api/*"#),
        ("[[rules]]\nmethods = ['get']", r#"2:12: "get": is not a method; write one in upper case, such as POST"#),
        ("[[rules]]\nhost = 'a:80x'", ""),
        ("[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 0, window_ms = 1 }]", "limit: 0 is out of range"),
        ("[limits.a]\nquotas = []", "1:1: quotas: 0 is out of range; write 1 to 8 quotas"),
        ("[[rules]]\n[[rules]]\ncolour = 'red'", "3:10: unknown field `colour`; write one of \"name\", \"host\""),
        ("[[rules]]\nname = 'x'\n[[rules]]\nname = 'x'", r#"4:8: "x" is the name of rules[0] too; write another"#),
        ("[lists]\ndeny = ['10.0.0.1', 'ip:10.0.0.1']", r#"2:21: "ip:10.0.0.1" is neither a network nor a key"#),
        ("[lists]\nallow = ['10.0.0.0/33']", r#"2:10: "10.0.0.0/33" is neither a network nor a key"#),
        (
            "[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 1000, by = 'ipp' }]",
            "2:75: \"ipp\" is not a dimension; did you mean \"ip\"? Write one of \"sender\", \"ip\", \"global\", or declare it as \
             one that the application gives: dimensions = [\"ipp\"]",
        ),
        (
            "dimensions = ['tenant']\n[limits.a]\ngroup_by = 'tennant'\nquotas = [QUOTA]",
            "3:12: \"tennant\" is not a dimension; did you mean \"tenant\"? Write one of \"sender\", \"ip\", \"global\", \"tenant\"",
        ),
        ("dimensions = ['ip']", "1:15: the gate itself finds the key of \"ip\"; delete it here"),
        ("dimensions = ['a', 'a']", "1:20: \"a\" is written twice; write it once"),
        ("[[rules]]\ncost = '5'", "2:8: expected a whole number, found a text"),
        ("[[rules]]\nlimits = 5", "2:10: expected a list, found a number"),
        (
            "[limits.a]\nquotas = [{ algorithm = 'gcra' }]",
            r#"2:25: "gcra" is not an algorithm; write one of "fixed_window""#,
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'blocks', cap_ms = 1 }]", r#"did you mean "block"?"#),
        ("[limits.a]\nquotas = [{ algorithm = 'block' }]", "missing field `cap_ms`"),
        (
            "[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 1, name = 5 }]",
            "2:53: expected a text, found a number",
        ),
        (
            "[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 1, base_ms = 1 }]",
            r#"unknown field `base_ms`; write one of "algorithm", "name", "by", "cap_ms""#,
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'block', cap_ms = 0 }]", "cap_ms: 0 is out of range"),
        (
            "[limits.a]\nquotas = [QUOTA, { algorithm = 'penalty', base_ms = 0, factor = 1, cap_ms = 1 }]",
            "or a block in place",
        ),
        ("[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 1 }]", "2:11: missing field `window_ms`"),
        ("[[rules]]\ncost = -1", "-1 is negative; write a whole number from 0"),
        ("[api_keys]\nheader = 'x-api-key'\ntiers = { secret = 'pro' }", "3:20: this is not the hash of an API key"),
        ("[limits.a]\nquotas = [QUOTA]\ntiers.pro = {}", "3:13: write either quotas or unlimited = true"),
        ("rules = [", "1:10: "),
    ];
    for (text, expected) in cases {
        let error = parse(&text.replace("QUOTA", quota)).map(|_| ());
        match error {
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(expected), "{text}\n{message}\n{expected}");
                assert_eq!(message.matches("rules.toml:").count(), 1, "one position: {message}");
            }
            Ok(()) => assert!(expected.is_empty(), "{text}"),
        }
    }
}

/// An operator blocks by the policies of a gate's rules, which have the same keys and counts.
#[test]
fn a_key_that_is_blocked_by_hand_is_refused() {
    let text = r#"
        limits.banned.quotas = [{ algorithm = "block", cap_ms = 86_400_000, by = "ip" }]
        limits.api.quotas = [{ algorithm = "fixed_window", limit = 5, window_ms = 60_000, by = "ip" }]
        rules = [{ limits = ["banned", "api"] }]
    "#;
    let store = MemoryLimiter::new();
    let gate = Gate::new(parse(text).unwrap(), &store, ClientIpSource::new(Platform::Direct)).unwrap();
    assert_eq!(outcome(&gate, &request("GET", "/")), "4 of 5");
    let (rules, key) = (gate.rules(), Key::new("ip:192.0.2.1"));
    let keys = [("ip", &key)];
    let policy = rules.rules()[0].policies().next().unwrap();
    block_on(store.block(Block::new(policy, &keys, Millis::from_secs(90), NOW))).unwrap();
    let Verdict::Refuse(refusal) = block_on(gate.check(&request("GET", "/"))) else { panic!() };
    assert_eq!(refusal.rejection().fields().get(ResponseFields::RETRY_AFTER), Some("90"));
    let explained = rules.explain(&request("GET", "/"), gate.client_ip()).to_string();
    assert!(explained.contains("banned: block by hand, of at most 86400 s, by ip"), "{explained}");
    block_on(store.block(Block::end(policy, &keys, NOW))).unwrap();
    assert_eq!(outcome(&gate, &request("GET", "/")), "3 of 5");
}

#[test]
fn json_has_positions_too() {
    let error = Rules::parse("rules.json", "{ \"rules\": [\n  { \"limits\": [\"a\"] } ] }").unwrap_err();
    assert_eq!(error.to_string(), r#"rules.json:2:16: "a" is not a limit; the file has none"#);
    let twice = r#"{ "limits": { "a": { "quotas": [] }, "a": { "quotas": [] } } }"#;
    assert!(
        Rules::parse("rules.json", twice).unwrap_err().to_string().contains(r#""a" is written twice; write it once"#)
    );
    assert!(
        Rules::parse("rules.yaml", "").unwrap_err().to_string().contains("end the file's name with .toml or .json")
    );
}

#[test]
fn warnings_name_what_is_probably_a_mistake() {
    let text = r#"
[limits.unused]
quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 1000 }]
[[rules]]
path = "/a"
[[rules]]
path = "/a/"
methods = ["GET"]
[[rules]]
name = "hidden"
path = "/%61"
[[rules]]
name = "both"
path = "/a"
methods = ["POST", "GET"]
"#;
    let expected = [
        "rules.toml:9:1: no request reaches hidden, because /a matches all of them first; delete it or move it up",
        "rules.toml:12:1: GET /a and both match some of the same requests, and GET /a applies because it comes first",
        "rules.toml:2:1: no rule has the limit \"unused\"; add it to one or delete it",
    ];
    assert_eq!(parse(text).unwrap().warnings(), expected);
    assert!(parse(RULES).unwrap().warnings().is_empty());
}

#[test]
fn a_policy_placed_by_key_is_stored_beside_the_others_of_that_key() {
    let limit = |name: &str| {
        let quota = tidegate_core::Quota::fixed_window(5, tidegate_core::Millis::from_secs(60)).unwrap();
        tidegate_core::Policy::new(name, [quota.by("ip").unwrap()]).unwrap().place_by_key().unwrap()
    };
    let (login, site) = (limit("login"), limit("site"));
    let both = tidegate_core::Policy::join([&login, &site]).unwrap();
    let key = Key::new("ip:192.0.2.1");
    let named = [("ip", &key)];
    let keys = tidegate_core::Keys::from(&named);
    let stored = keys.storage_keys(&both).unwrap();
    assert_eq!(stored.place(), Some("tg1:@ip:ip:192.0.2.1"));
    assert_eq!(stored.rows()[0], "tg1:@ip:ip:192.0.2.1|login@ip:fw60000");
    for (place, one) in [&login, &site].into_iter().enumerate() {
        for keys in [keys, tidegate_core::Keys::from(&key)] {
            let alone = keys.storage_keys(one).unwrap();
            assert_eq!((alone.place(), &alone.rows()[0]), (stored.place(), &stored.rows()[place]));
        }
    }
}

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

#[test]
fn allowed_requests_are_sampled_and_failures_are_all_told() {
    let of = |limiter: Box<dyn tidegate_core::ErasedLimiter>, tally: &Tally| {
        let policy = tidegate_core::Quota::fixed_window(100, tidegate_core::Millis::from_secs(60)).unwrap();
        let rules = Rules::all(tidegate_core::Policy::new("api", [policy]).unwrap(), OnFailure::Open);
        let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Direct)).unwrap();
        gate.events(Events::new(tally.clone()).sample_allowed(NonZero::new(10).unwrap()))
    };
    let (up, down, tally) = (Box::new(MemoryLimiter::new()), Box::new(Failing(ErrorKind::Timeout)), Tally::new(10));
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

#[test]
fn a_gate_needs_a_store() {
    let source = ClientIpSource::new(Platform::Direct);
    let error = Gate::with_stores(parse(RULES).unwrap(), [], source).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "stores: none; give at least one");
}

/// A limiter that always fails.
struct Failing(ErrorKind);

impl tidegate_core::Limiter for Failing {
    fn capabilities(&self) -> tidegate_core::Capabilities {
        tidegate_core::Capabilities::EXACT
    }

    async fn check(&self, _: tidegate_core::Check<'_>) -> Result<tidegate_core::Decision, Error> {
        Err(Error::new(self.0, "down"))
    }

    async fn peek(&self, check: tidegate_core::Check<'_>) -> Result<tidegate_core::Decision, Error> {
        self.check(check).await
    }

    async fn refund(&self, _: tidegate_core::Refund<'_>) -> Result<(), Error> {
        Err(Error::new(self.0, "down"))
    }

    async fn reset(&self, _: &tidegate_core::Policy, _: tidegate_core::Keys<'_>) -> Result<(), Error> {
        Err(Error::new(self.0, "down"))
    }
}

proptest! {
    /// A list has the addresses of its networks, however they overlap, and no others.
    #[test]
    fn a_list_has_what_its_networks_have(
        networks in prop::collection::vec((any::<[u8; 2]>(), 8_u32..=32), 0..12),
        asked in prop::collection::vec(any::<[u8; 2]>(), 1..20),
    ) {
        let address = |[third, fourth]: [u8; 2]| std::net::Ipv4Addr::new(10, 0, third % 4, fourth);
        let texts: Vec<String> =
            networks.iter().map(|(bytes, bits)| format!("\"{}/{bits}\"", address(*bytes))).collect();
        let text = format!("lists.deny = [{}]\n[[rules]]\n", texts.join(", "));
        let source = ClientIpSource::new(Platform::Direct);
        let gate = Gate::new(parse(&text).unwrap(), MemoryLimiter::new(), source).unwrap();
        for bytes in asked {
            let asked = address(bytes);
            let is_in = |(bytes, bits): &([u8; 2], u32)| {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                address(*bytes).to_bits() & mask == asked.to_bits() & mask
            };
            let expected = if networks.iter().any(is_in) { "403" } else { "unlimited" };
            prop_assert_eq!(outcome(&gate, &request("GET", "/").peer(Some(asked.into()))), expected, "{}", asked);
        }
    }

    /// Of the rules that match a request, a more specific pattern comes first, and of equal ones the first in the file.
    #[test]
    fn patterns_compare_in_the_order_of_rules(
        rules in prop::collection::vec(
            (0..5_usize, "(/(a|b|\\{x\\})){0,3}(/\\*)?", any::<bool>(), any::<bool>(), prop::option::of(1..9_u8)),
            1..12,
        ),
        asked in "(/(a|b|c)){0,4}",
    ) {
        let hosts = ["", "a.example.com", "*.a.example.com", "*.example.com", "*.com"];
        let rules: Vec<_> = rules.into_iter().map(|(host, path, method, header, score)| {
            let mut rule = serde_json::json!({ "path": if path.is_empty() { "/" } else { path.as_str() } });
            if host > 0 { rule["host"] = hosts[host].into(); }
            if method { rule["methods"] = ["GET"].into(); }
            if header { rule["headers"] = ["x-a"].into(); }
            if let Some(score) = score { rule["bot_score_below"] = score.into(); }
            rule
        }).collect();
        let rules = Rules::parse("rules.json", &serde_json::json!({ "rules": rules }).to_string()).unwrap();
        let path = if asked.is_empty() { "/" } else { &asked };
        for host in ["a.example.com", "b.a.example.com", "b.example.com"] {
            let headers = [("host", host), ("x-a", "1")];
            let request = Request::new("GET", path, &headers, NOW).bot_score(0);
            let explanation = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
            let found: Vec<&Rule> = explanation.rule.into_iter().chain(explanation.others.iter().copied()).collect();
            for pair in found.windows(2) {
                let order = pair[0].pattern().cmp_specificity(pair[1].pattern());
                let place = |rule: &Rule| rules.rules().iter().position(|known| known.name() == rule.name());
                prop_assert!(order.is_gt() || (order.is_eq() && place(pair[0]) < place(pair[1])), "{:?}", pair);
            }
        }
    }

    /// The tree finds what a search of all rules in their order of precedence finds.
    #[test]
    fn the_tree_finds_the_most_specific_rule(
        paths in prop::collection::vec("(/(a|b|\\{x\\})){0,3}(/\\*)?", 1..12),
        asked in "(/(a|b|c)){0,4}",
    ) {
        let paths: Vec<String> = paths.into_iter().map(|path| if path.is_empty() { "/".into() } else { path }).collect();
        let text: String = paths.iter().map(|path| format!("[[rules]]\npath = \"{path}\"\n")).collect();
        let rules = parse(&text).unwrap();
        let asked = if asked.is_empty() { "/".to_string() } else { asked };
        let found = rules.find(&request("GET", &asked)).map(|rule| rule.name().to_string());
        let name = |place: usize| rules.rules()[place].name().to_string();
        let mut best: Option<(Vec<u8>, usize)> = None;
        for (place, path) in paths.iter().enumerate() {
            if let Some(rank) = rank(path, &asked)
                && best.as_ref().is_none_or(|(known, _)| rank < *known)
            {
                best = Some((rank, place));
            }
        }
        prop_assert_eq!(found, best.map(|(_, place)| name(place)));
    }

    /// No text is a panic.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}", path in "\\PC{0,80}") {
        let _ = parse(&text);
        let _ = Rules::parse("rules.json", &text);
        let _ = parse(&format!("[[rules]]\npath = {text:?}\nhost = {path:?}"));
        let rules = parse(RULES).unwrap();
        let _ = rules.find(&request(&text, &path));
    }
}

/// How a pattern matches a path, segment by segment: 0 as it is, 1 by any text, 2 at the end, 3 by the star.
fn rank(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let (pattern, star) = pattern.strip_suffix("/*").map_or((pattern, false), |pattern| (pattern, true));
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut rank = Vec::new();
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let segment = segments.next()?;
        rank.push(if part == segment {
            0
        } else if part == "{x}" {
            1
        } else {
            return None;
        });
    }
    let ends = segments.next().is_none();
    if !star && !ends {
        return None;
    }
    rank.push(if star { 3 } else { 2 });
    Some(rank)
}

#[test]
fn a_gate_refuses_a_policy_by_a_dimension_that_nobody_gives() {
    let by = |name: &str| {
        let quota = tidegate_core::Quota::fixed_window(1, tidegate_core::Millis::from_secs(60)).unwrap();
        Rules::all(tidegate_core::Policy::new("api", [quota.by(name).unwrap()]).unwrap(), OnFailure::Open)
    };
    let gate = |rules| Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel));
    for name in ["sender", "ip", "global"] {
        assert!(gate(by(name)).is_ok(), "{name}");
    }
    assert!(gate(by("tenant").with_dimensions(["tenant"])).is_ok());
    let error = gate(by("tennant").with_dimensions(["tenant"])).err().unwrap().to_string();
    assert!(error.starts_with(r#"rule "api": "tennant" is not a dimension; did you mean "tenant"?"#), "{error}");
}

#[test]
fn a_quota_by_the_sender_is_one_without_a_dimension() {
    let quotas = |by: &str| {
        let rules = parse(&format!(
            "rules = [{{ limits = ['a'] }}]\nlimits.a.quotas = [{{ algorithm = 'fixed_window', limit = 1, window_ms = 1000{by} }}]"
        ));
        rules.unwrap().rules()[0].policies().next().unwrap().clone()
    };
    assert_eq!(quotas(", by = 'sender'"), quotas(""));
}

#[test]
fn a_dimension_without_a_quota_is_a_warning() {
    let warnings = parse("dimensions = ['tenant']").unwrap().warnings().to_vec();
    assert_eq!(warnings, ["rules.toml:1:15: no limit counts by \"tenant\"; delete it or write by = \"tenant\" in one"]);
}

#[test]
fn a_request_has_the_limits_of_each_reading_of_its_path() {
    let rules = |on| {
        let limit = |name: &str, limit: u32| {
            format!(
                "[limits.{name}]\nquotas = [{{ algorithm = \"fixed_window\", limit = {limit}, window_ms = 60_000 }}]\n"
            )
        };
        let rule = |path: &str, limit: &str| format!("[[rules]]\npath = \"{path}\"\nlimits = [\"{limit}\"]\n");
        let text = [limit("site", 1000), limit("strict", 5), rule("/*", "site"), rule(on, "strict")];
        Gate::new(parse(&text.concat()).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare))
            .unwrap()
    };
    for (on, path) in [
        ("/files/*", "/files/..//x/y"),
        ("/files/*", "/files/../login"),
        ("/files/*", "/files/..\\login"),
        ("/api/{id}", "/api/."),
        ("/{tenant}/login", "/t\\7/login"),
        ("/{tenant}/login", "/../login"),
        ("/{tenant}/login", "/%2e/login"),
        ("/login", "/l%6Fgin"),
        ("/a/b", "/a//../b"),
    ] {
        let gate = rules(on);
        let passed = (0..20).filter(|_| outcome(&gate, &request("GET", path)) != "429").count();
        assert_eq!(passed, 5, "{on} {path}");
    }
}

#[test]
fn with_case_insensitive_rules_upper_and_lower_case_do_not_differ() {
    let rules = |line: &str| parse(&format!("{line}\n[[rules]]\nname = 'login'\npath = '/Log%49n/\u{e9}/*'")).unwrap();
    let name = |rules: &Rules, path: &str| rules.find(&request("POST", path)).map(|rule| rule.name().to_string());
    let (strict, loose) = (rules(""), rules("case_insensitive = true"));
    for (path, strictly) in [("/LogIn/%C3%A9/x", true), ("/LOGIN/%c3%a9", false), ("/login/%C3%A9/", false)] {
        assert_eq!(name(&loose, path).as_deref(), Some("login"), "{path}");
        assert_eq!(name(&strict, path).is_some(), strictly, "{path}");
    }
}

/// A store that declares less than it can.
struct Lesser(MemoryLimiter, tidegate_core::Capabilities);

impl Limiter for Lesser {
    fn capabilities(&self) -> tidegate_core::Capabilities {
        self.1
    }

    async fn check(&self, check: tidegate_core::Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        self.0.check(check).await
    }

    async fn peek(&self, check: tidegate_core::Check<'_>) -> Result<Decision, Error> {
        self.0.peek(check).await
    }

    async fn refund(&self, refund: tidegate_core::Refund<'_>) -> Result<(), Error> {
        self.0.refund(refund).await
    }

    async fn settle(&self, settle: tidegate_core::Settle<'_>) -> Result<Decision, Error> {
        self.0.settle(settle).await
    }

    async fn reset(&self, policy: &tidegate_core::Policy, keys: tidegate_core::Keys<'_>) -> Result<(), Error> {
        self.0.reset(policy, keys).await
    }
}

#[test]
fn readings_that_one_store_cannot_decide_together_are_decided_one_after_another() {
    let limit = |name: &str, limit: u32| {
        format!("[limits.{name}]\nquotas = [{{ algorithm = 'fixed_window', limit = {limit}, window_ms = 60_000 }}]\n")
    };
    let rules = "[[rules]]\nlimits = ['site']\n[[rules]]\npath = '/login'\nlimits = ['login']\n";
    let rules = parse(&[&limit("site", 4), &limit("login", 3), rules].concat()).unwrap();
    let gate = Gate::new(
        rules,
        Lesser(MemoryLimiter::new(), tidegate_core::Capabilities::EXACT.max_quotas(1)),
        ClientIpSource::new(Platform::Direct),
    )
    .unwrap();
    let outcomes: Vec<_> = (0..4).map(|_| outcome(&gate, &request("POST", "//login/"))).collect();
    assert_eq!(outcomes, ["2 of 3", "1 of 3", "0 of 3", "429"]);
    // The rule with the fewest remaining is told, whichever was asked first.
    assert_eq!(outcome(&gate, &request("GET", "/")), "0 of 4");
    // With a token, what was charged before a denial is returned.
    let other = |token| request("POST", "//login/").subject("alice").token(token);
    let gate = {
        let rules = "[[rules]]\nlimits = ['site']\n[[rules]]\npath = '/login'\nlimits = ['login']\n";
        let rules = parse(&[&limit("site", 1), &limit("login", 9), rules].concat()).unwrap();
        Gate::new(
            rules,
            Lesser(MemoryLimiter::new(), tidegate_core::Capabilities::EXACT.max_quotas(1)),
            ClientIpSource::new(Platform::Direct),
        )
        .unwrap()
    };
    assert_eq!([other("a"), other("b"), other("c")].map(|one| outcome(&gate, &one)), ["0 of 1", "429", "429"]);
    assert_eq!(outcome(&gate, &request("POST", "/login").subject("alice")), "7 of 9");
}

#[test]
fn a_rule_without_a_name_is_called_by_its_methods_and_its_path() {
    let text = "[[rules]]\n[[rules]]\npath = '/login'\nmethods = ['POST', 'PUT']\n[[rules]]\npath = '/login'\nmethods = ['POST', 'PUT']\n\
        headers = ['x-a']\n[[rules]]\nhost = 'api.example.com'\npath = '/v1/*'\n";
    let rules = parse(text).unwrap();
    let names: Vec<&str> = rules.rules().iter().map(Rule::name).collect();
    assert_eq!(names, ["/*", "POST or PUT /login", "POST or PUT /login (2)", "api.example.com/v1/*"]);
}

#[test]
fn a_rule_may_give_an_estimate_if_its_store_can_settle_it() {
    let text = "[[rules]]\nlimits = ['a']\nestimate = 6\n[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 10, window_ms = 60_000 }]";
    let gate = Gate::new(parse(text).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let Verdict::Pass(pass) = block_on(gate.check(&request("POST", "/").token("one"))) else { panic!() };
    assert_eq!(pass.decision().unwrap().binding().remaining(), Some(4));
    let settled = block_on(gate.settle(pass.hold().unwrap(), 1, NOW)).unwrap();
    assert_eq!(settled.binding().remaining(), Some(9));
    let both = parse(&text.replace("estimate = 6", "estimate = 6\ncost = 2")).unwrap_err().to_string();
    assert!(both.ends_with("the rule has a cost, too; write one of them"), "{both}");
    let unable = Lesser(MemoryLimiter::new(), tidegate_core::Capabilities::EXACT.idempotency(false));
    let unable = Gate::new(parse(text).unwrap(), unable, ClientIpSource::new(Platform::Direct)).err().unwrap();
    assert_eq!(unable.to_string(), "rule \"/*\": this store does not support settlements of an estimate");
}
