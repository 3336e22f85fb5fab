//! The level of a token bucket that several isolates fill.

use tidegate_core::UnixMillis;
use tidegate_core::algorithm::{BucketState, TokenBucket};

/// How much over-admission the isolates pay back once they know of each other, in whole buckets.
const OWED_MAX: u64 = 8;

/// A lower bound on the level of a bucket that several isolates charge.
///
/// Each isolate reports the total that it has charged, which only grows, and its own level. The levels do not add up, because
/// each drains at the full rate. When a total has grown since the last report, the isolate charged the difference at some times
/// in between. Taking the earliest of these times gives the lowest level that is possible now:
///
/// - While this bucket was not empty, nothing drained in vain, so the growth counts in full.
/// - Before that, the growth counts less what would have drained.
///
/// The long-run rate of busy isolates therefore approaches the refill rate, and no request is denied that the true level
/// admits. (Lindley's recursion: a later arrival never leaves a lower level.)
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBucket {
    level: u64,
    at: UnixMillis,
    /// Since when the level has been above zero.
    busy_since: UnixMillis,
}

/// A report of another isolate.
pub(crate) struct News<'a> {
    pub(crate) state: &'a BucketState,
    /// When it last charged.
    pub(crate) at: UnixMillis,
    /// How much its total has grown since its previous report, and when it had last charged by then. `None` for a first report.
    pub(crate) grown: Option<(u64, UnixMillis)>,
}

impl SharedBucket {
    pub(crate) fn state(&self) -> BucketState {
        BucketState { level: self.level, at: self.at }
    }

    /// Moves a level that lies after `latest` back to it.
    pub(crate) fn move_back(&mut self, latest: UnixMillis) {
        self.at = self.at.min(latest);
        self.busy_since = self.busy_since.min(latest);
    }

    /// Counts what this isolate has admitted.
    pub(crate) fn charge(&mut self, rule: &TokenBucket, now: UnixMillis, cost: u64) {
        self.advance(rule, now);
        self.level = self.level.saturating_add(cost.saturating_mul(rule.per().get()));
    }

    /// Counts what another isolate has admitted.
    pub(crate) fn hear(&mut self, rule: &TokenBucket, now: UnixMillis, news: &News<'_>) {
        self.advance(rule, now);
        let alone = level_at(rule, news.state, self.at);
        let (added, busy_since) = match news.grown {
            // Two buckets drain at least as fast as one, so the shared bucket still holds what the isolate's own one does.
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

pub(crate) fn level_at(rule: &TokenBucket, state: &BucketState, now: UnixMillis) -> u64 {
    state.level.saturating_sub(now.since(state.at).get().saturating_mul(rule.refill()))
}
