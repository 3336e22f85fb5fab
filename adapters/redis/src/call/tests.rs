#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_core::lending::{Question, Returned};
use tidegate_core::store::Operation;
use tidegate_core::{Check, Error, ErrorKind, Key, Millis, Policy, Quota, Settle, UnixMillis};

use super::Call;
use crate::script::Script;
use crate::settings::Clock;

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const MINUTE: Millis = Millis::from_secs(60);

fn of<const N: usize>(quotas: [Result<Quota, Error>; N]) -> Policy {
    Policy::new("api", quotas.map(Result::unwrap)).unwrap()
}

/// What the arithmetic of the short script is exact for.
#[test]
fn the_short_script_decides_on_small_numbers() {
    let printed = 100_000_000_000_000;
    let ahead = tidegate_core::MAX_CLOCK_SKEW.get();
    let script = |policy: &Policy, now: u64, cost: u64, clock| {
        let key = Key::new("ip:192.0.2.1");
        let check = Check::new(policy, &key, UnixMillis::new(now)).cost(cost);
        Call::new(Operation::Check(check), clock, Millis::ZERO).unwrap().script()
    };
    let now = NOW.get();
    let days = |days: u64| Millis::from_secs(86_400 * days);
    for (policy, now, cost, clock, expected) in [
        (of([Quota::fixed_window((1 << 31) - 1, MINUTE)]), now, 1, Clock::Caller, Script::Plain),
        (of([Quota::fixed_window(1 << 31, MINUTE)]), now, 1, Clock::Caller, Script::General),
        (of([Quota::fixed_window(5, MINUTE)]), now, 5, Clock::Caller, Script::Plain),
        (of([Quota::fixed_window(5, MINUTE)]), now, 6, Clock::Caller, Script::General),
        (of([Quota::fixed_window(5, MINUTE)]), now, 0, Clock::Caller, Script::General),
        (of([Quota::fixed_window(5, MINUTE)]), printed - 1, 1, Clock::Caller, Script::Plain),
        (of([Quota::fixed_window(5, MINUTE)]), printed, 1, Clock::Caller, Script::General),
        // The server's clock is not that late.
        (of([Quota::fixed_window(5, MINUTE)]), printed, 1, Clock::Server, Script::Plain),
        (of([Quota::sliding_window(5, days(30))]), now, 1, Clock::Caller, Script::Plain),
        (
            of([Quota::token_bucket((printed - ahead - 1) / 1_000, 1, Millis::new(1_000))]),
            now,
            1,
            Clock::Caller,
            Script::Plain,
        ),
        (
            of([Quota::token_bucket((printed - ahead) / 1_000, 1, Millis::new(1_000))]),
            now,
            1,
            Clock::Caller,
            Script::General,
        ),
        (of([Quota::sliding_log(5, MINUTE)]), now, 1, Clock::Caller, Script::General),
        (of([Quota::fixed_window(5, MINUTE)]).charge_denied(true), now, 1, Clock::Caller, Script::General),
        (of([Quota::fixed_window(5, MINUTE), Quota::fixed_window(9, days(1))]), now, 1, Clock::Caller, Script::General),
    ] {
        assert_eq!(script(&policy, now, cost, clock), expected, "{policy:?} {now} {cost} {clock:?}");
    }
}

/// A command is allocated once.
#[cfg(feature = "resp")]
#[test]
fn the_number_of_words_is_known_before() {
    let key = Key::new("ip:192.0.2.1");
    let words = |call: &Call<'_>, script| {
        let mut count = 0;
        call.words(script, |_| count += 1);
        (count, call.word_count(script))
    };
    let bucket = of([Quota::token_bucket(5, 1, MINUTE)]);
    let slots = of([Quota::concurrency(2, MINUTE), Quota::fixed_window(5, MINUTE), Quota::sliding_log(5, MINUTE)]);
    for policy in [&bucket, &slots] {
        let check = Check::new(policy, &key, NOW);
        let fullest = Operation::Check(check.idempotent("request-1", MINUTE));
        for operation in [fullest, Operation::Check(check), Operation::Peek(check)] {
            for (clock, ttl_min) in [(Clock::Caller, MINUTE), (Clock::Server, Millis::ZERO)] {
                let call = Call::new(operation, clock, ttl_min).unwrap();
                let (count, most) = words(&call, Script::General);
                assert!(count <= most && count + 4 >= most, "{count} of {most}");
            }
        }
    }
    // A question and a token never come together, so one is to spare.
    let fullest = Operation::Check(Check::new(&slots, &key, NOW).idempotent("request-1", MINUTE));
    assert_eq!(words(&Call::new(fullest, Clock::Caller, MINUTE).unwrap(), Script::General), (21, 22));
    let plain = Call::new(Operation::Check(Check::new(&bucket, &key, NOW)), Clock::Caller, MINUTE).unwrap();
    assert_eq!(words(&plain, Script::Plain), (9, 10));
}

