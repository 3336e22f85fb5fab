//! What the READMEs tell a newcomer to write is what is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_harness::target::apart_from_this;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The folders whose READMEs begin with a program for any machine.
const READMES: [&str; 8] = [
    "core",
    "core/jwt",
    "core/rules",
    "adapters/envoy",
    "adapters/postgres",
    "adapters/redis",
    "adapters/tower",
    "conformance",
];

/// Those whose programs run on a platform only: the dependencies that they name must exist, with their features. The examples are
/// what is built.
const READMES_OF_PLATFORMS: [&str; 3] = ["adapters/cloudflare", "adapters/fastly", "adapters/spin"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_worker_in_the_readme_is_the_one_that_is_built() -> Result<()> {
    let root = root();
    let worker = fs::read_to_string(root.join("conformance/guests/cloudflare-one/src/lib.rs"))?;
    let readme = fs::read_to_string(root.join("adapters/cloudflare/README.md"))?;
    let has_worker = readme.contains(&format!("```rust,ignore\n{worker}```\n"));
    assert!(has_worker, "copy guests/cloudflare-one/src/lib.rs into adapters/cloudflare/README.md");
    Ok(())
}

/// The root README shows the core of each start page, which `tidegate-dev pages` runs.
#[test]
fn the_readme_shows_lines_of_the_pages_that_it_links_to() -> Result<()> {
    let root = root();
    let readme = fs::read_to_string(root.join("README.md"))?;
    let mut parts = 0;
    for section in readme.split("\n**[").skip(1) {
        let page = section.split_once("](").and_then(|(_, rest)| Some(rest.split_once(')')?.0)).unwrap_or_default();
        let Some(code) = blocks(section, &["rust part", "ts part", "toml part"]).next() else { continue };
        assert!(fs::read_to_string(root.join(page))?.contains(code), "{page} does not have these lines:\n{code}");
        parts += 1;
    }
    assert!(parts > 5, "{parts} parts");
    Ok(())
}

/// In the workspace, they are examples of documentation, which use whatever the tests of their crate depend on.
#[test]
fn the_programs_compile_in_a_package_with_the_dependencies_that_the_readme_names() -> Result<()> {
    let (root, workspace) = (root().canonicalize()?, Path::new(env!("CARGO_TARGET_TMPDIR")).join("newcomers"));
    // No package or program of an earlier README stays.
    if workspace.exists() {
        fs::remove_dir_all(&workspace)?;
    }
    fs::create_dir_all(&workspace)?;
    // crates.io may not have these crates in this version.
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n\n[patch.crates-io]\n");
    for folder in READMES.into_iter().chain(READMES_OF_PLATFORMS) {
        let package = workspace.join(name_of(folder));
        let programs = write_package(&root, folder, &package)?;
        assert!(programs > 0 || !READMES.contains(&folder), "{folder}/README.md has no program");
        manifest += &format!("{} = {{ path = {:?} }}\n", crate_of(folder), root.join(folder));
    }
    fs::write(workspace.join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock"))?;
    // What the workspace has checked with the same features is not checked again.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").display().to_string();
    let mut check = vec!["check", "--quiet", "--workspace", "--tests", "--target-dir", &target];
    let others = READMES_OF_PLATFORMS.map(name_of);
    check.extend(others.iter().flat_map(|name| ["--exclude", name]));
    cargo(&workspace, &check)?;
    // A rules file in TOML is an error only when the program runs. Alone, a package has the features that its README names.
    for folder in READMES {
        if fs::read_to_string(root.join(folder).join("README.md"))?.contains("Rules::parse(\"rules.toml\"") {
            let tree = ["tree", "--package", &name_of(folder), "--prefix", "none", "--format", "{p} {f}"];
            let tree = cargo(&workspace, &tree)?;
            let core = tree.lines().find(|line| line.starts_with("tidegate-core ")).unwrap_or_default();
            assert!(core.contains("toml"), "the programs of {folder}/README.md read no TOML: {core}");
        }
    }
    Ok(())
}

#[test]
fn the_versions_of_rust_and_of_node_are_those_of_the_manifests() -> Result<()> {
    let (root, read) = (root(), |file: &str| fs::read_to_string(root().join(file)));
    let version = |file: &str, key: &str| -> Result<String> {
        let text = read(file)?;
        let line =
            text.lines().find(|line| line.trim_start().starts_with(key)).ok_or_else(|| format!("{file}: no {key}"))?;
        Ok(line.chars().filter(|letter| letter.is_ascii_digit() || *letter == '.').collect())
    };
    let (core, all) = (version("core/Cargo.toml", "rust-version")?, version("Cargo.toml", "rust-version")?);
    let node = version("adapters/npm/package.json", "\"node\"")?;
    let guide = fs::read_to_string(root.join("core/docs/changes.md"))?;
    let says = format!("{core} or newer for `tidegate-core`, {all} or newer for all other crates.");
    assert!(guide.contains(&says), "write: {says}");
    assert!(guide.contains(&format!("**Node.js**: {node} or newer.")), "write {node}");
    Ok(())
}

/// wrangler before 4.164 ignores `exports`, which replaces `migrations`.
#[test]
fn bindings_of_durable_objects_suit_each_wrangler_and_pages_name_the_node() -> Result<()> {
    let listed = Command::new("git").current_dir(root()).args(["ls-files", "*.md", "*wrangler.json*"]).output()?;
    let (mut bindings, mut installations) = (0, 0);
    for file in String::from_utf8(listed.stdout)?.lines() {
        let text = fs::read_to_string(root().join(file))?;
        let configurations: Vec<_> =
            if file.ends_with(".md") { blocks(&text, &["jsonc"]).collect() } else { vec![&text] };
        for configuration in configurations.into_iter().filter(|text| text.contains("\"class_name\"")) {
            assert!(
                configuration.contains("\"migrations\": [{ \"tag\": \"v1\", \"new_sqlite_classes\": ["),
                "{file}:\n{configuration}"
            );
            bindings += 1;
        }
        if blocks(&text, &["sh"]).any(|commands| commands.contains("npm install") && commands.contains("wrangler")) {
            assert!(
                text.contains("Node.js 20") && text.contains("Node.js 22.12"),
                "{file} says not which Node.js wrangler takes"
            );
            installations += 1;
        }
    }
    assert!(bindings >= 8 && installations >= 3, "{bindings} bindings, {installations} installations");
    Ok(())
}

/// What a command of cargo prints. An error if it fails.
fn cargo(workspace: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(env!("CARGO"));
    let output = apart_from_this(&mut command).current_dir(workspace).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn crate_of(folder: &str) -> String {
    format!("tidegate-{}", folder.rsplit('/').next().unwrap_or_default())
}

fn name_of(folder: &str) -> String {
    format!("newcomer-to-{}", crate_of(folder))
}

/// A package of the programs of a README, and their number. They are tests, so that they can use both kinds of dependencies.
fn write_package(root: &Path, folder: &str, package: &Path) -> Result<usize> {
    let readme = fs::read_to_string(root.join(folder).join("README.md"))?;
    let dependencies =
        blocks(&readme, &["toml"]).find(|block| block.starts_with('[') && block.contains("dependencies]"));
    let dependencies = dependencies.ok_or_else(|| format!("{folder}/README.md names no dependencies"))?;
    let head = format!("[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n", name_of(folder));
    for part in ["src", "tests", "examples"] {
        fs::create_dir_all(package.join(part))?;
    }
    fs::write(package.join("Cargo.toml"), format!("{head}\n{dependencies}"))?;
    fs::write(package.join("src/lib.rs"), "")?;
    if let Ok(rules) = fs::read(root.join(folder).join("examples/rules.toml")) {
        fs::write(package.join("examples/rules.toml"), rules)?;
    }
    let mut programs = 0;
    for program in blocks(&readme, &["rust", "rust,no_run"]) {
        programs += 1;
        fs::write(package.join(format!("tests/program_{programs}.rs")), unhidden(program))?;
    }
    Ok(programs)
}

/// The contents of the code blocks in one of these languages.
fn blocks<'a>(readme: &'a str, languages: &'a [&str]) -> impl Iterator<Item = &'a str> {
    readme.split("\n```").skip(1).step_by(2).filter_map(|block| {
        let (language, code) = block.split_once('\n')?;
        languages.contains(&language).then_some(code)
    })
}

/// A program with the lines that documentation hides.
fn unhidden(program: &str) -> String {
    let lines = program.lines().map(|line| if line == "#" { "" } else { line.strip_prefix("# ").unwrap_or(line) });
    lines.fold("#![allow(dead_code, unused_variables)]\n".into(), |text: String, line| text + line + "\n")
}
