//! A token is used for the first time once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Capabilities, DenyCache, Drift, Error, ErrorKind, Limiter, LimiterExt, MemoryLimiter, Millis, Operation, Reply,
    UnixMillis,
};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const TTL: Millis = Millis::from_secs(60);

fn at(ms: u64) -> UnixMillis {
    UnixMillis::new(NOW.get() + ms)
}

#[test]
fn of_500_at_once_one_is_first() {
    let limiter = Arc::new(MemoryLimiter::new());
    let first = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..10 {
            let (limiter, first) = (Arc::clone(&limiter), &first);
            scope.spawn(move || {
                for nth in 0..50 {
                    let now = at((thread * 7 + nth) % 3);
                    first.fetch_add(
                        usize::from(block_on(limiter.once("a", "token", TTL, now)).unwrap()),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    assert_eq!(first.into_inner(), 1);
}

#[test]
fn a_token_is_first_again_exactly_after_its_time() {
    let limiter = MemoryLimiter::new();
    let once =
        |name: &str, token: &str, ttl: Millis, ms: u64| block_on(limiter.once(name, token, ttl, at(ms))).unwrap();
    assert!(once("a", "token", TTL, 59_999));
    // A window of a minute ends at 60,000.
    for ms in [59_999, 60_000, 60_001, 100_000, 119_998] {
        assert!(!once("a", "token", TTL, ms), "{ms}");
    }
    assert!(once("a", "token", TTL, 119_999));
    // A clock that steps back admits nothing.
    assert!(!once("a", "token", TTL, 0));
    assert!(once("b", "token", TTL, 119_999) && once("a", "token ", TTL, 119_999));
    assert!(once("a", "token", Millis::from_secs(61), 119_999));
}

#[test]
fn mistakes_say_what_to_write() {
    let limiter = MemoryLimiter::new();
    let wrong = |name: &str, token: &[u8], ttl| block_on(limiter.once(name, token, ttl, NOW)).unwrap_err();
    for (error, expected) in [
        (wrong("a", b"", TTL), "once: the token is empty; give what names the event, such as its id"),
        (wrong("a", b"t", Millis::ZERO), "once: a ttl of 0 ms remembers nothing; write at least 1 ms"),
        (wrong("a b", b"t", TTL), "name: \"a b\" cannot be a name"),
        (wrong("", b"t", TTL), "name: \"\" cannot be a name"),
        (wrong("a", b"t", Millis::new(1 << 52)), "per"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// A limiter that says what it is, and fails.
struct Other(Capabilities);

impl Limiter for Other {
    fn capabilities(&self) -> Capabilities {
        self.0
    }

    async fn apply(&self, _: Operation<'_>) -> Result<Reply, Error> {
        Err(Error::new(ErrorKind::Unavailable, "down"))
    }
}

#[test]
fn only_an_exact_limiter_tells_and_one_that_is_down_says_nothing() {
    let accuracy = tidegate_core::Accuracy::Approximate(Drift::WITHIN_LIMIT);
    for can in
        [Capabilities::EXACT.accuracy(accuracy), Capabilities::EXACT.accuracy(tidegate_core::Accuracy::PerLocation)]
    {
        let error = block_on(Other(can).once("a", "t", TTL, NOW)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let expected =
            format!("once: only an exact limiter can tell the first use of a token, and this one is {}", can.accuracy);
        assert_eq!(error.to_string(), expected);
    }
    let error = block_on(Other(Capabilities::EXACT).once("a", "t", TTL, NOW)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // What caches denials stays exact.
    let cached = DenyCache::new(MemoryLimiter::new());
    assert!(block_on(cached.once("a", "t", TTL, NOW)).unwrap() && !block_on(cached.once("a", "t", TTL, NOW)).unwrap());
}

#[test]
fn the_token_itself_is_not_stored_and_rust_and_javascript_have_one_row() {
    // adapters/npm/test/once.test.mjs has the same name.
    let seen = Seen(std::sync::Mutex::new(Vec::new()));
    block_on(seen.once("webhooks", "evt_1", Millis::from_secs(86_400), NOW)).unwrap_err();
    let expected = "tg1:webhooks:tb86400000:once:7d4e5a76eae6d8c165410ac19fe6756521ba86ed96752d0126b1953b155af052";
    assert_eq!(*seen.0.lock().unwrap(), [expected]);
}

/// Remembers the names of rows.
struct Seen(std::sync::Mutex<Vec<String>>);

impl Limiter for Seen {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Check(check) = operation {
            self.0.lock().unwrap().extend(check.keys.storage_keys(check.policy)?.rows().iter().cloned());
        }
        Err(Error::new(ErrorKind::Unavailable, "down"))
    }
}

proptest! {
    /// Whatever the times and the tokens are, no token is first twice within its time.
    #[test]
    fn no_token_is_first_twice_within_its_time(uses in prop::collection::vec((0..4_u8, 0..3_000_u64), 1..60)) {
        let (limiter, ttl) = (MemoryLimiter::new(), Millis::new(500));
        let mut first: std::collections::BTreeMap<u8, u64> = std::collections::BTreeMap::new();
        let mut uses = uses;
        uses.sort_by_key(|(_, ms)| *ms);
        for (token, ms) in uses {
            let is_first = block_on(limiter.once("a", [token], ttl, at(ms))).unwrap();
            let expected = first.get(&token).is_none_or(|before| ms >= before + 500);
            prop_assert_eq!(is_first, expected, "{} at {}", token, ms);
            if is_first {
                first.insert(token, ms);
            }
        }
    }
}
