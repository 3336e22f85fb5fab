//! What goes wrong if a client aborts its request while the store is asked.

use std::mem;

use futures_util::FutureExt as _;
use tidegate_guest_protocol::{Call, Reply, Route};
use tokio::task::yield_now;

use super::{Bench, unavailable};

impl Bench {
    /// Takes the oldest reply that nobody has read.
    pub(super) async fn oldest(&self, reply: Reply) -> Reply {
        self.unread.borrow_mut().push_back(reply);
        yield_now().await;
        self.unread.borrow_mut().pop_front().unwrap_or_else(|| unavailable("there is no reply"))
    }

    /// Returns the reply. If the request is aborted before that, it is performed again.
    pub(super) async fn again_if_aborted(&self, route: Route, call: &Call, reply: Reply) -> Reply {
        let again = Again(self, route, call);
        yield_now().await;
        mem::forget(again);
        reply
    }
}

struct Again<'a>(&'a Bench, Route, &'a Call);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        let Self(bench, route, call) = *self;
        let _unread = bench.perform(route, call).now_or_never();
    }
}
