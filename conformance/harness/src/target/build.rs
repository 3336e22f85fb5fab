use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::Mutex;

use super::checkout::workspace;
use super::wasm;
use crate::output::{err, errln};

/// The programs built so far, by package.
static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::const_new(BTreeMap::new());

/// Builds a native program of the workspace once, and returns the path of its executable. It shares what was compiled for this
/// program.
///
/// # Errors
/// Says why it cannot be built.
pub async fn program(package: &str) -> Result<PathBuf, String> {
    // Cargo selects the features of dependencies for all packages of a command together. Users build this program with the default
    // members. `cargo test --workspace --all-features` also selects what tests depend on, as this command does if it names a test.
    let shared: &[&str] = match cfg!(debug_assertions) {
        true => &["--workspace", "--all-features", "--test", "setup"],
        false => &["--release"],
    };
    once(package, &[&["--bin", package], shared].concat(), None, "executable").await
}

/// Builds the hosts once, and returns the path of one executable. They are always optimised, because they compile the
/// guests. They are built together, because building one alone would compile the engine again with different features.
pub(super) async fn host(package: &str) -> Result<PathBuf, String> {
    let workspace = "--manifest-path=conformance/hosts/Cargo.toml";
    once(package, &["--workspace", workspace, "--target-dir=target/hosts", "--release"], None, "executable").await
}

/// Builds the peers in Rust once, and returns the path of their executable.
pub(super) async fn peers() -> Result<PathBuf, String> {
    let workspace = "--manifest-path=conformance/peers/Cargo.toml";
    once("tidegate-peers", &[workspace, "--target-dir=target/peers", "--release"], None, "executable").await
}

/// Builds a guest for a WebAssembly target once, with all features, and returns the path of its module.
pub(super) async fn module(package: &str, target: &str) -> Result<PathBuf, String> {
    let toolchain = wasm::toolchain(target)?;
    once(package, &["--package", package, "--target", target, "--release", "--all-features"], toolchain, "module").await
}

async fn once(package: &str, args: &[&str], toolchain: wasm::Toolchain, wanted: &str) -> Result<PathBuf, String> {
    let mut built = BUILT.lock().await;
    if let Some(program) = built.get(package) {
        return Ok(program.clone());
    }
    let program = build(package, args, toolchain, wanted).await?;
    built.insert(package.into(), program.clone());
    Ok(program)
}

async fn build(package: &str, args: &[&str], toolchain: wasm::Toolchain, wanted: &str) -> Result<PathBuf, String> {
    let workspace = workspace();
    if !workspace.join("Cargo.toml").exists() {
        return Err(format!(
            "{} does not exist; run tidegate in the checkout that it was built in",
            workspace.display()
        ));
    }
    errln!("building {package} ({})", args.join(" "));
    // A toolchain has its own cargo.
    let own = || std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(if toolchain.is_some() { "cargo".into() } else { own() });
    apart_from_this(build.as_std_mut());
    build.envs(toolchain).current_dir(&workspace).arg("build").args(args);
    // A first build takes a minute or two. Show its progress on a terminal only.
    if !stderr().is_terminal() {
        build.arg("--quiet");
    }
    build.arg("--message-format=json-render-diagnostics");
    // A terminal is shared for the sake of cargo's progress bar. A pipe is not: a child can make it non-blocking.
    let progress = if stderr().is_terminal() { Stdio::inherit() } else { Stdio::piped() };
    build.stdin(Stdio::null()).stderr(progress).kill_on_drop(true);
    let built = build.output().await.map_err(|error| format!("cargo: {error}"))?;
    err!("{}", String::from_utf8_lossy(&built.stderr));
    if !built.status.success() {
        return Err(format!("cargo could not build {package}; see its output above"));
    }
    let messages = built.stdout.split(|byte| *byte == b'\n');
    let built = messages.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let program = |message: serde_json::Value| {
        let found = match wanted {
            "executable" => &message["executable"],
            _ => &message["filenames"][0],
        };
        let named = message["target"]["name"].as_str().is_some_and(|name| name.replace('_', "-") == package);
        let found = found.as_str().filter(|_| named && message["reason"] == "compiler-artifact");
        found.map(PathBuf::from)
    };
    built.filter_map(program).next_back().ok_or_else(|| format!("cargo built no executable for {package}"))
}

/// Removes the variables that cargo sets for the programs it runs, such as tests, from a command that calls cargo. The build script of
/// `ring` reads some of them. With other values, cargo would run it again and compile all that depends on it, in this call and
/// in the next one outside.
pub fn apart_from_this(cargo: &mut std::process::Command) -> &mut std::process::Command {
    let is_set_by_cargo =
        |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_set_by_cargo)) {
        cargo.env_remove(name);
    }
    cargo
}

/// The lock file of the hosts.
pub(super) const HOSTS: &str = "conformance/hosts/Cargo.lock";

/// The version of a crate in a lock file of the workspace.
pub(super) fn locked(file: &str, name: &str) -> Result<String, String> {
    let lock = workspace().join(file);
    let text = std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let named = format!("name = {name:?}");
    let version =
        text.lines().skip_while(|line| *line != named).nth(1).and_then(|line| line.strip_prefix("version = "));
    let version = version.ok_or_else(|| format!("{}: no package {name}", lock.display()))?;
    Ok(version.trim_matches('"').to_string())
}

/// Waits until no other `tidegate` in this checkout does the same: `guests`, which are the npm package and the Workers, or the
/// `setup`. Cargo has locks of its own. The lock ends with the returned file.
pub(crate) async fn alone(what: &str) -> Result<std::fs::File, String> {
    let path = workspace().join(format!("target/{what}.lock"));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    errln!("waiting for another run in this checkout, which builds its {what}");
    let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await;
    locked.map_err(|error| error.to_string())?.map_err(failed)
}
