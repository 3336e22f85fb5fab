//! Fleets of limiters that borrow, and limiters that do not, on the same keys.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::algorithm::CalendarWindow;
use tidegate_core::lending::Lease;
use tidegate_core::store::{Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{
    Check, Decision, Key, Limiter, LimiterExt, Millis, Operation, Origin, Policy, Quota, Reply, Rule, Settle,
    UnixMillis,
};
use tidegate_redis::{Clock, Config, Redis, batch_script};
use tidegate_testing::{MINUTE, NOW, at, key};
use tokio::task::JoinSet;

use crate::support::{DEADLINE, MIN_TTL, Server, burst, lying_proxy};

/// After some lies, nothing comes.
const DEADLINE_OF_LIES: Millis = Millis::new(200);

fn store(server: &Server) -> Redis {
    let config = Config::new(server.url()).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
    Redis::new(config).unwrap()
}

fn borrowing<'s, S: Atomic + 's>(store: S) -> LendingLimiter<'s, AtomicLimiter<S>> {
    LendingLimiter::new(AtomicLimiter::new(store), Lease::new(20, Millis::from_secs(10))).unwrap()
}

fn calendar_window(limit: u64) -> Result<Quota, tidegate_core::Error> {
    CalendarWindow::new(limit, NOW, MINUTE, MINUTE + MINUTE, 0).map(|window| Rule::CalendarWindow(window).into())
}

fn lendable(limit: u64) -> Vec<Policy> {
    let quotas = [
        Quota::fixed_window(limit, MINUTE),
        Quota::sliding_window(limit, MINUTE),
        Quota::token_bucket(limit, 1, MINUTE),
        calendar_window(limit),
    ];
    quotas.map(|quota| Policy::new("api", [quota.unwrap()]).unwrap()).into()
}

fn admitted(answers: &[Result<Decision, tidegate_core::Error>]) -> u64 {
    answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count() as u64
}

fn calls(server: &Server) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
    let calls = |command: &str| {
        let (_, rest) = stats.split_once(&format!("cmdstat_{command}:calls="))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    calls("evalsha").unwrap_or_default() + calls("eval").unwrap_or_default()
}

/// Sends bursts until the limit is used up, and returns how many requests were admitted by each kind of limiter.
async fn exhaust<A, B>(borrowing: &[Arc<A>], plain: &[Arc<B>], policy: &Policy) -> [u64; 2]
where
    A: Limiter + 'static,
    B: Limiter + 'static,
{
    let mut sums = [0; 2];
    for _ in 0..60 {
        let (lent, asked) = tokio::join!(burst(borrowing, policy, 30), burst(plain, policy, 5));
        sums[0] += admitted(&lent);
        sums[1] += admitted(&asked);
    }
    sums
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_that_borrows_and_one_that_does_not_stay_within_the_limit_together() {
    let server = Server::start();
    for policy in lendable(1_000) {
        let fleet: Vec<_> = (0..3).map(|_| Arc::new(borrowing(store(&server)))).collect();
        let plain = [Arc::new(server.limiter())];
        let before = calls(&server);
        let [lent, asked] = exhaust(&fleet, &plain, &policy).await;
        assert!(lent + asked <= 1_000 && lent + asked >= 1_000 - 3 * 40, "{lent} + {asked} by {policy:?}");
        assert!(asked > 100, "{asked} by {policy:?}");
        let called = calls(&server) - before;
        assert!(called < 1_600, "{called} calls for 2,100 requests, 300 of which by a plain client");
        server.limiter().reset(&policy, (&key()).into()).await.unwrap();
    }
}

#[cfg(feature = "rest")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_protocols_lend_of_the_same_limit() {
    let server = Server::start();
    let endpoint = crate::support::rest::Endpoint::start(&server).await;
    let rest = || {
        let config = tidegate_redis::RestConfig::new(endpoint.url(), crate::support::rest::TOKEN);
        let config = config.clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE).key_locking(true);
        tidegate_redis::Rest::new(config).unwrap()
    };
    for policy in lendable(1_000) {
        let over_rest: Vec<_> = (0..2).map(|_| Arc::new(borrowing(rest()))).collect();
        let over_tcp = [Arc::new(borrowing(store(&server)))];
        let [by_rest, by_tcp] = exhaust(&over_rest, &over_tcp, &policy).await;
        assert!((880..=1_000).contains(&(by_rest + by_tcp)), "{by_rest} + {by_tcp} by {policy:?}");
    }
    assert!(endpoint.front.requests() < 3_000, "{} for 5,400 decisions", endpoint.front.requests());
}

