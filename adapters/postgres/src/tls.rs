//! Opens connections, with TLS for `sslmode=require`.

use tidegate_core::Error;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

#[cfg(not(feature = "tls-rustls"))]
use crate::config::invalid;

/// How to open connections.
pub(crate) enum Tls {
    Plain,
    #[cfg(feature = "tls-rustls")]
    Rustls(tokio_postgres_rustls::MakeRustlsConnect),
}

impl Tls {
    #[cfg(not(feature = "tls-rustls"))]
    pub(crate) fn new(wanted: bool) -> Result<Self, Error> {
        if wanted {
            return Err(invalid("url: sslmode=require needs the feature `tls-rustls` of tidegate-postgres; enable it"));
        }
        Ok(Self::Plain)
    }

    #[cfg(feature = "tls-rustls")]
    pub(crate) fn new(wanted: bool) -> Result<Self, Error> {
        if wanted { rustls::connector().map(Self::Rustls) } else { Ok(Self::Plain) }
    }

    /// Opens a connection. The task writes and reads, and ends with the connection.
    pub(crate) async fn connect(
        &self,
        database: &tokio_postgres::Config,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        match self {
            Self::Plain => {
                let (client, connection) = database.connect(NoTls).await?;
                Ok((client, tokio::spawn(async move { ended(connection.await) })))
            }
            #[cfg(feature = "tls-rustls")]
            Self::Rustls(tls) => {
                let (client, connection) = database.connect(tls.clone()).await?;
                Ok((client, tokio::spawn(async move { ended(connection.await) })))
            }
        }
    }
}

/// Each call learns of it by itself.
fn ended(result: Result<(), tokio_postgres::Error>) {
    drop(result);
}

#[cfg(feature = "tls-rustls")]
mod rustls {
    use std::sync::Arc;

    use tidegate_core::Error;
    use tokio_postgres_rustls::MakeRustlsConnect;
    use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use crate::config::invalid;

    /// Trusts the certificates of the system, or of `SSL_CERT_FILE`, by the application's cryptography provider, or by ring.
    pub(super) fn connector() -> Result<MakeRustlsConnect, Error> {
        let mut roots = RootCertStore::empty();
        // Some of a system's certificates are often malformed. It is enough that others are not.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(invalid(
                "url: TLS needs certificates to trust, and the system has none; install them (ca-certificates) or name a \
                 file of them in SSL_CERT_FILE",
            ));
        }
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let versions = versions
            .map_err(|error| invalid("url: the chosen cryptography has no TLS 1.2 or 1.3").with_source(error))?;
        Ok(MakeRustlsConnect::new(versions.with_root_certificates(roots).with_no_client_auth()))
    }
}
