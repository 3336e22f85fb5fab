//! `fixtures/schema.json` and the loader accept the same fixtures.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::Value;
use tidegate_conformance::fixture::{load, shipped};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const DECISION: &str = r#"{ "id": "a/b", "about": "x", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 }] }, "steps": [{ "at_ms": 0, "key": "k" }] }"#;

const TWO: &str = r#"{ "id": "a/b", "about": "x", "policy": { "name": "p", "quotas": [
    { "algorithm": "concurrency", "limit": 1, "lifetime_ms": 1000, "returns_cost": false, "by": "a" },
    { "algorithm": "token_bucket", "capacity": 1, "refill": 1, "per_ms": 1000, "by": "b" },
    { "algorithm": "penalty", "base_ms": 1, "factor": 2, "cap_ms": 9, "by": "b" }] },
    "steps": [{ "at_ms": 0, "keys": { "a": "x", "b": "y" } }] }"#;

const REQUEST: &str = r#"{ "id": "requests/b", "about": "x", "platform": "spin", "headers": [["a", "b"]],
    "expect": { "key": "ip:unknown" } }"#;

const GATE: &str = r#"{ "id": "gate/b", "about": "x", "platform": "spin", "rules": { "rules": [{}] },
    "steps": [{ "at_ms": 0, "path": "/", "expect": { "passed": 1 } }] }"#;

fn schema() -> Result<Validator> {
    let text = fs::read_to_string(shipped().join("schema.json"))?;
    Ok(jsonschema::draft202012::new(&serde_json::from_str(&text)?)?)
}

/// Loads one document.
fn loaded(document: &str) -> Result<std::result::Result<(), String>> {
    let folder = tempfile::tempdir()?;
    let id = ["requests/b", "gate/b"].into_iter().find(|id| document.contains(id)).unwrap_or("a/b");
    let file = folder.path().join(id).with_extension("json");
    fs::create_dir_all(file.parent().ok_or("no folder")?)?;
    fs::write(&file, document)?;
    Ok(load(folder.path(), None).map(drop).map_err(|problems| format!("{problems:?}")))
}

fn each_fixture(folder: &Path, check: &mut impl FnMut(&Path, &Value)) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_fixture(&path, check)?;
        } else if path.extension().is_some_and(|extension| extension == "json") && !path.ends_with("schema.json") {
            check(&path, &serde_json::from_str(&fs::read_to_string(&path)?)?);
        }
    }
    Ok(())
}

#[test]
fn every_fixture_is_valid() -> Result<()> {
    let (schema, mut wrong, mut count) = (schema()?, Vec::new(), 0);
    each_fixture(shipped(), &mut |path, document| {
        count += 1;
        wrong.extend(schema.iter_errors(document).map(|error| format!("{}: {error}", path.display())));
    })?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0);
    Ok(())
}

