//! One key, as one isolate sees it: what it admitted itself, and what it knows that others did.

use std::sync::Arc;

use tidegate_core::algorithm::{FixedWindow, MAX_UNITS, SlidingState, SlidingWindow, WindowState};
use tidegate_core::{Decision, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

use crate::bucket::{News, SharedBucket};
use crate::record::{ENTRIES_MAX, Entry};
use crate::value::Value;

/// An entry that claims to be later than this by our clock is not believed.
const AHEAD_MAX: Millis = Millis::from_secs(60);

/// How long others may take to hear of an entry.
const HEARD_AFTER: Millis = Millis::from_secs(120);

/// What is known of a key.
///
/// A request is admitted only if both the sum of all isolates and this isolate alone admit it. The second follows
/// from the first as long as the sum counts everything once, and is asked for all the same: it is what holds whatever
/// a store tells.
pub(crate) struct Account {
    pub(crate) policy: Arc<Policy>,
    own: Entry,
    others: Vec<Entry>,
    /// One a quota; unused but for buckets.
    buckets: Vec<SharedBucket>,
}

impl Account {
    pub(crate) fn new(policy: Arc<Policy>, id: u64) -> Self {
        let own = Entry { id, at: UnixMillis::default(), total: 0, state: policy.initial_state() };
        let buckets = vec![SharedBucket::default(); policy.quotas().len()];
        Self { policy, own, others: Vec::new(), buckets }
    }

    /// Decides, and counts what is admitted.
    pub(crate) fn decide(&mut self, now: UnixMillis, cost: u64) -> Decision {
        let mut together = self.together(now);
        let decision = self.policy.decide(&mut together, now, cost);
        if !decision.is_allowed() || cost == 0 {
            return decision;
        }
        let alone = self.policy.decide(&mut self.own.state, now, cost);
        if !alone.is_allowed() {
            return alone;
        }
        self.own.at = self.own.at.max(now);
        self.own.total = self.own.total.saturating_add(cost);
        for (quota, bucket) in self.policy.quotas().iter().zip(&mut self.buckets) {
            if let Rule::TokenBucket(rule) = quota.rule() {
                bucket.charge(rule, now, cost);
            }
        }
        decision
    }

    /// What [`Account::decide`] would answer.
    pub(crate) fn peek(&self, now: UnixMillis, cost: u64) -> Decision {
        self.policy.peek(&self.together(now), now, cost)
    }

    /// Takes in what a store told. Old news, and news of this account itself, change nothing.
    pub(crate) fn learn(&mut self, now: UnixMillis, found: Vec<Entry>) {
        let policy = Arc::clone(&self.policy);
        let matters = |entry: &Entry| matters_for(&policy, entry, now) > Millis::ZERO;
        self.others.retain(matters);
        for entry in found {
            if entry.id == self.own.id || entry.at > now + AHEAD_MAX || !matters(&entry) {
                continue;
            }
            match self.others.iter().position(|known| known.id == entry.id) {
                Some(place) if entry.total > self.others[place].total => {
                    let known = std::mem::replace(&mut self.others[place], entry.clone());
                    self.hear(now, &entry, Some((entry.total - known.total, known.at)));
                }
                Some(_) => {}
                // Nobody known is forgotten for a newcomer: to meet it again would be to count it twice.
                None if self.others.len() + 1 >= ENTRIES_MAX => {}
                None => {
                    self.hear(now, &entry, None);
                    self.others.push(entry);
                }
            }
        }
    }

    fn hear(&mut self, now: UnixMillis, entry: &Entry, grown: Option<(u64, UnixMillis)>) {
        let parts = self.policy.quotas().iter().zip(entry.state.parts()).zip(&mut self.buckets);
        for ((quota, state), bucket) in parts {
            if let (Rule::TokenBucket(rule), QuotaState::Bucket(state)) = (quota.rule(), state) {
                bucket.hear(rule, now, &News { state, at: entry.at, grown });
            }
        }
    }

    /// The value it writes.
    pub(crate) fn value(&self, now: UnixMillis) -> Value {
        Value::of(self.own.id, now)
    }

    /// What this account has admitted in all.
    pub(crate) const fn total(&self) -> u64 {
        self.own.total
    }

    /// Whether this account's own count is of use to others.
    pub(crate) fn is_worth_writing(&self, now: UnixMillis) -> bool {
        self.own.total > 0 && matters_for(&self.policy, &self.own, now) > Millis::ZERO
    }

    /// Whether nothing that this account admitted binds it any more.
    pub(crate) fn is_unused(&self, now: UnixMillis) -> bool {
        self.policy.expires_after(&self.own.state, now) == Millis::ZERO
    }

    /// Whether what a store told has this account's newest count.
    pub(crate) fn is_in(&self, found: &[Entry]) -> bool {
        found.iter().any(|entry| entry.id == self.own.id && entry.total >= self.own.total)
    }

    /// What to write: this account's own entry first, and what is known of others.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.own).chain(&self.others)
    }

    /// How long what is written matters.
    pub(crate) fn expires_after(&self, now: UnixMillis) -> Millis {
        self.entries().map(|entry| matters_for(&self.policy, entry, now)).max().unwrap_or_default()
    }

    /// The state of all isolates together, as far as it is known.
    fn together(&self, now: UnixMillis) -> PolicyState {
        let parts = self.policy.quotas().iter().enumerate().map(|(place, quota)| {
            let own = &self.own.state.parts()[place];
            let others = self.others.iter().map(|entry| &entry.state.parts()[place]);
            match (quota.rule(), own) {
                (Rule::FixedWindow(rule), QuotaState::Window(own)) => {
                    QuotaState::Window(window_together(rule, own, others, now))
                }
                (Rule::SlidingWindow(rule), QuotaState::Sliding(own)) => {
                    QuotaState::Sliding(sliding_together(rule, own, others, now))
                }
                (Rule::TokenBucket(_), _) => QuotaState::Bucket(self.buckets[place].state()),
                _ => own.clone(),
            }
        });
        PolicyState::from_parts(parts.collect())
    }
}

