//! Tests of the app on our host that fixtures do not cover.

#[path = "spin/routed.rs"]
mod routed;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tidegate_harness::target::spin::{Host, MANIFEST};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const NOW_MS: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;

/// The app on our host. It ends when this is dropped.
struct App(Host);

impl App {
    async fn start(args: &[&str]) -> Result<Self> {
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        Ok(Self(Host::start(&args).await?))
    }

    fn base(&self) -> &str {
        self.0.base()
    }

    async fn send(&self, request: hyper::http::request::Builder, body: String) -> Result<(u16, String)> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Result<(u16, String)> {
        let mut request = Request::get(format!("{}{path}", self.base()));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.send(request, String::new()).await
    }

    /// Sends a call to one of the suite's routes. Returns the status and the answer.
    async fn call(&self, path: &str, call: &Value) -> Result<(u16, Value)> {
        let (status, body) = self.send(Request::post(format!("{}{path}", self.base())), call.to_string()).await?;
        Ok((status, serde_json::from_str(&body).unwrap_or(Value::String(body))))
    }

    async fn operations(&self) -> Result<u64> {
        Ok(self.0.tell("operations").await?.parse()?)
    }
}

/// A client with one persistent connection and raw requests.
struct KeptAlive(BufReader<TcpStream>);

impl KeptAlive {
    fn connect(base: &str) -> Result<Self> {
        let stream = TcpStream::connect(base.trim_start_matches("http://"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Returns the status of the answer, and the time until its last byte arrived.
    fn get(&mut self, path: &str, fields: &[u8]) -> Result<(u16, Duration)> {
        let request = [b"GET ", path.as_bytes(), b" HTTP/1.1\r\nhost: localhost\r\n", fields, b"\r\n"].concat();
        let began = Instant::now();
        self.0.get_mut().write_all(&request)?;
        let status = self.line()?.split(' ').nth(1).ok_or("no status")?.parse()?;
        let mut length = None;
        loop {
            let field = self.line()?.to_ascii_lowercase();
            match field.split_once(": ") {
                None => break,
                Some(("content-length", text)) => length = Some(text.parse()?),
                Some(_) => {}
            }
        }
        match length {
            Some(length) => self.skip(length)?,
            None => while self.chunk()? {},
        }
        Ok((status, began.elapsed()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_string())
    }

    fn skip(&mut self, length: usize) -> Result<()> {
        Ok(self.0.read_exact(&mut vec![0; length])?)
    }

    /// Reads the next chunk of a body. Returns whether there was one.
    fn chunk(&mut self) -> Result<bool> {
        let length = usize::from_str_radix(&self.line()?, 16)?;
        self.skip(length + 2)?;
        Ok(length > 0)
    }

    /// The median time of 50 answers, after a few that open the connection's congestion window.
    fn median(&mut self, path: &str) -> Result<Duration> {
        let times = (0..70).map(|_| Ok(self.get(path, b"")?.1)).collect::<Result<Vec<_>>>()?;
        let mut times = times[20..].to_vec();
        times.sort();
        Ok(times[times.len() / 2])
    }
}

/// The body of a call with a fixed window.
fn call(key: &str, limit: u64, now_ms: u64) -> Value {
    let quotas = json!([{ "algorithm": "fixed_window", "limit": limit, "window_ms": MINUTE_MS }]);
    json!({ "policy": { "name": "test", "quotas": quotas }, "key": key, "now_ms": now_ms })
}

const LIMITERS: [&str; 3] = ["kv", "atomics", "window"];

#[tokio::test]
async fn a_deployed_app_limits_by_the_address_that_spin_reports() -> Result<()> {
    let app = App::start(&[
        "--env=TIDEGATE_TEST_MODE=off",
        "--env=WINDOW_POLICY={\"name\":\"w\",\"quotas\":[{\"algorithm\":\
                            \"fixed_window\",\"limit\":5,\"window_ms\":86400000}]}",
    ])
    .await?;
    for limiter in LIMITERS {
        // The policy allows a burst of five, and one more each second.
        let mut admitted = 0;
        for forged in 0..20 {
            // A client can send this field. It comes before Spin's own, and must not change the key.
            let forged = format!("203.0.113.{forged}:80");
            let fields =
                [("spin-client-addr", forged.as_str()), ("x-forwarded-for", &forged), ("true-client-ip", &forged)];
            let (status, body) = app.get(&format!("/{limiter}"), &fields).await?;
            assert!(status == 200 || status == 429 && body.contains("rate_limited"), "{limiter}: {status} {body}");
            admitted += u64::from(status == 200);
        }
        assert!((5..15).contains(&admitted), "{limiter}: admitted {admitted}");
        // The suite's routes do not exist.
        let (status, _) = app.call(&format!("/{limiter}/_tidegate/check"), &call("k", 1, NOW_MS)).await?;
        assert_eq!(status, 404, "{limiter}");
    }
    assert_eq!(app.get("/free", &[]).await?, (200, "allowed\n".into()));
    assert_eq!(app.get("/nothing", &[]).await?.0, 404);
    Ok(())
}

/// The examples of `tidegate-spin`, one for each SDK: 20 requests at once and 10 a second, and 3 logins a minute.
#[tokio::test]
async fn the_examples_limit_by_their_rules() -> Result<()> {
    for (package, folder) in [("tidegate-example-spin", "app"), ("tidegate-example-spin-sdk-7", "app-sdk-7")] {
        let manifest = format!("adapters/spin/examples/{folder}/spin.toml");
        limits_by_its_rules(&App(Host::start_app(package, &manifest, &[]).await?)).await?;
    }
    Ok(())
}

async fn limits_by_its_rules(app: &App) -> Result<()> {
    for attempt in 0..5 {
        let login = Request::post(format!("{}//login/?from=7", app.base())).header("spin-client-addr", "203.0.113.7:1");
        let (status, body) = app.send(login, String::new()).await?;
        assert_eq!(status, if attempt < 3 { 200 } else { 429 }, "{body}");
        assert!(status == 200 || body.contains(r#""policy":"login""#), "{body}");
    }
    // Other requests have a limit of their own, of which an unusual path to the login takes a part.
    assert_eq!(app.get("/login", &[]).await?, (200, "hello\n".into()));
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += u64::from(app.get("/", &[("x-forwarded-for", "203.0.113.8")]).await?.0 == 200);
    }
    assert!((16..200).contains(&admitted), "{admitted}");
    Ok(())
}

#[tokio::test]
async fn true_client_ip_is_used_only_if_trusted() -> Result<()> {
    let app = App::start(&["--env=TRUST_TRUE_CLIENT_IP=on"]).await?;
    for client in 0..10 {
        let client = format!("192.0.2.{client}");
        for _ in 0..2 {
            assert_eq!(app.get("/atomics", &[("true-client-ip", &client)]).await?.0, 200);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_store_missing_from_the_manifest_is_an_error_and_not_a_denial() -> Result<()> {
    for store in ["another", ""] {
        let app = App::start(&[&format!("--env=STORE={store}")]).await?;
        for limiter in LIMITERS {
            let (status, body) = app.get(&format!("/{limiter}"), &[]).await?;
            assert_eq!(status, 503, "{limiter}: {body}");
            assert!(body.contains("unavailable"), "{limiter}: {body}");
        }
        assert_eq!(app.operations().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_row_of_the_wrong_length_is_an_error_and_does_not_break_the_store() -> Result<()> {
    let app = App::start(&[]).await?;
    let stored = |key: &str| format!("tg1:test:fw60000:{key}");
    // The row that each limiter reads first.
    let rows = [("kv", String::new()), ("atomics", "!".into()), ("atomics", "!1".into()), ("window", "!w".into())];
    for (limiter, row) in rows.into_iter().chain([("window", format!("!w{}", NOW_MS - NOW_MS % MINUTE_MS))]) {
        for length in [1, 7, 9] {
            let key = format!("{limiter}{}-{length}", row.len());
            let put = format!("set default {}{row} {}", stored(&key), "x".repeat(length));
            assert_eq!(app.0.tell(&put).await?, "set");
            let (status, answer) = app.call(&format!("/{limiter}/_tidegate/check"), &call(&key, 1, NOW_MS)).await?;
            assert_eq!((status, &answer["error"]["kind"]), (503, &json!("corrupt")), "{limiter} {row}: {answer}");
        }
    }
    // Other keys are not affected.
    for limiter in LIMITERS {
        let (status, answer) = app.call(&format!("/{limiter}/_tidegate/check"), &call("sound", 1, NOW_MS)).await?;
        assert_eq!(status, 200, "{limiter}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn fifty_concurrent_first_requests_are_counted_exactly() -> Result<()> {
    // All requests read before any of them writes, because each operation waits for the same pause.
    let app = App::start(&["--pause-ms=20"]).await?;
    for limiter in ["atomics", "window"] {
        let path = format!("/{limiter}/_tidegate/check");
        let (once, ten) = (call("once", 1, NOW_MS), call("ten", 10, NOW_MS));
        for (call, limit) in [(once, 1), (ten, 10)] {
            let answers = join_all((0..50).map(|_| app.call(&path, &call))).await;
            let statuses = answers.into_iter().map(|answer| Ok(answer?.0)).collect::<Result<Vec<_>>>()?;
            let count = |status| statuses.iter().filter(|found| **found == status).count();
            assert_eq!((count(200), count(429)), (limit, 50 - limit), "{limiter}");
        }
    }
    // Without atomics, up to fifty requests pass. For a limit of 1, this is the declared ceiling.
    let once = call("kv", 1, NOW_MS);
    let answers = join_all((0..50).map(|_| app.call("/kv/_tidegate/check", &once))).await;
    let admitted = answers.into_iter().map(|answer| Ok(u64::from(answer?.0 == 200))).sum::<Result<u64>>()?;
    assert!((2..=50).contains(&admitted), "{admitted}");
    Ok(())
}

/// On Spin 4.1, the second of these bursts had 325 to 500 requests admitted in several rounds. The host must not admit fewer.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_by_get_and_set_overlaps_at_least_as_on_spin() -> Result<()> {
    let app = App::start(&["--no-delay", "--pause-ms=20"]).await?;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = |name: &str, limit| {
        let body = Bytes::from(call(name, limit, NOW_MS).to_string());
        Request::post(format!("{}/kv/_tidegate/check", app.base())).body(Full::new(body))
    };
    // The first request opens the connection.
    client.request(request("first", 1)?).await?;
    for limit in [1, 137] {
        let check = || request(&format!("limit-{limit}"), limit);
        let requests = (0..500).map(|_| Ok(client.request(check()?))).collect::<Result<Vec<_>>>()?;
        let answers = join_all(requests).await.into_iter();
        let admitted = answers.map(|answer| Ok(u64::from(answer?.status() == 200))).sum::<Result<u64>>()?;
        assert!(admitted >= 450, "limit {limit}: {admitted} of 500");
    }
    Ok(())
}

#[tokio::test]
async fn a_decision_takes_the_declared_number_of_operations() -> Result<()> {
    let app = App::start(&[]).await?;
    // A key's first request, its second, and a denial.
    for (limiter, expected) in [("kv", [2, 2, 1]), ("atomics", [9, 2, 1]), ("window", [4, 3, 2])] {
        for expected in expected {
            let before = app.operations().await?;
            app.call(&format!("/{limiter}/_tidegate/check"), &call("k", 2, NOW_MS)).await?;
            assert_eq!(app.operations().await? - before, expected, "{limiter}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn long_keys_that_differ_in_the_last_character_count_apart() -> Result<()> {
    let app = App::start(&[]).await?;
    for limiter in LIMITERS {
        for last in ["a", "b"] {
            let key = "\u{1f980}".repeat(10_000) + last;
            let path = format!("/{limiter}/_tidegate/check");
            assert_eq!(app.call(&path, &call(&key, 1, NOW_MS)).await?.0, 200, "{limiter} {last}");
            assert_eq!(app.call(&path, &call(&key, 1, NOW_MS)).await?.0, 429, "{limiter} {last}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_invalid_policy_is_reported_and_a_cost_in_a_window_is_unsupported() -> Result<()> {
    let app = App::start(&["--env=POLICY={"]).await?;
    assert_eq!(app.get("/atomics", &[]).await?, (500, "misconfigured\n".into()));
    let mut costly = call("k", 10, NOW_MS);
    costly["cost"] = json!(2);
    let (status, answer) = app.call("/window/_tidegate/check", &costly).await?;
    assert_eq!((status, &answer["error"]["kind"]), (503, &json!("unsupported")));
    Ok(())
}

/// Spin does not set `TCP_NODELAY`. If head and body are sent in two segments, the second waits for the client's
/// delayed acknowledgement, 40 ms.
#[tokio::test(flavor = "multi_thread")]
async fn answers_on_a_persistent_connection_do_not_wait_for_an_acknowledgement() -> Result<()> {
    // Denials write nothing, so the disk does not slow them down.
    let app = App::start(&ONE_A_DAY).await?;
    for path in ["/kv", "/atomics", "/window", "/free", "/nothing", "/kv/_tidegate/capabilities"] {
        let median = KeptAlive::connect(app.base())?.median(path)?;
        assert!(median < Duration::from_millis(35), "{path}: {median:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_utf_8_is_answered_with_500_before_the_app_runs() -> Result<()> {
    let app = App::start(&["--env=TIDEGATE_TEST_MODE=off"]).await?;
    let mut client = KeptAlive::connect(app.base())?;
    for limiter in LIMITERS {
        let path = format!("/{limiter}");
        let fields: [&[u8]; 3] = [b"x: \xff\r\n", b"spin-client-addr: 192.0.2.1\xc3\r\n", b"authorization: \x80\r\n"];
        for fields in fields {
            assert_eq!(client.get(&path, fields)?.0, 500, "{limiter}");
        }
        assert_eq!(app.operations().await?, 0, "{limiter}: the app ran");
    }
    assert_eq!(client.get("/kv", "x: \u{e9}\r\n".as_bytes())?.0, 200);
    Ok(())
}

/// Policies of one request a day. After that request, the store denies everyone.
const ONE_A_DAY: [&str; 2] = [
    r#"--env=POLICY={"name":"p","quotas":[{"algorithm":"fixed_window","limit":1,"window_ms":86400000}]}"#,
    r#"--env=WINDOW_POLICY={"name":"w","quotas":[{"algorithm":"fixed_window","limit":1,"window_ms":86400000}]}"#,
];

#[tokio::test]
async fn no_client_input_gets_past_a_store_that_denies() -> Result<()> {
    for trusted in ["on", "off"] {
        let trust = format!("--env=TRUST_TRUE_CLIENT_IP={trusted}");
        let app = App::start(&[ONE_A_DAY[0], ONE_A_DAY[1], &trust]).await?;
        for limiter in LIMITERS {
            let path = format!("/{limiter}");
            assert_eq!(app.get(&path, &[]).await?.0, 200, "{limiter}");
            // If the header is trusted, all clients with an invalid one share the key for missing addresses.
            app.get(&path, &[("true-client-ip", "no address")]).await?;
            for value in ["", "no address", "203.0.113.9, 10.0.0.1", "203.0.113.9:x", "[::1", "999.1.1.1", "-"] {
                for name in ["spin-client-addr", "x-forwarded-for", "forwarded", "authorization", "true-client-ip"] {
                    let (status, body) = app.get(&path, &[(name, value)]).await?;
                    assert_eq!(status, 429, "{limiter} {name}: {value:?}: {body}");
                }
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_invalid_cost_or_key_is_never_admitted() -> Result<()> {
    let app = App::start(&[]).await?;
    let policy = r#"{"name":"test","quotas":[{"algorithm":"fixed_window","limit":2,"window_ms":60000}]}"#;
    for limiter in LIMITERS {
        let path = format!("{}/{limiter}/_tidegate/check", app.base());
        let (used_up, check) = (call("k", 2, NOW_MS), format!("/{limiter}/_tidegate/check"));
        for _ in 0..2 {
            assert_eq!(app.call(&check, &used_up).await?.0, 200, "{limiter}");
        }
        for cost in ["1", "2", "1.5", "-1", "1e300", "NaN", "null", "18446744073709551615", "18446744073709551616"] {
            let body = format!(r#"{{"policy":{policy},"key":"k","now_ms":{NOW_MS},"cost":{cost}}}"#);
            let (status, answer) = app.send(Request::post(&path), body).await?;
            assert_ne!(status, 200, "{limiter} {cost}: {answer}");
        }
        for key in [r#""\ud800""#, "7", "null", "[]", "{}"] {
            let body = format!(r#"{{"policy":{policy},"key":{key},"now_ms":{NOW_MS}}}"#);
            let (status, answer) = app.send(Request::post(&path), body).await?;
            assert_ne!(status, 200, "{limiter} {key}: {answer}");
        }
    }
    Ok(())
}

/// The smallest app of the SDK sets the head first. Its answers take 43 ms on Spin, and must not be faster on our host.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_head_is_set_before_the_body_waits_for_an_acknowledgement() -> Result<()> {
    let host = Host::start_app("tidegate-guest-spin-least", MANIFEST, &[]).await?;
    let median = KeptAlive::connect(host.base())?.median("/")?;
    assert!(median > Duration::from_millis(30), "{median:?}");
    host.stop().await;
    Ok(())
}
