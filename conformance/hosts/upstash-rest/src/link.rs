//! The shared connection to Redis. It is opened on first use, and reopened after a failure.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use crate::request::Command;

/// The timeout of a call to Redis.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Link {
    client: Client,
    live: Mutex<Option<MultiplexedConnection>>,
}

impl Link {
    pub(crate) fn new(url: &str) -> Result<Self, RedisError> {
        Ok(Self { client: Client::open(url)?, live: Mutex::default() })
    }

    /// Returns the answer to each command, which may be an error, or the one answer to a transaction.
    pub(crate) async fn send(&self, commands: &[Command], atomic: bool) -> Result<Vec<Value>, RedisError> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(cmd(command));
        }
        let mut connection = self.connection().await?;
        let sent = if atomic {
            // The answer to `EXEC` follows one to `MULTI` and one to each command.
            pipeline.atomic();
            connection.send_packed_commands(&pipeline, commands.len() + 1, 1).await
        } else {
            connection.send_packed_commands(&pipeline, 0, commands.len()).await
        };
        if sent.as_ref().is_err_and(|error| error.is_io_error() || error.is_connection_dropped()) {
            *self.live.lock().await = None;
        }
        sent
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut live = self.live.lock().await;
        if let Some(connection) = &*live {
            return Ok(connection.clone());
        }
        let settings =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connection = self.client.get_multiplexed_async_connection_with_config(&settings).await?;
        Ok(live.insert(connection).clone())
    }
}

fn cmd(command: &Command) -> Cmd {
    let mut cmd = Cmd::new();
    for word in command.words() {
        cmd.arg(word);
    }
    cmd
}
