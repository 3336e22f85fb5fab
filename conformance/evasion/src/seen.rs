//! The rules of the tests, and what was seen of each request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The name of each route and its path as in rules, the more specific ones first, because some routers take the first that matches. What
/// no other has is of `all`.
pub const ROUTES: [(&str, &str); 17] = [
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
pub struct Seen(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    charged: Vec<String>,
    runs: Vec<&'static str>,
    /// How often each handler has run.
    totals: BTreeMap<&'static str, usize>,
    evaded: Vec<String>,
}

impl Seen {
    /// Notes that the handler of a route runs. Returns the route.
    pub fn run(&self, route: &'static str) -> &'static str {
        let mut inner = self.0.lock().unwrap();
        inner.runs.push(route);
        *inner.totals.entry(route).or_default() += 1;
        route
    }

    /// Notes that limits of these names are charged.
    pub fn charge(&self, limits: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap().charged.extend(limits);
    }

    /// Compares what ran since the last call with what was charged.
    pub fn judge(&self, request: &[u8]) {
        let mut inner = self.0.lock().unwrap();
        let (runs, charged) = (std::mem::take(&mut inner.runs), std::mem::take(&mut inner.charged));
        let is_charged = |name: &str| charged.iter().any(|limit| limit == name);
        // What has no route may be below a rule with a star, which has the path without the last segment, too.
        const COVERING: [&str; 4] = ["below", "files", "smile", "unknown"];
        let is_below = |name: &str| name == "all" && COVERING.into_iter().any(is_charged);
        for route in runs.iter().filter(|route| !is_charged(route) && !is_below(route)) {
            let line = format!("{route} after {charged:?}: {}", request.escape_ascii());
            inner.evaded.push(line);
        }
    }

    /// Fails if a request reached a route past its rule, or if one of these routes was reached so rarely that this means little.
    pub fn assert_nothing_evaded(&self, server: &str, routes: &[&'static str], least: usize) {
        let inner = self.0.lock().unwrap();
        println!("{server}: {:?}", inner.totals);
        for route in routes {
            let runs = inner.totals.get(route).copied().unwrap_or_default();
            assert!(runs >= least, "{server}: {route} ran {runs} times: {:?}", inner.totals);
        }
        let (count, first) = (inner.evaded.len(), &inner.evaded[..inner.evaded.len().min(12)]);
        assert!(count == 0, "{server} served {count} requests past their rule, such as\n{}", first.join("\n"));
    }
}

/// The routes that have one of these names.
#[must_use]
pub fn routes(names: &[&str]) -> Vec<(&'static str, &'static str)> {
    ROUTES.into_iter().filter(|(name, _)| names.contains(name)).collect()
}

/// A rule and a limit for each of these routes, named as the route, and for everything else.
#[must_use]
pub fn rules(routes: &[(&str, impl AsRef<str>)]) -> Value {
    let limit = json!({ "quotas": [{ "algorithm": "fixed_window", "limit": 1_000_000_000, "window_ms": 60_000 }] });
    let mut limits: BTreeMap<&str, Value> = routes.iter().map(|(name, _)| (*name, limit.clone())).collect();
    limits.insert("all", limit);
    let mut rules: Vec<Value> =
        routes.iter().map(|(name, path)| json!({ "path": path.as_ref(), "limits": [name] })).collect();
    rules.push(json!({ "limits": ["all"] }));
    json!({ "limits": limits, "rules": rules })
}
