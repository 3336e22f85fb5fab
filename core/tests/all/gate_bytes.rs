//! Rules as bytes: they are the same rules, and nothing else is.
#![cfg(feature = "gate")]

use std::error::Error;
use std::fs;
use std::path::Path;

use tidegate_core::gate::Rules;

/// Every field of a rules file.
const ALL: &str = r#"{
    "case_insensitive": true,
    "exempt_preflights": true,
    "dimensions": ["tenant"],
    "api_keys": { "header": "x-api-key", "tiers": { "82a55e56f6d53cb3dec2656638d0dbe5": "pro", "92a55e56f6d53cb3dec2656638d0dbe5": "none" } },
    "tokens": { "header": "x-token", "algorithms": ["RS256", "EdDSA"], "issuer": ["https://a.example", "https://b.example"],
        "audience": ["api"], "leeway_ms": 1000, "subject": "uid", "tier": "plan", "keys": { "org": "org_id" } },
    "responses": { "format": "problem", "spread_retry_after_ms": 5000, "draft_6_fields": true, "retry_after_ms": true, "payment_required": true },
    "lists": { "allow": ["192.0.2.0/24", "sub:alice"], "deny": ["2001:db8::/32", "198.51.100.7", "key:82a55e56f6d53cb3dec2656638d0dbe5"] },
    "stores": { "main": {
        "deny_cache": { "hold_ms": 500, "capacity": 77 }, "fallback": { "store": "memory", "percent": 20, "at_most_ms": 300000 },
        "near": { "store": "location", "limit": "flood" }, "shadow": { "log": "next" } } },
    "limits": {
        "login": { "quotas": [{ "algorithm": "sliding_log", "limit": 5, "window_ms": 60000, "by": "ip" },
            { "algorithm": "penalty", "base_ms": 60000, "factor": 10, "cap_ms": 3600000, "by": "ip", "name": "strikes" }] },
        "api": { "quotas": [{ "algorithm": "token_bucket", "capacity": 20, "refill": 10, "per_ms": 1000 }], "lease": { "slice": 7, "lifetime_ms": 900 },
            "tiers": { "pro": { "quotas": [{ "algorithm": "token_bucket", "capacity": 100000000000, "refill": 100000000000, "per_ms": 2592000000 }] },
                "staff": { "unlimited": true } } },
        "org": { "charge_denied": true, "group_by": "org", "quotas": [{ "algorithm": "fixed_window", "limit": 9, "window_ms": 1000, "by": "org" },
            { "algorithm": "sliding_window", "limit": 8, "window_ms": 1000, "by": "tenant" }] },
        "slots": { "quotas": [{ "algorithm": "concurrency", "limit": 4, "lifetime_ms": 30000, "returns_cost": true },
            { "algorithm": "leaky_bucket", "capacity": 3, "refill": 2, "per_ms": 1000 }, { "algorithm": "block", "cap_ms": 9000 }] },
        "log": { "quotas": [{ "algorithm": "sliding_log", "limit": 9, "window_ms": 60000, "by": "global" }] },
        "next": { "quotas": [{ "algorithm": "sliding_log", "limit": 8, "window_ms": 60000, "by": "global" }] },
        "flood": { "quotas": [{ "algorithm": "fixed_window", "limit": 1000, "window_ms": 60000 }] },
        "a-limit-whose-name-is-as-long-as": { "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 5 },
            { "algorithm": "fixed_window", "limit": 3, "window_ms": 7 }] },
        "unused": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1 },
            { "algorithm": "balance", "max": 77, "covers": true }] }
    },
    "rules": [
        { "name": "sign-in", "host": "Example.com", "path": "/Login", "methods": ["POST", "PUT"], "limits": ["login", "log"], "estimate": 3,
            "invalid_token": "refuse", "settle_within_ms": 5000 },
        { "host": "*.example.com", "path": "/api/{id}/*", "headers": ["X-A", "x-b"], "bot_score_below": 30, "limits": ["api"], "on_failure": "open", "store": "main" },
        { "path": "/long", "limits": ["a-limit-whose-name-is-as-long-as"] },
        { "path": "/orgs", "limits": ["org"], "cost": 0 },
        { "path": "/slots", "limits": ["slots"], "cost": 2251799813685248 },
        { "path": "/bots", "challenge": "/challenge" },
        {}
    ]
}"#;

#[test]
fn bytes_are_the_same_rules() -> Result<(), Box<dyn Error>> {
    let mut all = vec![Rules::parse("rules.json", ALL)?];
    assert_eq!(all[0].warnings().len(), 2);
    for fixture in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/gate"))? {
        let fixture: serde_json::Value = serde_json::from_slice(&fs::read(fixture?.path())?)?;
        all.push(Rules::parse("rules.json", &fixture["rules"].to_string())?);
    }
    assert!(all.len() > 20);
    for rules in all {
        let bytes = rules.to_bytes();
        let same = Rules::from_bytes(&bytes)?;
        assert_eq!(format!("{same:?}"), format!("{rules:?}"));
        assert_eq!(same.to_bytes(), bytes);
    }
    Ok(())
}

#[test]
fn rules_share_their_policies() -> Result<(), Box<dyn Error>> {
    let rule = |path: usize| format!(r#"{{ "path": "/{path}", "limits": ["long-name-of-a-limit"] }}"#);
    let file = |count: usize| {
        let quotas = r#"[{ "algorithm": "fixed_window", "limit": 9, "window_ms": 1000 }]"#;
        let rules = (10..10 + count).map(rule).collect::<Vec<_>>().join(",");
        format!(r#"{{ "limits": {{ "long-name-of-a-limit": {{ "quotas": {quotas} }} }}, "rules": [{rules}] }}"#)
    };
    let len = |count| Rules::parse("rules.json", &file(count)).map(|rules| rules.to_bytes().len());
    assert!(len(11)? - len(10)? < "long-name-of-a-limit".len() + 10);
    Ok(())
}

#[test]
fn damaged_bytes_are_refused() -> Result<(), Box<dyn Error>> {
    let bytes = Rules::parse("rules.json", ALL)?.to_bytes();
    for place in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[place] ^= 1;
        assert!(Rules::from_bytes(&wrong).is_err());
        assert!(Rules::from_bytes(&bytes[..place]).is_err());
    }
    let error = Rules::from_bytes(&[&bytes[..], b"x"].concat()).err().ok_or("they were read")?;
    assert!(error.to_string().contains("damaged, or another version"), "{error}");
    Ok(())
}

/// They need code that plain rules do not link.
#[test]
fn rules_that_ignore_case_are_not_plain() -> Result<(), Box<dyn Error>> {
    for (text, is_plain) in [(r#"{ "rules": [] }"#, true), (r#"{ "case_insensitive": true, "rules": [] }"#, false)] {
        let rules = Rules::parse("rules.json", text)?;
        assert_eq!(Rules::from_plain_bytes(&rules.to_bytes()).is_ok(), is_plain);
    }
    Ok(())
}
