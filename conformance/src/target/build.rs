use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::Mutex;

use super::wasm::Toolchain;

/// The workspace that this program was built in: its guests are built from there.
#[must_use]
pub fn workspace() -> PathBuf {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR"));
    conformance.parent().unwrap_or(conformance).to_path_buf()
}

/// Programs that were built already, by package.
static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::const_new(BTreeMap::new());

/// Builds a package of the workspace in this program's own profile, once, and tells where its program is.
pub(super) async fn program(package: &str) -> Result<PathBuf, String> {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    once(package, &format!("--profile={profile}"), &[], None).await
}

/// The same of a host, from the hosts' own workspace. Always optimised: a WebAssembly runtime is too slow otherwise.
pub(super) async fn host(package: &str) -> Result<PathBuf, String> {
    once(package, "--release", &["--manifest-path=conformance/hosts/Cargo.toml", "--target-dir=target/hosts"], None)
        .await
}

/// The same of a guest in WebAssembly, by a Rust that can. Always optimised, as it would be deployed.
pub(super) async fn wasm(package: &str, target: &str, toolchain: Toolchain) -> Result<PathBuf, String> {
    once(package, "--release", &[&format!("--target={target}")], toolchain).await
}

/// The version of a crate that hosts are built with.
pub(super) fn host_dependency(name: &str) -> Result<String, String> {
    let lock = workspace().join("conformance/hosts/Cargo.lock");
    let text = std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let mut lines = text.lines().skip_while(|line| *line != format!("name = {name:?}")).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = "));
    let version = version.ok_or_else(|| format!("{}: {name} is not in it", lock.display()))?;
    Ok(version.trim_matches('"').to_string())
}

async fn once(package: &str, profile: &str, more: &[&str], toolchain: Toolchain) -> Result<PathBuf, String> {
    let mut built = BUILT.lock().await;
    if let Some(program) = built.get(package) {
        return Ok(program.clone());
    }
    let program = build(package, profile, more, toolchain).await?;
    built.insert(package.into(), program.clone());
    Ok(program)
}

async fn build(package: &str, profile: &str, more: &[&str], toolchain: Toolchain) -> Result<PathBuf, String> {
    let workspace = workspace();
    if !workspace.join("Cargo.toml").exists() {
        return Err(format!("{} is gone; run tollgate in the checkout it was built in", workspace.display()));
    }
    eprintln!("building {package} ({})", profile.trim_start_matches("--").trim_start_matches("profile="));
    let cargo = match &toolchain {
        // Another Rust comes with a cargo of its own.
        Some(_) => "cargo".into(),
        None => std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
    };
    let mut build = Command::new(cargo);
    build.current_dir(&workspace).args(["build", "--package", package, profile]).args(more).envs(toolchain);
    // A first build takes a minute or two: a person may watch it, a log need not.
    if !stderr().is_terminal() {
        build.arg("--quiet");
    }
    build.arg("--message-format=json-render-diagnostics");
    build.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let built = build.output().await.map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!("cargo could not build {package}; what it said is above"));
    }
    let messages = built.stdout.split(|byte| *byte == b'\n');
    let built = messages.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let program = |message: serde_json::Value| {
        let is_program = message["target"]["name"] == package && message["target"]["kind"][0] == "bin";
        is_program.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    };
    built.filter_map(program).next_back().ok_or_else(|| format!("cargo built no program of {package}"))
}
