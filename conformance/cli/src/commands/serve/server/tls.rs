//! TLS on the port where Envoy asks.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tonic::transport::server::{Server, ServerTlsConfig};
use tonic::transport::{Certificate, Identity};

use super::super::Args;
use super::wrong;
use crate::program::Failure;

/// Who has not said what they want by then has gone.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A server with TLS, if a certificate is named.
pub(super) fn server(args: &Args) -> Result<Server, Failure> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(Server::builder()) };
    // Another crate of this build may bring a second implementation, between which rustls does not choose. Only the first call has an effect.
    let _chosen = ring::default_provider().install_default();
    let identity = Identity::from_pem(read(certificate)?, read(key)?);
    let mut config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    if let Some(authorities) = &args.tls_client_ca {
        config = config.client_ca_root(Certificate::from_pem(read(authorities)?));
    }
    Server::builder().tls_config(config).map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let files = [Some(certificate), Some(key), args.tls_client_ca.as_ref()].into_iter().flatten();
        let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
        Failure::Usage(format!("{}: {why}; write certificates and the key of the first one in PEM", files.join(", ")))
    })
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(wrong(file.display()))
}
