//! Calendars: where their windows begin, and what a change of them keeps.
#![cfg(feature = "calendar")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::{
    Calendar, Check, ClientIpSource, ErrorKind, Every, Key, LimiterExt, MemoryLimiter, Millis, Platform, Policy, Quota,
    Refund, UnixMillis,
};

/// A time in UTC.
fn utc(text: &str) -> UnixMillis {
    let ms = text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    UnixMillis::new(ms.try_into().unwrap())
}

fn calendar(every: Every, zone: &str, anchor: &str) -> Calendar {
    Calendar::new(every).zone(zone).unwrap().anchor(anchor).unwrap()
}

/// The boundaries from an instant on.
fn boundaries(calendar: &Calendar, from: &str, count: usize) -> Vec<String> {
    let mut now = utc(from);
    let next = |now: &mut UnixMillis| {
        let [start, end, _] = calendar.boundaries(*now).unwrap();
        assert!(start <= *now && *now < end);
        *now = end;
        jiff::Timestamp::from_millisecond(end.get().try_into().unwrap())
            .unwrap()
            .strftime("%Y-%m-%dT%H:%MZ")
            .to_string()
    };
    (0..count).map(|_| next(&mut now)).collect()
}

#[test]
fn a_month_without_the_anchors_day_ends_at_its_last_day() {
    let billing = calendar(Every::Month, "UTC", "2026-01-31");
    let expected = ["2026-02-28T00:00Z", "2026-03-31T00:00Z", "2026-04-30T00:00Z", "2026-05-31T00:00Z"];
    assert_eq!(boundaries(&billing, "2026-02-03T00:00:00Z", 4), expected);
    // Also before the anchor, and in a leap year.
    assert_eq!(boundaries(&billing, "2024-02-03T00:00:00Z", 2), ["2024-02-29T00:00Z", "2024-03-31T00:00Z"]);
    let year = calendar(Every::Year, "UTC", "2024-02-29");
    assert_eq!(boundaries(&year, "2026-12-01T00:00:00Z", 2), ["2027-02-28T00:00Z", "2028-02-29T00:00Z"]);
}

#[test]
fn a_day_is_as_long_as_the_zone_says() {
    let day = calendar(Every::Day, "Europe/Berlin", "2001-01-01");
    let spring = ["2026-03-28T23:00Z", "2026-03-29T22:00Z", "2026-03-30T22:00Z"];
    assert_eq!(boundaries(&day, "2026-03-28T12:00:00Z", 3), spring);
    let autumn = ["2026-10-24T22:00Z", "2026-10-25T23:00Z", "2026-10-26T23:00Z"];
    assert_eq!(boundaries(&day, "2026-10-24T12:00:00Z", 3), autumn);
    // 02:30 does not exist in spring, and exists twice in autumn: the first counts.
    let early = calendar(Every::Day, "Europe/Berlin", "2001-01-01T02:30");
    assert_eq!(boundaries(&early, "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:30Z", "2026-03-30T00:30Z"]);
    assert_eq!(boundaries(&early, "2026-10-24T12:00:00Z", 2), ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
    // An hour is 3,600 seconds, whatever the clocks show.
    let hour = calendar(Every::Hour, "Asia/Kolkata", "2001-01-01");
    assert_eq!(boundaries(&hour, "2026-03-29T00:45:00Z", 2), ["2026-03-29T01:30Z", "2026-03-29T02:30Z"]);
    let week = calendar(Every::Week, "America/New_York", "2026-01-04T06:00");
    assert_eq!(boundaries(&week, "2026-03-02T00:00:00Z", 2), ["2026-03-08T10:00Z", "2026-03-15T10:00Z"]);
}

#[test]
fn a_day_that_a_zone_skips_has_no_window() {
    let day = calendar(Every::Day, "Pacific/Apia", "2001-01-01");
    // The islands went from 29 to 31 December 2011.
    let expected = ["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"];
    assert_eq!(boundaries(&day, "2011-12-29T00:00:00Z", 3), expected);
}

#[test]
fn the_first_windows_begin_at_the_epoch_or_after_it() {
    let year = calendar(Every::Year, "America/New_York", "2001-01-01");
    let [start, ..] = year.boundaries(UnixMillis::new(0)).unwrap();
    assert_eq!(start, utc("1970-01-01T05:00:00Z"));
    assert!(year.boundaries(UnixMillis::MAX).is_none());
}

#[test]
fn what_is_wrong_with_a_calendar_is_said_with_what_to_write() {
    let zone = |name| Calendar::new(Every::Day).zone(name).unwrap_err().to_string();
    assert!(zone("Europe/Berlln").contains("did you mean \"Europe/Berlin\"?"), "{}", zone("Europe/Berlln"));
    assert!(zone("Mars").contains("write a name of the IANA database"), "{}", zone("Mars"));
    assert_eq!(Calendar::new(Every::Day).zone("europe/berlin").unwrap().zone_name(), "Europe/Berlin");
    for anchor in ["2026-01-32", "2026-02-29", "2026-1-31", "2026-01-31T24:00", "2026-01-31T06:00:00", "31.01.2026", ""]
    {
        let said = Calendar::new(Every::Day).anchor(anchor).unwrap_err().to_string();
        assert!(said.contains("write a date such as \"2026-01-31\""), "{said}");
    }
    assert_eq!(&*calendar(Every::Day, "UTC", "2026-01-31T06:05").anchor_text(), "2026-01-31T06:05");
    let said = Quota::calendar_window(5, &Calendar::new(Every::Day), 6, UnixMillis::new(0)).unwrap_err().to_string();
    assert!(said.contains("carry_over: 6 is out of range; write a whole number from 0 to 5"), "{said}");
}

fn plan(limit: u64, calendar: &Calendar, carry_over: u64, now: UnixMillis) -> Policy {
    Policy::new("plan", [Quota::calendar_window(limit, calendar, carry_over, now).unwrap()]).unwrap()
}

#[test]
fn a_policy_that_is_not_renewed_is_an_error_that_names_what_renews_it() {
    pollster::block_on(async {
        let month = Calendar::new(Every::Month);
        let policy = plan(5, &month, 0, utc("2026-01-15T00:00:00Z"));
        let (limiter, key) = (MemoryLimiter::new(), Key::new("tenant:acme"));
        assert_eq!(*policy.at(utc("2026-01-31T23:59:59Z")), policy);
        // The next window is known, too.
        let (february, march) = (utc("2026-02-28T23:59:59Z"), utc("2026-03-01T00:00:00Z"));
        assert!(limiter.check(Check::new(&policy, &key, february)).await.unwrap().is_allowed());
        let check = Check::new(&policy, &key, march);
        let errors = [
            limiter.check(check).await.map(|_| ()).unwrap_err(),
            limiter.peek(check).await.map(|_| ()).unwrap_err(),
            limiter.refund(Refund::new(&policy, &key, 1, february, march)).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("Policy::at"), "{error}");
        }
        let renewed = policy.at(march);
        assert_eq!((renewed.id(), policy.id()), ("plan:cwm", "plan:cwm"));
        assert!(limiter.check(Check::new(&renewed, &key, march)).await.unwrap().is_allowed());
    });
}

