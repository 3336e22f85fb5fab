//! Access logs: lines of any form, and what rules do with the requests in them.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_core::{Check, Error, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
use tidegate_traffic::accesslog::{
    AccessReport, Adapted, Client, Entry, Field, Fields, Outcome, Parsed, Parser, Replay, Shadow, Tally, Tuned,
    Unreadable, tune,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// 1 January 2026.
const START_S: u64 = 1_767_225_600;

fn read(line: &str) -> std::result::Result<Parsed<'_>, Unreadable> {
    Parser::new(Fields::default()).parse(line)
}

fn request(line: &str) -> Entry<'_> {
    match read(line) {
        Ok(Parsed::Request(entry)) => entry,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_combined_format_and_its_variants_are_read() {
    let full = r#"192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "https://example.com/" "Mozilla/5.0 (X11)""#;
    let entry = request(full);
    assert_eq!((entry.at.get(), entry.peer, entry.status), (971_211_336_000, "192.0.2.1".parse().ok(), Some(200)));
    assert_eq!((&*entry.method, &*entry.path, entry.agent.as_deref()), ("GET", "/a?b=c", Some("Mozilla/5.0 (X11)")));
    assert_eq!((entry.host, entry.subject, entry.tier), (None, None, None));

    // A field behind, a host in front, the common format, and an absolute target.
    assert_eq!(request(&format!(r#"{full} "203.0.113.7" 0.003"#)).agent.as_deref(), Some("Mozilla/5.0 (X11)"));
    assert_eq!(request(&format!("www.example.com:443 {full}")).host.as_deref(), Some("www.example.com:443"));
    let common = "2001:db8::1 - - [10/Oct/2000:20:55:36 +0000] \"POST http://example.com/x HTTP/1.0\" 201 -\r";
    let entry = request(common);
    assert_eq!((entry.at.get(), entry.peer, entry.agent), (971_211_336_000, "2001:db8::1".parse().ok(), None));
    assert_eq!((&*entry.method, &*entry.path, entry.host.as_deref()), ("POST", "/x", Some("example.com")));

    // Nothing that a client sends ends a field.
    let hostile = r#"192.0.2.1 - a] [b [10/Oct/2000:20:55:36 +0000] "GET /\"x\\\x22/é HTTP/1.1" 404 0 "-" "a \" b""#;
    let entry = request(hostile);
    assert_eq!((&*entry.path, entry.status, entry.agent.as_deref()), ("/\"x\\\"/é", Some(404), Some(r#"a \" b"#)));
    assert_eq!(request(&full.replace("Mozilla/5.0 (X11)", "-")).agent, None);
    assert_eq!(request(&full.replace("192.0.2.1", "client.example.com")).peer, None);
}

#[test]
fn a_line_that_cannot_be_read_says_why() {
    let time = "[10/Oct/2000:13:55:36 -0700]";
    for (line, expected) in [
        ("", Ok(Parsed::Blank)),
        ("\u{0}\u{1}", Err(Unreadable::NoTime)),
        ("192.0.2.1 - - \"GET / HTTP/1.1\" 200 1", Err(Unreadable::NoTime)),
        (&format!("192.0.2.1 - - {time} \"GET /cut"), Err(Unreadable::NoRequest)),
        (&format!("192.0.2.1 - - {time} GET / 200"), Err(Unreadable::NoRequest)),
        ("192.0.2.1 - - [yesterday] \"GET / HTTP/1.1\" 200 1", Err(Unreadable::BadTime)),
        (&format!("192.0.2.1 - - {time} \"-\" 400 0"), Ok(Parsed::NoRequest)),
        (&format!(r#"192.0.2.1 - - {time} "\x16\x03\x01" 400 0"#), Ok(Parsed::NoRequest)),
        ("{\"time\": 1", Err(Unreadable::NoJson)),
        ("{\"time\": 1} x", Err(Unreadable::NoJson)),
        ("{\"method\": \"GET\", \"path\": \"/\"}", Err(Unreadable::NoField(Field::Time))),
        ("{\"time\": 1700000000, \"method\": \"GET\"}", Err(Unreadable::NoField(Field::Path))),
        ("{\"time\": 1700000000, \"path\": \"/\"}", Err(Unreadable::NoField(Field::Method))),
        ("{\"time\": \"soon\", \"method\": \"GET\", \"path\": \"/\"}", Err(Unreadable::BadTime)),
        ("{\"time\": 1700000000, \"request\": \"-\", \"method\": \"GET\"}", Ok(Parsed::NoRequest)),
        ("{\"time\": 1700000000, \"request\": \"\\u0016\"}", Ok(Parsed::NoRequest)),
    ] {
        assert_eq!(read(line), expected, "{line}");
    }
    let said = Unreadable::NoField(Field::Ip).to_string();
    assert_eq!(said, "it has no known field for the ip; name it with --field ip=FIELD");
}

#[test]
fn json_of_the_usual_servers_is_read_without_naming_fields() {
    let nginx = r#"{"time_iso8601":"2026-01-01T00:00:00+00:00","remote_addr":"192.0.2.1","request":"GET /a HTTP/2.0","status":"200","http_user_agent":"ua","host":"example.com"}"#;
    let caddy = r#"{"level":"info","ts":1767225600.0,"request":{"remote_ip":"203.0.113.9","client_ip":"192.0.2.1","method":"GET","host":"example.com","uri":"/a","headers":{"User-Agent":["ua","other"]}},"status":200}"#;
    let traefik = r#"{"ClientAddr":"192.0.2.1:5000","ClientHost":"192.0.2.1","RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/a","StartUTC":"2026-01-01T00:00:00.000000000Z","DownstreamStatus":200,"request_User-Agent":"ua"}"#;
    let cloudflare = r#"{"ClientIP":"192.0.2.1","ClientRequestHost":"example.com","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeStartTimestamp":1767225600000000000,"EdgeResponseStatus":200,"ClientRequestUserAgent":"ua"}"#;
    let elastic = r#"{"@timestamp":"2026-01-01T01:00:00.000+01:00","client":{"ip":"192.0.2.1"},"http.request.method":"GET","url":{"path":"/a","domain":"example.com"},"user_agent":{"original":"ua"},"http":{"response":{"status_code":200}}}"#;
    for line in [nginx, caddy, traefik, cloudflare, elastic] {
        let entry = request(line);
        assert_eq!((entry.at.get(), entry.peer), (START_S * 1_000, "192.0.2.1".parse().ok()), "{line}");
        assert_eq!((&*entry.method, &*entry.path, entry.host.as_deref()), ("GET", "/a", Some("example.com")), "{line}");
        assert_eq!((entry.agent.as_deref(), entry.status), (Some("ua"), Some(200)), "{line}");
    }
}

#[test]
fn named_fields_replace_the_known_ones() {
    let given = [(Field::Ip, "who.ip".to_string()), (Field::Subject, "user".into()), (Field::Path, "a.b".into())];
    let mut parser = Parser::new(Fields::new(&given));
    let line = r#"{"time":1767225600,"ip":"203.0.113.1","who":{"ip":"[2001:db8::1]:443"},"user":"al\"ice","method":"GET","a.b":"/x","path":"/y"}"#;
    let Ok(Parsed::Request(entry)) = parser.parse(line) else { panic!() };
    assert_eq!(
        (entry.peer, entry.subject.as_deref(), &*entry.path),
        ("2001:db8::1".parse().ok(), Some("al\"ice"), "/x")
    );
}

proptest! {
    #[test]
    fn no_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..220) {
        let _ = read(&String::from_utf8_lossy(&bytes));
        // Close to valid lines, too.
        for valid in [
            r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /\x22\\ HTTP/1.1" 200 2326 "https://example.com/" "Mozilla/5.0""#,
            r#"{"time":1767225600,"request":{"client_ip":"192.0.2.1","uri":"/a","method":"GET","headers":{"User-Agent":["ua"]}}}"#,
        ] {
            let mut line = valid.as_bytes()[..cut.min(valid.len())].to_vec();
            line.extend(&bytes[..bytes.len().min(5)]);
            line.extend(&valid.as_bytes()[(cut + 3).min(valid.len())..]);
            let _ = read(&String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn a_line_that_a_server_writes_is_read_as_the_request(
        at_s in 0_u64..4_000_000_000,
        address in any::<[u8; 16]>(),
        is_v4 in any::<bool>(),
        method in "[A-Z]{1,12}",
        path in "/[!-~é]{0,40}",
        agent in "[ -~]{1,60}",
        user in "[a-zA-Z0-9 \\[\\]]{1,12}",
        zone in -12_i8..=14,
    ) {
        let peer = match is_v4 {
            true => IpAddr::V4(Ipv4Addr::new(address[0], address[1], address[2], address[3])),
            false => IpAddr::from(address),
        };
        // As Apache escapes it.
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let offset = jiff::tz::Offset::from_hours(zone)?;
        let local = offset.to_datetime(jiff::Timestamp::from_second(i64::try_from(at_s)?)?);
        let time = format!("{} {}{:02}00", local.strftime("%d/%b/%Y:%H:%M:%S"), if zone < 0 { '-' } else { '+' }, zone.unsigned_abs());
        let line = format!("{peer} - {user} [{time}] \"{method} {} HTTP/1.1\" 200 1 \"-\" \"{}\"", escaped(&path), escaped(&agent));
        let Ok(Parsed::Request(entry)) = read(&line) else { panic!("{line}") };
        prop_assert_eq!((entry.at, entry.peer), (UnixMillis::new(at_s * 1_000), Some(peer)));
        prop_assert_eq!((&*entry.method, &*entry.path), (&*method, &*path));
        let agent = escaped(&agent);
        prop_assert_eq!(entry.agent.as_deref(), Some(agent.as_str()).filter(|agent| *agent != "-"));

        let line = json!({ "time": at_s, "ip": peer.to_string(), "method": method, "path": path, "agent": agent }).to_string();
        let Ok(Parsed::Request(entry)) = read(&line) else { panic!("{line}") };
        prop_assert_eq!((entry.at, entry.peer), (UnixMillis::new(at_s * 1_000), Some(peer)));
        prop_assert_eq!((&*entry.method, &*entry.path), (&*method, &*path));
    }
}

/// A request of a generated log: the second, the client, and the path.
type Sent = (u64, u8, &'static str);

fn entry(&(second, client, path): &Sent) -> Entry<'static> {
    Entry {
        at: UnixMillis::new((START_S + second) * 1_000),
        peer: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, client))),
        method: "POST".into(),
        path: path.into(),
        host: None,
        agent: None,
        status: None,
        subject: None,
        tier: None,
    }
}

fn limited(quotas: Value) -> Adapted {
    Adapted::new(
        json!({ "limits": { "login": { "quotas": quotas } }, "rules": [{ "name": "all", "limits": ["login"] }] }),
    )
}

fn report(rules: &Adapted, log: &[Sent]) -> Result<AccessReport> {
    let (mut replay, mut tally) = (Replay::new(rules)?, Tally::default());
    for sent in log {
        let entry = entry(sent);
        tally.line(&Parsed::Request(entry.clone()));
        let client = replay.client(&entry);
        let outcome = replay.decide(&entry, client);
        tally.outcome(&entry, client, outcome);
    }
    Ok(AccessReport::new(vec!["log".into()], "rules", &tally, replay.causes(), 10))
}

/// The denied requests, the clients, the first and the last time, all without an order.
fn found(report: &AccessReport) -> Vec<(String, u64, u64, u64)> {
    let second = |ms: Option<u64>| ms.unwrap_or_default() / 1_000 - START_S;
    let found = report.denied_most.iter();
    found
        .map(|one| (one.client.to_string(), one.denied, second(one.first_denied_ms), second(one.last_denied_ms)))
        .collect()
}

#[test]
fn an_attacker_is_denied_exactly_where_the_reference_denies() -> Result<()> {
    let quota = json!([{ "algorithm": "sliding_log", "limit": 3, "window_ms": 60_000, "by": "ip" }]);
    // One request every ten seconds for two minutes: three of each minute pass. Others send one.
    let mut log: Vec<Sent> =
        (0..12).map(|n| (100 + n * 10, 66, "/login")).chain((1..9).map(|n| (0, n, "/login"))).collect();
    log.sort_unstable();
    let report = report(&limited(quota), &log)?;
    assert_eq!(found(&report), [("192.0.2.66".to_string(), 6, 130, 210)]);
    assert_eq!((report.admitted, report.denied, report.clients, report.clients_denied), (14, 6, 9, 1));
    let cause = &report.causes[0];
    assert_eq!((&*cause.cause.rule, &*cause.cause.limit, cause.requests, cause.clients), ("all", "login", 6, 1));
    assert_eq!(report.series.buckets.iter().map(|bucket| bucket.denied).sum::<u64>(), 6);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_request_is_decided_as_by_the_limiter_alone(
        mut log in proptest::collection::vec((0_u64..200, 1_u8..6), 1..300),
        limit in 1_u64..6,
        in_order in any::<bool>(),
    ) {
        if in_order {
            log.sort_unstable();
        }
        let quota = Quota::sliding_window(limit, Millis::from_secs(30))?;
        let (policy, limiter) = (Policy::new("login", [quota.by("ip")?])?, MemoryLimiter::new());
        let rules = limited(json!([{ "algorithm": "sliding_window", "limit": limit, "window_ms": 30_000, "by": "ip" }]));
        let mut replay = Replay::new(&rules)?;
        for (second, client) in log {
            let entry = entry(&(second, client, "/"));
            let key = Key::new(format!("ip:192.0.2.{client}"));
            let expected = limiter.decide(Check::new(&policy, &[("ip", &key)], entry.at))?.is_allowed();
            let client = replay.client(&entry);
            prop_assert_eq!(replay.decide(&entry, client) == Outcome::Admitted, expected);
        }
    }
}

fn tuned(rules: &Adapted, log: &[Sent], percent: f64) -> Result<Vec<Tuned>> {
    Ok(tune::<Error>(rules, percent, |see| {
        log.iter().for_each(|sent| see(&entry(sent)));
        Ok(())
    })?)
}

/// The clients that a number denies.
fn denied(rules: &Adapted, log: &[Sent], number: u64) -> Result<usize> {
    let numbers = rules.numbers();
    Ok(report(&rules.with([(&numbers[0], number)]), log)?.clients_denied)
}

#[test]
fn the_smallest_limit_within_the_share_is_found() -> Result<()> {
    // Client n sends n requests at once: the limit that does not deny it is n.
    let log: Vec<Sent> =
        (1..=100).flat_map(|client| std::iter::repeat_n((0, client, "/"), usize::from(client))).collect();
    for algorithm in ["fixed_window", "sliding_window", "sliding_log", "token_bucket"] {
        let rules = limited(match algorithm {
            "token_bucket" => {
                json!([{ "algorithm": algorithm, "capacity": 7, "refill": 1, "per_ms": 60_000, "by": "ip" }])
            }
            _ => json!([{ "algorithm": algorithm, "limit": 7, "window_ms": 60_000, "by": "ip" }]),
        });
        for (percent, number) in [(0.0, 100), (0.9, 100), (1.0, 99), (10.0, 90), (99.0, 1), (100.0, 1)] {
            let one = tuned(&rules, &log, percent)?.remove(0);
            assert_eq!(
                (one.clients, one.old.number, one.old.clients, one.old.requests),
                (100, 7, 93, 4371),
                "{algorithm}"
            );
            let new = one.new.ok_or("none")?;
            assert_eq!((new.number, new.clients), (number, usize::try_from(100 - number)?), "{algorithm} {percent}");
            assert_eq!(one.below.map(|below| below.clients), (number > 1).then_some(usize::try_from(101 - number)?));
        }
    }
    Ok(())
}

#[test]
fn limits_are_searched_alone_and_those_without_requests_are_told() -> Result<()> {
    let window =
        |limit: u64, by: &str| json!([{ "algorithm": "fixed_window", "limit": limit, "window_ms": 60_000, "by": by }]);
    let rules = Adapted::new(json!({
        "limits": {
            "all": { "quotas": window(2, "ip") },
            "login": { "quotas": window(1, "ip") },
            "none": { "quotas": window(5, "ip") },
            "shared": { "quotas": window(3, "global") },
            "mixed": { "quotas": [
                { "algorithm": "concurrency", "limit": 1, "lifetime_ms": 1000 },
                { "algorithm": "fixed_window", "limit": 4, "window_ms": 60_000, "by": "tenant" },
                { "algorithm": "penalty", "base_ms": 1000, "factor": 2, "cap_ms": 8000, "by": "tenant" } ] }
        },
        "rules": [
            { "limits": ["all"] },
            { "path": "/login", "limits": ["login", "all"] },
            { "path": "/none", "limits": ["none"] },
            { "path": "/shared", "limits": ["shared"] },
            { "path": "/mixed", "limits": ["mixed"] }
        ]
    }));
    let mut log: Vec<Sent> = std::iter::repeat_n((0, 1, "/login"), 6).collect();
    log.extend(std::iter::repeat_n((0, 1, "/"), 4));
    log.extend((1..=8).map(|client| (1, client, "/shared")));
    log.extend(std::iter::repeat_n((2, 9, "/mixed"), 7));
    let found = tuned(&rules, &log, 0.0)?;
    let numbers: Vec<_> = found
        .iter()
        .map(|one| (&*one.limit, &*one.quota, one.clients, one.old.requests, one.new.map(|new| new.number)))
        .collect();
    assert_eq!(
        numbers,
        [
            ("all", "all", 1, 8, Some(10)),
            ("login", "login", 1, 5, Some(6)),
            ("mixed", "mixed-2", 1, 3, Some(7)),
            ("none", "none", 0, 0, None),
            ("shared", "shared", 8, 5, Some(8)),
        ]
    );
    let notes: Vec<_> = rules.notes(false).into_iter().map(|note| note.of).collect();
    assert_eq!(notes, ["limit mixed", "limit mixed"]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_smaller_limit_denies_no_fewer_clients_and_the_found_one_is_the_smallest(
        mut log in proptest::collection::vec((0_u64..300, 1_u8..9), 1..200),
        algorithm in 0_usize..4,
        percent in 0_u8..100,
    ) {
        log.sort_unstable();
        let log: Vec<Sent> = log.into_iter().map(|(second, client)| (second, client, "/")).collect();
        let rules = limited(match algorithm {
            0 => json!([{ "algorithm": "token_bucket", "capacity": 4, "refill": 1, "per_ms": 9_000, "by": "ip" }]),
            n => json!([{ "algorithm": (["fixed_window", "sliding_window", "sliding_log"][n - 1]), "limit": 4, "window_ms": 30_000, "by": "ip" }]),
        });
        let one = tuned(&rules, &log, f64::from(percent)).map(|mut found| found.remove(0));
        let one = one.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let counts: std::result::Result<Vec<usize>, _> = (1..40).map(|number| denied(&rules, &log, number)).collect();
        let counts = counts.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(counts.is_sorted_by(|smaller, larger| smaller >= larger), "{counts:?}");
        let allowed = one.clients * usize::from(percent) / 100;
        let smallest = counts.iter().position(|count| *count <= allowed).map(|place| place as u64 + 1);
        let new = one.new.map(|new| new.number);
        prop_assert!(smallest.is_none_or(|smallest| new == Some(smallest)), "{smallest:?} {new:?} {counts:?}");
        prop_assert!(smallest.is_some() || new.is_some_and(|new| new >= 40));
    }
}

#[test]
fn a_shadow_shows_what_only_one_of_two_files_denies() -> Result<()> {
    let window = |limit: u64| json!([{ "algorithm": "fixed_window", "limit": limit, "window_ms": 60_000, "by": "ip" }]);
    let old = limited(window(3));
    // Stricter for logins, and without a limit elsewhere.
    let new = Adapted::new(
        json!({ "limits": { "login": { "quotas": window(1) } }, "rules": [{ "path": "/login", "limits": ["login"] }] }),
    );
    let mut log: Vec<Sent> = std::iter::repeat_n((0, 1, "/login"), 3).collect();
    log.extend(std::iter::repeat_n((1, 2, "/"), 5));
    log.extend(std::iter::repeat_n((2, 3, "/login"), 5));
    let (mut by_old, mut by_new, mut shadow) = (Replay::new(&old)?, Replay::new(&new)?, Shadow::default());
    let mut tally = Tally::default();
    for (line, sent) in (1..).zip(&log) {
        let entry = entry(sent);
        let client: Client = by_old.client(&entry);
        let outcomes = (by_old.decide(&entry, client), by_new.decide(&entry, client));
        tally.outcome(&entry, client, outcomes.0);
        shadow.add(("log", line), &entry, client, (&by_old, outcomes.0), (&by_new, outcomes.1));
    }
    let report = AccessReport::new(Vec::new(), "old", &tally, by_old.causes(), 10).with_shadow(&shadow, "new", 10);
    let report = report.shadow.ok_or("no shadow")?;
    assert_eq!((report.requests_only_old, report.requests_only_new, report.requests_both), (2, 4, 2));
    assert_eq!((report.clients_only_old, report.clients_only_new, report.clients_both), (1, 1, 1));
    let first = &report.denied_by_new[0];
    let example = first.example.as_ref().ok_or("no example")?;
    assert_eq!((first.client.to_string(), first.old, first.new, example.line), ("192.0.2.1".to_string(), 0, 2, 2));
    assert_eq!((&*example.cause.rule, &*example.cause.limit, &*example.path), ("/login", "login", "/login"));
    assert_eq!(report.denied_by_old[0].client.to_string(), "192.0.2.2");
    assert!((report.new_percent(4) - 50.0).abs() < f64::EPSILON);
    Ok(())
}

#[test]
fn what_a_log_cannot_tell_is_left_out_and_told() -> Result<()> {
    let window = |by: &str| json!([{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60_000, "by": by }]);
    let rules = Adapted::new(json!({
        "api_keys": { "header": "x-api-key" },
        "tokens": { "audience": "api" },
        "limits": {
            "slots": { "quotas": [{ "algorithm": "concurrency", "limit": 1, "lifetime_ms": 1000 }] },
            "room": { "quotas": window("room") },
            "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60_000 }] }
        },
        "rules": [
            { "name": "upload", "path": "/upload", "limits": ["slots"], "store": "objects" },
            { "name": "room", "path": "/rooms/{id}", "limits": ["room"] },
            { "name": "keyed", "path": "/api", "headers": ["x-api-key"], "limits": ["api"] },
            { "name": "bots", "path": "/api", "bot_score_below": 30, "limits": ["api"] },
            { "name": "other", "host": "other.example.com", "limits": ["api"] },
            { "name": "api", "path": "/api", "limits": ["api"] }
        ]
    }));
    let notes: Vec<_> = rules.notes(false).into_iter().map(|note| format!("{}: {:?}", note.of, note.effect)).collect();
    assert_eq!(
        notes,
        [
            "limit api: ByAddress",
            "limit room: ByAddress",
            "limit slots: NotApplied",
            "rule keyed: NotApplied",
            "rule bots: NotApplied",
            "rule other: NotApplied"
        ]
    );
    assert_eq!(rules.notes(true).len(), 5);
    let twice = |path| [(0, 1, path), (0, 1, path), (0, 2, path)];
    for (path, denied) in [("/upload", 0), ("/rooms/5", 1), ("/api", 1), ("/else", 0)] {
        assert_eq!(report(&rules, &twice(path))?.denied, denied, "{path}");
    }
    Ok(())
}

#[test]
fn a_joined_key_counts_by_what_a_log_has_and_tells_what_it_lacks() -> Result<()> {
    let by = |by: serde_json::Value| {
        Adapted::new(json!({
            "dimensions": ["tenant"],
            "limits": { "api": { "quotas": [
                { "algorithm": "fixed_window", "limit": 1, "window_ms": 60_000, "by": by }
            ] } },
            "rules": [{ "limits": ["api"] }]
        }))
    };
    let log = [(0, 1, "/"), (0, 1, "/"), (0, 2, "/"), (0, 3, "/")];
    for (parts, lacked) in [
        (json!(["ip", "global"]), vec![]),
        (json!(["ip", "ja4"]), vec!["it counts by \"ja4\", which a log does not have"]),
        (json!("ja4"), vec!["it counts by \"ja4\", which a log does not have"]),
        (json!(["global", "tenant"]), vec!["it counts by \"tenant\", which a log does not have"]),
    ] {
        let rules = by(parts.clone());
        let reasons: Vec<_> = rules.notes(true).into_iter().map(|note| note.reason).collect();
        assert_eq!(reasons, lacked, "{parts}");
        // Each address has a limit of its own.
        assert_eq!(report(&rules, &log)?.denied, 1, "{parts}");
    }
    Ok(())
}

#[test]
fn requests_that_step_back_are_counted() -> Result<()> {
    let log = [(5, 1, "/"), (9, 1, "/"), (6, 1, "/"), (8, 1, "/"), (9, 1, "/")];
    let report = report(&limited(json!([{ "algorithm": "fixed_window", "limit": 9, "window_ms": 1000 }])), &log)?;
    assert_eq!((report.lines.stepped_back, report.lines.step_back_max_ms), (2, 3_000));
    assert_eq!((report.from_ms, report.to_ms), ((START_S + 5) * 1_000, (START_S + 9) * 1_000));
    Ok(())
}
