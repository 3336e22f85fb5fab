//! Reads JSON that people write and tells where it is wrong, and names values as JSON has them.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A path in a document, and what is wrong there.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Empty for the whole document, or for example `steps[2].expect.admitted`.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(&*self.path, "" | ".") {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Reads a document.
///
/// # Errors
/// Says what is wrong first.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| Wrong {
        // Invalid JSON has no path. The message contains the line and column.
        path: Some(error.path().to_string()).filter(|path| path != "?").unwrap_or_default(),
        message: with_closest(&error.into_inner().to_string()),
    })?;
    json.end().map_err(|error| Wrong { path: String::new(), message: error.to_string() })?;
    Ok(parsed)
}

/// The name of a variant in JSON.
pub fn name(variant: &impl Serialize) -> String {
    serde_json::to_value(variant).ok().and_then(|name| name.as_str().map(str::to_string)).unwrap_or_default()
}

/// Adds the closest known field to an error about an unknown one.
fn with_closest(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| message.starts_with("unknown "));
    let closest = unknown.and_then(|unknown| {
        let near = names.map(|name| (strsim::damerau_levenshtein(unknown, name), name));
        near.min().filter(|(distance, _)| *distance <= 3).map(|(_, name)| name)
    });
    match closest {
        Some(name) => format!("{message}; did you mean `{name}`?"),
        None => message.to_string(),
    }
}
