//! What a gate tells of failures.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::LogLimit;
use crate::{Error, ErrorKind, Millis, UnixMillis};

/// A line for the log: a store has gone down or is back, or a check has failed for another reason. A gate gives it to one
/// [verdict](super::Verdict::notice), and whoever sends the response writes it.
///
/// A store that goes down is one notice, and so is its return. Of other failures, there is at most one a second for each kind of error.
/// It has no key and no address, and nothing that a store or a client has written. Of an error it has the kind and the
/// [advice](Error::advice).
///
/// ```
/// use tidegate_core::ErrorKind;
/// use tidegate_core::gate::Notice;
/// let (error, replaced) = (ErrorKind::Timeout, Some("memory".into()));
/// let down = Notice::Down { store: "main".into(), error, replaced, advice: None };
/// assert_eq!(down.to_string(), "the store \"main\" does not answer (timeout), and \"memory\" decides in its place");
/// assert!(down.is_failure());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A store has stopped to answer.
    Down {
        /// Its name in the gate.
        store: Box<str>,
        /// The kind of its failure.
        error: ErrorKind,
        /// The name of the store that decides in its place, by the table `stores`. `None` if the rules' `on_failure` decides.
        replaced: Option<Box<str>>,
        /// What the operator must change, if the store knows it.
        advice: Option<&'static str>,
    },
    /// It answers again.
    Up {
        /// Its name in the gate.
        store: Box<str>,
        /// How long after its first failure.
        after: Millis,
        /// How many of its calls failed.
        failures: u64,
    },
    /// A check has failed, and not because a store does not answer.
    Failed {
        /// The rule.
        rule: Box<str>,
        /// The kind of the error.
        error: ErrorKind,
        /// How many of this kind were not told since the last one.
        suppressed: u64,
        /// What the operator must change, if the store knows it.
        advice: Option<&'static str>,
    },
}

impl Notice {
    /// Whether something is wrong, as opposed to a store that is back.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Up { .. })
    }

    /// Sends it to the subscriber of [`tracing`], with the target `tidegate`: at level `INFO` if a store is back, otherwise `WARN`.
    #[cfg(feature = "tracing")]
    pub fn log(&self) {
        match self {
            Self::Down { store, error, replaced, advice } => {
                tracing::warn!(target: "tidegate", %store, error = error.name(), replaced = replaced.as_deref(), advice, "the store does not answer");
            }
            Self::Up { store, after, failures } => {
                tracing::info!(target: "tidegate", %store, down_ms = after.get(), failures, "the store answers again");
            }
            Self::Failed { rule, error, suppressed, advice } => {
                tracing::warn!(target: "tidegate", %rule, error = error.name(), suppressed, advice, "rate limiter failed");
            }
        }
    }
}

/// For a log of texts, without a line end.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down { store, error, replaced: Some(other), .. } => {
                write!(f, "the store \"{store}\" does not answer ({error}), and \"{other}\" decides in its place")
            }
            Self::Down { store, error, replaced: None, .. } => {
                write!(f, "the store \"{store}\" does not answer ({error}), and on_failure of each rule decides")
            }
            Self::Up { store, after, failures } => {
                write!(f, "the store \"{store}\" answers again after {after}, in which {failures} of its calls failed")
            }
            Self::Failed { rule, error, suppressed: 0, .. } => {
                write!(f, "the rule \"{rule}\": the limiter failed ({error})")
            }
            Self::Failed { rule, error, suppressed, .. } => {
                write!(
                    f,
                    "the rule \"{rule}\": the limiter failed ({error}), and {suppressed} times since the last line"
                )
            }
        }?;
        match self {
            Self::Down { advice: Some(advice), .. } | Self::Failed { advice: Some(advice), .. } => {
                write!(f, "; {advice}")
            }
            _ => Ok(()),
        }
    }
}

/// The most notices that wait for a verdict.
const WAITING_MAX: usize = 32;

/// The notices of a gate until a verdict takes them.
#[derive(Debug, Default)]
pub(super) struct Notices {
    limit: LogLimit,
    /// Whether there are any, for the usual case without a lock.
    has_any: AtomicBool,
    waiting: Mutex<VecDeque<Notice>>,
}

impl Notices {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, notice: Notice) {
        let mut waiting = self.waiting();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(notice);
            self.has_any.store(true, Ordering::Relaxed);
        }
    }

    /// A check has failed. A [failure of a store](ErrorKind::is_store_failure) is told by that store.
    pub(super) fn failed(&self, rule: &str, error: &Error, now: UnixMillis) {
        let (kind, advice) = (error.kind(), error.advice());
        if kind.is_store_failure() {
            return;
        }
        if let Some(suppressed) = self.limit.admit(kind, now) {
            self.add(Notice::Failed { rule: rule.into(), error: kind, suppressed, advice });
        }
    }

    /// A store does not answer. Returns whether that is told now.
    pub(super) fn down(&self, store: &str, error: &Error, now: UnixMillis) -> bool {
        let (kind, advice) = (error.kind(), error.advice());
        let is_told = self.limit.admit(kind, now).is_some();
        if is_told {
            self.add(Notice::Down { store: store.into(), error: kind, replaced: None, advice });
        }
        is_told
    }

    pub(super) fn up(&self, store: &str, after: Millis, failures: u64) {
        self.add(Notice::Up { store: store.into(), after, failures });
    }

    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// The oldest.
    pub(super) fn take(&self) -> Option<Notice> {
        if !self.has_any() {
            return None;
        }
        let mut waiting = self.waiting();
        let taken = waiting.pop_front();
        self.has_any.store(!waiting.is_empty(), Ordering::Relaxed);
        taken
    }
}