/// An answer says the time and the cost where the caller cannot know them.
#[test]
fn an_answer_without_what_the_server_decided_by_is_corrupt() {
    let (policy, key) = (of([Quota::fixed_window(5, MINUTE)]), Key::new("ip:192.0.2.1"));
    let check = Check::new(&policy, &key, NOW);
    let settle = Settle::new(&policy, &key, "request-1", 1, NOW);
    for (operation, clock, tells) in [
        (Operation::Check(check), Clock::Caller, false),
        (Operation::Check(check), Clock::Server, true),
        (Operation::Check(check.idempotent("request-1", MINUTE)), Clock::Caller, true),
        (Operation::Settle(settle), Clock::Caller, true),
    ] {
        let call = Call::new(operation, clock, Millis::ZERO).unwrap();
        let read = |text: &str| call.answer(Script::General, text.as_bytes()).map_err(|error| error.kind());
        assert_eq!(read("a").is_err(), tells, "{operation:?} {clock:?}");
        assert!(read("a@1800000000000 1 ").is_ok());
    }
}

/// Another version may lend other amounts. What would break the limit is no loan.
#[test]
fn a_loan_of_another_size_is_accepted_and_one_that_is_not_safe_is_corrupt() {
    let (policy, key) = (of([Quota::fixed_window(100, MINUTE)]), Key::new("ip:192.0.2.1"));
    let question = Question {
        spent: 8,
        within: Millis::from_secs(1),
        slice: 50,
        lifetime: Millis::from_secs(10),
        back: Some(Returned { loan: 7, unspent: 1, kept: 2 }),
    };
    let call = Call::lend(Check::new(&policy, &key, NOW), question, Clock::Caller, Millis::ZERO).unwrap();
    let mut words = Vec::new();
    call.words(Script::Lending, |word| words.push(word.to_owned()));
    assert_eq!(words[2], "8 1000 50 10000 7 1 2");
    assert_eq!(super::question(&words[2]), Some(question));
    assert_eq!(super::question("8 1000 50 10000"), Some(Question { back: None, ..question }));
    assert_eq!(super::question("8 1000 50"), None);

    // 30 are used, 10 of them lent, of which 7 are spent, 1 is given back and 2 are kept.
    let (start, kept_until) = (NOW.get() - NOW.get() % MINUTE.get(), NOW.get() + 5_000);
    let before = |used: u64| format!("fw1 {start} {used};ln1 7 16 7:10:{kept_until};");
    let read = |verdict: &str, used, granted: &str| {
        call.lent(format!("{verdict}{}>{granted}", before(used)).as_bytes())
            .map_err(|error| (error.kind(), error.to_string()))
    };
    let until = NOW.get() + 10_000;
    for (loan, units, until) in
        [(8, 3, until), (u64::MAX >> 12, 50, until), (8, 20, NOW.get() + 1), (8, 2, kept_until), (8, 1, kept_until)]
    {
        let granted = read("a", 30, &format!("{loan}:{units}:{until}")).unwrap().granted.unwrap();
        assert_eq!((granted.loan, granted.units, (NOW + granted.lasts).get()), (loan, units, until));
    }
    assert_eq!(read("a", 30, "").unwrap().granted, None);
    // 1 is given back and charged again, so 20 are left, beside the 2 that are kept.
    assert!(read("a", 80, &format!("8:22:{until}")).is_ok());
    assert!(read("d", 101, &format!("8:2:{kept_until}")).is_ok());
    for (verdict, used, granted, why) in [
        ("a", 30, format!("7:3:{until}"), "its number may have been used"),
        ("a", 30, format!("8:0:{until}"), "it lends nothing"),
        ("a", 30, format!("8:3:{}", NOW.get()), "it lends nothing"),
        ("a", 30, format!("8:3:{}", until + 1), "it lasts too long"),
        ("a", 30, format!("8:51:{until}"), "it is larger than asked for"),
        ("a", 80, format!("8:23:{until}"), "as much is not left"),
        ("d", 101, format!("8:3:{kept_until}"), "as much is not left"),
        ("d", 101, format!("8:2:{}", kept_until + 1), "it lasts too long"),
        ("d", 30, format!("8:3:{until}"), "disagree on a decision"),
        ("a", 101, String::new(), "disagree on a decision"),
        ("a", 30, "8:3".into(), "is not an answer"),
        ("a", 30, format!("8:3:{until}:1"), "is not an answer"),
        ("a", 30, "8:x:1".into(), "is not an answer"),
    ] {
        let (kind, told) = read(verdict, used, &granted).unwrap_err();
        assert!(kind == ErrorKind::Corrupt && told.contains(why), "{granted}: {told}");
    }
    for text in ["a", ""] {
        assert_eq!(call.lent(text.as_bytes()).map_err(|error| error.kind()), Err(ErrorKind::Corrupt), "{text}");
    }
}
