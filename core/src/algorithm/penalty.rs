use alloc::format;

use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step};
use crate::{Error, Millis, UnixMillis};

/// Penalty: blocks a key that violates the policy, and longer each time.
///
/// A violation is a request that another quota of the same [dimension](crate::Quota::by) denies. The first one blocks the
/// key for `base`, the next for `base x factor`, then `base x factor^2`, and at most `cap`. Requests during a block are denied
/// and are no violations. Good behaviour is rewarded: each `cap` that passes after a block without a violation undoes one.
///
/// [`Policy::block`](crate::Policy::block) blocks a key by hand, for up to `cap`, and ends a block. It neither counts nor undoes
/// a violation. [`Penalty::blocks_only`] is for policies that block by hand alone.
///
/// The state is the number of violations, the end of the block, and the length of a block by hand. A block never ends later than
/// its length after `now`, so a clock that steps back does not make it longer.
///
/// **At most**: what the policy's other quotas admit.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("login", [
///     Quota::fixed_window(5, Millis::from_secs(60))?,
///     Quota::penalty(Millis::from_secs(60), 10, Millis::from_secs(3_600))?,
/// ])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
/// assert!(policy.decide(&mut state, now, 5).is_allowed());
/// // The first violation blocks for a minute, the next one for ten.
/// assert_eq!(policy.decide(&mut state, now, 1).retry_after(), Some(Millis::from_secs(60)));
/// let now = UnixMillis::new(60_000);
/// assert!(policy.decide(&mut state, now, 5).is_allowed());
/// assert_eq!(policy.decide(&mut state, now, 1).retry_after(), Some(Millis::from_secs(600)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Penalty {
    base_ms: u64,
    factor: u64,
    cap_ms: u64,
}

/// The state of a penalty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PenaltyState {
    /// The number of violations that count.
    pub strikes: u64,
    /// The end of the last block.
    pub until: UnixMillis,
    /// The length of the last block, if it was set by hand. Zero after a violation: its number tells the length.
    pub length: Millis,
}

impl Penalty {
    /// The longest block: a year.
    pub const MAX_CAP: Millis = Millis::from_secs(365 * 86_400);

    /// Blocks for `base` after the first violation, `factor` times longer after each further one, and at most for `cap`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, a cap below the base, a cap above [`Penalty::MAX_CAP`], or a factor
    /// above [`MAX_UNITS`]. [`Penalty::blocks_only`] has a base of zero.
    pub fn new(base: Millis, factor: u64, cap: Millis) -> Result<Self, Error> {
        let (base_ms, cap_ms, longest) = (base.get(), cap.get(), Self::MAX_CAP.get());
        if base_ms == 0 || base_ms > longest {
            return Err(Error::invalid(format!(
                "base_ms: {base_ms} is out of range; write a whole number of milliseconds from 1 to {longest}, or a block in \
                 place of the penalty if violations do not block"
            )));
        }
        if factor == 0 || factor > MAX_UNITS {
            return Err(Error::invalid(format!(
                "factor: {factor} is out of range; write a whole number from 1 to {MAX_UNITS}"
            )));
        }
        if cap_ms < base_ms || cap_ms > longest {
            return Err(Error::invalid(format!(
                "cap_ms: {cap_ms} is out of range; write a whole number of milliseconds from {base_ms} (base_ms) to \
                 {longest}"
            )));
        }
        Ok(Self { base_ms, factor, cap_ms })
    }

    /// Blocks by hand alone, and at most for `cap`: its base is zero, and no violation has an effect.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a cap of zero or above [`Penalty::MAX_CAP`].
    pub fn blocks_only(cap: Millis) -> Result<Self, Error> {
        let (cap_ms, longest) = (cap.get(), Self::MAX_CAP.get());
        if cap_ms == 0 || cap_ms > longest {
            return Err(Error::invalid(format!(
                "cap_ms: {cap_ms} is out of range; write a whole number of milliseconds from 1 to {longest}"
            )));
        }
        Ok(Self { base_ms: 0, factor: 1, cap_ms })
    }

    /// Whether violations have an effect: not with [`Penalty::blocks_only`].
    #[must_use]
    pub const fn punishes(&self) -> bool {
        self.base_ms > 0
    }

    /// The block after the first violation. Zero with [`Penalty::blocks_only`].
    #[must_use]
    pub const fn base(&self) -> Millis {
        Millis::new(self.base_ms)
    }

    /// How many times longer each further block is.
    #[must_use]
    pub const fn factor(&self) -> u64 {
        self.factor
    }

