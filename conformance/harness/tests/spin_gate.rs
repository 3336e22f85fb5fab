//! Tests of the gate in front of an app that knows nothing of it, composed as Spin does, on our host.

#[path = "spin_gate/raw.rs"]
mod raw;
#[path = "spin_gate/tokens.rs"]
mod tokens;

use std::convert::Infallible;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tidegate_harness::target::spin::Host;
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const GATE: &str = "tidegate-spin-gate";
const APP: &str = "tidegate-guest-spin-behind";

const RULES: &str = r#"
    [limits.api]
    quotas = [{ algorithm = "fixed_window", limit = 137, window_ms = 86_400_000, by = "ip" }]

    [limits.login]
    quotas = [{ algorithm = "fixed_window", limit = 2, window_ms = 86_400_000, by = "ip" }]

    [[rules]]
    limits = ["api"]
    on_failure = "open"

    [[rules]]
    path = "/login"
    limits = ["login"]
    on_failure = "closed"

    [[rules]]
    path = "/health"
    limits = []
"#;

/// What the gate needs.
const INHERITED: &str = r#"["allowed_outbound_hosts", "files", "key_value_stores", "variables"]"#;

/// The app behind the gate, and the folder of its manifest.
struct App {
    host: Host,
    client: Client<HttpConnector, Body>,
    _folder: TempDir,
}

type Body = BoxBody<Bytes, Infallible>;

struct Answer {
    status: u16,
    fields: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl App {
    /// Starts the app with a file of rules, if there is one, and these variables.
    async fn start(rules: Option<&str>, variables: &[(&str, &str)]) -> Result<Self> {
        Self::start_inheriting(INHERITED, rules, variables).await
    }

    async fn start_inheriting(inherited: &str, rules: Option<&str>, variables: &[(&str, &str)]) -> Result<Self> {
        let files = if rules.is_some() { r#"files = ["tidegate.toml"]"# } else { "" };
        let manifest = format!(
            r#"
            [[trigger.http]]
            route = "/..."
            component = "app"
            dependencies.middleware = [{{ component = "gate", inherit_configuration = {inherited} }}]
            [component.app]
            source = "app.wasm"
            key_value_stores = ["default"]
            allowed_outbound_hosts = ["redis://127.0.0.1:*"]
            {files}
            [component.gate]
            source = "gate.wasm"
            "#
        );
        Self::start_as(&manifest, rules, variables).await
    }

    /// Starts the app that a manifest describes, but for its first lines.
    async fn start_as(described: &str, rules: Option<&str>, variables: &[(&str, &str)]) -> Result<Self> {
        let folder = TempDir::new()?;
        if let Some(rules) = rules {
            fs::write(folder.path().join("tidegate.toml"), rules)?;
        }
        let manifest = folder.path().join("spin.toml");
        fs::write(&manifest, format!("spin_manifest_version = 2\n[application]\nname = \"behind\"\n{described}"))?;
        let variables: Vec<_> = variables.iter().map(|(name, value)| format!("--variable={name}={value}")).collect();
        let host = Host::start_composed(Some(GATE), APP, &manifest.display().to_string(), &variables).await?;
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Ok(Self { host, client, _folder: folder })
    }

    async fn send(&self, request: hyper::http::request::Builder, body: Bytes) -> Result<Answer> {
        self.send_body(request, Full::new(body).boxed()).await
    }

    async fn send_body(&self, request: hyper::http::request::Builder, body: Body) -> Result<Answer> {
        let (parts, body) = self.client.request(request.body(body)?).await?.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Answer { status: parts.status.as_u16(), fields: parts.headers, body: body.to_bytes(), trailers })
    }

    /// How often the app behind the gate has run.
    fn runs(&self) -> Result<usize> {
        Ok(self.host.log()?.lines().filter(|line| *line == "the app ran").count())
    }

    async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Request::get(format!("{}{path}", self.host.base())), Bytes::new()).await
    }

    /// How many of 500 requests at once are admitted. The others get a 429.
    async fn admitted_of_500(&self) -> Result<usize> {
        let answers = join_all((0..500).map(|_| self.get("/"))).await.into_iter().collect::<Result<Vec<_>>>()?;
        let count = |status| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!(count(201) + count(429), 500);
        Ok(count(201))
    }
}

/// A redis-server with a password. It ends when this is dropped.
struct Redis(Child, String);

