//! Concurrency limits, over HTTP: when a request takes a slot, and when it gives it back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::{join_all, pending};
use futures_util::stream;
use http::{Request, Response};
use support::gate;
use support::server::Server;
use tidegate_core::gate::OnFailure;
use tidegate_core::{
    Capabilities, Check, Error, ErrorKind, Limiter, LimiterExt, MemoryLimiter, Millis, Operation, Policy, Quota, Reply,
    UnixMillis,
};
use tidegate_testing::{Declaring, Log, NOW, at, key};
use tidegate_tower::{Charge, RateLimitLayer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;

const CLIENT: (&str, &str) = ("x-vercel-forwarded-for", "192.0.2.1");

/// Two requests at once, and a hundred in all.
fn policy() -> Policy {
    let two = Quota::concurrency(2, Millis::from_secs(60)).unwrap();
    Policy::new("api", [two, Quota::fixed_window(100, Millis::from_secs(86_400)).unwrap()]).unwrap()
}

fn layer<L: Limiter + 'static>(limiter: &Arc<L>) -> RateLimitLayer {
    let gate = gate(Arc::clone(limiter), policy(), OnFailure::Open).unwrap();
    RateLimitLayer::new(gate).unwrap().clock(|| NOW)
}

/// The free slots, and what is left of the hundred.
async fn left(limiter: &impl Limiter) -> (u64, u64) {
    let (policy, key) = (policy(), key());
    let check = Check::new(&policy, &key, NOW).idempotent("peek", Millis::new(1));
    let decision = limiter.peek(check).await.unwrap();
    let [slots, rest] = decision.quotas() else { panic!() };
    (slots.remaining().unwrap(), rest.remaining().unwrap())
}

/// Waits for the tasks that give slots back.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("not reached: {what}"));
}

async fn all_free(limiter: &impl Limiter) {
    until("both slots are free", async || left(limiter).await.0 == 2).await;
}

/// Sends a request, and reads the response until `text` has arrived. The client disconnects when this is dropped.
async fn connect(server: &Server, text: &str) -> TcpStream {
    let mut connection = TcpStream::connect(server.address()).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: example.com\r\n{}: {}\r\n\r\n", CLIENT.0, CLIENT.1);
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut read = String::new();
    while !read.contains(text) {
        let mut bytes = [0; 1_024];
        let count = connection.read(&mut bytes).await.unwrap();
        assert!(count > 0, "the server closed the connection after {read:?}");
        read.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    connection
}

/// A body that never ends.
fn endless() -> Body {
    let first = stream::iter([Ok::<_, Infallible>("hello")]);
    Body::from_stream(stream::StreamExt::chain(first, stream::pending()))
}

#[tokio::test]
async fn of_three_requests_at_once_two_are_admitted() {
    async fn work(State(may_end): State<Arc<Semaphore>>) -> &'static str {
        may_end.acquire().await.unwrap().forget();
        "done"
    }
    let (limiter, may_end) = (Arc::new(MemoryLimiter::new()), Arc::new(Semaphore::new(0)));
    let app = Router::new().route("/", get(work)).route("/quick", get(|| async { "done" })).layer(layer(&limiter));
    let app = app.with_state(Arc::clone(&may_end));
    let server = Arc::new(Server::start(app).await);
    let spawn = || {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get("/", &[CLIENT]).await })
    };
    let admitted = [spawn(), spawn()];
    until("both slots are taken", async || left(&*limiter).await.0 == 0).await;
    let denied: Response<String> = server.get("/", &[CLIENT]).await;
    assert_eq!((denied.status().as_u16(), denied.headers().get("retry-after")), (429, None));
    assert_eq!(denied.headers()["ratelimit-policy"], r#""api-1";q=2;qu="concurrent-requests", "api-2";q=100;w=86400"#);
    assert!(
        denied.body().starts_with(r#"{"error":"rate_limited","policy":"api","quota":"api-1"}"#),
        "{}",
        denied.body()
    );
    // Another client has slots of its own.
    assert_eq!(server.get("/quick", &[("x-vercel-forwarded-for", "192.0.2.2")]).await.status(), 200);

    may_end.add_permits(1);
    until("one has ended", async || left(&*limiter).await.0 == 1).await;
    let next = spawn();
    until("the next one is admitted", async || left(&*limiter).await.0 == 0).await;
    may_end.add_permits(2);
    for answer in join_all(admitted.into_iter().chain([next])).await {
        let answer = answer.unwrap();
        assert_eq!((answer.status().as_u16(), answer.body().as_str()), (200, "done"));
    }
    all_free(&*limiter).await;
    assert_eq!(left(&*limiter).await, (2, 97));
}

#[tokio::test]
async fn a_body_that_is_being_sent_holds_the_slot_until_the_client_disconnects() {
    let limiter = Arc::new(MemoryLimiter::new());
    let app = Router::new().route("/", get(|| async { endless() })).layer(layer(&limiter));
    let server = Server::start(app).await;
    let clients = [connect(&server, "hello").await, connect(&server, "hello").await];
    assert_eq!(left(&*limiter).await, (0, 98));
    assert_eq!(server.get("/", &[CLIENT]).await.status(), 429);
    drop(clients);
    all_free(&*limiter).await;
    connect(&server, "HTTP/1.1 200").await;
    all_free(&*limiter).await;
}

#[tokio::test]
async fn a_client_that_disconnects_before_the_response_frees_its_slot() {
    async fn never(State(begun): State<Arc<Semaphore>>) -> &'static str {
        begun.add_permits(1);
        pending().await
    }
    let (limiter, begun) = (Arc::new(MemoryLimiter::new()), Arc::new(Semaphore::new(0)));
    let app = Router::new().route("/", get(never)).layer(layer(&limiter)).with_state(Arc::clone(&begun));
    let server = Server::start(app).await;
    let client = connect(&server, "").await;
    begun.acquire().await.unwrap().forget();
    assert_eq!(left(&*limiter).await, (1, 99));
    drop(client);
    all_free(&*limiter).await;
}

