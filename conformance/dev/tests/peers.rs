//! `tidegate-dev peers` runs other rate limiters.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn peers(args: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_tidegate-dev")).arg("peers").args(args).output()?)
}

/// The same fixtures show that Tidegate keeps to its claim, and that a limiter in Redis, one in a middleware and one on Workers
/// KV do not, each in its own way.
#[test]
fn each_limiter_is_held_to_its_claim() -> Result<()> {
    let limiters = ["tidegate-core", "rate-limiter-flexible", "express-rate-limit", "a counter as in tutorials"];
    let mut args: Vec<&str> = limiters.iter().flat_map(|name| ["--peer", name]).collect();
    args.extend(["--format", "json", "--filter", "fixed-window/*", "--filter", "race/*", "--filter", "peers/*"]);
    let output = peers(&args)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let reports: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let of = |name: &str, store: &str| {
        let report = reports.iter().find(|one| one["name"] == name && one["store"] == store);
        report.and_then(|report| report["scores"].as_array()).ok_or(format!("no scores of {name} in {store}"))
    };
    let count = |scores: &[Value], result: &str| scores.iter().filter(|score| score["result"] == result).count();
    let ours = of("tidegate-core", "memory")?;
    assert!(!ours.is_empty() && count(ours, "as_due") == ours.len(), "{ours:?}");
    assert!(ours.iter().all(|score| score["waits"]["early"] == 0 && score["waits"]["late"] == 0), "{ours:?}");
    for store in ["Redis", "PostgreSQL", "memory"] {
        let scores = of("rate-limiter-flexible", store)?;
        assert!(count(scores, "charges_denials") > 0, "{scores:?}");
        assert_eq!(count(scores, "more") + count(scores, "errors"), 0, "{scores:?}");
    }
    let express = of("express-rate-limit", "rate-limit-redis")?;
    assert_eq!(count(express, "as_due"), express.len(), "{express:?}");
    assert!(count(of("a counter as in tutorials", "Workers KV")?, "more") > 0);
    Ok(())
}

/// The page has what the command that it names prints.
#[test]
fn the_page_has_what_becomes_of_estimates() -> Result<()> {
    let root = workspace();
    let page = fs::read_to_string(root.join("conformance/peers/README.md"))?;
    let command = page.lines().find(|line| line.ends_with("-- reservations")).ok_or("no command")?;
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().ok_or("no program")?).args(words).current_dir(root).output()?;
    let printed = String::from_utf8(output.stdout)?;
    assert!(
        printed.lines().count() > 5 && page.contains(&printed),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn limiters_that_can_take_no_fixture_are_no_success() -> Result<()> {
    let output = peers(&["--peer", "tidegate-core", "--filter", "gate/*"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("can take none of the selected fixtures"), "{said}");
    Ok(())
}

#[test]
fn an_unknown_limiter_is_named() -> Result<()> {
    let output = peers(&["--peer", "governer"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--peer \"governer\" is unknown; did you mean \"governor\"?"), "{said}");
    Ok(())
}
