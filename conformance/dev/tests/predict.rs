//! Predictions of the simulator, and `tidegate-dev predict` on a real run.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_conformance::fixture::{self, Case};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::report::TargetReport;
use tidegate_conformance::run::prepare;
use tidegate_dev::predict::predict;
use tidegate_harness::report::Report;
use tidegate_harness::target::{ALL, program};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Runs a target with the program for users.
async fn run(args: &[&str]) -> Result<Output> {
    Ok(Command::new(program("tidegate").await?).arg("run").args(args).output()?)
}

fn predictions(args: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_tidegate-dev")).arg("predict").args(args).output()?)
}

/// The selected fixtures, with the reference's answers.
async fn prepared(is_selected: impl Fn(&Case) -> bool) -> Result<Vec<Prepared>> {
    let mut cases = fixture::load(fixture::shipped(), None).map_err(|problems| format!("{problems:?}"))?;
    cases.retain(is_selected);
    Ok(prepare(cases).await.map_err(|wrong| wrong.join("\n"))?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn a_prediction_agrees_with_a_real_run_and_a_wrong_number_is_found() -> Result<()> {
    let out = tempfile::tempdir()?;
    let folder = out.path().to_string_lossy();
    let selected = ["--filter", "race/*"];
    let output = run(&[&["--target", "redis", "--require", "all", "--out", &folder], &selected[..]].concat()).await?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let report = out.path().join("report.json");
    let file = report.to_string_lossy();
    let output = predictions(&[&[&*file, "--json"], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let compared: Value = serde_json::from_slice(&output.stdout)?;
    let redis = &compared["targets"][0];
    assert_eq!((&redis["target"], &redis["within_bounds"]), (&"redis".into(), &0.into()));
    assert!(redis["same"].as_u64() > Some(10) && redis["different"] == serde_json::json!([]), "{redis}");
    assert_eq!(redis["round_trips"], serde_json::json!([1.0, 1.0]));

    let output = predictions(&[&file, "--filter", "gate/*"])?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no result of these fixtures"), "{}", said(&output));

    let mut changed: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    changed["targets"][0]["fixtures"][0]["admitted"] = 1.into();
    fs::write(&report, changed.to_string())?;
    let output = predictions(&[&[&*file], &selected[..]].concat())?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("found Pass, 1 admitted"), "{}", said(&output));
    Ok(())
}

#[tokio::test]
async fn a_report_without_a_target_that_is_modelled_is_an_error() -> Result<()> {
    let memory = ALL.iter().find(|target| target.name() == "memory").ok_or("no target")?;
    let mine = predict(*memory, &prepared(|case| case.id().starts_with("token-bucket/")).await?).await?;
    let mine = TargetReport { name: "mine".into(), ..mine.ok_or("no model")? };
    let out = tempfile::tempdir()?;
    let file = out.path().join("report.json");
    fs::write(&file, serde_json::to_string(&Report::new(vec![mine]))?)?;
    let output = predictions(&[&file.to_string_lossy()])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no target that the simulator models"), "{}", said(&output));
    Ok(())
}

/// What a grace admits beyond a limit is predicted, within its bound.
#[tokio::test]
async fn a_grace_is_predicted_to_exceed_limits_by_its_bound_at_most() -> Result<()> {
    let is_undisturbed = |case: &Case| match case {
        Case::Decision(fixture) => fixture.steps.iter().all(|step| step.disturb.is_none()),
        _ => false,
    };
    let prepared = prepared(|case| case.id().starts_with("grace/") && is_undisturbed(case)).await?;
    let over = |report: &TargetReport| report.fixtures.iter().filter(|one| one.admitted > one.exact).count();
    let mut graced = 0;
    for target in ALL {
        let grace = target.declared().capabilities.accuracy.drift().grace;
        if grace == 0 && target.name() != "redis-leased" {
            continue;
        }
        let report = predict(*target, &prepared).await?.ok_or("no model")?;
        assert_eq!(report.count(Verdict::Pass), prepared.len(), "{report:?}");
        assert_eq!(over(&report) > 3, grace > 0, "{report:?}");
        graced += usize::from(grace > 0);
    }
    assert!(graced > 0);
    Ok(())
}

/// Each model is as exact as its target claims to be, under races and at several locations.
#[tokio::test]
async fn every_model_keeps_to_what_its_target_declares() -> Result<()> {
    let hard = ["locations/at-once", "locations/before-and-after-replication", "race/two-keys"];
    let prepared = prepared(|case| hard.contains(&case.id())).await?;
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
