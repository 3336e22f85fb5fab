use std::collections::HashMap;
use std::ops::RangeInclusive;

use proptest::prelude::*;
use tidegate_core::algorithm::Lot;
use tidegate_core::lending::{Answer, Loan, Question, Returned};
use tidegate_core::{Decision, Error, ErrorKind, Key, Millis, Policy, Quota, Rule, UnixMillis};

use super::{
    Action, CALLS_MAX, Call, Known, Once, Reply, VERSION, VERSION_OF_OWED, VERSION_OF_SEVERAL, apart, decode, together,
};
use crate::durable_objects::bytes::{from_hex, put, to_hex};
use crate::durable_objects::counter::Counter;
use crate::durable_objects::rows::{Page, Row, Rows};
use crate::durable_objects::token::{First, Token};

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

/// A quota, and the dimension that it counts by.
fn quota() -> impl Strategy<Value = Quota> {
    (0..6u8, 1..1_000u64, 1..1_000_000u64, 1..1_000u64, 0..3u8).prop_map(
        |(algorithm, limit, span, refill, dimension)| {
            let span = Millis::new(span);
            let quota = match algorithm {
                0 => Quota::fixed_window(limit, span),
                1 => Quota::sliding_window(limit, span),
                2 => Quota::sliding_log(limit, span),
                3 => Quota::token_bucket(limit, refill, span),
                4 => Quota::leaky_bucket(limit, refill, span),
                _ => Quota::concurrency(limit, span),
            };
            quota.and_then(|quota| quota.by(&dimension.to_string())).expect("within range")
        },
    )
}

/// How far apart the times of calls may lie, in milliseconds: 18 years. A block lasts up to a year more, and a state
/// that lies 20 years ahead is corrupt.
const CLOCKS_APART: u64 = 18 * 365 * 86_400_000;

fn instant() -> impl Strategy<Value = UnixMillis> {
    any::<u64>().prop_map(UnixMillis::new)
}

fn granted() -> impl Strategy<Value = Loan> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    numbers.prop_map(|(number, units, lasts)| Loan { number, units, lasts: Millis::new(lasts) })
}

fn action() -> impl Strategy<Value = Action> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    let back = numbers.prop_map(|(loan, unspent, kept)| Returned { loan, unspent, kept });
    let numbers =
        [any::<u64>().boxed(), any::<u64>().boxed(), prop_oneof![Just(0), any::<u64>()].boxed(), any::<u64>().boxed()];
    prop_oneof![
        Just(Action::Check),
        Just(Action::Peek),
        Just(Action::Delete),
        instant().prop_map(|charged_at| Action::Refund { charged_at }),
        any::<u64>().prop_map(|span| Action::Block { span: Millis::new(span) }),
        (any::<[u8; 16]>(), any::<u64>(), any::<u64>()).prop_map(|(token, ttl, expires)| Action::Grant {
            token: Token(token),
            ttl: Millis::new(ttl),
            expires: UnixMillis::new(expires),
        }),
        any::<[u8; 16]>().prop_map(|token| Action::Settle { token: Token(token) }),
        any::<[u8; 16]>().prop_map(|token| Action::Release { token: Token(token) }),
        (numbers, prop::option::of(back)).prop_map(|([wanted, within, owed, lifetime], back)| {
            let (within, lifetime) = (Millis::new(within), Millis::new(lifetime));
            Action::Lend(Question { wanted, within, owed, lifetime, back })
        }),
    ]
}

/// A policy as an object builds it: without names of its own.
fn policy(quotas: RangeInclusive<usize>) -> impl Strategy<Value = Policy> {
    let penalty = (0..1_000u64, 1..9u64, 1..1_000u64);
    let flags = (any::<bool>(), any::<bool>(), prop::option::of(penalty));
    (prop::collection::vec(quota(), quotas), flags).prop_map(|(mut quotas, (charge_denied, returns, penalty))| {
        let first = quotas[0].dimension().to_owned();
        let sole = quotas.iter().all(|quota| quota.dimension() == first);
        if let (Rule::Concurrency(rule), true) = (quotas[0].rule(), sole) {
            quotas[0] = Quota::from(Rule::Concurrency(rule.returns_cost(returns))).by(&first).expect("a name");
        }
        if let (Some((base, factor, more)), 1..8) = (penalty, quotas.len()) {
            let cap = Millis::new(base + more);
            let penalty = if base < 300 { Quota::block(cap) } else { Quota::penalty(Millis::new(base), factor, cap) };
            quotas.push(penalty.and_then(|penalty| penalty.by(&first)).expect("within range"));
        }
        unnamed(&Policy::new("api", quotas).expect("one to eight")).charge_denied(charge_denied)
    })
}

