//! The KV Store adapter, over a fake store that can be made to show every failure that the platform's documentation
//! allows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use pollster::block_on;
use tidegate_core::store::VersionedValue;
use tidegate_core::{
    Check, Decision, Error, ErrorKind, Key, Limiter, LimiterExt, Load, MemoryLimiter, Millis, Policy, Quota, Refund,
    UnixMillis,
};
use tidegate_fastly::kv::{DRIFT, Inserted, KeyValue, Kv, KvLimiter, Only};
use tidegate_testing::{MINUTE, NOW, key, per_minute, policy};

/// A PoP's view of the store: a value and a generation under each key.
#[derive(Default)]
struct Pop {
    values: Mutex<HashMap<String, (Vec<u8>, u64)>>,
    generations: AtomicU64,
    /// What reads return instead of the stored values, if set: a stale view.
    stale: Option<HashMap<String, (Vec<u8>, u64)>>,
    /// How many writes to refuse as too many.
    refuse: AtomicU64,
    /// How many writes by other clients come between a read and its write.
    others: AtomicU64,
    reads: AtomicU64,
    inserts: AtomicU64,
    ttl: Mutex<Duration>,
}

impl KeyValue for &Pop {
    fn lookup(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        self.reads.fetch_add(1, SeqCst);
        let values = self.values.lock().unwrap();
        let found = self.stale.as_ref().unwrap_or(&values).get(key);
        Ok(found.map(|(bytes, generation)| VersionedValue { bytes: bytes.clone(), version: *generation }))
    }

    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Duration) -> Result<Inserted, Error> {
        self.inserts.fetch_add(1, SeqCst);
        if self.refuse.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Ok(Inserted::Refused);
        }
        let mut values = self.values.lock().unwrap();
        // Generations are unique but not ordered.
        let next = || self.generations.fetch_add(1, SeqCst).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        if self.others.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            values.insert(key.into(), (bytes.into(), next()));
        }
        let held = match (only, values.get(key)) {
            (Only::New, found) => found.is_none(),
            (Only::Over(generation), found) => found.is_some_and(|found| found.1 == generation),
        };
        if !held {
            return Ok(Inserted::Conflict);
        }
        values.insert(key.into(), (bytes.into(), next()));
        *self.ttl.lock().unwrap() = ttl;
        Ok(Inserted::Done)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.values.lock().unwrap().remove(key);
        Ok(())
    }
}

fn limiter(pop: &Pop) -> KvLimiter<&Pop> {
    Kv::new(pop).limiter()
}

fn check(limiter: &impl Limiter, policy: &Policy, key: &Key) -> Result<Decision, Error> {
    block_on(limiter.check(Check::new(policy, key, NOW)))
}

fn policies() -> Vec<Policy> {
    let second = Millis::from_secs(1);
    let quotas = [
        Quota::fixed_window(7, second).unwrap(),
        Quota::sliding_window(7, second).unwrap(),
        Quota::sliding_log(7, second).unwrap(),
        Quota::token_bucket(7, 3, second).unwrap(),
        Quota::leaky_bucket(7, 3, second).unwrap(),
    ];
    let mut policies: Vec<_> = quotas.iter().map(|quota| Policy::new("one", [quota.clone()]).unwrap()).collect();
    policies.push(Policy::new("all", quotas.clone()).unwrap());
    policies.push(Policy::new("charging", quotas).unwrap().charge_denied(true));
    policies
}

#[test]
fn sequential_requests_match_the_reference() {
    for policy in policies() {
        let (pop, memory) = (Pop::default(), MemoryLimiter::new());
        let limiter = limiter(&pop);
        let (mut now, mut random) = (NOW, 1_u64);
        for step in 0..3_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, key) = ((random >> 33) % 16, Key::new(format!("k{}", (random >> 40) % 3)));
            now = UnixMillis::new(now.get() + (random >> 50) % 400);
            let check = Check::new(&policy, &key, now).cost((random >> 37) % 3);
            match what {
                0 => {
                    block_on(limiter.reset(&policy, (&key).into())).unwrap();
                    block_on(memory.reset(&policy, (&key).into())).unwrap();
                }
                1 | 2 => {
                    let refund = Refund::new(&policy, &key, 1, now, now);
                    block_on(limiter.refund(refund)).unwrap();
                    block_on(memory.refund(refund)).unwrap();
                }
                3 | 4 => {
                    let (found, right) =
                        (block_on(limiter.peek(check)).unwrap(), block_on(memory.peek(check)).unwrap());
                    assert_eq!(found, right, "{policy:?}, step {step}");
                }
                _ => {
                    let (found, right) =
                        (block_on(limiter.check(check)).unwrap(), block_on(memory.check(check)).unwrap());
                    assert_eq!(found, right, "{policy:?}, step {step}");
                }
            }
        }
    }
}

