//! TLS by rustls, with the certificates that the system trusts.

use std::sync::Arc;

use redis::{ConnectionAddr, RedisError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollgate_core::{Error, ErrorKind};

/// Secures streams, if the address asks for it.
pub(crate) struct Connector(Option<TlsConnector>);

impl Connector {
    pub(crate) fn new(address: &ConnectionAddr) -> Result<Self, Error> {
        match address {
            ConnectionAddr::TcpTls { .. } => connector().map(Some).map(Self),
            _ => Ok(Self(None)),
        }
    }

    pub(crate) async fn secure(&self, stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, RedisError> {
        let unsuitable = |what| RedisError::from((redis::ErrorKind::InvalidClientConfig, what));
        let connector = self.0.as_ref().ok_or_else(|| unsuitable("TLS is not set up for this address"))?;
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| unsuitable("no name that a certificate can have"))?;
        Ok(connector.connect(name, stream).await?)
    }
}

/// The application's choice of cryptography, or ring.
fn connector() -> Result<TlsConnector, Error> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let mut roots = RootCertStore::empty();
    // Of a system's certificates some are often odd; what counts is that any are good.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let message = "url: TLS needs certificates to trust, and the system has none; install them (ca-certificates) \
                       or name a file of them in SSL_CERT_FILE";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            Error::new(ErrorKind::Invalid, "url: the chosen cryptography has no TLS 1.2 or 1.3").with_source(error)
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
