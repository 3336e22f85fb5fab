//! `replay.html`: one file that needs nothing from the network.

use serde::Serialize;

use super::report::AccessReport;
use super::text::remarks;
use crate::page::{ELEMENTS, STYLE, embedded};

const PAGE: &str = include_str!("page/page.html");
const MORE_STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(include_str!("page/chart.js"), include_str!("page/view.js"));

/// What the page shows.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a AccessReport,
    remarks: Vec<String>,
}

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &AccessReport) -> serde_json::Result<String> {
    let page = PAGE.replace("/*style*/", &[STYLE, MORE_STYLE].concat());
    let shown = Shown { report, remarks: remarks(report) };
    Ok(page.replace("/*script*/", &[ELEMENTS, SCRIPT].concat()).replace("/*report*/", &embedded(&shown)?))
}
