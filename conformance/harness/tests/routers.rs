//! Whatever a router sends to a route, the gate gives that route's limits, however a client writes the path.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tidegate_core::gate::{Request, Rules};
use tidegate_core::{ClientIpSource, Platform, UnixMillis};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The name of each route, and its path as in rules. The more specific ones come first, because some routers take the first.
const ROUTES: [(&str, &str); 6] = [
    ("login", "/login"),
    ("quoted", "/it's/@me"),
    ("part", "/api/{id}/parts/{part}"),
    ("api", "/api/{id}"),
    ("files", "/files/*"),
    ("tenant", "/{tenant}/login"),
];

const PATHS: usize = 100_000;

/// Paths as a hostile client writes them.
fn paths() -> Vec<String> {
    const PARTS: [&str; 34] = [
        "it's",
        "it%27s",
        "@me",
        "%40me",
        "files",
        "api",
        "login",
        "parts",
        "t",
        "7",
        "a.txt",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        ".%2e",
        "",
        "",
        "x",
        "LOGIN",
        "l%6fgin",
        "Api",
        "ap%69",
        "%2F",
        "..%2f",
        "t\\7",
        "\\",
        "..\\..",
        "a%5Cb",
        "%5C..",
        "login;x",
        "files%2Fx",
        "%66iles",
        "...",
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut path = || {
        // The segments of a route, with others in and between them. Those of no route, often enough.
        let (_, route) = ROUTES[rng.random_range(0..ROUTES.len())];
        let mut segments: Vec<&str> = route.split('/').skip(1).filter(|_| rng.random_range(0..6) > 0).collect();
        for segment in &mut segments {
            if segment.starts_with(['{', '*']) {
                *segment = PARTS[rng.random_range(0..PARTS.len())];
            }
        }
        // A letter may be escaped that need not be.
        let mut escaped = String::new();
        if let Some(segment) = segments.first_mut()
            && segment.is_ascii()
            && !segment.is_empty()
            && rng.random_range(0..4) == 0
        {
            let at = rng.random_range(0..segment.len());
            escaped = format!("{}%{:02X}{}", &segment[..at], segment.as_bytes()[at], &segment[at + 1..]);
        }
        if !escaped.is_empty() {
            segments[0] = &escaped;
        }
        for _ in 0..rng.random_range(0..=3) {
            segments.insert(rng.random_range(0..=segments.len()), PARTS[rng.random_range(0..PARTS.len())]);
        }
        let end = ["", "", "", "", "", "/", "?x=/login", "//", "/?"][rng.random_range(0..9)];
        ["/", &segments.join("/"), end].concat()
    };
    (0..PATHS).map(|_| path()).collect()
}

/// A limit for each route, named as the route, and one for everything.
fn rules(case_insensitive: bool) -> Result<Rules> {
    let limit = json!({ "quotas": [{ "algorithm": "fixed_window", "limit": 5, "window_ms": 60_000 }] });
    let mut limits: BTreeMap<&str, Value> = ROUTES.iter().map(|(name, _)| (*name, limit.clone())).collect();
    limits.insert("all", limit);
    let mut rules: Vec<Value> = ROUTES.iter().map(|(name, path)| json!({ "path": path, "limits": [name] })).collect();
    rules.push(json!({ "limits": ["all"] }));
    let file = json!({ "case_insensitive": case_insensitive, "limits": limits, "rules": rules });
    Ok(Rules::parse("rules.json", &file.to_string())?)
}

/// Whether the gate gives a path the limit of a route.
fn is_limited(rules: &Rules, path: &str, route: &str) -> bool {
    const NONE: [(&str, &str); 0] = [];
    let request = Request::new("GET", path, &NONE, UnixMillis::new(0));
    let explanation = rules.explain(&request, &ClientIpSource::new(Platform::Direct));
    explanation.policy.is_some_and(|policy| policy.quotas().iter().any(|quota| quota.name().starts_with(route)))
}

/// Checks a router's choices. Each route must have been chosen often enough to mean something.
fn holds(router: &str, rules: &Rules, chosen: &[(String, String)]) {
    let mut served: BTreeMap<&str, u32> = BTreeMap::new();
    let mut evaded = Vec::new();
    for (path, route) in chosen {
        *served.entry(route).or_default() += 1;
        if !is_limited(rules, path, route) {
            evaded.push((path, route));
        }
    }
    println!("{router}: {served:?}");
    for (name, _) in ROUTES {
        assert!(served.get(name).is_some_and(|count| *count >= 100), "{router} {name}: {served:?}");
    }
    let first = evaded.iter().take(20).collect::<Vec<_>>();
    assert!(evaded.is_empty(), "{router} serves {} paths past their limit, such as {first:?}", evaded.len());
}

#[test]
fn routers_of_javascript_serve_no_route_past_its_limit() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers");
    let mut node = Command::new("node");
    let mut node = node.arg("routers.mjs").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let paths = paths();
    let asked: String = paths.iter().map(|path| format!("{}\n", json!(path))).collect();
    let mut stdin = node.stdin.take().ok_or("no standard input")?;
    let writing = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = node.wait_with_output()?;
    assert!(output.status.success(), "run `conformance/setup.sh peers` first");
    writing.join().map_err(|_| "the writer panicked")??;
    let answers: Vec<Value> =
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(answers.len(), PATHS);
    for (router, case_insensitive) in [("hono", false), ("express", true), ("next", true)] {
        let of = |(path, answer): (&String, &Value)| Some((path.clone(), answer[router].as_str()?.to_string()));
        let chosen: Vec<_> = paths.iter().zip(&answers).filter_map(of).filter(|(_, route)| !route.is_empty()).collect();
        holds(router, &rules(case_insensitive)?, &chosen);
    }
    Ok(())
}
