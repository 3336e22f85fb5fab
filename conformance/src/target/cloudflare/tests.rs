//! What fixtures do not ask of the Worker.

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::serve;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

static FORGED: AtomicU8 = AtomicU8::new(0);

/// What a Worker answers: the status code, and the body.
async fn ask(base: &str, method: &str, path: &str, client_ip: &str, body: &str) -> Result<(u16, String)> {
    let request = Request::builder().method(method).uri(format!("{base}{path}")).header("cf-connecting-ip", client_ip);
    // Which anyone can send: it must not make another of the sender.
    let forged = format!("203.0.113.{}", FORGED.fetch_add(1, Ordering::Relaxed));
    let request = request.header("x-forwarded-for", forged);
    let request = request.body(Full::new(Bytes::from(body.to_string())))?;
    let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

const CHECK: &str = r#"{ "policy": { "name": "panic", "quotas": [{ "algorithm": "fixed_window", "limit": 2,
    "window_ms": 60000 }] }, "key": "ip:192.0.2.1", "now_ms": 1800000000000 }"#;

#[tokio::test]
async fn a_deployed_worker_limits_by_the_platforms_address_and_shows_nothing() -> Result<()> {
    let (host, addresses) = serve(vec!["--var=TOLLGATE_TEST_MODE=off".into()]).await?;
    let base = &addresses[0];
    for (route, client) in [("/do", "192.0.2.1"), ("/do-leased", "192.0.2.2"), ("/kv", "192.0.2.3")] {
        // The policy's burst is five, and one comes back a second.
        let mut admitted = 0;
        for _ in 0..20 {
            let (status, body) = ask(base, "GET", route, client, "").await?;
            assert!(status == 200 || status == 429 && body.contains("rate_limited"), "{route}: {status} {body}");
            admitted += u64::from(status == 200);
        }
        assert!((5..15).contains(&admitted), "{route}: admitted {admitted}");
        assert_eq!(ask(base, "GET", route, "192.0.2.4", "").await?.0, 200, "{route}");
    }
    assert_eq!(ask(base, "GET", "/ratelimit", "192.0.2.1", "").await?, (200, "allowed\n".into()));
    assert_eq!(ask(base, "GET", "/debug/do", "192.0.2.1", "").await?.0, 404);
    assert_eq!(ask(base, "POST", "/do/_tollgate/check", "192.0.2.1", CHECK).await?.0, 404);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn what_a_client_has_left_is_shown_where_that_is_switched_on() -> Result<()> {
    let (host, addresses) = serve(vec!["--var=DEBUG=on".into()]).await?;
    let (status, body) = ask(&addresses[0], "GET", "/debug/do", "192.0.2.1", "").await?;
    assert_eq!(status, 200, "{body}");
    assert!(body.starts_with("ip:192.0.2.1: "), "{body}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_panic_is_one_requests_and_no_count_is_lost() -> Result<()> {
    let (host, addresses) = serve(vec!["--isolates=2".into()]).await?;
    let check = async |base: &str| ask(base, "POST", "/do/_tollgate/check", "192.0.2.1", CHECK).await;
    assert_eq!(check(&addresses[0]).await?.0, 200);
    for base in &addresses {
        assert_eq!(ask(base, "POST", "/do/_tollgate/panic", "192.0.2.1", "").await?.0, 500);
    }
    // The objects live in the first isolate, which has just been made anew.
    assert_eq!(check(&addresses[1]).await?.0, 200);
    assert_eq!(check(&addresses[0]).await?.0, 429);
    host.stop().await;
    Ok(())
}
