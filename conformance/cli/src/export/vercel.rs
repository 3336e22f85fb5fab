//! Custom rules of Vercel's WAF, as the body of `PUT /v1/security/firewall/config`
//! (<https://vercel.com/docs/rest-api/sdk/security/put-firewall-configuration>).
//!
//! **Errs** towards admitting. Vercel counts in fixed windows, which may begin at any instant, so the limit is the most that
//! Tidegate admits in any interval of that length. Its token bucket (Enterprise) is not used: its documentation does not say how
//! fast it refills. Counters are kept for each region.

use serde::Serialize;
use tidegate_core::gate::Host;

use super::bound::Counting;
use super::pattern::{OTHER_SPELLING, is_any, regex};
use super::ring::Ring;
use super::select::{Can, Selection};
use super::{File, Periods, Plan, Profile};

/// From <https://vercel.com/docs/vercel-firewall/vercel-waf/rate-limiting#limits>.
pub(super) fn profile(plan: Option<Plan>) -> Profile {
    let (longest, rules_max) = match plan {
        Some(Plan::Enterprise) => (3_600, 1_000),
        Some(Plan::Pro) => (600, 40),
        _ => (600, 1),
    };
    Profile {
        plan,
        periods: Periods::Within(10, longest),
        counting: Counting::Window,
        rules_max,
        is_rule_each: false,
        can: Can { host: true, method: true, header: true, regex: true },
        addresses: false,
        refuses: |_, _| None,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    firewall_enabled: bool,
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule<'a> {
    name: &'a str,
    description: &'a str,
    active: bool,
    /// Any of these.
    condition_group: Vec<Group<'a>>,
    action: Action,
}

#[derive(Serialize)]
struct Group<'a> {
    /// All of these.
    conditions: Vec<Condition<'a>>,
}

#[derive(Serialize)]
struct Condition<'a> {
    r#type: &'static str,
    op: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    neg: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    One(String),
    Any(Vec<&'a str>),
}

#[derive(Serialize)]
struct Action {
    mitigate: Mitigate,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mitigate {
    action: &'static str,
    rate_limit: RateLimit,
}

#[derive(Serialize)]
struct RateLimit {
    algo: &'static str,
    window: u64,
    limit: u64,
    keys: [&'static str; 1],
    action: &'static str,
}

pub(super) fn write(rings: &[Ring<'_>]) -> (Vec<File>, Vec<&'static str>) {
    let config = Config { firewall_enabled: true, rules: rings.iter().map(rule).collect() };
    let content = serde_json::to_string_pretty(&config).unwrap_or_default() + "\n";
    let mut general = vec![
        "Vercel counts in each region, so a sender that reaches several is allowed as much in each.",
        "Unless a rule is for one path or for all, Vercel does not count paths in another spelling, such as //a or /%61.",
        "The request that sets these rules replaces the project's firewall configuration; add its other rules.",
    ];
    if content.contains("\"type\": \"host\"") {
        general.push("Vercel may count a host that the client writes in upper case or with a port as another host.");
    }
    (vec![File { name: "vercel-firewall.json".into(), content }], general)
}

fn rule<'a>(ring: &'a Ring<'_>) -> Rule<'a> {
    let group = |selection: &'a Selection<'_>| Group { conditions: conditions(selection) };
    let rate_limit = RateLimit {
        algo: "fixed_window",
        window: ring.period_s,
        limit: ring.requests,
        keys: ["ip"],
        // A response with the status 429.
        action: "rate_limit",
    };
    Rule {
        name: &ring.id,
        description: &ring.about,
        active: true,
        condition_group: ring.selections.iter().map(group).collect(),
        action: Action { mitigate: Mitigate { action: "rate_limit", rate_limit } },
    }
}

fn conditions<'a>(selection: &'a Selection<'_>) -> Vec<Condition<'a>> {
    let mut all = Vec::new();
    all.extend(host(selection.host));
    if !selection.methods.is_empty() {
        all.push(methods(&selection.methods));
    }
    for name in &selection.headers {
        all.push(header(name));
    }
    // A group has a condition.
    if !is_any(selection.path) || all.is_empty() {
        all.push(path(selection.path));
    }
    if selection.mistakes_spellings() {
        all.push(condition("raw_path", "re", Value::One(OTHER_SPELLING.into())).negated());
    }
    all.extend(selection.left_out(host, path, methods, header).map(Condition::negated));
    all
}

/// The raw path is what Tidegate reads, and Vercel's documentation does not say what the other one normalizes:
/// <https://vercel.com/docs/vercel-firewall/vercel-waf/rule-configuration>. It may have a query.
fn path(path: &tidegate_core::gate::Path) -> Condition<'static> {
    condition("raw_path", "re", Value::One(regex(path)))
}

fn methods<'a>(methods: &[&'a str]) -> Condition<'a> {
    condition("method", "inc", Value::Any(methods.to_vec()))
}

const fn header(name: &str) -> Condition<'_> {
    Condition { r#type: "header", op: "ex", neg: false, key: Some(name), value: None }
}

fn host(host: &Host) -> Option<Condition<'static>> {
    match host {
        Host::Any => None,
        Host::Exact(host) => Some(condition("host", "eq", Value::One(host.to_string()))),
        Host::Below(domain) => Some(condition("host", "suf", Value::One(format!(".{domain}")))),
    }
}

const fn condition<'a>(r#type: &'static str, op: &'static str, value: Value<'a>) -> Condition<'a> {
    Condition { r#type, op, neg: false, key: None, value: Some(value) }
}

impl Condition<'_> {
    fn negated(mut self) -> Self {
        self.neg = true;
        self
    }
}
