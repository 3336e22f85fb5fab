use std::collections::HashMap;
use std::ops::RangeInclusive;

use proptest::prelude::*;
use tidegate_core::{Error, ErrorKind, Key, Millis, Policy, Quota, UnixMillis};

use super::{Action, Answer, Call, Granted, Known, Once, Reply, Returned};
use crate::counter::Counter;
use crate::rows::{Page, Row, Rows};

/// A storage that never fails.
#[derive(Default)]
struct Kept(HashMap<String, Row>);

impl Rows for Kept {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        Ok(self.0.get(key).cloned())
    }
    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        self.0.extend(rows.iter().map(|(key, row)| ((*key).to_owned(), row.clone())));
        Ok(())
    }
    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.0.remove(key);
        Ok(())
    }
    fn sweep(&mut self, _: UnixMillis, _: Option<&str>) -> Result<Page, Error> {
        Ok(Page::default())
    }
    fn set_alarm(&mut self, _: UnixMillis) -> Result<(), Error> {
        Ok(())
    }
}

fn quota() -> impl Strategy<Value = Quota> {
    (0..5u8, 1..1_000u64, 1..1_000_000u64, 1..1_000u64).prop_map(|(algorithm, limit, span, refill)| {
        let span = Millis::new(span);
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::token_bucket(limit, refill, span),
            _ => Quota::leaky_bucket(limit, refill, span),
        };
        quota.expect("within range")
    })
}

fn instant() -> impl Strategy<Value = UnixMillis> {
    any::<u64>().prop_map(UnixMillis::new)
}

fn granted() -> impl Strategy<Value = Granted> {
    (any::<u64>(), instant()).prop_map(|(units, until)| Granted { units, until })
}

fn action() -> impl Strategy<Value = Action> {
    let numbers = (granted(), any::<u64>(), any::<u64>());
    let back = numbers.prop_map(|(lease, unspent, kept)| Returned { lease, unspent, kept });
    prop_oneof![
        Just(Action::Check),
        Just(Action::Peek),
        Just(Action::Delete),
        instant().prop_map(|charged_at| Action::Refund { charged_at }),
        any::<[u8; 16]>().prop_map(|token| Action::Settle { token }),
        (any::<u64>(), any::<u64>(), prop::option::of(back)).prop_map(|(want, lifetime, back)| Action::Lease {
            want,
            lifetime: Millis::new(lifetime),
            back,
        }),
    ]
}

fn policy(quotas: RangeInclusive<usize>) -> impl Strategy<Value = Policy> {
    (prop::collection::vec(quota(), quotas), any::<bool>()).prop_map(|(quotas, charge_denied)| {
        Policy::new("wire", quotas).expect("one to eight").charge_denied(charge_denied)
    })
}