impl Redis {
    fn start() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options = format!("--port {port} --requirepass secret-word --save \"\" --appendonly no");
        let server = Command::new("redis-server").args(options.split(' ')).stdout(Stdio::null()).spawn()?;
        let redis = Self(server, format!("redis://:secret-word@127.0.0.1:{port}"));
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err("redis-server does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_requests_at_once_are_counted_exactly_on_atomics() -> Result<()> {
    let app = App::start(Some(RULES), &[]).await?;
    assert_eq!(app.admitted_of_500().await?, 137);
    // The rule of a path has a limit of its own, and one path has none.
    for (path, statuses) in [("/login", [201, 201, 429]), ("//login/", [429; 3]), ("/health", [201; 3])] {
        for status in statuses {
            assert_eq!(app.get(path).await?.status, status, "{path}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_responses_pass_as_they_are_with_the_fields_of_the_limit() -> Result<()> {
    let app = App::start(Some(RULES), &[]).await?;
    let long: Bytes = (0..2_000_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    for body in [Bytes::new(), Bytes::from("short"), long] {
        let answer = app.send(Request::post(format!("{}/login?from=7", app.host.base())), body.clone()).await?;
        if answer.status == 429 {
            assert!(answer.field("retry-after").parse::<u64>()? > 0);
            assert!(answer.field("content-type").starts_with("application/json"));
            assert!(str::from_utf8(&answer.body)?.contains(r#""policy":"login""#));
            return Ok(());
        }
        assert_eq!((answer.status, answer.field("x-path")), (201, "/login?from=7"));
        assert!(answer.body == body, "{} of {} bytes", answer.body.len(), body.len());
        let count = |name: &str| answer.fields.get_all(name).iter().count();
        assert_eq!((count("set-cookie"), count("x-ratelimit-limit"), count("ratelimit")), (2, 1, 1));
        assert_eq!(answer.field("x-ratelimit-limit"), "2");
        assert!(answer.field("ratelimit").starts_with("\"login\";r="), "{:?}", answer.fields);
    }
    Err("the third request passed".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_passes_both_ways() -> Result<()> {
    let app = App::start(Some(RULES), &[]).await?;
    let long: Bytes = (0..2_000_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    let answer = app.send(Request::post(format!("{}/", app.host.base())), long.clone()).await?;
    assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (201, "136"));
    assert!(answer.body == long, "{} of {} bytes", answer.body.len(), long.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_both_ways() -> Result<()> {
    let app = App::start(Some(RULES), &[]).await?;
    let trailers = HeaderMap::from_iter([("x-sum".parse()?, "7".parse()?)]);
    let sent = trailers.clone();
    let body = Full::new(Bytes::from("short")).with_trailers(async { Some(Ok(sent)) });
    let answer = app.send_body(Request::post(format!("{}/", app.host.base())), body.boxed()).await?;
    assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (201, "136"));
    assert_eq!((&*answer.body, answer.trailers), (&b"short"[..], Some(trailers)));
    Ok(())
}

/// A leaky bucket admits a request each 300 ms. An instance answers several requests, and none waits for another's turn.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_leaky_bucket_wait_for_their_turns_at_the_same_time() -> Result<()> {
    let rules = r#"
        [limits.even]
        quotas = [{ algorithm = "leaky_bucket", capacity = 8, refill = 1, per_ms = 300, by = "ip" }]
        [[rules]]
        limits = ["even"]
    "#;
    let app = App::start(Some(rules), &[]).await?;
    // The first one starts an instance, and is not held.
    assert_eq!(app.get("/").await?.status, 201);
    let began = Instant::now();
    let answers = join_all((0..7).map(|_| app.get("/"))).await.into_iter().collect::<Result<Vec<_>>>()?;
    let took = began.elapsed();
    assert!(answers.iter().all(|answer| answer.status == 201));
    // They wait up to 2.1 s. One after another, they would wait 8.4 s.
    assert!((Duration::from_millis(1_500)..Duration::from_secs(6)).contains(&took), "{took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_choose_its_address() -> Result<()> {
    let app = App::start(Some(RULES), &[]).await?;
    for (forged, status) in [("192.0.2.1:1", 201), ("192.0.2.2:2", 201), ("192.0.2.3:3", 429), ("", 429), ("x", 429)] {
        let mut request = Request::get(format!("{}/login", app.host.base()));
        for name in ["spin-client-addr", "x-forwarded-for", "forwarded", "true-client-ip"] {
            request = request.header(name, forged);
        }
        assert_eq!(app.send(request, Bytes::new()).await?.status, status, "{forged}");
    }
    Ok(())
}

/// The page's rules and its part of a manifest limit the app as they are printed.
#[tokio::test]
async fn what_the_page_prints_limits_the_app() -> Result<()> {
    let page = fs::read_to_string(workspace().join("adapters/spin/README.md"))?;
    let part = page.split("## A gate in front of any component").nth(1).ok_or("no such part")?;
    let mut blocks = part.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    let (rules, manifest) = (blocks.next().ok_or("no rules")?, blocks.next().ok_or("no manifest")?);
    assert!(rules.contains("limit = 5") && manifest.contains("dependencies.middleware"), "{rules}{manifest}");
    let app = App::start_as(manifest, Some(rules), &[]).await?;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(app.get("/").await?.status);
    }
    assert_eq!(statuses, [201, 201, 201, 201, 201, 429]);
    Ok(())
}

/// The rules of a gate, if there are any, its variables, and what the log tells of both.
type Wrong<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a str);

/// Each is a 500 to each request, and a line of the log that says what to write. The app never runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_not_configured_lets_nobody_pass() -> Result<()> {
    let limit = r#"[limits.api]
        quotas = [{ algorithm = "sliding_log", limit = 5, window_ms = 60_000, by = "nobody" }]
        [[rules]]
        limits = ["api"]
        on_failure = "open""#;
    let cases: [Wrong<'_>; 10] = [
        (None, &[], r#"files = ["tidegate.toml"]"#),
        (Some(RULES), &[("tidegate_rules", "other.toml")], r#"files = ["other.toml"]"#),
        (Some(""), &[], "tidegate.toml"),
        (Some("rules = []"), &[], "no rule; write at least one table [[rules]]"),
        (Some("[limits"), &[], "tidegate.toml"),
        (Some(limit), &[], "nobody"),
        (Some(RULES), &[("tidegate_store", "secret-word")], "tidegate_store"),
        (Some(RULES), &[("tidegate_store", "atomics:another")], r#"key_value_stores = ["another"]"#),
        (Some(RULES), &[("tidegate_store", "redis://:secret-word@192.0.2.1:6379")], "allowed_outbound_hosts"),
        (Some(RULES), &[("tidegate_events", "yes")], "tidegate_events"),
    ];
    for (rules, variables, told) in cases {
        let app = App::start(rules, variables).await?;
        for path in ["/", "/health", "/login"] {
            let answer = app.get(path).await?;
            assert_eq!(answer.status, 500, "{told}: {path}");
            assert!(!answer.body.is_empty() && !String::from_utf8_lossy(&answer.body).contains("secret-word"));
        }
        let log = app.host.log()?;
        assert!(log.contains("tidegate: ") && log.contains(told), "{told}: {log}");
        assert!(!log.contains("secret-word") && !log.contains("the app ran"), "{log}");
    }
    Ok(())
}

/// On Spin, a component without this does not start, because Spin denies no atomics.
#[tokio::test]
async fn an_app_whose_gate_inherits_no_stores_does_not_start() -> Result<()> {
    for inherited in ["false", "[]", r#"["files", "variables"]"#] {
        let Err(error) = App::start_inheriting(inherited, Some(RULES), &[]).await else {
            return Err(format!("{inherited}: it started").into());
        };
        assert!(error.to_string().contains("inherit_configuration"), "{inherited}: {error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_requests_at_once_are_counted_exactly_on_redis_and_on_failure_decides_when_it_is_down()
-> Result<()> {
    let redis = Redis::start()?;
    let app = App::start(Some(RULES), &[("tidegate_store", &redis.1)]).await?;
    assert_eq!(app.admitted_of_500().await?, 137);
    assert_eq!(app.get("/login").await?.status, 201);
    drop(redis);
    for _ in 0..3 {
        // The rule of all paths says "open", and that of the login says "closed".
        assert_eq!(app.get("/").await?.status, 201);
        let refused = app.get("/login").await?;
        assert_eq!(refused.status, 503);
        assert!(!String::from_utf8_lossy(&refused.body).contains("secret-word"));
        assert_eq!(app.get("/health").await?.status, 201);
    }
    let log = app.host.log()?;
    assert!(log.contains("tidegate: the store \"default\" does not answer (unavailable)"), "{log}");
    assert!(!log.contains("secret-word"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_is_a_line_of_json_if_that_is_wanted() -> Result<()> {
    let app = App::start(Some(RULES), &[("tidegate_events", "on")]).await?;
    for _ in 0..3 {
        app.get("/login").await?;
    }
    let log = app.host.log()?;
    let events = |outcome: &str| log.lines().filter(|line| line.contains(&format!(r#""outcome":"{outcome}""#))).count();
    assert_eq!((events("allowed"), events("denied")), (2, 1), "{log}");
    let quiet = App::start(Some(RULES), &[]).await?;
    quiet.get("/login").await?;
    assert!(!quiet.host.log()?.contains("outcome"));
    Ok(())
}
