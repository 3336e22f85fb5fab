//! Sends hostile input to the Worker on workerd. No input may get more requests admitted than the limit.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate_harness::target::cloudflare::Host;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const STORES: [&str; 4] = ["do", "do-leased", "kv", "ratelimit"];

/// The start of a check's body, up to the part that a client controls.
const START: &str = r#"{"policy":{"name":"test","quotas":[{"algorithm":"fixed_window","limit":1,"window_ms":60000}]},
    "now_ms":1800000000000,"key":""#;

struct Sender(Client<HttpConnector, Full<Bytes>>);

impl Sender {
    fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    async fn send(&self, method: &str, url: &str, headers: HeaderMap, body: &[u8]) -> Result<u16> {
        Ok(self.answer(method, url, headers, body).await?.status().as_u16())
    }

    async fn answer(&self, method: &str, url: &str, headers: HeaderMap, body: &[u8]) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(fields) = request.headers_mut() {
            *fields = headers;
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body)))?;
        let response = self.0.request(request).await?;
        assert!([200, 400, 429, 503].contains(&response.status().as_u16()), "{url}: {}", response.status());
        Ok(response)
    }

    /// Sends a burst of identical requests, and returns how many are admitted.
    async fn burst(&self, url: &str, headers: &HeaderMap, body: &[u8], requests: usize) -> Result<u64> {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let answers = join_all((0..requests).map(|_| self.send(method, url, headers.clone(), body))).await;
        let statuses = answers.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(statuses.into_iter().filter(|status| *status == 200).count() as u64)
    }
}

fn body(key: &[u8], cost: &str, token: &[u8]) -> Vec<u8> {
    let mut body = [START.as_bytes(), key, b"\",\"cost\":", cost.as_bytes()].concat();
    if !token.is_empty() {
        body.extend([b",\"token\":{\"ttl_ms\":60000,\"text\":\"".as_slice(), token, b"\"}"].concat());
    }
    body.push(b'}');
    body
}

/// Keys and tokens that a client may send, as they appear in JSON.
const TEXTS: [&[u8]; 8] = [
    b"",
    br"\ud800",
    br"k\udfff",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    br"\u0000",
    br"../../do#?&%25",
    "\u{202e}\u{1f4a9}".as_bytes(),
];

/// Fields by which a client may claim to be another.
const FORGED: [&str; 20] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "fastly-client-ip",
    "spin-client-addr",
    "x-vercel-forwarded-for",
    "x-nf-client-connection-ip",
    "authorization",
    "x-api-key",
    "x-user-id",
    "x-tier",
    "x-plan",
    "x-bot-score",
    "cookie",
];

const COSTS: [&str; 11] =
    ["-1", "1.5", "1e300", "-0.5", "NaN", "null", "\"1\"", "18446744073709551615", "18446744073709551616", "[]", "2"];

/// The example of `tidegate-cloudflare`, on three isolates.
#[tokio::test]
async fn the_example_limits_by_its_rules() -> Result<()> {
    let host = Host::start_app("adapters/cloudflare/examples/worker", &["--isolates=3".into()]).await?;
    let bases: Vec<_> = host.addresses().map(ToString::to_string).collect();
    let sender = Sender::new();
    let from = |address: &str, key: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        headers.insert("cf-connecting-ip", HeaderValue::from_str(address)?);
        if let Some(key) = key {
            headers.insert("x-api-key", HeaderValue::from_static(key));
        }
        Ok::<_, Box<dyn std::error::Error>>(headers)
    };
    // Exactly 5 logins in a minute, whichever isolate and path they take.
    let (mut admitted, mallory) = (0, from("192.0.2.1", None)?);
    for attempt in 0..12 {
        let path = ["/login", "/login/", "//login", "/x/../%6Cogin"][attempt % 4];
        let url = format!("{}{path}?attempt={attempt}", bases[attempt % 3]);
        admitted += usize::from(sender.send("POST", &url, mallory.clone(), b"").await? == 200);
    }
    assert_eq!(admitted, 5);
    assert_eq!(sender.send("POST", &format!("{}/login", bases[0]), from("192.0.2.2", None)?, b"").await?, 200);
    // No field that a client sends makes it another.
    for name in FORGED {
        for value in ["203.0.113.7", "alice", "Bearer e30.e30.", "99", ""] {
            let mut forged = mallory.clone();
            forged.insert(name, HeaderValue::from_static(value));
            assert_eq!(sender.send("POST", &format!("{}/login", bases[0]), forged, b"").await?, 429, "{name}: {value}");
        }
    }
    // 20 requests, and 10 a second, by address. A plan has ten times as many, by key. Each isolate may lease ten.
    for (headers, capacity) in
        [(from("192.0.2.3", None)?, 20), (from("192.0.2.4", Some("example-key-replace-me"))?, 200)]
    {
        let (begun, mut admitted) = (Instant::now(), 0);
        for base in &bases {
            admitted += sender.burst(&format!("{base}/api/users"), &headers, b"", 100).await?;
        }
        let most = capacity + capacity / 2 * (1 + begun.elapsed().as_secs());
        println!("/api: {admitted} of 300 admitted, at most {most}");
        assert!((capacity / 2..=most).contains(&admitted), "{admitted}, at most {most}");
    }
    // A key that is not valid is none, and counts by the address.
    let forged = from("192.0.2.3", Some("forged"))?;
    let begun = Instant::now();
    let admitted = sender.burst(&format!("{}/api/users", bases[0]), &forged, b"", 100).await?;
    assert!(admitted <= 20 + 10 * (1 + begun.elapsed().as_secs()), "{admitted}");
    // Everything else counts in each location.
    assert_eq!(sender.burst(&format!("{}/", bases[1]), &mallory, b"", 20).await?, 20);
    host.stop().await;
    Ok(())
}

