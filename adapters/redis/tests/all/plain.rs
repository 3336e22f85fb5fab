//! The short script answers and stores what the general one does, or leaves the state to it.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::Server;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use redis::ConnectionLike as _;
use tidegate_core::algorithm::MAX_UNITS;
use tidegate_core::{Check, Key, Keys, Millis, Operation, Policy, Quota, UnixMillis};
use tidegate_redis::wire::{Call, Script};
use tidegate_redis::{Clock, batch_script};
use tidegate_testing::{NOW, key};

/// A check, and the text of each row before it, which is empty if there is none.
#[derive(Clone, Debug)]
struct Case {
    policy: Policy,
    stored: Vec<String>,
    /// How long the rows are kept. They have no expiry without it.
    stored_ms: Option<i64>,
    cost: u64,
    now: u64,
    min_ttl: u64,
    /// Whether the short script has to answer.
    is_usual: bool,
}

impl Case {
    fn call<'a>(&'a self, keys: Keys<'a>, clock: Clock) -> Call<'a> {
        let check = Check::new(&self.policy, keys, UnixMillis::new(self.now)).cost(self.cost);
        Call::new(Operation::Check(check), clock, Millis::new(self.min_ttl)).unwrap()
    }

    /// Appends the runs of both scripts on these rows, each with what is stored after it.
    fn run(&self, call: &Call<'_>, plain: &str, into: &mut redis::Pipeline) {
        for (script, sha1) in [(Script::Plain, plain), (Script::General, Script::General.sha1(false))] {
            let mut command = redis::cmd("EVALSHA");
            command.arg(sha1);
            let mut words = Vec::new();
            call.words(script, |word| words.push(word.to_owned()));
            let names = words[1..=self.stored.len()].to_vec();
            for (name, stored) in names.iter().zip(&self.stored) {
                if stored.is_empty() {
                    into.cmd("DEL").arg(name);
                } else {
                    let set = into.cmd("SET").arg(name).arg(stored);
                    if let Some(ms) = self.stored_ms {
                        set.arg("PX").arg(ms);
                    }
                }
            }
            command.arg(&words);
            into.add_command(command);
            for name in names {
                into.cmd("GET").arg(&name);
                into.cmd("PTTL").arg(&name);
            }
        }
    }
}

/// What a script has answered, and each row then: its text, and for how long it is kept.
type Outcome = (redis::RedisResult<String>, Vec<(Option<String>, i64)>);

fn outcomes(connection: &mut redis::Connection, pipeline: &redis::Pipeline, rows: usize) -> [Outcome; 2] {
    let length = 3 * rows + 1;
    let values: Vec<redis::Value> =
        connection.req_packed_commands(&pipeline.get_packed_pipeline(), 0, 2 * length).unwrap();
    let outcome = |values: &[redis::Value]| {
        let answer = match &values[rows] {
            redis::Value::ServerError(error) => Err(error.clone().into()),
            value => redis::from_redis_value_ref::<String>(value).map_err(Into::into),
        };
        let row = |row: &[redis::Value]| {
            (redis::from_redis_value_ref(&row[0]).unwrap(), redis::from_redis_value_ref(&row[1]).unwrap())
        };
        (answer, values[rows + 1..].chunks(2).map(row).collect())
    };
    let (plain, general) = values.split_at(length);
    [outcome(plain), outcome(general)]
}

/// Numbers at which a decision changes, and others.
fn near(pivot: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0..4_u64,
        4 => (pivot.saturating_sub(3))..=(pivot + 3),
        4 => 0..=pivot.saturating_mul(2).min(MAX_UNITS),
        1 => Just(MAX_UNITS),
        1 => Just(MAX_UNITS + 1),
    ]
}

