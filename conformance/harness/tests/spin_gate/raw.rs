//! Requests in bytes, as a hostile client writes them. Each that reaches the app was charged, and a denied one costs nothing behind the gate.

use std::convert::Infallible;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::Frame;

use super::{App, Result};

/// Rules that allow so many requests.
fn rules(limit: u32, free: &str) -> String {
    format!(
        r#"
        [limits.api]
        quotas = [{{ algorithm = "fixed_window", limit = {limit}, window_ms = 86_400_000, by = "ip" }}]
        [[rules]]
        path = "{free}"
        limits = ["api"]
        on_failure = "closed"
        "#
    )
}

/// Requests with these ends of their heads, by what is odd about them, and how often the app runs for each while the limit allows it. `None` is
/// for what a server may refuse or not.
fn forms() -> Vec<(&'static str, Vec<u8>, Option<usize>)> {
    let long = |length: usize| format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(length)).into_bytes();
    let fields: String = (0..90).map(|nth| format!("x-{nth}: {nth}\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n").into_bytes();
    let texts: [(&str, &str, Option<usize>); 41] = [
        ("a plain request", "GET / HTTP/1.1\r\nhost: a\r\n\r\n", Some(1)),
        ("two in a row", "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", Some(2)),
        ("no Host", "GET / HTTP/1.1\r\n\r\n", None),
        ("an empty Host", "GET / HTTP/1.1\r\nhost:\r\n\r\n", None),
        ("two Hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", None),
        ("a Host that is none", "GET / HTTP/1.1\r\nhost: /@\\ a\r\n\r\n", None),
        ("an absolute form", "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n", Some(1)),
        ("an absolute form of another host", "GET http://b:81/x HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("an absolute form without a path", "GET http://a HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("an absolute form with a user", "GET http://u:p@a/ HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("another scheme", "GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("an authority", "CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("an asterisk", "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("no slash", "GET x HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("a fragment", "GET /#x HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("a query alone", "GET ?x HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", Some(1)),
        ("HTTP/1.0, kept alive", "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", Some(1)),
        ("HTTP/0.9", "GET /\r\n", None),
        ("HTTP/2 without a preface", "GET / HTTP/2.0\r\nhost: a\r\n\r\n", None),
        ("a method of its own", "TIDE / HTTP/1.1\r\nhost: a\r\n\r\n", Some(1)),
        ("a method in lower case", "get / HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("TRACE", "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n", None),
        ("HEAD", "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", Some(1)),
        ("an upgrade", "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", None),
        ("an upgrade to h2c", "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", None),
        ("100-continue", "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx", None),
        (
            "both lengths",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        (
            "two lengths",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 27\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        (
            "a length with a sign",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +27\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        ("a huge length", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551616\r\n\r\n", None),
        (
            "a length of a GET",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 26\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        (
            "another coding",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        ("two codings", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", None),
        (
            "a coding after a tab",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\tchunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        (
            "a coding on two lines",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
            None,
        ),
        (
            "a space before the colon",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 26\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            None,
        ),
        (
            "a chunk with a wrong size",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
            None,
        ),
        (
            "a chunk with an extension",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;a=\"b\"\r\nx\r\n0\r\n\r\n",
            None,
        ),
        ("lines that end with LF", "GET / HTTP/1.1\nhost: a\n\n", None),
        ("a body that stops", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nx", None),
    ];
    let mut forms: Vec<_> = texts.map(|(odd, text, runs)| (odd, text.as_bytes().to_vec(), runs)).into();
    forms.push(("a path of 60,000 characters", long(60_000), Some(1)));
    forms.push(("a path of 70,000 characters", long(70_000), None));
    forms.push(("90 fields", many, Some(1)));
    forms.push(("a field that is not UTF-8", b"GET / HTTP/1.1\r\nhost: a\r\nx: \xff\r\n\r\n".to_vec(), Some(0)));
    forms.push(("a path that is not ASCII", b"GET /\xc3\xa9 HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), None));
    forms.push(("a path that is not UTF-8", b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), None));
    forms.push(("a zero in a field", b"GET / HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n".to_vec(), None));
    forms.push(("a zero in the path", b"GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), None));
    forms
}

/// Sends bytes on a connection of their own. Returns the statuses of the answers.
fn send(app: &App, bytes: &[u8]) -> Result<Vec<u16>> {
    let mut stream = TcpStream::connect(app.host.base().trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(Duration::from_millis(700)))?;
    let mut received = Vec::new();
    // A server that refuses the head closes the connection, whether all was sent or not.
    if stream.write_all(bytes).is_ok() {
        let mut chunk = [0; 4_096];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => received.extend_from_slice(&chunk[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    let text = String::from_utf8_lossy(&received);
    let statuses = text.split("HTTP/1.").skip(1).filter_map(|answer| answer.get(2..5)?.parse().ok());
    Ok(statuses.filter(|status| *status != 100).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_form_of_a_request_opens_a_gate_whose_limit_is_used_up() -> Result<()> {
    let app = App::start(Some(&rules(1, "/*")), &[]).await?;
    assert_eq!((app.get("/").await?.status, app.get("/").await?.status), (201, 429));
    for (odd, bytes, _) in forms() {
        let statuses = send(&app, &bytes)?;
        assert!(statuses.iter().all(|status| *status >= 400), "{odd}: {statuses:?}");
        assert_eq!(app.runs()?, 1, "{odd}: {statuses:?}");
    }
    // A denial reads the key's row once, and writes nothing.
    let before: u64 = app.host.tell("operations").await?.parse()?;
    for _ in 0..10 {
        assert_eq!(app.get("/").await?.status, 429);
    }
    let after: u64 = app.host.tell("operations").await?.parse()?;
    assert_eq!((after - before, app.runs()?), (10, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_form_reaches_the_app_was_charged() -> Result<()> {
    let app = App::start(Some(&rules(1_000_000, "/*")), &[]).await?;
    let left = || async {
        Ok::<usize, Box<dyn std::error::Error>>(app.get("/").await?.field("x-ratelimit-remaining").parse()?)
    };
    for (odd, bytes, expected) in forms() {
        let (ran, remaining) = (app.runs()?, left().await?);
        let statuses = send(&app, &bytes)?;
        // The question itself runs and is charged.
        let charged = remaining - left().await? - 1;
        let runs = app.runs()? - ran - 2;
        println!("{odd}: {statuses:?}, {charged} charged, {runs} runs");
        assert!(runs <= charged, "{odd}: {statuses:?}, {charged} charged, {runs} runs");
        if let Some(expected) = expected {
            assert_eq!((runs, charged), (expected, expected), "{odd}: {statuses:?}");
        }
    }
    Ok(())
}

/// Ways to write a path that has a rule, next to paths that have none.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_compared_in_the_form_that_the_app_may_read() -> Result<()> {
    let app = App::start(Some(&rules(1, "/login")), &[]).await?;
    assert_eq!((app.get("/login").await?.status, app.get("/logon").await?.status), (201, 201));
    for target in [
        "/login",
        "/login?x=/free",
        "/%6cogin",
        "/%6C%6F%67%69%6E",
        "//login",
        "/login/",
        "/./login",
        "/free/../login",
        "/free/%2e%2e/login",
        "http://a/login",
        "http://a//%6cogin?x",
    ] {
        for line in [format!("GET {target} HTTP/1.1"), format!("POST {target} HTTP/1.0")] {
            let statuses = send(&app, format!("{line}\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes())?;
            assert_eq!((statuses, app.runs()?), (vec![429], 2), "{line}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_request_is_answered_before_its_body_ends() -> Result<()> {
    let app = App::start(Some(&rules(1, "/*")), &[]).await?;
    assert_eq!(app.get("/").await?.status, 201);
    let mut stream = TcpStream::connect(app.host.base().trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    assert_eq!((&head, app.runs()?), (b"HTTP/1.1 429", 1));
    Ok(())
}

/// More than the instances that Spin runs at once. The bodies never end, so admitted requests stay.
#[tokio::test(flavor = "multi_thread")]
async fn of_1_100_endless_requests_at_once_as_many_run_as_the_limit_says() -> Result<()> {
    let app = App::start(Some(&rules(137, "/*")), &[]).await?;
    let request = || {
        let body = StreamBody::new(stream::pending::<std::result::Result<Frame<Bytes>, Infallible>>());
        Request::post(format!("{}/", app.host.base())).body(BodyExt::boxed(body))
    };
    let requests = (0..1_100).map(|_| Ok(app.client.request(request()?))).collect::<Result<Vec<_>>>()?;
    let answers = join_all(requests).await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    let count = |status: u16| answers.iter().filter(|answer| answer.status() == status).count();
    assert_eq!((count(201), count(429), app.runs()?), (137, 963, 137));
    drop(answers);
    assert_eq!((app.get("/").await?.status, app.runs()?), (429, 137));
    Ok(())
}
