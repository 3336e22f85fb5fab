//! A token bucket's level as all isolates together fill it.

use tidegate_core::UnixMillis;
use tidegate_core::algorithm::{BucketState, TokenBucket};

/// What isolates admitted too much before they knew of each other is owed, up to so many whole buckets.
const OWED_MAX: u64 = 8;

/// What is known of a bucket that several isolates charge: never more than what they really charged.
///
/// Each isolate tells what it charged in all (a total that only grows) and its own level; the levels themselves do
/// not add up, for each drains at the full rate. A total that has grown since it was last heard was charged at some
/// instants in between. Taken as charged at the earliest of them, it gives the least level that can be now:
///
/// - while this bucket was busy all that time nothing drained in vain, so the growth counts in full;
/// - of the time before it was busy, what would have drained is taken off.
///
/// So the long-run rate of busy isolates comes to the refill rate, and nobody is denied what the true level admits.
/// (Lindley's recursion: a later arrival never leaves a lower level.)
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBucket {
    level: u64,
    at: UnixMillis,
    /// Since when the level has been above zero.
    busy_since: UnixMillis,
}

/// What another isolate told of itself, and what of it is new.
pub(crate) struct News<'a> {
    pub(crate) state: &'a BucketState,
    /// When it last charged.
    pub(crate) at: UnixMillis,
    /// What its total grew by since it was last heard, and when it had last charged then; `None` when first heard.
    pub(crate) grown: Option<(u64, UnixMillis)>,
}

impl SharedBucket {
    pub(crate) fn state(&self) -> BucketState {
        BucketState { level: self.level, at: self.at }
    }

    /// Counts what this isolate admitted.
    pub(crate) fn charge(&mut self, rule: &TokenBucket, now: UnixMillis, cost: u64) {
        self.advance(rule, now);
        self.level = self.level.saturating_add(cost.saturating_mul(rule.per().get()));
    }

    /// Counts what another isolate admitted.
    pub(crate) fn hear(&mut self, rule: &TokenBucket, now: UnixMillis, news: &News<'_>) {
        self.advance(rule, now);
        let alone = level_at(rule, news.state, self.at);
        let (added, busy_since) = match news.grown {
            // Two buckets drain at least as fast as one, so what is left in its own is left in the common one.
            None => (alone, news.at),
            Some((grown, since)) => {
                let idle_ms = self.busy_since.since(since).get();
                let charged = grown.saturating_mul(rule.per().get());
                (charged.saturating_sub(idle_ms.saturating_mul(rule.refill())), since)
            }
        };
        let level = self.level.saturating_add(added).max(alone);
        if added > 0 {
            self.busy_since = self.busy_since.min(busy_since);
        } else if level > self.level {
            self.busy_since = self.busy_since.min(news.at);
        }
        let most = (1 + OWED_MAX) * rule.capacity() * rule.per().get();
        self.level = level.min(most).max(self.level);
    }

    fn advance(&mut self, rule: &TokenBucket, now: UnixMillis) {
        let now = now.max(self.at);
        self.level = level_at(rule, &self.state(), now);
        self.at = now;
        if self.level == 0 {
            self.busy_since = now;
        }
    }
}

fn level_at(rule: &TokenBucket, state: &BucketState, now: UnixMillis) -> u64 {
    state.level.saturating_sub(now.since(state.at).get().saturating_mul(rule.refill()))
}
