//! TLS, with a certificate that only this test trusts.

#![cfg(feature = "tls-rustls")]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::process::Command;

use crate::support::{Server, free_port};
use tidegate_core::{Check, Error, ErrorKind, Limiter, LimiterExt};
use tidegate_redis::{Config, Redis};
use tidegate_testing::certificates::{authority, certificate};
use tidegate_testing::{NOW, bucket, key};

#[test]
fn only_a_trusted_certificate_is_accepted() {
    if let (Ok(tls_port), Ok(expected)) = (std::env::var("TLS_PORT"), std::env::var("EXPECTED")) {
        return one_check(&tls_port, &expected);
    }
    let dir = tempfile::tempdir().unwrap();
    authority(dir.path(), "ca");
    authority(dir.path(), "other");
    certificate(dir.path(), "ca", "host", "localhost");
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let tls_port = free_port().to_string();
    let server = Server::start_with(&[
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
    #[cfg(feature = "rest")]
    let https_port = rest::https(&server, &dir.path().join("host.crt"), &dir.path().join("host.key")).to_string();
    #[cfg(not(feature = "rest"))]
    let (https_port, _runs) = (String::new(), &server);
    // The trusted certificates come from the environment, so the test runs itself again in a new process.
    for (trusted, expected) in [("ca.crt", "admitted"), ("names", "invalid"), ("other.crt", "unavailable")] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tls::only_a_trusted_certificate_is_accepted"])
            .env("SSL_CERT_FILE", dir.path().join(trusted))
            .env_remove("SSL_CERT_DIR")
            .env("TLS_PORT", &tls_port)
            .env("HTTPS_PORT", &https_port)
            .env("EXPECTED", expected)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{trusted}: {said}");
    }
}

/// The part of the test that runs in the new process.
#[tokio::main(flavor = "current_thread")]
async fn one_check(tls_port: &str, expected: &str) {
    let config = Config::new(format!("rediss://localhost:{tls_port}")).deadline(crate::support::DEADLINE);
    assert_eq!(meet(Redis::new(config).map(Redis::limiter)).await, expected);
    #[cfg(feature = "rest")]
    assert_eq!(meet(rest::limiter(&std::env::var("HTTPS_PORT").unwrap())).await, expected);
}

/// The result of the first check.
async fn meet(limiter: Result<impl Limiter, Error>) -> &'static str {
    let check = async { limiter?.check(Check::new(&bucket(2), &key(), NOW)).await };
    match check.await {
        Ok(decision) => {
            assert!(decision.is_allowed());
            "admitted"
        }
        Err(error) => {
            let charged = error.kind() == ErrorKind::Unavailable && !error.to_string().contains("nothing was charged");
            assert!(!charged, "{error:?}");
            error.kind().name()
        }
    }
}

#[cfg(feature = "rest")]
mod rest {
    use std::path::Path;
    use std::sync::Arc;

    use tidegate_core::Error;
    use tidegate_redis::{Rest, RestConfig, RestLimiter};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use crate::support::Server;
    use crate::support::rest::{Endpoint, TOKEN};

    /// Serves REST over TLS on a new thread. Returns the port.
    pub(super) fn https(server: &Server, certificate: &Path, private_key: &Path) -> u16 {
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        let private_key = PrivateKeyDer::from_pem_file(private_key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], private_key).unwrap()));
        let runtime = crate::support::runtime();
        let (endpoint, listener) = runtime
            .block_on(async { (Endpoint::start(server).await, TcpListener::bind("127.0.0.1:0").await.unwrap()) });
        let port = listener.local_addr().unwrap().port();
        let forward = async move {
            while let Ok((near, _)) = listener.accept().await {
                let (acceptor, far) = (acceptor.clone(), TcpStream::connect(("127.0.0.1", endpoint.port)).await);
                tokio::spawn(async move {
                    if let Ok(mut near) = acceptor.accept(near).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far.unwrap()).await;
                    }
                });
            }
        };
        std::thread::spawn(move || runtime.block_on(forward));
        port
    }

    pub(super) fn limiter(https_port: &str) -> Result<RestLimiter, Error> {
        let config = RestConfig::new(format!("https://localhost:{https_port}"), TOKEN);
        Rest::new(config.deadline(crate::support::DEADLINE)).map(Rest::limiter)
    }
}
