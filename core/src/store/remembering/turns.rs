//! The decisions of one key, one call after another.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::task::{Context, Poll, Waker};

use super::seen::Seen;
use crate::limiter::{BoxFuture, MaybeSend};
use crate::store::tasks::Tasks;
use crate::store::versioned::{Change, Changed, contended};
use crate::store::{Swapped, Versioned, VersionedValue};
use crate::{Decision, Error, ErrorKind, Millis, Policy, UnixMillis};

/// A decision that was asked for.
pub(super) struct Asked {
    policy: Arc<Policy>,
    now: UnixMillis,
    change: Change,
    /// Who waits for it. `None` if nobody does any more.
    nth: Option<u64>,
    /// How many swaps of it were lost.
    lost: u32,
    /// Whether the store has returned what is seen after this was asked.
    is_fresh: bool,
}

/// A call under way.
struct Call<V> {
    answer: BoxFuture<'static, Result<Answer<V>, Error>>,
    /// The decisions that it is for, each as it will be if the call writes.
    decided: Vec<(Asked, Result<Decision, Error>)>,
    /// What it writes.
    bytes: Vec<u8>,
}

enum Answer<V> {
    Read(Option<VersionedValue<V>>),
    Swapped(Swapped<V>),
}

/// The decisions of a key: those that wait for a call, those of the call that is under way, and those that are made.
pub(super) struct Turns<V> {
    seen: Seen<V>,
    waiting: VecDeque<Asked>,
    call: Option<Call<V>>,
    told: BTreeMap<u64, Result<Decision, Error>>,
    next: u64,
}

impl Asked {
    pub(super) fn new(policy: Arc<Policy>, now: UnixMillis, change: Change) -> Self {
        Self { policy, now, change, nth: None, lost: 0, is_fresh: false }
    }
}

impl<V> Turns<V> {
    pub(super) fn new(remembered: Option<Seen<V>>) -> Self {
        let seen = remembered.unwrap_or(Seen::Unknown);
        Self { seen, waiting: VecDeque::new(), call: None, told: BTreeMap::new(), next: 0 }
    }

    pub(super) fn join(&mut self, asked: Asked) -> u64 {
        let nth = self.next;
        self.next += 1;
        self.waiting.push_back(Asked { nth: Some(nth), ..asked });
        nth
    }

    /// Nobody waits for this decision any more. If its call is under way, it goes on for the others.
    pub(super) fn leave(&mut self, nth: u64) {
        self.told.remove(&nth);
        self.waiting.retain(|asked| asked.nth != Some(nth));
        let Some(call) = &mut self.call else { return };
        for (asked, _) in &mut call.decided {
            asked.nth = asked.nth.filter(|other| *other != nth);
        }
        if call.decided.iter().all(|(asked, _)| asked.nth.is_none()) {
            self.call = None;
            self.seen = Seen::Untold;
        }
    }

    pub(super) fn forget(&mut self) {
        self.seen = Seen::Unknown;
    }

    /// What to remember of the value now that nobody waits.
    pub(super) fn end(&mut self) -> Option<Seen<V>> {
        match mem::replace(&mut self.seen, Seen::Unknown) {
            Seen::Unknown | Seen::Nothing => None,
            seen => Some(seen),
        }
    }

    /// The decision, once it is made.
    pub(super) fn told(&mut self, nth: u64) -> Option<Result<Decision, Error>> {
        self.told.remove(&nth).or_else(|| {
            // A call whose store has panicked has taken its decisions with it.
            let is_lost = self.call.is_none() && self.waiting.is_empty();
            let message = "the call has ended without an answer; the request may have been charged";
            is_lost.then(|| Err(Error::new(ErrorKind::Contended, message)))
        })
    }

    /// Whether nobody waits.
    pub(super) fn are_over(&self) -> bool {
        self.told.is_empty() && self.waiting.is_empty() && self.call.is_none()
    }

    fn tell(&mut self, asked: &Asked, decision: Result<Decision, Error>) {
        if let Some(nth) = asked.nth {
            self.told.insert(nth, decision);
        }
    }
}