/// A kind of quota, its limit, unit and refill: small ones, usual ones, and those at the bounds of the short script.
fn rules() -> impl Strategy<Value = (usize, u64, u64, u64)> {
    prop_oneof![
        3 => (0..4_usize, 1..12_u64, 1..30_u64, 1..5_u64),
        3 => (0..4_usize, 1..100_000_u64, 1_000..100_000_000_u64, 1..100_000_u64),
        1 => ((0..2_usize), Just((1 << 31) - 1), 1..40_u64, Just(1)),
        1 => (Just(0_usize), 1..(1_u64 << 31), Just(49_999_999_969_999), Just(1)),
        1 => ((1..2_usize), Just(1 << 20), (1_u64 << 31) - 2..=1 << 31, Just(1)),
        1 => ((2..4_usize), 1..5_u64, 19_999_999_900_000..99_999_999_940_000_u64, 1..5_u64),
        1 => ((2..4_usize), Just(99_999), Just(999_999_999), 1..MAX_UNITS),
    ]
}

fn quota(kind: usize, limit: u64, unit: u64, refill: u64) -> Option<Quota> {
    let unit = Millis::new(unit);
    match kind {
        0 => Quota::fixed_window(limit, unit),
        1 => Quota::sliding_window(limit, unit),
        2 => Quota::token_bucket(limit, refill, unit),
        _ => Quota::leaky_bucket(limit, refill, unit),
    }
    .ok()
}

/// A state of this rule, and whether it is one for the short script.
fn state(kind: usize, limit: u64, unit: u64, refill: u64, now: u64) -> BoxedStrategy<(String, bool)> {
    if kind < 2 {
        let starts = prop_oneof![6 => Just((0_u64, 0)), 4 => (0..4_u64, Just(0)), 1 => (0..4_u64, 0..2_u64)];
        // In windows.
        let minute = 60_000 / unit;
        let ahead = prop_oneof![8 => Just(0), 1 => 1..4_u64, 1 => minute.saturating_sub(1)..=minute + 1];
        return (starts, ahead, near(limit), near(limit))
            .prop_map(move |((ago, off), ahead, used, previous)| {
                let current = now - now % unit;
                let start = (current + ahead * unit).saturating_sub(ago * unit) + off;
                let sound = start.is_multiple_of(unit)
                    && start <= now + 60_000
                    && used < MAX_UNITS - limit
                    && previous <= MAX_UNITS;
                if kind == 0 {
                    (format!("fw1 {start} {used};"), sound)
                } else {
                    (format!("sw1 {start} {previous} {used};"), sound)
                }
            })
            .boxed();
    }
    let full = limit * unit;
    let gone = prop_oneof![0..5_u64, 0..full / refill + 5, Just(full / refill), 0..=now];
    let ahead = prop_oneof![8 => Just(0_u64), 1 => 0..60_000_u64, 1 => 59_998..60_003_u64];
    (near(full), gone, ahead)
        .prop_map(move |(level, gone, ahead)| {
            let at = if ahead > 0 { now + ahead } else { now.saturating_sub(gone) };
            let code = if kind == 2 { "tb" } else { "lb" };
            // A debt of more than 20 years is corrupt.
            let is_debt = level.saturating_sub(full) <= refill.saturating_mul(630_720_000_000);
            (format!("{code}1 {level} {at};"), ahead <= 60_000 && level <= MAX_UNITS && is_debt)
        })
        .boxed()
}

/// Texts that are no state, and states that are written in another way.
fn garbled(text: &str, how: u32) -> String {
    let (head, last) = text[..text.len() - 1].rsplit_once(' ').unwrap();
    match how {
        0 => String::new(),
        1 => format!("{text} "),
        2 => format!("{text}{text}"),
        3 => text[..text.len() - 1].to_owned(),
        4 => text.replacen('1', "2", 1),
        5 => format!("{head} -{last};"),
        6 => format!("{head} {last}e1;"),
        7 => format!("{head} {last}.0;"),
        8 => text.replace("fw", "lb").replace("tb", "fw"),
        // 511 and 512 bytes, and more than 512, the first of which are a state.
        9 => format!("{head} {last:0>width$};", width = 509_usize.saturating_sub(head.len())),
        10 => format!("{head} {last:0>width$};", width = 510_usize.saturating_sub(head.len())),
        _ => format!("{head} {last:0>width$};{text}", width = 510_usize.saturating_sub(head.len())),
    }
}

