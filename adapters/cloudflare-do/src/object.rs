//! The object: Cloudflare's events in, a [`Counter`]'s answers out.

use std::cell::RefCell;

use tollgate_core::{Error, UnixMillis};
use worker::{Date, Request, Response, State};

use crate::counter::Counter;
use crate::sql::Sql;
use crate::wire::Reply;

/// What [`durable_object!`](crate::durable_object) wraps in a class of your own.
#[derive(Debug)]
pub struct Object {
    state: State,
    /// Made at the first event: whether an alarm is pending cannot be asked before.
    counter: RefCell<Option<Counter<Sql>>>,
}

impl Object {
    /// The object over its storage, which is SQLite: list the class in `new_sqlite_classes`.
    #[must_use]
    pub const fn new(state: State) -> Self {
        Self { state, counter: RefCell::new(None) }
    }

    /// Answers one call.
    ///
    /// From the first look at the rows to the response nothing waits, so no other event comes between; the platform's
    /// output gate holds the response until the rows are durable.
    ///
    /// # Errors
    /// None that Tollgate makes: those are responses. The platform's own.
    pub async fn fetch(&self, mut request: Request) -> worker::Result<Response> {
        let body = request.bytes().await?;
        self.wake().await?;
        let reply = self.with_counter(|counter| Ok(counter.answer(&body, clock()))).unwrap_or_else(Reply::error);
        Ok(Response::from_bytes(reply.body)?.with_status(reply.status))
    }

    /// Removes the rows that have expired; with the last of them all that is stored, so that an object nobody asks for
    /// again is no object any more.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering; the platform then fires the alarm again.
    pub async fn alarm(&self) -> worker::Result<Response> {
        self.wake().await?;
        let swept = self.with_counter(|counter| counter.sweep(clock()));
        if !swept.map_err(|error| worker::Error::RustError(error.to_string()))? {
            // No event comes before this is done, and the next one makes the table anew.
            self.counter.replace(None);
            self.state.storage().delete_all().await?;
        }
        Response::empty()
    }

    /// Makes the counter, once in the object's time in memory.
    async fn wake(&self) -> worker::Result<()> {
        if self.counter.borrow().is_some() {
            return Ok(());
        }
        let alarm = self.state.storage().get_alarm().await?.and_then(|at_ms| u64::try_from(at_ms).ok());
        let sql = Sql::new(self.state.storage())?;
        // Another event may have made it meanwhile.
        self.counter.borrow_mut().get_or_insert_with(|| Counter::new(sql, alarm.map(UnixMillis::new)));
        Ok(())
    }

    fn with_counter<T>(&self, step: impl FnOnce(&mut Counter<Sql>) -> Result<T, Error>) -> Result<T, Error> {
        match self.counter.borrow_mut().as_mut() {
            Some(counter) => step(counter),
            None => unreachable!("an event wakes the object first"),
        }
    }
}

fn clock() -> UnixMillis {
    UnixMillis::new(Date::now().as_millis())
}
