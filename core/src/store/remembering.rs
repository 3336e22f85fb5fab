//! The driver of stores with compare-and-swap that remembers what it saw.

mod seen;
mod turns;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::seen::Remembered;
use self::turns::{Asked, Turns};
use super::tasks::{Tasks, Wakes};
use super::versioned::Change;
use super::{Versioned, shared};
use crate::limiter::{Capabilities, Limiter, Operation, Reply};
use crate::{Decision, Error, Policy, UnixMillis};

/// A [`Limiter`] over a [`Versioned`] store that remembers what it last saw under a key, decides on that, and swaps at once: one call a
/// decision while no other process uses the key.
///
/// - **It is exact.** A swap succeeds only over what the decision was made on. What is remembered never decides alone: a denial, a peek, and
///   all else that writes nothing is told from what the store returned after it was asked, so it takes a read, or the answer to a swap.
/// - A key that it knows nothing of is created at once. If the key is there already, the swap is lost.
/// - **A lost swap** tells what is there now, if [the store can](Versioned::swap), and the next attempt needs no read. After the last of the
///   [attempts](super::VersionedLimiter::attempts), the error is [`ErrorKind::Contended`](crate::ErrorKind::Contended).
/// - **Decisions of one key that wait in this process are decided together**, in the order in which they were asked, on one state and by one swap
///   or read. A decision waits for the call that is under way for its key, and then for its own. Whoever waits drives the call. If a check is dropped before its call
///   is sent, nothing was charged. If all checks of a call are dropped, so is the call, which may have been applied.
/// - An error of a call is that of each decision in it.
/// - **Memory:** it remembers about as many keys as it was given, those that were used last.
///
/// It needs a store whose reads see all writes that were done before, such as a database's primary, and whose
/// [versions](Versioned::Version) never come again.
///
/// ```
/// # use std::collections::HashMap;
/// # use std::sync::Mutex;
/// # use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
/// # use tidegate_core::{Capabilities, Check, Dimensions, Error, Key, LimiterExt, Millis, Policy, Quota, UnixMillis};
/// # #[derive(Default)]
/// # struct Table(Mutex<HashMap<String, (Vec<u8>, u64)>>);
/// # impl Versioned for Table {
/// #     type Version = u64;
/// #     fn capabilities(&self) -> Capabilities {
/// #         Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(2)
/// #     }
/// #     async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
/// #         Ok(self.0.lock().unwrap().get(key).map(|(bytes, version)| VersionedValue { bytes: bytes.clone(), version: *version }))
/// #     }
/// #     async fn create(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<Swap, Error> {
/// #         let mut rows = self.0.lock().unwrap();
/// #         if rows.contains_key(key) { return Ok(Swap::Conflict); }
/// #         rows.insert(key.into(), (bytes.into(), 1));
/// #         Ok(Swap::Done)
/// #     }
/// #     async fn update(&self, key: &str, bytes: &[u8], version: u64, _ttl: Millis) -> Result<Swap, Error> {
/// #         match self.0.lock().unwrap().get_mut(key) {
/// #             Some(row) if row.1 == version => { *row = (bytes.into(), version + 1); Ok(Swap::Done) }
/// #             _ => Ok(Swap::Conflict),
/// #         }
/// #     }
/// #     async fn delete(&self, key: &str) -> Result<(), Error> {
/// #         self.0.lock().unwrap().remove(key);
/// #         Ok(())
/// #     }
/// # }
/// # fn main() -> Result<(), Error> {
/// # pollster::block_on(async {
/// // `Table` is the store of the example of `VersionedLimiter`.
/// let limiter = VersionedLimiter::new(Table::default()).attempts(64).remembering(10_000);
/// let policy = Policy::new("api", [Quota::sliding_window(1, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
pub struct RememberingLimiter<S: Versioned> {
    store: Arc<S>,
    attempts: u32,
    keys: Mutex<Keys<S::Version>>,
    policies: Mutex<Vec<Arc<Policy>>>,
}

/// The keys for which decisions wait, and what is remembered of the others.
struct Keys<V> {
    used: HashMap<String, Used<V>>,
    remembered: Remembered<V>,
}

struct Used<V> {
    line: Arc<Line<V>>,
    /// How many decisions wait.
    waiting: usize,
}

