//! The gate: rules files, their errors and warnings, matching, and verdicts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::net::IpAddr;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::gate::{Gate, OnFailure, Prepared, Reason, Request, Rule, Rules, Verdict};
use tidegate_core::{
    Block, ClientIpSource, Error, ErrorKind, Key, LimiterExt, MemoryLimiter, Millis, Platform, ResponseFields,
};
use tidegate_testing::{Declaring, NOW, at, failing, key};

pub(crate) const RULES: &str = r#"
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

pub(crate) fn parse(text: &str) -> Result<Rules, Error> {
    Rules::parse("rules.toml", text)
}

pub(crate) fn gate() -> Gate<'static> {
    Gate::new(parse(RULES).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
}

const NO_HEADERS: [(&str, &str); 0] = [];

pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> Request<'a> {
    Request::new(method, path, &NO_HEADERS, NOW).peer("192.0.2.1".parse().ok())
}

/// The limit and what remains, or the status code.
pub(crate) fn outcome(gate: &Gate<'_>, request: &Request<'_>) -> String {
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
            let gate = Gate::new(parse(&text).unwrap(), failing(kind), source).unwrap();
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
        let settled = block_on(gate.settle(&pending.hold().unwrap(), 0, at(after_ms)));
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
    let (rules, key) = (gate.rules(), key());
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

/// What a host needs of a request that a store has to decide on.
#[test]
fn a_pending_request_tells_its_rule_and_its_cost() {
    let gate = gate();
    let Prepared::Pending(mut pending) = gate.prepare(&request("GET", "/api/a/export")) else { panic!() };
    assert_eq!((pending.rule(), pending.policy().name(), pending.cost()), ("export", "api", 5));
    assert_eq!((pending.needs_token(), pending.estimates(), pending.has_lease()), (false, false, false));
    assert!(pending.hold().is_none());
    pending.set_cost(3);
    pending.set_token("one");
    assert_eq!((pending.cost(), pending.hold().unwrap().has_slots()), (3, false));
}

/// The more general rules that match a request, too, do not apply. Each is told once.
#[test]
fn an_explanation_names_the_rules_that_others_replace() {
    let rules = parse(RULES).unwrap();
    let request = request("POST", "/x/..//login");
    let explained = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
    let names = |rules: &[&Rule]| rules.iter().map(|rule| rule.name().to_string()).collect::<Vec<_>>();
    let applied = [names(&[explained.rule.unwrap()]), names(&explained.also)].concat();
    assert_eq!((applied, names(&explained.others)), (vec!["login".to_string(), "site".into()], vec![]));
    let request = self::request("POST", "/login");
    let explained = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
    assert_eq!((explained.rule.unwrap().name(), names(&explained.others)), ("login", vec!["site".to_string()]));
}

#[test]
fn a_policy_placed_by_key_is_stored_beside_the_others_of_that_key() {
    let limit = |name: &str| {
        let quota = tidegate_core::Quota::fixed_window(5, tidegate_core::Millis::from_secs(60)).unwrap();
        tidegate_core::Policy::new(name, [quota.by("ip").unwrap()]).unwrap().place_by_key().unwrap()
    };
    let (login, site) = (limit("login"), limit("site"));
    let both = tidegate_core::Policy::join([&login, &site]).unwrap();
    let key = key();
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
fn a_gate_needs_a_store() {
    let source = ClientIpSource::new(Platform::Direct);
    let error = Gate::with_stores(parse(RULES).unwrap(), [], source).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "stores: none; give at least one");
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
    for name in ["sender", "ip", "ja4", "global"] {
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
fn a_rule_may_give_an_estimate_if_its_store_can_settle_it() {
    let text = "[[rules]]\nlimits = ['a']\nestimate = 6\n[limits.a]\nquotas = [{ algorithm = 'fixed_window', limit = 10, window_ms = 60_000 }]";
    let gate = Gate::new(parse(text).unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let Verdict::Pass(pass) = block_on(gate.check(&request("POST", "/").token("one"))) else { panic!() };
    assert_eq!(pass.decision().unwrap().binding().remaining(), Some(4));
    let settled = block_on(gate.settle(pass.hold().unwrap(), 1, NOW)).unwrap();
    assert_eq!(settled.binding().remaining(), Some(9));
    let both = parse(&text.replace("estimate = 6", "estimate = 6\ncost = 2")).unwrap_err().to_string();
    assert!(both.ends_with("the rule has a cost, too; write one of them"), "{both}");
    let unable = Declaring(tidegate_core::Capabilities::EXACT.idempotency(false), MemoryLimiter::new());
    let unable = Gate::new(parse(text).unwrap(), unable, ClientIpSource::new(Platform::Direct)).err().unwrap();
    assert_eq!(unable.to_string(), "rule \"/*\": this store does not support settlements of an estimate");
}

#[test]
fn a_rule_may_give_a_cost_if_its_store_counts_costs() {
    let of = |cost: u64, can| {
        let text = format!(
            "[[rules]]\nlimits = ['a']\ncost = {cost}\n[limits.a]\nquotas = [{{ algorithm = 'fixed_window', limit = 10, window_ms = 60_000 }}]"
        );
        let rules = parse(&text).unwrap();
        assert_eq!(rules.rules()[0].cost(), cost);
        Gate::new(rules, Declaring(can, MemoryLimiter::new()), ClientIpSource::new(Platform::Direct)).map(|_| ())
    };
    let (able, unable) = (tidegate_core::Capabilities::EXACT, tidegate_core::Capabilities::EXACT.costs(false));
    assert!(of(1, able).is_ok() && of(2, able).is_ok() && of(1, unable).is_ok());
    for cost in [0, 2] {
        let error = of(cost, unable).unwrap_err().to_string();
        assert_eq!(error, "rule \"/*\": this store does not support a cost");
    }
}