/// With a lease in the rules and `after`, the object is asked after the response.
#[tokio::test]
async fn no_request_of_a_steady_client_of_the_example_waits_for_an_object() -> Result<()> {
    let host = Host::start_app("adapters/cloudflare/examples/worker", &[]).await?;
    let url = format!("{}/api/users", host.addresses().next().ok_or("no address")?);
    let (sender, mut headers) = (Sender::new(), HeaderMap::new());
    headers.insert("cf-connecting-ip", HeaderValue::from_static("192.0.2.5"));
    headers.insert("x-api-key", HeaderValue::from_static("example-key-replace-me"));
    let (mut waited, mut calls) = (0, 0);
    for nth in 0..150 {
        if nth == 30 {
            // By now the isolate has leased as much at once as it may.
            (waited, calls) = (0, object_calls(&host).await?);
        }
        let response = sender.answer("GET", &url, headers.clone(), b"").await?;
        assert_eq!(response.status(), 200, "request {nth}");
        // Only an object knows what is left.
        waited += usize::from(response.headers().contains_key("ratelimit"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let calls = object_calls(&host).await? - calls;
    println!("/api: of 120 steady requests, {waited} have waited for the object, which was asked {calls} times");
    assert!((10..=60).contains(&calls), "the object was asked {calls} times");
    assert!(waited <= 3, "{waited} of 120 requests have waited for the object");
    host.stop().await;
    Ok(())
}

async fn object_calls(host: &Host) -> Result<u64> {
    let counts = host.tell("counts").await?;
    counts["objectCalls"].as_u64().ok_or_else(|| format!("no calls of objects in {counts}").into())
}

/// While the binding fails, Workers KV decides, with the same limit in each isolate.
#[tokio::test]
async fn the_examples_binding_has_a_backup() -> Result<()> {
    let host = Host::start_app("adapters/cloudflare/examples/worker", &["--failing=LIMITER".into()]).await?;
    let url = format!("{}/", host.addresses().next().ok_or("no address")?);
    let (sender, mut headers) = (Sender::new(), HeaderMap::new());
    headers.insert("cf-connecting-ip", HeaderValue::from_static("192.0.2.9"));
    assert_eq!(sender.burst(&url, &headers, b"", 150).await?, 100);
    let counts = host.tell("counts").await?;
    assert!(counts["kvWrites"].as_u64().is_some_and(|writes| writes > 0), "{counts}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn no_forged_address_exceeds_the_limit() -> Result<()> {
    let host = Host::start(&["--var=CAPACITY=1".into(), "--var=TIDEGATE_TEST_MODE=off".into()]).await?;
    let base = host.addresses().next().ok_or("no address")?;
    let sender = Sender::new();
    // Invalid addresses share one key. So do all forwarded addresses, because anyone can forge them.
    let claims: [&[u8]; 8] = [
        b"2a06:98c0:3600::103",
        b"not an address",
        b"192.0.2.1, 192.0.2.2",
        b"\xff\xfe",
        b"fe80::1%eth0",
        b"0.0.0.0",
        b"::",
        b"ip:192.0.2.1",
    ];
    for store in ["do", "do-leased", "kv"] {
        // `do` and `do-leased` count in the same objects, which refill one request a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let (url, begun, mut admitted) = (format!("{base}/{store}"), Instant::now(), 0);
        for claim in claims {
            let mut headers = HeaderMap::new();
            headers.insert("cf-connecting-ip", HeaderValue::from_bytes(claim)?);
            admitted += sender.burst(&url, &headers, b"", 20).await?;
        }
        for number in 0..100 {
            let mut headers = HeaderMap::new();
            for name in ["x-forwarded-for", "x-real-ip", "true-client-ip", "forwarded"] {
                headers.insert(name, HeaderValue::from_str(&format!("203.0.113.{number}"))?);
            }
            admitted += sender.burst(&url, &headers, b"", 2).await?;
        }
        // There are two keys, because `fe80::1` is an address. Each admits one request, and one more every second.
        let most = 2 * (2 + begun.elapsed().as_secs());
        println!("/{store}: {admitted} of 360 admitted, at most {most}");
        assert!((1..=most).contains(&admitted), "/{store}: {admitted}, at most {most}");
    }
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn no_key_cost_or_token_gets_past_a_store_that_denies() -> Result<()> {
    away_from_a_minutes_end().await;
    let host = Host::start(&["--rate-limit=1/60".into()]).await?;
    let base = host.addresses().next().ok_or("no address")?;
    let (sender, headers) = (Sender::new(), HeaderMap::new());
    for store in STORES {
        let url = format!("{base}/{store}/_tidegate/check");
        for key in TEXTS {
            let admitted = sender.burst(&url, &headers, &body(key, "1", b""), 20).await?;
            assert!(admitted <= 1, "/{store}, key {:?}: {admitted}", key.escape_ascii().to_string());
        }
        // After this, the key is at its limit. An isolate may hold back the one request that it has leased.
        let admitted = sender.burst(&url, &headers, &body(b"spent", "1", b""), 20).await?;
        assert!(admitted == 1 || store == "do-leased" && admitted == 0, "/{store}: {admitted}");
        for cost in COSTS {
            let admitted = sender.burst(&url, &headers, &body(b"spent", cost, b""), 5).await?;
            assert_eq!(admitted, 0, "/{store}, cost {cost}");
        }
        for token in TEXTS {
            let admitted = sender.burst(&url, &headers, &body(b"spent", "1", &[b"t", token].concat()), 5).await?;
            assert_eq!(admitted, 0, "/{store}, token {:?}", token.escape_ascii().to_string());
        }
        for garbage in [&b"\xff"[..], b"{}", b"null", b"{\"policy\":{}}", &[b'['; 10_000]] {
            assert_eq!(sender.burst(&url, &headers, garbage, 5).await?, 0, "/{store}");
        }
    }
    host.stop().await;
    Ok(())
}

/// Waits if the minute is about to end, because the emulated binding counts by the wall clock's minutes.
async fn away_from_a_minutes_end() {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(60 - since_epoch.as_secs() % 60);
    if left < Duration::from_secs(30) {
        tokio::time::sleep(left).await;
    }
}

/// As wrangler starts a Worker whose `durable_objects` are misspelt, whose class is in no `migrations`, or is there under another name.
#[tokio::test]
async fn an_absent_object_is_a_line_of_the_log_that_says_what_to_write() -> Result<()> {
    let migrations = r#""migrations": [{ "tag": "v1", "new_sqlite_classes": [""#;
    for (args, says) in [
        (
            "--without=TIDEGATE",
            "tidegate: durable object: no namespace is bound as TIDEGATE; in wrangler.jsonc, write ",
        ),
        (
            "--without=SQLite",
            "tidegate: the rule \"POST /login\": the limiter failed (refused); the class that wrangler.jsonc ",
        ),
        (
            "--class=Missing",
            "tidegate: the store \"objects\" does not answer (timeout), and on_failure of each rule decides; no object ",
        ),
    ] {
        let host = Host::start_app("adapters/cloudflare/examples/worker", &[args.into()]).await?;
        let (before, base) = (host.log()?.len(), host.addresses().next().unwrap_or_default().to_owned());
        let status = Sender::new().send("POST", &format!("{base}/login"), HeaderMap::new(), b"").await?;
        assert_eq!(status, 503, "{args}");
        // The log passes through a pipe.
        let mut line = None;
        for _ in 0..3_000 {
            let log = host.log()?.split_off(before);
            line = log.lines().find(|line| line.starts_with("tidegate")).map(ToOwned::to_owned);
            if line.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let line = line.ok_or_else(|| format!("{args}: the log has no line"))?;
        assert!(line.starts_with(says) && line.contains(migrations), "{args}: {line}");
        host.stop().await;
    }
    Ok(())
}
