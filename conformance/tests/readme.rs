//! Two READMEs contain a Worker that the tests build.

use std::fs;
use std::path::Path;

#[test]
fn the_worker_in_the_readmes_is_the_one_that_is_built() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let worker = fs::read_to_string(root.join("conformance/guests/cloudflare-one/src/lib.rs"))?;
    for file in ["README.md", "adapters/cloudflare/README.md"] {
        let readme = fs::read_to_string(root.join(file))?;
        let has_worker = readme.contains(&format!("```rust,ignore\n{worker}```\n"));
        assert!(has_worker, "copy guests/cloudflare-one/src/lib.rs into {file}");
    }
    Ok(())
}
