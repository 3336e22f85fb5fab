//! Valid tokens identify senders. Every other token identifies nobody, and never gives more than none.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tidegate_core::gate::{Gate, Reason, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
use tidegate_jwt::KeySet;

const NOW_S: u64 = 1_800_000_000;
const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

const RULES: &str = r#"
[tokens]
algorithms = ["HS256", "RS256", "ES256", "EdDSA"]
issuer = "https://id.example.com/"
audience = ["api", "admin"]
tier = "/plan/name"
keys = { tenant = "org" }

[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 2, window_ms = 60000 }]
[limits.api.tiers.pro]
quotas = [{ algorithm = "fixed_window", limit = 9, window_ms = 60000 }]
[limits.tenant]
quotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 60000, by = "tenant" }]

[[rules]]
path = "/api"
limits = ["api"]
[[rules]]
path = "/tenant"
limits = ["tenant"]
[[rules]]
path = "/strict"
limits = ["api"]
invalid_token = "refuse"
"#;

/// The keys of `keys.json`, by algorithm.
fn keys() -> Value {
    serde_json::from_str(include_str!("keys.json")).unwrap()
}

fn key_set() -> KeySet {
    let keys = keys();
    let mut set: Vec<Value> = ["RS256", "ES256", "EdDSA"].iter().map(|name| keys[name]["jwk"].clone()).collect();
    set.push(json!({ "kty": "oct", "kid": "hs", "k": BASE64.encode(SECRET) }));
    KeySet::from_jwks(&json!({ "keys": set }).to_string()).unwrap()
}

fn claims() -> Value {
    json!({ "sub": "alice", "iss": "https://id.example.com/", "aud": "api", "exp": NOW_S + 300, "nbf": NOW_S })
}

/// The claims with one changed. `null` removes it.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    if claims[name].is_null() {
        claims.as_object_mut().unwrap().remove(name);
    }
    claims
}

fn signed_by(algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
    let private = |name: &str| BASE64.decode(keys()[name]["private"].as_str().unwrap()).unwrap();
    let key = match algorithm {
        Algorithm::RS256 | Algorithm::RS512 => EncodingKey::from_rsa_der(&private("RS256")),
        Algorithm::ES256 => EncodingKey::from_ec_der(&private("ES256")),
        Algorithm::EdDSA => EncodingKey::from_ed_der(&private("EdDSA")),
        _ => EncodingKey::from_secret(SECRET),
    };
    let mut header = Header::new(algorithm);
    header.kid = kid.map(Into::into);
    encode(&header, claims, &key).unwrap()
}

fn signed(claims: &Value) -> String {
    signed_by(Algorithm::HS256, Some("hs"), claims)
}

fn gate(rules: &str, keys: KeySet) -> Gate<'static> {
    let rules = Rules::parse("rules.toml", rules).unwrap().verify_tokens(keys);
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

/// The verdict on a request from 192.0.2.1 at the time of these tests, with these values of the field `authorization`.
fn ask(gate: &Gate<'_>, path: &str, values: &[&str]) -> Verdict {
    let mut headers = vec![("cf-connecting-ip", "192.0.2.1")];
    headers.extend(values.iter().map(|value| ("authorization", *value)));
    pollster::block_on(gate.check(&Request::new("GET", path, &headers, UnixMillis::new(NOW_S * 1_000))))
}

fn remaining(gate: &Gate<'_>, path: &str, token: &str) -> Option<u64> {
    let verdict = ask(gate, path, &[&format!("Bearer {token}")]);
    verdict.decision().and_then(|decision| decision.binding().remaining())
}

#[test]
fn a_valid_token_of_each_algorithm_identifies_its_sender() {
    let gate = gate(RULES, key_set());
    let algorithms =
        [(Algorithm::HS256, "hs"), (Algorithm::RS256, "rsa"), (Algorithm::ES256, "ec"), (Algorithm::EdDSA, "ed")];
    for (place, (algorithm, kid)) in algorithms.into_iter().enumerate() {
        let name = format!("user {place}");
        for (kid, left) in [(Some(kid), Some(1)), (None, Some(0))] {
            let token = signed_by(algorithm, kid, &with("sub", json!(name)));
            assert_eq!(remaining(&gate, "/api", &token), left, "{algorithm:?}");
        }
    }
    // The address has not been counted.
    assert_eq!(ask(&gate, "/api", &[]).decision().unwrap().binding().remaining(), Some(1));
}