/// A policy of one to three quotas, which all count by one key or each by its own.
fn policies() -> impl Strategy<Value = Policy> {
    let several = prop_oneof![3 => 1..=1_usize, 1 => 2..=2_usize, 1 => 3..=3_usize];
    (several.prop_flat_map(|many| prop::collection::vec(rules(), many)), any::<bool>()).prop_filter_map(
        "no such quotas",
        |(rules, is_apart)| {
            let quota = |((kind, limit, unit, refill), nth)| {
                let quota = quota(kind, limit, unit, refill)?.named(&format!("q{nth}")).unwrap();
                Some(if is_apart { quota.by(&format!("d{nth}")).unwrap() } else { quota })
            };
            Policy::new("api", rules.into_iter().zip(0..).map(quota).collect::<Option<Vec<_>>>()?).ok()
        },
    )
}

/// The rows of a policy, and whether all are rows for the short script.
fn rows(policy: &Policy, now: u64) -> impl Strategy<Value = (Vec<String>, bool)> + use<> {
    let sound_rows = 7 * u32::try_from(policy.rows().len()).unwrap();
    let row = |quotas: &[Quota]| {
        let states: Vec<_> = quotas
            .iter()
            .map(|quota| {
                // A bucket may reduce its numbers.
                let [limit, unit, refill] = quota.rule().parameters();
                let kind = ["fw", "sw", "tb", "lb"].iter().position(|code| *code == quota.rule().code()).unwrap();
                state(kind, limit, unit, refill.max(1), now)
            })
            .collect();
        let how = prop_oneof![sound_rows => Just(None), 2 => (0..12_u32).prop_map(Some)];
        (states, how).prop_map(|(states, how)| {
            let (texts, sound): (Vec<_>, Vec<_>) = states.into_iter().unzip();
            let is_usual = matches!(how, Some(0)) || how.is_none() && sound.iter().all(|sound| *sound);
            let text = texts.concat();
            (how.map_or_else(|| text.clone(), |how| garbled(&text, how)), is_usual)
        })
    };
    let rows: Vec<_> = policy.rows().iter().map(|of| row(&policy.quotas()[of.quotas().clone()])).collect();
    rows.prop_map(|rows| {
        let (stored, usual): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        (stored, usual.iter().all(|is_usual| *is_usual))
    })
}

fn case() -> impl Strategy<Value = Case> {
    let clocks =
        prop_oneof![4 => Just(NOW.get()), 2 => 0..1_000_000_u64, 1 => 99_999_999_900_000..99_999_999_999_999_u64];
    (policies(), clocks, 0..100_000_u64)
        .prop_flat_map(|(policy, clock, after)| {
            let now = (clock + after).min(99_999_999_999_999);
            let limit = policy.quotas().iter().map(|quota| quota.rule().parameters()[0]).min().unwrap();
            let costs = prop_oneof![4 => Just(1), 2 => 1..=limit, 1 => limit.saturating_sub(2).max(1)..=limit];
            let min_ttl = prop_oneof![Just(600_000), Just(600_000), Just(1_u64 << 40)];
            let rows = rows(&policy, now);
            (Just(policy), rows, costs, Just(now), min_ttl)
        })
        .prop_map(|(policy, (stored, is_usual), cost, now, min_ttl)| Case {
            policy,
            stored,
            stored_ms: None,
            cost,
            now,
            min_ttl,
            is_usual,
        })
}

fn load(connection: &mut redis::Connection, text: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection).unwrap()
}

/// The words of a state, without the leading zeros of its numbers.
fn numbers(state: &Option<String>) -> Option<Vec<&str>> {
    Some(state.as_ref()?.split(' ').map(|word| word.trim_start_matches('0')).collect())
}