#[test]
fn schema_and_loader_accept_valid_fixtures() -> Result<()> {
    let schema = schema()?;
    let step = |fields: &str| DECISION.replace("\"at_ms\": 0", &format!("\"at_ms\": 0, {fields}"));
    let then =
        |fields: &str| DECISION.replace("\"k\" }", &format!("\"k\" }}, {{ \"at_ms\": 0, \"key\": \"k\", {fields} }}"));
    let right = [
        DECISION.to_string(),
        REQUEST.to_string(),
        GATE.to_string(),
        GATE.replace("\"path\"", r#""burst": 9, "method": "PUT", "headers": [["a", "b"]], "cost": 2, "path""#),
        GATE.replace("\"passed\"", r#""level": 0, "warned": [50, 100], "passed""#),
        DECISION.replace("\"at_ms\": 0", "\"at_ms\": -5"),
        step(r#""burst": 5, "token": "t", "token_ttl_ms": 9, "expect": { "admitted": 5 }"#),
        step(r#""disturb": "restart""#),
        then(r#""op": "block", "block_ms": 0"#),
        then(r#""op": "block", "block_ms": 90000, "location": 0"#),
        step(r#""disturb": "lose_answers""#),
        step(r#""disturb": "abort", "burst": 5"#),
        step(r#""disturb": "evict", "expect": { "admitted": 1 }"#),
        step(r#""expect": { "headers": { "retry-after": "1" } }"#),
        step(r#""token": "t", "token_ttl_ms": 9, "expect": { "replayed": 0 }"#),
        then(r#""op": "settle", "token": "t", "disturb": "restart""#),
        then(r#""op": "settle", "token": "", "burst": 5, "cost": 0, "expect": { "replayed": 4 }"#),
        then(r#""op": "settle", "token": "t", "expect": { "error": "unknown_charge" }"#),
        then(r#""op": "release", "token": "t", "burst": 5, "expect": { "replayed": 4 }"#),
        then(r#""op": "grant", "token": "t""#),
        then(r#""op": "grant", "token": "t", "token_ttl_ms": 9, "cost": 5, "expires_at_ms": -5"#),
        then(r#""op": "grant", "token": "t", "burst": 5, "expect": { "admitted": 5, "replayed": 4 }"#),
        then(r#""op": "grant", "token": "t{n}", "burst": 5, "disturb": "lose_answers""#),
        then(r#""op": "grant", "token": "t", "expect": { "error": "token_reused" }"#),
        step(r#""expect": { "from_balance": 0 }"#),
        step(r#""expect": { "dimension": "", "headers": { "retry-after": null } }"#),
        TWO.to_string(),
        TWO.replace(r#""quotas""#, r#""group_by": "b", "quotas""#),
        TWO.replace(r#""b": "y" }"#, r#""b": "y", "c": "z" }"#),
    ];
    for document in &right {
        assert_eq!(loaded(document)?, Ok(()), "{document}");
        assert!(schema.is_valid(&serde_json::from_str(document)?), "{document}");
    }
    Ok(())
}

#[test]
fn schema_and_loader_reject_invalid_fixtures() -> Result<()> {
    let schema = schema()?;
    let step = |fields: &str| DECISION.replace("\"at_ms\": 0", &format!("\"at_ms\": 0, {fields}"));
    let then =
        |fields: &str| DECISION.replace("\"k\" }", &format!("\"k\" }}, {{ \"at_ms\": 0, \"key\": \"k\", {fields} }}"));
    let wrong = [
        "{}".to_string(),
        DECISION.replace("\"about\": \"x\"", "\"about\": \" \""),
        DECISION.replace("\"about\": \"x\"", "\"about\": \"x\", \"locations\": 0"),
        DECISION.replace("\"about\": \"x\"", "\"about\": \"x\", \"start_ms\": -1"),
        DECISION.replace("\"limit\"", "\"limt\""),
        DECISION.replace("\"limit\": 1", "\"limit\": 0"),
        DECISION.replace("\"limit\": 1", "\"capacity\": 1"),
        DECISION.replace("fixed_window", "gcra"),
        DECISION.replace("\"name\": \"p\"", "\"name\": \"p q\""),
        DECISION.replace("{ \"at_ms\": 0, \"key\": \"k\" }", ""),
        DECISION.replace("\"at_ms\": 0, ", ""),
        DECISION.replace("\"key\": \"k\"", "\"key\": 1"),
        step(r#""burst": 0"#),
        step(r#""burst": 100001"#),
        step(r#""cost": -1"#),
        step(r#""cost": 1.5"#),
        step(r#""op": "take""#),
        step(r#""op": "refund""#),
        then(r#""op": "block""#),
        then(r#""op": "block", "block_ms": -1"#),
        then(r#""op": "block", "block_ms": 1, "cost": 2"#),
        then(r#""op": "block", "block_ms": 1, "burst": 2"#),
        then(r#""op": "block", "block_ms": 1, "token": "t""#),
        then(r#""op": "block", "block_ms": 1, "expect": { "admitted": 1 }"#),
        then(r#""block_ms": 1"#),
        then(r#""op": "reset", "block_ms": 1"#),
        step(r#""charged_at_ms": 0"#),
        step(r#""token": "t""#),
        step(r#""token_ttl_ms": 5"#),
        step(r#""disturb": "burn""#),
        step(r#""disturb": "restart", "expect": { "admitted": 1 }"#),
        step(r#""disturb": "lose_answers", "expect": { "admitted": 1 }"#),
        step(r#""disturb": "abort", "expect": { "admitted": 1 }"#),
        step(r#""burst": 2, "expect": { "headers": {} }"#),
        step(r#""expect": { "allowed": 1 }"#),
        step(r#""expect": { "remaining": -1 }"#),
        step(r#""expect": { "replayed": -1 }"#),
        step(r#""expect": { "error": "timeout" }"#),
        step(r#""expect": { "error": "invalid", "admitted": 0 }"#),
        step(r#""op": "settle", "token": "t""#),
        then(r#""op": "settle""#),
        then(r#""op": "settle", "token": "t", "token_ttl_ms": 9"#),
        then(r#""op": "settle", "token": "t", "disturb": "restart", "expect": { "admitted": 1 }"#),
        then(r#""op": "peek", "disturb": "restart""#),
        then(r#""op": "settle", "token": "t", "charged_at_ms": 0"#),
        then(r#""op": "peek", "token": "t""#),
        then(r#""op": "peek", "token": "t", "token_ttl_ms": 9"#),
        then(r#""op": "refund", "token_ttl_ms": 9"#),
        then(r#""op": "refund", "expect": { "error": "invalid" }"#),
        then(r#""op": "grant""#),
        step(r#""op": "grant", "token": "t""#),
        then(r#""op": "grant", "token": "t", "charged_at_ms": 0"#),
        then(r#""op": "grant", "token": "t", "block_ms": 1"#),
        then(r#""op": "grant", "token": "t", "disturb": "restart", "expect": { "replayed": 0 }"#),
        then(r#""expires_at_ms": 5"#),
        then(r#""op": "settle", "token": "t", "expires_at_ms": 5"#),
        then(r#""op": "grant", "token": "t", "expect": { "from_balance": -1 }"#),
        then(r#""op": "release""#),
        then(r#""op": "release", "token": "t", "cost": 2"#),
        then(r#""op": "release", "token": "t", "token_ttl_ms": 9"#),
        step(r#""keys": { "": "k" }"#),
        step(r#""expect": { "dimension": 1 }"#),
        TWO.replace(r#""keys": { "a": "x", "b": "y" }"#, r#""keys": {}"#),
        TWO.replace(r#""y""#, "1"),
        TWO.replace(r#", "keys": { "a": "x", "b": "y" }"#, ""),
        TWO.replace(r#""limit": 1"#, r#""limit": 1001"#),
        TWO.replace(r#""lifetime_ms": 1000, "#, ""),
        TWO.replace(r#""factor": 2"#, r#""factor": 0"#),
        TWO.replace(r#""by": "b""#, r#""by": "b c""#),
        GATE.replace("\"at_ms\": 0", "\"at_ms\": -1"),
        GATE.replace("\"path\"", "\"burst\": 0, \"path\""),
        GATE.replace("\"path\"", "\"headers\": [[\"a\"]], \"path\""),
        GATE.replace("\"passed\": 1", "\"passed\": 1, \"status\": \"429\""),
        GATE.replace("\"passed\": 1", "\"remaining\": 1"),
        GATE.replace("\"platform\": \"spin\", ", ""),
        GATE.replace("\"path\"", "\"key\": \"k\", \"path\""),
        REQUEST.replace("spin", "akamai"),
        REQUEST.replace("[\"a\", \"b\"]", "[\"a\"]"),
        REQUEST.replace("[\"a\", \"b\"]", "[\"a\", \"b\", \"c\"]"),
        REQUEST.replace("\"key\"", "\"kee\""),
        REQUEST.replace("\"about\"", "\"ipv6_prefix\": 300, \"about\""),
    ];
    for document in &wrong {
        assert!(loaded(document)?.is_err(), "the loader accepts {document}");
        assert!(!schema.is_valid(&serde_json::from_str(document)?), "the schema accepts {document}");
    }
    Ok(())
}

#[test]
fn each_dimension_has_a_key_unless_the_step_expects_an_error() -> Result<()> {
    let one = TWO.replace(r#", "b": "y" }"#, " }");
    let said = loaded(&one)?.expect_err("a dimension has no key");
    assert!(said.contains(r#"the dimension \"b\" has no key; write one"#), "{said}");
    let sole = TWO.replace(r#""keys": { "a": "x", "b": "y" }"#, r#""key": "x""#);
    let said = loaded(&sole)?.expect_err("there is one key for two dimensions");
    assert!(said.contains("the policy has several dimensions; write keys"), "{said}");
    for document in [one, sole] {
        let refused = document.replace(r#""at_ms": 0"#, r#""at_ms": 0, "expect": { "error": "invalid" }"#);
        assert_eq!(loaded(&refused)?, Ok(()), "{refused}");
    }
    Ok(())
}
