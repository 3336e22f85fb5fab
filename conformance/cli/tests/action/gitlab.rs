//! A runner of GitLab for the job in conformance/CI.md. It knows all that the job asks of a runner, and refuses the rest.

use std::collections::BTreeMap;
use std::process::Output;

use serde::Deserialize;

use super::Result;
use super::workspace::Workspace;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) image: String,
    pub(crate) variables: BTreeMap<String, String>,
    script: Vec<String>,
    pub(crate) cache: Cache,
    pub(crate) artifacts: Artifacts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    pub(crate) key: String,
    pub(crate) paths: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Artifacts {
    pub(crate) when: String,
    pub(crate) paths: Vec<String>,
    pub(crate) reports: Reports,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reports {
    pub(crate) junit: String,
}

impl Job {
    /// The one job of a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut jobs: BTreeMap<String, Self> = serde_yaml_ng::from_str(text)?;
        let (_, job) = jobs.pop_first().filter(|_| jobs.is_empty()).ok_or("not one job")?;
        Ok(job)
    }

    /// Runs the script, whose lines are one script for GitLab's runner.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Output> {
        let mut command = workspace.command("sh");
        command.arg("-ec").arg(self.script.join("\n")).env("GITLAB_CI", "true").envs(&self.variables);
        Ok(command.env("CI_PROJECT_DIR", workspace.path()).output()?)
    }
}
