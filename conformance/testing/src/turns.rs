//! Futures that take turns.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};

/// Yields once, so that other tasks run meanwhile, as during a network call.
pub async fn turn() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs futures concurrently, one step of each at a time, and returns their results in their order.
pub fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    while futures.iter().any(|(_, answer)| answer.is_none()) {
        for (future, answer) in futures.iter_mut().filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut context) {
                *answer = Some(ready);
            }
        }
    }
    futures.into_iter().filter_map(|(_, answer)| answer).collect()
}
