//! A stored value that Tidegate cannot have written is an error and is left unchanged.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use crate::support::Server;
use tidegate_core::lending::Question;
use tidegate_core::{Block, Check, ErrorKind, Key, Keys, LimiterExt, Millis, Policy, Quota, Refund};
use tidegate_testing::{MINUTE, NOW, key, of_each_algorithm, policy};

#[tokio::test]
async fn a_foreign_value_is_corrupt_and_left_unchanged() {
    let server = Server::start();
    let mut connection = server.connection();
    let limiter = server.limiter();
    let second = Millis::from_secs(1);
    let quotas = [
        Quota::token_bucket(10, 1, second),
        Quota::fixed_window(10, second),
        Quota::sliding_window(10, second),
        Quota::sliding_log(10, second),
        Quota::leaky_bucket(10, 1, second),
    ];
    let policy = Policy::new("api", quotas.map(Result::unwrap)).unwrap();
    let key = key();
    let name = "{tg1:api:tb1000.fw1000.sw1000.sl1000.lb1000:ip:192.0.2.1}";
    let good = "tb1 3000 7;fw1 1000 3;sw1 2000 1 2;sl1 5:1 9:2;lb1 0 8;";
    let too_late = format!("tb1 0 {}", 1_u64 << 48);
    let too_full = format!("tb1 {} 7", (1_u64 << 51) + 1);
    let far = (1_u64 << 48) - 16_656;
    let [fw_far, sw_far] = ["fw1 {} 3", "sw1 {} 1 2"].map(|part| part.replace("{}", &far.to_string()));
    let [tb_far, lb_far] = ["tb1 3000 {}", "lb1 0 {}"].map(|part| part.replace("{}", &far.to_string()));
    let (sl_far, undrained) = (format!("9:2 {far}:1"), format!("tb1 {} 7", 1_u64 << 51));
    // An empty value counts as none.
    let mut garbage: Vec<Vec<u8>> = (1..good.len()).map(|end| good.as_bytes()[..end].to_vec()).collect();
    for (from, to) in [
        ("tb1", "tb2"),
        ("tb1", "lb1"),
        ("tb1", " tb1"),
        ("fw1", "sw1"),
        ("3000", "-1"),
        ("3000", "3e3"),
        ("3000", "0x10"),
        ("3000", "3.5"),
        ("3000", "nan"),
        ("3000", ""),
        ("3000 7", "3000 7 7"),
        ("tb1 3000 7", &too_late),
        ("tb1 3000 7", &too_full),
        ("3000", &"9".repeat(400)),
        // These would deny the key for thousands of years.
        ("fw1 1000 3", &fw_far),
        ("sw1 2000 1 2", &sw_far),
        ("9:2", &sl_far),
        ("tb1 3000 7", &tb_far),
        ("lb1 0 8", &lb_far),
        ("tb1 3000 7", &undrained),
        ("fw1 1000", "fw1 1001"),
        ("fw1 1000 3", "fw1 1000 2251799813685249"),
        ("sw1 2000", "sw1 2500"),
        ("sw1 2000 1 2", "sw1 2000 2251799813685249 2"),
        ("5:1", "9:1"),
        ("5:1", "5:0"),
        ("5:1", "5:4294967295"),
        ("5:1 9:2", "9:2 5:1"),
        ("5:1", "5"),
        ("lb1 0 8;", "lb1 0 8; "),
        ("lb1 0 8;", "lb1 0 8;tb1 0 0;"),
    ] {
        let garbled = good.replacen(from, to, 1);
        assert_ne!(garbled, good, "{from}");
        garbage.push(garbled.into_bytes());
    }
    garbage.push(b"\xff\xfe".to_vec());
    garbage.push(b"tb1 3000 7\0".to_vec());

    let check = Check::new(&policy, &key, NOW);
    let refund = Refund::new(&policy, &key, 1, NOW, NOW);
    for stored in &garbage {
        redis::cmd("SET").arg(name).arg(stored).exec(&mut connection).unwrap();
        let shown = String::from_utf8_lossy(stored);
        assert_eq!(limiter.check(check).await.unwrap_err().kind(), ErrorKind::Corrupt, "{shown}");
        assert_eq!(limiter.check(check.cost(11)).await.unwrap_err().kind(), ErrorKind::Corrupt, "{shown}");
        assert_eq!(limiter.peek(check).await.unwrap_err().kind(), ErrorKind::Corrupt, "{shown}");
        assert_eq!(limiter.refund(refund).await.unwrap_err().kind(), ErrorKind::Corrupt, "{shown}");
        assert_eq!(limiter.store().explain(&policy, &key).await.unwrap_err().kind(), ErrorKind::Corrupt, "{shown}");
        let after: Vec<u8> = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(&after, stored);
    }
    redis::cmd("SET").arg(name).arg(good).exec(&mut connection).unwrap();
    assert!(limiter.check(check).await.unwrap().is_allowed());

    redis::cmd("DEL").arg(name).exec(&mut connection).unwrap();
    redis::cmd("RPUSH").arg(name).arg("1").exec(&mut connection).unwrap();
    let wrong_type = limiter.check(check).await.unwrap_err();
    assert_eq!(wrong_type.kind(), ErrorKind::Corrupt);
    assert!(wrong_type.to_string().contains(name), "{wrong_type}");
    let kind: String = redis::cmd("TYPE").arg(name).query(&mut connection).unwrap();
    assert_eq!(kind, "list");
    limiter.reset(&policy, (&key).into()).await.unwrap();

    // The same holds for the stored answer of a token.
    let once = check.idempotent("token", Millis::from_secs(60));
    limiter.check(once).await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:once:*").query(&mut connection).unwrap();
    for stored in ["a", "x", "a@1 1", "a@x 1 ", "a@1 1 tb1", "atb1 0 0;", "d@1 1 fw1 0 0;"] {
        redis::cmd("SET").arg(&keys[0]).arg(stored).exec(&mut connection).unwrap();
        assert_eq!(limiter.check(once).await.unwrap_err().kind(), ErrorKind::Corrupt, "{stored}");
    }
}