#[test]
fn claims_select_the_tier_and_the_keys() {
    let gate = gate(RULES, key_set());
    let mut pro = with("plan", json!({ "name": "pro" }));
    assert_eq!(remaining(&gate, "/api", &signed(&pro)), Some(8));
    pro["plan"]["name"] = json!("unknown");
    // The same sender has used one of its two requests.
    assert_eq!(remaining(&gate, "/api", &signed(&pro)), Some(0));

    let of = |sub: &str, org: Value| {
        let mut claims = with("org", org);
        claims["sub"] = json!(sub);
        signed(&claims)
    };
    assert_eq!(remaining(&gate, "/tenant", &of("a", json!("acme"))), Some(2));
    assert_eq!(remaining(&gate, "/tenant", &of("b", json!("acme"))), Some(1));
    assert_eq!(remaining(&gate, "/tenant", &of("a", json!(7))), Some(2));
    // Without the claim, senders count by themselves, and without a token by their address.
    assert_eq!(remaining(&gate, "/tenant", &of("a", json!(["acme"]))), Some(2));
    assert_eq!(remaining(&gate, "/tenant", &of("b", json!(null))), Some(2));
    assert_eq!(ask(&gate, "/tenant", &[]).decision().unwrap().binding().remaining(), Some(2));
}

