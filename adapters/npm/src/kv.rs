//! Workers KV as the store, behind this isolate's own counts. The host reads and writes.

use std::cell::{OnceCell, RefCell};

use tidegate_cloudflare::kv::{CAPABILITIES, Config, Isolate, Put, Value, failed};
use tidegate_core::{Capabilities, Check, Decision, Error, Key, Operation, Policy, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::limit::{Limit, Question};
use crate::options::Options;
use crate::shared::{leave, leave_bytes, leave_number, leave_text, number, texts, whole, with_bytes, with_text};

thread_local! {
    /// The counts of all limiters, so that two of the same policy count together.
    static ISOLATE: OnceCell<&'static Isolate> = const { OnceCell::new() };
}

/// Makes the counts, with 64 random bits. The host draws them before the first call, because Workers have no randomness before
/// their first request.
#[wasm_bindgen]
pub fn seed(a: u32, b: u32) {
    made(u64::from(a) << 32 | u64::from(b));
}

fn made(seed: u64) -> &'static Isolate {
    let make = || &*Box::leak(Box::new(Isolate::new(seed, Config::default())));
    ISOLATE.with(|isolate| *isolate.get_or_init(make))
}

/// The counts of all limiters.
pub(crate) struct Store {
    /// The planned writes.
    puts: RefCell<Vec<Put>>,
}

impl Store {
    #[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
    pub(crate) fn open(_: &mut Options, _: &Policy) -> Result<Self, Error> {
        Ok(Self { puts: RefCell::default() })
    }

    #[expect(clippy::unused_self, reason = "the stores have one signature")]
    pub(crate) const fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
}

/// A value of the namespace as it was read.
type Read<'a> = Result<Option<&'a [u8]>, Error>;

#[wasm_bindgen]
impl Limit {
    /// Decides by what the isolate knows, and returns 0. If it knows too little, leaves the name of the value to read, and its number
    /// as the one more number.
    pub fn ask(&self, kind: u32, length: usize, cost: f64, now: f64, extra: f64) -> i32 {
        with_text(length, |key| {
            self.with(Question { kind, cost, now, extra }, self.key_of(key), &mut |operation| {
                let (check, peeks) = check_of(&operation)?;
                let key = operation.keys().single(&self.policy)?.storage_key(&self.policy);
                match made(0).plan(&check, &key)? {
                    Some(value) => {
                        leave_number(number(value.number()));
                        Ok(leave_text(&value.name(&key)))
                    }
                    None => Ok(leave(&decided(&check, &key, peeks)?)),
                }
            })
        })
    }

    /// Decides by a value that was read, of so many bytes, or by none if the length is negative. The key is pushed.
    pub fn read(&self, kind: u32, length: i32, cost: f64, now: f64, value: f64) -> i32 {
        let question = Question { kind, cost, now, extra: 0.0 };
        match usize::try_from(length) {
            Ok(length) => with_bytes(length, |bytes| self.learn(question, value, &Ok(Some(bytes)))),
            Err(_) => self.learn(question, value, &Ok(None)),
        }
    }

    /// Decides without a value, because the read threw a text of this length.
    pub fn failed(&self, kind: u32, length: usize, cost: f64, now: f64, value: f64) -> i32 {
        let error = with_text(length, |why| failed("get", why));
        self.learn(Question { kind, cost, now, extra: 0.0 }, value, &Err(error))
    }

    /// Plans the writes that are due. Returns how many.
    pub fn due(&self, now: f64) -> usize {
        let puts = made(0).plan_writes(instant(now));
        let count = puts.len();
        *self.store.puts.borrow_mut() = puts;
        count
    }

    /// Leaves the bytes of a planned write. The one more number is for how many seconds to keep them.
    pub fn put(&self, nth: usize) -> i32 {
        let puts = self.store.puts.borrow();
        let Some(put) = puts.get(nth) else { return 0 };
        leave_number(number(put.ttl.max(Config::TTL_MIN).as_secs_ceil()));
        leave_bytes(&put.bytes)
    }

    /// Leaves the key of a planned write and the name of its value, on two lines.
    #[wasm_bindgen(js_name = putNames)]
    pub fn put_names(&self, nth: usize) -> i32 {
        self.store
            .puts
            .borrow()
            .get(nth)
            .map_or(0, |put| leave_text(&[&put.key, "\n", &put.value.name(&put.key)].concat()))
    }

    /// Ends a write. The key is pushed, and what the write has thrown, if anything.
    pub fn wrote(&self) {
        let mut texts = texts().into_iter();
        let key = texts.next().flatten().unwrap_or_default();
        let answer = texts.next().flatten().map_or(Ok(()), |why| Err(failed("put", &why)));
        made(0).wrote(&key, &answer);
    }

    /// How many milliseconds to wait until the next writes, if this caller is to make them. Otherwise negative.
    #[allow(clippy::cast_precision_loss, reason = "seconds at most")]
    pub fn appoint(&self, now: f64) -> f64 {
        made(0).appoint(instant(now)).map_or(-1.0, |wait| wait.get() as f64)
    }
}

impl Limit {
    fn learn(&self, question: Question, value: f64, read: &Read<'_>) -> i32 {
        self.with(question, Key::missing_ip(), &mut |operation| {
            let (check, peeks) = check_of(&operation)?;
            let key = operation.keys().single(&self.policy)?.storage_key(&self.policy);
            let answer = match read {
                Ok(bytes) => Ok(bytes.map(<[u8]>::to_vec)),
                Err(error) => Err(Error::new(error.kind(), error.to_string())),
            };
            made(0).learn(&check, &key, Value::numbered(whole(value)), answer);
            Ok(leave(&decided(&check, &key, peeks)?))
        })
    }
}

/// A check, its key, and whether it is a peek.
fn check_of<'a>(operation: &Operation<'a>) -> Result<(Check<'a>, bool), Error> {
    match operation {
        Operation::Check(check) => Ok((*check, false)),
        Operation::Peek(check) => Ok((*check, true)),
        _ => Err(operation.unsupported()),
    }
}

fn decided(check: &Check<'_>, key: &str, peeks: bool) -> Result<Decision, Error> {
    if peeks { made(0).peek(check, key) } else { made(0).decide(check, key) }
}

fn instant(ms: f64) -> UnixMillis {
    UnixMillis::new(whole(ms))
}
