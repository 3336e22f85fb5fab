//! Opens connections and detects when they end.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tidegate_core::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::batch::{Batched, InFlight};
use crate::config::Config;
use crate::refusal::Heard;

/// The number of commands that may wait to be written before callers have to wait.
const QUEUE: usize = 1_024;

/// Opens connections.
pub(crate) enum Client {
    Single(Box<Single>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

pub(crate) struct Single {
    info: ConnectionInfo,
    #[cfg(feature = "tls-rustls")]
    tls: crate::tls::Connector,
}

#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection, Arc<Driver>),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// The task that writes and reads. It ends with the connection, even if that is idle, and it is aborted with its last user,
/// even if the server still owes an answer.
pub(crate) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut infos = config.connection_infos()?;
        #[cfg(feature = "cluster")]
        if config.cluster {
            return crate::cluster::client(infos, config.deadline).map(Box::new).map(Self::Cluster);
        }
        let single = Single {
            #[cfg(feature = "tls-rustls")]
            tls: crate::tls::Connector::new(infos[0].addr())?,
            info: infos.swap_remove(0),
        };
        Ok(Self::Single(Box::new(single)))
    }

    /// Opens a connection that counts its requests in `in_flight`.
    pub(crate) async fn connect(&self, in_flight: &InFlight) -> Result<Connection, RedisError> {
        match self {
            Self::Single(single) => single.connect(in_flight).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
        }
    }
}

impl Single {
    async fn connect(&self, in_flight: &InFlight) -> Result<Connection, RedisError> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => self.speak_over(tcp(host, *port).await?, in_flight).await,
            #[cfg(feature = "tls-rustls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                self.speak_over(self.tls.secure(tcp(host, *port).await?, host).await?, in_flight).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                self.speak_over(tokio::net::UnixStream::connect(path).await?, in_flight).await
            }
            _ => Err((redis::ErrorKind::InvalidClientConfig, "a kind of address that is not supported").into()),
        }
    }

    async fn speak_over<S>(&self, stream: S, in_flight: &InFlight) -> Result<Connection, RedisError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // `Link::send` enforces the deadline.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let (redis, stream) = (self.info.redis_settings(), Batched::new(Heard::new(stream), in_flight.clone()));
        let (connection, driver) = MultiplexedConnection::new_with_config(redis, stream, settings).await?;
        Ok(Connection::Single(connection, Arc::new(Driver(tokio::spawn(driver)))))
    }
}

async fn tcp(host: &str, port: u16) -> Result<TcpStream, RedisError> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Connection {
    /// Sends a command, once.
    pub(crate) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection, _) => connection.send_packed_command(command).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => crate::cluster::send(connection, command).await,
        }
    }

    /// Whether the connection was lost while it was idle.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Single(_, driver) => driver.0.is_finished(),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => false,
        }
    }

    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "only a cluster's connection outlives some")
    )]
    pub(crate) fn is_lost_by(&self, error: &RedisError) -> bool {
        match self {
            // An error that is not an answer of the server ends the connection.
            Self::Single(..) => true,
            // A cluster's connection reconnects to its nodes by itself, unless it has ended as a whole.
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => crate::cluster::is_over(error),
        }
    }
}
