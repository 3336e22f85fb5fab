//! Every link in the Markdown of the repository leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How a link from anywhere to a file of the repository begins.
const REPOSITORY: &str = "https://github.com/tidegate/tidegate/blob/main/";

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = Vec::new();
    markdown(&root, &mut pages)?;
    let (fenced, link) = (Regex::new("(?s)```.*?```")?, Regex::new(r"\]\(([^)\s]+)\)")?);
    let (mut links, mut broken) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(page)?;
        let prose = fenced.replace_all(&text, "");
        for target in link.captures_iter(&prose).map(|found| found[1].to_owned()) {
            // The pages that are also documentation of a crate have whole addresses.
            let own = target.strip_prefix(REPOSITORY);
            if own.is_none() && (target.contains("://") || target.starts_with("mailto:")) {
                continue;
            }
            links += 1;
            let (path, heading) = own.unwrap_or(&target).split_once('#').unwrap_or((own.unwrap_or(&target), ""));
            let folder = if own.is_some() { &root } else { page.parent().unwrap_or(&root) };
            let file = if path.is_empty() { page.clone() } else { folder.join(path) };
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
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md"))?;
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    Ok(())
}
