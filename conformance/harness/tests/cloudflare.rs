//! Tests of the Worker on workerd that fixtures do not cover: the deployed configuration, wrong bindings, corrupt state
//! and invalid input. If workerd is missing, each test fails and says how to install it.

#[path = "cloudflare/kv.rs"]
mod kv;
#[path = "cloudflare/routed.rs"]
mod routed;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tidegate_harness::target::cloudflare::Host;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The virtual time at the start of a test.
const START_MS: u64 = 1_800_000_000_000;

/// An address in headers that anyone can send. It must not change the key.
const FORGED: &str = "203.0.113.7";

async fn start(args: &[&str]) -> Result<Host> {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    Ok(Host::start(&args).await?)
}

fn bases(host: &Host) -> Vec<String> {
    host.addresses().map(ToString::to_string).collect()
}

/// Sends a request. Returns the status code and the body of the answer.
async fn ask(method: &str, url: &str, client_ip: Option<&str>, body: String) -> Result<(u16, String)> {
    let mut request = Request::builder().method(method).uri(url).header("x-forwarded-for", FORGED);
    if let Some(client_ip) = client_ip {
        request = request.header("cf-connecting-ip", client_ip);
    }
    let request = request.body(Full::new(Bytes::from(body)))?;
    let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Requests a page like a client.
async fn page(base: &str, path: &str, client_ip: &str) -> Result<(u16, String)> {
    ask("GET", &format!("{base}{path}"), Some(client_ip), String::new()).await
}

/// A request for a decision.
#[derive(Clone, Copy)]
struct Asked<'a> {
    store: &'a str,
    op: &'a str,
    key: &'a str,
    limit: u64,
    /// The virtual time since the start.
    at_ms: u64,
}

impl<'a> Asked<'a> {
    const fn check(store: &'a str, key: &'a str, limit: u64) -> Self {
        Self { store, op: "check", key, limit, at_ms: 0 }
    }

    const fn peek(self) -> Self {
        Self { op: "peek", ..self }
    }

    const fn at_ms(self, at_ms: u64) -> Self {
        Self { at_ms, ..self }
    }

    /// Sends the request. Its window is one hour.
    async fn of(self, base: &str) -> Result<(u16, String)> {
        let quotas = json!([{ "algorithm": "fixed_window", "limit": self.limit, "window_ms": 3_600_000 }]);
        let policy = json!({ "name": "test", "quotas": quotas });
        let call = json!({ "policy": policy, "key": self.key, "now_ms": START_MS + self.at_ms });
        ask("POST", &format!("{base}/{}/_tidegate/{}", self.store, self.op), None, call.to_string()).await
    }

    /// Sends a burst, and returns how many requests are admitted.
    async fn burst(self, base: &str, requests: usize) -> Result<u64> {
        let mut admitted = 0;
        for answer in join_all((0..requests).map(|_| self.of(base))).await {
            let (status, body) = answer?;
            assert!(status == 200 || status == 429, "{status} {body}");
            admitted += u64::from(status == 200);
        }
        Ok(admitted)
    }
}

/// The kind and the message of an error.
fn failure((status, body): &(u16, String)) -> Result<(String, String)> {
    assert_eq!(*status, 503, "{body}");
    let answer: Value = serde_json::from_str(body)?;
    let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_string();
    Ok((text("kind"), text("message")))
}

async fn count(host: &Host, name: &str) -> Result<u64> {
    Ok(host.tell("counts").await?[name].as_u64().ok_or_else(|| format!("no count {name}"))?)
}

const DEPLOYED: &str = "--var=TIDEGATE_TEST_MODE=off";
const DEBUG: &str = "--var=DEBUG=on";

