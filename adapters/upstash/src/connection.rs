//! One multiplexed connection, made when it is first needed and made anew when it is lost.
//!
//! Nothing is ever sent twice: a command whose connection is lost is an error. A server that is down is an error at once,
//! to all callers: one of them tries to connect, the others are told what the last attempt met.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Error, Millis};

use crate::config::Config;
use crate::error;

/// After a failed attempt to connect, the next is made no sooner.
const PAUSE: Duration = Duration::from_millis(10);

/// Commands that may wait to be written before callers wait to enqueue.
const QUEUE: usize = 1_024;

/// A way to the server.
pub(crate) struct Link {
    client: Client,
    deadline: Millis,
    live: RwLock<Option<Live>>,
    /// Held by the one caller that is connecting.
    dialing: tokio::sync::Mutex<()>,
    failure: Mutex<Option<Failure>>,
}

enum Client {
    Single(Box<redis::Client>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

#[derive(Clone)]
struct Live {
    connection: Connection,
    /// How many answers came; also what tells this connection from the next.
    answers: Arc<AtomicU64>,
}

/// How the last attempt to connect ended.
struct Failure {
    at: Instant,
    /// `None` for a server that let the deadline pass.
    error: Option<RedisError>,
}

impl Link {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut infos = config.connection_infos()?;
        #[cfg(feature = "tls-rustls")]
        if infos.iter().any(|info| matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })) {
            // Of no effect where the application has chosen one. Without any, connecting would panic.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = match infos.pop() {
            #[cfg(feature = "cluster")]
            Some(info) if config.cluster => {
                infos.push(info);
                Client::Cluster(Box::new(crate::cluster::client(infos, config.deadline_duration())?))
            }
            Some(info) => Client::Single(Box::new(redis::Client::open(info).map_err(error::not_connected)?)),
            None => unreachable!("a checked configuration has a server"),
        };
        Ok(Self {
            client,
            deadline: config.deadline,
            live: RwLock::default(),
            dialing: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
        })
    }

    /// Sends one command, once. An error that the server answered with is a [`Value::ServerError`].
    pub(crate) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Error> {
        let mut live = match self.live() {
            Some(live) => live,
            None => self.dial(deadline).await?,
        };
        let answers = live.answers.load(Ordering::Relaxed);
        match timeout_at(deadline, live.connection.send(command)).await {
            Ok(Ok(value)) => {
                live.answers.fetch_add(1, Ordering::Relaxed);
                if let Value::ServerError(error) = &value
                    && error.kind() == Some(ServerErrorKind::ReadOnly)
                {
                    // The primary has become a replica: its name may lead to another server by now.
                    self.discard(&live);
                }
                Ok(value)
            }
            Ok(Err(error)) => {
                if live.connection.is_lost_by(&error) {
                    self.discard(&live);
                }
                Err(error::lost(error))
            }
            Err(_) => {
                // A connection that was silent for a whole deadline may be a dead one.
                if live.answers.load(Ordering::Relaxed) == answers {
                    self.discard(&live);
                }
                Err(error::timeout(self.deadline))
            }
        }
    }

    /// Drops the connection, for an answer that cannot belong to what was asked: nor may the next ones.
    pub(crate) fn distrust(&self) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn live(&self) -> Option<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn discard(&self, lost: &Live) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.answers, &lost.answers)) {
            *live = None;
        }
    }

    #[cold]
    async fn dial(&self, deadline: Instant) -> Result<Live, Error> {
        let began = Instant::now();
        let _turn = match self.dialing.try_lock() {
            Ok(turn) => turn,
            // Another caller is at it. Where its server was down a moment ago, there is nothing to wait for.
            Err(_) => match self.failed_since(None) {
                Some(error) => return Err(error),
                None => timeout_at(deadline, self.dialing.lock())
                    .await
                    .map_err(|_| error::connect_timeout(self.deadline))?,
            },
        };
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if let Some(error) = self.failed_since(Some(began.checked_sub(PAUSE).unwrap_or(began))) {
            return Err(error);
        }
        let attempt = match timeout_at(deadline, self.client.connect()).await {
            Ok(attempt) => attempt.map_err(Some),
            Err(_) => Err(None),
        };
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match attempt {
            Ok(connection) => {
                *failure = None;
                let live = Live { connection, answers: Arc::default() };
                *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                *failure = Some(Failure { at: Instant::now(), error: error.clone() });
                Err(self.not_connected(error))
            }
        }
    }

    /// How the last attempt to connect failed, if it did, and not before `since`.
    fn failed_since(&self, since: Option<Instant>) -> Option<Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.as_ref().filter(|failure| since.is_none_or(|since| failure.at >= since))?;
        Some(self.not_connected(failure.error.clone()))
    }

    fn not_connected(&self, error: Option<RedisError>) -> Error {
        error.map_or_else(|| error::connect_timeout(self.deadline), error::not_connected)
    }
}

impl Client {
    async fn connect(&self) -> Result<Connection, RedisError> {
        match self {
            Self::Single(client) => {
                // The deadline is kept by `Link::send`.
                let settings = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(QUEUE);
                client.get_multiplexed_async_connection_with_config(&settings).await.map(Connection::Single)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
        }
    }
}

impl Connection {
    async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => connection.send_packed_command(command).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => crate::cluster::send(connection, command).await,
        }
    }

    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "only a cluster's connection outlives some")
    )]
    fn is_lost_by(&self, error: &RedisError) -> bool {
        match self {
            // What comes as an error, and not as an answer, is the connection's end.
            Self::Single(_) => true,
            // A cluster's connection mends what it lost of its nodes, unless it is itself at its end.
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => crate::cluster::is_over(error),
        }
    }
}