/// The short script leaves such a value to the general one, whose error is that of a peek.
#[tokio::test]
async fn a_plain_check_of_a_foreign_value_is_corrupt_too() {
    let server = Server::start();
    let mut connection = server.connection();
    let (limiter, key) = (server.limiter(), key());
    let (now, far, over) = (NOW.get(), (1_u64 << 48) - 16_656, (1_u64 << 51) + 1);
    for policy in of_each_algorithm(10, 10, MINUTE) {
        let name = format!("{{tg1:api:{}60000:ip:192.0.2.1}}", policy.quotas()[0].rule().code());
        let mut met = 0;
        for part in ["fw1", "sw1", "tb1", "lb1", "fw2", " fw1", ""] {
            for numbers in [
                "1 60000",
                "60001 1",
                "60000",
                "-1 1",
                "1e3 1",
                "0x10 1",
                "60000 1 1 1",
                &format!("{far} 1"),
                &format!("{over} {now}"),
                &format!("{now} {over}"),
                &format!("{now} {over} {over}"),
                &format!("{now} 1 {over}"),
                &format!("60000 {over} 1"),
                &"9".repeat(400),
                &format!("{now} {}{now}", "0".repeat(60)),
            ] {
                for end in [";", "", "; ", ";;", ";tb1 0 0;"] {
                    let stored = format!("{part} {numbers}{end}");
                    redis::cmd("SET").arg(&name).arg(&stored).exec(&mut connection).unwrap();
                    let check = Check::new(&policy, &key, NOW);
                    // Some are states of this policy. Those are read the same way.
                    match limiter.peek(check).await {
                        Ok(peeked) => {
                            assert_eq!(
                                limiter.check(check).await.unwrap().is_allowed(),
                                peeked.is_allowed(),
                                "{stored}"
                            );
                        }
                        Err(expected) => {
                            let error = limiter.check(check).await.unwrap_err();
                            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Corrupt, expected.to_string()));
                            let after: String = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
                            assert_eq!(after, stored);
                            met += 1;
                        }
                    }
                }
            }
        }
        assert!(met > 500, "{met}");
        redis::cmd("DEL").arg(&name).exec(&mut connection).unwrap();
        redis::cmd("RPUSH").arg(&name).arg("1").exec(&mut connection).unwrap();
        let error = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        redis::cmd("DEL").arg(&name).exec(&mut connection).unwrap();
    }
}