#[tokio::test]
async fn a_reset_keeps_lent_units_charged() {
    let server = Server::start();
    for policy in lendable(100) {
        let fleet = [borrowing(store(&server)), borrowing(store(&server))];
        let key = key();
        let ask = async |limiter: &LendingLimiter<'_, _>, times: u64| {
            let mut admitted = 0;
            for _ in 0..times {
                let decision = limiter.check(Check::new(&policy, &key, at(0))).await.unwrap();
                admitted += u64::from(decision.is_allowed());
            }
            admitted
        };
        // A plain call, a call for a loan of 1, that loan, and a call for a loan of 2.
        assert_eq!(ask(&fleet[0], 4).await, 4);
        // By a client that does not borrow.
        server.limiter().reset(&policy, (&key).into()).await.unwrap();
        assert_eq!(ask(&fleet[1], 200).await, 98, "{policy:?}");
        let spent = fleet[0].check(Check::new(&policy, &key, at(0))).await.unwrap();
        assert_eq!((spent.is_allowed(), spent.origin()), (true, Origin::Lease));
        assert_eq!(ask(&fleet[0], 200).await, 1);
        // Once the loans have ended, nothing is left of the row.
        let later = at(120_000);
        server.limiter().check(Check::new(&policy, &key, later)).await.unwrap();
        server.limiter().reset(&policy, (&key).into()).await.unwrap();
        let keys: u64 = redis::cmd("DBSIZE").query(&mut server.connection()).unwrap();
        assert_eq!(keys, 0, "{policy:?}");
    }
}

#[tokio::test]
async fn the_charge_of_a_token_is_settled_and_a_retry_is_charged_once() {
    let server = Server::start();
    for policy in lendable(100) {
        let (limiter, key) = (borrowing(store(&server)), Key::new("tokens"));
        for _ in 0..10 {
            assert!(limiter.check(Check::new(&policy, &key, at(0))).await.unwrap().is_allowed());
        }
        let left =
            async || limiter.peek(Check::new(&policy, &key, at(0))).await.unwrap().binding().remaining().unwrap();
        let before = left().await;
        let once = Check::new(&policy, &key, at(0)).cost(40).idempotent("request-1", MINUTE);
        assert!(!limiter.check(once).await.unwrap().is_replay());
        assert!(limiter.check(once).await.unwrap().is_replay());
        assert_eq!(left().await, before - 40);
        let settle = Settle::new(&policy, &key, "request-1", 10, at(0));
        assert_eq!(limiter.settle(settle).await.unwrap().binding().remaining(), Some(before - 10), "{policy:?}");
        assert!(limiter.settle(settle).await.unwrap().is_replay());
        assert_eq!(left().await, before - 10);
    }
}

