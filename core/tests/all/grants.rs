//! Grants by a gate, without a request.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use std::net::IpAddr;

use pollster::block_on;
use tidegate_core::gate::{Claims, Credit, Gate, Grantee, InvalidToken, Request, Rules, TokenRules, VerifyToken};
use tidegate_core::{
    ClientIpSource, Dimensions, ErasedLimiter, ErrorKind, Key, Limiter, MemoryLimiter, Millis, Platform, UnixMillis,
};
use tidegate_testing::{Declaring, NOW};

const BALANCE: &str = "{ algorithm = 'balance', max = 1_000, by = 'BY' }";

/// A store of one place for each key, as Durable Objects are.
fn one_place() -> impl Limiter {
    Declaring(MemoryLimiter::new().capabilities().dimensions(Dimensions::Grouped), MemoryLimiter::new())
}

/// The subject `alice` of the organisation `acme`.
#[derive(Debug)]
struct Alice;

impl VerifyToken for Alice {
    fn verify(&self, _: &str, expected: &TokenRules, _: UnixMillis) -> Result<Claims, InvalidToken> {
        Claims::new(expected, |name| match name {
            "sub" => Some("alice".into()),
            "org_id" => Some("acme".into()),
            _ => None,
        })
    }
}

fn gate(by: &str, more: &str, store: impl Limiter + 'static) -> Gate<'static> {
    let rules = format!(
        "dimensions = ['tenant']
        tokens = {{ algorithms = ['ES256'], issuer = 'https://example.com', audience = ['a'], keys = {{ org = 'org_id' }} }}
        api_keys = {{ header = 'x-api-key', tiers = {{}}, without_tier = ['{}'] }}
        limits.api.quotas = [{}]
        limits.burst.quotas = [{{ algorithm = 'fixed_window', limit = 100, window_ms = 1_000{more} }}]
        rules = [{{ path = '/api/*', limits = ['burst', 'api'] }}, {{ path = '/login', limits = ['burst'] }}, {{ path = '/chat', limits = ['api'] }}]",
        KEY_HASH,
        BALANCE.replace("'BY'", by)
    );
    let rules = Rules::parse("rules.toml", &rules).unwrap().verify_tokens(Alice);
    Gate::new(rules, store, ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

/// Of the API key `secret`.
const KEY_HASH: &str = "2bb80d537b1da3e38bd30361aa855686";

/// What the balance has paid for two requests of cost 3, by two rules.
fn spent(gate: &Gate<'_>, request: impl Fn(&'static str) -> Request<'static>) -> [u64; 2] {
    ["/api/items", "/chat"].map(|path| {
        let verdict = block_on(gate.check(&request(path).cost(3)));
        verdict.decision().map_or(0, |decision| decision.from_balance())
    })
}

fn at(path: &'static str, headers: &'static [(&str, &str); 2]) -> Request<'static> {
    Request::new("GET", path, headers, NOW)
}

static ANONYMOUS: [(&str, &str); 2] = [("cf-connecting-ip", "2001:db8::7"), ("x-none", "")];
static TOKEN: [(&str, &str); 2] = [("cf-connecting-ip", "192.0.2.1"), ("authorization", "Bearer a.b.c")];
static API_KEY: [(&str, &str); 2] = [("cf-connecting-ip", "192.0.2.1"), ("x-api-key", "secret")];

/// The balance that is granted is the one that a request of this sender is charged, in each kind of store and by each rule.
#[test]
fn a_grant_is_on_the_row_that_requests_count_by() {
    let v6: IpAddr = "2001:db8::9".parse().unwrap();
    let (own, tenant) = (Key::new("room:7"), Key::new("tenant:acme"));
    let (own, tenant): (&'static Key, &'static Key) = (Box::leak(Box::new(own)), Box::leak(Box::new(tenant)));
    let keys: &'static [(&str, &Key)] = Box::leak(Box::new([("tenant", tenant)]));
    let org: &'static [(&str, &Key)] = Box::leak(Box::new([("org", &*Box::leak(Box::new(Key::new("org:acme"))))]));
    type Asks = fn(&'static str) -> Request<'static>;
    type Case = (&'static str, Grantee<'static>, &'static [(&'static str, &'static Key)], Asks);
    let cases: [Case; 8] = [
        ("'sender'", Grantee::Subject("alice"), &[], |path| at(path, &TOKEN)),
        ("'sender'", Grantee::Subject("bob"), &[], |path| at(path, &API_KEY).subject("bob")),
        ("'sender'", Grantee::ApiKey("secret"), &[], |path| at(path, &API_KEY)),
        // All addresses of a network are one client.
        ("'sender'", Grantee::Address(v6), &[], |path| at(path, &ANONYMOUS)),
        ("'ip'", Grantee::Address(v6), &[], |path| at(path, &ANONYMOUS).subject("bob")),
        ("'global'", Grantee::Subject("nobody"), &[], |path| at(path, &ANONYMOUS)),
        ("'org'", Grantee::Subject("alice"), org, |path| at(path, &TOKEN)),
        ("['sender', 'org']", Grantee::Subject("alice"), org, |path| at(path, &TOKEN)),
    ];
    for (by, to, given, asks) in cases {
        for grouped in [false, true] {
            // A store of one place decides on one key at a time.
            let more = if grouped { format!(", by = {by}") } else { String::new() };
            let gate = if grouped { gate(by, &more, one_place()) } else { gate(by, &more, MemoryLimiter::new()) };
            let credit = Credit::new("api", to, 6, "order", NOW).keys(given);
            let granted = block_on(gate.grant(&credit)).unwrap();
            assert!(
                granted.quotas().iter().any(|quota| quota.limit() == 1_000 && quota.remaining() == Some(6)),
                "{by}"
            );
            assert!(block_on(gate.grant(&credit)).unwrap().is_replay(), "{by}");
            assert_eq!(spent(&gate, asks), [3, 3], "{by}, {to:?}, {grouped}");
            assert_eq!(spent(&gate, asks), [0, 0], "{by}, {to:?}, {grouped}");
        }
    }
    // The application's keys.
    let by_tenant = gate("'tenant'", "", MemoryLimiter::new());
    block_on(by_tenant.grant(&Credit::new("api", Grantee::Key(own), 6, "order", NOW).keys(keys))).unwrap();
    assert_eq!(spent(&by_tenant, |path| at(path, &ANONYMOUS).keys(keys)), [3, 3]);
    let by_sender = gate("'sender'", "", MemoryLimiter::new());
    block_on(by_sender.grant(&Credit::new("api", Grantee::Key(own), 6, "order", NOW))).unwrap();
    assert_eq!(spent(&by_sender, |path| at(path, &ANONYMOUS).key(own)), [3, 3]);
    // Another sender has none of it.
    assert_eq!(spent(&by_sender, |path| at(path, &TOKEN)), [0, 0]);
}

#[test]
fn units_of_a_grant_expire_and_its_token_is_forgotten() {
    let gate = gate("'sender'", "", MemoryLimiter::new());
    let hour = Millis::from_secs(3_600);
    let credit =
        Credit::new("api", Grantee::Subject("alice"), 6, "order", NOW).expires(NOW + hour).remembered_for(hour);
    block_on(gate.grant(&credit)).unwrap();
    let left = |now| {
        let again = Credit::new("api", Grantee::Subject("alice"), 1, "peek", now).remembered_for(Millis::new(1));
        block_on(gate.grant(&again)).unwrap().quotas().last().unwrap().remaining()
    };
    assert_eq!([left(NOW), left(NOW + hour)], [Some(7), Some(2)]);
}

#[test]
fn what_a_grant_names_is_checked() {
    let gate = gate("'sender'", "", MemoryLimiter::new());
    let alice = Grantee::Subject("alice");
    let key = Key::new("a");
    let (keys, nobody) = ([("tenent", &key)], Key::new(""));
    let said = |credit: &Credit<'_>| {
        let error = block_on(gate.grant(credit)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    let to = |limit: &'static str, to| Credit::new(limit, to, 5, "order", NOW);
    let cases = [
        (
            to("apy", alice),
            r#"limit: "apy" is not a limit of any rule; did you mean "api"? Write one of "api", "burst""#,
        ),
        (
            to("burst", alice),
            r#"limit: of the limit "burst": it has no balance; add a quota with algorithm = "balance""#,
        ),
        (to("api", alice).tier("pro"), r#"tier: "pro" is not a tier; there is none"#),
        (to("api", alice).store("other"), r#"store: there is no store "other"; write one of "default""#),
        (to("api", alice).keys(&keys), r#"keys: "tenent" is not a dimension; did you mean "tenant"?"#),
        (to("api", Grantee::Subject("")), "the text is empty"),
        (to("api", Grantee::Key(&nobody)), "the text is empty"),
        (to("api", Grantee::Address("0.0.0.0".parse().unwrap())), "0.0.0.0 identifies no client"),
        (Credit::new("api", alice, 5, " ", NOW), "the token is empty"),
        (Credit::new("api", alice, 0, "order", NOW), "units: 0 is out of range"),
        (Credit::new("api", alice, 1_001, "order", NOW), "units: the balance would pass its max"),
    ];
    for (credit, message) in cases {
        assert!(said(&credit).contains(message), "{}\n{message}", said(&credit));
    }
    let by_address = self::gate("'ip'", "", MemoryLimiter::new());
    let wrong = block_on(by_address.grant(&to("api", alice))).unwrap_err().to_string();
    assert_eq!(wrong, r#"to: of the limit "api": it counts by the client's address; give a Grantee::Address"#);
    let by_tenant = self::gate("'tenant'", "", MemoryLimiter::new());
    let wrong = block_on(by_tenant.grant(&to("api", alice))).unwrap_err().to_string();
    assert_eq!(wrong, r#"keys: of the limit "api": it counts by "tenant"; give that key with Credit::keys"#);
}

#[test]
fn a_limit_in_several_stores_has_a_balance_in_each() {
    let rules = "limits.api.quotas = [{ algorithm = 'balance', max = 100 }]
        rules = [{ path = '/a', limits = ['api'], store = 'one' }, { path = '/b', limits = ['api'], store = 'two' }]";
    let store = || Box::new(MemoryLimiter::new()) as Box<dyn ErasedLimiter>;
    let stores = [("one", store()), ("two", store())];
    let gate = Gate::with_stores(
        Rules::parse("rules.toml", rules).unwrap(),
        stores,
        ClientIpSource::new(Platform::Cloudflare),
    );
    let gate = gate.unwrap();
    let credit = Credit::new("api", Grantee::Subject("bob"), 6, "order", NOW);
    let wrong = block_on(gate.grant(&credit)).unwrap_err().to_string();
    assert_eq!(wrong, r#"store: of the limit "api": rules count in "one" and in "two"; name one with Credit::store"#);
    block_on(gate.grant(&credit.store("two"))).unwrap();
    let passes = |path| block_on(gate.check(&at(path, &ANONYMOUS).subject("bob"))).decision().unwrap().is_allowed();
    assert_eq!(["/a", "/b"].map(passes), [false, true]);
}

/// A tier may have another balance, and one tier none.
#[test]
fn a_grant_is_by_the_limits_of_the_senders_tier() {
    let rules = format!(
        "api_keys = {{ header = 'x-api-key', tiers = {{ '{KEY_HASH}' = 'pro' }} }}
        limits.api.quotas = [{{ algorithm = 'fixed_window', limit = 2, window_ms = 1_000 }}]
        limits.api.tiers.pro.quotas = [{{ algorithm = 'balance', max = 100 }}]
        rules = [{{ limits = ['api'] }}]"
    );
    let rules = Rules::parse("rules.toml", &rules).unwrap();
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap();
    let of_key = Credit::new("api", Grantee::ApiKey("secret"), 6, "order", NOW);
    assert!(block_on(gate.grant(&of_key)).is_ok());
    assert_eq!(spent(&gate, |path| at(path, &API_KEY)), [3, 3]);
    let bob = Credit::new("api", Grantee::Subject("bob"), 6, "order", NOW);
    assert!(block_on(gate.grant(&bob)).unwrap_err().to_string().contains("it has no balance"));
    assert!(block_on(gate.grant(&bob.tier("pro"))).is_ok());
    let wrong = block_on(gate.grant(&bob.tier("pre"))).unwrap_err().to_string();
    assert!(wrong.contains(r#"tier: "pre" is not a tier; did you mean "pro"?"#), "{wrong}");
}
