//! `report.html`: one file that needs nothing from the network.

use serde::Serialize;

use super::Report;

const PAGE: &str = include_str!("page/page.html");
/// The style of the pages.
pub(crate) const STYLE: &str = include_str!("page/page.css");
/// What the scripts of the pages are built of.
pub(crate) const ELEMENTS: &str = include_str!("page/elements.js");
const SCRIPT: &str =
    concat!(include_str!("page/model.js"), include_str!("page/charts.js"), include_str!("page/view.js"));

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &Report) -> serde_json::Result<String> {
    let page = PAGE.replace("/*style*/", STYLE).replace("/*script*/", &[ELEMENTS, SCRIPT].concat());
    Ok(page.replace("/*report*/", &embedded(report)?))
}

/// JSON for an element of a page. In JSON, `<` occurs only in strings. Escaped, no text can end the element that holds it.
pub(crate) fn embedded(report: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(report)?.replace('<', "\\u003c"))
}