#[tokio::test]
async fn a_handler_that_panics_frees_its_slot() {
    #[allow(clippy::unused_async, reason = "a handler is async")]
    async fn panics() -> &'static str {
        panic!("the test's")
    }
    let limiter = Arc::new(MemoryLimiter::new());
    let server = Server::start(Router::new().route("/", get(panics)).layer(layer(&limiter))).await;
    for rest in [99, 98, 97] {
        let mut connection = connect(&server, "").await;
        assert_eq!(connection.read(&mut [0; 16]).await.unwrap_or(0), 0);
        all_free(&*limiter).await;
        assert_eq!(left(&*limiter).await, (2, rest));
    }
}

#[tokio::test]
async fn a_body_that_fails_and_an_empty_one_free_the_slot() {
    async fn fails() -> Body {
        Body::from_stream(stream::iter([Ok("hello"), Err("the test's")]))
    }
    let limiter = Arc::new(MemoryLimiter::new());
    let app = Router::new().route("/", get(fails)).route("/empty", get(|| async {})).layer(layer(&limiter));
    let server = Server::start(app).await;
    connect(&server, "").await;
    assert_eq!(server.get("/empty", &[CLIENT]).await.status(), 200);
    until("both were charged", async || left(&*limiter).await == (2, 98)).await;
}

#[tokio::test]
async fn a_settlement_frees_the_slot_and_a_later_release_does_not_replace_it() {
    async fn chat(Extension(charge): Extension<Charge>) -> &'static str {
        // The task settles after the response.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            charge.settle(45).await.unwrap();
        });
        "hello"
    }
    let limiter = Arc::new(MemoryLimiter::new());
    let app = Router::new().route("/", get(chat)).layer(layer(&limiter).estimate(|_| 30).unwrap());
    let server = Server::start(app).await;
    assert_eq!(server.get("/", &[CLIENT]).await.body(), "hello");
    // The charge holds the slot after the response, too.
    until("it was settled", async || left(&*limiter).await == (2, 55)).await;
}

#[tokio::test]
async fn an_estimate_that_is_not_settled_stays_charged_and_frees_the_slot() {
    let limiter = Arc::new(MemoryLimiter::new());
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer(&limiter).estimate(|_| 30).unwrap());
    let server = Server::start(app).await;
    for rest in [70, 40, 10] {
        assert_eq!(server.get("/", &[CLIENT]).await.status(), 200);
        until("it was released", async || left(&*limiter).await == (2, rest)).await;
    }
}

#[tokio::test]
async fn a_slot_without_an_estimate_does_not_hide_the_charge_of_an_outer_layer() {
    async fn chat(Extension(charge): Extension<Charge>) -> &'static str {
        charge.settle(45).await.unwrap();
        "hello"
    }
    let (outer, inner) = (Arc::new(MemoryLimiter::new()), Arc::new(MemoryLimiter::new()));
    let app = Router::new().route("/", get(chat)).layer(layer(&inner)).layer(layer(&outer).estimate(|_| 30).unwrap());
    let server = Server::start(app).await;
    assert_eq!(server.get("/", &[CLIENT]).await.status(), 200);
    until("the outer layer's was settled", async || left(&*outer).await == (2, 55)).await;
    until("the inner layer's was released", async || left(&*inner).await == (2, 99)).await;
}

/// A limiter that counts the settlements, and fails as it is told.
#[derive(Default)]
struct Watched {
    limiter: MemoryLimiter,
    settled: AtomicUsize,
    /// Whether the answers to checks are lost.
    loses: bool,
    /// Whether checks fail before they are charged.
    fails: bool,
    /// The errors of the next settlements.
    refuses: Mutex<Vec<ErrorKind>>,
}

