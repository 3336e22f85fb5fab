//! A user's repository on a machine of a CI system, with a checkout of Tidegate in its folder `tidegate`.
//!
//! The machine's `cargo` does not build the program again, but takes the one that is built already. With `TIDEGATE_FRESH=yes`, as
//! `cargo make action` sets it, the checkout is a clone in which nothing is built, and the real cargo builds all.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::{env, io, iter};

use tempfile::TempDir;

use super::Result;
use super::page::{block, root};

/// What the build needs of a checkout, or reads.
const COPIED: [&str; 4] =
    ["Cargo.toml", "Cargo.lock", ".github/actions/conformance/action.yml", ".github/actions/conformance/run.sh"];

/// Hands on all other commands, by which a target builds its guests.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
"build --release --locked --manifest-path "*"/tidegate/Cargo.toml --bin tidegate")
    mkdir -p "${5%/*}/target/release" && ln -sf "$BUILT_TIDEGATE" "${5%/*}/target/release/tidegate" ;;
*) exec "$REAL_CARGO" "$@" ;;
esac
"#;

pub(crate) struct Workspace {
    folder: TempDir,
    /// What is not in the repository: the programs of the machine, and what a CI system writes.
    machine: TempDir,
}

impl Workspace {
    /// With the fixture and the rules of conformance/CI.md.
    pub(crate) fn new() -> Result<Self> {
        let workspace = Self { folder: tempfile::tempdir()?, machine: tempfile::tempdir()? };
        fs::create_dir_all(workspace.path().join("tests/limits/gate"))?;
        fs::write(workspace.path().join("tests/limits/gate/login.json"), block("json", "gate/login")?)?;
        workspace.write_rules(|rules| rules)?;
        if is_fresh() {
            let mut clone = Command::new("git");
            clone.args(["clone", "--quiet"]).arg(root()).arg(workspace.path().join("tidegate"));
            assert!(clone.status()?.success(), "the checkout cannot be cloned");
        } else {
            for file in COPIED {
                let copy = workspace.path().join("tidegate").join(file);
                fs::create_dir_all(copy.parent().unwrap_or(&copy))?;
                fs::copy(root().join(file), copy)?;
            }
            let cargo = workspace.temporary().join("cargo");
            fs::write(&cargo, CARGO)?;
            fs::set_permissions(cargo, fs::Permissions::from_mode(0o755))?;
        }
        Ok(workspace)
    }

    /// Writes the rules of the page, after a change.
    pub(crate) fn write_rules(&self, change: impl Fn(String) -> String) -> Result<()> {
        Ok(fs::write(self.path().join("rules.toml"), change(block("toml", "[limits.login]")?))?)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder for what the CI system writes.
    pub(crate) fn temporary(&self) -> &Path {
        self.machine.path()
    }

    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path().join(file))
    }

    /// What the CI system shows of the job.
    pub(crate) fn summary(&self) -> String {
        fs::read_to_string(self.temporary().join("summary.md")).unwrap_or_default()
    }

    /// A command on the machine, on which nobody has set anything for Tidegate.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path());
        let path = env::var_os("PATH").unwrap_or_default();
        if is_fresh() {
            command.env_clear().env("PATH", path);
            let kept = ["HOME", "TMPDIR", "CARGO_HOME", "RUSTUP_HOME"];
            command.envs(kept.iter().filter_map(|name| Some((name, env::var_os(name)?))));
        } else {
            for (name, _) in env::vars_os() {
                if ["TIDEGATE_", "GITHUB_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
                    command.env_remove(name);
                }
            }
            command.env("BUILT_TIDEGATE", env!("CARGO_BIN_EXE_tidegate")).env("REAL_CARGO", env!("CARGO"));
            let own = iter::once(self.temporary().into());
            command.envs(env::join_paths(own.chain(env::split_paths(&path))).map(|path| ("PATH", path)));
        }
        command.env("CI", "true");
        command
    }
}

/// Whether a job builds all from nothing.
fn is_fresh() -> bool {
    env::var_os("TIDEGATE_FRESH").is_some_and(|value| value == "yes")
}
