//! What the HTML reports share. Each is one file that needs nothing from the network.

use serde::Serialize;

/// The style.
pub const STYLE: &str = include_str!("page/page.css");

/// What their scripts are built of.
pub const ELEMENTS: &str = include_str!("page/elements.js");

/// JSON for an element of a page. In JSON, `<` occurs only in strings. Escaped, no text can end the element that holds it.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn embedded(report: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(report)?.replace('<', "\\u003c"))
}
