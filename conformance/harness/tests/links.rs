//! Every link in the Markdown of the repository leads somewhere, and no address is a stranger's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What is built or installed, and not written.
const LEFT_OUT: [&str; 4] = ["target", "node_modules", "dist", ".git"];

fn markdown(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                markdown(&entry.path(), found)?;
            }
        } else if entry.path().extension().is_some_and(|end| end == "md") {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// The names of a page's headings, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    lines.map(|line| line.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn every_link_leads_to_a_file_and_to_its_heading() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    markdown(&root, &mut pages)?;
    let (fenced, link) = (Regex::new("(?s)```.*?```")?, Regex::new(r"\]\(([^)\s]+)\)")?);
    let (mut links, mut broken) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(page)?;
        let prose = fenced.replace_all(&text, "");
        for target in link.captures_iter(&prose).map(|found| found[1].to_owned()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() { page.clone() } else { page.parent().unwrap_or(&root).join(path) };
            let leads = file.exists()
                && (heading.is_empty()
                    || fs::read_to_string(&file).is_ok_and(|text| headings(&text).contains(heading)));
            if !leads {
                broken.push(format!("{}: {target}", page.strip_prefix(&root)?.display()));
            }
        }
    }
    assert!(pages.len() > 30 && links > 60, "{} pages, {links} links", pages.len());
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
    Ok(())
}

#[test]
fn the_readme_is_short() -> Result<()> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"))?;
    let prose = Regex::new("(?s)```.*?```")?.replace_all(&readme, "").split_whitespace().count();
    assert!(prose <= 1_400, "{prose} words");
    Ok(())
}

/// Where Tidegate's code would be on a host of repositories, and its packages before they are published.
const ADDRESSES: [&str; 3] = [
    r"(?i)(?:github\.com|gitlab\.com|bitbucket\.org|codeberg\.org)[/:](?:[\w.-]*tidegate[\w.-]*/[\w.-]+|[\w.-]+/tidegate\b)",
    r"(?i)uses:\s*(?:[\w-]*tidegate[\w.-]*/[\w.-]+|\w[\w.-]*/tidegate\b)",
    r"(?i)(?:docs\.rs|crates\.io/crates|npmjs\.com/package)/@?tidegate",
];

/// What a line with such an address contains.
const HOSTS: [&str; 8] =
    ["github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "uses:", "docs.rs", "crates.io", "npmjs.com"];

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(program).current_dir(folder).args(arguments).output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The files that git knows, with their text.
fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let (_, names) = run(root, "git", &["ls-files"])?;
    let text = |name: &str| fs::read_to_string(root.join(name)).ok();
    Ok(names.lines().filter_map(|name| Some((name.to_owned(), text(name)?))).collect())
}

/// What `cargo make repository` has set.
fn address(root: &Path) -> Result<Option<String>> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    Ok(Regex::new("(?m)^repository = \"(.*)\"$")?.captures(&manifest).map(|found| found[1].to_owned()))
}

/// The addresses in the files that claim to be Tidegate's, and are not the one that is set.
fn strange_addresses(root: &Path) -> Result<Vec<String>> {
    let own = address(root)?;
    let patterns = ADDRESSES.iter().map(|one| Regex::new(one)).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut strange = Vec::new();
    for (name, text) in files(root)? {
        // Few lines name a host.
        for line in text.lines().filter(|line| HOSTS.iter().any(|host| line.contains(host))) {
            let line = own.as_ref().map_or(line.to_owned(), |own| line.replace(own, ""));
            let found = patterns.iter().filter_map(|pattern| pattern.find(&line));
            strange.extend(found.map(|found| format!("{name}: {}", found.as_str())));
        }
    }
    Ok(strange)
}

#[test]
fn no_address_of_tidegate_is_named_but_the_one_that_its_owner_has_set() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let strange = strange_addresses(&root)?;
    assert!(strange.is_empty(), "set the address with `cargo make repository URL`, or link relatively:\n{strange:#?}");
    let name = ["tide", "gate"].concat();
    let claims = [
        format!("https://github.com/{name}/{name}/issues"),
        format!("git@gitlab.com:somebody/{name}.git"),
        format!("uses: {name}/{name}/.github/actions/conformance@main"),
        format!("https://docs.rs/{name}-core"),
    ];
    for claim in claims {
        assert!(ADDRESSES.iter().any(|one| Regex::new(one).is_ok_and(|one| one.is_match(&claim))), "{claim}");
    }
    Ok(())
}

/// Whether what a workflow uses is in the repository, or another's action at a commit, with the tag that it has.
fn is_pinned(uses: &str) -> Result<bool> {
    Ok(Regex::new(r"^(?:\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$")?.is_match(uses))
}

