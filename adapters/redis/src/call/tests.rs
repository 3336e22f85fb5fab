#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_core::lending::{Answer, Question, Returned};
use tidegate_core::store::Applied;
use tidegate_core::{Check, Error, ErrorKind, Millis, Operation, Policy, Quota, Settle, UnixMillis};
use tidegate_testing::{MINUTE, NOW, key, per_minute, policy, policy_of};

use super::Call;
use crate::script::Script;
use crate::settings::Clock;

/// What the arithmetic of the short script is exact for.
#[test]
fn the_short_script_decides_on_small_numbers() {
    let printed = 100_000_000_000_000;
    let ahead = tidegate_core::MAX_CLOCK_SKEW.get();
    let script = |policy: &Policy, now: u64, cost: u64, clock| {
        let key = key();
        let several = ["", "user", "tenant", "all"].map(|name| (name, &key));
        let check = Check::new(policy, &several, UnixMillis::new(now)).cost(cost);
        Call::new(Operation::Check(check), clock, Millis::ZERO).unwrap().script()
    };
    let by = |names: &[&str]| {
        let quota = |(name, nth): (&&str, u64)| Quota::fixed_window(5 + nth, MINUTE).unwrap().by(name).unwrap();
        Policy::new("api", names.iter().zip(0..).map(quota)).unwrap()
    };
    let now = NOW.get();
    let days = |days: u64| Millis::from_secs(86_400 * days);
    for (policy, now, cost, clock, expected) in [
        (policy(Quota::fixed_window((1 << 31) - 1, MINUTE)), now, 1, Clock::Caller, Script::Plain),
        (policy(Quota::fixed_window(1 << 31, MINUTE)), now, 1, Clock::Caller, Script::General),
        (per_minute(5), now, 5, Clock::Caller, Script::Plain),
        (per_minute(5), now, 6, Clock::Caller, Script::General),
        (per_minute(5), now, 0, Clock::Caller, Script::General),
        (per_minute(5), printed - 1, 1, Clock::Caller, Script::Plain),
        (per_minute(5), printed, 1, Clock::Caller, Script::General),
        // The server's clock is not that late.
        (per_minute(5), printed, 1, Clock::Server, Script::Plain),
        (policy(Quota::sliding_window(5, days(30))), now, 1, Clock::Caller, Script::Plain),
        (
            policy(Quota::token_bucket((printed - ahead - 1) / 1_000, 1, Millis::new(1_000))),
            now,
            1,
            Clock::Caller,
            Script::Plain,
        ),
        (
            policy(Quota::token_bucket((printed - ahead) / 1_000, 1, Millis::new(1_000))),
            now,
            1,
            Clock::Caller,
            Script::General,
        ),
        (policy(Quota::sliding_log(5, MINUTE)), now, 1, Clock::Caller, Script::General),
        (per_minute(5).charge_denied(true), now, 1, Clock::Caller, Script::General),
        (
            policy_of([Quota::fixed_window(5, MINUTE), Quota::token_bucket(9, 1, MINUTE)]),
            now,
            5,
            Clock::Caller,
            Script::Plain,
        ),
        (
            policy_of([Quota::fixed_window(5, MINUTE), Quota::token_bucket(9, 1, MINUTE)]),
            now,
            6,
            Clock::Caller,
            Script::General,
        ),
        (
            policy_of([Quota::fixed_window(5, MINUTE), Quota::sliding_log(9, MINUTE)]),
            now,
            1,
            Clock::Caller,
            Script::General,
        ),
        (by(&["user", "tenant", "all"]), now, 1, Clock::Caller, Script::Plain),
        // Two quotas of one key, and one of another.
        (by(&["user", "user", "all"]), now, 1, Clock::Caller, Script::General),
    ] {
        assert_eq!(script(&policy, now, cost, clock), expected, "{policy:?} {now} {cost} {clock:?}");
    }
}

