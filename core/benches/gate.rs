//! The cost of a gate: from a request to its verdict, and of finding a rule among a thousand.
//!
//! `cargo bench -p tidegate-core --features toml --bench gate`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pollster::block_on;
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::{Check, ClientIpSource, Key, MemoryLimiter, Millis, Platform, Policy, Quota, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const ROUNDS: usize = 60;
const HEADERS: [(&str, &str); 3] = [("host", "www.example.com"), ("accept", "*/*"), ("cf-connecting-ip", "192.0.2.1")];

fn main() {
    println!("From a request to its verdict, store in memory (ns, best of {ROUNDS} rounds)");
    let gate = gate(
        "rules = [{ path = '/api/*', limits = ['api'] }]
        limits.api.quotas = [{ algorithm = 'token_bucket', capacity = 1_000_000, refill = 1_000_000, per_ms = 1 }]",
    );
    let request = Request::new("GET", "/api/users/7", &HEADERS, NOW);
    row("one rule, one quota, the client's address", Some(400.0), check(&gate, &request));
    row("the memory limiter alone, whose share this is", None, alone());
    println!("\nFinding the rule among 1,000 (ns, best of {ROUNDS} rounds)");
    let rules = thousand();
    let long = "/api/v7/things42/{}/%2e%2e".repeat(300);
    for (name, path) in [
        ("the last", "/api/v9/things99/7/parts"),
        ("none", "/nothing/here"),
        ("escapes and dots", "/x/%2e%2E/api//v9/./things%399/7/parts/"),
        ("8,000 characters of dots and escapes", &long),
        ("4,000 segments", &"/a".repeat(4_000)),
    ] {
        let request = Request::new("GET", path, &HEADERS, NOW);
        let ns = best(1_000, || {
            black_box(rules.find(black_box(&request)));
        });
        row(name, Some(1_000.0), ns);
    }
}

/// A check of one key, without rules, identity and response fields.
fn alone() -> f64 {
    let quota = Quota::token_bucket(1_000_000, 1_000_000, Millis::new(1)).unwrap();
    let (policy, key) = (Policy::new("api", [quota]).unwrap(), Key::new("ip:192.0.2.1"));
    let memory = MemoryLimiter::new();
    best(10_000, || {
        black_box(memory.decide(Check::new(&policy, black_box(&key), NOW)).unwrap());
    })
}

fn gate(text: &str) -> Gate<'static> {
    let rules = Rules::parse("rules.toml", text).unwrap();
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

fn thousand() -> Rules {
    let mut text = String::new();
    for n in 0..1_000 {
        let (version, thing) = (n % 10, n / 10);
        let _ = write!(text, "[[rules]]\npath = '/api/v{version}/things{thing}/{{id}}/parts'\nmethods = ['GET']\n");
    }
    Rules::parse("rules.toml", &text).unwrap()
}

fn check(gate: &Gate<'_>, request: &Request<'_>) -> f64 {
    best(10_000, || {
        let Verdict::Pass(pass) = block_on(gate.check(black_box(request))) else { panic!("refused") };
        black_box(pass);
    })
}

fn best(iterations: u32, mut body: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..iterations {
            body();
        }
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / f64::from(iterations)
}

fn row(name: &str, target: Option<f64>, ns: f64) {
    let target = target.map_or(String::new(), |target| format!("(target: at most {target})"));
    println!("  {name:58} {ns:8.1}  {target}");
}