fn compare(case: &Case, [plain, general]: [Outcome; 2]) -> Result<bool, TestCaseError> {
    if matches!(&plain.0, Ok(answer) if answer.is_empty()) {
        prop_assert!(!case.is_usual, "no answer to {case:?}");
        let after: Vec<_> = plain.1.into_iter().map(|(text, _)| text.unwrap_or_default()).collect();
        prop_assert_eq!(&after, &case.stored, "nothing is written: {:?}", case);
        return Ok(false);
    }
    prop_assert_eq!(plain.0.as_ref().ok(), general.0.as_ref().ok(), "{:?}", case);
    for ((after, plain_ms), (expected, general_ms)) in plain.1.iter().zip(&general.1) {
        // A number that was stored with leading zeros may keep them.
        prop_assert_eq!(numbers(after), numbers(expected), "{:?}", case);
        // What stays takes a little longer to expire each time it is stored anew.
        let longer = if case.stored_ms.is_some() { 1_000 } else { 30_000 };
        let is_same = plain_ms + longer > *general_ms && *plain_ms < general_ms + 30_000;
        prop_assert!(is_same, "{} and {} ms; {:?}", plain_ms, general_ms, case);
    }
    Ok(plain.0.is_ok())
}

/// The keys of `user:42`, and of each dimension of a policy.
fn with_keys<T>(run: impl FnOnce(&[(&str, &Key); 4]) -> T) -> T {
    let [first, second, third] = ["user:1", "user:2", "user:3"].map(Key::new);
    run(&[("", &key()), ("d0", &first), ("d1", &second), ("d2", &third)])
}

/// Runs both scripts on the same states, with `plain` as the short one. Returns how many checks the short one answered.
fn hold(connection: &mut redis::Connection, plain: &str, cases: u32, rng_seed: RngSeed) -> Result<u32, String> {
    let sha1 = load(connection, plain);
    load(connection, &Script::General.text(false));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, rng_seed, ..Config::default() };
    let (mut runner, answered) = (TestRunner::new(config), std::cell::Cell::new(0));
    let connection = std::cell::RefCell::new(connection);
    with_keys(|keys| {
        let held = runner.run(&case(), |case| {
            let call = case.call(Keys::from(keys), Clock::Caller);
            if call.script() == Script::Plain {
                let mut pipeline = redis::pipe();
                case.run(&call, &sha1, &mut pipeline);
                let outcomes = outcomes(&mut connection.borrow_mut(), &pipeline, case.stored.len());
                let is_answered = compare(&case, outcomes)?;
                answered.set(answered.get() + u32::from(is_answered));
            }
            Ok(())
        });
        held.map(|()| answered.get()).map_err(|failure| failure.to_string())
    })
}

/// How long rows are kept that have no expiry of their own.
const SHORT_MS: i64 = 1_000;

