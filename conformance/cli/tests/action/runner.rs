//! A runner of GitHub Actions for a job that uses the action. It knows all that the action asks of a runner, and refuses the rest.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;

use serde::Deserialize;

use super::Result;
use super::expression::Scope;
use super::workspace::Workspace;

/// action.yml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Action {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "description")]
    _description: String,
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(rename = "description")]
    _description: String,
    default: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    using: String,
    steps: Vec<Step>,
}

/// A step of an action or of a job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    id: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    run: Option<String>,
    shell: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pub(crate) uses: Option<String>,
    #[serde(default)]
    pub(crate) with: BTreeMap<String, serde_yaml_ng::Value>,
}

/// What a job did.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// The output of each script.
    pub(crate) scripts: Vec<Output>,
    /// The key and the paths of the cache, and whether they are saved.
    pub(crate) cache: Option<(String, Vec<String>)>,
    pub(crate) is_saved: bool,
    /// The name of the artifact and its files.
    pub(crate) uploaded: Option<(String, Vec<String>)>,
    pub(crate) failed: bool,
}

impl Action {
    pub(crate) fn read(text: &str) -> Result<Self> {
        let action: Self = serde_yaml_ng::from_str(text)?;
        if action.runs.using != "composite" {
            return Err("the action is not a composite".into());
        }
        Ok(action)
    }

    /// Runs the steps in a workspace, as for `uses: ./tidegate/.github/actions/conformance`.
    pub(crate) fn run(&self, workspace: &Workspace, inputs: &BTreeMap<String, String>) -> Result<Ran> {
        let folder = format!("{}/./tidegate/.github/actions/conformance", workspace.path().display());
        let mut scope = Scope::default();
        scope.values.insert("github.action_path".into(), folder.clone());
        for (name, input) in &self.inputs {
            let value = inputs.get(name).unwrap_or(&input.default);
            scope.values.insert(format!("inputs.{name}"), value.clone());
        }
        if let Some(unknown) = inputs.keys().find(|name| !self.inputs.contains_key(*name)) {
            return Err(format!("the action has no input {unknown}").into());
        }
        let mut ran = Ran::default();
        for step in &self.runs.steps {
            scope.failed = ran.failed;
            if scope.condition(step.condition.as_deref())? {
                step.run(workspace, &folder, &mut scope, &mut ran)?;
            }
        }
        // actions/cache has "post-if: success()".
        ran.is_saved = ran.cache.is_some() && !ran.failed;
        Ok(ran)
    }
}

impl Step {
    fn run(&self, workspace: &Workspace, folder: &str, scope: &mut Scope, ran: &mut Ran) -> Result<()> {
        match (self.run.as_deref(), self.uses.as_deref().and_then(|uses| uses.split_once('@'))) {
            (Some(script), None) => self.run_script(script, workspace, folder, scope, ran),
            (None, Some((name, _))) if self.shell.is_none() && self.env.is_empty() => {
                let text = |value: &serde_yaml_ng::Value| scope.text(value.as_str().ok_or("an input is no text")?);
                let with = self.with.iter().map(|(name, value)| Ok((name.as_str(), text(value)?)));
                let with = with.collect::<Result<BTreeMap<_, _>>>()?;
                match name {
                    "actions/cache" => ran.cache = Some(cached(with)?),
                    "actions/upload-artifact" => ran.uploaded = uploaded(with, workspace)?,
                    _ => return Err(format!("this does not know {name}").into()),
                }
                Ok(())
            }
            _ => Err("a step is either a script or an action".into()),
        }
    }

