use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tidegate_core::gate::{Explanation, Listed, Request};
use tidegate_core::{ClientIpSource, Key, Platform, UnixMillis};
use tidegate_harness::output::{errln, out, outln};

use super::check;
use crate::program::Failure;

const EXAMPLES: &str = "\
Examples:
  tidegate explain --rules rules.toml --request 'POST /login' --peer 192.0.2.1
  tidegate explain --rules rules.toml --request 'GET /api/users' --platform cloudflare --header 'CF-Connecting-IP: 192.0.2.1'
  tidegate explain --rules rules.toml --request 'GET /api/users' --subject alice --tier pro --json
  tidegate explain --rules rules.toml --request 'GET /api/users' --subject alice --limit rpm=500 --overrides overrides.toml

Without --request, it checks the file as `tidegate check` does. Warnings about the file go to standard error.

Exit codes: 0 success, 1 the file is wrong or the request cannot be decided, 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The rules file, in TOML or JSON.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The method and the path of a request, for example 'POST /login'. Without it, the file is only checked.
    #[arg(long, value_name = "METHOD PATH", value_parser = request)]
    request: Option<(String, String)>,
    /// The host of the request.
    #[arg(long)]
    host: Option<String>,
    /// A header field of the request, for example 'X-Api-Key: secret'. May be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// The platform that receives the request, whose header has the client's address.
    #[arg(long, default_value = "direct")]
    platform: Platform,
    /// The address of the connection, for the platforms that read it: direct and fastly.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// The subject that the application has verified.
    #[arg(long)]
    subject: Option<String>,
    /// The sender's tier.
    #[arg(long)]
    tier: Option<String>,
    /// The bot score of the request.
    #[arg(long, value_name = "0..255")]
    bot_score: Option<u8>,
    /// The fingerprint of the client's TLS handshake.
    #[arg(long, value_name = "FINGERPRINT")]
    ja4: Option<String>,
    /// A key of the application, for example tenant=tenant:42. May be repeated.
    #[arg(long, value_name = "DIMENSION=KEY", value_parser = key)]
    key: Vec<(String, Key)>,
    /// A limit that the application gives, for example rpm=500. May be repeated.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = limit)]
    limit: Vec<(String, u64)>,
    /// The file of overrides, whose limits of single keys precede those of the rules.
    #[arg(long, value_name = "FILE")]
    overrides: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.rules.display().to_string();
    let read = check::read(&args.rules, args.overrides.as_deref())?;
    let (Some((method, path)), Ok(rules)) = (&args.request, &read) else {
        check::say(&file, &read);
        return read.map(drop).map_err(|_| Failure::Failed);
    };
    for warning in rules.warnings() {
        errln!("warning: {warning}");
    }
    let keys: Vec<(&str, &Key)> = args.key.iter().map(|(name, key)| (name.as_str(), key)).collect();
    let limits: Vec<(&str, u64)> = args.limit.iter().map(|(name, number)| (name.as_str(), *number)).collect();
    let mut request = Request::new(method, path, &args.header, UnixMillis::now());
    request = request.peer(args.peer).keys(&keys).limits(&limits);
    if let Some(host) = &args.host {
        request = request.with_host(host);
    }
    if let Some(subject) = &args.subject {
        request = request.subject(subject);
    }
    if let Some(tier) = &args.tier {
        request = request.tier(tier);
    }
    if let Some(score) = args.bot_score {
        request = request.bot_score(score);
    }
    if let Some(fingerprint) = &args.ja4 {
        request = request.ja4(fingerprint);
    }
    let explanation = rules.explain(&request, &ClientIpSource::new(args.platform));
    if args.json {
        outln!("{:#}", as_json(&explanation));
    } else {
        out!("{explanation}");
    }
    let Some(error) = explanation.error() else { return Ok(()) };
    errln!("error: the request cannot be decided: {error}");
    Err(Failure::Failed)
}

fn as_json(explanation: &Explanation<'_>) -> Value {
    let keys = explanation.policy.as_ref().map_or(&[][..], |policy| policy.dimensions()).iter().zip(&explanation.keys);
    let keys: Vec<Value> = keys
        .map(|(dimension, key)| match key {
            Ok(key) => json!({ "dimension": dimension.name(), "key": key.as_str() }),
            Err(error) => json!({ "dimension": dimension.name(), "error": error.to_string() }),
        })
        .collect();
    json!({
        "rule": explanation.rule.map(|rule| rule.name()),
        "also": explanation.also.iter().map(|rule| rule.name()).collect::<Vec<_>>(),
        "others": explanation.others.iter().map(|rule| rule.name()).collect::<Vec<_>>(),
        "address": explanation.address,
        "token": explanation.token.map(|token| token.err().map_or("valid", |invalid| invalid.0)),
        "verified": explanation.verified.as_ref().map(Key::as_str),
        "tier": explanation.tier,
        "listed": explanation.listed.map(|listed| match listed {
            Listed::Allowed => "allow",
            Listed::Denied => "deny",
        }),
        "challenge": explanation.challenge,
        "cost": explanation.cost,
        "policy": explanation.policy.as_deref(),
        "keys": keys,
        "lease": explanation.lease.map(check::lease),
        "store": explanation.rule.and_then(|rule| rule.store()),
    })
}

fn request(text: &str) -> Result<(String, String), String> {
    let (method, path) = text.split_once(' ').unwrap_or((text, ""));
    if !path.starts_with('/') || method.is_empty() {
        return Err("write a method and a path, such as 'POST /login'".to_string());
    }
    Ok((method.to_string(), path.to_string()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write a name and a value, such as 'X-Api-Key: secret'")?;
    Ok((name.trim().to_string(), value.trim().to_string()))
}

fn limit(text: &str) -> Result<(String, u64), String> {
    let wrong = "write a name and a whole number, such as rpm=500";
    let (name, number) = text.split_once('=').ok_or(wrong)?;
    Ok((name.to_string(), number.parse().map_err(|_| wrong)?))
}

fn key(text: &str) -> Result<(String, Key), String> {
    let (name, key) = text.split_once('=').ok_or("write a dimension and its key, such as tenant=tenant:42")?;
    Ok((name.to_string(), Key::new(key)))
}