/// A loan of a row that was evicted returns nothing to the row that takes its place.
#[tokio::test]
async fn the_numbers_of_loans_are_not_used_again() {
    let server = Server::start();
    let (policy, key) = (lendable(100).swap_remove(0), key());
    let fleet = [borrowing(store(&server)), borrowing(store(&server))];
    for nth in 0..20 {
        assert!(fleet[0].check(Check::new(&policy, &key, at(nth))).await.unwrap().is_allowed());
    }
    redis::cmd("FLUSHDB").exec(&mut server.connection()).unwrap();
    for nth in 20..40 {
        assert!(fleet[1].check(Check::new(&policy, &key, at(nth))).await.unwrap().is_allowed());
    }
    let used = async || {
        let peeked = server.limiter().peek(Check::new(&policy, &key, at(50))).await.unwrap();
        100 - peeked.binding().remaining().unwrap()
    };
    let before = used().await;
    // Spends the old loan, asks for the next one, and so returns the old one.
    let mut asked = 0;
    for _ in 0..20 {
        let decision = fleet[0].check(Check::new(&policy, &key, at(50))).await.unwrap();
        asked += u64::from(decision.origin() != Origin::Lease);
    }
    assert!(asked > 0);
    assert!(used().await >= before + asked, "{} of {before} and {asked}", used().await);
}

/// A key that never lends has the state that it always had, and a limiter that does not borrow makes one call.
#[tokio::test]
async fn a_key_without_loans_pays_nothing() {
    let server = Server::start();
    let (policy, key) = (lendable(100).swap_remove(0), key());
    let limiter = server.limiter();
    limiter.check(Check::new(&policy, &key, at(0))).await.unwrap();
    let before = calls(&server);
    for _ in 0..10 {
        limiter.check(Check::new(&policy, &key, at(0))).await.unwrap();
        limiter.peek(Check::new(&policy, &key, at(0))).await.unwrap();
    }
    assert_eq!(calls(&server) - before, 20);
    let stored: String =
        redis::cmd("GET").arg("{tg1:api:fw60000:ip:192.0.2.1}").query(&mut server.connection()).unwrap();
    assert_eq!(stored, format!("fw1 {} 11;", NOW.get()));
}

#[tokio::test]
async fn an_explanation_tells_what_is_lent() {
    let server = Server::start();
    let (policy, key) = (lendable(100).swap_remove(2), key());
    let config = Config::new(server.url()).deadline(DEADLINE);
    let limiter = borrowing(Redis::new(config.clone()).unwrap());
    for _ in 0..20 {
        let now = UnixMillis::new(u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap());
        limiter.check(Check::new(&policy, &key, now)).await.unwrap();
    }
    let explained = Redis::new(config).unwrap().explain(&policy, &key).await.unwrap().to_string();
    assert!(explained.contains("ln1 ") && explained.contains("remaining"), "{explained}");
}

