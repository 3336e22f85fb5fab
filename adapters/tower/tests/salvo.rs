//! The layer in salvo, by its feature `tower-compat`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use salvo::prelude::*;
use salvo::test::TestClient;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, MemoryLimiter, Platform};
use tidegate_testing::per_minute;
use tidegate_tower::RateLimitLayer;

#[handler]
async fn hello() -> &'static str {
    "hello"
}

#[tokio::test]
async fn a_router_of_salvo_is_limited() {
    let policy = per_minute(3);
    let gate =
        Gate::new(Rules::all(policy, OnFailure::Closed), MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel));
    let layer = RateLimitLayer::new(gate.unwrap()).unwrap();
    let service = Service::new(Router::new().hoop(layer.compat()).get(hello));
    let mut statuses = Vec::new();
    for client in ["192.0.2.1", "192.0.2.2"] {
        for _ in 0..5 {
            let request = TestClient::get("http://127.0.0.1:80/").add_header("x-vercel-forwarded-for", client, true);
            let response = request.send(&service).await;
            assert!(response.headers().contains_key("x-ratelimit-remaining"));
            statuses.push(response.status_code.unwrap_or_default().as_u16());
        }
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429].repeat(2));
}
