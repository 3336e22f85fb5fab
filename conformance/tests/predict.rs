//! Predictions of the simulator, and `tidegate predict` on a real run.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_conformance::fixture::{self, Case};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::predict::predict;
use tidegate_conformance::run::prepare;
use tidegate_conformance::target::ALL;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn tidegate(args: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn a_prediction_agrees_with_a_real_run_and_a_wrong_number_is_found() -> Result<()> {
    let out = tempfile::tempdir()?;
    let folder = out.path().to_string_lossy();
    let selected = ["--filter", "race/*"];
    let output =
        tidegate(&[&["run", "--target", "redis", "--require", "all", "--out", &folder], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let report = out.path().join("report.json");
    let file = report.to_string_lossy();
    let output = tidegate(&[&["predict", &file, "--json"], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let compared: Value = serde_json::from_slice(&output.stdout)?;
    let redis = &compared["targets"][0];
    assert_eq!((&redis["target"], &redis["within_bounds"]), (&"redis".into(), &0.into()));
    assert!(redis["same"].as_u64() > Some(10) && redis["different"] == serde_json::json!([]), "{redis}");
    assert_eq!(redis["round_trips"], serde_json::json!([1.0, 1.0]));

    let output = tidegate(&["predict", &file, "--filter", "gate/*"])?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no result of these fixtures"), "{}", said(&output));

    let mut changed: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    changed["targets"][0]["fixtures"][0]["admitted"] = 1.into();
    fs::write(&report, changed.to_string())?;
    let output = tidegate(&[&["predict", &file], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("found Pass, 1 admitted"), "{}", said(&output));
    Ok(())
}

#[test]
fn a_report_without_a_target_that_is_modelled_is_an_error() -> Result<()> {
    let out = tempfile::tempdir()?;
    let folder = out.path().to_string_lossy();
    let selected = ["--filter", "token-bucket/*"];
    tidegate(&[&["run", "--target", "memory", "--out", &folder], &selected[..]].concat())?;
    let file = out.path().join("report.json");
    let mut renamed: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    renamed["targets"][0]["name"] = "mine".into();
    fs::write(&file, renamed.to_string())?;
    let report = out.path().join("report.json").to_string_lossy().into_owned();
    let output = tidegate(&[&["predict", &report], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no target that the simulator models"), "{}", said(&output));
    Ok(())
}

/// Each model is as exact as its target claims to be, under races and at several locations.
#[tokio::test]
async fn every_model_keeps_to_what_its_target_declares() -> Result<()> {
    let cases = fixture::load(fixture::shipped(), None).map_err(|problems| format!("{problems:?}"))?;
    let is_hard = |case: &Case| {
        ["locations/at-once", "locations/before-and-after-replication", "race/two-keys"].contains(&case.id())
    };
    let prepared = prepare(cases.into_iter().filter(is_hard).collect()).await.map_err(|wrong| wrong.join("\n"))?;
    let mut modelled = 0;
    for target in ALL {
        let Some(report) = predict(*target, &prepared).await? else { continue };
        modelled += 1;
        let wrong = report.fixtures.iter().find(|one| one.verdict == Verdict::Fail);
        assert!(wrong.is_none(), "{}: {wrong:?}", target.name());
        assert!(report.count(Verdict::Pass) > 0, "{}", target.name());
    }
    // All but the one whose emulator never limits.
    assert_eq!(modelled, ALL.len() - 1);
    Ok(())
}
