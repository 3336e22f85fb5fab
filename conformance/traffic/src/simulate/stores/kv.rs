use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tidegate_conformance::operation::Operation;
use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Error, Millis};

use crate::simulate::environment::{Assumed, Environment, HOME, locked};

/// A Workers KV namespace, as a location sees it.
#[derive(Clone)]
pub(in crate::simulate) struct Kv {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) all: Arc<Mutex<HashMap<String, Values>>>,
}

/// What is stored under a key, and what each location has cached of it.
#[derive(Debug, Default)]
pub(in crate::simulate) struct Values {
    /// In order. The first is the last that all places see, or the first of all.
    writes: VecDeque<Write>,
    written: u64,
    /// The generation of each place's own last write.
    own: HashMap<usize, u64>,
    cached: HashMap<usize, (u64, Option<Vec<u8>>)>,
}

#[derive(Debug)]
pub(super) struct Write {
    at_us: u64,
    /// `None` is a deletion.
    pub(super) value: Option<Vec<u8>>,
    until_us: u64,
    /// Counts the writes of a key.
    pub(super) generation: u64,
}

impl Values {
    /// The newest value that a place sees. It sees its own writes at once.
    pub(super) fn seen(&self, place: usize, now_us: u64, replication_us: u64) -> Option<&Write> {
        let first = self.writes.front()?.generation;
        let replicated = |write: &Write| write.at_us.saturating_add(replication_us) <= now_us;
        let replicated = self.writes.partition_point(replicated).checked_sub(1);
        let own = self.own.get(&place).and_then(|generation| usize::try_from(generation.checked_sub(first)?).ok());
        let write = &self.writes[replicated.max(own)?];
        (write.until_us > now_us && write.value.is_some()).then_some(write)
    }

    pub(super) fn write(&mut self, at_us: u64, place: usize, value: Option<Vec<u8>>, ttl: Millis, replication_us: u64) {
        // What nobody can see any more.
        while self.writes.get(1).is_some_and(|write| write.at_us.saturating_add(replication_us) <= at_us) {
            self.writes.pop_front();
        }
        self.written += 1;
        self.own.insert(place, self.written);
        let until_us = at_us.saturating_add(ttl.get().saturating_mul(1_000));
        self.writes.push_back(Write { at_us, value, until_us, generation: self.written });
    }
}

impl Kv {
    fn failed(operation: &str) -> Error {
        tidegate_cloudflare::kv::failed(operation, "KV failed: 500 Internal Server Error")
    }
}

impl BestEffort for Kv {
    fn capabilities(&self) -> Capabilities {
        tidegate_cloudflare::kv::CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let Assumed { kv_hot_us, kv_cache_us, kv_replication_us, kv_deadline_us, .. } = self.environment.assumed;
        self.environment.count(Operation::KvRead, 1);
        let now = self.environment.world.now_us();
        let hot = locked(&self.all).get(key).and_then(|values| {
            let (until, value) = values.cached.get(&self.place)?;
            (*until > now).then(|| value.clone())
        });
        if let Some(value) = hot {
            self.environment.world.sleep(kv_hot_us).await;
            return Ok(value);
        }
        let read = |now| {
            let mut all = locked(&self.all);
            let values = all.entry(key.to_owned()).or_default();
            let value = values.seen(self.place, now, kv_replication_us).and_then(|write| write.value.clone());
            values.cached.insert(self.place, (now + kv_cache_us, value.clone()));
            (value, now)
        };
        let answered = self.environment.ask(self.place, HOME, kv_deadline_us, read).await;
        answered.ok_or_else(|| Self::failed("get"))
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        let Assumed { kv_spacing_us, kv_replication_us, kv_deadline_us, .. } = self.environment.assumed;
        self.environment.count(Operation::KvWrite, 1);
        let write = |now| {
            let mut all = locked(&self.all);
            let values = all.entry(key.to_owned()).or_default();
            let throttled = values.writes.back().is_some_and(|write| now - write.at_us < kv_spacing_us);
            if !throttled {
                values.write(now, self.place, Some(bytes.into()), ttl, kv_replication_us);
                values.cached.remove(&self.place);
            }
            (throttled, now)
        };
        match self.environment.ask(self.place, HOME, kv_deadline_us, write).await {
            Some(false) => Ok(()),
            Some(true) => Err(tidegate_cloudflare::kv::failed("put", "KV PUT failed: 429 Too Many Requests")),
            None => Err(Self::failed("put")),
        }
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        locked(&self.all).remove(key);
        Ok(())
    }
}
