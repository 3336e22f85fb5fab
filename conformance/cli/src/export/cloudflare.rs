//! Rate limiting rules of Cloudflare's WAF, as the body of `PUT /zones/{zone}/rulesets/phases/http_ratelimit/entrypoint`
//! (<https://developers.cloudflare.com/waf/rate-limiting-rules/create-api/>).
//!
//! **Errs** towards admitting. Cloudflare does not say how it counts in a period. It has published that it estimates from two
//! counters (<https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>), so the limit allows for that. Counters
//! are kept for each data center (`cf.colo.id` is mandatory), and an excess may pass for a few seconds.
//!
//! **Not guaranteed** if the zone does not normalize incoming URLs, which it does by default: then a path in another spelling may
//! be counted as another path.

use serde::Serialize;
use tidegate_core::gate::{Host, Path};

use super::bound::Counting;
use super::pattern::{is_any, is_literal, literal, whole_regex};
use super::ring::Ring;
use super::select::{Can, Selection};
use super::{File, Periods, Plan, Profile};

/// The counting periods that both pages name: <https://developers.cloudflare.com/waf/rate-limiting-rules/parameters/> and
/// <https://developers.cloudflare.com/waf/rate-limiting-rules/#availability>, without those above an hour.
const PERIODS: [u64; 6] = [10, 60, 120, 300, 600, 3_600];

/// The most characters of an expression: <https://developers.cloudflare.com/ruleset-engine/rules-language/expressions/>.
const EXPRESSION_MAX: usize = 4_096;

/// From <https://developers.cloudflare.com/waf/rate-limiting-rules/#availability>. The operator `matches` needs the plan
/// Business: <https://developers.cloudflare.com/ruleset-engine/rules-language/operators/>. Header fields need Enterprise with
/// application security.
pub(super) fn profile(plan: Option<Plan>) -> Profile {
    let [periods, rules_max] = match plan {
        Some(Plan::Pro) => [2, 2],
        Some(Plan::Business) => [5, 5],
        Some(Plan::Enterprise) => [6, 100],
        _ => [1, 1],
    };
    let business = matches!(plan, Some(Plan::Business | Plan::Enterprise));
    let can = Can {
        host: plan != Some(Plan::Free),
        method: business,
        header: plan == Some(Plan::Enterprise),
        regex: business,
    };
    Profile {
        plan,
        periods: Periods::These(PERIODS.get(..periods).unwrap_or(&[])),
        counting: Counting::Estimate,
        rules_max,
        is_rule_each: false,
        can,
        addresses: business,
        refuses,
    }
}

#[derive(Serialize)]
struct Ruleset<'a> {
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
struct Rule<'a> {
    description: &'a str,
    expression: String,
    action: &'static str,
    ratelimit: RateLimit,
}

#[derive(Serialize)]
struct RateLimit {
    characteristics: [&'static str; 2],
    period: u64,
    requests_per_period: u64,
    mitigation_timeout: u64,
}

pub(super) fn write(rings: &[Ring<'_>], allowed: &[String], plan: Option<Plan>) -> (Vec<File>, Vec<&'static str>) {
    let throttles = plan == Some(Plan::Enterprise);
    let ruleset = Ruleset { rules: rings.iter().map(|ring| rule(ring, allowed, throttles)).collect() };
    let content = serde_json::to_string_pretty(&ruleset).unwrap_or_default() + "\n";
    let mut general = vec![
        "Cloudflare counts in each data center, so a sender that reaches several is allowed as much in each.",
        "Cloudflare may let an excess pass for a few seconds.",
        "Paths are compared as Cloudflare normalizes them, which a zone does by default. If it does not, Cloudflare may count a \
         path in another spelling as another path.",
        "If Tidegate is behind Cloudflare's cache, add \"requests_to_origin\": true to each ratelimit, so that only what it sees \
         is counted.",
        "The request that sets these rules replaces all rate limiting rules of the zone; add the others to it.",
    ];
    if !throttles {
        general.push("Once an address exceeds a rule, Cloudflare denies all its requests of that rule for 10 s.");
    }
    (vec![File { name: "cloudflare-ratelimit.json".into(), content }], general)
}

fn rule<'a>(ring: &'a Ring<'_>, allowed: &[String], throttles: bool) -> Rule<'a> {
    Rule {
        description: &ring.about,
        expression: expression(ring, allowed),
        action: "block",
        ratelimit: RateLimit {
            characteristics: ["ip.src", "cf.colo.id"],
            period: ring.period_s,
            requests_per_period: ring.requests,
            // Only Enterprise admits what fits while it blocks what does not.
            mitigation_timeout: if throttles { 0 } else { 10 },
        },
    }
}

fn refuses(ring: &Ring<'_>, allowed: &[String]) -> Option<String> {
    let length = expression(ring, allowed).len();
    let reason = format!("its expression has {length} characters, and Cloudflare takes at most {EXPRESSION_MAX}");
    Some(reason).filter(|_| length > EXPRESSION_MAX)
}

/// Selects requests, in the Rules language.
fn expression(ring: &Ring<'_>, allowed: &[String]) -> String {
    let groups: Vec<String> = ring.selections.iter().map(|selection| format!("({})", conditions(selection))).collect();
    let any = groups.join(" or ");
    match (allowed, groups.len()) {
        ([], _) => any,
        (_, 1) => format!("{any} and not ip.src in {{{}}}", allowed.join(" ")),
        _ => format!("({any}) and not ip.src in {{{}}}", allowed.join(" ")),
    }
}

fn conditions(selection: &Selection<'_>) -> String {
    let mut all = Vec::new();
    all.extend(host(selection.host));
    all.push(path(selection.path));
    if !selection.methods.is_empty() {
        all.push(methods(&selection.methods));
    }
    all.extend(selection.headers.iter().map(|name| header(name)));
    let left_out = selection.left_out(host, path, methods, header);
    all.extend(left_out.map(|condition| format!("not {condition}")));
    all.join(" and ")
}

fn host(host: &Host) -> Option<String> {
    match host {
        Host::Any => None,
        Host::Exact(host) => Some(format!("lower(http.host) eq {}", quoted(host))),
        Host::Below(domain) => Some(format!("ends_with(lower(http.host), {})", quoted(&format!(".{domain}")))),
    }
}

fn path(path: &Path) -> String {
    const FIELD: &str = "http.request.uri.path";
    if is_any(path) {
        return format!("starts_with({FIELD}, \"/\")");
    }
    if !is_literal(path) {
        return format!("{FIELD} matches r\"{}\"", whole_regex(path));
    }
    let text = literal(path);
    let slash = quoted(&format!("{text}/"));
    match (path.is_prefix, text.is_empty()) {
        (_, true) => format!("{FIELD} eq \"/\""),
        (true, _) => format!("({FIELD} eq {} or starts_with({FIELD}, {slash}))", quoted(&text)),
        (false, _) => format!("{FIELD} in {{{} {slash}}}", quoted(&text)),
    }
}

fn methods(methods: &[&str]) -> String {
    let methods: Vec<String> = methods.iter().map(|method| quoted(method)).collect();
    format!("http.request.method in {{{}}}", methods.join(" "))
}

fn header(name: &str) -> String {
    format!("any(http.request.headers.names[*] eq {})", quoted(name))
}

/// A string literal: <https://developers.cloudflare.com/ruleset-engine/rules-language/values/>.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_quoted_text_ends_where_it_should() {
        assert_eq!(quoted(r#"a"b\c\"#), r#""a\"b\\c\\""#);
    }
}