impl Limiter for Watched {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Check(_) if self.fails => return Err(Error::new(ErrorKind::Unavailable, "it is down")),
            Operation::Settle(_) => {
                self.settled.fetch_add(1, Ordering::Relaxed);
                let refused = self.refuses.lock().unwrap().pop();
                if let Some(kind) = refused {
                    return Err(Error::new(kind, "the test's"));
                }
            }
            _ => {}
        }
        let reply = self.limiter.apply(operation).await?;
        match operation {
            Operation::Check(_) if self.loses => Err(Error::new(ErrorKind::Timeout, "the answer was lost")),
            _ => Ok(reply),
        }
    }
}

#[tokio::test]
async fn a_slot_whose_answer_was_lost_is_given_back_once() {
    let limiter = Arc::new(Watched { loses: true, ..Watched::default() });
    let server = Server::start(Router::new().route("/", get(|| async { "hello" })).layer(layer(&limiter))).await;
    for nth in 1..=3 {
        let answer = server.get("/", &[CLIENT]).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-tidegate-failed-open"]),
            (200, &"timeout".parse().unwrap())
        );
        all_free(&*limiter).await;
        until("it was settled once", async || limiter.settled.load(Ordering::Relaxed) == nth).await;
    }
}

/// Sends a request, and drops the response once its head is there.
async fn answered(layer: &RateLimitLayer) -> u16 {
    let service = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) });
    let request = Request::get("/").header(CLIENT.0, CLIENT.1).body(()).unwrap();
    layer.layer(service).oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_has_nothing_to_give_back() {
    let limiter = Arc::new(Watched::default());
    let layer = layer(&limiter).cost(|_| 100);
    for (status, settled) in [(200, 1), (429, 1), (429, 1)] {
        assert_eq!(answered(&layer).await, status);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(limiter.settled.load(Ordering::Relaxed), settled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_back_again_until_the_store_answers() {
    use ErrorKind::{Refused, Timeout, Unavailable, UnknownCharge};

    let warned = |kind: &str| {
        format!("WARN message=rate limiter failed policy=\"api\" kind=\"{kind}\" outcome=\"unreleased\" suppressed=0")
    };
    // The errors of the settlements, the last first, and whether the check fails; the settlements, the time until the last, the log.
    for (refuses, fails, settled, last_ms, kind) in [
        (vec![], false, 1, 0, None),
        (vec![Timeout, Unavailable], false, 3, 750, None),
        (vec![Unavailable; 6], false, 6, 7_750, Some("unavailable")),
        // The store has answered.
        (vec![Refused], false, 1, 0, Some("refused")),
        (vec![UnknownCharge], false, 1, 0, Some("unknown_charge")),
        // There may be no charge.
        (vec![UnknownCharge], true, 1, 0, None),
    ] {
        let limiter = Watched { fails, refuses: Mutex::new(refuses.clone()), ..Watched::default() };
        let (limiter, log) = (Arc::new(limiter), Log::default());
        let _guard = log.record();
        let started = Instant::now();
        let layer = layer(&limiter);
        assert_eq!(answered(&layer).await, 200);
        // The first is of the check, if that fails.
        let _ = log.take_lines();
        until("it was settled", async || limiter.settled.load(Ordering::Relaxed) == settled).await;
        let took = started.elapsed().as_millis();
        assert!((last_ms..last_ms + 20).contains(&took), "{refuses:?}: {took} ms");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(limiter.settled.load(Ordering::Relaxed), settled, "{refuses:?}");
        assert_eq!(log.take_lines(), kind.map(warned).into_iter().collect::<Vec<_>>(), "{refuses:?}");
    }
}

#[tokio::test]
async fn a_slot_is_free_after_its_lifetime() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW.get());
    let limiter = Arc::new(MemoryLimiter::new());
    let layer = layer(&limiter).clock(|| UnixMillis::new(CLOCK.load(Ordering::Relaxed)));
    let server = Server::start(Router::new().route("/", get(|| async { endless() })).layer(layer)).await;
    let _clients = [connect(&server, "hello").await, connect(&server, "hello").await];
    CLOCK.store(at(59_999).get(), Ordering::Relaxed);
    assert_eq!(server.get("/", &[CLIENT]).await.status(), 429);
    CLOCK.store(at(60_000).get(), Ordering::Relaxed);
    connect(&server, "HTTP/1.1 200").await;
}

#[test]
fn a_limiter_without_slots_rejects_the_policy_when_the_gate_is_built() {
    let windows = Declaring(Capabilities::EXACT.algorithms(&["fixed_window"]), MemoryLimiter::new());
    let error = gate(windows, policy(), OnFailure::Open).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
