//! The example for actix-web over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not run its main function")]
#[path = "../examples/actix.rs"]
mod example;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use actix_web::web::Data;
use actix_web::{App, HttpServer};
use tidegate_core::{ErrorKind, Limiter, MemoryLimiter, Platform};
use tidegate_testing::failing;

/// Serves the example until the test ends.
fn serve(limiter: impl Limiter + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Data::new(example::gate(limiter, Platform::Direct).unwrap());
    thread::spawn(move || {
        let server = HttpServer::new(move || App::new().app_data(gate.clone()).configure(example::routes));
        actix_web::rt::System::new().block_on(server.workers(2).listen(listener).unwrap().run())
    });
    address
}

fn ask(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 198.51.100.1\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_burst_is_admitted_up_to_the_limit() {
    let server = serve(MemoryLimiter::new());
    let burst: Vec<_> = (0..40).map(|_| thread::spawn(move || ask(server, "GET /"))).collect();
    let answers: Vec<String> = burst.into_iter().map(|one| one.join().unwrap()).collect();
    let (passed, denied): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.starts_with("HTTP/1.1 200"));
    assert_eq!(passed.len(), 5, "{answers:?}");
    for answer in denied {
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: ") && answer.contains("\"error\":\"rate_limited\""), "{answer}");
    }
    assert!(passed.iter().all(|answer| answer.contains("x-ratelimit-remaining: ") && answer.ends_with("hello\n")));
    assert!(ask(server, "GET /health").ends_with("ok\n"));
    // In whichever form the path arrives, and whether or not there is a route.
    for request in ["POST /login", "POST /./login", "GET //", "GET /%2e", "GET /nowhere"] {
        assert!(ask(server, request).starts_with("HTTP/1.1 429"), "{request}");
    }
}

#[test]
fn a_store_that_is_down_is_what_the_rule_says() {
    let server = serve(failing(ErrorKind::Unavailable));
    assert!(ask(server, "GET /").starts_with("HTTP/1.1 200"));
    assert!(ask(server, "POST /login").starts_with("HTTP/1.1 503"));
}
