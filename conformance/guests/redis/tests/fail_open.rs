//! The service admits uncounted requests only while its store is down. It runs against a real redis-server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use support::{exchange, get, redis, service};

#[test]
fn requests_are_admitted_uncounted_only_while_the_store_is_down() {
    let (redis_server, redis) = redis();
    let (_service, address) = service(&redis, &[]);
    let first = get(&address);
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains("x-ratelimit-remaining"), "{first}");

    // A corrupt row is not an outage.
    let keys = exchange(&redis, "KEYS *\r\nQUIT\r\n");
    let row = keys.lines().find(|line| line.contains("tg1:")).expect(&keys);
    exchange(&redis, &format!("SET {row} garbage\r\nQUIT\r\n"));
    let corrupt = get(&address);
    assert!(corrupt.starts_with("HTTP/1.1 503 ") && corrupt.contains(r#""kind":"corrupt""#), "{corrupt}");

    drop(redis_server);
    let down = get(&address);
    assert!(down.starts_with("HTTP/1.1 200 ") && down.contains("x-tidegate-failed-open: unavailable"), "{down}");
}