#[test]
fn what_is_left_is_carried_once() {
    let month = Calendar::new(Every::Month);
    let (limiter, key) = (MemoryLimiter::new(), Key::new("tenant:acme"));
    let policy = plan(10, &month, 4, utc("2026-01-15T00:00:00Z"));
    let remaining = |text: &str, cost| {
        let decision = limiter.decide(Check::new(&policy.at(utc(text)), &key, utc(text)).cost(cost)).unwrap();
        (decision.is_allowed(), decision.binding().remaining().unwrap(), decision.binding().limit())
    };
    // As if the month before had not been used.
    assert_eq!(remaining("2026-01-15T00:00:00Z", 10), (true, 4, 14));
    assert_eq!(remaining("2026-01-16T00:00:00Z", 3), (true, 1, 14));
    assert_eq!(remaining("2026-02-01T00:00:00Z", 10), (true, 1, 11));
    assert_eq!(remaining("2026-02-02T00:00:00Z", 1), (true, 0, 11));
    assert_eq!(remaining("2026-03-02T00:00:00Z", 1), (true, 9, 10));
    // A month without a request.
    assert_eq!(remaining("2026-05-02T00:00:00Z", 1), (true, 13, 14));
}

#[test]
fn a_change_of_the_calendar_neither_resets_nor_locks() {
    let (limiter, key) = (MemoryLimiter::new(), Key::new("tenant:acme"));
    let (now, month) = (utc("2026-01-31T23:30:00Z"), calendar(Every::Month, "UTC", "2026-01-01"));
    let before = plan(5, &month, 0, now);
    assert!(limiter.decide(Check::new(&before, &key, now).cost(5)).unwrap().is_allowed());
    // In Berlin, it is February already. The window that the units were used in lasts until its end in UTC.
    let after = plan(5, &calendar(Every::Month, "Europe/Berlin", "2026-01-01"), 0, now);
    assert_eq!(before.id(), after.id());
    let wait = limiter.decide(Check::new(&after, &key, now)).unwrap().retry_after();
    assert_eq!(wait, Some(Millis::from_secs(1_800)));
    let later = utc("2026-02-01T00:00:00Z");
    let decision = limiter.decide(Check::new(&after, &key, later).cost(5)).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.binding().reset_after(), Some(utc("2026-02-28T23:00:00Z").since(later)));
}

#[test]
fn a_gate_renews_its_policies_by_itself() {
    const FILE: &str = r#"{
        "limits": { "plan": { "quotas": [{ "algorithm": "calendar_window", "limit": 2, "every": "month",
            "zone": "Europe/Berlin", "anchor": "2026-01-31", "carry_over": 1, "by": "ip" }] } },
        "rules": [{ "path": "/*", "limits": ["plan"] }]
    }"#;
    pollster::block_on(async {
        for rules in [
            Rules::parse("rules.json", FILE).unwrap(),
            Rules::from_bytes(&Rules::parse("rules.json", FILE).unwrap().to_bytes()).unwrap(),
        ] {
            let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
            let none: [(&str, &str); 0] = [];
            let admits = async |text: &str| {
                let request = Request::new("GET", "/", &none, utc(text)).peer("192.0.2.1".parse().ok());
                matches!(gate.check(&request).await, Verdict::Pass(_))
            };
            for text in ["2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z", "2026-02-03T00:00:00Z"] {
                assert!(admits(text).await);
            }
            assert!(!admits("2026-02-27T22:59:59Z").await);
            assert!(admits("2026-02-27T23:00:00Z").await);
            assert!(admits("2026-03-30T21:59:59Z").await);
            assert!(!admits("2026-03-30T21:59:59Z").await);
            assert!(admits("2026-03-30T22:00:00Z").await);
            assert!(admits("2031-08-01T00:00:00Z").await);
        }
    });
}
