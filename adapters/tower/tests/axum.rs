//! The example over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not run its main function")]
#[path = "../examples/axum.rs"]
mod example;

mod support;

use futures_util::future::join_all;
use http::Response;
use support::server::Server;
use tidegate_core::{ErrorKind, MemoryLimiter, Platform};
use tidegate_testing::{Log, failing};

fn field<'a>(response: &'a Response<String>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_burst_of_one_client_is_admitted_up_to_the_limit() {
    let server = Server::start(example::app(MemoryLimiter::new(), Platform::Direct).unwrap()).await;
    // With no platform in front, no header is read.
    let forged: Vec<_> = (0..50).map(|place| format!("198.51.100.{place}")).collect();
    let forge = |address| [("x-forwarded-for", address), ("x-real-ip", address), ("x-vercel-forwarded-for", address)];
    let burst = forged.iter().map(|address| async { server.get("/", &forge(address.as_str())).await });
    let answers = join_all(burst).await;
    let (allowed, denied): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status() == 200);
    assert_eq!(allowed.len(), 5);
    let mut remaining: Vec<_> = allowed.iter().map(|answer| field(answer, "x-ratelimit-remaining").unwrap()).collect();
    remaining.sort_unstable();
    assert_eq!(remaining, ["0", "1", "2", "3", "4"]);
    for answer in denied {
        assert_eq!(answer.status(), 429);
        assert_eq!(field(answer, "x-ratelimit-limit"), Some("5"));
        assert_eq!(field(answer, "ratelimit-policy"), Some("\"api\";q=5;w=300"));
        assert_eq!(field(answer, "content-type"), Some("application/json"));
        let wait: u64 = field(answer, "retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(answer.body().starts_with("{\"error\":\"rate_limited\",\"policy\":\"api\""), "{}", answer.body());
    }
    for _ in 0..10 {
        assert_eq!(server.get("/health", &[]).await.body(), "ok\n");
    }
    // A login is a request, too, and there is none left.
    assert_eq!(server.post("/login").await.status(), 429);
}

#[tokio::test]
async fn only_the_header_of_the_platform_identifies_clients() {
    let server = Server::start(example::app(MemoryLimiter::new(), Platform::Vercel).unwrap()).await;
    for client in ["192.0.2.1", "192.0.2.2"] {
        for place in 0..6 {
            let forged = format!("198.51.100.{place}");
            let headers = [("x-vercel-forwarded-for", client), ("x-forwarded-for", &forged)];
            let answer = server.get("/", &headers).await;
            assert_eq!(answer.status(), if place < 5 { 200 } else { 429 }, "{client} {place}");
        }
    }
    // Requests without an address share one key, which no other request uses.
    for place in 0..6 {
        let forged = format!("198.51.100.{place}");
        let answer = server.get("/", &[("x-forwarded-for", &forged)]).await;
        assert_eq!(answer.status(), if place < 5 { 200 } else { 429 }, "{place}");
    }
}

#[tokio::test]
async fn requests_pass_and_are_marked_while_the_store_is_down() {
    let server = Server::start(example::app(failing(ErrorKind::Unavailable), Platform::Direct).unwrap()).await;
    for _ in 0..10 {
        let answer = server.get("/", &[]).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(field(&answer, "x-tidegate-failed-open"), Some("unavailable"));
        assert_eq!(field(&answer, "x-ratelimit-limit"), None);
        assert_eq!(answer.body(), "hello\n");
    }
    // The rule for logins stays closed.
    assert_eq!(server.post("/login").await.status(), 503);
}

#[tokio::test]
async fn without_the_peers_address_nobody_shares_a_limit_and_the_log_names_the_missing_call() {
    let log = Log::default();
    let _guard = log.record();
    let app = example::app(MemoryLimiter::new(), Platform::Direct).unwrap();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = http::Request::get("/").body(axum::body::Body::empty()).unwrap();
        statuses.push(tower::ServiceExt::oneshot(app.clone(), request).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [500, 500, 500]);
    let lines = log.take_lines();
    assert!(!lines.is_empty(), "at most one a second");
    for line in &lines {
        assert!(
            line.starts_with("ERROR") && line.contains("into_make_service_with_connect_info::<SocketAddr>()"),
            "{line}"
        );
    }
    // A sender that an earlier layer has identified needs no address.
    let mut known = http::Request::get("/").body(axum::body::Body::empty()).unwrap();
    known.extensions_mut().insert(tidegate_tower::Subject("alice".into()));
    assert_eq!(tower::ServiceExt::oneshot(app, known).await.unwrap().status(), 200);
}
