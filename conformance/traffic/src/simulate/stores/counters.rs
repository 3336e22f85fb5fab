use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_cloudflare::durable_objects::{
    Address, Config, Counter, Namespace, Page, Reply, Row, Rows, Sweep, Thrown,
};
use tidegate_conformance::operation::Operation;
use tidegate_core::{Error, Millis, UnixMillis};

use super::late;
use crate::simulate::environment::{Assumed, Environment, HOME, Pipeline, locked};

/// The adapter's own counters over rows in memory, as an isolate at a place calls them.
#[derive(Clone)]
pub(in crate::simulate) struct Counters {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) host: Host,
    /// Of the isolate to a server.
    pub(in crate::simulate) pipeline: Pipeline,
    pub(in crate::simulate) all: Arc<Mutex<HashMap<String, Counted>>>,
}

/// What runs the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulate) enum Host {
    /// A Durable Object for each key, which lives where it was called first, or at [`Assumed::object_at`].
    Objects,
    /// Redis at one place, whose script lends as the core does.
    Server,
    /// Upstash at one place. What several keys tell at the same moment is one script.
    Rest,
}

impl Host {
    /// The adapter's configuration, with the deadline of the host's own adapter.
    pub(in crate::simulate) fn config(self, assumed: &Assumed) -> Config {
        match self {
            Self::Objects => Config::default(),
            Self::Server | Self::Rest => Config::default().deadline(Millis::new(assumed.redis_deadline_us / 1_000)),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Objects => "durable object",
            Self::Server => "redis",
            Self::Rest => "upstash",
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
        let home = match self.host {
            Host::Objects => {
                self.environment.count(Operation::ObjectRequest, 1);
                self.environment.assumed.object_at.unwrap_or(self.place)
            }
            Host::Server | Host::Rest => {
                let is_first = self.environment.count_script_call(&self.pipeline, object.name);
                self.environment.count(Operation::RedisCommand, u64::from(is_first || self.host == Host::Server));
                HOME
            }
        };
        let home = {
            let mut all = locked(&self.all);
            let new = || Counted { counter: Counter::new(MemoryRows::default(), None), home, free_at_us: 0 };
            all.entry(object.name.to_owned()).or_insert_with(new).home
        };
        let deadline_us = object.deadline.get() * 1_000;
        let serve = |now| match (locked(&self.all).get_mut(object.name), self.host) {
            (Some(found), Host::Objects) => found.serve_as_object(&self.environment, &body, now),
            (Some(found), Host::Server | Host::Rest) => (Ok(found.serve_as_script(&self.environment, &body, now)), now),
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
        if environment.assumed.alarms_fire {
            self.sweep(environment, UnixMillis::new(self.free_at_us / 1_000));
        }
        let (reply, done) = self.answer(body, self.free_at_us);
        done.count(environment);
        (Ok(reply), self.free_at_us)
    }

    /// Removes what has expired, as the object does when an alarm that is due fires.
    pub(in crate::simulate) fn sweep(&mut self, environment: &Environment, now: UnixMillis) {
        while let Some(at) = self.counter.rows().alarm.filter(|at| *at <= now) {
            let before = self.counter.rows().done.get();
            // What remains in the end expires at some time.
            let at = if now == UnixMillis::MAX { now } else { at };
            while matches!(self.counter.sweep(at), Ok(Sweep::More)) {}
            self.counter.rows().done.get().since(before).count(environment);
        }
    }

    /// Answers a key of a script call: `TIME` and `GETRANGE`, and `SET` if it writes.
    fn serve_as_script(&mut self, environment: &Environment, body: &[u8], now: u64) -> Reply {
        let (reply, done) = self.answer(body, now);
        environment.count(Operation::RedisCommand, 2 + done.written);
        reply
    }

    /// The answer, and what was done for it.
    fn answer(&mut self, body: &[u8], now: u64) -> (Reply, Done) {
        let before = self.counter.rows().done.get();
        let reply = self.counter.answer(body, UnixMillis::new(now / 1_000));
        (reply, self.counter.rows().done.get().since(before))
    }
}

/// Rows in memory.
#[derive(Debug, Default)]
struct MemoryRows {
    rows: HashMap<String, Row>,
    /// When the pending alarm fires.
    alarm: Option<UnixMillis>,
    done: Cell<Done>,
}

/// How many rows were read and written, and how many alarms were set.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    read: u64,
    written: u64,
    alarms: u64,
}

impl Done {
    const fn since(self, before: Self) -> Self {
        let Self { read, written, alarms } = before;
        Self { read: self.read - read, written: self.written - written, alarms: self.alarms - alarms }
    }

    fn count(self, environment: &Environment) {
        for (operation, times) in
            [(Operation::RowRead, self.read), (Operation::RowWritten, self.written), (Operation::AlarmSet, self.alarms)]
        {
            environment.count(operation, times);
        }
    }
}

impl MemoryRows {
    fn did(&self, read: usize, written: usize, alarms: u64) {
        let Done { read: reads, written: writes, alarms: set } = self.done.get();
        self.done.set(Done { read: reads + read as u64, written: writes + written as u64, alarms: set + alarms });
    }
}

impl Rows for MemoryRows {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        self.did(1, 0, 0);
        Ok(self.rows.get(key).cloned())
    }

    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        self.did(0, rows.len(), 0);
        self.rows.extend(rows.iter().map(|(key, row)| ((*key).to_owned(), row.clone())));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.did(0, 1, 0);
        self.rows.remove(key);
        Ok(())
    }

    fn sweep(&mut self, clock: UnixMillis, _: Option<&str>) -> Result<Page, Error> {
        self.alarm = None;
        let before = self.rows.len();
        self.rows.retain(|_, row| row.expires > clock);
        let kept = self.rows.len();
        self.did(before, before - kept, 0);
        Ok(Page { kept: kept as u64, next: self.rows.values().map(|row| row.expires).min(), last: None })
    }

    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        self.did(0, 0, 1);
        self.alarm = Some(at);
        Ok(())
    }
}