/// A value that is longer than any state is not read: reading 10 MB blocks the server for some tens of milliseconds, and parsing a
/// log as long for hundreds.
#[tokio::test]
async fn a_value_longer_than_any_state_is_refused_unread() {
    let server = Server::start();
    let mut connection = server.connection();
    let (limiter, second) = (server.limiter(), Millis::from_secs(1));
    let log = Policy::new("log", [Quota::sliding_log(1_000, second).unwrap()]).unwrap();
    let slots = Quota::concurrency(1_000, second).unwrap().by("user").unwrap();
    let several = [slots, Quota::fixed_window(9, second).unwrap().by("tenant").unwrap()];
    let several = Policy::new("several", several).unwrap().group_by("tenant").unwrap();
    let (user, tenant) = (key(), Key::new("tenant:1"));
    let entries = |entry: &dyn Fn(u64) -> String| (0..300_000).map(entry).collect::<String>();
    let long_log = format!("sl1{};", entries(&|place| format!(" {place}:1")));
    let long_slots = format!("cc1{};", entries(&|place| format!(" {place:016x}:{place}:1")));
    let rows = [("user", &user), ("tenant", &tenant)];
    for (policy, keys, name, value) in [
        (&log, (&user).into(), "{tg1:log:sl1000:ip:192.0.2.1}", &long_log),
        (
            &several,
            Keys::from(&rows),
            "{tg1:several@tenant:fw1000:tenant:1}|several@user:cc1000:ip:192.0.2.1",
            &long_slots,
        ),
    ] {
        redis::cmd("SET").arg(name).arg(value).exec(&mut connection).unwrap();
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
        let error = limiter.check(Check::new(policy, keys, NOW).idempotent("t", second)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(" bytes"), "{error}");
        let read: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        assert!(read.contains("cmdstat_getrange:") && !read.contains("cmdstat_get:"), "{read}");
        let length: usize = redis::cmd("STRLEN").arg(name).query(&mut connection).unwrap();
        assert_eq!(length, value.len(), "the value is left unchanged");
    }
    // The longest states are read.
    let instants: String = (0..1_000).map(|place| format!(" {}:1", NOW.get() - 999 + place)).collect();
    let full = format!("sl1{instants};");
    redis::cmd("SET").arg("{tg1:log:sl1000:ip:192.0.2.1}").arg(&full).exec(&mut connection).unwrap();
    assert!(!limiter.check(Check::new(&log, &user, NOW)).await.unwrap().is_allowed());
}

