//! Apps of WASI 0.3, such as one behind a middleware. As in Spin, an instance answers several requests at once, and is used again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::time::Sleep;
use wasmtime::component::GuestTaskId;
use wasmtime::{Result, Store, StoreContextMut};
use wasmtime_wasi_http::handler::{
    HandlerState, Instance as Worker, Proxy, ProxyHandler, ShouldAccept, ViewFn, WorkerExpiration, WorkerState,
    WorkerStatus,
};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p3::WasiHttpView as _;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use crate::instance::Instance;
use crate::shared::Shared;

/// The requests that one instance answers, as in Spin.
const REQUESTS_MAX: usize = 128;

/// The requests that one instance answers at once, as in Spin.
const REQUESTS_AT_ONCE: usize = 16;

/// How long an instance without requests is kept, as in Spin.
const IDLE: Duration = Duration::from_secs(1);

/// What answers the requests.
pub(crate) type Handler = ProxyHandler<Middleware>;

/// Makes instances.
pub(crate) struct Middleware {
    pre: ServicePre<Instance>,
    shared: Arc<Shared>,
}

pub(crate) fn handler(pre: ServicePre<Instance>, shared: Arc<Shared>) -> Handler {
    ProxyHandler::new(Middleware { pre, shared })
}

pub(crate) async fn answer(handler: &Handler, request: Request<Incoming>) -> Result<Response<HyperOutgoingBody>> {
    let request = request
        .map(|body| body.map_err(|error| ErrorCode::InternalError(Some(error.to_string())).into()).boxed_unsync());
    let response = handler.handle((), request).await?;
    Ok(response.map(|body| body.map_err(|error| ErrorCode::InternalError(Some(error.to_string()))).boxed_unsync()))
}

impl HandlerState for Middleware {
    type StoreData = Instance;
    type WorkerExpiration = Expiration;
    type WorkerState = Requests;

    async fn instantiate(&self) -> Result<Worker<Instance, Expiration, Requests>> {
        let mut store = self.shared.store(self.pre.engine(), None)?;
        let proxy = Proxy::P3(self.pre.instantiate_async(&mut store).await?);
        let expiration = Expiration(Box::pin(tokio::time::sleep(IDLE)));
        Ok(Worker { store, proxy, view: ViewFn::P3(Instance::http), expiration, state: Requests })
    }
}

/// Ends an instance that has no requests.
pub(crate) struct Expiration(Pin<Box<Sleep>>);

impl WorkerExpiration for Expiration {
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>, status: WorkerStatus, since: Instant) -> Poll<()> {
        if status != WorkerStatus::Idle {
            return Poll::Pending;
        }
        let end = (since + IDLE).into();
        if self.0.deadline() != end {
            self.0.as_mut().reset(end);
        }
        self.0.as_mut().poll(context)
    }
}

/// The requests of an instance.
pub(crate) struct Requests;

impl WorkerState for Requests {
    type StoreData = Instance;
    type RequestId = ();

    fn should_accept_request(&self, at_once: usize, all: usize) -> ShouldAccept {
        match () {
            () if all >= REQUESTS_MAX => ShouldAccept::Never,
            () if at_once >= REQUESTS_AT_ONCE => ShouldAccept::No,
            () => ShouldAccept::Yes,
        }
    }

    fn on_request_start(
        &self,
        _: StoreContextMut<'_, Instance>,
        (): (),
        _: GuestTaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        Box::pin(std::future::pending())
    }

    fn drop(&self, _: Store<Instance>, ended: Result<()>) {
        if let Err(error) = ended {
            eprintln!("an instance ended: {error:?}");
        }
    }
}
