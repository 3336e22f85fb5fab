use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};

use super::{Slot, Spent};
use crate::durable_objects::wire::{Granted, Returned};

const SLICE: u64 = 100;
const LIFETIME: Millis = Millis::from_secs(10);
const DEADLINE: Millis = Millis::from_secs(2);
const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// A slot with a lease of 10. During its last call for a lease, 5 other requests came.
struct Rig {
    slot: Slot,
    policy: Policy,
    lease: Granted,
}

impl Rig {
    fn new() -> Self {
        let window = Quota::fixed_window(100, Millis::from_secs(60)).expect("a quota");
        let lease = Granted { units: 10, until: NOW + LIFETIME };
        let mut rig = Self { slot: Slot::asked(NOW), policy: Policy::new("api", [window]).expect("a policy"), lease };
        assert_eq!(rig.ask(), Spent::AskForMore { want: 1, back: None });
        assert!((0..5).all(|_| rig.ask() == Spent::AskPlainly));
        rig.keep(lease, None);
        rig.slot.answered();
        rig
    }

    fn ask(&mut self) -> Spent {
        let key = Key::new("user:1");
        self.slot.spend(&Check::new(&self.policy, &key, NOW), SLICE, LIFETIME, DEADLINE)
    }

    fn keep(&mut self, granted: Granted, back: Option<Returned>) {
        self.slot.keep(granted, *self.policy.quotas()[0].rule(), (NOW, granted.until), back);
    }

    /// Spends as much as possible before the next lease is requested.
    fn spend_five(&mut self) {
        assert!((0..5).all(|_| self.ask() == Spent::Admitted));
    }
}

#[test]
fn requests_that_spend_the_kept_part_reduce_the_next_lease() {
    let mut rig = Rig::new();
    rig.spend_five();
    let back = Returned { lease: rig.lease, unspent: 0, kept: 5 };
    assert_eq!(rig.ask(), Spent::AskForMore { want: 15, back: Some(back) });
    assert!((0..3).all(|_| rig.ask() == Spent::Admitted));
    rig.keep(Granted { units: 20, ..rig.lease }, Some(back));
    rig.slot.answered();
    // 17 are left. The next lease is requested when 5 are left: as many as the requests during an earlier call.
    let spent = (0..20).take_while(|_| rig.ask() == Spent::Admitted).count();
    assert_eq!(spent, 12);
}

#[test]
fn a_lease_is_reported_to_the_object_only_once() {
    let mut rig = Rig::new();
    rig.spend_five();
    let back = Returned { lease: rig.lease, unspent: 0, kept: 5 };
    assert_eq!(rig.ask(), Spent::AskForMore { want: 15, back: Some(back) });
    // The call fails. It may have arrived.
    rig.slot.answered();
    rig.spend_five();
    assert_eq!(rig.ask(), Spent::AskForMore { want: 20, back: None });
    // Its answer comes late: another call was made since.
    rig.keep(Granted { units: 20, ..rig.lease }, Some(back));
    assert_eq!(rig.ask(), Spent::AskPlainly);
}
