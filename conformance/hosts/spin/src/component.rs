//! A component of what cargo builds for wasm32-wasip1, as Spin makes one when it loads it.

use std::path::Path;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

/// The bytes of a component, made of a module where the file holds one.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = std::fs::read(path).map_err(|error| said(&error))?;
    if is_component(&bytes) {
        return Ok(bytes);
    }
    let encoded = ComponentEncoder::default()
        .module(&bytes)
        .and_then(|it| it.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER))
        .and_then(|mut it| it.encode());
    encoded.map_err(|error| said(&format!("{error:#}")))
}

/// Of the two bytes after the version, a module has zeros, and a component says its layer.
fn is_component(bytes: &[u8]) -> bool {
    bytes.get(6..8) == Some(&[1, 0])
}
