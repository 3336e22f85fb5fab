//! The leases that an object has granted of a key's quota.
//!
//! A lease is charged in full when it is granted. A lease of a fixed window ends with the window at the latest. A token
//! bucket would drain while the lease is unspent, and then admit both the lease and the refill. So its level does not
//! drain below what is lent: the bucket and its leases together never hold more than the capacity.

use tidegate_core::algorithm::{BucketState, MAX_UNITS, TokenBucket, WindowState};
use tidegate_core::{Error, ErrorKind, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

use crate::durable_objects::bytes::{Reader, put};
use crate::durable_objects::wire::{Granted, Returned};

/// The leases that the state of a key is charged with, ordered by their ends: those that have not ended, and those
/// that may still be returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(Vec<Granted>);

/// The most leases of one key at a time. Further isolates make plain calls.
const LEASES_MAX: usize = 64;

/// The longest lifetime of a lease.
pub(crate) const LIFETIME_MAX: Millis = Millis::from_secs(60);

/// Whether a policy's quota can be lent: it has one token bucket or fixed window, and does not charge denials.
pub(crate) fn can_lend(policy: &Policy) -> bool {
    let lendable = |rule: &Rule| matches!(rule, Rule::TokenBucket(_) | Rule::FixedWindow(_));
    matches!(policy.quotas(), [quota] if lendable(quota.rule())) && !policy.charges_denied()
}

impl Held {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * 16);
        for lease in &self.0 {
            put(&mut out, [lease.units, lease.until.get()]);
        }
        out
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] for bytes that [`Held::encode`] does not make.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = Reader { bytes, kind: ErrorKind::Corrupt };
        let mut leases = Vec::new();
        while !rest.bytes.is_empty() {
            leases.push(Granted { units: rest.u64()?, until: rest.instant()? });
        }
        let sum = leases.iter().try_fold(0u64, |sum, lease| sum.checked_add(lease.units));
        let fits = leases.len() <= LEASES_MAX && sum.is_some_and(|sum| sum <= MAX_UNITS);
        if !fits || !leases.is_sorted_by_key(|lease| lease.until) {
            return Err(rest.error("the stored leases are invalid"));
        }
        Ok(Self(leases))
    }

    /// Moves the ends of leases that a wrong clock granted to the latest end that is possible at `now`. Without this,
    /// they would hold a bucket's level for as long as that clock was ahead. Returns whether there were any.
    pub(crate) fn bound(&mut self, now: UnixMillis) -> bool {
        let latest = now + LIFETIME_MAX + MAX_CLOCK_SKEW;
        let mut wrong = false;
        for lease in self.0.iter_mut().filter(|lease| lease.until > latest) {
            lease.until = latest;
            wrong = true;
        }
        wrong
    }

    /// Brings a bucket's state to `now`, and returns the leases that still matter then. Until a lease's end the bucket
    /// did not drain below what was lent. Nor is a window used less, whose charges from before a reset were settled.
    pub(crate) fn settle(mut self, policy: &Policy, state: &mut PolicyState, now: UnixMillis) -> Self {
        if self.0.is_empty() {
            return self;
        }
        match (policy.quotas()[0].rule(), &state.parts()[0]) {
            (Rule::TokenBucket(bucket), QuotaState::Bucket(level)) => {
                let (settled, now) = (level.at, now.max(level.at));
                let (mut level, mut lent) = (*level, self.lent_after(settled));
                for lease in self.0.iter().filter(|lease| settled < lease.until && lease.until <= now) {
                    level = drained(bucket, level, lease.until, lent);
                    lent -= lease.units;
                }
                *state = PolicyState::from_parts(vec![QuotaState::Bucket(drained(bucket, level, now, lent))]);
                self.0.retain(|lease| lease.until + policy.quotas()[0].rule().window() > now);
            }
            (Rule::FixedWindow(rule), QuotaState::Window(window)) => {
                let start = UnixMillis::new(now.get() - now.get() % rule.window().get()).max(window.start);
                self.0.retain(|lease| lease.until > start);
                let lent = self.lent_after(start);
                if start == window.start && window.used < lent {
                    *state = PolicyState::from_parts(vec![QuotaState::Window(WindowState { start, used: lent })]);
                }
            }
            _ => {}
        }
        self
    }

    /// The leases and the state after a reset: lent units may still be spent, so they stay charged. `None` if nothing
    /// is lent. A reset carries no time, so a window's leases count as lent until the window ends.
    pub(crate) fn reset(mut self, policy: &Policy, state: &PolicyState) -> Option<(Self, PolicyState)> {
        let used = match (policy.quotas()[0].rule(), &state.parts()[0]) {
            (Rule::TokenBucket(bucket), QuotaState::Bucket(level)) => {
                self.0.retain(|lease| lease.until > level.at);
                let lent = self.lent_after(level.at).saturating_mul(bucket.per().get());
                QuotaState::Bucket(BucketState { level: lent.min(level.level), ..*level })
            }
            (Rule::FixedWindow(_), QuotaState::Window(window)) => {
                QuotaState::Window(WindowState { used: self.lent_after(window.start).min(window.used), ..*window })
            }
            _ => return None,
        };
        (!self.0.is_empty()).then(|| (self, PolicyState::from_parts(vec![used])))
    }

    fn lent_after(&self, then: UnixMillis) -> u64 {
        self.0.iter().filter(|lease| lease.until > then).map(|lease| lease.units).sum()
    }

    /// Lends up to `want`, but at most half of what is left, so that something remains for others. A lease that is kept
    /// becomes part of the new one. The policy's quota can be lent: [`can_lend`].
    pub(crate) fn lend(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        want: u64,
        lifetime: Millis,
        kept: Option<Granted>,
    ) -> Option<Granted> {
        let lifetime = lifetime.min(LIFETIME_MAX);
        let count = self.0.iter().filter(|lease| lease.until > now).count();
        if count.saturating_sub(usize::from(kept.is_some())) >= LEASES_MAX {
            return None;
        }
        let units = policy.peek(state, now, 1).binding().remaining().unwrap_or(0).div_euclid(2).min(want);
        let until = match (policy.quotas()[0].rule(), &state.parts()[0]) {
            (Rule::FixedWindow(rule), QuotaState::Window(window)) => (now + lifetime).min(window.start + rule.window()),
            _ => now + lifetime,
        };
        if units == 0 || until <= now || !policy.decide(state, now, units).is_allowed() {
            return None;
        }
        let place = kept.and_then(|kept| self.0.iter().position(|held| *held == kept));
        let kept = place.map(|place| self.0.remove(place));
        let (kept, until) = kept.map_or((0, until), |kept| (kept.units, until.max(kept.until)));
        let granted = Granted { units: kept + units, until };
        if self.0.len() == LEASES_MAX {
            // The first one has ended. From now on it cannot be returned.
            self.0.remove(0);
        }
        let place = self.0.partition_point(|lease| lease.until <= until);
        self.0.insert(place, granted);
        Some(granted)
    }

    /// Takes back the unspent part of a lease, and returns the part that is kept. A reset may have removed the lease:
    /// then nothing happens.
    pub(crate) fn take_back(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        Returned { lease, unspent, kept }: Returned,
    ) -> Option<Granted> {
        // Equal leases are interchangeable.
        let place = self.0.iter().position(|held| *held == lease)?;
        let unspent = unspent.min(lease.units);
        let charged_at = match policy.quotas()[0].rule() {
            // It ended within its window.
            Rule::FixedWindow(_) => UnixMillis::new(lease.until.get().saturating_sub(1)),
            // Since its end, the bucket has drained. The drained level may have been this lease.
            _ => lease.until.min(now),
        };
        policy.refund(state, charged_at, now, unspent);
        let kept = Granted { units: kept.min(lease.units - unspent), ..lease };
        if kept.units > 0 && lease.until > latest(state).max(now) {
            self.0[place] = kept;
            return Some(kept);
        }
        self.0.remove(place);
        None
    }

    /// When the last lease ends; the epoch if there is none.
    pub(crate) fn last_end(&self) -> UnixMillis {
        self.0.last().map_or(UnixMillis::new(0), |lease| lease.until)
    }
}

/// The latest instant of a state. Leases that ended before it are settled.
fn latest(state: &PolicyState) -> UnixMillis {
    match &state.parts()[0] {
        QuotaState::Bucket(level) => level.at,
        QuotaState::Window(window) => window.start,
        _ => UnixMillis::new(0),
    }
}

/// A bucket at `now`, drained to what is lent or more.
fn drained(bucket: &TokenBucket, state: BucketState, now: UnixMillis, lent: u64) -> BucketState {
    let drain = now.since(state.at).get().saturating_mul(bucket.refill());
    let least = lent.saturating_mul(bucket.per().get()).min(MAX_UNITS);
    BucketState { level: state.level.saturating_sub(drain).max(least), at: now.max(state.at) }
}
