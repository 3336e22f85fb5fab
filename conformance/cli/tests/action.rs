//! Runs the GitHub action and the jobs of conformance/CI.md as their CI systems do.
//!
//! `cargo make action` runs the tests named `from_a_checkout` in a fresh clone, in which the job builds all.

#![cfg(unix)]

#[path = "action/expression.rs"]
mod expression;
#[path = "action/gitlab.rs"]
mod gitlab;
#[path = "action/page.rs"]
mod page;
#[path = "action/runner.rs"]
mod runner;
#[path = "action/workspace.rs"]
mod workspace;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use page::{block, root};
use runner::{Action, Ran, Step};
use serde::Deserialize;
use workspace::Workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A file of workflows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    on: String,
    permissions: BTreeMap<String, String>,
    jobs: BTreeMap<String, Job>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Job {
    runs_on: String,
    timeout_minutes: u32,
    steps: Vec<Step>,
}

/// The inputs of the action in the workflow of the page. All but `targets` are used as they are.
fn inputs_of_the_page() -> Result<BTreeMap<String, String>> {
    let workflow: Workflow = serde_yaml_ng::from_str(&block("yaml", "runs-on")?)?;
    assert_eq!((workflow.on.as_str(), workflow.jobs.len()), ("pull_request", 1));
    assert_eq!(workflow.permissions, BTreeMap::from([("contents".into(), "read".into())]));
    let job = workflow.jobs.into_values().next().ok_or("no job")?;
    assert!(job.runs_on == "ubuntu-latest" && job.timeout_minutes >= 60);
    let [checkout, action] = &job.steps[..] else { return Err("not two steps".into()) };
    assert!(checkout.uses.as_ref().is_some_and(|uses| uses.starts_with("actions/checkout@")));
    assert_eq!(checkout.with["submodules"], true);
    assert_eq!(action.uses.as_deref(), Some("./tidegate/.github/actions/conformance"));
    let text = |value: &serde_yaml_ng::Value| Some(value.as_str()?.to_owned());
    let inputs = action.with.iter().map(|(name, value)| Some((name.clone(), text(value)?)));
    let mut inputs: BTreeMap<_, _> = inputs.collect::<Option<_>>().ok_or("an input is no text")?;
    inputs.insert("targets".into(), "memory".into());
    Ok(inputs)
}

fn action() -> Result<Action> {
    Action::read(&fs::read_to_string(root().join(".github/actions/conformance/action.yml"))?)
}

/// Runs the action with the inputs of the page, but these, and without a baseline.
fn run(workspace: &Workspace, inputs: &[(&str, &str)]) -> Result<Ran> {
    let mut all = inputs_of_the_page()?;
    all.remove("baseline");
    all.extend(inputs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    action()?.run(workspace, &all)
}

/// The exit code of the last script.
fn code(ran: &Ran) -> Option<i32> {
    ran.scripts.last().and_then(|output| output.status.code())
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

/// The baseline that the page shows how to make.
fn write_baseline(workspace: &Workspace) -> Result<()> {
    let tidegate = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).current_dir(workspace.path()).args(arguments).output()?;
        assert!(output.status.success(), "{output:?}");
        Ok(output.stdout)
    };
    let run = "run --target memory --fixtures tests/limits --rules rules.toml --out target/conformance";
    tidegate(&run.split(' ').collect::<Vec<_>>())?;
    fs::write(workspace.path().join("baseline.json"), tidegate(&["summary", "target/conformance/report.json"])?)?;
    Ok(())
}

#[test]
fn from_a_checkout_the_action_runs_as_the_page_shows() -> Result<()> {
    let workspace = Workspace::new()?;
    write_baseline(&workspace)?;
    let ran = action()?.run(&workspace, &inputs_of_the_page()?)?;
    assert!(!ran.failed && ran.scripts.len() == 2, "{ran:?}");
    assert!(workspace.summary().contains("| `memory` | exact | ✅ pass | 1 | 0 |"), "{}", workspace.summary());
    let junit = workspace.read("tidegate-report/junit.xml")?;
    assert!(junit.contains("failures=\"0\"") && junit.contains("gate/login"), "{junit}");
    assert!(overview(&workspace.read("tidegate-report/report.html")?)?.contains("gate/login"));

    let (key, paths) = ran.cache.ok_or("no cache")?;
    assert!(key.starts_with("tidegate-Linux-memory-"), "{key}");
    let target = workspace.path().canonicalize()?.join("tidegate/target");
    assert_eq!(paths, ["~/.cargo/registry".to_string(), target.display().to_string()]);
    assert!(ran.is_saved && target.join("release/tidegate").exists(), "what is cached is not what was built");
    let (name, files) = ran.uploaded.ok_or("nothing was uploaded")?;
    assert_eq!(name, "tidegate-report");
    for file in ["junit.xml", "report.html", "report.json", "report.md"] {
        assert!(files.iter().any(|one| one == file), "{file} is not in {files:?}");
    }
    Ok(())
}

