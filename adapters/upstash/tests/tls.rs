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
    let dir = tempfile::tempdir().unwrap();
    openssl(
        dir.path(),
        &[
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
            "-subj", "/CN=test",
        ],
    );
    openssl(
        dir.path(),
        &["req", "-newkey", "rsa:2048", "-nodes", "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=localhost"],
    );
    std::fs::write(dir.path().join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        dir.path(),
        &[
            "x509",
            "-req",
            "-in",
            "host.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            "host.crt",
            "-days",
            "2",
            "-extfile",
            "names",
        ],
    );
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
    for (trusted, expected) in
        [("ca.crt", "admitted"), ("names", "invalid"), ("/etc/ssl/certs/ca-certificates.crt", "unavailable")]
    {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_check", "--ignored"])
            .env("SSL_CERT_FILE", dir.path().join(trusted))
            .env("TLS_PORT", &tls_port)
            .env("EXPECTED", expected)
            .status();
        assert!(status.unwrap().success(), "{trusted}");
    }
}

#[tokio::test]
#[ignore = "run by the other test"]
async fn one_check() {
    let url = format!("rediss://localhost:{}", std::env::var("TLS_PORT").unwrap());
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
    assert_eq!(met, std::env::var("EXPECTED").unwrap());
}
