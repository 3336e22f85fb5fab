//! Over TLS, with a certificate that only this test trusts.

#![cfg(feature = "tls-rustls")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{NOW, Server, bucket, free_port, key};
use tollgate_core::{Check, ErrorKind, Limiter, Millis};
use tollgate_upstash::{Config, Redis};

fn openssl(dir: &Path, arguments: &[&str]) {
    let status =
        Command::new("openssl").args(arguments).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("this test needs openssl: apt-get install openssl").success());
}

#[test]
fn a_trusted_certificate_is_taken_and_no_other() {
    if let (Ok(tls_port), Ok(expected)) = (std::env::var("TLS_PORT"), std::env::var("EXPECTED")) {
        return one_check(&tls_port, &expected);
    }
    let dir = tempfile::tempdir().unwrap();
    let request = |name: &str, subject: &str| {
        let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
        openssl(
            dir.path(),
            &["req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj", subject],
        );
    };
    for authority in ["ca", "other"] {
        request(authority, "/CN=test");
        let (key, csr, crt) = (format!("{authority}.key"), format!("{authority}.csr"), format!("{authority}.crt"));
        openssl(dir.path(), &["x509", "-req", "-in", &csr, "-signkey", &key, "-out", &crt]);
    }
    request("host", "/CN=localhost");
    std::fs::write(dir.path().join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let issue = "x509 -req -in host.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out host.crt -extfile names";
    openssl(dir.path(), &issue.split(' ').collect::<Vec<_>>());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let tls_port = free_port().to_string();
    let _server = Server::start_with(&[
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &file("host.crt"),
        "--tls-key-file",
        &file("host.key"),
        "--tls-ca-cert-file",
        &file("ca.crt"),
        "--tls-auth-clients",
        "no",
    ]);
    // Whom to trust is read from the environment: so by another process, this one again.
    for (trusted, expected) in [("ca.crt", "admitted"), ("names", "invalid"), ("other.crt", "unavailable")] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_trusted_certificate_is_taken_and_no_other"])
            .env("SSL_CERT_FILE", dir.path().join(trusted))
            .env_remove("SSL_CERT_DIR")
            .env("TLS_PORT", &tls_port)
            .env("EXPECTED", expected)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{trusted}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What the test does in a process of its own, which trusts what the environment says.
#[tokio::main(flavor = "current_thread")]
async fn one_check(tls_port: &str, expected: &str) {
    let url = format!("rediss://localhost:{tls_port}");
    let config = Config::new(url).deadline(Millis::from_secs(2));
    let met = match Redis::new(config) {
        Err(error) => error.kind().name(),
        Ok(redis) => match redis.limiter().check(Check::new(&bucket(1), &key(), NOW)).await {
            Ok(decision) => {
                assert!(decision.is_allowed());
                "admitted"
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                "unavailable"
            }
        },
    };
    assert_eq!(met, expected);
}