/// The policy with its dimensions numbered in order.
fn unnamed(policy: &Policy) -> Policy {
    let by = |(place, quota): (usize, &Quota)| Quota::from(*quota.rule()).by(&place.to_string()).expect("a name");
    let dimensions = policy.dimensions().iter().enumerate();
    let quotas =
        dimensions.flat_map(|(place, part)| policy.quotas()[part.quotas()].iter().map(move |quota| (place, quota)));
    Policy::new("wire", quotas.map(by)).expect("the same quotas")
}

/// A value that lives until the end of the test, which is short.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn call() -> impl Strategy<Value = Call<'static>> {
    let once = (any::<[u8; 16]>(), any::<u64>());
    let once = once.prop_map(|(token, ttl)| Once { token: Token(token), ttl: Millis::new(ttl) });
    let key = prop::collection::vec(any::<u8>(), 0..300).prop_map(Key::new);
    let numbers = (any::<u64>(), prop::option::of(instant()), any::<u64>());
    (action(), policy(1..=8), key, numbers, prop::option::of(once)).prop_map(|(action, policy, key, numbers, once)| {
        let (cost, now, min_ttl) = numbers;
        let policy = leaked(policy);
        let name = |id| leaked(format!("tg1:{id}:{}", key.as_str())).as_str();
        let rows = policy.dimensions().iter().map(|part| name(part.id())).collect();
        Call { action, policy, parts: &[], rows, cost, now, min_ttl: Millis::new(min_ttl), once }
    })
}

fn decision(policy: &Policy) -> impl Strategy<Value = Decision> + use<> {
    let policy = policy.clone();
    (instant(), any::<bool>(), prop::collection::vec(0..2_000u64, 1..4)).prop_map(move |(now, replay, costs)| {
        let mut state = policy.initial_state();
        costs.iter().for_each(|cost| drop(policy.decide(&mut state, now, *cost)));
        policy.decide(&mut state, now, 1).replayed(replay)
    })
}

