use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_conformance::json;
use tidegate_harness::report::{Report, SCHEMA};

use super::Failure;

/// Reads a report.
///
/// # Errors
/// Fails if the file is no report, or one of another version.
pub fn report(file: &Path) -> Result<Report, Failure> {
    let (text, schema) = versioned(file)?;
    if schema != SCHEMA {
        let found = if schema.is_empty() { "missing".into() } else { format!("{schema:?}") };
        return Err(Failure::Usage(format!("{}: schema is {found}; this version reads {SCHEMA:?}", file.display())));
    }
    deserialized(file, &text)
}

/// The text of a file, and the value of its field `schema`.
pub(crate) fn versioned(file: &Path) -> Result<(String, String), Failure> {
    let wrong = |message: String| Failure::Usage(format!("{}: {message}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let value = serde_json::from_str::<Value>(&text);
    let value = value.map_err(|error| wrong(format!("{error}; is it a whole report.json?")))?;
    Ok((text, value["schema"].as_str().unwrap_or_default().into()))
}

pub(crate) fn deserialized<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, Failure> {
    json::read(text).map_err(|wrong| Failure::Usage(format!("{}: {wrong}", file.display())))
}
