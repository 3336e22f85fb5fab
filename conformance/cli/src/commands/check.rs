use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_core::Error;
use tidegate_core::gate::Rules;
use tidegate_core::lending::Lease;
use tidegate_harness::output::{errln, outln};

use crate::program::rules::text;
use crate::program::{Failure, counted};

const EXAMPLES: &str = "\
Examples:
  tidegate check rules.toml                        say what is wrong, and where
  tidegate check --deny-warnings rules.toml        fail on what is probably a mistake, too
  tidegate check --store main --store memory rules.toml
                                                   check all names of stores against those of the gate, its first store first
  tidegate check --overrides overrides.toml rules.toml
                                                   check a file of overrides, too
  tidegate check --json rules.toml                 for another program

The dimensions that `by` may name are sender (the default), ip, ja4, global, those of tokens.keys, and those that the file declares in
its list `dimensions`.

Exit codes: 0 the file is valid, 1 it is not, 2 it cannot be read.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The rules file, in TOML or JSON.
    #[arg(value_name = "FILE")]
    rules: PathBuf,
    /// A store of the gate that reads the file. May be repeated, the gate's first store first. Without it, the names in the table
    /// `stores` are compared with those of the rules.
    #[arg(long, value_name = "NAME")]
    store: Vec<String>,
    /// The file of overrides, whose limits of single keys precede those of the rules.
    #[arg(long, value_name = "FILE")]
    overrides: Option<PathBuf>,
    /// Exit with 1 if there are warnings.
    #[arg(long)]
    deny_warnings: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.rules.display().to_string();
    let read = read(&args.rules, args.overrides.as_deref())?.and_then(|rules| {
        let named = named(&rules, &args.store);
        named.map(|()| rules).map_err(|error| Error::new(error.kind(), format!("{file}: {error}")))
    });
    let is_fine = read.as_ref().is_ok_and(|rules| !args.deny_warnings || rules.warnings().is_empty());
    if args.json {
        outln!("{:#}", as_json(&file, &read));
    } else {
        say(&file, &read);
    }
    if is_fine { Ok(()) } else { Err(Failure::Failed) }
}

/// Reads a rules file, and the file of overrides if there is one.
pub(super) fn read(file: &Path, overrides: Option<&Path>) -> Result<Result<Rules, Error>, Failure> {
    let rules = Rules::parse(&file.display().to_string(), &text(file)?);
    let Some(file) = overrides else { return Ok(rules) };
    let text = text(file)?;
    Ok(rules.and_then(|rules| rules.with_overrides(&file.display().to_string(), &text)))
}

/// Checks the names of stores.
fn named(rules: &Rules, stores: &[String]) -> Result<(), Error> {
    if stores.is_empty() {
        let hint = |error: Error| format!("{error}, or name the stores of the gate with --store");
        return rules.check_own_stores().map_err(|error| Error::new(error.kind(), hint(error)));
    }
    rules.check_stores(&stores.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Prints what is wrong with a file, or that nothing is.
pub(super) fn say(file: &str, read: &Result<Rules, Error>) {
    match read {
        Ok(rules) => {
            for warning in rules.warnings() {
                errln!("warning: {warning}");
            }
            let (count, warnings) = (rules.rules().len(), rules.warnings().len());
            outln!("{file}: {}, {}", counted(count, "rule"), counted(warnings, "warning"));
            for (limit, lease) in rules.leases() {
                outln!("limit {limit}: decided from loans of {lease}");
            }
            for (limit, from) in rules.limits_from() {
                outln!("limit {limit}: {from}");
            }
            if rules.overrides() > 0 {
                outln!("overrides: {}", counted(rules.overrides(), "key"));
            }
        }
        Err(error) => errln!("error: {error}"),
    }
}

/// A lease, as in a file.
pub(super) fn lease(of: Lease) -> serde_json::Value {
    json!({ "slice": of.slice, "lifetime_ms": of.lifetime.get(), "grace": of.grace })
}

fn as_json(file: &str, read: &Result<Rules, Error>) -> serde_json::Value {
    match read {
        Ok(rules) => json!({
            "file": file,
            "valid": true,
            "rules": rules.rules().iter().map(|rule| rule.name()).collect::<Vec<_>>(),
            "dimensions": rules.dimensions().collect::<Vec<_>>(),
            "leases": rules.leases().map(|(limit, of)| (limit, lease(of))).collect::<BTreeMap<_, _>>(),
            "limits_from": rules.limits_from().collect::<BTreeMap<_, _>>(),
            "overrides": rules.overrides(),
            "stores": rules.store_names(),
            "warnings": rules.warnings(),
        }),
        Err(error) => json!({ "file": file, "valid": false, "error": error.to_string(), "warnings": [] }),
    }
}