#[test]
fn from_a_checkout_gitlab_runs_the_job_of_the_page() -> Result<()> {
    let workspace = Workspace::new()?;
    let mut job = gitlab::Job::parse(&block("yaml", "image:")?)?;
    // The image has the newest Rust, and apt-get.
    assert_eq!((job.image.as_str(), job.artifacts.when.as_str()), ("rust:1-bookworm", "always"));
    assert_eq!(job.variables["GIT_SUBMODULE_STRATEGY"], "recursive");
    job.variables.insert("TIDEGATE_TARGETS".into(), "memory".into());
    let output = job.run(&workspace)?;
    assert!(output.status.success(), "{output:?}");
    for path in job.artifacts.paths.iter().chain(&job.cache.paths).chain([&job.artifacts.reports.junit]) {
        assert!(path.starts_with(|letter: char| letter.is_alphanumeric()), "{path} is not in the project");
        assert!(workspace.path().join(path).exists(), "{path} is not there after the job");
    }
    assert!(workspace.path().join(&job.cache.paths[0]).join("release/tidegate").exists(), "{:?}", job.cache.paths);
    // A key may have no slash.
    assert!(job.cache.key.contains("$TIDEGATE_TARGETS") && !job.cache.key.contains(['/', '%']), "{}", job.cache.key);
    assert!(workspace.read(&job.artifacts.reports.junit)?.contains("gate/login"));

    workspace.write_rules(|rules| rules.replace("limit = 3", "limit = 4"))?;
    assert_eq!(job.run(&workspace)?.status.code(), Some(1));
    assert!(workspace.read(&job.artifacts.reports.junit)?.contains("failures=\"1\""));
    Ok(())
}

#[test]
fn a_broken_limit_fails_the_job_which_uploads_the_report_and_saves_no_cache() -> Result<()> {
    let workspace = Workspace::new()?;
    workspace.write_rules(|rules| rules.replace("limit = 3", "limit = 4"))?;
    let ran = run(&workspace, &[])?;
    assert!(ran.failed && code(&ran) == Some(1), "{ran:?}");
    assert!(workspace.summary().contains("gate/login"), "{}", workspace.summary());
    let (_, files) = ran.uploaded.ok_or("nothing was uploaded")?;
    assert!(files.iter().any(|file| file == "junit.xml") && !ran.is_saved, "{files:?}");
    Ok(())
}

#[test]
fn a_wrong_input_fails_the_job_and_an_older_report_is_not_taken_for_its_own() -> Result<()> {
    let workspace = Workspace::new()?;
    let ran = run(&workspace, &[("report", "out/limits"), ("artifact", "limits")])?;
    assert_eq!(ran.uploaded.as_ref().map(|(name, _)| name.as_str()), Some("limits"), "{ran:?}");
    let summary = workspace.summary();
    assert!(summary.contains("memory"), "{summary}");
    let ran = run(&workspace, &[("targets", "memory, nowhere"), ("report", "out/limits")])?;
    assert!(ran.failed && code(&ran) == Some(2), "{ran:?}");
    let said = ran.scripts.last().map(|output| String::from_utf8_lossy(&output.stderr));
    assert!(said.ok_or("no script")?.contains("\"nowhere\" is not a target"));
    assert_eq!(workspace.summary(), summary);
    Ok(())
}

#[test]
fn without_a_name_nothing_is_uploaded() -> Result<()> {
    let workspace = Workspace::new()?;
    let ran = run(&workspace, &[("artifact", "")])?;
    assert!(!ran.failed && ran.uploaded.is_none(), "{ran:?}");
    assert!(workspace.path().join("tidegate-report/report.html").exists());
    Ok(())
}

#[test]
fn a_key_of_the_cache_stays_valid_for_any_targets() -> Result<()> {
    let workspace = Workspace::new()?;
    let ran = run(&workspace, &[("targets", &format!("memory{}", ",".repeat(600)))])?;
    assert!(!ran.failed && ran.is_saved, "{ran:?}");
    Ok(())
}

/// Each of these would pass unseen if the runner left out what it does not know.
#[test]
fn what_github_would_take_for_nothing_is_an_error() -> Result<()> {
    let text = fs::read_to_string(root().join(".github/actions/conformance/action.yml"))?;
    let mistakes = [
        ("inputs.artifact != ''", "inputs.artefact != ''", "unknown: inputs.artefact"),
        ("always() &&", "ever() &&", "Invalid function"),
        ("name: ${{ inputs.artifact }}", "name: ${{ inputs.name }}", "unknown: inputs.name"),
        ("path: ${{ inputs.report }}", "paths: ${{ inputs.report }}", "no input paths"),
        ("path: ${{ inputs.report }}", "path: ./a/../${{ inputs.report }}", "actions/glob refuses"),
        ("if-no-files-found: warn", "if-no-files-found: warning", "cannot be warning"),
        ("steps.cache.outputs.key", "steps.caches.outputs.key", "unknown: steps.caches.outputs.key"),
        ("uses: actions/upload-artifact@", "uses: actions/upload@", "does not know actions/upload"),
        ("    - id: run\n", "    - id: run\n      when: always\n", "unknown field `when`"),
        ("      shell: bash\n      run: '", "      run: '", "names its shell"),
    ];
    for (right, wrong, expected) in mistakes {
        assert!(text.contains(right), "{right}");
        let workspace = Workspace::new()?;
        let ran = Action::read(&text.replace(right, wrong)).and_then(|action| {
            let inputs = [("targets", "memory"), ("fixtures", "tests/limits"), ("rules", "rules.toml")];
            action.run(&workspace, &inputs.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        });
        let said = ran.map_or_else(|error| error.to_string(), |ran| format!("it ran: {ran:?}"));
        assert!(said.contains(expected), "{wrong}: {said}");
    }
    Ok(())
}
