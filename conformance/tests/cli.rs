//! Runs the program `tidegate` like a user.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BURST: &str = r#"{ "id": "a/burst", "about": "A burst of 40 on a limit of 3.", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 40, "key": "k", "expect": { "admitted": 3, "retry_after_ms": 1000 } }] }"#;

const REQUEST: &str = r#"{ "id": "requests/direct", "about": "The peer.", "platform": "direct", "peer": "192.0.2.1",
    "headers": [["x-forwarded-for", "203.0.113.1"]], "expect": { "key": "ip:192.0.2.1", "source": "client_ip" } }"#;

fn folder(files: &[(&str, &str)]) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().ok_or("no folder")?)?;
        fs::write(file, text)?;
    }
    Ok(folder)
}

fn tidegate(args: &[&str], fixtures: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args);
    if let Some(fixtures) = fixtures {
        command.arg("--fixtures").arg(fixtures);
    }
    Ok(command.output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn memory_passes_and_reports() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST), ("requests/direct.json", REQUEST)])?;
    let out = tempfile::tempdir()?;
    let out_path = out.path().to_string_lossy();
    let run = ["run", "--target", "memory", "--require", "all", "--out", &out_path];
    let output = tidegate(&run, Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report: Value = serde_json::from_str(&fs::read_to_string(out.path().join("report.json"))?)?;
    assert_eq!(report["schema"], "tidegate/report/v1");
    let target = &report["targets"][0];
    assert_eq!(
        (&target["name"], &target["class"], &target["status"]),
        (&"memory".into(), &"exact".into(), &"pass".into())
    );
    let burst = &target["fixtures"][0];
    assert_eq!((&burst["id"], &burst["verdict"]), (&"a/burst".into(), &"pass".into()));
    assert_eq!((&burst["offered"], &burst["admitted"], &burst["floor"]), (&40.into(), &3.into(), &3.into()));
    assert_eq!((&burst["ceiling_tested"], &burst["in_flight_peak"]), (&true.into(), &40.into()));
    assert!(fs::read_to_string(out.path().join("junit.xml"))?.contains("tests=\"2\""));
    assert!(fs::read_to_string(out.path().join("report.md"))?.contains("| `a/burst` | pass | 40 | 3 |"));

    let same = out.path().join("report.json");
    let same = same.to_string_lossy();
    let output = tidegate(&["compare", &same, &same], None)?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let worse = fs::read_to_string(&*same)?.replace("\"verdict\": \"pass\"", "\"verdict\": \"fail\"");
    let worse_file = out.path().join("worse.json");
    fs::write(&worse_file, worse)?;
    let output = tidegate(&["compare", &same, &worse_file.to_string_lossy()], None)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("worse memory a/burst: Pass became Fail"), "{}", said(&output));
    Ok(())
}

#[test]
fn all_problems_with_fixtures_are_reported_at_once() -> Result<()> {
    let fixtures = folder(&[
        ("a/burst.json", &BURST.replace("\"burst\"", "\"bust\"")),
        ("a/named.json", BURST),
        ("a/text.json", "no JSON"),
    ])?;
    let output = tidegate(&["run", "--target", "memory"], Some(fixtures.path()))?;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("3 problems in the fixtures"), "{said}");
    assert!(said.contains("burst.json: steps[0].bust: unknown field `bust`"), "{said}");
    assert!(said.contains("did you mean `burst`?"), "{said}");
    assert!(said.contains("id: is \"a/burst\", but the file name gives \"a/named\""), "{said}");
    Ok(())
}

#[test]
fn a_fixture_that_contradicts_the_reference_is_rejected() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", &BURST.replace("\"admitted\": 3", "\"admitted\": 4"))])?;
    for command in ["run", "fixtures", "mutants"] {
        let output = tidegate(&[command], Some(fixtures.path()))?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("a/burst: steps[0] (0 ms, check x40, \"k\"): expect.admitted: expected 4, found 3")
        );
    }
    Ok(())
}

#[test]
fn a_wrong_command_line_lists_the_valid_values() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    for (args, right) in [
        (["run", "--target", "memroy"], "the targets are memory, redis, redis-cluster"),
        (["run", "--require", "memroy"], "the targets are memory, redis, redis-cluster"),
        (["run", "--filter", "b/*"], "the groups are a (`tidegate fixtures` lists all)"),
    ] {
        let output = tidegate(&args, Some(fixtures.path()))?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(right), "{}", said(&output));
    }
    assert_eq!(tidegate(&["compare", "nowhere.json", "nowhere.json"], None)?.status.code(), Some(2));
    Ok(())
}

#[test]
fn a_mutant_that_survives_is_a_failure() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    let output = tidegate(&["mutants"], Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let said = said(&output);
    assert!(said.contains("survived: ") && said.contains("glob-reset"), "{said}");
    assert!(!said.contains("false alarms"), "{said}");
    Ok(())
}

#[test]
fn help_lists_the_exit_codes_and_targets_lists_the_accuracy() -> Result<()> {
    let help = said(&tidegate(&["--help"], None)?);
    assert!(help.contains("Exit codes: 0 success") && help.contains("tidegate compare"), "{help}");
    let targets = tidegate(&["targets"], None)?;
    assert_eq!(targets.status.code(), Some(0));
    assert!(said(&targets).contains("exact: admitted = limit"));
    Ok(())
}
