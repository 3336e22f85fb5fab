//! Edge functions of Netlify that do nothing but carry a rate limit
//! (<https://docs.netlify.com/manage/security/secure-access-to-sites/rate-limiting/#add-rules-in-code>).
//!
//! Redirects may have a rate limit too, in `netlify.toml`. They cannot match a method or leave out a path, and they would change
//! how a path is served, so this writes edge functions only.
//!
//! **Errs** towards admitting. Netlify counts in a sliding window and does not say how, so the limit allows for an estimate from
//! two counters. It counts each domain of a project on its own.

use serde::Serialize;
use tidegate_core::gate::Host;

use super::bound::Counting;
use super::pattern::{OTHER_SPELLING, whole_regex};
use super::ring::Ring;
use super::select::{Can, Except, Selection};
use super::{File, Periods, Plan, Profile};

/// From <https://docs.netlify.com/manage/security/secure-access-to-sites/rate-limiting/#availability>. Each edge function is a
/// rule. What a plan Enterprise has depends on the contract, so none is left out for it.
pub(super) fn profile(plan: Option<Plan>) -> Profile {
    let rules_max = match plan {
        Some(Plan::Enterprise) => usize::MAX,
        Some(Plan::Pro) => 5,
        _ => 2,
    };
    Profile {
        plan,
        periods: Periods::Within(1, 180),
        counting: Counting::Estimate,
        rules_max,
        is_rule_each: true,
        // An edge function is for all domains of the project.
        can: Can { host: false, method: true, header: true, regex: true },
        addresses: false,
        refuses,
    }
}

/// The methods of an edge function: the type `HTTPMethod` of the npm package `@netlify/edge-functions` 3.0.8. It has no `HEAD`,
/// which is therefore not counted unless all methods are.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The exported `config` of an edge function.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    pattern: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excluded_pattern: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    method: Vec<&'a str>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    header: serde_json::Map<String, serde_json::Value>,
    rate_limit: RateLimit,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RateLimit {
    window_limit: u64,
    window_size: u64,
    aggregate_by: [&'static str; 2],
}

pub(super) fn write(rings: &[Ring<'_>]) -> (Vec<File>, Vec<&'static str>) {
    let mut files = Vec::new();
    for ring in rings {
        for (place, selection) in ring.selections.iter().enumerate() {
            let name = match place {
                0 => format!("netlify/edge-functions/{}.js", ring.id),
                _ => format!("netlify/edge-functions/{}-{}.js", ring.id, place + 1),
            };
            let config = serde_json::to_string_pretty(&config(ring, selection)).unwrap_or_default();
            let about = &ring.about;
            let content = format!(
                "// {name}: a rate limit, written by `tidegate export`.\n// {about}\n\nexport default () => {{}};\n\n\
                 export const config = {config};\n"
            );
            files.push(File { name, content });
        }
    }
    let general = vec![
        "Netlify counts each domain of the project on its own, and does not document whether its locations share their \
         counts.",
        "Netlify counts each edge function on its own, so rules that share a limit in Tidegate have one each.",
        "Unless a rule is for one path or for all, Netlify does not count paths in another spelling, such as //a or /%61.",
        "Netlify counts HEAD only for a rule of all methods.",
        "Each request that a rule counts runs an edge function, which does nothing.",
    ];
    (files, general)
}

/// Edge functions match no host, so these are never for one.
fn refuses(ring: &Ring<'_>, _: &[String]) -> Option<String> {
    let is_known = |method: &&str| *method == "HEAD" || METHODS.contains(method);
    for selection in &ring.selections {
        if let Some(method) = selection.methods.iter().find(|method| !is_known(method)) {
            return Some(format!("an edge function cannot be for the method {method}"));
        }
        if *selection.host != Host::Any || methods(selection).is_some_and(|methods| methods.is_empty()) {
            return Some("an edge function cannot tell its requests apart".into());
        }
    }
    None
}

/// The methods. `None` for all.
fn methods<'a>(selection: &'a Selection<'_>) -> Option<Vec<&'a str>> {
    let left_out: Vec<&str> = selection.except.iter().flat_map(Except::methods).copied().collect();
    if selection.methods.is_empty() && left_out.is_empty() {
        return None;
    }
    let is_named = |method: &&str| selection.methods.is_empty() || selection.methods.contains(method);
    Some(METHODS.into_iter().filter(|method| is_named(method) && !left_out.contains(method)).collect())
}

fn config<'a>(ring: &Ring<'_>, selection: &'a Selection<'_>) -> Config<'a> {
    let mut excluded_pattern = Vec::new();
    let mut header = serde_json::Map::new();
    header.extend(selection.headers.iter().map(|name| ((*name).to_string(), true.into())));
    for except in &selection.except {
        match except {
            Except::Path(path) => excluded_pattern.push(whole_regex(path)),
            Except::Header(name) => _ = header.insert((*name).to_string(), false.into()),
            Except::Methods(_) | Except::Host(_) => {}
        }
    }
    if selection.mistakes_spellings() {
        excluded_pattern.push(format!("^.*({OTHER_SPELLING}).*$"));
    }
    Config {
        pattern: whole_regex(selection.path),
        excluded_pattern,
        method: methods(selection).unwrap_or_default(),
        header,
        rate_limit: RateLimit {
            window_limit: ring.requests,
            window_size: ring.period_s,
            aggregate_by: ["ip", "domain"],
        },
    }
}
