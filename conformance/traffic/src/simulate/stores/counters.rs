use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_cloudflare::durable_objects::{Address, Config, Counter, Namespace, Page, Reply, Row, Rows, Thrown};
use tidegate_conformance::operation::Operation;
use tidegate_core::{Error, Millis, UnixMillis};

use super::late;
use crate::simulate::environment::{Assumed, Environment, HOME, locked};

/// The adapter's own counters over rows in memory, as an isolate at a place calls them.
#[derive(Clone)]
pub(in crate::simulate) struct Counters {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) host: Host,
    pub(in crate::simulate) all: Arc<Mutex<HashMap<String, Counted>>>,
}

/// What runs the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulate) enum Host {
    /// A Durable Object for each key, which lives where it was called first.
    Objects,
    /// Redis or Upstash at one place, whose script lends as the core does.
    Server,
}

impl Host {
    /// The adapter's configuration, with the deadline of the host's own adapter.
    pub(in crate::simulate) fn config(self, assumed: &Assumed) -> Config {
        match self {
            Self::Objects => Config::default(),
            Self::Server => Config::default().deadline(Millis::new(assumed.redis_deadline_us / 1_000)),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Objects => "durable object",
            Self::Server => "redis",
        }
    }
}

/// A counter, where it is, and how busy it is.
pub(in crate::simulate) struct Counted {
    counter: Counter<MemoryRows>,
    home: usize,
    /// When an object has served all requests that have arrived.
    free_at_us: u64,
}

impl Namespace for Counters {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let (call, home) = match self.host {
            Host::Objects => (Operation::ObjectRequest, self.place),
            Host::Server => (Operation::ScriptCall, HOME),
        };
        self.environment.count(call, 1);
        let home = {
            let mut all = locked(&self.all);
            let new = || Counted { counter: Counter::new(MemoryRows::default(), None), home, free_at_us: 0 };
            all.entry(object.name.to_owned()).or_insert_with(new).home
        };
        let deadline_us = object.deadline.get() * 1_000;
        let serve = |now| match (locked(&self.all).get_mut(object.name), self.host) {
            (Some(found), Host::Objects) => found.serve_as_object(&self.environment, &body, now),
            (Some(found), Host::Server) => (Ok(found.serve_as_script(&self.environment, &body, now)), now),
            (None, host) => (Err(late(host.name())), now),
        };
        let answered = self.environment.ask(self.place, home, deadline_us, serve).await;
        answered.unwrap_or_else(|| Err(late(self.host.name())))
    }
}

impl Counted {
    /// Answers a request that arrives, after those before it.
    fn serve_as_object(&mut self, environment: &Environment, body: &[u8], now: u64) -> (Result<Reply, Error>, u64) {
        if self.free_at_us.saturating_sub(now) > environment.assumed.object_queue_us {
            let message = "Too many requests queued.".into();
            return (Err(Thrown { message, overloaded: true, ..Thrown::default() }.into()), now);
        }
        self.free_at_us = self.free_at_us.max(now) + environment.assumed.object_us;
        let (reply, written) = self.answer(body, self.free_at_us);
        environment.count(Operation::RowWritten, written);
        (Ok(reply), self.free_at_us)
    }

    /// Answers a script call: the script, `TIME` and `GETRANGE`, and `SET` if it writes.
    fn serve_as_script(&mut self, environment: &Environment, body: &[u8], now: u64) -> Reply {
        let (reply, written) = self.answer(body, now);
        environment.count(Operation::RedisCommand, 3 + written);
        reply
    }

    /// The answer, and how many rows were written for it.
    fn answer(&mut self, body: &[u8], now: u64) -> (Reply, u64) {
        let before = self.counter.rows().written;
        let reply = self.counter.answer(body, UnixMillis::new(now / 1_000));
        (reply, self.counter.rows().written - before)
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
