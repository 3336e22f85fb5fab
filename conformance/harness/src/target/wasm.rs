//! Finds the Rust toolchain and the tools that build WebAssembly guests. `conformance/setup.sh` installs both.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::checkout::workspace;

/// What to do if something is missing.
const REMEDY: &str = "run conformance/setup.sh to install it";

/// The environment variable that selects a toolchain, or `None` for the default one.
pub(super) type Toolchain = Option<(&'static str, OsString)>;

/// Returns the first toolchain that can build for `target`: the default one, the one that the setup links if rustup
/// cannot add the target, or Debian's.
pub(super) fn toolchain(target: &str) -> Result<Toolchain, String> {
    let mut path = OsString::from("/usr/bin:");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut known =
        [None, Some(("RUSTUP_TOOLCHAIN", OsString::from("tidegate-wasm"))), Some(("PATH", path))].into_iter();
    let missing = || format!("no Rust toolchain here can build for {target}; {REMEDY}");
    known.find(|toolchain| has_library(toolchain.clone(), target)).ok_or_else(missing)
}

fn has_library(toolchain: Toolchain, target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]).envs(toolchain);
    let folder = said(&mut rustc).map(PathBuf::from);
    let files = folder.and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Returns the output of a command if it succeeded.
pub(super) fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Returns the path of a tool that the setup installs in the checkout.
pub(super) fn tool(path: &str) -> Result<PathBuf, String> {
    let tool = workspace().join(path);
    let name = || tool.file_name().map(Path::new).unwrap_or(&tool).display().to_string();
    if tool.exists() { Ok(tool) } else { Err(format!("{} is not installed; {REMEDY}", name())) }
}
