//! Every snippet that `tidegate choose` can print is a file of `conformance/snippets`, where compilers check it: Rust's for the
//! targets of the platforms, and TypeScript's in the tests of the npm package.
//!
//! `TIDEGATE_UPDATE=1` writes the files.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PLATFORMS: [&str; 6] = ["cloudflare", "vercel", "netlify", "fastly", "spin", "server"];

/// The code for each design of a platform, by the name of the design.
fn codes(platform: &str) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["choose", "--json", "--platform", platform, "--limit", "100"]);
    // The code does not depend on the run.
    command.args(["--seconds", "1", "--rate", "1"]);
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
fn the_dependencies_are_packages_with_the_features() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let npm: Value = serde_json::from_str(&fs::read_to_string(root.join("adapters/npm/package.json"))?)?;
    for platform in PLATFORMS {
        for (design, code) in codes(platform)?.as_object().ok_or("no code")? {
            assert_eq!(code["npm"].is_string(), code["javascript"].is_string(), "{platform} {design}: {code}");
            if let Some(command) = code["npm"].as_str() {
                let mut packages = command.strip_prefix("npm install ").ok_or(command)?.split_whitespace();
                assert!(packages.clone().any(|package| npm["name"] == package), "{design}: {command}");
                let is_known = |package: &str| npm["name"] == package || npm["devDependencies"][package].is_string();
                assert!(packages.all(is_known), "{design}: {command}");
            }
            let Some(cargo) = code["cargo"].as_str() else { continue };
            for (package, wanted) in cargo.parse::<toml::Table>()? {
                let known = &workspace["workspace"]["dependencies"][&package];
                let version = wanted.get("version").unwrap_or(&wanted).as_str().ok_or("no version")?;
                let ours = known.get("version").unwrap_or(known).as_str().ok_or("no version")?;
                assert!(ours.starts_with(version), "{design}: {package} {version}, not {ours}");
                let Some(path) = known.get("path").and_then(toml::Value::as_str) else { continue };
                let manifest: toml::Table = fs::read_to_string(root.join(path).join("Cargo.toml"))?.parse()?;
                for feature in wanted.get("features").and_then(toml::Value::as_array).into_iter().flatten() {
                    let feature = feature.as_str().unwrap_or_default();
                    assert!(manifest["features"].get(feature).is_some(), "{design}: {package} has no {feature}");
                }
            }
        }
    }
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
