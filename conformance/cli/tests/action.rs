//! Runs the GitHub action, and its script alone, as a runner does.

#![cfg(unix)]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_yaml_ng::Value;
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

/// What the page of a report shows first. It holds it compressed.
fn overview(page: &str) -> Result<String> {
    let packed =
        page.split_once("<script id=\"overview\" type=\"text/plain\">").and_then(|(_, rest)| rest.split_once('<'));
    let packed = BASE64_STANDARD.decode(packed.ok_or("no overview")?.0)?;
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text)?;
    Ok(text)
}

const INPUTS: [(&str, &str); 3] = [("TARGETS", "memory"), ("FIXTURES", "tests/limits"), ("RULES", "rules.toml")];

#[test]
fn it_tests_the_users_rules_and_writes_the_summary() -> Result<()> {
    let runner = Runner::new()?;
    let output = runner.run(&INPUTS)?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(runner.read("summary.md")?.contains("| `memory` | exact | ✅ pass | 1 | 0 |"));
    assert!(runner.read("tidegate-report/junit.xml")?.contains("failures=\"0\""));
    assert!(runner.read("tidegate-report/junit.xml")?.contains("gate/login"));
    assert!(overview(&runner.read("tidegate-report/report.html")?)?.contains("gate/login"));
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

/// A job that uses the action in a checkout at `tidegate` in the user's repository.
struct Job {
    runner: Runner,
    action: Value,
    inputs: Vec<(&'static str, String)>,
    outputs: Vec<(String, String)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Job {
    fn new(inputs: &[(&'static str, &str)]) -> Result<Self> {
        let runner = Runner::new()?;
        let copied = ["Cargo.lock", ".github/actions/conformance/action.yml", ".github/actions/conformance/run.sh"];
        for file in copied {
            let copy = runner.0.path().join("tidegate").join(file);
            fs::create_dir_all(copy.parent().ok_or("no folder")?)?;
            fs::copy(root().join(file), copy)?;
        }
        let text = fs::read_to_string(root().join(copied[1]))?;
        let inputs = inputs.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        Ok(Self { runner, action: serde_yaml_ng::from_str(&text)?, inputs, outputs: Vec::new() })
    }

    /// As GitHub writes it for `uses: ./tidegate/.github/actions/conformance`.
    fn action_path(&self) -> String {
        format!("{}/./tidegate/.github/actions/conformance", self.runner.0.path().display())
    }

    /// The text with the value of each expression. An expression that this does not know is an error.
    fn value(&self, text: &Value) -> Result<String> {
        let (mut rest, mut out) = (text.as_str().ok_or("no text")?, String::new());
        while let Some((before, after)) = rest.split_once("${{") {
            let (expression, after) = after.split_once("}}").ok_or("an expression does not end")?;
            let expression = expression.trim();
            let output = expression.strip_prefix("steps.").map(|name| name.replace(".outputs.", " "));
            let value = match (expression.strip_prefix("inputs."), output) {
                (Some(name), _) => match self.inputs.iter().find(|(given, _)| *given == name) {
                    Some((_, value)) => Some(value.clone()),
                    None => self.action["inputs"][name]["default"].as_str().map(str::to_string),
                },
                (_, Some(name)) => self.outputs.iter().find(|(one, _)| *one == name).map(|(_, value)| value.clone()),
                _ if expression == "github.action_path" => Some(self.action_path()),
                _ => None,
            };
            let value = value.ok_or_else(|| format!("unknown expression: {expression}"))?;
            (rest, out) = (after, out + before + &value);
        }
        Ok(out + rest)
    }

    /// Runs the steps. Returns the exit code, the key and the paths of the cache.
    fn run(&mut self) -> Result<(Option<i32>, String, Vec<String>)> {
        let (mut code, mut key, mut paths) = (Some(0), String::new(), Vec::new());
        for step in self.action["runs"]["steps"].as_sequence().ok_or("no steps")?.clone() {
            if let Some(script) = step["run"].as_str() {
                assert!(!script.contains("${{"), "an expression in a script runs what an input says: {script}");
                code = self.run_script(&step, script)?;
            } else if step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/cache@")) {
                key = self.value(&step["with"]["key"])?;
                paths = self.value(&step["with"]["path"])?.lines().map(str::to_string).collect();
            }
        }
        Ok((code, key, paths))
    }

    fn run_script(&mut self, step: &Value, script: &str) -> Result<Option<i32>> {
        let (folder, output) = (self.runner.0.path(), self.runner.0.path().join("output"));
        fs::write(&output, "")?;
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]).current_dir(folder);
        command.env("GITHUB_ACTION_PATH", self.action_path()).env("RUNNER_OS", "Linux").env("GITHUB_OUTPUT", &output);
        command.env("GITHUB_STEP_SUMMARY", folder.join("summary.md"));
        for (name, value) in step["env"].as_mapping().into_iter().flatten() {
            command.env(name.as_str().ok_or("no name")?, self.value(value)?);
        }
        // The program is built already.
        command.env("TIDEGATE_PROGRAM", env!("CARGO_BIN_EXE_tidegate")).env("TIDEGATE_SETUP", "no");
        let code = command.output()?.status.code();
        for line in fs::read_to_string(output)?.lines() {
            let (name, value) = line.split_once('=').ok_or("no output")?;
            self.outputs.push((format!("{} {name}", step["id"].as_str().ok_or("no id")?), value.into()));
        }
        Ok(code)
    }
}

#[test]
fn the_action_runs_and_caches_what_actions_cache_accepts() -> Result<()> {
    let many = ["memory", &format!("memory{}", ",".repeat(600))];
    for (targets, limit, expected) in [(many[0], "limit = 3", 0), (many[0], "limit = 4", 1), (many[1], "limit = 3", 0)]
    {
        let mut job = Job::new(&[("targets", targets), ("fixtures", "tests/limits"), ("rules", "rules.toml")])?;
        fs::write(job.runner.0.path().join("rules.toml"), RULES.replace("limit = 3", limit))?;
        let (code, key, paths) = job.run()?;
        assert_eq!(code, Some(expected));
        assert!(job.runner.read("summary.md")?.contains("memory"));
        assert!(job.runner.read("tidegate-report/junit.xml")?.contains("gate/login"));
        assert!(job.runner.read("tidegate-report/report.html")?.contains("memory"));
        // checkKey in packages/cache/src/cache.ts of actions/toolkit.
        assert!(key.len() <= 512 && !key.contains(',') && key.starts_with("tidegate-Linux-memory"), "{key}");
        // The constructor in packages/glob/src/internal-pattern.ts there.
        let relative = |path: &String| path.split('/').any(|segment| [".", ".."].contains(&segment));
        assert!(!paths.iter().any(relative), "{paths:?}");
        let target = job.runner.0.path().canonicalize()?.join("tidegate/target");
        assert_eq!(paths, ["~/.cargo/registry".to_string(), target.display().to_string()]);
    }
    Ok(())
}

#[test]
fn each_action_of_others_is_pinned_and_has_its_tag() -> Result<()> {
    let text = fs::read_to_string(root().join(".github/actions/conformance/action.yml"))?;
    let uses: Vec<&str> = text.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, uses)| uses).collect();
    assert_eq!(uses.len(), 2);
    for one in uses {
        let (commit, tag) = one.split_once('@').and_then(|(_, at)| at.split_once(" # v")).ok_or(one)?;
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) && !tag.is_empty(), "{one}");
    }
    Ok(())
}
