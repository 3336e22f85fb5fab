use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidegate_harness::output::{err, errln, out, outln};

use crate::export::{Export, Plan, Platform, export};
use crate::program::{Failure, rules};

const EXAMPLES: &str = "\
Examples:
  tidegate export --rules rules.toml --for cloudflare --plan pro > ruleset.json
  tidegate export --rules rules.toml --for vercel --format json
  tidegate export --rules rules.toml --for netlify --out .
  tidegate export --rules rules.toml --for fastly --anonymous

The platform's rules are looser than the limits: as long as Tidegate admits all requests of an
address, the platform denies none. What it cannot express, and how it differs, goes to standard
error.

Exit codes: 0 success, 1 no limit could be expressed, 2 the command line or the file is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The rules file, in TOML or JSON.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The platform.
    #[arg(long = "for", value_enum, value_name = "PLATFORM")]
    platform: Platform,
    /// The plan, which limits the rules. The default is the smallest: free on Cloudflare and Netlify, hobby on Vercel. Fastly has
    /// none.
    #[arg(long, value_enum)]
    plan: Option<Plan>,
    /// The application identifies nobody, so a limit without `by` counts by address.
    #[arg(long)]
    anonymous: bool,
    /// Write the files to this folder, instead of to standard output.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The form of the output: the platform's files, with text to standard error, or one JSON object with everything.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let source = rules::source(&args.rules)?;
    for warning in source.warnings() {
        errln!("warning: {warning}");
    }
    let export = export(&source, args.platform, args.plan, args.anonymous).map_err(Failure::Usage)?;
    if let Some(folder) = &args.out {
        write(&export, folder)?;
    }
    match args.format {
        Format::Json => outln!("{}", serde_json::to_string_pretty(&export).unwrap_or_default()),
        Format::Text => {
            if args.out.is_none() {
                let files: Vec<&str> = export.files.iter().map(|file| file.content.as_str()).collect();
                out!("{}", files.join("\n"));
            }
            err!("{}", summary(&export));
        }
    }
    if export.files.is_empty() { Err(Failure::Failed) } else { Ok(()) }
}

fn write(export: &Export, folder: &Path) -> Result<(), Failure> {
    for file in &export.files {
        let path = folder.join(&file.name);
        let wrong = |error: std::io::Error| {
            let fix = match error.kind() {
                ErrorKind::PermissionDenied => "; name a folder that you may write to with --out",
                _ => "",
            };
            Failure::Usage(format!("{}: {error}{fix}", path.display()))
        };
        fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(wrong)?;
        fs::write(&path, &file.content).map_err(wrong)?;
        errln!("wrote {}", path.display());
    }
    Ok(())
}

/// What the files have and lack, for people.
fn summary(export: &Export) -> String {
    let plan = export.plan.map_or_else(String::new, |plan| format!(", plan {}", plan.name()));
    let (has, lacks) = (export.expressed.len(), export.not_expressed.len());
    let mut text = format!("{}{plan}: {has} expressed, {lacks} not\n", export.platform.name());
    let mut heading = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            _ = write!(text, "\n{title}\n  {}\n", lines.join("\n  "));
        }
    };
    let expressed = export.expressed.iter();
    heading(
        "expressed",
        expressed
            .map(|one| format!("{} of {}: {} requests in {} s", one.limit, one.rule, one.requests, one.period_s))
            .collect(),
    );
    let not_expressed = export.not_expressed.iter();
    heading(
        "not expressed",
        not_expressed
            .map(|one| match &one.rule {
                Some(rule) => format!("{} of {rule}: {}", one.limit, one.reason),
                None => format!("{}: {}", one.limit, one.reason),
            })
            .collect(),
    );
    let differs = export.differs.iter();
    heading(
        "differs",
        differs
            .map(|one| match &one.limit {
                Some(limit) => format!("{limit}: {}", one.difference),
                None => one.difference.clone(),
            })
            .collect(),
    );
    text
}
