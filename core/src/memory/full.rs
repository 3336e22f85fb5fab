//! What a memory limiter does when it is full.

use std::boxed::Box;
use std::format;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;

use crate::{Error, ErrorKind, Quota, QuotaState, Rule, UnixMillis};

/// What happens to a key without a state when a [`MemoryLimiter`](crate::MemoryLimiter) has as many as it may. See
/// [Full](crate::MemoryLimiter#full) for what each costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// It takes the place of a key that has used little of its limit, whose count is forgotten.
    #[default]
    Evict,
    /// It shares a state with other such keys. No count is forgotten, and it may be denied for what others have used.
    Share,
    /// It is [`Refused`](ErrorKind::Refused).
    Deny,
}

/// What happens to further keys, and whether there were any.
#[derive(Debug, Default)]
pub(super) struct Full {
    when: WhenFull,
    was_met: AtomicBool,
}

impl Full {
    pub(super) const fn set(&mut self, when: WhenFull) {
        self.when = when;
    }

    pub(super) const fn when(&self) -> WhenFull {
        self.when
    }

    pub(super) fn was_met(&self) -> bool {
        self.was_met.load(Ordering::Relaxed)
    }

    /// Notes that there is a further key beside so many in its shard. The first is logged.
    pub(super) fn met(&self, _keys: usize) -> WhenFull {
        if !self.was_met.load(Ordering::Relaxed) && !self.was_met.swap(true, Ordering::Relaxed) {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                target: "tidegate",
                keys_of_a_shard = _keys,
                "the memory limiter is full: {}; raise `MemoryLimiter::max_keys`",
                match self.when {
                    WhenFull::Evict => "a further key takes the place of one that has used little of its limit, which is forgotten",
                    WhenFull::Share => "further keys share counts",
                    WhenFull::Deny => "further keys are refused",
                }
            );
        }
        self.when
    }

    pub(super) fn refused(&self) -> Error {
        let why = match self.when {
            WhenFull::Deny => "takes no further key",
            _ => "cannot forget a key that holds a slot, a block or a balance",
        };
        Error::new(
            ErrorKind::Refused,
            format!("the memory limiter is full, and {why}; raise `MemoryLimiter::max_keys`"),
        )
    }
}

/// The rules of a state, by their place among those of the shard. 0 if they have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(u16);

/// The rules of each dimension that a shard has states of.
#[derive(Debug, Default)]
pub(super) struct Shapes(Vec<(u64, Box<[Rule]>)>);

/// What an unused state has left of its limit.
const ALL: u64 = 1 << 12;

impl Shapes {
    /// The shape of a dimension's states. Its limits may have changed.
    pub(super) fn shape(&mut self, digest: u64, quotas: &[Quota]) -> Shape {
        let rules = || quotas.iter().map(|quota| *quota.rule());
        let place = match self.0.iter().position(|(known, _)| *known == digest) {
            Some(place) => {
                if !self.0[place].1.iter().copied().eq(rules()) {
                    self.0[place].1 = rules().collect();
                }
                place
            }
            None if self.0.len() < usize::from(u16::MAX) => {
                self.0.push((digest, rules().collect()));
                self.0.len() - 1
            }
            None => return Shape(0),
        };
        Shape(u16::try_from(place + 1).unwrap_or_default())
    }

    /// What a state has left of its limit, by the quota with the least. `None` if it must not be forgotten.
    pub(super) fn left(&self, Shape(place): Shape, states: &[QuotaState], now: UnixMillis) -> Option<u64> {
        let Some((_, rules)) = usize::from(place).checked_sub(1).and_then(|place| self.0.get(place)) else {
            return Some(ALL / 2);
        };
        rules.iter().zip(states).try_fold(ALL, |least, (rule, state)| Some(least.min(left(rule, state, now)?)))
    }
}

fn left(rule: &Rule, state: &QuotaState, now: UnixMillis) -> Option<u64> {
    let remaining = rule.status(state, now).remaining();
    match (rule, state) {
        // It blocks, or has blocked before.
        (Rule::Penalty(_), QuotaState::Penalty(state)) => match remaining {
            Some(_) => None,
            None => Some(if state.strikes > 0 { 0 } else { ALL }),
        },
        // Nobody forgets money. `used` is zero once nothing has an effect.
        (Rule::Balance(_), _) => (rule.standing(state, now).used == 0).then_some(ALL),
        (Rule::Concurrency(_), _) => (remaining == Some(rule.limit())).then_some(ALL),
        // A window that has carried some over may have more left than its limit.
        _ => Some((remaining.unwrap_or_default().saturating_mul(ALL) / rule.limit().max(1)).min(ALL)),
    }
}
