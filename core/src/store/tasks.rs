//! The tasks that wait for a call which any of them drives.

use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::mem;
use core::task::Waker;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tasks that wait for calls. As a waker, it wakes all of them.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<Vec<Waker>>);

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, task: &Waker) {
        let mut tasks = self.lock();
        if !tasks.iter().any(|other| other.will_wake(task)) {
            tasks.push(task.clone());
        }
    }

    pub(super) fn wake_all(&self) {
        let tasks = mem::take(&mut *self.lock());
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

/// Wakes the tasks once the calls are unlocked: one has ended.
pub(super) struct Wakes<'a>(pub(super) Option<&'a Arc<Tasks>>);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        if let Some(tasks) = self.0 {
            tasks.wake_all();
        }
    }
}