/// A call whose policy is leaked, because a test is short.
fn call() -> impl Strategy<Value = Call<'static>> {
    let once = (any::<[u8; 16]>(), any::<u64>()).prop_map(|(token, ttl)| Once { token, ttl: Millis::new(ttl) });
    let key = prop::collection::vec(any::<u8>(), 0..300).prop_map(Key::new);
    let numbers = (any::<u64>(), prop::option::of(instant()), any::<u64>());
    (action(), policy(1..=8), key, numbers, prop::option::of(once)).prop_map(|(action, policy, key, numbers, once)| {
        let (cost, now, min_ttl) = numbers;
        let (key, policy) = (key.storage_key(&policy), &*Box::leak(Box::new(policy)));
        Call { action, key, policy, cost, now, min_ttl: Millis::new(min_ttl), once }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_round_trips(call in call(), before in call(), by_the_same: bool) {
        let before = if by_the_same { Call { policy: call.policy, ..before } } else { before };
        let mut known = Known::default();
        prop_assert_eq!(Call::decode(&before.encode(), &mut known).expect("what was written"), before);
        let bytes = call.encode();
        prop_assert_eq!(Call::decode(&bytes, &mut known).expect("what was written"), call);
        for end in 0..bytes.len() {
            match Call::decode(&bytes[..end], &mut known) {
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Invalid),
                // A call for a lease that returns none is valid, too.
                Ok(shorter) => prop_assert!(matches!(shorter.action, Action::Lease { back: None, .. }), "a lease only"),
            }
        }
    }

    #[test]
    fn an_answer_round_trips(
        admitted: bool,
        replayed: bool,
        settled: bool,
        now in instant(),
        cost: u64,
        lease in prop::option::of(granted()),
        before in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
    ) {
        let answer = Answer { admitted, replayed, settled, now, cost, lease, before };
        prop_assert_eq!(Reply::of(Ok(answer.clone())).answer().expect("what was written"), answer);
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), clock in instant()) {
        let reply = Counter::new(Kept::default(), None).answer(&bytes, clock);
        prop_assert!([200, 400].contains(&reply.status));
        let _ = Answer::decode(&bytes);
    }

    #[test]
    fn a_corrupted_call_gets_an_answer(
        call in call(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        clock in instant(),
    ) {
        let mut bytes = call.encode();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let reply = Counter::new(Kept::default(), None).answer(&bytes, clock);
        prop_assert!([200, 400].contains(&reply.status), "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Calls for one key may contradict each other, and may return leases that were never granted. The stored state
    /// stays valid.
    #[test]
    fn contradictory_calls_leave_a_valid_state(
        policy in prop_oneof![policy(1..=8), policy(1..=1)],
        calls in prop::collection::vec(call(), 1..12),
        clock in instant(),
    ) {
        let mut counter = Counter::new(Kept::default(), None);
        for call in calls {
            let call = Call { key: "tg1:same".to_owned(), policy: &policy, ..call };
            let reply = counter.answer(&call.encode(), clock);
            match reply.answer() {
                Ok(_) => {}
                Err(error) => prop_assert!(
                    [ErrorKind::TokenReused, ErrorKind::UnknownCharge].contains(&error.kind()),
                    "{error}"
                ),
            }
        }
    }

    #[test]
    fn a_reply_that_is_not_tidegates_is_not_an_answer(status in 100..600u16, body in prop::collection::vec(any::<u8>(), 0..60)) {
        prop_assume!(status != 200);
        let error = Reply { status, body }.answer().expect_err("no answer");
        prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn an_invalid_key_is_rejected() {
    let policy = Policy::new("wire", [Quota::fixed_window(5, Millis::new(1_000)).expect("within range")]).expect("one");
    let call = Call {
        action: Action::Check,
        key: String::new(),
        policy: &policy,
        cost: 1,
        now: None,
        min_ttl: Millis::ZERO,
        once: None,
    };
    for key in ["", "tg1:a\n01a3185c5000.", "tg1:a b", "tg1:é", &"k".repeat(1_025)] {
        let reply = Counter::new(Kept::default(), None)
            .answer(&Call { key: key.to_owned(), ..call.clone() }.encode(), UnixMillis::new(1));
        assert_eq!(reply.status, 400, "{key:?}");
    }
    let reply = Counter::new(Kept::default(), None)
        .answer(&Call { key: "tg1:a".to_owned(), ..call }.encode(), UnixMillis::new(1));
    assert_eq!(reply.status, 200);
}

#[test]
fn an_error_keeps_its_kind() {
    for kind in [ErrorKind::Invalid, ErrorKind::Corrupt, ErrorKind::Refused] {
        let reply = Reply::error(Error::new(kind, "no: not this"));
        assert_eq!(reply.status, if kind == ErrorKind::Invalid { 400 } else { 500 });
        let error = reply.answer().expect_err("an error");
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, "no: not this"));
    }
}

#[test]
fn a_reply_round_trips_through_its_text() {
    let (admitted, now, before) = (true, UnixMillis::new(1), Some(vec![0, 255]));
    let answer = Answer { admitted, replayed: false, settled: false, now, cost: 2, lease: None, before };
    let answered = Reply::of(Ok(answer));
    let failed = Reply::error(Error::new(ErrorKind::Corrupt, "a row that is none: é"));
    for reply in [answered, failed] {
        assert_eq!(Reply::from_text(&reply.to_text()), reply);
    }
    for nonsense in ["", "200", "200 Hello", "0103", "Hello", "700 x", "99999 x", " x"] {
        assert_eq!(
            Reply::from_text(nonsense).answer().expect_err("no answer").kind(),
            ErrorKind::Corrupt,
            "{nonsense}"
        );
    }
}
