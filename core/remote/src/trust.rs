//! The certificates that TLS trusts.

use std::io;
use std::sync::Arc;

use tidegate_core::{Error, ErrorKind};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Loads the certificates of the system, or of `SSL_CERT_FILE`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) if there are none.
pub fn system_certificates() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // Some of a system's certificates are often malformed. It is enough that others are not.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "url: TLS needs certificates to trust, and the system has none; install them (ca-certificates) or name a \
             file of them in SSL_CERT_FILE",
        ));
    }
    Ok(roots)
}

/// Configures a client with the application's cryptography provider, or with ring.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) if the application's provider has no TLS 1.2 or 1.3.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| {
        Error::new(ErrorKind::Invalid, "url: the chosen cryptography has no TLS 1.2 or 1.3").with_source(error)
    })?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Why a server's certificate was not accepted, and what to write. `None` if the error is another one.
pub(crate) fn distrusted(error: &io::Error) -> Option<String> {
    let tokio_rustls::rustls::Error::InvalidCertificate(why) = error.get_ref()?.downcast_ref()? else { return None };
    Some(format!(
        "its certificate is not trusted ({why:?}): name the authority's certificate in SSL_CERT_FILE, and write the host \
         that it is for"
    ))
}
