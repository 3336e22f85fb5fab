//! Tests of the app that fixtures do not cover.

#[path = "fastly/routed.rs"]
mod routed;

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::header::HeaderMap;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tempfile::NamedTempFile;
use tidegate_harness::target::fastly::{Host, MANIFEST, TEST_MODE};
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

static FORGED: AtomicU8 = AtomicU8::new(0);

/// The app in one PoP.
struct App {
    host: Host,
    base: String,
}

impl App {
    async fn start(args: &[&str]) -> Result<Self> {
        Self::start_with(|manifest| manifest, args).await
    }

    /// Starts the app with a changed manifest.
    async fn start_with(change: impl FnOnce(String) -> String, args: &[&str]) -> Result<Self> {
        let manifest = NamedTempFile::new()?;
        std::fs::write(&manifest, change(std::fs::read_to_string(workspace().join(MANIFEST))?))?;
        Self::on(Host::start(manifest.path(), args).await?)
    }

    fn on(host: Host) -> Result<Self> {
        let base = host.addresses().next().ok_or("no address")?.to_string();
        Ok(Self { host, base })
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<(u16, String, HeaderMap)> {
        // Anyone can send these fields. They must not change the key.
        let forged = format!("203.0.113.{}", FORGED.fetch_add(1, Ordering::Relaxed));
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = request.header("fastly-client-ip", &forged).header("x-forwarded-for", &forged);
        let request = request.body(Full::new(Bytes::from(body.to_string())))?;
        let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((head.status.as_u16(), String::from_utf8_lossy(&body).into_owned(), head.headers))
    }

    async fn get(&self, path: &str) -> Result<(u16, String)> {
        self.ask("GET", path, "").await.map(|(status, body, _)| (status, body))
    }

    /// Sends a check for a key with a limit of two per minute, or another operation with the same arguments.
    async fn call(&self, path: &str, key: &str) -> Result<(u16, String)> {
        let body = serde_json::json!({ "key": key, "now_ms": 1_800_000_000_000_u64, "policy": { "name": "api",
            "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 60_000 }] } });
        self.ask("POST", path, &body.to_string()).await.map(|(status, body, _)| (status, body))
    }
}

const CHECK: &str = "/kv/_tidegate/check";

#[tokio::test]
async fn a_deployed_app_limits_by_the_platforms_address_and_has_no_debug_routes() -> Result<()> {
    let app = App::start(&[]).await?;
    // The policy allows a burst of five, and one more each second.
    let mut admitted = 0;
    for _ in 0..20 {
        let (status, body) = app.get("/kv").await?;
        assert!(status == 200 || status == 429 && body.contains("rate_limited"), "{status} {body}");
        admitted += u64::from(status == 200);
    }
    assert!((5..15).contains(&admitted), "admitted {admitted}");
    for (method, path) in [("GET", "/debug/kv"), ("POST", CHECK), ("POST", "/erl/_tidegate/check"), ("GET", "/")] {
        assert_eq!(app.ask(method, path, "").await?.0, 404, "{path}");
    }
    app.host.stop().await;
    Ok(())
}

/// The example of `tidegate-fastly`: 20 requests at once and 10 a second, and 3 logins a minute.
#[tokio::test]
async fn the_example_limits_by_its_rules() -> Result<()> {
    let manifest = workspace().join("adapters/fastly/examples/app/fastly.toml");
    let app = App::on(Host::start_app("tidegate-example-fastly", &manifest, &[]).await?)?;
    for attempt in 0..5 {
        let (status, body, fields) = app.ask("POST", "//login/?from=7", "").await?;
        assert_eq!(status, if attempt < 3 { 200 } else { 429 }, "{body}");
        assert_eq!(fields["x-ratelimit-limit"], "3");
        assert!(status == 200 || body.contains(r#""policy":"login""#), "{body}");
    }
    // Other requests have a limit of their own, of which an unusual path to the login takes a part.
    assert_eq!(app.get("/login").await?, (200, "hello\n".into()));
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += u64::from(app.get("/").await?.0 == 200);
    }
    assert!((16..200).contains(&admitted), "{admitted}");
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_debug_page_shows_what_a_client_has_left_if_switched_on() -> Result<()> {
    let debug = |manifest: String| manifest.replace("debug = \"off\"", "debug = \"on\"");
    let app = App::start_with(debug, &[]).await?;
    let (status, body) = app.get("/debug/kv").await?;
    assert!(status == 200 && body.starts_with("ip:127.0.0.1: "), "{status} {body}");
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn edge_rate_limiting_answers_with_known_fields_only() -> Result<()> {
    let app = App::start(&[]).await?;
    let (status, body, headers) = app.ask("GET", "/erl", "").await?;
    assert_eq!((status, body.as_str()), (200, "allowed\n"));
    let field = |name| headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!(field("x-ratelimit-limit"), Some("200"));
    assert_eq!(field("ratelimit-policy"), Some("\"api\";q=200;w=10"));
    for unknown in ["x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "retry-after"] {
        assert_eq!(field(unknown), None, "{unknown}");
    }
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_unlinked_store_is_named_in_the_error_and_other_routes_work() -> Result<()> {
    let unlinked = |manifest: String| manifest.replace("tidegate = []", "other = []");
    let app = App::start_with(unlinked, &[TEST_MODE]).await?;
    let (status, body) = app.call(CHECK, "k").await?;
    assert_eq!(status, 503);
    assert!(body.contains("invalid") && body.contains("KV Store \\\"tidegate\\\" is not linked"), "{body}");
    let (status, body) = app.get("/kv").await?;
    assert!(status == 503 && !body.contains("tidegate"), "{status} {body}");
    assert_eq!(app.get("/erl").await?.0, 200);
    assert_eq!(app.get("/health").await?.0, 200);
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_corrupt_value_affects_one_key_until_it_is_reset() -> Result<()> {
    let corrupt = r#"tidegate = [{ key = "tg1:api:fw60000:bad", data = "12345678" }]"#;
    let app = App::start_with(|manifest| manifest.replace("tidegate = []", corrupt), &[TEST_MODE]).await?;
    for _ in 0..2 {
        let (status, body) = app.call(CHECK, "bad").await?;
        assert!(status == 503 && body.contains("corrupt"), "{status} {body}");
        assert_eq!(app.call(CHECK, "good").await?.0, 200);
    }
    assert_eq!(app.call("/kv/_tidegate/reset", "bad").await?.0, 200);
    assert_eq!(app.call(CHECK, "bad").await?.0, 200);
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_store_accepts_any_key() -> Result<()> {
    let app = App::start(&[TEST_MODE]).await?;
    let long = "x".repeat(10_000);
    let keys = [long.as_str(), "", ".", "..", "#;?^|\r\n\0", ".well-known/acme-challenge/x", "a/../b", "\u{1f984}"];
    for key in keys {
        let statuses = [app.call(CHECK, key).await?.0, app.call(CHECK, key).await?.0, app.call(CHECK, key).await?.0];
        assert_eq!(statuses, [200, 200, 429], "{key:?}");
    }
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_panic_fails_one_request_and_loses_no_count() -> Result<()> {
    let app = App::start(&[TEST_MODE]).await?;
    assert_eq!(app.call(CHECK, "k").await?.0, 200);
    assert_eq!(app.call("/kv/_tidegate/panic", "k").await?.0, 500);
    assert_eq!((app.call(CHECK, "k").await?.0, app.call(CHECK, "k").await?.0), (200, 429));
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_invalid_policy_is_only_logged_and_other_routes_work() -> Result<()> {
    let wrong = |manifest: String| manifest.replace("\"capacity\": 5", "\"capacity\": 0");
    let app = App::start_with(wrong, &[]).await?;
    let (status, body) = app.get("/kv").await?;
    assert!(status == 503 && !body.contains("capacity"), "{status} {body}");
    assert_eq!(app.get("/erl").await?.0, 200);
    app.host.stop().await;
    Ok(())
}

#[tokio::test]
async fn under_contention_every_request_is_either_charged_or_an_error() -> Result<()> {
    let roomy = |manifest: String| {
        let quota = |capacity, per_ms| format!("\"capacity\": {capacity}, \"refill\": 1, \"per_ms\": {per_ms}");
        manifest.replace(&quota(5, 1_000), &quota(100_000, 86_400_000)).replace("debug = \"off\"", "debug = \"on\"")
    };
    let app = App::start_with(roomy, &[]).await?;
    let answers = join_all((0..500).map(|_| app.get("/kv"))).await.into_iter().collect::<Result<Vec<_>>>()?;
    let count = |of: fn(&(u16, String)) -> bool| answers.iter().filter(|answer| of(answer)).count();
    let admitted = count(|(status, _)| *status == 200);
    assert!(admitted > 0);
    assert_eq!(admitted + count(|(status, body)| *status == 503 && body.contains("contended")), answers.len());
    let (_, _, headers) = app.ask("GET", "/debug/kv", "").await?;
    let remaining = headers.get("x-ratelimit-remaining").and_then(|value| value.to_str().ok());
    assert_eq!(remaining, Some((100_000 - admitted).to_string().as_str()));
    app.host.stop().await;
    Ok(())
}

/// A policy of one request a day. After that request, the store denies everyone.
fn one_a_day(manifest: String) -> String {
    let quota = |capacity, per_ms| format!("\"capacity\": {capacity}, \"refill\": 1, \"per_ms\": {per_ms}");
    manifest.replace(&quota(5, 1_000), &quota(1, 86_400_000))
}

#[tokio::test]
async fn no_client_input_gets_past_a_store_that_denies() -> Result<()> {
    let app = App::start_with(one_a_day, &[TEST_MODE]).await?;
    assert_eq!(app.get("/kv").await?.0, 200);
    let client = Client::builder(TokioExecutor::new()).build_http();
    for name in ["fastly-client-ip", "x-forwarded-for", "forwarded", "x-real-ip", "true-client-ip", "authorization"] {
        for value in
            ["", "203.0.113.9", "203.0.113.9, 10.0.0.1", "::1", "2a06:98c0:3600::103", "no address", "Bearer x"]
        {
            let request = Request::get(format!("{}/kv", app.base)).header(name, value).body(Full::new(Bytes::new()))?;
            assert_eq!(client.request(request).await?.status(), 429, "{name}: {value}");
        }
    }
    // An exhausted key, and requests with an invalid cost or key.
    for _ in 0..2 {
        assert_eq!(app.call(CHECK, "k").await?.0, 200);
    }
    let policy = r#"{"name":"api","quotas":[{"algorithm":"fixed_window","limit":2,"window_ms":60000}]}"#;
    for cost in ["1", "2", "1.5", "-1", "1e300", "NaN", "null", "18446744073709551615", "18446744073709551616", "\"1\""]
    {
        let body = format!(r#"{{"policy":{policy},"key":"k","now_ms":1800000000000,"cost":{cost}}}"#);
        let (status, answer, _) = app.ask("POST", CHECK, &body).await?;
        assert_ne!(status, 200, "{cost}: {answer}");
    }
    for key in [r#""\ud800""#, "7", "null", "[]", "{}"] {
        let body = format!(r#"{{"policy":{policy},"key":{key},"now_ms":1800000000000}}"#);
        let (status, answer, _) = app.ask("POST", CHECK, &body).await?;
        assert_ne!(status, 200, "{key}: {answer}");
    }
    app.host.stop().await;
    Ok(())
}
