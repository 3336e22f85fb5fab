//! Virtual time: futures that wait for it, in the order in which they are due.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tidegate_core::UnixMillis;

/// The instant at which every world begins, in microseconds since the epoch.
pub(super) const START_US: u64 = 1_800_000_000_000_000;

/// A clock that stands still while anything can run.
///
/// Times are microseconds. [`World::run`] runs tasks without anything else. On another executor, call [`World::step`] whenever nothing
/// can run.
#[derive(Clone, Debug, Default)]
pub struct World(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    now: AtomicU64,
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Due {
    /// Who waits, by the time that is waited for and then in the order in which they began to wait.
    sleepers: BTreeMap<(u64, u64), Waker>,
    order: u64,
}

impl Default for Inner {
    fn default() -> Self {
        Self { now: AtomicU64::new(START_US), due: Mutex::default() }
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The places of the tasks that can run, in the order in which they were woken.
type Ready = Arc<Mutex<VecDeque<usize>>>;

/// Wakes the task at a place.
struct Place {
    place: usize,
    ready: Ready,
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.place);
    }
}

impl World {
    /// Microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }

    /// The time for a limiter.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        UnixMillis::new(self.now_us() / 1_000)
    }

    /// Waits. A wait of zero lets others run that are due now.
    pub fn sleep(&self, us: u64) -> Sleep {
        Sleep { world: self.clone(), until: self.now_us() + us, waits: false }
    }

    /// Runs the tasks that `next` brings, each at its time, in microseconds, and everything that they wait for. The times must not
    /// decrease.
    pub fn run<'a>(&self, mut next: impl FnMut() -> Option<(u64, Task<'a>)>) {
        let ready = Ready::default();
        let mut tasks: Vec<(Option<Task<'a>>, Waker)> = Vec::new();
        let mut free = Vec::new();
        let mut coming = next();
        loop {
            let woken = ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let place = match (woken, self.next_due(), &coming) {
                (Some(place), ..) => place,
                (None, Some(at), arrival) if arrival.as_ref().is_none_or(|(arrives, _)| at <= *arrives) => {
                    let _next = self.step();
                    continue;
                }
                (None, _, None) => return,
                (None, _, Some(_)) => {
                    let Some((at, task)) = coming.take() else { return };
                    coming = next();
                    self.0.now.store(at.max(self.now_us()), Ordering::Relaxed);
                    let place = free.pop().unwrap_or_else(|| {
                        let place = tasks.len();
                        tasks.push((None, Arc::new(Place { place, ready: Arc::clone(&ready) }).into()));
                        place
                    });
                    tasks[place].0 = Some(task);
                    place
                }
            };
            let (task, waker) = &mut tasks[place];
            // It may have ended since it was woken.
            let Some(running) = task else { continue };
            if running.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                *task = None;
                free.push(place);
            }
        }
    }

    /// Advances the clock to the next time for which a future waits, and wakes it. Returns whether there was one.
    #[must_use]
    pub fn step(&self) -> bool {
        let Some(((at, _), waker)) = self.due().sleepers.pop_first() else { return false };
        self.0.now.store(at, Ordering::Relaxed);
        waker.wake();
        true
    }

    fn next_due(&self) -> Option<u64> {
        self.due().sleepers.first_key_value().map(|((at, _), _)| *at)
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        let mut due = self.due();
        due.order += 1;
        let order = due.order;
        due.sleepers.insert((at, order), waker.clone());
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.0.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for virtual time.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    world: World,
    until: u64,
    waits: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waits && self.world.now_us() >= self.until {
            return Poll::Ready(());
        }
        if !self.waits {
            self.waits = true;
            self.world.wake_at(self.until, context.waker());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::{START_US, World};

    #[test]
    fn tasks_run_in_the_order_in_which_they_are_due() {
        let (world, seen) = (World::default(), RefCell::new(Vec::new()));
        let task = |name: &'static str, waits: &'static [u64]| {
            let (world, seen) = (world.clone(), &seen);
            Box::pin(async move {
                for wait in waits {
                    world.sleep(*wait).await;
                    seen.borrow_mut().push((world.now_us() - START_US, name));
                }
            })
        };
        let mut arrivals = vec![(START_US + 10, task("b", &[6, 1])), (START_US, task("a", &[12, 3]))];
        world.run(|| arrivals.pop().map(|(at, task)| (at, task as _)));
        assert_eq!(*seen.borrow(), [(12, "a"), (15, "a"), (16, "b"), (17, "b")]);
        assert_eq!(world.now_us(), START_US + 17);
    }

    #[test]
    fn a_task_waits_for_many_futures_at_once() {
        let world = World::default();
        let waits = join_all((1..=100).map(|us| world.sleep(us)));
        let mut task = Some(async {
            waits.await;
        });
        world.run(|| Some((START_US, Box::pin(task.take()?) as _)));
        assert!(task.is_none() && world.now_us() == START_US + 100, "{}", world.now_us() - START_US);
    }

    #[test]
    fn a_task_that_waits_for_another_runs_as_soon_as_it_can() {
        let (world, seen) = (World::default(), RefCell::new(Vec::new()));
        let first = world.sleep(5).shared();
        let mut tasks: Vec<_> = ["b", "a"]
            .map(|name| {
                let (world, seen, first) = (&world, &seen, first.clone());
                async move {
                    first.await;
                    seen.borrow_mut().push((world.now_us() - START_US, name));
                }
            })
            .into();
        world.run(|| Some((START_US, Box::pin(tasks.pop()?) as _)));
        assert_eq!(*seen.borrow(), [(5, "a"), (5, "b")]);
    }
}