impl<V: MaybeSend + 'static> Turns<V> {
    /// Goes on with the call, and begins the next ones, until one has to wait. Returns whether any decision was made.
    pub(super) fn drive<S>(&mut self, store: &Arc<S>, name: &str, attempts: u32, tasks: &Arc<Tasks>) -> bool
    where
        S: Versioned<Version = V> + 'static,
    {
        let waker = Waker::from(Arc::clone(tasks));
        let mut is_news = false;
        loop {
            let Some(mut call) = self.call.take() else {
                if self.waiting.is_empty() {
                    return is_news;
                }
                self.call = self.begin(store, name);
                is_news |= self.call.is_none();
                continue;
            };
            match call.answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    self.call = Some(call);
                    return is_news;
                }
                Poll::Ready(answer) => {
                    is_news = true;
                    self.answered(call, answer, attempts);
                }
            }
        }
    }

    /// Decides all that wait, one after another. Tells what the store has just confirmed, and begins the call that the others need.
    fn begin<S>(&mut self, store: &Arc<S>, name: &str) -> Option<Call<V>>
    where
        S: Versioned<Version = V> + 'static,
    {
        let mut written: Option<(Vec<u8>, Millis)> = None;
        let mut decided = Vec::with_capacity(self.waiting.len());
        for mut asked in mem::take(&mut self.waiting) {
            let stored = written.as_ref().map(|(bytes, _)| &bytes[..]).or_else(|| self.seen.bytes());
            let decision = match asked.change.apply(&asked.policy, asked.now, stored) {
                Ok(Changed { decision, value: Some((bytes, ttl)) }) => {
                    // Clocks differ, so the last value need not be the one that has an effect for longest.
                    let ttl = written.map_or(ttl, |(_, before)| ttl.max(before));
                    written = Some((bytes, ttl));
                    Ok(decision)
                }
                Ok(Changed { decision, value: None }) => Ok(decision),
                Err(error) => Err(error),
            };
            if asked.is_fresh && written.is_none() {
                self.tell(&asked, decision);
            } else {
                asked.is_fresh = false;
                decided.push((asked, decision));
            }
        }
        if decided.is_empty() {
            return None;
        }
        let (store, name) = (Arc::clone(store), name.to_owned());
        let lost = decided.iter().map(|(asked, _)| asked.lost).max().unwrap_or_default();
        match (written, &self.seen) {
            (Some((bytes, ttl)), Seen::Unknown | Seen::Nothing | Seen::Value(_)) => {
                let version = match mem::replace(&mut self.seen, Seen::Untold) {
                    Seen::Value(value) => Some(value.version),
                    Seen::Unknown | Seen::Untold | Seen::Nothing => None,
                };
                let sent = bytes.clone();
                let answer = Box::pin(async move {
                    if lost > 0 {
                        store.pause(lost).await;
                    }
                    store.swap(&name, &sent, version, ttl).await.map(Answer::Swapped)
                });
                Some(Call { answer, decided, bytes })
            }
            _ => {
                let answer = Box::pin(async move { store.read(&name).await.map(Answer::Read) });
                Some(Call { answer, decided, bytes: Vec::new() })
            }
        }
    }

    fn answered(&mut self, Call { decided, bytes, .. }: Call<V>, answer: Result<Answer<V>, Error>, attempts: u32) {
        match answer {
            Ok(Answer::Swapped(Swapped::Done(version))) => {
                self.seen = version.map_or(Seen::Untold, |version| Seen::Value(VersionedValue { bytes, version }));
                for (asked, decision) in decided {
                    self.tell(&asked, decision);
                }
            }
            Ok(Answer::Read(found)) => self.again(decided, Seen::of(found), 0, attempts),
            Ok(Answer::Swapped(Swapped::Lost(found))) => self.again(decided, Seen::of(found), 1, attempts),
            Ok(Answer::Swapped(Swapped::Conflict)) => self.again(decided, Seen::Untold, 1, attempts),
            Err(error) => {
                self.seen = Seen::Untold;
                let error = Arc::new(error);
                for (asked, _) in decided {
                    self.tell(&asked, Err(Error::shared(&error)));
                }
            }
        }
    }

    /// Has decisions made once more, before those that were asked later.
    fn again(&mut self, decided: Vec<(Asked, Result<Decision, Error>)>, seen: Seen<V>, lost: u32, attempts: u32) {
        let is_fresh = !matches!(seen, Seen::Untold);
        self.seen = seen;
        for (mut asked, _) in decided.into_iter().rev() {
            asked.lost += lost;
            asked.is_fresh = is_fresh;
            match asked.nth {
                Some(_) if asked.lost < attempts => self.waiting.push_front(asked),
                Some(_) => self.tell(&asked, Err(contended(attempts))),
                // Nobody waits, and nothing was charged.
                None => {}
            }
        }
    }
}