    /// The longest block, and the time without a violation that undoes one.
    #[must_use]
    pub const fn cap(&self) -> Millis {
        Millis::new(self.cap_ms)
    }

    /// Counts a violation at `now`, unless the key is blocked.
    pub fn violate(&self, state: &mut PenaltyState, now: UnixMillis) {
        let current = self.current(state, now);
        if !self.punishes() || current.until > now {
            return;
        }
        let strikes = (current.strikes + 1).min(self.most_strikes());
        *state = PenaltyState { strikes, until: now + self.after(strikes), length: Millis::ZERO };
    }

    /// Blocks until `span` after `now`, or the cap if that is shorter, whatever block there is. A span of zero ends a block.
    pub fn block(&self, state: &mut PenaltyState, now: UnixMillis, span: Millis) {
        let PenaltyState { strikes, until, .. } = self.current(state, now);
        let length = span.min(self.cap());
        *state = if length > Millis::ZERO {
            PenaltyState { strikes, until: now + length, length }
        } else if strikes > 0 {
            // The violations are undone from the end of the block on. The length is the least one: a clock that steps back does
            // not return the block.
            PenaltyState { strikes: state.strikes, until: until.min(now), length: Millis::new(1) }
        } else {
            PenaltyState::default()
        };
    }

    /// The length of a state's block.
    fn length(&self, state: &PenaltyState) -> Millis {
        if state.length > Millis::ZERO { state.length.min(self.cap()) } else { self.after(state.strikes) }
    }

    /// The block after so many violations.
    fn after(&self, strikes: u64) -> Millis {
        if strikes == 0 {
            return Millis::ZERO;
        }
        let mut block_ms = self.base_ms;
        if self.factor > 1 {
            for _ in 1..strikes {
                block_ms = block_ms.saturating_mul(self.factor);
                if block_ms >= self.cap_ms {
                    break;
                }
            }
        }
        Millis::new(block_ms.min(self.cap_ms))
    }

    /// The state at `now`: without the violations that have been undone, and with a block that is no longer than its length.
    fn current(&self, state: &PenaltyState, now: UnixMillis) -> PenaltyState {
        let until = state.until.min(now + self.length(state));
        let undone = now.since(until).get() / self.cap_ms;
        PenaltyState { strikes: state.strikes.saturating_sub(undone), until, length: state.length }
    }

    /// The most violations that count: one more would not block for longer.
    pub(crate) fn most_strikes(&self) -> u64 {
        if !self.punishes() {
            return 0;
        }
        (1..).find(|strikes| self.after(*strikes) >= self.cap() || self.factor == 1).unwrap_or(1)
    }

    /// How long a violation has an effect at most.
    #[cfg(feature = "std")]
    pub(crate) fn retention(&self) -> Millis {
        self.cap() + Millis::new(self.cap_ms.saturating_mul(self.most_strikes()))
    }
}

impl Algorithm for Penalty {
    type State = PenaltyState;

    /// 1: a penalty admits or blocks.
    fn limit(&self) -> u64 {
        1
    }

    fn maximum(&self, _: UnixMillis, _: UnixMillis) -> u64 {
        u64::MAX
    }

    fn ask(&self, state: &PenaltyState, now: UnixMillis, _: u64) -> Step {
        match self.current(state, now).until.since(now) {
            Millis::ZERO => Step::Admitted { delay: Millis::ZERO },
            retry_after => Step::Denied { retry_after },
        }
    }

    /// Does nothing: a penalty counts violations.
    fn charge(&self, _: &mut PenaltyState, _: UnixMillis, _: u64) {}

    /// Does nothing: a penalty counts violations.
    fn refund(&self, _: &mut PenaltyState, _: UnixMillis, _: UnixMillis, _: u64) {}

    /// Does nothing: a penalty counts violations.
    fn overdraw(&self, _: &mut PenaltyState, _: UnixMillis, _: u64) {}

    fn move_back(&self, state: &mut PenaltyState, now: UnixMillis) {
        state.until = state.until.min(now + self.length(state));
    }
}

impl Inspect for Penalty {
    /// Of a blocked key. [`Standing::used`] is the time until all violations are undone.
    fn standing(&self, state: &PenaltyState, now: UnixMillis) -> Standing {
        let until = self.current(state, now).until;
        let undone = until + Millis::new(state.strikes.saturating_mul(self.cap_ms));
        Standing { limit: 1, room: 0, unit: 1, used: undone.since(now).get(), drain: 1, lag: Millis::ZERO }
    }
}