    fn run_script(
        &self,
        script: &str,
        workspace: &Workspace,
        folder: &str,
        scope: &mut Scope,
        ran: &mut Ran,
    ) -> Result<()> {
        if self.shell.as_deref() != Some("bash") || !self.with.is_empty() {
            return Err("a script of a composite names its shell, and takes no inputs".into());
        }
        if script.contains("${{") {
            return Err(format!("an expression in a script runs what an input says: {script}").into());
        }
        let outputs = workspace.temporary().join("output");
        fs::write(&outputs, "")?;
        let mut command = workspace.command("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
        command
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_ACTION_PATH", folder)
            .env("GITHUB_WORKSPACE", workspace.path());
        command.env("RUNNER_OS", "Linux").env("GITHUB_OUTPUT", &outputs);
        command.env("GITHUB_STEP_SUMMARY", workspace.temporary().join("summary.md"));
        for (name, value) in &self.env {
            command.env(name, scope.text(value)?);
        }
        let output = command.output()?;
        ran.failed |= !output.status.success();
        ran.scripts.push(output);
        for line in fs::read_to_string(outputs)?.lines() {
            let (name, value) = line.split_once('=').ok_or_else(|| format!("no output: {line}"))?;
            let id = self.id.as_deref().ok_or("a step with an output has no id")?;
            scope.values.insert(format!("steps.{id}.outputs.{name}"), value.into());
        }
        Ok(())
    }
}

/// Takes inputs by their names. One that is left is an error, which is a warning on GitHub.
fn inputs<const N: usize>(mut with: BTreeMap<&str, String>, names: [&str; N]) -> Result<[String; N]> {
    let values = names.map(|name| with.remove(name).unwrap_or_default());
    match with.first_key_value() {
        None => Ok(values),
        Some((unknown, _)) => Err(format!("the action has no input {unknown}, or this does not know it").into()),
    }
}

/// The key and the paths that actions/cache takes.
fn cached(with: BTreeMap<&str, String>) -> Result<(String, Vec<String>)> {
    let [key, paths] = inputs(with, ["key", "path"])?;
    // checkKey in packages/cache/src/cache.ts of actions/toolkit.
    if key.is_empty() || key.len() > 512 || key.contains(',') {
        return Err(format!("actions/cache refuses this key: {key}").into());
    }
    let paths: Vec<String> = paths.lines().map(str::to_string).collect();
    if paths.is_empty() {
        return Err("actions/cache needs a path".into());
    }
    paths.iter().try_for_each(|path| is_pattern(path, 0))?;
    Ok((key, paths))
}

/// The name and the files that actions/upload-artifact uploads, if there are any.
fn uploaded(with: BTreeMap<&str, String>, workspace: &Workspace) -> Result<Option<(String, Vec<String>)>> {
    let [name, path, if_none] = inputs(with, ["name", "path", "if-no-files-found"])?;
    // validateArtifactName and validateFilePath in packages/artifact/src/internal/upload of actions/toolkit.
    let forbidden = ['"', ':', '<', '>', '|', '*', '?', '\r', '\n'];
    if name.is_empty() || name.contains(forbidden) || name.contains(['\\', '/']) {
        return Err(format!("no name of an artifact: {name}").into());
    }
    if !["warn", "error", "ignore"].contains(&if_none.as_str()) {
        return Err(format!("if-no-files-found cannot be {if_none}").into());
    }
    if path.lines().count() != 1 || path.contains(['*', '?', '[', '!', '#', '~']) {
        return Err(format!("this knows only one path without a pattern: {path}").into());
    }
    is_pattern(&path, 1)?;
    let folder = workspace.path().join(&path);
    let (mut files, mut left) = (Vec::new(), vec![folder.clone()]);
    while let Some(one) = left.pop() {
        // Hidden files are left out.
        if one.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if one.is_file() {
            files.push(one.strip_prefix(&folder)?.display().to_string());
        }
        for entry in fs::read_dir(&one).into_iter().flatten() {
            left.push(entry?.path());
        }
    }
    if let Some(file) = files.iter().find(|file| file.contains(forbidden)) {
        return Err(format!("no file of an artifact: {file}").into());
    }
    if files.is_empty() && if_none == "error" {
        return Err("there are no files to upload".into());
    }
    Ok(Some((name, files)).filter(|(_, files)| !files.is_empty()))
}

/// The constructor in packages/glob/src/internal-pattern.ts of actions/toolkit. A relative path may begin with one ".".
fn is_pattern(path: &str, dots: usize) -> Result<()> {
    let is_wrong = |(at, part): (usize, &str)| part == ".." || (part == "." && at >= dots);
    if path.is_empty() || path.split('/').enumerate().any(is_wrong) {
        return Err(format!("actions/glob refuses this path: {path}").into());
    }
    Ok(())
}
