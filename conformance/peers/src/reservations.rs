//! What becomes of an estimate until it is settled: by limitador's `reserve` and `commit_reservation`, and by a check with a token and a
//! settlement of Tidegate's, in the same cases.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use limitador::limit::{Context, Limit};
use limitador::reservation::ReservationId;
use tidegate_core::{Check, Key, LimiterExt as _, MemoryLimiter, Millis, Policy, Quota, Settle, UnixMillis};

const LIMIT: u64 = 10;
const WINDOW: Millis = Millis::from_secs(3_600);
/// Long enough for all cases, and short enough to wait for.
const TTL: Duration = Duration::from_secs(2);
/// How long the caller waits. limitador reads the wall clock.
const WAIT: Duration = Duration::from_secs(3);
const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// What a caller does, and then sends requests of cost 1, of which some pass.
#[derive(Clone, Copy)]
enum Step {
    /// Asks for an estimate. Asked again, as after a lost answer, it is of the same request.
    Estimate(u64),
    /// Says what it was in the end.
    Actual(u64),
    /// Waits until limitador's reservation has ended.
    Wait,
}

use Step::{Actual, Estimate, Wait};

const CASES: [(&str, &[Step], u64); 6] = [
    ("an estimate of 4 that was 1", &[Estimate(4), Actual(1)], 9),
    ("an estimate of 4 that was 12", &[Estimate(4), Actual(12)], 0),
    ("an estimate of 4 that was 1, told twice", &[Estimate(4), Actual(1), Actual(1)], 9),
    ("an estimate of 4, asked twice, that was 4", &[Estimate(4), Estimate(4), Actual(4)], 6),
    ("an estimate of 4 that nobody settles", &[Estimate(4), Wait], 6),
    ("while an estimate of 10 is under way", &[Estimate(10)], 0),
];

/// The rows of the table: a case, how many of 20 requests are due after it, and how many pass by each.
pub(crate) async fn table() -> Result<String, Box<dyn Error>> {
    let mut table = String::new();
    for (case, steps, due) in CASES {
        writeln!(table, "| {case} | {due} | {} | {} |", by_limitador(steps).await?, by_tidegate(steps).await?)?;
    }
    Ok(table)
}

async fn by_limitador(steps: &[Step]) -> Result<usize, Box<dyn Error>> {
    let limiter = limitador::RateLimiter::new(10);
    limiter.add_limit(Limit::new("api", LIMIT, WINDOW.as_secs_ceil(), [], ["user_id".try_into()?]));
    let context = Context::from(HashMap::from([("user_id".to_string(), "1".to_string())]));
    let mut held: Option<ReservationId> = None;
    for step in steps {
        match step {
            Estimate(units) => held = limiter.reserve(&"api".into(), &context, *units, Some(TTL))?.reservation_id,
            Actual(units) => _ = limiter.commit_reservation(&"api".into(), &context, held.as_ref(), *units)?,
            Wait => tokio::time::sleep(WAIT).await,
        }
    }
    // Each one is reserved, too: what only counts does not see what is held.
    let mut passed = 0;
    for _ in 0..20 {
        let one = limiter.reserve(&"api".into(), &context, 1, None)?;
        if !one.limited {
            limiter.commit_reservation(&"api".into(), &context, one.reservation_id.as_ref(), 1)?;
            passed += 1;
        }
    }
    Ok(passed)
}

async fn by_tidegate(steps: &[Step]) -> Result<usize, Box<dyn Error>> {
    let policy = Policy::new("api", [Quota::fixed_window(LIMIT, WINDOW)?])?;
    let (limiter, key, token, mut now) = (MemoryLimiter::new(), Key::new("1"), "request-1", NOW);
    for step in steps {
        match step {
            Estimate(units) => {
                let check = Check::new(&policy, &key, now).cost(*units).idempotent(token, WINDOW);
                _ = limiter.check(check).await?;
            }
            Actual(units) => _ = limiter.settle(Settle::new(&policy, &key, token, *units, now)).await?,
            Wait => now = now + Millis::from_secs(WAIT.as_secs()),
        }
    }
    let mut passed = 0;
    for _ in 0..20 {
        passed += usize::from(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
    }
    Ok(passed)
}
