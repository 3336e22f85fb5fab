//! Runs the script of the GitHub action as a runner does.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The fixture and the rules of conformance/CI.md.
const FIXTURE: &str = r#"{ "id": "gate/login", "about": "Three attempts in a minute, then 429.", "platform": "direct", "steps": [
    { "at_ms": 0, "burst": 9, "method": "POST", "path": "/login", "peer": "192.0.2.1",
      "expect": { "passed": 3, "remaining": 0 } }] }"#;
const RULES: &str = "[limits.login]
quotas = [{ algorithm = 'fixed_window', limit = 3, window_ms = 60_000, by = 'ip' }]
[[rules]]
path = '/login'
limits = ['login']
";

/// A user's repository on a runner.
struct Runner(TempDir);

impl Runner {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir_all(folder.path().join("tests/limits/gate"))?;
        fs::write(folder.path().join("tests/limits/gate/login.json"), FIXTURE)?;
        fs::write(folder.path().join("rules.toml"), RULES)?;
        Ok(Self(folder))
    }

    fn run(&self, inputs: &[(&str, &str)]) -> Result<Output> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.github/actions/conformance/run.sh");
        let mut command = Command::new("bash");
        command.arg(script).current_dir(self.0.path()).env("TIDEGATE_PROGRAM", env!("CARGO_BIN_EXE_tidegate"));
        command.env("TIDEGATE_SETUP", "no").env("GITHUB_STEP_SUMMARY", self.0.path().join("summary.md"));
        let inputs = inputs.iter().map(|(name, value)| (format!("TIDEGATE_{name}"), value));
        Ok(command.envs(inputs).output()?)
    }

    fn read(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(self.0.path().join(file))?)
    }
}

const INPUTS: [(&str, &str); 3] = [("TARGETS", "memory"), ("FIXTURES", "tests/limits"), ("RULES", "rules.toml")];

#[test]
fn it_tests_the_users_rules_and_writes_the_summary() -> Result<()> {
    let runner = Runner::new()?;
    let output = runner.run(&INPUTS)?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(runner.read("summary.md")?.contains("| `memory` | exact | ✅ pass | 1 | 0 |"));
    assert!(runner.read("tidegate-report/junit.xml")?.contains("failures=\"0\""));
    assert!(runner.read("tidegate-report/report.html")?.contains("gate/login"));
    Ok(())
}

#[test]
fn it_fails_as_the_run_does() -> Result<()> {
    let runner = Runner::new()?;
    fs::write(runner.0.path().join("rules.toml"), RULES.replace("limit = 3", "limit = 4"))?;
    let output = runner.run(&INPUTS)?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary = runner.read("summary.md")?;
    assert!(summary.contains("gate/login"), "{summary}");
    let output = runner.run(&[("TARGETS", "memory, nowhere")])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"nowhere\" is not a target"), "{output:?}");
    assert_eq!(runner.read("summary.md")?, summary);
    Ok(())
}
