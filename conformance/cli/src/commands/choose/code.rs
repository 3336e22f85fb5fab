//! What an application writes to use a design.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tidegate_core::Policy;
use tidegate_core::lending::Lease;

use super::super::quota::{Quotas, as_code};
use super::candidates::{Candidate, Rust};
use super::platform::Platform;

/// What every example in Rust imports.
const ALWAYS: [&str; 4] = ["Error", "Millis", "Policy", "Quota"];

/// How the commands work before the packages are published. `cargo make released` empties the file.
const UNPUBLISHED: &str = include_str!("unpublished.md");

/// The npm package, as it is installed from a checkout. `cargo make released` makes it the published one.
const PACKAGE: &str = r#""$TIDEGATE/target/npm/tidegate-edge.tgz""#;

/// What an application writes.
#[derive(Debug, Serialize)]
pub(super) struct Code {
    /// The commands that add the dependencies of the example in Rust to Cargo.toml.
    cargo: Option<String>,
    rust: Option<String>,
    /// The command that installs what the example in JavaScript imports.
    npm: Option<String>,
    javascript: Option<String>,
    /// What a rules file says in their place, if the limit has a lease.
    rules: Option<String>,
}

impl Code {
    pub(super) fn new(candidate: &Candidate, policy: &Policy, platform: Platform, lease: Option<Lease>) -> Self {
        let filled = |code: &str| {
            let rule = policy.quotas()[0].rule();
            let code = code.replace("<platform>", &format!("{:?}", platform.in_javascript()));
            let code = code.replace("<grace>", &lease.map_or(0, |lease| lease.grace).to_string());
            code.replace("<limit>", &rule.limit().to_string()).replace("<window>", &rule.window().get().to_string())
        };
        let Quotas { rust: quotas_rust, javascript: quotas_javascript, toml } = as_code(policy);
        let (name, charges) = (policy.name(), policy.charges_denied());
        let cargo = candidate.rust.as_ref().map(|rust| format!("{}\n", rust.cargo));
        let rust = candidate.rust.as_ref().map(|rust| {
            let denials = if charges { ".charge_denied(true)" } else { "" };
            let item = if rust.item.is_empty() { String::new() } else { [rust.item, "\n\n"].concat() };
            filled(&format!(
                "{}\n\n{item}pub fn limiter({}) -> Result<({}, Policy), Error> {{\n{}    let limiter = {};\n{}    \
                 let policy = Policy::new({name:?}, [{quotas_rust}])?{denials};\n    Ok((limiter, policy))\n}}\n",
                imports(rust),
                rust.parameters,
                rust.returns,
                rust.before,
                rust.limiter,
                rust.after,
            ))
        });
        let javascript = candidate.javascript.as_ref().map(|javascript| {
            let charges = if charges { ", chargeDenied: true" } else { "" };
            let limiter = javascript.limiter.replace("<options>", "failMode: \"open\", policy");
            filled(&format!(
                "import {{ Tidegate }} from {:?};\n{}\nconst policy = {{ name: {name:?}, quotas: [{quotas_javascript}]{charges} }};\n\
                 export const tidegate = {limiter};\n",
                javascript.entry, javascript.before
            ))
        });
        let npm = javascript.as_deref().map(install);
        let rules = lease.map(|lease| rules_file(name, &toml, lease));
        Self { cargo, rust, npm, javascript, rules }
    }
}

/// A rules file with this limit, for all requests.
fn rules_file(name: &str, quotas: &str, lease: Lease) -> String {
    let lease = if lease.grace == 0 { "true".to_owned() } else { format!("{{ grace = {} }}", lease.grace) };
    let key = if name.contains('.') { format!("{name:?}") } else { name.to_owned() };
    format!("[limits.{key}]\nquotas = [{quotas}]\nlease = {lease}\n\n[[rules]]\nlimits = [{name:?}]\n")
}

/// The command that installs what an example in JavaScript imports.
fn install(javascript: &str) -> String {
    let imported = javascript.lines().filter_map(|line| line.split_once(" from \"")?.1.strip_suffix("\";"));
    // A name with a colon is of the runtime.
    let modules = imported.filter(|module| !module.contains(':'));
    let package = |module: &str| {
        let parts = if module.starts_with('@') { 2 } else { 1 };
        module.split('/').take(parts).collect::<Vec<_>>().join("/")
    };
    let packages: BTreeSet<String> = modules.map(package).collect();
    let packages = packages.iter().map(|name| if name == "@tidegate/edge" { PACKAGE } else { name });
    format!("npm install {}\n", packages.collect::<Vec<_>>().join(" "))
}

/// The imports of an example, in rustfmt's order.
fn imports(rust: &Rust) -> String {
    let mut names = [rust.names, &ALWAYS].concat();
    names.extend(rust.returns.contains("impl Limiter").then_some("Limiter"));
    names.sort_unstable();
    let of_the_adapter = format!("{}::{{{}}}", rust.adapter, names.join(", "));
    let mut lines = [rust.imports, &[&of_the_adapter]].concat();
    lines.sort_unstable();
    lines.iter().map(|import| format!("use {import};")).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status: Vec<_> = UNPUBLISHED.lines().filter(|line| !line.starts_with("<!--")).collect();
        if !status.is_empty() {
            writeln!(f, "\n{}", status.join("\n"))?;
        }
        let parts = [
            ("cargo", &self.cargo),
            ("Rust", &self.rust),
            ("npm", &self.npm),
            ("JavaScript", &self.javascript),
            ("or, with a gate, rules.toml", &self.rules),
        ];
        for (title, code) in parts {
            let Some(code) = code else { continue };
            writeln!(f, "\n{title}:")?;
            for line in code.lines() {
                writeln!(f, "{}{line}", if line.is_empty() { "" } else { "  " })?;
            }
        }
        Ok(())
    }
}
