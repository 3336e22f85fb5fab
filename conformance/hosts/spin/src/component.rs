//! Turns a module that cargo builds for wasm32-wasip1 into a component, as Spin does when it loads one.

use std::path::Path;

use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, plug};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

/// Reads a component. If the file holds a module, it is turned into a component.
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

/// Puts a middleware in front of an app, as Spin and `wac plug` do: what the middleware imports is what the app exports.
pub(crate) fn compose(middleware: Vec<u8>, app: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut graph = CompositionGraph::new();
    let mut register = |name: &str, bytes: Vec<u8>| {
        let package =
            Package::from_bytes(name, None, bytes, graph.types_mut()).map_err(|error| format!("{error:#}"))?;
        graph.register_package(package).map_err(|error| error.to_string())
    };
    let (middleware, app) = (register("middleware", middleware)?, register("app", app)?);
    plug(&mut graph, vec![app], middleware)
        .map_err(|error| format!("the middleware and the app: {error}; the app must export wasi:http/handler@0.3.0"))?;
    graph.encode(EncodeOptions::default()).map_err(|error| error.to_string())
}

/// The two bytes after the version are zero in a module; in a component they hold its layer.
fn is_component(bytes: &[u8]) -> bool {
    bytes.get(6..8) == Some(&[1, 0])
}
