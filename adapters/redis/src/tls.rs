//! The Redis protocol over TLS.

use std::sync::Arc;

use redis::{ConnectionAddr, RedisError};
use tidegate_core::Error;
use tidegate_remote::{client_config, system_certificates};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// Wraps streams in TLS if the address asks for it.
pub(crate) struct Connector(Option<TlsConnector>);

impl Connector {
    pub(crate) fn new(address: &ConnectionAddr) -> Result<Self, Error> {
        match address {
            ConnectionAddr::TcpTls { .. } => {
                let config = client_config(system_certificates()?)?;
                Ok(Self(Some(Arc::new(config).into())))
            }
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
