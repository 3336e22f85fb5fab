use std::path::{Path, PathBuf};

/// The workspace that this program was built in. Guests are built from it.
#[must_use]
pub fn workspace() -> PathBuf {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR"));
    conformance.parent().unwrap_or(conformance).to_path_buf()
}