#[test]
fn a_pop_admits_exactly_the_limit_concurrently() {
    for policy in policies().into_iter().take(6) {
        let (pop, key) = (Pop::default(), key());
        let limiter = limiter(&pop).attempts(10_000);
        let admitted: usize = std::thread::scope(|scope| {
            let client = || (0..50).filter(|_| check(&limiter, &policy, &key).unwrap().is_allowed()).count();
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(admitted, 7, "{policy:?}");
    }
}

#[test]
fn an_admission_reads_and_writes_once_and_a_denial_writes_nothing() {
    let (pop, policy, key) = (Pop::default(), per_minute(1), Key::new("k"));
    let limiter = limiter(&pop);
    assert!(check(&limiter, &policy, &key).unwrap().is_allowed());
    assert_eq!((pop.reads.load(SeqCst), pop.inserts.load(SeqCst)), (1, 1));
    assert!(!check(&limiter, &policy, &key).unwrap().is_allowed());
    assert_eq!((pop.reads.load(SeqCst), pop.inserts.load(SeqCst)), (2, 1));
}

#[test]
fn a_conflicting_write_is_retried_on_the_new_value() {
    for first in [true, false] {
        let (pop, policy, key) = (Pop::default(), per_minute(9), Key::new("k"));
        let limiter = limiter(&pop);
        if !first {
            check(&limiter, &policy, &key).unwrap();
        }
        pop.others.store(3, SeqCst);
        let decision = check(&limiter, &policy, &key).unwrap();
        // The three other writes were charged, too.
        assert_eq!(decision.binding().remaining(), Some(if first { 5 } else { 4 }));
        assert_eq!((limiter.store().stats().lost, limiter.store().stats().refused), (3, 0));
    }
}

#[test]
fn a_refused_write_is_retried_and_never_admitted_unwritten() {
    let (pop, policy, key) = (Pop::default(), per_minute(9), Key::new("k"));
    pop.refuse.store(3, SeqCst);
    let limiter = limiter(&pop);
    assert_eq!(check(&limiter, &policy, &key).unwrap().binding().remaining(), Some(8));
    assert_eq!(limiter.store().stats().refused, 3);

    pop.refuse.store(u64::MAX, SeqCst);
    let error = check(&limiter, &policy, &key).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    let attempts = u64::from(KvLimiter::<&Pop>::DEFAULT_ATTEMPTS);
    assert_eq!((limiter.store().stats().refused, pop.inserts.load(SeqCst)), (3 + attempts, 4 + attempts));

    pop.refuse.store(0, SeqCst);
    assert_eq!(check(&limiter, &policy, &key).unwrap().binding().remaining(), Some(7));
}

#[test]
fn a_stale_read_is_an_error_and_not_an_admission() {
    let (mut pop, policy, key) = (Pop::default(), per_minute(9), Key::new("k"));
    check(&limiter(&pop), &policy, &key).unwrap();
    let first = pop.values.lock().unwrap().clone();
    for behind in [HashMap::new(), first] {
        pop.stale = None;
        check(&limiter(&pop), &policy, &key).unwrap();
        pop.stale = Some(behind);
        assert_eq!(check(&limiter(&pop), &policy, &key).unwrap_err().kind(), ErrorKind::Contended);
    }
    pop.stale = None;
    assert_eq!(check(&limiter(&pop), &policy, &key).unwrap().binding().remaining(), Some(5));
}

#[test]
fn isolated_pops_reach_the_ceiling_and_do_not_exceed_it() {
    let (pops, policy, key) = ([Pop::default(), Pop::default(), Pop::default()], per_minute(5), Key::new("k"));
    let mut admitted = 0;
    for pop in &pops {
        let limiter = limiter(pop);
        admitted += (0..50).filter(|_| check(&limiter, &policy, &key).unwrap().is_allowed()).count() as u64;
    }
    assert_eq!(admitted, DRIFT.ceiling.of(Load { limit: 5, quota: 5, in_flight: 50, locations: 3 }));
}

#[test]
fn the_ttl_covers_the_window_and_requests_under_way_in_whole_seconds() {
    let ttl = |kv: fn(&Pop) -> Kv<&Pop>, window: Millis| {
        let (pop, key) = (Pop::default(), Key::new("k"));
        let policy = policy(Quota::fixed_window(9, window));
        check(&kv(&pop).limiter(), &policy, &key).unwrap();
        pop.ttl.into_inner().unwrap().as_secs()
    };
    assert_eq!(ttl(|pop| Kv::new(pop), MINUTE), 70);
    assert_eq!(ttl(|pop| Kv::new(pop), Millis::new(1)), 11);
    assert_eq!(ttl(|pop| Kv::new(pop).min_ttl(Millis::from_secs(3_600)), MINUTE), 3_600);
    // The platform would treat a TTL of more than 32 bits as none at all.
    assert_eq!(ttl(|pop| Kv::new(pop).min_ttl(Millis::from_secs(1 << 33)), MINUTE), u64::from(u32::MAX));
}

#[test]
fn a_foreign_value_is_an_error_for_its_key_until_reset() {
    let (pop, policy) = (Pop::default(), per_minute(9));
    let (bad, good) = (Key::new("bad"), Key::new("good"));
    let limiter = limiter(&pop);
    for value in [&b""[..], b"12345678", &[0xff; 400]] {
        pop.values.lock().unwrap().insert(bad.storage_key(&policy), (value.into(), 1));
        let error = check(&limiter, &policy, &bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(check(&limiter, &policy, &good).unwrap().is_allowed());
        block_on(limiter.reset(&policy, (&bad).into())).unwrap();
        assert!(check(&limiter, &policy, &bad).unwrap().is_allowed());
    }
}

#[test]
fn an_idempotency_token_is_unsupported() {
    let (pop, policy, key) = (Pop::default(), per_minute(9), Key::new("k"));
    let check = Check::new(&policy, &key, NOW).idempotent("a", MINUTE);
    assert_eq!(block_on(limiter(&pop).check(check)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(pop.reads.load(SeqCst), 0);
}
