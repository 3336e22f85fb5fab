#[cfg(test)]
mod tests;

use tidegate_core::{Check, Millis, Rule, UnixMillis};

use crate::wire::{Granted, Returned};

/// What an isolate has of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// A call for a lease is under way; whoever comes meanwhile spends what is left, or makes a plain one.
    asking: bool,
    lease: Option<Lease>,
    /// When the object was asked last.
    asked_at: UnixMillis,
    /// What others wanted during the last call for a lease.
    wanted_meanwhile: u64,
    /// What they wanted during those before, the longer ago the less.
    wanted_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    granted: Granted,
    /// What it was granted by. Where the limits have changed since, what is left of it is given back.
    rule: Rule,
    /// From when on it may be spent.
    from: UnixMillis,
    left: u64,
    /// The object was told what becomes of it, if the call came there. It is not told again, for what it would find is
    /// another isolate's lease that looks the same.
    told: bool,
}

/// What a check can have without asking, or else what it asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Admitted,
    AskForMore { want: u64, back: Option<Returned> },
    AskPlainly,
}

impl Slot {
    /// That of a key whose object is being asked, and not for a lease.
    pub(super) const fn asked(at: UnixMillis) -> Self {
        Self { asking: false, lease: None, asked_at: at, wanted_meanwhile: 0, wanted_before: 0 }
    }

    pub(super) fn spend(&mut self, check: &Check<'_>, slice: u64, lifetime: Millis, deadline: Millis) -> Spent {
        // But for one that was cancelled with its request: the platform does not even drop it.
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
        // A clock that was set back: the lease is good again when it has caught up.
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

    /// Has a check ask the object: for a lease where it wants one or tells what becomes of another.
    fn ask(&mut self, now: UnixMillis, want: u64, back: Option<Returned>, kept: Option<Lease>) -> Spent {
        let asking = want > 0 || back.is_some();
        let wanted_before = self.wanted_meanwhile.max(self.wanted_before - self.wanted_before.div_ceil(8));
        *self = Self { asking, lease: kept, asked_at: now, wanted_meanwhile: 0, wanted_before };
        if asking { Spent::AskForMore { want, back } } else { Spent::AskPlainly }
    }

    /// Keeps what was granted, but for what others have spent of it since it was asked for.
    pub(super) fn keep(&mut self, granted: Granted, rule: Rule, now: UnixMillis, back: Option<Returned>) {
        let spent = match (back.filter(|back| back.kept > 0), self.lease) {
            (None, _) => 0,
            (Some(back), Some(lease)) if lease.told && lease.granted == back.lease => back.kept - lease.left,
            // It was late: another has asked since.
            _ => return,
        };
        let left = granted.units.saturating_sub(spent);
        self.lease = Some(Lease { granted, rule, from: now, left, told: false });
        self.asked_at = now;
    }

    /// Lets the next one ask.
    pub(super) const fn answered(&mut self) {
        self.asking = false;
    }

    /// Whether what is left of a lease was enough, after a call for more has failed.
    pub(super) fn spend_kept(&mut self, check: &Check<'_>) -> bool {
        self.lease.as_mut().is_some_and(|lease| lease.spend(check))
    }

    pub(super) fn is_of_use(&self, now: UnixMillis, lifetime: Millis) -> bool {
        let until = self.asked_at + lifetime;
        self.asking || now < self.lease.map_or(until, |lease| until.max(lease.granted.until))
    }
}

impl Lease {
    fn has_ended(&self, check: &Check<'_>) -> bool {
        check.now >= self.granted.until || self.rule != *check.policy.quotas()[0].rule()
    }

    /// Whether it was enough for a check.
    fn spend(&mut self, check: &Check<'_>) -> bool {
        let enough = self.from <= check.now && !self.has_ended(check) && self.left >= check.cost;
        if enough {
            self.left -= check.cost;
        }
        enough
    }
}
