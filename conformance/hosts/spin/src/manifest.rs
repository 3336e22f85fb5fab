//! The part of spin.toml that a component which answers HTTP depends on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    component: BTreeMap<String, Component>,
}

/// The app's component.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Component {
    /// The labels of the key-value stores that it may open.
    #[serde(default)]
    pub(crate) key_value_stores: Vec<String>,
    /// The servers that it may connect to.
    #[serde(default)]
    pub(crate) allowed_outbound_hosts: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
}

/// Reads the component of a manifest that has exactly one.
pub(crate) fn component(path: &Path) -> Result<Component, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
    let manifest: Manifest = toml::from_str(&text).map_err(|error| said(&error))?;
    let mut components = manifest.component.into_values();
    match (components.next(), components.next()) {
        (Some(component), None) => Ok(component),
        _ => Err(said(&"write exactly one component; this host cannot run more")),
    }
}
