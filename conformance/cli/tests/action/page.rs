//! What conformance/CI.md shows.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::Result;

/// The checkout that this test is in.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The one block of code of the page in this language that contains a text.
pub(crate) fn block(language: &str, has: &str) -> Result<String> {
    let page = fs::read_to_string(root().join("conformance/CI.md"))?;
    let fence = Regex::new(&format!("(?ms)^( *)```{language}\n(.*?)^ *```$"))?;
    let blocks = fence.captures_iter(&page).map(|found| {
        let indent = &found[1];
        found[2].lines().map(|line| line.strip_prefix(indent).unwrap_or(line).to_owned() + "\n").collect::<String>()
    });
    let mut blocks = blocks.filter(|block| block.contains(has));
    match (blocks.next(), blocks.next()) {
        (Some(block), None) => Ok(block),
        _ => Err(format!("CI.md has not one block of {language} with {has:?}").into()),
    }
}
