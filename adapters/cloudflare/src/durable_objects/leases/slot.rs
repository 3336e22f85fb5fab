#[cfg(test)]
mod tests;

use tidegate_core::{Check, Millis, Rule, UnixMillis};

use crate::durable_objects::wire::{Granted, Returned};

/// What an isolate holds of one key. All times except those of [`Granted`] are by the isolate's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Whether a call for a lease is in flight. Meanwhile, requests spend what is left, or make plain calls.
    asking: bool,
    lease: Option<Lease>,
    /// When the object was last asked.
    asked_at: UnixMillis,
    /// The cost of the requests that came during the last call for a lease.
    wanted_meanwhile: u64,
    /// The same for earlier calls. It decays.
    wanted_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// As the object knows it, by the object's clock.
    granted: Granted,
    /// The rule it was granted by. If the limits change, the rest of it is returned.
    rule: Rule,
    /// It may be spent from this instant on.
    from: UnixMillis,
    /// It may be spent until this instant.
    until: UnixMillis,
    left: u64,
    /// Whether a call that may have arrived has told the object how the lease ended. A second such call is not allowed:
    /// it could mistake another isolate's equal lease for this one.
    told: bool,
}

/// What a check gets without a call, or which call it makes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Admitted,
    AskForMore { want: u64, back: Option<Returned> },
    AskPlainly,
}

impl Slot {
    /// The slot of a key whose first plain call begins at `at`.
    pub(super) const fn asked(at: UnixMillis) -> Self {
        Self { asking: false, lease: None, asked_at: at, wanted_meanwhile: 0, wanted_before: 0 }
    }

    pub(super) fn spend(&mut self, check: &Check<'_>, slice: u64, lifetime: Millis, deadline: Millis) -> Spent {
        // A call whose request was cancelled never ends, and the platform does not drop its future.
        let busy = self.asking && check.now < self.asked_at + deadline;
        if busy {
            self.wanted_meanwhile = self.wanted_meanwhile.saturating_add(check.cost);
        }
        let wanted = self.wanted_meanwhile.max(self.wanted_before);
        let Some(lease) = &mut self.lease else {
            let want = u64::from(check.now < self.asked_at + lifetime);
            return if busy { Spent::AskPlainly } else { self.ask(check.now, want, None, None) };
        };
        let early = if busy || lease.told { 0 } else { wanted.min(lease.granted.units / 2) };
        if lease.left > early && lease.spend(check) {
            return Spent::Admitted;
        }
        // The clock was set back. The lease is valid again when the clock has caught up.
        if busy || check.now < lease.from {
            return Spent::AskPlainly;
        }
        let lease = *lease;
        let (Granted { units, .. }, left) = (lease.granted, lease.left);
        let returned = |unspent, kept| (!lease.told).then_some(Returned { lease: lease.granted, unspent, kept });
        if lease.has_ended(check) {
            let back = returned(left, 0).filter(|_| left > 0);
            self.ask(check.now, slice.min(units - left), back, None)
        } else if left > 0 && left >= check.cost {
            let want = slice.min(units.saturating_mul(2)).saturating_sub(left);
            self.ask(check.now, want, returned(0, left), Some(Lease { told: true, ..lease }))
        } else {
            self.ask(check.now, slice.min(units.saturating_mul(2)), returned(left, 0), None)
        }
    }

    /// Makes a check ask the object: with a plain call, unless it wants a lease or returns one.
    fn ask(&mut self, now: UnixMillis, want: u64, back: Option<Returned>, kept: Option<Lease>) -> Spent {
        let asking = want > 0 || back.is_some();
        let wanted_before = self.wanted_meanwhile.max(self.wanted_before - self.wanted_before.div_ceil(8));
        *self = Self { asking, lease: kept, asked_at: now, wanted_meanwhile: 0, wanted_before };
        if asking { Spent::AskForMore { want, back } } else { Spent::AskPlainly }
    }

    /// Keeps a lease, less what was spent of the kept part since it was asked for. `from` and `until` say when it may be
    /// spent.
    pub(super) fn keep(
        &mut self,
        granted: Granted,
        rule: Rule,
        (from, until): (UnixMillis, UnixMillis),
        back: Option<Returned>,
    ) {
        let spent = match (back.filter(|back| back.kept > 0), self.lease) {
            (None, _) => 0,
            (Some(back), Some(lease)) if lease.told && lease.granted == back.lease => back.kept - lease.left,
            // The answer is late: another call was made since.
            _ => return,
        };
        let left = granted.units.saturating_sub(spent);
        self.lease = Some(Lease { granted, rule, from, until, left, told: false });
        self.asked_at = from;
    }

    /// Lets the next check ask.
    pub(super) const fn answered(&mut self) {
        self.asking = false;
    }

    /// Spends what is left of a lease after a call for more has failed. Returns whether it was enough.
    pub(super) fn spend_kept(&mut self, check: &Check<'_>) -> bool {
        self.lease.as_mut().is_some_and(|lease| lease.spend(check))
    }

    pub(super) fn is_of_use(&self, now: UnixMillis, lifetime: Millis) -> bool {
        let until = self.asked_at + lifetime;
        self.asking || now < self.lease.map_or(until, |lease| until.max(lease.until))
    }
}

impl Lease {
    fn has_ended(&self, check: &Check<'_>) -> bool {
        check.now >= self.until || self.rule != *check.policy.quotas()[0].rule()
    }

    /// Spends a check's cost. Returns whether the lease was enough.
    fn spend(&mut self, check: &Check<'_>) -> bool {
        let enough = self.from <= check.now && !self.has_ended(check) && self.left >= check.cost;
        if enough {
            self.left -= check.cost;
        }
        enough
    }
}