/// The decisions of a key that wait, and their tasks.
struct Line<V> {
    turns: Mutex<Turns<V>>,
    tasks: Arc<Tasks>,
}

/// A decision that waits.
struct Waiting<'a, S: Versioned + 'static> {
    limiter: &'a RememberingLimiter<S>,
    name: &'a str,
    line: Arc<Line<S::Version>>,
    nth: u64,
    is_told: bool,
}

impl<S: Versioned + 'static> RememberingLimiter<S> {
    /// The number of keys to [remember](super::VersionedLimiter::remembering) where nothing else is known: some 3 MB.
    pub const DEFAULT_KEYS: usize = 10_000;

    pub(super) fn new(store: S, attempts: u32, keys: usize) -> Self {
        let keys = Keys { used: HashMap::new(), remembered: Remembered::new(keys) };
        Self { store: Arc::new(store), attempts: attempts.max(1), keys: Mutex::new(keys), policies: Mutex::default() }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    async fn decide(&self, name: &str, change: Change, policy: &Policy, now: UnixMillis) -> Result<Decision, Error> {
        let policy = {
            let mut policies = lock(&self.policies);
            shared(&mut policies, policy, now).unwrap_or_else(|| Arc::new(policy.clone()))
        };
        let mut waiting = self.join(name, Asked::new(policy, now, change));
        poll_fn(|context| waiting.poll(context)).await
    }

    fn join<'a>(&'a self, name: &'a str, asked: Asked) -> Waiting<'a, S> {
        let line = {
            let Keys { used, remembered } = &mut *lock(&self.keys);
            let used = match used.get_mut(name) {
                Some(used) => used,
                None => {
                    let turns = Mutex::new(Turns::new(remembered.take(name)));
                    let line = Arc::new(Line { turns, tasks: Arc::default() });
                    used.entry(name.into()).or_insert(Used { line, waiting: 0 })
                }
            };
            used.waiting += 1;
            Arc::clone(&used.line)
        };
        let nth = lock(&line.turns).join(asked);
        Waiting { limiter: self, name, line, nth, is_told: false }
    }

    async fn reset(&self, name: &str) -> Result<(), Error> {
        let deleted = self.store.delete(name).await;
        let Keys { used, remembered } = &mut *lock(&self.keys);
        remembered.take(name);
        if let Some(used) = used.get(name) {
            lock(&used.line.turns).forget();
        }
        deleted
    }
}

impl<S: Versioned + 'static> Waiting<'_, S> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Decision, Error>> {
        let Line { turns, tasks } = &*self.line;
        tasks.add(context.waker());
        // Also if the store panics: the others go on.
        let mut wakes = Wakes(Some(tasks));
        let mut turns = lock(turns);
        let is_news = turns.drive(&self.limiter.store, self.name, self.limiter.attempts, tasks);
        let told = turns.told(self.nth);
        self.is_told = told.is_some();
        // A task that wakes itself is polled once more for nothing.
        if !is_news || turns.are_over() {
            wakes.0 = None;
        }
        told.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S: Versioned + 'static> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        if !self.is_told {
            lock(&self.line.turns).leave(self.nth);
            // Another one has to drive what this one has driven.
            self.line.tasks.wake_all();
        }
        let Keys { used, remembered } = &mut *lock(&self.limiter.keys);
        let Some(line) = used.get_mut(self.name) else { return };
        line.waiting -= 1;
        if line.waiting == 0 {
            let seen = lock(&self.line.turns).end();
            if let Some((name, seen)) = used.remove_entry(self.name).map(|(name, _)| name).zip(seen) {
                remembered.put(name, seen);
            }
        }
    }
}

impl<S: Versioned + 'static> Limiter for RememberingLimiter<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().grant(false).round_trips(1)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.capabilities())?;
        let policy = operation.policy();
        let name = operation.keys().single(policy)?.storage_key(policy);
        if let Operation::Reset { .. } = operation {
            return self.reset(&name).await.map(Reply::from);
        }
        let change = Change::of(&operation)?;
        Ok(operation.reply(self.decide(&name, change, policy, operation.now()).await?))
    }
}

impl<S: Versioned + fmt::Debug> fmt::Debug for RememberingLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, attempts, .. } = self;
        f.debug_struct("RememberingLimiter").field("store", store).field("attempts", attempts).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