fn decided() -> impl Strategy<Value = (Policy, Decision)> {
    policy(1..=8).prop_flat_map(|policy| (Just(policy.clone()), decision(&policy)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_round_trips(call in call(), before in call(), by_the_same: bool) {
        let before = if by_the_same { Call { policy: call.policy, rows: call.rows.clone(), ..before } } else { before };
        let (mut known, bytes) = (Known::default(), before.encode());
        prop_assert_eq!(without_parts(Call::decode(&bytes, &mut known).expect("what was written")), before);
        let bytes = call.encode();
        let decoded = Call::decode(&bytes, &mut known).expect("what was written");
        let parts: Vec<Rule> = decoded.parts.iter().flat_map(Policy::quotas).map(|quota| *quota.rule()).collect();
        match decoded.rows.len() {
            1 => prop_assert!(parts.is_empty()),
            rows => {
                prop_assert_eq!(decoded.parts.len(), rows);
                prop_assert_eq!(parts, call.policy.quotas().iter().map(|quota| *quota.rule()).collect::<Vec<_>>());
            }
        }
        prop_assert_eq!(without_parts(decoded), call);
        for end in 0..bytes.len() {
            match Call::decode(&bytes[..end], &mut known) {
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Invalid),
                // A question that returns no loan is valid, too.
                Ok(shorter) => {
                    prop_assert!(matches!(shorter.action, Action::Lend(Question { back: None, .. })), "a question only");
                }
            }
        }
    }

    #[test]
    fn an_answer_round_trips(
        (policy, decision) in decided(),
        granted in prop::option::of(granted()),
        denies_for: u64,
    ) {
        let answer = Answer { decision, granted, denies_for: Millis::new(denies_for) };
        prop_assert_eq!(Reply::of(Ok(answer.clone())).answer(&policy).expect("what was written"), answer);
    }

    #[test]
    fn a_first_answer_round_trips(
        (policy, decision) in decided(),
        until in instant(),
        cost: u64,
        settled: bool,
        lots in prop::collection::vec((any::<u64>(), instant()), 0..4),
        hostile in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let lots = lots.into_iter().map(|(units, expires)| Lot { units, expires });
        let paid = if settled { Vec::new() } else { lots.collect() };
        let first = First { until, cost, settled, decision, paid };
        let value = first.row(until).value;
        prop_assert_eq!(First::decode(&value, &policy).expect("what was written"), first);
        for bytes in (0..value.len()).map(|end| &value[..end]).chain([&hostile[..]]) {
            if let Err(error) = First::decode(bytes, &policy) {
                prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
            }
        }
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), clock in instant(), policy in policy(1..=8)) {
        let reply = Counter::new(Kept::default(), None).answer(&bytes, clock);
        let right = if bytes.len() >= 2 && ![VERSION, VERSION_OF_OWED, VERSION_OF_SEVERAL].contains(&bytes[0]) { [500, 500] } else { [200, 400] };
        prop_assert!(right.contains(&reply.status));
        let _ = decode(&bytes, &policy);
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
        let right = if [VERSION, VERSION_OF_OWED, VERSION_OF_SEVERAL].contains(&bytes[0]) { [200, 400] } else { [500, 500] };
        prop_assert!(right.contains(&reply.status), "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Calls for one key may contradict each other, may name times that lie years apart, and may return leases that
    /// were never granted. The stored state stays valid.
    #[test]
    fn contradictory_calls_leave_a_valid_state(
        policy in prop_oneof![policy(1..=8), policy(1..=1)],
        calls in prop::collection::vec((call(), prop::option::of(0..=CLOCKS_APART)), 1..12),
        clock in 0..=UnixMillis::MAX.get(),
    ) {
        let mut counter = Counter::new(Kept::default(), None);
        for (call, ahead) in calls {
            let rows = (0..policy.dimensions().len()).map(|place| ["tg1:a", "tg1:b", "tg1:c"][place]).collect();
            let now = ahead.map(|ahead| UnixMillis::new((clock + ahead).saturating_sub(CLOCKS_APART / 2)));
            let call = Call { rows, policy: &policy, now, ..call };
            let clock = UnixMillis::new(clock);
            let reply = counter.answer(&call.encode(), clock);
            match reply.answer(&policy) {
                Ok(_) => {}
                // The policies have no balance.
                Err(error) if matches!(call.action, Action::Grant { .. }) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                }
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
        let error = Reply { status, body }.answer(&window()).expect_err("no answer");
        prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

fn without_parts(call: Call<'_>) -> Call<'_> {
    Call { parts: &[], ..call }
}

fn window() -> Policy {
    Policy::new("wire", [Quota::fixed_window(5, Millis::new(1_000)).expect("within range")]).expect("one")
}

fn check<'a>(policy: &'a Policy, rows: Vec<&'a str>) -> Call<'a> {
    Call { action: Action::Check, policy, parts: &[], rows, cost: 1, now: None, min_ttl: Millis::ZERO, once: None }
}

#[test]
fn an_invalid_name_of_a_row_is_rejected() {
    let policy = window();
    let status = |name: &str| {
        let call = check(&policy, vec![name]);
        Counter::new(Kept::default(), None).answer(&call.encode(), UnixMillis::new(1)).status
    };
    for name in ["", "tg1:a\n01a3185c5000.", "tg1:a b", "tg1:é", &"k".repeat(1_025)] {
        assert_eq!(status(name), 400, "{name:?}");
    }
    assert_eq!(status("tg1:a"), 200);
}

/// A call for a row each of `rows` dimensions, by quotas that are given as numbers.
fn hostile(quotas: &[(u8, [u64; 3])], rows: usize) -> Reply {
    let mut bytes = vec![VERSION, 1, 0, u8::try_from(quotas.len()).expect("few")];
    for (kind, numbers) in quotas {
        bytes.push(*kind);
        put(&mut bytes, *numbers);
    }
    for name in ["a", "b", "c"].into_iter().take(rows) {
        bytes.extend(1u16.to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    put(&mut bytes, [1, 0, 0]);
    Counter::new(Kept::default(), None).answer(&bytes, UnixMillis::new(1))
}

#[test]
fn the_dimensions_of_a_call_are_in_order_and_each_has_a_row() {
    let (window, slots, penalty) = ([5, 1_000, 0], [5, 1_000, 0], [2_000, 1_000, 2]);
    let returning = [5, 1_000, 1];
    assert_eq!(hostile(&[(0x06, returning), (0x01, window)], 1).status, 200);
    let valid = [(0x06, slots), (0x01, window), (0x11, window), (0x17, penalty)];
    assert_eq!(hostile(&valid, 2).status, 200);
    for rows in [0, 1, 3] {
        assert_eq!(hostile(&valid, rows).status, 400, "{rows}");
    }
    assert_eq!(hostile(&[(0x07, [2_000, 0, 1])], 1).status, 200, "a block needs no other quota");
    let invalid: [&[(u8, [u64; 3])]; 13] = [
        &[(0x07, [2_000, 0, 0])],
        &[(0x07, [2_000, 0, 2])],
        &[(0x07, [0, 0, 1])],
        &[],
        &[(0x11, window)],
        &[(0x01, window), (0x21, window)],
        &[(0x01, window), (0x11, window), (0x01, window)],
        &[(0x01, window), (0x06, returning)],
        &[(0x06, returning), (0x11, window)],
        &[(0x07, penalty), (0x01, window)],
        &[(0x01, window), (0x17, penalty)],
        &[(0x06, [5, 1_000, 2])],
        &[(0x01, [5, 1_000, 1])],
    ];
    for quotas in invalid {
        assert!((0..4).all(|rows| hostile(quotas, rows).status == 400), "{quotas:?}");
    }
    for algorithm in [0, 8, 15] {
        assert_eq!(hostile(&[(algorithm, window)], 1).status, 400, "{algorithm}");
    }
}

#[test]
fn a_call_and_an_answer_are_short() {
    let policy = window();
    let call = check(&policy, vec!["tg1:api:fw1000:ip:192.0.2.1"]).encode();
    assert_eq!(call.len(), 4 + 25 + 2 + 27 + 24);
    let answer = Counter::new(Kept::default(), None).answer(&call, UnixMillis::new(1_800_000_000_000));
    assert_eq!(answer.body.len(), 2 + 1 + 1 + 6 + 1 + 1 + 1 + 2);
}

#[test]
fn an_answer_of_another_version_or_with_unknown_parts_is_not_an_answer() {
    let (policy, at) = (window(), UnixMillis::new(1_800_000_000_000));
    let call = check(&policy, vec!["tg1:api:fw1000:ip:192.0.2.1"]).encode();
    let answer = Counter::new(Kept::default(), None).answer(&call, at);
    assert!(answer.answer(&policy).is_ok());
    for (place, byte) in [(0, VERSION + 1), (1, 0x80)] {
        let mut other = answer.clone();
        other.body[place] = byte;
        let error = other.answer(&policy).expect_err("no answer").to_string();
        assert!(error.contains("and of this version"), "{error}");
    }
    for text in ["", "0", "0g"] {
        assert_eq!(Reply::from_text(text).status, 500, "{text}");
    }
}

/// The policy of `versions.json`.
fn window_of_100() -> Policy {
    Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60)).expect("within range")]).expect("one")
}

/// A step of `versions.json`, and the call as this version writes it.
fn recorded<'a>(step: &'a serde_json::Value, policy: &'a Policy) -> Call<'a> {
    let number = |name: &str| step[name].as_u64().unwrap_or_default();
    let now = UnixMillis::new(number("now"));
    let mut call = Call { now: Some(now), ..check(policy, vec![step["row"].as_str().expect("a text")]) };
    call.cost = number("cost");
    let token = step["token"].as_str().map(Token::of);
    call.action = match step["kind"].as_str().expect("a text") {
        "check" => Action::Check,
        "peek" => Action::Peek,
        "refund" => Action::Refund { charged_at: UnixMillis::new(number("extra")) },
        "settle" => Action::Settle { token: token.expect("a token") },
        "reset" => {
            call.now = Some(UnixMillis::new(0));
            Action::Delete
        }
        "lend" => {
            let numbers: Vec<_> =
                step["question"].as_array().expect("numbers").iter().flat_map(|one| one.as_u64()).collect();
            let (asked, back) = numbers.split_at(4);
            let back = back.first().map(|loan| Returned { loan: *loan, unspent: back[1], kept: back[2] });
            let wanted = asked[0].min(asked[2]);
            let (within, lifetime) = (Millis::new(asked[1]), Millis::new(asked[3]));
            Action::Lend(Question { wanted, within, owed: 0, lifetime, back })
        }
        other => panic!("{other}"),
    };
    if let (Action::Check, Some(token)) = (call.action, token) {
        call.once = Some(Once { token, ttl: Millis::new(number("extra")) });
    }
    call
}

/// An object of this version and a Worker of the version before, and the other way round, as one is deployed before the other.
#[test]
fn a_worker_and_an_object_of_two_releases_understand_each_other() {
    let policy = window_of_100();
    let table: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/data/versions.json")).expect("a table");
    let mut object = Counter::new(Kept::default(), None);
    let mut lent = 0;
    for step in table["steps"].as_array().expect("steps") {
        let text = |name: &str| step[name].as_str().expect("a text");
        let (call, now) = (recorded(step, &policy), UnixMillis::new(step["now"].as_u64().expect("a number")));
        // A Worker of this version asks in words that the object before knows, and reads its answer.
        if text("by") != "before" {
            assert_eq!(to_hex(&call.encode()), text("call"), "{step}");
        }
        let told = Reply::from_text(text("answer")).answer(&policy).expect("an answer");
        let granted =
            told.granted.map(|granted| serde_json::json!([granted.number, granted.units, granted.lasts.get()]));
        assert_eq!(granted.as_ref(), step.get("granted"), "{step}");
        // An object of this version answers the same to all but a question, whose loan it chooses.
        let answer = object.answer_text(text("call"), now);
        if text("by") == "both" {
            assert_eq!(answer, text("answer"), "{step}");
            continue;
        }
        let answer = Reply::from_text(&answer).answer(&policy).expect("an answer");
        assert_eq!(answer.decision.is_allowed(), told.decision.is_allowed(), "{step}");
        assert_eq!(answer.granted.is_some(), told.granted.is_some(), "{step}");
        if let (Some(granted), Action::Lend(question)) = (answer.granted, call.action) {
            assert!(granted.units <= question.wanted && granted.lasts <= question.lifetime, "{step}: {granted:?}");
            lent += 1;
        }
    }
    assert_eq!(lent, 5);
}

/// Both languages write and read the same.
#[test]
fn several_calls_are_answered_in_their_order_each_in_a_step_of_its_own() {
    let table: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/data/versions.json")).expect("a table");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let (several, policy) = (&table["several"], window_of_100());
    let texts = |name: &str| -> Vec<String> { several[name].as_array().expect("texts").iter().map(text).collect() };
    let (calls, answers, now) = (texts("calls"), texts("answers"), UnixMillis::new(1_800_000_000_200));
    let call = together(&calls.iter().map(|call| from_hex(call)).collect::<Vec<_>>());
    assert_eq!(to_hex(&call), text(&several["call"]));
    assert_eq!(apart(&call).expect("several").expect("calls").len(), calls.len());
    let answer = Counter::new(Kept::default(), None).answer_text(&text(&several["call"]), now);
    assert_eq!(answer, text(&several["answer"]));
    let replies = Reply::from_text(&answer).apart(calls.len()).expect("replies");
    assert_eq!(replies.iter().map(Reply::to_text).collect::<Vec<_>>(), answers);
    let shown: Vec<_> = replies.iter().map(|reply| reply.answer(&policy).map_err(|error| error.kind())).collect();
    assert!(shown[0].is_ok() && shown[2].is_ok(), "{shown:?}");
    assert_eq!(shown[1], Err(ErrorKind::Unavailable));
    // The answer to another number of calls, or to one, is none of these.
    assert_eq!(Reply::from_text(&answer).apart(calls.len() + 1), None);
    assert_eq!(Reply::from_text(&answers[0]).apart(1), None);
    assert_eq!(Reply::from_text(&answer).answer(&policy).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
}

#[test]
fn several_calls_are_so_many_at_most_and_none_of_them_is_several() {
    let at = UnixMillis::new(1);
    let one = check(&window(), vec!["tg1:a"]).encode();
    let answer = |calls: &[Vec<u8>]| Counter::new(Kept::default(), None).answer(&together(calls), at);
    assert_eq!(answer(&vec![one.clone(); CALLS_MAX]).apart(CALLS_MAX).map(|replies| replies.len()), Some(CALLS_MAX));
    let too_many = answer(&vec![one.clone(); CALLS_MAX + 1]);
    assert_eq!((too_many.status, too_many.apart(CALLS_MAX + 1)), (400, None));
    let nested = answer(&[one.clone(), together(std::slice::from_ref(&one))]).apart(2).expect("two replies");
    assert_eq!([nested[0].status, nested[1].status], [200, 500]);
    let mut cut = together(&[one.clone(), one]);
    cut.pop();
    let reply = Counter::new(Kept::default(), None).answer(&cut, at);
    assert_eq!((reply.status, reply.apart(2)), (400, None));
}

/// The fail mode decides until both are of one version.
#[test]
fn a_call_of_another_version_of_the_protocol_is_a_failure_of_the_store() {
    let policy = window();
    let mut owing = check(&policy, vec!["tg1:a"]);
    owing.action = Action::Lend(Question { owed: 1, ..Question::default() });
    // An object of an earlier release refuses what it would not charge.
    assert_eq!(owing.encode()[0], VERSION_OF_OWED);
    let mut call = check(&policy, vec!["tg1:a"]).encode();
    for version in [VERSION - 1, VERSION_OF_SEVERAL + 1] {
        call[0] = version;
        let reply = Counter::new(Kept::default(), None).answer(&call, UnixMillis::new(1));
        let error = reply.answer(&policy).expect_err("no answer");
        assert!(error.kind().is_store_failure() && error.to_string().contains("another version"), "{error:?}");
    }
}

#[test]
fn a_token_has_a_row_for_each_set_of_rows() {
    let (token, other) = (Token::of("request-1"), Token::of("request-2"));
    assert_eq!(token.row(&["tg1:a"]), format!("once:{}:tg1:a", crate::durable_objects::bytes::to_hex(&token.0)));
    let names = [
        token.row(&["tg1:a"]),
        token.row(&["tg1:a", "tg1:a|b"]),
        token.row(&["tg1:a", "tg1:a|c"]),
        token.row(&["tg1:a", "tg1:a|b", "tg1:a|c"]),
        other.row(&["tg1:a"]),
        other.row(&["tg1:a", "tg1:a|b"]),
    ];
    for (place, name) in names.iter().enumerate() {
        assert!(name.starts_with("once:") && name.ends_with(":tg1:a") && !names[..place].contains(name), "{name}");
    }
}

#[test]
fn an_error_keeps_its_kind() {
    for kind in [ErrorKind::Invalid, ErrorKind::Corrupt, ErrorKind::Refused] {
        let reply = Reply::error(Error::new(kind, "no: not this"));
        assert_eq!(reply.status, if kind == ErrorKind::Invalid { 400 } else { 500 });
        let error = reply.answer(&window()).expect_err("an error");
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, "no: not this"));
    }
}

#[test]
fn a_reply_round_trips_through_its_text() {
    let policy = window();
    let decision = policy.peek(&policy.initial_state(), UnixMillis::new(1), 1);
    let answered = Reply::of(Ok(decision.into()));
    let failed = Reply::error(Error::new(ErrorKind::Corrupt, "a row that is none: é"));
    for reply in [answered, failed] {
        assert_eq!(Reply::from_text(&reply.to_text()), reply);
    }
    for nonsense in ["", "200", "200 Hello", "0103", "Hello", "700 x", "99999 x", " x"] {
        assert_eq!(
            Reply::from_text(nonsense).answer(&policy).expect_err("no answer").kind(),
            ErrorKind::Corrupt,
            "{nonsense}"
        );
    }
}