#[test]
fn a_token_may_have_any_issuer_of_the_rules() {
    let rules =
        RULES.replace(r#"issuer = "https://id.example.com/""#, r#"issuer = ["https://id.example.com/", "https://b/"]"#);
    let gate = gate(&rules, key_set());
    let refuses = |issuer: Value| {
        let value = format!("Bearer {}", signed(&with("iss", issuer)));
        matches!(ask(&gate, "/strict", &[&value]), Verdict::Refuse(refusal) if refusal.rejection().status_code() == 401)
    };
    // RFC 7519 knows one issuer of a token. Some issuers write a list.
    for issuer in [json!("https://id.example.com/"), json!("https://b/"), json!(["https://b/"])] {
        assert!(!refuses(issuer.clone()), "{issuer}");
    }
    for issuer in [json!("https://b"), json!("https://c/"), json!(["https://c/"]), json!([]), json!(null)] {
        assert!(refuses(issuer.clone()), "{issuer}");
    }
    let empty = RULES.replace(r#"issuer = "https://id.example.com/""#, "issuer = []");
    let error = Rules::parse("rules.toml", &empty).unwrap_err().to_string();
    assert!(error.starts_with("rules.toml:4:10: empty; write the issuers"), "{error}");
}

/// Tokens that are not valid, and why.
fn bad() -> Vec<(String, &'static str)> {
    let part = |value: Value| BASE64.encode(value.to_string());
    let unsigned = |header: Value| format!("{}.{}.", part(header), part(claims()));
    let good = signed(&claims());
    let (head, signature) = good.rsplit_once('.').unwrap();
    let modulus = BASE64.decode(keys()["RS256"]["jwk"]["n"].as_str().unwrap()).unwrap();
    let confused = |kid: Option<&str>| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = kid.map(Into::into);
        encode(&header, &claims(), &EncodingKey::from_secret(&modulus)).unwrap()
    };
    let with_header = |change: &dyn Fn(&mut Header)| {
        let mut header = Header::new(Algorithm::HS256);
        change(&mut header);
        encode(&header, &claims(), &EncodingKey::from_secret(SECRET)).unwrap()
    };
    let mut bad = vec![
        (unsigned(json!({ "alg": "none" })), "not a signed token"),
        (unsigned(json!({ "alg": "None", "kid": "hs" })), "not a signed token"),
        (unsigned(json!({ "alg": "HS256", "kid": "hs" })), "signature"),
        (unsigned(json!({ "kid": "hs" })), "not a signed token"),
        (confused(Some("rsa")), "no key"),
        (confused(Some("hs")), "signature"),
        (confused(None), "signature"),
        (signed_by(Algorithm::HS384, Some("hs"), &claims()), "algorithm"),
        (signed_by(Algorithm::RS512, Some("rsa"), &claims()), "algorithm"),
        (signed_by(Algorithm::RS256, Some("hs"), &claims()), "no key"),
        (signed_by(Algorithm::HS256, Some("other"), &claims()), "no key"),
        (with_header(&|header| header.crit = Some(vec!["exp".into()])), "critical"),
        (format!("{head}.{}", BASE64.encode([0; 32])), "signature"),
        (format!("{head}.{}", &signature[..40]), "signature"),
        (format!("{head}.{signature}A"), "signature"),
        (format!("{head}.{signature}="), "not a signed token"),
        (format!("{head}.{signature}.{signature}"), "not a signed token"),
        (format!("{head}."), "signature"),
        (head.to_string(), "not a signed token"),
        (good.replace('.', ".."), "not a signed token"),
        (format!("{good} {good}"), "not a signed token"),
        (format!("{good}, Bearer {good}"), "not a signed token"),
        (String::new(), "not a signed token"),
        ("..".to_string(), "not a signed token"),
        (signed(&with("filler", json!("x".repeat(9_000)))), "not a signed token"),
        (signed(&json!([])), "not a signed token"),
        (signed(&json!("text")), "not a signed token"),
    ];
    for (name, value, reason) in [
        ("exp", json!(null), "never expires"),
        ("exp", json!(NOW_S - 60), "expired"),
        ("exp", json!(0), "expired"),
        ("exp", json!(-1), "expired"),
        ("exp", json!("2099-01-01"), "not a number"),
        ("exp", json!([NOW_S + 300]), "not a"),
        ("nbf", json!(NOW_S + 61), "not valid yet"),
        ("nbf", json!(1e300), "not valid yet"),
        ("nbf", json!("now"), "not a number"),
        ("iss", json!(null), "lacks"),
        ("iss", json!("https://evil.example.com/"), "issuer"),
        ("iss", json!(7), "lacks"),
        ("aud", json!(null), "lacks"),
        ("aud", json!("other"), "audience"),
        ("aud", json!([]), "audience"),
        ("aud", json!({ "api": true }), "lacks"),
        ("sub", json!(null), "no subject"),
        ("sub", json!(""), "no subject"),
        ("sub", json!({ "name": "alice" }), "not a signed token"),
    ] {
        bad.push((signed(&with(name, value)), reason));
    }
    bad
}

#[test]
fn an_invalid_token_gives_what_no_token_gives() {
    for (token, reason) in bad() {
        let gate = gate(RULES, key_set());
        let value = format!("Bearer {token}");
        let Verdict::Refuse(refusal) = ask(&gate, "/strict", &[&value]) else { panic!("{token}: {reason}") };
        let Reason::InvalidToken(invalid) = refusal.reason() else { panic!("{:?}", refusal.reason()) };
        assert!(invalid.to_string().contains(reason), "{token}: {invalid}, and not {reason}");
        let rejection = refusal.rejection();
        assert_eq!((rejection.status_code(), rejection.body()), (401, r#"{"error":"invalid_token"}"#));
        assert_eq!(rejection.fields().get("www-authenticate"), Some(r#"Bearer error="invalid_token""#));

        // Elsewhere it counts by the address, also for the tenant, and without a tier.
        assert_eq!(remaining(&gate, "/api", &token), Some(1), "{token}");
        assert_eq!(ask(&gate, "/api", &[]).decision().unwrap().binding().remaining(), Some(0));
        assert!(matches!(ask(&gate, "/api", &[&value]), Verdict::Refuse(_)));
        assert_eq!(remaining(&gate, "/tenant", &token), Some(2));
        assert_eq!(ask(&gate, "/tenant", &[]).decision().unwrap().binding().remaining(), Some(1));
    }
}

/// As in the npm package, so that all hosts count the same key.
#[test]
fn a_number_keeps_its_text_as_a_key() {
    let gate = gate(RULES, key_set());
    let text = with("org", json!("1.50")).to_string();
    let number = text.replace(r#""1.50""#, "1.50");
    for (claims, left) in [(text, 2), (number, 1)] {
        let claims = serde_json::value::RawValue::from_string(claims).unwrap();
        let token = encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(SECRET)).unwrap();
        assert_eq!(remaining(&gate, "/tenant", &token), Some(left), "{claims}");
    }
}

#[test]
fn a_request_has_one_token() {
    let gate = gate(RULES, key_set());
    let value = format!("Bearer {}", signed(&claims()));
    assert!(matches!(ask(&gate, "/strict", &[&value, &value]), Verdict::Refuse(_)));
    let lower = value.replace("Bearer", "bearer");
    assert!(matches!(ask(&gate, "/strict", &[&lower]), Verdict::Pass(_)));
    // Another scheme is no token.
    for other in ["Basic YWxpY2U6c2VjcmV0", "Bearers x", "x"] {
        assert!(matches!(ask(&gate, "/strict", &[other]), Verdict::Pass(_) | Verdict::Refuse(_)), "{other}");
        assert!(!matches!(ask(&gate, "/strict", &[other]), Verdict::Refuse(refusal)
            if matches!(refusal.reason(), Reason::InvalidToken(_))));
    }
}

#[test]
fn the_leeway_is_exact() {
    for (leeway, name, seconds, is_valid) in [
        ("", "exp", json!(NOW_S - 59), true),
        ("", "exp", json!(NOW_S - 60), false),
        ("", "nbf", json!(NOW_S + 60), true),
        ("", "nbf", json!(NOW_S + 61), false),
        ("leeway_ms = 0", "exp", json!(NOW_S + 1), true),
        ("leeway_ms = 0", "exp", json!(NOW_S), false),
        ("leeway_ms = 500", "exp", json!(NOW_S), true),
        ("leeway_ms = 0", "nbf", json!(NOW_S), true),
        ("leeway_ms = 0", "nbf", json!(NOW_S + 1), false),
    ] {
        let gate = gate(&RULES.replace("[tokens]", &format!("[tokens]\n{leeway}")), key_set());
        let value = format!("Bearer {}", signed(&with(name, seconds.clone())));
        assert_eq!(matches!(ask(&gate, "/strict", &[&value]), Verdict::Pass(_)), is_valid, "{leeway} {name} {seconds}");
    }
}

/// Every change of one character makes a token invalid.
#[test]
fn a_changed_token_is_invalid() {
    let rules = RULES.replace("limit = 2,", "limit = 1000000,");
    for (algorithm, kid) in [(Algorithm::HS256, "hs"), (Algorithm::EdDSA, "ed")] {
        let gate = gate(&rules, key_set());
        let token = signed_by(algorithm, Some(kid), &claims());
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let value = format!("Bearer {}", String::from_utf8(changed).unwrap());
            assert!(matches!(ask(&gate, "/strict", &[&value]), Verdict::Refuse(_)), "{algorithm:?}: {place}");
        }
    }
}

#[test]
fn keys_are_replaced_and_checked() {
    let set = |keys: Value| KeySet::from_jwks(&json!({ "keys": keys }).to_string());
    let jwk = |name: &str| keys()[name]["jwk"].clone();
    let changed = |name: &str, field: &str, value: &str| {
        let mut key = jwk(name);
        key[field] = json!(value);
        key
    };
    for (wrong, message) in [
        (json!([]), "no key for"),
        (json!([{ "kty": "unknown" }]), "no key for"),
        (json!([changed("RS256", "use", "enc")]), "no key for"),
        (json!([changed("RS256", "alg", "RS512")]), "no key for"),
        (json!([changed("ES256", "crv", "P-384")]), "no key for"),
        (json!([jwk("RS256"), jwk("RS256")]), "keys[1]: its kid"),
        (json!([changed("RS256", "n", "AQAB")]), "2048"),
        (json!([changed("RS256", "n", "%")]), "base64url"),
        (json!([changed("ES256", "x", "AQAB")]), "32 bytes"),
        (json!([changed("EdDSA", "x", "AQAB")]), "32 bytes"),
        (json!([{ "kty": "oct", "k": "aHVudGVyMg" }]), "shorter than 32"),
    ] {
        let error = set(wrong.clone()).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
        assert!(!error.contains("aHVudGVyMg"), "{error}");
    }
    for text in ["", "[]", "{}", r#"{"keys": 7}"#, "nonsense"] {
        assert!(KeySet::from_jwks(text).unwrap_err().to_string().contains("JWK set"), "{text}");
    }
    assert!(KeySet::from_secret(b"hunter2").unwrap_err().to_string().contains("32 bytes"));
    assert!(!format!("{:?}", key_set()).contains("secret"));

    let keys = std::sync::Arc::new(set(json!([jwk("RS256"), jwk("ES256")])).unwrap());
    let rules = Rules::parse("rules.toml", RULES).unwrap().verify_tokens(std::sync::Arc::clone(&keys));
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap();
    let value = format!("Bearer {}", signed_by(Algorithm::EdDSA, Some("ed"), &claims()));
    assert!(matches!(ask(&gate, "/strict", &[&value]), Verdict::Refuse(_)));
    assert!(keys.replace("{}").is_err());
    assert_eq!(keys.len(), 2);
    keys.replace(&json!({ "keys": [jwk("EdDSA")] }).to_string()).unwrap();
    assert!(matches!(ask(&gate, "/strict", &[&value]), Verdict::Pass(_)));
}

#[test]
fn rules_with_tokens_need_keys() {
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct));
    assert!(gate.err().unwrap().to_string().contains("call Rules::verify_tokens"));
    for (wrong, message) in [
        ("algorithms = []", "empty"),
        ("algorithms = [\"none\"]", "\"none\" is not supported; write one of"),
        ("issuer = \"x\"", "missing field `algorithms`"),
        ("algorithms = [\"RS256\"]\nleeway_ms = 600001", "out of range"),
        ("algorithms = [\"RS256\"]\nsubject = \"\"", "empty"),
        ("algorithms = [\"RS256\"]\nkeys = { \"a b\" = \"c\" }", "a b"),
        ("algorithms = [\"RS256\"]\nkeys = { ip = \"c\" }", "\"ip\" has a meaning of its own"),
        ("algorithms = [\"RS256\"]\nsecret = \"hunter2\"", "unknown field `secret`"),
    ] {
        let error = Rules::parse("rules.toml", &format!("[tokens]\n{wrong}")).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
    }
}
