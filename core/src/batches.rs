//! Sends what one task asks at once as one request.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::mem;
use core::task::{Poll, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, ErrorKind};

/// Sends questions of several calls as one request: those that one task asks before it waits for an answer to any of them.
///
/// A task is recognized by its waker. So no request waits for what another one has asked, which some hosts do not allow. All calls of a
/// batch are polled together, as their task does; if the first one is dropped, the others fail.
#[derive(Debug)]
pub struct Batches<Q, A> {
    /// The most questions of a request.
    most: usize,
    /// Those that are not sent yet.
    open: Mutex<Vec<Arc<Batch<Q, A>>>>,
}

#[derive(Debug)]
struct Batch<Q, A> {
    to: String,
    /// The task of the first call.
    task: Waker,
    asked: Mutex<Asked<Q, A>>,
}

#[derive(Debug)]
struct Asked<Q, A> {
    questions: Vec<Q>,
    /// By the places of the questions. `None` until there is one, and once it is taken.
    answers: Vec<Option<Result<A, Error>>>,
    waiting: Vec<Waker>,
}

/// A call's part in a batch.
struct Part<'a, Q, A> {
    batches: &'a Batches<Q, A>,
    batch: Arc<Batch<Q, A>>,
    place: usize,
}

/// With batches of its own.
impl<Q, A> Clone for Batches<Q, A> {
    fn clone(&self) -> Self {
        Self::new(self.most)
    }
}

