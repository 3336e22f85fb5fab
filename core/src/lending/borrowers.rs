//! The borrowers of many keys.

use alloc::string::String;
use alloc::vec::Vec;

use super::amount::Usual;
use super::borrower::{Borrower, NumberedQuestion, Verdict};
use super::steady::Steady;
use super::{Answer, Lease};
use crate::sorted_map::SortedMap;
use crate::{Check, Millis, UnixMillis};

/// What an isolate or a process knows of the keys that it borrows, in bounded memory: 32,768 keys. Checks of further keys are asked
/// plainly.
///
/// `T` is what the host keeps beside each key, to ask a question that no check brings.
#[derive(Debug)]
pub struct Borrowers<T> {
    lease: Lease,
    clock: Steady,
    keys: SortedMap<Kept<T>>,
    /// The number of the last question of all keys: an answer to one of a key that was dropped is late.
    asked: u64,
    /// The number of keys at which those that are no longer of use are dropped.
    sweep_at: usize,
    swept_at: UnixMillis,
    /// Keys that may have something to tell.
    due: Vec<String>,
    looked_at: UnixMillis,
    /// Whether the store has answered the last question. While it does not, no key gets a grace.
    is_up: bool,
    /// What a key usually spends: the first report asks for it.
    usual: Usual,
    /// When new keys get a grace again: some that should have none were forgotten for want of room.
    grace_from: UnixMillis,
}

#[derive(Debug)]
struct Kept<T> {
    borrower: Borrower,
    beside: T,
}

/// Fewer keys than this are never swept.
const SWEEP_MIN: usize = 64;

/// The most keys.
const KEYS_MAX: usize = 32_768;

/// The time between two looks for idle borrowers.
const LOOK: Millis = Millis::from_secs(1);

