//! Every snippet that `tidegate choose` can print is a file of `conformance/snippets`, where compilers check it: Rust's for the
//! targets of the platforms, and TypeScript's in the tests of the npm package.
//!
//! `TIDEGATE_UPDATE=1` writes the files.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;
use tidegate_core::gate::Rules;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PLATFORMS: [&str; 6] = ["cloudflare", "vercel", "netlify", "fastly", "spin", "server"];

/// The platforms with designs that lend.
const LEND: [&str; 4] = ["cloudflare", "vercel", "netlify", "server"];

/// The code for each design of a platform, by the name of the design.
fn codes(platform: &str) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["choose", "--json", "--platform", platform, "--limit", "100"]);
    // The code does not depend on the run.
    command.args(["--seconds", "1", "--rate", "1"]);
    if LEND.contains(&platform) {
        command.args(["--excess", "25"]);
    }
    let output = command.output()?;
    let chosen: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(chosen["code"].clone())
}

#[test]
fn every_snippet_is_compiled() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snippets");
    let mut expected = BTreeSet::new();
    for platform in PLATFORMS {
        let codes = codes(platform)?;
        for (design, code) in codes.as_object().ok_or("no code")? {
            assert!(code["rust"].is_string() || code["javascript"].is_string(), "{platform} {design}: {code}");
            for (language, place, end) in [("rust", "src", "rs"), ("javascript", "javascript", "js")] {
                let Some(text) = code[language].as_str() else { continue };
                let name = format!("{place}/{platform}_{}.{end}", design.replace('-', "_"));
                let file = folder.join(&name);
                if env::var_os("TIDEGATE_UPDATE").is_some() {
                    fs::write(&file, text)?;
                }
                let known = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                assert_eq!(text, known, "{name}: write it with TIDEGATE_UPDATE=1 cargo test --test choose");
                expected.insert(name);
            }
            let lease = code["rules"].as_str().map(|text| Rules::parse("rules.toml", text)).transpose()?;
            let grace = lease.and_then(|rules| rules.leases().next().map(|(_, lease)| lease.grace));
            let expected = design.contains("-leased").then_some(if design.ends_with("-grace") { 2 } else { 0 });
            assert_eq!(grace, expected, "{platform} {design}: {code}");
        }
    }
    let library = fs::read_to_string(folder.join("src/lib.rs"))?;
    let mut found = BTreeSet::new();
    for place in ["src", "javascript"] {
        for entry in fs::read_dir(folder.join(place))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "lib") {
                assert!(library.contains(&format!("pub mod {module};")), "lib.rs does not compile {name}");
            }
            if name != "lib.rs" {
                found.insert(format!("{place}/{name}"));
            }
        }
    }
    assert_eq!(found, expected, "files that nothing prints");
    Ok(())
}

#[test]
fn what_is_installed_for_javascript_is_the_package_and_what_its_tests_use() -> Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../adapters/npm/package.json");
    let npm: Value = serde_json::from_str(&fs::read_to_string(manifest)?)?;
    for platform in PLATFORMS {
        for (design, code) in codes(platform)?.as_object().ok_or("no code")? {
            assert_eq!(code["npm"].is_string(), code["javascript"].is_string(), "{platform} {design}: {code}");
            if let Some(command) = code["npm"].as_str() {
                let packages = command.strip_prefix("npm install ").ok_or(command)?.split_whitespace();
                // What `cargo make pack` writes.
                let (ours, others): (Vec<_>, Vec<_>) =
                    packages.partition(|package| *package == "\"$TIDEGATE/target/npm/tidegate-edge.tgz\"");
                assert_eq!(ours.len(), 1, "{design}: {command}");
                assert!(others.iter().all(|one| npm["devDependencies"][one].is_string()), "{design}: {command}");
            }
        }
    }
    Ok(())
}

/// `cargo add` refuses a folder without the crate, and a feature that it does not have.
#[test]
fn the_commands_for_cargo_add_the_crates_of_the_checkout() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let workspace: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let mut commands = BTreeSet::new();
    for platform in PLATFORMS {
        for (design, code) in codes(platform)?.as_object().ok_or("no code")? {
            assert_eq!(code["cargo"].is_string(), code["rust"].is_string(), "{platform} {design}: {code}");
            commands.extend(code["cargo"].as_str().map(str::to_owned));
        }
    }
    assert!(commands.len() > 7, "{commands:?}");
    for command in commands {
        let package = tempfile::tempdir()?;
        fs::create_dir(package.path().join("src"))?;
        fs::write(package.path().join("src/lib.rs"), "")?;
        fs::write(package.path().join("Cargo.toml"), "[package]\nname = \"app\"\nedition = \"2024\"\n")?;
        let mut shell = Command::new("sh");
        shell.args(["-ec", &command]).current_dir(package.path());
        let output = shell.env("TIDEGATE", &root).env("CARGO_NET_OFFLINE", "true").output()?;
        assert!(output.status.success(), "{command}{}", String::from_utf8_lossy(&output.stderr));
        let manifest: toml::Table = fs::read_to_string(package.path().join("Cargo.toml"))?.parse()?;
        let added = manifest["dependencies"].as_table().ok_or("no dependencies")?;
        assert_eq!(added.len(), command.lines().count(), "{command}{manifest:?}");
        for (name, dependency) in added {
            let known = &workspace["workspace"]["dependencies"][name];
            match dependency.get("path").and_then(toml::Value::as_str) {
                Some(path) => assert!(package.path().join(path).join("Cargo.toml").exists(), "{command}"),
                None => assert_eq!(dependency.as_str(), known.as_str().and_then(|known| known.get(..3)), "{command}"),
            }
        }
    }
    Ok(())
}

#[test]
fn before_the_release_it_says_how_the_commands_work() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["choose", "--platform", "vercel", "--limit", "100", "--seconds", "1", "--rate", "1"]);
    let printed = String::from_utf8(command.output()?.stdout)?;
    let (before, commands) = printed.split_once("\ncargo:\n").ok_or("no commands")?;
    assert!(before.contains("Tidegate is not published yet.") && before.contains("`cargo make pack`"), "{printed}");
    assert!(!printed.contains("<!--"), "{printed}");
    assert!(commands.contains("  cargo add tidegate-redis --path \"$TIDEGATE/adapters/redis\""), "{printed}");
    assert!(commands.contains("\nnpm:\n  npm install \"$TIDEGATE/target/npm/tidegate-edge.tgz\"\n"), "{printed}");
    Ok(())
}

#[test]
fn one_process_needs_no_store_and_several_need_a_server() -> Result<()> {
    let choose = |arguments: &[&str]| -> Result<(String, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["choose", "--platform", "server", "--limit", "100"]).args(arguments).output()?;
        Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    };
    let (one, _) = choose(&["--places", "fra", "--isolates", "1", "--seconds", "60"])?;
    assert!(one.contains("Use memory: 0 % over the limit") && one.contains("MemoryLimiter::new()"), "{one}");
    let (several, _) = choose(&["--places", "fra", "--seconds", "60"])?;
    assert!(several.contains("Use redis-leased: 0 % over the limit"), "{several}");
    assert!(several.contains("not memory: ") && several.contains("Redis::new(Config::new(url))"), "{several}");
    Ok(())
}
