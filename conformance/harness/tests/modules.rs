//! The modules of each crate form a tree: no module needs itself through those beside it, directly or indirectly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The path of a module, from the root of its crate.
type Module = Vec<String>;

/// What is built or installed, and not written.
const LEFT_OUT: [&str; 4] = ["target", "node_modules", "dist", ".git"];

/// The folders `src` of all crates.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join("Cargo.toml").exists() && folder.join("src").is_dir() {
        found.push(folder.join("src"));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() && name != "src" && !LEFT_OUT.iter().any(|left_out| name == *left_out) {
            sources(&entry.path(), found)?;
        }
    }
    Ok(())
}

/// The code of each module in a folder, without tests.
fn modules(folder: &Path, above: &[String], found: &mut BTreeMap<Module, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let module = [above, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            modules(&path, &module, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !["lib", "main", "tests"].contains(&&*name) {
            let text = fs::read_to_string(&path)?;
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
            found.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(())
}

/// The paths that the code of a module names, from the root of its crate.
fn named(module: &[String], code: &str, paths: &Regex) -> Vec<Module> {
    let mut named = Vec::new();
    for path in paths.captures_iter(code) {
        let mut parts: Vec<&str> = path["path"].split("::").collect();
        let ups = parts.iter().take_while(|part| **part == "super").count();
        let mut from: Module = if ups == 0 { Vec::new() } else { module[..module.len().saturating_sub(ups)].to_vec() };
        parts.drain(..ups.max(1));
        from.extend(parts.iter().map(|part| (*part).to_owned()));
        match path.name("list") {
            None => named.push(from),
            Some(list) => {
                let names = list.as_str().split(',').map(|name| name.trim().split("::").next().unwrap_or_default());
                named.extend(names.map(|name| [&from[..], &[name.to_owned()]].concat()));
            }
        }
    }
    named
}

/// For each module, those beside it that it or what is below it needs.
fn needs(all: &BTreeMap<Module, String>, paths: &Regex) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut needs: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, code) in all {
        for mut path in named(module, code, paths) {
            while !path.is_empty() && !all.contains_key(&path) {
                path.pop();
            }
            let shared = module.iter().zip(&path).take_while(|(one, other)| one == other).count();
            if shared < path.len() && shared < module.len() {
                needs.entry(module[..=shared].to_vec()).or_default().insert(path[..=shared].to_vec());
            }
        }
    }
    needs
}

/// Whether a module needs itself, directly or indirectly.
fn is_in_a_circle(module: &Module, needs: &BTreeMap<Module, BTreeSet<Module>>) -> bool {
    let (mut seen, mut left) = (BTreeSet::new(), vec![module]);
    while let Some(next) = left.pop() {
        for needed in needs.get(next).into_iter().flatten() {
            if needed == module {
                return true;
            }
            if seen.insert(needed) {
                left.push(needed);
            }
        }
    }
    false
}

fn paths() -> Result<Regex> {
    Ok(Regex::new(r"\b(?P<path>(?:crate|super(?:::super)*)(?:::\w+)*)(?:::\{(?P<list>[^{}]*)\})?")?)
}

#[test]
fn no_modules_form_a_circle() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut folders, mut circles, mut count) = (Vec::new(), Vec::new(), 0);
    sources(&root, &mut folders)?;
    for folder in &folders {
        let mut all = BTreeMap::new();
        modules(folder, &[], &mut all)?;
        let needs = needs(&all, &paths()?);
        count += needs.len();
        let crate_name = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let circular = needs.keys().filter(|module| is_in_a_circle(module, &needs));
        circles.extend(circular.map(|module| {
            let needed: Vec<String> = needs[module].iter().map(|one| one.join("::")).collect();
            format!("{crate_name}: {} needs {}", module.join("::"), needed.join(", "))
        }));
    }
    assert!(folders.len() > 20 && count > 150, "{} crates, {count} modules", folders.len());
    assert!(circles.is_empty(), "these modules need themselves:\n{}", circles.join("\n"));
    Ok(())
}

#[test]
fn a_circle_is_found_through_lists_and_parents() -> Result<()> {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let all = BTreeMap::from([
        (module("a"), "use crate::b::Thing;".into()),
        (module("b"), "use crate::{c, other};".into()),
        (module("c"), String::new()),
        (module("c::inner"), "use super::super::a;\nuse super::Thing;".into()),
        (module("d"), "use crate::a;".into()),
    ]);
    let needs = needs(&all, &paths()?);
    let circular: Vec<String> =
        needs.keys().filter(|one| is_in_a_circle(one, &needs)).map(|one| one.join("::")).collect();
    assert_eq!(circular, ["a", "b", "c"]);
    Ok(())
}
