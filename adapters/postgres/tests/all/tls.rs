//! TLS, with a certificate that only this test trusts.

#![cfg(feature = "tls-rustls")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use tidegate_core::{Check, LimiterExt};
use tidegate_postgres::{Config, Postgres};
use tidegate_testing::certificates::{authority, certificate};
use tidegate_testing::{NOW, bucket, key};

use crate::support::{DEADLINE, PASSWORD, Server};

/// What a client sends before TLS, or before the server has said that it has none.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

#[test]
fn only_a_trusted_certificate_is_accepted_and_nothing_is_sent_in_the_clear() {
    if let (Ok(url), Ok(expected)) = (std::env::var("DATABASE"), std::env::var("EXPECTED")) {
        return one_check(&url, &expected);
    }
    let dir = tempfile::tempdir().unwrap();
    authority(dir.path(), "ca");
    authority(dir.path(), "other");
    certificate(dir.path(), "ca", "host", "localhost");
    let (secure, plain) = (Server::start_with_tls(dir.path()), Server::start());
    create_tables(&[&secure, &plain]);
    let unknown = "unavailable postgres: cannot connect, because its certificate is not trusted (UnknownIssuer): name";
    let misnamed = "unavailable postgres: cannot connect, because its certificate is not trusted (NotValidForName";
    let no_tls = "refused postgres: cannot connect, because the server offers no TLS: set ssl = on there";
    let no_certificates = "invalid url: TLS needs certificates to trust";
    for (server, host, trusted, expected) in [
        (&secure, "localhost", "ca.crt", "admitted"),
        (&secure, "localhost", "other.crt", unknown),
        (&secure, "127.0.0.1", "ca.crt", misnamed),
        (&secure, "localhost", "names", no_certificates),
        (&plain, "localhost", "ca.crt", no_tls),
    ] {
        let (port, heard) = overheard(server.port);
        // The trusted certificates come from the environment, so the test runs itself again in a new process.
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tls::only_a_trusted_certificate_is_accepted_and_nothing_is_sent_in_the_clear"])
            .env("SSL_CERT_FILE", dir.path().join(trusted))
            .env_remove("SSL_CERT_DIR")
            .env("DATABASE", format!("postgresql://tidegate:{PASSWORD}@{host}:{port}/postgres?sslmode=require"))
            .env("EXPECTED", expected)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{host} {trusted} {expected}: {said}");
        for sent in &*heard.lock().unwrap() {
            assert_eq!(sent[..8], SSL_REQUEST);
            // The name of the user and of the table.
            assert!(!sent.windows(8).any(|part| part == b"tidegate"), "{host} {trusted}: it was sent in the clear");
            assert_eq!(sent.len() > 8, expected != no_tls, "{host} {trusted}");
        }
        assert_eq!(heard.lock().unwrap().is_empty(), expected == no_certificates);
    }
}

/// The part of the test that runs in the new process.
#[tokio::main(flavor = "current_thread")]
async fn one_check(url: &str, expected: &str) {
    let check = async {
        let limiter = Postgres::new(Config::new(url)?.deadline(DEADLINE))?.limiter();
        limiter.check(Check::new(&bucket(2), &key(), NOW)).await
    };
    let told = match check.await {
        Ok(decision) if decision.is_allowed() => "admitted".to_owned(),
        Ok(_) => "denied".to_owned(),
        Err(error) => format!("{} {error}", error.kind().name()),
    };
    assert!(told.starts_with(expected), "{told:?} is not {expected:?}");
    assert!(!told.contains(PASSWORD), "{told:?}");
}

#[tokio::main(flavor = "current_thread")]
async fn create_tables(servers: &[&Server]) {
    for server in servers {
        Postgres::new(server.config()).unwrap().create_table().await.unwrap();
    }
}

/// What was sent on each connection to a port that leads to the server's.
type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

fn overheard(to: u16) -> (u16, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, heard) = (listener.local_addr().unwrap().port(), Heard::default());
    let kept = Arc::clone(&heard);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            let nth = kept.lock().unwrap().len();
            kept.lock().unwrap().push(Vec::new());
            let (back, kept) = ((server.try_clone().unwrap(), client.try_clone().unwrap()), Arc::clone(&kept));
            std::thread::spawn(move || carry(back.0, back.1, |_| ()));
            std::thread::spawn(move || carry(client, server, |sent| kept.lock().unwrap()[nth].extend_from_slice(sent)));
        }
    });
    (port, heard)
}

/// Carries bytes until an end, and passes that on.
fn carry(mut from: TcpStream, mut to: TcpStream, mut hear: impl FnMut(&[u8])) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        hear(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
