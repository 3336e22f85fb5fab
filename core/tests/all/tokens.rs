//! What a token that is valid tells the gate, and what it does not. The signatures have tests in `tidegate-jwt`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use pollster::block_on;
use tidegate_core::gate::{Claims, Gate, InvalidToken, Reason, Request, TokenRules, Verdict, VerifyToken};
use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
use tidegate_testing::NOW;

use crate::gate::{outcome, parse};

/// Every token has this payload.
#[derive(Debug)]
struct Says(String);

impl VerifyToken for Says {
    fn verify(&self, _: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        Claims::of_payload(self.0.as_bytes(), expected, now)
    }
}

const HEADERS: [(&str, &str); 1] = [("authorization", "Bearer a.b.c")];

fn request(path: &str) -> Request<'_> {
    Request::new("GET", path, &HEADERS, NOW).peer("192.0.2.1".parse().ok())
}

/// A gate with these lines in its table `tokens`, for tokens with these members in their payload.
fn gate(tokens: &str, payload: &str) -> Gate<'static> {
    let text = format!(
        "[tokens]
        algorithms = ['EdDSA']
        {tokens}
        [limits.api]
        quotas = [{{ algorithm = 'fixed_window', limit = 2, window_ms = 60_000 }}]
        tiers.pro.quotas = [{{ algorithm = 'fixed_window', limit = 9, window_ms = 60_000 }}]
        [[rules]]
        limits = ['api']
        [[rules]]
        path = '/strict'
        limits = ['api']
        invalid_token = 'refuse'"
    );
    let payload = Says(format!("{{ \"sub\": \"alice\", \"exp\": 1800000300{payload} }}"));
    let rules = parse(&text).unwrap().verify_tokens(payload);
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap()
}

#[test]
fn a_pointer_names_a_member_or_a_place_in_a_list() {
    let payload =
        r#", "roles": ["basic", "pro"], "plan": { "01": "pro", "": "pro", "a/b~": "pro" }, "list": [["x", "pro"]]"#;
    for (pointer, is_pro) in [
        ("/roles/1", true),
        ("/roles/0", false),
        ("/roles/01", false),
        ("/roles/+1", false),
        ("/roles/2", false),
        ("/roles/", false),
        ("/roles/-", false),
        ("/roles", false),
        ("/plan/01", true),
        ("/plan/", true),
        ("/plan/a~1b~0", true),
        ("/list/0/1", true),
        ("/list/00/1", false),
    ] {
        let gate = gate(&format!("tier = '{pointer}'"), payload);
        assert_eq!(outcome(&gate, &request("/")), if is_pro { "8 of 9" } else { "1 of 2" }, "{pointer}");
    }
}

/// A token for somebody else is not for a server without a name, and one for nobody is not for a server with one.
#[test]
fn a_token_is_for_its_audience() {
    for (expected, claimed, is_valid) in [
        ("", "", true),
        ("", r#", "aud": "api""#, false),
        ("audience = ['api', 'admin']", "", false),
        ("audience = ['api', 'admin']", r#", "aud": ["web", "admin"]"#, true),
        ("audience = ['api', 'admin']", r#", "aud": "web""#, false),
    ] {
        let gate = gate(expected, claimed);
        let refused = match block_on(gate.check(&request("/strict"))) {
            Verdict::Refuse(refusal) => matches!(refusal.reason(), Reason::InvalidToken(_)),
            Verdict::Pass(_) => false,
        };
        assert_ne!(refused, is_valid, "{expected} {claimed}");
        // Only the rule that says so refuses.
        let (strict, loose, rules) = (request("/strict"), request("/"), gate.rules());
        let [strict, loose] = [&strict, &loose].map(|request| rules.explain(request, gate.client_ip()));
        assert_eq!([strict.is_refused, loose.is_refused], [refused, false]);
        assert_eq!(loose.to_string().contains("sub:alice, of a valid token"), is_valid);
    }
}

#[test]
fn what_is_expected_of_tokens_is_told() {
    let gate = gate("header = 'X-Token'\nissuer = ['https://a.example', 'https://b.example']\naudience = ['api']", "");
    let rules = gate.rules();
    let expected = rules.expected_tokens().unwrap();
    assert_eq!(expected.header(), "x-token");
    assert_eq!((expected.issuers().len(), &*expected.audience()[0], &*expected.algorithms()[0]), (2, "api", "EdDSA"));
    assert!(expected.allows("EdDSA") && !expected.allows("HS256"));
    assert_eq!(rules.fields(), ["x-token"]);
}

/// A host that verifies signatures asynchronously asks for the token first.
#[test]
fn the_token_to_verify_is_that_of_a_sender_who_is_not_refused_anyway() {
    let denying = self::gate("[lists]\ndeny = ['192.0.2.1']", "");
    assert_eq!(denying.token(&request("/")), None);
    assert!(denying.token(&request("/").peer("192.0.2.2".parse().ok())).is_some());
    let gate = gate("", "");
    assert_eq!(gate.token(&request("/")).as_deref(), Some("a.b.c"));
    assert_eq!(gate.token(&Request::new("GET", "/", &[("x-other", "a.b.c")], NOW)), None);
    // A field of its own needs no scheme.
    let own = self::gate("header = 'x-token'", "");
    assert_eq!(own.token(&Request::new("GET", "/", &[("x-token", "a.b.c")], NOW)).as_deref(), Some("a.b.c"));
    // An empty token is an invalid one.
    for (value, found) in [
        ("bearer a.b.c", Some("a.b.c")),
        ("Bearer", Some("")),
        ("Bearer ", Some("")),
        ("Bearer a b", None),
        ("Basic a.b.c", None),
        ("a.b.c", None),
    ] {
        let headers = [("authorization", value)];
        assert_eq!(gate.token(&Request::new("GET", "/", &headers, NOW)).as_deref(), found, "{value}");
    }
}
