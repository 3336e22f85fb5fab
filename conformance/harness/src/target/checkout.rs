use std::path::{Path, PathBuf};

/// The workspace that this program was built in. Guests are built from it.
#[must_use]
pub fn workspace() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.ancestors().nth(2).unwrap_or(harness).to_path_buf()
}