/// The same by the server's clock, on states of the current time. Runs in different milliseconds are not compared.
fn hold_by_the_servers_clock(connection: &mut redis::Connection, plain: &str) -> Result<u32, String> {
    let (sha1, mut compared) = (load(connection, plain), 0);
    load(connection, &Script::General.text(false));
    // The rest of a window is longer than what has no expiry of its own is kept here.
    let span = 700_000;
    let single = (0..4).map(|kind| Policy::new("api", [quota(kind, 5, span, 3).unwrap()]).unwrap());
    let apart = [0, 1].map(|kind| {
        let quota = |by: &str| quota(kind, 50, span, 3).unwrap().by(by).unwrap();
        Policy::new("apart", [quota("d0"), quota("d1")]).unwrap()
    });
    let policies: Vec<_> = single.chain(apart).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let start = now - now % u128::from(span);
    // A window that holds nothing may be kept for any time.
    let stored = [format!("fw1 {start} 0;"), format!("sw1 {start} 0 0;"), format!("sw1 {start} 3 0;"), String::new()];
    let mut cases: Vec<_> = policies
        .iter()
        .flat_map(|policy| {
            let code = policy.quotas()[0].rule().code();
            let fits = move |text: &&String| text.is_empty() || text.starts_with(code);
            stored.iter().filter(fits).map(move |text| (policy, text))
        })
        .flat_map(|(policy, text)| [0, 600_000].map(|min_ttl| (policy, text, min_ttl)))
        .map(|(policy, text, min_ttl)| Case {
            policy: policy.clone(),
            stored: vec![text.clone(); policy.rows().len()],
            stored_ms: Some(SHORT_MS),
            cost: 2,
            now: 0,
            min_ttl,
            is_usual: true,
        })
        .collect();
    // The digits of a second's fraction differ in number.
    let until = Instant::now() + Duration::from_millis(1_100);
    while Instant::now() < until {
        for case in &mut cases {
            let [plain, general] = with_keys(|keys| {
                let call = case.call(Keys::from(keys), Clock::Server);
                assert_eq!(call.script(), Script::Plain);
                let mut pipeline = redis::pipe();
                case.run(&call, &sha1, &mut pipeline);
                outcomes(connection, &pipeline, case.stored.len())
            });
            let now = |outcome: &Outcome| -> Option<u64> {
                outcome.0.as_ref().ok()?.split_once('@')?.1.split(' ').next()?.parse().ok()
            };
            let (Some(plain_now), Some(general_now)) = (now(&plain), now(&general)) else {
                return Err(format!("{plain:?}, {general:?}"));
            };
            if general_now.wrapping_sub(plain_now) > 5_000 {
                return Err(format!("{plain_now} before {general_now}"));
            }
            if plain_now == general_now {
                let (stored, kept): (Vec<_>, Vec<_>) = general.1.iter().cloned().unzip();
                compare(case, [plain, general]).map_err(|error| error.to_string())?;
                case.stored = stored.into_iter().map(Option::unwrap_or_default).collect();
                // A minimum is set anew each time.
                case.stored_ms = kept.into_iter().max().filter(|ms| *ms > 0 && case.min_ttl == 0).or(Some(SHORT_MS));
                compared += 1;
            }
        }
    }
    Ok(compared)
}

#[test]
fn both_scripts_do_the_same() {
    let server = Server::start();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000);
    let answered = hold(&mut server.connection(), &Script::Plain.text(false), cases, RngSeed::Random).unwrap();
    assert!(answered > cases / 2, "only {answered} checks were answered");
    let compared = hold_by_the_servers_clock(&mut server.connection(), &Script::Plain.text(false)).unwrap();
    assert!(compared > 100, "{compared}");
}

