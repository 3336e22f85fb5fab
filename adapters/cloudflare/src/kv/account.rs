//! The counts of one key in one isolate: what it has admitted itself, and what other isolates have admitted.

use std::sync::Arc;

use tidegate_core::algorithm::{FixedWindow, MAX_UNITS, SlidingState, SlidingWindow, WindowState};
use tidegate_core::{Decision, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

use crate::kv::bucket::{News, SharedBucket};
use crate::kv::record::{ENTRIES_MAX, Entry, Id};
use crate::kv::value::Value;

/// How long other isolates may take to see an entry.
const HEARD_AFTER: Millis = Millis::from_secs(120);

/// The counts of one key.
///
/// A request is admitted only if both the counts of all isolates together and the count of this isolate alone admit it. The
/// count of this isolate does not depend on the store, so the ceiling does not either.
pub(crate) struct Account {
    pub(crate) policy: Arc<Policy>,
    own: Entry,
    others: Vec<Entry>,
    /// One for each quota. Only token buckets use theirs.
    buckets: Vec<SharedBucket>,
    /// An upper bound on what this isolate has admitted of the key, if it may have held and forgotten the key before.
    carried: Option<PolicyState>,
}

impl Account {
    pub(crate) fn new(policy: Arc<Policy>, id: Id, carried: Option<PolicyState>) -> Self {
        let own = Entry { id, at: UnixMillis::default(), total: 0, state: policy.initial_state() };
        let buckets = vec![SharedBucket::default(); policy.quotas().len()];
        Self { policy, own, others: Vec::new(), buckets, carried }
    }

    /// Decides on a request, and counts it if it is admitted.
    pub(crate) fn decide(&mut self, now: UnixMillis, cost: u64) -> Decision {
        self.move_back(now);
        let mut together = self.together(now);
        let mut decision = self.policy.decide(&mut together, now, cost);
        if !decision.is_allowed() {
            return decision;
        }
        if let Some(carried) = &mut self.carried {
            decision = tighter(decision, self.policy.decide(carried, now, cost));
        }
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

    /// Moves what a wrong clock counted back to [`MAX_CLOCK_SKEW`] ahead of `now`, and forgets other isolates' entries beyond
    /// it. It must be kept even if the request is denied. Otherwise, every later request would be denied in the same way.
    fn move_back(&mut self, now: UnixMillis) {
        let latest = now + MAX_CLOCK_SKEW;
        self.others.retain(|entry| entry.at <= latest);
        for bucket in &mut self.buckets {
            bucket.move_back(latest);
        }
        self.own.at = self.own.at.min(latest);
        self.policy.move_back(&mut self.own.state, now);
        if let Some(carried) = &mut self.carried {
            self.policy.move_back(carried, now);
        }
    }

    /// The decision that [`Account::decide`] would make.
    pub(crate) fn peek(&self, now: UnixMillis, cost: u64) -> Decision {
        let decision = self.policy.peek(&self.together(now), now, cost);
        match &self.carried {
            Some(carried) if decision.is_allowed() => tighter(decision, self.policy.peek(carried, now, cost)),
            _ => decision,
        }
    }

    /// Updates what is known of other isolates. Old entries, and entries of this isolate, change nothing.
    pub(crate) fn learn(&mut self, now: UnixMillis, found: Vec<Entry>) {
        let policy = Arc::clone(&self.policy);
        let matters = |entry: &Entry| matters_for(&policy, entry, now) > Millis::ZERO;
        self.others.retain(matters);
        for entry in found {
            // If this isolate has forgotten the key before, `carried` includes what it had counted.
            let own = entry.id.isolate() == self.own.id.isolate();
            if own || entry.at > now + MAX_CLOCK_SKEW || !matters(&entry) {
                continue;
            }
            match self.others.iter().position(|known| known.id == entry.id) {
                Some(place) if entry.total > self.others[place].total => {
                    let known = std::mem::replace(&mut self.others[place], entry.clone());
                    self.hear(now, &entry, Some((entry.total - known.total, known.at)));
                }
                Some(_) => {}
                // Replacing a known isolate would count it twice if it were seen again.
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

    /// The value that this account writes.
    pub(crate) fn value(&self, now: UnixMillis) -> Value {
        Value::of(self.own.id, now)
    }

    /// The total that this account has admitted.
    pub(crate) const fn total(&self) -> u64 {
        self.own.total
    }

    /// Whether this account's count matters to other isolates.
    pub(crate) fn is_worth_writing(&self, now: UnixMillis) -> bool {
        self.own.total > 0 && matters_for(&self.policy, &self.own, now) > Millis::ZERO
    }

    /// An upper bound on what this isolate has admitted of the key.
    pub(crate) fn alone(&self) -> &PolicyState {
        self.carried.as_ref().unwrap_or(&self.own.state)
    }

    /// How many units of the most used quota are used.
    pub(crate) fn used(&self, now: UnixMillis) -> u64 {
        let standing = self.policy.peek(self.alone(), now, 0);
        let used = standing.quotas().iter().map(|quota| quota.limit() - quota.remaining().unwrap_or(0));
        used.max().unwrap_or(0)
    }

    /// Whether nothing that this isolate has admitted of the key counts any more.
    pub(crate) fn is_unused(&self, now: UnixMillis) -> bool {
        self.policy.expires_after(self.alone(), now) == Millis::ZERO
    }

    /// Whether `found` includes this account's newest count.
    pub(crate) fn is_in(&self, found: &[Entry]) -> bool {
        found.iter().any(|entry| entry.id == self.own.id && entry.total >= self.own.total)
    }

    /// The entries to write: this account's own first, then those of other isolates.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.own).chain(&self.others)
    }

    /// How long the entries matter.
    pub(crate) fn expires_after(&self, now: UnixMillis) -> Millis {
        self.entries().map(|entry| matters_for(&self.policy, entry, now)).max().unwrap_or_default()
    }

    /// The state of all known isolates together.
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

/// Combines two decisions on one request, the first of which admits it: returns the one that admits less.
fn tighter(first: Decision, second: Decision) -> Decision {
    let less = second.binding().remaining() < first.binding().remaining();
    if less || !second.is_allowed() { second } else { first }
}

/// How long an entry matters.
///
/// A window's entry matters until the window has passed. A shared bucket can still be filled when each isolate's own bucket has
/// drained, so a bucket's entry matters longer, by the time that other isolates may take to see it.
fn matters_for(policy: &Policy, entry: &Entry, now: UnixMillis) -> Millis {
    let alone = policy.expires_after(&entry.state, now);
    let shared = policy.quotas().iter().filter_map(|quota| match quota.rule() {
        Rule::TokenBucket(_) => Some((entry.at + quota.rule().window() + HEARD_AFTER).since(now)),
        _ => None,
    });
    shared.max().unwrap_or_default().max(alone)
}

/// The sum of all counts in the current window.
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
    WindowState { start, used: (used_of(own) + theirs.sum::<u64>()).min(MAX_UNITS) }
}

/// The sums of all previous and all current counts, relative to the current window.
fn sliding_together<'a>(
    rule: &SlidingWindow,
    own: &SlidingState,
    others: impl Iterator<Item = &'a QuotaState>,
    now: UnixMillis,
) -> SlidingState {
    let window = rule.window();
    let start = window_start(now, window).max(own.start);
    let moved = |state: &SlidingState| moved(rule, state, start);
    let theirs = others.map(|state| match state {
        QuotaState::Sliding(state) => moved(state),
        _ => (0, 0),
    });
    let (previous, current) = theirs.fold(moved(own), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    SlidingState { start, previous: previous.min(MAX_UNITS), current: current.min(MAX_UNITS) }
}

/// The previous and the current count of a state, relative to the window that begins at `start`.
pub(crate) fn moved(rule: &SlidingWindow, state: &SlidingState, start: UnixMillis) -> (u64, u64) {
    match state.start {
        then if then == start => (state.previous, state.current),
        then if then + rule.window() == start => (state.current, 0),
        // The clock that counted was ahead, in the next window already.
        then if then == start + rule.window() => (0, state.previous),
        _ => (0, 0),
    }
}

pub(crate) fn window_start(now: UnixMillis, window: Millis) -> UnixMillis {
    UnixMillis::new(now.get() - now.get() % window.get())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tidegate_testing::{NOW, per_minute};

    use super::*;

    /// What another isolate has admitted, by now.
    fn entry(policy: &Policy, isolate: u64, total: u64) -> Entry {
        let mut state = policy.initial_state();
        assert!(policy.decide(&mut state, NOW, total).is_allowed());
        Entry { id: Id(isolate << 32), at: NOW, total, state }
    }

    #[test]
    fn as_many_isolates_are_known_as_a_value_has_entries() {
        let policy = Arc::new(per_minute(1_000));
        let mut account = Account::new(Arc::clone(&policy), Id(0), None);
        account.learn(NOW, (1..=100).map(|isolate| entry(&policy, isolate, 1)).collect());
        assert_eq!(account.others.len(), ENTRIES_MAX - 1);
        assert_eq!(account.peek(NOW, 1).binding().remaining(), Some(1_000 - 31));
        // The others are not counted, and those that are known still grow.
        account.learn(NOW, vec![entry(&policy, 99, 50), entry(&policy, 1, 10), entry(&policy, 1, 4)]);
        assert_eq!(account.peek(NOW, 1).binding().remaining(), Some(1_000 - 40));
    }

    #[test]
    fn only_what_has_an_effect_is_worth_writing() {
        let mut account = Account::new(Arc::new(per_minute(5)), Id(0), None);
        assert!(!account.is_worth_writing(NOW));
        assert!(account.decide(NOW, 0).is_allowed());
        assert_eq!((account.is_worth_writing(NOW), account.total()), (false, 0));
        assert!(account.decide(NOW, 3).is_allowed());
        assert_eq!((account.is_worth_writing(NOW), account.used(NOW)), (true, 3));
        assert!(!account.is_worth_writing(NOW + Millis::from_secs(3_600)));
    }

    /// An isolate that may have forgotten the key counts the most that it can have admitted.
    #[test]
    fn the_tighter_of_two_counts_decides_and_is_told() {
        let policy = Arc::new(per_minute(9));
        for (carried, others, remaining) in [(4, 0, 4), (0, 4, 4), (8, 2, 0), (2, 8, 0)] {
            let mut state = policy.initial_state();
            assert!(policy.decide(&mut state, NOW, carried).is_allowed());
            let mut account = Account::new(Arc::clone(&policy), Id(0), Some(state));
            account.learn(NOW, vec![entry(&policy, 1, others)]);
            assert_eq!(account.decide(NOW, 1).binding().remaining(), Some(remaining));
            assert_eq!(account.decide(NOW, 1).is_allowed(), remaining > 0);
        }
    }
}
