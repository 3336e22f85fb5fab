//! Waiting until a key is admitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Check, Error, ErrorKind, Key, Limiter, LimiterExt, Policy, Refund, Status, UnixMillis};
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
    lines: Mutex<Lines>,
}

type Lines = HashMap<String, Line>;

/// Those who wait for one key.
#[derive(Default)]
struct Line {
    /// Held by the first.
    pace: Arc<tokio::sync::Mutex<Pace>>,
    places: usize,
}

/// When the first of a line asks next.
#[derive(Debug, Default)]
struct Pace {
    next: Option<Instant>,
    /// When the last unit was taken.
    used_up: Option<Instant>,
}

/// A place in a line. The last to leave a line removes it, also if the caller stops waiting.
struct Place<'a> {
    lines: &'a Mutex<Lines>,
    name: String,
    pace: Arc<tokio::sync::Mutex<Pace>>,
}

impl<'a> Place<'a> {
    fn at_the_end(lines: &'a Mutex<Lines>, name: String) -> Self {
        let mut all = lock(lines);
        let line = all.entry(name.clone()).or_default();
        line.places += 1;
        Self { lines, name, pace: Arc::clone(&line.pace) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = lock(self.lines);
        let Some(line) = lines.get_mut(&self.name) else { return };
        line.places -= 1;
        if line.places == 0 {
            lines.remove(&self.name);
        }
    }
}

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Waits until a request of this cost is admitted, and charges it. `None` at the deadline, if that is not before it: nothing is
    /// charged then.
    ///
    /// A caller may stop waiting: the line goes on without it. If the store was just asked, it may have charged the request.
    ///
    /// # Errors
    /// As [`LimiterExt::check`], and as [`LimiterExt::refund`] for a leaky bucket whose delay ends after the deadline.
    /// [`Invalid`](ErrorKind::Invalid) for a cost above the limit, for which no wait helps, and for a policy with a concurrency
    /// limit.
    pub async fn until_admitted(
        &self,
        policy: &Policy,
        key: &Key,
        cost: u64,
        deadline: Instant,
    ) -> Result<Option<tidegate_core::Decision>, Error> {
        let place = Place::at_the_end(&self.lines, [policy.id(), "|", key.as_str()].concat());
        match timeout_at(deadline, place.pace.lock()).await {
            Ok(mut pace) => self.first(policy, key, cost, deadline, &mut pace).await,
            Err(_) => Ok(None),
        }
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
                    sleep_until(deadline).await;
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
                    let delay = Duration::from_millis(decision.delay().get());
                    if !delay.is_zero() && now + delay > deadline {
                        let refund = Refund::new(policy, key, cost, decision.decided_at(), (self.clock)());
                        self.limiter.refund(refund).await?;
                        sleep_until(deadline).await;
                        return Ok(None);
                    }
                    let is_used_up = decision.binding().remaining() == Some(0);
                    // The next unit takes as long as this one did.
                    pace.next = pace.used_up.filter(|_| is_used_up && has_waited).map(|last| now + (now - last));
                    pace.used_up = is_used_up.then_some(now);
                    sleep_until(now + delay).await;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Key, MemoryLimiter, Millis, Policy, Quota};
    use tokio::time::{Instant, timeout};

    use super::{Queue, jitter, lock};

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_those_who_left_a_line() -> Result<(), tidegate_core::Error> {
        let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(3_600))?])?;
        let queue = Queue::new(MemoryLimiter::new());
        let within = |secs| Instant::now() + Duration::from_secs(secs);
        for key in (0..100).map(|nth| Key::new(format!("partner:{nth}"))) {
            assert!(queue.until_admitted(&policy, &key, 1, within(1)).await?.is_some());
            // One waits until the deadline, one for its turn, and one stops waiting before.
            let (first, second) =
                (queue.until_admitted(&policy, &key, 1, within(3)), queue.until_admitted(&policy, &key, 1, within(4)));
            let third = timeout(Duration::from_secs(2), queue.until_admitted(&policy, &key, 1, within(5)));
            let (first, second, third) = tokio::join!(first, second, third);
            assert!(first?.is_none() && second?.is_none() && third.is_err());
            // The one at the head of a line stops waiting, alone in it.
            let alone = queue.until_admitted(&policy, &key, 1, within(9));
            assert!(timeout(Duration::from_secs(1), alone).await.is_err());
            assert_eq!(lock(&queue.lines).len(), 0);
        }
        Ok(())
    }

    #[test]
    fn the_random_time_is_at_most_a_tenth_of_the_wait() -> Result<(), tidegate_core::Error> {
        for (wait_ms, most_ms) in [(0, 0), (100, 10), (500, 50), (3_600_000, 50)] {
            let most = Duration::from_millis(most_ms);
            let mut longest = Duration::ZERO;
            for _ in 0..100 {
                longest = longest.max(jitter(Duration::from_millis(wait_ms))?);
            }
            // All of a hundred draws are below a half once in 2^100 runs.
            assert!(longest <= most && longest >= most / 2, "{longest:?} of {most:?}");
        }
        Ok(())
    }
}
