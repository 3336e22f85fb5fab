//! Waiting until a key is admitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Check, Error, ErrorKind, Key, Limiter, Policy, Status, UnixMillis};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The longest random time that is added to a wait.
const JITTER_MAX: Duration = Duration::from_millis(50);

/// How long to wait after a denial that says no time.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until keys are admitted: for workers of a queue, and for clients of a service that limits them.
///
/// Those who wait for one key form a line, and only the first of it asks the store, when its answer may have changed. So a hundred
/// waiters cost about a hundred calls, and are admitted in the order in which they came. Each process has lines of its own.
///
/// ```
/// # use std::time::Duration;
/// use tidegate_tower::{Key, MemoryLimiter, Millis, Policy, Queue, Quota};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate_core::Error> {
/// // A service that admits 50 requests a second.
/// let policy = Policy::new("partner", [Quota::token_bucket(1, 50, Millis::from_secs(1))?])?;
/// let (queue, key) = (Queue::new(MemoryLimiter::new()), Key::new("partner:acme"));
/// for _ in 0..3 {
///     let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
///     if queue.until_admitted(&policy, &key, 1, deadline).await?.is_some() {
///         // Send the request.
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # A leaky bucket needs no line
/// [`Quota::leaky_bucket`](tidegate_core::Quota::leaky_bucket) admits a request at once and says how long to
/// [delay](tidegate_core::Decision::delay) it. That is one call for each, and the store itself spaces the requests of all processes.
/// Take it if the service wants an even rate. `until_admitted` waits for the delay, too.
pub struct Queue<L> {
    limiter: L,
    clock: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    lines: Mutex<HashMap<String, Line>>,
}

type Line = Arc<tokio::sync::Mutex<Pace>>;

/// When the first of a line asks next.
#[derive(Debug, Default)]
struct Pace {
    next: Option<Instant>,
    /// When the last unit was taken.
    used_up: Option<Instant>,
}

impl<L: Limiter> Queue<L> {
    /// Lines in front of a limiter.
    pub fn new(limiter: L) -> Self {
        Self { limiter, clock: Arc::new(UnixMillis::now), lines: Mutex::default() }
    }

    /// Sets the clock, for tests on virtual time. The default is the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The limiter.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Waits until a request of this cost is admitted, and charges it. `None` if that is not before the deadline: nothing is charged
    /// then.
    ///
    /// # Errors
    /// As [`Limiter::check`]. [`Invalid`](ErrorKind::Invalid) for a cost above the limit, for which no wait helps, and for a policy
    /// with a concurrency limit.
    pub async fn until_admitted(
        &self,
        policy: &Policy,
        key: &Key,
        cost: u64,
        deadline: Instant,
    ) -> Result<Option<tidegate_core::Decision>, Error> {
        let name = [policy.id(), "|", key.as_str()].concat();
        let line = Arc::clone(self.lines().entry(name.clone()).or_default());
        let admitted = match timeout_at(deadline, line.lock()).await {
            Ok(mut pace) => self.first(policy, key, cost, deadline, &mut pace).await,
            Err(_) => Ok(None),
        };
        let mut lines = self.lines();
        // This call's and the map's: nobody else waits.
        if Arc::strong_count(&line) == 2 {
            lines.remove(&name);
        }
        drop(lines);
        admitted
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<String, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until the request at the head of a line is admitted.
    async fn first(
        &self,
        policy: &Policy,
        key: &Key,
        cost: u64,
        deadline: Instant,
        pace: &mut Pace,
    ) -> Result<Option<tidegate_core::Decision>, Error> {
        let mut has_waited = false;
        loop {
            if let Some(next) = pace.next {
                if next > deadline {
                    tokio::time::sleep_until(deadline).await;
                    return Ok(None);
                }
                has_waited = true;
                sleep_until(next).await;
            }
            pace.next = None;
            let decision = self.limiter.check(Check::new(policy, key, (self.clock)()).cost(cost)).await?;
            let now = Instant::now();
            match decision.status() {
                Status::Allowed => {
                    let is_used_up = decision.binding().remaining() == Some(0);
                    // The next unit takes as long as this one did.
                    pace.next = pace.used_up.filter(|_| is_used_up && has_waited).map(|last| now + (now - last));
                    pace.used_up = is_used_up.then_some(now);
                    if decision.delay().get() > 0 {
                        sleep_until(now + Duration::from_millis(decision.delay().get())).await;
                    }
                    return Ok(Some(decision));
                }
                Status::Denied => {
                    let wait = decision.retry_after().map_or(PAUSE, |wait| Duration::from_millis(wait.get()));
                    pace.next = Some(now + wait + jitter(wait)?);
                }
                _ => {
                    let limit = decision.binding().limit();
                    let message = format!("cost: {cost} is more than the limit, {limit}, so no wait helps");
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
            }
        }
    }
}

/// A random time, up to a tenth of a wait, so that several processes do not all ask at once.
fn jitter(wait: Duration) -> Result<Duration, Error> {
    let random = getrandom::u32().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no random numbers from the operating system").with_source(error)
    })?;
    Ok((wait / 10).min(JITTER_MAX).mul_f64(f64::from(random) / f64::from(u32::MAX)))
}

impl<L: fmt::Debug> fmt::Debug for Queue<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
