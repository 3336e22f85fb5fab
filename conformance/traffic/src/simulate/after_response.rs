use futures_util::future::BoxFuture;
use tidegate_core::UnixMillis;

/// What an isolate does after a response.
pub(super) trait AfterResponse: Send + Sync {
    fn after(&self, now: UnixMillis) -> Option<BoxFuture<'static, ()>>;
}
