//! Response fields and bodies: parsed by an independent parser, and compared with snapshots.

use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tidegate_core::algorithm::MAX_UNITS;
use tidegate_core::{
    BodyFormat, Decision, ErrorKind, ExtraFields, Millis, Origin, Policy, Quota, Rejection, ResponseFields, Status,
    UnixMillis,
};
use tidegate_testing::{NOW, at, per_minute, policy};

/// Each entry of a structured list of strings, with its integer parameters.
fn entries(field: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(field).parse().expect("a structured list");
    let entry = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("{field}: an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("{field}: not a string") };
        let params = item.params.iter().map(|(key, value)| match value {
            BareItem::Integer(value) => (key.to_string(), i64::from(*value)),
            other => panic!("{field}: {other:?} is not an integer"),
        });
        (name.to_string(), params.collect())
    };
    list.iter().map(entry).collect()
}

fn named(name: &str, params: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    (name.to_string(), params.iter().map(|(key, value)| ((*key).to_string(), *value)).collect())
}

fn show(fields: &ResponseFields) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

fn show_response(rejection: &Rejection) -> String {
    format!("{}\n{}\n{}", rejection.status_code(), show(rejection.fields()), rejection.body())
}

fn burst_and_daily(burst: u64, daily: u64) -> Policy {
    let quotas = [
        Quota::token_bucket(burst, 5, Millis::from_secs(1)).and_then(|quota| quota.named("burst")),
        Quota::fixed_window(daily, Millis::from_secs(86_400)).and_then(|quota| quota.named("daily")),
    ];
    Policy::new("api", quotas.map(|quota| quota.expect("a quota"))).expect("a policy")
}

/// The decision on the last of several requests at the same time.
fn last(policy: &Policy, now: UnixMillis, costs: &[u64]) -> Decision {
    let mut state = policy.initial_state();
    costs.iter().map(|&cost| policy.decide(&mut state, now, cost)).last().expect("a request")
}

#[test]
fn an_allowed_request() {
    let policy = burst_and_daily(10, 1_000);
    let decision = last(&policy, NOW, &[1, 2]);
    let fields = ResponseFields::new(&policy, &decision);
    insta::assert_snapshot!(show(&fields), @r#"
    x-ratelimit-limit: 10
    x-ratelimit-remaining: 7
    x-ratelimit-reset: 1800000001
    ratelimit-policy: "burst";q=10;w=2, "daily";q=1000;w=86400
    ratelimit: "burst";r=7;t=1, "daily";r=997;t=57600
    "#);
    assert_eq!(
        entries(fields.get(ResponseFields::RATELIMIT_POLICY).expect("present")),
        [named("burst", &[("q", 10), ("w", 2)]), named("daily", &[("q", 1_000), ("w", 86_400)])]
    );
    assert_eq!(
        entries(fields.get(ResponseFields::RATELIMIT).expect("present")),
        [named("burst", &[("r", 7), ("t", 1)]), named("daily", &[("r", 997), ("t", 57_600)])]
    );
    assert_eq!(Rejection::denied(&policy, &decision, BodyFormat::Json), None);
}

#[test]
fn a_denied_request() {
    let policy = burst_and_daily(10, 1_000);
    let decision = last(&policy, NOW, &[10, 6]);
    let json = Rejection::denied(&policy, &decision, BodyFormat::Json).expect("denied");
    // The bucket has room for 6 after 1.2 s, but is full only after 2 s.
    insta::assert_snapshot!(show_response(&json), @r#"
    429
    x-ratelimit-limit: 10
    x-ratelimit-remaining: 0
    x-ratelimit-reset: 1800000002
    ratelimit-policy: "burst";q=10;w=2, "daily";q=1000;w=86400
    ratelimit: "burst";r=0;t=2, "daily";r=990
    retry-after: 2
    content-type: application/json

    {"error":"rate_limited","policy":"api","quota":"burst","retry_after_ms":1200}
    "#);
    let problem = Rejection::denied(&policy, &decision, BodyFormat::Problem).expect("denied");
    assert_eq!(problem.fields().get(ResponseFields::CONTENT_TYPE), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_str(problem.body()).expect("JSON");
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["burst"],
        })
    );
}

