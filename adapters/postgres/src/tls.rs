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
        use tidegate_remote::{client_config, system_certificates};

        if !wanted {
            return Ok(Self::Plain);
        }
        Ok(Self::Rustls(tokio_postgres_rustls::MakeRustlsConnect::new(client_config(system_certificates()?)?)))
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
