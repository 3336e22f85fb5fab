//! The cost of a gate: from a request to its verdict, and of finding a rule among a thousand.
//!
//! `cargo bench -p tidegate-core --features toml --bench gate`. `conformance/bench/instructions.sh gate` counts its instructions.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Result;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::gate::{Gate, Pass, Refusal, Request, Rules, Verdict};
use tidegate_core::{Check, ClientIpSource, Key, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_measured::{Aim, Measurement, Unit, counted, ns_per_call};
use tidegate_testing::NOW;

const HEADERS: [(&str, &str); 3] = [("host", "www.example.com"), ("accept", "*/*"), ("cf-connecting-ip", "192.0.2.1")];

/// As in the examples of the adapters.
const FILE: &str = r#"{
    "limits": {
        "login": { "quotas": [{ "algorithm": "sliding_log", "limit": 5, "window_ms": 60000, "by": "ip" }] },
        "api": {
            "quotas": [{ "algorithm": "token_bucket", "capacity": 20, "refill": 10, "per_ms": 1000 }],
            "tiers": { "pro": { "quotas": [{ "algorithm": "token_bucket", "capacity": 200, "refill": 100, "per_ms": 1000 }] } }
        },
        "site": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }] }
    },
    "rules": [
        { "path": "/login", "methods": ["POST"], "limits": ["login"] },
        { "path": "/api/*", "limits": ["api"] },
        { "limits": ["site"] }
    ]
}"#;

fn main() -> Result<()> {
    let gate = gate(
        "rules = [{ path = '/api/*', limits = ['api'] }]
        limits.api.quotas = [{ algorithm = 'token_bucket', capacity = 1_000_000_000, refill = 1_000_000_000, per_ms = 1 }]",
    );
    let refusing = self::gate(
        "rules = [{ path = '/api/*', limits = ['api'] }]
        limits.api.quotas = [{ algorithm = 'fixed_window', limit = 1, window_ms = 60_000 }]",
    );
    let request = Request::new("GET", "/api/users/7", &HEADERS, NOW);
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::new(1)).unwrap();
    let (policy, key) = (Policy::new("api", [quota]).unwrap(), Key::new("ip:192.0.2.1"));
    let memory = MemoryLimiter::new();
    if counted(&mut [
        ("limiter", &mut || _ = black_box(memory.decide(Check::new(&policy, black_box(&key), NOW)))),
        ("gate", &mut || _ = admitted(&gate, &request)),
        ("gate-refused", &mut || _ = refused(&refusing, &request)),
    ]) {
        return Ok(());
    }
    let measured = Measurement::new("gate", "a request to its verdict, one rule, store in memory", Unit::Ns);
    let alone = || ns_per_call(10_000, || memory.decide(Check::new(&policy, black_box(&key), NOW)).unwrap());
    let peer = "the same limiter without a gate";
    measured.aim(Aim::Value(150.0)).beside(peer, || ns_per_call(10_000, || admitted(&gate, &request)), alone)?;
    Measurement::new("gate", "a request to its response fields, one rule, store in memory", Unit::Ns).beside(
        peer,
        || ns_per_call(10_000, || admitted(&gate, &request).fields()),
        alone,
    )?;
    let bytes = Rules::parse("rules.json", FILE).unwrap().to_bytes();
    Measurement::new("gate", "rules that were compiled before, three of them", Unit::Ns).beside(
        "reading their file",
        || ns_per_call(1_000, || Rules::from_plain_bytes(black_box(&bytes)).unwrap()),
        || ns_per_call(1_000, || Rules::parse("rules.json", black_box(FILE)).unwrap()),
    )?;
    let rules = thousand();
    let long = "/api/v7/things42/{}/%2e%2e".repeat(300);
    for (name, path) in [
        ("finding the rule among 1,000: the last", "/api/v9/things99/7/parts"),
        ("finding the rule among 1,000: none", "/nothing/here"),
        ("finding the rule among 1,000: escapes and dots", "/x/%2e%2E/api//v9/./things%399/7/parts/"),
        ("finding the rule among 1,000: 8,000 characters of dots and escapes", &long),
        ("finding the rule among 1,000: 4,000 segments", &"/a".repeat(4_000)),
    ] {
        let request = Request::new("GET", path, &HEADERS, NOW);
        let find = || {
            black_box(rules.find(black_box(&request)));
        };
        Measurement::new("gate", name, Unit::Ns).aim(Aim::Value(1_000.0)).alone(|| ns_per_call(1_000, find))?;
    }
    Ok(())
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

fn admitted(gate: &Gate<'_>, request: &Request<'_>) -> Pass {
    let Verdict::Pass(pass) = check(gate, request) else { panic!("refused") };
    black_box(pass)
}

fn refused(gate: &Gate<'_>, request: &Request<'_>) -> Option<Refusal> {
    match check(gate, request) {
        Verdict::Pass(_) => None,
        Verdict::Refuse(refusal) => Some(black_box(refusal)),
    }
}

#[inline]
fn check(gate: &Gate<'_>, request: &Request<'_>) -> Verdict {
    // The memory answers at once. The waker of an executor would take a fifth of the time.
    let check = pin!(gate.check(black_box(request)));
    let Poll::Ready(verdict) = check.poll(&mut Context::from_waker(Waker::noop())) else { panic!("it waits") };
    verdict
}