impl<T> Borrowers<T> {
    /// No keys yet.
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        let never = UnixMillis::new(0);
        let (clock, due) = (Steady::default(), Vec::new());
        Self {
            lease,
            clock,
            keys: SortedMap::new(),
            asked: 0,
            sweep_at: 0,
            swept_at: never,
            due,
            looked_at: never,
            is_up: true,
            usual: Usual::default(),
            grace_from: never,
        }
    }

    /// The lease.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Changes the lease: from now on, the host asks questions that nobody waits for, as with [`Lease::in_background`].
    pub const fn in_background(&mut self) {
        self.lease.in_background = true;
    }

    /// What a check of this key gets. Its time is read just before: one that was read long ago looks like a clock that was set back,
    /// and loans end that much earlier. At [`UnixMillis::MAX`] it is asked plainly. Its policy [can be lent](super::can_lend), and it has no
    /// token. `beside` makes what is kept beside a new key, or one whose policy has changed.
    pub fn decide(&mut self, key: &str, check: &Check<'_>, beside: impl FnOnce() -> T) -> Verdict {
        let now = self.clock.read(check.now);
        self.verdict(key, check, now, None, beside)
    }

    /// The same for a check that was decided on before, and has waited so long until a question was [answered](Self::answered).
    pub fn decide_after(
        &mut self,
        key: &str,
        check: &Check<'_>,
        waited: Millis,
        beside: impl FnOnce() -> T,
    ) -> Verdict {
        let (now, until) = (self.clock.when(check.now), self.clock.at_least(check.now + waited));
        self.verdict(key, check, now, Some(until), beside)
    }

    fn verdict(
        &mut self,
        key: &str,
        check: &Check<'_>,
        now: UnixMillis,
        waited_until: Option<UnixMillis>,
        beside: impl FnOnce() -> T,
    ) -> Verdict {
        if stands_still(check.now) {
            return Verdict::AskPlainly;
        }
        self.asked += 1;
        let lease = Lease { grace: if self.gives_grace() { self.lease.grace } else { 0 }, ..self.lease };
        if let Some(kept) = self.keys.get_mut(key) {
            if kept.borrower.is_of_another(check) {
                kept.beside = beside();
            }
            let was_silent = kept.borrower.is_silent();
            let verdict = kept.borrower.decide(check, &lease, now, self.asked, waited_until, &mut self.usual);
            if kept.borrower.is_silent() && !was_silent {
                note(&mut self.due, key);
            }
            return verdict;
        }
        if !self.has_room(now) {
            return Verdict::AskPlainly;
        }
        self.usual.begin();
        let mut borrower = Borrower::new(check, now);
        let grace = if now < self.grace_from { 0 } else { lease.grace };
        let verdict = borrower.first(check, &Lease { grace, ..lease }, now, self.asked);
        if borrower.is_silent() {
            note(&mut self.due, key);
        }
        self.keys.insert(key, Kept { borrower, beside: beside() });
        verdict
    }

    const fn gives_grace(&self) -> bool {
        self.lease.in_background && self.is_up
    }

    /// Takes the answer to a key's question. `None` if there is none: the question failed, or was dropped.
    pub fn answered(&mut self, key: &str, nth: u64, answer: Option<&Answer>) {
        // That a question has no answer which was given up tells nothing: the store may have answered since.
        if answer.is_some() || self.is_waiting(key, nth) {
            self.is_up = answer.is_some();
        }
        if let Some(kept) = self.keys.get_mut(key) {
            kept.borrower.answered(nth, answer);
        }
    }

    /// Keeps units of the loan that a key was just granted for checks that have waited for it. [`decide_after`](Self::decide_after)
    /// spends them.
    pub fn reserve(&mut self, key: &str, units: u64) {
        if let Some(kept) = self.keys.get_mut(key) {
            kept.borrower.reserve(units);
        }
    }

    /// Forgets a key's denial. Call it when a settlement or a reset may have given back what denied.
    pub fn forget_denial(&mut self, key: &str) {
        if let Some(kept) = self.keys.get_mut(key) {
            kept.borrower.forget_denial();
        }
    }

    /// The number of a key's last question, and what its answer probably grants: as many units as the last loan had.
    #[must_use]
    pub fn last_question(&self, key: &str) -> Option<(u64, u64)> {
        self.keys.get(key).map(|kept| kept.borrower.last_question())
    }

    /// Whether the answer to a key's question is still waited for.
    #[must_use]
    pub fn is_waiting(&self, key: &str, nth: u64) -> bool {
        self.keys.get(key).is_some_and(|kept| kept.borrower.is_waiting_for(nth))
    }

    /// A question that nobody waits for, with its key: a borrower tells what it [owes](super::Question::owed), or an idle one returns its loan.
    /// It is asked with a cost of 0. Call it again until it returns `None`; it looks for idle borrowers once a second.
    pub fn due(&mut self, now: UnixMillis) -> Option<(String, NumberedQuestion, &T)> {
        let now = self.look(now)?;
        let nothing = Lease { slice: 0, ..self.lease };
        while let Some(key) = self.due.pop() {
            let Some(kept) = self.keys.get_mut(&key).filter(|kept| kept.borrower.is_due(&nothing, now)) else {
                continue;
            };
            self.asked += 1;
            let lease = if kept.borrower.owes() { &self.lease } else { &nothing };
            let asked = kept.borrower.give_up(0, lease, now, self.asked, self.usual.units());
            return self.keys.get(&key).map(|kept| (key, asked, &kept.beside));
        }
        None
    }

    /// Whether [`due`](Self::due) may have a question.
    pub fn may_be_due(&mut self, now: UnixMillis) -> bool {
        self.look(now).is_some() && !self.due.is_empty()
    }

    /// Looks for keys that have something to tell. Returns the time, if there is one.
    fn look(&mut self, now: UnixMillis) -> Option<UnixMillis> {
        let (told, now) = (now, self.clock.advance(now));
        if stands_still(told) {
            return None;
        }
        if now.since(self.looked_at) >= LOOK {
            self.looked_at = now;
            let borrowers = self.keys.iter().map(|(key, kept)| (key, &kept.borrower));
            let mut due: Vec<_> = borrowers.filter(|(_, borrower)| borrower.is_due(&self.lease, now)).collect();
            if !self.is_up {
                // One question finds out whether the store is back. The next one is of another key, as those of one may always fail.
                let owing = due.iter().filter(|(_, borrower)| borrower.owes());
                let probe = owing.map(|(key, borrower)| (borrower.asked_at(), *key)).min();
                due.retain(|(key, borrower)| !borrower.owes() || probe.is_some_and(|(_, probe)| probe == *key));
            }
            self.due = due.into_iter().map(|(key, _)| key.into()).collect();
        }
        Some(now)
    }

    /// Makes room for one more key. Keys are swept when their number has doubled since the last time; when they are as many as
    /// there may be, once in a lifetime.
    fn has_room(&mut self, now: UnixMillis) -> bool {
        let full = self.keys.len() >= KEYS_MAX;
        let due = now.since(self.swept_at) >= self.lease.lifetime;
        if self.keys.len() >= self.sweep_at.max(SWEEP_MIN) && (due || !full) {
            let (lease, grace_from) = (self.lease, &mut self.grace_from);
            self.keys.retain(|kept| {
                let until = kept.borrower.suspects_until();
                let suspects = lease.grace > 0 && now < until;
                if kept.borrower.is_of_use(&lease, now) || suspects && !full {
                    return true;
                }
                if suspects {
                    *grace_from = until.max(*grace_from);
                }
                false
            });
            self.sweep_at = (self.keys.len() * 2).min(KEYS_MAX);
            self.swept_at = now;
        }
        self.keys.len() < KEYS_MAX
    }
}

/// Whether a clock tells the end of time, where it stands still: no loan would end, and no suspicion of a key begin.
fn stands_still(told: UnixMillis) -> bool {
    told == UnixMillis::MAX
}

/// Notes a key that has something to tell. A host that never asks what nobody waits for must not fill the memory; one that does looks for
/// what was not noted.
fn note(due: &mut Vec<String>, key: &str) {
    if due.len() < KEYS_MAX {
        due.push(key.into());
    }
}