#[test]
fn a_problem_says_whether_a_quota_a_fallback_or_a_penalty_denies() {
    let [minute, two] = [1, 2].map(|minutes| Millis::from_secs(60 * minutes));
    let denied = |penalty| {
        let quotas = [Quota::fixed_window(1, minute), Quota::penalty(penalty, 2, two)];
        let policy = Policy::new("api", quotas.map(|quota| quota.expect("a quota"))).expect("a policy");
        let denied = last(&policy, NOW, &[1, 1]);
        (policy, denied)
    };
    let kind = |(policy, decision): &(Policy, Decision)| {
        let problem = Rejection::denied(policy, decision, BodyFormat::Problem).expect("denied");
        let body: serde_json::Value = serde_json::from_str(problem.body()).expect("JSON");
        assert_eq!((problem.status_code(), &body["status"]), (429, &serde_json::json!(429)));
        body["type"].as_str().expect("a text").rsplit_once('#').expect("a fragment").1.to_owned()
    };
    // The one that denies for longest is the binding quota.
    let (by_window, by_penalty) = (denied(minute), denied(two));
    assert_eq!(kind(&by_window), "quota-exceeded");
    assert_eq!(kind(&by_penalty), "abnormal-usage-detected");
    assert_eq!(kind(&(by_window.0, by_window.1.with_origin(Origin::Fallback))), "temporary-reduced-capacity");
}

#[test]
fn a_denial_may_have_its_wait_in_milliseconds() {
    let policy = burst_and_daily(10, 1_000);
    let extra = ExtraFields::NONE.retry_after_ms();
    let fields = |decision: &Decision, extra| {
        let fields = ResponseFields::with(&policy, decision, extra);
        let values = ["retry-after", "retry-after-ms"].map(|name| fields.get(name).map(str::to_owned));
        (values, fields.iter().count())
    };
    let denied = last(&policy, NOW, &[10, 6]);
    let (values, count) = fields(&denied, extra);
    assert_eq!(values, [Some("2".into()), Some("1200".into())]);
    assert_eq!(fields(&denied, ExtraFields::NONE), ([Some("2".into()), None], count - 1));
    // Neither an allowed request nor one for which no wait helps has one.
    for decision in [last(&policy, NOW, &[1]), last(&policy, NOW, &[11])] {
        assert_eq!(fields(&decision, extra).0, [None, None]);
    }
}