#[tokio::test]
async fn foreign_loans_are_corrupt_and_left_unchanged() {
    let server = Server::start();
    let mut connection = server.connection();
    let (limiter, key, second) = (server.limiter(), key(), Millis::from_secs(1));
    let policy = policy(Quota::fixed_window(10, second));
    let name = "{tg1:api:fw1000:ip:192.0.2.1}";
    let (now, last) = (NOW.get(), 16 * NOW.get());
    let good = format!("fw1 {now} 6;ln1 {last} 32 {}:1:{} {last}:2:{};", last - 16, now + 400, now + 900);
    let garbled = (name.len()..good.len()).map(|end| good[..end].to_owned());
    let garbled = garbled.filter(|text| text.contains('l') && !text.ends_with(';'));
    let replaced = [
        ("ln1", "ln2"),
        ("ln1", "ln1 "),
        (" 32 ", " 1041 "),
        (" 32 ", " -1 "),
        (" 32 ", " 1e1 "),
        (":1:", ":2251799813685249:"),
        (":1:", ":1.5:"),
        (":1:", "::"),
        ("400 ", "400"),
        ("900;", "900; "),
        ("900;", "900;ln1 1 16;"),
        ("900;", "900;fw1 0 0;"),
        (&format!("fw1 {now} 6;"), ""),
        (&format!("ln1 {last}"), "ln1 0"),
        (&format!("ln1 {last}"), "ln1 9007199254740994"),
    ]
    .map(|(from, to)| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        text
    });
    let check = Check::new(&policy, &key, NOW);
    let question = Question { wanted: 9, lifetime: second, ..Question::default() };
    for stored in garbled.chain(replaced) {
        redis::cmd("SET").arg(name).arg(&stored).exec(&mut connection).unwrap();
        let refund = Refund::new(&policy, &key, 1, NOW, NOW);
        let lent = limiter.lend(check, question).await.map(drop);
        for refused in [
            lent,
            limiter.check(check).await.map(drop),
            limiter.check(check.idempotent("token", second)).await.map(drop),
            limiter.peek(check).await.map(drop),
            limiter.refund(refund).await,
            limiter.store().explain(&policy, &key).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt, "{stored}");
        }
        let after: String = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(after, stored);
        limiter.reset(&policy, (&key).into()).await.unwrap();
        let after: Option<String> = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(after, None, "a reset removes what cannot be read");
    }
    redis::cmd("SET").arg(name).arg(&good).exec(&mut connection).unwrap();
    assert!(limiter.check(check).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_foreign_value_among_several_rows_is_corrupt_and_left_unchanged() {
    let server = Server::start();
    let mut connection = server.connection();
    let (limiter, second) = (server.limiter(), Millis::from_secs(1));
    let quotas = [
        Quota::concurrency(3, second).unwrap().by("user").unwrap(),
        Quota::fixed_window(10, second).unwrap().by("user").unwrap(),
        Quota::penalty(second, 2, Millis::from_secs(8)).unwrap().by("user").unwrap(),
        Quota::token_bucket(10, 1, second).unwrap().by("tenant").unwrap(),
    ];
    let policy = Policy::new("api", quotas).unwrap().group_by("tenant").unwrap();
    let (user, tenant) = (Key::new("user:1"), Key::new("tenant:1"));
    let keys = [("user", &user), ("tenant", &tenant)];
    let rows =
        ["{tg1:api@tenant:tb1000:tenant:1}|api@user:cc1000.fw1000.pn1000:user:1", "{tg1:api@tenant:tb1000:tenant:1}"];
    let good = ["cc1 00000000000000aa:5:1 00000000000000ab:5:2;fw1 1000 3;pn1 2 7;", "tb1 3000 7;"];
    let far = (1_u64 << 48) - 16_656;
    let (late_slot, late_block) = (format!("aa:{far}:1"), format!("pn1 2 {far}"));
    let garbled = [
        (0, "cc1", "cc2"),
        (0, "aa:5:1", "aa:9:1"),
        (0, "aa:5:1", &late_slot),
        (0, "aa:5:1", "aa:5"),
        (0, "aa:5:1", "aa:5:2251799813685249"),
        (0, "00000000000000aa", "xx"),
        (0, "pn1 2", "pn1 65"),
        (0, "pn1 2 7", &late_block),
        (0, "pn1 2 7;", ""),
        (0, "pn1 2 7", "pn1 2 7 31536000001"),
        (0, "pn1 2 7", "pn1 2 7 "),
        (0, "pn1 2 7", "pn1 2 7 -1"),
        (0, "pn1 2 7", "pn1 2 7 1 1"),
        (0, "pn1 2 7", "pn1 2  7"),
        (0, "pn1 2 7", "pn1 65 7 1"),
        (0, "pn1 2 7", &format!("pn1 2 {far} 1")),
        (0, "pn1 2 7;", "pn1 2 7;tb1 3000 7;"),
        (1, "tb1 3000 7;", "tb1 3000 7;tb1 3000 7;"),
        (1, "tb1", "fw1"),
    ];
    let check = Check::new(&policy, &keys, NOW).idempotent("t", second);
    for (row, from, to) in garbled {
        let mut stored = good.map(str::to_owned);
        stored[row] = stored[row].replacen(from, to, 1);
        for (name, text) in rows.iter().zip(&stored) {
            redis::cmd("SET").arg(name).arg(text).exec(&mut connection).unwrap();
        }
        assert_eq!(limiter.check(check).await.unwrap_err().kind(), ErrorKind::Corrupt, "{stored:?}");
        assert_eq!(limiter.peek(check).await.unwrap_err().kind(), ErrorKind::Corrupt, "{stored:?}");
        for span in [Millis::ZERO, second] {
            let block = Block::new(&policy, &keys, span, NOW);
            assert_eq!(limiter.block(block).await.unwrap_err().kind(), ErrorKind::Corrupt, "{stored:?}");
        }
        let after: Vec<String> = redis::cmd("MGET").arg(&rows).query(&mut connection).unwrap();
        assert_eq!(after, stored);
    }
    for (name, text) in rows.iter().zip(&good) {
        redis::cmd("SET").arg(name).arg(text).exec(&mut connection).unwrap();
    }
    assert!(limiter.check(check).await.unwrap().is_allowed());
    limiter.reset(&policy, (&keys).into()).await.unwrap();
    let left: Vec<Option<String>> = redis::cmd("MGET").arg(&rows).query(&mut connection).unwrap();
    assert_eq!(left, [None, None]);
}