/// In a batch, a check of a row with loans is decided by the lending script.
#[tokio::test]
async fn a_batch_decides_on_rows_with_loans() {
    use tidegate_core::store::Applied;
    use tidegate_redis::wire::{Call, Script};
    let server = Server::start();
    for policy in lendable(100) {
        let (limiter, key, mut arguments, mut names) = (borrowing(store(&server)), key(), Vec::new(), Vec::new());
        for _ in 0..20 {
            limiter.check(Check::new(&policy, &key, at(0))).await.unwrap();
        }
        let check = Check::new(&policy, &key, at(1));
        let alone = server.limiter().peek(check).await.unwrap();
        let call = Call::new(Operation::Check(check), Clock::Caller, MIN_TTL).unwrap();
        for script in [Script::Plain, Script::General] {
            let mut words = Vec::new();
            call.words(script, |word| words.push(word.to_owned()));
            names.push(words[1].clone());
            arguments.extend(["1".to_owned(), (words.len() - 2).to_string()]);
            arguments.extend_from_slice(&words[2..]);
        }
        let mut batch = redis::cmd("EVAL");
        batch.arg(batch_script(false)).arg(names.len()).arg(&names).arg(&arguments);
        let answers: Vec<String> = batch.query(&mut server.connection()).unwrap();
        for (answer, used) in answers.iter().zip(1..) {
            let applied = call.answer(Script::Plain, answer.as_bytes()).unwrap();
            let Some(Applied::Replied(Reply::Decided(decision))) = applied else { unreachable!("{answer}") };
            assert_eq!(decision.binding().remaining(), Some(alone.binding().remaining().unwrap() - used), "{answer}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_lent_is_a_plain_call() {
    let server = Server::start();
    let refused = |lease| store(&server).lending(lease).unwrap_err().kind();
    assert_eq!(refused(Lease::new(0, MINUTE)), tidegate_core::ErrorKind::Invalid);
    assert_eq!(refused(Lease::new(1, Millis::new(60_001))), tidegate_core::ErrorKind::Invalid);
    let log = Policy::new("log", [Quota::sliding_log(5, MINUTE).unwrap()]).unwrap();
    let (limiter, key) = (store(&server).lending(Lease::new(5, MINUTE)).unwrap(), key());
    for left in (0..5).rev() {
        let decision = limiter.check(Check::new(&log, &key, at(0))).await.unwrap();
        assert_eq!(decision.binding().remaining(), Some(left));
    }
    let question = tidegate_core::lending::Question::default();
    let answer = limiter.lender().lend(Check::new(&log, &key, at(0)), question).await.unwrap();
    assert!(!answer.decision.is_allowed() && answer.granted.is_none());
}

/// A case of the next test: its lie and its grace.
async fn lied_to(port: u16, lie: String, grace: u64) {
    const LIMIT: u64 = 12;
    let policy = Policy::new("api", [Quota::fixed_window(LIMIT, MINUTE).unwrap()]).unwrap();
    let key = Key::new(format!("{lie} {grace}"));
    let (address, is_lying) = lying_proxy(port, lie.clone().leak().as_bytes()).await;
    let borrower = || {
        let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).min_ttl(MIN_TTL);
        let store = AtomicLimiter::new(Redis::new(config.deadline(DEADLINE_OF_LIES)).unwrap());
        let lease = Lease { in_background: true, grace, ..Lease::new(20, Millis::from_secs(10)) };
        Arc::new(LendingLimiter::new(store, lease).unwrap())
    };
    let (mut all, mut borrowers) = ([borrower(), borrower(), borrower()], 3);
    let (mut admitted, mut failed) = (0, 0);
    for round in 0..6 {
        is_lying.store(round % 2 == 1 && round < 5, Ordering::Relaxed);
        if round % 4 == 2 {
            (all[0], borrowers) = (borrower(), borrowers + 1);
        }
        let now = at(round * 5_000);
        let mut asked = JoinSet::new();
        for limiter in all.iter().flat_map(|limiter| [limiter; 6]) {
            let (limiter, policy, key) = (Arc::clone(limiter), policy.clone(), key.clone());
            asked.spawn(async move { limiter.check(Check::new(&policy, &key, now)).await });
        }
        for decision in asked.join_all().await {
            admitted += u64::from(decision.as_ref().is_ok_and(Decision::is_allowed));
            failed += u64::from(decision.is_err());
        }
        for limiter in all.iter().filter(|_| round % 3 != 2) {
            limiter.after(|| now, ready(())).await;
        }
    }
    let most = LIMIT + grace * borrowers;
    assert!((1..=most).contains(&admitted), "{lie:?}: {admitted} of at most {most}");
    assert!(failed > 0, "{lie:?}: each answer was believed");
}

/// A store's answers are replaced by others now and then: errors, parts of answers, and loans that it cannot have granted. What was
/// charged for them stays charged. In between, a borrower is replaced with what it has not told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_a_store_answers_borrowers_admit_no_more_than_the_limit_and_a_grace_each() {
    let server = Server::start();
    let texts = ["a>99999999999999:50:1800000060000", "a>1:1:1:1", "a>0:1:1800000010000", "d", "x", ""];
    let mut lies: Vec<_> = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect();
    lies.extend(["+what\r\n", "$-1\r\n", "*1\r\n$1\r\na\r\n", "-ERR no\r\n", "$400\r\nab"].map(String::from));
    let mut cases = JoinSet::new();
    for (lie, grace) in lies.into_iter().flat_map(|lie| [(lie.clone(), 1), (lie, 3)]) {
        cases.spawn(lied_to(server.port, lie, grace));
    }
    cases.join_all().await;
}
