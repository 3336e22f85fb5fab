//! The part of spin.toml that a component which answers HTTP depends on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    trigger: Triggers,
    component: BTreeMap<String, Component>,
}

#[derive(Default, Deserialize)]
struct Triggers {
    #[serde(default)]
    http: Vec<Trigger>,
}

#[derive(Deserialize)]
struct Trigger {
    component: String,
    #[serde(default)]
    dependencies: Dependencies,
}

#[derive(Default, Deserialize)]
struct Dependencies {
    #[serde(default)]
    middleware: Vec<Middleware>,
}

#[derive(Deserialize)]
struct Middleware {
    component: String,
    #[serde(default)]
    inherit_configuration: Inherited,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Inherited {
    All(bool),
    Some(Vec<String>),
}

impl Default for Inherited {
    fn default() -> Self {
        Self::All(false)
    }
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
    #[serde(default)]
    pub(crate) variables: BTreeMap<String, String>,
    /// Files beside the manifest, which it sees at the root.
    #[serde(default)]
    pub(crate) files: Vec<String>,
}

/// What a middleware must inherit to have it. Without the first, Spin does not start the gate, because it denies no atomics. Without the others
/// it denies the calls, and here the app does not start, because app and middleware share what they have.
const INHERITED: [&str; 3] = ["key_value_stores", "files", "variables"];

/// Reads the component of a manifest that has exactly one, or one and its middleware.
pub(crate) fn component(path: &Path, has_middleware: bool) -> Result<Component, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
    let mut manifest: Manifest = toml::from_str(&text).map_err(|error| said(&error))?;
    if !has_middleware {
        let mut components = manifest.component.into_values();
        return match (components.next(), components.next()) {
            (Some(component), None) => Ok(component),
            _ => Err(said(&"write exactly one component; this host runs more only with --middleware")),
        };
    }
    let [Trigger { component, dependencies: Dependencies { middleware } }] = &manifest.trigger.http[..] else {
        return Err(said(&"write exactly one [[trigger.http]]"));
    };
    let [Middleware { component: front, inherit_configuration }] = &middleware[..] else {
        return Err(said(&"write exactly one middleware under dependencies.middleware of the trigger"));
    };
    let inherits = |name: &str| match inherit_configuration {
        Inherited::All(all) => *all,
        Inherited::Some(names) => names.iter().any(|given| given == name),
    };
    if let Some(name) = INHERITED.into_iter().find(|name| !inherits(name)) {
        return Err(said(&format!("the middleware {front:?} has no {name:?} in inherit_configuration")));
    }
    let has_outbound = inherits("allowed_outbound_hosts");
    if !manifest.component.contains_key(front) {
        return Err(said(&format!("no component {front:?}")));
    }
    let mut component =
        manifest.component.remove(component).ok_or_else(|| said(&format!("no component {component:?}")))?;
    if !has_outbound {
        component.allowed_outbound_hosts.clear();
    }
    Ok(component)
}