/// The comparison notices each of these faults.
#[test]
fn faults_of_the_short_script_are_noticed() {
    let server = Server::start();
    let mut connection = server.connection();
    let (text, mut unnoticed) = (Script::Plain.text(false), Vec::new());
    for (from, to) in [
        ("if level <= full then", "if level < full then"),
        ("if level <= full then", "if level <= full + unit then"),
        ("level + cost * unit, false", "level + unit, false"),
        ("level + lag * refill, 0, now", "level + lag * refill, 0, since"),
        ("level + lag * refill", "level + lag"),
        ("if level < 0 then", "if false then"),
        ("if lag <= 0 then", "if true then"),
        ("lag > 60000", "lag > 60001"),
        ("lag > 60000", "lag > 0"),
        ("level > full and (", "level > full and not ("),
        ("level > 2251799813685248 or level - full", "level - full"),
        (" or level - full > 630720000000 * refill", ""),
        ("lag + math.ceil(level / refill)", "lag + math.floor(level)"),
        ("(level < 2147483648 and format('%d', level) or level)", "format('%g', level)"),
        ("kind == 'tb' and '^tb1", "kind == 'tb' and '^[tf][bw]1"),
        ("- at, used <= limit", "- at, used < limit"),
        ("- at, used <= limit", "- at, used <= limit + 1"),
        ("- at, used <= limit", "- at, true"),
        ("used = used + cost", "used = used + 1"),
        ("at - at % unit, '0', 0, nil", "at, '0', 0, nil"),
        ("start, previous, used = nil,", "start, previous, used = start,"),
        ("and used or '0', 0", "and used or '0', used"),
        ("began > at + 60000 or", ""),
        ("began > at + 60000 or", "began > at + 60001 or"),
        ("began > at + 60000 or", "began > current or"),
        ("if began > current then", "if false then"),
        ("current = began\n", "\n"),
        ("or began % unit ~= 0", ""),
        ("or used + 0 > 2251799813685248 then", "then"),
        ("or previous + 0 > 2251799813685248 or", "or"),
        ("elseif used > 2251799813685248 or", "elseif"),
        ("used > 2251799813685248 or previous + 0 > 2251799813685248 then", "used > 2251799813685248 then"),
        ("current - began == unit and used or '0'", "used"),
        ("current - began == unit and used or '0'", "'0'"),
        ("current - began == unit and used or '0'", "current - began == unit and previous or '0'"),
        (
            "(left < unit and left or unit) <= (limit - used) * unit",
            "(left < unit and left or unit) < (limit - used) * unit",
        ),
        ("(left < unit and left or unit) <= (limit - used) * unit", "(left < unit and left or unit) <= limit * unit"),
        ("(left < unit and left or unit) <= (limit - used) * unit", "unit <= (limit - used) * unit"),
        ("(left < unit and left or unit) <= (limit - used) * unit", "(unit - left) <= (limit - used) * unit"),
        ("(left < unit and left or unit)", "left"),
        ("left + unit or left", "left or left"),
        ("left + unit or left", "left + unit or 1"),
        ("if #stored == 512 then", "if false then"),
        ("if #stored == 512 then", "if #stored > 20 then"),
        ("if ttl_min and life < ttl_min + 0 then", "if false then"),
        ("if ttl_min and life < ttl_min + 0 then", "if ttl_min then"),
        ("admitted and 'a' or 'd'", "'d'"),
        ("admitted = false", "admitted = true"),
        ("not known and not ttl_min", "true"),
        ("elseif lasts > life then", "else"),
        ("if (afters or i + 4 > quotas_end) and place <= #stored then", "if false then"),
        ("(afters or i + 4 > quotas_end) and", "not afters and i + 4 > quotas_end and"),
        ("(afters or i + 4 > quotas_end) and", "afters and"),
        ("any or stored ~= ''", "stored ~= ''"),
        ("any or stored ~= ''", "true"),
        ("(stored ~= '' and stored or", "(stored or"),
        ("kind == 'sw' and '1 0 0 0;' or", ""),
        ("afters and afters[nth] or after", "after"),
        ("if i == 1 or afters then", "if i == 1 then"),
        ("ARGV[i + 1] + 0, ARGV[i + 2] + 0", "ARGV[2] + 0, ARGV[i + 2] + 0"),
    ] {
        assert!(text.contains(from), "{from} is not in plain.lua");
        if hold(&mut connection, &text.replace(from, to), 40_000, RngSeed::Fixed(1)).is_ok() {
            unnoticed.push((from, to));
        }
    }
    for (from, to) in [
        ("if #micros < 6 then", "if false then"),
        ("sub(micros, 1, 3)", "sub(micros, 1, 2)"),
        ("' ' .. units .. ' ' .. before", "' 1 ' .. before"),
        ("not known and not ttl_min", "not known"),
        ("stays and used > cost", "stays"),
        ("stays and used > cost", "stays and used >= cost"),
        ("cost * unit, false", "cost * unit, stays"),
    ] {
        assert!(text.contains(from), "{from} is not in plain.lua");
        if hold_by_the_servers_clock(&mut connection, &text.replace(from, to)).is_ok() {
            unnoticed.push((from, to));
        }
    }
    assert_eq!(unnoticed, []);
}