impl<Q, A> Batches<Q, A> {
    /// Requests of at most so many questions.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, open: Mutex::new(Vec::new()) }
    }

    /// The answer to a question, which is sent to `to` by one of the calls: `send` returns an answer to each question, in
    /// their order. If it fails, so do all.
    ///
    /// # Errors
    /// That of the question, or of the whole request.
    pub async fn ask<F>(&self, to: &str, question: Q, send: impl FnOnce(Vec<Q>) -> F) -> Result<A, Error>
    where
        F: Future<Output = Result<Vec<Result<A, Error>>, Error>>,
    {
        let mut question = Some(question);
        let mut part = None;
        // Others of the task ask before it is polled once more.
        poll_fn(|context| {
            let Some(question) = question.take() else { return Poll::Ready(()) };
            part = Some(self.join(to, question, context.waker()));
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let Some(part) = part else { return Err(lost()) };
        if part.place == 0 {
            self.close(&part.batch);
            let questions = mem::take(&mut part.batch.asked().questions);
            let answers = send(questions).await;
            part.batch.answer(answers);
        }
        poll_fn(|context| part.batch.poll(part.place, context.waker())).await
    }

    fn join(&self, to: &str, question: Q, task: &Waker) -> Part<'_, Q, A> {
        let mut open = self.open();
        let is_last = |batch: &&Arc<Batch<Q, A>>| batch.to == to && batch.task.will_wake(task);
        let last = open.iter().rev().find(is_last).filter(|batch| batch.asked().answers.len() < self.most);
        let batch = last.cloned().unwrap_or_else(|| {
            let asked = Asked { questions: Vec::new(), answers: Vec::new(), waiting: Vec::new() };
            let batch = Arc::new(Batch { to: to.to_owned(), task: task.clone(), asked: Mutex::new(asked) });
            open.push(Arc::clone(&batch));
            batch
        });
        let mut asked = batch.asked();
        let place = asked.answers.len();
        asked.questions.push(question);
        asked.answers.push(None);
        drop(asked);
        Part { batches: self, batch, place }
    }

    fn close(&self, batch: &Arc<Batch<Q, A>>) {
        self.open().retain(|other| !Arc::ptr_eq(other, batch));
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Batch<Q, A>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Batch<Q, A> {
    fn asked(&self) -> MutexGuard<'_, Asked<Q, A>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes its answer to each call that has none.
    fn answer(&self, answers: Result<Vec<Result<A, Error>>, Error>) {
        let mut asked = self.asked();
        let (mut answers, error) = match answers {
            Ok(answers) => (answers.into_iter(), lost()),
            Err(error) => (Vec::new().into_iter(), error),
        };
        let error = Arc::new(error);
        for place in &mut asked.answers {
            let answer = answers.next().unwrap_or_else(|| Err(Error::shared(&error)));
            place.get_or_insert(answer);
        }
        let waiting = mem::take(&mut asked.waiting);
        drop(asked);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, place: usize, task: &Waker) -> Poll<Result<A, Error>> {
        let mut asked = self.asked();
        if let Some(answer) = asked.answers[place].take() {
            return Poll::Ready(answer);
        }
        if !asked.waiting.iter().any(|other| other.will_wake(task)) {
            asked.waiting.push(task.clone());
        }
        Poll::Pending
    }
}

impl<Q, A> Drop for Part<'_, Q, A> {
    /// Without the first call, nobody sends the batch, or takes its answers.
    fn drop(&mut self) {
        if self.place == 0 {
            self.batches.close(&self.batch);
            self.batch.answer(Ok(Vec::new()));
        }
    }
}

#[cold]
fn lost() -> Error {
    let message = "the call that would have sent this one was dropped; the request may have been charged";
    Error::new(ErrorKind::Contended, message)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failing rig fails its test")]
mod tests {
    use alloc::boxed::Box;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::error::Error as _;
    use core::future::poll_fn;
    use core::pin::Pin;
    use core::task::{Context, Poll, Waker};
    use std::sync::Mutex;

    use pollster::block_on;

    use super::Batches;
    use crate::{Error, ErrorKind};

    type Call<'a> = Pin<Box<dyn Future<Output = Result<u32, Error>> + 'a>>;

    /// Answers twice the number. It has none for 3, and fails if it is asked for 13.
    struct Server {
        batches: Batches<u32, u32>,
        requests: Mutex<Vec<Vec<u32>>>,
    }

    impl Server {
        fn new(most: usize) -> Self {
            Self { batches: Batches::new(most), requests: Mutex::default() }
        }

        fn ask<'a>(&'a self, to: &'a str, number: u32) -> Call<'a> {
            Box::pin(self.batches.ask(to, number, async |numbers: Vec<u32>| {
                self.requests.lock().unwrap().push(numbers.clone());
                if numbers.contains(&13) {
                    return Err(Error::new(ErrorKind::Timeout, "no answer").with_advice("wait"));
                }
                let three = || Error::new(ErrorKind::Corrupt, "three");
                Ok(numbers.into_iter().map(|number| if number == 3 { Err(three()) } else { Ok(2 * number) }).collect())
            }))
        }

        fn requests(&self) -> Vec<Vec<u32>> {
            std::mem::take(&mut self.requests.lock().unwrap())
        }
    }

    fn all(calls: Vec<Call<'_>>) -> Vec<Result<u32, Error>> {
        let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
        block_on(poll_fn(|context| {
            for (call, answer) in &mut calls {
                if answer.is_none()
                    && let Poll::Ready(ready) = call.as_mut().poll(context)
                {
                    *answer = Some(ready);
                }
            }
            if calls.iter().all(|(_, answer)| answer.is_some()) { Poll::Ready(()) } else { Poll::Pending }
        }));
        calls.into_iter().filter_map(|(_, answer)| answer).collect()
    }

    #[test]
    fn what_a_task_asks_at_once_is_one_request_and_each_question_gets_its_own_answer() {
        let server = Server::new(64);
        let answers = all((1..=5).map(|number| server.ask("a", number)).collect());
        assert_eq!(server.requests(), [[1, 2, 3, 4, 5]]);
        assert_eq!(answers[2].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
        let answers: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
        assert_eq!(answers, [2, 4, 8, 10]);
        assert_eq!(all(vec![server.ask("a", 7)])[0].as_ref().ok(), Some(&14));
        assert_eq!(server.requests(), [[7]]);
    }

    #[test]
    fn a_request_has_so_many_questions_and_one_receiver() {
        let server = Server::new(2);
        let asked = [("a", 1), ("b", 2), ("a", 4), ("a", 5), ("b", 6), ("b", 7), ("a", 8)];
        let answers = all(asked.map(|(to, number)| server.ask(to, number)).into());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(server.requests(), [vec![1, 4], vec![2, 6], vec![5, 8], vec![7]]);
    }

    #[test]
    fn the_failure_of_a_request_is_that_of_each_of_its_questions() {
        let server = Server::new(64);
        for answer in all(vec![server.ask("a", 1), server.ask("a", 13), server.ask("a", 2)]) {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.advice()), (ErrorKind::Timeout, Some("wait")));
            assert_eq!(format!("{error}, {}", error.source().unwrap()), "no answer, no answer");
        }
    }

    #[test]
    fn tasks_do_not_wait_for_each_other() {
        let server = Server::new(64);
        let mut first = server.ask("a", 1);
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(all(vec![server.ask("a", 2)])[0].as_ref().ok(), Some(&4));
        assert_eq!(server.requests(), [[2]]);
        assert_eq!(block_on(first).ok(), Some(2));
        assert_eq!(server.requests(), [[1]]);
    }

    #[test]
    fn without_the_call_that_sends_the_others_fail() {
        let server = Server::new(64);
        let mut calls: Vec<_> = (1..=3).map(|number| server.ask("a", number)).collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(calls.remove(0));
        for answer in all(calls) {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Contended);
        }
        assert!(server.requests().is_empty() && server.batches.open.lock().unwrap().is_empty());
    }
}
