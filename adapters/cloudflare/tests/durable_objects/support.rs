//! Objects without Cloudflare. Their rows are in memory, are counted when they are written, survive an eviction, and can
//! fail.

#![allow(unreachable_pub, reason = "its items are public for the other modules of this test")]

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, ready};
use std::ops::Bound;
use std::sync::Mutex;

use tidegate_cloudflare::durable_objects::{Address, Clock, Config, Counter, Namespace, Page, Reply, Row, Rows, Sweep};
use tidegate_core::{Error, ErrorKind, UnixMillis};
use tidegate_testing::NOW;

/// The number of rows that a sweep reads at a time.
pub const PAGE_ROWS: usize = 100;

/// A configuration for histories that set the time of each request.
pub fn virtual_time() -> Config {
    Config::default().clock(Clock::Caller)
}

/// The rows of one object, in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub rows: BTreeMap<String, Row>,
    pub alarm: Option<UnixMillis>,
    pub rows_written: u64,
    pub alarms_set: u64,
    pub loads: std::cell::Cell<u64>,
    pub pages: u64,
    /// Whether every write fails.
    pub full: bool,
    /// How every read fails.
    pub unreadable: Option<ErrorKind>,
}

impl Memory {
    fn writable(&self) -> Result<(), Error> {
        if self.full { Err(Error::new(ErrorKind::Refused, "database or disk is full")) } else { Ok(()) }
    }
}

impl Rows for Memory {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        self.loads.set(self.loads.get() + 1);
        self.unreadable.map_or_else(|| Ok(self.rows.get(key).cloned()), |kind| Err(Error::new(kind, "on demand")))
    }

    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        self.writable()?;
        for (key, row) in rows {
            self.rows.insert((*key).to_owned(), row.clone());
            self.rows_written += 1;
        }
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.writable()?;
        self.rows_written += u64::from(self.rows.remove(key).is_some());
        Ok(())
    }

    fn sweep(&mut self, clock: UnixMillis, after: Option<&str>) -> Result<Page, Error> {
        self.writable()?;
        self.pages += 1;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.rows.range::<str, _>((start, Bound::Unbounded)).take(PAGE_ROWS);
        let page: Vec<_> = page.map(|(key, row)| (key.clone(), row.expires)).collect();
        let kept = page.iter().filter(|(_, expires)| *expires > clock);
        let found = Page {
            kept: kept.clone().count() as u64,
            next: kept.map(|(_, expires)| *expires).min(),
            last: page.last().filter(|_| page.len() == PAGE_ROWS).map(|(key, _)| key.clone()),
        };
        for (key, _) in page.iter().filter(|(_, expires)| *expires <= clock) {
            self.rows.remove(key);
            self.rows_written += 1;
        }
        Ok(found)
    }

    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        self.writable()?;
        self.alarm = Some(at);
        self.alarms_set += 1;
        Ok(())
    }
}

/// A namespace of objects in this process.
#[derive(Debug, Default)]
pub struct Rig {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: HashMap<String, Counter<Memory>>,
    /// The objects' clock; [`NOW`] at first.
    clock: Option<UnixMillis>,
    calls: u64,
    loss: Loss,
}

/// What happens to calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// They are answered.
    #[default]
    None,
    /// They arrive, and their answers do not.
    Answers,
    /// They do not arrive.
    Calls,
    /// They are answered, but several at once are refused, as by an object of an earlier release.
    Several,
}

impl Rig {
    /// Sets the objects' clock, and fires the alarms that are due by it.
    pub fn set_clock(&self, clock: UnixMillis) {
        let mut state = self.state.lock().unwrap();
        state.clock = Some(clock);
        for counter in state.objects.values_mut() {
            if counter.rows().alarm.is_some_and(|at| at <= clock) {
                replace(counter, |mut rows| {
                    rows.alarm = None;
                    Counter::new(rows, None)
                });
                let mut swept = Sweep::More;
                while swept == Sweep::More {
                    swept = counter.sweep(clock).unwrap();
                }
                assert_eq!(swept == Sweep::Empty, counter.rows().rows.is_empty());
            }
        }
    }

    pub fn lose(&self, loss: Loss) {
        self.state.lock().unwrap().loss = loss;
    }

    /// Drops every object from memory.
    pub fn evict(&self) {
        self.edit(|_| {});
    }

    /// Drops every object from memory, and changes its rows.
    pub fn edit(&self, mut change: impl FnMut(&mut Memory)) {
        for counter in self.state.lock().unwrap().objects.values_mut() {
            replace(counter, |mut rows| {
                change(&mut rows);
                let alarm = rows.alarm;
                Counter::new(rows, alarm)
            });
        }
    }

    /// Runs a step on the first object.
    pub fn with_object<T>(&self, step: impl FnOnce(&mut Counter<Memory>) -> T) -> T {
        step(self.state.lock().unwrap().objects.values_mut().next().unwrap())
    }

    /// Shows the rows of every object to `look`.
    pub fn each(&self, mut look: impl FnMut(&str, &Memory)) {
        for (name, counter) in &self.state.lock().unwrap().objects {
            look(name, counter.rows());
        }
    }

    pub fn sum(&self, what: impl Fn(&Memory) -> u64) -> u64 {
        let mut sum = 0;
        self.each(|_, rows| sum += what(rows));
        sum
    }

    pub fn rows_written(&self) -> u64 {
        self.sum(|rows| rows.rows_written)
    }

    pub fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }
}

impl Namespace for &Rig {
    fn call(&self, object: Address<'_>, body: Vec<u8>) -> impl Future<Output = Result<Reply, Error>> + Send {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let loss = state.loss;
        if loss == Loss::Calls {
            return ready(Err(Error::new(ErrorKind::Unavailable, "lost")));
        }
        if loss == Loss::Several && body[0] > 5 {
            let text = "unavailable: durable object: the call has another version of the protocol".into();
            return ready(Ok(Reply { status: 500, body: text }));
        }
        let clock = state.clock.unwrap_or(NOW);
        let counter =
            state.objects.entry(object.name.to_owned()).or_insert_with(|| Counter::new(Memory::default(), None));
        let reply = counter.answer(&body, clock);
        ready(if loss == Loss::Answers { Err(Error::new(ErrorKind::Timeout, "lost")) } else { Ok(reply) })
    }
}

fn replace(counter: &mut Counter<Memory>, change: impl FnOnce(Memory) -> Counter<Memory>) {
    let rows = std::mem::replace(counter, Counter::new(Memory::default(), None)).into_rows();
    *counter = change(rows);
}
