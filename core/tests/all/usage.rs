//! What a sender has used of its limits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "toml", feature = "lending"))]

use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::gate::{Claims, Gate, InvalidToken, Reason, Request, Rules, TokenRules, Usage, VerifyToken};
use tidegate_core::{
    Capabilities, ClientIpSource, Dimensions, ErasedLimiter, Error, ErrorKind, Key, Limiter, MemoryLimiter, Operation,
    Origin, Platform, Reply, UnixMillis,
};
use tidegate_testing::{Declaring, FlakyStore, NOW};

const CLIENT: [(&str, &str); 1] = [("cf-connecting-ip", "192.0.2.1")];

/// A memory that counts what it is asked, and how many of these wait at once: each peek waits for one turn of the others.
#[derive(Clone, Default)]
struct Watched(Arc<Seen>);

#[derive(Default)]
struct Seen {
    memory: MemoryLimiter,
    peeks: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Limiter for Watched {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Peek(_) = operation {
            self.0.peeks.fetch_add(1, Ordering::Relaxed);
            let open = self.0.open.fetch_add(1, Ordering::Relaxed) + 1;
            self.0.most.fetch_max(open, Ordering::Relaxed);
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.0.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.0.memory.apply(operation).await
    }
}

fn gate(rules: &str, store: impl Limiter + 'static) -> Result<Gate<'static>, Error> {
    Gate::new(Rules::parse("rules.toml", rules)?, store, ClientIpSource::new(Platform::Cloudflare))
}

fn request<'a>(path: &'a str, headers: &'a [(&'a str, &'a str); 1]) -> Request<'a> {
    Request::new("GET", path, headers, NOW)
}

/// The name of each quota, its limit and what is used.
fn used(usage: &Usage) -> Vec<(&str, u64, Option<u64>)> {
    usage.quotas().iter().map(|quota| (&*quota.quota, quota.limit, quota.used)).collect()
}

#[test]
fn more_than_eight_quotas_and_a_lease_are_asked_for_at_the_same_time() {
    let mut rules = String::new();
    for nth in 0..9 {
        let lease = if nth == 4 { "lease = true" } else { "" };
        write!(
            rules,
            "[limits.l{nth}]\nquotas = [{{ algorithm = \"fixed_window\", limit = 1{nth}, window_ms = 60_000 }}]\n{lease}\n[[rules]]\npath = \"/{nth}\"\nlimits = [\"l{nth}\"]\n"
        )
        .unwrap();
    }
    // A second rule with the same limit.
    rules.push_str("[[rules]]\npath = \"/again\"\nlimits = [\"l0\"]\n");
    let store = Watched::default();
    let gate = gate(&rules, Declaring(Capabilities::EXACT.lends(true), store.clone())).unwrap();
    let usage = block_on(gate.usage(&request("/usage", &CLIENT))).unwrap();
    // That with a lease is asked for alone, after the eight others.
    let names: Vec<_> = used(&usage).iter().map(|(name, limit, _)| format!("{name} {limit}")).collect();
    assert_eq!(names, ["l0 10", "l1 11", "l2 12", "l3 13", "l5 15", "l6 16", "l7 17", "l8 18", "l4 14"]);
    assert_eq!((store.0.peeks.load(Ordering::Relaxed), store.0.most.load(Ordering::Relaxed)), (2, 2));
}

/// Each token has this answer.
#[derive(Debug)]
struct Says(Option<&'static str>);

impl VerifyToken for Says {
    fn verify(&self, _: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        self.0.map_or(Err(InvalidToken::NOT_SIGNED), |payload| Claims::of_payload(payload.as_bytes(), expected, now))
    }
}

const TOKENS: &str = r#"
[tokens]
algorithms = ["EdDSA"]
tier = "plan"

[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000, limit_from = { claim = "rpm", max = 50 } }]
tiers.free.unlimited = true

[limits.ip]
quotas = [{ algorithm = "fixed_window", limit = 20, window_ms = 60_000, by = "ip" }]

[overrides]
"ip:192.0.2.1" = { ip = { limit = 7 } }

[[rules]]
path = "/ip"
limits = ["ip"]
"#;

fn with_tokens(more: &str, says: Option<&'static str>) -> Gate<'static> {
    let text = format!("{TOKENS}\n[[rules]]\npath = \"/api\"\nlimits = [\"api\"]\n{more}");
    let rules = Rules::parse("rules.toml", &text).unwrap().verify_tokens(Says(says));
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

#[test]
fn numbers_and_tiers_are_those_of_the_identity_and_an_invalid_token_is_refused_where_a_rule_says_so() {
    let headers = [("cf-connecting-ip", "192.0.2.1"), ("authorization", "Bearer a.b.c")];
    let request = Request::new("GET", "/usage", &headers, NOW);
    let ask = |gate: &Gate<'_>| block_on(gate.usage(&request));
    let rpm = with_tokens("", Some(r#"{ "sub": "alice", "exp": 1800000300, "rpm": 40 }"#));
    assert_eq!(used(&ask(&rpm).unwrap()), [("ip", 7, Some(0)), ("api", 40, Some(0))]);
    let free = with_tokens("", Some(r#"{ "sub": "alice", "exp": 1800000300, "plan": "free" }"#));
    assert_eq!(used(&ask(&free).unwrap()), [("ip", 7, Some(0))]);
    let wrong = with_tokens("", Some(r#"{ "sub": "alice", "exp": 1800000300, "rpm": "x" }"#));
    let refusal = ask(&wrong).unwrap_err();
    assert!(matches!(refusal.reason(), Reason::Failed(error) if error.kind() == ErrorKind::Invalid), "{refusal:?}");
    // An invalid token: as its address, unless any rule refuses it.
    assert_eq!(used(&ask(&with_tokens("", None)).unwrap()), [("ip", 7, Some(0)), ("api", 10, Some(0))]);
    let refusal = ask(&with_tokens("invalid_token = \"refuse\"", None)).unwrap_err();
    assert!(matches!(refusal.reason(), Reason::InvalidToken(_)), "{refusal:?}");
    assert_eq!(refusal.rejection().status_code(), 401);
}

#[test]
fn several_stores_count_apart_and_a_fallback_says_that_it_tells() {
    let rules = Rules::parse(
        "rules.toml",
        r#"
        stores.main.fallback = "backup"
        limits.api.quotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }]
        [[rules]]
        path = "/main"
        limits = ["api"]
        [[rules]]
        path = "/other"
        limits = ["api"]
        store = "other"
        "#,
    )
    .unwrap();
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let of = |store: &FlakyStore| Box::new(store.clone()) as Box<dyn ErasedLimiter>;
    let stores = [("main", of(&main)), ("other", of(&other)), ("backup", of(&FlakyStore::default()))];
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    block_on(gate.check(&request("/other", &CLIENT)));
    let ask = || block_on(gate.usage(&request("/usage", &CLIENT)));
    let told = |usage: &Usage| -> Vec<_> {
        let quotas = usage.quotas().iter();
        quotas.map(|quota| (quota.store.clone(), quota.limit, quota.used, quota.origin)).collect()
    };
    let of_other = (Some("other".into()), 10, Some(1), Origin::Store);
    assert_eq!(told(&ask().unwrap()), [(None, 10, Some(0), Origin::Store), of_other.clone()]);
    // While the store is down, what replaces it tells what it counts, and says so.
    main.fail(ErrorKind::Unavailable);
    let usage = ask().unwrap();
    assert_eq!(told(&usage), [(None, 1, Some(0), Origin::Fallback), of_other]);
    assert!(usage.to_json().contains(r#""origin":"fallback""#) && !usage.to_json().contains("other"));
    other.fail(ErrorKind::Timeout);
    assert_eq!(ask().unwrap_err().rejection().status_code(), 503);
}

/// Quotas of each kind, by the dimensions that every request has.
fn file(picks: &[(usize, usize)]) -> String {
    let mut text = String::new();
    for (nth, (algorithm, by)) in picks.iter().enumerate() {
        let algorithm = [
            "algorithm = \"fixed_window\", limit = 9, window_ms = 60_000",
            "algorithm = \"sliding_window\", limit = 9, window_ms = 60_000",
            "algorithm = \"sliding_log\", limit = 9, window_ms = 60_000",
            "algorithm = \"token_bucket\", capacity = 9, refill = 1, per_ms = 7_000",
            "algorithm = \"leaky_bucket\", capacity = 9, refill = 1, per_ms = 7_000",
        ][*algorithm];
        let by = ["sender", "ip", "global"][*by];
        write!(text, "[limits.l{nth}]\nquotas = [{{ {algorithm}, by = \"{by}\" }}]\n[[rules]]\npath = \"/{nth}\"\nlimits = [\"l{nth}\"]\n").unwrap();
    }
    text
}

proptest! {
    /// What is told is what the next check of each limit finds, in stores that place keys apart or not.
    #[test]
    fn the_usage_is_what_the_next_check_finds(
        picks in prop::collection::vec((0..5_usize, 0..3_usize), 1..12),
        checks in prop::collection::vec((0..12_usize, 0..3_usize, 0..30_000_u64), 0..40),
        grouped in any::<bool>(),
    ) {
        let can = if grouped { Capabilities::EXACT.dimensions(Dimensions::Grouped) } else { Capabilities::EXACT };
        let gate = gate(&file(&picks), Declaring(can, MemoryLimiter::new())).unwrap();
        let subjects = ["alice", "bob", "192.0.2.9"].map(Key::subject);
        let paths: Vec<String> = (0..picks.len()).map(|nth| format!("/{nth}")).collect();
        let mut now = NOW;
        let ask = |path: &'static str, nth: usize, now| Request::new("GET", path, &CLIENT, now).key(&subjects[nth]);
        for (path, sender, span) in checks {
            now = now + tidegate_core::Millis::new(span);
            let path: &'static str = Box::leak(paths[path % paths.len()].clone().into_boxed_str());
            block_on(gate.check(&ask(path, sender, now)));
        }
        for sender in 0..3 {
            let usage = block_on(gate.usage(&ask("/", sender, now))).unwrap();
            prop_assert_eq!(usage.quotas().len(), picks.len());
            for quota in usage.quotas() {
                prop_assert_eq!(quota.used, quota.remaining.map(|remaining| quota.limit - remaining));
                let path: &'static str = Box::leak(format!("/{}", &quota.policy[1..]).into_boxed_str());
                // A reading by a peek changes nothing, so the check sees the same, less its own cost.
                let verdict = block_on(gate.check(&ask(path, sender, now)));
                let left = verdict.decision().unwrap().binding().remaining();
                let by_then = block_on(gate.usage(&ask("/", sender, now))).unwrap();
                let same = by_then.quotas().iter().find(|other| other.policy == quota.policy).unwrap();
                prop_assert_eq!(same.remaining, left);
            }
        }
    }
}
