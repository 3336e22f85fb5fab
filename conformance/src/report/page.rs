//! `report.html`: one file that needs nothing from the network.

use tidegate_traffic::page::{ELEMENTS, STYLE, embedded};

use super::Report;

const PAGE: &str = include_str!("page/page.html");
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