#[test]
fn a_batch_takes_the_calls_of_both_scripts() {
    let server = Server::start();
    let mut connection = server.connection();
    let keys: Vec<_> = (0..6).map(|nth| Key::new(format!("user:{nth}"))).collect();
    let bucket = |name: &str| quota(2, 5, 60_000, 1).unwrap().named(name).unwrap();
    let by = |name: &str| bucket(name).by(name).unwrap();
    let policies = [vec![bucket("a")], vec![bucket("a"), bucket("b")], vec![by("a"), by("b")]];
    let stored = [
        String::new(),
        format!("tb1 300000 {}", NOW.get()),
        format!("tb1 60000 {}", NOW.get() + 120_000),
        "tb1".to_owned(),
        format!("tb1 60000 {}", NOW.get()),
        String::new(),
    ];
    let settings = [(Clock::Caller, 0), (Clock::Caller, 600_000), (Clock::Server, 600_000), (Clock::Server, 0)];
    let cases = policies.into_iter().flat_map(|quotas| settings.map(|settings| (quotas.clone(), settings)));
    for (quotas, (clock, min_ttl)) in cases {
        let policy = Policy::new("api", quotas).unwrap();
        let rows = policy.rows().len();
        let (mut names, mut arguments, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..2 {
            for ((key, text), nth) in keys.iter().zip(&stored).zip(0..) {
                let several = [("", key), ("a", key), ("b", key)];
                let check = Check::new(&policy, &several, NOW);
                // The fifth is no plain check.
                let operation = if nth == 4 { Operation::Peek(check) } else { Operation::Check(check) };
                let call = Call::new(operation, clock, Millis::new(min_ttl)).unwrap();
                let script = if round == 0 { Script::General } else { call.script() };
                let mut words = Vec::new();
                call.words(script, |word| words.push(word.to_owned()));
                redis::cmd("DEL").arg(&words[1..=rows]).exec(&mut connection).unwrap();
                match (text.is_empty(), nth) {
                    (_, 5) => {
                        redis::cmd("RPUSH").arg(&words[1]).arg("1").exec(&mut connection).unwrap();
                    }
                    (true, _) => {}
                    (false, _) => {
                        let stored = format!("{text};").repeat(policy.rows()[0].quotas().len());
                        redis::cmd("SET").arg(&words[1]).arg(stored).exec(&mut connection).unwrap();
                    }
                }
                if round == 0 {
                    let mut command = redis::cmd("EVAL");
                    command.arg(Script::General.text(false)).arg(&words);
                    let answer = command.query::<String>(&mut connection);
                    alone.push(answer.map_err(|error| error.to_string()));
                } else {
                    names.extend_from_slice(&words[1..=rows]);
                    arguments.extend([rows.to_string(), (words.len() - 1 - rows).to_string()]);
                    arguments.extend_from_slice(&words[1 + rows..]);
                }
            }
        }
        let mut batch = redis::cmd("EVAL");
        batch.arg(batch_script(false)).arg(names.len()).arg(&names).arg(&arguments);
        let answers: Vec<String> = batch.query(&mut connection).unwrap();
        assert_eq!(answers.len(), alone.len());
        // The time of an answer differs.
        let timeless = |answer: &str| match answer.split_once('@') {
            Some((verdict, rest)) => format!("{verdict}{}", rest.split_once(' ').unwrap().1),
            None => answer.to_owned(),
        };
        for (answer, alone) in answers.iter().zip(&alone) {
            match alone {
                Ok(alone) => assert_eq!(timeless(answer), timeless(alone)),
                Err(error) => {
                    let code = answer.strip_prefix('-').unwrap().split(' ').next().unwrap();
                    assert!(error.contains(code), "{answer}: {error}");
                }
            }
        }
        assert_eq!(answers.iter().filter(|answer| answer.starts_with('-')).count(), 2, "{answers:?}");
    }
}
