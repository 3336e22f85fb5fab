//! Connections that this crate opens.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_core::{Error, Millis};
use tidegate_remote::Deadline;
use tokio::sync::{Mutex, OnceCell};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement as Prepared};

use crate::config::Config;
use crate::connections::{Connections, query_typed};
use crate::error;
use crate::statement::{COUNT, Statement};
use crate::tls::Tls;

/// A few connections, each of which takes several statements at once. They are opened when they are needed, and again when they are lost.
pub struct Own {
    config: Config,
    tls: Tls,
    slots: Box<[Arc<Slot>]>,
}

/// A place for a connection.
#[derive(Default)]
struct Slot {
    live: Mutex<Option<Arc<Live>>>,
    is_open: AtomicBool,
    in_flight: AtomicUsize,
}

struct Live {
    client: Client,
    prepared: [OnceCell<Prepared>; COUNT],
    /// Whether statements are prepared.
    prepares: AtomicBool,
    driver: JoinHandle<()>,
    /// How many statements it has answered.
    answers: AtomicUsize,
    is_distrusted: AtomicBool,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// One of the connections, for one statement.
pub struct Taken {
    slot: Arc<Slot>,
    live: Option<Arc<Live>>,
    /// How many statements it had answered when it was taken.
    answers: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.slot.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").finish_non_exhaustive()
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.config).finish()
    }
}

impl Live {
    fn new(client: Client, driver: JoinHandle<()>, prepares: bool) -> Self {
        let (prepared, answers, is_distrusted) = Default::default();
        Self { client, prepared, prepares: AtomicBool::new(prepares), driver, answers, is_distrusted }
    }

    /// What is prepared of a statement. `None` if it is not to be.
    async fn prepare(&self, statement: Statement) -> Result<Option<&Prepared>, tokio_postgres::Error> {
        let Some(prepared) = self.prepared.get(statement.place).filter(|_| self.prepares.load(Ordering::Relaxed))
        else {
            return Ok(None);
        };
        let prepare = || self.client.prepare_typed(statement.sql, statement.types);
        prepared.get_or_try_init(prepare).await.map(Some)
    }

    fn is_lost(&self) -> bool {
        self.client.is_closed() || self.is_distrusted.load(Ordering::Relaxed)
    }
}

impl Own {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        let slots = (0..config.connections_checked()?).map(|_| Arc::default()).collect();
        let tls = Tls::new(config.wants_tls())?;
        Ok(Self { config, tls, slots })
    }

    /// The place with the fewest calls. One that is not open comes after those that have none.
    fn take(&self) -> Taken {
        let calls = |slot: &Arc<Slot>| {
            let calls = slot.in_flight.load(Ordering::Relaxed);
            2 * calls + usize::from(!slot.is_open.load(Ordering::Relaxed))
        };
        let least = self.slots.iter().min_by_key(|slot| calls(slot)).unwrap_or(&self.slots[0]);
        least.in_flight.fetch_add(1, Ordering::Relaxed);
        Taken { slot: Arc::clone(least), live: None, answers: 0 }
    }

    async fn open(&self) -> Result<Arc<Live>, tokio_postgres::Error> {
        if self.config.prepared {
            match self.tls.connect(&self.config.scanless()).await {
                // Of a pooler, which does not know the option.
                Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {}
                Ok((client, driver)) => {
                    let prepares = is_scanless(&client).await?;
                    return Ok(Arc::new(Live::new(client, driver, prepares)));
                }
                Err(error) => return Err(error),
            }
        }
        let (client, driver) = self.tls.connect(&self.config.database).await?;
        Ok(Arc::new(Live::new(client, driver, false)))
    }
}

/// Whether the session has the option. A pooler may leave it out, and give each transaction another session.
async fn is_scanless(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let rows = client.query_typed("SELECT current_setting('enable_seqscan')", &[]).await?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()) == Some("off"))
}

/// Whether a statement failed for that it was prepared.
fn is_of_preparing(error: &tokio_postgres::Error) -> bool {
    let codes = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
    error.code().is_some_and(|code| codes.contains(code))
}

impl Connections for Own {
    type Connection = Taken;

    async fn get(&self, deadline: Millis) -> Result<Taken, Error> {
        let mut taken = self.take();
        let work = async {
            let mut live = taken.slot.live.lock().await;
            if let Some(live) = &*live
                && !live.is_lost()
            {
                return Ok(Arc::clone(live));
            }
            taken.slot.is_open.store(false, Ordering::Relaxed);
            let opened = live.insert(self.open().await?);
            taken.slot.is_open.store(true, Ordering::Relaxed);
            Ok(Arc::clone(opened))
        };
        let opened = Deadline::after(deadline).until(work).await;
        let opened = opened.map_err(|missed| missed.error(error::connect_timeout(deadline)))?;
        let opened = opened.map_err(error::not_connected)?;
        taken.answers = opened.answers.load(Ordering::Relaxed);
        taken.live = Some(opened);
        Ok(taken)
    }

    async fn query(
        &self,
        taken: &Taken,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(live) = &taken.live else { return Ok(Vec::new()) };
        let answer = match live.prepare(statement).await {
            Ok(None) => query_typed(&live.client, statement, parameters).await,
            Ok(Some(prepared)) => live.client.query(prepared, parameters).await,
            Err(error) => Err(error),
        };
        live.answers.fetch_add(1, Ordering::Relaxed);
        match answer {
            // A pooler has lost what was prepared, or the table is another one than then. Nothing was done.
            Err(error) if live.prepares.load(Ordering::Relaxed) && is_of_preparing(&error) => {
                live.prepares.store(false, Ordering::Relaxed);
                query_typed(&live.client, statement, parameters).await
            }
            answer => answer,
        }
    }

    /// One that has answered nothing meanwhile is not used again: it may be dead, or its statement waits for a row that somebody has
    /// locked, and those behind it with it.
    fn distrust(&self, taken: &Taken) {
        if let Some(live) = &taken.live
            && live.answers.load(Ordering::Relaxed) == taken.answers
        {
            live.is_distrusted.store(true, Ordering::Relaxed);
        }
    }
}