#[test]
fn every_exhausted_quota_is_listed_as_violated() {
    let policy = burst_and_daily(10, 10);
    let decision = last(&policy, NOW, &[10, 1]);
    let problem = Rejection::denied(&policy, &decision, BodyFormat::Problem).expect("denied");
    let body: serde_json::Value = serde_json::from_str(problem.body()).expect("JSON");
    assert_eq!(body["violated-policies"], serde_json::json!(["burst", "daily"]));
    // The daily quota has the longer wait, so it is the binding one.
    let fields = problem.fields();
    assert_eq!(fields.get("retry-after"), Some("57600"));
    assert_eq!(fields.get("ratelimit"), Some(r#""burst";r=0;t=2, "daily";r=0;t=57600"#));
}

#[test]
fn a_quota_that_resets_when_a_retry_is_due_shows_its_reset() {
    let minute = Millis::from_secs(60);
    let quotas = [("a", 10), ("b", 5)].map(|(name, limit)| Quota::fixed_window(limit, minute)?.named(name));
    let policy = Policy::new("api", quotas.map(|quota| quota.expect("a quota"))).expect("a policy");
    let fields = ResponseFields::new(&policy, &last(&policy, NOW, &[5, 1]));
    assert_eq!(fields.get("retry-after"), Some("60"));
    assert_eq!(fields.get("ratelimit"), Some(r#""a";r=5;t=60, "b";r=0;t=60"#));
}

#[test]
fn never_admissible_has_no_retry_after() {
    let policy = burst_and_daily(10, 1_000);
    let decision = last(&policy, NOW, &[3, 11]);
    assert_eq!(decision.status(), Status::NeverAdmissible);
    let rejection = Rejection::denied(&policy, &decision, BodyFormat::Json).expect("denied");
    insta::assert_snapshot!(show_response(&rejection), @r#"
    429
    x-ratelimit-limit: 10
    x-ratelimit-remaining: 7
    x-ratelimit-reset: 1800000001
    ratelimit-policy: "burst";q=10;w=2, "daily";q=1000;w=86400
    ratelimit: "burst";r=7;t=1, "daily";r=997;t=57600
    content-type: application/json

    {"error":"never_admissible","policy":"api","quota":"burst"}
    "#);
}

#[test]
fn fields_unknown_to_the_platform_are_absent() {
    let policy = per_minute(100);
    let denied = Decision::native(false, 100, NOW);
    let rejection = Rejection::denied(&policy, &denied, BodyFormat::Json).expect("denied");
    insta::assert_snapshot!(show_response(&rejection), @r#"
    429
    x-ratelimit-limit: 100
    ratelimit-policy: "api";q=100;w=60
    content-type: application/json

    {"error":"rate_limited","policy":"api","quota":"api"}
    "#);
}

#[test]
fn a_delay_has_no_field() {
    let policy = policy(Quota::leaky_bucket(5, 1, Millis::from_secs(1)));
    let decision = last(&policy, NOW, &[1, 1]);
    assert!(decision.is_allowed() && decision.delay() > Millis::ZERO);
    insta::assert_snapshot!(show(&ResponseFields::new(&policy, &decision)), @r#"
    x-ratelimit-limit: 5
    x-ratelimit-remaining: 3
    x-ratelimit-reset: 1800000002
    ratelimit-policy: "api";q=5;w=5
    ratelimit: "api";r=3;t=2
    "#);
}

#[test]
fn fractions_of_a_second_round_up() {
    let policy = policy(Quota::fixed_window(1, Millis::new(1_500)));
    // The window began at …000, so it ends at …001.5.
    let decision = last(&policy, at(499), &[1, 1]);
    assert_eq!(decision.retry_after(), Some(Millis::new(1_001)));
    let fields = ResponseFields::new(&policy, &decision);
    assert_eq!(fields.get("retry-after"), Some("2"));
    assert_eq!(fields.get("x-ratelimit-reset"), Some("1800000002"));
    assert_eq!(fields.get("ratelimit-policy"), Some(r#""api";q=1;w=2"#));

    let soon = last(&policy, at(1_499), &[1, 1]);
    assert_eq!(soon.retry_after(), Some(Millis::new(1)));
    assert_eq!(ResponseFields::new(&policy, &soon).get("retry-after"), Some("1"));
}

#[test]
fn integers_are_clamped_to_the_structured_field_maximum() {
    let policy = policy(Quota::fixed_window(MAX_UNITS, Millis::new(1)));
    let fields = ResponseFields::new(&policy, &last(&policy, NOW, &[1]));
    let max = 999_999_999_999_999;
    assert_eq!(entries(fields.get("ratelimit-policy").expect("present")), [named("api", &[("q", max), ("w", 1)])]);
    assert_eq!(entries(fields.get("ratelimit").expect("present")), [named("api", &[("r", max), ("t", 1)])]);
}

#[test]
fn a_response_is_taken_apart() {
    let (status, fields, body) = Rejection::unavailable(ErrorKind::Timeout).into_parts();
    assert_eq!((status, body.as_str()), (503, r#"{"error":"limiter_unavailable","kind":"timeout"}"#));
    assert_eq!(fields.get("content-type"), Some("application/json"));
}

#[test]
fn a_failed_store_is_not_a_denial() {
    insta::assert_snapshot!(show_response(&Rejection::unavailable(ErrorKind::Unavailable)), @r#"
    503
    content-type: application/json

    {"error":"limiter_unavailable","kind":"unavailable"}
    "#);
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = 1_u64..2_000;
    let window = 1_u64..100_000;
    prop_oneof![
        (limit.clone(), window.clone()).prop_map(|(limit, window)| Quota::fixed_window(limit, Millis::new(window))),
        (limit.clone(), window.clone()).prop_map(|(limit, window)| Quota::sliding_window(limit, Millis::new(window))),
        (1_u64..20, window.clone()).prop_map(|(limit, window)| Quota::sliding_log(limit, Millis::new(window))),
        (limit.clone(), 1_u64..500, window.clone()).prop_map(|(capacity, refill, per)| Quota::token_bucket(
            capacity,
            refill,
            Millis::new(per)
        )),
        (limit, 1_u64..500, window).prop_map(|(capacity, refill, per)| Quota::leaky_bucket(
            capacity,
            refill,
            Millis::new(per)
        )),
    ]
    .prop_map(|quota| quota.expect("a quota"))
}

fn param(params: &[(String, i64)], key: &str) -> Option<u64> {
    params.iter().find(|(name, _)| name == key).map(|(_, value)| u64::try_from(*value).expect("not negative"))
}

proptest! {
    #[test]
    fn the_fields_match_the_decision(
        quotas in proptest::collection::vec(quota(), 1..=8),
        arrivals in proptest::collection::vec((0_u64..3_000, 0_u64..30), 1..40),
        charge_denied in any::<bool>(),
    ) {
        let policy = Policy::new("api", quotas).expect("a policy").charge_denied(charge_denied);
        let (mut state, mut now) = (policy.initial_state(), NOW);
        for (gap, cost) in arrivals {
            now = now + Millis::new(gap);
            let decision = policy.decide(&mut state, now, cost);
            let fields = ResponseFields::new(&policy, &decision);

            let policies = entries(fields.get(ResponseFields::RATELIMIT_POLICY).expect("present"));
            let limits = entries(fields.get(ResponseFields::RATELIMIT).expect("present"));
            prop_assert_eq!(policies.len(), policy.quotas().len());
            prop_assert_eq!(limits.len(), policy.quotas().len());
            let retry = fields.get(ResponseFields::RETRY_AFTER).map(|secs| secs.parse::<u64>().expect("whole seconds"));
            prop_assert_eq!(retry.is_some(), decision.status() == Status::Denied);
            if let (Some(secs), Some(wait)) = (retry, decision.retry_after()) {
                prop_assert!(secs >= 1 && secs * 1_000 >= wait.get() && (secs - 1) * 1_000 <= wait.get());
            }
            for (place, quota) in policy.quotas().iter().enumerate() {
                prop_assert_eq!(&policies[place].0, quota.name());
                prop_assert_eq!(param(&policies[place].1, "q"), Some(quota.rule().limit()));
                let window = param(&policies[place].1, "w").expect("present");
                prop_assert!(window >= 1 && window * 1_000 >= quota.rule().window().get());

                let (status, params) = (decision.quotas()[place], &limits[place].1);
                prop_assert_eq!(&limits[place].0, quota.name());
                prop_assert_eq!(param(params, "r"), status.remaining());
                let reset = param(params, "t");
                prop_assert!(reset.is_none_or(|reset| retry.is_none_or(|retry| reset <= retry)));
                if retry.is_none() || place == decision.binding_index() {
                    prop_assert!(reset.is_some());
                }
            }

            prop_assert_eq!(
                Rejection::denied(&policy, &decision, BodyFormat::Json).is_none(), decision.is_allowed()
            );
            for format in [BodyFormat::Json, BodyFormat::Problem] {
                if let Some(rejection) = Rejection::denied(&policy, &decision, format) {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(rejection.body()).is_ok());
                    let names: std::collections::BTreeSet<_> = rejection.fields().iter().map(|(name, _)| name).collect();
                    prop_assert_eq!(names.len(), rejection.fields().iter().count());
                }
            }
        }
    }
}

#[test]
fn draft_6_has_its_own_fields_beside_those_of_draft_11() {
    let quotas = [Quota::token_bucket(10, 5, Millis::from_secs(1)), Quota::fixed_window(4, Millis::from_secs(60))];
    let policy = Policy::new("api", quotas.map(|quota| quota.expect("a quota"))).expect("a policy");
    let (mut state, now) = (policy.initial_state(), NOW);
    let fields = |decision: &Decision| {
        let fields = ResponseFields::with(&policy, decision, ExtraFields::NONE.draft_6());
        // Nothing else changes.
        let others = ResponseFields::new(&policy, decision);
        let added = fields.iter().filter(|(name, _)| others.get(name).is_none()).count();
        assert_eq!((added, fields.iter().count() - others.iter().count()), (3, 3));
        assert!(others.iter().all(|(name, value)| fields.get(name) == Some(value)));
        ["limit", "remaining", "reset"]
            .map(|name| fields.get(&format!("ratelimit-{name}")).expect("a field").to_owned())
    };
    let allowed = policy.decide(&mut state, now, 4);
    assert_eq!(fields(&allowed), ["4", "0", "60"]);
    // A client that waits as long as this is admitted, as by `retry-after`.
    let denied = policy.decide(&mut state, now + Millis::new(500), 1);
    assert_eq!(fields(&denied), ["4", "0", "60"]);
    let bucket =
        Policy::new("api", [Quota::token_bucket(10, 1, Millis::from_secs(1)).expect("a quota")]).expect("a policy");
    let mut state = bucket.initial_state();
    let _ = bucket.decide(&mut state, now, 10);
    let denied = bucket.decide(&mut state, now, 1);
    let sent = ResponseFields::with(&bucket, &denied, ExtraFields::NONE.draft_6());
    assert_eq!((sent.get("ratelimit-reset"), sent.get("retry-after")), (Some("1"), Some("1")));
    let rejection = Rejection::denied_with(&bucket, &denied, BodyFormat::Json, ExtraFields::NONE.draft_6());
    let rejection = rejection.expect("a denial");
    assert_eq!(rejection.fields().get("ratelimit-limit"), Some("10"));
}
