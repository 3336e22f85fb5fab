//! Where statements run.

use std::future::Future;
use std::sync::Arc;

use tidegate_core::{Error, Millis};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use crate::error;
use crate::statement::Statement;

/// Connections to the database: [those of this crate](crate::Own), or the application's.
///
/// A `tokio_postgres::Client` in an `Arc` is one, and with the feature `deadpool` a `deadpool_postgres::Pool`. Implement it for another pool.
/// Each statement is a transaction by itself, so a connection must not have one open.
pub trait Connections: Send + Sync + 'static {
    /// A connection, for one statement.
    type Connection: Send + Sync;

    /// Gets a connection, and waits for at most this long.
    ///
    /// # Errors
    /// [`Contended`](tidegate_core::ErrorKind::Contended) if all are in use, because a client can cause that, and
    /// [`Unavailable`](tidegate_core::ErrorKind::Unavailable) if the database cannot be reached.
    fn get(&self, deadline: Millis) -> impl Future<Output = Result<Self::Connection, Error>> + Send;

    /// Runs a statement. Send it with `query_typed`, which takes one round trip: one that is prepared may keep a plan from when the table was
    /// small.
    ///
    /// # Errors
    /// The client's.
    fn query(
        &self,
        connection: &Self::Connection,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send;

    /// A connection that has not answered in time.
    fn distrust(&self, connection: &Self::Connection) {
        let _ = connection;
    }
}

/// One connection, which takes several statements at once. The application opens it again if it is lost.
impl Connections for Arc<Client> {
    type Connection = Self;

    async fn get(&self, _: Millis) -> Result<Self, Error> {
        if self.is_closed() { Err(error::closed()) } else { Ok(Self::clone(self)) }
    }

    async fn query(
        &self,
        connection: &Self,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        query_typed(connection, statement, parameters).await
    }
}

#[cfg(feature = "deadpool")]
impl Connections for deadpool_postgres::Pool {
    type Connection = deadpool_postgres::Object;

    async fn get(&self, deadline: Millis) -> Result<Self::Connection, Error> {
        let wait = Some(std::time::Duration::from_millis(deadline.get()));
        let timeouts = deadpool_postgres::Timeouts { wait, create: wait, recycle: wait };
        self.timeout_get(&timeouts).await.map_err(|pool| error::no_connection_of_pool(pool, deadline))
    }

    async fn query(
        &self,
        connection: &Self::Connection,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        query_typed(connection, statement, parameters).await
    }
}

/// Runs a statement in one round trip, without preparing it.
pub(crate) async fn query_typed(
    client: &Client,
    statement: Statement,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let typed: Vec<_> = parameters.iter().copied().zip(statement.types.iter().cloned()).collect();
    client.query_typed(statement.sql, &typed).await
}