/// How long an entry is of use.
///
/// A window's is until the window has passed. A bucket that several share stays busy when the share of each has drained from
/// its own, so there it is some time longer: as long as others may take to hear of it.
fn matters_for(policy: &Policy, entry: &Entry, now: UnixMillis) -> Millis {
    let alone = policy.expires_after(&entry.state, now);
    let shared = policy.quotas().iter().filter_map(|quota| match quota.rule() {
        Rule::TokenBucket(_) => Some((entry.at + quota.rule().window() + HEARD_AFTER).since(now)),
        _ => None,
    });
    shared.max().unwrap_or_default().max(alone)
}

/// The windows that began when the current one did, added up.
fn window_together<'a>(
    rule: &FixedWindow,
    own: &WindowState,
    others: impl Iterator<Item = &'a QuotaState>,
    now: UnixMillis,
) -> WindowState {
    let start = window_start(now, rule.window()).max(own.start);
    let used_of = |state: &WindowState| if state.start == start { state.used } else { 0 };
    let theirs = others.map(|state| match state {
        QuotaState::Window(state) => used_of(state),
        _ => 0,
    });
    WindowState { start, used: capped(used_of(own) + theirs.sum::<u64>(), rule.window()) }
}

/// The two counters of each, moved to the current window and added up.
fn sliding_together<'a>(
    rule: &SlidingWindow,
    own: &SlidingState,
    others: impl Iterator<Item = &'a QuotaState>,
    now: UnixMillis,
) -> SlidingState {
    let window = rule.window();
    let start = window_start(now, window).max(own.start);
    let moved = |state: &SlidingState| match state.start {
        then if then == start => (state.previous, state.current),
        then if then + window == start => (state.current, 0),
        // A clock ahead of ours has begun the next window already.
        then if then == start + window => (0, state.previous),
        _ => (0, 0),
    };
    let theirs = others.map(|state| match state {
        QuotaState::Sliding(state) => moved(state),
        _ => (0, 0),
    });
    let (previous, current) = theirs.fold(moved(own), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    SlidingState { start, previous: capped(previous, window), current: capped(current, window) }
}

fn window_start(now: UnixMillis, window: Millis) -> UnixMillis {
    UnixMillis::new(now.get() - now.get() % window.get())
}

/// A count whose product with the window the core's arithmetic takes.
fn capped(count: u64, window: Millis) -> u64 {
    count.min(MAX_UNITS / window.get())
}
