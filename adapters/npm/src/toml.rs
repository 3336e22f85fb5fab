//! TOML, which the gate's TypeScript reads through this.

use tidegate_core::gate::toml_to_json;
use wasm_bindgen::prelude::*;

/// Reads a text in TOML. Returns JSON: see [`toml_to_json`].
#[wasm_bindgen]
pub fn read(text: &str) -> String {
    toml_to_json(text)
}
