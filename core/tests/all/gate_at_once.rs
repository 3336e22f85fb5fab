//! A request that is decided without a future gets the verdict, and the charge, that it gets otherwise.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::net::IpAddr;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::gate::{Gate, Prepared, Request, Verdict};
use tidegate_core::store::VersionedLimiter;
use tidegate_core::{ClientIpSource, Key, MemoryLimiter, Millis, Platform};
use tidegate_testing::{NOW, Table};

use crate::gate::{RULES, parse, request};

/// Limits of each kind that the terms of a rule tell apart.
const MORE: &str = r#"
[limits.warned]
quotas = [{ algorithm = "token_bucket", capacity = 5, refill = 1, per_ms = 1_000, warn_at = [40, 100] }]

[limits.slots]
quotas = [{ algorithm = "concurrency", limit = 2, lifetime_ms = 5_000 }]

[limits.monthly]
quotas = [{ algorithm = "calendar_window", limit = 7, every = "hour" }]

[responses]
draft_6_fields = true

[[rules]]
path = "/warned"
limits = ["warned"]

[[rules]]
path = "/slots"
limits = ["slots"]
cost = 2

[[rules]]
path = "/monthly"
limits = ["monthly", "site"]

[[rules]]
path = "/estimated"
limits = ["warned"]
estimate = 2
"#;

/// A limit whose number each request may have, so that no request of these rules has the terms that were compiled.
const DATA: &str = r#"
[limits.data]
quotas = [{ algorithm = "fixed_window", limit = 4, window_ms = 5_000, limit_from = { application = "rpm", max = 9 } }]

[[rules]]
path = "/data"
limits = ["data"]
on_failure = "open"
"#;

/// Rules without lists, tokens, tiers and API keys: most requests count by the address of the client.
const PLAIN: &str = r#"
dimensions = ["tenant"]

[limits.site]
quotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 5_000 }]

[limits.address]
quotas = [{ algorithm = "token_bucket", capacity = 2, refill = 1, per_ms = 2_000, by = "ip" }]

[limits.tenant]
quotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 5_000, by = "tenant" }]

[limits.all]
quotas = [{ algorithm = "fixed_window", limit = 6, window_ms = 5_000, by = "global" }]

[[rules]]
limits = ["site"]

[[rules]]
path = "/login"
limits = ["address"]
cost = 2

[[rules]]
path = "/api/*"
limits = ["tenant"]

[[rules]]
path = "/warned"
limits = ["site", "address"]

[[rules]]
path = "/slots"
limits = ["all"]

[[rules]]
path = "/monthly"
challenge = "/captcha"

[[rules]]
path = "/health"
"#;

/// A list that has none of the senders, so that each is looked for.
const LIST: &str = r#"
[lists]
deny = ["203.0.113.250"]
"#;

const PATHS: [&str; 13] = [
    "/",
    "/login",
    "/api/x",
    "/api/a/export",
    "/health",
    "/warned",
    "/slots",
    "/data",
    "/monthly",
    "/estimated",
    // Readings of these paths have different rules.
    "/api/../login",
    "/%6cogin",
    "/api//warned/..",
];

const PEERS: [Option<&str>; 5] =
    [Some("192.0.2.1"), Some("192.0.2.2"), Some("203.0.113.7"), Some("198.51.100.9"), None];

#[derive(Clone, Debug)]
struct Asked {
    post: bool,
    path: usize,
    peer: usize,
    has_key: bool,
    tier: Option<&'static str>,
    cost: Option<u64>,
    token: Option<u8>,
    rpm: Option<u64>,
    after: u64,
}

fn asked() -> impl Strategy<Value = Asked> {
    let tier = prop::sample::select(vec![None, None, None, Some("pro"), Some("staff"), Some("other")]);
    let cost = prop::option::weighted(0.3, 0..8_u64);
    let rest = (prop::option::weighted(0.2, 0..3_u8), prop::option::weighted(0.3, 0..12_u64), 0..900_u64);
    (any::<bool>(), 0..PATHS.len(), 0..PEERS.len(), any::<bool>(), tier, cost, rest).prop_map(
        |(post, path, peer, has_key, tier, cost, (token, rpm, after))| Asked {
            post,
            path,
            peer,
            has_key,
            tier,
            cost,
            token,
            rpm,
            after,
        },
    )
}

fn told(verdict: &Verdict) -> String {
    let level = verdict.level();
    match verdict {
        Verdict::Pass(pass) => {
            let fields: Vec<_> = pass.fields().iter().map(|(name, value)| format!("{name}: {value}")).collect();
            format!("{:?} {fields:?} {level:?} {:?} {:?}", pass.decision(), pass.error(), pass.hold())
        }
        Verdict::Refuse(refusal) => {
            let (status, fields, body) =
                (refusal.rejection().status_code(), refusal.rejection().fields(), refusal.rejection().body());
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            format!("{status} {fields:?} {body} {:?}", refusal.reason())
        }
    }
}

