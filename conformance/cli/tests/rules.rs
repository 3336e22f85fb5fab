//! `tidegate explain`, and the JSON Schema of rules files.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tidegate_core::gate::Rules;
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RULES: &str = r#"
dimensions = ["room"]

[api_keys]
header = "x-api-key"
tiers = { 2bb80d537b1da3e38bd30361aa855686 = "pro" } # "secret"

[lists]
deny = ["203.0.113.0/24"]

[limits.site]
quotas = [{ algorithm = "fixed_window", limit = 1000, window_ms = 60_000, by = "ip" }]

[limits.login]
quotas = [{ algorithm = "sliding_log", limit = 5, window_ms = 60_000, by = "ip" }]

[limits.api]
quotas = [{ algorithm = "token_bucket", capacity = 20, refill = 10, per_ms = 1000 }]
tiers.pro.quotas = [{ algorithm = "token_bucket", capacity = 200, refill = 100, per_ms = 1000 }]

[limits.rooms]
quotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 1500, by = "room" }]

[[rules]]
name = "site"
limits = ["site"]
on_failure = "open"

[[rules]]
name = "login"
path = "/login"
methods = ["POST"]
limits = ["login", "site"]
store = "objects"

[[rules]]
name = "api"
path = "/api/*"
limits = ["api"]

[[rules]]
name = "room"
path = "/rooms/{id}"
limits = ["rooms"]
cost = 2
"#;

fn explain(text: &str, args: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.toml"), text)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    Ok(command.current_dir(folder.path()).args(["explain", "--rules", "rules.toml"]).args(args).output()?)
}

