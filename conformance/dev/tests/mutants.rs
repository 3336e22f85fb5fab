//! `tidegate-dev mutants` on fixtures that catch too little.

use std::fs;
use std::process::{Command, Output};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BURST: &str = r#"{ "id": "a/burst", "about": "A burst of 40 on a limit of 3.", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 40, "key": "k", "expect": { "admitted": 3 } }] }"#;

/// Runs the mutants on one fixture. Returns the exit code, and what is said.
fn mutants(fixture: &str) -> Result<(Option<i32>, String)> {
    let fixtures = tempfile::tempdir()?;
    fs::create_dir(fixtures.path().join("a"))?;
    fs::write(fixtures.path().join("a/burst.json"), fixture)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-dev"));
    let Output { status, stdout, stderr } = command.arg("mutants").arg("--fixtures").arg(fixtures.path()).output()?;
    Ok((status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()))
}

#[test]
fn a_mutant_that_survives_is_a_failure() -> Result<()> {
    let (code, said) = mutants(BURST)?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("survived: ") && said.contains("glob-reset"), "{said}");
    assert!(!said.contains("false alarms"), "{said}");
    Ok(())
}

#[test]
fn a_fixture_that_contradicts_the_reference_is_rejected() -> Result<()> {
    let (code, said) = mutants(&BURST.replace("\"admitted\": 3", "\"admitted\": 4"))?;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("tidegate-dev: these fixtures contradict the reference"), "{said}");
    Ok(())
}