/// A command is allocated once.
#[cfg(feature = "resp")]
#[test]
fn the_number_of_words_is_known_before() {
    let key = key();
    let words = |call: &Call<'_>, script| {
        let mut count = 0;
        call.words(script, |_| count += 1);
        (count, call.word_count(script))
    };
    let bucket = policy(Quota::token_bucket(5, 1, MINUTE));
    let slots =
        policy_of([Quota::concurrency(2, MINUTE), Quota::fixed_window(5, MINUTE), Quota::sliding_log(5, MINUTE)]);
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
    let two = policy_of([Quota::fixed_window(5, MINUTE), Quota::token_bucket(9, 1, MINUTE)]);
    let plain = Call::new(Operation::Check(Check::new(&two, &key, NOW)), Clock::Caller, MINUTE).unwrap();
    assert_eq!(words(&plain, Script::Plain), (13, 14));
}

/// An answer says the time and the cost where the caller cannot know them.
#[test]
fn an_answer_without_what_the_server_decided_by_is_corrupt() {
    let (policy, key) = (per_minute(5), key());
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

#[test]
fn a_question_is_a_word() {
    let (policy, key) = (per_minute(100), key());
    let back = Some(Returned { loan: 7, unspent: 1, kept: 2 });
    let question = Question { wanted: 8, within: Millis::from_secs(1), owed: 3, lifetime: MINUTE, back };
    let call =
        Call::new(Operation::Lend(Check::new(&policy, &key, NOW), &question), Clock::Caller, Millis::ZERO).unwrap();
    let mut words = Vec::new();
    call.words(Script::Lending, |word| words.push(word.to_owned()));
    assert_eq!(words[2], "8 1000 3 60000 7 1 2");
    assert_eq!(super::question(&words[2]), Some(question));
    assert_eq!(super::question("8 1000 3 60000"), Some(Question { back: None, ..question }));
    assert_eq!(super::question("8 1000 3"), None);
}

/// Another version may lend other amounts. What would break the limit is no loan. The npm package reads the same table.
#[test]
fn a_loan_of_another_size_is_accepted_and_one_that_is_not_safe_is_corrupt() {
    let table = include_str!("../../../../core/tests/data/loans.json");
    let table: serde_json::Value = serde_json::from_str(table).unwrap();
    let number = |name: &str| table["question"][name].as_u64().unwrap();
    let question = Question {
        wanted: number("wanted"),
        within: Millis::new(number("within")),
        owed: 0,
        lifetime: Millis::new(number("lifetime")),
        back: Some(Returned { loan: number("loan"), unspent: number("unspent"), kept: number("kept") }),
    };
    let (policy, key) = (per_minute(100), key());
    let now = UnixMillis::new(table["now"].as_u64().unwrap());
    let call =
        Call::new(Operation::Lend(Check::new(&policy, &key, now), &question), Clock::Caller, Millis::ZERO).unwrap();
    for row in table["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap();
        let before = table["before"].as_str().unwrap().replace("USED", &row["used"].to_string());
        let answer = lent(&call, &format!("{}{before}>{}", text("verdict"), text("granted")));
        let granted = answer.map(|answer| answer.granted).map_err(|error| error.kind());
        let lent = granted.map(|granted| {
            granted.map(|granted| format!("{}:{}:{}", granted.number, granted.units, (now + granted.lasts).get()))
        });
        let expected = Some(text("granted").to_owned()).filter(|text| !text.is_empty());
        assert_eq!(lent, if row["accepted"] == true { Ok(expected) } else { Err(ErrorKind::Corrupt) }, "{row}");
    }
    for text in ["a", ""] {
        assert_eq!(lent(&call, text).map_err(|error| error.kind()), Err(ErrorKind::Corrupt), "{text}");
    }
}

/// The answer to a borrower's question.
fn lent(call: &Call<'_>, text: &str) -> Result<Answer, Error> {
    match call.answer(Script::Lending, text.as_bytes())? {
        Some(Applied::Replied(reply)) => reply.answer(),
        other => unreachable!("{other:?}"),
    }
}
