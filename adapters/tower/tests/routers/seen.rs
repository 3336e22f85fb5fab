//! The rules of the tests, and what was seen of each request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{
    Capabilities, Check, ClientIpSource, Decision, Error, Keys, Limiter, MemoryLimiter, Platform, Policy, Refund,
    Settle,
};

/// The name of each route, and its path as in rules, the more specific ones first, because some routers take the first that matches. What
/// no other has is of `all`.
pub(crate) const ROUTES: [(&str, &str); 17] = [
    ("login", "/login"),
    ("quoted", "/it's/@me"),
    ("part", "/api/{id}/parts/{part}"),
    ("api", "/api/{id}"),
    ("below", "/api/*"),
    ("files", "/files/*"),
    ("cafe", "/café"),
    ("escaped", "/caf%C3%A9s"),
    ("item", "/ü/{id}"),
    ("smile", "/😀/*"),
    ("quote", "/a\"b"),
    ("space", "/a%20b"),
    ("brace", "/%7Bx%7D"),
    ("one", "/one/{id}"),
    ("any", "/any/{first}/{second}"),
    ("tenant", "/{tenant}/login"),
    ("deep", "/{tenant}/ü/é"),
];

/// What is charged, and which handlers run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    charged: Vec<String>,
    runs: Vec<&'static str>,
    /// How often each handler has run.
    totals: BTreeMap<&'static str, usize>,
    evaded: Vec<String>,
}

impl Seen {
    /// Notes that the handler of a route runs.
    pub(crate) fn run(&self, route: &'static str) -> &'static str {
        let mut inner = self.0.lock().unwrap();
        inner.runs.push(route);
        *inner.totals.entry(route).or_default() += 1;
        route
    }

    /// Compares what ran since the last call with what was charged.
    pub(crate) fn judge(&self, request: &[u8]) {
        let mut inner = self.0.lock().unwrap();
        let (runs, charged) = (std::mem::take(&mut inner.runs), std::mem::take(&mut inner.charged));
        let is_charged = |name: &str| charged.iter().any(|limit| limit == name);
        // What has no route may be below a rule with a star, which has the path without the last segment, too. An empty segment is one of
        // any text for a rule, since it is for some routers, and for others it is no segment: `//login`.
        const COVERING: [&str; 6] = ["below", "files", "smile", "unknown", "tenant", "deep"];
        let is_below = |name: &str| name == "all" && COVERING.into_iter().any(is_charged);
        for route in runs.iter().filter(|route| !is_charged(route) && !is_below(route)) {
            let line = format!("{route} after {charged:?}: {}", request.escape_ascii());
            inner.evaded.push(line);
        }
    }

    /// Fails if a request reached a route past its rule, or if one of these routes was reached so rarely that this means little.
    pub(crate) fn assert_nothing_evaded(&self, server: &str, routes: &[&'static str], least: usize) {
        let inner = self.0.lock().unwrap();
        println!("{server}: {:?}", inner.totals);
        for route in routes {
            let runs = inner.totals.get(route).copied().unwrap_or_default();
            assert!(runs >= least, "{server}: {route} ran {runs} times: {:?}", inner.totals);
        }
        let (count, first) = (inner.evaded.len(), &inner.evaded[..inner.evaded.len().min(12)]);
        assert!(count == 0, "{server} served {count} requests past their rule, such as\n{}", first.join("\n"));
    }

    /// A gate with a limit for each of these routes, named as the route, and one for everything else.
    pub(crate) fn gate(&self, routes: &[(&str, &str)]) -> Gate<'static> {
        self.gate_of(&rules(routes))
    }

    /// A gate of these rules.
    pub(crate) fn gate_of(&self, rules: &Value) -> Gate<'static> {
        let rules = Rules::parse("rules.json", &rules.to_string()).unwrap();
        let limiter = Recording { inner: MemoryLimiter::new(), seen: self.clone() };
        Gate::new(rules, limiter, ClientIpSource::new(Platform::Vercel)).unwrap()
    }
}

/// The routes that have one of these names.
pub(crate) fn routes(names: &[&str]) -> Vec<(&'static str, &'static str)> {
    ROUTES.into_iter().filter(|(name, _)| names.contains(name)).collect()
}

/// A rule and a limit for each of these routes, named as the route, and for everything else.
pub(crate) fn rules(routes: &[(&str, &str)]) -> Value {
    let limit = json!({ "quotas": [{ "algorithm": "fixed_window", "limit": 1_000_000_000, "window_ms": 60_000 }] });
    let mut limits: BTreeMap<&str, Value> = routes.iter().map(|(name, _)| (*name, limit.clone())).collect();
    limits.insert("all", limit);
    let mut rules: Vec<Value> = routes.iter().map(|(name, path)| json!({ "path": path, "limits": [name] })).collect();
    rules.push(json!({ "limits": ["all"] }));
    json!({ "limits": limits, "rules": rules })
}

/// Notes the names of the limits that are charged.
struct Recording {
    inner: MemoryLimiter,
    seen: Seen,
}

impl Limiter for Recording {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        let names = check.policy.quotas().iter().map(|quota| quota.name().to_string());
        self.seen.0.lock().unwrap().charged.extend(names);
        self.inner.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.inner.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.inner.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.inner.settle(settle).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.inner.reset(policy, keys).await
    }
}
