use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_cloudflare::durable_objects::{Address, Counter, Namespace, Page, Reply, Row, Rows, Thrown};
use tidegate_core::{Error, UnixMillis};

use super::late;
use crate::operation::Operation;
use crate::simulate::ground::{Ground, locked};

/// A namespace of Durable Objects, as an isolate at a place calls it. An object lives where it was called first.
#[derive(Clone)]
pub(in crate::simulate) struct Objects {
    pub(in crate::simulate) ground: Ground,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) all: Arc<Mutex<HashMap<String, Object>>>,
}

/// The adapter's own object over rows in memory.
pub(in crate::simulate) struct Object {
    counter: Counter<MemoryRows>,
    home: usize,
    /// When it has served all requests that have arrived.
    free_at_us: u64,
}

impl Namespace for Objects {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        self.ground.count(Operation::ObjectRequest, 1);
        let home = {
            let mut all = locked(&self.all);
            let new = || Object { counter: Counter::new(MemoryRows::default(), None), home: self.place, free_at_us: 0 };
            all.entry(object.name.to_owned()).or_insert_with(new).home
        };
        let deadline_us = object.deadline.get() * 1_000;
        let serve = |now| match locked(&self.all).get_mut(object.name) {
            Some(found) => found.serve(&self.ground, &body, now),
            None => (Err(late("durable object")), now),
        };
        let answered = self.ground.ask(self.place, home, deadline_us, serve).await;
        answered.unwrap_or_else(|| Err(late("durable object")))
    }
}

impl Object {
    /// Answers a request that arrives, after those before it.
    fn serve(&mut self, ground: &Ground, body: &[u8], now: u64) -> (Result<Reply, Error>, u64) {
        if self.free_at_us.saturating_sub(now) > ground.assumed.object_queue_us {
            let message = "Too many requests queued.".into();
            return (Err(Thrown { message, overloaded: true, ..Thrown::default() }.into()), now);
        }
        self.free_at_us = self.free_at_us.max(now) + ground.assumed.object_us;
        let before = self.counter.rows().written;
        let reply = self.counter.answer(body, UnixMillis::new(self.free_at_us / 1_000));
        ground.count(Operation::RowWritten, self.counter.rows().written - before);
        (Ok(reply), self.free_at_us)
    }
}

/// Rows in memory.
#[derive(Debug, Default)]
struct MemoryRows {
    rows: HashMap<String, Row>,
    written: u64,
}

impl Rows for MemoryRows {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        Ok(self.rows.get(key).cloned())
    }

    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        self.written += rows.len() as u64;
        self.rows.extend(rows.iter().map(|(key, row)| ((*key).to_owned(), row.clone())));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.rows.remove(key);
        Ok(())
    }

    /// No alarm fires in a simulation: what has expired counts nothing in any case.
    fn sweep(&mut self, _: UnixMillis, _: Option<&str>) -> Result<Page, Error> {
        Ok(Page { kept: self.rows.len() as u64, ..Page::default() })
    }

    fn set_alarm(&mut self, _: UnixMillis) -> Result<(), Error> {
        Ok(())
    }
}
