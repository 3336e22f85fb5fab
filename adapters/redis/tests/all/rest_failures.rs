//! Failures that a real endpoint does not show on demand. Each is an error of the right kind, in time, and never a
//! denial.

#![cfg(feature = "rest")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::burst;
use crate::support::rest::TOKEN;
use serde_json::json;
use tidegate_core::{Check, Decision, Error, ErrorKind, LimiterExt, Millis};
use tidegate_redis::wire::Script;
use tidegate_redis::{Clock, Rest, RestConfig, RestLimiter};
use tidegate_testing::{NOW, bucket, key};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use wiremock::matchers::{body_string_contains, header, header_exists, method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

const DEADLINE: Duration = Duration::from_secs(2);

fn config(url: &str) -> RestConfig {
    RestConfig::new(url, TOKEN).clock(Clock::Caller).deadline(Millis::from_secs(2))
}

fn limiter(url: &str) -> RestLimiter {
    Rest::new(config(url)).unwrap().limiter()
}

async fn check(limiter: &RestLimiter) -> Result<Decision, Error> {
    limiter.check(Check::new(&bucket(5), &key(), NOW)).await
}

/// The result of a check if every request gets this answer, and how long the check took.
async fn meet(answer: ResponseTemplate) -> (Result<Decision, Error>, Duration) {
    let server = MockServer::start().await;
    Mock::given(method("POST")).and(path("/")).respond_with(answer).mount(&server).await;
    let began = Instant::now();
    (check(&limiter(&server.uri())).await, began.elapsed())
}

/// An endpoint that sends these bytes on each connection, and then closes it or keeps it open.
async fn raw(answer: String, close: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                if !close {
                    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn an_http_status_maps_to_an_error_kind() {
    let told = |status: u16, error: &str| ResponseTemplate::new(status).set_body_json(json!({ "error": error }));
    let bare = |status: u16, body: &str| ResponseTemplate::new(status).set_body_string(body);
    let charged = "may have been charged";
    for (answer, kind, says) in [
        (told(401, "WRONGPASS invalid or missing auth token"), ErrorKind::Refused, "UPSTASH_REDIS_REST_TOKEN"),
        (bare(401, ""), ErrorKind::Refused, "UPSTASH_REDIS_REST_TOKEN"),
        (told(403, "Forbidden"), ErrorKind::Refused, "UPSTASH_REDIS_REST_TOKEN"),
        (told(429, "ERR too many requests"), ErrorKind::Contended, "limits its requests; nothing was charged"),
        (bare(429, "slow down"), ErrorKind::Contended, "limits its requests; nothing was charged"),
        (told(400, "ERR max daily request limit exceeded. Limit: 10000"), ErrorKind::Refused, "max daily request"),
        (told(400, "NOPERM this user has no permissions to run the 'evalsha' command"), ErrorKind::Refused, "NOPERM"),
        (told(400, "READONLY You can't write against a read only replica."), ErrorKind::Unavailable, "READONLY"),
        (told(400, "WRONGTYPE Operation against a key"), ErrorKind::Corrupt, "{tg1:api:tb60000:ip:192.0.2.1}"),
        (told(413, "ERR max request size exceeded"), ErrorKind::Refused, "max request size"),
        (told(500, "Internal Server Error"), ErrorKind::Unavailable, charged),
        (bare(500, ""), ErrorKind::Unavailable, charged),
        (bare(502, "<html>Bad Gateway</html>"), ErrorKind::Unavailable, charged),
        (told(503, "NOSCRIPT and out of service"), ErrorKind::Unavailable, charged),
        (bare(504, ""), ErrorKind::Timeout, charged),
        (bare(404, "<html>Not Found</html>"), ErrorKind::Corrupt, "UPSTASH_REDIS_REST_URL"),
        (bare(405, ""), ErrorKind::Corrupt, "UPSTASH_REDIS_REST_URL"),
        (bare(302, "").insert_header("location", "https://example.com/"), ErrorKind::Refused, "leads elsewhere"),
    ] {
        let shown = format!("{answer:?}");
        let (met, took) = meet(answer).await;
        let error = met.unwrap_err();
        assert_eq!(error.kind(), kind, "{shown}: {error:?}");
        assert!(error.to_string().contains(says), "{shown}: {error}");
        assert!(took < DEADLINE, "{shown}: {took:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_from_the_script_is_corrupt() {
    let quoted = |text: &str| json!({ "result": text }).to_string();
    for body in [
        "".into(),
        "<html>hello</html>".into(),
        "{\"result\":\"atb1 0".into(),
        "{\"result\":".into(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        "{\"result\":null}".into(),
        "{\"result\":1}".into(),
        "{\"result\":[\"a\"]}".into(),
        "{\"result\":{\"a\":1}}".into(),
        quoted("OK"),
        quoted(""),
        quoted("x"),
        quoted("é"),
        quoted("atb1 0"),
        quoted("atb1 1 1;tb1 1 1;"),
        // A state that a policy with a limit of five cannot leave, and a decision that contradicts the state.
        quoted("atb1 99999999 1800000000000;"),
        quoted("dtb1 0 0;"),
    ] {
        let (met, _) = meet(ResponseTemplate::new(200).set_body_string(&*body)).await;
        let error = met.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{body}: {error:?}");
    }
    let (met, _) = meet(ResponseTemplate::new(200).set_body_string(" ".repeat(2 << 20))).await;
    let error = met.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("more than a megabyte"), "{error}");
}

#[tokio::test]
async fn a_ping_tells_whether_the_database_answers() {
    for (body, kind) in [
        (json!({ "result": "PONG" }), None),
        (json!({ "result": "hello" }), Some(ErrorKind::Corrupt)),
        (json!({ "result": 1 }), Some(ErrorKind::Corrupt)),
        (json!({ "error": "NOPERM this user has no permissions" }), Some(ErrorKind::Refused)),
    ] {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(200).set_body_json(&body)).mount(&server).await;
        let pinged = limiter(&server.uri()).store().ping().await;
        assert_eq!(pinged.map_err(|error| error.kind()).err(), kind, "{body}");
    }
}

#[tokio::test]
async fn a_valid_answer_is_decoded() {
    for (text, remaining) in [("a", 4), ("atb1 60000 1800000000000;", 3), ("dtb1 300000 1800000000000;", 0)] {
        let (met, _) = meet(ResponseTemplate::new(200).set_body_json(json!({ "result": text }))).await;
        let decision = met.unwrap();
        assert_eq!((decision.is_allowed(), decision.binding().remaining()), (remaining > 0, Some(remaining)));
    }
}

#[tokio::test]
async fn after_a_truncated_body_the_check_may_have_been_charged() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n";
    for answer in [String::new(), "HTTP/1.1 2".into(), head.into(), format!("{head}{{\"result\":\"")] {
        let error = check(&limiter(&raw(answer.clone(), true).await)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{answer:?}: {error:?}");
        assert!(error.to_string().contains("may have been charged"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_not_an_error() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"result\":\"a\"}";
    let limiter = limiter(&raw(answer.into(), true).await);
    for _ in 0..5 {
        assert!(check(&limiter).await.unwrap().is_allowed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stalled_endpoint_costs_at_most_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"result\":\"";
    for answer in ["", "HTTP/1.1 200 OK\r\n", head] {
        let limiter = limiter(&raw(answer.into(), false).await);
        let began = Instant::now();
        let error = check(&limiter).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{answer:?}: {error:?}");
        assert!(error.to_string().contains("may have been charged"), "{error}");
        let took = began.elapsed();
        assert!(DEADLINE <= took && took < 2 * DEADLINE, "{took:?}");
    }
    let late = ResponseTemplate::new(200).set_body_json(json!({ "result": "a" })).set_delay(2 * DEADLINE);
    let (met, took) = meet(late).await;
    assert_eq!(met.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(took < 2 * DEADLINE, "{took:?}");
}

/// A flood can keep a process busy. Then no deadline tells whether the endpoint is down, so gates must not open.
#[tokio::test]
async fn a_process_without_time_for_an_answer_is_overloaded() {
    let server = MockServer::start().await;
    let answer = ResponseTemplate::new(200).set_body_json(json!({ "result": "a" }));
    Mock::given(method("POST")).respond_with(answer).mount(&server).await;
    let limiter = limiter(&server.uri());
    let error = crate::failures::checked_by_a_busy_process(&limiter).await;
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    assert!(error.to_string().contains("this process is overloaded"), "{error}");
    assert!(check(&limiter).await.unwrap().is_allowed());
}

/// A flood must not take all files of the process.
#[tokio::test]
async fn a_flood_opens_no_more_than_256_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let limiter = Rest::new(config(&url).deadline(Millis::from_secs(60))).unwrap().limiter();
    let checks = tokio::spawn(async move { burst(&[Arc::new(limiter)], &bucket(5), 300).await });
    let mut connections = Vec::new();
    while let Ok(accepted) = tokio::time::timeout(DEADLINE, listener.accept()).await {
        connections.push(accepted.unwrap());
    }
    checks.abort();
    assert_eq!(connections.len(), 256);
}

#[tokio::test]
async fn the_script_is_sent_first_and_when_it_is_missing_within_the_one_deadline() {
    let noscript = || {
        let error = json!({ "error": "NOSCRIPT No matching script. Please use EVAL." });
        ResponseTemplate::new(400).set_body_json(error)
    };
    for locking in [false, true] {
        let (script, sha1) = (Script::Plain.text(locking), Script::Plain.sha1(locking));
        let server = MockServer::start().await;
        let evalsha = Mock::given(body_string_contains("[\"EVALSHA\""));
        evalsha.and(body_string_contains(sha1)).respond_with(noscript()).expect(1).mount(&server).await;
        let same = move |request: &Request| {
            serde_json::from_slice::<Vec<String>>(&request.body)
                .is_ok_and(|words| words[0] == "EVAL" && words[1] == script)
        };
        let answer = ResponseTemplate::new(200).set_body_json(json!({ "result": "a" }));
        Mock::given(same).respond_with(answer).expect(2).mount(&server).await;
        let limiter = Rest::new(config(&server.uri()).key_locking(locking)).unwrap().limiter();
        // The first decision is one request. The second one finds that the script is gone.
        for _ in 0..2 {
            assert!(check(&limiter).await.unwrap().is_allowed());
        }
    }

    // An endpoint that never has the script gets only one request, and after it had it once, two.
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(noscript()).expect(1).mount(&server).await;
    assert_eq!(check(&limiter(&server.uri())).await.unwrap_err().kind(), ErrorKind::Refused);
    let server = MockServer::start().await;
    answers_once(&server).await;
    Mock::given(method("POST")).respond_with(noscript()).expect(2).mount(&server).await;
    let once = limiter(&server.uri());
    assert!(check(&once).await.unwrap().is_allowed());
    assert_eq!(check(&once).await.unwrap_err().kind(), ErrorKind::Refused);

    let server = MockServer::start().await;
    answers_once(&server).await;
    Mock::given(method("POST")).respond_with(noscript().set_delay(3 * DEADLINE / 4)).mount(&server).await;
    let once = limiter(&server.uri());
    assert!(check(&once).await.unwrap().is_allowed());
    let began = Instant::now();
    // It has answered the call, so it is not down.
    assert_eq!(check(&once).await.unwrap_err().kind(), ErrorKind::Contended);
    assert!(began.elapsed() < 3 * DEADLINE / 2, "{:?}", began.elapsed());
}

/// Answers the first request like the script.
async fn answers_once(server: &MockServer) {
    let answer = ResponseTemplate::new(200).set_body_json(json!({ "result": "a" }));
    Mock::given(method("POST")).respond_with(answer).up_to_n_times(1).with_priority(1).mount(server).await;
}

#[tokio::test]
async fn a_server_without_the_key_locking_flag_is_recognized() {
    for error in [
        "ERR Unexpected flag in script shebang: allow-key-locking",
        "ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
    ] {
        let (met, _) = meet(ResponseTemplate::new(400).set_body_json(json!({ "error": error }))).await;
        let error = met.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("write key_locking(false)"), "{error}");
    }
}

#[tokio::test]
async fn the_sync_token_is_stored_and_sent() {
    let server = MockServer::start().await;
    let answer = |token: &str| {
        ResponseTemplate::new(200).set_body_json(json!({ "result": "a" })).insert_header("upstash-sync-token", token)
    };
    let first = Mock::given(header("content-type", "application/json"));
    let first = first.and(header("authorization", format!("Bearer {TOKEN}"))).respond_with(answer("one"));
    first.up_to_n_times(1).expect(1).mount(&server).await;
    Mock::given(header("upstash-sync-token", "one")).respond_with(answer("two")).expect(1).mount(&server).await;
    Mock::given(header("upstash-sync-token", "two")).respond_with(answer("two")).expect(1).mount(&server).await;
    let limiter = limiter(&server.uri());
    for _ in 0..3 {
        check(&limiter).await.unwrap();
    }
    let received = server.received_requests().await.unwrap();
    assert!(!received[0].headers.contains_key("upstash-sync-token"));
}

#[tokio::test]
async fn a_token_that_the_endpoint_echoes_is_not_in_the_error() {
    for status in [200, 400, 401, 404, 500] {
        for body in [format!("you sent Bearer {TOKEN}"), json!({ "error": format!("ERR {TOKEN}") }).to_string()] {
            let server = MockServer::start().await;
            let answer = ResponseTemplate::new(status).set_body_string(body.as_str());
            Mock::given(header_exists("authorization")).respond_with(answer).expect(1).mount(&server).await;
            let error = check(&limiter(&server.uri())).await.unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{status} {body}: {error:?}");
        }
    }
}

#[test]
fn an_invalid_url_or_token_is_explained_and_not_shown() {
    for url in [
        "",
        "eu1-quick-fox-1.upstash.io",
        "https://",
        "https:///path",
        "https://:443",
        "http://host:notaport",
        "http://host:0",
        "http://host:65536",
        "http://host:1:2",
        "http://[host",
        "http://[::g]",
        "http://[::1]x",
        "http://host%20",
        "https://ho st",
        "https://höst",
        "\"https://host\"",
        "https://host\n",
        "ftp://hunter2@host",
        "https://default:hunter2@host",
        "https://host/?_token=hunter2",
        "https://host/#hunter2",
        "redis://default:hunter2@host:6379",
        "rediss://default:hunter2@eu1-quick-fox-1.upstash.io:6379",
    ] {
        let error = Rest::new(RestConfig::new(url, TOKEN)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().starts_with("url: ") && error.to_string().contains("https://<database>"), "{error}");
        let shown = format!("{error:?} {:?}", RestConfig::new(url, TOKEN));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let swapped = Rest::new(RestConfig::new("rediss://host", TOKEN)).unwrap_err();
    assert!(swapped.to_string().contains("Redis endpoint"), "{swapped}");
    for token in ["", " hunter2", "hunter2\n", "\"hunter2\"", "hünter2", "https://default:hunter2@host"] {
        let error = Rest::new(RestConfig::new("https://host", token)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{token:?}");
        assert!(error.to_string().contains("UPSTASH_REDIS_REST_TOKEN"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    for deadline in [Millis::ZERO, Millis::new(u64::MAX)] {
        let error = Rest::new(RestConfig::new("https://host", TOKEN).deadline(deadline)).unwrap_err();
        assert!(error.to_string().starts_with("deadline: "), "{error}");
    }
    for url in ["https://host", "http://[::1]:8079/", "https://eu1-quick-fox-1.upstash.io/under/a/path/"] {
        assert!(Rest::new(RestConfig::new(url, TOKEN)).is_ok(), "{url}");
    }
}

#[test]
fn a_token_is_sent_in_clear_text_only_if_allowed() {
    for url in [
        "http://host",
        "http://10.0.0.1:8079",
        "http://127.0.0.1.example.com",
        "http://[2001:db8::1]/",
        "http://localhost.example",
    ] {
        let config = RestConfig::new(url, TOKEN);
        let error = Rest::new(config.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().starts_with("url: ") && error.to_string().contains("clear text"), "{error}");
        assert!(!error.to_string().contains(TOKEN), "{error}");
        assert!(Rest::new(config.allow_insecure_http(true)).is_ok(), "{url}");
    }
    for host in ["localhost", "LocalHost:8079", "127.0.0.1", "127.1.2.3:80", "[::1]:8079/path", "[::ffff:127.0.0.1]"] {
        assert!(Rest::new(RestConfig::new(format!("http://{host}"), TOKEN)).is_ok(), "{host}");
    }
}
