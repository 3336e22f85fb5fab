//! The README of the repository contains a Worker that the tests build.

use std::fs;
use std::path::Path;

#[test]
fn the_worker_in_the_readme_is_the_one_that_is_built() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (readme, worker) = (
        fs::read_to_string(root.join("README.md"))?,
        fs::read_to_string(root.join("conformance/guests/cloudflare-one/src/lib.rs"))?,
    );
    assert!(
        readme.contains(&format!("```rust,ignore\n{worker}```\n")),
        "copy guests/cloudflare-one/src/lib.rs into the README"
    );
    Ok(())
}