proptest! {
    #[test]
    fn a_verdict_without_a_future_is_that_of_the_whole_way(all in prop::collection::vec(asked(), 1..40), has_data: bool) {
        let gate = || {
            let rules = parse(&[RULES, MORE, if has_data { DATA } else { "" }].concat()).unwrap();
            Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
        };
        let (short, usual, long) = (gate(), gate(), gate());
        let (mut now, mut at_once) = (NOW, 0);
        for one in &all {
            now = now + Millis::new(one.after);
            let headers: &[(&str, &str)] = if one.has_key { &[("x-api-key", "secret")] } else { &[] };
            let peer: Option<IpAddr> = PEERS[one.peer].map(|peer| peer.parse().unwrap());
            let (token, limits) = (one.token.map(|token| format!("token-{token}")), one.rpm.map(|rpm| [("rpm", rpm)]));
            let mut asked = Request::new(if one.post { "POST" } else { "GET" }, PATHS[one.path], &headers, now).peer(peer);
            if let Some(tier) = one.tier { asked = asked.tier(tier); }
            if let Some(cost) = one.cost { asked = asked.cost(cost); }
            if let Some(token) = &token { asked = asked.token(token); }
            if let Some(limits) = &limits { asked = asked.limits(limits); }
            let by = |prepared: Prepared, gate: &Gate<'_>| match prepared {
                Prepared::Decided(verdict) => verdict,
                Prepared::Pending(pending) => block_on(gate.decide(&pending)),
            };
            let first = short.check_at_once(&asked, &|| now);
            at_once += usize::from(matches!(first, Prepared::Decided(Verdict::Pass(_))));
            let verdicts = [by(first, &short), block_on(usual.check(&asked)), by(long.prepare(&asked), &long)];
            let [first, second, third] = verdicts.each_ref().map(told);
            prop_assert_eq!(&first, &third, "{:?}", one);
            prop_assert_eq!(&second, &third, "{:?}", one);
        }
        let plain = |one: &Asked| PATHS[one.path] == "/" && one.peer == 0 && one.token.is_none() && one.rpm.is_none() && one.tier.is_none();
        let first = all.iter().take_while(|one| plain(one)).count();
        prop_assert!(has_data || at_once >= usize::from(first > 0));
    }
}

proptest! {
    #[test]
    fn who_counts_by_the_address_alone_gets_what_a_list_of_others_gives(
        all in prop::collection::vec((asked(), 0..4_u8), 1..40),
        has_data: bool,
    ) {
        let gate = |list: &str| {
            let rules = parse(&[PLAIN, if has_data { DATA } else { "" }, list].concat()).unwrap();
            Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
        };
        let gates = [gate(""), gate(LIST)];
        let (mut now, key, headers) = (NOW, Key::new("tenant:7"), [("x-api-key", "secret")]);
        for (one, identity) in &all {
            now = now + Millis::new(one.after);
            let peer: Option<IpAddr> = PEERS[one.peer].map(|peer| peer.parse().unwrap());
            let (limits, keys) = (one.rpm.map(|rpm| [("rpm", rpm)]), [("tenant", &key)]);
            let mut asked = Request::new("GET", PATHS[one.path], &headers, now).peer(peer);
            asked = match identity {
                1 => asked.key(&key),
                2 => asked.subject("alice"),
                3 => asked.api_key("secret"),
                _ => asked,
            };
            if one.has_key { asked = asked.keys(&keys); }
            if let Some(tier) = one.tier { asked = asked.tier(tier); }
            if let Some(cost) = one.cost { asked = asked.cost(cost); }
            if let Some(limits) = &limits { asked = asked.limits(limits); }
            let [plain, listed] = gates.each_ref().map(|gate| told(&block_on(gate.check(&asked))));
            prop_assert_eq!(plain, listed, "{:?} {}", one, identity);
        }
    }
}

#[test]
fn a_store_that_waits_is_asked_for_nothing() {
    let table = Table::default();
    let gate =
        Gate::new(parse(RULES).unwrap(), VersionedLimiter::new(table), ClientIpSource::new(Platform::Direct)).unwrap();
    for _ in 0..5 {
        assert!(matches!(gate.check_at_once(&request("GET", "/"), &|| NOW), Prepared::Pending(_)));
    }
    let Verdict::Pass(pass) = block_on(gate.check(&request("GET", "/"))) else { panic!("refused") };
    assert_eq!(pass.decision().unwrap().binding().remaining(), Some(99));
}
