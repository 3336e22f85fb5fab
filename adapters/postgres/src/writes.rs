//! Writes of different keys that wait at the same time, which one statement makes.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most writes in a statement. The rows of all of them are locked until it ends.
const TOGETHER: usize = 64;

/// A write over what was there, or over nothing.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) name: String,
    pub(crate) new: Vec<u8>,
    pub(crate) old: Option<Vec<u8>>,
    pub(crate) ttl: i64,
}

/// What has become of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// Another one came first. This is there now, or nothing.
    Lost(Option<Vec<u8>>),
    /// Another one came first, and nobody knows what is there now.
    Unknown,
}

/// A write that waits, and who waits for it.
pub(crate) type Waiting = (Write, oneshot::Sender<Result<Written, Error>>);

/// What tells it.
pub(crate) type Told = oneshot::Receiver<Result<Written, Error>>;

/// The statements under way, of which there are no more than connections, and the writes that wait for one of them to end.
#[derive(Debug)]
pub(crate) struct Writes {
    at_once: usize,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

/// What has statements of writes under way.
pub(crate) trait Sends: Send + Sync + 'static {
    fn writes(&self) -> &Writes;

    /// Makes several writes, and tells who waits for them.
    fn send(self: Arc<Self>, together: Vec<Waiting>) -> impl Future<Output = ()> + Send;
}

/// The turn of a statement. Its end is the begin of the next one.
pub(crate) struct Turn<S: Sends> {
    sends: Arc<S>,
    runtime: Handle,
}

impl Writes {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { at_once, lines: Mutex::default() }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next writes that wait, of one name only once. Nobody waits for those that have been given up.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut lines = self.lines();
        let (mut together, mut names, mut later) = (Vec::new(), HashSet::new(), VecDeque::new());
        while together.len() < TOGETHER
            && let Some(waiting) = lines.waiting.pop_front()
        {
            if waiting.1.is_closed() {
                continue;
            }
            if names.insert(waiting.0.name.clone()) {
                together.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        later.append(&mut lines.waiting);
        lines.waiting = later;
        if together.is_empty() {
            lines.under_way -= 1;
            return None;
        }
        Some(together)
    }
}

/// Takes a turn for a write if a statement may begin, and otherwise has the write wait until one has ended.
pub(crate) fn enter<S: Sends>(sends: &Arc<S>, write: Write) -> Result<(Turn<S>, Write), Told> {
    let mut lines = sends.writes().lines();
    if lines.under_way < sends.writes().at_once {
        lines.under_way += 1;
        return Ok((Turn { sends: Arc::clone(sends), runtime: Handle::current() }, write));
    }
    let (tell, told) = oneshot::channel();
    lines.waiting.push_back((write, tell));
    Err(told)
}

impl<S: Sends> Drop for Turn<S> {
    fn drop(&mut self) {
        if let Some(together) = self.sends.writes().next() {
            let turn = Self { sends: Arc::clone(&self.sends), runtime: self.runtime.clone() };
            self.runtime.spawn(async move {
                Arc::clone(&turn.sends).send(together).await;
                drop(turn);
            });
        }
    }
}

/// Reads the answer to a statement that makes several writes: the places of those that were made, `1 3`, and of those that were lost, each with what is
/// there, `2:14e8 4:-`. `None` if it is not such an answer.
pub(crate) fn written(writes: &[&Write], done: &str, lost: &str) -> Option<Vec<Written>> {
    // Of a row that should be there and is in neither, nothing is there.
    let other = |write: &&Write| if write.old.is_some() { Written::Lost(None) } else { Written::Unknown };
    let mut written: Vec<_> = writes.iter().map(other).collect();
    let place = |place: &str| place.parse::<usize>().ok()?.checked_sub(1);
    for done in done.split_whitespace() {
        *written.get_mut(place(done)?)? = Written::Done;
    }
    for lost in lost.split_whitespace() {
        let (at, state) = lost.split_once(':')?;
        let at = place(at)?;
        if state != "-" {
            *written.get_mut(at)? = Written::Lost(Some(bytes(state)?));
        }
    }
    Some(written)
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Write, Written, written};

    fn write(old: Option<&[u8]>) -> Write {
        Write { name: "k".into(), new: b"new".to_vec(), old: old.map(<[u8]>::to_vec), ttl: 1 }
    }

    #[test]
    fn an_answer_says_what_became_of_each_write() {
        let (update, create) = (write(Some(b"old")), write(None));
        let writes = [&update, &update, &update, &create, &create, &update];
        let lost = |bytes: &[u8]| Written::Lost(Some(bytes.to_vec()));
        let answer = written(&writes, "1 5", "2:14e8 3:- 6: ").unwrap_or_default();
        let expected =
            [Written::Done, lost(b"\x14\xe8"), Written::Lost(None), Written::Unknown, Written::Done, lost(b"")];
        assert_eq!(answer, expected);
    }

    #[test]
    fn an_answer_that_is_none_is_not_read() {
        let update = write(Some(b"old"));
        for (done, lost) in
            [("2", ""), ("0", ""), ("x", ""), ("", "1"), ("", "1:1g"), ("", "2:00"), ("", ":00"), ("-1", "")]
        {
            assert_eq!(written(&[&update], done, lost), None, "{done:?} {lost:?}");
        }
    }
}