#[tokio::test]
async fn a_deployed_worker_limits_by_the_platforms_address_and_has_no_debug_routes() -> Result<()> {
    let host = start(&[DEPLOYED]).await?;
    let base = &bases(&host)[0];
    for (route, client) in [("/do", "192.0.2.1"), ("/do-leased", "192.0.2.2"), ("/kv", "192.0.2.3")] {
        // The policy allows a burst of five, and one more each second.
        let mut admitted = 0;
        for _ in 0..20 {
            let (status, body) = page(base, route, client).await?;
            assert!(status == 200 || status == 429 && body.contains("rate_limited"), "{route}: {status} {body}");
            admitted += u64::from(status == 200);
        }
        assert!((5..15).contains(&admitted), "{route}: admitted {admitted}");
        assert_eq!(page(base, route, "192.0.2.4").await?.0, 200, "{route}");
    }
    assert_eq!(page(base, "/ratelimit", "192.0.2.1").await?, (200, "allowed\n".into()));
    for hidden in ["/debug/do", "/debug/kv", "/debug/kv/stats"] {
        assert_eq!(page(base, hidden, "192.0.2.1").await?.0, 404, "{hidden}");
    }
    assert_eq!(Asked::check("do", "ip:192.0.2.1", 2).of(base).await?.0, 404);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_debug_page_shows_what_a_client_has_left_if_switched_on() -> Result<()> {
    let host = start(&[DEPLOYED, DEBUG]).await?;
    let (status, body) = page(&bases(&host)[0], "/debug/do", "192.0.2.1").await?;
    assert_eq!(status, 200, "{body}");
    assert!(body.starts_with("ip:192.0.2.1: "), "{body}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn clients_without_an_address_share_one_key() -> Result<()> {
    let host = start(&[DEPLOYED, DEBUG]).await?;
    let base = &bases(&host)[0];
    // No address, as on a developer's machine; the address of a Worker in another zone; and an invalid address.
    for client_ip in [None, Some("2a06:98c0:3600::103"), Some("not an address")] {
        let (status, body) = ask("GET", &format!("{base}/debug/do"), client_ip, String::new()).await?;
        assert_eq!(status, 200, "{client_ip:?}: {body}");
        assert!(body.starts_with("ip:unknown: "), "{client_ip:?}: {body}");
    }
    // Clients without an address share one key, and do not affect clients with one.
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u64::from(ask("GET", &format!("{base}/do"), None, String::new()).await?.0 == 200);
    }
    assert!((5..15).contains(&admitted), "admitted {admitted}");
    assert_eq!(page(base, "/do", "192.0.2.1").await?.0, 200);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn each_denial_is_recorded_as_an_event_if_there_is_a_dataset() -> Result<()> {
    let host = start(&[DEPLOYED]).await?;
    let base = &bases(&host)[0];
    let mut denied = 0;
    for _ in 0..20 {
        denied += usize::from(page(base, "/do", "192.0.2.1").await?.0 == 429);
    }
    let counts = host.tell("counts").await?;
    let events = counts["denials"].as_array().ok_or("no denials")?;
    assert!(denied > 0);
    assert_eq!(events.len(), denied, "{events:?}");
    assert_eq!(events[0], json!({ "indexes": ["api"], "blobs": ["ip:192.0.2.1", "burst"], "doubles": [] }));
    host.stop().await;

    let host = start(&[DEPLOYED, "--without=DENIALS"]).await?;
    let base = &bases(&host)[0];
    let mut statuses = BTreeSet::new();
    for _ in 0..20 {
        statuses.insert(page(base, "/do", "192.0.2.1").await?.0);
    }
    assert_eq!(statuses, BTreeSet::from([200, 429]));
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_missing_binding_is_named_in_the_error_and_answered_with_503() -> Result<()> {
    let without = ["--without=TIDEGATE", "--without=COUNTS", "--without=LIMITER_100_60"];
    let host = start(&without).await?;
    let base = &bases(&host)[0];
    for (store, binding) in [("do", "TIDEGATE"), ("do-leased", "TIDEGATE"), ("kv", "COUNTS")] {
        let (kind, message) = failure(&Asked::check(store, "k", 2).of(base).await?)?;
        assert_eq!(kind, "invalid", "{message}");
        assert!(message.contains(binding) && message.contains("wrangler"), "{message}");
    }
    for store in ["do", "do-leased", "kv", "ratelimit"] {
        let (status, body) = page(base, &format!("/{store}"), "192.0.2.1").await?;
        assert_eq!(status, 503, "{store}: {body}");
    }
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn rust_and_javascript_count_together_in_one_namespace() -> Result<()> {
    for javascript_has_objects in [false, true] {
        let host = Host::start_both(javascript_has_objects, &["--isolates=2".into()]).await?;
        let bases = bases(&host);
        for store in ["do", "do-leased"] {
            let key = format!("mixed-{store}");
            let mut statuses = Vec::new();
            for turn in 0..12 {
                statuses.push(Asked::check(store, &key, 8).of(&bases[turn % 2]).await?.0);
            }
            assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 8, "{store}: {statuses:?}");
        }
        host.stop().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_class_that_is_not_tidegates_is_reported() -> Result<()> {
    for (class, kind) in [("Stranger", "corrupt"), ("Mute", "refused")] {
        let host = start(&[&format!("--class={class}")]).await?;
        let base = &bases(&host)[0];
        let (told, message) = failure(&Asked::check("do", "k", 2).of(base).await?)?;
        assert_eq!(told, kind, "{message}");
        assert!(message.contains("durable_object! in Rust"), "{message}");
        assert_eq!(page(base, "/do", "192.0.2.1").await?.0, 503);
        host.stop().await;
    }
    Ok(())
}

#[tokio::test]
async fn the_error_for_a_class_without_sqlite_names_new_sqlite_classes() -> Result<()> {
    let host = start(&["--without=SQLite"]).await?;
    let (kind, message) = failure(&Asked::check("do", "k", 2).of(&bases(&host)[0]).await?)?;
    assert_eq!(kind, "refused", "{message}");
    assert!(message.contains("\"new_sqlite_classes\": [\"TidegateObject\"]"), "{message}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_panic_fails_one_request_and_loses_no_count() -> Result<()> {
    let host = start(&["--isolates=2"]).await?;
    let bases = bases(&host);
    let check = Asked::check("do", "k", 2);
    assert_eq!(check.of(&bases[0]).await?.0, 200);
    for base in &bases {
        assert_eq!(ask("POST", &format!("{base}/do/_tidegate/panic"), None, String::new()).await?.0, 500);
    }
    // The objects live in the first isolate, which has just been restarted.
    assert_eq!(check.of(&bases[1]).await?.0, 200);
    assert_eq!(check.of(&bases[0]).await?.0, 429);

    // The lease of the second isolate is lost, so up to a slice of ten fewer requests are admitted, and never more.
    let leased = Asked::check("do-leased", "k", 40);
    assert_eq!(leased.of(&bases[1]).await?.0, 200);
    assert_eq!(ask("POST", &format!("{}/do/_tidegate/panic", bases[1]), None, String::new()).await?.0, 500);
    let mut admitted = 1;
    for base in bases.iter().cycle().take(100) {
        admitted += u64::from(leased.of(base).await?.0 == 200);
    }
    assert!((30..=40).contains(&admitted), "admitted {admitted}");
    host.stop().await;
    Ok(())
}

/// The errors of concurrent requests for one key, by kind. The Worker's deadline is two seconds.
async fn flood(class: &str, requests: usize) -> Result<BTreeMap<String, usize>> {
    let host = start(&[DEPLOYED, "--isolates=1", &format!("--class={class}")]).await?;
    let base = &bases(&host)[0];
    let mut kinds = BTreeMap::new();
    for answer in join_all((0..requests).map(|_| page(base, "/do", "192.0.2.1"))).await {
        let (status, body) = answer?;
        if status == 503 {
            let answer: Value = serde_json::from_str(&body)?;
            *kinds.entry(answer["kind"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        } else {
            assert!(status == 200 || status == 429, "{status} {body}");
        }
    }
    host.stop().await;
    Ok(kinds)
}

#[tokio::test]
async fn a_client_that_floods_its_key_causes_no_store_failure() -> Result<()> {
    let kinds = flood("Slow", 200).await?;
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["contended"], "{kinds:?}");
    assert!(kinds["contended"] >= 100, "{kinds:?}");
    Ok(())
}

#[tokio::test]
async fn an_object_that_does_not_answer_is_a_store_failure() -> Result<()> {
    let kinds = flood("Stuck", 20).await?;
    assert_eq!(kinds, BTreeMap::from([("timeout".to_owned(), 20)]));
    Ok(())
}

#[tokio::test]
async fn an_evicted_object_continues_from_its_stored_state() -> Result<()> {
    let host = start(&[]).await?;
    let base = &bases(&host)[0];
    let check = Asked::check("do", "k", 3);
    let mut made = 0;
    for expected in [200, 200, 200, 429, 429] {
        assert_eq!(check.of(base).await?.0, expected);
        let before = std::mem::replace(&mut made, count(&host, "objectsMade").await?);
        assert_eq!(made, before + 1, "each eviction must create a new object");
        host.tell("evict").await?;
    }
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_admitted_request_writes_one_row_and_a_denied_request_writes_none() -> Result<()> {
    let host = start(&["--isolates=3"]).await?;
    let bases = bases(&host);
    let check = Asked::check("do", "k", 60);
    // The first request sets the alarm.
    assert_eq!(check.of(&bases[0]).await?.0, 200);
    let counts = async || -> Result<[u64; 3]> {
        let counts = host.tell("counts").await?;
        Ok(["objectCalls", "rowsWritten", "alarmsSet"].map(|name| counts[name].as_u64().unwrap_or(u64::MAX)))
    };
    let before = counts().await?;
    let mut admitted = 0;
    for base in &bases {
        admitted += check.burst(base, 50).await?;
    }
    assert_eq!(admitted, 59);
    let after = counts().await?;
    assert_eq!([0, 1, 2].map(|count| after[count] - before[count]), [150, 59, 0], "calls, rows, alarms");
    assert_eq!(after[2], 1);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_corrupt_row_affects_only_its_key() -> Result<()> {
    let host = start(&[]).await?;
    let base = &bases(&host)[0];
    let check = Asked::check("do", "k", 3);
    assert_eq!(check.of(base).await?.0, 200);
    host.tell("corrupt").await?;
    host.tell("evict").await?;
    let (kind, message) = failure(&check.of(base).await?)?;
    assert_eq!(kind, "corrupt", "{message}");
    assert_eq!(Asked::check("do", "other", 3).of(base).await?.0, 200);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_key_of_any_length_fits_the_store_and_keeps_its_own_count() -> Result<()> {
    let host = start(&[]).await?;
    let base = &bases(&host)[0];
    let (long, longer) = ("k".repeat(4_000), "k".repeat(4_001));
    for store in ["do", "kv"] {
        for key in [&long, &longer] {
            assert_eq!(Asked::check(store, key, 3).burst(base, 10).await?, 3, "{store}");
        }
    }
    let bytes = count(&host, "kvKeyBytesMax").await?;
    assert!((1..=512).contains(&bytes), "{bytes}");
    host.stop().await;
    Ok(())
}