#[test]
fn each_action_of_others_is_pinned_and_has_its_tag() -> Result<()> {
    let uses = Regex::new(r"(?m)^\s*(?:- *)?uses:\s*(.*?)\s*$")?;
    let (mut found, mut versions, mut wrong) = (0, BTreeMap::<String, BTreeSet<String>>::new(), Vec::new());
    for (file, text) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))? {
        if ![".md", ".yml", ".yaml"].iter().any(|end| file.ends_with(end)) {
            continue;
        }
        for one in uses.captures_iter(&text).map(|found| found[1].to_owned()) {
            found += 1;
            if !is_pinned(&one)? {
                wrong.push(format!("{file}: {one}"));
            }
            if let Some((action, version)) = one.split_once('@') {
                versions.entry(action.to_owned()).or_default().insert(version.to_owned());
            }
        }
    }
    assert!(wrong.is_empty(), "pin these by commit, with the tag in a comment:\n{wrong:#?}");
    assert!(found > 7 && versions.len() > 2, "{found} lines, {versions:?}");
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "these have several versions: {versions:#?}");
    let commit = "3d3c42e5aac5ba805825da76410c181273ba90b1";
    let unpinned = [
        "actions/checkout@v7".into(),
        format!("actions/checkout@{commit}"),
        format!("actions/checkout@{} # v7.0.1", &commit[1..]),
    ];
    for one in unpinned {
        assert!(!is_pinned(&one)?, "{one}");
    }
    Ok(())
}

/// A copy of what git knows.
fn copied() -> Result<tempfile::TempDir> {
    let (root, copy) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), tempfile::tempdir()?);
    for (name, text) in files(&root)? {
        let to = copy.path().join(name);
        fs::create_dir_all(to.parent().unwrap_or(copy.path()))?;
        fs::write(to, text)?;
    }
    run(copy.path(), "git", &["init", "--quiet"])?;
    run(copy.path(), "git", &["add", "--all"])?;
    Ok(copy)
}

#[test]
fn the_release_leaves_no_page_that_asks_for_a_checkout() -> Result<()> {
    let copy = copied()?;
    let printed = "conformance/cli/src/commands/choose/";
    let pages = |one: &str| -> Result<usize> {
        let pages =
            files(copy.path())?.into_iter().filter(|(name, _)| name.ends_with(".md") || name.starts_with(printed));
        Ok(pages.filter(|(_, text)| text.contains(one)).count())
    };
    let unreleased = ["before the release -->", "\"$TIDEGATE/", "tidegate-edge.tgz\""];
    assert!(pages(unreleased[0])? >= 10 && pages(unreleased[1])? >= 9);
    let (begun, ended) = (pages("<!-- before the release -->")?, pages("<!-- /before the release -->")?);
    assert_eq!(begun, ended, "a part before the release has no end");
    let (done, said) = run(copy.path(), "node", &["conformance/setup/released.mjs"])?;
    assert!(done, "{said}");
    for one in unreleased {
        assert_eq!(pages(one)?, 0, "{one} is left");
    }
    let readme = fs::read_to_string(copy.path().join("adapters/redis/README.md"))?;
    assert!(readme.contains("tidegate-redis = \"0.1\"\n```\n\n```rust"), "{readme}");
    // What `tidegate choose` prints.
    assert_eq!(fs::read_to_string(copy.path().join(printed).join("unpublished.md"))?, "");
    let cargo = fs::read_to_string(copy.path().join(printed).join("candidates.rs"))?;
    for command in ["cargo add tidegate-core\"", "cargo add tidegate-redis --no-default-features --features rest\""] {
        assert!(cargo.contains(command), "{command}");
    }
    assert!(fs::read_to_string(copy.path().join(printed).join("code.rs"))?.contains("\"@tidegate/edge\"#"));
    Ok(())
}

#[test]
fn a_page_that_names_packages_says_how_they_work_before_the_release() -> Result<()> {
    let names =
        r"(?m)^\s*(?:tidegate-[a-z-]+ = |cargo add tidegate-|npm install .*(?:@tidegate/edge|tidegate-edge\.tgz))";
    let (names, mut found, mut silent) = (Regex::new(names)?, 0, Vec::new());
    for (name, text) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))? {
        if name.ends_with(".md") && names.is_match(&text) {
            found += 1;
            if !text.contains("<!-- before the release -->") {
                silent.push(name);
            }
        }
    }
    assert!(found > 15, "{found} pages");
    assert!(silent.is_empty(), "these do not say that Tidegate is not published yet: {silent:?}");
    Ok(())
}

#[test]
fn the_address_is_set_in_one_step_and_another_replaces_it() -> Result<()> {
    let copy = copied()?;
    for url in ["", "github.com/acme/limits", "https://github.com/acme", "https://github.com/acme/limits.git"] {
        let (done, said) = run(copy.path(), "node", &["conformance/setup/repository.mjs", url])?;
        assert!(!done && said.contains("cargo make repository https://HOST/OWNER/NAME"), "{url}: {said}");
    }
    for (url, other) in
        [("https://github.com/acme/limits", "nowhere"), ("https://codeberg.org/b/edge", "acme/limits\"")]
    {
        let (done, said) = run(copy.path(), "node", &["conformance/setup/repository.mjs", url])?;
        assert!(done, "{said}");
        assert_eq!(address(copy.path())?.as_deref(), Some(url));
        assert_eq!(strange_addresses(copy.path())?, Vec::<String>::new());
        for manifest in ["Cargo.toml", "adapters/npm/package.json"] {
            let text = fs::read_to_string(copy.path().join(manifest))?;
            assert!(text.contains(url) && !text.contains(other), "{text}");
        }
        let crates = files(copy.path())?.into_iter().filter(|(name, text)| {
            name.ends_with("Cargo.toml") && text.matches("\nrepository.workspace = true\n").count() == 1
        });
        assert!(crates.count() > 10, "too few crates have the address");
        let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"];
        let (read, said) = run(copy.path(), env!("CARGO"), &metadata)?;
        assert!(read && said.contains(&format!("\"repository\":\"{url}\"")), "cargo does not read the manifests");
    }
    Ok(())
}