fn printed(args: &[&str]) -> Result<String> {
    let output = explain(RULES, args)?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn it_names_the_rule_the_keys_and_the_limits() -> Result<()> {
    let login = printed(&["--request", "POST /login?next=/", "--peer", "192.0.2.1"])?;
    insta::assert_snapshot!(login, @r"
    rule     login: POST /login
             more specific than site: any method, /*
    sender   192.0.2.1
    cost     1
    limit    login: sliding_log of 5 in 60 s, by ip = ip:192.0.2.1
    limit    site: fixed_window of 1000 in 60 s, by ip = ip:192.0.2.1
    store    objects
    failure  closed: a 503 while the store is down
    ");
    let api = printed(&["--request", "GET /api/users", "--platform", "cloudflare", "--header", "X-API-Key: secret"])?;
    insta::assert_snapshot!(api, @r"
    rule     api: any method, /api/*
             more specific than site: any method, /*
    sender   key:2bb80d537b1da3e38bd30361aa855686, of a valid API key, tier pro
    cost     1
    limit    api: token_bucket of 200, 100 in 1 s, by sender = key:2bb80d537b1da3e38bd30361aa855686
    store    the first
    failure  closed: a 503 while the store is down
    ");
    let room = explain(RULES, &["--request", "GET /rooms/7", "--peer", "192.0.2.1"])?;
    assert_eq!(room.status.code(), Some(1));
    let said = String::from_utf8(room.stderr)?;
    assert!(said.contains("the request cannot be decided: keys: the dimension \"room\" has no key"), "{said}");
    insta::assert_snapshot!(String::from_utf8(room.stdout)?, @r#"
    rule     room: any method, /rooms/{id}
             more specific than site: any method, /*
    sender   192.0.2.1
    cost     2
    limit    rooms: fixed_window of 3 in 1500 ms, by room: keys: the dimension "room" has no key; give one for each dimension
    store    the first
    failure  closed: a 503 while the store is down
    "#);
    let denied = printed(&["--request", "GET /", "--peer", "203.0.113.9"])?;
    insta::assert_snapshot!(denied, @r"
    rule     site: any method, /*
    sender   203.0.113.9
    list     deny has 203.0.113.9: refused with a 403
    ");
    Ok(())
}

#[test]
fn json_has_the_same() -> Result<()> {
    let args = ["--request", "GET /rooms/7", "--subject", "alice", "--key", "room=room:7", "--json"];
    let explained: Value = serde_json::from_str(&printed(&args)?)?;
    assert_eq!(explained["rule"], "room");
    assert_eq!(explained["others"], json!(["site"]));
    assert_eq!(explained["verified"], "sub:alice");
    assert_eq!(explained["cost"], 2);
    assert_eq!(explained["keys"], json!([{ "dimension": "room", "key": "room:7" }]));
    assert_eq!(explained["policy"]["quotas"][0]["limit"], 3);
    Ok(())
}

#[test]
fn a_wrong_file_or_argument_is_an_error_that_says_what_to_write() -> Result<()> {
    let wrong = RULES.replace("\"login\", \"site\"", "\"logon\"");
    let mistyped = RULES.replacen("by = \"ip\"", "by = \"ipp\"", 1);
    for (text, expected) in [
        (wrong, "rules.toml:33:11: \"logon\" is not a limit; did you mean \"login\"? Write one of"),
        (
            mistyped,
            "rules.toml:12:80: \"ipp\" is not a dimension; did you mean \"ip\"? Write one of \"sender\", \"ip\", \"ja4\", \"global\"",
        ),
    ] {
        for args in [&["--request", "GET /"][..], &[]] {
            let output = explain(&text, args)?;
            let said = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }
    for (text, args, expected) in [
        (RULES, &["--request", "login"][..], "write a method and a path, such as 'POST /login'"),
        (RULES, &["--request", "GET /", "--header", "x"], "write a name and a value, such as 'X-Api-Key: secret'"),
        (RULES, &["--request", "GET /", "--platform", "heroku"], "heroku"),
    ] {
        let output = explain(text, args)?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    Ok(())
}

#[test]
fn a_file_alone_is_checked_and_warned_about() -> Result<()> {
    let output = explain(&RULES.replace("limits = [\"rooms\"]", ""), &[])?;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout)?, "rules.toml: 4 rules, 1 warning\n");
    let warned = String::from_utf8(output.stderr)?;
    assert!(warned.contains("no rule has the limit \"rooms\"; add it to one or delete it"), "{warned}");
    Ok(())
}

#[test]
fn check_says_whether_a_file_is_valid() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rules.toml");
    let check = |text: &str, args: &[&str]| -> Result<(Option<i32>, String, String)> {
        fs::write(&file, text)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.current_dir(folder.path()).args(["check", "rules.toml"]).args(args).output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    };
    assert_eq!(
        check(RULES, &["--deny-warnings"])?,
        (Some(0), "rules.toml: 4 rules, 0 warnings\n".into(), String::new())
    );
    let warned = RULES.replace("limits = [\"rooms\"]", "");
    assert_eq!(check(&warned, &[])?.0, Some(0));
    assert_eq!(check(&warned, &["--deny-warnings"])?.0, Some(1));
    let undeclared = RULES.replace("dimensions = [\"room\"]", "");
    let (code, printed, said) = check(&undeclared, &[])?;
    assert_eq!((code, &*printed), (Some(1), ""));
    assert!(said.contains("or declare it as one that the application gives: dimensions = [\"room\"]"), "{said}");
    let (code, printed, _) = check(&undeclared, &["--json"])?;
    assert_eq!((code, &serde_json::from_str::<Value>(&printed)?["valid"]), (Some(1), &json!(false)));
    fs::remove_file(&file)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    assert_eq!(command.current_dir(folder.path()).args(["check", "rules.toml"]).output()?.status.code(), Some(2));
    Ok(())
}

/// With the names of the gate's stores, every name is checked. Without them, a misspelt name in the table is one that no rule has.
#[test]
fn check_finds_a_misspelt_name_of_a_store() -> Result<()> {
    const LIMIT: &str = "[limits.api]\nquotas = [{ algorithm = \"fixed_window\", limit = 1, window_ms = 1000 }]\n";
    let folder = tempfile::tempdir()?;
    let check = |stores: &str, rules: &str, args: &[&str]| -> Result<(Option<i32>, String)> {
        fs::write(folder.path().join("rules.toml"), format!("{stores}\n{LIMIT}{rules}"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.current_dir(folder.path()).args(["check", "rules.toml"]).args(args).output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (first, main) =
        ("[[rules]]\nlimits = [\"api\"]\n", "[[rules]]\npath = \"/a\"\nlimits = [\"api\"]\nstore = \"main\"\n");
    let both = [first, main].concat();
    let (cached, misspelt) = ("stores.main.deny_cache = true", "stores.mian.deny_cache = true");
    let two = "stores.a.deny_cache = true\nstores.b.deny_cache = true";
    let fallback = "stores.main.fallback = \"memroy\"";
    let known = ["--store", "main", "--store", "memory"];
    for (stores, rules, args, error) in [
        (misspelt, main, &[][..], "stores.mian: no rule counts in this store; did you mean \"main\"?"),
        (misspelt, &*both, &[], "stores.mian: no rule counts in this store; did you mean \"main\"?"),
        (two, first, &[], "stores.b: no rule counts in this store: the gate's first store can be \"a\""),
        (
            "stores.other.deny_cache = true",
            main,
            &[],
            "stores.other: no rule counts in this store; write one of \"main\"",
        ),
        (misspelt, main, &known, "stores: there is no store \"mian\"; did you mean \"main\"?"),
        (fallback, main, &known, "stores.main.fallback: there is no store \"memroy\"; did you mean \"memory\"?"),
        (
            "stores.main.near = { store = \"mein\", limit = \"api\" }",
            main,
            &known,
            "stores.main.near: there is no store \"mein\"; did you mean \"main\"?",
        ),
        ("", main, &["--store", "redis"], "rule \"/a\": there is no store \"main\"; write one of \"redis\""),
    ] {
        let (code, said) = check(stores, rules, args)?;
        assert_eq!(code, Some(1), "{stores} {rules}: {said}");
        assert!(said.starts_with(&format!("error: rules.toml: {error}")), "{said}");
        assert_eq!(said.ends_with("or name the stores of the gate with --store\n"), args.is_empty(), "{said}");
    }
    for (stores, rules, args) in [
        (cached, main, &[][..]),
        (cached, &*both, &[]),
        (cached, first, &[]),
        ("stores.other.deny_cache = true", &*both, &[]),
        (fallback, main, &[]),
        ("stores.main.fallback = \"memory\"\nstores.memory.deny_cache = true", main, &[]),
        (&format!("rules = []\n{misspelt}"), "", &[]),
        (misspelt, &*both, &["--store", "mian", "--store", "main"]),
        ("stores.main.fallback = \"memory\"", &*both, &known),
    ] {
        let (code, said) = check(stores, rules, args)?;
        assert_eq!(code, Some(0), "{stores} {rules}: {said}");
    }
    Ok(())
}

#[test]
fn a_lease_is_shown_with_its_bounds() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lease = "by = \"room\" }]\nlease = { slice = 20 }";
    fs::write(folder.path().join("rules.toml"), RULES.replacen("by = \"room\" }]", lease, 1))?;
    let printed = |args: &[&str]| -> Result<String> {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).current_dir(folder.path()).args(args).output()?;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    assert_eq!(
        printed(&["check", "rules.toml"])?,
        "rules.toml: 4 rules, 0 warnings\nlimit rooms: decided from loans of at most 20 units, for at most 60000 ms\n"
    );
    let bounds = json!({ "slice": 20, "lifetime_ms": 60_000, "grace": 0 });
    let checked: Value = serde_json::from_str(&printed(&["check", "rules.toml", "--json"])?)?;
    assert_eq!(checked["leases"], json!({ "rooms": bounds }));

    let request = ["explain", "--rules", "rules.toml", "--request", "GET /rooms/7", "--key", "room=room:7"];
    assert!(printed(&request)?.contains("\nlease    at most 20 units, for at most 60000 ms\n"));
    let explained: Value = serde_json::from_str(&printed(&[&request[..], &["--json"]].concat())?)?;
    assert_eq!(explained["lease"], bounds);
    let other = ["explain", "--rules", "rules.toml", "--request", "GET /", "--json"];
    assert_eq!(serde_json::from_str::<Value>(&printed(&other)?)?["lease"], Value::Null);

    // A grace is shown with what it may admit beyond the limit.
    let lease = "by = \"room\" }]\nlease = { slice = 20, grace = 2 }";
    fs::write(folder.path().join("rules.toml"), RULES.replacen("by = \"room\" }]", lease, 1))?;
    let shown = "at most 20 units, for at most 60000 ms, and 2 units before the first answer; each process or isolate may exceed the limit \
                 by so many\n";
    for args in [&["check", "rules.toml"][..], &request] {
        assert!(printed(args)?.contains(shown), "{args:?}");
    }
    let checked: Value = serde_json::from_str(&printed(&["check", "rules.toml", "--json"])?)?;
    assert_eq!(checked["leases"]["rooms"]["grace"], 2);
    Ok(())
}

#[test]
fn limits_from_data_and_overrides_are_shown() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let rules = "[limits.api]\nquotas = [{ algorithm = \"fixed_window\", limit = 60, window_ms = 60_000, limit_from = { application = \"rpm\", max = 500 } }]\n[[rules]]\nlimits = [\"api\"]\n";
    fs::write(folder.path().join("rules.toml"), rules)?;
    fs::write(folder.path().join("overrides.toml"), "[overrides]\n\"sub:alice\" = { api = { limit = 9 } }\n")?;
    fs::write(folder.path().join("wrong.toml"), "[overrides]\n\"sub:alice\" = { apo = { limit = 9 } }\n")?;
    let run = |args: &[&str]| -> Result<(Option<i32>, String)> {
        let Output { status, stdout, stderr } =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).current_dir(folder.path()).output()?;
        Ok((status.code(), String::from_utf8(stdout)? + &String::from_utf8(stderr)?))
    };
    let shown = "rules.toml: 1 rule, 0 warnings\nlimit api: 1 to 500, from the application's number \"rpm\"\noverrides: 1 key\n";
    assert_eq!(run(&["check", "rules.toml", "--overrides", "overrides.toml"])?, (Some(0), shown.into()));
    let (code, said) = run(&["check", "rules.toml", "--overrides", "wrong.toml"])?;
    assert_eq!(code, Some(1));
    assert!(said.starts_with("error: wrong.toml:2:23: \"apo\" is not a limit; did you mean \"api\"?"), "{said}");
    let request = ["explain", "--rules", "rules.toml", "--request", "GET /", "--limit", "rpm=100", "--subject"];
    let explain = |more: &[&str]| Ok::<_, Box<dyn std::error::Error>>(run(&[&request[..], more].concat())?.1);
    assert!(
        explain(&["bob"])?
            .contains("fixed_window of 100 in 60 s, by sender = sub:bob, from the application's number \"rpm\"\n")
    );
    let overridden = explain(&["alice", "--overrides", "overrides.toml"])?;
    assert!(overridden.contains("fixed_window of 9 in 60 s, by sender = sub:alice, by an override\n"), "{overridden}");
    let exported = run(&["export", "--rules", "rules.toml", "--for", "fastly", "--anonymous"])?.1;
    assert!(exported.contains("limit_from or overrides"), "{exported}");
    Ok(())
}

/// A schema without its words, and without where limits come from and when they warn, which are those of rules files only.
fn bare(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| {
                !["title", "description", "default", "examples", "limit_from", "warn_at"].contains(&name.as_str())
            });
            kept.map(|(name, value)| (name.clone(), bare(value))).collect()
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_schema_accepts_what_is_read() -> Result<()> {
    let schema: Value = serde_json::from_str(&fs::read_to_string(workspace().join("core/rules.schema.json"))?)?;
    let fixtures: Value = serde_json::from_str(&fs::read_to_string(workspace().join("fixtures/schema.json"))?)?;
    for shared in ["quota", "quota_name", "by", "name", "positive"] {
        assert_eq!(bare(&schema["$defs"][shared]), bare(&fixtures["$defs"][shared]), "{shared}");
    }
    let validator = jsonschema::draft202012::new(&schema)?;
    let quota = json!({ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 });
    let from = |from: Value| json!({ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000, "limit_from": from });
    let limits = |limit: Value| json!({ "limits": { "a": limit } });
    let rule = |rule: Value| json!({ "rules": [rule] });
    for document in [
        json!({}),
        json!({ "$schema": "rules.schema.json", "lists": { "allow": ["10.0.0.0/8"], "deny": ["sub:mallory"] } }),
        json!({ "api_keys": { "header": "x-api-key", "without_tier": ["2bb80d537b1da3e38bd30361aa855686"] } }),
        json!({ "api_keys": { "header": "x-api-key", "without_tier": ["secret"] } }),
        json!({ "api_keys": { "without_tier": ["2bb80d537b1da3e38bd30361aa855686"] } }),
        limits(json!({ "quotas": [quota] })),
        limits(json!({ "quotas": [quota], "charge_denied": true, "tiers": { "a": { "unlimited": true } } })),
        limits(json!({ "quotas": [quota], "tiers": { "a": { "quotas": [quota] } } })),
        limits(json!({ "quotas": [{ "algorithm": "block", "cap_ms": 86_400_000, "by": "ip" }] })),
        limits(json!({ "quotas": [{ "algorithm": "block" }] })),
        limits(json!({ "quotas": [{ "algorithm": "block", "cap_ms": 0 }] })),
        limits(json!({ "quotas": [quota, { "algorithm": "penalty", "base_ms": 0, "factor": 1, "cap_ms": 1 }] })),
        limits(json!({ "quotas": [from(json!({ "application": "rpm", "max": 5, "min": 1 }))] })),
        limits(json!({ "quotas": [from(json!({ "application": "rpm" }))] })),
        limits(json!({ "quotas": [from(json!({ "max": 5 }))] })),
        limits(json!({ "quotas": [from(json!({ "application": "rpm", "claim": "rpm", "max": 5 }))] })),
        limits(json!({ "quotas": [from(json!({ "application": "a b", "max": 5 }))] })),
        limits(json!({ "quotas": [from(json!({ "header": "x-limit", "max": 5 }))] })),
        limits(json!({ "quotas": [from(json!({ "application": "rpm", "max": 0 }))] })),
        limits(json!({ "quotas": [from(json!("x-limit"))] })),
        json!({ "limits": { "a": { "quotas": [quota] } }, "overrides": { "sub:a": { "a": { "limit": 5 } } } }),
        json!({ "limits": { "a": { "quotas": [quota] } }, "overrides": { "sub:a": { "a": { "limit": 0 } } } }),
        json!({ "limits": { "a": { "quotas": [quota] } }, "overrides": { "sub:a": { "a": {} } } }),
        json!({ "limits": { "a": { "quotas": [quota] } }, "overrides": { "sub:a": { "a": 5 } } }),
        json!({ "overrides": [] }),
        limits(json!({ "quotas": [quota], "lease": true })),
        limits(json!({ "quotas": [quota], "lease": false })),
        limits(json!({ "quotas": [quota], "lease": {} })),
        limits(json!({ "quotas": [quota], "lease": { "slice": 1, "lifetime_ms": 60_000 } })),
        limits(json!({ "quotas": [quota], "lease": { "slice": 2_251_799_813_685_248_u64, "lifetime_ms": 1 } })),
        limits(json!({ "quotas": [quota], "lease": { "slice": 0 } })),
        limits(json!({ "quotas": [quota], "lease": { "slice": 2_251_799_813_685_249_u64 } })),
        limits(json!({ "quotas": [quota], "lease": { "lifetime_ms": 0 } })),
        limits(json!({ "quotas": [quota], "lease": { "lifetime_ms": 60_001 } })),
        limits(json!({ "quotas": [quota], "lease": { "units": 1 } })),
        limits(json!({ "quotas": [quota], "lease": "yes" })),
        limits(json!({ "quotas": [] })),
        limits(json!({ "quotas": [quota], "tiers": { "a": {} } })),
        limits(json!({ "quotas": [quota], "tiers": { "a": { "quotas": [quota], "unlimited": true } } })),
        limits(json!({ "limit": 5 })),
        rule(json!({})),
        rule(
            json!({ "name": "a", "host": "*.example.com", "path": "/a/{b}/*", "methods": ["GET"], "headers": ["x-a"] }),
        ),
        rule(json!({ "cost": 0, "store": "redis", "on_failure": "open", "limits": [] })),
        rule(json!({ "cost": -1 })),
        rule(json!({ "cost": 4_503_599_627_370_496_u64 })),
        rule(json!({ "host": "example.com." })),
        rule(json!({ "host": "" })),
        rule(json!({ "host": ".example.com" })),
        rule(json!({ "host": "my-app_2.example.com" })),
        rule(json!({ "host": "example.com:8443" })),
        rule(json!({ "host": "[2001:db8::7]" })),
        rule(json!({ "host": "[2001:db8::7]:8443" })),
        rule(json!({ "path": "a" })),
        rule(json!({ "path": "/a?b" })),
        rule(json!({ "methods": ["get"] })),
        rule(json!({ "headers": ["x y"] })),
        rule(json!({ "on_failure": "fallback" })),
        rule(json!({ "settle_within_ms": 1 })),
        rule(json!({ "settle_within_ms": 604_800_000 })),
        rule(json!({ "settle_within_ms": 0 })),
        rule(json!({ "settle_within_ms": 604_800_001 })),
        rule(json!({ "settle_within_ms": "1 h" })),
        rule(json!({ "colour": "red" })),
        rule(json!({ "bot_score_below": 30 })),
        rule(json!({ "bot_score_below": 0 })),
        rule(json!({ "bot_score_below": 256 })),
        rule(json!({ "challenge": "/challenge?a=1", "limits": [] })),
        rule(json!({ "challenge": "https://example.com/" })),
        rule(json!({ "challenge": "javascript:alert(1)" })),
        rule(json!({ "challenge": "/a\"b" })),
        json!({ "responses": { "format": "problem", "spread_retry_after_ms": 3_600_000 } }),
        rule(json!({ "estimate": 2_000 })),
        rule(json!({ "estimate": 0 })),
        json!({ "stores": { "main": { "deny_cache": true, "fallback": "memory" }, "other": { "deny_cache": false } } }),
        json!({ "stores": { "main": { "deny_cache": { "hold_ms": 1, "capacity": 1 }, "fallback": { "store": "memory", "percent": 100 } } } }),
        json!({ "stores": { "main": { "deny_cache": { "hold_ms": 0 } } } }),
        json!({ "stores": { "main": { "deny_cache": 1 } } }),
        json!({ "stores": { "main": { "fallback": { "percent": 10 } } } }),
        json!({ "stores": { "main": { "fallback": { "store": "memory", "percent": 101 } } } }),
        json!({ "stores": { "main": { "near": { "store": "other" } } } }),
        json!({ "stores": { "main": { "shadow": "next" } } }),
        json!({ "stores": { "main": { "tiered": "near" } } }),
        json!({ "stores": [] }),
        json!({ "limits": { "a": { "quotas": [quota] } }, "stores": { "main": { "near": { "store": "other", "limit": "a" }, "shadow": { "a": "a" } } } }),
        json!({ "case_insensitive": true }),
        json!({ "case_insensitive": "yes" }),
        json!({ "dimensions": ["tenant", "room"] }),
        json!({ "dimensions": ["tenant", "tenant"] }),
        json!({ "dimensions": ["a b"] }),
        json!({ "dimensions": ["ip"] }),
        json!({ "responses": { "format": "html" } }),
        json!({ "responses": { "draft_6_fields": true } }),
        json!({ "responses": { "draft_6_fields": "yes" } }),
        json!({ "responses": { "retry_after_ms": true } }),
        json!({ "responses": { "retry_after_ms": 1 } }),
        json!({ "responses": { "payment_required": true } }),
        json!({ "responses": { "payment_required": 402 } }),
        json!({ "responses": { "spread_retry_after_ms": 3_600_001 } }),
        rule(json!({ "invalid_token": "refuse" })),
        rule(json!({ "invalid_token": "open" })),
        json!({ "tokens": {} }),
        json!({ "tokens": { "algorithms": [] } }),
        json!({ "tokens": { "algorithms": ["none"] } }),
        json!({ "tokens": { "algorithms": ["RS256"], "header": "x-jwt", "issuer": "i", "audience": ["a"], "leeway_ms": 0,
            "subject": "/user/id", "tier": "plan", "keys": { "tenant": "org" } } }),
        json!({ "tokens": { "algorithms": ["RS256"], "issuer": ["i", "j"] } }),
        json!({ "tokens": { "algorithms": ["RS256"], "issuer": [] } }),
        json!({ "tokens": { "algorithms": ["RS256"], "issuer": ["i", ""] } }),
        json!({ "tokens": { "algorithms": ["RS256"], "issuer": { "i": "j" } } }),
        json!({ "tokens": { "algorithms": ["RS256"], "leeway_ms": 600_001 } }),
        json!({ "tokens": { "algorithms": ["RS256"], "subject": "" } }),
        json!({ "tokens": { "algorithms": ["RS256"], "keys": { "a b": "c" } } }),
        json!({ "tokens": { "algorithms": ["RS256"], "keys": { "ip": "c" } } }),
        json!({ "api_keys": { "header": "x-api-key", "tiers": { "2bb80d537b1da3e38bd30361aa855686": "pro" } } }),
        json!({ "api_keys": { "tiers": { "2bb80d537b1da3e38bd30361aa855686": "pro" } } }),
        json!({ "api_keys": { "header": "x-api-key", "tiers": { "secret": "pro" } } }),
    ] {
        let mut with_rules = document.clone();
        with_rules.as_object_mut().ok_or("no table")?.entry("rules").or_insert_with(|| json!([]));
        for document in [document, with_rules] {
            let read = Rules::parse("rules.json", &document.to_string());
            assert_eq!(read.is_ok(), validator.is_valid(&document), "{document}: {:?}", read.err());
        }
    }
    // A file of overrides alone, which the same schema describes.
    let overrides =
        json!({ "$schema": "./rules.schema.json", "overrides": { "ip:192.0.2.1": { "a": { "limit": 2 } } } });
    let rules =
        Rules::parse("rules.json", &json!({ "limits": { "a": { "quotas": [quota] } }, "rules": [] }).to_string())?;
    assert!(validator.is_valid(&overrides) && rules.with_overrides("overrides.json", &overrides.to_string()).is_ok());
    assert!(!validator.is_valid(&json!({})));
    Ok(())
}
